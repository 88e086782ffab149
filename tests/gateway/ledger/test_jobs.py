"""Jobs and reports pay from one budget: reserved first, paid before anything is published."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import timedelta
from threading import Thread

import numpy as np
import pytest
from sqlalchemy import func, select

import hereish
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.windows import Day, Every, Window
from hereish.errors import ParameterError, PointError
from hereish.gateway.admin import accounts, maintenance
from hereish.gateway.ledger.budget_status import JobCharges
from hereish.gateway.ledger.job_reservations import Refusal
from hereish.gateway.ledger.jobs import JobError, LedgerJob, cancel_job, list_jobs
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.policy import Policy, StoredPolicy
from hereish.gateway.ledger.tables import entries
from hereish.gateway.ledger.user_state import UserState
from hereish.gateway.paths import GatewayPaths
from hereish.traces.budgets import EachTrace
from hereish.traces.job_budget import UserWindow, WindowCost
from tests.support.ledgers import DAY_S, NOON_S
from tests.support.stage import HELSINKI, member, policy, shown

PRIVACY = hereish.Privacy(math.log(10), 100)
TOTAL = PRIVACY.eps_per_m
NUMBER = int(Day("UTC").index(np.array([NOON_S]))[0])  # type: ignore[index]  # a day


def mechanism(share: float = 1.0, window: Window | None = None) -> PredictiveMechanism:
    """Of a job that wants this share of everybody's budget."""
    privacy = hereish.Privacy(share * math.log(10), 100)
    return hereish.whole_day(privacy, window=Day("UTC") if window is None else window)


def windows(days: Sequence[int] = (0,), user: str = "alice") -> list[UserWindow]:
    return [UserWindow(user, NUMBER + day, NOON_S + day * DAY_S) for day in days]


def left(ledger: Ledger, day: int = 0) -> float:
    return accounts.describe_user(ledger, "alice", NOON_S + day * DAY_S).budget.remaining


def report_until_spent(ledger: Ledger, token: str, day: int = 0) -> float:
    """Reports of a day until nothing more is released; what all of them cost."""
    for hour in range(60):
        at_s = NOON_S + day * DAY_S + 60.0 * hour
        ledger.report(shown(token), [Fix(*HELSINKI, at_s)])
    return reported(ledger, day)


def reported(ledger: Ledger, day: int = 0) -> float:
    with ledger.database.reading() as tx:
        query = select(func.sum(entries.c.cost)).where(entries.c.window == NUMBER + day)
        return float(tx.execute(query).scalar() or 0.0)


def test_what_a_job_reserves_is_spent_for_reports_and_what_is_left_comes_back(
    ledger: Ledger,
) -> None:
    token = member(ledger, reports=30, mechanism="independent")
    job = LedgerJob.begin(ledger, "nightly", mechanism(0.75))
    [granted] = job.reserve(windows())
    assert granted == pytest.approx(0.75 * TOTAL, rel=1e-9)
    assert left(ledger) == pytest.approx(0.25 * TOTAL, rel=1e-9)
    assert report_until_spent(ledger, token) + granted <= TOTAL
    assert reported(ledger) > 0.2 * TOTAL
    job.settle([WindowCost("alice", NUMBER, 0.1 * TOTAL)])
    assert left(ledger) == pytest.approx(0.9 * TOTAL - reported(ledger), rel=1e-9)
    assert left(ledger, day=1) == TOTAL, "other days are not touched"


def test_a_job_gets_what_reports_have_left(ledger: Ledger) -> None:
    token = member(ledger, reports=30, mechanism="independent")
    for minute in range(20):
        ledger.report(shown(token), [Fix(*HELSINKI, NOON_S + 60.0 * minute)])
    ledger.report(shown(token), [Fix(*HELSINKI, NOON_S + DAY_S)])
    job = LedgerJob.begin(ledger, "nightly", mechanism())
    yesterday, today, tomorrow = job.reserve(windows((0, 1, 2))).tolist()
    assert yesterday == pytest.approx(TOTAL / 3, rel=1e-9)
    assert today == pytest.approx(TOTAL * 29 / 30, rel=1e-9)
    assert tomorrow == pytest.approx(TOTAL, rel=1e-9)
    assert job.reduced == 2
    assert report_until_spent(ledger, token, day=2) == 0.0


