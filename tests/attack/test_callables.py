"""Mechanisms of others: the observer learns their noise by trying it out."""

from __future__ import annotations

import numpy as np
import pytest

import hereish
from hereish.attack.callables import learn_noise
from hereish.attack.comparison import (
    cached,
    geocentric_laplace,
    kept_for,
    planar_laplace,
    rounding,
)
from hereish.attack.home import find_place
from hereish.attack.lattice import distance_m
from hereish.attack.observations import from_noise
from hereish.core.types import Floats
from tests.support.observed import people

EPS = 1e-3
HELSINKI = np.array([60.17, 24.94])
EQUATOR = np.array([0.001, 24.94])


def test_planar_laplace_is_learnt_as_it_is() -> None:
    law = learn_noise(planar_laplace(EPS), HELSINKI)
    for radius_m in (500.0, 1500.0, 4000.0):
        found = float(law.log_density(np.array([radius_m]), np.array([0.6 * radius_m]))[0])
        exact = 2.0 * np.log(EPS) - np.log(2.0 * np.pi) - EPS * np.hypot(radius_m, 0.6 * radius_m)
        assert found == pytest.approx(exact, abs=0.25)


def test_noise_that_keeps_the_latitude_is_caught_as_such() -> None:
    """At the equator geocentric noise moves nobody north or south: it tells the latitude."""
    rng = np.random.default_rng(2)
    released = geocentric_laplace(EPS)(EQUATOR[None], rng)
    assert abs(released[0, 0] - EQUATOR[0]) * 111_195.0 < 5.0
    law = learn_noise(geocentric_laplace(EPS), EQUATOR, spread_m=100.0)
    near, off = law.log_density(np.array([1000.0, 1000.0]), np.array([0.0, 500.0]))
    assert near - off > 5.0


def test_homes_behind_other_noises_are_found_or_not() -> None:
    at_s, places = people(1, 7)
    home = places[0, 0]

    def error_m(released: Floats, law: object) -> float:
        found = find_place(from_noise(at_s, released, 1.0, law), "Europe/Helsinki")  # type: ignore[arg-type]
        assert found is not None
        return float(distance_m(found.best, home))

    rng = np.random.default_rng(4)
    fine = planar_laplace(0.01)
    assert error_m(fine(places[0], rng), learn_noise(fine, home)) < 150.0
    # One noise for ever tells as much after a week as at first.
    coarse = planar_laplace(EPS)
    kept = cached(coarse, 5000.0)(places[0], rng)
    assert len(np.unique(kept, axis=0)) < 30
    cut = rounding(3)
    assert error_m(cut(places[0], rng), learn_noise(cut, home)) < 120.0


def test_a_release_that_is_kept_for_an_hour_is_one_release() -> None:
    _, places = people(1, 1)
    kept = kept_for(planar_laplace(EPS), 2)(places[0], np.random.default_rng(4))
    assert np.array_equal(kept[::2], kept[1::2])
    assert len(np.unique(kept, axis=0)) == len(kept) // 2
    # By the clock alone: of somebody who has moved it tells where they were.
    gone = np.where(np.arange(len(kept))[:, None] % 2, places[0] + 1.0, places[0])
    assert np.array_equal(kept_for(planar_laplace(EPS), 2)(gone, np.random.default_rng(4)), kept)


def test_a_function_that_is_no_mechanism_is_refused() -> None:
    with pytest.raises(hereish.ParameterError, match="a place for each"):
        learn_noise(lambda places, rng: places[:1], HELSINKI, trials=10)
