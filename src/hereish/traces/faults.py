"""Why a row, or the rest of a file, cannot be used. No message repeats what is in the file."""

from __future__ import annotations

import enum
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hereish.errors import HereishError

Faults: TypeAlias = NDArray[np.uint8]  # the Fault of each row

EXPECTED_TIME = (
    "ISO 8601 such as 2025-06-03T08:15:00+03:00, a date and a time, or a number: Unix time in "
    "seconds to nanoseconds, or Excel's days"
)
_EXPECTED_LAT = "degrees north, also with a decimal comma, minutes and seconds, or N and S"
_EXPECTED_LON = "degrees east, also with a decimal comma, minutes and seconds, or E and W"
_TIME_FORMAT = "say how times are written with --time-format"
_MEND = "mend that point, or export the file again"
_UNIT = "where they are no degrees, say so with --coordinate-unit"


class Fault(enum.IntEnum):
    """Why a row cannot be used; FAULT_REASONS says it in English."""

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
    NUMBER = 14
    DAY_OR_MONTH = 15
    ZONE_NAME = 16
    NO_DATE = 17
    POINT = 18
    NO_CLOCK = 19


class FaultText(NamedTuple):
    """A fault: what was found, what was expected, and what to do, which loses nothing.

    `otherwise` is what to do in formats whose places and times are in no columns.
    """

    reason: str
    expected: str
    remedy: str
    otherwise: str | None = None

    def remedy_in(self, *, columns: bool) -> str:
        """What to do, in a format that has columns or not."""
        return self.remedy if columns or self.otherwise is None else self.otherwise


FAULT_TEXTS = {
    Fault.LINE: FaultText(
        "it cannot be read",
        "as many fields as there are columns, or a feature of points with times",
        "mend that line",
    ),
    Fault.USER: FaultText(
        "it has no user", "a user in each row", "name another column with --user, or fill it in"
    ),
    Fault.TIME: FaultText(
        "it has no time, or none that can be read",
        EXPECTED_TIME,
        _TIME_FORMAT,
        f"export it with a time for each point, or {_TIME_FORMAT}",
    ),
    Fault.NUMBER: FaultText(
        "its time is a number, and no plausible one",
        "seconds, milliseconds, microseconds or nanoseconds since 1970, or days as Excel counts "
        "them, of the years 2000 to 2100",
        "say what it counts with --time-format: s, ms, us, ns, excel, apple (seconds since 2001), "
        "ticks (of .NET) or filetime (of Windows)",
    ),
    Fault.DAY_OR_MONTH: FaultText(
        "its date may begin with the day or with the month",
        "the year first, or a format",
        "say which with --time-format, such as '%d/%m/%Y %H:%M:%S' or '%m/%d/%Y %I:%M %p'",
    ),
    Fault.ZONE_NAME: FaultText(
        "its time zone is abbreviated, which does not tell the offset from UTC",
        "UTC, GMT or an offset such as +03:00",
        "give the abbreviation in --time-format and the zone with --time-zone",
    ),
    Fault.NO_DATE: FaultText(
        "its time has no date",
        "a time with its date, in one column or in two",
        "name the column of the dates with --date",
        "export it with dates; of JSON, name the property of the dates with --date",
    ),
    Fault.NO_CLOCK: FaultText(
        "its date has no time of day",
        "a date and a time of day, in one column or in two",
        "name the column of the times with --time; if there is none, and midnight will do, that of "
        "the dates",
    ),
    Fault.ZONE: FaultText(
        "its time does not say its offset from UTC, and most others in its file do",
        "an offset in all of them or in none",
        "give the time zone of the others with --time-zone",
    ),
    Fault.LAT: FaultText(
        "its latitude is missing or not a number",
        _EXPECTED_LAT,
        "fill it in, or name another column with --lat, or its unit with --coordinate-unit",
        _MEND,
    ),
    Fault.LON: FaultText(
        "its longitude is missing or not a number",
        _EXPECTED_LON,
        "fill it in, or name another column with --lon, or its unit with --coordinate-unit",
        _MEND,
    ),
    Fault.POINT: FaultText(
        "its point is missing, or not a single point",
        "POINT (longitude latitude) in WGS 84, or WKB in hexadecimal digits",
        "name another column with --point, or --lat and --lon",
    ),
    Fault.LAT_RANGE: FaultText("its latitude is outside -90 to 90", _EXPECTED_LAT, _UNIT, _MEND),
    Fault.LON_RANGE: FaultText(
        "its longitude is outside -180 to 180",
        _EXPECTED_LON,
        f"{_UNIT}; where they count to 360, subtract 360 from those beyond 180",
        "where they count to 360, subtract 360 from those beyond 180",
    ),
    Fault.SWAPPED: FaultText(
        "its latitude is outside -90 to 90: are latitude and longitude swapped?",
        _EXPECTED_LAT,
        "if they are swapped, say which is which with --lat and --lon",
        "if they are swapped, swap them, as gpsbabel -x swapdata does",
    ),
    Fault.YEAR: FaultText(
        "its time is outside the years 1900 to 2400",
        "a time of these years",
        f"mend that time, or {_TIME_FORMAT}",
    ),
    Fault.JUMP: FaultText(
        "its clock jumps: it is years away from the other points of its trace",
        "points of a trace within a year of one another",
        "if the gap is real, read no traces with --trace '', or name another column with --trace",
        "if the gap is real, divide the track there, as gpsbabel -x track,pack,split=365d does; "
        "where a property tells traces, read none with --trace ''",
    ),
    Fault.ORDER: FaultText(
        "its time is out of order among the points of its trace",
        "times that increase",
        "sort by user and time",
    ),
    Fault.TWICE: FaultText(
        "its time is the same as that of the point before it in its trace",
        "one place at a time for each user",
        "if there are several users in the file, name their column with --user",
    ),
}
FAULT_REASONS = {fault: text.reason for fault, text in FAULT_TEXTS.items()}


