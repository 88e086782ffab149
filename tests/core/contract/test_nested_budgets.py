"""Several budgets at once: no sequence of times passes any of them, in exact sums.

Every interval of a rolling window that ends with a paid report is added up in fractions, and so is
every calendar window. The same audit must reject keepers with a planted fault.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hereish
from hereish import (
    AlwaysNoise,
    BudgetExhaustedError,
    Day,
    Days,
    Every,
    Forever,
    Hours,
    Limit,
    Line,
    Month,
    NoReset,
    Plan,
    PointError,
    PredictiveMechanism,
    Privacy,
    Rolling,
    Run,
    Session,
    sanitize,
)
from hereish.core.limits import LimitBuckets
from hereish.core.mechanism import OnExhausted
from hereish.core.types import Floats
from hereish.core.windows import Window

steady = settings(derandomize=True, deadline=None, max_examples=120)
START_S = datetime(2024, 3, 9, 20, 0, tzinfo=UTC).timestamp()  # clocks change in America next day
LEVEL = 1.0


class AnyNoise(Line):
    """A line that takes noise of any size: here it is what is spent that counts."""

    smallest_eps = 0.0


@dataclass(frozen=True)
class Wild:
    """Any plan at any report, but a function of the run: shares of the first window's budget."""

    table: tuple[tuple[float, float, float], ...]
    needs_history = True

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        rows = np.array(self.table)[(run.reports + at_s.astype(np.int64)) % len(self.table)]
        return Plan(LEVEL * rows[:, 0], LEVEL * rows[:, 1], rows[:, 2])


class Paid(NamedTuple):
    """Reports of one trace that were paid, in the order in which they were made."""

    at_s: Floats
    cost: Floats


def exact_sums(window: Window, paid: Paid) -> list[Fraction]:
    """What was paid in each window, or in each interval that ends with a report."""
    costs = [Fraction(cost) for cost in paid.cost.tolist()]
    if isinstance(window, Rolling):
        seconds = Fraction(window.duration // timedelta(microseconds=1), 10**6)
        times = [Fraction(at) for at in paid.at_s.tolist()]
        pairs = list(zip(times, costs, strict=True))
        return [
            sum((cost for at, cost in pairs if 0 <= end - at <= seconds), Fraction(0))
            for end in times
        ]
    index = window.index(paid.at_s) if len(costs) else None
    numbers = [0] * len(costs) if index is None else index.tolist()
    sums: dict[int, Fraction] = {}
    for number, cost in zip(numbers, costs, strict=True):
        sums[number] = sums.get(number, Fraction(0)) + cost
    return list(sums.values())


def audit(m: PredictiveMechanism, paid: Paid) -> None:
    """Raises if any window of the mechanism has cost more than its budget."""
    assert (paid.cost >= 0.0).all()
    budgets = [(m.window, m.privacy.level), *((one.window, one.level) for one in m.limits)]
    for window, level in budgets:
        assert level is not None
        for spent in exact_sums(window, paid):
            assert spent <= Fraction(level / m.privacy.radius_m), f"too much for {window}"


limit_windows: st.SearchStrategy[Window] = st.sampled_from(
    [
        Forever,
        Hours(24),
        Days(2),
        Rolling(timedelta(hours=7, microseconds=1)),
        Rolling(timedelta(seconds=90)),
        Every(timedelta(hours=30)),
        Day("Pacific/Chatham"),
        Month("America/St_Johns"),
    ]
)
first_windows: st.SearchStrategy[Window] = st.sampled_from(
    [NoReset(), Every(timedelta(hours=5)), Day("America/St_Johns"), Hours(24), Hours(3)]
)
shares = st.one_of(st.sampled_from([2.0**-41, 1 / 3, 0.1, 0.25, 1.0]), st.floats(1e-3, 0.6))
plans = st.tuples(
    st.one_of(st.just(0.0), shares), shares, st.sampled_from([-math.inf, math.inf, 1.0, 100.0])
)
GAPS_S = [0.0, 0.5, 60.0, 3599.999, 3600.0, 30_000.0, 86_400.0]


@st.composite
def mechanisms(draw: st.DrawFn) -> PredictiveMechanism:
    count = draw(st.integers(1, 3))
    limits = tuple(
        Limit(draw(limit_windows), draw(st.sampled_from([0.3, 0.7, 1.0, 2.2, math.pi, 40.0])))
        for _ in range(count)
    )
    exhausted: OnExhausted = draw(st.sampled_from(["stop", "predict"]))
    wild = Wild(tuple(draw(st.lists(plans, min_size=1, max_size=4))))
    return PredictiveMechanism(
        Privacy(LEVEL, 1.0),
        wild,
        AnyNoise(1e-3),
        window=draw(first_windows),
        on_exhausted=exhausted,
        limits=limits,
    )


@steady
@given(st.data())
def test_no_window_of_a_trace_of_a_batch_ever_costs_more_than_its_budget(
    data: st.DataObject,
) -> None:
    m = data.draw(mechanisms())
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    offsets = np.cumsum([0, *data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=4))])
    at_s = START_S + np.cumsum(rng.choice(GAPS_S, offsets[-1]))
    x = rng.normal(size=offsets[-1]) * rng.choice([0.0, 1.0, 100.0])
    out = sanitize(m, x, at_s, offsets, seed=data.draw(st.integers(0, 2**32)))
    for start, end in pairwise(offsets.tolist()):
        audit(m, Paid(at_s[start:end], out.cost[start:end]))


