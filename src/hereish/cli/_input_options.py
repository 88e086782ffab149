"""Options that say how traces are read."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo

import click

from hereish.cli._options import Decorator, collect, option
from hereish.core.windows import Day
from hereish.errors import ParameterError
from hereish.traces.columns import Columns
from hereish.traces.formats.registry import FORMAT_NAMES
from hereish.traces.reading import UsersFrom

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
    drop_bad: bool = False
    keep: tuple[str, ...] = ()

    @property
    def users_from(self) -> UsersFrom | None:
        """Where users come from if not from a column."""
        sources: dict[str | None, UsersFrom] = {"@file": "file", "@folder": "folder"}
        return sources.get(self.user)

    def columns(self, time_zone: str | None = None) -> Columns:
        """The columns by name, with the given time zone or the one of the options."""
        user = None if self.users_from is not None else self.user
        zone = _find_zone(time_zone or self.time_zone)
        return Columns(user, self.trace, self.time, self.lat, self.lon, self.keep, zone)

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


DROP_BAD = option(_GROUP, "--drop-bad", is_flag=True, help="Leave out what cannot be used.")
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
        option(_GROUP, "--trace", help="Column of the traces."),
        option(_GROUP, "--time", help="Column of the times."),
        option(_GROUP, "--lat", help="Column of the latitudes."),
        option(_GROUP, "--lon", help="Column of the longitudes."),
        option(
            _GROUP,
            "--format",
            "form",
            type=click.Choice(FORMAT_NAMES),
            help="Of the input, where its name does not tell.",
        ),
        option(
            _GROUP,
            "--time-zone",
            metavar="NAME",
            help="Such as Europe/Helsinki: of days, and of times without a zone. UTC if not given.",
        ),
        *others,
    )
