"""The globe by unit vectors: how far and which way a release lies, and the exact law of how far.

Written apart from the library's own formulas, so that the two cannot share a mistake.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammainccinv, gammaincinv, ndtri

from hereish.core.types import Floats
from tests.support.laws import ALPHA, Factors

EQUATOR_M = 6378137.0
POLE_M = EQUATOR_M * (1.0 - 1.0 / 298.257223563)
RADIUS_M = (2.0 * EQUATOR_M + POLE_M) / 3.0
# The tightest curve of the ellipsoid against the sphere's: what a metre of the claim is worth.
CLAIM = POLE_M * POLE_M / EQUATOR_M / RADIUS_M


class Seen(NamedTuple):
    """Releases as seen from their secrets: great-circle angle, and bearing from north to east."""

    angle: Floats
    bearing: Floats

    @property
    def north_m(self) -> Floats:
        """Metres north in the plane that touches the globe at the secret, true to distance."""
        return np.asarray(RADIUS_M * self.angle * np.cos(self.bearing))

    @property
    def east_m(self) -> Floats:
        """Metres east, likewise."""
        return np.asarray(RADIUS_M * self.angle * np.sin(self.bearing))


def _frame(points: Floats) -> tuple[Floats, Floats, Floats]:
    """Unit vectors outwards, north and east; at a pole, of the meridian that it is given with."""
    lat, lon = np.radians(points).T
    flat = np.cos(lat)
    out = np.stack([flat * np.cos(lon), flat * np.sin(lon), np.sin(lat)])
    north = np.stack([-np.sin(lat) * np.cos(lon), -np.sin(lat) * np.sin(lon), flat])
    east = np.stack([-np.sin(lon), np.cos(lon), np.zeros_like(lon)])
    return out, north, east


def seen_from(secrets: Floats, releases: Floats) -> Seen:
    """Angle and initial bearing of the great circle from each secret to its release."""
    out, north, east = _frame(secrets)
    there = _frame(releases)[0]
    up, ahead, aside = ((axis * there).sum(axis=0) for axis in (out, north, east))
    return Seen(np.arctan2(np.hypot(ahead, aside), up), np.arctan2(aside, ahead))


def walk(secrets: Floats, angle: Floats, bearing: Floats) -> Floats:
    """Where one gets by going `angle` along a great circle that begins with this bearing."""
    out, north, east = _frame(secrets)
    x, y, z = np.cos(angle) * out + np.sin(angle) * (
        np.cos(bearing) * north + np.sin(bearing) * east
    )
    lat, lon = np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)
    return np.asarray(np.degrees(np.column_stack([lat, lon])))


def survival(angle: Floats, k: float) -> Floats:
    """The share beyond `angle` of the density ~ sin(t) exp(-k t) on (0, pi). Never quite 0."""
    round_the_globe = math.exp(-math.pi * k)
    beyond = np.exp(-k * angle) * (np.cos(angle) + k * np.sin(angle)) + round_the_globe
    return np.asarray(np.clip(beyond / (1.0 + round_the_globe), 1e-300, 1.0))


def smallest_globe_error(k: float, n: int, alpha: float = ALPHA) -> Factors:
    """What `laws.survival_p` sees in n angles: noise of k / factor instead of k.

    -ln(survival) of the wrong noise has a mean and a spread, by quadrature; their sum over n is
    normal, and has to pass the limit of the right noise's Gamma(n) by its own 1 - alpha quantile.
    """
    middles = (np.arange(20_000) + 0.5) / 20_000

    def passes(factor: float, side: int) -> float:
        t = min(math.pi, 80.0 * factor / k) * middles
        mass = np.sin(t) * np.exp(-k / factor * t)
        mass /= mass.sum()
        loss = -np.log(survival(t, k))
        mean = float((mass * loss).sum())
        spread = math.sqrt(n * float((mass * (loss - mean) ** 2).sum()))
        limit = gammaincinv(n, alpha / 2) if side < 0 else gammainccinv(n, alpha / 2)
        return float(side * (n * mean - limit) + ndtri(alpha) * spread)

    low = brentq(passes, 0.5, 1.0, args=(-1,), xtol=1e-9)
    high = brentq(passes, 1.0, 2.0, args=(+1,), xtol=1e-9)
    return Factors(float(low), float(high))
