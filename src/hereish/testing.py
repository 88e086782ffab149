"""For the tests of your own program: fixed draws and no noise. NOT PRIVATE, as their reprs say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hereish.core.spaces import Coordinate, Space
from hereish.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hereish.core.types import Floats, PerLane


class FixedDraws:
    """Hands out the given uniforms, in order, each once. NOT PRIVATE."""

    private = False

    def __init__(self, uniforms: ArrayLike) -> None:
        self._left = np.array(uniforms, dtype=np.float64).reshape(-1)
        if self._left.size and not (self._left.min() > 0.0 and self._left.max() < 1.0):
            raise ParameterError("uniforms must lie strictly between 0 and 1")

    def uniforms(self, count: int, out: Floats | None = None) -> Floats:
        if count > len(self._left):
            raise ParameterError(f"{count} uniforms are needed and {len(self._left)} are left")
        drawn, self._left = self._left[:count], self._left[count:]
        if out is None:
            return drawn.copy()
        out[:] = drawn
        return out

    def __repr__(self) -> str:
        return f"<FixedDraws: {len(self._left)} left, NOT PRIVATE>"


@dataclass(frozen=True, repr=False)
class NoNoise:
    """A space whose noise is none: what is hard is released as it is, rounded. NOT PRIVATE."""

    space: Space
    uniforms = 0
    smallest_eps = 0.0
    private = False

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        return self.space.coordinates

    @property
    def claim_factor(self) -> float:
        return self.space.claim_factor

    @property
    def unit(self) -> str:
        return self.space.unit

    def distance(self, a: Floats, b: Floats) -> Floats:
        return self.space.distance(a, b)

    def unrounded_noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return x

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return self.space.snap(x)

    def snap(self, points: Floats) -> Floats:
        return self.space.snap(points)

    def c_noise(self, delta: float) -> float:
        return self.space.c_noise(delta)

    def __repr__(self) -> str:
        return f"NoNoise({self.space!r}), NOT PRIVATE"
