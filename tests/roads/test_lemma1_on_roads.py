"""Lemma 1 on a road network, checked exactly on every run; seeded bugs must be caught."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from scipy.sparse.csgraph import floyd_warshall

from hereish import LaplaceTest, NoiseFirst, PartError, Plan, PredictiveMechanism, Privacy, Run
from hereish.core.types import Floats, PerLane
from hereish.roads import RoadGraph, RoadNetwork, RoadPrediction
from tests.support.exact_road_runs import NoiseLaw, road_losses, uniform
from tests.support.exact_runs import UNIFORMS
from tests.support.towns import network, village

AMPLE = Privacy(30.0, 1.0)
MINUTES = [0.0, 60.0]
# Whole weights, whole uniforms: n * 8e-13 + 2**-30 for the noise of each step and 2**-27 for its
# test (road_network.proof.md, decision.proof.md).
TOLERANCE = len(MINUTES) * 2.0**-26


@cache
def apart_m(graph: RoadGraph) -> Floats:
    """All distances in metres, by an algorithm that the library does not use."""
    return np.asarray(0.01 * floyd_warshall(graph.matrix))


def steady(run: Run, at_s: Floats, /) -> Plan:
    return Plan(0.004, 0.006, 150.0)


def wild(run: Run, at_s: Floats, /) -> Plan:
    """A plan that depends on what was released."""
    south = np.nan_to_num(run.value[:, 0]) < 1e-3
    return Plan(0.003, np.where(south, 0.01, 0.002), np.where(south, 290.0, 40.0))


def excess_of(space: RoadNetwork, plan: object = steady) -> tuple[float, float]:
    m = PredictiveMechanism(AMPLE, plan, space, decision=LaplaceTest())  # type: ignore[arg-type]  # a function
    return road_losses(m, space.claim_factor * apart_m(space.graph), MINUTES)


@pytest.mark.parametrize("plan", [steady, wild])
def test_every_run_is_as_private_as_its_released_costs_say(plan: object) -> None:
    excess, used = excess_of(RoadNetwork(village()), plan)
    assert excess <= TOLERANCE
    assert used > 0.7, "the bound is used, not only kept"


def test_so_it_is_on_stretched_roads() -> None:
    """Elastic radii: a metric like any other. Four roads are shortened to a third and less."""
    graph = village().stretched(np.array([0.3, 1.0, 0.2, 0.1, 0.33]))
    assert graph.directness < 0.2
    excess, _ = excess_of(RoadNetwork(graph))
    assert excess <= TOLERANCE


def test_so_it_is_where_guesses_follow_the_roads() -> None:
    corner = [(0.0, 0.0), (200.0, 0.0), (400.0, 0.0), (400.0, 150.0)]
    space = RoadNetwork(network(corner, [(0, 1, 200.1), (1, 2, 200.1), (2, 3, 150.1)]))
    follow = RoadPrediction(space.graph, still_m=1.0, pace=1.0)
    times = [0.0, 60.0, 120.0]
    m = PredictiveMechanism(AMPLE, steady, space, follow, LaplaceTest())
    excess, used = road_losses(m, space.claim_factor * apart_m(space.graph), times)
    assert excess <= 1.5 * TOLERANCE  # three steps
    assert used > 0.7
    # Somebody who has gone from one node to another is guessed at a third.
    one, other = np.meshgrid(np.arange(len(space.graph)), np.arange(len(space.graph)))
    values = space.graph.nodes[np.stack([one.ravel(), other.ravel(), other.ravel()], axis=1)]
    values[:, 2] = np.nan
    run = m.run(len(values))._replace(
        values=values, times_s=np.tile([60.0, 0.0, np.nan], (len(values), 1))
    )
    guess = space.snap(follow(run, np.full(len(values), 120.0)))
    assert ((guess != values[:, 0]) & (guess != values[:, 1])).any()


@dataclass(frozen=True)
class WholeEps(RoadNetwork):
    """A seeded bug: eps in the exponent, as if normalising constants were all the same."""

    def _draw(self, at: int, eps: float, u: list[float]) -> int:
        return super()._draw(at, 2.0 * eps, u)


@dataclass(frozen=True)
class Unweighed(RoadNetwork):
    """A seeded bug: proposals by the crow's distance that nobody turns down."""

    def _draw(self, at: int, eps: float, u: list[float]) -> int:
        return super()._draw(at, eps, [2.0**-53 if i % 3 == 2 else v for i, v in enumerate(u)])


