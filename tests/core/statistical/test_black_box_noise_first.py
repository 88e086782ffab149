"""`NoiseFirst` from outside: no event is more telling than what the runs book, and faults are seen.

Each audit: 120,000 runs of each of two traces, half of them counted; alpha = 1e-6 for all of its
events together; fixed seeds, nothing is tried twice. Its power is stated as a share: the lower
bound on the loss reaches at least so much of a claim that is in truth nearly attained. Beside each
fault stands the same mechanism without it, which must not be caught.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from hereish import Line, NoiseFirst, Plane, PredictiveMechanism, Privacy, SeededDraws, Sphere
from hereish.audit.learnt_score import learn
from hereish.audit.pair_audit import Pair, PairAudit, audit_pair
from hereish.core.spaces import Space
from tests.support.audited_parts import (
    DrawnAgain,
    NearOnTheGrid,
    OnePlace,
    SamePlan,
    UnderpaidNoiseFirst,
)
from tests.support.compass import RADIUS_M
from tests.support.published_law import (
    Guesses,
    always,
    budget_claim,
    in_batch,
    last_release,
    noise_first_law,
    on_globe,
    on_plane,
    times,
)

RUNS = 120_000
PRIVACY = Privacy(level=math.log(10), radius_m=100)
METRE = math.degrees(1.0 / RADIUS_M)
# Noise of 200 m on average; a guess within 500 m passes. 400 m further off it passes by e^-1.6.
E, EPS, R = 0.004, 0.01, 500.0
NEAR, FAR = 700.0, 1000.0
Trace = Sequence[tuple[float, ...]]


@dataclass(frozen=True)
class Case:
    """Two traces on a space. `reach` is the share of a claim that the audit must attain."""

    space: Space
    pair: Pair
    reach: float
    known: tuple[float, ...] | None = None  # the guess, if it is always the same

    def mechanism(self, decision: NoiseFirst) -> PredictiveMechanism:
        plan = SamePlan(E, EPS, R)
        if self.known is None:
            return PredictiveMechanism(PRIVACY, plan, self.space, decision=decision)
        return PredictiveMechanism(PRIVACY, plan, self.space, OnePlace(self.known), decision)

    @property
    def guesses(self) -> Guesses:
        return last_release if self.known is None else always(self.known)


def globe(x: Trace, other: Trace) -> Pair:
    return on_globe(np.array(x, dtype=np.float64), np.array(other, dtype=np.float64))


def plane(x: Trace, other: Trace) -> Pair:
    return on_plane(np.array(x, dtype=np.float64), np.array(other, dtype=np.float64))


def audited(m: PredictiveMechanism, case: Case, seed: int) -> PairAudit:
    return audit_pair(
        in_batch(m, times(len(case.pair.x)), SeededDraws(seed)),
        case.pair,
        {"law": noise_first_law(case.guesses), "learnt": learn},
        claim=budget_claim(m, case.pair),
        runs=RUNS,
    )


CASES = {
    "line": Case(Line(1.0), plane([(NEAR,)] * 2, [(FAR,)] * 2), 0.8, (0.0,)),
    "plane": Case(Plane(), plane([(NEAR, 0)] * 2, [(FAR, 0)] * 2), 0.8, (0.0, 0.0)),
    "plane, across": Case(Plane(), plane([(0, NEAR)] * 2, [(300.0, NEAR)] * 2), 0.4, (0.0, 0.0)),
    "sphere, round the pole": Case(
        Sphere(),
        globe([(90 - NEAR * METRE, 10)] * 2, [(90 - FAR * METRE, 10)] * 2),
        0.8,
        (90.0, 0.0),
    ),
    "sphere, across the antimeridian": Case(
        Sphere(),
        globe([(0, 180 - NEAR * METRE)] * 2, [(0, 180 - FAR * METRE)] * 2),
        0.8,
        (0.0, -180.0),
    ),
    "sphere, the last release": Case(
        Sphere(),
        globe([(60, 25), (60 + NEAR * METRE, 25)], [(60, 25), (60 + FAR * METRE, 25)]),
        0.6,
    ),
}


@cache
def audit_without_fault(name: str) -> PairAudit:
    """Of `NoiseFirst` as it is. Several faults stand beside the same one."""
    case = (CASES | WITH_A_FAULT_ALONE)[name]
    return audited(case.mechanism(NoiseFirst()), case, 3001)


@pytest.mark.parametrize("name", CASES)
def test_noise_first_tells_no_more_than_it_claims(name: str) -> None:
    case = CASES[name]
    found = audit_without_fault(name)
    assert not found.refuted, found.worst
    sharpest = max(f.loss / f.claim for f in found.findings if f.claim > 0.01)
    assert sharpest >= case.reach, f"the audit sees {sharpest:.3f} of a claim, not {case.reach}"


WITH_A_FAULT_ALONE = {
    # A grid beside which the noise is small: acceptance by the grid moves by whole cells.
    "coarse": Case(Plane(1200.0), plane([(550.0, 0)] * 2, [(650.0, 0)] * 2), 0.0, (0.0, 0.0)),
    # Nearly always hard, and so near to each other that the noise tells little.
    "hard": Case(Plane(), plane([(1500, 0)] * 2, [(1600, 0)] * 2), 0.0, (0.0, 0.0)),
}
# Each with the name of its case.
FAULTS: dict[str, tuple[NoiseFirst, str]] = {
    "easy half paid, line": (UnderpaidNoiseFirst(test_times=2.0), "line"),
    "easy half paid, plane": (UnderpaidNoiseFirst(test_times=2.0), "plane"),
    "easy half paid, sphere": (UnderpaidNoiseFirst(test_times=2.0), "sphere, round the pole"),
    "easy paid by two thirds, plane": (UnderpaidNoiseFirst(test_times=1.5), "plane"),
    "30 % too little noise, plane": (UnderpaidNoiseFirst(noise_times=1.3), "hard"),
    "accepted by the grid": (NearOnTheGrid(), "coarse"),
    "another noise released": (DrawnAgain(), "line"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_caught(name: str) -> None:
    fault, beside = FAULTS[name]
    case = (CASES | WITH_A_FAULT_ALONE)[beside]
    found = audited(case.mechanism(fault), case, 3002)
    assert found.refuted, found.worst
    assert not audit_without_fault(beside).refuted


def test_easy_that_is_paid_twice_is_not_caught() -> None:
    case = CASES["plane"]
    assert not audited(case.mechanism(UnderpaidNoiseFirst(test_times=0.5)), case, 3003).refuted
