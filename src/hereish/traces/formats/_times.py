"""Times as files write them, as microseconds since 1970; and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from hereish.core.types import Bools, Floats, Ints
from hereish.errors import ParameterError
from hereish.traces.faults import Fault, Faults
from hereish.traces.formats._degrees import parse_number
from hereish.traces.formats._time_numbers import (
    EXCEL,
    TIME_UNITS,
    number_time,
    numbers_us,
    unit_of,
)
from hereish.traces.formats._time_texts import parse_time_text

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_QUARTER_US = 900_000_000
# A date, and a time if there is one, although it could be a number.
_COMPACT = re.compile(
    r"(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])([0-2]\d[0-5]\d[0-5]\d)?", re.ASCII
)
_CLOCK = re.compile(r"(^|[T\s,])\d{1,2}:\d\d|\dT\d|^\d{8}\s?\d{4}", re.ASCII | re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"\d+,\d+", re.ASCII)
_TRIAL = datetime(2025, 12, 31, 23, 58, 59)  # noqa: DTZ001  # only its parts matter


def check_time_format(text: str | None) -> None:
    """Refuse a format by which no time could be read, before anything is."""
    if text is None or text in TIME_UNITS:
        return
    try:
        again = datetime.strptime(_TRIAL.strftime(text), text)  # noqa: DTZ007  # as above
    except ValueError:
        again = None
    if again is None or again.date() != _TRIAL.date():
        raise ParameterError(
            f"the time format must be one of {', '.join(TIME_UNITS)}, or a format of strptime with "
            f"day, month and year such as '%d/%m/%Y %H:%M:%S', found {text!r}"
        )


class TimeParser:
    """Parses the times of one file, row by row.

    A number, or a text with an offset from UTC, is an instant whatever the others are. A text
    without an offset is in the time zone that was given, or else in UTC; but if no zone was given
    and most others of the file have an offset, it is a fault: it may be in any zone.
    """

    def __init__(self, zone: ZoneInfo | None = None, time_format: str | None = None) -> None:
        self._zone = zone
        check_time_format(time_format)
        self._unit = time_format if time_format in TIME_UNITS else None
        self._format = None if self._unit else time_format
        self._rows = 0  # since the last batch
        self._local: list[range] = []  # those of them without an offset
        self._counts = [0, 0]  # rows of the file without an offset, and with one
        self._at_fault: bool | None = None  # whether those without, in earlier batches, were

    @property
    def zone(self) -> ZoneInfo | None:
        """That of texts without an offset, if it was given."""
        return self._zone

    @property
    def unit(self) -> str | None:
        """What numbers count, if that was given."""
        return self._unit

    @property
    def offsets(self) -> tuple[bool, bool]:
        """Whether texts so far were without an offset from UTC, and with one."""
        return bool(self._counts[False]), bool(self._counts[True])

    @property
    def plain(self) -> bool:
        """Whether no format was given, so that texts are tried as ISO 8601 first."""
        return self._format is None and self._unit is None

    def parse(self, value: Any) -> int | Fault:
        """The time of the next row as text or a number, or what is wrong with it."""
        self._rows += 1
        if isinstance(value, int) and _COMPACT.fullmatch(str(value)):
            value = str(value)
        if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
            return self._parse_number(value)
        if not isinstance(value, str):
            return self._moment_us(value) if isinstance(value, datetime) else Fault.TIME
        return self._parse_text(value.strip())

    def parse_all(self, moments: Sequence[datetime]) -> Ints | None:
        """The times of the next rows, if all or none of them have an offset; otherwise None."""
        local = {moment.tzinfo is None for moment in moments}
        if self._zone is not None or len(local) > 1:
            return None
        if local == {True}:
            self._local.append(range(self._rows, self._rows + len(moments)))
        self._counts[local != {True}] += len(moments)
        self._rows += len(moments)
        epoch = EPOCH.replace(tzinfo=None) if True in local else EPOCH
        return np.array([(moment - epoch) // _MICROSECOND for moment in moments], dtype=np.int64)

    def count(self, known: Bools, *, local: bool | None) -> None:
        """Count the next rows, whose times, where `known`, have been read elsewhere.

        All have no offset if `local`, all have one if not, and None stands for numbers.
        """
        if local and known.any():
            rows = np.flatnonzero(known) + self._rows
            ends = np.append(np.flatnonzero(np.diff(rows) != 1), len(rows) - 1)
            begins = np.append(0, ends[:-1] + 1)
            stretches = zip(rows[begins].tolist(), rows[ends].tolist(), strict=True)
            self._local += [range(first, last + 1) for first, last in stretches]
        if local is not None:
            self._counts[not local] += int(np.count_nonzero(known))
        self._rows += len(known)

    def parse_numbers(self, numbers: Floats) -> Ints | None:
        """The times of the next rows, which are numbers, if all can be read; otherwise None."""
        if self._format is not None:
            return None
        at_us = numbers_us(numbers, self._unit)
        if at_us is not None:
            self._rows += len(numbers)
        return at_us

    def mark_missing_offsets(self, fault: Faults) -> None:
        """At the end of a batch: mark times without an offset, if most of the file have one."""
        local, self._local, self._rows = self._local, [], 0
        if self._zone is not None or not local:
            return
        at_fault = self._counts[False] <= self._counts[True]
        if self._at_fault is not None and self._at_fault != at_fault:
            raise ParameterError(
                "some of its times have an offset from UTC and others do not; give the time zone "
                "of the others with --time-zone"
            )
        self._at_fault = at_fault
        if at_fault:
            rows = np.concatenate([np.arange(part.start, part.stop) for part in local])
            fault[rows[fault[rows] == Fault.NONE]] = Fault.ZONE

    def _parse_number(self, number: float | Decimal) -> int | Fault:
        if self._format is not None:
            return Fault.TIME
        try:
            time = number_time(float(number), self._unit)
        except OverflowError:
            return Fault.TIME
        return self._moment_us(time) if isinstance(time, datetime) else time

    def _parse_text(self, text: str) -> int | Fault:
        if self._format is not None:
            try:
                moment = datetime.strptime(text, self._format)  # noqa: DTZ007  # see _moment_us
            except ValueError:
                return Fault.TIME
            return self._moment_us(moment)
        if is_number_of_time(text) or self._unit is not None:
            number = parse_number(
                text.replace(",", ".") if _DECIMAL_COMMA.fullmatch(text) else text
            )
            return Fault.TIME if number is None else self._parse_number(number)
        time = parse_time_text(text)
        return time if isinstance(time, Fault) else self._moment_us(time)

    def _moment_us(self, moment: datetime) -> int | Fault:
        try:
            if moment.utcoffset() is None:
                self._local.append(range(self._rows - 1, self._rows))
                self._counts[False] += 1
                moment = moment.replace(tzinfo=self._zone or UTC)
            else:
                self._counts[True] += 1
            return (moment - EPOCH) // _MICROSECOND
        except (OverflowError, ValueError):
            return Fault.TIME  # beyond the years that can be counted


def is_number_of_time(text: str) -> bool:
    """Whether a time is a number, and not a date that is written with digits alone."""
    if _COMPACT.fullmatch(text):
        return False
    return parse_number(text) is not None or _DECIMAL_COMMA.fullmatch(text) is not None


def tells_time_of_day(value: Any) -> bool:
    """Whether a time is more than a date: a clock, or a number that is no whole day of Excel's."""
    text = str(value).strip()
    if is_number_of_time(text):
        number = parse_number(text.replace(",", "."))
        return number is not None and (unit_of(number) != EXCEL or number % 1 != 0)
    return _CLOCK.search(text) is not None


