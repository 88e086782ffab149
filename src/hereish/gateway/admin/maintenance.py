"""Maintenance of a ledger: its status, pruning, and how to go on after a restore."""

from __future__ import annotations

import time
from typing import NamedTuple

from sqlalchemy import Connection, Table, case, delete, func, select, text, update

from hereish.errors import ParameterError
from hereish.gateway.admin.accounts import require_user
from hereish.gateway.ledger.database import LedgerProgress, read_progress
from hereish.gateway.ledger.high_water_mark import LOST, SET_BACK, era_count, next_era
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.tables import (
    counts,
    destinations,
    entries,
    jobs,
    outbox,
    policies,
    raise_forgotten,
    receipts,
    removed,
    tokens,
    users,
)
from hereish.gateway.ledger.tables import ledger as ledger_row
from hereish.gateway.ledger.transaction import AHEAD_S


class LedgerStatus(NamedTuple):
    """Numbers about a ledger."""

    users: int
    tokens: int
    entries: int
    waiting: int
    last: int
    mark: int
    another_era: bool  # than that of the mark

    @property
    def lost(self) -> bool:
        """Whether the mark was missing or damaged."""
        return self.mark == LOST

    @property
    def set_back(self) -> bool:
        """Whether a client has shown a position that the ledger does not have."""
        return self.mark == SET_BACK

    @property
    def restored(self) -> bool:
        return self.last < self.mark or self.another_era


def read_status(ledger: Ledger) -> LedgerStatus:
    """What the ledger holds, and how far it has come."""
    mark = ledger.mark.value()  # before the ledger is read: others go on
    with ledger.database.reading() as tx:
        progress = _progress(ledger, tx)
        return LedgerStatus(
            users=_count_rows(tx, users),
            tokens=_count_rows(tx, tokens),
            entries=_count_rows(tx, entries),
            waiting=_count_rows(tx, outbox),
            last=progress.last,
            mark=mark,
            another_era=progress.era != ledger.mark.era,
        )


def _count_rows(tx: Connection, table: Table) -> int:
    return int(tx.execute(select(func.count()).select_from(table)).scalar_one())


def prune(ledger: Ledger, before_s: float) -> dict[str, int]:
    """Delete releases, also undelivered ones, ids and counts from before a time. Budgets stay.

    Later reports for a time that was pruned are answered with nothing, and are free.
    """
    with ledger.database.writing() as tx:
        # The destinations first, in the order in which deliveries and deletions lock them. Reports
        # need not wait for that.
        tx.execute(
            select(destinations.c.id).order_by(destinations.c.id).with_for_update(key_share=True)
        )
        day = time.strftime("%Y-%m-%d", time.gmtime(before_s))
        old = delete(entries).where(entries.c.at_s < before_s).returning(entries.c.id)
        numbers = list(tx.execute(old).scalars())
        gone = {
            "ids": delete(receipts).where(receipts.c.made_s < before_s),
            "counts": delete(counts).where(counts.c.day < day),
            "deliveries": delete(outbox).where(outbox.c.at_s < before_s),
        }
        counted = {name: tx.execute(statement).rowcount for name, statement in gone.items()}
        tx.execute(raise_forgotten, {"number": max(numbers, default=0)})
        if numbers:  # what these windows have cost is not known any more
            latest = case((ledger_row.c.pruned_s > before_s, ledger_row.c.pruned_s), else_=before_s)
            tx.execute(update(ledger_row).values(pruned_s=latest))
    ledger.database.truncate_wal()
    return {"releases": len(numbers)} | counted


