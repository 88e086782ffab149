"""City blocks: a plane on which the way between two points is along its axes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hereish.core import noise
from hereish.core.spaces import Plane, are_rows, columns, distance_of_any
from hereish.core.types import Floats, PerLane


@dataclass(frozen=True)
class Manhattan(Plane):
    """Metres east and north in a town of blocks: the distance is |east| + |north|.

    Noise is Laplace along each axis; a grid of `grid_m` metres. Turn the axes of your map so that
    they follow the streets.

    Guarantee: `noise` is eps * (|east| + |north|)-private up to the rounding bounded in
    known-limits.md.
    """

    uniforms = 4

    def distance(self, a: Floats, b: Floats) -> Floats:
        if not are_rows(a, b):
            return distance_of_any(self, a, b)
        return np.asarray(np.abs(a[:, 0] - b[:, 0]) + np.abs(a[:, 1] - b[:, 1]))

    def unrounded_noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        """What `noise` rounds. Never to be released: its last bits tell the secret."""
        u1, u2, u3, u4 = columns(u)
        moved = np.empty_like(x)
        moved[:, 0] = x[:, 0] + noise.line_offset(eps, u1, u2)
        moved[:, 1] = x[:, 1] + noise.line_offset(eps, u3, u4)
        return moved  # [N17]
