"""Budget managers that spend by the public clock, for decisions that draw the noise first.

What a report may cost follows from the time of day, from how long the user has stayed, and from
what is left. All of that is public, so pacing is free. Proof of the bound: budget.proof.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from hereish.core.budget import Plan
from hereish.core.parts import check_methods
from hereish.core.privacy import positive
from hereish.core.rolling import Rolling
from hereish.core.run import Run
from hereish.core.types import Bools, Floats, Ints, PerLane
from hereish.core.windows import Day, Every, Month, NoReset, Window, check_years
from hereish.errors import ParameterError

_HALF_HOUR_S = 1800.0
_DAY_S = 86400.0
_EPOCH = date(1970, 1, 1)
_NIGHT_S = 6 * 3600.0  # from midnight on
_SETTLES_S = 3600.0  # a stay in which somebody is half settled
# What a report may take of what is left. The rest keeps the next one from being refused.
_MOST_OF_THE_REST = 0.95
# Of the budget: noise of less would be as good as none, and its rest would be gone in quanta.
_NEXT_TO_NOTHING = 2.0**-20
# Of an equal part for each expected report: what is left when many more come is not worth drawing.
_LEAST_PART = 1.0 / 8.0


_FOR_EVER_S = 365.0 * _DAY_S  # for how long a budget for ever is planned, again each day
_CALENDARS = (Day, Every, Month)


@dataclass(frozen=True)
class Tolerance:
    """How near a guess has to be, and how strictly that is asked.

    A guess within `near_m`, and `near_noise` times the scale of the noise, is near. A test is the
    stricter the longer the last one was ago: a share `strictness` of `eps_noise` after half an
    hour, proportionally less or more before or after, up to `longest_s`. So tests cost the same
    per hour however often somebody reports. The longer somebody has stayed the less there is to
    find out: a long stay makes tests up to `1 + calm` times less strict.
    """

    near_m: float
    near_noise: float
    strictness: float
    longest_s: float
    calm: float = 0.0

    def __post_init__(self) -> None:
        for name in ("near_m", "near_noise", "strictness", "longest_s"):
            positive(name, getattr(self, name))
        if self.calm != 0.0:
            positive("calm", self.calm)

    def ask(
        self, run: Run, at_s: Floats, eps_noise: PerLane, calmer: PerLane = 0.0
    ) -> tuple[PerLane, PerLane]:
        """The epsilon of the test and the distance that is near enough; `calmer` adds to calm."""
        # NaN before the first test; there is no guess then, and nothing is asked.
        since_s = _at_most(self.longest_s, _number(at_s) - _number(run.tested_at_s))
        strictness = (self.strictness / _HALF_HOUR_S) * since_s
        calm = self.calm + calmer
        if isinstance(calm, np.ndarray) or calm:
            strictness = strictness / (1.0 + calm * _settled(run, at_s))
        return _at_most(1.0, strictness) * eps_noise, self.near_m + self.near_noise / eps_noise


@dataclass(frozen=True)
class Quiet:
    """Hours of each day in which nothing new is asked: the guess is released untested, for free."""

    begins: time
    ends: time
    time_zone: str

    def __post_init__(self) -> None:
        for name in ("begins", "ends"):
            value = getattr(self, name)
            if not isinstance(value, time) or value.tzinfo is not None:
                raise ParameterError(f"quiet hours are two datetime.time, found {value!r}")
        if self.begins == self.ends:
            raise ParameterError(f"quiet hours must not begin and end at {self.begins}")
        Day(self.time_zone)

    def covers(self, at_s: Floats) -> Bools:
        """Whether each time lies in the quiet hours."""
        nights, place = self._find(at_s, at_s)
        return np.asarray(at_s - nights.begins_s[place] < nights.lengths_s[place])

    def awake_s(self, at_s: Floats, until_s: Floats) -> Floats:
        """How much of the time until then is not quiet."""
        nights, place = self._find(at_s, until_s)
        until = nights.begins_s.searchsorted(until_s, side="right") - 1
        return np.asarray(
            (until_s - at_s) - (nights.quiet_s(until_s, until) - nights.quiet_s(at_s, place))
        )

    def _find(self, at_s: Floats, until_s: Floats) -> tuple[_Nights, Ints]:
        """The quiet hours of these days, and which of them began last before each time."""
        if not len(at_s):
            return _Nights(np.empty(1), np.empty(1), np.empty(1)), np.empty(0, dtype=np.int64)
        low_s, high_s = float(at_s.min()), float(until_s.max())
        check_years(low_s, high_s)
        first, last = int(low_s // _DAY_S) - 2, int(high_s // _DAY_S) + 1
        # By months, so that a live session makes a table per month.
        nights = _nights(self, first - first % 32, last - last % 32 + 32)
        return nights, nights.begins_s.searchsorted(at_s, side="right") - 1


class _Nights(NamedTuple):
    """When the quiet hours of some days begin, how long they are, and how long all before were."""

    begins_s: Floats
    lengths_s: Floats
    before_s: Floats

    def quiet_s(self, at_s: Floats, place: Ints) -> Floats:
        """How much was quiet until then, since the first of these days."""
        into_s = np.minimum(at_s - self.begins_s[place], self.lengths_s[place])
        return np.asarray(self.before_s[place] + into_s)


@lru_cache(maxsize=64)
def _nights(quiet: Quiet, first: int, last: int) -> _Nights:
    """The quiet hours that begin on these days (since 1970), by the local clock."""
    zone = ZoneInfo(quiet.time_zone)
    dates = [_EPOCH + timedelta(days=day) for day in range(first, last)]
    next_day = timedelta(days=int(quiet.ends < quiet.begins))
    begins_s = np.array([_moment_s(date, quiet.begins, zone) for date in dates])
    ends_s = np.array([_moment_s(date + next_day, quiet.ends, zone) for date in dates])
    lengths_s = np.maximum(ends_s - begins_s, 0.0)  # a clock set forward may leave nothing of them
    return _Nights(begins_s, lengths_s, np.cumsum(lengths_s) - lengths_s)


def _moment_s(day: date, clock: time, zone: ZoneInfo) -> float:
    return datetime.combine(day, clock, tzinfo=zone).timestamp()


@dataclass(frozen=True)
class Paced:
    """Spends so that the budget lasts to the end of its window, or for a number of reports.

    Fresh noise takes `share / (1 + n)` of what is left, where n grows by `per_half_hour` with each
    half hour to the end of the window, quiet hours left out. It grows faster for somebody whose
    guesses fail more often than is usual, in `learn_after` reports or so, by `adapt`. With an
    expected number of `reports`, n grows with each to come: by 1 for those whose guesses will
    probably fail, and by `per_report` for the others. To come are those that were not made yet,
    and no fewer than the clock says; with quiet hours, whose free reports are not among the
    expected ones, as many as the clock says. Noise that has
    served long was worth it: after a long stay the next takes up to `1 + settle` times as much,
    and none ever more than `most_eps_noise`, if there is such a limit. From midnight to six by the
    clock of a day's window, whoever has settled is asked up to `1 + calm + night` times less
    strictly: people sleep, and tests that pass all night tell ever more exactly where.

    What is left is never all taken, and where noise would get next to nothing, or less than the
    `smallest_eps` that the space can draw, the guess is repeated for free: so the budget does not
    end before its window, unless `least_eps_noise` asks for an accuracy that cannot be kept, or a
    prediction has no guess to repeat. In a window that never ends, the last of the expected reports
    takes all, and nothing is repeated after it.

    With the `limits` of the mechanism (windows, and what may be spent in each) what is left is what
    the tightest of them leaves: of one that ends, a window's fair share of what is left until its
    end; of a rolling one, what can be spent in every window for ever; of one for ever, as if it had
    to last another year.
    """

    total: float
    window: Window
    tolerance: Tolerance
    share: float
    per_half_hour: float
    usual_hard: float
    learn_after: float
    adapt: float
    settle: float
    reports: int | None = None
    per_report: float = 0.0
    quiet: Quiet | None = None
    least_eps_noise: float = 0.0
    smallest_eps: float = 0.0
    limits: tuple[tuple[Window, float], ...] = field(default=(), metadata={"added_later": True})
    most_eps_noise: float = field(default=0.0, metadata={"added_later": True})
    night: float = field(default=0.0, metadata={"added_later": True})
    needs_history = True

    def __post_init__(self) -> None:
        check_methods(self.window, "window", "end_s")
        for _, total in self.limits:
            positive("total of a limit", total)
        for name in ("total", "share", "usual_hard", "learn_after"):
            positive(name, getattr(self, name))
        optional = ("adapt", "settle", "least_eps_noise", "smallest_eps", "most_eps_noise", "night")
        for name in optional:
            if getattr(self, name) != 0.0:
                positive(name, getattr(self, name))
        planned = self.reports
        if planned is None:
            positive("per_half_hour", self.per_half_hour)
            return
        positive("per_report", self.per_report)
        if isinstance(planned, bool) or not isinstance(planned, (int, np.integer)) or planned < 1:
            raise ParameterError(f"reports must be a whole number from 1, found {planned!r}")

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        left = self.total - _number(run.spent)
        if self.limits:
            left = self._left_by_limits(run, at_s, left)
        by_clock = self.reports is None or (self.night and isinstance(self.window, Day))
        end_s = self.window.end_s(at_s) if by_clock else at_s  # type: ignore[attr-defined]  # it was looked at
        wanted = left * self._share(run, at_s, end_s)
        if self.most_eps_noise:
            wanted = _at_most(self.most_eps_noise, wanted)
        least: PerLane = max(self.least_eps_noise, self.smallest_eps, _NEXT_TO_NOTHING * self.total)
        if self.reports is not None and not self._for_ever:
            whole = left + _number(run.spent) if self.limits else self.total
            least = _larger(least, _LEAST_PART * whole / self.reports)
        # Where less is left than the least, the step refuses it.
        eps_noise = _larger(least, wanted)
        eps_test, threshold = self.tolerance.ask(run, at_s, eps_noise, self._calmer(at_s, end_s))
        if not self.least_eps_noise:
            repeated = np.less(wanted, least)
            if self.reports is not None and self._for_ever:
                repeated = repeated & (run.reports < self.reports)
            if np.count_nonzero(repeated):
                threshold = np.where(repeated, np.inf, threshold)
        if self.quiet is not None:
            threshold = np.where(self.quiet.covers(at_s), np.inf, threshold)
        return Plan(eps_test, eps_noise, threshold)

    def _calmer(self, at_s: Floats, end_s: Floats) -> PerLane:
        """How much less strict the tests of people are who have settled for the night."""
        if not self.night or not isinstance(self.window, Day):
            return 0.0
        # By the next midnight, which the pace needs as well.
        by_night = _number(end_s) - _number(at_s) > _DAY_S - _NIGHT_S
        some = np.count_nonzero(by_night)
        if 0 < some < np.size(by_night):
            return np.where(by_night, self.night, 0.0)
        return self.night if some else 0.0  # the same for all lanes, which is quicker

    def _left_by_limits(self, run: Run, at_s: Floats, left: PerLane) -> PerLane:
        """What is left of the window, and no more than the limits leave of it.

        For each limit: what was left of it when the window began, or is now where it has no
        beginning; of that the window's share of the time; and of that what is not spent yet.
        """
        if run.limit_spent.shape[1] < len(self.limits):
            raise ParameterError("the mechanism must have the limits that its budget plans with")
        spent = _number(run.spent) if isinstance(self.window, _CALENDARS) else 0.0
        begin_s, length_s = _span(self.window, at_s)
        for column, (window, total) in enumerate(self.limits, start=-len(self.limits)):
            before = total - _number(run.limit_spent[:, column]) + spent
            if isinstance(window, Rolling):
                lasting = total * (length_s / (window.bucket_s * (window.older + 1.0)))
                share = _smaller(lasting, before)
            elif isinstance(window, NoReset):
                share = before * _at_most(1.0, length_s / _FOR_EVER_S)
            elif isinstance(window, _CALENDARS):
                ahead_s = _number(window.end_s(at_s)) - begin_s
                share = before * _at_most(1.0, length_s / ahead_s)
            else:  # a window of one's own
                share = before
            left = _smaller(share - spent, left)
        return left

    def _share(self, run: Run, at_s: Floats, end_s: Floats) -> PerLane:
        """What fresh noise may take of what is left."""
        hard, reports = _number(run.hard), _number(run.reports)
        worth = self.share * (1.0 + self.settle * _settled(run, at_s))
        known = self.learn_after
        failing = (hard + known * self.usual_hard) / (reports + known)
        if self.reports is None:
            pace = _at_least(0.0, 1.0 + self.adapt * (failing / self.usual_hard - 1.0))
            ahead_s = end_s - at_s if self.quiet is None else self.quiet.awake_s(at_s, end_s)
            share = worth / (1.0 + (self.per_half_hour / _HALF_HOUR_S) * _number(ahead_s) * pace)
            return _at_most(_MOST_OF_THE_REST, share)
        to_come = self._to_come(reports, at_s)
        # Of those to come so many will be hard; the others, and all tests, take `per_report`.
        weight = self.per_report + (1.0 - self.per_report) * failing
        share = _at_most(_MOST_OF_THE_REST, worth / (1.0 + weight * to_come))
        return np.where(np.greater(to_come, 0), share, 1.0) if self._for_ever else share

    def _to_come(self, reports: PerLane, at_s: Floats) -> PerLane:
        """Of the expected reports those after this one: by their number, and by the clock."""
        if self.reports is None:
            return 0
        if isinstance(self.window, Rolling):  # as many are always to come
            return self.reports - 1
        by_number = _at_least(0, self.reports - 1 - reports)
        if not isinstance(self.window, (Day, Every)):
            return by_number
        begin_s, end_s = self.window.start_s(at_s), self.window.end_s(at_s)
        if self.quiet is None:
            whole_s, ahead_s = end_s - begin_s, end_s - at_s
        else:
            whole_s = np.maximum(self.quiet.awake_s(begin_s, end_s), 1.0)
            ahead_s = self.quiet.awake_s(at_s, end_s)
        by_clock = _at_least(0.0, _number(self.reports * (ahead_s / whole_s) - 1.0))
        if self.quiet is not None:  # free reports are counted among the others
            return by_clock
        return np.maximum(by_number, by_clock)

    @property
    def _for_ever(self) -> bool:
        return isinstance(self.window, NoReset)


@dataclass(frozen=True)
class Steady:
    """Fresh noise of at least `eps_noise`, as many as fit; the guess is tested by the clock.

    After a long stay the next noise takes up to `1 + settle` times as much.
    """

    eps_noise: float
    tolerance: Tolerance
    settle: float = 0.0
    needs_history = True

    def __post_init__(self) -> None:
        positive("eps_noise", self.eps_noise)
        if self.settle != 0.0:
            positive("settle", self.settle)

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        eps_noise: PerLane = self.eps_noise
        if self.settle:
            eps_noise = eps_noise * (1.0 + self.settle * _settled(run, at_s))
        eps_test, threshold = self.tolerance.ask(run, at_s, eps_noise)
        return Plan(eps_test, eps_noise, threshold)


def _span(window: Window, at_s: Floats) -> tuple[PerLane, PerLane]:
    """When the window of each time began, and how long it is; what has no end is endless."""
    if isinstance(window, Day):
        begin_s, end_s = map(_number, window.span_s(at_s))
        return begin_s, end_s - begin_s
    if isinstance(window, _CALENDARS):
        begin_s = _number(window.start_s(at_s))
        return begin_s, _number(window.end_s(at_s)) - begin_s
    length_s = window.duration.total_seconds() if isinstance(window, Rolling) else np.inf
    return _number(at_s), length_s


def _settled(run: Run, at_s: Floats) -> PerLane:
    """How settled somebody is: from 0 just after fresh noise, and before any, to 1 long after."""
    stay_s = _at_least(0.0, _number(at_s) - _number(run.hard_at_s))
    return stay_s / (stay_s + _SETTLES_S)


# One lane, a live report, is reckoned in plain numbers: far quicker, and the same bits, since sums,
# products and quotients are rounded alike.


def _number(values: Floats | Ints) -> PerLane:
    return values.item() if len(values) == 1 else np.asarray(values)


def _smaller(one: PerLane, other: PerLane) -> PerLane:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.minimum(one, other)
    return one if one < other else other


def _larger(one: PerLane, other: PerLane) -> PerLane:
    """`one` where `other` is no number."""
    if isinstance(one, np.ndarray):
        return np.fmax(other, one)
    return _at_least(one, other)


def _at_most(most: float, values: PerLane) -> PerLane:
    """`most` where there is no number, too."""
    if isinstance(values, np.ndarray):
        return np.fmin(values, most)
    return values if values < most else most


def _at_least(least: float, values: PerLane) -> PerLane:
    """`least` where there is no number, too."""
    if isinstance(values, np.ndarray):
        return np.fmax(values, least)
    return values if values > least else least
