"""Spaces of few points for exact_runs that are vectors: pairs of whole numbers, and a real Vector.

Points are numbered, since exact_runs knows places in a row; the metric is that of the vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np

from hereish import PredictiveMechanism, Vector
from hereish.core.types import Floats, PerLane
from tests.support.exact_runs import Places, Runs


@dataclass
class Lattice(Places):
    """Pairs of whole numbers below `side`, row by row, in the l1 norm over `sensitivity`.

    Each number has a clamped geometric law, as the counts of a Vector have a rounded Laplace law.
    """

    side: int = 3
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        self.count = self.side**2

    def numbers(self, points: Floats) -> Floats:
        """The pair of each numbered point."""
        return np.column_stack([points[:, 0] // self.side, points[:, 0] % self.side])

    def distance(self, a: Floats, b: Floats) -> Floats:
        apart = np.abs(self.numbers(a) - self.numbers(b)).sum(axis=1)
        return np.asarray(apart / self.sensitivity)

    def unrounded_noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        decay = np.exp(-np.broadcast_to(eps, len(x)) * self.eps_error / self.sensitivity)
        one, other = (self._law(number, decay) for number in self.numbers(x).T)
        together = (one[:, :, None] * other[:, None, :]).reshape(len(x), -1)
        up_to = np.cumsum(together, axis=1)[:, :-1]
        self.drawn = np.asarray((u >= up_to).sum(axis=1, keepdims=True), dtype=np.float64)
        return self.drawn

    def _law(self, number: Floats, decay: Floats) -> Floats:
        """(lanes, side) The chance of each number."""
        apart = np.abs(np.arange(self.side) - number[:, None])
        ends = np.isin(np.arange(self.side), (0, self.side - 1))
        inner = np.where(ends, 1.0, 1.0 - decay[:, None]) / (1.0 + decay[:, None])
        return np.asarray(inner * decay[:, None] ** apart)


@dataclass
class Counts(Places):
    """The whole numbers of a real Vector, its bounds and its noise; one uniform for the usual two.

    `ln(u1 / u2)` has a Laplace law, of which this uniform gives the quantile.
    """

    sensitivity: float = 1.0

    @property
    def vector(self) -> Vector:
        return Vector(1, "l1", 1.0, 0.0, self.count - 1.0, self.sensitivity)

    def distance(self, a: Floats, b: Floats) -> Floats:
        return self.vector.distance(a, b)

    def unrounded_noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        # Rounded at once: only for decisions that do not look at the noise.
        pair = np.column_stack([np.minimum(2.0 * u, 1.0), np.minimum(2.0 * (1.0 - u), 1.0)])
        self.drawn = self.vector.noise(x, eps, pair)
        return self.drawn

    def snap(self, points: Floats) -> Floats:
        return self.vector.snap(points)


def losses_between(
    m: PredictiveMechanism, runs: Runs, apart: Floats, steps: int
) -> tuple[float, float]:
    """The largest `log P(r|x) - log P(r|x') - eps(r) max_i apart`, and the largest share used.

    `apart` has the promised distance of every two points. Pairs at no or infinite distance are
    left out.
    """
    assert isinstance(m.space, Places)
    traces = np.array(list(product(range(m.space.count), repeat=steps)))
    eps = runs.field("cost").sum(axis=1)[:, None]
    excess, share = -math.inf, 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        log_chance = np.log(runs.chance)
        for i, trace in enumerate(traces):
            far = apart[trace, traces].max(axis=1)
            some = np.isfinite(far)
            allowed = eps * far[some]
            # NaN is 0 against 0: a run that neither trace can give.
            lost = log_chance[:, i, None] - log_chance[:, some]
            excess = max(excess, float(np.nanmax(lost - allowed)))
            share = max(share, float(np.nanmax(np.where(allowed > 0, lost / allowed, 0.0))))
    return excess, share
