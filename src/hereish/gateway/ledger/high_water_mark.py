"""The high-water mark: how far a ledger has come, kept outside it.

A ledger that was restored from a backup does not have what was spent since. It ends below its
mark, and then nothing is released until its operator decides. The mark is written after each
commit and before its releases leave. It survives the death of the process; it is synced to disk
within a second, so only a power cut may lose the last second of it.

Behind it stands the highest number that the payment of a job took, or a policy that may cost more
than the one before it. Jobs may pay for any window that has begun, and what such a policy has cost
is more than a backup without it knows of: so it is worth knowing whether a restore has lost one.

Accepting a restored ledger begins a new era, in the ledger and in the mark. So a backup from
before is recognised by its era, whatever its numbers are.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from hereish.errors import HereishError

_HEAD = "hereish high-water mark 2\n"
_WIDTH = 20
_COUNT_WIDTH = 12
ERA_WIDTH = _COUNT_WIDTH + 1 + 16
# The era, the number, and behind them that of a job if there was one.
_CONTENT = re.compile(rb"[0-9]{12}-[0-9a-f]{16}\n([0-9]{20})(?:\n(?:([0-9]{20})\n?)?)?")
# Beyond the numbers of any ledger, until the operator decides.
LOST: int = 10**_WIDTH - 1
# Likewise: a client has presented a position that the ledger does not have (positions.py).
SET_BACK: int = LOST - 1
# What to do if there is no mark: begin one, refuse, or record that it is lost.
IfMissing = Literal["new", "refuse", "lost"]


class LedgerRestoredError(HereishError):
    """The ledger ends below its mark: it was restored, or the mark is another ledger's."""


def next_era(*eras: str) -> str:
    """A new era, later than these: a count and a random suffix.

    The count follows the clock, so that it passes those of eras that are not known here, too.
    """
    count = max([int(time.time()), *(era_count(era) + 1 for era in eras)])
    return f"{count:0{_COUNT_WIDTH}d}-{secrets.token_hex(8)}"


def era_count(era: str) -> int:
    """How many eras came before this one."""
    return int(era[:_COUNT_WIDTH])


