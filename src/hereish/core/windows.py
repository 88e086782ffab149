"""Budget windows: when a fresh budget begins, and what a guarantee therefore covers.

A reset is a decision, not a theorem: the budget bounds what one window tells, and n windows
together tell up to n times as much. So windows can be combined, with a budget each:
`Day("Europe/Helsinki") & Days(30).within(math.log(1000))`. Windows depend on public time alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, lru_cache
from typing import NamedTuple, Protocol
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
    """Numbers the windows; numbers never fall as time goes on.

    A window may also have a method `end_s(at_s)`, when the window of each time ends: budget
    managers that pace ask for it.
    """

    def index(self, at_s: Floats) -> Ints | None:
        """The window of each time; None if there is only one for ever."""
        ...

    def covers(self, index: int | None = None) -> str:
        """What one budget covers, for people; of the window with this number if one is given."""
        ...


class Combinable:
    """A window that can be one of several, each with a budget of its own.

    The first of them has the budget of the mechanism's `privacy`; the others are limits, and say
    theirs: `Day("Europe/Helsinki") & Days(30).within(6.9) & Forever.within(13.8)`.
    """

    def within(self, level: float) -> Limit:
        """The window with a budget: a level inside the radius of the mechanism's `privacy`."""
        return Limit(self, positive("level", level))  # type: ignore[arg-type]  # they are windows

    def __and__(self, other: Window | Limit) -> Nested:
        return Nested(self) & other  # type: ignore[arg-type]  # they are windows


@dataclass(frozen=True)
class Limit:
    """A window beside the first one, and its budget: a level inside the mechanism's radius."""

    window: Window
    level: float | None = None  # None: it was forgotten, and the mechanism will say so

    def __post_init__(self) -> None:
        if isinstance(self.window, (Limit, Nested)):
            raise ParameterError(
                "a limit is one window with one budget, found several: write them beside each "
                "other, as in Day(zone) & Days(30).within(level) & Forever.within(level)"
            )
        if self.level is not None:
            if isinstance(self.level, (bool, str)):
                raise ParameterError(f"level must be a number, found {self.level!r}")
            # A plain double: sums are compared with it, and narrower numbers would round them.
            object.__setattr__(self, "level", positive("level", self.level))

    def __and__(self, other: object) -> Nested:
        raise ParameterError(
            "the first of several windows has the budget of the mechanism's privacy, and none of "
            "its own: write hereish.Day('Europe/Helsinki') & hereish.Days(30).within(level)"
        )

    def covers(self, bucket: int | None = None) -> str:
        """What its budget covers, for people."""
        return self.window.covers(bucket)


@dataclass(frozen=True)
class Nested:
    """Several windows at once: one that has the mechanism's budget, and limits beside it."""

    first: Window
    limits: tuple[Limit, ...] = ()

    def __and__(self, other: Window | Limit) -> Nested:
        if isinstance(other, Nested):
            raise ParameterError(
                "windows are combined one by one, each but the first with a budget: found several "
                "at once on the right of &"
            )
        limit = other if isinstance(other, Limit) else Limit(other)
        if not callable(getattr(limit.window, "index", None)):
            raise ParameterError(
                f"windows are combined with windows, found {type(limit.window).__name__}"
            )
        return Nested(self.first, (*self.limits, limit))

    def index(self, at_s: Floats) -> Ints | None:
        return self.first.index(at_s)

    def covers(self, index: int | None = None) -> str:
        return self.first.covers(index)


@dataclass(frozen=True)
class NoReset(Combinable):
    """One budget for ever. `Forever` is one of these."""

    def index(self, at_s: Floats) -> Ints | None:
        return None

    def end_s(self, at_s: Floats) -> Floats:
        return np.full(len(at_s), np.inf)

    def covers(self, index: int | None = None) -> str:
        return "all reports together"


Forever = NoReset()
"""One budget for ever, as a limit beside others: `Day("UTC") & Forever.within(13.8)`."""


@dataclass(frozen=True)
class Every(Combinable):
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

    def end_s(self, at_s: Floats) -> Floats:
        duration_s = self.duration.total_seconds()
        return np.asarray((np.floor(at_s / duration_s) + 1.0) * duration_s)

    def start_s(self, at_s: Floats) -> Floats:
        """When the window of each time began."""
        duration_s = self.duration.total_seconds()
        return np.asarray(np.floor(at_s / duration_s) * duration_s)

    def covers(self, index: int | None = None) -> str:
        if index is None:
            return f"the reports of each window of {self.duration}"
        try:
            start = datetime(1970, 1, 1, tzinfo=UTC) + index * self.duration
        except OverflowError:  # beyond the years that can be told
            return f"the reports of window {index} of {self.duration}"
        return f"the reports of the {self.duration} from {start.isoformat()}"


