"""Which columns of a file are read, by their names, and how the output names them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from hereish.errors import ParameterError

NO_USER = ""  # in place of the name of the user column: read none, even if there is one
# The usual names of columns. A plain `id` is not among them: it may number the rows, and then each
# row would be a user with a budget of its own.
USUAL_NAMES = {
    "user": ("user", "user_id", "userid", "uid"),
    "trace": ("trace", "trace_id", "track", "track_id", "trajectory", "trajectory_id", "trip"),
    "time": ("time", "timestamp", "at", "datetime", "date_time", "t"),
    "lat": ("lat", "latitude"),
    "lon": ("lon", "lng", "long", "longitude"),
}


@dataclass(frozen=True)
class Columns:
    """The columns to read. Where a name is None, a column with a usual name is taken, if any."""

    user: str | None = None
    trace: str | None = None
    time: str | None = None
    lat: str | None = None
    lon: str | None = None
    keep: tuple[str, ...] = ()
    zone: ZoneInfo | None = None  # of times without an offset from UTC; UTC if None

    def find(self, role: str, available: Sequence[str]) -> str | None:
        """The name of the column for user, trace, time, lat or lon; None if there is none."""
        wanted: str | None = getattr(self, role)
        if wanted == NO_USER:
            return None
        if wanted is not None:
            if wanted not in available:
                raise ParameterError(
                    f"there is no column {wanted!r}; found {describe_names(available)}"
                )
            return wanted
        usual = [name for name in available if name.strip().lower() in USUAL_NAMES[role]]
        if len(usual) > 1:
            raise ParameterError(f"which is it, {describe_names(usual)}? Say so with --{role}")
        return usual[0] if usual else None

    def require(self, role: str, available: Sequence[str]) -> str:
        """The same where there must be one."""
        name = self.find(role, available)
        if name is None:
            raise ParameterError(
                f"no column is called {' or '.join(USUAL_NAMES[role])}; give --{role}, one of "
                f"{describe_names(available)}"
            )
        return name

    def find_all(self, available: Sequence[str], required: Sequence[str]) -> dict[str, str]:
        """The name of each role's column in a table; user and trace may be missing.

        Raises if a column to keep is missing, or if two roles would read the same column.
        """
        different = list(dict.fromkeys(available))
        optional = {role: self.find(role, different) for role in ("user", "trace")}
        names = {role: name for role, name in optional.items() if name is not None}
        names |= {role: self.require(role, different) for role in required}
        for name in self.keep:
            if name not in available:
                raise ParameterError(
                    f"there is no column {name!r} to keep; found {describe_names(available)}"
                )
        wanted = [*names.values(), *self.keep]
        if len(set(wanted)) < len(wanted):
            raise ParameterError(f"the columns {', '.join(map(repr, wanted))} must differ")
        for name in wanted:
            if available.count(name) > 1:
                raise ParameterError(
                    f"which is it? {available.count(name)} columns are called {name!r}"
                )
        return names


def describe_names(names: Sequence[str]) -> str:
    """Column names for an error message, without those that may be data rather than names."""
    safe = [repr(name) for name in names if _is_name(name)]
    if len(safe) < len(names):
        safe.append(f"{len(names) - len(safe)} that are not told, as they might be places")
    return ", ".join(safe) or "no columns at all"


def _is_name(name: str) -> bool:
    digits = sum(map(str.isdigit, name))
    return not digits or (digits <= 3 and name.isidentifier())


@dataclass(frozen=True)
class Layout:
    """How a file names its columns, so that the output can have the same ones."""

    user: str = "user"
    trace: str = "trace"
    time: str = "time"
    lat: str = "lat"
    lon: str = "lon"
    geometry: str | None = None  # the column of points, where there is one instead of lat and lon
    numbered: bool = False  # trace ids that are ints are numbers within the file, not given ids
    lines: bool = False  # GeoJSON: one LineString per trace, not one Point per report
    types: Mapping[str, Any] = field(default_factory=dict)  # Arrow types, by column
