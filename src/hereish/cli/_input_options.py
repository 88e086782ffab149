"""Options that say how traces are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from zoneinfo import ZoneInfo

import click

from hereish.cli._options import Decorator, collect, option
from hereish.core.windows import Day
from hereish.errors import ParameterError
from hereish.traces.columns import Columns
from hereish.traces.formats._degrees import COORDINATE_UNITS
from hereish.traces.formats._time_numbers import TIME_UNITS
from hereish.traces.formats._times import check_time_format
from hereish.traces.formats.registry import FORMAT_NAMES
from hereish.traces.reading import UsersFrom
from hereish.traces.validate import DropBad

_GROUP = "What is read"


@dataclass(frozen=True)
class InputOptions:
    """The columns of the input, its format, and what becomes of rows that cannot be used."""

    user: str | None
    trace: str | None
    time: str | None
    lat: str | None
    lon: str | None
    form: str | None
    time_zone: str | None
    date: str | None
    point: str | None
    time_format: str | None
    coordinate_unit: str | None
    drop_bad_choice: Literal["tenth", "all"] | None = None
    keep: tuple[str, ...] = ()
    keep_trace_names: bool = False

    @property
    def drop_bad(self) -> DropBad:
        """Whether rows that cannot be used are left out, and how many."""
        return "all" if self.drop_bad_choice == "all" else self.drop_bad_choice is not None

    @property
    def users_from(self) -> UsersFrom | None:
        """Where users come from if not from a column."""
        sources: dict[str | None, UsersFrom] = {"@file": "file", "@folder": "folder"}
        return sources.get(self.user)

    def columns(self, time_zone: str | None = None) -> Columns:
        """The columns by name, with the given time zone or the one of the options."""
        user = None if self.users_from is not None else self.user
        zone = _find_zone(time_zone or self.time_zone)
        check_time_format(self.time_format)
        return Columns(
            user,
            self.trace,
            self.time,
            self.lat,
            self.lon,
            self.keep,
            zone,
            date=self.date,
            point=self.point,
            time_format=self.time_format,
            coordinate_unit=self.coordinate_unit,
            keep_trace_names=self.keep_trace_names,
        )

    def columns_of_trajectories(self) -> Columns:
        """For studies, where --user names a column."""
        if self.user is not None and self.user.startswith("@"):
            raise ParameterError(
                "--user must name a column here, found "
                f"{self.user}; --trace names the column that separates trajectories"
            )
        return self.columns()


def _find_zone(name: str | None) -> ZoneInfo | None:
    if name is None:
        return None
    Day(name)  # raises with a message if there is no such time zone
    return ZoneInfo(name)


DROP_BAD = option(
    _GROUP,
    "--drop-bad",
    "drop_bad_choice",
    bare="tenth",
    type=click.Choice(["tenth", "all"]),
    metavar="[=all]",
    help="Leave out what cannot be used, if it is at most a tenth; =all: however much it is.",
)
KEEP_TRACE_NAMES = option(
    _GROUP,
    "--keep-trace-names",
    is_flag=True,
    help="Publish the ids of traces as they are: your choice, and they may tell a place. Without "
    "it they become numbers.",
)
KEEP = option(
    _GROUP,
    "--keep",
    multiple=True,
    metavar="COLUMN",
    help="Pass this column on as it is: your choice, and it may tell a place. More than once.",
)


def input_options(*others: Decorator) -> Decorator:
    """The command gets `source`."""
    return collect(
        "source",
        InputOptions,
        option(_GROUP, "--user", help="Column of the users; @file or @folder: each is a user."),
        option(_GROUP, "--trace", help="Column of the traces; '' reads none."),
        option(_GROUP, "--time", help="Column of the times."),
        option(_GROUP, "--lat", help="Column of the latitudes."),
        option(_GROUP, "--lon", help="Column of the longitudes."),
        option(_GROUP, "--date", help="Column of the dates, where --time has the clock alone."),
        option(
            _GROUP, "--point", help="Column of points as WKT or WKB, in place of --lat and --lon."
        ),
        option(
            _GROUP,
            "--time-format",
            metavar="FORMAT",
            help="How times are written, such as '%d/%m/%Y %H:%M:%S'; or what they count: "
            f"{', '.join(TIME_UNITS)}. Told from the text if not given, and refused if it does "
            "not tell.",
        ),
        option(
            _GROUP,
            "--coordinate-unit",
            type=click.Choice(COORDINATE_UNITS),
            help="What --lat and --lon count, unless their names say so, as latitudeE7 does.",
        ),
        option(
            _GROUP,
            "--format",
            "form",
            type=click.Choice(FORMAT_NAMES),
            metavar="FORMAT",
            help=f"Of the input, where its name does not tell: {', '.join(FORMAT_NAMES)}.",
        ),
        option(
            _GROUP,
            "--time-zone",
            metavar="NAME",
            help="Such as Europe/Helsinki: of days, and of times without a zone. UTC if not given.",
        ),
        *others,
    )
