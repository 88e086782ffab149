"""Lemma 1, checked exactly: every run of the real step, for every pair of short traces.

The probability of every run is a count, not an estimate (tests/support/exact_runs.py), so Lemma 1
can be tested as it is written:

    P(r|x) <= exp(eps(r) * max_i d(x_i, x'_i)) * P(r|x')    for every run r and traces x, x'

`excess` is the largest violation in log terms. Mechanisms with a seeded bug must show one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from fractions import Fraction

import numpy as np
import pytest

from hereish import (
    AlwaysNoise,
    Constants,
    Every,
    FixedRate,
    FixedUtility,
    LaplaceTest,
    Past,
    Plan,
    PredictiveMechanism,
    Privacy,
    Rolling,
    Run,
    SkipBySpeed,
    lift,
)
from hereish.core.decision import CLAMP
from hereish.core.spaces import Space
from hereish.core.types import Bools, Floats, PerLane
from tests.support.exact_runs import (
    RAREST,
    STEPS,
    TOLERANCE,
    Cell,
    Places,
    all_runs,
    excess_of,
    losses,
)

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
ROLLING, TWO_WINDOWS = Rolling(timedelta(seconds=130)), 6.5  # a third report needs an easy one
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
    "two windows": (
        PredictiveMechanism(
            Privacy(5, 1), UTILITY, SPACE, window=BY_WINDOW & ROLLING.within(TWO_WINDOWS)
        ),
        MINUTES,
    ),
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
    windowed = name in ("windows", "two windows")
    windows = np.floor(np.array(at_s) / 100.0) if windowed else np.zeros(STEPS)
    for costs in runs.field("cost"):
        for window in set(windows):
            assert sum(map(Fraction, costs[windows == window])) <= Fraction(m.privacy.eps_per_m)
        for end in at_s if name == "two windows" else ():
            any_130_s = (np.array(at_s) <= end) & (np.array(at_s) >= end - 130.0)
            assert sum(map(Fraction, costs[any_130_s])) <= Fraction(TWO_WINDOWS)


def test_the_cases_reach_what_they_are_meant_to_reach() -> None:
    runs = {name: all_runs(*case) for name, case in MECHANISMS.items()}
    for name in ("stop", "stop, skip", "windows", "two windows"):
        assert (runs[name].field("released") == 0.0).any(), "not releasing is an outcome too"
    refused = {name: runs[name].field("released") == 0.0 for name in ("windows", "two windows")}
    assert refused["windows"].sum() < refused["two windows"].sum(), "the limit refuses some"
    assert refused["two windows"][:, -1].any()
    assert not refused["two windows"][:, -1].all()
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
