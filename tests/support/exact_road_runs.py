"""Every run of the real step on a small road network, each with its exact chance.

The noise takes its uniforms in tries: two that pick a node, one that accepts it. Bisecting the real
code over each of these finds the share of each node in the picks, the chance of each to be
accepted, and the shares of the last pick, which accepts anything. Tries have uniforms of their own,
so the law of the noise follows. It is compared with the real code at random uniforms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from hereish import PredictiveMechanism, Run
from hereish.core.step import Release, step
from hereish.core.types import Bools, Floats, Ints
from hereish.roads import RoadNetwork
from tests.support.exact_runs import UNIFORMS, how_many

LOW, HIGH = 2.0**-53, 1.0 - 2.0**-53


def uniform(number: Ints) -> Floats:
    """The uniform of this number, of all that there are."""
    return np.ldexp(2 * np.asarray(number) + 1, -53)


@dataclass
class NoiseLaw:
    """The law of the noise at one node for one eps, found by bisecting the real code."""

    space: RoadNetwork
    node: int
    eps: float

    def __post_init__(self) -> None:
        self.count = len(self.space.graph)
        self.tries = (self.space.uniforms - 2) // 3
        edges = self._edges(column=0)
        self.picked = np.diff(edges) / UNIFORMS
        self.middle = uniform((edges[:-1] + edges[1:]) // 2)
        self.accepted = np.array([self._acceptance(node) for node in range(self.count)])
        if self.accepted.min() < 1.0:
            self.last = np.diff(self._edges(column=-2, turned_down=True)) / UNIFORMS
        else:
            self.last = self.picked
        taken = self.picked * self.accepted
        missed = (1.0 - taken.sum()) ** self.tries
        self.chance = taken * ((1.0 - missed) / taken.sum()) + missed * self.last

    def draw(self, u: Floats) -> Ints:
        """The nodes that the real code draws with these uniforms."""
        x = np.tile(self.space.graph.nodes[self.node], (len(u), 1))
        return self.space.graph.nearest(self.space.noise(x, self.eps, u))

    def reaching(self, node: int) -> Floats:
        """Uniforms with which this node is drawn at the first try."""
        u = np.full(self.space.uniforms, 0.5)
        u[0], u[2] = self.middle[node], LOW
        return u

    def explained(self, u: Floats) -> Ints:
        """What the law says is drawn with these uniforms."""
        ends = np.cumsum(self.picked)
        drawn = np.searchsorted(np.cumsum(self.last), u[:, -2])
        for first in range(3 * self.tries - 3, -1, -3):
            node = np.minimum(np.searchsorted(ends, u[:, first]), self.count - 1)
            drawn = np.where(u[:, first + 2] < self.accepted[node], node, drawn)
        return np.minimum(drawn, self.count - 1)

    def _edges(self, column: int, turned_down: bool = False) -> Ints:
        """How many uniforms of this column draw each node or one before it, from 0 up."""
        u = np.full((1, self.space.uniforms), 0.5)
        u[:, 2::3] = LOW
        if turned_down:  # all tries pick a node that may be turned down, and turn it down
            u[:, 0 : 3 * self.tries : 3] = self.middle[int(np.argmin(self.accepted))]
            u[:, 2 : 3 * self.tries : 3] = HIGH

        def up_to(node: int) -> int:
            def holds(number: Ints) -> Bools:
                u[:, column] = uniform(number)
                return np.asarray(self.draw(u) <= node)

            return int(how_many(holds, 1)[0])

        return np.array([0, *(up_to(node) for node in range(self.count - 1)), UNIFORMS])

    def _acceptance(self, node: int) -> float:
        other = (node + 1) % self.count
        u = np.full((1, self.space.uniforms), 0.5)
        u[:, 0 : 3 * self.tries : 3], u[:, 2 : 3 * self.tries : 3] = self.middle[other], LOW
        u[:, 0] = self.middle[node]

        def holds(number: Ints) -> Bools:
            u[:, 2] = uniform(number)
            return np.asarray(self.draw(u) == node)

        return float(how_many(holds, 1)[0]) / UNIFORMS


@cache
def law_of(space: RoadNetwork, node: int, eps: float) -> NoiseLaw:
    """The law, found once."""
    return NoiseLaw(space, node, eps)


@dataclass
class OneStep:
    """One real step from one public run, with one secret."""

    m: PredictiveMechanism
    run: Run  # one lane
    secret: int
    now: float

    def take(self, u: Floats) -> tuple[Release, Run]:
        x = self.m.space.snap(self.space.graph.nodes[self.secret : self.secret + 1])
        return step(self.m, self.run, x, np.array([self.now]), u[None])

    @property
    def space(self) -> RoadNetwork:
        assert isinstance(self.m.space, RoadNetwork)
        return self.m.space

    def easy(self) -> float:
        """The exact chance that the guess is released."""
        u = np.full(self.m.uniforms, 0.5)
        if not np.isfinite(self.take(u)[0].threshold):
            return 0.0

        def passes(number: Ints) -> Bools:
            u[0] = uniform(number)[0]
            return ~self.take(u)[0].hard

        return float(how_many(passes, 1)[0]) / UNIFORMS

    def outcomes(self) -> Iterator[tuple[float, Release, Run]]:
        """All that may happen, each with its chance."""
        easy = self.easy()
        if easy:
            yield easy, *self.take(np.full(self.m.uniforms, LOW))
        planned = float(np.max(self.take(np.full(self.m.uniforms, HIGH))[0].eps_noise))
        law = law_of(self.space, self.secret, planned * self.space.claim_factor)
        for node, chance in enumerate(law.chance):
            yield (1.0 - easy) * chance, *self.take(np.r_[HIGH, law.reaching(node)])


def road_losses(m: PredictiveMechanism, apart_m: Floats, at_s: list[float]) -> tuple[float, float]:
    """The largest `log P(r|x) - log P(r|x') - eps(r) D`, and the largest share of eps(r) D used.

    `apart_m` are the distances between nodes that the guarantee speaks of.
    """
    count = len(apart_m)
    runs = [(np.ones(1), 0.0, Run.empty(1, 2, m.memory, width=m.width))]  # chance by trace, cost
    for now in at_s:
        longer = []
        for chance, cost, run in runs:
            told: dict[bytes, tuple[Floats, float, Run]] = {}
            for secret in range(count):
                for share, release, after in OneStep(m, run, secret, now).outcomes():
                    key = b"".join(np.asarray(part, np.float64).tobytes() for part in release)
                    spent = cost + float(release.cost[0])
                    told.setdefault(key, (np.zeros(count), spent, after))[0][secret] += share
            longer += [
                (np.outer(chance, share).ravel(), spent, after)
                for share, spent, after in told.values()
            ]
        runs = longer
    chances, costs = np.array([run[0] for run in runs]), np.array([run[1] for run in runs])
    np.testing.assert_allclose(chances.sum(axis=0), 1.0, rtol=1e-9)
    traces = np.array(list(product(range(count), repeat=len(at_s))))
    excess, used, logs = -np.inf, 0.0, np.log(chances)
    for i, trace in enumerate(traces):
        allowed = costs[:, None] * apart_m[traces, trace].max(axis=1)
        lost = logs[:, i, None] - logs
        excess = max(excess, float((lost - allowed).max()))
        used = max(used, float(np.max(lost[allowed > 0] / allowed[allowed > 0], initial=0.0)))
    return excess, used