@dataclass(frozen=True)
class ByTheCrow(RoadNetwork):
    """A seeded bug: tests by the crow's distance where roads are shortened."""

    def distance(self, a: Floats, b: Floats) -> Floats:
        return super().distance(a, b) * 3.0


def test_the_whole_eps_in_the_exponent_is_caught() -> None:
    excess, used = excess_of(WholeEps(village()))
    assert excess > 0.1
    assert used > 1.05


def test_wrong_distances_are_caught() -> None:
    shortened = village().stretched(np.array(0.25))
    assert excess_of(RoadNetwork(shortened))[0] <= TOLERANCE
    assert excess_of(ByTheCrow(shortened))[0] > 0.1


def test_the_law_is_the_exponential_mechanism_and_explains_every_draw() -> None:
    graph = village()
    space, eps = RoadNetwork(graph), 0.006
    cap = math.log(len(graph) / 1e-4)
    for node in range(len(graph)):
        law = NoiseLaw(space, node, eps)
        weights = np.exp(-np.minimum(0.5 * eps * apart_m(graph)[node], cap))
        np.testing.assert_allclose(law.chance, weights / weights.sum(), rtol=1e-9)
        np.testing.assert_allclose(law.last, law.chance, rtol=1e-9)
        u = uniform(np.random.default_rng(node).integers(0, UNIFORMS, (200, space.uniforms)))
        np.testing.assert_array_equal(law.draw(u), law.explained(u))
    bug = NoiseLaw(Unweighed(graph), 0, eps)
    weights = np.exp(-0.5 * eps * apart_m(graph)[0])
    assert np.abs(bug.chance / (weights / weights.sum()) - 1.0).max() > 0.05


# Long roads that meet: noise at the junction is not carried along by a step onto one of them.


@cache
def star() -> RoadGraph:
    places, edges = [(0.0, 0.0)], []
    for arm in range(8):
        north, east = math.cos(0.7 * arm), math.sin(0.7 * arm)
        for i in range(1, 31):
            places.append((50.0 * i * north, 50.0 * i * east))
            edges.append((0 if i == 1 else len(places) - 2, len(places) - 1, 50.1))
    return network(places, edges)


def test_noise_first_would_tell_more_than_it_costs_and_is_refused() -> None:
    graph, eps, e = star(), 0.012, 0.001
    apart = apart_m(graph)
    junction = int(np.bincount(graph.edges.ravel()).argmax())
    end = int(np.argmax(apart[junction]))  # of one of the roads
    road = np.flatnonzero(np.isclose(apart[junction] + apart[end], apart[junction, end]))
    road = road[np.argsort(apart[junction, road])]
    weights = np.exp(-0.5 * eps * apart[road])
    easy = weights @ NoiseFirst.acceptance(apart[end], e, 0.0) / weights.sum(axis=1)
    loss = np.abs(np.diff(np.log(easy))) / (e * np.diff(apart[junction, road]))
    assert loss.max() > 1.3, "an easy outcome costs e, and would tell more"
    with pytest.raises(PartError, match="NoiseFirst needs a space with a method unrounded_noise"):
        PredictiveMechanism(AMPLE, steady, RoadNetwork(graph), decision=NoiseFirst())


def test_nothing_else_of_a_place_than_its_node_matters() -> None:
    space = RoadNetwork(village())
    nodes = np.repeat(space.graph.nodes, 40, axis=0)
    rng = np.random.default_rng(5)
    beside = nodes + rng.uniform(-3e-4, 3e-4, nodes.shape)  # up to 33 m
    u = uniform(rng.integers(0, UNIFORMS, (len(nodes), space.uniforms)))
    eps: PerLane = 0.004
    assert np.array_equal(space.noise(beside, eps, u), space.noise(nodes, eps, u))
    assert not space.distance(beside, nodes).any()
