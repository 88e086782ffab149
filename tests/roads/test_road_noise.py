"""What noise on road networks tells: exactly, by frequencies, and to a black-box audit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.sparse.csgraph import dijkstra, floyd_warshall

import hereish
from hereish import LaplaceTest, PredictiveMechanism, Privacy, SeededDraws
from hereish.audit.learnt_score import learn
from hereish.audit.pair_audit import PairAudit, audit_pair
from hereish.core.types import Floats, Ints, PerLane
from hereish.roads import RoadGraph, RoadNetwork
from tests.support.audited_parts import SamePlan
from tests.support.laws import ALPHA, cells_p, ratio_p, smallest_ratio, uniforms
from tests.support.published_law import budget_claim, in_batch, law, on_globe, times
from tests.support.towns import HELSINKI, blocks, helsinki, helsinki_for_cars, village

CLAIM = RoadNetwork.claim_factor
NETWORKS = ["blocks", "helsinki"]
real = pytest.mark.skipif(not HELSINKI.exists(), reason="needs the data beside the repository")
EITHER = [pytest.param("blocks"), pytest.param("helsinki", marks=real)]


def town(name: str) -> RoadGraph:
    return helsinki() if name == "helsinki" else blocks(13)


def chances(graph: RoadGraph, node: int, half_eps: float) -> Floats:
    """The exponential mechanism, from distances of scipy."""
    far_m = 0.01 * dijkstra(graph.matrix, indices=node)
    weights = np.exp(-np.minimum(half_eps * far_m, math.log(len(graph) / 1e-4)))
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("name", EITHER)
@pytest.mark.parametrize("eps", [0.003, 0.02])
def test_neighbours_differ_by_what_is_promised_at_most(name: str, eps: float) -> None:
    """Exactly, at both ends of 60 roads, for every node that may be released."""
    graph = town(name)
    rows = np.linspace(0, len(graph.edges) - 1, 60).astype(np.int64)
    degree = np.bincount(graph.edges.ravel())
    ends = np.flatnonzero((degree[graph.edges] == 1).any(axis=1))[:10]
    used = {"half": 0.0, "whole": 0.0}
    for edge in np.concatenate([rows, ends]).tolist():
        a, b = graph.edges[edge].tolist()
        apart = 0.01 * float(dijkstra(graph.matrix, indices=a)[b])
        for kind, factor in (("half", 0.5), ("whole", 1.0)):
            loss = np.log(chances(graph, a, factor * eps) / chances(graph, b, factor * eps))
            used[kind] = max(used[kind], float(np.abs(loss).max()) / (eps * apart))
    assert used["half"] <= 1.0 + 1e-9
    if name == "helsinki":
        assert used["whole"] > 1.3, "control: the whole eps in the exponent is too much"


@pytest.mark.parametrize("name", EITHER)
def test_draws_have_the_chances_of_the_exponential_mechanism(name: str) -> None:
    """n = 4,000, alpha = 1e-6: nodes by distance in 24 cells of equal chance."""
    graph, eps, n = town(name), 0.006, 4_000
    space, node = RoadNetwork(graph), len(graph) // 3
    x = np.tile(graph.nodes[node], (n, 1))
    found = graph.nearest(space.noise(x, eps, uniforms(21, n, space.uniforms)))
    order = np.argsort(dijkstra(graph.matrix, indices=node), kind="stable")
    exact = chances(graph, node, 0.5 * eps)
    cell = np.empty(len(graph), dtype=np.int64)
    cell[order] = np.minimum((np.cumsum(exact[order]) * 24).astype(np.int64), 23)
    counts = np.bincount(cell[found], minlength=24)

    def p_of(share: Floats) -> float:
        return cells_p(counts, np.bincount(cell, weights=share, minlength=24).astype(np.float64))

    assert p_of(exact) >= ALPHA
    assert p_of(chances(graph, node, 0.6 * eps)) < ALPHA, "control: a fifth less noise"
    crow = space._lower_bound(node)
    nearer = np.exp(-0.5 * eps * crow)
    assert p_of(nearer / nearer.sum()) < ALPHA, "control: the crow's distance"


def _frequencies(space: RoadNetwork, node: int, eps: float, seed: int, n: int) -> Ints:
    x = np.tile(space.graph.nodes[node], (n, 1))
    found = space.graph.nearest(space.noise(x, eps, uniforms(seed, n, space.uniforms)))
    return np.bincount(found, minlength=len(space.graph))


def test_frequencies_of_the_law_laplace_obey_the_bound_in_the_distance_along_roads() -> None:
    """n = 200,000 at each of two nodes, alpha = 1e-6; a tenth more than the bound is seen.

    The nodes are joined by straight roads, so that there is nothing to spare.
    """
    graph, eps, n = village(), 0.004, 200_000
    space = RoadNetwork(graph, "laplace")
    apart = 0.01 * floyd_warshall(graph.matrix)
    for a, b in ((0, 1), (0, 2), (2, 4)):
        bound = math.exp(eps * apart[a, b])
        of_a, of_b = (_frequencies(space, node, eps, 31 + node, n) for node in (a, b))
        assert smallest_ratio(int((of_a + of_b).max()), 5, bound) < 1.1 * bound
        assert ratio_p(of_a, of_b, bound) >= ALPHA
        loud_a, loud_b = (_frequencies(space, v, 2.0 * eps, 41 + v, n) for v in (a, b))
        assert ratio_p(loud_a, loud_b, bound) < ALPHA, "control: half the noise"


# The black-box audit: two traces, 6,000 runs of each, a quarter of them to learn from.


@cache
def tables(graph: RoadGraph) -> Floats:
    return np.asarray(0.01 * floyd_warshall(graph.matrix))


@dataclass(frozen=True)
class Streets:
    """How an observer with a map measures: along the roads."""

    graph: RoadGraph

    def positions(self, points: Floats) -> Floats:
        return np.column_stack([self.graph.nearest(points).astype(np.float64), points])

    def distance(self, place: Floats, positions: Floats) -> Floats:
        nodes = positions[:, 0].astype(np.int64)
        far = tables(self.graph)[int(place[0]), nodes]
        return np.where(nodes < 0, np.nan, CLAIM * far)

    def flat(self, place: Floats, positions: Floats) -> Floats:
        return np.asarray(1e5 * (positions[:, 1:] - place[1:]))


@dataclass(frozen=True)
class Louder(RoadNetwork):
    """A seeded bug: noise of four times the eps that is paid."""

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return super().noise(x, 4.0 * eps, u)


def _audited(space: RoadNetwork, plan: SamePlan, nodes: tuple[int, int]) -> PairAudit:
    graph = space.graph
    m = PredictiveMechanism(Privacy(0.06, 1.0), plan, space, decision=LaplaceTest())
    traces = [np.tile(graph.nodes[node], (2, 1)) for node in nodes]
    along = np.full(2, CLAIM * tables(graph)[nodes])
    pair = replace(on_globe(*traces), apart=along, geometry=Streets(graph))
    return audit_pair(
        in_batch(m, times(2), SeededDraws(51)),
        pair,
        {"law": law(), "learnt": learn},
        claim=budget_claim(m, pair),
        runs=6_000,
    )


@pytest.mark.parametrize("name", EITHER)
@pytest.mark.parametrize("kind", ["exponential", "laplace"])
def test_an_observer_learns_no_more_than_is_claimed(name: str, kind: Any) -> None:
    graph = helsinki_for_cars() if name == "helsinki" else blocks(6)
    a = len(graph) // 2
    near = np.abs(tables(graph)[a] - 150.0)
    nodes = (a, int(near.argmin()))
    plan = SamePlan(0.002, 0.008, 60.0)
    found = _audited(RoadNetwork(graph, kind), plan, nodes)
    assert not found.refuted, found.worst
    assert found.loss > 0.25, "it does learn something"
    assert _audited(Louder(graph, kind), plan, nodes).refuted, "control: a quarter of the noise"


def test_seeds_and_uniforms_make_releases_reproducible() -> None:
    space = RoadNetwork(blocks())
    m = hereish.independent(Privacy(1.0, 100.0), reports=2, space=space)
    x = np.tile(space.graph.nodes[5], (2, 1))
    one, other = (hereish.sanitize(m, x, [0.0, 1.0], [0, 2], seed=s).value for s in (1, 1))
    assert np.array_equal(one, other)
    different = hereish.sanitize(m, x, [0.0, 1.0], [0, 2], seed=2).value
    assert not np.array_equal(one, different)
