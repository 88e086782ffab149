"""Parts of trips by how somebody moved: none is missed, and none that is not like that."""

from __future__ import annotations

import numpy as np
import pytest

from hereish import PointError, Sphere
from hereish.evaluation.dataset import Trajectories
from hereish.evaluation.movement import ANY, FAST, SLOW, STRAIGHT, find_parts, made_up_trips

START_S = 1.75e9
PER_DEGREE_M = 111_195.0


def trip(*legs: tuple[float, float, float]) -> Trajectories:
    """Legs of (minutes, km/h, degrees of heading) along the antimeridian, a fix every 5 s."""
    speed = np.concatenate([np.full(round(12 * m), v / 3.6) for m, v, _ in legs])
    heading = np.radians(np.concatenate([np.full(round(12 * m), h) for m, _, h in legs]))
    north = np.cumsum(5.0 * speed * np.cos(heading)) / PER_DEGREE_M
    east = np.cumsum(5.0 * speed * np.sin(heading)) / PER_DEGREE_M
    points = np.column_stack([north, (179.99 + east + 180.0) % 360.0 - 180.0])
    at_s = START_S + np.arange(0.0, 5.0 * len(north), 5.0)
    return Trajectories("legs", at_s, points, np.array([0, len(at_s)]), np.zeros(1, np.int64), 2)


def minutes_of(data: Trajectories, movement: object) -> list[tuple[int, int]]:
    parts = find_parts(data, movement)  # type: ignore[arg-type]  # it is one
    begin, end = (parts.begin_s - START_S) / 60.0, (parts.end_s - START_S) / 60.0
    return [(round(a), round(b)) for a, b in zip(begin, end, strict=True)]


def test_parts_are_found_by_speed_and_turns() -> None:
    data = trip((30, 4, 0), (15, 120, 90), (12, 120, 130), (8, 120, 90), (25, 0, 0))
    assert minutes_of(data, STRAIGHT) == [(30, 45), (45, 57)]
    assert minutes_of(data, FAST) == [(30, 65)]
    assert minutes_of(data, SLOW) == [(0, 30), (65, 90)]
    assert minutes_of(data, ANY) == [(0, 90)]


def test_a_silent_logger_ends_a_part() -> None:
    data = trip((30, 100, 45))
    gone = slice(12 * 14, 12 * 16)
    kept = np.delete(np.arange(len(data.at_s)), gone)
    cut = Trajectories(
        "cut", data.at_s[kept], data.points[kept], np.array([0, len(kept)]), data.user, 2
    )
    assert minutes_of(cut, STRAIGHT) == [(0, 14), (16, 30)]


def test_reports_are_fixes_of_the_part_every_so_often() -> None:
    data = trip((20, 4, 0), (20, 100, 45))
    parts = find_parts(data, STRAIGHT)
    reports = parts.reports(30.0, 10_000, np.random.default_rng(1))
    assert len(reports) == 1
    assert 39 <= len(reports.at_s) <= 42
    np.testing.assert_allclose(np.diff(reports.at_s)[1:-1], 30.0)
    assert reports.at_s.min() >= parts.begin_s.min()
    assert (Sphere().distance(reports.points[1:], reports.points[:-1]) < 900.0).all()
    nobody = parts.of(np.array([False, True]))
    with pytest.raises(PointError, match="nobody moves like this"):
        nobody.reports(30.0, 10_000, np.random.default_rng(1))


def test_made_up_trips_have_all_kinds() -> None:
    data = made_up_trips(users=4)
    for movement in (STRAIGHT, FAST, SLOW, ANY):
        assert len(find_parts(data, movement).trajectory) >= 2
    np.testing.assert_array_equal(data.points, made_up_trips(users=4).points)
    assert np.abs(data.points[:, 0]).max() < 75.0
