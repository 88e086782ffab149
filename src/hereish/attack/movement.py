"""How secrets move, as an observer may assume: they stay for a while, then go some way.

Between two times somebody has stayed, to the metre, or moved by one of a few Gaussian steps. It is
a rough model on purpose: the observer who knew the person's habits would need no releases. What a
meter reads moves alike, from level to level: then a metre is a unit of what it reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from hereish.attack.lattice import Lattice, distance_m
from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError

Singles = NDArray[np.float32]
_STAYED_M = 150.0
_SHORTEST_S = 1.0


@dataclass(frozen=True)
class Movement:
    """People stay for `stay_s` on average, and then move.

    A step within a time that is long against `reach_s` is Gaussian with one of the `scales_m` (of
    each axis), chosen by `weights`; within a shorter time it is shorter in proportion to its
    root. Many steps between two releases look like one. A share `returns` of the moves goes to one
    of the person's own places, which the observer learns as all releases are looked at; with a
    `period_s`, those of about the same time of a day, or of another period.
    """

    stay_s: float = 3.0 * 3600.0
    scales_m: tuple[float, ...] = (400.0, 2500.0, 12000.0)
    weights: tuple[float, ...] = (0.35, 0.5, 0.15)
    reach_s: float = 3600.0
    returns: float = 0.7
    period_s: float | None = None

    def __post_init__(self) -> None:
        if len(self.scales_m) != len(self.weights) or not self.scales_m:
            raise ParameterError("a movement has one weight per scale, and at least one of them")
        if not (self.stay_s > 0.0 and self.reach_s > 0.0 and min(self.scales_m) > 0.0):
            raise ParameterError("times and scales of a movement must be positive")
        if abs(sum(self.weights) - 1.0) > 1e-9 or min(self.weights) < 0.0:
            raise ParameterError(f"the weights of a movement must sum to 1, found {self.weights}")
        if not 0.0 <= self.returns < 1.0:
            raise ParameterError(f"returns must be a share below 1, found {self.returns!r}")
        if self.period_s is not None and not self.period_s > 0.0:
            raise ParameterError(f"period_s must be above 0, found {self.period_s!r}")

    def stayed(self, elapsed_s: float) -> float:
        """The probability that nobody has moved in this time."""
        return math.exp(-max(elapsed_s, _SHORTEST_S) / self.stay_s)

    def step_scales_m(self, elapsed_s: float) -> list[float]:
        """The scale of each Gaussian in this time."""
        share = math.sqrt(min(1.0, max(elapsed_s, _SHORTEST_S) / self.reach_s))
        return [scale * share for scale in self.scales_m]

    def draw(self, rng: np.random.Generator, start_m: Floats, at_s: Floats) -> Floats:
        """(people, times, axes) metres of people who move like this; for studies and tests.

        They return nowhere: that is left to those who make them up.
        """
        people, axes = start_m.shape
        path = np.empty((people, len(at_s), axes))
        path[:, 0] = start_m
        for number in range(1, len(at_s)):
            elapsed_s = float(at_s[number] - at_s[number - 1])
            scale = rng.choice(self.step_scales_m(elapsed_s), size=people, p=self.weights)
            scale[rng.random(people) < self.stayed(elapsed_s)] = 0.0
            step = rng.standard_normal((people, axes)) * scale[:, None]
            path[:, number] = path[:, number - 1] + step
        return path


# Of people at places, on foot, and on the road: the observer takes the one that fits.
MOVEMENTS = (
    Movement(),
    Movement(300.0, (150.0, 600.0, 3000.0), (0.5, 0.4, 0.1), 600.0, returns=0.3),
    Movement(60.0, (500.0, 1500.0, 5000.0), (0.4, 0.4, 0.2), 600.0, returns=0.1),
)


def fit_movement(points: Floats, at_s: Floats, offsets: Ints) -> Movement:
    """The movement of other people, whose traces are known: one step per pair of neighbours.

    A step shorter than 150 m is a stay. Of the others the lengths are taken at a third, two
    thirds and all but a tenth of them.
    """
    pair = np.ones(len(at_s) - 1, dtype=np.bool_)
    pair[offsets[1:-1] - 1] = False
    rows = np.flatnonzero(pair)
    elapsed_s = at_s[rows + 1] - at_s[rows]
    rows, elapsed_s = rows[elapsed_s > 0.0], elapsed_s[elapsed_s > 0.0]
    if len(rows) < 10:
        raise ParameterError("a movement is fitted to at least 10 pairs of points")
    apart_m = distance_m(points[rows], points[rows + 1])
    moved = apart_m > _STAYED_M
    if not moved.any():
        return Movement()
    # The rate of moving that makes these stays most probable.
    rate = _moving_rate(elapsed_s, moved)
    length = apart_m[moved] / np.sqrt(np.minimum(1.0, elapsed_s[moved] / Movement.reach_s))
    edges = np.quantile(length, [1 / 3, 0.9])
    group = np.digitize(length, edges)
    weights = np.bincount(group, minlength=3) / len(length)
    scales = [float(np.sqrt((length[group == k] ** 2).mean() / 2.0)) for k in range(3)]
    return Movement(1.0 / rate, tuple(scales), tuple((weights / weights.sum()).tolist()))


def _moving_rate(elapsed_s: Floats, moved: NDArray[np.bool_]) -> float:
    low, high = -20.0, 2.0  # logarithms of rates per second
    for _ in range(60):
        middle = 0.5 * (low + high)
        expected = -np.expm1(-math.exp(middle) * elapsed_s)
        # The derivative of the likelihood, in which pairs that moved count by how soon.
        slope = (elapsed_s * np.where(moved, 1.0 / np.maximum(expected, 1e-12) - 1.0, -1.0)).sum()
        low, high = (middle, high) if slope > 0.0 else (low, middle)
    return math.exp(low)


class Transition:
    """From the cells of one lattice to those of another in a given time, and the way back.

    Along one axis it may be `likely` how often each cell is moved to.
    """

    def __init__(
        self,
        movement: Movement,
        start: Lattice,
        end: Lattice,
        elapsed_s: float,
        likely: Singles | None = None,
    ) -> None:
        stayed = movement.stayed(elapsed_s)
        moves = (1.0 - stayed) * (1.0 - movement.returns)
        self._stayed = np.float32(stayed)
        self._returned = np.float32((1.0 - stayed) * movement.returns)
        self._stays = None if start == end else _stays(start, end)
        self._steps = [
            (_gaussian(start, end, scale_m), np.float32(moves * weight))
            for scale_m, weight in zip(
                movement.step_scales_m(elapsed_s), movement.weights, strict=True
            )
        ]
        if len(start.shape) == 1:  # along one axis all steps are one matrix
            total = np.asarray(sum(weight * matrices[0] for matrices, weight in self._steps))
            if likely is not None:
                # By its root, so that mass that moves for long is where it is likely.
                total = total * np.sqrt(likely)[:, None]
                total *= moves / np.maximum(total.sum(axis=0), 1e-30)
            self._steps = [((np.asarray(total, dtype=np.float32),), np.float32(1.0))]

    def forward(self, mass: Singles, places: Singles) -> Singles:
        """Where mass goes; `places` is the mass of the person's own places in the cells there."""
        total = self._stayed * (mass if self._stays is None else _moved(self._stays, mass))
        for matrices, weight in self._steps:
            total += weight * _moved(matrices, mass)
        if self._returned:
            total += (self._returned * mass.sum()) * places
        return total

    def backward(self, chance: Singles, places: Singles) -> Singles:
        """The mean over where somebody goes from each cell."""
        total = self._stayed * (chance if self._stays is None else _seen_from(self._stays, chance))
        for matrices, weight in self._steps:
            total += weight * _seen_from(matrices, chance)
        if self._returned:
            total += self._returned * (places * chance).sum()
        return total