def test_two_jobs_share_a_budget_and_one_job_has_it_once(ledger: Ledger) -> None:
    member(ledger)
    one, other = (LedgerJob.begin(ledger, name, mechanism(0.6)) for name in ("one", "other"))
    [first] = one.reserve(windows())
    [second] = other.reserve(windows())
    assert first + second <= TOTAL
    assert second == pytest.approx(0.4 * TOTAL, rel=1e-9)
    again = LedgerJob.begin(ledger, "one", mechanism(0.6))
    assert again.reserve(windows((0, 1))).tolist() == [first, pytest.approx(first)]
    [third] = LedgerJob.begin(ledger, "third", mechanism(0.6)).reserve(windows())
    assert third == 0.0


def test_what_was_published_is_published_again_only_if_it_is_the_same(ledger: Ledger) -> None:
    member(ledger)
    job = LedgerJob.begin(ledger, "nightly", mechanism(), repeats=True)
    job.reserve(windows())
    cost = WindowCost("alice", NUMBER, 0.5 * TOTAL)
    job.settle([cost], digest=b"output")
    again = LedgerJob.begin(ledger, "nightly", mechanism(), repeats=True)
    assert again.reserve(windows())[0] == pytest.approx(TOTAL, rel=1e-9), "as the first time"
    again.settle([cost], digest=b"output")
    assert left(ledger) == pytest.approx(0.5 * TOTAL, rel=1e-9)
    with pytest.raises(JobError, match="not the same"):
        again.settle([cost], digest=b"another output")
    with pytest.raises(JobError, match="has released its output"):
        LedgerJob.begin(ledger, "nightly", mechanism())
    assert again.reserve(windows((1,))).tolist() == [0.0], "it had nothing of that"
    assert again.refused == {Refusal.SETTLED: 1}


def test_a_job_goes_on_with_the_settings_that_it_was_begun_with(ledger: Ledger) -> None:
    member(ledger)
    LedgerJob.begin(ledger, "nightly", mechanism()).reserve(windows())
    with pytest.raises(JobError, match="other settings"):
        LedgerJob.begin(ledger, "nightly", mechanism(0.5))
    for name in ("", " ", "a\nb", "x" * 129):
        with pytest.raises(ParameterError, match="name of a job"):
            LedgerJob.begin(ledger, name, mechanism())
    with pytest.raises(ParameterError, match="none per trace"):
        LedgerJob.begin(ledger, "traces", mechanism_per_trace())


def mechanism_per_trace() -> PredictiveMechanism:
    return hereish.fixed_utility(PRIVACY, 3000.0, window=EachTrace())


def test_more_than_was_reserved_cannot_be_paid(ledger: Ledger) -> None:
    member(ledger)
    job = LedgerJob.begin(ledger, "nightly", mechanism(0.5))
    [granted] = job.reserve(windows())
    for cost in (
        WindowCost("alice", NUMBER, math.nextafter(granted, 1.0)),
        WindowCost("alice", NUMBER + 1, 1e-9),
        WindowCost("bob", NUMBER, 1e-9),
        WindowCost("alice", NUMBER, math.nan),
        WindowCost("alice", NUMBER, -granted),
    ):
        with pytest.raises(JobError, match="more than it has reserved"):
            job.settle([WindowCost("alice", NUMBER, granted), cost])
    assert [info.settled_s for info in list_jobs(ledger)] == [None], "nothing was written"
    job.settle([WindowCost("alice", NUMBER, granted)])
    [info] = list_jobs(ledger)
    assert info.taken == info.reserved == granted
    assert (info.users, info.windows) == (1, 1)


def test_a_cancelled_job_returns_all_and_can_pay_for_nothing(ledger: Ledger) -> None:
    member(ledger)
    dead = LedgerJob.begin(ledger, "nightly", mechanism())
    [granted] = dead.reserve(windows())
    cancel_job(ledger, "nightly")
    assert left(ledger) == TOTAL
    for attempt in (lambda: dead.reserve(windows()), lambda: dead.settle([])):
        with pytest.raises(JobError, match="cancelled"):
            attempt()
    # Begun anew under its name with less: what the first attempt computed does not fit it.
    LedgerJob.begin(ledger, "other", mechanism(0.5)).reserve(windows())
    LedgerJob.begin(ledger, "nightly", mechanism()).reserve(windows())
    with pytest.raises(JobError, match="more than it has reserved"):
        dead.settle([WindowCost("alice", NUMBER, granted)])
    with pytest.raises(JobError, match="there is no job"):
        cancel_job(ledger, "daily")
    dead.settle([])
    with pytest.raises(JobError, match="stays spent"):
        cancel_job(ledger, "nightly")