class HighWaterMark:
    """A file with an era and a number that never falls. Processes on one machine may share it."""

    def __init__(self, path: Path, ledger: str, era: str, if_missing: IfMissing) -> None:
        """`era` is that of the ledger, for a mark that is created now."""
        self.path = path
        self.ledger = ledger
        self._lock = threading.Lock()
        self._head = f"{_HEAD}{ledger}\n"
        self._at = len(self._head) + ERA_WIDTH + 1  # where the number is
        self._known = 0
        self._file = self._open(if_missing)
        try:
            with _file_lock(self._file):
                self.era = self._begin(era, if_missing)
        except BaseException:
            os.close(self._file)
            raise

    def _open(self, if_missing: IfMissing) -> int:
        if if_missing != "refuse":
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            return os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            raise LedgerRestoredError(self._lost_message()) from None

    def _lost_message(self) -> str:
        return (
            f"there are users in the ledger, and its high-water mark {self.path} is missing or "
            "damaged: nobody can tell whether it is a backup. If it is one, or if you do not know, "
            "'hereish ledger accept'; if it is the ledger as it was left, and only this machine "
            "or this place is new, 'hereish ledger mark'"
        )

    def _begin(self, era: str, if_missing: IfMissing) -> str:
        """The era of the mark, which is created if need be."""
        content = os.pread(self._file, 1024, 0)
        if not content.strip(b"\0"):  # a power cut may leave that
            content = content[:1]
        if len(content) > 1 and not content.startswith(self._head.encode()):
            raise LedgerRestoredError(
                f"{self.path} is the high-water mark of another ledger; "
                "give this one a file of its own with --mark"
            )
        if self._read_number() is None:
            if if_missing == "refuse" or (if_missing == "new" and content):
                raise LedgerRestoredError(self._lost_message())
            self._write(era, 0 if if_missing == "new" else LOST)
        self.value()
        return os.pread(self._file, ERA_WIDTH, len(self._head)).decode("ascii", "replace")

    def _read_number(self) -> int | None:
        match = self._read()
        return int(match[1]) if match else None

    def _read(self) -> re.Match[bytes] | None:
        return _CONTENT.fullmatch(os.pread(self._file, 1024, len(self._head)))

    def reset(self, era: str, number: int) -> None:
        """Overwrite it, on an operator's command. It does not fall within an era."""
        with self._lock, _file_lock(self._file):
            now = self._read_number()
            if era == self.era and now is not None and now != LOST:
                number = max(number, now)  # reports were made meanwhile
            self._write(era, number)

    def _write(self, era: str, number: int) -> None:
        jobs = self.job_number()
        behind = f"{jobs:0{_WIDTH}d}\n" if jobs else ""
        content = f"{self._head}{era}\n{number:0{_WIDTH}d}\n{behind}".encode()
        os.pwrite(self._file, content, 0)
        os.ftruncate(self._file, len(content))  # what was damaged behind it
        os.fsync(self._file)
        self.era, self._known = era, number

    def value(self) -> int:
        """The mark as the file has it now."""
        number = self._read_number()
        if number is None:
            raise LedgerRestoredError(self._lost_message())
        self._known = max(self._known, number)
        return self._known

    def record_set_back(self, era: str) -> None:
        """Record for all processes that a client knows a later state than this, of that era."""
        with self._lock, _file_lock(self._file):
            self._write(max(self.era, era, key=era_count), SET_BACK)

    def written_s(self) -> float:
        """When it was last written, by the clock at that time."""
        return os.fstat(self._file).st_mtime

    def check(self, last: int, era: str, mark: int) -> None:
        """Refuse a ledger of another era, or whose last number is below the mark.

        `mark` is its value as it was before the ledger was read.
        """
        if mark == LOST:
            raise LedgerRestoredError(
                "the ledger's high-water mark was lost: 'hereish ledger accept' if it may be a "
                "backup, 'hereish ledger mark' if it is the ledger as it was left"
            )
        if mark == SET_BACK:
            raise LedgerRestoredError(
                "a client knows a later state of this ledger than this one: it was set back, and "
                "its high-water mark with it. What was spent since is not in it. Nothing is "
                "released until 'hereish ledger accept' has closed the windows that were open"
            )
        if not era:
            raise LedgerRestoredError(
                "the ledger has lost the row that says which one it is: a restore is under way, or "
                "brought parts of it only. Put back a whole backup, and start the gateway again"
            )
        if era != self.era and era_count(era) > era_count(self.era):
            raise LedgerRestoredError(
                "the ledger was accepted after a restore, and this high-water mark is from before "
                "that. Start the gateway again; if that says the same, 'hereish ledger mark' first"
            )
        if era != self.era:
            raise LedgerRestoredError(
                "the ledger is a backup from before the last 'hereish ledger accept'. Nothing is "
                "released until it is called again"
            )
        if last < mark:
            raise LedgerRestoredError(
                f"the ledger ends at entry {last} and had come to {mark} before: it was restored "
                "from a backup, and what was spent since is not in it. Nothing is released until "
                "'hereish ledger accept' has closed the windows that were open"
            )

    def raise_to(self, number: int) -> None:
        """Raise the mark to at least this."""
        with self._lock:
            if number <= self._known:
                return
            with _file_lock(self._file):
                if number > self.value():
                    os.pwrite(self._file, f"{number:0{_WIDTH}d}".encode(), self._at)
                    self._known = number

    def job_number(self) -> int:
        """The highest number that a job's payment, or a dearer policy, took; 0 if there is none."""
        match = self._read()
        return int(match[2]) if match and match[2] else 0

    def raise_job_number(self, number: int) -> None:
        """Record that the payment of a job, or a dearer policy, took this number."""
        with self._lock, _file_lock(self._file):
            if number > self.job_number():
                os.pwrite(self._file, f"{number:0{_WIDTH}d}\n".encode(), self._at + _WIDTH + 1)

    def sync(self) -> None:
        """Sync it to disk; the gateway does so every second."""
        os.fdatasync(self._file)

    def close(self) -> None:
        self.sync()
        os.close(self._file)


@contextmanager
def _file_lock(file: int) -> Iterator[None]:
    """The file's lock, exclusive among processes."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