def clock_instants_us(clock_us: Ints, zone: ZoneInfo) -> Ints:
    """The instants of clocks in a zone, as texts without an offset are read.

    Of two instants at which clocks show the same, the first; of a time that they skip, the one at
    which they would have shown it.
    """
    quarters, which = np.unique(clock_us // _QUARTER_US, return_inverse=True)
    shift_us = np.array([_shift_us(quarter, zone) for quarter in quarters.tolist()], dtype=np.int64)
    return clock_us - shift_us[which.reshape(-1)]


def _shift_us(quarter: int, zone: ZoneInfo) -> int:
    """How far clocks are ahead of UTC; they are changed on the quarter of an hour."""
    try:
        moment = EPOCH + timedelta(microseconds=quarter * _QUARTER_US)
        return (moment.replace(tzinfo=zone).utcoffset() or timedelta()) // _MICROSECOND
    except (OverflowError, ValueError):
        return 0  # beyond the years that are taken


def format_utc(at_us: Ints) -> list[str]:
    """Instants in UTC as text: seconds, and as many decimals of them as there are."""
    whole = bool((at_us % 1_000_000 == 0).all())
    texts = np.datetime_as_string(at_us.astype("datetime64[us]"), unit="s" if whole else "us")
    if whole:
        return [f"{text}Z" for text in texts.tolist()]
    return [f"{text.rstrip('0').rstrip('.')}Z" for text in texts.tolist()]