def test_why_nothing_is_reserved(ledger: Ledger) -> None:
    for name, settings in {
        "alice": {},
        "hours": {"window": "43200"},
        "tokyo": {"time_zone": "Asia/Tokyo"},
        "gone": {},
    }.items():
        member(ledger, name, **settings)
    accounts.set_disabled(ledger, "gone", True)
    job = LedgerJob.begin(ledger, "nightly", mechanism())
    asked = [windows(user=name)[0] for name in ("hours", "tokyo", "gone", "nobody")]
    ahead = math.ceil((time.time() - NOON_S) / DAY_S) + 1
    assert not job.reserve([*asked, *windows((ahead,))]).any()
    assert job.refused == {
        Refusal.WINDOWS: 2,
        Refusal.DISABLED: 1,
        Refusal.UNKNOWN: 1,
        Refusal.AHEAD: 1,
    }


def test_a_job_that_gets_nothing_does_not_use_up_its_name(ledger: Ledger) -> None:
    job = LedgerJob.begin(ledger, "nightly", mechanism())
    job.reserve(windows())
    with pytest.raises(JobError, match="1 got nothing: not a user of the ledger"):
        job.settle([])
    member(ledger)
    again = LedgerJob.begin(ledger, "nightly", mechanism())
    assert again.reserve(windows())[0] > 0.0
    again.settle([])


def test_windows_whose_costs_were_pruned_are_refused(ledger: Ledger) -> None:
    token = member(ledger)
    for day in (0, 2):
        ledger.report(shown(token), [Fix(*HELSINKI, NOON_S + day * DAY_S)])
    maintenance.prune(ledger, NOON_S + DAY_S)
    job = LedgerJob.begin(ledger, "nightly", mechanism())
    granted = job.reserve(windows((0, 1, 2))).tolist()
    assert granted[:2] == [0.0, 0.0]
    assert granted[2] > 0.0
    assert job.refused == {Refusal.PRUNED: 2}


def test_new_users_of_a_job_get_its_policy(ledger: Ledger) -> None:
    member(ledger, "1.50")
    member(ledger, "deleted")
    accounts.delete_user(ledger, "deleted")
    new = accounts.NewUsers(ledger, policy(preset="whole-day"))
    job = LedgerJob.begin(ledger, "nightly", mechanism(), add_users=new)
    names = ["ada", "1.5", "deleted", "a/b", "ada"]
    days = [0, 0, 0, 0, 1]
    asked = [windows((day,), name)[0] for name, day in zip(names, days, strict=True)]
    granted = job.reserve(asked).tolist()
    assert granted == [pytest.approx(TOTAL), 0.0, 0.0, 0.0, pytest.approx(TOTAL)]
    assert job.refused == {Refusal.UNKNOWN: 3}
    assert [name for name, _ in accounts.list_users(ledger)] == ["1.50", "ada"]


def test_a_budget_for_ever_is_shared_too(ledger: Ledger) -> None:
    token = member(ledger, window="none", reports=30, mechanism="independent")
    ledger.report(shown(token), [Fix(*HELSINKI, NOON_S)])
    for_ever = hereish.fixed_utility(PRIVACY, 3000.0)
    job = LedgerJob.begin(ledger, "all", for_ever)
    [granted] = job.reserve([UserWindow("alice", 0, NOON_S + DAY_S)])
    assert granted == pytest.approx(TOTAL * 29 / 30, rel=1e-9)
    later = ledger.report(shown(token), [Fix(*HELSINKI, NOON_S + 9 * DAY_S)])
    assert later.answers[0].release is None
    job.settle([])
    assert accounts.describe_user(ledger, "alice").budget.by_jobs == 0.0