class Told(NamedTuple):
    """What a session was told to do next: a report after a gap, or one before the last."""

    gap_s: float
    back_s: float
    save: bool


told = st.builds(
    Told,
    st.sampled_from(GAPS_S),
    st.sampled_from([0.0, 0.0, 1.0, 4000.0, 100_000.0]),
    st.booleans(),
)


def live(
    m: PredictiveMechanism,
    commands: list[Told],
    restored: Callable[[Session], Session] = lambda session: session,
) -> Paid:
    """What a session pays for reports, some of which come before one that was refused."""
    session, latest_s = m.session(seed=1), START_S
    times: list[float] = []
    costs: list[float] = []
    for gap_s, back_s, save in commands:
        latest_s += gap_s
        now_s = latest_s - back_s
        try:
            report = session.report(float(len(times) % 5), datetime.fromtimestamp(now_s, UTC))
        except (BudgetExhaustedError, PointError):
            continue
        finally:
            session = restored(session) if save else session
        times.append(report.at.timestamp())
        costs.append(report.cost)
    return Paid(np.array(times), np.array(costs))


def saved_and_restored(session: Session) -> Session:
    state = json.loads(json.dumps(session.to_state()))
    return Session.from_state(session.mechanism, state, seed=1)


@steady
@given(mechanisms(), st.lists(told, max_size=60))
def test_no_sequence_of_live_reports_passes_any_budget(
    m: PredictiveMechanism, commands: list[Told]
) -> None:
    paid = live(m, commands, saved_and_restored)
    audit(m, paid)
    without_saving = live(m, commands)
    assert without_saving.cost.tobytes() == paid.cost.tobytes(), "a saved state changes nothing"


def paying(window: Window, *, share: float = 0.25) -> PredictiveMechanism:
    """Fresh noise each time, at this share of the first window's budget."""
    return PredictiveMechanism(
        Privacy(LEVEL, 1.0), AlwaysNoise(share * LEVEL), AnyNoise(1e-3), window=window
    )


