"""Sessions that share their budgets with others for a while: no sequence of reports, charges,
refusals and bad points passes any budget, in exact sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish import (
    BudgetExhaustedError,
    Day,
    Days,
    Forever,
    Hours,
    Month,
    PointError,
    PredictiveMechanism,
    Report,
    Rolling,
    Session,
    StateError,
)
from hereish.core.run import NO_WINDOW
from hereish.core.step import in_window
from hereish.core.windows import Window
from tests.core.contract.test_nested_budgets import (
    GAPS_S,
    START_S,
    Paid,
    audit,
    mechanisms,
    paying,
    saved_and_restored,
    steady,
)

WINDOWS: list[Window] = [Day("UTC"), Hours(24), Day("UTC") & Days(30).within(50.0)]


class Ask(NamedTuple):
    """A report after a gap, or one before the last; perhaps of a point that is none."""

    gap_s: float
    back_s: float
    bad: bool


class Share(NamedTuple):
    """Others are charged for a time ahead, with shares of what is left, during some reports."""

    ahead_s: float
    share: float
    limit_shares: tuple[float, float, float]
    asked: list[Ask]


class Save(NamedTuple):
    """The session is saved and restored."""


asks = st.builds(
    Ask,
    st.sampled_from(GAPS_S),
    st.sampled_from([0.0, 0.0, 1.0, 4000.0, 100_000.0]),
    st.sampled_from([False, False, False, True]),
)
charges = st.sampled_from([0.0, 0.0, 0.5, 0.9, 1.0])
sharings = st.builds(
    Share,
    st.sampled_from([0.0, 0.0, 60.0, 4000.0, 90_000.0, 6e6]),
    charges,
    st.tuples(charges, charges, charges),
    st.lists(asks, max_size=4),
)
commands = st.lists(st.one_of(asks, sharings, st.builds(Save)), max_size=30)


@st.composite
def any_mechanism(draw: st.DrawFn) -> PredictiveMechanism:
    m = draw(mechanisms())
    return replace(m, limits=()) if draw(st.sampled_from([False, False, True])) else m


@dataclass
class Clock:
    """A session whose reports are told times, and what it has paid."""

    session: Session
    latest_s: float = START_S

    def __post_init__(self) -> None:
        self.at_s: list[float] = []
        self.cost: list[float] = []

    @property
    def paid(self) -> Paid:
        return Paid(np.array(self.at_s), np.array(self.cost))

    def ask(self, asked: Ask) -> bool:
        """Whether there was a release."""
        self.latest_s += asked.gap_s
        at = datetime.fromtimestamp(self.latest_s - asked.back_s, UTC)
        x = math.nan if asked.bad else float(len(self.cost) % 5)
        try:
            report = self.session.report(x, at)
        except (BudgetExhaustedError, PointError):
            return False
        self.at_s.append(report.at.timestamp())
        self.cost.append(report.cost)
        return True

    def share(self, shared: Share) -> None:
        session, m, before = self.session, self.session.mechanism, self.session.run
        at_s = self.latest_s + shared.ahead_s
        run = in_window(m, before, np.array([at_s]))
        eps = share_of(m, shared.share, m.bound.total, float(run.spent[0]))
        own = len(m.bound.limits) - len(m.limits)
        limits = [
            share_of(m, share, m.bound.limits[j], float(run.limit_spent[0, j]))
            for j, share in zip(range(own, len(m.bound.limits)), shared.limit_shares, strict=False)
        ]
        with session.charged(datetime.fromtimestamp(at_s, UTC), eps, limits):
            released = [self.ask(asked) for asked in shared.asked]
            with pytest.raises(StateError, match="while others are charged"):
                session.to_state()
        if (eps or any(limits)) and not any(released):
            assert session.run is before, "nothing has moved"

    def check_sums(self) -> None:
        """What the run says was spent is what it has paid, in the windows that it says."""
        m, run = self.session.mechanism, self.session.run
        if not self.cost:
            assert not run.spent.any()
            assert not run.limit_spent.any()
            return
        costs, at_s = [Fraction(cost) for cost in self.cost], np.array(self.at_s)
        if m.limiter is None or not m.limiter.rolling_first:
            numbers = m.window.index(at_s)
            window = [NO_WINDOW] * len(costs) if numbers is None else numbers.tolist()
            now = int(run.window[0])
            assert Fraction(float(run.spent[0])) == total(costs, [one == now for one in window])
        if m.limiter is None:
            return
        buckets = m.limiter.buckets(at_s)
        for j, limit in enumerate(m.limiter.limits):
            older = limit.window.older if isinstance(limit.window, Rolling) else 0
            ago = (run.limit_bucket[0, j] - buckets[:, j]).tolist()
            counted = total(costs, [0 <= one <= older for one in ago])
            assert Fraction(float(run.limit_spent[0, j])) == counted


def share_of(m: PredictiveMechanism, share: float, of: float, spent: float) -> float:
    return float(m.bound.quantised(share * (float(m.bound.quantised(of)) - spent)))


def total(costs: Sequence[Fraction], counted: Sequence[bool]) -> Fraction:
    pairs = zip(costs, counted, strict=True)
    return sum((cost for cost, counts in pairs if counts), Fraction(0))


@settings(steady, max_examples=200)
@given(any_mechanism(), commands)
def test_no_sequence_of_reports_and_charges_passes_any_budget(
    m: PredictiveMechanism, told: list[Ask | Share | Save]
) -> None:
    clock = Clock(m.session(seed=1))
    for command in told:
        if isinstance(command, Share):
            clock.share(command)
        elif isinstance(command, Ask):
            clock.ask(command)
        else:
            clock.session = saved_and_restored(clock.session)
        clock.check_sums()
    audit(m, clock.paid)


T0 = datetime.fromtimestamp(START_S, UTC)


def spend_all(session: Session, at: datetime) -> list[Report]:
    """Reports at one time until nothing more fits."""
    reports: list[Report] = []
    with pytest.raises(BudgetExhaustedError):
        while len(reports) < 50:
            reports.append(session.report(0.0, at))
    return reports


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("eps", [0.0, 0.25])
@pytest.mark.parametrize("point", [None, math.nan], ids=["nothing", "a bad point"])
def test_a_charge_for_a_time_ahead_moves_nothing(
    window: Window, eps: float, point: float | None
) -> None:
    session = paying(window).session(seed=1)
    assert len(spend_all(session, T0)) == 4
    before, later = session.run, T0 + timedelta(days=60)
    with session.charged(later, eps):
        if point is not None:
            with pytest.raises(PointError):
                session.report(point, later)
    assert session.run is before
    assert spend_all(session, T0) == []


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_a_release_at_the_time_of_the_last_one_is_paid_though_the_next_is_refused(
    window: Window,
) -> None:
    m = paying(window)
    session = m.session(seed=1)
    session.report(0.0, T0)
    with session.charged(T0, 0.5, [0.5] * len(m.limits)):
        assert len(spend_all(session, T0)) == 1
    assert [one.spent for one in session.budgets] == [0.5] * (1 + len(m.limits))
    assert len(spend_all(session, T0)) == 2


def test_a_refusal_far_ahead_after_a_release_moves_nothing() -> None:
    m = paying(Hours(24) & Forever.within(50.0))
    session = m.session(seed=1)
    with session.charged(T0, 0.0, [49.0]):
        assert len(spend_all(session, T0)) == 4
        with pytest.raises(BudgetExhaustedError, match="all reports"):
            session.report(0.0, T0 + timedelta(days=10))
    assert session.run.limit_bucket.tolist() == m.limiter.buckets(session.run.at_s).tolist()  # type: ignore[union-attr]  # it has
    assert spend_all(session, T0) == []
    assert [one.spent for one in session.budgets] == [1.0, 1.0]


def test_a_report_before_the_time_that_others_are_charged_for_is_refused() -> None:
    session = paying(Day("UTC")).session(seed=1)
    session.report(0.0, T0)
    with session.charged(T0 + timedelta(days=1), 0.25):
        with pytest.raises(PointError, match="earlier than the time that others were charged for"):
            session.report(0.0, T0 + timedelta(hours=1))
        with pytest.raises(StateError, match="within report or charged"):
            session.charged(T0 + timedelta(days=1), 0.25).__enter__()
    assert session.spent == 0.25
    assert len(spend_all(session, T0 + timedelta(hours=1))) == 3


def test_what_is_free_because_of_others_does_not_end_the_window() -> None:
    m = replace(paying(Hours(24)), on_exhausted="predict")
    session = m.session(seed=1)
    session.report(0.0, T0)
    with session.charged(T0, 0.75):
        assert session.report(0.0, T0 + timedelta(hours=1)).cost == 0.0
    costs = [session.report(0.0, T0 + timedelta(hours=1)).cost for _ in range(5)]
    assert costs == [0.25, 0.25, 0.25, 0.0, 0.0]


# States that no session has.


def refused_once(window: Window) -> Session:
    session = paying(window).session(seed=1)
    assert spend_all(session, T0)
    return session


@pytest.mark.parametrize(
    ("window", "limit"),
    [
        (Day("UTC") & Forever.within(3.0), 0),
        (Hours(24) & Forever.within(3.0), 1),
        (Month("UTC") & Hours(24).within(0.5), 0),
    ],
    ids=str,
)
def test_a_state_that_forgets_what_a_limit_has_seen_is_refused(window: Window, limit: int) -> None:
    session = refused_once(window)
    state = saved_and_restored(session).to_state()
    state["run"]["limit_spent"][limit] = 0.0
    with pytest.raises(StateError, match=r"than in all time|does not count in a limit"):
        Session.from_state(session.mechanism, state)


def test_a_state_that_forgets_the_older_part_of_all_time_is_refused() -> None:
    session = refused_once(Day("UTC") & Forever.within(3.0))
    state = session.to_state()
    state["run"]["limit_spent"] = [0.25]
    with pytest.raises(StateError, match="more in its window than in all time"):
        Session.from_state(session.mechanism, state)


def test_a_state_with_what_was_spent_in_the_oldest_bucket_is_refused() -> None:
    session = refused_once(Hours(24))
    state = session.to_state()
    state["run"]["limit_older"][-1] = state["run"]["spent"]
    with pytest.raises(StateError, match="does not count in a limit"):
        Session.from_state(session.mechanism, state)


@pytest.mark.parametrize("released", [True, False])
def test_a_state_ahead_of_its_last_release_has_ended(released: bool) -> None:
    m = paying(Hours(24) & Forever.within(3.0))
    session = m.session(seed=1)
    if released:
        session.report(0.0, T0)
    state = session.to_state()
    state["run"]["limit_bucket"] = [500_000, 0]
    with pytest.raises(StateError, match="has not ended"):
        Session.from_state(m, state)
