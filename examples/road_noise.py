"""How far noise on a road network goes: python examples/road_noise.py ROADS

For several sizes of noise, the mean distance from the true node to the released one, along the
roads and as the crow flies, for both laws of `hereish.roads.RoadNetwork`, on average over the
network. As the crow flies "laplace" is what a `hereish.Sphere` of the same eps would release, moved
to a node. Nothing here is private: the noise comes from a seed.
"""

# ruff: noqa: T201  # it prints

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np

import hereish
from hereish.roads import RoadGraph, RoadNetwork, read_roads

SIZES_M = (100.0, 250.0, 500.0, 1000.0, 2000.0)  # mean radius of noise on a sphere: 2 / eps
DRAWS = 1500


class Row(NamedTuple):
    """Mean distances in metres for one size of noise."""

    size_m: float
    exponential_m: float  # along roads
    laplace_m: float
    exponential_crow_m: float
    laplace_crow_m: float


def measure(graph: RoadGraph, draws: int = DRAWS) -> list[Row]:
    """A row for each size of noise."""
    rng = np.random.default_rng(1)
    x = graph.nodes[rng.integers(0, len(graph), draws)]
    rows = []
    for size_m in SIZES_M:
        along, crow = [], []
        for space in (RoadNetwork(graph, "exponential"), RoadNetwork(graph, "laplace")):
            released = space.noise(x, 2.0 / size_m, rng.uniform(1e-9, 1.0, (draws, space.uniforms)))
            along.append(float(space.distance(x, released).mean()))
            crow.append(float(hereish.Sphere().distance(x, released).mean()))
        rows.append(Row(size_m, *along, *crow))
    return rows


def main() -> None:
    """Read, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("roads")
    graph = read_roads(parser.parse_args().roads)
    print(f"{graph!r}\n")
    heads = ("sphere", "roads, exponential", "roads, laplace", "crow, exponential", "crow, laplace")
    print("| " + " | ".join(heads) + " |")
    print("|---|---|---|---|---|")
    for row in measure(graph):
        print("| " + " | ".join(f"{value:.0f} m" for value in row) + " |")


if __name__ == "__main__":
    main()