def accept_restored(ledger: Ledger) -> int:
    """Go on with a restored ledger; returns how many users it closes windows for.

    Nobody knows what was spent after the backup was made. So every window that has begun is taken
    as spent, for everybody, and each user's next window is the first that is paid from again.
    Limits beside it, such as a month's, are charged with the most that may have been spent.
    A new era begins, so that no backup from before can be taken for this ledger.
    """
    with ledger.database.writing() as tx:
        closed_s = _closing_s(ledger, tx)
        # The backup may have lost that these were paid for and published: what they have reserved
        # is of windows that are closed now, and nobody may pay from it again. Locked before the
        # users, as by jobs that reserve.
        tx.execute(delete(jobs).where(jobs.c.settled_s.is_(None)))
        # In the order in which reports lock them, so that nothing deadlocks.
        tx.execute(select(users.c.id).order_by(users.c.id).with_for_update())
        mark, progress = ledger.mark.value(), _progress(ledger, tx)
        closed_s = max(closed_s, _closing_s(ledger, tx))
        _charge_limits(ledger, tx, closed_s, mark, progress)
        changed = int(tx.execute(update(users).values(closed_s=closed_s)).rowcount)
        era = next_era(progress.era, ledger.mark.era)
        lost_job = max(progress.job_number, ledger.mark.job_number())  # its windows are charged now
        tx.execute(update(ledger_row).values(closed_s=closed_s, era=era, job_number=lost_job))
        last = progress.last
        if last < mark < SET_BACK:
            _advance_numbers(ledger, tx, mark)
            last = mark
    ledger.mark.reset(era, last)
    return changed


def _charge_limits(
    ledger: Ledger, tx: Connection, closed_s: float, mark: int, progress: LedgerProgress
) -> None:
    """Count what may have been spent of limits since the backup. Before windows are closed.

    Users without a state have nothing that is known, and all that had begun is closed for them. A
    job may have paid for any window, and a policy that was set since may have cost more; the mark
    knows whether there was one.
    """
    more_lost = mark >= SET_BACK or ledger.mark.job_number() > progress.job_number
    limited = select(policies.c.id).where(policies.c.body.contains('"limits"'))
    query = select(users.c.name).where(
        users.c.state.is_not(None),
        users.c.policy_id.in_(limited) | users.c.next_policy_id.in_(limited),
    )
    for name in tx.execute(query).scalars().all():
        user = require_user(tx, name)
        state = ledger.policies.load_state(tx, user)
        state.charge_unseen(closed_s, more_lost)
        change = update(users).where(users.c.id == user.id)
        tx.execute(change.values(state=state.to_json()))


def _closing_s(ledger: Ledger, tx: Connection) -> float:
    """A time that nobody has reported for yet, by all evidence: clocks are set back, too."""
    made = (
        *(entries.c.made_s, entries.c.at_s, policies.c.created_s, removed.c.removed_s),
        *(jobs.c.created_s, jobs.c.settled_s),
    )
    known = [tx.execute(select(func.max(column))).scalar() or 0.0 for column in made]
    now_s = max(time.time(), ledger.mark.written_s(), *known)
    closed_s = tx.execute(select(ledger_row.c.closed_s)).scalar() or 0.0
    return max(now_s + AHEAD_S, closed_s)  # phones may have been ahead of the clock


def reset_mark(ledger: Ledger) -> int:
    """Set the mark to the ledger's last number: its operator asserts that it is no backup.

    Where the mark itself shows that it is one, the mark is believed and not the operator.
    """
    mark, number = ledger.mark, ledger.mark.value()  # before the ledger is read: others go on
    with ledger.database.reading() as tx:
        progress = _progress(ledger, tx)
    if progress.era == mark.era:
        is_backup = progress.last < number
    else:
        is_backup = era_count(progress.era) <= era_count(mark.era)
    if number != LOST and is_backup:
        raise ParameterError(
            "the high-water mark is whole and tells that this is a backup, so it stays; "
            "'hereish ledger accept' goes on with the next windows"
        )
    mark.reset(progress.era, progress.last)
    return progress.last


def _progress(ledger: Ledger, tx: Connection) -> LedgerProgress:
    return read_progress(tx, ledger.database.dialect)


def _advance_numbers(ledger: Ledger, tx: Connection, mark: int) -> None:
    """Numbers go on after the mark, so that none is used for a second release."""
    if not ledger.database.sqlite:
        tx.execute(
            text(
                "SELECT setval('entries_id_seq', greatest(last_value, :mark)) FROM entries_id_seq"
            ),
            {"mark": mark},
        )
        tx.execute(raise_forgotten, {"number": mark})
        return
    moved = tx.execute(
        text("UPDATE sqlite_sequence SET seq = :mark WHERE name = 'entries'"), {"mark": mark}
    )
    if not moved.rowcount:
        tx.execute(
            text("INSERT INTO sqlite_sequence (name, seq) VALUES ('entries', :mark)"),
            {"mark": mark},
        )
