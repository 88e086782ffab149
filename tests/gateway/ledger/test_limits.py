"""Budgets of longer windows beside a user's first one: refusals, policies, jobs and restores."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

import hereish
from hereish.core.types import Kind
from hereish.core.windows import Day
from hereish.errors import ParameterError
from hereish.gateway.admin import accounts, maintenance
from hereish.gateway.ledger.budget_status import LimitStatus
from hereish.gateway.ledger.job_reservations import Refusal
from hereish.gateway.ledger.jobs import LedgerJob, cancel_job
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.policy import Policy
from hereish.gateway.ledger.tables import entries, users
from hereish.gateway.ledger.tokens import PresentedToken
from hereish.gateway.ledger.transaction import FixAnswer
from hereish.traces.job_budget import UserWindow, WindowCost
from tests.gateway.ledger.test_limit_sequences import Clock
from tests.support.ledgers import DAY_S, NOON_S, back_up_sqlite
from tests.support.stage import HELSINKI, member, paths_in, policy, shown

LEVEL = math.log(10)
TOTAL = LEVEL / 100.0
# Four reports a day, and a month, any 30 days and all time beside it.
FOUR: dict[str, Any] = {"reports": 4, "mechanism": "independent"}
MONTH = ("month", 2.5 * LEVEL)
THIRTY = ("30d", 2.5 * LEVEL)
EVER = ("forever", 6.0 * LEVEL)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def report(ledger: Ledger, token: PresentedToken, at_s: float) -> FixAnswer:
    [answer] = ledger.report(token, [Fix(*HELSINKI, at_s)], now_s=at_s).answers
    return answer


def paid_on(ledger: Ledger, token: PresentedToken, day: float, times: int = 4) -> float:
    """What so many reports on a day cost, in budgets of a day."""
    answers = [report(ledger, token, NOON_S + day * DAY_S + 60.0 * i) for i in range(times)]
    return sum(a.release.cost for a in answers if a.release is not None) / TOTAL


def limits_on(ledger: Ledger, day: float, name: str = "alice") -> tuple[LimitStatus, ...]:
    return accounts.describe_user(ledger, name, NOON_S + day * DAY_S + 3600.0).budget.limits


def spent_on(ledger: Ledger, day: float) -> list[float]:
    return [round(limit.spent / TOTAL, 6) for limit in limits_on(ledger, day)]


def test_a_refusal_names_the_window_that_is_full(ledger: Ledger) -> None:
    token = shown(member(ledger, **FOUR, limits=(THIRTY, EVER)))
    assert [paid_on(ledger, token, day) for day in (0, 1, 2, 3)] == pytest.approx([1, 1, 0.5, 0])
    at_s = NOON_S + 3 * DAY_S + 3600.0
    full = report(ledger, token, at_s)
    assert (full.outcome, full.full) == (Kind.NONE, "the reports of any 30 days")
    again = report(ledger, token, at_s)  # as it was, from what is stored
    assert again.full == full.full
    with ledger.database.reading() as tx:
        told = tx.execute(select(entries).where(entries.c.kind == "none")).all()
    assert {row.full_limit for row in told} == {0}
    assert all(row.lat is None and row.lon is None for row in told)
    assert limits_on(ledger, 3)[0].is_full
    assert accounts.describe_user(ledger, "alice", at_s).budget.exhausted
    # Nothing is forgotten too early, and then it goes on until all time is full.
    assert paid_on(ledger, token, 30) == 0.0
    assert paid_on(ledger, token, 31.5) == pytest.approx(1.0)
    ever = [paid_on(ledger, token, day) for day in (33, 66, 67, 100)]
    assert sum(ever) == pytest.approx(2.5)
    assert report(ledger, token, NOON_S + 101 * DAY_S).full == "all reports together"


def test_a_full_first_window_is_named_as_before(ledger: Ledger) -> None:
    token = shown(member(ledger, **FOUR))
    paid_on(ledger, token, 0)
    assert report(ledger, token, NOON_S + 3600.0).full == "the reports of 2025-11-03 (UTC)"
    with ledger.database.reading() as tx:
        state = json.loads(tx.execute(select(users.c.state)).scalar_one())
    assert set(state) == {"session", "newest", "number", "heard"}
    assert "full_limit" not in state["newest"]
    assert "limits" not in json.loads(policy(**FOUR).to_json())


def test_a_policy_of_another_level_goes_on_with_what_was_spent(ledger: Ledger) -> None:
    token = shown(member(ledger, **FOUR, limits=(MONTH, EVER)))
    assert paid_on(ledger, token, 0) + paid_on(ledger, token, 1) == pytest.approx(2.0)
    higher = policy(**FOUR, level=3 * LEVEL, limits=(("month", 3 * LEVEL), EVER))
    accounts.set_policy(ledger, "alice", higher)
    assert paid_on(ledger, token, 2) == pytest.approx(0.75)  # of one: a report costs 0.75
    assert spent_on(ledger, 2) == pytest.approx([2.75, 2.75])
    lower = policy(**FOUR, level=LEVEL, limits=(("month", LEVEL), ("forever", 3.5 * LEVEL)))
    accounts.set_policy(ledger, "alice", lower)
    assert paid_on(ledger, token, 3) == 0.0
    assert limits_on(ledger, 3)[0].remaining == pytest.approx(0.0, abs=1e-9)
    assert paid_on(ledger, token, 29) == pytest.approx(0.75)  # another month; and all time is full


def test_a_new_limit_begins_with_what_is_known(ledger: Ledger) -> None:
    token = shown(member(ledger, **FOUR))
    assert paid_on(ledger, token, 0) == paid_on(ledger, token, 1) == pytest.approx(1.0)
    accounts.set_policy(ledger, "alice", policy(**FOUR, limits=(MONTH, ("forever", 2.25 * LEVEL))))
    assert paid_on(ledger, token, 2) == pytest.approx(0.25)
    assert spent_on(ledger, 2) == pytest.approx([2.25, 2.25])


def test_what_was_pruned_counts_as_a_full_limit(ledger: Ledger) -> None:
    token = shown(member(ledger, **FOUR))
    for day in (0, 1, 25):
        paid_on(ledger, token, day)
    maintenance.prune(ledger, NOON_S + 1.5 * DAY_S)
    with pytest.raises(ParameterError, match="counts all that 'alice' ever spent"):
        accounts.set_policy(ledger, "alice", policy(**FOUR, limits=(EVER,)))
    accounts.set_policy(ledger, "alice", policy(**FOUR, limits=(THIRTY,)))
    assert paid_on(ledger, token, 26) == 0.0
    assert paid_on(ledger, token, 32.6) == pytest.approx(1.0)


def test_a_budget_for_ever_that_is_spent_already_is_refused(ledger: Ledger) -> None:
    token = shown(member(ledger, **FOUR))
    paid_on(ledger, token, 0)
    with pytest.raises(ParameterError, match="have spent a level of"):
        accounts.set_policy(ledger, "alice", policy(**FOUR, limits=(("forever", LEVEL),)))


def test_a_request_over_midnight_forgets_nothing_that_is_not_written_yet(ledger: Ledger) -> None:
    token = shown(member(ledger, **FOUR))
    paid_on(ledger, token, 0, times=1)
    accounts.set_policy(ledger, "alice", policy(**FOUR, limits=(("month", 1.25 * LEVEL),)))
    times_s = [NOON_S + 60.0 + 60.0 * i for i in range(3)]
    times_s += [NOON_S + DAY_S + 60.0 * i for i in range(4)]
    fixes = [Fix(*HELSINKI, at_s) for at_s in times_s]
    answers = ledger.report(token, fixes, now_s=NOON_S + 2 * DAY_S).answers
    assert [answer.release is not None for answer in answers] == [True] * 4 + [False] * 3


@pytest.mark.parametrize("limits", [(MONTH, MONTH), (("day", LEVEL),), (("30 days", 1.0),)])
def test_limits_that_make_no_sense_are_refused(limits: Any) -> None:
    with pytest.raises(ParameterError):
        policy(**FOUR, limits=limits).build_checked()
    with pytest.raises(ParameterError):
        policy(**FOUR, window="none", limits=(MONTH,)).build_checked()


def test_a_policy_with_limits_is_the_same_when_it_is_read_again() -> None:
    one = policy(**FOUR, limits=(MONTH, EVER), time_zone="Europe/Helsinki")
    assert Policy.from_json(one.to_json()) == one
    assert (
        "the reports of each month (Europe/Helsinki), at most 316.2 times" in one.build().guarantee
    )


# Jobs

JOB = hereish.fixed_utility(hereish.Privacy(LEVEL, 100), 10_000.0, window=Day("UTC"))


def window_on(day: float) -> UserWindow:
    at_s = NOON_S + day * DAY_S
    return UserWindow("alice", int(at_s // DAY_S) + 719_163, at_s)


def job(ledger: Ledger, name: str) -> LedgerJob:
    return LedgerJob.begin(ledger, name, JOB)


def test_a_job_takes_from_every_limit_and_returns_what_it_did_not_spend(ledger: Ledger) -> None:
    token = shown(member(ledger, **FOUR, limits=(MONTH, EVER)))
    assert paid_on(ledger, token, 0) == pytest.approx(1.0)
    first = job(ledger, "first")
    granted = first.reserve([window_on(1), window_on(2)]) / TOTAL
    assert granted == pytest.approx([1.0, 0.5])
    assert spent_on(ledger, 3) == pytest.approx([2.5, 2.5])
    assert report(ledger, token, NOON_S + 3 * DAY_S).full == "the reports of 2025-11 (UTC)"
    other = job(ledger, "other")
    assert other.reserve([window_on(3)]).tolist() == [0.0]
    assert other.refused == {Refusal.LIMIT: 1}
    first.settle([WindowCost("alice", window_on(1).window, 0.5 * TOTAL)])
    assert spent_on(ledger, 3) == pytest.approx([1.5, 1.5])
    assert other.reserve([window_on(3)]) / TOTAL == pytest.approx([1.0])
    cancel_job(ledger, "other")
    assert paid_on(ledger, token, 4) == pytest.approx(1.0)
    assert spent_on(ledger, 4) == pytest.approx([2.5, 2.5])


def test_jobs_for_earlier_days_see_reports_before_and_after_them(ledger: Ledger) -> None:
    token = shown(member(ledger, **FOUR, limits=(("3d", 2.25 * LEVEL),)))
    assert [paid_on(ledger, token, day) for day in (0, 4)] == pytest.approx([1, 1])
    # Any three days that meet the second day hold the first, and any that meet the third the fifth.
    granted = job(ledger, "late").reserve([window_on(1), window_on(2), window_on(3)]) / TOTAL
    assert granted == pytest.approx([1.0, 0.25, 0.0])


def test_a_job_for_what_was_pruned_gets_nothing(ledger: Ledger) -> None:
    token = shown(member(ledger, **FOUR, limits=(THIRTY,)))
    for day in (0, 20):
        paid_on(ledger, token, day)
    maintenance.prune(ledger, NOON_S + 5 * DAY_S)
    late = job(ledger, "late")
    assert late.reserve([window_on(10)]).tolist() == [0.0]
    assert late.refused == {Refusal.PRUNED: 1}
    [rest] = job(ledger, "today").reserve([window_on(20.1)])  # reports have spent the day
    assert rest < 1e-9 * TOTAL


# Restores


def restored(folder: Path, backup: Path) -> Ledger:
    """The ledger as it was backed up, accepted; its mark stayed where it was."""
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
        (folder / name).unlink(missing_ok=True)
    back_up_sqlite(backup, folder / "ledger.db")
    opened = Ledger.open(paths_in(folder), check=False)
    maintenance.accept_restored(opened)
    opened.close()
    return Ledger.open(paths_in(folder))


def test_a_restore_charges_what_may_have_been_spent_and_does_not_close_a_month(
    tmp_path: Path, clock: Clock
) -> None:
    first, backup = Ledger.open(paths_in(tmp_path)), tmp_path / "backup"
    longer = (("month", 9 * LEVEL), ("30d", 9 * LEVEL), ("forever", 20 * LEVEL))
    token = shown(member(first, **FOUR, limits=longer))
    member(first, "silent", **FOUR, limits=longer)
    assert paid_on(first, token, 0, times=1) == pytest.approx(0.25)
    back_up_sqlite(tmp_path / "ledger.db", backup)
    lost = sum(paid_on(first, token, day) for day in (0.1, 1, 2))
    assert lost == pytest.approx(2.75)
    first.close()
    clock.now_s = NOON_S + 2.2 * DAY_S
    ledger = restored(tmp_path, backup)
    assert spent_on(ledger, 2.3) == pytest.approx([3.0] * 3)  # the budgets of three days, each
    assert paid_on(ledger, token, 2.3) == 0.0  # the window is closed
    assert paid_on(ledger, token, 3) == pytest.approx(1.0)
    assert spent_on(ledger, 3) == pytest.approx([4.0] * 3)
    # Nothing is known of whoever had not reported: all that had begun is closed.
    assert all(limit.is_full for limit in limits_on(ledger, 4, "silent"))
    with pytest.raises(ParameterError, match="restored once"):
        accounts.add_user(ledger, "new", policy(**FOUR, limits=(EVER,)))
    accounts.add_user(ledger, "new", policy(**FOUR, limits=(THIRTY,)))
    assert limits_on(ledger, 4, "new")[0].is_full
    assert not limits_on(ledger, 34, "new")[0].is_full
    ledger.close()


def test_a_restore_that_lost_a_job_fills_the_limits(tmp_path: Path, clock: Clock) -> None:
    first, backup = Ledger.open(paths_in(tmp_path)), tmp_path / "backup"
    token = shown(member(first, **FOUR, limits=(("30d", 4 * LEVEL), ("forever", 20 * LEVEL))))
    for day in (0, 10):
        paid_on(first, token, day, times=1)
    back_up_sqlite(tmp_path / "ledger.db", backup)
    clock.now_s = NOON_S + 10.1 * DAY_S
    paying = job(first, "of days before")  # which no report since the backup could have paid for
    days = [window_on(day) for day in (7, 8, 9)]
    granted = paying.reserve(days)
    assert granted / TOTAL == pytest.approx([1.0, 1.0, 1.0])
    paid = zip(days, granted, strict=True)
    paying.settle([WindowCost("alice", one.window, eps) for one, eps in paid])
    first.close()
    ledger = restored(tmp_path, backup)
    assert paid_on(ledger, token, 12) == 0.0
    assert all(limit.is_full for limit in limits_on(ledger, 12))
    assert not limits_on(ledger, 45)[0].is_full
    ledger.close()


@pytest.mark.parametrize(
    ("level", "zone", "fills"), [(0.5, "UTC", False), (3.0, "UTC", True), (0.5, "Asia/Tokyo", True)]
)
def test_a_restore_that_lost_a_policy_which_may_cost_more_fills_the_limits(
    tmp_path: Path, clock: Clock, level: float, zone: str, fills: bool
) -> None:
    first, backup = Ledger.open(paths_in(tmp_path)), tmp_path / "backup"
    token = shown(member(first, **FOUR, limits=(("10d", 6 * LEVEL),)))
    spent = paid_on(first, token, 0, times=1)
    back_up_sqlite(tmp_path / "ledger.db", backup)
    # First a cheaper one, without limits: what was promised before is not in force then.
    for day, new, where in ((1, 0.5, "UTC"), (2.5, level, zone), (3.5, level, zone)):
        later = policy(**FOUR, level=new * LEVEL, time_zone=where)
        accounts.set_policy(first, "alice", later)
        spent += paid_on(first, token, day)
    assert spent == pytest.approx(0.75 + 2 * level)
    first.close()
    clock.now_s = NOON_S + 3.6 * DAY_S
    ledger = restored(tmp_path, backup)
    assert limits_on(ledger, 5)[0].is_full == fills
    after = sum(paid_on(ledger, token, day) for day in range(5, 10))
    assert after == 0.0 or spent + after <= 6.0 * (1.0 + 1e-9)
    ledger.close()


def test_a_restore_from_long_ago_closes_what_does_not_fit(tmp_path: Path, clock: Clock) -> None:
    first, backup = Ledger.open(paths_in(tmp_path)), tmp_path / "backup"
    token = shown(member(first, **FOUR, limits=(("30d", 4 * LEVEL), ("forever", 50 * LEVEL))))
    paid_on(first, token, 0)
    back_up_sqlite(tmp_path / "ledger.db", backup)
    paid_on(first, token, 1)
    first.close()
    clock.now_s = NOON_S + 20 * DAY_S
    ledger = restored(tmp_path, backup)
    any_30_days, ever = limits_on(ledger, 21)
    assert any_30_days.is_full
    assert ever.spent / TOTAL == pytest.approx(21.0)
    # It comes back day by day, as what may have been spent gets older.
    assert paid_on(ledger, token, 40) == 0.0
    assert paid_on(ledger, token, 48) == pytest.approx(1.0)
    ledger.close()
