"""Times that are numbers: what they count is told by their size, if they are of likely years.

Of the years 2000 to 2100 the numbers of seconds, milliseconds, microseconds and nanoseconds since
1970, of days as Excel counts them and of dates written as 20250603 and 20250603081500 do not
overlap. Any other number could be several of them, so it is a fault unless the unit is given: today
Apple's seconds are those of the nineties since 1970, and .NET's ticks are nanoseconds of then.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from hereish.core.types import Floats, Ints
from hereish.traces.faults import Fault

EXCEL = "excel"
# How many microseconds one of them is. Excel's days have no zone: they are those of a clock.
UNITS_US = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3, EXCEL: 86_400e6}
# Those that are read only if they are given, and when they begin: Apple's seconds, .NET's ticks of
# 100 ns, and those of Windows.
_GIVEN_US = {"apple": 1e6, "ticks": 0.1, "filetime": 0.1}
_BEGINS_US = {
    unit: datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1e6
    for unit, year in (("apple", 2001), ("ticks", 1), ("filetime", 1601))
}
TIME_UNITS = (*UNITS_US, *_GIVEN_US)
_EXCEL_BEGINS = datetime(1899, 12, 30)  # noqa: DTZ001  # a clock without a zone
_EXCEL_1970 = 25_569.0
_FIRST_US, _LAST_US = (datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1e6 for year in (2000, 2101))
_MOST_US = 2.0**62


def unit_of(number: float) -> str | None:
    """What a number counts if it is a time of a likely year; None if it is of none."""
    for unit, factor in UNITS_US.items():
        since = number - _EXCEL_1970 if unit == EXCEL else number
        if _FIRST_US <= since * factor < _LAST_US:
            return unit
    return None


def number_time(number: float, unit: str | None = None) -> int | datetime | Fault:
    """The instant of a number in microseconds since 1970, by its size unless a unit is given.

    Of Excel's days, the time of a clock.
    """
    if not math.isfinite(number):
        return Fault.TIME
    unit = unit or unit_of(number)
    if unit is None:
        return Fault.NUMBER
    if unit == EXCEL:
        try:  # its fractions of days were rounded: to milliseconds
            return _EXCEL_BEGINS + timedelta(milliseconds=round(number * 86_400e3))
        except OverflowError:
            return Fault.TIME
    at_us = _instant_us(number, unit)
    return round(at_us) if abs(at_us) < _MOST_US else Fault.TIME


def _instant_us(number: Any, unit: str) -> Any:
    """Microseconds since 1970, of one number or of many."""
    return number * (UNITS_US | _GIVEN_US)[unit] + _BEGINS_US.get(unit, 0.0)


def numbers_us(numbers: Floats, unit: str | None = None) -> Ints | None:
    """The instants of many numbers; None unless all are read, and none is of Excel's."""
    if unit == EXCEL or not len(numbers):
        return None
    units = [unit] if unit else [one for one in UNITS_US if one != EXCEL]
    at_us = np.full(len(numbers), np.nan)
    for one in units:
        us = _instant_us(numbers, one)
        fits = np.abs(us) < _MOST_US if unit else (us >= _FIRST_US) & (us < _LAST_US)
        at_us[fits] = us[fits]
    return None if np.isnan(at_us).any() else np.round(at_us).astype(np.int64)