def test_jobs_and_reports_at_the_same_moment_never_pass_the_budget(ledger: Ledger) -> None:
    token = shown(member(ledger, reports=60, mechanism="independent"))
    jobs = [LedgerJob.begin(ledger, f"job {i}", mechanism(0.15 + i / 100)) for i in range(6)]
    granted: list[float] = []

    def reserve(job: LedgerJob) -> None:
        granted.extend(job.reserve(windows()).tolist())

    def report(first: int) -> None:
        for minute in range(first, 60, 2):
            ledger.report(token, [Fix(*HELSINKI, NOON_S + 60.0 * minute)])

    threads = [Thread(target=reserve, args=(job,)) for job in jobs]
    threads += [Thread(target=report, args=(first,)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = reported(ledger) + sum(granted)
    assert spent <= TOTAL
    assert spent > 0.95 * TOTAL, "all of it was wanted"


# Policies that follow each other, and ledgers that were restored


def test_a_policy_that_waits_begins_after_what_a_job_has_paid(ledger: Ledger) -> None:
    token = member(ledger, reports=30, mechanism="independent")
    LedgerJob.begin(ledger, "today", mechanism()).reserve(windows())
    accounts.set_policy(ledger, "alice", policy(reports=10, time_zone="Asia/Tokyo"))
    # 18:00 UTC is the next day in Tokyo, but of the day of UTC that the job has paid from; and noon
    # of the next day is of the day of Tokyo in which that ends.
    for hour in (1, 6, 24):
        answer = ledger.report(shown(token), [Fix(*HELSINKI, NOON_S + hour * 3600.0)])
        assert answer.answers[0].release is None
    assert accounts.describe_user(ledger, "alice").waiting is not None
    tomorrow = ledger.report(shown(token), [Fix(*HELSINKI, NOON_S + DAY_S + 4 * 3600.0)])
    assert tomorrow.answers[0].release is not None
    assert accounts.describe_user(ledger, "alice").waiting is None


def test_a_job_begins_with_a_policy_that_waits_and_reports_do_not_go_back(ledger: Ledger) -> None:
    token = member(ledger, reports=30, mechanism="independent")
    ledger.report(shown(token), [Fix(*HELSINKI, NOON_S)])
    accounts.set_policy(ledger, "alice", policy(reports=10, mechanism="independent"))
    job = LedgerJob.begin(ledger, "nightly", mechanism(0.5))
    present, later = job.reserve(windows((0, 2))).tolist()
    assert present > 0.0, "of the policy in force"
    assert later > 0.0, "of the new one"
    assert accounts.describe_user(ledger, "alice").waiting is None
    before = reported(ledger)
    # Late, of the day that the old policy has paid from: the new one must not pay for it again.
    late = ledger.report(shown(token), [Fix(*HELSINKI, NOON_S + 3600.0)])
    assert late.answers[0].release is None
    assert reported(ledger) == before
    again = ledger.report(shown(token), [Fix(*HELSINKI, NOON_S + 2 * DAY_S)])
    assert again.answers[0].release is not None
    assert LedgerJob.begin(ledger, "old", mechanism(0.5)).reserve(windows((1,))).tolist() == [0.0]


def test_a_job_does_not_pay_from_other_windows_than_the_policy_has(ledger: Ledger) -> None:
    member(ledger)
    job = LedgerJob.begin(ledger, "hours", mechanism(window=Every(timedelta(hours=12))))
    assert job.reserve([UserWindow("alice", int(NOON_S // 43200), NOON_S)]).tolist() == [0.0]
    assert job.refused == {Refusal.WINDOWS: 1}


def test_windows_that_a_restore_has_closed_are_closed_to_jobs(ledger: Ledger) -> None:
    member(ledger)
    maintenance.accept_restored(ledger)
    again = Ledger.open(_paths(ledger))
    job = LedgerJob.begin(again, "nightly", mechanism())
    assert job.reserve(windows()).tolist() == [0.0]
    assert job.refused == {Refusal.CLOSED: 1}
    again.close()


def _paths(ledger: Ledger) -> GatewayPaths:
    url = ledger.database.engine.url.render_as_string(hide_password=False)
    return GatewayPaths(url, ledger.mark.path.with_name("key"), ledger.mark.path)


@pytest.mark.parametrize("by_jobs", [0.0, 0.5])
def test_an_error_within_a_report_leaves_a_user_as_before(by_jobs: float) -> None:
    m = mechanism()
    user = UserState(
        StoredPolicy(1, 1, Policy(PRIVACY.level, PRIVACY.radius_m), m), None, None, None
    )
    assert user.add(Fix(*HELSINKI, NOON_S), "phone") is not None
    before = user.to_json()
    charge = float(m.bound.quantised(by_jobs * TOTAL))
    user.charges = JobCharges(by_window={NUMBER + 1: charge})
    with pytest.raises(PointError):
        user.add(Fix(999.0, 999.0, NOON_S + DAY_S), "phone")
    assert user.to_json() == before