def test_a_report_fits_all_of_its_windows_or_is_refused() -> None:
    m = paying(Every(timedelta(hours=1)) & Hours(24).within(2.0) & Forever.within(3.0))
    at_s = START_S + 600.0 * np.arange(24.0 * 6 * 3)
    out = sanitize(m, np.zeros(len(at_s)), at_s, [0, len(at_s)], seed=1)
    hour = ((at_s - START_S) // 3600.0).astype(int)
    # Four reports per hour for two hours; then the 24 hours are full, until the first hour is
    # forgotten; then four more, and all time is full.
    assert out.released.reshape(-1, 6).sum(axis=1)[:3].tolist() == [4, 4, 0]
    assert sorted(set(hour[out.released].tolist())) == [0, 1, 25]
    assert out.cost.sum() == 3.0
    audit(m, Paid(at_s, out.cost))


def test_refusal_names_the_window_that_is_full() -> None:
    m = paying(Day("UTC") & Month("UTC").within(2.5) & Forever.within(9.0))
    session = m.session(seed=1)
    first = datetime(2026, 3, 1, 8, tzinfo=UTC)
    assert session.report(0.0, first).covers == (
        "the reports of 2026-03-01 (UTC), the reports of each month (UTC), all reports together"
    )

    def refused(day: int) -> BudgetExhaustedError:
        with pytest.raises(BudgetExhaustedError) as caught:
            for minute in range(9):
                session.report(0.0, first + timedelta(days=day, minutes=minute))
        return caught.value

    assert refused(0).covers == "the reports of 2026-03-01 (UTC)"
    assert refused(1).covers == "the reports of 2026-03-02 (UTC)"
    month = refused(2)
    assert month.covers == "the reports of 2026-03 (UTC)"
    assert (month.requested, month.remaining) == (0.25, 0.0)
    assert [budget.remaining for budget in session.budgets] == [0.5, 0.0, 6.5]
    assert [budget.covers for budget in session.budgets] == [
        "the reports of 2026-03-03 (UTC)",
        "the reports of 2026-03 (UTC)",
        "all reports together",
    ]


def test_the_guarantee_names_each_window_with_its_level() -> None:
    window = (
        Day("Europe/Helsinki") & Days(30).within(math.log(1000)) & Forever.within(math.log(1e6))
    )
    m = hereish.fixed_utility(Privacy(math.log(10), 100), 3000, window=window)
    assert m.guarantee == (
        "For the reports of each day (Europe/Helsinki): whatever is released is at most 10 times "
        "as likely from one trace as from any other that stays within 100 m of it; for the reports "
        "of any 30 days, at most 1000 times; for all reports together, at most 1e+06 times."
    )


def test_windows_without_a_budget_of_their_own_are_refused() -> None:
    with pytest.raises(
        hereish.ParameterError, match="a budget is missing for the reports of any 30"
    ):
        paying(Day("UTC") & Days(30) & Forever.within(3.0))
    with pytest.raises(hereish.ParameterError, match="the first of several windows has the budget"):
        Days(30).within(3.0) & Forever.within(4.0)
    with pytest.raises(hereish.ParameterError, match="leave out within"):
        paying(Days(30).within(3.0))  # type: ignore[arg-type]  # on purpose
    with pytest.raises(hereish.ParameterError, match="combined with windows, found float"):
        Day("UTC") & 3.0  # type: ignore[operator]  # on purpose
    with pytest.raises(hereish.ParameterError, match="further apart than a factor"):
        paying(Day("UTC") & Forever.within(1e12))


def test_a_mechanism_with_one_window_is_what_it_was() -> None:
    m = hereish.fixed_utility(Privacy(math.log(10), 100), 3000, window=Day("UTC"))
    assert m.limiter is None
    assert m.bound.quantum == hereish.Bound(m.privacy.eps_per_m).quantum
    assert "limit" not in m.fingerprint
    assert "limits" not in hereish.whole_day(m.privacy, window=Day("UTC")).fingerprint
    session = m.session(seed=1)
    session.report((60.0, 25.0), datetime(2026, 1, 1, tzinfo=UTC))
    assert not [name for name in session.to_state()["run"] if "limit" in name]


def test_any_24_hours_can_be_the_only_window() -> None:
    m = paying(Hours(24))
    at_s = START_S + 1800.0 * np.arange(200.0)
    out = sanitize(m, np.zeros(200), at_s, [0, 200], seed=1, run=m.run(1))
    audit(m, Paid(at_s, out.cost))
    when = np.flatnonzero(out.released)
    # Four in two hours from 20:00 on; two are forgotten at 21:00 of the next day, and so on.
    assert when[:8].tolist() == [0, 1, 2, 3, 50, 51, 52, 53]
    assert out.run is not None
    assert out.run.spent.tolist() == out.run.limit_spent[:, 0].tolist()
    assert m.guarantee.startswith("For the reports of any 24 hours: whatever")


@pytest.mark.parametrize(
    "duration",
    [
        timedelta(microseconds=1),
        timedelta(seconds=33),
        timedelta(hours=24),
        timedelta(days=1, microseconds=1),
        timedelta(days=30),
        timedelta(days=365),
        timedelta(days=40_000),
    ],
    ids=str,
)
def test_buckets_cover_the_duration_in_constant_space(duration: timedelta) -> None:
    window = Rolling(duration)
    assert window.older <= 32
    assert duration <= window.older * timedelta(seconds=window.bucket_s)
    # And no more than a bucket longer, unless a bucket is all that there is.
    assert (window.older - 1) * timedelta(seconds=window.bucket_s) < duration


def test_the_buckets_of_people_are_hours_and_days() -> None:
    assert (Hours(24).bucket_s, Hours(24).older) == (3600, 24)
    assert (Days(30).bucket_s, Days(30).older) == (86_400, 30)
    assert Days(1) == Hours(24)


@steady
@given(
    st.sampled_from([1, 2, 15, 3600, 86_400, 30 * 86_400]),
    st.integers(-(10**6), 10**6),
    st.sampled_from([-1, 0, 1]),
)
def test_bucket_numbers_are_exact_beside_every_boundary(
    length_s: int, number: int, beside: int
) -> None:
    window = next(one for one in map(Rolling, DURATIONS) if one.bucket_s == length_s)
    at = float(number * length_s)
    if beside:
        at = math.nextafter(at, beside * math.inf)
    exact = math.floor(Fraction(at) / length_s)
    assert window.bucket(np.array([at])).tolist() == [exact]
    assert window.bucket(np.array([at, at])).tolist() == [exact, exact], "as in a batch"


DURATIONS = [timedelta(seconds=s) for s in (5, 60, 450, 86_400, 30 * 86_400, 900 * 86_400)]


# Negative controls: the audit must reject each of these.


class ForgetsTooEarly(LimitBuckets):
    """Counts a bucket less than the duration has."""

    def at(self, run: Run, at_s: Floats) -> Run:
        run = super().at(run, at_s)
        oldest = run.limit_older[:, -1:]
        older = np.append(run.limit_older[:, :-1], np.zeros_like(oldest), axis=1)
        return run._replace(limit_older=older, limit_spent=run.limit_spent - oldest).frozen()


class FollowsTheClockBack(LimitBuckets):
    """Takes any other bucket for a new one, so that a clock set back hands out budget."""

    def at(self, run: Run, at_s: Floats) -> Run:
        bucket = self.buckets(at_s)
        back = np.where(bucket < run.limit_bucket, bucket - 1, run.limit_bucket)
        return super().at(run._replace(limit_bucket=back).frozen(), at_s)


def with_keeper(m: PredictiveMechanism, keeper: type[LimitBuckets]) -> PredictiveMechanism:
    """The mechanism with a planted fault."""
    assert m.limiter is not None
    faulty = replace(m)
    planted = keeper(m.limiter.limits, rolling_first=m.limiter.rolling_first)
    object.__setattr__(faulty, "limiter", planted)
    return faulty


def test_the_audit_rejects_a_window_that_forgets_a_bucket_too_early() -> None:
    m = paying(Every(timedelta(minutes=30)) & Hours(3).within(1.0))
    commands = [Told(600.0, 0.0, save=False)] * 60
    audit(m, live(m, commands))
    with pytest.raises(AssertionError, match="too much for Rolling"):
        audit(m, live(with_keeper(m, ForgetsTooEarly), commands))


@dataclass(frozen=True)
class DearAfter:
    """Noise that costs 0.6 until this time, and more than there is from then on."""

    until_s: float
    needs_history = False

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        return Plan(0.0, np.where(at_s < self.until_s, 0.6, 1.5), -math.inf)


def test_the_audit_rejects_a_limit_that_follows_the_clock_back() -> None:
    midnight_s = START_S + 4 * 3600.0
    m = replace(
        paying(Every(timedelta(hours=1)) & Day("UTC").within(1.0)), budget=DearAfter(midnight_s)
    )
    # Paid at 22:00; refused at 01:00 of the next day; then the clock is back at 23:00.
    commands = [Told(7200.0, 0.0, save=False), Told(10_800.0, 0.0, save=True)]
    commands.append(Told(0.0, 7200.0, save=False))
    assert live(m, commands, saved_and_restored).cost.tolist() == [m.bound.quantised(0.6)]
    with pytest.raises(AssertionError, match="too much for Day"):
        audit(m, live(with_keeper(m, FollowsTheClockBack), commands))


class Carries(NamedTuple):
    """A day's lanes one after the other, with or without what the limits say."""

    m: PredictiveMechanism
    forgets: bool

    def paid(self, days: int) -> Paid:
        lane_m, run = self.m.without_windows, self.m.without_windows.run(1)
        times, costs = [], []
        for day in range(days):
            at_s = START_S + 86_400.0 * day + 600.0 * np.arange(6)
            if self.forgets:
                run = lane_m.run(1)
            out = sanitize(lane_m, np.zeros(6), at_s, [0, 6], seed=day, run=run.with_fresh_budget())
            assert out.run is not None
            run = out.run
            times.append(at_s)
            costs.append(out.cost)
        return Paid(np.concatenate(times), np.concatenate(costs))


def test_the_audit_rejects_a_limit_that_is_not_carried_over_a_day() -> None:
    m = paying(Day("UTC") & Days(7).within(2.0))
    audit(m, Carries(m, forgets=False).paid(20))
    with pytest.raises(AssertionError, match="too much for Rolling"):
        audit(m, Carries(m, forgets=True).paid(20))
