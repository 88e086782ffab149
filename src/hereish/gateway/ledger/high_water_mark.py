"""The high-water mark: how far a ledger has come, kept outside it.

A ledger that was restored from a backup has forgotten what was spent since. It stands below its
mark, and then nothing is released until its operator has said what to do. The mark is written
after each commit and before its releases leave. It survives the death of the process; the disk
has it within a second, so only a power cut may take back the last second of it.

Going on after a restore begins a new era, in the ledger and in the mark. So a backup from before
that is known by its era, whatever its numbers are.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import threading
import time
from pathlib import Path
from typing import Literal

from hereish.errors import HereishError

_HEAD = "hereish high-water mark 2\n"
_WIDTH = 20
_COUNT_WIDTH = 12
ERA_WIDTH = _COUNT_WIDTH + 1 + 16
_WHOLE = re.compile(rb"[0-9]{12}-[0-9a-f]{16}\n([0-9]{20})")
# Further than any ledger can have come, until somebody has said what to do.
LOST: int = 10**_WIDTH - 1
# Further, too: a client has shown a position that the ledger does not have (positions.py).
SET_BACK: int = LOST - 1
# What to do if there is no mark: begin one, refuse, or note that it is lost.
Missing = Literal["new", "refuse", "lost"]


class Restored(HereishError):  # noqa: N818  # it says what it is
    """The ledger stands below its mark: it was restored, or the mark is another ledger's."""


def era_after(*eras: str) -> str:
    """A new era, later than these: a count, and something that no other one has.

    The count follows the clock, so that it passes those of eras that nobody here remembers, too.
    """
    count = max([int(time.time()), *(count_of(era) + 1 for era in eras)])
    return f"{count:0{_COUNT_WIDTH}d}-{secrets.token_hex(8)}"


def count_of(era: str) -> int:
    return int(era[:_COUNT_WIDTH])


class Mark:
    """A file with an era and a number that never falls. Processes on one machine may share it."""

    def __init__(self, path: Path, ledger: str, era: str, missing: Missing) -> None:
        """`era` is that of the ledger, for a mark that is begun now."""
        self.path = path
        self.ledger = ledger
        self._lock = threading.Lock()
        self._head = f"{_HEAD}{ledger}\n"
        self._at = len(self._head) + ERA_WIDTH + 1  # where the number is
        self._known = 0
        self._file = self._opened(missing)
        try:
            with _locked(self._file):
                self.era = self._begun(era, missing)
        except BaseException:
            os.close(self._file)
            raise

    def _opened(self, missing: Missing) -> int:
        if missing != "refuse":
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            return os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            raise Restored(self._lost()) from None

    def _lost(self) -> str:
        return (
            f"there are users in the ledger, and its high-water mark {self.path} is missing or "
            "damaged: nobody can tell whether it is a backup. If it is one, or if you do not know, "
            "'hereish ledger accept'; if it is the ledger as it was left, and only this machine "
            "or this place is new, 'hereish ledger mark'"
        )

    def _begun(self, era: str, missing: Missing) -> str:
        """The era of the mark, which is begun if need be."""
        content = os.pread(self._file, 1024, 0)
        if not content.strip(b"\0"):  # a power cut may leave that
            content = content[:1]
        if len(content) > 1 and not content.startswith(self._head.encode()):
            raise Restored(
                f"{self.path} is the high-water mark of another ledger; "
                "give this one a file of its own with --mark"
            )
        if self._number() is None:
            if missing == "refuse" or (missing == "new" and content):
                raise Restored(self._lost())
            self._write(era, 0 if missing == "new" else LOST)
        self.value()
        return os.pread(self._file, ERA_WIDTH, len(self._head)).decode("ascii", "replace")

    def _number(self) -> int | None:
        found = _WHOLE.fullmatch(os.pread(self._file, ERA_WIDTH + 1 + _WIDTH, len(self._head)))
        return int(found[1]) if found else None

    def reset(self, era: str, number: int) -> None:
        """Write it anew: an operator has said so. It does not fall within an era."""
        with self._lock, _locked(self._file):
            now = self._number()
            if era == self.era and now is not None and now != LOST:
                number = max(number, now)  # somebody reported while the operator looked
            self._write(era, number)

    def _write(self, era: str, number: int) -> None:
        os.pwrite(self._file, f"{self._head}{era}\n{number:0{_WIDTH}d}\n".encode(), 0)
        os.fsync(self._file)
        self.era, self._known = era, number

    def value(self) -> int:
        """The mark as the file has it now."""
        number = self._number()
        if number is None:
            raise Restored(self._lost())
        self._known = max(self._known, number)
        return self._known

    def set_back(self, era: str) -> None:
        """Note for everybody that a client knows a later state than this, of that era."""
        with self._lock, _locked(self._file):
            self._write(max(self.era, era, key=count_of), SET_BACK)

    def written_s(self) -> float:
        """When it was last written, by the clock of then."""
        return os.fstat(self._file).st_mtime

    def check(self, last: int, era: str, mark: int) -> None:
        """Refuse a ledger of another era, or whose last number is below the mark.

        `mark` is the value as it was before one looked at the ledger.
        """
        if mark == LOST:
            raise Restored(
                "the ledger's high-water mark was lost: 'hereish ledger accept' if it may be a "
                "backup, 'hereish ledger mark' if it is the ledger as it was left"
            )
        if mark == SET_BACK:
            raise Restored(
                "a client knows a later state of this ledger than this one: it was set back, and "
                "its high-water mark with it. What was spent since is not in it. Nothing is "
                "released until 'hereish ledger accept' has closed the windows that were open"
            )
        if not era:
            raise Restored(
                "the ledger has lost the row that says which one it is: a restore is under way, or "
                "brought parts of it only. Put back a whole backup, and start the gateway again"
            )
        if era != self.era and count_of(era) > count_of(self.era):
            raise Restored(
                "the ledger was accepted after a restore, and this high-water mark is from before "
                "that. Start the gateway again; if that says the same, 'hereish ledger mark' first"
            )
        if era != self.era:
            raise Restored(
                "the ledger is a backup from before the last 'hereish ledger accept'. Nothing is "
                "released until it is called again"
            )
        if last < mark:
            raise Restored(
                f"the ledger ends at entry {last} and had come to {mark} before: it was restored "
                "from a backup, and what was spent since is not in it. Nothing is released until "
                "'hereish ledger accept' has closed the windows that were open"
            )

    def reach(self, number: int) -> None:
        """Raise the mark to at least this."""
        with self._lock:
            if number <= self._known:
                return
            with _locked(self._file):
                if number > self.value():
                    os.pwrite(self._file, f"{number:0{_WIDTH}d}".encode(), self._at)
                    self._known = number

    def sync(self) -> None:
        """Have the disk write it down; the gateway does so every second."""
        os.fdatasync(self._file)

    def close(self) -> None:
        self.sync()
        os.close(self._file)


class _locked:  # noqa: N801  # reads as a verb
    """The file's lock, held among processes."""

    def __init__(self, file: int) -> None:
        self._file = file

    def __enter__(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)
