"""Jobs under races, restores and accidents that a hostile reader has found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection

from hereish.gateway.admin import accounts, maintenance
from hereish.gateway.ledger import job_reservations
from hereish.gateway.ledger.database import Database
from hereish.gateway.ledger.job_reservations import Refusal
from hereish.gateway.ledger.jobs import JobError, LedgerJob, list_jobs
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.paths import GatewayPaths
from hereish.traces.job_budget import WindowCost
from tests.gateway.ledger.test_jobs import (
    NUMBER,
    TOTAL,
    left,
    mechanism,
    report_until_spent,
    reported,
    windows,
)
from tests.support.ledgers import DAY_S, NOON_S
from tests.support.stage import HELSINKI, member, policy, shown


def paths_of(ledger: Ledger) -> GatewayPaths:
    url = ledger.database.engine.url.render_as_string(hide_password=False)
    return GatewayPaths(url, ledger.mark.path.with_name("key"), ledger.mark.path)


def test_a_job_that_a_restore_made_unpaid_cannot_be_paid_again(ledger: Ledger) -> None:
    """The backup is from before the payment, so the ledger has forgotten what was published."""
    member(ledger)
    LedgerJob.begin(ledger, "nightly", mechanism(), repeats=True).reserve(windows())
    # Here it was paid for and published; the backup from before that is put back, and accepted.
    maintenance.accept_restored(ledger)
    again = Ledger.open(paths_of(ledger))
    job = LedgerJob.begin(again, "nightly", mechanism(), repeats=True)
    assert job.reserve(windows()).tolist() == [0.0]
    assert job.refused == {Refusal.CLOSED: 1}
    with pytest.raises(JobError):
        job.settle([WindowCost("alice", NUMBER, 0.5 * TOTAL)], digest=b"another output")
    again.close()


def test_nobody_waits_while_the_costs_of_a_job_are_computed(ledger: Ledger) -> None:
    """Spark takes minutes for that, and a transaction that waits for it stops the gateway."""
    token = member(ledger)
    job = LedgerJob.begin(ledger, "nightly", mechanism(0.5))
    job.reserve(windows())
    open_while_computed: list[bool] = []

    def costs() -> Iterator[WindowCost]:
        open_while_computed.append(ledger.database.engine.pool.checkedout() > 0)  # type: ignore[attr-defined]
        yield WindowCost("alice", NUMBER, 0.1 * TOTAL)

    job.settle(costs())
    assert open_while_computed == [False]
    assert ledger.report(shown(token), [Fix(*HELSINKI, NOON_S)]).answers[0].release is not None


def test_costs_of_a_window_in_pieces_are_paid_together(ledger: Ledger) -> None:
    member(ledger)
    job = LedgerJob.begin(ledger, "nightly", mechanism(0.5))
    [granted] = job.reserve(windows())
    pieces = [WindowCost("alice", NUMBER, 0.75 * granted), WindowCost("alice", NUMBER, granted / 4)]
    with pytest.raises(JobError, match="more than it has reserved"):
        job.settle([*pieces, WindowCost("alice", NUMBER, granted / 8)])
    job.settle(pieces)
    assert list_jobs(ledger)[0].taken == pytest.approx(granted)


def test_costs_that_fail_halfway_are_not_paid(ledger: Ledger) -> None:
    member(ledger)
    job = LedgerJob.begin(ledger, "nightly", mechanism(0.5))
    [granted] = job.reserve(windows())

    def costs() -> Iterator[WindowCost]:
        yield WindowCost("alice", NUMBER, 0.1 * TOTAL)
        raise RuntimeError("an executor was lost")

    with pytest.raises(RuntimeError):
        job.settle(costs())
    [info] = list_jobs(ledger)
    assert (info.settled_s, info.taken) == (None, granted)


def test_costs_that_are_pruned_meanwhile_are_not_taken_for_none(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = member(ledger, reports=30, mechanism="independent")
    assert report_until_spent(ledger, token) > 0.9 * TOTAL
    ledger.report(shown(token), [Fix(*HELSINKI, NOON_S + 2 * DAY_S)])
    if ledger.database.sqlite:
        pytest.skip("SQLite has one writer at a time")
    read = job_reservations._reported_costs

    def pruned_just_before(*given: Any) -> Any:
        maintenance.prune(ledger, NOON_S + DAY_S)
        return read(*given)

    monkeypatch.setattr(job_reservations, "_reported_costs", pruned_just_before)
    job = LedgerJob.begin(ledger, "nightly", mechanism())
    assert job.reserve(windows()).tolist() == [0.0]


def test_payments_at_the_same_moment_do_not_look_like_a_restore(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ledger.database.sqlite:
        pytest.skip("SQLite has one writer at a time")
    member(ledger)
    one, other = (LedgerJob.begin(ledger, name, mechanism(0.4)) for name in ("one", "other"))
    for job in (one, other):
        job.reserve(windows())
    take = Database.take_number

    def overtaken(self: Database, tx: Connection) -> int:
        monkeypatch.setattr(Database, "take_number", take)
        number = take(self, tx)
        other.settle([])
        return number

    monkeypatch.setattr(Database, "take_number", overtaken)
    one.settle([])
    Ledger.open(paths_of(ledger)).close()


def test_a_policy_does_not_begin_within_what_the_same_call_has_reserved(ledger: Ledger) -> None:
    """By the old policy, days of UTC; by the new one, of Tokyo, which begin nine hours sooner."""
    token = member(ledger, reports=30, mechanism="independent")
    ledger.report(shown(token), [Fix(*HELSINKI, NOON_S)])
    accounts.set_policy(ledger, "alice", policy(reports=10, time_zone="Asia/Tokyo"))
    job = LedgerJob.begin(ledger, "nightly", mechanism(0.5))
    assert job.reserve(windows((0, 1)))[0] > 0.0
    # The day of UTC that the job has reserved ends at nine of a day in Tokyo. Until that day is
    # over, the new policy must not pay for it.
    early = ledger.report(shown(token), [Fix(*HELSINKI, NOON_S + DAY_S)])
    assert early.answers[0].release is None
    assert accounts.describe_user(ledger, "alice").waiting is not None


def test_what_a_job_returns_can_be_reported_with(ledger: Ledger) -> None:
    token = member(ledger, reports=30, mechanism="independent")
    job = LedgerJob.begin(ledger, "nightly", mechanism())
    job.reserve(windows())
    assert report_until_spent(ledger, token) == 0.0
    job.settle([WindowCost("alice", NUMBER, 0.1 * TOTAL)])
    assert left(ledger) == pytest.approx(0.9 * TOTAL)
    at_s = NOON_S + 2 * 3600.0
    assert ledger.report(shown(token), [Fix(*HELSINKI, at_s)]).answers[0].release is not None
    # What was answered with nothing stays so, whatever came back.
    before = reported(ledger)
    for minute in range(60):
        again = ledger.report(shown(token), [Fix(*HELSINKI, NOON_S + 60.0 * minute)])
        assert again.answers[0].release is None
    assert reported(ledger) == before


def test_a_disabled_user_is_left_out_of_a_job_that_is_run_again(ledger: Ledger) -> None:
    member(ledger)
    LedgerJob.begin(ledger, "nightly", mechanism()).reserve(windows())
    accounts.set_disabled(ledger, "alice", True)
    again = LedgerJob.begin(ledger, "nightly", mechanism())
    assert again.reserve(windows()).tolist() == [0.0]
    assert again.refused == {Refusal.DISABLED: 1}


def test_a_deleted_user_does_not_come_back_under_another_spelling(ledger: Ledger) -> None:
    member(ledger, "7.0")
    accounts.delete_user(ledger, "7.0")
    new = accounts.NewUsers(ledger, policy(preset="whole-day"))
    job = LedgerJob.begin(ledger, "nightly", mechanism(), add_users=new)
    assert job.reserve(windows(user="7")).tolist() == [0.0]


def test_the_remedy_for_other_windows_works_under_the_same_name(ledger: Ledger) -> None:
    member(ledger, time_zone="Asia/Tokyo")
    job = LedgerJob.begin(ledger, "nightly", mechanism())
    job.reserve(windows())
    with pytest.raises(JobError, match="--time-zone"):
        job.settle([])
    from hereish.core.windows import Day

    again = LedgerJob.begin(ledger, "nightly", mechanism(window=Day("Asia/Tokyo")))
    assert again.reserve(windows())[0] > 0.0
    with pytest.raises(JobError, match="other settings"):
        job.reserve(windows())
