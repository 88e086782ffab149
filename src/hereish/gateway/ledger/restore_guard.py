"""Detects a ledger that was restored from a backup, and stops all releases then.

The ledger is compared with its high-water mark, and with the positions that clients present.
"""

from __future__ import annotations

from typing import Any

from hereish.gateway.ledger.database import (
    Database,
    LedgerProgress,
    LedgerUnavailableError,
    read_progress,
)
from hereish.gateway.ledger.high_water_mark import HighWaterMark, LedgerRestoredError
from hereish.gateway.ledger.models import EntryRef
from hereish.gateway.ledger.positions import LedgerPositions


class RestoreGuard:
    """One per process. Once it has found a restored ledger, it refuses everything."""

    def __init__(self, database: Database, mark: HighWaterMark, positions: LedgerPositions) -> None:
        self.reason: str | None = None  # why nothing is released any more
        self._job_number = 0  # what the mark is known to have
        self._database, self._mark, self._positions = database, mark, positions

    def stop(self, reason: str) -> None:
        """Refuse everything from now on."""
        self.reason = reason

    def refuse_if_stopped(self) -> None:
        if self.reason is not None:
            raise LedgerRestoredError(self.reason)

    def check(self, last: int, era: str, mark: int) -> None:
        """Refuse a ledger that ends below its mark. `mark` was read before the ledger."""
        if self.reason is None:
            try:
                self._mark.check(last, era, mark)
            except LedgerRestoredError as error:
                self.stop(str(error))
        self.refuse_if_stopped()

    def check_connection(self, connection: Any) -> None:
        """A new connection may lead to a ledger that was restored while nobody looked."""
        mark = self._mark.value()  # first: others may go on between the two
        progress = read_progress(connection, self._database.dialect)
        if not self._database.sqlite:
            connection.rollback()  # reading began a transaction
        self.check(progress.last, progress.era, mark)
        # Whoever wrote the newest entry may have died before the mark was raised.
        self._follow(progress)

    def check_ledger(self) -> None:
        """Raise the mark to what was committed by any process, and detect a restore."""
        mark = self._mark.value()
        with self._database.reading() as tx:
            progress = read_progress(tx, self._database.dialect)
        self.check(progress.last, progress.era, mark)
        self._follow(progress)

    def _follow(self, progress: LedgerProgress) -> None:
        """Raise the mark to what the ledger has committed."""
        self.raise_mark(progress.committed)
        if progress.job_number > self._job_number:  # seldom: it needs the lock of a file
            self._raise_job_number(progress.job_number)

    def _raise_job_number(self, number: int) -> None:
        try:
            self._mark.raise_job_number(number)
        except OSError:
            raise LedgerUnavailableError("the high-water mark cannot be written") from None
        self._job_number = number

    def raise_mark(self, entry: EntryRef) -> None:
        """Raise the mark. If that fails, nothing leaves; what was paid can be asked for again."""
        try:
            self._mark.raise_to(entry.number)
        except OSError:
            raise LedgerUnavailableError("the high-water mark cannot be written") from None
        self._positions.record(entry)

    def raise_mark_to(self, number: int) -> None:
        """Raise the mark to the number of a job's payment or a policy, and write it to the disk."""
        self._raise_job_number(number)
        try:
            self._mark.raise_to(number)
            self._mark.sync()
        except OSError:
            raise LedgerUnavailableError("the high-water mark cannot be written") from None

    def check_position(self, position: str | None) -> None:
        """Stop, for everybody, if a client presents a position that this ledger once issued and
        does not have any more. One that it never issued does nothing.
        """
        presented = None if position is None else self._positions.parse(position)
        if presented is None or self._positions.is_known(presented, self._mark.era):
            return
        self.refuse_if_stopped()
        # A process that has another file open, or a ledger below the mark, is behind by itself:
        # it stops alone, and what it does not have is no reason to stop the others.
        self._database.refuse_replaced_file()
        with self._database.reading() as tx:
            if not self._positions.is_set_back(tx, presented):
                return
        self.check_ledger()
        try:
            self._mark.record_set_back(presented.era)  # [L10]
        except OSError:
            raise LedgerUnavailableError("the high-water mark cannot be written") from None
        self.check(0, presented.era, self._mark.value())
