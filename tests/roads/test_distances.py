"""Distances along roads are those of scipy's algorithms, to the centimetre, for any network."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import dijkstra, floyd_warshall

from hereish import ParameterError
from hereish.roads import RoadGraph, graph_from_lines
from hereish.roads.distances import DistanceIndex
from tests.support.towns import HELSINKI, blocks, helsinki, metres, network, village


def all_pairs(index: DistanceIndex, count: int) -> np.typing.NDArray[np.int64]:
    a, b = np.divmod(np.arange(count * count), count)
    return index.between_cm(a, b).reshape(count, count)


def random_roads(seed: int, count: int) -> RoadGraph:
    """Places anywhere, joined to some near ones: bridges, rings, dead ends and long chains."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0.0, 3000.0, (count, 2))
    lines = []
    for i in range(1, count):
        near = np.argsort(((places[:i] - places[i]) ** 2).sum(axis=1))[: rng.integers(1, 4)]
        lines += [metres(places[[i, j]]) for j in near]
    return graph_from_lines(lines, name="random", spacing_m=float(rng.choice([60.0, 400.0, 1e5])))


@settings(derandomize=True, database=None, deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(2, 60))
def test_distances_of_small_networks(seed: int, count: int) -> None:
    graph = random_roads(seed, count)
    some = np.random.default_rng(seed).integers(0, len(graph), 60)
    a, b = np.repeat(some, len(some)), np.tile(some, len(some))
    assert np.array_equal(DistanceIndex(graph).between_cm(a, b), floyd_warshall(graph.matrix)[a, b])


@pytest.mark.parametrize("graph", [blocks(), blocks(23), village()], ids=repr)
def test_streets_on_a_grid(graph: RoadGraph) -> None:
    index, rng = DistanceIndex(graph), np.random.default_rng(1)
    a, b = rng.integers(0, len(graph), (2, 400))
    assert np.array_equal(
        index.between_cm(a, b), dijkstra(graph.matrix, indices=a)[np.arange(400), b]
    )
    assert np.array_equal(index.between_cm(a, b), index.between_cm(b, a))
    assert not index.between_cm(a, a).any()
    assert index.nbytes < 2000 * len(graph)


def test_a_ring_without_a_junction() -> None:
    ring = metres(np.array([(0.0, 0.0), (0.0, 900.0), (700.0, 900.0), (0.0, 0.0)]))
    graph = graph_from_lines([ring], name="ring")
    found = all_pairs(DistanceIndex(graph), len(graph))
    assert np.array_equal(found, floyd_warshall(graph.matrix))


def test_ways_that_do_not_fit_the_tables_are_refused() -> None:
    long = network([(0.0, 0.0), (0.0, 100.0), (0.0, 200.0)], [(0, 1, 6e6), (1, 2, 6e6)])
    with pytest.raises(ParameterError, match="ways must be shorter than"):
        DistanceIndex(long)


@pytest.mark.skipif(not HELSINKI.exists(), reason="needs the data beside the repository")
def test_a_real_network() -> None:
    graph = helsinki()
    index, rng = DistanceIndex(graph), np.random.default_rng(2)
    for source in rng.integers(0, len(graph), 5).tolist():
        expected = dijkstra(graph.matrix, indices=source)
        found = index.between_cm(np.full(len(graph), source), np.arange(len(graph)))
        assert np.array_equal(found, expected)
