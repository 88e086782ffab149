"""Numbers with units, as people write them: 100m, 3 km, ln 10, 30km/h, 5min."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from hereish.core.settings import period_window
from hereish.errors import ParameterError

LENGTH_M = {"m": 1.0, "km": 1000.0, "ft": 0.3048, "mi": 1609.344}
SPEED_KMH = {"km/h": 1.0, "kmh": 1.0, "m/s": 3.6, "mph": 1.609344}
DURATION_S = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)\s*([a-z/]*)\s*", re.ASCII)
_CLOCK_HOURS = re.compile(r"\s*(\d{1,2}):(\d\d)\s*[-–]\s*(\d{1,2}):(\d\d)\s*", re.ASCII)


def _parse(quantity: str, example: str, units: dict[str, float], text: str) -> float:
    match = _NUMBER.fullmatch(text)
    expected = f"{quantity} is a number and one of the units {', '.join(units)}, such as {example}"
    if match is None:
        raise ParameterError(f"{expected}; found {text!r}")
    number, unit = match.groups()
    if not unit:
        raise ParameterError(f"{expected}; {text!r} has no unit")
    if unit not in units:
        raise ParameterError(f"{expected}; {unit!r} is not one of them")
    value = float(number) * units[unit]
    if not (0.0 < value < math.inf):
        raise ParameterError(f"{expected}; it must be above 0, found {text!r}")
    return value


def length_m(text: str) -> float:
    """'100m' or '3 km' in metres."""
    return _parse("a length", "100m or 3km", LENGTH_M, text)


def speed_kmh(text: str) -> float:
    """'30km/h' in kilometres per hour."""
    return _parse("a speed", "30km/h", SPEED_KMH, text)


def duration_s(text: str) -> float:
    """'5min' in seconds."""
    return _parse("a duration", "5min", DURATION_S, text)


def level(text: str) -> float:
    """'ln 10' or a plain number: the level of privacy has no unit."""
    match = re.fullmatch(r"\s*(ln\s*\(?\s*)?([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*\)?\s*", text, re.ASCII)
    expected = "a level is a number above 0 or the logarithm of one above 1, such as 'ln 10'"
    try:
        number = float(match.group(2)) if match else math.nan
        value = math.log(number) if match and match.group(1) else number
    except ValueError:
        value = math.nan
    if not (0.0 < value < math.inf):
        raise ParameterError(f"{expected}; found {text!r}")
    return value


class PeriodBudget(NamedTuple):
    """A budget as people write it: a level, and the period in which it may be spent."""

    level: float
    period: str  # day, month, forever, or a rolling one such as 24h or 30d

    @property
    def length_s(self) -> float:
        """How long the period is, roughly."""
        if self.period in _PERIODS_S:
            return _PERIODS_S[self.period]
        return duration_s(self.period)


_PERIODS_S = {"day": 86400.0, "month": 30.4 * 86400.0, "forever": math.inf}


def budget(text: str) -> PeriodBudget:
    """'ln 10/day', 'ln 1000/month', 'ln 50/30d' or 'ln 1e6/forever'."""
    amount, slash, period = text.rpartition("/")
    period = re.sub(r"\s+", "", period).lower()
    if not slash:
        raise ParameterError(
            "a budget is a level and a period, such as 'ln 10/day', 'ln 1000/month', 'ln 10/24h' "
            f"(any 24 hours) or 'ln 1e6/forever'; found {text!r}"
        )
    period_window(period, "UTC")
    return PeriodBudget(level(amount), period)


def budgets(texts: Sequence[str]) -> list[PeriodBudget]:
    """Several of them, the shortest period first: the others are limits beside it."""
    parsed = sorted(map(budget, texts), key=lambda one: one.length_s)
    periods = [one.period for one in parsed]
    if len(set(periods)) < len(periods):
        raise ParameterError(f"each period has one budget, found {', '.join(periods)}")
    return parsed


def clock_hours(text: str) -> str:
    """'23:00-6:30' as two times of the day: 23:00-06:30."""
    match = _CLOCK_HOURS.fullmatch(text)
    expected = "hours of the day are two times, such as 23:00-06:30"
    if match is None:
        raise ParameterError(f"{expected}; found {text!r}")
    hours = [(int(match[1]), int(match[2])), (int(match[3]), int(match[4]))]
    for hour, minute in hours:
        if hour > 23 or minute > 59:
            raise ParameterError(f"{expected}, each from 00:00 to 23:59; found {text!r}")
    begins, ends = (f"{hour:02}:{minute:02}" for hour, minute in hours)
    if begins == ends:
        raise ParameterError(f"{expected}; they must differ, found {text!r}")
    return f"{begins}-{ends}"
