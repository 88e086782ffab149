"""Bounded means bounded: what is spent never passes the budget, not by one ulp, in exact sums.

Floats are numbers, so `fractions.Fraction` adds them up without any rounding. The same audit must
reject the naive way of counting, or it could not fail.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish import (
    AlwaysNoise,
    Bound,
    BudgetExhaustedError,
    Day,
    Every,
    Line,
    NoReset,
    PartError,
    Plan,
    Plane,
    PredictiveMechanism,
    Privacy,
    Run,
    SkipBySpeed,
    Sphere,
    fixed_rate,
    fixed_utility,
    independent,
    sanitize,
)
from hereish.core.mechanism import OnExhausted
from hereish.core.skip import SkipRule
from hereish.core.step import prepare
from hereish.core.types import Floats, Ints, PerLane
from hereish.core.windows import Window

# The same examples each time: a test that fails on some days only is no test.
steady = settings(derandomize=True, deadline=None, max_examples=120)
START_S = datetime(2024, 3, 9, 20, 0, tzinfo=UTC).timestamp()  # clocks change in America next day


def sums(m: PredictiveMechanism, at_s: Floats, cost: Floats) -> dict[int, Fraction]:
    """What the reports of one trace cost in each window, exactly."""
    index = m.window.index(at_s) if len(at_s) else None
    windows = np.zeros(len(at_s), dtype=np.int64) if index is None else index
    spent: dict[int, Fraction] = {}
    for window, paid in zip(windows.tolist(), cost.tolist(), strict=True):
        spent[window] = spent.get(window, Fraction(0)) + Fraction(paid)
    return spent


def audit(m: PredictiveMechanism, at_s: Floats, cost: Floats) -> Fraction:
    """The most that a window of this trace cost, if that is within the budget."""
    assert (cost >= 0.0).all()
    most = max(sums(m, at_s, cost).values(), default=Fraction(0))
    assert most <= Fraction(m.privacy.eps_per_m), "the budget is exceeded"
    return most


@st.composite
def hostile(draw: st.DrawFn, low: int, high: int) -> float:
    """Numbers whose sums round badly: odd decimals, thirds, and neighbours of round numbers."""
    whole = draw(st.sampled_from([1.0, 3.0, 7.0, 10.0, 1 / 3, 0.1, 0.7, math.log(10.0), 105.0]))
    scale = draw(st.sampled_from([1.0, 10.0 ** draw(st.integers(low, high))]))
    value = whole * scale
    towards = draw(st.sampled_from([value, 0.0, math.inf]))
    return math.nextafter(value, towards)


@dataclass(frozen=True)
class Wild:
    """A manager without manners: any plan at any report, lane by lane, but a function of the run.

    Budgets are shares of the whole, from nothing to more than all of it, and thresholds are on the
    scale of the noise that the whole would buy.
    """

    total: float
    table: tuple[tuple[float, float, float], ...]

    needs_history = True

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        rows = np.array(self.table)[(run.reports + at_s.astype(np.int64)) % len(self.table)]
        return Plan(self.total * rows[:, 0], self.total * rows[:, 1], rows[:, 2] / self.total)


class AnyNoise(Line):
    """A line that takes noise of any size: here it is what is spent that counts."""

    smallest_eps = 0.0


shares = st.one_of(
    st.sampled_from(
        [1e-100, 1e-13, 2.0**-41, 1 / 3, 0.1, 0.25, 1.0, math.nextafter(1.0, 2.0), 9e9]
    ),
    st.floats(1e-4, 0.6),
)
tables = st.lists(
    st.tuples(
        st.one_of(st.just(0.0), shares),
        shares,
        st.sampled_from([-math.inf, math.inf, 1e-9, 1.0, 100.0]),
    ),
    min_size=1,
    max_size=5,
)


windows: st.SearchStrategy[Window] = st.sampled_from(
    [
        NoReset(),
        Every(timedelta(minutes=7)),
        Every(timedelta(hours=5, microseconds=1)),
        Day("America/St_Johns"),
        Day("Pacific/Chatham"),
    ]
)
skips = st.sampled_from([None, SkipBySpeed(limit_m=900.0), SkipBySpeed(3.0, 200.0, since="tested")])


@st.composite
def mechanisms(draw: st.DrawFn) -> PredictiveMechanism:
    privacy = Privacy(draw(hostile(-95, 95)), draw(hostile(-95, 95)))
    total, reports = privacy.eps_per_m, draw(st.integers(1, 40))
    space = AnyNoise(1e-3 / total)  # a grid finer than the noise, or all guesses would be right
    window: Window = draw(windows)
    exhausted: OnExhausted = draw(st.sampled_from(["stop", "predict"]))
    kind = draw(st.sampled_from(["utility", "rate", "reports", "accuracy", "wild"]))
    # Accuracies whose cost is a whole share of the budget up to rounding, and some that are not.
    part = draw(st.sampled_from([1.0 / reports, draw(st.floats(1e-3, 1.0))]))
    accuracy = space.c_noise(0.9) / (total * part)
    while space.c_noise(0.9) / accuracy > total:
        accuracy = math.nextafter(accuracy, math.inf)
    if kind == "reports":
        return independent(
            privacy, reports=reports, space=space, window=window, on_exhausted=exhausted
        )
    if kind == "accuracy":
        return independent(
            privacy, accuracy_m=accuracy, space=space, window=window, on_exhausted=exhausted
        )
    skip: SkipRule | None = draw(skips)
    if kind == "wild":
        plans = Wild(total, tuple(draw(tables)))
        return PredictiveMechanism(
            privacy, plans, space, skip=skip, window=window, on_exhausted=exhausted
        )
    build: Callable[..., PredictiveMechanism] = fixed_utility if kind == "utility" else fixed_rate
    return build(
        privacy,
        # A plan for one or two reports, the first of which would not fit, is refused.
        accuracy if kind == "utility" else reports + 2,
        gamma=draw(st.sampled_from([0.8, 3.0])),
        prediction_rate=0.97,
        skip=skip,
        space=space,
        window=window,
        on_exhausted=exhausted,
    )


@st.composite
def traces(draw: st.DrawFn, m: PredictiveMechanism) -> tuple[Floats, Floats, Ints]:
    """Ragged traces, some empty, that move on the scale of the noise over a few days."""
    lengths = draw(st.lists(st.integers(0, 60), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    offsets = np.cumsum([0, *lengths])
    total = int(offsets[-1])
    x = rng.normal(size=total) * draw(st.sampled_from([0.0, 1.0, 100.0])) / m.privacy.eps_per_m
    gap_s = rng.choice([0.0, 0.5, 60.0, 3600.0, 30_000.0], total)
    return x, START_S + np.cumsum(gap_s), offsets


@steady
@given(st.data())
def test_no_window_of_any_trace_of_a_batch_ever_costs_more_than_the_budget(
    data: st.DataObject,
) -> None:
    m = data.draw(mechanisms())
    x, at_s, offsets = data.draw(traces(m))
    out = sanitize(m, x, at_s, offsets, seed=data.draw(st.integers(0, 2**32)))
    for i, (start, end) in enumerate(pairwise(offsets)):
        most = audit(m, at_s[start:end], out.cost[start:end])
        assert Fraction(out.spent[i]) == most
    assert (out.cost[~out.released] == 0.0).all()


@steady
@given(st.data())
def test_a_live_session_knows_to_the_last_bit_what_it_has_spent(data: st.DataObject) -> None:
    m = data.draw(mechanisms())
    x, at_s, _ = data.draw(traces(m))
    session = m.session(seed=data.draw(st.integers(0, 2**32)))
    cost = np.zeros(len(x))
    for i, (point, now) in enumerate(zip(x, at_s, strict=True)):
        try:
            cost[i] = session.report(point, datetime.fromtimestamp(now, UTC)).cost
        except BudgetExhaustedError:
            # Told to predict, it only refuses while there is nothing to predict from.
            assert m.on_exhausted == "stop" or np.isnan(session.run.value).all()
        spent = sums(m, at_s[: i + 1], cost[: i + 1])
        assert Fraction(session.spent) == list(spent.values())[-1]
        assert Fraction(session.remaining) + Fraction(session.spent) == Fraction(m.bound.total)
    audit(m, at_s, cost)


BUDGETS = [
    *(0.1, 1 / 3, 1.0, 3.0, 7.0, math.log(10.0) / 100.0, 1e-17, 123456.789, 1e-150, 1e150),
    *(math.nextafter(1.0, 0.0), math.nextafter(1.0, 2.0), math.pi * 1e-5),
]


def ends_after(m: PredictiveMechanism, n: int) -> bool:
    """Whether n reports fit and one more does not, asked of the step itself, all lanes at once."""
    assert isinstance(m.budget, AlwaysNoise)
    spent = m.bound.quantised(m.budget.eps_noise) * np.arange(n + 1.0)
    before = Run.empty(n + 1, 1)._replace(spent=spent, reports=np.arange(n + 1))
    fits = prepare(m, before, np.zeros(n + 1)).fits
    return bool(fits[:n].all() and not fits[n])


@pytest.mark.parametrize("budget", BUDGETS)
def test_independent_noise_for_n_reports_fits_exactly_n_times(budget: float) -> None:
    wrong = [
        n
        for n in range(1, 2001)
        if not ends_after(independent(Privacy(budget, 1.0), reports=n, space=Line(1.0 / budget)), n)
    ]
    assert wrong == []


def test_budgets_one_ulp_beside_a_multiple_of_n_still_pay_for_exactly_n_reports() -> None:
    # total / n rounds up to a number of which n are too much: the worst case for `Bound.part`.
    wrong = [
        (n, budget)
        for n in range(1, 2001)
        for budget in (math.nextafter(n, 0.0), float(n), math.nextafter(n, math.inf))
        if not ends_after(independent(Privacy(budget, 1.0), reports=n, space=Line(1.0 / budget)), n)
    ]
    assert wrong == []


def test_a_mechanism_that_was_accepted_can_make_its_first_report() -> None:
    # Its accuracy costs the whole budget: rounding the cost up would leave it without a report.
    for radius_m in range(1, 200):
        privacy, space = Privacy(math.log(10.0), float(radius_m)), Line()
        accuracy_m = space.c_noise(0.9) / privacy.eps_per_m
        while space.c_noise(0.9) / accuracy_m > privacy.eps_per_m:
            accuracy_m = math.nextafter(accuracy_m, math.inf)
        m = independent(privacy, accuracy_m=accuracy_m, space=space)
        assert prepare(m, Run.empty(1, 1), np.zeros(1)).fits[0], privacy


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 29, 30, 49, 100, 1000, 1999])
def test_n_independent_reports_are_released_and_not_one_more(n: int) -> None:
    for budget in BUDGETS:
        m = independent(Privacy(budget, 1.0), reports=n, space=Line(1.0 / budget))
        points = n + 3
        out = sanitize(m, np.zeros(points), np.arange(points), [0, points], seed=n)
        assert np.count_nonzero(out.released) == n
        assert out.released[:n].all()
        audit(m, np.arange(float(points)), out.cost)


@pytest.mark.parametrize("zone", ["America/St_Johns", "Pacific/Chatham", "UTC"])
def test_every_day_pays_for_exactly_n_reports_again(zone: str) -> None:
    # Each half hour of five days, midnights to the second included; a clock changes among them.
    first = datetime(2024, 3, 8, tzinfo=ZoneInfo(zone)).timestamp()
    at_s = first + 1800.0 * np.arange(240)
    day = [datetime.fromtimestamp(now, ZoneInfo(zone)).date() for now in at_s]
    for n in (1, 7, 100):
        m = independent(Privacy(0.1, 1.0), reports=n, space=Line(), window=Day(zone))
        out = sanitize(m, np.zeros(240), at_s, [0, 240], seed=n)
        released = Counter(date for date, ok in zip(day, out.released, strict=True) if ok)
        assert released == {date: min(n, count) for date, count in Counter(day).items()}


@dataclass(frozen=True)
class NaiveBound(Bound):
    """How everybody counts at first: `total += cost` while `total + cost <= budget`."""

    def quantised(self, eps: PerLane) -> PerLane:
        return eps


def naive(m: PredictiveMechanism) -> PredictiveMechanism:
    object.__setattr__(m, "bound", NaiveBound(m.privacy.eps_per_m))
    return m


def test_the_audit_rejects_naive_sums_of_floats() -> None:
    caught, early = [], []
    for n in range(2, 60):
        for budget in (0.1, 1 / 3, 1.0, 0.7):
            privacy = Privacy(budget, 1.0)
            m = naive(PredictiveMechanism(privacy, AlwaysNoise(budget / n), Line()))
            at_s = np.arange(n + 2.0)
            out = sanitize(m, np.zeros(n + 2), at_s, [0, n + 2], seed=1)
            if np.count_nonzero(out.released) < n:
                early.append(n)
            try:
                audit(m, at_s, out.cost)
            except AssertionError:
                caught.append(n)
    assert len(caught) > 10, "naive sums pass the budget, and the audit sees it"
    assert len(early) > 10, "naive sums also stop a report too early"


def test_a_step_that_overshoots_by_one_quantum_is_refused_and_one_that_does_not_is_not() -> None:
    for budget in BUDGETS:
        m = PredictiveMechanism(Privacy(budget, 1.0), AlwaysNoise(budget / 3), Line(1.0 / budget))
        cost = float(m.bound.quantised(budget / 3))
        whole = math.floor(Fraction(budget) / Fraction(m.bound.quantum)) * m.bound.quantum
        spent = np.array([whole - cost, whole - cost + m.bound.quantum])
        assert Fraction(spent[0]) + Fraction(cost) == Fraction(whole), "the sums are exact"
        prepared = prepare(m, Run.empty(2, 1)._replace(spent=spent), np.zeros(2))
        assert prepared.fits.tolist() == [True, False]


@pytest.mark.parametrize("space", [Line(), Plane(), Sphere()], ids=repr)
@pytest.mark.parametrize(
    "plan",
    [
        Plan(1e-3, 1e-3, math.nan),
        Plan(math.nan, 1e-3, 100.0),
        Plan(1e-3, math.nan, 100.0),
        Plan(-1e-3, 1e-3, 100.0),
        Plan(1e-3, -1e-3, 100.0),
        Plan(1e-3, 0.0, 100.0),
    ],
    ids=repr,
)
def test_a_plan_that_is_none_is_refused_before_the_secret_is_used(
    plan: Plan, space: Line | Plane | Sphere
) -> None:
    # A threshold that is no number was counted as untested, hence free, and the "noise" that
    # nothing bought was none: the secret itself came out.
    good = Plan(1e-3, 1e-3, 100.0)
    m = PredictiveMechanism(
        Privacy(1.0, 100.0), lambda run, at_s: good if run.reports[0] < 2 else plan, space
    )
    session = m.session(seed=1)
    secret = (1.0, 2.0)[: m.dim]
    session.report(secret, datetime(2024, 1, 1, tzinfo=UTC))
    session.report(secret, datetime(2024, 1, 2, tzinfo=UTC))
    with pytest.raises(PartError):
        session.report(secret, datetime(2024, 1, 3, tzinfo=UTC))
