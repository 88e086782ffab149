"""What the black-box audit must catch: mechanisms with a fault, by a score that knows no law.

Each audit: 120,000 runs of each of two traces (240,000 of one step), half of them counted;
alpha = 1e-6 for all of its events together; fixed seeds. Beside each fault stands the same
mechanism without it, which must not be caught. The smallest faults that are seen are tried too: 5 %
too little noise on a line, 15 % on a plane, tests that are paid for by five sixths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta

import numpy as np
import pytest

import hereish
from hereish import LaplaceTest, Line, Plane, Privacy, SeededDraws, Sphere
from hereish.audit.controls import EastOnly, UnderpaidTest
from hereish.audit.learnt_score import learn
from hereish.audit.mechanisms import PlannedRuns
from hereish.audit.pair_audit import Pair, PairAudit, ReleasedRuns, audit_pair
from hereish.core.decision import TestThenNoise
from hereish.core.randomness import Draws
from hereish.core.spaces import Space
from hereish.core.types import Floats
from tests.support.audited_parts import (
    EastHalf,
    EndingNoise,
    GaussianNoise,
    NoiseInDegrees,
    OnePlace,
    SkipsNearby,
    SmallNoise,
    SmallNoiseOnLine,
    TellTale,
    UsedTwice,
)
from tests.support.compass import RADIUS_M
from tests.support.published_law import budget_claim, in_batch, on_globe, on_plane, times

RUNS, ONE_STEP_RUNS = 120_000, 240_000
PRIVACY = Privacy(level=math.log(10), radius_m=100)
METRE = math.degrees(1.0 / RADIUS_M)
HOME = (60.17, 24.94)
NORTH = (HOME[0] + 100 * METRE, HOME[1])
EAST = (HOME[0], HOME[1] + 200 * METRE)  # about 100 m: a degree is half as long here
Trace = Sequence[tuple[float, ...]]
Places = tuple[tuple[float, ...], ...]


def _pair(x: Trace, other: Trace, globe: bool = False) -> Pair:
    make = on_globe if globe else on_plane
    return make(np.array(x, dtype=np.float64), np.array(other, dtype=np.float64))


def _audited(
    m: hereish.PredictiveMechanism, pair: Pair, draws: Draws | None = None, windows: int = 1
) -> PairAudit:
    mechanism = in_batch(m, times(len(pair.x)), draws or SeededDraws(2001))
    claim = budget_claim(m, pair, windows)
    runs = RUNS if len(pair.x) > 1 else ONE_STEP_RUNS
    return audit_pair(mechanism, pair, {"learnt": learn}, claim=claim, runs=runs)


def _one(space: Space) -> hereish.PredictiveMechanism:
    return hereish.independent(PRIVACY, reports=1, space=space)


# What is wrong, what is right, and the two traces. All refute the whole budget.
NOISE: dict[str, tuple[Space, Space, Pair]] = {
    "5 % too little on a line": (
        SmallNoiseOnLine(times=1.05),
        Line(),
        _pair([(0.0,)], [(100.0,)]),
    ),
    "15 % too little": (SmallNoise(times=1.15), Plane(), _pair([(0, 0)], [(60, 80)])),
    "30 % too little": (SmallNoise(times=1.3), Plane(), _pair([(0, 0)], [(60, 80)])),
    "east and west only": (EastOnly(), Sphere(), _pair([HOME], [NORTH], globe=True)),
    "to the east only, at a pole of two names": (
        EastHalf(),
        Sphere(),
        _pair([(90, 0)], [(90, 77)], globe=True),
    ),
    "none beyond a radius": (EndingNoise(), Plane(), _pair([(0, 0)], [(100, 0)])),
    "normal noise": (GaussianNoise(), Plane(), _pair([(0, 0)], [(100, 0)])),
    "degrees for metres": (NoiseInDegrees(), Sphere(), _pair([HOME], [EAST], globe=True)),
}


@pytest.mark.parametrize("name", NOISE)
def test_noise_that_tells_too_much_is_caught(name: str) -> None:
    wrong, right, pair = NOISE[name]
    found = _audited(_one(wrong), pair)
    assert found.loss > budget_claim(_one(wrong), pair), found.worst
    assert not _audited(_one(right), pair).refuted


def test_noise_in_degrees_is_right_from_south_to_north() -> None:
    """The audit blames the direction that is wrong, and not the other."""
    assert not _audited(_one(NoiseInDegrees()), _pair([HOME], [NORTH], globe=True)).refuted


@pytest.mark.parametrize("metres", [3, 100])
def test_east_only_noise_is_caught_in_predicted_traces_at_any_distance(metres: float) -> None:
    """Latitudes are published as they are, so 3 m will do: the claim is a factor of 1.07."""
    other = (HOME[0] + metres * METRE, HOME[1])
    pair = _pair([HOME] * 3, [other] * 3, globe=True)
    m = hereish.fixed_utility(PRIVACY, 1000, space=EastOnly())
    assert _audited(m, pair).loss > 8.0
    assert not _audited(hereish.fixed_utility(PRIVACY, 1000), pair).refuted


KNOWN = OnePlace((0.0, 0.0))
TESTS = {
    "half paid": (2.0, True),
    "paid by five sixths": (1.2, True),
    "paid": (1.0, False),
    "paid twice": (0.5, False),
}


@pytest.mark.parametrize("name", TESTS)
def test_tests_that_are_not_paid_for_are_caught(name: str) -> None:
    """Somebody is seen 1.1 km from a known place, or 1.6 km: three tests."""
    factor, caught = TESTS[name]
    pair = _pair([(1111, 0)] * 3, [(1611, 0)] * 3)
    m = hereish.fixed_utility(
        PRIVACY, 1000, space=Plane(), prediction=KNOWN, decision=UnderpaidTest(factor)
    )
    assert _audited(m, pair).refuted == caught


@pytest.mark.parametrize(("test", "caught"), [(UnderpaidTest(2.0), True), (LaplaceTest(), False)])
def test_half_paid_tests_are_caught_with_the_usual_prediction(
    test: TestThenNoise, caught: bool
) -> None:
    """Somebody leaves a place; tests ask whether they are back at what was released there."""
    pair = _pair([(0, 0), *[(1500, 0)] * 3], [(0, 0), *[(1900, 0)] * 3])
    m = hereish.fixed_utility(PRIVACY, 1000, space=Plane(), decision=test)
    assert _audited(m, pair).refuted == caught


# Parts that were told the trace behind the program's back, and a mechanism that was not.
AT_S = tuple(times(3).tolist())
TOLD: dict[str, Callable[[Places], hereish.PredictiveMechanism]] = {
    "nobody": lambda trace: hereish.fixed_utility(PRIVACY, 1000, space=Plane()),
    "prediction": lambda trace: hereish.fixed_utility(
        PRIVACY, 1000, space=Plane(), prediction=TellTale(trace, AT_S)
    ),
    "skip rule": lambda trace: hereish.fixed_utility(
        PRIVACY, 1000, space=Plane(), skip=SkipsNearby(trace, AT_S, 1000.0)
    ),
}


@pytest.mark.parametrize("told", TOLD)
def test_a_part_that_was_told_the_secret_is_caught(told: str) -> None:
    pair, draws = _pair([(0, 0)] * 3, [(50, 0)] * 3), SeededDraws(2002)

    def mechanism(traces: Floats) -> PlannedRuns:
        m = TOLD[told](tuple(map(tuple, traces[0].tolist())))
        return in_batch(m, times(3), draws)(traces)

    claim = PRIVACY.eps_per_m * 50
    found = audit_pair(mechanism, pair, {"learnt": learn}, claim=claim, runs=RUNS)
    assert found.refuted == (told != "nobody"), found.worst


def test_noise_that_is_used_twice_is_caught() -> None:
    """Two reports with the same noise tell how far somebody went between them, to the metre."""
    pair = _pair([(0, 0)] * 2, [(0, 0), (20, 0)])
    m = hereish.independent(PRIVACY, reports=2, space=Plane())
    assert _audited(m, pair, UsedTwice(2003)).loss > 8.0
    assert not _audited(m, pair).refuted


def test_two_windows_that_are_sold_as_one_are_caught() -> None:
    """A line, a report in each of two windows: twice the budget is lost, with chance 1/4."""
    m = hereish.independent(PRIVACY, reports=1, space=Line(), window=timedelta(minutes=10))
    pair = _pair([(0.0,)] * 2, [(100.0,)] * 2)
    assert _audited(m, pair, windows=1).loss > budget_claim(m, pair)
    assert not _audited(m, pair, windows=2).refuted


def test_releases_that_are_not_booked_are_caught() -> None:
    """The books say that the second of two reports was free: no event of the budget shows it."""
    m = hereish.independent(PRIVACY, reports=2, space=Line())
    pair = _pair([(0.0,)] * 2, [(100.0,)] * 2)
    honest = in_batch(m, times(2), SeededDraws(2004))

    def hidden(traces: Floats) -> ReleasedRuns:
        out = honest(traces)
        return ReleasedRuns(out.value, out.kind, out.cost * [1.0, 0.0])

    found = audit_pair(hidden, pair, {"learnt": learn}, claim=budget_claim(m, pair), runs=RUNS)
    assert found.refuted
    assert found.loss < budget_claim(m, pair)
