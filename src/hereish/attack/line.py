"""A line as an observer sees it: one number, such as a meter reading, with Laplace noise.

All that is a mean over noise on a plane is a formula here. A release stands on the grid of its
space, so the noise that became it is looked for among the points of that grid, which are all that
fresh noise can be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hereish.attack.geometry import Postprocessed, ReplayTolerance, Undone
from hereish.attack.lattice import Mass
from hereish.attack.movement import Movement
from hereish.core.decision import CLAMP
from hereish.core.spaces import Line
from hereish.core.types import Bools, Floats
from hereish.core.vector import Vector
from hereish.errors import ParameterError

# Up to so many steps of its grid a number is small, and beyond it moves in proportion to itself.
_SMALL = 30.0
# Along the axis of `Segments`: of the meter of a usual home, of a steady one and of a restless one.
# Some of the moves lead to what the home uses at that time of the day.
_DAY_S = 86400.0
READINGS = (
    Movement(300.0, (0.15, 0.4, 1.2), (0.6, 0.3, 0.1), 1800.0, 0.15, _DAY_S),
    Movement(900.0, (0.05, 0.2, 0.6), (0.6, 0.3, 0.1), 1800.0, 0.3, _DAY_S),
    Movement(300.0, (0.3, 1.0, 2.0), (0.4, 0.3, 0.3), 1800.0, 0.4, _DAY_S),
)
_STRIDE, _MOST_STARTS = 16, 512  # grid steps between noise that is tried first; of that how much
_MOST_NOISES = 64
_LEAST_CHANCE = 1e-300


@dataclass(frozen=True)
class Segments:
    """Cells of a line: `count` of them from `first` steps above 0 on.

    The axis of a movement is asinh(number / small): what is small moves by steps that are alike,
    and what is not by shares of itself, as loads do that are switched on and off.
    """

    small: float
    per_unit: float  # numbers that make one unit of the distance
    step_m: float
    first: int
    count: int

    @property
    def shape(self) -> tuple[int]:
        return (self.count,)

    @cached_property
    def _edges(self) -> Floats:
        return np.asarray((self.first + np.arange(self.count + 1.0)) * self.step_m)

    @cached_property
    def _middles(self) -> Floats:
        """The numbers in the middle of the cells."""
        edges = self.small * np.sinh(self._edges)
        return np.asarray(0.5 * (edges[1:] + edges[:-1]))

    @cached_property
    def half_diagonal_m(self) -> Floats:
        return np.asarray(np.diff(self.small * np.sinh(self._edges)) * (0.5 / self.per_unit))

    @property
    def edges_m(self) -> tuple[Floats]:
        return (self._edges,)

    def points(self) -> Floats:
        return self._middles[:, None]

    def cell_at(self, point: Floats) -> tuple[int] | None:
        cell = math.floor(math.asinh(point[0] / self.small) / self.step_m) - self.first
        return (cell,) if 0 <= cell < self.count else None

    def distances_m(self, point: Floats) -> Floats:
        return np.asarray(np.abs(self._middles - point[0]) / self.per_unit)

    def offsets_m(self, point: Floats) -> tuple[Floats]:
        return ((point[0] - self._middles) / self.per_unit,)

    def mean_of(self, mass: Mass) -> Floats:
        return np.array([mass @ self._middles])

    def spread_of(self, mass: Mass) -> float:
        apart = (self._middles - mass @ self._middles) / self.per_unit
        return math.sqrt(float(mass @ apart**2))

    def radius_of(self, inside: Bools) -> float:
        """Half of the length of these cells."""
        return float(self.half_diagonal_m[inside].sum())

    def finer(self, mass: Mass, cells: int) -> Segments:
        """Itself: along one axis there is room for fine cells from the beginning."""
        return self


@dataclass(frozen=True, eq=False)
class Noises:
    """Points, one of which the noise was, with how likely each was let out."""

    at: Floats
    weight: Floats
    eps: float  # per unit of the numbers

    def log_chance_at(self, points: Floats, nearer_m: Floats | float = 0.0) -> Floats:
        apart = np.abs(points[..., 0, None] - self.at)
        apart = np.maximum(apart - np.asarray(nearer_m)[..., None], 0.0)
        least = apart.min(axis=-1)
        # From the nearest of them on, so that far points do not become nought.
        chance = np.exp(-self.eps * (apart - least[..., None])) @ self.weight
        return np.asarray(np.log(np.maximum(chance, _LEAST_CHANCE)) - self.eps * least)


@dataclass(frozen=True)
class OnLine:
    """The space of a `hereish.Line`, or of a `hereish.Vector` of one number."""

    grid: float
    low: float
    high: float
    per_unit: float
    coordinates = 1
    cells = 320
    rounds = 2
    tolerance = ReplayTolerance(cost=0.25, contradictions=0.1)

    @classmethod
    def of(cls, space: Line | Vector) -> OnLine:
        """Of this space."""
        if isinstance(space, Line):
            return cls(space.grid, -math.inf, math.inf, 1.0)
        if space.count != 1:
            raise ParameterError(
                f"attacks work on one number, a Vector of count=1, found {space.count}"
            )
        return cls(space.grid, space.low, space.high, space.sensitivity)

    @property
    def movements(self) -> tuple[Movement, ...]:
        return READINGS

    @property
    def margins_m(self) -> tuple[float, float]:
        return 100.0 * self.grid / self.per_unit, math.inf

    def distance_m(self, a: Floats, b: Floats) -> Floats:
        return np.asarray(np.abs(a - b)[..., 0] / self.per_unit)

    def offsets_m(self, places: Floats, point: Floats) -> tuple[Floats]:
        return ((point - places)[..., 0] / self.per_unit,)

    def covering(self, points: Floats, margin_m: float, cells: int) -> Segments:
        """Within the public bounds, beyond which nothing is released."""
        margin, small = margin_m * self.per_unit, _SMALL * self.grid
        low = math.asinh(max(float(points.min()) - margin, self.low) / small)
        high = math.asinh(min(float(points.max()) + margin, self.high) / small)
        finest = math.asinh(1.0 / _SMALL)
        step = 2.0 ** math.ceil(math.log2(max((high - low) / (cells - 1), 0.25 * finest)))
        first = math.floor(low / step)
        count = max(math.ceil(high / step) - first, 1)
        return Segments(small, self.per_unit, step, first, count)

    def log_accepted(
        self, distance_m: Floats, eps_test: float, eps_noise: float, threshold_m: float
    ) -> Floats:
        """Of exp(-eps_test * max(0, |d + noise| - threshold)) the mean over Laplace noise."""
        share = eps_test / eps_noise
        near = max(threshold_m, 0.0) * eps_noise
        d = distance_m * eps_noise
        inside, t = np.minimum(d, near), np.maximum(d - near, 0.0)
        # The guess is on one side; noise that leads to it from within the threshold, from beyond
        # it on the near side, and from beyond it on the far one.
        within = np.exp(-t) - np.exp(-near - d) + np.where(d < near, 1.0 - np.exp(inside - near), 0)
        between = np.exp(-share * t) * _mean_decay(1.0 - share, t)
        beyond = np.exp(-share * t + inside - near) / (1.0 + share)
        far = np.exp(-near - d) / (1.0 + share)
        chance = 0.5 * (within + between + beyond + far)
        # A threshold below nought is further away by as much, for all noise.
        chance *= math.exp(share * eps_noise * min(threshold_m, 0.0))
        return np.asarray(np.log(np.clip(chance, CLAMP, 1.0 - CLAMP)))

    def undo(self, release: Postprocessed) -> Undone:
        """All points of the grid that become the release, near the ones that nearly do."""
        value, reach = float(release.value[0]), release.reach_m * self.per_unit
        low = max(value - reach, self.low) / self.grid
        high = min(value + reach, self.high) / self.grid
        low, high = math.ceil(low - 1e-9), math.floor(high + 1e-9)

        def misses(steps: Floats) -> Floats:
            """By how much noise at these steps of the grid does not become the release."""
            return np.asarray(release.moved(steps[:, None] * self.grid)[:, 0] - value)

        stride = max(_STRIDE, math.ceil((high - low) / _MOST_STARTS))
        coarse = np.unique(np.append(np.arange(low, high, stride), high)).astype(np.float64)
        missed = misses(coarse)
        near = np.abs(missed) <= 0.5 * self.grid
        crossed = (missed[:-1] * missed[1:] <= 0.0) | near[:-1] | near[1:]
        # Where it is nearest too: what was replayed may be off by a little.
        crossed |= np.isin(np.arange(len(crossed)), np.abs(missed).argmin() - np.arange(2))
        pieces = [np.arange(coarse[i], coarse[i + 1] + 1.0) for i in crossed.nonzero()[0].tolist()]
        fine = np.unique(np.concatenate(pieces)) if pieces else coarse
        missed = np.abs(misses(fine))
        least = float(missed.min())
        became = fine[missed <= max(0.5 * self.grid, least) * (1.0 + 1e-9)] * self.grid
        noisy = became[:: math.ceil(len(became) / _MOST_NOISES)]
        weight = np.maximum(release.let_out(noisy[:, None]), _LEAST_CHANCE)
        middle = noisy[int(np.searchsorted(np.cumsum(weight), 0.5 * weight.sum()))]
        exact = least <= 2.0 * self.grid
        cell = Noises(noisy, weight, release.eps_noise / self.per_unit) if len(noisy) > 1 else None
        return Undone(np.array([middle]), exact, cell)


def _mean_decay(rate: float, t: Floats) -> Floats:
    """The integral of exp(-rate * s) from 0 to t."""
    return np.asarray(t if abs(rate) < 1e-9 else -np.expm1(-rate * t) / rate)
