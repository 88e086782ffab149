"""Where the users of a bucket stand, as the state of a stream: pages of a few users each.

Each access of Python to Spark's state is a message to another process, which costs as much as
several kilobytes in it do. A page for all users would be rewritten for each of them, so that pages
are split as users are added, one at a time (linear hashing), and stay about as large. All of it is
public: what was released and what it cost, and no point that was reported.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.run import Run
from hereish.core.types import Floats, Ints
from hereish.core.validation import run_fault
from hereish.errors import PointError, StateError
from hereish.traces.standing import Standing

_USERS_PER_PAGE = 512
_VERSION = 4  # also of how users are shared out over the pages
# The version, the number of the mechanism with its windows, the users, the length of the names, and
# the CRC-32 of all that follows.
_HEADER = struct.Struct("<BqIII")
# Of a bucket: the version and the number of users. What tells the key follows.
_BUCKET = struct.Struct("<BQ")
_BITS = 8  # of a byte: words of a record are a multiple of it
_DAMAGED = "the stream's state is damaged, or of another version of hereish; nothing was released"
_OTHER = (
    "the stream was begun with another mechanism, and budgets that are in use cannot be changed; "
    "nothing was released"
)
Records = NDArray[np.uint64]  # a row of words for each user


class MapState(Protocol):
    """What is used of Spark's map states."""

    def getValue(  # noqa: N802  # Spark's name
        self, key: tuple[Any, ...]
    ) -> tuple[Any, ...] | None: ...

    def updateValue(  # noqa: N802  # Spark's name
        self, key: tuple[Any, ...], value: tuple[Any, ...]
    ) -> None: ...


