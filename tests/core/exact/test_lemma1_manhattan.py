"""Lemma 1 on city blocks: all runs of the real step on `hereish.Manhattan` over a few corners.

The chance of each release is integrated over the four uniforms of the noise by the class's own
code. Along an axis `ln(u1 / u2)` is at most some number for all `u2` from a multiple of `u1` on, so
the share of `u2` is linear in `u1` until it is nought: bisecting finds where, and the middle of
that part has its mean. All of it counts uniforms; nothing is estimated, and no law is assumed.
Runs that leave the corners are not looked at: Lemma 1 speaks of each run by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

from hereish import LaplaceTest, Manhattan, Plan, PredictiveMechanism, Privacy, Run
from hereish.core.step import Release, step
from hereish.core.types import Bools, Floats, Ints, PerLane
from tests.support.exact_runs import UNIFORMS, how_many

TIMES = (0.0, 60.0, 120.0)
CORNERS = np.arange(-1.0, 3.0)  # that releases are looked at, along each axis
# On corners and off them; the first and the last are far apart along both axes.
SECRETS = np.array([[0.0, 0.0], [1.0, 0.0], [0.3, 0.75], [2.0, 1.0]])
# Logarithms and sums of doubles move the edge of a corner by a few times 2**-52, and chances by no
# more than 2**-44 (it is asserted of the middle against the quarters). None is rarer than RAREST
# (so is that), and the runs of two traces have up to eight factors each.
EXACT, RAREST = 2.0**-44, 2.0**-12
TOLERANCE = 2 * 8 * EXACT / RAREST
_TOP, _MIDDLE, _SMALL = UNIFORMS - 1, UNIFORMS // 2, UNIFORMS // 2**20


def plan(run: Run, at_s: Floats, /) -> Plan:
    """By the last release: thresholds that are wider in the east, and finer noise in the north."""
    east, north = np.nan_to_num(run.value).T
    return Plan(0.4, 0.9 + 0.1 * north, 0.5 + 0.25 * (east > 0.0))


def build(space: Manhattan | None = None, decision: LaplaceTest | None = None) -> Any:
    return PredictiveMechanism(
        Privacy(30.0, 1.0), plan, space or Manhattan(), decision=decision or LaplaceTest()
    )


@dataclass
class Lanes:
    """One real step from each of some public runs with each secret."""

    m: PredictiveMechanism
    run: Run
    now: float

    def __post_init__(self) -> None:
        runs = len(self.run.spent)
        self.parent = np.repeat(np.arange(runs), len(SECRETS))
        self.x = np.tile(SECRETS, (runs, 1))
        self.count = len(self.x)

    def take(self, k: Ints, lanes: Ints | None = None) -> tuple[Release, Run]:
        """With the uniforms of these numbers: that of the test, then those of the noise."""
        at_s = np.full(len(k), self.now)
        chosen = np.arange(self.count) if lanes is None else lanes
        u = np.ldexp(2 * k + 1, -53)
        return step(self.m, self.run.take(self.parent[chosen]), self.x[chosen], at_s, u)

    def accepted(self) -> Floats:
        """The chance of the guess in each lane."""

        def easy(test: Ints) -> Bools:
            k = np.full((self.count, 5), _MIDDLE)
            k[:, 0] = test
            return np.asarray(~self.take(k)[0].hard)

        return how_many(easy, self.count) / UNIFORMS

    def up_to(self, axis: int, corner: float) -> Floats:
        """The chance of fresh noise at this corner of an axis, or below it."""

        def below(first: Ints, second: Ints) -> Bools:
            return np.asarray(self._along(axis, first, second) <= corner)

        def share(first: Ints) -> Ints:
            """Of second uniforms; it is the high ones that bring noise below."""
            return UNIFORMS - how_many(lambda k: ~below(first, k), self.count)

        ever = how_many(lambda k: below(k, np.full(self.count, _TOP)), self.count)
        mean = share(ever // 2) / UNIFORMS
        # It is linear, as it must be for the middle to have its mean.
        quarters = (share(ever // 4) + share(3 * (ever // 4))) / (2 * UNIFORMS)
        np.testing.assert_allclose(quarters, mean, rtol=0.0, atol=EXACT)
        return ever / UNIFORMS * mean

    def edges(self, axis: int) -> Ints:
        """(corners + 1, lanes) Between which first uniforms noise falls on which corner.

        The second one is small, so that all corners are within reach.
        """
        small = np.full(self.count, _SMALL)

        def up_to(corner: float) -> Ints:
            return how_many(lambda k: self._along(axis, k, small) <= corner, self.count)

        return np.array([up_to(corner) for corner in (CORNERS[0] - 1.0, *CORNERS)])

    def _along(self, axis: int, first: Ints, second: Ints) -> Floats:
        """Where fresh noise of these uniforms falls along an axis."""
        k = np.full((self.count, 5), _MIDDLE)
        k[:, 0], k[:, 1 + 2 * axis], k[:, 2 + 2 * axis] = _TOP, first, second
        return np.asarray(self.take(k)[0].value[:, axis])

    def check_axes_are_independent(self) -> None:
        """Chances of both axes may be multiplied: each has two uniforms that the other ignores."""
        k = np.random.default_rng(7).integers(0, UNIFORMS, (2, self.count, 5))
        k[..., 0] = _TOP
        mixed = np.concatenate([k[0][:, :3], k[1][:, 3:]], axis=1)
        one, other, both = (self.take(each)[0].value for each in (*k, mixed))
        np.testing.assert_array_equal(both, np.column_stack([one[:, 0], other[:, 1]]))


@dataclass
class Enumerated:
    """Runs whose fresh noise stays on the corners: a row per run, a column per trace."""

    chance: Floats
    eps: Floats  # what each run costs
    hard: Bools  # (runs, steps)
    rarest: float


def enumerate_runs(m: PredictiveMechanism, times: Sequence[float] = TIMES) -> Enumerated:
    run, chance, rarest = m.empty_run(1), np.ones((1, 1)), 1.0
    hards: list[Bools] = [np.zeros((1, 0), dtype=np.bool_)]
    for now in times:
        lanes = Lanes(m, run, now)
        lanes.check_axes_are_independent()
        easy = lanes.accepted()
        edges = [[lanes.up_to(axis, corner) for corner in CORNERS] for axis in (0, 1)]
        first = [lanes.up_to(axis, CORNERS[0] - 1.0) for axis in (0, 1)]
        along = [np.diff(np.array([first[i], *edges[i]]), axis=0) for i in (0, 1)]
        fresh = along[0][:, None] * along[1][None]  # (corners, corners, lanes)
        weights = np.concatenate([easy[None], (1.0 - easy) * fresh.reshape(-1, lanes.count)])
        weights = weights.reshape(len(weights), -1, len(SECRETS))  # outcome, run, secret
        rarest = min(rarest, float(weights[weights > 0.0].min()))
        outcome, before = np.nonzero((weights > 0.0).any(axis=2))
        chance = (chance[before][:, :, None] * weights[outcome, before][:, None]).reshape(
            len(before), -1
        )
        hards.append(np.concatenate([hards[-1][before], (outcome > 0)[:, None]], axis=1))
        run = _after(lanes, before, outcome)
    return Enumerated(chance, run.spent.copy(), hards[-1], rarest)


def _after(lanes: Lanes, before: Ints, outcome: Ints) -> Run:
    """The public run after each outcome, reached by the real step with noise made for it."""
    lane = before * len(SECRETS)  # of the first secret; the run is the same for all of them
    corner = np.stack(np.unravel_index(np.maximum(outcome - 1, 0), (len(CORNERS),) * 2), axis=1)
    k = np.empty((len(lane), 5), dtype=np.int64)
    k[:, 0] = np.where(outcome == 0, 0, _TOP)
    for axis in (0, 1):
        edges = lanes.edges(axis)
        low, high = (edges[corner[:, axis] + i, lane] for i in (0, 1))
        k[:, 1 + 2 * axis], k[:, 2 + 2 * axis] = (low + high) // 2, _SMALL
    release, after = lanes.take(k, lane)
    fresh = outcome > 0
    np.testing.assert_array_equal(release.hard, fresh)
    np.testing.assert_array_equal(release.value[fresh], CORNERS[corner[fresh]])
    return after


def losses(found: Enumerated, apart: Callable[[Floats, Floats], Floats]) -> tuple[float, float]:
    """The largest excess over Lemma 1 in log terms, and the largest share of it that is used."""
    traces = np.array(list(product(range(len(SECRETS)), repeat=found.hard.shape[1])))
    one, other = (each.ravel() for each in np.indices((len(SECRETS),) * 2))
    between = apart(SECRETS[one], SECRETS[other]).reshape(len(SECRETS), -1)
    excess, share = -math.inf, 0.0
    log_chance = np.log(found.chance)
    for i, trace in enumerate(traces):
        far = between[trace, traces].max(axis=1)
        lost = log_chance[:, i, None] - log_chance
        allowed = found.eps[:, None] * far
        excess = max(excess, float((lost - allowed).max()))
        share = max(share, float((lost[:, far > 0.0] / allowed[:, far > 0.0]).max()))
    return excess, share


@pytest.fixture(scope="module")
def found() -> Enumerated:
    return enumerate_runs(build())


def test_every_run_is_as_private_as_its_released_costs_say(found: Enumerated) -> None:
    corners = len(CORNERS) ** 2
    assert len(found.chance) == corners * (1 + corners) ** 2
    assert found.hard.all(axis=1).any()
    assert (~found.hard[:, 1:]).all(axis=1).any()
    assert found.rarest > RAREST
    excess, share = losses(found, Manhattan().distance)
    assert excess <= TOLERANCE
    assert share > 1.0 - TOLERANCE, "the bound is met, not only kept"


def test_the_corners_have_the_chances_of_two_laplace_laws() -> None:
    """What bisecting counts is what the proof says, with one step from an empty run."""
    lanes = Lanes(build(), build().empty_run(1), 0.0)
    eps = lanes.take(np.full((lanes.count, 5), _TOP))[0].eps_noise  # 0.9, in whole quanta
    for axis, corner in product((0, 1), CORNERS):
        away = corner + 0.5 - SECRETS[:, axis]
        tail = 0.5 * np.exp(-eps * np.abs(away))
        wanted = np.where(away < 0.0, tail, 1.0 - tail)
        np.testing.assert_allclose(lanes.up_to(axis, corner), wanted, rtol=0.0, atol=EXACT)


def test_a_distance_that_counts_one_axis_only_is_caught(found: Enumerated) -> None:
    """Promised: the larger of both ways, while the noise is for their sum."""
    excess, _ = losses(found, lambda a, b: np.abs(a - b).max(axis=1))
    assert excess > 0.5


def test_the_crow_s_distance_is_caught(found: Enumerated) -> None:
    """Noise for city blocks is less private than its eps as the crow flies."""
    excess, _ = losses(found, lambda a, b: np.hypot(*(a - b).T))
    assert excess > 0.2


@dataclass(frozen=True)
class Louder(Manhattan):
    """A seeded bug: noise along each axis of `factor` times the epsilon that is paid."""

    factor: float = 1.1

    def unrounded_noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return super().unrounded_noise(x, self.factor * eps, u)


class HalfPaid(LaplaceTest):
    """A seeded bug: it tests with twice what it is given."""

    def __call__(self, space: Any, x: Floats, guess: Floats, eps: PerLane, *rest: Any) -> Bools:
        return super().__call__(space, x, guess, 2.0 * eps, *rest)


@pytest.mark.parametrize(
    "bug", [build(Louder()), build(decision=HalfPaid())], ids=["noise", "test"]
)
def test_seeded_bugs_are_caught(bug: PredictiveMechanism) -> None:
    assert losses(enumerate_runs(bug, TIMES[:2]), Manhattan().distance)[0] > 0.1
