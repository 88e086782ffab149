"""Releases that stand for much noise: how probable they are, and that no noise is found in them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hereish
from hereish.attack.cells import make_cell
from hereish.attack.lattice import Frame, distance_m
from hereish.attack.observations import promised_log_odds
from hereish.core.types import Floats
from tests.support.observed import PRIVACY, WINDOW, observed, people

MIDDLE = np.array([60.17, 24.94])
EPS = 1.0 / 500.0
M = hereish.whole_day(PRIVACY, window=WINDOW)


def near_by(radius_m: float) -> Callable[[Floats], Floats]:
    return lambda points: (distance_m(points, MIDDLE) <= radius_m).astype(np.float64)


@pytest.mark.parametrize("radius_m", [1000.0, 3000.0])
def test_the_chance_is_that_of_noise_within_the_cell(radius_m: float) -> None:
    """In the middle of a disc it is a formula; elsewhere noise is drawn, 400,000 times."""
    cell = make_cell(MIDDLE, EPS, radius_m + 200.0, near_by(radius_m))
    frame, rng, n = Frame(*MIDDLE), np.random.default_rng(1), 400_000
    radius = rng.gamma(2.0, 1.0 / EPS, n)
    angle = rng.uniform(0.0, 2.0 * np.pi, n)
    scaled = EPS * radius_m
    middle = 1.0 - (1.0 + scaled) * np.exp(-scaled)
    for east_m in (0.0, 400.0, 1500.0):
        from_there = np.hypot(east_m + radius * np.cos(angle), radius * np.sin(angle))
        drawn = float((from_there <= radius_m).mean())
        place = frame.to_degrees(np.array([[east_m, 0.0], [0.0, 0.0]]))
        ratio = np.exp(np.subtract(*cell.log_chance_at(place)))
        # Five standard deviations of the draws (alpha < 1e-6), and the grid's cells.
        allowed = 5.0 * np.sqrt(drawn * (1.0 - drawn) / n) + 0.015 * drawn
        assert abs(ratio * middle - drawn) < allowed


def test_it_tells_no_more_than_the_noise_promises() -> None:
    cell = make_cell(MIDDLE, EPS, 2500.0, near_by(2000.0))
    rng = np.random.default_rng(2)
    first = MIDDLE + rng.normal(0.0, 0.05, (2000, 2))
    second = first + rng.normal(0.0, 0.005, (2000, 2))
    told = np.abs(cell.log_chance_at(first) - cell.log_chance_at(second))
    assert (told <= 1.01 * EPS * distance_m(first, second)).all()
    assert told.max() > 0.5, "it tells something"


def test_known_places_are_cells_and_other_noise_is_found_again() -> None:
    at_s, places = people(1, 14, seed=3)
    seen = observed(M, at_s, places[0])
    cells = np.array([cell is not None for cell in seen.cell])
    earlier = np.array(
        [(seen.value[:i] == seen.value[i]).all(axis=1).any() for i in range(len(seen))]
    )
    assert cells[seen.hard].sum() > 10
    assert (seen.hard & ~cells).sum() > 5
    assert not (cells & ~seen.hard).any()
    # A place is released again and again, and fresh noise never twice.
    assert earlier[cells].mean() > 0.7
    assert not earlier[seen.hard & ~cells].any()


def test_the_odds_keep_the_promise() -> None:
    at_s, places = people(2, 10, seed=5)
    for number, own in enumerate(places):
        seen = observed(M, at_s, own, number)
        for metres in (100.0, 500.0, 2000.0):
            aside = own[0] + np.array([metres / 111_195.0, 0.0])
            told, promised = promised_log_odds(seen, own[0], aside)
            assert abs(told) <= promised
