"""What following the roads brings: python examples/map_matching.py ROADS TRACES [--every 60]

Reads a road file and traces (as `hereish evaluate` does), keeps what lies within the roads, one fix
at least every so many seconds, and ends a trace where the logger was silent for five minutes. Half
of the users choose the numbers of each prediction, and the others are scored. For each accuracy the
paper's mechanism with a fixed utility predicts by repeating the last release, by a straight line,
by following the roads straight on, and by following them to where a mobility model points at each
crossing. That model is learnt from the first half of the users, as if their traces were public, and
its number of places is chosen with the others. Cost is what a report costs on average, over what
independent noise of the same accuracy does. Nothing here is private: the noise comes from a seed.
"""

# ruff: noqa: T201  # it prints

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import hereish
from hereish.evaluation.dataset import Trajectories, cut_at_silence, load, split_users
from hereish.evaluation.days import time_zone_of
from hereish.mobility import learn_model
from hereish.roads import RoadGraph, RoadPrediction, read_roads

ACCURACIES_M = (200.0, 500.0, 3000.0)
SILENT_S, LEAST_FIXES, MOST_FIXES = 300.0, 10, 150_000
PACES, STILLS = (0.3, 0.5, 0.7, 0.9), (1.0, 2.0)  # of the speed; of the accuracy
PLACES = (16, 64, 256)  # of the mobility model
AMPLE = hereish.Privacy(level=1e9, radius_m=1.0)  # nobody's budget ends
SPHERE = hereish.Sphere()
Floats = NDArray[np.float64]


class Row(NamedTuple):
    """One prediction at one accuracy, scored on users that had no say in its numbers."""

    accuracy_m: float
    prediction: str
    settings: str
    accepted: float  # share of the reports
    cost: float  # over that of independent noise
    cost_moving: float  # of the reports of those who moved by more than 100 m since the last
    error_m: float


def straight_line(graph: RoadGraph, still_m: float, pace: float) -> hereish.Prediction:
    """The same direction and speed as on the roads, with no road in the way."""
    horizon_s = RoadPrediction(graph).horizon_s

    def predict(run: hereish.Run, at_s: Floats) -> Floats:
        newest, oldest = run.values[:, 0], run.values[:, 2]
        lasted_s = run.times_s[:, 0] - run.times_s[:, 2]
        since_s = at_s - run.at_s
        moves = (SPHERE.distance(newest, oldest) > still_m) & (lasted_s > 0.0)
        moves &= (lasted_s <= horizon_s) & (since_s <= horizon_s)
        share = np.where(moves, pace * since_s / np.where(moves, lasted_s, 1.0), 0.0)[:, None]
        return np.where(moves[:, None], newest + share * (newest - oldest), newest)

    return hereish.prediction(predict, memory=3, needs_history=False)


def pointing_the_way(traces: Trajectories, places: int) -> hereish.Mobility:
    """A mobility model of these users, whose `towards` says where somebody is going."""
    whose = np.repeat(traces.user, np.diff(traces.offsets))
    time_zone = time_zone_of(traces.points)
    model = learn_model(
        traces.at_s,
        traces.points,
        whose,
        name=f"{traces.name}, {places} places",
        time_zone=time_zone,
        places=places,
    )
    return hereish.Mobility(time_zone=time_zone, model=model)


def traces_on(graph: RoadGraph, trajectories: Trajectories, every_s: float) -> Trajectories:
    """What lies within the roads, thinned, cut at silences, without what is too short."""
    low, high = graph.nodes.min(axis=0), graph.nodes.max(axis=0)
    inside = ((trajectories.points >= low) & (trajectories.points <= high)).all(axis=1)
    trace = np.repeat(np.arange(len(trajectories)), np.diff(trajectories.offsets))
    # A new trace begins where somebody comes back into the town.
    begins = np.r_[True, (trace[1:] != trace[:-1]) | (inside[1:] != inside[:-1])]
    slot = np.floor(trajectories.at_s / every_s)
    first = begins | np.r_[True, slot[1:] != slot[:-1]]
    kept = np.flatnonzero(inside & first)
    part = np.cumsum(begins)[kept]
    offsets = np.r_[np.flatnonzero(np.diff(part, prepend=-1)), len(kept)]
    cut = cut_at_silence(
        Trajectories(
            trajectories.name,
            trajectories.at_s[kept],
            trajectories.points[kept],
            offsets,
            trajectories.user[trace[kept[offsets[:-1]]]],
            trajectories.users,
        ),
        SILENT_S,
    )
    return cut.take(np.diff(cut.offsets) >= LEAST_FIXES)


