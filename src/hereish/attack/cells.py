"""Fresh noise of which only a place is released: what that tells an observer.

A place that is known well enough is released in place of all noise that belongs to it, and learns
nothing from it (`finest_m` of `PlaceMemory`). Then the noise cannot be found again; what is left to
an observer is the chance that noise falls anywhere where this would have been released. It is
computed with the part's own code on a grid of noise, as a mean with weights that are not negative,
so it changes by no more than the noise promises, but for the cells of the grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hereish.attack.lattice import Frame
from hereish.core.types import Floats

_PER_SCALE = 6.0  # cells of the grid per scale of the noise
_BEYOND = 9.0  # scales around the noise for which chances are computed, and taken for all beyond


@dataclass(frozen=True, eq=False)
class NoiseCell:
    """The chance, from each place around it, of a release that stands for much noise."""

    frame: Frame
    step_m: float
    log_chance: Floats  # (side, side) by metres north and east of the middle of the frame

    def log_chance_at(self, points: Floats, nearer_m: Floats | float = 0.0) -> Floats:
        """The logarithm of the chance from these places, (…, 2) of latitude and longitude."""
        from scipy.ndimage import map_coordinates

        metres = self.frame.to_metres(points)
        if np.any(nearer_m):
            apart_m = np.hypot(metres[..., 0], metres[..., 1])
            left = np.maximum(apart_m - nearer_m, 0.0) / np.maximum(apart_m, 1.0)
            metres = metres * left[..., None]
        middle = (len(self.log_chance) - 1) / 2.0
        edge_m = middle * self.step_m
        inside = np.clip(metres, -edge_m, edge_m)
        at = np.moveaxis(inside[..., ::-1], -1, 0) / self.step_m + middle
        return np.asarray(map_coordinates(self.log_chance, at, order=1))


def make_cell(
    value: Floats, eps: float, reach_m: float, released_as: Callable[[Floats], Floats]
) -> NoiseCell:
    """Of the release `value`, if noise no further than `reach_m` from it may have become it.

    `released_as(points)` is how likely noise at each of these points is released as `value`.
    """
    from scipy.signal import fftconvolve

    step_m = 1.0 / (_PER_SCALE * eps)
    frame = Frame(float(value[0]), float(value[1]))
    half = int(np.ceil(reach_m / step_m))
    around = np.arange(-half, half + 1) * step_m
    east, north = np.meshgrid(around, around)
    noisy = frame.to_degrees(np.stack([east, north], axis=-1).reshape(-1, 2))
    weight = released_as(noisy).reshape(east.shape)
    margin = int(np.ceil(_BEYOND * _PER_SCALE))
    apart = np.arange(-2 * half - margin, 2 * half + margin + 1) * step_m
    density = np.exp(-eps * np.hypot(apart[:, None], apart))
    chance = fftconvolve(density, weight, mode="valid")
    return NoiseCell(frame, step_m, np.log(np.maximum(chance, 1e-300)))
