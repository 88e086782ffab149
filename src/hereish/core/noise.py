"""The laws of Laplace noise on each space, as functions of uniforms. Proof: noise.proof.md.

Each function turns a fixed number of uniforms from the open interval (0, 1) into noise for
`eps = 1 / scale`, so that the same uniforms always give the same noise, one lane or a million.
"""

from __future__ import annotations

import math

import numpy as np

from hereish.core.types import Floats, PerLane

# After a Newton step this small (relative to the scale of the density) the error is its square.
_EXACT_STEP = 1e-5
# From here on exp(-pi k), the share of the noise that would go round the globe, is 0 in doubles.
_NO_WRAP = 265.0
# Below this share of the mass (0.44) shares below are compared, and beyond it shares beyond.
_NEAR = 1.5
# Where a difference would lose more than two digits, its series is used, to the last bit.
_SERIES_BELOW = 0.25
_EXP_SERIES = tuple(1.0 / math.factorial(n + 2) for n in range(11))  # (exp(y) - 1 - y) / y²
_SINE_SERIES = tuple(1.0 / math.factorial(2 * n + 3) for n in range(6))  # (t - sin t) / t³ in -t²
_GAMMA2_SERIES = tuple((n + 1) / math.factorial(n + 2) for n in range(11))  # in -y, over y²
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
    """Newton kept inside a shrinking bracket: the angle with the planar radius g's share of mass.

    Nothing cancels: near the secret the shares below are compared, elsewhere those beyond, and on
    the far half of the globe the angle is counted from the antipode. A solution that is not found
    is an error, never a place.
    """
    whole = 1.0 + np.exp(-np.pi * k)
    below, beyond = whole * _gamma2_cdf(kg), (1.0 + kg) * whole
    near = kg < _NEAR
    far = beyond * np.exp(-kg) < k * np.exp(-0.5 * np.pi * k) + np.exp(-np.pi * k)
    middle = ~near & ~far
    at_pole = beyond * np.exp(np.where(far, np.pi * k, 0.0) - kg)  # [N13]
    # v is the angle, or on the far half that to the antipode.
    low, high = np.zeros_like(g), np.where(far, 0.5 * np.pi, np.minimum(g, 0.5 * np.pi))
    v = np.where(far, np.minimum(np.sqrt(2.0 * at_pole / (k * k + 1.0)), high), high)
    v *= 1.0 - 1e-3
    rough = np.ones(len(g), dtype=np.bool_)
    for _ in range(200):
        sine = np.sin(v)
        # The difference of the two shares, times exp(k v) or exp(-k v); positive: v is too small.
        excess = np.empty_like(v)
        excess[near] = (below * np.exp(k * v) - _sphere_mass_below(k, v))[near]
        excess[far] = (at_pole * np.exp(-k * v) - _sphere_mass_below(-k, v))[far]
        excess[middle] = (
            np.cos(v) + k * sine + np.exp(-k * (np.pi - v)) - beyond * np.exp(k * v - kg)
        )[middle]  # [N6]
        low, high = np.where(excess > 0, v, low), np.where(excess > 0, high, v)
        following = v + excess / ((k * k + 1.0) * sine)
        inside = (following >= low) & (following <= high)
        following = np.where(inside, following, 0.5 * (low + high))
        # A lane that is done stays as it is, however long others take: its bits are its own.
        following = np.where(rough, following, v)
        # The density changes on the scale 1 / (k + 1/v): it vanishes at both ends.
        rough &= ~inside | ~(np.abs(following - v) * (k * v + 1.0) <= _EXACT_STEP * v)
        v = following
        if not np.count_nonzero(rough):
            return np.where(far, np.pi - v, v)
    raise ArithmeticError("the angle of the noise was not found")


def _gamma2_cdf(y: Floats) -> Floats:
    """1 - (1 + y) exp(-y), the mass of Gamma(2) below y, to full precision."""
    series = y * y * _polynomial(-y, _GAMMA2_SERIES)
    return np.where(y < _SERIES_BELOW, series, -np.expm1(-y) - y * np.exp(-y))  # [N11]


def _sphere_mass_below(k: Floats, t: Floats) -> Floats:
    """exp(k t) - cos(t) - k sin(t): exp(k t) times the sphere's mass below t, to full precision."""
    y, sine = k * t, np.sin(0.5 * t)
    early = np.where(
        np.abs(y) < _SERIES_BELOW, y * y * _polynomial(y, _EXP_SERIES), np.expm1(y) - y
    )
    curve = np.where(
        t < _SERIES_BELOW, t * t * t * _polynomial(-t * t, _SINE_SERIES), t - np.sin(t)
    )
    return np.asarray(early + 2.0 * sine * sine + k * curve)  # [N12]


def _polynomial(x: Floats, coefficients: tuple[float, ...]) -> Floats:
    total = np.zeros_like(x)
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total