def measure(traces: Trajectories, accuracy_m: float, prediction: object) -> tuple[float, ...]:
    """Accepted share, cost, cost of those who moved, and mean error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hereish.DoesNotPayOffWarning)  # that is what is measured
        m = hereish.fixed_utility(AMPLE, accuracy_m, prediction=prediction)  # type: ignore[arg-type]
    out = hereish.sanitize(m, traces.points, traces.at_s, traces.offsets, seed=1)
    alone = m.budget(m.run(1), np.zeros(1)).eps_noise  # type: ignore[operator]
    moved = np.r_[False, SPHERE.distance(traces.points[1:], traces.points[:-1]) > 100.0]
    moved[traces.offsets[:-1]] = False
    error_m = SPHERE.distance(traces.points, out.value)
    costs = out.cost / alone
    return 1.0 - out.hard.mean(), costs.mean(), costs[moved].mean(), error_m.mean()


def compare(graph: RoadGraph, traces: Trajectories) -> list[Row]:
    """Every prediction at every accuracy."""
    tuning = split_users(traces.users, 0.5, seed=1)[traces.user]
    halves = [_at_most(traces.take(which)) for which in (tuning, ~tuning)]
    models = [pointing_the_way(traces.take(tuning), places) for places in PLACES]
    kinds: dict[str, dict[str, Callable[..., object]]] = {
        "straight line": {"": partial(straight_line, graph)},
        "roads": {"": partial(RoadPrediction, graph)},
        "roads, mobility model": {
            f", {len(one.model or ())} places": partial(RoadPrediction, graph, towards=one.towards)
            for one in models
        },
    }
    rows = []
    for accuracy_m in ACCURACIES_M:
        rows.append(
            Row(accuracy_m, "repeat", "", *measure(halves[1], accuracy_m, hereish.Parrot()))
        )
        for name, variants in kinds.items():
            tried = []
            for (more, make), pace, still in product(variants.items(), PACES, STILLS):
                prediction = make(still_m=still * accuracy_m, pace=pace)
                cost = measure(halves[0], accuracy_m, prediction)[1]
                chosen = f"pace {pace}, still {still * accuracy_m:g} m{more}"
                tried.append((cost, chosen, prediction))
            _, settings, prediction = min(tried, key=lambda one: one[0])
            rows.append(
                Row(accuracy_m, name, settings, *measure(halves[1], accuracy_m, prediction))
            )
    return rows


def _at_most(traces: Trajectories) -> Trajectories:
    """Some of the traces, evenly over all, with no more fixes than are wanted."""
    keep = max(1, len(traces.at_s) // MOST_FIXES)
    return traces.take(np.arange(0, len(traces), keep))


def main() -> None:
    """Read, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("roads")
    parser.add_argument("traces")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two reports")
    options = parser.parse_args()
    graph = read_roads(options.roads)
    traces = traces_on(graph, load([options.traces]), options.every)
    print(f"{graph!r}; {traces!r} of {len(np.unique(traces.user))} users\n")
    print("| accuracy | prediction | accepted | cost | cost, moving | mean error | chosen |")
    print("|---|---|---|---|---|---|---|")
    for row in compare(graph, traces):
        print(
            f"| {row.accuracy_m:g} m | {row.prediction} | {row.accepted:.1%} | {row.cost:.3f} "
            f"| {row.cost_moving:.3f} | {row.error_m:.0f} m | {row.settings} |"
        )


if __name__ == "__main__":
    main()