@dataclass(frozen=True)
class Day(Combinable):
    """A fresh budget each calendar day of a time zone (an IANA name, such as Europe/Helsinki)."""

    time_zone: str

    def __post_init__(self) -> None:
        _zone(self.time_zone)

    def index(self, at_s: Floats) -> Ints | None:
        days, place = self._find(at_s)
        return place + (days.first + _EPOCH_DAY)

    def end_s(self, at_s: Floats) -> Floats:
        days, place = self._find(at_s)
        return days.starts_s[place + 1]

    def start_s(self, at_s: Floats) -> Floats:
        """When the day of each time began."""
        return self.span_s(at_s)[0]

    def span_s(self, at_s: Floats) -> tuple[Floats, Floats]:
        """When the day of each time begins and ends."""
        days, place = self._find(at_s)
        return days.starts_s[place], days.starts_s[place + 1]

    def _find(self, at_s: Floats) -> tuple[_Days, Ints]:
        """A table of days, and the place of each time's day in it."""
        if not len(at_s):
            return _Days(0, np.empty(1), False), np.empty(0, dtype=np.int64)
        # The one of a live report is looked at sooner in Python.
        low_s, high_s = at_s.item(0), at_s.item(0)
        if len(at_s) > 1:
            low_s, high_s = float(at_s.min()), float(at_s.max())
        check_years(low_s, high_s)
        days = _days(self.time_zone, low_s, high_s)
        if days.regular and len(at_s) == 1:
            return days, np.array([int((low_s - days.starts_s.item(0)) / _DAY_S)])
        if days.regular:  # much faster than a search, and exact
            return days, ((at_s - days.starts_s[0]) / _DAY_S).astype(np.int64)
        return days, days.starts_s.searchsorted(at_s, side="right") - 1

    def covers(self, index: int | None = None) -> str:
        if index is None:
            return f"the reports of each day ({self.time_zone})"
        try:
            day = str(date.fromordinal(index))
        except (OverflowError, ValueError):  # beyond the years that can be told
            day = f"day {index}"
        return f"the reports of {day} ({self.time_zone})"


@dataclass(frozen=True)
class Month(Combinable):
    """A fresh budget each calendar month of a time zone (an IANA name, such as Europe/Helsinki)."""

    time_zone: str

    def __post_init__(self) -> None:
        _zone(self.time_zone)

    def index(self, at_s: Floats) -> Ints:
        starts_s, first = self._starts(at_s)
        return starts_s.searchsorted(at_s, side="right") - 1 + first

    def end_s(self, at_s: Floats) -> Floats:
        starts_s, _ = self._starts(at_s)
        return starts_s[starts_s.searchsorted(at_s, side="right")]

    def start_s(self, at_s: Floats) -> Floats:
        """When the month of each time began."""
        starts_s, _ = self._starts(at_s)
        return starts_s[starts_s.searchsorted(at_s, side="right") - 1]

    def _starts(self, at_s: Floats) -> tuple[Floats, int]:
        """When months begin that cover these times, and the number of the first of them."""
        if not len(at_s):
            return np.empty(0), 0
        low_s, high_s = float(at_s.min()), float(at_s.max())
        check_years(low_s, high_s)
        # The local year is that of UTC or the one beside it.
        low, high = (datetime.fromtimestamp(each, tz=UTC).year for each in (low_s, high_s))
        return _month_starts(self.time_zone, low - 1, high + 2), 12 * (low - 1)

    def covers(self, index: int | None = None) -> str:
        if index is None:
            return f"the reports of each month ({self.time_zone})"
        return f"the reports of {index // 12:04d}-{index % 12 + 1:02d} ({self.time_zone})"


@lru_cache(maxsize=64)
def _month_starts(zone: str, first_year: int, last_year: int) -> Floats:
    starts = [
        _midnight_s(zone, date(year, month, 1).toordinal() - _EPOCH_DAY)
        for year in range(first_year, last_year + 1)
        for month in range(1, 13)
    ]
    return np.array(starts)


def check_years(low_s: float, high_s: float) -> None:
    """Refuse times of which local clocks cannot be told."""
    if not (low_s >= _FIRST_S and high_s <= _LAST_S):
        raise PointError("a time lies outside the years 1800 to 2500; check the clock")


class _Days(NamedTuple):
    """When the days of a time zone begin, from a first one on."""

    first: int
    starts_s: Floats
    regular: bool  # all are 24 hours long, and few enough for that to tell them apart in doubles


# Per time zone. Replaced whole, never changed.
_midnights: dict[str, _Days] = {}
_MOST_REGULAR = 4000
# Tables of times further apart than this are not joined: one probe of 1970, and every later table
# would be of twenty thousand days, built again each week.
_APART_DAYS = 400


def _days(zone: str, low_s: float, high_s: float) -> _Days:
    """A table of days that covers these times."""
    first, last = int(low_s // _DAY_S) - 2, int(high_s // _DAY_S) + 3
    table = _midnights.get(zone)
    if table is not None:
        if table.first <= first and last < table.first + len(table.starts_s):
            return table
        begins, ends = table.first, table.first + len(table.starts_s) - 1
        if begins - _APART_DAYS < last and first < ends + _APART_DAYS:
            first, last = min(first, begins), max(last, ends)
    # A week to spare, so that a live session builds one table per week; and never a falling one,
    # although a clock set back over midnight repeats a date.
    starts = np.array([_midnight_s(zone, day) for day in range(first, last + 8)])
    starts = np.maximum.accumulate(starts)
    regular = len(starts) <= _MOST_REGULAR and bool((np.diff(starts) == _DAY_S).all())
    table = _midnights[zone] = _Days(first, starts, regular)
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


def split_windows(
    window: Window | str | timedelta | None,
) -> tuple[Window, tuple[Limit, ...]]:
    """What callers may write for a window as the first one, and the limits beside it."""
    if not isinstance(window, Nested):
        return as_window(window), ()
    check_limits(window.limits)
    first, before = split_windows(window.first)  # which may be several itself
    return first, (*before, *window.limits)


def check_limits(limits: tuple[Limit, ...]) -> None:
    """Refuse a limit without a budget."""
    for limit in limits:
        if not isinstance(limit, Limit):
            raise ParameterError(f"limits must be hereish.Limit, found {type(limit).__name__}")
        if limit.level is None:
            raise ParameterError(
                f"a budget is missing for {limit.covers()}: each window beside the first needs "
                "one, such as hereish.Days(30).within(math.log(1000))"
            )


def as_window(window: Window | str | timedelta | None) -> Window:
    """What callers may write for a window, as a window."""
    if isinstance(window, Limit):
        raise ParameterError(
            "the budget of the first window, or the only one, is that of the mechanism's privacy: "
            "leave out within"
        )
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
