"""The high-water mark, and ledgers that were restored, moved, mixed or deleted."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, update

from hereish.errors import ParameterError
from hereish.gateway.admin import accounts, destinations, maintenance
from hereish.gateway.ledger.database import Database, LedgerUnavailableError
from hereish.gateway.ledger.high_water_mark import (
    LOST,
    HighWaterMark,
    LedgerRestoredError,
    next_era,
)
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix, ReportRequest
from hereish.gateway.ledger.tables import entries, users
from hereish.gateway.ledger.transaction import ReportResponse
from tests.support.ledgers import DAY_S, empty_ledger
from tests.support.postgres import Postgres
from tests.support.stage import HELSINKI, member, paths_in, shown


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with empty_ledger(tmp_path) as opened:
        yield opened


def now_and(seconds: float) -> Fix:
    return Fix(*HELSINKI, time.time() + seconds)


def test_the_mark_never_falls_and_is_shared(tmp_path: Path) -> None:
    era = next_era()
    one = HighWaterMark(tmp_path / "mark", "a", era, "new")
    other = HighWaterMark(tmp_path / "mark", "a", era, "refuse")
    one.raise_to(5)
    other.raise_to(3)
    assert (one.value(), other.value()) == (5, 5)
    other.raise_to(9)
    assert one.value() == 9
    one.check(9, era, one.value())
    with pytest.raises(LedgerRestoredError, match="restored"):
        one.check(8, era, one.value())
    with pytest.raises(LedgerRestoredError, match="before the last 'hereish ledger accept'"):
        other_era = era[:-1] + ("1" if era.endswith("0") else "0")
        one.check(9, other_era, one.value())  # as late, and another
    with pytest.raises(LedgerRestoredError, match="was accepted after a restore"):
        one.check(9, next_era(era), one.value())
    with pytest.raises(LedgerRestoredError, match="another ledger"):
        HighWaterMark(tmp_path / "mark", "b", era, "new")
    one.close()
    other.close()


def test_an_operator_does_not_lower_it_in_an_era(tmp_path: Path) -> None:
    era = next_era()
    mark = HighWaterMark(tmp_path / "mark", "a", era, "new")
    mark.raise_to(13)
    mark.reset(era, 3)  # who looked before somebody reported
    assert mark.value() == 13
    later = next_era(era)
    mark.reset(later, 3)
    assert (mark.value(), mark.era) == (3, later)
    mark.reset(later, LOST)
    mark.reset(later, 5)
    assert mark.value() == 5
    with pytest.raises(LedgerRestoredError, match="lost the row"):
        mark.check(5, "", 5)
    mark.close()


def test_a_damaged_mark_is_not_taken_for_none(tmp_path: Path) -> None:
    era = next_era()
    HighWaterMark(tmp_path / "mark", "a", era, "new").close()
    whole = (tmp_path / "mark").read_bytes()
    for damaged in (whole[:-10], whole.replace(era.encode(), b"?" * len(era)), bytes(80)):
        (tmp_path / "mark").write_bytes(damaged)
        for missing in ("new", "refuse"):
            with pytest.raises(LedgerRestoredError, match="damaged"):
                HighWaterMark(tmp_path / "mark", "a", era, missing)
        lost = HighWaterMark(tmp_path / "mark", "a", era, "lost")
        assert (lost.value(), lost.era) == (LOST, era)
        lost.close()


@pytest.mark.parametrize("reported", [True, False])  # since then there may have been reports
def test_a_ledger_without_its_mark_might_be_a_backup(tmp_path: Path, reported: bool) -> None:
    where = paths_in(tmp_path)
    first = Ledger.open(where)
    token = shown(member(first))
    if reported:
        first.report(token, [now_and(-60)])
    first.close()
    elsewhere = replace(where, mark_file=tmp_path / "another")
    for _ in range(2):  # and to look does not make it one
        with pytest.raises(LedgerRestoredError, match="hereish ledger mark"):
            Ledger.open(elsewhere)
        looked = Ledger.open(elsewhere, check=False)
        assert maintenance.read_status(looked).lost
        looked.close()
    told = Ledger.open(elsewhere, check=False)
    assert maintenance.reset_mark(told) == int(reported)
    told.close()
    ledger = Ledger.open(elsewhere)
    assert ledger.report(token, [now_and(-30)]).answers[0].own
    ledger.close()


@pytest.mark.parametrize("damage", ["unlink", "truncate"])
def test_a_lost_mark_is_accepted_like_a_restore(tmp_path: Path, damage: str) -> None:
    where = paths_in(tmp_path)
    first = Ledger.open(where)
    token = shown(member(first))
    first.report(token, [now_and(-60)])
    first.close()
    if damage == "unlink":
        where.mark_file.unlink()
    else:
        where.mark_file.write_bytes(where.mark_file.read_bytes()[:-8])
    with pytest.raises(LedgerRestoredError):
        Ledger.open(where)
    told = Ledger.open(where, check=False)
    maintenance.accept_restored(told)
    told.close()
    ledger = Ledger.open(where)
    closed = ledger.report(token, [now_and(-30)])
    assert closed.answers[0].release is None
    assert closed.budget.remaining == 0.0
    assert closed.budget.closed
    ledger.close()


def test_a_ledger_that_was_deleted_does_not_start_anew(tmp_path: Path) -> None:
    where = paths_in(tmp_path)
    first = Ledger.open(where)
    first.report(shown(member(first)), [now_and(-60)])
    first.close()
    (tmp_path / "ledger.db").unlink()
    with pytest.raises(LedgerRestoredError, match="another ledger"):
        Ledger.open(where)


def spend_back_up_and_restore(tmp_path: Path) -> tuple[str, float]:
    """A ledger that lost its last report; the token, and when its last report was."""
    where = paths_in(tmp_path)
    first = Ledger.open(where)
    token = member(first)
    first.report(shown(token), [now_and(-120)])
    with first.database.writing():
        pass
    with sqlite3.connect(tmp_path / "ledger.db") as raw, sqlite3.connect(tmp_path / "copy") as to:
        raw.backup(to)
    last = now_and(-60)
    first.report(shown(token), [last])
    first.close()
    for left in tmp_path.glob("ledger.db*"):
        left.unlink()
    shutil.copy(tmp_path / "copy", tmp_path / "ledger.db")
    return token, last.at_s


def test_a_restored_ledger_refuses_to_go_on(tmp_path: Path) -> None:
    spend_back_up_and_restore(tmp_path)
    with pytest.raises(LedgerRestoredError, match="hereish ledger accept"):
        Ledger.open(paths_in(tmp_path))


def test_after_accepting_the_present_window_stays_closed_and_the_next_is_paid(
    tmp_path: Path,
) -> None:
    token, last_s = spend_back_up_and_restore(tmp_path)
    told = Ledger.open(paths_in(tmp_path), check=False)
    assert maintenance.read_status(told).restored
    assert maintenance.accept_restored(told) == 1
    assert not maintenance.read_status(told).restored
    told.close()
    ledger = Ledger.open(paths_in(tmp_path))
    now_s = time.time()
    closed = ledger.report(shown(token), [Fix(*HELSINKI, last_s)], now_s=now_s)
    assert closed.answers[0].release is None
    assert closed.budget.exhausted
    # Two days on: the window after the one that was open, even if midnight is near.
    later = Fix(*HELSINKI, now_s + 2 * DAY_S)
    paid = ledger.report(shown(token), [later], now_s=now_s + 2 * DAY_S)
    assert paid.answers[0].own
    assert paid.answers[0].release is not None
    with ledger.database.reading() as tx:
        numbers = tx.execute(select(entries.c.id).order_by(entries.c.id)).scalars().all()
    assert max(numbers) > 2  # the number of the lost report is not used again
    ledger.close()


def test_a_sequence_that_ran_ahead_of_its_table_hides_no_restore(
    tmp_path: Path, cluster: Postgres
) -> None:
    """As in a dump of a busy database, or a standby that took over: PostgreSQL logs it ahead."""
    where = paths_in(tmp_path, cluster.fresh("ahead"))
    ledger = Ledger.open(where)
    token = shown(member(ledger))
    ledger.report(token, [now_and(-120), now_and(-60)])
    with ledger.database.writing() as tx:
        state = tx.execute(select(users.c.state)).scalar_one()
    ledger.report(token, [now_and(-30)])
    ledger.close()
    cluster.sql("ahead", "DELETE FROM entries WHERE id = 3")
    database = Database(where.database)
    with database.writing() as tx:
        tx.execute(update(users).values(state=state))
    database.close()
    with pytest.raises(LedgerRestoredError, match="ends at entry 2 and had come to 3"):
        Ledger.open(where)


def test_a_database_that_was_away_ends_in_an_error_of_ours_and_then_in_none(
    tmp_path: Path, cluster: Postgres
) -> None:
    """What looks every second goes on after that; it must not end in the driver's own."""
    ledger = Ledger.open(paths_in(tmp_path, cluster.fresh("away")))
    ledger.catch_up()
    cluster.stop("immediate")
    cluster.start()
    with pytest.raises(LedgerUnavailableError):
        ledger.catch_up()
    ledger.catch_up()
    ledger.close()


