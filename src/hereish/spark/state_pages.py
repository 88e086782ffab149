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

_USERS_PER_PAGE = 256
_VERSION = 3  # also of how users are shared out over the pages
# The version, the number of the mechanism with its windows, the users, and the length of the names.
_HEADER = struct.Struct("<BqII")
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


class _Page(NamedTuple):
    """Users, and of the words of their records those that are not 0, with a bit for each word."""

    users: list[str]
    masks: bytes
    words: bytes

    def to_bytes(self, mechanism: int) -> bytes:
        names = json.dumps(self.users).encode()
        header = _HEADER.pack(_VERSION, mechanism, len(self.users), len(names))
        return b"".join((header, names, self.masks, self.words))

    @classmethod
    def from_bytes(cls, written: bytes, records: StandingRecords) -> _Page:
        if len(written) < _HEADER.size:
            raise StateError(_DAMAGED)
        version, number, count, length = _HEADER.unpack_from(written)
        if version == _VERSION and number != records.number:
            raise StateError(_OTHER)
        names = _HEADER.size + length
        end = names + count * records.words // _BITS
        try:
            users = json.loads(written[_HEADER.size : names]) if version == _VERSION else []
        except ValueError:
            users = []
        masks = written[names:end]
        there = int.from_bytes(masks, "little").bit_count()
        if version != _VERSION or len(users) != count or len(written) != end + 8 * there:
            raise StateError(_DAMAGED)
        return cls(users, masks, written[end:])


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
        masks = np.frombuffer(b"".join(page.masks for page in pages.values()), dtype=np.uint8)
        there = np.unpackbits(masks).view(np.bool_).reshape(-1, self._records.words)
        records = np.zeros(there.shape, dtype="<u8")
        records[there] = np.frombuffer(b"".join(page.words for page in pages.values()), "<u8")
        page_of_each = np.repeat([*pages], [len(page.users) for page in pages.values()])
        names = [user for page in pages.values() for user in page.users]
        self._known.add(names, page_of_each, records)

    def _write(self, numbers: Ints) -> None:
        """Write these pages, all of whose users are known."""
        rows = np.flatnonzero(np.isin(self._known.page, numbers))
        rows = rows[np.argsort(self._known.page[rows], kind="stable")]
        records, page = self._known.records[rows], self._known.page[rows]
        there = records != 0
        masks, words = np.packbits(there, axis=1), records[there]
        ends = np.append(0, np.cumsum(np.count_nonzero(there, axis=1)))
        first, last = (np.searchsorted(page, numbers, side) for side in ("left", "right"))
        for number, begin, end in zip(numbers.tolist(), first.tolist(), last.tolist(), strict=True):
            users = [self._known.names[i] for i in rows[begin:end].tolist()]
            own = words[ends[begin] : ends[end]]
            written = _Page(users, masks[begin:end].tobytes(), own.tobytes())
            self._state.updateValue((number,), (written.to_bytes(self._records.number),))


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
