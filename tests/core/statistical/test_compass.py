"""The globe that the noise is measured with is itself measured."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

from hereish.core.types import Floats
from tests.support.compass import CLAIM, RADIUS_M, seen_from, smallest_globe_error, survival, walk
from tests.support.laws import survival_p, uniforms


@pytest.mark.parametrize("lat", [0.0, 40.0, 89.9, 90.0, -90.0])
@pytest.mark.parametrize("metres", [1.0, 1e3, 1e6, 1.9e7])
def test_a_walk_is_seen_as_it_was_walked(lat: float, metres: float) -> None:
    bearing = np.linspace(-3.1, 3.1, 63)
    x = np.tile([lat, 179.9], (63, 1))
    seen = seen_from(x, walk(x, np.full(63, metres / RADIUS_M), bearing))
    assert np.allclose(seen.angle * RADIUS_M, metres, rtol=1e-9, atol=1e-7)
    assert np.allclose(np.sin(seen.bearing - bearing), 0.0, atol=1e-7)
    assert np.allclose(np.hypot(seen.north_m, seen.east_m), metres, rtol=1e-9, atol=1e-7)


def test_bearings_turn_from_north_to_east() -> None:
    x = np.tile([10.0, 180.0], (4, 1))
    there = np.array([[10.1, 180.0], [10.0, -179.9], [9.9, 180.0], [10.0, 179.9]])
    quarters = seen_from(x, there).bearing / (math.pi / 2)
    assert np.allclose(quarters, [0.0, 1.0, 2.0, -1.0], atol=1e-3)


@pytest.mark.parametrize("k", [1e-3, 1.0, 30.0, 6e3])
def test_the_survival_function_is_the_integral_of_the_density(k: float) -> None:
    end = min(math.pi, 60.0 / k)
    density = lambda t: math.sin(t) * math.exp(-k * t)  # noqa: E731
    whole = quad(density, 0.0, end, epsabs=0.0, limit=200)[0]
    for share in (0.02, 0.1, 0.5):
        part = quad(density, share * end, end, epsabs=0.0, limit=200)[0]
        assert survival(np.array([share * end]), k)[0] == pytest.approx(part / whole, rel=1e-9)


def test_the_claim_is_0_56_percent() -> None:
    assert pytest.approx(0.994417, abs=1e-6) == CLAIM
    assert pytest.approx(6371008.7714, abs=1e-3) == RADIUS_M


def _draws(k: float, u: Floats) -> Floats:
    """Angles by looking their survival up in a table."""
    angles = np.linspace(0.0, math.pi, 20_001)
    return np.interp(u, survival(angles, k)[::-1], angles[::-1])


@pytest.mark.parametrize("side", ["low", "high"])
def test_an_error_of_the_stated_size_is_missed_as_rarely_as_stated(side: str) -> None:
    """At a level of 1 %, of 2000 samples of 1000: 1 % are missed, give or take."""
    k, n, level = 1.27, 1000, 0.01
    factor: float = getattr(smallest_globe_error(k, n, level), side)
    angles = _draws(k / factor, uniforms(901, 2000, n))
    missed = sum(survival_p(survival(row, k)) >= level for row in angles)
    assert 4 < missed < 60
    right = _draws(k, uniforms(901, 2000, n))
    rejected = sum(survival_p(survival(row, k)) < level for row in right)
    assert 4 < rejected < 60


def test_the_median_of_nearly_uniform_noise_is_a_quarter_of_the_way_round() -> None:
    half = brentq(lambda t: survival(np.array([t]), 1e-9)[0] - 0.5, 0.1, 3.0)
    assert half == pytest.approx(math.pi / 2, abs=1e-8)
