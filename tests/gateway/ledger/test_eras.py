"""Going on after a restore begins a new era: nothing from before it is taken for the ledger."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hereish.errors import ParameterError
from hereish.gateway.admin import accounts, maintenance
from hereish.gateway.ledger.high_water_mark import LedgerRestoredError
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.policy import Policy
from hereish.gateway.ledger.transaction import AHEAD_S
from tests.support.ledgers import back_up_sqlite
from tests.support.stage import HELSINKI, member, paths_in, policy, shown

DAY_S, HOUR_S = 86_400.0, 3600.0
# Noon of a day to come: no window ends while a test looks, and no file is newer.
NOON_S = (time.time() // DAY_S + 3.5) * DAY_S
Clock = Callable[[float], None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.delenv("HEREISH_KEY", raising=False)

    def at(now_s: float) -> None:
        monkeypatch.setattr(time, "time", lambda: now_s)

    at(NOON_S)
    return at


def spent(ledger: Ledger, token: str, from_s: float, number: int = 40) -> float:
    """What that many reports cost, in budgets; the last one asks for the impossible."""
    cost = 0.0
    for i in range(number):
        fix = Fix(HELSINKI[0] - i * 0.5, HELSINKI[1], from_s + i)
        reported = ledger.report(shown(token), [fix], now_s=from_s + i)
        [answer] = reported.answers
        cost += answer.release.cost if answer.release is not None and answer.own else 0.0
    return cost / (math.log(10) / 100.0)


def lose_all_since_the_backup(folder: Path, *, in_backup: int, window: str = "day") -> str:
    """A user who spent a day's budget after the backup, which is put back. The token."""
    ledger = Ledger.open(paths_in(folder))
    token = member(ledger, window=window)
    spent(ledger, token, NOON_S - 4 * HOUR_S, in_backup)
    back_up_sqlite(folder / "ledger.db", folder / "backup")
    assert spent(ledger, token, NOON_S - 3 * HOUR_S) > 0.8
    ledger.close()
    restore(folder)
    return token


def lose_all_since_the_backup_of_days_ago(folder: Path, clock: Clock) -> str:
    clock(NOON_S - 2 * DAY_S)
    ledger = Ledger.open(paths_in(folder))
    token = member(ledger)
    back_up_sqlite(folder / "ledger.db", folder / "backup")
    clock(NOON_S)
    assert spent(ledger, token, NOON_S) > 0.8
    ledger.close()
    restore(folder)
    return token


def restore(folder: Path) -> None:
    for left in folder.glob("ledger.db*"):
        left.unlink()
    shutil.copy(folder / "backup", folder / "ledger.db")


def accept(folder: Path) -> None:
    told = Ledger.open(paths_in(folder), check=False)
    maintenance.accept_restored(told)
    told.close()


@pytest.mark.parametrize("lost", [True, False])
def test_the_same_backup_is_not_taken_twice(tmp_path: Path, clock: Clock, lost: bool) -> None:
    token = lose_all_since_the_backup(tmp_path, in_backup=1)
    if lost:
        (tmp_path / "mark").unlink()
    accept(tmp_path)
    restore(tmp_path)
    with pytest.raises(LedgerRestoredError, match="before the last 'hereish ledger accept'"):
        Ledger.open(paths_in(tmp_path))
    told = Ledger.open(paths_in(tmp_path), check=False)
    assert maintenance.read_status(told).restored
    with pytest.raises(ParameterError, match="tells that this is a backup"):
        maintenance.reset_mark(told)
    told.close()
    accept(tmp_path)
    ledger = Ledger.open(paths_in(tmp_path))
    assert spent(ledger, token, NOON_S + HOUR_S) == 0.0
    assert spent(ledger, token, NOON_S + DAY_S) > 0.8
    ledger.close()


def test_the_mark_is_believed_and_not_whoever_says_that_it_is_no_backup(
    tmp_path: Path, clock: Clock
) -> None:
    lose_all_since_the_backup(tmp_path, in_backup=1)
    told = Ledger.open(paths_in(tmp_path), check=False)
    with pytest.raises(ParameterError, match="tells that this is a backup"):
        maintenance.reset_mark(told)
    told.close()
    with pytest.raises(LedgerRestoredError):
        Ledger.open(paths_in(tmp_path))


