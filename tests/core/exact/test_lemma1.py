"""Lemma 1, checked exactly: every run of the real step, for every pair of short traces.

On a handful of places in a row the outcomes of a step are finitely many, and each is a rectangle
of uniforms. Bisecting the real step over all the uniforms there are finds the rectangles, so the
probability of every run is a count, not an estimate, and Lemma 1 can be tested as it is written:

    P(r|x) <= exp(eps(r) * max_i d(x_i, x'_i)) * P(r|x')    for every run r and traces x, x'

`excess` is the largest violation in log terms. Mechanisms with a seeded bug must show one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from hereish import (
    AlwaysNoise,
    Constants,
    Coordinate,
    Every,
    FixedRate,
    FixedUtility,
    LaplaceTest,
    Past,
    Plan,
    PredictiveMechanism,
    Privacy,
    Run,
    SkipBySpeed,
    lift,
)
from hereish.core.decision import CLAMP
from hereish.core.spaces import Space
from hereish.core.step import Release, step
from hereish.core.types import Bools, Floats, Ints, PerLane

STEPS = 4
# A uniform is an odd multiple of 2**-53, so there are this many of them (randomness.py).
UNIFORMS = 2**52
# All that is inexact is that a probability becomes a whole number of uniforms: off by 2**-52 at
# most. No outcome below is rarer than RAREST (it is asserted), so each of the two factors of each
# of the 4 steps is off by less than 2**-52 / RAREST = 2**-38 of itself, and the ratio of two runs
# by less than 16 * 2**-38 < 1e-10. The clamp of the test has a test of its own.
RAREST = 2.0**-14
TOLERANCE = 1e-9


@dataclass
class Places:
    """Places in a row; a clamped geometric law: `eps * distance`-private, and nowhere less.

    `stretch` makes `distance` overstate the true one, as great circles overstate geodesics.
    """

    count: int = 4
    spacing: float = 1.0
    stretch: float = 1.0
    claim_factor: float = 1.0
    eps_error: float = 1.0  # a seeded bug if it is not 1
    uniforms = 1
    unit = "m"
    smallest_eps = 0.0
    private = True

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        return (Coordinate("place", 0.0, self.spacing * (self.count - 1)),)

    def distance(self, a: Floats, b: Floats) -> Floats:
        return np.asarray(np.abs(a[:, 0] - b[:, 0]) * self.stretch)

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        here = np.rint(x / self.spacing)
        below = np.arange(self.count - 1.0)
        per_place = eps * self.eps_error * self.stretch * self.spacing
        decay = np.exp(-np.broadcast_to(per_place, len(x)))[:, None]
        tail = decay ** np.where(below < here, here - below, below - here + 1) / (1.0 + decay)
        up_to = np.where(below < here, tail, 1.0 - tail)  # P(release <= place)
        return np.asarray((u >= up_to).sum(axis=1, keepdims=True) * self.spacing)

    def snap(self, points: Floats) -> Floats:
        return np.asarray(np.rint(points / self.spacing) * self.spacing + 0.0)

    def c_noise(self, delta: float) -> float:
        return -math.log1p(-delta)


@dataclass
class Runs:
    """All runs of a mechanism: a row a run, and in `chance` a column a trace."""

    chance: Floats
    releases: Floats  # (runs, steps, fields of a release)
    rarest: float

    def field(self, name: str) -> Floats:
        """(runs, steps) of one field of the releases."""
        return np.asarray(self.releases[:, :, Release._fields.index(name)])


def how_many(holds: Callable[[Ints], Bools], lanes: int) -> Ints:
    """How many uniforms, counted from the lowest, have a property that low ones have."""
    low, high = np.zeros(lanes, dtype=np.int64), np.full(lanes, UNIFORMS)
    while (low < high).any():
        middle = np.minimum((low + high) // 2, UNIFORMS - 1)
        yes, searching = holds(middle), low < high
        low = np.where(searching & yes, middle + 1, low)
        high = np.where(searching & ~yes, middle, high)
    return low


@dataclass
class Step:
    """One real step from each of some public runs, with each secret: a lane for every pair."""

    m: PredictiveMechanism
    run: Run
    now: float
    places: Floats
    peek: Callable[[Floats], None] | None

    def __post_init__(self) -> None:
        self.parent = np.repeat(np.arange(len(self.run.spent)), len(self.places))
        self.secret = np.tile(np.arange(len(self.places)), len(self.run.spent))
        self.lanes = np.arange(len(self.parent))

    def take(self, lanes: Ints, k_test: Ints, k_noise: Ints) -> tuple[Release, Run]:
        """The step with the uniforms of these numbers."""
        x, at_s = self.places[self.secret[lanes], None], np.full(len(lanes), self.now)
        if self.peek is not None:
            self.peek(x)
        odd = 2 * np.column_stack([k_test, k_noise]) + 1
        return step(self.m, self.run.take(self.parent[lanes]), x, at_s, np.ldexp(odd, -53))

    def rectangles(self) -> tuple[Ints, Ints]:
        """Of each lane: how many uniforms do not make it hard, and the edges between places."""
        lanes = self.lanes
        middle, top = np.full(len(lanes), UNIFORMS // 2), np.full(len(lanes), UNIFORMS - 1)
        easy = how_many(lambda k: ~self.take(lanes, k, middle)[0].hard, len(lanes))

        def up_to(place: float) -> Ints:
            return how_many(lambda k: self.take(lanes, top, k)[0].value[:, 0] <= place, len(top))

        edges = [up_to(place) for place in self.places[:-1]]
        edge = np.column_stack([np.zeros_like(easy), *edges, top + 1])
        # Random uniforms land where the rectangles say: bisecting has not missed anything.
        lanes = np.repeat(lanes, 16)
        k_test, k_noise = np.random.default_rng(7).integers(0, UNIFORMS, (2, len(lanes)))
        found = self.take(lanes, k_test, k_noise)[0]
        np.testing.assert_array_equal(found.hard, k_test >= easy[lanes])
        place = self.places[(k_noise[:, None] >= edge[lanes, 1:-1]).sum(axis=1)]
        np.testing.assert_array_equal(found.value[found.hard, 0], place[found.hard])
        return easy, edge


def flat(release: Release) -> Floats:
    """A row a lane: all that was released, so that two outcomes differ if anything does."""
    lanes = len(release.hard)
    parts = [np.broadcast_to(np.reshape(part, (-1,)), lanes) for part in release]
    return np.column_stack(parts).astype(np.float64)


def all_runs(
    m: PredictiveMechanism, at_s: list[float], peek: Callable[[Floats], None] | None = None
) -> Runs:
    """Enumerate the runs of the real step over all traces of secrets."""
    assert isinstance(m.space, Places)
    places = np.asarray(np.arange(m.space.count) * m.space.spacing, dtype=np.float64)
    run, chance, rarest = Run.empty(1, 1, m.memory), np.ones((1, 1)), 1.0
    releases = np.empty((1, 0, len(Release._fields)))
    for now in at_s:
        a_step = Step(m, run, now, places, peek)
        easy, edge = a_step.rectangles()
        not_hard, at_place = easy[:, None] / UNIFORMS, np.diff(edge) / UNIFORMS
        weight = np.column_stack([not_hard, (1.0 - not_hard) * at_place])
        # Take each outcome that can happen once, in the middle of its rectangle.
        lane, rectangle = np.nonzero(weight > 0.0)
        place = np.maximum(rectangle - 1, 0)
        k_test = np.where(rectangle == 0, easy[lane] // 2, (easy[lane] + UNIFORMS) // 2)
        k_noise = (edge[lane, place] + edge[lane, place + 1]) // 2
        release, after = a_step.take(lane, k_test, k_noise)
        # Two secrets share an outcome if they share all that is released.
        told = np.column_stack([a_step.parent[lane], flat(release)])
        _, first, outcome = np.unique(
            told.view(np.int64), axis=0, return_index=True, return_inverse=True
        )
        outcome = outcome.reshape(-1)
        for kept in after:  # nothing but what is released may find its way into the public run
            np.testing.assert_array_equal(kept, kept[first][outcome])
        branch = np.zeros((len(first), len(places)))
        np.add.at(branch, (outcome, a_step.secret[lane]), weight[lane, rectangle])
        before = a_step.parent[lane[first]]
        chance = (chance[before][:, :, None] * branch[:, None, :]).reshape(len(first), -1)
        releases = np.concatenate([releases[before], flat(release)[first][:, None]], axis=1)
        run, rarest = after.take(first), min(rarest, float(weight[lane, rectangle].min()))
    np.testing.assert_allclose(chance.sum(axis=0), 1.0, rtol=1e-12)
    return Runs(chance, releases, rarest)


def losses(m: PredictiveMechanism, runs: Runs) -> tuple[float, float]:
    """The largest `log P(r|x) - log P(r|x') - eps(r) d`, and the largest share of eps(r) d used."""
    assert isinstance(m.space, Places)
    traces = np.array(list(product(range(m.space.count), repeat=STEPS)))
    eps = runs.field("cost").sum(axis=1)[:, None]
    excess, share = -math.inf, 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        log_chance = np.log(runs.chance)
        for i, trace in enumerate(traces):
            apart = np.abs(traces - trace).max(axis=1) * m.space.spacing  # the true distance
            allowed = eps * apart
            # NaN is 0 against 0: a run that neither trace can give. +inf is a run that only one
            # of them can give: the worst violation there is.
            lost = log_chance[:, i, None] - log_chance
            excess = max(excess, float(np.nanmax(lost - allowed)))
            share = max(share, float(np.nanmax(np.where(allowed > 0, lost / allowed, 0.0))))
    return excess, share


K = Constants(c_noise=math.log(10.0), c_test=math.log(5.0), eta=0.5, gamma=0.8)
MINUTES = [0.0, 60.0, 120.0, 180.0]
# One second later the user can hardly have moved; a minute later anything may have happened.
BURSTS = [0.0, 1.0, 60.0, 61.0]
AMPLE = Privacy(30.0, 1.0)
UTILITY = FixedUtility(1.35, K)  # eps_noise 1.71, eps_test 1.34, threshold 1.50: amid the places
RATE = FixedRate(rate=2.0, prediction_rate=0.5, learn_after=2, constants=K)
TIGHT = Privacy(7.5, 1.0)  # with UTILITY a third report fits only if the second one was easy
SPACE = Places()


def wild(run: Run, at_s: Floats, /) -> Plan:
    """A plan that depends on what was released, lane by lane, with every kind of threshold."""
    place = np.nan_to_num(run.value[:, 0])
    threshold = np.select([place == 1.0, place == 2.0], [-np.inf, np.inf], 0.7 + 0.3 * place)
    return Plan(0.3 + 0.2 * place, 0.9 - 0.2 * place, threshold, 5.0)


def between(past: Sequence[Past], at_s: float) -> list[float] | None:
    """Halfway between the last two releases: looks further back than the parrot does."""
    return [sum(release.value[0] for release in past) / len(past)] if past else None


SKIP = SkipBySpeed(kmh=3.6)
SKIP_TESTED = SkipBySpeed(kmh=3.6, limit_m=2.0, since="tested")
BY_WINDOW = Every(timedelta(seconds=100))
MECHANISMS: dict[str, tuple[PredictiveMechanism, list[float]]] = {
    "fixed utility": (PredictiveMechanism(AMPLE, UTILITY, SPACE), MINUTES),
    "fixed rate": (PredictiveMechanism(AMPLE, RATE, SPACE), MINUTES),
    "skip since hard": (PredictiveMechanism(AMPLE, UTILITY, SPACE, skip=SKIP), BURSTS),
    "skip since tested": (PredictiveMechanism(AMPLE, RATE, SPACE, skip=SKIP_TESTED), BURSTS),
    "always noise": (PredictiveMechanism(AMPLE, AlwaysNoise(0.7), SPACE), MINUTES),
    "stop": (PredictiveMechanism(TIGHT, UTILITY, SPACE), MINUTES),
    "predict": (PredictiveMechanism(TIGHT, UTILITY, SPACE, on_exhausted="predict"), MINUTES),
    "stop, skip": (PredictiveMechanism(Privacy(5.6, 1.0), RATE, SPACE, skip=SKIP), BURSTS),
    "windows": (PredictiveMechanism(Privacy(5, 1), UTILITY, SPACE, window=BY_WINDOW), MINUTES),
    "wild": (PredictiveMechanism(Privacy(4, 1), wild, SPACE, on_exhausted="predict"), MINUTES),
    "longer memory": (PredictiveMechanism(AMPLE, RATE, SPACE, lift(between, memory=2)), MINUTES),
    "claim factor": (PredictiveMechanism(AMPLE, UTILITY, Places(4, 1.0, 2.0, 0.5)), MINUTES),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_run_is_as_private_as_its_released_costs_say(name: str) -> None:
    m, at_s = MECHANISMS[name]
    runs = all_runs(m, at_s)
    assert runs.rarest > RAREST
    excess, share = losses(m, runs)
    assert excess <= TOLERANCE
    # The bound is met, not only kept: with any less noise than there is the check would fail.
    assert share > 1.0 - TOLERANCE
    windows = np.zeros(STEPS) if name != "windows" else np.floor(np.array(at_s) / 100.0)
    for costs in runs.field("cost"):
        for window in set(windows):
            assert sum(map(Fraction, costs[windows == window])) <= Fraction(m.privacy.eps_per_m)


def test_the_cases_reach_what_they_are_meant_to_reach() -> None:
    runs = {name: all_runs(*case) for name, case in MECHANISMS.items()}
    for name in ("stop", "stop, skip", "windows"):
        assert (runs[name].field("released") == 0.0).any(), "not releasing is an outcome too"
    assert (runs["predict"].field("released") == 1.0).all()
    for name in ("predict", "skip since hard", "skip since tested", "stop, skip"):
        free = (runs[name].field("released") == 1.0) & (runs[name].field("threshold") == np.inf)
        assert free.any(), "untested releases happen"
        assert not free[:, 1:].all()
    for name in ("fixed rate", "wild"):
        plans = np.unique(runs[name].field("eps_noise")[:, -1])
        assert len(plans) > 2, "plans depend on the run"
    assert (runs["always noise"].field("hard") == 1.0).all()
    assert not np.allclose(runs["longer memory"].chance, runs["fixed rate"].chance)


def test_a_clamped_test_leaves_no_outcome_impossible_and_costs_next_to_nothing() -> None:
    def sharp(run: Run, at_s: Floats, /) -> Plan:
        # Far guesses pass with 4.6e-8 before the clamp, or with 1.5e-7, just not clamped.
        return Plan(6.0, 0.5, np.where(run.value[:, 0] == 0.0, 0.3, 0.5))

    m = PredictiveMechanism(AMPLE, sharp, SPACE)
    runs = all_runs(m, MINUTES)
    assert (runs.chance.min(axis=1) > 0.0).all()
    assert runs.rarest == CLAMP
    # Rounding a probability of 2**-24 to the uniforms costs less than 2**-27 (decision.py).
    assert losses(m, runs)[0] <= STEPS * 2.0**-27


class Cell:
    """How a seeded bug learns the secret: round the back, before each step."""

    secret: Floats = np.empty((0, 1))

    def __call__(self, x: Floats) -> None:
        self.secret = x


def excess_of(m: PredictiveMechanism, at_s: list[float], peek: Cell | None = None) -> float:
    return losses(m, all_runs(m, at_s, peek))[0]


FEW = Places(3)


class HalfPaidTest(LaplaceTest):
    """A seeded bug: it tests with twice what it is given."""

    def __call__(
        self, space: Space, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        return super().__call__(space, x, guess, 2.0 * eps, threshold, u)


class RelativeTest(LaplaceTest):
    """A seeded bug: Laplace noise of scale 1/eps on distance over threshold, not on distance."""

    def _passes(
        self, space: Space, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        relative = space.distance(x, guess) / threshold
        return np.asarray(u[:, 0] < self.acceptance(relative, eps, 1.0))


def near(run: Run, at_s: Floats, /) -> Plan:
    """A threshold below 1, where a relative distance is more sensitive than a distance."""
    return Plan(1.0, 0.5, 0.5)


def test_a_test_paid_at_half_its_cost_is_caught() -> None:
    assert (
        excess_of(PredictiveMechanism(AMPLE, UTILITY, FEW, decision=HalfPaidTest()), MINUTES) > 0.1
    )


def test_a_threshold_scaled_wrongly_is_caught() -> None:
    places = Places(3, spacing=0.25)
    assert excess_of(PredictiveMechanism(AMPLE, near, places), MINUTES) <= TOLERANCE
    assert (
        excess_of(PredictiveMechanism(AMPLE, near, places, decision=RelativeTest()), MINUTES) > 0.05
    )


def test_a_prediction_that_peeks_at_the_secret_is_caught() -> None:
    cell = Cell()

    def peeking(run: Run, at_s: Floats, /) -> Floats:
        return cell.secret if len(cell.secret) == len(at_s) else run.value

    m = PredictiveMechanism(AMPLE, UTILITY, FEW, peeking)
    assert excess_of(m, MINUTES, cell) == math.inf


def test_a_skip_rule_that_depends_on_the_secret_is_caught() -> None:
    cell = Cell()

    def telling(run: Run, at_s: Floats, plan: Plan, /) -> Bools:
        told = len(cell.secret) == len(at_s)
        return np.asarray(cell.secret[:, 0] == 0.0 if told else at_s < 0.0)

    m = PredictiveMechanism(AMPLE, UTILITY, FEW, skip=telling)
    assert excess_of(m, MINUTES, cell) == math.inf


def test_noise_drawn_with_twice_its_budget_is_caught() -> None:
    sharper = Places(3, eps_error=2.0)
    assert excess_of(PredictiveMechanism(AMPLE, UTILITY, sharper), MINUTES) > 0.1


def test_a_distance_that_overstates_and_claims_not_to_is_caught() -> None:
    boasting = Places(3, stretch=2.0, claim_factor=1.0)
    assert excess_of(PredictiveMechanism(AMPLE, UTILITY, boasting), MINUTES) > 0.1
