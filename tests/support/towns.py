"""Small road networks: streets on a grid, a few roads with a dead end, and the real ones."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from hereish.core.types import Floats
from hereish.roads import RoadGraph, graph_from_lines, read_roads
from hereish.roads.graph import PER_DEGREE
from tests.support.paths import DATA

DEGREE_M = math.radians(1.0) * 6371008.771415059  # of latitude, and of longitude at the equator
ROADS = DATA / "roads"
HELSINKI = ROADS / "helsinki.osm.pbf"


def metres(points: Floats) -> Floats:
    """Metres north and east of a place on the equator as latitudes and longitudes."""
    return np.asarray(points, dtype=np.float64) / DEGREE_M + [0.0, 20.0]


@cache
def blocks(side: int = 9, block_m: float = 100.0) -> RoadGraph:
    """So many streets each way, one every block, and a node at every corner."""
    at = block_m * np.arange(side)
    corners = metres(np.stack(np.meshgrid(at, at, indexing="ij"), axis=-1))
    streets = [*corners, *corners.swapaxes(0, 1)]
    return graph_from_lines(streets, name="blocks", spacing_m=block_m)


def network(places_m: list[tuple[float, float]], edges: list[tuple[int, int, float]]) -> RoadGraph:
    """A network of places in metres north and east, and edges with their lengths in metres."""
    places = np.rint(metres(np.array(places_m)) * PER_DEGREE).astype(np.int64)
    order = np.lexsort((places[:, 1], places[:, 0]))
    number = np.argsort(order)
    rows = sorted((*sorted((int(number[a]), int(number[b]))), round(100 * m)) for a, b, m in edges)
    table = np.array(rows)
    return RoadGraph("network", places[order], table[:, :2], table[:, 2])


@cache
def village() -> RoadGraph:
    """Five nodes: a square of four roads of different lengths, and a dead end at one corner."""
    corners = [(0.0, 0.0), (0.0, 300.0), (150.0, 0.0), (150.0, 300.0), (260.0, 0.0)]
    roads = [(0, 1, 301.0), (1, 3, 170.0), (2, 3, 310.0), (0, 2, 151.0), (2, 4, 130.0)]
    return network(corners, roads)


@cache
def helsinki() -> RoadGraph:
    """The middle of Helsinki, where the data is at hand."""
    return read_roads(HELSINKI)


@cache
def helsinki_for_cars() -> RoadGraph:
    """The larger streets of the same."""
    kinds = ("primary", "secondary", "tertiary", "residential", "unclassified")
    return read_roads(HELSINKI, kinds=kinds)
