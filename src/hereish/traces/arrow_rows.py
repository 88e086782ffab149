"""Rows of sorted Arrow batches as the step takes them: read, checked and cut into lanes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.types import Bools, Floats, Ints
from hereish.errors import ParameterError, PartError, PointError
from hereish.traces.budgets import EachTrace
from hereish.traces.faults import Fault, Faults
from hereish.traces.names import canonical_name
from hereish.traces.validate import place_and_time_faults

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as missing:
    raise ImportError("Arrow batches need more: pip install 'hereish[parquet]'") from missing

_MICROSECONDS = {"s": 1_000_000, "ms": 1000, "us": 1}


@dataclasses.dataclass(frozen=True)
class ArrowColumns:
    """What the columns are called. `trace`, `order` and `keep` are public, and passed on as given.

    Rows of one user at one time are taken by `order` where there is one, then by the kept columns,
    then by a keyed hash: never in the order in which they happened to come. `granted` says in each
    row of a user what may be spent of which windows, as a list of structs with fields `window` and
    `eps`; of windows that are not in it, nothing.
    """

    user: str
    time: str
    lat: str
    lon: str
    trace: str | None = None
    order: str | None = None
    keep: tuple[str, ...] = ()
    granted: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", tuple(self.keep))
        for name in self.read:
            if not isinstance(name, str):
                raise ParameterError(f"columns have names, found {type(name).__name__}")
        if self.order in (self.lat, self.lon):
            raise ParameterError("order must be a public column, found a column of the places")
        written = [*self.public, self.lat, self.lon]
        if len(set(written)) < len(written) or {"kind", "cost"} & set(written):
            raise ParameterError(
                f"the columns {', '.join(written)} must differ, and 'kind' and 'cost' are taken"
            )

    @property
    def public(self) -> tuple[str, ...]:
        """Those that come out as they went in."""
        return tuple(n for n in (self.user, self.time, self.trace, *self.keep) if n is not None)

    @property
    def read(self) -> tuple[str, ...]:
        """Those that go in."""
        others = [n for n in (self.order, self.granted) if n is not None and n not in self.public]
        return (*self.public, self.lat, self.lon, *others)

    @property
    def released(self) -> tuple[str, ...]:
        """Those that come out, in their order."""
        trace = () if self.trace is None else (self.trace,)
        return (self.user, self.time, *trace, self.lat, self.lon, "kind", "cost", *self.keep)

    def schema(self, given: pa.Schema) -> pa.Schema:
        """Of what comes out of batches with the schema `given`."""
        for name in self.read:
            if given.get_field_index(name) < 0:
                found = ", ".join(map(repr, given.names))
                raise ParameterError(f"there is no column {name!r}, or several; found {found}")
        made = {self.lat: pa.float64(), self.lon: pa.float64()}
        made |= {"kind": pa.string(), "cost": pa.float64()}
        return pa.schema(
            [(name, made.get(name) or given.field(name).type) for name in self.released]
        )


def check_keyed(mechanism: PredictiveMechanism, columns: ArrowColumns) -> None:
    """Refuse a mechanism that cannot be used with batches, before any is read."""
    names = [coordinate.name for coordinate in mechanism.space.coordinates]
    if names != ["latitude", "longitude"]:
        raise ParameterError(
            f"batches hold latitudes and longitudes; the mechanism's space has {', '.join(names)}"
        )
    if isinstance(mechanism.window, EachTrace) and columns.trace is None:
        raise ParameterError("a budget per trace needs the column of the traces")
    if not mechanism.fingerprint:  # raises for parts that keyed draws cannot tell apart
        raise PartError("the mechanism has no fingerprint")


def canonical_users(users: pa.Array) -> pa.Array:
    """Users in the one spelling that has a budget, as texts: do this before rows are sorted."""
    encoded = pc.dictionary_encode(users)
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    spelt = [None if n is None else canonical_name(n) for n in encoded.dictionary.to_pylist()]
    return pa.array(spelt, pa.string()).take(encoded.indices)


class OrderedRows(NamedTuple):
    """Valid rows as the step takes them, sorted by user and time. They are secret."""

    user: Ints  # its number among `users`
    users: pa.Array
    trace: Ints  # with a budget per trace, its number among `traces`; else 0
    traces: pa.Array | None
    ticks: Ints  # the time as it is in the column
    micros: Ints
    at_s: Floats
    points: Floats
    window: Ints
    new_moment: Bools  # the row before is of another user or time
    falls: bool  # somewhere time, or the number of the window, goes back
    granted: pa.Array | None = None  # for each of `users`: what may be spent of which windows

    def owners(self) -> list[pa.Array]:
        """Who has a budget, in the order of the rows: users, or users and their traces."""
        if self.traces is None:
            return [self.users]
        changes = np.flatnonzero((np.diff(self.user) != 0) | (np.diff(self.trace) != 0)) + 1
        rows = np.append(0, changes)
        return [
            self.users.take(pa.array(self.user[rows])),
            self.traces.take(pa.array(self.trace[rows])),
        ]

    def names(self) -> list[str]:
        """Users as texts."""
        names: list[str] = pc.cast(self.users, pa.string()).to_pylist()
        return names

    def take(self, chosen: Ints) -> OrderedRows:
        columns = {name: getattr(self, name)[chosen] for name in _PER_ROW}
        return self._replace(**columns)

    def first(self, count: int) -> OrderedRows:
        """The first rows; users that only the others have are left out."""
        columns = {name: getattr(self, name)[:count] for name in _PER_ROW}
        users = slice(int(columns["user"][-1]) + 1)
        granted = None if self.granted is None else self.granted[users]
        return self._replace(**columns, users=self.users[users], granted=granted)


_PER_ROW = ("user", "trace", "ticks", "micros", "at_s", "points", "window", "new_moment")


def read_rows(
    table: pa.Table, columns: ArrowColumns, mechanism: PredictiveMechanism
) -> OrderedRows:
    """The rows of a table of valid ones."""
    user, users = _runs_of(table[columns.user])
    ticks, micros = _times(table[columns.time])
    at_s: Floats = np.asarray(micros * 1e-6, dtype=np.float64)
    points = np.column_stack(
        [pc.cast(table[name], pa.float64()).to_numpy() for name in (columns.lat, columns.lon)]
    )
    trace, traces = np.zeros(len(user), dtype=np.int64), None
    if isinstance(mechanism.window, EachTrace):
        if table[str(columns.trace)].null_count:
            raise PointError(f"a row has no {columns.trace}; nothing of its batch was released")
        trace, traces = _runs_of(table[str(columns.trace)])
    window = mechanism.window.index(at_s)
    numbers = np.zeros(len(user), dtype=np.int64) if window is None else np.asarray(window)
    same = (user[1:] == user[:-1]) & (trace[1:] == trace[:-1])
    falls = same & ((ticks[1:] < ticks[:-1]) | (numbers[1:] < numbers[:-1]))
    new = np.append(True, ~(same & (ticks[1:] == ticks[:-1])))
    granted = None
    if columns.granted is not None:
        first = np.flatnonzero(np.diff(user, prepend=-1))
        granted = table[columns.granted].take(pa.array(first)).combine_chunks()
    return OrderedRows(
        *(user, users, trace, traces, ticks, micros, at_s, points, numbers, new),
        falls=bool(falls.any()),
        granted=granted,
    )


def _runs_of(column: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """A number for each run of equal values, and their values: much quicker than for each value."""
    values = column.combine_chunks()
    changes = pc.not_equal(values[1:], values[:-1]).to_numpy(zero_copy_only=False)
    begins = np.append(0, np.flatnonzero(changes) + 1)
    number = np.zeros(len(values), dtype=np.int64)
    number[begins[1:]] = 1
    return np.cumsum(number), values.take(pa.array(begins))


def _times(column: pa.ChunkedArray) -> tuple[Ints, Ints]:
    ticks = pc.cast(column, pa.int64()).to_numpy()
    unit = column.type.unit
    return ticks, ticks // 1000 if unit == "ns" else ticks * _MICROSECONDS[unit]


def lane_starts(rows: OrderedRows) -> Ints:
    """The first row of each lane: of a user and window, or of a user and trace."""
    user, trace, window = rows.user, rows.trace, rows.window
    changes = (np.diff(user) != 0) | (np.diff(trace) != 0) | (np.diff(window) != 0)
    return np.append(0, np.flatnonzero(changes) + 1)


def lane_names(rows: OrderedRows, lanes: Ints) -> list[str]:
    """The lanes as the draws know them: as in files and frames."""
    users = pc.cast(rows.users.take(pa.array(rows.user[lanes])), pa.string())
    if rows.traces is not None:
        traces = rows.traces.take(pa.array(rows.trace[lanes])).to_pylist()
        both = zip(users.to_pylist(), traces, strict=True)
        users = pa.array([f"{len(user)} {user}::{trace}" for user, trace in both], pa.string())
    windows = pc.cast(pa.array(rows.window[lanes]), pa.string())
    names: list[str] = pc.binary_join_element_wise(windows, users, " ").to_pylist()
    return names


def lane_keys(rows: OrderedRows, lanes: Ints) -> NDArray[np.object_]:
    """What tells the lanes of a user from each other: the window, or the trace."""
    if rows.traces is None:
        return rows.window[lanes].astype(object)
    return np.array([*lane_names(rows, lanes), None])[:-1]  # texts of Python, of any length


def lane_grants(rows: OrderedRows, lanes: Ints) -> Floats | None:
    """What may be spent in each lane; None: a whole budget."""
    if rows.granted is None:
        return None
    listed = [_grants_of_one(grants or []) for grants in rows.granted.to_pylist()]
    keys = zip(rows.user[lanes].tolist(), rows.window[lanes].tolist(), strict=True)
    return np.array([listed[user].get(window) or 0.0 for user, window in keys])


def _grants_of_one(grants: Sequence[dict[str, Any]]) -> dict[int, float]:
    """What a user may spend of each window."""
    found = {one["window"]: one["eps"] for one in grants}
    if len(found) < len(grants):
        # An engine does not say which is the last: computed again, it could be another release.
        raise PointError("a user's window was granted twice; nothing of its batch was released")
    return found


def sort_key(owner: Sequence[str | int]) -> list[Any]:
    """By which owners are sorted: texts by their bytes, as engines do."""
    return [
        name.encode(errors="surrogatepass") if isinstance(name, str) else name for name in owner
    ]


def rises(owners: Sequence[pa.Array]) -> bool:
    """Whether each owner comes after the one before: by user, then by trace."""
    later_than, same = None, None
    for names in owners:
        later, equal = pc.greater(names[1:], names[:-1]), pc.equal(names[1:], names[:-1])
        later_than = later if later_than is None else pc.or_(later_than, pc.and_(same, later))
        same = equal if same is None else pc.and_(same, equal)
    return bool(pc.all(later_than, min_count=0).as_py())


# Names that have one spelling, and are quickly known to: a letter and then anything printable, or
# a whole number that is not too long.
_PLAIN = r"^([A-Za-z_][!-~]*|0|[1-9][0-9]{0,14})$"


def is_canonical(names: pa.Array) -> bool:
    """Whether all names are in the spelling that has a budget."""
    if pa.types.is_integer(names.type):
        return True
    plain = pc.match_substring_regex(names, _PLAIN)
    others = names.filter(pc.invert(plain)).to_pylist()
    return all(canonical_name(name) == name for name in others)


def check_types(schema: pa.Schema, columns: ArrowColumns) -> None:
    """Refuse batches that lack a column, or have one that is not what it should be."""
    columns.schema(schema)  # all of them are there
    user, time = schema.field(columns.user).type, schema.field(columns.time).type
    text = pa.types.is_string(user) or pa.types.is_large_string(user)
    if not (text or pa.types.is_integer(user)):
        raise ParameterError(
            f"column {columns.user!r} must hold texts or whole numbers, found {user}"
        )
    if not pa.types.is_timestamp(time) or time.tz is None:
        raise ParameterError(
            f"column {columns.time!r} must hold times that say their zone, found {time}"
        )
    if columns.granted is not None:
        granted = schema.field(columns.granted).type
        listed = pa.types.is_list(granted) or pa.types.is_large_list(granted)
        if not (listed and pa.types.is_struct(granted.value_type)):
            raise ParameterError(
                f"column {columns.granted!r} must hold lists of structs with the fields window and "
                f"eps, found {granted}"
            )
    for name in (columns.lat, columns.lon):
        kind = schema.field(name).type
        numeric = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        if not (numeric or pa.types.is_integer(kind)):
            raise ParameterError(f"column {name!r} must hold numbers, found {kind}")


def find_faults(batch: pa.RecordBatch, columns: ArrowColumns) -> Faults | None:
    """Why each row cannot be used; None if all can."""
    missing = {
        Fault.USER: columns.user,
        Fault.TIME: columns.time,
        Fault.LAT: columns.lat,
        Fault.LON: columns.lon,
    }
    lat, lon = (
        pc.fill_null(pc.cast(batch[name], pa.float64()), np.nan).to_numpy(zero_copy_only=False)
        for name in (columns.lat, columns.lon)
    )
    _, micros = _times(pa.chunked_array([pc.fill_null(batch[columns.time], 0)]))
    fault = place_and_time_faults(lat, lon, micros)
    for code, name in missing.items():
        if batch[name].null_count:
            fault[batch[name].is_null().to_numpy(zero_copy_only=False)] = code
    return fault if fault.any() else None
