"""What roads cost: a step on a network of 50,000 nodes, and a prediction that follows roads."""

from __future__ import annotations

from functools import partial

import numpy as np

import hereish
from benchmarks.mechanism import PRIVACY
from benchmarks.results import Result, shortest_times
from hereish.core.step import step
from hereish.roads import RoadGraph, RoadNetwork, RoadPrediction, graph_from_lines

SIDE, BLOCK_DEG = 224, 8e-4  # 224 streets each way, 89 m apart
STEPS = 40


def streets(side: int = SIDE) -> RoadGraph:
    """A town of blocks on the equator, a node at every corner."""
    at = BLOCK_DEG * np.arange(side)
    corners = np.stack(np.meshgrid(at, at, indexing="ij"), axis=-1)
    return graph_from_lines([*corners, *corners.swapaxes(0, 1)], name="blocks", spacing_m=500.0)


def road_steps() -> list[Result]:
    """One step, tested or not, on 50,000 nodes against one on the sphere."""
    graph = streets()
    rng = np.random.default_rng(1)
    secrets = graph.nodes[rng.integers(0, len(graph), STEPS)]

    def walk(m: hereish.PredictiveMechanism, u: np.typing.NDArray[np.float64]) -> None:
        run = m.run(1)
        for i, x in enumerate(secrets):
            _, after = step(m, run, x[None], np.full(1, 60.0 * i), u[i : i + 1])
            if not after.ended[0]:  # else from the last run that had a budget, again
                run = after

    spaces = {law: RoadNetwork(graph, law) for law in ("exponential", "laplace")}
    rows = []
    for law, space in spaces.items():
        for name, build in {
            "fixed utility, 3 km": partial(hereish.fixed_utility, PRIVACY, 3000.0),
            "independent, 30 reports": partial(hereish.independent, PRIVACY, reports=30),
        }.items():
            made = [build(), build(space=space)]
            drawn = [rng.uniform(1e-9, 1.0, (STEPS, m.uniforms)) for m in made]
            jobs = [partial(walk, m, u) for m, u in zip(made, drawn, strict=True)]
            sphere, roads = shortest_times(5, *jobs)
            ratio = roads / sphere
            what = f"one step, {name}, {len(graph):,} nodes of roads, law {law} / the sphere"
            rows.append(Result(what, f"{ratio:.1f}", "at most 50", ratio <= 50))
    return rows


def road_prediction() -> list[Result]:
    """A batch of people who drive along streets: following them against repeating a release."""
    graph = streets()
    rng = np.random.default_rng(2)
    traces, reports = 20_000, 30
    start = rng.uniform(0.2, 0.8, (traces, 1, 2)) * BLOCK_DEG * SIDE
    step_deg = rng.choice([-3.0, 0.0, 3.0], (traces, 1, 2)) * BLOCK_DEG  # 270 m each minute
    along = np.minimum(np.arange(reports), rng.integers(5, reports, (traces, 1)))
    points = (start + step_deg * along[:, :, None]).reshape(-1, 2)
    data = points, np.tile(60.0 * np.arange(reports), traces), reports * np.arange(traces + 1)
    ample = hereish.Privacy(level=1e6, radius_m=1.0)
    repeat, roads = (
        hereish.fixed_utility(ample, 200.0, prediction=prediction)
        for prediction in (None, RoadPrediction(graph))
    )
    parrot, ours = shortest_times(
        5, partial(hereish.sanitize, repeat, *data), partial(hereish.sanitize, roads, *data)
    )
    ratio = ours / parrot
    what = (
        f"time per report, fixed utility, 200 m, {traces:,} traces of 30: RoadPrediction / Parrot"
    )
    return [Result(what, f"{ratio:.1f}", "at most 10", ratio <= 10)]
