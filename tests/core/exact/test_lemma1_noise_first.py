"""Lemma 1 for `NoiseFirst`, checked exactly on every run; seeded bugs must be caught.

Secrets and noise lie on every place, and releases on every third one where `grid` is 3: then what
is drawn is not what is released, as with doubles and a grid.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hereish import NoiseFirst, Plan, PredictiveMechanism, Privacy, Question, Run, SkipBySpeed
from hereish.core.types import Bools, Floats, PerLane
from tests.support.exact_runs import RAREST, STEPS, Cell, Places, all_runs, excess_of, losses

MINUTES = [0.0, 60.0, 120.0, 180.0]
BURSTS = [0.0, 1.0, 60.0, 61.0]
AMPLE = Privacy(30.0, 1.0)
# Next to the guess noise is released with a chance of 2**-24, which is a whole number of uniforms;
# between there and 1 a chance is rounded to a share of 2**-28 of itself at most, in each step and
# for both traces (noise_first.proof.md).
TOLERANCE = STEPS * 2.0**-27
COARSE = Places(4, grid=3)


def steady(run: Run, at_s: Floats, /) -> Plan:
    return Plan(0.6, 1.2, 0.7, 5.0)


def wild(run: Run, at_s: Floats, /) -> Plan:
    """A plan that depends on what was released, lane by lane, with every kind of threshold."""
    place = np.nan_to_num(run.value[:, 0])
    threshold = np.select([place == 1.0, place == 2.0], [-np.inf, np.inf], 0.3 * place - 0.2)
    return Plan(0.3 + 0.2 * place, 1.5 - 0.1 * place, threshold, 5.0)


def build(budget: Any = steady, space: Places | None = None, **rest: Any) -> PredictiveMechanism:
    given = {"privacy": AMPLE, "decision": NoiseFirst(), **rest}
    return PredictiveMechanism(budget=budget, space=space or Places(), **given)


MECHANISMS = {
    "steady": (build(), MINUTES),
    "coarse grid": (build(space=COARSE), MINUTES),
    "wild": (build(wild, privacy=Privacy(4.0, 1.0), on_exhausted="predict"), MINUTES),
    "stop": (build(privacy=Privacy(3.1, 1.0)), MINUTES),
    "skip": (build(skip=SkipBySpeed(kmh=3.6)), BURSTS),
    "claim factor": (build(space=Places(4, 1.0, 2.0, 0.5)), MINUTES),
    "as dear as the noise": (
        build(lambda run, at_s: Plan(0.9, 0.9, 0.2), COARSE),
        MINUTES,
    ),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_run_is_as_private_as_its_released_costs_say(name: str) -> None:
    m, at_s = MECHANISMS[name]
    runs = all_runs(m, at_s)
    assert runs.rarest > 2.0**-24 * RAREST
    excess, share = losses(m, runs)
    assert excess <= TOLERANCE
    assert share > 1.0 - TOLERANCE, "the bound is met, not only kept"
    cost, hard = runs.field("cost"), runs.field("hard") == 1.0
    np.testing.assert_array_equal(cost[hard], runs.field("eps_noise")[hard])
    np.testing.assert_array_equal(cost[~hard], runs.field("eps_test")[~hard])
    for costs in cost:
        assert sum(map(Fraction, costs)) <= Fraction(m.privacy.eps_per_m)


def test_the_cases_reach_what_they_are_meant_to_reach() -> None:
    runs = {name: all_runs(*MECHANISMS[name]) for name in ("wild", "stop", "skip", "steady")}
    assert (runs["stop"].field("released") == 0.0).any()
    assert (runs["wild"].field("released") == 1.0).all()
    for name in ("wild", "skip"):
        assert (runs[name].field("threshold") == np.inf).any(), "untested releases happen"
    hard = runs["steady"].field("hard") == 1.0
    assert hard.all(axis=1).any()
    assert (~hard[:, 1:]).all(axis=1).any()


# Seeded bugs.


class HalfPaid(NoiseFirst):
    """Accepts guesses by twice the eps_test that easy costs."""

    def decide(self, space: Any, asked: Question, u: Floats) -> tuple[Bools, Floats]:
        return super().decide(space, asked._replace(eps_test=2.0 * asked.eps_test), u)


class OnTheRoundedPlace(NoiseFirst):
    """Compares with the guess what would be released, not what was drawn."""

    def _accepted(self, space: Any, x: Floats, drawn: Floats, *public: Any) -> Bools:
        return super()._accepted(space, x, space.snap(drawn), *public)


class FreeNoise(NoiseFirst):
    """Draws with twice the eps_noise that hard costs."""

    def decide(self, space: Any, asked: Question, u: Floats) -> tuple[Bools, Floats]:
        return super().decide(space, asked._replace(eps_noise=2.0 * asked.eps_noise), u)


def sharp(run: Run, at_s: Floats, /) -> Plan:
    """Noise that is small beside the grid: what is drawn is mostly the secret itself."""
    return Plan(0.5, 2.0, 0.0)


@pytest.mark.parametrize(
    ("bug", "least"), [(HalfPaid(), 0.1), (OnTheRoundedPlace(), 0.1), (FreeNoise(), 0.5)], ids=repr
)
def test_seeded_bugs_are_caught(bug: NoiseFirst, least: float) -> None:
    few = Places(4, grid=3)
    assert excess_of(build(sharp, few), MINUTES) <= TOLERANCE
    assert excess_of(build(sharp, few, decision=bug), MINUTES) > least


def test_a_cost_that_depends_on_the_secret_is_caught() -> None:
    cell = Cell()

    class Telling(NoiseFirst):
        def costs(self, eps_test: PerLane, eps_noise: PerLane) -> Any:  # type: ignore[override]  # not static
            lanes = len(np.atleast_1d(eps_noise))
            free = cell.secret[:, 0] == 0.0 if len(cell.secret) == lanes else np.zeros(lanes, bool)
            return np.where(free, 0.0, eps_test), eps_noise

    def lane_by_lane(run: Run, at_s: Floats, /) -> Plan:
        return Plan(*(np.full(len(at_s), number) for number in sharp(run, at_s)[:3]))

    telling = build(lane_by_lane, Places(3), decision=Telling())
    assert excess_of(telling, MINUTES, cell) == math.inf
    assert excess_of(build(lane_by_lane, Places(3)), MINUTES, cell) <= TOLERANCE
