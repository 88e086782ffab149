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

from hereish.errors import HereishError

_HEAD = "hereish high-water mark 1\n"
_WIDTH = 20


class Restored(HereishError):  # noqa: N818  # it says what it is
    """The ledger stands below its mark: it was restored, or the mark is another ledger's."""


class Mark:
    """A file with one number that never falls. Processes on one machine may share it."""

    def __init__(self, path: Path, ledger: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._start = len(f"{_HEAD}{ledger}\n")
        self._known = 0
        try:
            with _locked(self._file):
                self._begin(f"{_HEAD}{ledger}\n")
            self.value()
        except BaseException:
            os.close(self._file)
            raise

    def _begin(self, head: str) -> None:
        content = os.pread(self._file, 1024, 0).decode("ascii", "replace")
        if not content:
            os.pwrite(self._file, f"{head}{0:0{_WIDTH}d}\n".encode(), 0)
            os.fsync(self._file)
        elif not content.startswith(head):
            raise Restored(
                f"{self.path} is the high-water mark of another ledger; "
                "give this one a file of its own with --mark"
            )

    def value(self) -> int:
        """The mark as the file has it now."""
        number = os.pread(self._file, _WIDTH, self._start)
        if len(number) != _WIDTH or not number.isdigit():
            raise Restored(f"{self.path} is damaged; see 'hereish ledger accept --help'")
        self._known = max(self._known, int(number))
        return self._known

    @staticmethod
    def check(last: int, mark: int) -> None:
        """Refuse a ledger whose last number is below the mark, as it was before one looked."""
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
                    os.pwrite(self._file, f"{number:0{_WIDTH}d}".encode(), self._start)
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