Matrices: TypeAlias = tuple[Singles, ...]  # along each axis of a lattice, (end, start)


def _moved(matrices: Matrices, mass: Singles) -> Singles:
    moved = matrices[0] @ mass
    for matrix in matrices[1:]:  # there are two at most
        moved = moved @ matrix.T
    return moved


def _seen_from(matrices: Matrices, chance: Singles) -> Singles:
    seen = matrices[0].T @ chance
    for matrix in matrices[1:]:
        seen = seen @ matrix
    return seen


Transitions = Callable[[Lattice, Lattice, float], Transition]


def transitions(
    movement: Movement, prior: Callable[[Lattice], Singles] | None = None
) -> Transitions:
    """Transitions of one movement, remembered: times are told apart to three per cent."""

    @lru_cache(maxsize=256)
    def make(start: Lattice, end: Lattice, rounded: int) -> Transition:
        likely = None if prior is None else prior(end)
        return Transition(movement, start, end, math.exp(rounded * 0.03), likely)

    def transition(start: Lattice, end: Lattice, elapsed_s: float) -> Transition:
        return make(start, end, round(math.log(max(elapsed_s, _SHORTEST_S)) / 0.03))

    return transition


def resampled(mass: Singles, start: Lattice, end: Lattice) -> Singles:
    """The mass of one lattice's cells in those of another."""
    if start == end:
        return mass
    return np.asarray(_moved(_stays(start, end), mass), dtype=np.float32)


def _stays(start: Lattice, end: Lattice) -> Matrices:
    return tuple(_overlap(*edges) for edges in zip(start.edges_m, end.edges_m, strict=True))


def _overlap(start: Floats, end: Floats) -> Singles:
    """(end, start) Which share of each cell along an axis lies in which other one."""
    low = np.maximum(start[None, :-1], end[:-1, None])
    high = np.minimum(start[None, 1:], end[1:, None])
    share = np.maximum(high - low, 0.0) / (start[1] - start[0])
    return np.asarray(share, dtype=np.float32)


def _gaussian(start: Lattice, end: Lattice, scale_m: float) -> Matrices:
    # From somewhere in the cell, not from its middle.
    spread_m = math.hypot(scale_m, start.step_m / math.sqrt(12.0))

    def along(edges: Floats, to: Floats) -> Singles:
        middles = edges[None, :-1] + 0.5 * start.step_m
        share = np.diff(ndtr((to[:, None] - middles) / spread_m), axis=0)
        return np.asarray(share, dtype=np.float32)

    return tuple(along(*edges) for edges in zip(start.edges_m, end.edges_m, strict=True))
