"""Where somebody was at each time, as far as an observer can tell from all releases.

Forward and backward over the cells of a lattice: exact likelihoods of the releases, and a movement
model between them. On the globe it starts from a coarse grid over all that was released; then each
time gets a finer one over the part where its posterior is, twice or until that is fine enough. It
is the same for all spaces that `hereish.attack.geometry` describes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from hereish.attack.lattice import Lattice, region
from hereish.attack.movement import (
    Movement,
    Singles,
    Transitions,
    resampled,
    transitions,
)
from hereish.attack.observations import Observations
from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError

Prior: TypeAlias = Callable[[Lattice], Floats]
SHARES = (0.5, 0.9)
_SOMEWHERE_NEW = np.float32(0.2)  # of those who return to a place, to one not seen before
_MARGIN = 8.0  # scales of the noise around all releases; noise goes further once in 330 times
_PARTS = 48  # of a period, in which own places are told apart
_SOON = 1  # parts before and after that count as well


@dataclass(frozen=True, eq=False)
class Smoothed:
    """The posterior of one person at the time of each release."""

    grids: Sequence[Lattice]
    mass: list[Singles]  # of each lattice's cells, summing to 1
    at_s: Floats

    def __len__(self) -> int:
        return len(self.grids)

    def mean(self) -> Floats:
        """(n, coordinates) The posteriors' means as points of the space."""
        return np.array([g.mean_of(m) for g, m in zip(self.grids, self.mass, strict=True)])

    def spread_m(self) -> Floats:
        """(n,) The root of the mean squared distance from the mean."""
        return np.array([g.spread_of(m) for g, m in zip(self.grids, self.mass, strict=True)])

    def radius_m(self, share: float) -> Floats:
        """(n,) The radius of a ball as large as the region that holds this share."""
        return np.array(
            [
                grid.radius_of(region(mass, share))
                for grid, mass in zip(self.grids, self.mass, strict=True)
            ]
        )

    def level_of(self, i: int, place: Floats, share_of_own: float = 0.5) -> float:
        """The mass of cells more probable than that of a place; 1 outside of the lattice.

        Uniform over [0, 1] for true places if the posterior is right and `share_of_own` is; a
        region of a share holds a place whose level is below it.
        """
        cell = self.grids[i].cell_at(place)
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
    cells: int | None = None,
    prior: Prior | None = None,
) -> Smoothed:
    """The posterior at each time, of somebody who may have been anywhere in an area at first.

    The area is that of all releases and what noise they may have, unless it is given: points, and
    metres around them. Without a movement it is that of the geometry's from which the releases are
    most probable. A `prior` says how likely each cell of a lattice is before anything is released:
    at first, and whenever somebody goes to where they have not been; without one all are alike.
    """
    if not len(seen):
        raise ParameterError("there is nothing to attack: no releases")
    geometry = seen.geometry
    cells = cells or geometry.cells
    points, margin_m = area or (seen.value, _margin_m(seen))
    whole = geometry.covering(points, margin_m, cells)
    anywhere = _anywhere(whole, prior)
    movement = movement or max(
        geometry.movements,
        key=lambda one: _log_evidence(seen, whole, _transitions(one, prior), anywhere),
    )
    step = _transitions(movement, prior)
    grids = [whole] * len(seen)
    occasions = _occasions(seen.at_s, movement.period_s)
    chances = [_chances(seen, i, whole) for i in range(len(seen))]
    mass = _forward_backward(seen, grids, step, chances, [anywhere] * len(seen), anywhere)
    for _ in range(geometry.rounds):
        finer = [grid.finer(one, cells) for grid, one in zip(grids, mass, strict=True)]
        if not movement.returns and finer == grids:
            break
        places = _places(whole, anywhere, grids, mass, finer, occasions, movement.returns)
        chances = [
            chances[i] if grid == grids[i] else _chances(seen, i, grid)
            for i, grid in enumerate(finer)
        ]
        grids = finer
        mass = _forward_backward(seen, grids, step, chances, places, _anywhere(grids[0], prior))
    return Smoothed(grids, mass, seen.at_s)


def _anywhere(lattice: Lattice, prior: Prior | None) -> Singles:
    if prior is None:
        return np.full(lattice.shape, 1.0 / math.prod(lattice.shape), dtype=np.float32)
    mass = np.asarray(prior(lattice), dtype=np.float64)
    return np.asarray(mass / mass.sum(), dtype=np.float32)