@pytest.mark.parametrize("notices", ["by a report", "by itself"])
def test_a_gateway_of_the_era_before_stops(tmp_path: Path, clock: Clock, notices: str) -> None:
    """Numbers of policies that were lost are used again, and it would have the old ones in mind."""
    live, backup = tmp_path / "ledger.db", tmp_path / "backup"
    running = Ledger.open(paths_in(tmp_path))
    token = member(running)
    spent(running, token, NOON_S - 2 * DAY_S, 1)
    back_up_sqlite(live, backup)
    accounts.set_policy(running, "alice", policy(level=10 * math.log(10)))
    spent(running, token, NOON_S - DAY_S, 1)
    back_up_sqlite(backup, live)  # while it runs, and nobody reports
    accept(tmp_path)
    told = Ledger.open(paths_in(tmp_path))
    accounts.set_policy(told, "alice", policy(level=0.5 * math.log(10)))
    if notices == "by itself":
        with pytest.raises(LedgerRestoredError, match="Start the gateway again"):
            running.catch_up()
        with pytest.raises(LedgerRestoredError):
            running.check_health()
    with pytest.raises(LedgerRestoredError, match="Start the gateway again"):
        spent(running, token, NOON_S + DAY_S, 1)
    assert 0.2 < spent(told, token, NOON_S + DAY_S) <= 0.5
    told.close()
    running.close()


def test_a_backup_of_an_era_that_nobody_remembers_is_not_the_later_one(
    tmp_path: Path, clock: Clock
) -> None:
    """Its count is above that of the backup which was put back without a mark."""
    token = lose_all_since_the_backup(tmp_path, in_backup=1)
    accept(tmp_path)
    accept(tmp_path)
    back_up_sqlite(tmp_path / "ledger.db", tmp_path / "later")
    restore(tmp_path)
    (tmp_path / "mark").unlink()
    clock(NOON_S + 60.0)
    accept(tmp_path)
    ledger = Ledger.open(paths_in(tmp_path))
    assert spent(ledger, token, NOON_S + DAY_S) > 0.8
    ledger.close()
    (tmp_path / "later").replace(tmp_path / "backup")
    restore(tmp_path)
    with pytest.raises(LedgerRestoredError, match="before the last 'hereish ledger accept'"):
        Ledger.open(paths_in(tmp_path))
    told = Ledger.open(paths_in(tmp_path), check=False)
    with pytest.raises(ParameterError, match="tells that this is a backup"):
        maintenance.reset_mark(told)
    told.close()


