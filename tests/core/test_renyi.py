"""A budget with a delta: divergences against quadrature, and a filter that nothing passes."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

import hereish
from hereish import ParameterError, PartError, Plan, Privacy, Run, StateError
from hereish.core.accounting import FixedPlan, any_loss, line_loss, planar_loss, second_promise
from hereish.core.renyi import (
    Divergence,
    RenyiFilter,
    any_divergence,
    filter_total,
    line_divergence,
    planar_divergence,
    rounded_up,
)
from hereish.core.types import Floats

PURE = Privacy(level=math.log(10), radius_m=100)
PRIVACY = Privacy(level=math.log(10), radius_m=100, delta=1e-6)
AT = datetime(2026, 5, 5, tzinfo=UTC)
HOME = (60.17, 24.94)


def alone(divergence: Divergence, level: float, order: float) -> float:
    return float(divergence(np.array(level), order))


# Of the ways to compute E[exp((order - 1) * loss)], one that shares nothing with the code.
def planar_by_quadrature(level: float, order: float) -> float:
    def ring(radius: float) -> float:
        def at(angle: float) -> float:
            other = math.sqrt(
                radius**2 + level**2 - 2.0 * radius * level * math.cos(angle),
            )
            return math.exp((order - 1.0) * (other - radius))

        inner = quad(at, 0.0, math.pi, epsabs=0.0, epsrel=1e-11, limit=200)[0]
        return float(radius * math.exp(-radius) * inner / math.pi)

    knots = [level, 2.0 * level, 1.0, 5.0]
    total = quad(ring, 0.0, 60.0, points=knots, epsabs=0.0, epsrel=1e-10, limit=500)[0]
    return math.log(total) / (order - 1.0)


def line_by_quadrature(level: float, order: float) -> float:
    def at(y: float) -> float:
        return 0.5 * math.exp(-abs(y) + (order - 1.0) * (abs(y - level) - abs(y)))

    parts = [(-60.0, 0.0), (0.0, level), (level, 60.0)]
    total = sum(quad(at, *part, epsabs=0.0, epsrel=1e-12)[0] for part in parts)
    return math.log(total) / (order - 1.0)


CASES = [(0.02, 11.0), (0.1, 11.0), (0.5, 11.0), (1.0, 3.0), (2.5, 1.5), (0.05, 60.0)]


@pytest.mark.parametrize(("level", "order"), CASES)
def test_divergences_are_those_of_the_densities(level: float, order: float) -> None:
    planar, line = planar_by_quadrature(level, order), line_by_quadrature(level, order)
    assert alone(planar_divergence, level, order) == pytest.approx(planar, rel=1e-6)
    assert alone(line_divergence, level, order) == pytest.approx(line, rel=1e-9)
    truth = math.exp(level) / (1.0 + math.exp(level))
    coin = truth**order * (1 - truth) ** (1 - order) + (1 - truth) ** order * truth ** (1 - order)
    any_exact = math.log(coin) / (order - 1.0)
    assert alone(any_divergence, level, order) == pytest.approx(any_exact, rel=1e-9)
    assert planar < line < any_exact < level


@pytest.mark.parametrize("divergence", [planar_divergence, line_divergence, any_divergence])
@pytest.mark.parametrize("order", [1.05, 2.0, 11.0, 300.0])
def test_divergences_rise_with_the_distance_and_stay_below_the_level(
    divergence: Divergence, order: float
) -> None:
    levels = np.exp(np.linspace(math.log(1e-4), math.log(1e4), 400))
    found = rounded_up(divergence, levels, order)
    assert (np.diff(found) > 0.0).all()
    assert (found <= levels).all()
    assert (found >= np.minimum(divergence(levels, order), levels)).all()
    small = levels < 1e-2 / order
    variance = 0.5 if divergence is planar_divergence else 1.0
    assert found[small] == pytest.approx(0.5 * order * variance * levels[small] ** 2, rel=0.05)


@pytest.mark.parametrize("divergence", [planar_divergence, line_divergence, any_divergence])
def test_extreme_levels_are_bounded_too(divergence: Divergence) -> None:
    levels = np.array([0.0, 1e-300, 1e-160, 1e-9, 1e5, 1e7, 1e300, np.inf])
    found = rounded_up(divergence, levels, 11.0)
    assert found[0] == 0.0
    assert (found[1:] > 0.0).all()
    assert (found <= levels).all()
    assert found[-3:].tolist() == levels[-3:].tolist()


@pytest.mark.parametrize(
    ("divergence", "loss", "closely"),
    [
        (planar_divergence, planar_loss, 0.88),
        (line_divergence, line_loss, 0.88),
        (any_divergence, any_loss, 0.88),
    ],
)
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_what_fits_is_private_by_the_numerical_composition_too(
    divergence: Divergence, loss: Any, closely: float, delta: float
) -> None:
    """Of equal reports: as many as fit have a level, by FFT, below what was asked, and near it."""
    each = math.log(10) / 60
    privacy = Privacy(math.log(10), 1.0, delta)
    renyi = RenyiFilter(privacy, line_divergence, divergence)
    cost = float(renyi.costs(0.0, each)[1])
    reports = math.floor(renyi.bound.total / cost)
    assert reports > 60
    assert closely * privacy.level <= FixedPlan((each,) * reports, loss).level(delta)
    assert FixedPlan((each,) * reports, loss).level(delta) <= privacy.level
    twice = FixedPlan((each,) * (2 * reports), loss).level(delta)
    assert twice > privacy.level, "control: half of each counted"


def test_the_conversion_is_that_of_its_order() -> None:
    """The largest ratio of what counts to its bound, over all losses: at most 1, and attained."""
    for order in (1.3, 2.0, 11.0, 80.0):
        level, delta = 1.0, 1e-3
        losses = np.linspace(level, level + 10.0, 200_001)
        total = filter_total(level, delta, order)
        counts = np.log(-np.expm1(level - losses[1:]))
        beyond = counts - (math.log(delta) + (order - 1.0) * (losses[1:] - total))
        assert -1e-5 < beyond.max() <= 0.0


@pytest.mark.parametrize("reports", [1, 3, 10, 30, 100])
@pytest.mark.parametrize("space", [hereish.Sphere(), hereish.Plane(), hereish.Line()])
def test_independent_noise_lasts_for_exactly_so_many_reports(
    reports: int, space: hereish.Space
) -> None:
    m = hereish.independent(PRIVACY, reports=reports, space=space)
    n = reports + 5
    points = np.full((n, m.dim), 10.0)
    out = hereish.sanitize(m, points, np.arange(n, dtype=np.float64), [0, n], seed=1)
    assert np.count_nonzero(out.released) == reports
    pure = hereish.independent(PURE, reports=reports, space=space)
    assert m.budget(m.run(1), np.zeros(1)).eps_noise >= pure.budget.eps_noise  # type: ignore[union-attr]
    # What is tracked and told is the sum of the costs, above the level where it is.
    assert out.spent[0] == pytest.approx(reports * m.budget.eps_noise)  # type: ignore[union-attr]
    assert (out.spent[0] > PURE.eps_per_m) == (reports > (10 if m.dim == 1 else 3))


def test_the_sentence_says_delta_and_what_it_is_of() -> None:
    m = hereish.independent(PRIVACY, reports=30)
    assert "any set of outcomes is at most 10 times as likely" in m.guarantee
    assert "released, plus a probability of 1e-06" in m.guarantee
    assert "any one other that stays within 100 m of it and was chosen before" in m.guarantee
    assert "from any other" not in m.guarantee
    assert repr(PURE) == "Privacy(level=2.302585092994046, radius_m=100.0)"
    assert "delta=1e-06" in repr(PRIVACY)
    assert second_promise(m) is None, "one promise with a delta is enough"


def _plan_of(run: Run, at_s: Floats, /) -> Plan:
    """Tests and noise of many sizes, by what was released."""
    seed = np.abs(np.nan_to_num(run.value)).sum(axis=1) * 1e3 % 1.0
    return Plan(
        PURE.eps_per_m * 0.04 * seed,
        PURE.eps_per_m * 0.2 * (1.001 - seed),
        np.where(seed < 0.1, -np.inf, np.where(seed > 0.95, np.inf, 3000.0)),
    )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    delta=st.sampled_from([1e-12, 1e-6, 1e-2, 0.3]),
    level=st.floats(0.01, 20.0),
    on_exhausted=st.sampled_from(["stop", "predict"]),
)
def test_no_sequence_passes_the_filter(
    seed: int, delta: float, level: float, on_exhausted: Any
) -> None:
    """Adaptive plans, all outcomes: at every report one of the two sums is within its total."""
    scale = level / PURE.level
    privacy = Privacy(level, 100.0, delta)

    def plan(run: Run, at_s: Floats, /) -> Plan:
        one = _plan_of(run, at_s)
        return Plan(one.eps_test * scale, one.eps_noise * scale, one.threshold)

    space = hereish.Plane()
    m = hereish.PredictiveMechanism(privacy, plan, space, on_exhausted=on_exhausted)
    n = 300
    points = np.random.default_rng(seed).normal(0.0, 2000.0, (n, 2))
    out = hereish.sanitize(m, points, np.arange(n, dtype=np.float64), [0, n], seed=seed)
    order = m.renyi.order if m.renyi is not None else 0.0
    total = filter_total(level, delta, order)
    spent, sums = Fraction(0), Fraction(0)
    for row in range(n):
        hard = bool(out.hard[row])
        test, noise = float(out.eps_test[row]) * 100.0, float(out.eps_noise[row]) * 100.0
        spent += Fraction(float(out.cost[row]))
        if test:
            sums += Fraction(alone(line_divergence, test, order))
        if hard:
            sums += Fraction(alone(planar_divergence, noise, order))
        assert spent <= Fraction(privacy.eps_per_m) or sums <= Fraction(total)
    assert Fraction(float(out.spent[0])) == spent


@pytest.mark.parametrize("reports", [5, 40])
def test_what_fits_without_a_delta_fits_with_one(reports: int) -> None:
    """And mostly more: the same noise, seed and day, for as many reports and beyond."""
    n = 400
    points = np.tile(HOME, (n, 1))
    at_s = np.arange(n) * 60.0
    eps = hereish.independent(PURE, reports=reports).budget.eps_noise  # type: ignore[union-attr]
    outs = []
    for privacy in (PURE, PRIVACY):
        m = hereish.PredictiveMechanism(privacy, hereish.AlwaysNoise(eps))
        outs.append(hereish.sanitize(m, points, at_s, [0, n], seed=2))
    first = outs[0].released
    assert outs[1].released[first].all()
    assert np.array_equal(outs[0].value[first], outs[1].value[first])
    more = np.count_nonzero(outs[1].released) / np.count_nonzero(first)
    assert more >= (2.0 if reports == 40 else 1.0)


MECHANISMS = {
    "independent": hereish.independent(PRIVACY, reports=20, window=hereish.Day("UTC")),
    "fixed utility": hereish.fixed_utility(PRIVACY, 4000.0, window=hereish.Day("UTC")),
    "fixed rate": hereish.fixed_rate(PRIVACY, 40, on_exhausted="predict"),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_live_and_batch_return_the_same_bits_through_saved_states(name: str) -> None:
    m = MECHANISMS[name]
    n = 160
    rng = np.random.default_rng(5)
    points = np.array(HOME) + np.cumsum(rng.normal(0.0, 1e-3, (n, 2)), axis=0)
    at_s = AT.timestamp() + np.arange(n) * 900.0  # more than a day
    out = hereish.sanitize(m, points, at_s, [0, n], seed=9, run=m.run(1))
    half = hereish.sanitize(m, points[:70], at_s[:70], [0, 70], seed=9, run=m.run(1))
    assert out.run is not None
    assert half.run is not None
    session = m.session(seed=9)
    for row in range(n):
        if row == 70:
            assert session.run.renyi_spent.tobytes() == half.run.renyi_spent.tobytes()
            saved = json.loads(json.dumps(session.to_state()))
            session = hereish.Session.from_state(m, saved, seed=9)
        try:
            value = session.report(points[row], AT + timedelta(seconds=900.0 * row)).value
        except hereish.BudgetExhaustedError:
            value = (math.nan, math.nan)
        assert np.array_equal(value, out.value[row], equal_nan=True)
    assert session.run.renyi_spent.tobytes() == out.run.renyi_spent.tobytes()
    assert session.run.spent.tobytes() == out.run.spent.tobytes()
    assert not out.released.all() or name == "fixed utility" or m.on_exhausted == "predict"
    assert 0.0 < session.spent_share <= 1.0
    assert session.remaining >= 0.0


def test_a_new_window_begins_with_nothing_spent() -> None:
    m = MECHANISMS["independent"]
    session = m.session()
    for hour in range(30):
        at = AT + timedelta(hours=hour)
        if hour < 20 or hour >= 24:
            session.report(HOME, at)
        else:
            with pytest.raises(hereish.BudgetExhaustedError):
                session.report(HOME, at)
    assert session.run.reports[0] == 6
    assert session.spent_share == pytest.approx(6 / 20, rel=1e-3)


@pytest.mark.parametrize("wrong", [-1.0, 1e9, "inf", "nan", 1e-30, 0.0])
def test_sums_that_no_run_has_are_refused(wrong: Any) -> None:
    m = MECHANISMS["independent"]
    session = m.session()
    for hour in range(10):
        session.report(HOME, AT + timedelta(hours=hour))
    state = session.to_state()
    assert hereish.Session.from_state(m, state).spent == session.spent
    state["run"]["renyi_spent"] = [wrong]
    with pytest.raises(StateError, match=r"Rényi|broken"):
        hereish.Session.from_state(m, state)
    del state["run"]["renyi_spent"]
    with pytest.raises(StateError):
        hereish.Session.from_state(m, state)


def test_states_of_another_privacy_are_refused() -> None:
    made = hereish.independent(PURE, reports=30).session().to_state()
    with pytest.raises(StateError, match="another mechanism"):
        hereish.Session.from_state(hereish.independent(PRIVACY, reports=30), made)


def test_a_spent_that_neither_sum_allows_is_refused() -> None:
    m = MECHANISMS["independent"]
    assert m.renyi is not None
    run = m.run(1)
    over = m.renyi.bound.part(1) + m.renyi.bound.quantum
    for spent, sums, fault in (
        (2.0 * m.bound.part(1), over, "more than the budget"),
        (2.0 * m.bound.part(1), m.renyi.bound.part(1), None),
        (m.bound.part(1), over, None),
        (0.0, over, "does not fit"),
        (m.bound.part(1), 0.0, "is 0"),
        (4096.0 * m.bound.part(1), m.renyi.bound.part(1), "does not fit"),
    ):
        found = m.renyi.fault(m.bound, run.spent + spent, run.renyi_spent[:, 0] + sums)
        assert (found is None) if fault is None else (fault in str(found))


def test_what_knows_of_no_delta_refuses_it() -> None:
    month = hereish.Month("UTC").within(math.log(1000))
    for window in (hereish.Day("UTC") & month, hereish.Rolling(timedelta(days=1))):
        with pytest.raises(ParameterError, match="delta is for one window"):
            hereish.independent(PRIVACY, reports=30, window=window)
    with pytest.raises(ParameterError, match="without a delta"):
        hereish.whole_day(PRIVACY)
    with pytest.raises(PartError, match="tests and then draws noise"):
        hereish.PredictiveMechanism(
            PRIVACY, hereish.FixedUtility(3000.0, _K), decision=hereish.NoiseFirst()
        )
    m = MECHANISMS["independent"]
    with pytest.raises(StateError, match="delta"), m.session().charged(AT, 0.0):
        pass


_K = hereish.Constants(c_noise=3.0, c_test=1.5, eta=0.5, gamma=0.8)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan, 1e-200, "x"])
def test_a_delta_that_is_none_is_refused(delta: Any) -> None:
    with pytest.raises(ParameterError, match="delta"):
        Privacy(1.0, 100.0, delta)


@pytest.mark.parametrize("level", [1e-3, 0.1, 1.0, 10.0, 300.0])
@pytest.mark.parametrize("delta", [1e-100, 1e-9, 0.5])
def test_every_level_has_a_filter(level: float, delta: float) -> None:
    renyi = RenyiFilter(Privacy(level, 100.0, delta), line_divergence, planar_divergence)
    assert renyi.order > 1.0
    assert renyi.bound.total > 0.0
    best = max(
        filter_total(level, delta, order) / order for order in 1.0 + np.exp(np.arange(-4, 25, 0.01))
    )
    assert renyi.bound.total / renyi.order >= 0.999 * best
