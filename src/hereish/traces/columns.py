"""Which columns of a file are read, by their names, and how the output names them again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from hereish.errors import ParameterError
from hereish.traces.column_names import (
    ROW_NUMBERS,
    SIDE_NAMES,
    USUAL_NAMES,
    find_known,
    known_names,
    normal_name,
    unit_in_name,
)

# What a column of places might be called whose name is not known: start_lat, geo, y_coord.
_LIKE_PLACE = re.compile(
    r".*(lat|latitude|lon|lng|longitude)(_.*)?|"
    r"(.*_)?(x|y|long|coord.*|geo|geo[mg].*|wk[tb]|gps.*|point|position|easting|northing)(_.*)?"
)
NO_USER = ""  # in place of the name of the user column: read none, even if there is one
# Names of columns that may say whose a row is, for hints.
_OWNER = re.compile(
    r"(.*_)?(id|ids|uuid|imei|imsi|mmsi|msisdn|vin|name|plate|(user|device|vehicle|phone|driver|taxi|"
    r"cab|car|bus|ship|vessel|truck|bike|animal|tag|tracker|person|people|participant|subject|"
    r"member|customer|who|owner|agent|unit|object|"
    r"fahrzeug|kennzeichen|(be)?nutzer|gerät|geraet|fahrer|teilnehmer|v[ée]hicule|utilisateur|"
    r"appareil|conducteur|veh[íi]culo|usuario|dispositivo|conductor|veicolo|utente|voertuig)"
    r"(_?(id|no|nr|number|name|code))?)"
)


class NoPlacesError(ParameterError):
    """A table none of whose columns looks like one of places: it may be of anything."""


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
    date: str | None = None  # of dates, where `time` has the clock alone
    point: str | None = None  # of points as WKT or WKB, in place of lat and lon
    time_format: str | None = None  # as `--time-format`; None: what can be told from the text
    coordinate_unit: str | None = None  # what numbers of places count; None: by the column's name
    keep_trace_names: bool | None = None  # publish the ids of traces as they are, not as numbers

    def find(self, role: str, available: Sequence[str]) -> str | None:
        """The name of the column for user, trace, time, lat or lon; None if there is none."""
        wanted: str | None = getattr(self, role)
        if wanted == NO_USER:
            return None
        if wanted is not None:
            if wanted not in available:
                raise self._missing(role, available)
            return wanted
        usual: Sequence[str] = find_known(role, available)
        if len(usual) > 1 and role in ("time", "date"):
            usual = self._without_local(role, usual, available)
        if len(usual) > 1:
            raise ParameterError(f"which is it, {describe_names(usual)}? Say so with --{role}")
        return usual[0] if usual else None

    def _without_local(
        self, role: str, names: Sequence[str], available: Sequence[str]
    ) -> Sequence[str]:
        """Of times, or of dates beside one, those that need no time zone, if there are any."""
        time = self.find("time", available) if role == "date" else self.time
        if time is not None and (role == "time" or self.time is not None or _is_local(time)):
            return names  # a date must be that of its time, and is not guessed
        return [name for name in names if not _is_local(name)] or names

    def find_time(self, available: Sequence[str]) -> str | None:
        """The column of times; that of dates, whose values must then tell the time of day."""
        time = self.find("time", available)
        if time is None and self.date is None:
            return self.find("date", available)
        return time

    def must_tell_time_of_day(self, name: str) -> bool:
        """Whether a column of times was taken by the name of one of dates."""
        dated = normal_name(name) in known_names("date")
        return dated and self.time is None and self.time_format is None

    def require(self, role: str, available: Sequence[str]) -> str:
        """The same where there must be one."""
        name = self.find(role, available)
        if name is None:
            raise self._missing(role, available)
        return name

    def _missing(self, role: str, available: Sequence[str]) -> ParameterError:
        wanted: str | None = getattr(self, role)
        if wanted is not None:
            return ParameterError(
                f"there is no column {wanted!r}; found {describe_names(available)}: give one of "
                f"these with --{role}"
            )
        return ParameterError(
            f"no column is called {' or '.join(USUAL_NAMES[role])}; give --{role}, one of "
            f"{describe_names(available)}{_remark(role, available)}"
        )

    def _may_have_places(self, available: Sequence[str]) -> bool:
        """Whether a column is one of places by its name, or might be."""
        given = {self.lat, self.lon, self.point}
        known = known_names("lat") | known_names("lon") | known_names("point")
        normal = {normal_name(name) for name in available}
        looks = any(map(_LIKE_PLACE.fullmatch, normal))
        return looks or not known.isdisjoint(normal) or not given.isdisjoint(available)

    def find_all(
        self,
        available: Sequence[str],
        required: Sequence[str],
        *,
        points: bool = False,
        dates: bool = False,
    ) -> dict[str, str]:
        """The name of each role's column in a table; user and trace may be missing.

        With `points` one column of points may stand for lat and lon; with `dates` the role `date`
        may be there, or a column of dates stand for the times. Raises if a column to keep
        is missing, or if two roles would read the same column.
        """
        options = (("--date", self.date, dates), ("--point", self.point, points))
        for option, name, possible in options:
            if name is not None and not possible:
                raise ParameterError(
                    f"{option} is for CSV, TSV and Parquet: save it as one of these, or leave out "
                    f"{option}"
                )
        different = list(dict.fromkeys(available))
        if "lat" in required and not self._may_have_places(different):
            roles = ("lat", "lon", "point")
            role = next((role for role in roles if getattr(self, role) is not None), "lat")
            raise NoPlacesError(str(self._missing(role, different)))
        optional = {role: self.find(role, different) for role in ("user", "trace")}
        names = {role: name for role, name in optional.items() if name is not None}
        point = self._find_point(different) if points else None
        if point is not None:
            names["point"] = point
            required = [role for role in required if role not in ("lat", "lon")]
        if dates and "time" in required and (time := self.find_time(different)) is not None:
            names["time"] = time
            required = [role for role in required if role != "time"]
        names |= {role: self.require(role, different) for role in required}
        if dates:
            date = self.find("date", different)
            if date is not None and (self.date is not None or date not in names.values()):
                names["date"] = date
        for name in self.keep:
            if name not in available:
                raise ParameterError(
                    f"there is no column {name!r} to keep; found {describe_names(available)}: give "
                    "one of these with --keep"
                )
        self._check_different(names, available)
        return names

    def _find_point(self, available: Sequence[str]) -> str | None:
        if self.point is not None:
            if self.lat is not None or self.lon is not None:
                raise ParameterError("--point takes the place of --lat and --lon; give one of them")
            return self.find("point", available)
        if self.lat is not None or self.lon is not None:
            return None
        if any(self.find(role, available) is not None for role in ("lat", "lon")):
            return None
        return self.find("point", available)

    def _check_different(self, names: Mapping[str, str], available: Sequence[str]) -> None:
        # A date that was found by itself may be kept, too.
        own = [name for role, name in names.items() if role != "date" or self.date is not None]
        wanted = [*own, *self.keep]
        if len(set(wanted)) < len(wanted):
            raise ParameterError(
                f"the columns {', '.join(map(repr, wanted))} must differ: name each once"
            )
        for name in dict.fromkeys([*names.values(), *self.keep]):
            if available.count(name) > 1:
                raise ParameterError(
                    f"which is it? {available.count(name)} columns are called {name!r}: rename "
                    "all but one of them in the file"
                )

    def unit(self, name: str) -> str | None:
        """What the numbers of a column of places count; None: degrees, whatever its name."""
        return self.coordinate_unit or unit_in_name(name)


def side_column(role: str, available: Sequence[str]) -> str | None:
    """The column of the letters N and S, or E and W, that belongs to a column of numbers."""
    found = [name for name in available if normal_name(name) in SIDE_NAMES[role]]
    return found[0] if len(found) == 1 else None


def owner_columns(available: Sequence[str], used: Sequence[str]) -> list[str]:
    """Columns that are not read and whose names look like those of users, the likeliest first."""
    found = [
        name
        for name in dict.fromkeys(available)
        if name not in used
        and _OWNER.fullmatch(normal_name(name))
        and normal_name(name) not in ROW_NUMBERS
        and _is_name(name)
    ]
    return sorted(found, key=lambda name: normal_name(name) in ("id", "name"))


def _remark(role: str, available: Sequence[str]) -> str:
    """Where places may be in columns of metres, or times in one of dates."""
    normal = {normal_name(name): name for name in available}
    date = next(iter(find_known("date", available)), None)
    if role == "time" and date is not None:
        return f"; if {date!r} tells the time of day, too, give --time {date}"
    if role not in ("lat", "lon") or not {"x", "y"} <= normal.keys():
        return ""
    return (
        f"; {normal['x']!r} and {normal['y']!r} may be metres: if they are degrees, give --lat "
        f"{normal['y']} --lon {normal['x']}"
    )


def describe_names(names: Sequence[str]) -> str:
    """Column names for an error message, without those that may be data rather than names."""
    safe = [repr(name) for name in names if _is_name(name)]
    if len(safe) < len(names):
        safe.append(f"{len(names) - len(safe)} that are not told, as they might be places")
    return ", ".join(safe) or "no columns at all"


def _is_local(name: str) -> bool:
    return "local" in normal_name(name)


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
    public_traces: bool = False  # ids of traces are public: names of files, or those of an output
    lines: bool = False  # GeoJSON: one LineString per trace, not one Point per report
    types: Mapping[str, Any] = field(default_factory=dict)  # Arrow types, by column
    owners: tuple[str, ...] = ()  # columns that were not read and may say whose rows are
    # What rows have besides places and times, for an output of which no row was released.
    has_users: bool = False
    has_traces: bool = False
    kept: tuple[str, ...] = ()