class UnreadableFileError(HereishError, ValueError):
    """From here on a file cannot be parsed. Names the line, if known, never its content.

    `expected` and `remedy` complete the message. `rest_lost`: what follows may hold points; not so
    where the file is at its end.
    """

    def __init__(
        self,
        reason: str,
        line: int | None = None,
        *,
        expected: str,
        remedy: str,
        rest_lost: bool = True,
    ) -> None:
        super().__init__(reason, line)
        self.reason = reason
        self.line = line
        self.expected = expected
        self.remedy = remedy
        self.rest_lost = rest_lost

    def __reduce__(self) -> tuple[object, ...]:
        """For other processes, which read files and return what is wrong with them."""
        texts = {"expected": self.expected, "remedy": self.remedy}
        return _rebuilt, (type(self), self.reason, self.line, texts, self.rest_lost)

    def __str__(self) -> str:
        return self.reason if self.line is None else f"line {self.line}: {self.reason}"

    def explain(self, outcome: str = "") -> str:
        """The reason, what was expected, what came of it, and what to do."""
        then = f"; {outcome}" if outcome else ""
        return f"{self.reason}; expected {self.expected}{then}. To lose nothing, {self.remedy}"


class NoPointsError(UnreadableFileError):
    """A file that is whole and holds nothing to sanitise, such as a workout indoors."""

    def __init__(
        self,
        reason: str,
        line: int | None = None,
        *,
        expected: str = "points with a place and a time each",
        remedy: str = "leave this file out, or export it with them",
        rest_lost: bool = False,
    ) -> None:
        super().__init__(reason, line, expected=expected, remedy=remedy, rest_lost=rest_lost)


class RefusedFileError(UnreadableFileError):
    """A file that the options do not fit. Its reason says what there is, and what to do."""

    def __init__(
        self,
        reason: str,
        line: int | None = None,
        *,
        expected: str = "",
        remedy: str = "",
        rest_lost: bool = True,
    ) -> None:
        super().__init__(reason, line, expected=expected, remedy=remedy, rest_lost=rest_lost)

    def explain(self, outcome: str = "") -> str:
        return f"{self.reason}; {outcome}" if outcome else self.reason


class WithoutPlacesError(RefusedFileError):
    """A table that names no places: beside others it is none of traces."""


def no_times() -> NoPointsError:
    """Of a file none of whose points has a time."""
    return NoPointsError(
        "none of its points has a time: it is a route that was planned, or its times were removed"
    )


def counted(number: int, singular: str, plural: str) -> str:
    """A number of things, such as `1 track` and `2 tracks`."""
    return f"{number:,} {singular if number == 1 else plural}"


def empty_file(expected: str) -> UnreadableFileError:
    """Of a file without any content, which may have been lost."""
    return UnreadableFileError(
        "it is empty",
        expected=expected,
        remedy="copy it again, or leave this file out",
        rest_lost=False,
    )


def closed_file(error: OSError) -> UnreadableFileError:
    """Of a file that the system does not give."""
    return UnreadableFileError(
        f"the system does not give it: {error.strerror or type(error).__name__}",
        expected="a file that may be read, and a disk that is whole",
        remedy="allow it with chmod, or copy it again",
    )


def damaged_file(reason: str, expected: str, line: int | None = None) -> UnreadableFileError:
    """Of a file that breaks off, or whose content cannot be that of its format."""
    return UnreadableFileError(
        reason, line, expected=expected, remedy="copy it again, or export it once more"
    )


def _rebuilt(
    kind: type[UnreadableFileError],
    reason: str,
    line: int | None,
    texts: dict[str, str],
    rest_lost: bool,
) -> UnreadableFileError:
    return kind(reason, line, rest_lost=rest_lost, **texts)
