"""The chance of an accepted guess, as the observer reckons it."""

from __future__ import annotations

import numpy as np
import pytest

from hereish.attack.acceptance import log_accepted_noise_first, noise_first_table
from hereish.core.decision import CLAMP
from hereish.core.noise_first import NoiseFirst
from hereish.core.spaces import Plane

EPS_NOISE, SHARE, THRESHOLD_M = 1e-3, 0.17, 2300.0


@pytest.mark.parametrize("distance_m", [0.0, 1500.0, 4000.0, 9000.0])
def test_the_chance_is_that_of_noise_drawn_first(distance_m: float) -> None:
    """n = 200,000 draws at each distance; six standard errors, 0.7 % at most, is alpha 2e-9."""
    draws = 200_000
    u = np.random.default_rng(5).uniform(1e-12, 1.0, (draws, 3))
    noisy = Plane().unrounded_noise(np.zeros((draws, 2)), EPS_NOISE, u)
    apart = np.hypot(noisy[:, 0] - distance_m, noisy[:, 1])
    chance = NoiseFirst.acceptance(apart, SHARE * EPS_NOISE, THRESHOLD_M)
    table = noise_first_table(SHARE * EPS_NOISE, EPS_NOISE, THRESHOLD_M)
    reckoned = float(np.exp(log_accepted_noise_first(np.array([distance_m]), table))[0])
    allowed = 6.0 * float(chance.std()) / np.sqrt(draws)
    # Interpolation between nodes may add two in a thousand.
    assert reckoned == pytest.approx(float(chance.mean()), abs=allowed + 2e-3)


def test_it_changes_no_faster_than_the_test_promises() -> None:
    for share in (0.05, 0.3, 1.0):
        table = noise_first_table(share * EPS_NOISE, EPS_NOISE, THRESHOLD_M)
        distance = np.linspace(0.0, 40_000.0, 4001)
        slope = np.diff(log_accepted_noise_first(distance, table)) / np.diff(distance)
        assert np.abs(slope).max() <= share * EPS_NOISE * (1.0 + 1e-9)


def test_it_falls_as_far_as_a_guess_can_be_refused() -> None:
    """From the other end of the world, weak tests tell as well."""
    table = noise_first_table(0.05 * EPS_NOISE, EPS_NOISE, THRESHOLD_M)
    far = log_accepted_noise_first(np.array([2e5, 1e7]), table)
    expected = -0.05 * EPS_NOISE * (2e5 - THRESHOLD_M)
    assert far[0] == pytest.approx(max(expected, np.log(CLAMP)), rel=0.02)
    assert far[1] == np.log(CLAMP)
