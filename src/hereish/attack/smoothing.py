"""Where somebody was at each time, as far as an observer can tell from all releases.

Forward and backward over the cells of a grid: exact likelihoods of the releases, and a movement
model between them. It starts from a coarse grid over all that was released; then each time gets a
finer one over the part where its posterior is, twice or until that is fine enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hereish.attack.lattice import Frame, Grid, region
from hereish.attack.movement import (
    MOVEMENTS,
    Movement,
    Singles,
    Transitions,
    resampled,
    transitions,
)
from hereish.attack.observations import Observations
from hereish.core.types import Floats
from hereish.errors import ParameterError

SHARES = (0.5, 0.9)
_CELLS = 64
_ROUNDS = 3
_SOMEWHERE_NEW = np.float32(0.2)  # of those who return to a place, to one not seen before
_OUTSIDE = 1e-5  # the mass of a posterior that finer grids leave out
_MARGIN = 8.0  # scales of the noise around all releases; noise goes further once in 330 times
_LEAST_MARGIN_M, _MOST_MARGIN_M = 500.0, 200_000.0
_FINEST_M = 2.0  # releases are rounded to a metre
_ENOUGH_CELLS = 12.0  # a posterior of a width of so many cells needs no finer ones


@dataclass(frozen=True, eq=False)
class Smoothed:
    """The posterior of one person at the time of each release."""

    frame: Frame
    grids: list[Grid]
    mass: list[Singles]  # of each grid's cells, summing to 1
    at_s: Floats

    def __len__(self) -> int:
        return len(self.grids)

    def mean(self) -> Floats:
        """(n, 2) Latitude and longitude of the posteriors' means."""
        metres = np.array(
            [
                [
                    mass.sum(axis=0) @ (grid.east_edges_m[:-1] + 0.5 * grid.step_m),
                    mass.sum(axis=1) @ (grid.north_edges_m[:-1] + 0.5 * grid.step_m),
                ]
                for grid, mass in zip(self.grids, self.mass, strict=True)
            ]
        )
        return self.frame.to_degrees(metres)

    def spread_m(self) -> Floats:
        """(n,) The root of the mean squared distance from the mean."""
        return np.array([_spread_m(g, m) for g, m in zip(self.grids, self.mass, strict=True)])

    def radius_m(self, share: float) -> Floats:
        """(n,) The radius of a disc as large as the region that holds this share."""
        areas = [
            region(mass, share).sum() * grid.cell_m2
            for grid, mass in zip(self.grids, self.mass, strict=True)
        ]
        return np.sqrt(np.array(areas) / math.pi)

    def level_of(self, i: int, place: Floats, share_of_own: float = 0.5) -> float:
        """The mass of cells more probable than that of a place; 1 outside of the grid.

        Uniform over [0, 1] for true places if the posterior is right and `share_of_own` is; a
        region of a share holds a place whose level is below it.
        """
        cell = self.grids[i].cell_of(self.frame.to_metres(place))
        if cell is None:
            return 1.0
        mass = self.mass[i]
        own = mass[cell]
        above, equal = mass[mass > own].sum(), mass[mass == own].sum()
        return float(above + share_of_own * equal)


def smooth(
    seen: Observations,
    movement: Movement | None = None,
    *,
    area: tuple[Floats, float] | None = None,
    cells: int = _CELLS,
) -> Smoothed:
    """The posterior at each time, of somebody who may have been anywhere in an area at first.

    The area is that of all releases and what noise they may have, unless it is given: points, and
    metres around them. Without a movement it is that of `MOVEMENTS` from which the releases are
    most probable.
    """
    if not len(seen):
        raise ParameterError("there is nothing to attack: no releases")
    frame = Frame.around(seen.value)
    points, margin_m = area or (seen.value, _margin_m(seen))
    whole = Grid.covering(frame, frame.to_metres(points), margin_m, cells, _FINEST_M)
    movement = movement or max(MOVEMENTS, key=lambda one: _log_evidence(seen, whole, one))
    step = transitions(movement)
    grids = [whole] * len(seen)
    anywhere = np.full(whole.shape, 1.0 / (whole.high * whole.wide), dtype=np.float32)
    mass = _forward_backward(seen, grids, step, {whole: anywhere})
    for _ in range(_ROUNDS):
        finer = [_finer(grid, one, cells) for grid, one in zip(grids, mass, strict=True)]
        if not movement.returns and finer == grids:
            break
        places = _places(whole, anywhere, grids, mass, set(finer), movement.returns)
        grids = finer
        mass = _forward_backward(seen, grids, step, places)
    return Smoothed(frame, grids, mass, seen.at_s)


