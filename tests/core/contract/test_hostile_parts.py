"""Parts, attacked: they write into what they are shown, switch checks off, plan the impossible."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hereish
from hereish import (
    AlwaysNoise,
    BudgetExhaustedError,
    LaplaceTest,
    Line,
    NoReset,
    PartError,
    Plan,
    Plane,
    PredictiveMechanism,
    Privacy,
    Run,
    Sphere,
    sanitize,
)
from hereish.core import noise
from hereish.core.step import step
from hereish.core.types import Bools, Floats, PerLane

steady = settings(derandomize=True, deadline=None, max_examples=60)
START = datetime(2026, 5, 5, 12, tzinfo=UTC)
TOTAL = 0.02
PRIVACY = Privacy(TOTAL * 100.0, 100.0)


def spends(m: PredictiveMechanism, reports: int = 400) -> Fraction:
    """What a session really pays, as its reports say."""
    session, paid = m.session(seed=1), Fraction(0)
    for minute in range(reports):
        try:
            paid += Fraction(session.report((0.0,) * m.dim, START + timedelta(minutes=minute)).cost)
        except BudgetExhaustedError:
            break
        except (PartError, ValueError):  # a part that was kept from writing
            break
    return paid


# Writing into the run.

FIELDS = [name for name in Run._fields if name != "mechanism"]


@steady
@given(
    st.sampled_from(FIELDS),
    st.sampled_from(["prediction", "budget", "skip", "window"]),
    st.sampled_from(["in place", "made writeable", "through its base"]),
    st.booleans(),
)
def test_no_part_can_hand_out_budget_by_writing_to_what_it_is_shown(
    name: str, part: str, how: str, fails: bool
) -> None:
    def write(target: Any, number: float) -> None:
        if not isinstance(target, np.ndarray):
            return
        try:
            if how == "made writeable":
                target.flags.writeable = True
            while how == "through its base" and target.base is not None:
                target = target.base
                target.flags.writeable = True
            target[...] = np.full(1, number).astype(target.dtype)
        except ValueError:
            pass

    def tamper(run: Run) -> None:
        if int(run.reports[0]) % 3 == 2:
            for field in (getattr(run, name), *(run if name == "spent" else ())):
                write(field, 0.0)
            if fails:
                raise RuntimeError

    seen: list[Run] = []

    def budget(run: Run, at_s: Floats, /) -> Plan:
        seen.append(run)
        if part == "budget":
            tamper(run)
            write(at_s, 1e9)
        return Plan(np.full(len(at_s), TOTAL / 100), np.full(len(at_s), TOTAL / 10), 1.0)

    def prediction(run: Run, at_s: Floats, /) -> Floats:
        seen.append(run)
        if part == "prediction":
            tamper(run)
            write(at_s, 1e9)
        return np.asarray(run.value)

    def skip(run: Run, at_s: Floats, plan: Plan, /) -> Bools:
        seen.append(run)
        if part == "skip":
            tamper(run)
            write(at_s, 1e9)
            write(plan.eps_test, -TOTAL)
            write(plan.threshold, 1e300)
        return np.zeros(len(at_s), dtype=np.bool_)

    class Window(NoReset):
        def index(self, at_s: Floats) -> Any:
            now_s = at_s.copy()
            if part == "window" and seen:
                tamper(seen[-1])
                write(at_s, 1e9)
            return (now_s // 1e8).astype(np.int64)

    m = PredictiveMechanism(PRIVACY, budget, Line(), prediction, skip=skip, window=Window())
    assert spends(m) <= Fraction(TOTAL)
    at_s = START.timestamp() + np.arange(60.0)
    try:
        out = sanitize(m, np.zeros(60), at_s, [0, 60], seed=1)
    except PartError:
        return
    assert sum(map(Fraction, out.cost.tolist())) <= Fraction(TOTAL)
    assert Fraction(float(out.spent[0])) == sum(map(Fraction, out.cost.tolist()))


def test_a_manager_that_counts_down_in_the_run_does_not_spend_391_budgets() -> None:
    def budget(run: Run, at_s: Floats, /) -> Plan:
        left = run.spent
        left -= 0.001
        return Plan(0.0, 0.001, -math.inf)

    with pytest.raises((PartError, ValueError)):
        PredictiveMechanism(PRIVACY, budget, Line()).session().report(0.0, START)


def test_callers_cannot_write_into_the_run_of_a_session() -> None:
    session = PredictiveMechanism(PRIVACY, AlwaysNoise(TOTAL / 3), Line()).session()
    session.report(0.0, START)
    for field in session.run:
        assert not field.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        session.run.spent[0] = 0.0
    assert session.spent > 0.0


def test_parts_get_the_time_and_the_plan_read_only() -> None:
    def skip(run: Run, at_s: Floats, plan: Plan, /) -> Bools:
        for shown in (at_s, plan.eps_noise, plan.eps_test, plan.threshold, *run):
            assert shown.base is None  # type: ignore[union-attr]  # arrays, as planned
            assert not shown.flags.writeable  # type: ignore[union-attr]  # arrays, as planned
        return np.zeros(len(at_s), dtype=np.bool_)

    kept: list[Floats] = []

    def budget(run: Run, at_s: Floats, /) -> Plan:
        kept.append(np.full(len(at_s), TOTAL / 10))
        return Plan(kept[-1] / 10, kept[-1], np.full(len(at_s), 1.0))

    m = PredictiveMechanism(PRIVACY, budget, Line(), skip=skip)
    release, _ = step(m, m.run(1), np.zeros((1, 1)), np.zeros(1), np.full((1, 3), 0.5))
    kept[-1][:] = 1e-9  # whoever planned it does not change what was paid
    assert release.cost[0] == m.bound.quantised(TOTAL / 10)


@dataclass(frozen=True)
class Meddling(LaplaceTest):
    """A test that writes to its guess, which is the last release."""

    def __call__(
        self, space: Any, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        guess[...] = x
        return super().__call__(space, x, guess, eps, threshold, u)


def test_a_test_cannot_put_the_secret_into_the_run() -> None:
    m = PredictiveMechanism(
        PRIVACY, lambda run, at_s: Plan(0.001, 0.001, 1e9), Line(), decision=LaplaceTest()
    )
    session = m.session(seed=1)
    session.report(12345.0, START)
    before = session.run.values.copy()
    object.__setattr__(m, "decider", Meddling())
    with pytest.raises(PartError):
        session.report(12345.0, START)
    assert np.array_equal(before, session.run.values)


# Switching checks off.


@steady
@given(
    st.sampled_from([-0.001, -1e-9, math.nan, -math.inf]),
    st.booleans(),
    st.dictionaries(
        st.sampled_from(["sound", "on_grid", "private", "checked", "trusted", "safe"]),
        st.just(True),
    ),
)
def test_no_attribute_switches_the_check_of_plans_off(
    bad: float, test: bool, attributes: dict[str, bool]
) -> None:
    def budget(run: Run, at_s: Floats, /) -> Plan:
        if run.reports[0] < 2:
            return Plan(0.0, 0.001, 1.0)
        return Plan(bad, 0.001, 1.0) if test else Plan(0.0, bad, 1.0)

    vars(budget).update(attributes)
    manager = hereish.budget_manager(budget)
    session = PredictiveMechanism(PRIVACY, manager, Line()).session(seed=1)
    session.report(0.0, START)
    session.report(0.0, START)
    before = session.spent
    with pytest.raises(PartError, match="budget manager must plan"):
        session.report(0.0, START)
    assert session.spent == before


def test_no_attribute_hides_history_or_skips_the_rounding_of_guesses() -> None:
    seen: list[float] = []

    def budget(run: Run, at_s: Floats, /) -> Plan:
        seen.append(float(run.hard_at_s[0]))
        return Plan(0.0, 0.001, -math.inf)

    vars(budget).update(sound=True)
    session = PredictiveMechanism(PRIVACY, hereish.budget_manager(budget), Line()).session(seed=1)
    seen.clear()
    for minute in range(3):
        session.report(0.0, START + timedelta(minutes=minute))
    assert not math.isnan(seen[-1]), "the manager sees when the last hard release was"

    def between(run: Run, at_s: Floats, /) -> Floats:
        return np.asarray(run.value + 0.4)

    vars(between).update(on_grid=True)
    guesses = hereish.prediction(between)
    m = PredictiveMechanism(PRIVACY, lambda run, at_s: Plan(0.001, 0.001, 1e9), Plane(), guesses)
    out = sanitize(m, np.zeros((4, 2)), np.arange(4.0), [0, 4], seed=1)
    assert np.array_equal(out.value, np.rint(out.value))


@pytest.mark.parametrize("answer", [None, (0.0, 0.001), Plan(0.0, np.ones(7), 1.0), "plan"])
def test_an_answer_that_is_no_plan_is_refused(answer: Any) -> None:
    with pytest.raises(PartError):
        PredictiveMechanism(PRIVACY, lambda run, at_s: answer, Line())


# Thresholds of ±inf ask nothing, whatever a test says.


@pytest.mark.parametrize("eps", [0.0, 1e-6, 1.0])
def test_a_threshold_of_minus_infinity_never_passes(eps: float) -> None:
    u = np.full((3, 1), 2.0**-65)  # passes with 2**-24 would do
    x = np.array([[0.0], [1.0], [1e9]])
    for threshold in (-math.inf, np.full(3, -math.inf)):
        assert not LaplaceTest()(Line(), x, np.zeros((3, 1)), eps, threshold, u).any()
    assert LaplaceTest()(Line(), x, np.zeros((3, 1)), eps, math.inf, 1.0 - u).all()


def test_a_test_that_answers_where_nothing_is_asked_is_not_listened_to() -> None:
    def contrary(
        space: Any, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        return np.asarray(~np.equal(np.broadcast_to(threshold, len(x)), np.inf))

    m = PredictiveMechanism(
        PRIVACY,
        lambda run, at_s: Plan(0.0, 0.001, np.where(run.reports % 2, np.inf, -np.inf)),
        Line(),
        decision=contrary,
    )
    out = sanitize(m, np.zeros(4), np.arange(4.0), [0, 4], seed=1)
    assert out.kind.tolist() == ["hard", "untested", "hard", "untested"]


# Noise that is too large for the grid.


def a_tenth_of_the_rest(run: Run, at_s: Floats, /) -> Plan:
    return Plan(0.0, np.asarray(0.1 * (TOTAL - run.spent)), -math.inf)


def falling(eps: float) -> Callable[[Run, Floats], Plan]:
    def budget(run: Run, at_s: Floats, /) -> Plan:
        return Plan(0.0, np.ldexp(eps, -run.reports), -math.inf)

    return budget


@pytest.mark.parametrize("space", [Plane(grid_m=0.01), Line(grid=0.01)], ids=repr)
def test_a_manager_that_plans_ever_less_ends_before_doubles_have_gaps(space: Any) -> None:
    m = PredictiveMechanism(PRIVACY, a_tenth_of_the_rest, space)
    session, reports = m.session(seed=1), []
    with pytest.raises(PartError, match="too large for the grid"):
        for minute in range(2000):
            report = session.report((0.0,) * m.dim, START + timedelta(minutes=minute))
            reports.append(report.cost)
    assert min(reports) * space.claim_factor >= space.smallest_eps
    assert len(reports) > 50


@pytest.mark.parametrize("space", [Plane(), Line(grid=1.0)], ids=repr)
def test_a_mechanism_made_by_hand_is_held_to_the_grid_too(space: Any) -> None:
    with pytest.raises(PartError, match="too large for the grid"):
        PredictiveMechanism(PRIVACY, AlwaysNoise(2.0**-31), space)
    assert PredictiveMechanism(PRIVACY, AlwaysNoise(2.0**-29), space).memory == 1


def test_the_least_budget_of_a_line_leaves_room_for_arithmetic_below_the_grid() -> None:
    """Of the largest noise that it draws, doubles miss less than a 4096th of a grid step."""
    space = Line(grid=1.0)
    rng = np.random.default_rng(3)
    u1, u2 = np.exp2(-65.0 * rng.uniform(0.0, 1.0, (2, 100_000)))
    drawn = noise.line_offset(space.smallest_eps, u1, u2)
    exact = np.log(np.longdouble(u1) / np.longdouble(u2)) / np.longdouble(space.smallest_eps)
    if np.finfo(np.longdouble).nmant < 63:
        pytest.skip("this machine has no numbers finer than doubles to compare with")
    assert np.abs(drawn).max() > 40.0 / space.smallest_eps, "the tails are among them"
    assert np.abs(drawn - exact).max() < 2.0**-12


def test_a_sphere_takes_noise_of_any_size() -> None:
    m = PredictiveMechanism(PRIVACY, falling(TOTAL / 4), Sphere())
    out = sanitize(m, np.zeros((200, 2)), np.arange(200.0), [0, 200], seed=1)
    assert out.released.all()
    assert np.isfinite(out.value).all()


def test_a_fixed_rate_is_refused_at_once_if_any_run_could_make_it_too_fine() -> None:
    with pytest.raises(PartError, match="too large for the grid"):
        hereish.fixed_rate(Privacy(2.0**-22, 1.0), 300, space=Plane())


@pytest.mark.parametrize("build", [Plane, Line])
@pytest.mark.parametrize("grid", [1e297, 1e-297, 0.0, -1.0, math.inf, math.nan])
def test_a_grid_that_leaves_the_range_of_doubles_is_refused(build: Any, grid: float) -> None:
    with pytest.raises(hereish.ParameterError, match="grid"):
        build(grid)


@pytest.mark.parametrize("space", [Plane(), Line(1.0)], ids=repr)
def test_what_lies_beyond_the_range_is_released_as_its_end_and_the_session_goes_on(
    space: Any,
) -> None:
    m = PredictiveMechanism(PRIVACY, AlwaysNoise(2.0**-29), space)
    edge = (space.coordinates[0].high,) * m.dim
    for seed in range(8):
        session = m.session(seed=seed)
        value = np.atleast_1d(session.report(edge, START).value)
        assert (value <= edge).all()
        hereish.Session.from_state(m, session.to_state())
    with pytest.raises(hereish.PointError):
        m.session().report((math.inf,) * m.dim, START)


def test_a_window_that_no_calendar_has_is_told_by_its_number() -> None:
    m = PredictiveMechanism(PRIVACY, AlwaysNoise(0.001), window=hereish.Every(timedelta(10**6)))
    report = m.session().report((60.0, 25.0), datetime(1960, 1, 1, tzinfo=UTC))
    assert "window -1" in report.covers
    assert "day 4000000" in hereish.Day("UTC").covers(4_000_000)


def test_a_part_that_fails_in_use_is_a_part_error_and_nothing_is_spent() -> None:
    def prediction(run: Run, at_s: Floats, /) -> Floats:
        if run.reports[0] > 1:
            raise KeyError
        return np.asarray(run.value)

    m = PredictiveMechanism(PRIVACY, AlwaysNoise(0.001), Line(), prediction)
    session = m.session(seed=1)
    session.report(0.0, START)
    session.report(0.0, START)
    before = session.spent
    with pytest.raises(PartError, match="prediction failed with KeyError"):
        session.report(0.0, START)
    assert session.spent == before
