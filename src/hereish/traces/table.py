"""What readers hand on and writers take: some rows of a file, as columns.

A reader is a function `read(source, columns)` that yields a `Piece` at a time, small enough for
memory however large the file is. It marks rows that cannot be used with a `Fault` and goes on; it
raises `Unreadable` where the rest of the file makes no sense. It never repeats a place in words.
A writer is made by `writer(file, layout, promise)`, takes `Released` rows, and is finished once.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from hereish.core.types import Bools, Floats, Ints
from hereish.errors import HereishError, ParameterError

PIECE_ROWS = 1 << 20  # most rows of a piece
KINDS = ("hard", "easy", "untested")
Rows: TypeAlias = Ints | Bools | slice


NOBODY = ""  # in place of a column of users: take none, even if there is one
# The usual names of columns. A plain `id` is not among them: it may number the rows, and then each
# row would be a user with a budget of its own.
USUAL = {
    "user": ("user", "user_id", "userid", "uid"),
    "trace": ("trace", "trace_id", "track", "track_id", "trajectory", "trajectory_id", "trip"),
    "time": ("time", "timestamp", "at", "datetime", "date_time", "t"),
    "lat": ("lat", "latitude"),
    "lon": ("lon", "lng", "long", "longitude"),
}


class Fault(enum.IntEnum):
    """Why a row cannot be used. FAULTS has the words."""

    NONE = 0
    LINE = 1
    USER = 2
    TIME = 3
    ZONE = 4
    LAT = 5
    LON = 6
    LAT_RANGE = 7
    LON_RANGE = 8
    SWAPPED = 9
    JUMP = 10
    ORDER = 11
    TWICE = 12
    YEAR = 13


FAULTS = {
    Fault.LINE: "it cannot be read",
    Fault.USER: "it has no user",
    Fault.TIME: "it has no time, or none that can be read",
    Fault.ZONE: "its time does not say its offset from UTC, and most others in its file do",
    Fault.LAT: "its latitude is missing or not a number",
    Fault.LON: "its longitude is missing or not a number",
    Fault.LAT_RANGE: "its latitude is outside -90 to 90",
    Fault.LON_RANGE: "its longitude is outside -180 to 180",
    Fault.SWAPPED: "its latitude is outside -90 to 90: are latitude and longitude swapped?",
    Fault.YEAR: "its time is outside the years 1900 to 2400",
    Fault.JUMP: "its clock jumps: it is years away from the other points of its trace",
    Fault.ORDER: "its time is out of order among the points of its trace",
    Fault.TWICE: "its time is the same as that of the point before it in its trace",
}


class Unreadable(HereishError, ValueError):  # noqa: N818  # it describes the file, as the others do
    """From here on a file makes no sense. Says the line, if there is one, never what is in it."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(why, line)
        self.why = why
        self.line = line

    def __str__(self) -> str:
        return self.why if self.line is None else f"line {self.line}: {self.why}"


@dataclass(frozen=True)
class Columns:
    """What to look for in a file. A name that is None is found by the usual names, if any."""

    user: str | None = None
    trace: str | None = None
    time: str | None = None
    lat: str | None = None
    lon: str | None = None
    keep: tuple[str, ...] = ()
    zone: ZoneInfo | None = None  # of times that do not say theirs; UTC if None

    def find(self, role: str, available: Sequence[str]) -> str | None:
        """The name of the column for user, trace, time, lat or lon; None if there is none."""
        wanted: str | None = getattr(self, role)
        if wanted == NOBODY:
            return None
        if wanted is not None:
            if wanted not in available:
                raise ParameterError(f"there is no column {wanted!r}; found {listed(available)}")
            return wanted
        usual = [name for name in available if name.strip().lower() in USUAL[role]]
        if len(usual) > 1:
            raise ParameterError(f"which is it, {listed(usual)}? Say so with --{role}")
        return usual[0] if usual else None

    def need(self, role: str, available: Sequence[str]) -> str:
        """The same where there must be one."""
        found = self.find(role, available)
        if found is None:
            raise ParameterError(
                f"no column is called {' or '.join(USUAL[role])}; give --{role}, one of "
                f"{listed(available)}"
            )
        return found


def listed(names: Sequence[str]) -> str:
    """Names of columns for an error, without those that look as if they were data and no names."""
    told = [repr(name) for name in names if _is_name(name)]
    if len(told) < len(names):
        told.append(f"{len(names) - len(told)} that are not told, as they might be places")
    return ", ".join(told) or "no columns at all"


def _is_name(name: str) -> bool:
    digits = sum(map(str.isdigit, name))
    return not digits or (digits <= 3 and name.isidentifier())


@dataclass(frozen=True)
class Layout:
    """How a file names its columns, so that a table comes out as it went in."""

    user: str = "user"
    trace: str = "trace"
    time: str = "time"
    lat: str = "lat"
    lon: str = "lon"
    geometry: str | None = None  # the column of points, where there is one instead of lat and lon
    numbered: bool = False  # ids of traces that are ints are numbers in the file, and not given
    lines: bool = False  # GeoJSON: one LineString a trace, not one Point a report
    types: Mapping[str, Any] = field(default_factory=dict)  # Arrow's, by column