def test_pruning_while_others_report_and_forward_waits_for_nobody(
    tmp_path: Path, cluster: Postgres
) -> None:
    ledger = Ledger.open(paths_in(tmp_path, cluster.fresh("pruning")))
    tokens = [shown(member(ledger, f"user{i}", window="60")) for i in range(6)]
    for i in range(6):
        for _ in range(2):
            destinations.add_destination(ledger, f"user{i}", "http://127.0.0.1:9/pub", "owntracks")
    from_s = time.time() - DAY_S
    outcomes: list[object] = []

    def report() -> None:
        for minute in range(150):
            fix = Fix(*HELSINKI, from_s + 60.0 * minute)
            outcomes.extend(ledger.report_all([ReportRequest(t, [fix]) for t in reversed(tokens)]))

    reporting = threading.Thread(target=report)
    reporting.start()
    while reporting.is_alive():
        maintenance.prune(ledger, from_s - DAY_S)  # raises if PostgreSQL sees a deadlock
    reporting.join()
    assert [type(outcome) for outcome in outcomes] == [ReportResponse] * 900
    seen = cluster.sql("pruning", "SELECT deadlocks FROM pg_stat_database WHERE datname='pruning'")
    assert seen.split() == ["0"]
    ledger.close()


def test_pruning_and_deleting_raise_no_false_alarm(tmp_path: Path, cluster: Postgres) -> None:
    for i, database in enumerate((None, cluster.fresh("forgotten"))):
        folder = tmp_path / str(i)
        folder.mkdir()
        where = paths_in(folder, database)
        ledger = Ledger.open(where)
        for name in ("alice", "bob"):
            ledger.report(shown(member(ledger, name)), [now_and(-60)])
        accounts.delete_user(ledger, "bob")
        ledger.close()
        again = Ledger.open(where)
        maintenance.prune(again, time.time())
        again.close()
        Ledger.open(where).close()