def test_who_looks_while_others_report_sees_no_restore(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Ledger.open(paths_in(tmp_path))
    token = member(running)
    looking = Ledger.open(paths_in(tmp_path))
    value = looking.mark.value
    times = iter(range(10))

    def after_a_report() -> int:
        spent(running, token, NOON_S + 60.0 * next(times), 1)
        return value()

    monkeypatch.setattr(looking.mark, "value", after_a_report)
    assert not maintenance.read_status(looking).restored
    assert maintenance.reset_mark(looking) == 2
    running.close()
    looking.close()


def test_another_machine_says_once_that_the_accepted_ledger_is_the_one(
    tmp_path: Path, clock: Clock
) -> None:
    here = paths_in(tmp_path)
    there = replace(here, mark_file=tmp_path / "mark of another machine")
    token = lose_all_since_the_backup(tmp_path, in_backup=1)
    shutil.copy(here.mark_file, there.mark_file)
    accept(tmp_path)
    with pytest.raises(LedgerRestoredError, match="'hereish ledger mark' first"):
        Ledger.open(there)
    told = Ledger.open(there, check=False)
    maintenance.reset_mark(told)
    told.close()
    ledger = Ledger.open(there)
    assert spent(ledger, token, NOON_S + HOUR_S) == 0.0
    ledger.close()


@pytest.mark.parametrize("in_backup", [0, 1])
@pytest.mark.parametrize("asked_before", [0, 2])
@pytest.mark.parametrize(
    "new", [{"time_zone": "Pacific/Kiritimati"}, {"window": "3600"}, {"accuracy_m": 4000.0}]
)
def test_another_policy_opens_no_window_that_a_restore_has_closed(
    tmp_path: Path, clock: Clock, new: dict[str, object], in_backup: int, asked_before: int
) -> None:
    """Whether or not the backup knows of a report: what was lost had spent the day."""
    token = lose_all_since_the_backup(tmp_path, in_backup=in_backup)
    accept(tmp_path)
    ledger = Ledger.open(paths_in(tmp_path))
    assert spent(ledger, token, NOON_S + HOUR_S, asked_before) == 0.0
    accounts.set_policy(ledger, "alice", policy(**new))
    assert spent(ledger, token, NOON_S + HOUR_S) == 0.0  # those that were asked before, too
    assert spent(ledger, token, NOON_S + 2 * HOUR_S) == 0.0
    assert spent(ledger, token, NOON_S + 2 * DAY_S) > 0.6  # it goes on in the end
    with pytest.raises(ParameterError, match="has no next window"):
        accounts.set_policy(ledger, "alice", policy(window="none"))
    ledger.close()


def test_a_policy_of_longer_windows_that_was_lost_can_be_set_again(
    tmp_path: Path, clock: Clock
) -> None:
    ledger = Ledger.open(paths_in(tmp_path))
    token = member(ledger, window="3600")
    spent(ledger, token, NOON_S - DAY_S, 1)
    back_up_sqlite(tmp_path / "ledger.db", tmp_path / "backup")
    accounts.set_policy(ledger, "alice", policy())
    assert spent(ledger, token, NOON_S - HOUR_S) > 0.8
    ledger.close()
    restore(tmp_path)
    accept(tmp_path)
    ledger = Ledger.open(paths_in(tmp_path))
    accounts.set_policy(ledger, "alice", policy())
    assert spent(ledger, token, NOON_S + 2 * HOUR_S) == 0.0
    assert spent(ledger, token, NOON_S + DAY_S) > 0.8
    ledger.close()


def test_a_clock_that_is_behind_opens_nothing(tmp_path: Path, clock: Clock) -> None:
    token = lose_all_since_the_backup(tmp_path, in_backup=1)
    clock(NOON_S - DAY_S)
    accept(tmp_path)
    clock(NOON_S)
    ledger = Ledger.open(paths_in(tmp_path))
    assert spent(ledger, token, NOON_S + HOUR_S) == 0.0
    ledger.close()


def test_a_clock_that_is_behind_all_that_the_backup_knows_of_opens_nothing(
    tmp_path: Path, clock: Clock
) -> None:
    token = lose_all_since_the_backup_of_days_ago(tmp_path, clock)
    os.utime(tmp_path / "mark", (NOON_S, NOON_S))  # which a clock at noon would have done
    clock(NOON_S - DAY_S)
    accept(tmp_path)
    ledger = Ledger.open(paths_in(tmp_path))
    assert spent(ledger, token, NOON_S + HOUR_S) == 0.0
    ledger.close()


def test_accepting_again_takes_nothing_back_and_closes_no_more(
    tmp_path: Path, clock: Clock
) -> None:
    token = lose_all_since_the_backup_of_days_ago(tmp_path, clock)
    accept(tmp_path)
    clock(NOON_S - 3 * DAY_S)
    for _ in range(int(DAY_S / AHEAD_S)):
        accept(tmp_path)
    ledger = Ledger.open(paths_in(tmp_path))
    assert spent(ledger, token, NOON_S + HOUR_S) == 0.0
    assert spent(ledger, token, NOON_S + DAY_S) > 0.8
    ledger.close()


def test_what_was_closed_stays_closed_when_nobody_is_left(tmp_path: Path, clock: Clock) -> None:
    lose_all_since_the_backup_of_days_ago(tmp_path, clock)
    accept(tmp_path)
    clock(NOON_S - 3 * DAY_S)
    ledger = Ledger.open(paths_in(tmp_path))
    accounts.delete_user(ledger, "alice")
    maintenance.accept_restored(ledger)
    token = member(ledger, "bob")
    assert spent(ledger, token, NOON_S + HOUR_S) == 0.0
    ledger.close()


def test_a_file_in_its_place_stays_refused_whoever_looks(tmp_path: Path, clock: Clock) -> None:
    ledger = Ledger.open(paths_in(tmp_path))
    token = member(ledger)
    spent(ledger, token, NOON_S, 1)
    back_up_sqlite(tmp_path / "ledger.db", tmp_path / "copy")
    (tmp_path / "copy").replace(tmp_path / "ledger.db")
    for _ in range(2):
        with pytest.raises(LedgerRestoredError, match="another file"):
            spent(ledger, token, NOON_S + 60.0, 1)
        with (
            pytest.raises(LedgerRestoredError),
            ledger.database.reading(),
            ledger.database.reading(),
        ):
            pass  # more connections than there were
    ledger.close()


def test_a_policy_that_would_pay_once_in_its_life_is_refused(tmp_path: Path, clock: Clock) -> None:
    ledger = Ledger.open(paths_in(tmp_path))
    with pytest.raises(ParameterError, match="ask for 248 m or more") as refused:
        member(ledger, accuracy_m=200.0)
    assert "--mechanism independent" in str(refused.value)
    member(ledger, "bob", accuracy_m=248.0)
    member(ledger, "carol", accuracy_m=200.0, mechanism="independent")
    ledger.close()


def test_what_was_said_in_a_window_that_paid_nothing_stays_said(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Policy, "build_checked", Policy.build)  # one that pays once in its life
    ledger = Ledger.open(paths_in(tmp_path))
    token = shown(member(ledger, accuracy_m=200.0))
    fixes = [
        Fix(*HELSINKI, NOON_S - (3 - day) * DAY_S + hour) for day in (0, 1, 2) for hour in (0, 1)
    ]
    first = [ledger.report(token, [fix]).answers[0].release for fix in fixes]
    assert [release is not None for release in first] == [True, *[False] * 5]
    accounts.set_policy(ledger, "alice", policy())
    again = [ledger.report(token, [fix]).answers[0].release for fix in fixes]
    assert again == first
    assert ledger.report(token, [Fix(*HELSINKI, NOON_S)]).answers[0].release is not None
    ledger.close()