def _occasions(at_s: Floats, period_s: float | None) -> Ints:
    """The part of the period that each time is in; one part is all if there is no period."""
    if period_s is None:
        return np.zeros(len(at_s), dtype=np.int64)
    return np.floor(at_s % period_s * (_PARTS / period_s)).astype(np.int64)


def _transitions(movement: Movement, prior: Prior | None) -> Transitions:
    return transitions(movement, None if prior is None else lambda one: _anywhere(one, prior))


def _log_evidence(seen: Observations, grid: Lattice, step: Transitions, anywhere: Singles) -> float:
    """How probable all releases are if somebody moves like this, up to a constant.

    On the coarse grid, forward only.
    """
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
    least_m, most_m = seen.geometry.margins_m
    if not hard.any() or seen.law is not None:
        return 20_000.0 if seen.law is not None else least_m
    # The finest noise says where somebody is; coarse noise alone needs a wide map.
    scale_m = float(np.quantile(1.0 / seen.eps_noise[hard], 0.1))
    return min(max(_MARGIN * scale_m, least_m), most_m)


def _places(
    whole: Lattice,
    anywhere: Singles,
    grids: Sequence[Lattice],
    mass: list[Singles],
    wanted: Sequence[Lattice],
    occasions: Ints,
    returns: float,
) -> list[Singles]:
    """Where the person was over all times like each, as the mass of the cells of its lattice."""
    made: dict[tuple[int, Lattice], Singles] = {}
    visited: dict[int, dict[Lattice, Singles]] = {}
    for key in zip(occasions.tolist(), wanted, strict=True):
        if key in made:
            continue
        occasion, end = key
        if not returns:
            made[key] = np.zeros(end.shape, dtype=np.float32)
            continue
        if occasion not in visited:
            visited[occasion] = _visited(grids, mass, occasions, occasion)
        place = _SOMEWHERE_NEW * resampled(anywhere, whole, end).astype(np.float32)
        for start, total in visited[occasion].items():
            if _touch(start, end):
                share = total if end == start else resampled(total, start, end)
                place += (np.float32(1.0) - _SOMEWHERE_NEW) * share
        made[key] = place
    return [made[key] for key in zip(occasions.tolist(), wanted, strict=True)]


def _visited(
    grids: Sequence[Lattice], mass: list[Singles], occasions: Ints, occasion: int
) -> dict[Lattice, Singles]:
    """The mean of the posteriors around this part of the period, on the lattices that they have."""
    apart = np.abs(occasions - occasion)
    times = np.flatnonzero(np.minimum(apart, _PARTS - apart) <= _SOON).tolist()
    visited: dict[Lattice, Singles] = {}
    for i in times:
        grid = grids[i]
        visited[grid] = visited[grid] + mass[i] if grid in visited else mass[i].copy()
    return {grid: total / np.float32(len(times)) for grid, total in visited.items()}


def _touch(first: Lattice, second: Lattice) -> bool:
    return all(
        one[0] < other[-1] and other[0] < one[-1]
        for one, other in zip(first.edges_m, second.edges_m, strict=True)
    )


def _forward_backward(
    seen: Observations,
    grids: Sequence[Lattice],
    step: Transitions,
    chances: list[Singles | None],
    places: list[Singles],
    first: Singles,
) -> list[Singles]:
    count = len(seen)
    forward: list[Singles] = []
    mass = first
    for i in range(count):
        if i:
            elapsed_s = float(seen.at_s[i] - seen.at_s[i - 1])
            mass = step(grids[i - 1], grids[i], elapsed_s).forward(forward[-1], places[i])
        forward.append(_normalized(mass, chances[i]))
    posterior = [forward[-1]]
    chance: Singles = np.ones(grids[-1].shape, dtype=np.float32)
    for i in range(count - 1, 0, -1):
        elapsed_s = float(seen.at_s[i] - seen.at_s[i - 1])
        told = chances[i]
        weighted = chance if told is None else chance * told
        chance = step(grids[i - 1], grids[i], elapsed_s).backward(weighted, places[i])
        chance /= max(float(chance.max()), 1e-30)
        posterior.append(_normalized(forward[i - 1], chance))
    return posterior[::-1]


def _chances(seen: Observations, i: int, grid: Lattice) -> Singles | None:
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
