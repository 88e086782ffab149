"""Whole local days: queries at a steady interval from the first fix of a day until its midnight.

The place of a query is the last known fix, so a silent logger is somebody who is still. A user's
days follow one another in one trace: with a window of `Day` each has a budget of its own, and what
a mechanism remembers is carried over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np

from hereish.core.types import Floats, Ints
from hereish.core.windows import Day
from hereish.errors import ParameterError
from hereish.evaluation.dataset import Trajectories
from hereish.evaluation.sampling import Queries

LEAST_S = 8 * 3600.0  # between the first and the last fix of a day
MOST_DAYS = 30  # per user: the first ones
SHORTEST_S, LONGEST_S = 60.0, 86400.0  # between two queries
_DAY_S, _QUARTER_S = 86400.0, 900.0  # no clock is set between two quarters of an hour
_NONE = timedelta(0)
_LONGEST_DAY_S = 26 * 3600.0  # a day on which a clock is set back is longer than others

Until = Literal["midnight", "last_fix"]


@dataclass(frozen=True, eq=False)
class DayQueries(Queries):
    """Queries of whole days, one trace per user, as `hereish.sanitize` takes them."""

    day: Ints  # (n,) of each query; days are numbered from 0 through all users
    every_s: float
    time_zone: str

    def __repr__(self) -> str:
        return f"<{len(self.at_s)} queries of {self.days} days of {len(self)} users>"

    @property
    def days(self) -> int:
        """How many days there are, of all users together."""
        return int(self.day[-1]) + 1 if len(self.day) else 0

    @cached_property
    def local_hour(self) -> Floats:
        """(n,) What the local clock shows at each query, in hours from 0 to 24."""
        zone = ZoneInfo(self.time_zone)
        quarters, which = np.unique(self.at_s // _QUARTER_S, return_inverse=True)  # for speed
        clocks = [datetime.fromtimestamp(q * _QUARTER_S, zone) for q in quarters.tolist()]
        ahead_s = np.array([(clock.utcoffset() or _NONE).total_seconds() for clock in clocks])
        return np.asarray((self.at_s + ahead_s[which]) % _DAY_S / 3600.0)

    def take(self, traces: Ints) -> DayQueries:
        """These traces only, or some of them several times, as for several samples of the noise."""
        rows, offsets = self._rows_of(traces)
        new_day = np.diff(self.day[rows], prepend=-1) != 0
        new_day[offsets[:-1]] = True
        return replace(
            self,
            at_s=self.at_s[rows],
            points=self.points[rows],
            offsets=offsets,
            user=self.user[traces],
            day=np.cumsum(new_day) - 1,
        )


def select_days(
    trajectories: Trajectories,
    time_zone: str,
    every_s: float,
    *,
    least_s: float = LEAST_S,
    most_days: int = MOST_DAYS,
    until: Until = "midnight",
) -> DayQueries:
    """The first `most_days` days of each user with fixes at least `least_s` apart, as queries.

    All fixes of a user count, whatever trajectory they are of. Queries go on until the day is over,
    or only until its last fix.
    """
    if not SHORTEST_S <= every_s <= LONGEST_S:
        raise ParameterError(
            f"the time between queries must be from 1 minute to 24 hours, found {every_s:g} s"
        )
    window = Day(time_zone)
    whose = np.repeat(trajectories.user, np.diff(trajectories.offsets))
    order = np.lexsort((trajectories.at_s, whose))
    whose, fix_s = whose[order], trajectories.at_s[order]
    bounds = np.searchsorted(whose, np.arange(trajectories.users + 1))
    at_s: list[Floats] = []
    fix: list[Ints] = []
    counts: list[Ints] = []  # queries of each day
    user: list[int] = []
    for number in range(trajectories.users):
        own_s = fix_s[bounds[number] : bounds[number + 1]]
        first, last = _long_days(own_s, window, least_s)
        asked_s, of_days = _query_times(
            own_s[first[:most_days]], own_s[last[:most_days]], window, every_s, until
        )
        if len(asked_s):
            user.append(number)
            at_s.append(asked_s)
            counts.append(of_days)
            last_known = np.searchsorted(own_s, asked_s, side="right") - 1
            fix.append(order[bounds[number] + last_known])
    if not user:
        raise ParameterError(
            f"{trajectories.name} has no day with {least_s / 3600:g} hours between its first and "
            "last fix; whole days need longer traces"
        )
    per_day = np.concatenate(counts)
    return DayQueries(
        np.concatenate(at_s),
        trajectories.points[np.concatenate(fix)],
        np.r_[0, np.cumsum([len(times) for times in at_s])],
        np.array(user, dtype=np.int64),
        trajectories.users,
        np.repeat(np.arange(len(per_day)), per_day),
        float(every_s),
        time_zone,
    )


def _long_days(fix_s: Floats, window: Day, least_s: float) -> tuple[Ints, Ints]:
    """The first and the last fix of each day of one user that takes part."""
    date = _dates(window, fix_s)
    first = np.flatnonzero(np.diff(date, prepend=-1))
    last = np.r_[first[1:], len(date)][: len(first)] - 1
    long_enough = fix_s[last] - fix_s[first] >= least_s
    return first[long_enough], last[long_enough]


def _query_times(
    first_s: Floats, last_s: Floats, window: Day, every_s: float, until: Until
) -> tuple[Floats, Ints]:
    """When one user is asked, and how many times on each day."""
    steps = every_s * np.arange(math.ceil(_LONGEST_DAY_S / every_s))
    asked_s = first_s[:, None] + steps
    if until == "last_fix":
        asked = asked_s <= last_s[:, None]
    else:
        date = _dates(window, asked_s.reshape(-1)).reshape(asked_s.shape)
        asked = date == date[:, :1]
    return asked_s[asked], asked.sum(axis=1)


def _dates(window: Day, at_s: Floats) -> Ints:
    index = window.index(at_s)
    if index is None:  # no day has none
        raise ParameterError("whole days need a window that numbers its days")
    return index


def time_zone_of(points: Floats) -> str:
    """The zone of whole hours nearest to the sun's time at the median longitude, as an IANA name.

    A stand-in where none is given; it knows no daylight saving.
    """
    hours = round(float(np.median(points[:, 1])) / 15.0)
    return f"Etc/GMT{-hours:+d}" if hours else "Etc/GMT"  # their signs are those of POSIX
