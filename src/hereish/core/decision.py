"""The private decision: release the guess (easy) or fresh noise (hard). Proof: decision.proof.md.

The paper's is `LaplaceTest`: ask privately whether the guess is within the threshold, and draw
noise where it is not. The other one is `NoiseFirst` (noise_first.py).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, TypeAlias, final

import numpy as np

from hereish.core.randomness import LateUniforms, columns_of
from hereish.core.spaces import Space
from hereish.core.types import (
    Bools,
    Floats,
    PerLane,
    all_finite,
    read_only_copy,
    take_numbers,
    take_rows,
)
from hereish.errors import ParameterError

# Acceptance stays this far from 0 and 1. The uniforms have a resolution of 2**-52, so no outcome
# is ever impossible and rounding the probability costs less than 2**-27 (known-limits.md).
CLAMP = 2.0**-24


class Question(NamedTuple):
    """What a decision is asked, per lane; all of it public but `x`.

    The epsilons are per unit of the space's own distance: the step has scaled them. Where the
    threshold is infinite nothing is asked: +inf is easy and -inf is hard, whatever `x` is. Lanes
    that are not `open` (their budget is exhausted) release no noise. All are read-only copies.
    """

    x: Floats
    guess: Floats  # NaN where there is none; the threshold is then -inf
    eps_test: PerLane
    eps_noise: PerLane
    threshold: PerLane
    all_tested: bool  # no lane has an infinite threshold
    open: Bools


class Decision(Protocol):
    """What the mechanism needs of a decision: easy or hard, and what each outcome costs."""

    @property
    def uniforms(self) -> int:
        """How many uniforms it takes besides those of the noise."""
        ...

    @property
    def private(self) -> bool:
        """Whether it is private; False for tests and comparisons."""
        ...

    def costs(self, eps_test: PerLane, eps_noise: PerLane) -> tuple[PerLane, PerLane]:
        """What an easy and a hard outcome cost. Hard is the worst case: it costs no less."""
        ...

    def decide(self, space: Space, asked: Question, u: Floats) -> tuple[Bools, Floats]:
        """Which lanes are hard, and their fresh noise: one row for each of them, in their order.

        Easy must be `cost_easy * distance`-private in `x`, and each hard value
        `cost_hard * distance`-private.
        """
        ...


class TestThenNoise(ABC):
    """The paper's decision: a private test of the guess and, where it fails, independent noise.

    A closeness test of your own derives from this, or is a function in `hereish.closeness_test`. It
    answers whether the guess is close; what that costs and what is drawn is not its to say.
    """

    __test__: ClassVar[bool] = False  # pytest: its name begins with Test

    @property
    @abstractmethod
    def uniforms(self) -> int:
        """How many uniforms the test takes."""

    @property
    @abstractmethod
    def private(self) -> bool:
        """Whether the test is private."""

    @abstractmethod
    def __call__(
        self, space: Space, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        """True where the guess passes; `eps * distance`-private in `x`."""

    @abstractmethod
    def c_test(self, delta: float) -> float:
        """For eps = 1, how far beyond the threshold a guess passes with probability 1 - delta."""

    @final
    @staticmethod
    def costs(eps_test: PerLane, eps_noise: PerLane) -> tuple[PerLane, PerLane]:
        """Easy costs the test; hard costs the test and the noise (Lemma 1)."""
        return eps_test, eps_test + eps_noise  # [C6]

    @final
    def decide(
        self, space: Space, asked: Question, u: Floats | LateUniforms
    ) -> tuple[Bools, Floats]:
        """Test all lanes, and draw noise for those whose test failed."""
        x, guess, eps_test, eps_noise, threshold, all_tested, fits = asked
        tests, noises = self.uniforms, u.shape[1]
        given = (x, guess, eps_test, threshold, columns_of(u, 0, tests))
        if type(self) is not LaplaceTest:  # it may write to what it is given
            given = read_only_copy(given)
        close = self(space, *given)  # [C7]
        if type(close) is not np.ndarray or close.dtype != np.bool_ or close.shape != fits.shape:
            raise TypeError  # its text would not be repeated
        if not all_tested:  # whatever the test says of thresholds that ask nothing
            close = np.where(np.isfinite(threshold), close, np.equal(threshold, np.inf))  # [C8]
        hard = fits & ~close
        count = np.count_nonzero(hard)
        if not count:
            return hard, x[:0]
        if count == len(hard):  # saves picking lanes
            return hard, space.noise(x, eps_noise, columns_of(u, tests, noises))  # [C9]
        lanes = hard.nonzero()[0]
        drawn = space.noise(
            take_rows(x, lanes),
            take_numbers(eps_noise, lanes),
            columns_of(u, tests, noises, lanes),
        )  # [C10]
        return hard, drawn


ClosenessTest = TestThenNoise  # its former name


@dataclass(frozen=True)
class LaplaceTest(TestThenNoise):
    """Compares the distance with the threshold plus Laplace noise, as one coin of known bias.

    Guarantee: eps * distance-private for each threshold and guess; free at thresholds of ±inf.
    """

    uniforms = 1
    private = True

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
        beyond = np.asarray(eps * (distance - threshold))  # [C3]
        # In place, and the least of two arrays, since with a single number NumPy is slow.
        tail = np.abs(beyond, out=np.empty_like(beyond))
        np.exp(np.negative(tail, out=tail), out=tail)
        tail *= -0.5
        tail += 0.5
        from_half = np.minimum(tail, np.full_like(tail, 0.5 - CLAMP), out=tail)  # [C4]
        np.copysign(from_half, beyond, out=from_half)
        return np.asarray(np.subtract(0.5, from_half, out=from_half))  # [C5]

    def c_test(self, delta: float) -> float:
        if not 0.5 < delta < 1.0:
            raise ParameterError(f"delta must lie strictly between 0.5 and 1, found {delta!r}")
        # One-sided: only noise in one direction lets a bad guess pass.
        return -math.log(2.0 * (1.0 - delta))


ClosenessFunction: TypeAlias = Callable[[Space, Floats, Floats, PerLane, PerLane, Floats], Bools]


@dataclass(frozen=True)
class FunctionTest(TestThenNoise):
    """A plain function as a closeness test, with what it declares. Made by `closeness_test`."""

    function: ClosenessFunction
    uniforms: int = 1
    quantile: Callable[[float], float] | None = None
    private: bool = True

    def __call__(
        self, space: Space, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        return self.function(space, x, guess, eps, threshold, u)

    def c_test(self, delta: float) -> float:
        return (self.quantile or LaplaceTest().c_test)(delta)


def closeness_test(
    function: ClosenessFunction,
    *,
    uniforms: int = 1,
    c_test: Callable[[float], float] | None = None,
    private: bool = True,
) -> FunctionTest:
    """A decision from `function(space, x, guess, eps, threshold, u) -> bool per lane`.

    `u` has `uniforms` columns. `c_test(delta)` says how far beyond the threshold, for eps = 1, a
    guess passes with probability 1 - delta; the Laplace test's unless given.
    """
    return FunctionTest(function, uniforms, c_test, private)
