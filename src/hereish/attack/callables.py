"""Any mechanism as a function: the observer learns its noise by trying it out.

Whoever knows a mechanism can run it on places of their own, as often as they like. From the
differences between what comes out and what went in they learn the law of its noise, direction
included: a noise that keeps the latitude is caught as one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.ndimage import gaussian_filter, map_coordinates

from hereish.attack.globe import offsets_m
from hereish.core.types import Floats
from hereish.errors import ParameterError

# (n, 2) places, latitude and longitude, and a source of randomness: (n, 2) releases.
PlaceMechanism: TypeAlias = Callable[[Floats, np.random.Generator], Floats]

_BINS = 96
_SMOOTHED = 1.5  # bins
_LEAST_M = 1.0  # releases are rounded to a metre or so
_FALL = 20.0  # of the logarithm per e-fold of distance beyond all trials
_ELSEWHERE = 1e-4  # the mass of what was never seen, spread over the bins


@dataclass(frozen=True, eq=False)
class LearntNoise:
    """The law of a noise as a histogram over east and north, finer near its middle."""

    scale_m: tuple[float, float]  # of each axis: bins are even in asinh(metres / scale)
    reach: tuple[float, float]
    log_density_of_bins: Floats  # (east, north), per square metre

    def log_density(self, east_m: Floats, north_m: Floats) -> Floats:
        """Of a release so far east and north of the true place."""
        places, beyond = [], np.zeros(np.shape(east_m))
        for offset_m, scale_m, reach in zip(
            (east_m, north_m), self.scale_m, self.reach, strict=True
        ):
            stretched = np.arcsinh(offset_m / scale_m)
            share = (stretched + reach) / (2.0 * reach)
            places.append(np.clip(share * _BINS - 0.5, 0.0, _BINS - 1.0))
            beyond += np.maximum(np.abs(stretched) - reach, 0.0)
        # No trial has gone that far, so it is the less probable the further it is.
        # Between the middles of bins: steps would add up over many releases.
        inside = map_coordinates(self.log_density_of_bins, places, order=1)
        return np.asarray(inside - _FALL * beyond)


def learn_noise(
    mechanism: PlaceMechanism,
    around: Floats,
    *,
    spread_m: float = 2000.0,
    wander_m: float = 30.0,
    trials: int = 1_000_000,
    seed: int = 1,
) -> LearntNoise:
    """The law of a mechanism's noise, from so many trials at random places around a point.

    Nobody sits still: who is at a place is `wander_m` from it, along each axis, which is part of
    what is learnt. Without it an exact noise would say that nobody is ever at one place.
    """
    rng = np.random.default_rng(seed)
    offset = rng.uniform(-spread_m, spread_m, (trials, 2)) / 111_195.0797
    offset[:, 1] /= max(np.cos(np.radians(around[0])), 1e-6)
    places = around + offset
    released = np.asarray(mechanism(places, rng), dtype=np.float64)
    if released.shape != places.shape or not np.isfinite(released).all():
        raise ParameterError(
            f"a mechanism must return a place for each, {places.shape} finite numbers"
        )
    east_m, north_m = offsets_m(places, released)
    east_m, north_m = (one + rng.normal(0.0, wander_m, trials) for one in (east_m, north_m))
    scales, reaches, numbers, widths = [], [], [], []
    for offset_m in (east_m, north_m):
        scale_m = max(0.1 * float(np.median(np.abs(offset_m))), _LEAST_M)
        reach = float(np.arcsinh(np.abs(offset_m).max() / scale_m)) * 1.02 + 1e-6
        share = (np.arcsinh(offset_m / scale_m) + reach) / (2.0 * reach)
        edges = np.sinh(np.linspace(-reach, reach, _BINS + 1)) * scale_m
        scales.append(scale_m)
        reaches.append(reach)
        numbers.append(np.clip((share * _BINS).astype(np.int64), 0, _BINS - 1))
        widths.append(np.diff(edges))
    counts = np.bincount(numbers[0] * _BINS + numbers[1], minlength=_BINS * _BINS)
    mass = gaussian_filter(counts.reshape(_BINS, _BINS) / trials, _SMOOTHED)
    mass = (1.0 - _ELSEWHERE) * mass / mass.sum() + _ELSEWHERE / _BINS**2
    density = mass / np.outer(*widths)
    return LearntNoise((scales[0], scales[1]), (reaches[0], reaches[1]), np.log(density))
