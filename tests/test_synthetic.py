from __future__ import annotations

from datetime import UTC, datetime
from time import perf_counter
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import hereish
from hereish import synthetic
from hereish.core.types import Bools, Floats

DAY = synthetic.day()
MANY = synthetic.day(users=5000, points_each=30)
# Public transport at its fastest, and the loops that people walk all the while.
MOST_KMH = 25.0 * 1.1 + 1.1


def within_traces(day: synthetic.Sample) -> Bools:
    """True where a point and the next one belong to the same trace."""
    same = np.ones(len(day.points) - 1, dtype=np.bool_)
    same[day.offsets[1:-1] - 1] = False
    return same


def speeds_kmh(day: synthetic.Sample) -> Floats:
    way_m = hereish.Sphere().distance(day.points[1:], day.points[:-1])
    same = within_traces(day)
    return 3.6 * way_m[same] / np.diff(day.at_s)[same]


def test_the_same_seed_gives_the_same_day_and_another_seed_another() -> None:
    again, other = synthetic.day(), synthetic.day(seed=1)
    np.testing.assert_array_equal(DAY.points, again.points)
    np.testing.assert_array_equal(DAY.at_s, again.at_s)
    np.testing.assert_array_equal(DAY.offsets, again.offsets)
    np.testing.assert_array_equal(DAY.routes, again.routes)
    assert not np.array_equal(DAY.points[:30], other.points[:30])


@pytest.mark.parametrize(
    "day", [DAY, MANY, synthetic.day(users=1), synthetic.day(users=3)], ids=repr
)
def test_the_layout_is_what_sanitize_takes(day: synthetic.Sample) -> None:
    people = len(day.users)
    assert day.points.shape == (len(day.at_s), 2)
    assert day.offsets.shape == (people + 1,)
    assert day.offsets.dtype == np.int64
    assert day.offsets[0] == 0
    assert day.offsets[-1] == len(day.at_s)
    assert len(set(day.users)) == people
    assert day.routes.shape == (people, 1 + synthetic.ROUTE_STRIDE * (len(synthetic.STOPS) - 1), 2)
    mechanism = hereish.independent(hereish.Privacy(1.0, 100.0), reports=30)
    assert hereish.sanitize(mechanism, day.points, day.at_s, day.offsets, 1).released.any()


@pytest.mark.parametrize("day", [DAY, MANY], ids=repr)
def test_times_never_fall_and_stay_within_one_calendar_day(day: synthetic.Sample) -> None:
    assert (np.diff(day.at_s)[within_traces(day)] > 0).all()
    zone = ZoneInfo(synthetic.TIME_ZONE)
    dates = {
        datetime.fromtimestamp(at_s, UTC).astimezone(zone).date()
        for at_s in (day.at_s.min(), day.at_s.max())
    }
    assert len(dates) == 1


@pytest.mark.parametrize("day", [DAY, MANY], ids=repr)
def test_nobody_leaves_the_city(day: synthetic.Sample) -> None:
    for points in (day.points, day.routes.reshape(-1, 2)):
        centre = np.broadcast_to(np.array(synthetic.CENTRE_DEG), points.shape)
        assert hereish.Sphere().distance(points, centre).max() < synthetic.CITY_RADIUS_M


def test_nobody_is_faster_than_a_bus_and_most_hardly_move_between_queries() -> None:
    kmh = speeds_kmh(MANY)
    assert kmh.max() < MOST_KMH
    assert np.quantile(kmh, 0.75) < 2.0
    assert (kmh > 15.0).any()  # they do get about between queries


def test_queries_come_in_bursts_with_jumps_of_about_an_hour() -> None:
    gaps_s = np.diff(MANY.at_s)[within_traces(MANY)]
    minutes, jumps = gaps_s[gaps_s < 300.0], gaps_s[gaps_s > 1200.0]
    assert np.median(minutes) == pytest.approx(60.0, rel=0.05)
    assert np.median(jumps) == pytest.approx(3600.0, rel=0.1)
    assert 0.25 < len(jumps) / len(gaps_s) < 0.4


def test_a_person_has_30_to_45_queries_or_exactly_as_many_as_asked_for() -> None:
    counts = np.diff(DAY.offsets)
    assert counts.min() >= 30
    assert counts.max() <= 45
    assert len(set(counts.tolist())) > 1
    for points_each in (1, 2, 30, 1000):
        exact = synthetic.day(users=7, points_each=points_each)
        np.testing.assert_array_equal(np.diff(exact.offsets), points_each)
        assert np.isfinite(exact.points).all()


def test_metres_and_degrees_are_inverse_and_metres_are_metres() -> None:
    metres = synthetic.to_metres(DAY.points)
    np.testing.assert_allclose(synthetic.to_degrees(metres), DAY.points, atol=1e-12)
    flat = np.linalg.norm(metres[1:] - metres[:-1], axis=1)
    round_m = hereish.Sphere().distance(DAY.points[1:], DAY.points[:-1])
    np.testing.assert_allclose(flat, round_m, rtol=0.005, atol=0.01)


def test_many_people_take_moments() -> None:
    start = perf_counter()
    day = synthetic.day(users=20_000, points_each=30)
    # About 0.25 s on a slow core; a loop over people would take minutes.
    assert perf_counter() - start < 10.0
    assert len(day.points) == 600_000


@pytest.mark.parametrize(("users", "points_each"), [(0, 30), (6, 0), (-1, None)])
def test_nobody_and_nothing_are_refused(users: int, points_each: int | None) -> None:
    with pytest.raises(hereish.ParameterError, match="must be a whole number from 1"):
        synthetic.day(users=users, points_each=points_each)


def test_days_in_a_row_are_of_the_same_people_at_the_same_home() -> None:
    clock_s = np.arange(0.0, 86400.0, 900.0)
    places = synthetic.whereabouts_on_days(10, 3, 7, clock_s)
    assert places.shape == (10, 7, len(clock_s), 2)
    np.testing.assert_array_equal(places, synthetic.whereabouts_on_days(10, 3, 7, clock_s))
    assert not np.array_equal(places, synthetic.whereabouts_on_days(10, 4, 7, clock_s))
    flat = places.reshape(-1, 2)
    centre = np.broadcast_to(np.array(synthetic.CENTRE_DEG), flat.shape)
    assert hereish.Sphere().distance(flat, centre).max() < synthetic.CITY_RADIUS_M

    def apart_m(day: int, hour: int) -> np.typing.NDArray[np.float64]:
        """From where each is on Tuesday."""
        i = 4 * hour
        return hereish.Sphere().distance(places[:, 0, i], places[:, day, i])

    home_m = max(apart_m(day, 3).max() for day in range(1, 7))
    assert home_m < 200.0  # they wander about it
    work_m = [np.median(apart_m(day, 11)) for day in (1, 2, 3)]
    assert max(work_m) < 200.0
    assert min(np.median(apart_m(day, 11)) for day in (4, 5)) > 1000.0  # Saturday and Sunday
    assert np.median(apart_m(6, 11)) < 200.0
