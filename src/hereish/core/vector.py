"""Any n numbers with a norm: distance, noise of the matching law, and grid. Proof: vector.proof.md.

For secrets that are no places: temperatures, meter readings, counts. Noise whose density falls as
`exp(-eps * norm)` is `eps * distance`-private for every norm; here are those of the usual three.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from hereish.core.noise import sine_cosine
from hereish.core.privacy import positive
from hereish.core.spaces import Coordinate, columns, probability
from hereish.core.types import Floats, PerLane
from hereish.errors import ParameterError

Norm: TypeAlias = Literal["l1", "l2", "linf"]

_MOST_NUMBERS = 1024
# All numbers of a point together span so many grid steps at most, and the length of the noise so
# many on average: doubles are then finer than the grid, and by how much is in known-limits.md.
_MOST_GRID_STEPS = 2.0**40
_WIDEST_NOISE_STEPS = 2.0**24
# The product of so many uniforms is far from the smallest double: one logarithm instead of many.
_AT_ONCE = 8


@dataclass(frozen=True)
class Vector:
    """`count` numbers, such as the temperatures of rooms; the distance is a norm of a difference.

    The norm is "l1" (the sum of the absolute differences), "l2" (Euclid's) or "linf" (the largest
    of them). The distance is the norm over `sensitivity`, the most by which the norm changes when
    what is protected changes by one `unit`: 2 where a person leaves one count and joins another.

    Releases lie on a grid of `grid`, and between the public bounds `low` and `high`, which are
    rounded to it. Secrets may lie beyond the bounds: to refuse them would tell.

    Guarantee: `noise` is eps * distance-private up to the rounding bounded in known-limits.md.
    """

    count: int
    norm: Norm = "l2"
    grid: float = 1e-3
    low: float = -math.inf
    high: float = math.inf
    sensitivity: float = 1.0
    unit: str = "units"
    claim_factor = 1.0
    private = True

    def __post_init__(self) -> None:
        whole = isinstance(self.count, int) and not isinstance(self.count, bool)
        if not (whole and 1 <= self.count <= _MOST_NUMBERS):
            raise ParameterError(
                f"count must be a whole number from 1 to {_MOST_NUMBERS}, found {self.count!r}"
            )
        if self.norm not in get_args(Norm):
            raise ParameterError(f"norm must be 'l1', 'l2' or 'linf', found {self.norm!r}")
        for name in ("grid", "sensitivity"):
            if not 1e-100 <= positive(name, getattr(self, name)) <= 1e100:  # squares are finite
                raise ParameterError(
                    f"{name} must lie between 1e-100 and 1e+100, found {getattr(self, name)!r}"
                )
        low, high = self._bounds
        if not low < high:  # NaN is not
            raise ParameterError(
                "low must lie below high, by at least a step of the grid, "
                f"found {self.low!r} and {self.high!r}"
            )

    @property
    def _most_steps(self) -> float:
        """How many grid steps a number may be away from 0."""
        return _MOST_GRID_STEPS / 2.0 ** math.ceil(math.log2(self.count))

    @property
    def _bounds(self) -> tuple[float, float]:
        """The least and the largest release, in grid steps."""
        most = self._most_steps
        low, high = (
            float(np.rint(min(max(bound / self.grid, -most), most)))
            for bound in (self.low, self.high)
        )
        return low, high

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        limit = self._most_steps * self.grid
        return tuple(Coordinate(f"number {i}", -limit, limit) for i in range(1, self.count + 1))

    @property
    def uniforms(self) -> int:
        if self.norm == "l1" or self.count == 1:
            return 2 * self.count
        if self.norm == "l2":  # a length, and normal numbers by pairs
            return self.count + 2 * math.ceil(self.count / 2)
        return 2 * self.count + 1

    @property
    def smallest_eps(self) -> float:
        """With less, noise would be so large that the gaps of doubles tell on the grid."""
        return self.sensitivity * self.count / (_WIDEST_NOISE_STEPS * self.grid)

    def distance(self, a: Floats, b: Floats) -> Floats:
        apart = np.abs(np.subtract(a, b, dtype=np.float64))
        if self.count == 1 and apart.ndim < 2:  # as people write numbers
            return np.asarray(apart / self.sensitivity)
        if self.norm == "linf":
            length = apart.max(axis=-1)
        elif self.norm == "l1":
            length = _sum_in_order(apart)
        else:
            length = np.sqrt(_sum_in_order(apart * apart))
        return np.asarray(length / self.sensitivity)  # [V1]

    def unrounded_noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        """What `noise` rounds. Never to be released: its last bits tell the secret."""
        scale = self.sensitivity / eps
        moved = np.empty_like(x)
        for i, offset in enumerate(self._offsets(columns(u))):
            moved[:, i] = x[:, i] + scale * offset
        return moved  # [V2]

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return self.snap(self.unrounded_noise(x, eps, u))  # [V3]

    def snap(self, points: Floats) -> Floats:
        # As on a line: what lies beyond the bounds becomes their end, and zero has no sign.
        steps = np.clip(np.rint(points / self.grid), *self._bounds)
        return np.asarray(steps * self.grid + 0.0)  # [V4]

    def c_noise(self, delta: float) -> float:
        from scipy.special import gammaincinv  # here because scipy is slow to import

        return float(gammaincinv(self.count, probability("delta", delta)))

    @property
    def mean_noise(self) -> float:
        """How far off each number is on average, for eps = 1."""
        n = self.count
        if self.norm == "l1" or n == 1:
            return self.sensitivity
        if self.norm == "l2":
            part = math.exp(math.lgamma(n / 2) - math.lgamma((n + 1) / 2)) / math.sqrt(math.pi)
            return self.sensitivity * n * part
        return self.sensitivity * (n + 1) / 2

    def _offsets(self, u: Sequence[Floats]) -> list[Floats]:
        """Noise of the norm's law for a scale of 1, number by number."""
        n = self.count
        if self.norm == "l1" or n == 1:  # where all norms are one
            return [np.log(u[2 * i] / u[2 * i + 1]) for i in range(n)]  # [V5]
        if self.norm == "l2":
            length = gamma_length(u[:n])
            return [length * part for part in direction(u[n:], n)]  # [V6]
        length = gamma_length(u[: n + 1])
        return [length * (2.0 * each - 1.0) for each in u[n + 1 :]]  # [V7]


def gamma_length(u: Sequence[Floats]) -> Floats:
    """The sum of as many exponential variables as there are uniforms: Gamma(len(u), 1)."""
    total = np.zeros(len(u[0]))
    for first in range(0, len(u), _AT_ONCE):
        product = u[first]
        for each in u[first + 1 : first + _AT_ONCE]:
            product = product * each
        total -= np.log(product)
    return total  # [V8]


def direction(u: Sequence[Floats], count: int) -> list[Floats]:
    """A uniform direction of so many numbers: normal ones, two from each pair of uniforms."""
    parts: list[Floats] = []
    for i in range(0, len(u), 2):
        length = np.sqrt(-np.log(u[i]))
        sine, cosine = sine_cosine(math.pi * u[i + 1])
        parts += [length * cosine, length * sine]
    del parts[count:]
    length = np.sqrt(np.add.accumulate([part * part for part in parts])[-1])
    return [part / length for part in parts]  # [V9]


def _sum_in_order(numbers: Floats) -> Floats:
    """The sums of the last axis, in its order: the same bits for one lane and for many."""
    return np.asarray(np.add.accumulate(numbers, axis=-1)[..., -1])
