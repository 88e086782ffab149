"""A score that is learnt from releases alone, for the black-box audit.

It knows the two traces and no law: every step is described by a few measures of what was released
(where it lies as seen from both places, how it lies to what was released before, of which kind it
is), each cut into cells. The score of a run is a sum of weights, one for each of its cells, fitted
by logistic regression, one set of cells after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from hereish.audit.pair_audit import Pair, ReleasedRuns, Score
from hereish.core.types import Floats, Ints

_KINDS = 4
# More cells in the tails: a law that ends somewhere shows at its end.
_TAIL = np.array([0.001, 0.003, 0.01, 0.02])
_ALONE = np.concatenate([_TAIL, np.linspace(0.04, 0.96, 24), 1.0 - _TAIL[::-1]])
_CROSSED = np.linspace(0.0, 1.0, 11)[1:-1]
_ROUNDS, _PACE, _RIDGE = 6, 0.5, 5.0


class Measure(NamedTuple):
    """Numbers of each run that are cut into cells together, apart for each group of runs."""

    group: Ints
    groups: int
    numbers: tuple[Floats, ...] = ()

    def edges(self) -> tuple[Floats, ...]:
        """Where to cut: as many runs in each cell."""
        shares = _ALONE if len(self.numbers) == 1 else _CROSSED
        finite = (column[np.isfinite(column)] for column in self.numbers)
        return tuple(
            np.unique(np.quantile(column, shares)) if len(column) else np.zeros(1)
            for column in finite
        )

    def cells(self, edges: tuple[Floats, ...]) -> Ints:
        """The number of each run's cell."""
        cell = self.group
        for column, cuts in zip(self.numbers, edges, strict=True):
            cell = cell * (len(cuts) + 1) + np.searchsorted(cuts, column)
        return cell


def learn(pair: Pair, of_x: ReleasedRuns, of_other: ReleasedRuns, /) -> Score[ReleasedRuns]:
    """A score that tells runs of one trace from runs of the other."""
    joined = ReleasedRuns(
        value=np.concatenate([of_x.value, of_other.value]),
        kind=np.concatenate([of_x.kind, of_other.kind]),
        cost=np.concatenate([of_x.cost, of_other.cost]),
    )
    measures = list(describe(pair, joined))
    edges = [measure.edges() for measure in measures]
    is_x = np.repeat([1.0, 0.0], [len(of_x.cost), len(of_other.cost)])
    cells = [measure.cells(cuts) for measure, cuts in zip(measures, edges, strict=True)]
    sizes = [
        measure.groups * math.prod(len(cut) + 1 for cut in cuts)
        for measure, cuts in zip(measures, edges, strict=True)
    ]
    weights = _fitted(cells, sizes, is_x)

    def score(released: ReleasedRuns) -> Floats:
        total = np.zeros(len(released.cost))
        for measure, cuts, weight in zip(describe(pair, released), edges, weights, strict=True):
            total += weight[measure.cells(cuts)]
        return total

    return score


def describe(pair: Pair, released: ReleasedRuns) -> Iterator[Measure]:
    """What is looked at in each run; the same measures in the same order for every sample."""
    geometry = pair.geometry
    places, others = geometry.positions(pair.x), geometry.positions(pair.other)
    shifts = [geometry.flat(*ends)[0] for ends in zip(places, others[:, None], strict=True)]
    # Places by two names do not differ: then any direction will do.
    widest = max([*shifts, np.array([1e-300, 0.0])], key=lambda shift: float(np.hypot(*shift)))
    before = np.full((len(released.cost), places.shape[1]), np.nan)
    for step, (x, other, shift) in enumerate(zip(places, others, shifts, strict=True)):
        kind, value = released.kind[:, step], geometry.positions(released.value[:, step])
        towards = shift if shift.any() else widest
        east, north = towards / np.hypot(*towards)
        turned = np.array([[east, -north], [north, east]])  # along the shift, and across it
        along, across = (geometry.flat(x, value) @ turned).T
        near, far = geometry.distance(x, value), geometry.distance(other, value)
        for numbers in ((far - near,), (along,), (across,), (near,), (far,), (along, across)):
            yield Measure(kind, _KINDS, numbers)
        if step:
            near, far = geometry.distance(x, before), geometry.distance(other, before)
            along_before, across_before = (geometry.flat(x, before) @ turned).T
            yield Measure(kind, _KINDS, (far - near, near))
            yield Measure(kind, _KINDS, (near,))
            yield Measure(kind, _KINDS, (far,))
            yield Measure(kind, _KINDS, (along - along_before,))
            yield Measure(kind, _KINDS, (across - across_before,))
        before = np.where(np.isnan(value), before, value)
    yield Measure(*_pattern(released.kind))
    yield Measure(np.zeros(len(released.cost), dtype=np.int64), 1, (released.cost.sum(axis=1),))


def _pattern(kind: Ints) -> tuple[Ints, int]:
    """Which step was of which kind; in long traces, how many were of the highest."""
    steps = kind.shape[1]
    if steps > 6:
        return (kind == _KINDS - 1).sum(axis=1), steps + 1
    return kind @ _KINDS ** np.arange(steps), _KINDS**steps


def _fitted(cells: list[Ints], sizes: list[int], is_x: Floats) -> list[Floats]:
    """Weights of the cells of each measure, so that their sum is the log-odds of `is_x`."""
    weights = [np.zeros(size) for size in sizes]
    total = np.zeros(len(is_x))
    for _ in range(_ROUNDS):
        for cell, weight in zip(cells, weights, strict=True):
            chance = expit(total)
            # One damped Newton step; a cell that few runs are in stays near 0.
            slope = np.bincount(cell, is_x - chance, len(weight))
            curve = np.bincount(cell, chance * (1.0 - chance), len(weight))
            step = _PACE * slope / (curve + _RIDGE)
            weight += step
            total += step[cell]
    return weights