class StandingRecords:
    """Where users stand as records of words, for one mechanism: numbers as they are in memory."""

    def __init__(self, mechanism: PredictiveMechanism) -> None:
        self.number = mechanism.number
        self.lane_mechanism = mechanism.without_windows
        self.window = mechanism.window
        self._fields: list[tuple[slice, np.dtype[Any], tuple[int, ...]]] = []
        end = 2  # after the window and the time of the last report
        for field in self.lane_mechanism.run(0):
            begin, end = end, end + int(np.prod(field.shape[1:]))
            self._fields.append((slice(begin, end), field.dtype, field.shape[1:]))
        self.words = -(-end // _BITS) * _BITS

    def write(self, standing: Standing) -> Records:
        count = len(standing.last_us)
        records = np.zeros((count, self.words), dtype="<u8")
        records[:, 0] = standing.lane.astype(np.int64).view(np.uint64)
        records[:, 1] = standing.last_us.view(np.uint64)
        for (columns, kind, _), field in zip(self._fields, standing.run, strict=True):
            numbers = field.astype(np.uint64) if kind == np.bool_ else field.view(np.uint64)
            records[:, columns] = numbers.reshape(count, -1)
        return records

    def read(self, records: Records) -> Standing:
        """Raises StateError for what cannot have been written for this mechanism."""
        own = records.astype(np.uint64, copy=False)
        fields: list[Any] = []
        for columns, kind, shape in self._fields:
            words = np.ascontiguousarray(own[:, columns])
            numbers = words != 0 if kind == np.bool_ else words.view(kind)
            fields.append(numbers.reshape(len(own), *shape))
        run = Run(*fields).frozen()
        window, last_us = (np.ascontiguousarray(own[:, i]).view(np.int64) for i in (0, 1))
        wrong = None
        if len(own):
            wrong = run_fault(self.lane_mechanism, run) or self._time_fault(window, last_us, run)
        if wrong is not None:
            raise StateError(f"the stream's state cannot be used: {wrong}; nothing was released")
        return Standing(window.astype(object), last_us, run)

    def _time_fault(self, window: Ints, last_us: Ints, run: Run) -> str | None:
        """What is wrong with when users last reported: another window would be a fresh budget."""
        last_s: Floats = np.asarray(last_us * 1e-6, dtype=np.float64)  # as rows have it
        if (last_s < run.at_s).any():  # never where there is no release
            return "somebody's last release is later than the last report"
        try:
            index = self.window.index(last_s)
        except PointError as error:
            return str(error)
        if (window != (0 if index is None else index)).any():
            return "somebody's last report does not lie in the window that it was counted in"
        return None


class _Differences(NamedTuple):
    """Records by what differs from one of them.

    Users of a page report on the same day, in one area, and with one mechanism, so that most bytes
    of their records are the same; bytes are what messages to the state cost. Of words that most of
    the users have otherwise, those bytes are kept that anybody has; of others, the whole word for
    those who have it, with a bit for each word.
    """

    common: Records  # (words,)
    used: NDArray[np.bool_]  # (8 * words,) the bytes that are kept of everybody
    kept: NDArray[np.uint8]  # (users, used ones)
    there: NDArray[np.bool_]  # (users, words) the words that are kept of this user
    words: Records  # those, one record after the other
    ends: Ints  # (users + 1,) where those of each record begin, and end

    @classmethod
    def of(cls, records: Records) -> _Differences:
        common = records[0] if len(records) else np.zeros(records.shape[1], dtype="<u8")
        different = records ^ common
        there = different != 0
        often = 2 * np.count_nonzero(there, axis=0) > len(records)
        there &= ~often
        anywhere = np.where(often, np.bitwise_or.reduce(different, axis=0), np.uint64(0))
        used = anywhere.astype("<u8").view(np.uint8) != 0
        kept = different.view(np.uint8)[:, used]
        ends = np.append(0, np.cumsum(np.count_nonzero(there, axis=1)))
        return cls(common, used, kept, there, different[there], ends)

    def to_bytes(self, begin: int, end: int) -> bytes:
        """Of the records from one to another."""
        return b"".join(
            (
                self.common.tobytes(),
                np.packbits(self.used).tobytes(),
                np.packbits(self.there[begin:end]).tobytes(),
                self.kept[begin:end].tobytes(),
                self.words[self.ends[begin] : self.ends[end]].tobytes(),
            )
        )

    @staticmethod
    def read(written: bytes, count: int, words: int) -> Records:
        """The records that were written. Raises StateError if there were not so many of them."""
        used_at, there_at = 8 * words, 9 * words
        kept_at = there_at + count * words // _BITS
        if len(written) < kept_at:
            raise StateError(_DAMAGED)
        given = np.frombuffer(written, dtype=np.uint8)
        used = np.unpackbits(given[used_at:there_at]).view(np.bool_)
        there = np.unpackbits(given[there_at:kept_at]).view(np.bool_).reshape(count, words)
        width = np.count_nonzero(used)
        words_at = kept_at + count * width
        if len(written) != words_at + 8 * np.count_nonzero(there):
            raise StateError(_DAMAGED)
        records = np.zeros((count, words), dtype="<u8")
        records.view(np.uint8)[:, used] = given[kept_at:words_at].reshape(count, width)
        records[there] = np.frombuffer(written, "<u8", offset=words_at)
        records ^= np.frombuffer(written, "<u8", words)
        return records


class _Page(NamedTuple):
    """Users and their records."""

    users: list[str]
    records: Records

    @staticmethod
    def to_bytes(mechanism: int, users: list[str], records: bytes) -> bytes:
        names = json.dumps(users).encode()
        check = zlib.crc32(records, zlib.crc32(names))
        header = _HEADER.pack(_VERSION, mechanism, len(users), len(names), check)
        return b"".join((header, names, records))

    @classmethod
    def from_bytes(cls, written: bytes, records: StandingRecords) -> _Page:
        if len(written) < _HEADER.size:
            raise StateError(_DAMAGED)
        version, number, count, length, check = _HEADER.unpack_from(written)
        if version == _VERSION and number != records.number:
            raise StateError(_OTHER)
        if version != _VERSION or check != zlib.crc32(memoryview(written)[_HEADER.size :]):
            raise StateError(_DAMAGED)
        names = _HEADER.size + length
        try:
            users = json.loads(written[_HEADER.size : names])
        except ValueError:
            users = []
        if len(users) != count:
            raise StateError(_DAMAGED)
        return cls(users, _Differences.read(written[names:], count, records.words))


class _Users:
    """Users whose pages were read: their records, and which page each is in."""

    def __init__(self, words: int) -> None:
        self.names: list[str] = []
        self.row: dict[str, int] = {}
        self.page = np.empty(0, dtype=np.int64)
        self.records: Records = np.empty((0, words), dtype="<u8")

    def add(self, names: Sequence[str], page: Ints, records: Records) -> None:
        first = len(self.names)
        self.row.update(zip(names, range(first, first + len(names)), strict=True))
        self.names += names
        self.page = np.concatenate([self.page, page])
        self.records = np.concatenate([self.records, records])

    def rows(self, names: Sequence[str]) -> Ints:
        """Where each user is; -1 for those that were not read."""
        if not self.names:
            return np.full(len(names), -1, dtype=np.int64)
        return np.fromiter(map(self.row.get, names, repeat(-1)), np.int64, len(names))


class StatePages:
    """Where the users of one bucket stand, in Spark's state."""

    KEY, VALUE = "page INT", "users BINARY"
    _BUCKET_KEY = (-1,)  # of what is said about the bucket as a whole

    def __init__(self, records: StandingRecords, state: MapState, key_check: bytes = b"") -> None:
        self._records, self._state, self._key_check = records, state, key_check
        self._pages: set[int] = set()  # those that were read
        self._known = _Users(records.words)
        self._users = self._begun(state.getValue(self._BUCKET_KEY))

    def _begun(self, found: tuple[Any, ...] | None) -> int:
        """How many users the bucket has. Raises if it is not for us."""
        if found is None:
            self._write_bucket(0)
            return 0
        written = bytes(found[0])
        if len(written) < _BUCKET.size:
            raise StateError(_DAMAGED)
        version, users = _BUCKET.unpack_from(written)
        if version != _VERSION:
            raise StateError(_DAMAGED)
        if written[_BUCKET.size :] != self._key_check:
            raise StateError(
                "the stream was begun with another key, and a micro-batch that is run again would "
                "be a second release; nothing was released"
            )
        return int(users)

    def _write_bucket(self, users: int) -> None:
        written = _BUCKET.pack(_VERSION, users) + self._key_check
        self._state.updateValue(self._BUCKET_KEY, (written,))

    def load(self, users: Sequence[str]) -> Standing:
        standing = Standing.empty(self._records.lane_mechanism, len(users))
        rows = self._rows(users)
        there = np.flatnonzero(rows >= 0)
        if len(there):
            standing.put(there, self._records.read(self._known.records[rows[there]]))
        return standing

    def save(self, users: Sequence[str], standing: Standing) -> None:
        rows, known = self._rows(users), self._known
        records = self._records.write(standing)
        new = np.flatnonzero(rows < 0)
        changed = np.empty(0, dtype=np.int64)
        if len(new):
            changed = self._make_room(len(new))
            rows[new] = len(known.names) + np.arange(len(new))
            names = [users[i] for i in new.tolist()]
            known.add(names, _pages_of(names, _page_count(self._users)), records[new])
        known.records[rows] = records
        self._write(np.unique(np.concatenate([known.page[rows], changed])))

    def _make_room(self, more: int) -> Ints:
        """Count users who are added, and split pages for them; those that have changed."""
        before = _page_count(self._users)
        self._users += more
        self._write_bucket(self._users)
        after = _page_count(self._users)
        split = np.array(sorted(_split_pages(before, after)), dtype=np.int64)
        self._read(split.tolist())
        self._pages.update(range(before, after))  # which nobody has written yet
        known = self._known
        moving = np.flatnonzero(np.isin(known.page, split))
        known.page[moving] = _pages_of([known.names[i] for i in moving.tolist()], after)
        return np.concatenate([split, known.page[moving]])

    def _rows(self, users: Sequence[str]) -> Ints:
        """Where users are among those that are known, after their pages were read."""
        rows = self._known.rows(users)
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            names = [users[i] for i in missing.tolist()]
            self._read(np.unique(_pages_of(names, _page_count(self._users))).tolist())
            rows[missing] = self._known.rows(names)
        return rows

    def _read(self, numbers: Iterable[int]) -> None:
        """Read pages, except those that were read before."""
        pages: dict[int, _Page] = {}
        for number in numbers:
            if number not in self._pages:
                self._pages.add(number)
                value = self._state.getValue((number,))
                if value is not None:
                    pages[number] = _Page.from_bytes(value[0], self._records)
        if not pages:
            return
        records = np.concatenate([page.records for page in pages.values()])
        page_of_each = np.repeat([*pages], [len(page.users) for page in pages.values()])
        names = [user for page in pages.values() for user in page.users]
        self._known.add(names, page_of_each, records)

    def _write(self, numbers: Ints) -> None:
        """Write these pages, all of whose users are known."""
        rows = np.flatnonzero(np.isin(self._known.page, numbers))
        rows = rows[np.argsort(self._known.page[rows], kind="stable")]
        records, page = self._known.records[rows], self._known.page[rows]
        differences = _Differences.of(records)
        first, last = (np.searchsorted(page, numbers, side) for side in ("left", "right"))
        for number, begin, end in zip(numbers.tolist(), first.tolist(), last.tolist(), strict=True):
            users = [self._known.names[i] for i in rows[begin:end].tolist()]
            own = differences.to_bytes(begin, end)
            written = _Page.to_bytes(self._records.number, users, own)
            self._state.updateValue((number,), (written,))


def groups(numbers: Ints) -> Iterator[tuple[int, Ints]]:
    """Each number that is there, and where it is."""
    order = np.argsort(numbers, kind="stable")
    different, begins = np.unique(numbers[order], return_index=True)
    yield from zip(different.tolist(), np.split(order, begins[1:]), strict=False)


def _page_count(users: int) -> int:
    return max(1, -(-users // _USERS_PER_PAGE))


def _split_pages(before: int, after: int) -> set[int]:
    """Of the pages that there were, those from which users move to new ones."""
    olds = {new - (1 << (new.bit_length() - 1)) for new in range(before, after)}
    return {old for old in olds if old < before}


def _pages_of(users: Sequence[str], count: int) -> Ints:
    """The page of each user if there are so many: a page is split without moving the others."""
    if count == 1:
        return np.zeros(len(users), dtype=np.int64)
    hashes = np.fromiter(map(zlib.crc32, map(str.encode, users)), np.int64, len(users))
    half = 1 << (count.bit_length() - 1)
    number = hashes % (2 * half)
    return np.where(number < count, number, number % half)
