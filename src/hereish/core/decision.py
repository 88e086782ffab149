"""Theta: the private question "is the guess within the threshold?". Proof: closeness.proof.md.

A test of your own is a function, or a class, that is called like `ClosenessTest`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hereish.core.spaces import Space
from hereish.core.types import Bools, Floats, PerLane, all_finite
from hereish.errors import ParameterError

# Acceptance stays this far from 0 and 1. The uniforms have a resolution of 2**-52, so no outcome
# is ever impossible and rounding the probability costs less than 2**-27 (known-limits.md).
CLAMP = 2.0**-24


class ClosenessTest(Protocol):
    """What the mechanism needs of a test.

    Two attributes are read if it has them: `uniforms`, how many it takes (1 unless given), and
    `c_test(delta)`, how far beyond the threshold, for eps = 1, a guess passes with probability
    1 - delta (the Laplace test's unless given).
    """

    def __call__(
        self, space: Space, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        """True where the guess passes; `eps * distance`-private in `x`.

        A threshold of +inf always passes, one of -inf never does, and both are free.
        """
        ...


@dataclass(frozen=True)
class LaplaceTest:
    """Compares the distance with the threshold plus Laplace noise, as one coin of known bias.

    Guarantee: eps * distance-private for each threshold and guess; free at thresholds of ±inf.
    """

    uniforms = 1

    def __call__(
        self, space: Space, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        if all_finite(threshold):
            return self._passes(space, x, guess, eps, threshold, u)
        with np.errstate(invalid="ignore"):
            passes = self._passes(space, x, guess, eps, threshold, u)
        return np.where(np.isfinite(threshold), passes, np.equal(threshold, math.inf))  # [C2]

    def _passes(
        self, space: Space, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        distance = space.distance(x, guess)
        return np.asarray(u[:, 0] < self.acceptance(distance, eps, threshold))  # [C1]

    @staticmethod
    def acceptance(distance: Floats, eps: PerLane, threshold: PerLane) -> Floats:
        """P(distance <= threshold + Laplace(1/eps)), clamped; NaN where the threshold is ±inf."""
        beyond = eps * (distance - threshold)  # [C3]
        from_half = np.minimum(0.5 - 0.5 * np.exp(np.copysign(beyond, -1.0)), 0.5 - CLAMP)  # [C4]
        return np.asarray(0.5 - np.copysign(from_half, beyond))  # [C5]

    def c_test(self, delta: float) -> float:
        if not 0.5 < delta < 1.0:
            raise ParameterError(f"delta must lie strictly between 0.5 and 1, found {delta!r}")
        # One-sided: only noise in one direction lets a bad guess pass.
        return -math.log(2.0 * (1.0 - delta))
