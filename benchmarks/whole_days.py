"""What `hereish.whole_day` costs: days of people who move, a report every half hour or second."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise

import numpy as np

import hereish
from benchmarks.mechanism import PRIVACY, Traces, plain_numpy
from benchmarks.results import Result, shortest_times
from hereish import synthetic
from hereish.core.types import Floats

REPORTS = 48
DAY_S = 86400.0
_AT_A_TIME = 2000  # people that are made up at once


def mechanism() -> hereish.PredictiveMechanism:
    """As it comes, with the day of the made-up city."""
    return hereish.whole_day(PRIVACY, window=hereish.Day(synthetic.TIME_ZONE))


def days_of(users: int, days: int) -> Traces:
    """So many days of each of so many people. Nobody reports at the moment of anybody else."""
    rng = np.random.default_rng(1)
    clock_s: Floats = np.asarray((np.arange(REPORTS) + 0.5) * (DAY_S / REPORTS), dtype=np.float64)
    points = []
    for first in range(0, users, _AT_A_TIME):
        count = min(_AT_A_TIME, users - first)
        where = synthetic.whereabouts_on_days(count, first + 1, days, clock_s)
        points.append(where.reshape(-1, 2))
    each_s = np.concatenate([clock_s + DAY_S * day for day in range(days)])
    at_s = each_s + rng.uniform(-900.0, 900.0, (users, 1)) + rng.uniform(0.0, 1.0, (users, 1))
    offsets = np.arange(users + 1) * len(each_s)
    return Traces(np.concatenate(points), synthetic.MIDNIGHT_S + at_s.ravel(), offsets)


def dense_log(users: int, days: int, every_s: float) -> Traces:
    """So many days of people with a logger that writes a point so often."""
    clock_s = np.arange(0.0, DAY_S, every_s)
    points = synthetic.whereabouts_on_days(users, 1, days, clock_s).reshape(-1, 2)
    each_s = np.concatenate([clock_s + DAY_S * day for day in range(days)])
    offsets = np.arange(users + 1) * len(each_s)
    return Traces(points, synthetic.MIDNIGHT_S + np.tile(each_s, users), offsets)


def whole_day_batch() -> list[Result]:
    """A batch against independent noise in plain NumPy."""
    m, rows = mechanism(), []
    for users, days in ((40_000, 1), (8_000, 7)):
        data = days_of(users, days)
        plain, ours = shortest_times(
            7, partial(plain_numpy, data.points), partial(hereish.sanitize, m, *data)
        )
        ratio = plain / ours
        rows.append(
            Result(
                f"points per second, whole_day, {users:,} people, {days} day(s) of {REPORTS} "
                "reports: hereish.sanitize (secure) / plain NumPy independent noise (PCG64)",
                f"{ratio:.2f}",
                "at least 0.4",
                ratio >= 0.4,
            )
        )
    return rows


def whole_day_lone() -> list[Result]:
    """A point of a dense log of one person, and of several, against one of very many people."""
    m, many = mechanism(), days_of(8_000, 7)
    logs = [dense_log(1, 12, 1.0), dense_log(1, 24, 2.0), dense_log(20, 1, 2.0)]
    took = shortest_times(5, *(partial(hereish.sanitize, m, *data) for data in (many, *logs)))
    many_each, *lone_each = (
        time / len(data.at_s) for time, data in zip(took, (many, *logs), strict=True)
    )
    rows = []
    for each, people, apart in zip(lone_each, (1, 1, 20), (1, 2, 2), strict=True):
        ratio = each / many_each
        rows.append(
            Result(
                f"time per point, whole_day, {people} with a point every {apart} s / 8,000 people "
                f"with {REPORTS} a day",
                f"{ratio:.1f} ({each * 1e6:.2g} µs)",
                "at most 5",
                ratio <= 5.0,
            )
        )
    return rows


def whole_day_live() -> list[Result]:
    """A live report against the smallest thing NumPy does."""
    m, data, calls = mechanism(), days_of(20, 2), 20_000
    queries = [
        [
            ((float(lat), float(lon)), datetime.fromtimestamp(float(at), tz=UTC))
            for (lat, lon), at in zip(data.points[a:b], data.at_s[a:b], strict=True)
        ]
        for a, b in pairwise(data.offsets)
    ]

    def smallest() -> None:
        for _ in range(calls):
            np.hypot(3.0, 4.0)

    def reports() -> None:
        for query in queries:
            session = m.session()
            for place, at in query:
                session.report(place, at)

    hypot, ours = shortest_times(7, smallest, reports)
    ratio = (ours / len(data.at_s)) / (hypot / calls)
    what = "one live report, whole_day / one scalar np.hypot"
    return [Result(what, f"{ratio:.0f}", "below 250", ratio < 250)]


def whole_day_growth() -> list[Result]:
    """The millionth report of a session against the first ones: its time, and what it holds."""
    m, data = mechanism(), days_of(1, 7)
    week = [tuple(point) for point in data.points.tolist()]
    times = [datetime.fromtimestamp(float(at), tz=UTC) for at in data.at_s]
    begun = m.session()
    begun.report(week[0], times[0])
    held, state = sum(field.nbytes for field in begun.run), begun.to_state()

    def a_week(state: dict[str, object], later: timedelta) -> hereish.Session:
        session = hereish.Session.from_state(m, state)
        for place, at in zip(week, times, strict=True):
            session.report(place, at + later)
        return session

    # Weeks until all places are taken; the rest of the way to a million is a larger number.
    many = state
    for number in range(1, 20):
        many = a_week(many, timedelta(weeks=number)).to_state()
    many["run"]["reports"] += 10**6
    many["run"]["easy"] += 10**6
    first, later = shortest_times(
        9, partial(a_week, state, timedelta(0)), partial(a_week, many, timedelta(weeks=21))
    )
    grown = sum(field.nbytes for field in hereish.Session.from_state(m, many).run) / held
    return [
        Result(
            "one live report of whole_day after a million / one of the first",
            f"{later / first:.2f}",
            "1",
            later / first < 1.2,
        ),
        Result(
            "memory per lane, whole_day, after a million reports / after the first",
            f"{grown:.2f} ({held} bytes)",
            "1",
            grown == 1.0,
        ),
    ]
