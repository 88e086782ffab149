"""The high-water mark: how far a ledger has come, kept outside it.

A ledger that was restored from a backup has forgotten what was spent since. It stands below its
mark, and then nothing is released until its operator has said what to do. The mark is written
after each commit and before its releases leave. It survives the death of the process; the disk
has it within a second, so only a power cut may take back the last second of it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import Literal

from hereish.errors import HereishError

_HEAD = "hereish high-water mark 1\n"
_WIDTH = 20
# Further than any ledger can have come, until somebody has said what to do.
LOST: int = 10**_WIDTH - 1
# What to do if there is no mark: begin one, refuse, or note that it is lost.
Missing = Literal["new", "refuse", "lost"]


class Restored(HereishError):  # noqa: N818  # it says what it is
    """The ledger stands below its mark: it was restored, or the mark is another ledger's."""


class Mark:
    """A file with one number that never falls. Processes on one machine may share it."""

    def __init__(self, path: Path, ledger: str, missing: Missing) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._head = f"{_HEAD}{ledger}\n"
        self._known = 0
        self._file = self._opened(missing)
        try:
            with _locked(self._file):
                self._begin(missing)
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
            f"the ledger has entries, and its high-water mark {self.path} is missing or damaged: "
            "nobody can tell whether it is a backup. If it is one, or if you do not know, "
            "'hereish ledger accept'; if it is the ledger as it was left, and only this machine "
            "or this place is new, 'hereish ledger mark'"
        )

    def _begin(self, missing: Missing) -> None:
        content = os.pread(self._file, 1024, 0)
        if content and not content.startswith(self._head.encode()):
            raise Restored(
                f"{self.path} is the high-water mark of another ledger; "
                "give this one a file of its own with --mark"
            )
        if self._number() is None:
            if missing == "refuse" or (missing == "new" and content):
                raise Restored(self._lost())
            self.reset(0 if missing == "new" else LOST)
        self.value()

    def _number(self) -> int | None:
        found = os.pread(self._file, _WIDTH, len(self._head))
        return int(found) if len(found) == _WIDTH and found.isdigit() else None

    def reset(self, number: int) -> None:
        """Write it anew, whatever it was: an operator has said so."""
        os.pwrite(self._file, f"{self._head}{number:0{_WIDTH}d}\n".encode(), 0)
        os.fsync(self._file)
        self._known = number

    def value(self) -> int:
        """The mark as the file has it now."""
        number = self._number()
        if number is None:
            raise Restored(self._lost())
        self._known = max(self._known, number)
        return self._known

    @staticmethod
    def check(last: int, mark: int) -> None:
        """Refuse a ledger whose last number is below the mark, as it was before one looked."""
        if mark == LOST:
            raise Restored(
                "the ledger's high-water mark was lost: 'hereish ledger accept' if it may be a "
                "backup, 'hereish ledger mark' if it is the ledger as it was left"
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
                    os.pwrite(self._file, f"{number:0{_WIDTH}d}".encode(), len(self._head))
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
