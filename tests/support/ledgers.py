"""What the ledger's tests share: an empty ledger, the usual times, counting and backing up."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import func, select

from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.tables import entries
from tests.support.stage import paths_in

NOON_S = 1_762_171_200.0  # 3 November 2025, 12:00 UTC
DAY_S = 86_400.0


@contextmanager
def empty_ledger(folder: Path, database: str | None = None) -> Iterator[Ledger]:
    """A new ledger without users."""
    opened = Ledger.open(paths_in(folder, database))
    yield opened
    opened.close()


def count_entries(ledger: Ledger) -> int:
    with ledger.database.reading() as tx:
        return int(tx.execute(select(func.count()).select_from(entries)).scalar_one())


def back_up_sqlite(source: Path, target: Path) -> None:
    """SQLite's own backup, of a file that may be in use, into one that may be in use."""
    with sqlite3.connect(source) as a, sqlite3.connect(target) as b:
        a.backup(b)
    a.close()
    b.close()
