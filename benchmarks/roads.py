"""What roads cost: a step on a network of 50,000 nodes, and a prediction that follows roads."""

from __future__ import annotations

from functools import partial

import numpy as np

import hereish
from benchmarks.mechanism import PRIVACY
from benchmarks.results import Result, shortest_times
from hereish.core.step import step
from hereish.roads import RoadGraph, RoadNetwork, graph_from_lines

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
