"""Moments that seldom meet, brought together: the ledger must not mistake one for a restore."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from hereish.gateway.ledger import restore_guard
from hereish.gateway.ledger.database import LedgerProgress, read_progress
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.paths import GatewayPaths
from tests.support.postgres import Postgres
from tests.support.stage import HELSINKI, member, paths_in, shown


def connected_while_another_reports(where: GatewayPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process opens a connection; another one commits between its two looks."""
    busy = Ledger.open(where)
    token = shown(member(busy))
    moments: list[float] = []
    looks: list[str] = []

    def interrupted(connection: Any, dialect: str) -> LedgerProgress:
        found = read_progress(connection, dialect)
        looks.append(dialect)
        if len(looks) == 1:
            moments.append(time.time() - 60.0)
            busy.report(token, [Fix(*HELSINKI, moments[0])])
        return found

    monkeypatch.setattr(restore_guard, "read_progress", interrupted)
    opened = Ledger.open(where)
    assert len(moments) == 1
    opened.check_health()
    opened.close()
    busy.close()


def test_a_commit_while_another_process_connects_is_no_restore_on_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected_while_another_reports(paths_in(tmp_path), monkeypatch)


def test_a_commit_while_another_process_connects_is_no_restore_on_postgresql(
    tmp_path: Path, cluster: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = paths_in(tmp_path, cluster.fresh("races"))
    connected_while_another_reports(where, monkeypatch)
