"""Where a table of text can be cut: at ends of lines, between the rows of two users.

Only some lines are looked at, by the rule that the rows of a user stand together. Whoever reads the
parts has to make sure that nobody is in two of them; and a cut within quotes is found there, too,
since the part before it then ends in the middle of a field.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

from hereish.traces.formats._encodings import utf16_encoding
from hereish.traces.formats._part_file import FilePart, guided_size
from hereish.traces.formats.base import Source

WORTH_BYTES = 32 << 20  # of a file; less is read sooner than processes start
LEAST_BYTES, MOST_BYTES = 8 << 20, 48 << 20  # of a part
_LOOK_BYTES = 1 << 16
_HEAD_BYTES = 1 << 18
_MOST_WITHOUT_ROW = 1 << 20  # bytes in which there is no row that can be told
_LEAST_RUN = 8  # rows of a user that stand together, on average, where a file can be divided


class TableText(NamedTuple):
    """What a table looks like."""

    head_lines: int  # up to the names of the columns
    delimiter: str
    user: int  # which field tells the user
    width: int


def divide_text(source: Source, table: TableText, jobs: int) -> Sequence[FilePart]:
    """The parts; nothing if the rows of users do not seem to stand together."""
    path = source.path
    if path is None or source.members or source.below.name.lower().endswith(".gz"):
        return ()
    size = path.stat().st_size
    if size < WORTH_BYTES:
        return ()
    with path.open("rb") as file:
        head = _head_bytes(file, table)
        cuts = _cuts(_Users(file, table, size), head, size, jobs) if head else None
    if not head or not cuts:
        return ()
    ends = [*cuts, size]
    return [FilePart(begin, end, head) for begin, end in zip([head, *ends[:-1]], ends, strict=True)]


def _head_bytes(file: BinaryIO, table: TableText) -> int:
    """How many bytes the lines up to the header are; 0 if that is not simple."""
    begin = file.read(_HEAD_BYTES)
    lines = begin.split(b"\n")[: table.head_lines + 1]
    if len(lines) <= table.head_lines or utf16_encoding(begin) is not None:
        return 0
    head = sum(len(line) + 1 for line in lines[:-1])
    odd = lines[-2].count(b'"') % 2 or begin[:head].count(b"\r") != begin[:head].count(b"\r\n")
    return 0 if odd else head


def _cuts(users: _Users, head: int, size: int, jobs: int) -> list[int] | None:
    """Where parts end, in their order; None if users do not stand together."""
    cuts, at = [], head
    while size - at > 2 * LEAST_BYTES:
        cut = users.next_begin(at + guided_size(size - at, jobs, LEAST_BYTES, MOST_BYTES))
        if cut is None:
            break
        cuts.append(cut)
        at = cut
    return None if users.mixed else cuts


class _Users:
    """Looks up the users at some places of a table."""

    def __init__(self, file: BinaryIO, table: TableText, size: int) -> None:
        self._file, self._table, self._size = file, table, size
        self.mixed = False  # rows of several users take turns, or cannot be told

    def next_begin(self, at: int) -> int | None:
        """The first line after a place at which another user begins; None if there is none."""
        first = self._first(at)
        if first is None:
            return None
        low, high, step = at, first[0], _LOOK_BYTES
        # Ever larger steps to somebody else, and then halves of the last.
        while True:
            found = self._first(high)
            if found is None:
                high = self._size
                break
            if found[1] != first[1]:
                break
            low, step = high, 2 * step
            high = low + step
        while high - low > _LOOK_BYTES:
            middle = (low + high) // 2
            found = self._first(middle)
            if found is None or found[1] != first[1]:
                high = middle
            else:
                low = middle
        return self._scan(low, first[1])

    def _first(self, at: int) -> tuple[int, str] | None:
        return next(self._rows(at), None)

    def _scan(self, at: int, user: str) -> int | None:
        changes, rows, cut, last = 0, 0, None, user
        for begin, other in self._rows(at):
            rows += 1
            changes += other != last
            last = other
            if cut is None and other != user:
                cut = begin
            if cut is not None and begin > cut + _LOOK_BYTES:
                break
        self.mixed = self.mixed or changes * _LEAST_RUN > rows + _LEAST_RUN
        return cut

    def _rows(self, at: int) -> Iterator[tuple[int, str]]:
        """Lines that begin after a place, and their users."""
        rest, begin, started, last = b"", at, False, at
        self._file.seek(at)
        while data := self._file.read(_LOOK_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                here, begin = begin, begin + len(line) + 1
                if started:
                    user = self._user(line)
                    if user is not None:
                        last = here
                        yield here, user
                started = True
            after = begin + len(rest)
            if len(rest) > _HEAD_BYTES or after - last > _MOST_WITHOUT_ROW:
                self.mixed = True
                return
            self._file.seek(after)

    def _user(self, line: bytes) -> str | None:
        """None if it is not a plain row."""
        try:
            row = next(csv.reader([line.decode()], delimiter=self._table.delimiter), [])
        except (csv.Error, UnicodeDecodeError):
            return None
        return row[self._table.user] if len(row) == self._table.width else None