class Ids(NamedTuple):
    """A column with few different values: the number of each row's, and the values, as given."""

    codes: Ints
    names: Sequence[Any]  # str or int, all different

    @classmethod
    def of(cls, values: Sequence[Any]) -> Ids:
        """Ids from the value of each row."""
        numbers: dict[Any, int] = {}
        codes = [numbers.setdefault(value, len(numbers)) for value in values]
        return cls(np.array(codes, dtype=np.int64), list(numbers))

    def take(self, rows: Rows) -> Ids:
        return Ids(self.codes[rows], self.names)

    def values(self) -> list[Any]:
        """The value of each row."""
        return [self.names[code] for code in self.codes.tolist()]


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows of one file in its order. Holds secrets: it has no repr that shows them."""

    line: Ints  # where each row stands in its file, counted as people do; errors name it
    at_us: Ints  # microseconds since 1970 in UTC
    lat: Floats  # degrees
    lon: Floats
    fault: NDArray[np.uint8]  # of Fault; where it is not NONE the other columns mean nothing
    user: Ids | None = None  # None: the file tells no users, all rows are one person's
    trace: Ids | None = None
    kept: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    done: float = 1.0  # how much of the file has been read, for progress

    def __len__(self) -> int:
        return len(self.at_us)

    def __repr__(self) -> str:
        return f"<Piece of {len(self)} rows>"

    def take(self, rows: Ints | Bools) -> Piece:
        """These rows only."""
        return dataclasses.replace(
            self,
            line=self.line[rows],
            at_us=self.at_us[rows],
            lat=self.lat[rows],
            lon=self.lon[rows],
            fault=self.fault[rows],
            user=self.user and self.user.take(rows),
            trace=self.trace and self.trace.take(rows),
            kept={name: column[rows] for name, column in self.kept.items()},
        )


@dataclass(frozen=True, eq=False)
class Released:
    """Rows that may be public, and nothing else."""

    at_us: Ints
    lat: Floats
    lon: Floats
    kind: NDArray[np.uint8]  # numbers into KINDS
    cost: Floats
    user: Ids | None = None
    trace: Ids | None = None
    kept: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.at_us)

    def take(self, rows: Rows) -> Released:
        """These rows only."""
        return Released(
            self.at_us[rows],
            self.lat[rows],
            self.lon[rows],
            self.kind[rows],
            self.cost[rows],
            self.user and self.user.take(rows),
            self.trace and self.trace.take(rows),
            {name: column[rows] for name, column in self.kept.items()},
        )


def joined(parts: Sequence[Released]) -> Released:
    """Rows after each other, by their columns alone: ids are not joined, as files number theirs."""
    names = list(dict.fromkeys(name for part in parts for name in part.kept))
    kept = {name: np.empty(sum(map(len, parts)), dtype=object) for name in names}
    for name, column in kept.items():
        column[:] = [
            value
            for part in parts
            for value in (part.kept[name].tolist() if name in part.kept else [None] * len(part))
        ]
    return Released(
        at_us=np.concatenate([part.at_us for part in parts]),
        lat=np.concatenate([part.lat for part in parts]),
        lon=np.concatenate([part.lon for part in parts]),
        kind=np.concatenate([part.kind for part in parts]),
        cost=np.concatenate([part.cost for part in parts]),
        kept=kept,
    )


def joined_pieces(parts: Sequence[Piece]) -> Piece:
    """Pieces as one, of the layout that the first has."""
    names = list(dict.fromkeys(name for part in parts for name in part.kept))
    return Piece(
        line=np.concatenate([part.line for part in parts]),
        at_us=np.concatenate([part.at_us for part in parts]),
        lat=np.concatenate([part.lat for part in parts]),
        lon=np.concatenate([part.lon for part in parts]),
        fault=np.concatenate([part.fault for part in parts]),
        user=_joined_ids([part.user for part in parts], list(map(len, parts))),
        trace=_joined_ids([part.trace for part in parts], list(map(len, parts))),
        kept={name: np.concatenate([part.kept[name] for part in parts]) for name in names},
        layout=parts[0].layout,
    )


def _joined_ids(columns: Sequence[Ids | None], lengths: Sequence[int]) -> Ids | None:
    if all(ids is None for ids in columns):
        return None
    values: list[object] = []
    for ids, length in zip(columns, lengths, strict=True):
        values += [None] * length if ids is None else ids.values()
    return Ids.of(values)


@dataclass(frozen=True)
class Promise:
    """What was promised for the rows of an output; all of it is public settings."""

    guarantee: str  # a sentence
    private: bool = True
    eps_per_m: float | None = None  # the budget of a window
    window: str = "none"  # none, day or trace
    time_zone: str | None = None  # whose days they are

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def read(cls, told: object) -> Promise | None:
        """From what a file says; None if that makes no sense."""
        kinds: dict[str, tuple[type, ...]] = {
            "guarantee": (str,),
            "private": (bool,),
            "eps_per_m": (float, type(None)),
            "window": (str,),
            "time_zone": (str, type(None)),
        }
        if not isinstance(told, dict) or told.keys() != kinds.keys():
            return None
        sound = all(isinstance(told[name], kind) for name, kind in kinds.items())
        eps = told["eps_per_m"]
        return cls(**told) if sound and (eps is None or 0.0 < eps < math.inf) else None


class Writer(Protocol):
    """Takes released rows in any number of calls; the file is whole after `finish`."""

    def write(self, rows: Released) -> None: ...

    def finish(self) -> None: ...
