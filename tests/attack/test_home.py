"""Homes, workplaces, stays and names: what is there is found, and what is not is not."""

from __future__ import annotations

from datetime import time

import numpy as np
import pytest
import trackintel

import hereish
from hereish import synthetic
from hereish.attack.home import (
    NIGHT,
    WORK,
    HabitualPlace,
    Hours,
    find_place,
    geometric_median,
    true_place,
)
from hereish.attack.identity import Pasts
from hereish.attack.lattice import Frame, Grid, distance_m
from hereish.attack.observations import from_noise
from hereish.attack.stays import StayRules, find_stays, places_found
from hereish.core.types import Floats
from tests.support.observed import PRIVACY, WINDOW, observed, people

ZONE = synthetic.TIME_ZONE
FRAME = Frame(60.17, 24.94)


def test_on_a_clean_trace_home_and_work_are_found() -> None:
    at_s, places = people(1, 7)
    seen = from_noise(at_s, places[0], 0.05)
    for hours in (NIGHT, WORK):
        truth = true_place(at_s, places[0], ZONE, hours)
        found = find_place(seen, ZONE, hours)
        assert found is not None
        assert truth is not None
        assert distance_m(found.best, truth) < 60.0  # nobody sits still: loops of some 50 m
        assert found.within(200.0) > 0.99


def test_noise_without_information_finds_no_home() -> None:
    at_s, places = people(1, 7)
    anywhere = places[0] + np.random.default_rng(1).uniform(-0.1, 0.1, places[0].shape)
    found = find_place(from_noise(at_s, anywhere, 1e-9), ZONE)
    assert found is not None
    assert found.within(500.0) < 0.01


def test_a_coarse_cell_is_no_certainty() -> None:
    """All of the posterior in one cell of 4 km says little of 50 m."""
    grid = Grid(FRAME, 4096.0, -2, -2, 4, 4)
    mass = np.zeros(grid.shape)
    mass[1, 1] = 1.0
    found = HabitualPlace(grid.middle_of(1, 1), None, grid, mass, 1, 1)
    assert found.within(50.0) == pytest.approx(np.pi * 50.0**2 / 4096.0**2)
    assert found.within(5000.0) == 1.0


def test_quiet_hours_leave_the_observer_with_what_was_known_before() -> None:
    at_s, places = people(1, 3)
    quiet = (time(23), time(7))
    seen = observed(hereish.whole_day(PRIVACY, window=WINDOW, quiet=quiet), at_s, places[0])
    inside, _, _ = NIGHT.groups(seen.at_s, ZONE)
    assert inside.sum() == 36
    # But for the very first one, without which there would be nothing to repeat.
    assert seen.take(inside).informative().sum() == 1
    assert find_place(seen.take(~seen.informative()), ZONE).within(500.0) < 0.05  # type: ignore[union-attr]


def test_the_best_guess_beats_the_median_and_knows_how_sure_it_is() -> None:
    """30 people, a week of noise of 1 km at night: the observer is as sure as it is right.

    The sum of 30 coins of known bias; 4.9 standard deviations are alpha = 1e-6, and detect being
    off by 45 points.
    """
    rng = np.random.default_rng(5)
    sure, right, errors = [], [], []
    at_s = synthetic.MIDNIGHT_S + np.arange(0.0, 7 * 86400.0, 3600.0)
    for _ in range(30):
        home = FRAME.to_degrees(rng.uniform(-5000.0, 5000.0, 2))
        radius, angle = rng.gamma(2.0, 1000.0, len(at_s)), rng.uniform(0.0, 2 * np.pi, len(at_s))
        offset = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        released = FRAME.to_degrees(FRAME.to_metres(home) + offset)
        found = find_place(from_noise(at_s, released, 1e-3), ZONE, away=0.01)
        assert found is not None
        assert found.median is not None
        sure.append(found.within(200.0))
        right.append(distance_m(found.best, home) <= 200.0)
        errors.append([distance_m(found.best, home), distance_m(found.median, home)])
    spread = np.sqrt(np.sum(np.array(sure) * (1.0 - np.array(sure))))
    assert abs(np.sum(right) - np.sum(sure)) < 4.9 * spread
    best, median = np.mean(errors, axis=0)
    assert best < 1.1 * median


def test_hours_over_midnight_belong_to_the_day_on_which_they_begin() -> None:
    at_s = synthetic.MIDNIGHT_S + np.array([-3600.0, 3600.0, 12 * 3600.0])
    inside, day, since_h = Hours(22.0, 6.0).groups(at_s, ZONE)
    assert inside.tolist() == [True, True, False]
    assert day[0] == day[1]
    assert since_h[:2].tolist() == [1.0, 3.0]


