"""The laws of Laplace noise on each space, as functions of uniforms. Proof: noise.proof.md.

Each function turns a fixed number of uniforms from the open interval (0, 1) into noise for
`eps = 1 / scale`, so that the same uniforms always give the same noise, one lane or a million.
"""

from __future__ import annotations

import numpy as np

from hereish.arrays import Floats, PerLane

# A Newton step whose square is below this (relative to the density's own scale) is exact in doubles.
_EXACT_STEP = 1e-6


def line_offset(eps: PerLane, u1: Floats, u2: Floats) -> Floats:
    """Laplace noise: the difference of two exponentials, which leaves no gaps in its tails."""
    return np.asarray(np.log(u1 / u2) / eps)  # [N1]


def plane_radius(eps: PerLane, u1: Floats, u2: Floats) -> Floats:
    """The distance of planar Laplace noise: Gamma(2, 1/eps)."""
    return np.asarray(np.log(u1 * u2) / -eps)  # [N2]


def sphere_angle(k: PerLane, u1: Floats, u2: Floats) -> Floats:
    """The angle of Laplace noise on a sphere of radius 1: density ~ sin(t) exp(-k t) on (0, pi).

    The planar radius `g` is moved to the angle `t` that has the same share of the mass beyond it.
    For noise much smaller than the globe one Newton step is exact to the last bits; the rest is
    bracketed and solved.
    """
    g = np.log(u1 * u2) / -k  # [N3]
    half = 0.5 * g
    sin_half = np.sin(half)
    sin_g = np.sin(g)
    kg = k * g
    wrapped = np.exp(-np.pi * k) * (np.expm1(np.minimum(kg, 80.0)) - kg)
    missing = 2.0 * sin_half * sin_half + k * (g - sin_g) - wrapped
    change = missing / ((k * k + 1.0) * sin_g)  # [N4]
    rough = ~(np.abs(change) * (k + 1.0 / g) <= _EXACT_STEP) | (g > 1.0)
    t = np.asarray(g - change)
    if np.count_nonzero(rough):
        lanes = np.flatnonzero(rough)
        t[lanes] = _solve_angle(np.broadcast_to(k, g.shape)[lanes], g[lanes])
    return t


def _solve_angle(k: Floats, g: Floats) -> Floats:
    """Newton kept inside a shrinking bracket: the angle whose survival equals the plane's at g."""
    low, high = np.zeros_like(g), np.minimum(g, np.pi)
    t = 0.5 * high
    beyond = (1.0 + k * g) * (1.0 + np.exp(-np.pi * k))
    for _ in range(200):
        sin_t = np.sin(t)
        # exp(k t) times the difference of the two survival functions; positive: t is too small.
        excess = (
            np.cos(t) + k * sin_t + np.exp(-k * (np.pi - t)) - beyond * np.exp(-k * (g - t))
        )  # [N5]
        low, high = np.where(excess > 0, t, low), np.where(excess > 0, high, t)
        following = t + excess / ((k * k + 1.0) * sin_t)
        inside = (following > low) & (following < high)
        following = np.where(inside, following, 0.5 * (low + high))
        still = np.abs(following - t) > 4e-16 * following
        t = following
        if not np.count_nonzero(still):
            break
    return np.asarray(t)
