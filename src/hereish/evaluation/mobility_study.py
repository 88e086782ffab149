"""The mobility model against memory alone, on whole days of people that nobody tuned on.

    python -m hereish.evaluation.mobility_study geolife.parquet --time-zone Asia/Shanghai

Its numbers were tuned on the users that `hereish tune` with the same seed tunes on; the model of a
group is learnt from the fixes of those users. What is printed is of the others.
"""

from __future__ import annotations

import argparse
import math
from typing import NamedTuple

import numpy as np

from hereish.core.mobility import Mobility
from hereish.core.mobility_model import MobilityModel
from hereish.core.places import PlaceMemory
from hereish.core.prediction import Parrot, Prediction
from hereish.core.presets import FEW_DAYS, whole_day
from hereish.core.privacy import Privacy
from hereish.core.spaces import Sphere
from hereish.core.types import Bools
from hereish.core.windows import Day
from hereish.evaluation import dataset
from hereish.evaluation.day_metrics import BeliefSums
from hereish.evaluation.day_study import EVERY_S, sum_up
from hereish.evaluation.days import DayQueries, select_days, time_zone_of
from hereish.mobility import learn_model

PRIVACY = Privacy(math.log(10), 100.0)
LEAST_DAYS = 10
GROUP_PLACES = 16
MEMORY = "memory of places"
_METRICS = ("belief_mean_m", "belief_median_m", "belief_p90_m")


class Compared(NamedTuple):
    """What is believed of a prediction, and how it compares with memory alone."""

    name: str
    sums: BeliefSums


def predictions(time_zone: str, group: MobilityModel | None) -> dict[str, Prediction]:
    """Memory as the presets have it, the same with more places, and the mobility model."""
    memory = FEW_DAYS.memory(PRIVACY, Sphere(), time_zone)
    kept = (memory.reach, memory.blur, memory.habit)
    mobility = Mobility(time_zone=time_zone)
    found: dict[str, Prediction] = {
        MEMORY: memory,
        "the same, 12 places": PlaceMemory(Sphere(), time_zone, 12, *kept),
        "last release again": Parrot(),
        "mobility model": mobility,
    }
    if group is not None:
        found["the same, of a group"] = Mobility(time_zone=time_zone, model=group)
    return found


def group_of(trajectories: dataset.Trajectories, who: Bools, time_zone: str) -> MobilityModel:
    """A model of these users, as if their traces were public."""
    whose = np.repeat(trajectories.user, np.diff(trajectories.offsets))
    own = who[whose]
    return learn_model(
        trajectories.at_s[own],
        trajectories.points[own],
        whose[own],
        name=f"{trajectories.name}, tuned on",
        time_zone=time_zone,
        places=GROUP_PLACES,
    )


def days_of(queries: DayQueries) -> np.ndarray:
    """How many days each trace has."""
    first = queries.day[queries.offsets[:-1]]
    return np.asarray(queries.day[queries.offsets[1:] - 1] - first + 1)


def compare(
    queries: DayQueries, group: MobilityModel | None, samples: int, seed: int
) -> list[Compared]:
    """Every prediction with the same noise, at the same budget."""
    window = Day(queries.time_zone)
    return [
        Compared(
            name,
            sum_up(
                whole_day(PRIVACY, window=window, prediction=one, numbers=FEW_DAYS),
                queries,
                samples,
                np.random.default_rng([seed, 7]),
            ),
        )
        for name, one in predictions(queries.time_zone, group).items()
    ]


def table(found: list[Compared], seed: int) -> str:
    """Errors of beliefs in metres, and as shares of those of memory alone with 95 % intervals."""
    rows = [
        "| prediction | average | median | 90 % | average / memory's | median / | 90 % / |",
        "|---|---|---|---|---|---|---|",
    ]
    base = next(one for one in found if one.name == MEMORY)
    for one in found:
        value, low, high = one.sums.ratios(base.sums, np.random.default_rng([seed, 8]))
        metres = [f"{getattr(one.sums.metrics(), name):.0f} m" for name in _METRICS]
        shares = [
            f"{getattr(value, name):.3f} ({getattr(low, name):.3f} to {getattr(high, name):.3f})"
            for name in _METRICS
        ]
        rows.append(f"| {' | '.join([one.name, *metres, *shares])} |")
    return "\n".join(rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m hereish.evaluation.mobility_study")
    parser.add_argument("data", nargs="*", help="files of traces; the made-up city without any")
    parser.add_argument("--time-zone", help="of the days; by the longitude if none is given")
    parser.add_argument("--samples", type=int, default=10, help="of the noise")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--training",
        action="store_true",
        help="the users that were tuned on, without a group: what a search looks at",
    )
    options = parser.parse_args()
    data = dataset.load(options.data) if options.data else dataset.synthetic_days()
    time_zone = options.time_zone or time_zone_of(data.points)
    training = dataset.split_users(data.users, dataset.TRAIN_SHARE, options.seed)
    queries = select_days(data, time_zone, EVERY_S)
    group = None if options.training else group_of(data, training, time_zone)
    chosen = training[queries.user] == options.training
    long = days_of(queries) >= LEAST_DAYS
    print(f"{PRIVACY} per day, a query every {EVERY_S / 60:g} minutes, whole_day; {data!r}")
    if group is not None:
        print(f"{group!r}")
    for title, some in (
        (f"at least {LEAST_DAYS} days", chosen & long),
        (f"fewer than {LEAST_DAYS} days", chosen & ~long),
    ):
        if not some.any():
            continue
        own = queries.take(np.flatnonzero(some))
        print(f"\nUsers with {title}: {own!r}\n")
        print(table(compare(own, group, options.samples, options.seed), options.seed), flush=True)


if __name__ == "__main__":
    main()