def test_weekdays_leave_out_weekends() -> None:
    at_s: Floats = synthetic.MIDNIGHT_S + 12 * 3600.0 + 86400.0 * np.arange(7.0)
    assert WORK.groups(at_s, ZONE)[0].tolist() == [True, True, True, True, False, False, True]


def test_a_geometric_median_resists_what_is_far() -> None:
    metres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [-10.0, -10.0], [50_000.0, 0.0]])
    middle = FRAME.to_metres(geometric_median(FRAME.to_degrees(metres)))
    assert np.hypot(*middle) < 15.0


# Of trackintel, about pandas.
@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_stays_are_those_of_trackintel() -> None:
    at_s, places = _trace()
    rules = StayRules(100.0, 1800.0, 6 * 3600.0, 100.0)
    mine = find_stays(at_s, places, rules)
    frame = _position_fixes(at_s, places)
    _, theirs = frame.generate_staypoints(
        method="sliding",
        dist_threshold=100,
        time_threshold=30,
        gap_threshold=360,
        include_last=True,
    )
    assert len(mine) == len(theirs) > 20
    begins = theirs["started_at"].map(lambda at: at.timestamp()).to_numpy()
    assert mine.begin_s == pytest.approx(begins)
    middles = np.column_stack([theirs.geometry.y, theirs.geometry.x])
    assert distance_m(mine.middle, middles).max() < 1.0
    joined, locations = theirs.generate_locations(epsilon=100, num_samples=1)
    assert len(mine.places()[0]) == len(locations)
    codes = joined["location_id"].to_numpy()
    same = codes[:, None] == codes
    assert np.array_equal(same, mine.place[:, None] == mine.place)


def _trace() -> tuple[Floats, Floats]:
    """Every five minutes for five days; nobody sits still, by less than the rules allow."""
    clock_s: Floats = np.arange(288.0) * 300.0
    places = synthetic.whereabouts_on_days(1, 4, 5, clock_s)[0]
    at_s = (synthetic.MIDNIGHT_S + 86400.0 * np.arange(5)[:, None] + clock_s).ravel()
    return at_s, places.reshape(-1, 2)


def _position_fixes(at_s: Floats, places: Floats):  # type: ignore[no-untyped-def]
    import geopandas
    import pandas as pd

    table = geopandas.GeoDataFrame(
        {"user_id": 0, "tracked_at": pd.to_datetime(at_s, unit="s", utc=True)},
        geometry=geopandas.points_from_xy(places[:, 1], places[:, 0]),
        crs="EPSG:4326",
    )
    return trackintel.Positionfixes(table)


def test_places_that_are_found_are_counted() -> None:
    true = FRAME.to_degrees(np.array([[0.0, 0.0], [5000.0, 0.0]]))
    assert places_found(true[:1] + 1e-4, true) == 0.5
    assert places_found(np.empty((0, 2)), true) == 0.0


def test_a_clean_week_is_named_and_noise_names_nobody() -> None:
    at_s, places = people(12, 14, seed=6)
    week = len(at_s) // 2
    past = {f"p{i}": (at_s[:week], own[:week]) for i, own in enumerate(places)}
    pasts = Pasts.of(past, ZONE)
    clean = [
        pasts.rank_of(f"p{i}", from_noise(at_s[week:], own[week:], 0.01))
        for i, own in enumerate(places)
    ]
    assert clean == [1] * 12
    # Without information all are as probable, and ties count against the observer.
    nothing = from_noise(at_s[week:], places[0, week:], 1e-12)
    assert pasts.rank_of("p3", nothing) > 1
    scores = pasts.log_scores(nothing)
    assert np.ptp(scores) < 1e-3


def test_a_week_of_whole_day_is_often_named() -> None:
    at_s, places = people(8, 14, seed=6)
    week = len(at_s) // 2
    pasts = Pasts.of({f"p{i}": (at_s[:week], own[:week]) for i, own in enumerate(places)}, ZONE)
    m = hereish.whole_day(PRIVACY, window=WINDOW)
    ranks = [
        pasts.rank_of(f"p{i}", observed(m, at_s[week:], own[week:], seed=i))
        for i, own in enumerate(places)
    ]
    assert np.mean(ranks) < 3.0  # of 8, and 4.5 by chance


def test_one_person_is_no_set() -> None:
    with pytest.raises(hereish.ParameterError, match="at least 2"):
        Pasts.of({"ann": (np.zeros(1), np.zeros((1, 2)))}, ZONE)
