"""A road network is checked, cannot be changed, and is known by its digest."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from hereish import ParameterError, Sphere
from hereish.core.fingerprint import fingerprint
from hereish.roads import RoadGraph
from tests.support.towns import blocks, village


def test_nearest_is_nearest() -> None:
    graph = blocks()
    rng = np.random.default_rng(1)
    points = graph.nodes.mean(axis=0) + rng.normal(0.0, 5e-3, (200, 2))
    apart = (
        Sphere()
        .distance(np.repeat(points, len(graph), axis=0), np.tile(graph.nodes, (len(points), 1)))
        .reshape(len(points), -1)
    )
    found = graph.nearest(points)
    assert np.allclose(apart[np.arange(len(points)), found], apart.min(axis=1), atol=1e-6)
    assert graph.nearest(np.array([[np.nan, 1.0], graph.nodes[7]])).tolist() == [-1, 7]
    assert np.array_equal(graph.nearest(graph.nodes), np.arange(len(graph)))


def test_it_cannot_be_changed_and_survives_pickling() -> None:
    graph = village()
    for array in (graph.nodes_e7, graph.edges, graph.lengths_cm, graph.nodes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    again = pickle.loads(pickle.dumps(graph))  # noqa: S301  # our own bytes
    assert again == graph
    assert hash(again) == hash(graph)
    assert again.digest == graph.digest


def test_another_length_is_another_network_by_digest_and_by_fingerprint() -> None:
    graph = village()
    lengths = graph.lengths_cm.copy()
    lengths[0] += 1
    other = RoadGraph(graph.name, graph.nodes_e7, graph.edges, lengths)
    assert other != graph
    assert other.digest != graph.digest
    assert fingerprint(other) != fingerprint(graph)
    assert fingerprint(RoadGraph(graph.name, graph.nodes_e7, graph.edges, graph.lengths_cm)) == (
        fingerprint(graph)
    )


def test_stretched_roads_are_longer_or_shorter_and_no_less_than_a_centimetre() -> None:
    graph = village()
    twice = graph.stretched(np.full(len(graph.edges), 2.0))
    assert np.array_equal(twice.lengths_cm, 2 * graph.lengths_cm)
    assert graph.stretched(np.array(1e-9)).lengths_cm.tolist() == [1] * len(graph.edges)
    assert graph.stretched(np.array(0.5)).directness == pytest.approx(
        0.5 * graph.directness, rel=1e-3
    )
    for wrong in (0.0, -1.0, np.nan, 1e12):
        with pytest.raises(ParameterError, match=r"factors must|at most"):
            graph.stretched(np.array(wrong))


def changed(**fields: Any) -> RoadGraph:
    graph = village()
    given = {name: getattr(graph, name) for name in ("name", "nodes_e7", "edges", "lengths_cm")}
    return RoadGraph(**(given | fields))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": " "}, "needs a name"),
        ({"nodes_e7": [[0, 0]]}, "two nodes or more"),
        ({"nodes_e7": village().nodes_e7[::-1]}, "sorted by latitude"),
        (
            {"nodes_e7": village().nodes_e7 + np.array([0, 1_700_000_000])},
            "latitudes and longitudes",
        ),
        ({"edges": village().edges[::-1]}, "sorted pairs"),
        ({"edges": village().edges[:, ::-1]}, "sorted pairs"),
        ({"edges": village().edges + 1}, "sorted pairs"),
        ({"edges": village().edges[:, :1]}, "node numbers"),
        ({"lengths_cm": 0 * village().lengths_cm}, "from 1 to"),
        ({"lengths_cm": village().lengths_cm[:-1]}, "node numbers"),
        ({"edges": village().edges[:-1], "lengths_cm": village().lengths_cm[:-1]}, "reachable"),
    ],
)
def test_what_is_no_network_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ParameterError, match=reason):
        changed(**fields)
