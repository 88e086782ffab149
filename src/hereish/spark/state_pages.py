"""Where the users of a bucket stand, as the state of a stream: pages of a few users each.

Each access of Python to Spark's state is a message to another process, which costs more than a
report. A page for all users would be rewritten for each of them, so that pages are split as users
are added, one at a time (linear hashing), and stay about as large. All of it is public: what was
released and what it cost, and no point that was reported.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.run import Run
from hereish.core.types import Ints
from hereish.core.validation import run_fault
from hereish.core.windows import NoReset
from hereish.errors import StateError
from hereish.traces.standing import Standing

_USERS_PER_PAGE = 32
_VERSION = 1
# The version, the number of the mechanism with its windows, and the length of the names.
_HEADER = struct.Struct("<BqI")
_DAMAGED = "the stream's state is damaged, or of another version of hereish; nothing was released"
_OTHER = (
    "the stream was begun with another mechanism, and budgets that are in use cannot be changed; "
    "nothing was released"
)
Records = NDArray[Any]


class MapState(Protocol):
    """What is used of Spark's map states."""

    def getValue(  # noqa: N802  # Spark's name
        self, key: tuple[Any, ...]
    ) -> tuple[Any, ...] | None: ...

    def updateValue(  # noqa: N802  # Spark's name
        self, key: tuple[Any, ...], value: tuple[Any, ...]
    ) -> None: ...


class StandingRecords:
    """Where users stand as records of fixed size, for one mechanism."""

    def __init__(self, mechanism: PredictiveMechanism) -> None:
        self.number = mechanism.number
        self.lane_mechanism = dataclasses.replace(mechanism, window=NoReset())
        run = zip(Run._fields, self.lane_mechanism.run(0), strict=True)
        fields = [(name, field.dtype.newbyteorder("<"), field.shape[1:]) for name, field in run]
        self.kind = np.dtype([("window", "<i8"), ("last_us", "<i8"), ("run", fields)])

    def write(self, standing: Standing) -> Records:
        records = np.empty(len(standing.lane), dtype=self.kind)
        records["window"] = [int(lane.partition(" ")[0]) for lane in standing.lane]
        records["last_us"] = standing.last_us
        for name, field in zip(Run._fields, standing.run, strict=True):
            records["run"][name] = field
        return records

    def read(self, users: Sequence[str], records: Records) -> Standing:
        """Raises StateError for what cannot have been written for this mechanism."""
        fields: list[Any] = [
            records["run"][name].astype(field.dtype)
            for name, field in zip(Run._fields, self.lane_mechanism.run(0), strict=True)
        ]
        run = Run(*fields).frozen()
        wrong = run_fault(self.lane_mechanism, run) if len(users) else None
        if wrong is not None:
            raise StateError(f"the stream's state cannot be used: {wrong}; nothing was released")
        windows = records["window"].tolist()
        lanes = [f"{window} {user}" for window, user in zip(windows, users, strict=True)]
        return Standing(lanes, records["last_us"].astype(np.int64), run)


class _Page(NamedTuple):
    users: list[str]
    records: Records

    def to_bytes(self, mechanism: int) -> bytes:
        names = json.dumps(self.users).encode()
        return _HEADER.pack(_VERSION, mechanism, len(names)) + names + self.records.tobytes()

    @classmethod
    def from_bytes(cls, written: bytes, mechanism: int, kind: np.dtype[Any]) -> _Page:
        if len(written) < _HEADER.size:
            raise StateError(_DAMAGED)
        version, number, length = _HEADER.unpack_from(written)
        if version == _VERSION and number != mechanism:
            raise StateError(_OTHER)
        end = _HEADER.size + length
        try:
            users = json.loads(written[_HEADER.size : end]) if version == _VERSION else None
        except ValueError:
            users = None
        if users is None or len(written) != end + len(users) * kind.itemsize:
            raise StateError(_DAMAGED)
        return cls(users, np.frombuffer(written, dtype=kind, offset=end).copy())