def _log_evidence(seen: Observations, grid: Grid, movement: Movement) -> float:
    """How probable all releases are if somebody moves like this, up to a constant.

    On the coarse grid, forward only.
    """
    step = transitions(movement)
    anywhere = np.full(grid.shape, 1.0 / (grid.high * grid.wide), dtype=np.float32)
    mass, total, before_s = anywhere, 0.0, float(seen.at_s[0])
    for i in np.flatnonzero(seen.informative()).tolist():
        at_s = float(seen.at_s[i])
        if at_s > before_s:
            mass = step(grid, grid, at_s - before_s).forward(mass, anywhere)
            before_s = at_s
        chance = _chances(seen, i, grid)
        if chance is not None:
            held = float((mass * chance).sum(dtype=np.float64))
            total += math.log(max(held, 1e-25))
            mass = _normalized(mass, chance)
    return total


def _margin_m(seen: Observations) -> float:
    hard = seen.hard
    if not hard.any() or seen.law is not None:
        return 20_000.0 if seen.law is not None else _LEAST_MARGIN_M
    # The finest noise says where somebody is; coarse noise alone needs a wide map.
    scale_m = float(np.quantile(1.0 / seen.eps_noise[hard], 0.1))
    return min(max(_MARGIN * scale_m, _LEAST_MARGIN_M), _MOST_MARGIN_M)


def _finer(grid: Grid, mass: Singles, cells: int) -> Grid:
    """A finer grid over the posterior, if its cells are not fine enough already."""
    if grid.step_m <= _FINEST_M or _spread_m(grid, mass) > _ENOUGH_CELLS * grid.step_m:
        return grid
    box = grid.box_of(mass, _OUTSIDE, cells)
    return grid if box.step_m >= grid.step_m else box


def _spread_m(grid: Grid, mass: Singles) -> float:
    total = 0.0
    for axis, edges in ((0, grid.east_edges_m), (1, grid.north_edges_m)):
        along, middle = mass.sum(axis=axis, dtype=np.float64), edges[:-1] + 0.5 * grid.step_m
        mean = float(along @ middle)
        total += float(along @ (middle - mean) ** 2)
    return math.sqrt(total)


def _places(
    whole: Grid,
    anywhere: Singles,
    grids: list[Grid],
    mass: list[Singles],
    wanted: set[Grid],
    returns: float,
) -> dict[Grid, Singles]:
    """Where the person was over all times, as the mass of the cells of each of these grids."""
    if not returns:
        return {grid: np.zeros(grid.shape, dtype=np.float32) for grid in wanted}
    visited: dict[Grid, Singles] = {}
    for grid, one in zip(grids, mass, strict=True):
        visited[grid] = visited[grid] + one if grid in visited else one.copy()
    places = {
        grid: _SOMEWHERE_NEW * resampled(anywhere, whole, grid).astype(np.float32)
        for grid in wanted
    }
    for grid, total in visited.items():
        share = np.float32((1.0 - _SOMEWHERE_NEW) / len(mass))
        for end, place in places.items():
            if _touch(grid, end):
                place += share * (total if end == grid else resampled(total, grid, end))
    return places


def _touch(first: Grid, second: Grid) -> bool:
    return all(
        one[0] < other[-1] and other[0] < one[-1]
        for one, other in (
            (first.east_edges_m, second.east_edges_m),
            (first.north_edges_m, second.north_edges_m),
        )
    )


def _forward_backward(
    seen: Observations, grids: list[Grid], step: Transitions, places: dict[Grid, Singles]
) -> list[Singles]:
    count = len(seen)
    chances = [_chances(seen, i, grids[i]) for i in range(count)]
    forward: list[Singles] = []
    mass: Singles = np.ones(grids[0].shape, dtype=np.float32)
    for i in range(count):
        if i:
            elapsed_s = float(seen.at_s[i] - seen.at_s[i - 1])
            mass = step(grids[i - 1], grids[i], elapsed_s).forward(forward[-1], places[grids[i]])
        forward.append(_normalized(mass, chances[i]))
    posterior = [forward[-1]]
    chance: Singles = np.ones(grids[-1].shape, dtype=np.float32)
    for i in range(count - 1, 0, -1):
        elapsed_s = float(seen.at_s[i] - seen.at_s[i - 1])
        told = chances[i]
        weighted = chance if told is None else chance * told
        chance = step(grids[i - 1], grids[i], elapsed_s).backward(weighted, places[grids[i]])
        chance /= max(float(chance.max()), 1e-30)
        posterior.append(_normalized(forward[i - 1], chance))
    return posterior[::-1]


def _chances(seen: Observations, i: int, grid: Grid) -> NDArray[np.float32] | None:
    log_chance = seen.log_likelihood(i, grid)
    if log_chance is None:
        return None
    # Beyond exp(-80) singles would be nought, and so would the product of two.
    log_chance = np.maximum(log_chance - log_chance.max(), -60.0)
    return np.asarray(np.exp(log_chance), dtype=np.float32)


def _normalized(mass: Singles, chance: Singles | None) -> Singles:
    product = mass if chance is None else mass * chance
    total = float(product.sum(dtype=np.float64))
    if not total > 1e-25:  # a surprise beyond what singles can tell: begin again from the release
        product = np.ones_like(mass) if chance is None else chance.copy()
        total = float(product.sum(dtype=np.float64))
    return (product / np.float32(total)).astype(np.float32)
