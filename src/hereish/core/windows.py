"""Budget windows: when a fresh budget begins, and what a guarantee therefore covers.

A reset is a decision, not a theorem: the budget bounds what one window tells, and n windows
together tell up to n times as much. Windows depend on public time alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from hereish.core.privacy import positive
from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError, PointError

_DAY_S = 86400.0
_EPOCH_DAY = date(1970, 1, 1).toordinal()
# Far enough for every real clock, near enough that zoneinfo and the table of midnights stay exact.
_FIRST_S = datetime(1800, 1, 1, tzinfo=UTC).timestamp()
_LAST_S = datetime(2500, 1, 1, tzinfo=UTC).timestamp()


class Window(Protocol):
    """Numbers the windows; numbers never fall as time goes on."""

    def index(self, at_s: Floats) -> Ints | None:
        """The window of each time; None if there is only one for ever."""
        ...

    def covers(self, index: int | None = None) -> str:
        """What one budget covers, for people; of the window with this number if one is given."""
        ...


@dataclass(frozen=True)
class NoReset:
    """One budget for ever."""

    def index(self, at_s: Floats) -> Ints | None:
        return None

    def covers(self, index: int | None = None) -> str:
        return "all reports together"


@dataclass(frozen=True)
class Every:
    """A fresh budget each `duration`, counted from the start of 1970 in UTC."""

    duration: timedelta

    def __post_init__(self) -> None:
        if not isinstance(self.duration, timedelta):
            raise ParameterError(
                f"duration must be a datetime.timedelta, found {type(self.duration).__name__}"
            )
        positive("duration in seconds", self.duration.total_seconds())

    def index(self, at_s: Floats) -> Ints | None:
        return np.floor(at_s / self.duration.total_seconds()).astype(np.int64)

    def covers(self, index: int | None = None) -> str:
        if index is None:
            return f"the reports of each window of {self.duration}"
        try:
            start = datetime(1970, 1, 1, tzinfo=UTC) + index * self.duration
        except OverflowError:  # beyond the years that can be told
            return f"the reports of window {index} of {self.duration}"
        return f"the reports of the {self.duration} from {start.isoformat()}"


@dataclass(frozen=True)
class Day:
    """A fresh budget each calendar day of a time zone (an IANA name, such as Europe/Helsinki)."""

    time_zone: str

    def __post_init__(self) -> None:
        _zone(self.time_zone)

    def index(self, at_s: Floats) -> Ints | None:
        if not len(at_s):
            return np.empty(0, dtype=np.int64)
        low_s, high_s = float(at_s.min()), float(at_s.max())
        if not (low_s >= _FIRST_S and high_s <= _LAST_S):
            raise PointError("a time lies outside the years 1800 to 2500; check the clock")
        first, starts = _days(self.time_zone, low_s, high_s)
        return first + _EPOCH_DAY - 1 + starts.searchsorted(at_s, side="right")

    def covers(self, index: int | None = None) -> str:
        if index is None:
            return f"the reports of each day ({self.time_zone})"
        try:
            day = str(date.fromordinal(index))
        except (OverflowError, ValueError):  # beyond the years that can be told
            day = f"day {index}"
        return f"the reports of {day} ({self.time_zone})"


# Per time zone: the first day of a table and when its days begin. Replaced whole, never changed.
_midnights: dict[str, tuple[int, Floats]] = {}


def _days(zone: str, low_s: float, high_s: float) -> tuple[int, Floats]:
    """A first day, and the beginnings of the days from it on, that cover these times."""
    first, last = int(low_s // _DAY_S) - 2, int(high_s // _DAY_S) + 3
    table = _midnights.get(zone)
    if table is not None:
        if table[0] <= first and last < table[0] + len(table[1]):
            return table
        first, last = min(first, table[0]), max(last, table[0] + len(table[1]) - 1)
    # A week to spare, so that a live session builds one table per week; and never a falling one,
    # although a clock set back over midnight repeats a date.
    starts = np.array([_midnight_s(zone, day) for day in range(first, last + 8)])
    table = _midnights[zone] = first, np.maximum.accumulate(starts)
    return table


@cache
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise ParameterError(
            f"time zone must be an IANA name such as 'Europe/Helsinki', found {name!r} (if that is "
            "one, this system has no time zone data: pip install tzdata)"
        ) from None


def _midnight_s(zone: str, day: int) -> float:
    """When this day (since 1970) begins: a midnight that is skipped begins as the clock jumps."""
    midnight = datetime.combine(date.fromordinal(day + _EPOCH_DAY), time(), tzinfo=_zone(zone))
    return midnight.timestamp()


def as_window(window: Window | str | timedelta | None) -> Window:
    """What callers may write for a window, as a window."""
    if window is None or window == "none":
        return NoReset()
    if isinstance(window, timedelta):
        return Every(window)
    if isinstance(window, str):
        hint = "a day begins somewhere: write hereish.Day('Europe/Helsinki')"
        raise ParameterError(
            f"window must be 'none', a hereish.Day, a timedelta or a window of your own, "
            f"found {window!r}" + (f"; {hint}" if window == "day" else "")
        )
    return window
