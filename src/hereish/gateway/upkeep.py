"""What an operator does to a whole ledger: look at it, forget old things, go on after a restore."""

from __future__ import annotations

import time
from typing import NamedTuple

from sqlalchemy import Connection, delete, func, select, text, update

from hereish.gateway import database
from hereish.gateway.ledger import Ledger
from hereish.gateway.mark import LOST
from hereish.gateway.scribe import AHEAD_S
from hereish.gateway.tables import counts, entries, forget, outbox, receipts, tokens, users
from hereish.gateway.tables import ledger as ledger_row


class Status(NamedTuple):
    """Numbers about a ledger."""

    users: int
    tokens: int
    entries: int
    waiting: int
    last: int
    mark: int

    @property
    def lost(self) -> bool:
        """Whether the mark was missing or damaged."""
        return self.mark == LOST

    @property
    def restored(self) -> bool:
        return self.last < self.mark


def status(ledger: Ledger) -> Status:
    with ledger.database.reading() as tx:

        def rows(table: object) -> int:
            found = select(func.count()).select_from(table)  # type: ignore[arg-type]  # a table
            return int(tx.execute(found).scalar_one())

        numbers = [rows(table) for table in (users, tokens, entries, outbox)]
        a, b, c, d = numbers
        return Status(a, b, c, d, _last(ledger, tx), ledger.mark.value())


def prune(ledger: Ledger, before_s: float) -> dict[str, int]:
    """Forget releases, ids and counts from before a time. Budgets stay as they are.

    What is asked later about a time that was forgotten is answered with nothing, and is free.
    """
    with ledger.database.writing() as tx:
        if ledger.database.sqlite:
            tx.execute(text("PRAGMA secure_delete = ON"))  # overwritten, not only unlinked
        day = time.strftime("%Y-%m-%d", time.gmtime(before_s))
        old = delete(entries).where(entries.c.at_s < before_s).returning(entries.c.id)
        numbers = list(tx.execute(old).scalars())
        tx.execute(forget, {"number": max(numbers, default=0)})
        gone = {
            "ids": delete(receipts).where(receipts.c.made_s < before_s),
            "counts": delete(counts).where(counts.c.day < day),
        }
        counted = {name: tx.execute(statement).rowcount for name, statement in gone.items()}
        return {"releases": len(numbers)} | counted


def accept(ledger: Ledger) -> int:
    """Go on with a restored ledger; returns how many users it closes windows for.

    Nobody knows what was spent after the backup was made. So every window that has begun is taken
    as spent, for everybody, and each user's next window is the first that is paid from again.
    """
    with ledger.database.writing() as tx:
        # Phones may have been ahead of our clock, so a little more is closed.
        closed_s = time.time() + AHEAD_S
        # In the order in which reports lock them, so that nobody waits for each other.
        tx.execute(select(users.c.id).order_by(users.c.id).with_for_update())
        changed = int(tx.execute(update(users).values(closed_s=closed_s)).rowcount)
        tx.execute(update(ledger_row).values(closed_s=closed_s))
        mark, last = ledger.mark.value(), _last(ledger, tx)
        if last < mark != LOST:
            _move(ledger, tx, mark)
    if mark == LOST:
        ledger.mark.reset(last)
    return changed


def take_as_it_is(ledger: Ledger) -> int:
    """Put the mark where the ledger stands: its operator says that it is no backup."""
    with ledger.database.reading() as tx:
        last = _last(ledger, tx)
    ledger.mark.reset(last)
    return last


def _last(ledger: Ledger, tx: Connection) -> int:
    return database.numbers(tx.connection, ledger.database.dialect)[0]


def _move(ledger: Ledger, tx: Connection, mark: int) -> None:
    """Numbers go on after the mark, so that none is used for a second release."""
    if not ledger.database.sqlite:
        tx.execute(
            text(
                "SELECT setval('entries_id_seq', greatest(last_value, :mark)) FROM entries_id_seq"
            ),
            {"mark": mark},
        )
        tx.execute(forget, {"number": mark})
        return
    moved = tx.execute(
        text("UPDATE sqlite_sequence SET seq = :mark WHERE name = 'entries'"), {"mark": mark}
    )
    if not moved.rowcount:
        tx.execute(
            text("INSERT INTO sqlite_sequence (name, seq) VALUES ('entries', :mark)"),
            {"mark": mark},
        )
