"""Lines become a graph: joined where they meet, cut evenly, in one part, the same every time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.sparse.csgraph import dijkstra

from hereish import ParameterError, Sphere
from hereish.roads import graph_from_lines
from hereish.roads.building import find_chains
from hereish.roads.graph import RoadGraph
from tests.support.towns import blocks, metres

SPHERE = Sphere()


def town(*lines: list[tuple[float, float]], **settings: Any) -> RoadGraph:
    """A network of lines in metres north and east."""
    return graph_from_lines([metres(np.array(line)) for line in lines], name="town", **settings)


def between(graph: RoadGraph, a: tuple[float, float], b: tuple[float, float]) -> float:
    """Metres along roads between two places in metres north and east."""
    one, other = graph.nearest(metres(np.array([a, b])))
    return float(dijkstra(graph.matrix, indices=one)[other]) / 100.0


def test_lines_that_share_a_point_meet_and_lines_that_cross_do_not() -> None:
    meeting = town([(0, 0), (0, 500), (0, 1000)], [(0, 500), (500, 500)])
    crossing = town([(0, 0), (0, 1000)], [(-300, 500), (500, 500)], [(0, 0), (-300, 500)])
    assert between(meeting, (500, 500), (0, 0)) == pytest.approx(1000.0, abs=0.2)
    assert between(crossing, (500, 500), (0, 1000)) > 2000.0


def test_nodes_are_at_junctions_and_ends_and_evenly_between_them() -> None:
    graph = town([(0, 0), (0, 10), (0, 30), (0, 620)], [(0, 620), (250, 620)], spacing_m=100.0)
    # A ring of nothing: both lines are one road of 870 m, in nine pieces.
    assert len(graph) == 10
    assert graph.lengths_cm.max() - graph.lengths_cm.min() <= 2
    assert graph.lengths_cm.sum() == pytest.approx(87_000, abs=20)
    three = town([(0, 0), (0, 620)], [(0, 620), (250, 620)], [(0, 620), (-250, 620)])
    degree = np.bincount(three.edges.ravel())
    assert sorted(degree[degree != 2].tolist()) == [1, 1, 1, 3]
    assert three.nearest(metres(np.array([[0.0, 620.0]])))[0] == np.argmax(degree)


def test_no_edge_is_shorter_than_the_crow_flies_and_curves_keep_their_length() -> None:
    turn = np.linspace(0.0, math.pi, 400)
    half_circle = np.column_stack([1000.0 * np.sin(turn), -1000.0 * np.cos(turn)])
    graph = town([tuple(p) for p in half_circle.tolist()], spacing_m=500.0)
    low, high = graph.edges.T
    crow = SPHERE.distance(graph.nodes[low], graph.nodes[high])
    assert (graph.lengths_cm / 100.0 >= crow - 1e-7).all()
    assert graph.directness >= 1.0 - 1e-9
    assert (graph.lengths_cm / 100.0 > 1.008 * crow).all(), "the curve is longer than its chords"
    assert graph.lengths_cm.sum() == pytest.approx(100_000 * math.pi, rel=1e-4)


def test_only_the_longest_part_is_kept() -> None:
    many_short = [[(5000.0 + 20 * i, 0.0), (5000.0 + 20 * i, 10.0)] for i in range(30)]
    graph = town([(0, 0), (0, 900)], [(0, 900), (0, 1500)], *many_short)
    assert SPHERE.distance(graph.nodes, metres(np.zeros((len(graph), 2)))).max() < 1501.0


def test_the_order_of_lines_and_of_their_points_does_not_matter() -> None:
    lines = [
        [(0.0, 0.0), (0.0, 500.0), (400.0, 500.0)],
        [(0.0, 500.0), (-300.0, 100.0)],
        [(400.0, 500.0), (-300.0, 100.0)],
    ]
    one = town(*lines)
    other = town(*[line[::-1] for line in lines[::-1]])
    assert np.array_equal(one.nodes_e7, other.nodes_e7)
    assert np.array_equal(one.edges, other.edges)
    assert one.digest == other.digest


def test_of_two_roads_between_the_same_corners_the_shorter_counts() -> None:
    graph = town(
        [(-900, 0), (0, 0), (0, 300), (0, 900)], [(0, 0), (100, 150), (0, 300)], spacing_m=5000.0
    )
    assert between(graph, (0, 0), (0, 300)) == pytest.approx(300.0, abs=0.1)


def test_a_ring_and_a_loop_at_the_end_of_a_road_are_roads() -> None:
    ring = town([(0, 0), (0, 400), (275, 400), (275, 0), (0, 0)])
    assert len(ring.edges) == len(ring) == 14
    loop = town([(0, -500), (0, 0), (0, 400), (300, 400), (0, 0)])
    assert loop.lengths_cm.sum() == pytest.approx(170_000, abs=30)
    assert between(loop, (300, 400), (0, -500)) == pytest.approx(1000.0, abs=100.0)


def test_roads_cross_the_antimeridian_and_come_near_the_pole() -> None:
    halves = np.array([[(10.0, 179.99), (10.0, 180.0)], [(10.0, -180.0), (10.0, -179.99)]])
    across = graph_from_lines(halves, name="date line")
    apart_m = SPHERE.distance(halves[:, 0], halves[:, 1]).sum()
    assert across.lengths_cm.sum() == pytest.approx(100.0 * apart_m, rel=1e-4)
    assert (across.nodes[:, 1] < 180.0).all()
    to_pole = graph_from_lines([[(89.99, 0.0), (90.0, 0.0)]], name="pole")
    assert to_pole.lengths_cm.sum() == pytest.approx(111_195, rel=1e-3)
    assert np.isfinite(to_pole.nodes).all()


def test_chains_hold_every_edge_once() -> None:
    graph = blocks(5)
    chains = find_chains(graph.edges, graph.lengths_cm.astype(np.float64), len(graph))
    steps = np.ones(len(chains.nodes) - 1, dtype=np.bool_)
    steps[chains.offsets[1:-1] - 1] = False
    a, b = chains.nodes[:-1][steps], chains.nodes[1:][steps]
    found = np.column_stack([np.minimum(a, b), np.maximum(a, b)])
    assert np.array_equal(np.unique(found, axis=0), graph.edges)
    assert len(found) == len(graph.edges)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "there are no lines"),
        ([[(1.0, 2.0)]], "two different points"),
        ([[(1.0, 2.0), (1.0, 2.0)]], "two different points"),
        ([[(100.0, 2.0), (1.0, 2.0)]], "latitudes up to 90"),
        ([[(math.nan, 2.0), (1.0, 2.0)]], "latitudes up to 90"),
        ([[1.0, 2.0]], r"array of latitudes and longitudes"),
    ],
)
def test_what_is_no_road_is_refused(lines: list[Any], reason: str) -> None:
    with pytest.raises(ParameterError, match=reason):
        graph_from_lines(lines, name="none")
    with pytest.raises(ParameterError, match="spacing_m must be"):
        town([(0, 0), (0, 1)], spacing_m=0.0)
