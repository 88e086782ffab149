"""A ledger of SQLite that was restored from a backup does not pay again what was paid since."""

from __future__ import annotations

import math
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from hereish.errors import HereishError
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix, LedgerRelease
from hereish.gateway.ledger.tokens import PresentedToken
from tests.support.hammer import audit
from tests.support.ledgers import back_up_sqlite
from tests.support.restoring import (
    AFTER,
    goes_on_after_accept,
    refuses_to_start,
    refuses_while_it_runs,
    restored,
    restoring,
)
from tests.support.stage import HELSINKI, member, paths_in, shown

LOGS = ("ledger.db-wal", "ledger.db-shm")


def test_a_restored_ledger_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with restoring(paths_in(tmp_path)) as run:

        def restore() -> None:
            run.stop()
            backup.replace(tmp_path / "ledger.db")

        restored(run, lambda: back_up_sqlite(tmp_path / "ledger.db", backup), restore)
        refuses_to_start(run.where)
        goes_on_after_accept(run)


def test_a_file_that_is_replaced_under_a_running_gateway_is_refused(tmp_path: Path) -> None:
    backup = tmp_path / "backup"

    def restore() -> None:
        for name in LOGS:
            (tmp_path / name).unlink()
        backup.replace(tmp_path / "ledger.db")

    with restoring(paths_in(tmp_path)) as run:
        restored(run, lambda: back_up_sqlite(tmp_path / "ledger.db", backup), restore)
        refuses_while_it_runs(run)
        goes_on_after_accept(run)


def test_a_file_that_is_replaced_without_its_log_loses_nothing(tmp_path: Path) -> None:
    """All that was spent since is in the log, and SQLite finds it there: nothing was restored."""
    backup = tmp_path / "backup"
    with restoring(paths_in(tmp_path)) as run:
        restored(
            run,
            lambda: back_up_sqlite(tmp_path / "ledger.db", backup),
            lambda: shutil.move(backup, tmp_path / "ledger.db"),
        )
        statuses = {run.crowd.send(report, run.port) for report in run.crowd.told}
        run.within_budget()
        assert statuses <= {200, 503}
        if statuses == {200}:
            run.spend(AFTER)
            run.stop()
            run.start()
            run.crowd.resend_all(run.port)
            audit(run.where, run.crowd.told)


def test_a_file_that_is_rolled_back_under_a_running_gateway_is_refused(tmp_path: Path) -> None:
    live, backup = tmp_path / "ledger.db", tmp_path / "backup"
    with restoring(paths_in(tmp_path)) as run:
        restored(run, lambda: back_up_sqlite(live, backup), lambda: back_up_sqlite(backup, live))
        refuses_while_it_runs(run)
        goes_on_after_accept(run)


@pytest.mark.parametrize("running", [True, False])
def test_a_log_that_was_left_beside_a_restored_file_pays_nothing_twice(
    tmp_path: Path, running: bool
) -> None:
    """SQLite applies the log to the older file: some pages are new, and the mark fits them."""
    where = paths_in(tmp_path)
    ledger = Ledger.open(where)
    alice = shown(member(ledger, "alice"))
    others = [shown(member(ledger, f"user {i}")) for i in range(12)]  # so that there are pages
    day_s = time.time() // 86400.0 * 86400.0 - 86400.0
    for token in (alice, *others):
        assert _released(ledger, token, day_s, 3)
    live, backup = tmp_path / "ledger.db", tmp_path / "backup"
    back_up_sqlite(live, backup)
    first = _released(ledger, alice, day_s + 100.0, 12)
    # What SQLite does by itself every thousand pages: the log begins anew.
    moving = sqlite3.connect(live)
    assert moving.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0
    moving.close()
    assert _released(ledger, others[-1], day_s + 100.0, 1)
    shutil.copy(tmp_path / "ledger.db-wal", tmp_path / "log")
    if not running:  # as after a crash of the machine
        ledger.close()
        shutil.copy(tmp_path / "log", tmp_path / "ledger.db-wal")
    backup.replace(live)
    second: list[LedgerRelease] = []
    try:
        if not running:
            ledger = Ledger.open(where)
        second = _released(ledger, alice, day_s + 200.0, 40)
    except HereishError:
        pass  # refused, which is right
    finally:
        ledger.close()
    spent = math.fsum(release.cost for release in first + second)
    assert spent <= math.log(10) / 100.0


def _released(
    ledger: Ledger, token: PresentedToken, from_s: float, number: int
) -> list[LedgerRelease]:
    found = [
        ledger.report(token, [Fix(*HELSINKI, from_s + i)]).answers[0].release for i in range(number)
    ]
    return [release for release in found if release is not None]
