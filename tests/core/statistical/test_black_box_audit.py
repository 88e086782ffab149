"""hereish from outside: no event is more telling than the budget, or than what the runs book.

Each audit: 120,000 runs of each of two traces unless it says otherwise, half of them counted;
alpha = 1e-6 for all of its events together; fixed seeds. Its power is stated as a share: the lower
bound on the loss reaches at least so much of a claim that is in truth attained or nearly so. What
is caught with it: test_black_box_controls.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pytest

import hereish
from hereish import Line, Past, Plane, PredictiveMechanism, Privacy, SkipBySpeed
from hereish.audit.bounds import ALPHA, loss_at_least
from hereish.audit.learnt_score import learn
from hereish.audit.pair_audit import Pair, PairAudit, audit_pair
from hereish.core.randomness import Draws
from hereish.core.types import Floats
from tests.support.audited_parts import OnePlace, SamePlan
from tests.support.compass import RADIUS_M
from tests.support.published_law import (
    Guesses,
    always,
    budget_claim,
    in_batch,
    last_release,
    law,
    live,
    on_globe,
    on_plane,
    times,
)

RUNS = 120_000
PRIVACY = Privacy(level=math.log(10), radius_m=100)
METRE = math.degrees(1.0 / RADIUS_M)  # of latitude
HOME = (60.17, 24.94)
Trace = Sequence[tuple[float, ...]]


@dataclass(frozen=True)
class Case:
    """A mechanism and two traces. `reach` is the share of a claim that the audit must attain."""

    m: PredictiveMechanism
    pair: Pair
    reach: float
    guesses: Guesses = last_release
    windows: int = 1
    runs: int = RUNS


def globe(x: Trace, other: Trace) -> Pair:
    return on_globe(np.array(x, dtype=np.float64), np.array(other, dtype=np.float64))


def plane(x: Trace, other: Trace) -> Pair:
    return on_plane(np.array(x, dtype=np.float64), np.array(other, dtype=np.float64))


def _audited(case: Case, draws: Draws) -> PairAudit:
    return audit_pair(
        in_batch(case.m, times(len(case.pair.x)), draws),
        case.pair,
        {"law": law(case.guesses), "learnt": learn},
        claim=budget_claim(case.m, case.pair, case.windows),
        runs=case.runs,
    )


def _check(found: PairAudit, reach: float) -> None:
    assert not found.refuted, found.worst
    sharpest = max(f.loss / f.claim for f in found.findings if f.claim > 0.01)
    assert sharpest >= reach, f"the audit sees {sharpest:.3f} of a claim, not {reach}"


ONE = hereish.independent(PRIVACY, reports=1)
GLOBAL = hereish.independent(Privacy(level=math.log(10), radius_m=5e6), reports=1)
# One fresh report. The whole budget is lost if the noise points away from the other place.
SINGLE = {
    "north at the equator, where the claim is tight": Case(
        ONE, globe([(0, 0)], [(100 * METRE, 0)]), 0.85
    ),
    "east at the equator": Case(ONE, globe([(0, 0)], [(0, 100 * METRE)]), 0.85),
    "diagonally at 60 degrees": Case(
        ONE, globe([(60, 24)], [(60 + 70 * METRE, 24 + 140 * METRE)]), 0.85
    ),
    "from the pole": Case(ONE, globe([(90, 0)], [(90 - 100 * METRE, 0)]), 0.85),
    "across the pole": Case(ONE, globe([(-90 + 50 * METRE, 0)], [(-90 + 50 * METRE, 180)]), 0.85),
    "across the antimeridian": Case(ONE, globe([(10, 179.9995)], [(10, -179.9995)]), 0.85),
    "10 m": Case(ONE, globe([(45, 0)], [(45 + 10 * METRE, 0)]), 0.5),
    "400 m": Case(ONE, globe([(45, 0)], [(45 + 400 * METRE, 0)]), 0.7),
    "over a quarter of the globe": Case(GLOBAL, globe([(-20, 0)], [(20, 0)]), 0.85),
    "to the antipode": Case(GLOBAL, globe([(0, 0)], [(0, 180)]), 0.65),
}


@pytest.mark.parametrize("name", SINGLE)
def test_one_fresh_report_tells_no_more_than_it_claims(name: str) -> None:
    _check(_audited(SINGLE[name], hereish.SeededDraws(1001)), SINGLE[name].reach)


TWO_NAMES = {
    "a pole": globe([(90, 0)] * 3, [(90, 133)] * 3),
    "a place on the antimeridian": globe([(12, 180)] * 3, [(12, -180)] * 3),
}


@pytest.mark.parametrize("name", TWO_NAMES)
def test_a_place_by_another_name_is_the_same_place(name: str) -> None:
    """Nothing is claimed to be lost, so nothing may be. Seen: 0.06 in an event of chance 1/2."""
    assert loss_at_least(0.515 * RUNS / 2, 0.485 * RUNS / 2, RUNS // 2, ALPHA / 8) > 0.0
    found = _audited(
        Case(hereish.fixed_utility(PRIVACY, 1000), TWO_NAMES[name], 0.0), hereish.SeededDraws(1006)
    )
    assert not found.refuted, found.worst
    assert {f.claim for f in found.findings} == {0.0}


LONE = hereish.independent(PRIVACY, reports=4, space=Line())
FLAT = hereish.independent(PRIVACY, reports=4, space=Plane())
INDEPENDENT = {
    # Laplace noise loses all it may with chance 1/2, so four reports do with chance 1/16.
    "line": Case(LONE, plane([(0.0,)] * 4, [(100.0,)] * 4), 0.8),
    "line, one step differs": Case(
        LONE, plane([(0.0,)] * 4, [(0.0,), (0.0,), (100.0,), (0.0,)]), 0.85
    ),
    "plane": Case(FLAT, plane([(0, 0)] * 4, [(60, 80)] * 4), 0.6),
    "plane, steps differ in all directions": Case(
        FLAT, plane([(0, 0)] * 4, [(100, 0), (0, 100), (-100, 0), (0, -100)]), 0.6
    ),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_four_fresh_reports_tell_no_more_than_they_claim(name: str) -> None:
    _check(_audited(INDEPENDENT[name], hereish.SeededDraws(1002)), INDEPENDENT[name].reach)


# Somebody is where the test begins to doubt a known place, or 500 m further off: a test that passes
# then loses all that it costs, and passes with chance 1/2.
_KNOWN = OnePlace((0.0, 0.0))
KNOWN = hereish.fixed_utility(PRIVACY, 1000, space=Plane(), prediction=_KNOWN)
_POLE = OnePlace((90.0, 0.0))
POLE = hereish.fixed_utility(PRIVACY, 1000, prediction=_POLE)
DOUBT = 1111.0  # m, the threshold of the tests
TESTS = {
    "plane": Case(
        KNOWN, plane([(DOUBT, 0)] * 2, [(DOUBT + 500, 0)] * 2), 0.9, always(_KNOWN.place)
    ),
    "seen from the other side": Case(
        KNOWN, plane([(0, DOUBT - 500)] * 3, [(0, DOUBT)] * 3), 0.5, always(_KNOWN.place)
    ),
    "round the pole": Case(
        POLE,
        globe([(90 - DOUBT * METRE, 10)] * 2, [(90 - (DOUBT + 500) * METRE, 10)] * 2),
        0.88,
        always(_POLE.place),
    ),
    "threshold 0": Case(
        PredictiveMechanism(PRIVACY, SamePlan(0.004, 0.004, 0.0), Plane(), _KNOWN),
        plane([(0, 0)] * 2, [(0, 200)] * 2),
        0.9,
        always(_KNOWN.place),
    ),
}


# Places 2 cm apart whose distances to the guess, half way round, were once computed 19 cm apart.
_ANTIPODE = OnePlace((0.0, 180.0))
TESTS["a guess at the antipode"] = Case(
    PredictiveMechanism(
        Privacy(level=10, radius_m=1),
        SamePlan(2.0, 2.0, math.pi * RADIUS_M - 0.19),
        prediction=_ANTIPODE,
    ),
    globe([(0, 0.08 * METRE)], [(0, 0.10 * METRE)]),
    -1.0,  # too near to each other to be told apart
    always(_ANTIPODE.place),
)


@pytest.mark.parametrize("name", TESTS)
def test_tests_tell_no_more_than_they_claim(name: str) -> None:
    _check(_audited(TESTS[name], hereish.SeededDraws(1003)), TESTS[name].reach)


def straight_on(past: Sequence[Past], at_s: float) -> tuple[float, ...] | None:
    if len(past) < 2:
        return None
    return tuple(2 * a - b for a, b in zip(past[0].value, past[1].value, strict=True))


def _straight_on(value: Floats) -> Floats:
    guess = np.full_like(value, np.nan)
    guess[:, 2:] = 2 * value[:, 1:-1] - value[:, :-2]
    return guess


HERE, THERE = HOME, (HOME[0] + 100 * METRE, HOME[1])
AWAY, FURTHER = (HOME[0] + 1500 * METRE, HOME[1]), (HOME[0] + 1800 * METRE, HOME[1])
WALK, OTHER_WALK = [HERE, AWAY, AWAY, AWAY], [HERE, FURTHER, FURTHER, FURTHER]
# The first report is fresh noise and all that follows depends on it, so the worst runs are rare.
# What is lost most surely is said by tests of a place that was released before.
PREDICTIVE = {
    "fixed utility": Case(
        hereish.fixed_utility(PRIVACY, 1000), globe([HERE] * 4, [THERE] * 4), 0.3
    ),
    "fixed utility, somebody walks": Case(
        hereish.fixed_utility(PRIVACY, 1000), globe(WALK, OTHER_WALK), 0.6
    ),
    "fixed utility, one step differs": Case(
        hereish.fixed_utility(PRIVACY, 1000),
        globe([HERE] * 4, [HERE, HERE, FURTHER, HERE]),
        0.65,
    ),
    "fixed rate, which learns from the run": Case(
        hereish.fixed_rate(PRIVACY, 8), globe(WALK, OTHER_WALK), 0.6
    ),
    "skipped tests": Case(
        hereish.fixed_utility(PRIVACY, 1000, skip=SkipBySpeed(kmh=4, since="tested")),
        globe(WALK, OTHER_WALK),
        0.7,
    ),
    "two windows": Case(
        hereish.fixed_utility(PRIVACY, 500, window=timedelta(minutes=20)),
        globe(WALK, OTHER_WALK),
        0.45,
        windows=2,
    ),
    "beyond the budget": Case(
        hereish.fixed_utility(PRIVACY, 450, on_exhausted="predict"), globe(WALK, OTHER_WALK), 0.55
    ),
    "stopped by the budget": Case(
        hereish.fixed_utility(PRIVACY, 450), globe(WALK, OTHER_WALK), 0.55
    ),
    "a lifted prediction that remembers": Case(
        hereish.fixed_utility(
            PRIVACY, 1000, space=Plane(), prediction=hereish.lift(straight_on, memory=2)
        ),
        plane([(0, 0)] * 3, [(200, 0)] * 3),
        0.5,
        _straight_on,
        runs=40_000,
    ),
}


@pytest.mark.parametrize("name", PREDICTIVE)
def test_predicted_traces_tell_no_more_than_they_claim(name: str) -> None:
    _check(_audited(PREDICTIVE[name], hereish.SeededDraws(1004)), PREDICTIVE[name].reach)


def test_so_it_is_with_the_randomness_that_users_get() -> None:
    """No seed: the bound moves by about 0.01 of the claim from run to run, so 0.8 is far off."""
    _check(_audited(SINGLE["diagonally at 60 degrees"], hereish.SecureDraws()), 0.8)


def test_so_it_is_in_live_sessions() -> None:
    """3,000 sessions for each trace."""
    case = TESTS["plane"]
    found = audit_pair(
        live(case.m, times(2), hereish.SeededDraws(1005)),
        case.pair,
        {"law": law(case.guesses), "learnt": learn},
        claim=budget_claim(case.m, case.pair),
        runs=3_000,
    )
    _check(found, 0.4)