def test_who_is_added_after_a_restore_waits_for_the_next_window(tmp_path: Path) -> None:
    spend_back_up_and_restore(tmp_path)
    told = Ledger.open(paths_in(tmp_path), check=False)
    maintenance.accept_restored(told)
    told.close()
    ledger = Ledger.open(paths_in(tmp_path))
    bob = shown(member(ledger, "bob"))  # who may have been there, and spent, after the backup
    assert ledger.report(bob, [now_and(-1)]).answers[0].release is None
    later_s = time.time() + 2 * DAY_S
    paid = ledger.report(bob, [Fix(*HELSINKI, later_s)], now_s=later_s)
    assert paid.answers[0].release is not None
    with pytest.raises(ParameterError, match="choose another window"):
        member(ledger, "carol", window="none")
    ledger.close()


def test_a_restore_under_a_running_ledger_is_noticed(tmp_path: Path) -> None:
    where = paths_in(tmp_path)
    ledger = Ledger.open(where)
    token = shown(member(ledger))
    ledger.report(token, [now_and(-120)])
    with sqlite3.connect(tmp_path / "ledger.db") as raw, sqlite3.connect(tmp_path / "copy") as to:
        raw.backup(to)
    ledger.report(token, [now_and(-60)])
    with sqlite3.connect(tmp_path / "copy") as raw, sqlite3.connect(tmp_path / "ledger.db") as to:
        raw.backup(to)
    with pytest.raises(LedgerRestoredError):
        ledger.report(token, [now_and(-30)])
    with pytest.raises(LedgerRestoredError):
        ledger.check_health()
    ledger.close()


def test_a_file_put_in_its_place_is_noticed(tmp_path: Path) -> None:
    ledger = Ledger.open(paths_in(tmp_path))
    token = shown(member(ledger))
    ledger.report(token, [now_and(-120)])
    with sqlite3.connect(tmp_path / "ledger.db") as raw, sqlite3.connect(tmp_path / "copy") as to:
        raw.backup(to)
    ledger.report(token, [now_and(-60)])
    (tmp_path / "ledger.db-wal").unlink(missing_ok=True)
    (tmp_path / "ledger.db-shm").unlink(missing_ok=True)
    (tmp_path / "copy").replace(tmp_path / "ledger.db")
    with pytest.raises(LedgerRestoredError):
        ledger.report(token, [now_and(-30)])
    ledger.close()
