"""The laws of Laplace noise on each space, as functions of uniforms. Proof: noise.proof.md.

Each function turns a fixed number of uniforms from the open interval (0, 1) into noise for
`eps = 1 / scale`, so that the same uniforms always give the same noise, one lane or a million.
"""

from __future__ import annotations

import numpy as np

from hereish.arrays import Floats, PerLane

# After a Newton step this small (relative to the scale of the density) the error is its square.
_EXACT_STEP = 1e-5
# From here on exp(-pi k), the share of the noise that would go round the globe, is 0 in doubles.
_NO_WRAP = 265.0
# Noise without any budget is uniform on the sphere; this keeps the planar radius finite.
_NEXT_TO_NOTHING = 1e-290


def line_offset(eps: PerLane, u1: Floats, u2: Floats) -> Floats:
    """Laplace noise: the difference of two exponentials, which leaves no gaps in its tails."""
    return np.asarray(np.log(u1 / u2) / eps)  # [N1]


def plane_radius(eps: PerLane, u1: Floats, u2: Floats) -> Floats:
    """The distance of planar Laplace noise: Gamma(2, 1/eps)."""
    return np.asarray(np.log(u1 * u2) / -eps)  # [N2]


def sine_cosine(half: Floats) -> tuple[Floats, Floats]:
    """Sine and cosine of an angle, given half of it: one slow function instead of two."""
    tangent = np.tan(half)
    squared = tangent * tangent
    inverse = 1.0 / (1.0 + squared)
    tangent *= inverse
    tangent += tangent
    squared -= 1.0
    squared *= inverse
    return tangent, np.negative(squared, out=squared)  # [N3]


def sphere_angle(k: PerLane, u1: Floats, u2: Floats) -> Floats:
    """The angle of Laplace noise on a sphere of radius 1: density ~ sin(t) exp(-k t) on (0, pi).

    The planar radius g is moved to the angle t that has the same share of the mass beyond it. For
    noise much smaller than the globe one Newton step is enough, and the start of its series;
    the rest is bracketed and solved.
    """
    minus_kg = np.log(u1 * u2)
    step = (0.5 - minus_kg * (1.0 / 6.0)) / (k * k + 1.0)  # [N5]
    rough = step * (1.0 - minus_kg) > _EXACT_STEP
    if (k.min() if isinstance(k, np.ndarray) else k) < _NO_WRAP:
        rough |= np.less(k, _NO_WRAP)
    g = minus_kg / -np.maximum(k, _NEXT_TO_NOTHING)  # [N4]
    t = g - step * g
    if np.count_nonzero(rough):
        lanes = np.flatnonzero(rough)
        t[lanes] = _solve_angle(np.broadcast_to(k, g.shape)[lanes], -minus_kg[lanes], g[lanes])
    return np.asarray(t)


def _solve_angle(k: Floats, kg: Floats, g: Floats) -> Floats:
    """Newton kept inside a shrinking bracket: the angle whose survival equals the plane's at g."""
    low, high = np.zeros_like(g), np.minimum(g, np.pi)
    t = high * (1.0 - 1e-3)
    beyond = (1.0 + kg) * (1.0 + np.exp(-np.pi * k))
    rough = np.ones(len(g), dtype=np.bool_)
    for _ in range(200):
        sin_t = np.sin(t)
        # exp(k t) times the difference of the two survival functions; positive: t is too small.
        excess = (
            np.cos(t) + k * sin_t + np.exp(-k * (np.pi - t)) - beyond * np.exp(k * t - kg)
        )  # [N6]
        low, high = np.where(excess > 0, t, low), np.where(excess > 0, high, t)
        following = t + excess / ((k * k + 1.0) * sin_t)
        inside = (following >= low) & (following <= high)
        following = np.where(inside, following, 0.5 * (low + high))
        # A lane that is done stays as it is, however long others take: its bits are its own.
        following = np.where(rough, following, t)
        # The density changes on the scale 1 / (k + 1/t + 1/(pi-t)); it vanishes at both ends.
        room = t * (np.pi - t)
        rough &= ~inside | (np.abs(following - t) * (k * room + np.pi) > _EXACT_STEP * room)
        t = following
        if not np.count_nonzero(rough):
            break
    return np.asarray(t)
