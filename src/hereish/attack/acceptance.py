"""How probable it is that a guess is accepted, by how far from it somebody is.

Of the paper's test this is a formula. With the noise first it is a mean over the noise, which is
computed here by quadrature. Each node of it is a noise vector with a positive weight, so the mean
changes by no more than the test promises, however few nodes there are: an observer who reckons with
it is never told more than the guarantee allows.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hereish.core.decision import CLAMP, LaplaceTest
from hereish.core.types import Floats

# Distances at which the mean is computed, in scales of the noise beyond the threshold; in between
# its logarithm is interpolated, and beyond them it falls as the test lets it.
_RADII, _ANGLES = 28, 24
_BEFORE, _BEYOND, _STEPS = 14.0, 26.0, 65
_LOG_CLAMP = float(np.log(CLAMP))  # no guess is less likely to be accepted


@lru_cache(maxsize=1)
def _noise_nodes() -> tuple[Floats, Floats, Floats]:
    """Planar Laplace noise of eps = 1 as points (along, across) with weights."""
    # Shares of the mass, so that each node stands for as much noise as it weighs.
    nodes, weights = np.polynomial.legendre.leggauss(_RADII)
    share = 0.5 * (nodes + 1.0)
    # More nodes towards the tail, where far noise is what brings a far guess near.
    share, weights = 1.0 - (1.0 - share) ** 3, 0.5 * weights * 3.0 * (1.0 - share) ** 2
    radius = np.ones(_RADII)
    for _ in range(60):  # 1 - (1 + r) exp(-r) = share, by Newton
        radius -= (1.0 - (1.0 + radius) * np.exp(-radius) - share) / np.maximum(
            radius * np.exp(-radius), 1e-300
        )
        radius = np.maximum(radius, 1e-9)
    angle = (np.arange(_ANGLES) + 0.5) * (np.pi / _ANGLES)
    along = np.outer(radius, np.cos(angle)).ravel()
    across = np.outer(radius, np.sin(angle)).ravel()
    return along, across, np.repeat(weights / weights.sum() / _ANGLES, _ANGLES)


def noise_first_table(
    eps_test: float, eps_noise: float, threshold_m: float
) -> tuple[Floats, Floats]:
    """Distances in metres, and the logarithm of P(accepted) at each, for noise drawn first."""
    share, near = eps_test / eps_noise, threshold_m * eps_noise
    along, across, weights = _noise_nodes()
    distance = np.maximum(np.linspace(near - _BEFORE, near + _BEYOND, _STEPS), 0.0)
    distance = np.unique(np.append(distance, 0.0))
    apart = np.hypot(distance[:, None] + along, across)
    apart -= near
    np.maximum(apart, 0.0, out=apart)
    apart *= -share
    chance = np.clip(np.exp(apart, out=apart), CLAMP, 1.0 - CLAMP) @ weights
    return distance / eps_noise, np.log(chance)


def log_accepted_noise_first(distance_m: Floats, table: tuple[Floats, Floats]) -> Floats:
    """The logarithm of P(accepted) at these distances."""
    nodes_m, log_chance = table
    slope = (log_chance[-1] - log_chance[-2]) / (nodes_m[-1] - nodes_m[-2])
    beyond_m = np.maximum(distance_m - nodes_m[-1], 0.0)
    found = np.interp(distance_m, nodes_m, log_chance) + slope * beyond_m
    return np.asarray(np.maximum(found, min(_LOG_CLAMP, float(log_chance[-1]))))


def log_test_passed(distance_m: Floats, eps: float, threshold_m: float) -> Floats:
    """Of the paper's Laplace test."""
    return np.asarray(np.log(LaplaceTest.acceptance(distance_m, eps, threshold_m)))


def log_test_failed(distance_m: Floats, eps: float, threshold_m: float) -> Floats:
    """Of the paper's Laplace test."""
    return np.asarray(np.log1p(-LaplaceTest.acceptance(distance_m, eps, threshold_m)))
