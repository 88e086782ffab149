"""Whole days: which take part, when queries are made, and from where."""

from __future__ import annotations

import math
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import hereish
from hereish.errors import ParameterError
from hereish.evaluation.dataset import Trajectories
from hereish.evaluation.days import DayQueries, select_days, time_zone_of

HELSINKI = "Europe/Helsinki"
HALF_HOUR_S, HOUR_S = 1800.0, 3600.0


def at(text: str, zone: str = HELSINKI) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def made(*traces: tuple[int, list[float]], users: int | None = None) -> Trajectories:
    """Trajectories of these users at these times; the latitude numbers the fixes."""
    lengths = [len(times) for _, times in traces]
    n = sum(lengths)
    return Trajectories(
        "made",
        np.array([moment for _, times in traces for moment in times]),
        np.column_stack([np.arange(n) / 1000.0, np.full(n, 25.0)]),
        np.r_[0, np.cumsum(lengths)],
        np.array([user for user, _ in traces]),
        users or 1 + max(user for user, _ in traces),
    )


def fixes(queries: DayQueries) -> list[int]:
    return [round(latitude * 1000) for latitude in queries.points[:, 0].tolist()]


def day_of(date: str, first: str = "00:00", last: str = "23:00") -> tuple[int, list[float]]:
    return 0, [at(f"{date}T{first}"), at(f"{date}T{last}")]


@pytest.mark.parametrize(
    ("date", "hours"), [("2025-06-03", 24), ("2025-03-30", 23), ("2025-10-26", 25)]
)
def test_a_day_lasts_until_local_midnight_also_when_clocks_are_set(date: str, hours: int) -> None:
    queries = select_days(made(day_of(date)), HELSINKI, HALF_HOUR_S)
    assert len(queries.at_s) == 2 * hours
    assert np.diff(queries.at_s).tolist() == [HALF_HOUR_S] * (2 * hours - 1)
    zone = ZoneInfo(HELSINKI)
    local = [datetime.fromtimestamp(moment, zone) for moment in queries.at_s]
    assert {str(moment.date()) for moment in local} == {date}
    assert local[-1].strftime("%H:%M") == "23:30"
    assert queries.local_hour.tolist() == [moment.hour + moment.minute / 60 for moment in local]
    (window,) = {hereish.Day(HELSINKI).index(np.array([moment]))[0] for moment in queries.at_s}  # type: ignore[index]  # a day has a number
    assert window == datetime.fromisoformat(date).toordinal()


def test_a_fix_at_midnight_is_of_the_day_that_begins() -> None:
    queries = select_days(
        made((0, [at("2025-06-03T10:00"), at("2025-06-03T20:00"), at("2025-06-04T00:00")])),
        HELSINKI,
        HOUR_S,
    )
    assert queries.days == 1
    assert queries.local_hour.tolist() == list(range(10, 24))


def test_days_of_eight_hours_take_part_and_at_most_the_first_thirty() -> None:
    too_short = made(day_of("2025-06-03", "08:00", "15:59"))
    with pytest.raises(ParameterError, match="made has no day with 8 hours between"):
        select_days(too_short, HELSINKI, HOUR_S)
    assert select_days(made(day_of("2025-06-03", "08:00", "16:00")), HELSINKI, HOUR_S).days == 1
    first, last = day_of("2025-06-03", "08:00", "18:00")[1]
    many = made((0, [t + 86400.0 * i for i in range(40) for t in (first, last)]))
    queries = select_days(many, HELSINKI, HOUR_S)
    assert queries.days == 30
    assert queries.at_s[0] == first
    assert queries.at_s[-1] < first + 30 * 86400.0
    assert select_days(many, HELSINKI, HOUR_S, most_days=3).days == 3


def test_the_place_is_the_last_known_fix_of_all_traces_of_the_user() -> None:
    start = at("2025-06-03T08:00")
    hours = [0.0, 3.0, 9.0], [1.0, 2.5]  # two traces of one user, one inside the other
    traces = [(1, [start + HOUR_S * h for h in trace]) for trace in hours]
    queries = select_days(made(*traces, users=3), HELSINKI, HOUR_S)
    assert (len(queries), queries.users, queries.user.tolist()) == (1, 3, [1])
    # At the very time of a fix it is known; after the last one nothing moves.
    assert fixes(queries) == [0, 3, 3, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]
    short = select_days(made(*traces), HELSINKI, HOUR_S, until="last_fix")
    assert fixes(short) == [0, 3, 3, 1, 1, 1, 1, 1, 1, 2]


def test_the_days_of_a_user_follow_one_another_in_one_trace() -> None:
    days = [day_of(f"2025-06-0{n}", "09:00", "18:00")[1] for n in (3, 4, 6)]
    data = made((0, days[0]), (1, days[1]), (0, days[1]), (0, days[2]))
    queries = select_days(data, HELSINKI, HOUR_S)
    assert queries.offsets.tolist() == [0, 45, 60]
    assert np.bincount(queries.day).tolist() == [15, 15, 15, 15]
    m = hereish.independent(
        hereish.Privacy(math.log(10), 100), reports=15, window=hereish.Day(HELSINKI)
    )
    out = hereish.sanitize(m, queries.points, queries.at_s, queries.offsets, seed=1)
    assert out.released.all()  # each day has a budget of its own
    twice = queries.take(np.array([1, 0, 1]))
    assert twice.offsets.tolist() == [0, 15, 60, 75]
    assert twice.user.tolist() == [1, 0, 1]
    assert twice.days == 5
    np.testing.assert_array_equal(twice.points[:15], twice.points[60:])
    np.testing.assert_array_equal(twice.at_s[15:60], queries.at_s[:45])


@pytest.mark.parametrize("every_s", [0.0, 59.0, 86401.0, math.nan])
def test_odd_intervals_are_refused(every_s: float) -> None:
    with pytest.raises(ParameterError, match="from 1 minute to 24 hours"):
        select_days(made(day_of("2025-06-03")), HELSINKI, every_s)


@pytest.mark.parametrize(
    ("longitude", "zone", "hours"),
    [(116.3, "Etc/GMT-8", 8), (-122.4, "Etc/GMT+8", -8), (3.0, "Etc/GMT", 0),
     (180.0, "Etc/GMT-12", 12), (-180.0, "Etc/GMT+12", -12)],
)  # fmt: skip
def test_a_time_zone_by_longitude(longitude: float, zone: str, hours: int) -> None:
    points = np.array([[0.0, longitude], [0.0, longitude], [0.0, 7.0]])
    assert time_zone_of(points) == zone
    offset = datetime(2025, 6, 3, tzinfo=ZoneInfo(zone)).utcoffset()
    assert offset is not None
    assert offset.total_seconds() == hours * HOUR_S