class StatePages:
    """Where the users of one bucket stand, in Spark's state."""

    KEY, VALUE = "page INT", "users BINARY"
    _COUNT = (-1,)  # the key of the number of users
    _KEY_CHECK = (-2,)  # and of what tells which key noise is derived from

    def __init__(self, records: StandingRecords, state: MapState, key_check: bytes = b"") -> None:
        self._records, self._state = records, state
        self._pages: dict[int, _Page] = {}  # those that were read
        begun = state.getValue(self._KEY_CHECK)
        if begun is None:
            state.updateValue(self._KEY_CHECK, (key_check,))
        elif bytes(begun[0]) != key_check:
            raise StateError(
                "the stream was begun with another key, and a micro-batch that is run again would "
                "be a second release; nothing was released"
            )
        counted = state.getValue(self._COUNT)
        self._users = 0 if counted is None else int.from_bytes(counted[0], "little")

    def load(self, users: Sequence[str]) -> Standing:
        standing = Standing.empty(self._records.lane_mechanism, len(users))
        numbers = _pages_of(users, _page_count(self._users))
        pages = [self._page(number) for number in np.unique(numbers).tolist()]
        row_of = {
            user: row for row, user in enumerate(name for page in pages for name in page.users)
        }
        known = [i for i, user in enumerate(users) if user in row_of]
        if known:
            names = [users[i] for i in known]
            joined = b"".join(page.records.tobytes() for page in pages)
            kept = np.frombuffer(joined, dtype=self._records.kind)[[row_of[name] for name in names]]
            standing.put(np.array(known, dtype=np.int64), self._records.read(names, kept))
        return standing

    def save(self, users: Sequence[str], standing: Standing) -> None:
        records = self._records.write(standing)
        changed: set[int] = set()
        before = self._users
        for number, rows in groups(_pages_of(users, _page_count(before))):
            self._users += self._put(number, [users[i] for i in rows.tolist()], records[rows])
            changed.add(number)
        if self._users > before:
            self._state.updateValue(self._COUNT, (self._users.to_bytes(8, "little"),))
            changed |= self._split(_page_count(before))
        for number in sorted(changed):
            self._state.updateValue(
                (number,), (self._pages[number].to_bytes(self._records.number),)
            )

    def _page(self, number: int) -> _Page:
        if number not in self._pages:
            value, records = self._state.getValue((number,)), self._records
            self._pages[number] = (
                _Page([], np.empty(0, dtype=records.kind))
                if value is None
                else _Page.from_bytes(value[0], records.number, records.kind)
            )
        return self._pages[number]

    def _put(self, number: int, users: Sequence[str], records: Records) -> int:
        """Write where users of a page stand; how many are new to it."""
        page = self._page(number)
        row_of = {user: row for row, user in enumerate(page.users)}
        known = np.array([user in row_of for user in users])
        page.records[[row_of[user] for user in users if user in row_of]] = records[known]
        new = [user for user in users if user not in row_of]
        if new:
            joined = np.concatenate([page.records, records[~known]])
            self._pages[number] = _Page([*page.users, *new], joined)
        return len(new)

    def _split(self, count: int) -> set[int]:
        """As many pages as there ought to be, instead of `count`; those that have changed."""
        changed: set[int] = set()
        for new in range(count, _page_count(self._users)):
            old = new - (1 << (new.bit_length() - 1))
            users, records = self._page(old)
            moves = _pages_of(users, new + 1) == new
            for number, chosen in ((old, np.flatnonzero(~moves)), (new, np.flatnonzero(moves))):
                names = [users[i] for i in chosen.tolist()]
                self._pages[number] = _Page(names, records[chosen])
            changed |= {old, new}
        return changed


def groups(numbers: Ints) -> Iterator[tuple[int, Ints]]:
    """Each number that is there, and where it is."""
    order = np.argsort(numbers, kind="stable")
    different, begins = np.unique(numbers[order], return_index=True)
    yield from zip(different.tolist(), np.split(order, begins[1:]), strict=False)


def _page_count(users: int) -> int:
    return max(1, -(-users // _USERS_PER_PAGE))


def _pages_of(users: Sequence[str], count: int) -> Ints:
    """The page of each user if there are so many: a page is split without moving the others."""
    hashes = np.array([zlib.crc32(user.encode()) for user in users], dtype=np.int64)
    half = 1 << (count.bit_length() - 1)
    number = hashes % (2 * half)
    return np.where(number < count, number, number % half)
