"""Times as people and programs write them, besides ISO 8601: what can be told from one text alone.

What could be read in two ways is not read: a fault says which two, and `--time-format` decides.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hereish.traces.columns import Columns
from hereish.traces.faults import Fault

# English ones, whole or the first three letters: marraskuu is not March.
_MONTH_NAMES = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
_MONTHS = {
    spelling: number
    for number, name in enumerate(_MONTH_NAMES, start=1)
    for spelling in (name, name[:3], name[:4] if name == "september" else name)
}
_CLOCK = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d*))?)?"
    r"(?:\s*(?P<half>[ap])\.?m\.?)?"
)
_ZONE = r"(?:\s*(?P<zone>z|utc|gmt|(?:utc|gmt)?\s*[+-]\d{1,2}(?::?\d{2})?))?"
_YEAR_FIRST = r"(?P<year>\d{4})(?P<cut>[-/.:])(?P<month>\d{1,2})(?P=cut)(?P<day>\d{1,2})"
_DOTTED = r"(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\.\s?(?P<year>\d{4})"
_NAME = r"(?P<name>[a-z]{3,9})\.?"
_DAY_NAME = rf"(?:[a-z]+,?\s+)?(?P<day>\d{{1,2}})[-\s]+{_NAME}[-,\s]+(?P<year>\d{{4}})"
_NAME_DAY = rf"(?:[a-z]+,?\s+)?{_NAME}\s+(?P<day>\d{{1,2}}),?\s+(?P<year>\d{{4}})"
_REST = rf"(?:[T,\s]+{_CLOCK}{_ZONE})?"
_TEXTS = [
    re.compile(pattern, re.IGNORECASE | re.ASCII)
    for pattern in (
        _YEAR_FIRST + _REST,
        _DOTTED + _REST,
        _DAY_NAME + _REST,
        _NAME_DAY + _REST,
        # As C writes it: Tue Jun  3 08:15:00 2025, and with UTC before the year.
        rf"[a-z]{{3}}\s+{_NAME}\s+(?P<day>\d{{1,2}})\s+{_CLOCK}{_ZONE}\s+(?P<year>\d{{4}})",
        r"(?P<year>\d{4})(?P<month>\d{2})(?P<day>\d{2})[T\s]?(?P<hour>\d{2})(?P<minute>\d{2})"
        rf"(?P<second>\d{{2}})(?:[.,](?P<fraction>\d+))?{_ZONE}",
    )
]
# After an offset, which tells all: the zone's name, as Go, JavaScript and Java add it.
_NAMED_OFFSET = re.compile(
    r"(:\d{2}(?:[.,]\d+)?\s*(?:z|(?:utc|gmt)?[+-]\d{2}:?\d{2}))"
    r"(?:\s+[a-z]{2,5}|\s*\([^()]*\)|\[[\w/+-]+\])",
    re.IGNORECASE | re.ASCII,
)
_BARE_CLOCK = re.compile(rf"(?:T\s*)?{_CLOCK}{_ZONE}", re.IGNORECASE | re.ASCII)
# The dates that spreadsheets and pandas give to a time of day; and in days since 1970.
NO_DAYS = (-25_569, -25_568, -25_567, 0)
_NO_DATE = re.compile(
    r"(?:1899-12-3[01]|1900-01-0[01]|1970-01-01|0?1/0?[01]/1900)[T\s]+(?=\d)", re.ASCII
)
_MIDNIGHT = re.compile(r"[T\s]+0?0:00(?::00(?:\.0+)?)?$", re.ASCII)  # behind a date without a time
# A clock in digits alone: only beside a date it is none of the numbers that stand for times.
_DIGITS = r"([01]\d|2[0-4])([0-5]\d)([0-5]\d)(?=\.\d*$|$)"
_DIGIT_CLOCK = re.compile(_DIGITS + r"(?:\.\d*)?", re.ASCII)
_DATE_AND_DIGITS = re.compile(
    r"(\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4})[T\s]+" + _DIGITS, re.ASCII | re.IGNORECASE
)
# Before AM and PM browsers and phones write narrow ones, which programs copy into their files.
_SPACES = {ord(space): " " for space in "\N{NO-BREAK SPACE}\N{THIN SPACE}\N{NARROW NO-BREAK SPACE}"}
_EITHER = re.compile(r"\d{1,2}[-/]\d{1,2}[-/]\d{2,4}\b.*", re.ASCII)
_ABBREVIATED = re.compile(r".*\d(?:\.\d+)?\s+[A-Z]{2,5}(?:\s+\d{4})?", re.ASCII)
# Lotus and Excel write 24-hour clocks as fractions; those are numbers and not read here.
_LONGEST = 100  # characters; no time is longer


def parse_time_text(text: str) -> datetime | Fault:
    """The time that a text stands for, without a zone if it has none; or why it is not read."""
    if len(text) > _LONGEST:
        return Fault.TIME
    text = text.replace("\N{MINUS SIGN}", "-").translate(_SPACES)
    text = _DATE_AND_DIGITS.sub(r"\1 \2:\3:\4", text, count=1)
    named = _NAMED_OFFSET.search(text)
    if named is not None and named.end() == len(text):
        text = text[: named.end(1)]
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text)
    for pattern in _TEXTS:
        match = pattern.fullmatch(text)
        if match is not None:
            return _moment(match.groupdict())
    if is_clock(text):
        return Fault.NO_DATE
    if _EITHER.fullmatch(text):
        return Fault.DAY_OR_MONTH
    if _ABBREVIATED.fullmatch(text):
        return Fault.ZONE_NAME
    return Fault.TIME


def is_clock(text: str) -> bool:
    """Whether a text is a time of day without a date."""
    return _BARE_CLOCK.fullmatch(text) is not None


def lacks_date(time: object) -> bool:
    """Whether a time is one of day, which a date of another column may complete."""
    if not isinstance(time, str):
        return False
    clock = _NO_DATE.sub("", time.strip(), count=1)
    return is_clock(clock) or _DIGIT_CLOCK.fullmatch(clock) is not None


def with_date(date: str, time: str, *, always: bool) -> str:
    """A time with the date of another column, if it tells none itself, or `always`."""
    if not always and not lacks_date(time):
        return time.strip()
    clock = _NO_DATE.sub("", time.strip(), count=1)
    return f"{_MIDNIGHT.sub('', date.strip())} {clock}"


def with_date_among(fields: Mapping[str, Any], time: Any, columns: Columns) -> Any:
    """The same of an object, whose members are fields."""
    always = columns.date is not None
    if not isinstance(time, str) or not (always or lacks_date(time)):
        return time
    name = columns.date or columns.find("date", [name for name in fields if fields[name] != time])
    date = None if name is None else fields.get(name)
    return with_date(str(date), time, always=always) if isinstance(date, (str, int)) else time


def _moment(parts: dict[str, str | None]) -> datetime | Fault:
    month = parts.get("month")
    name = (parts.get("name") or "").lower()
    if month is None and name not in _MONTHS:
        return Fault.TIME
    number = _MONTHS[name] if month is None else int(month)
    hour = _hour(int(parts.get("hour") or 0), parts.get("half"))
    minute, second = int(parts.get("minute") or 0), int(parts.get("second") or 0)
    later = timedelta()
    if second == 60:  # a leap second, or one that was rounded up: as Unix time counts it
        second, later = 0, timedelta(minutes=1)
    if (hour, minute, second, later) == (24, 0, 0, timedelta()) and not parts.get("half"):
        hour, later = 0, timedelta(days=1)  # the end of a day
    fraction = (parts.get("fraction") or "").ljust(6, "0")[:6]
    try:
        moment = datetime(  # without a zone if the text has none
            int(parts["year"] or 0),
            number,
            int(parts["day"] or 0),
            hour,
            minute,
            second,
            int(fraction),
            tzinfo=_zone(parts.get("zone")),
        )
        return moment + later
    except (ValueError, OverflowError):
        return Fault.TIME


def _hour(hour: int, half: str | None) -> int:
    if half is None:
        return hour
    if not 1 <= hour <= 12:
        return 99  # no hour, so no time
    return hour % 12 + (12 if half in "pP" else 0)


def _zone(text: str | None) -> timezone | None:
    if text is None:
        return None
    digits = re.sub(r"[^\d+-]", "", text)
    if not digits:
        return UTC
    sign = -1 if digits[0] == "-" else 1
    digits = digits[1:]
    hours, minutes = (digits[:-2], digits[-2:]) if len(digits) > 2 else (digits, "0")
    return timezone(sign * timedelta(hours=int(hours), minutes=int(minutes)))
