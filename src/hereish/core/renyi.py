"""A budget with a `delta`: a Rényi filter, for costs that depend on what comes out.

What a step may lose is bounded by a Rényi divergence of one order, fixed beforehand. Such bounds
add up like costs, even where each step follows from what came out before. Small ones grow with the
square of the epsilon, and so many small steps lose less together than the sum of their levels. A
step fits if the sum of the levels does, as without a delta, or else the sum of the divergences.
Proof: renyi.proof.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hereish.core.budget import AlwaysNoise, Bound, FixedRate, FixedUtility, FunctionManager
from hereish.core.decision import Decision, LaplaceTest, TestThenNoise
from hereish.core.privacy import Privacy
from hereish.core.spaces import Line, Plane, Space, Sphere
from hereish.core.types import Bools, Floats, PerLane
from hereish.errors import ParameterError, PartError

if TYPE_CHECKING:
    from hereish.core.mechanism import PredictiveMechanism

Divergence: TypeAlias = Callable[[Floats, float], Floats]  # of levels, and of an order
_EARTH_M = 6_371_008.771415059  # as of Sphere
_COIN = 2.0**-28  # a share by which the chances of a test may be off (decision.proof.md)
_ROUNDING = 1e-14  # what logarithms and Bessel functions are off by, and more
_SMALLEST, _LARGEST = 1e-150, 1e5  # levels of which divergences are computed
_MOST_TIMES = 2.0**11  # the sum of the levels that is still counted, in multiples of the budget


def planar_divergence(level: Floats, order: float) -> Floats:
    """Of planar Laplace noise, between places so far apart that it loses up to `level`."""
    from scipy.special import i0e, i1e, k0e, k1e  # here because scipy is slow to import

    a = 0.5 * level
    b = (2.0 * order - 1.0) * a
    scaled = a * k1e(a) * i0e(b) + a * a * k0e(a) * (i1e(b) / b)
    return np.asarray((np.log(scaled) + (b - a)) / (order - 1.0))  # [Y1]


def line_divergence(level: Floats, order: float) -> Floats:
    """Of Laplace noise on a line, and so of a coin that compares a number with such noise."""
    share = (order - 1.0) / (2.0 * order - 1.0)
    rest = np.log1p(share * np.expm1(-(2.0 * order - 1.0) * level))
    return np.asarray(level + rest / (order - 1.0))  # [Y2]


def any_divergence(level: Floats, order: float) -> Floats:
    """Of anything that never loses more than `level`: randomised response is the worst."""
    rest = np.log1p(np.exp(-(2.0 * order - 1.0) * level)) - np.log1p(np.exp(-level))
    return np.asarray(level + rest / (order - 1.0))  # [Y3]


def rounded_up(divergence: Divergence, level: PerLane, order: float) -> Floats:
    """The divergence, never less for being computed in doubles, and never above the level."""
    levels = np.asarray(level, dtype=np.float64)
    inside = np.clip(levels, _SMALLEST, _LARGEST)
    found = divergence(inside, order)
    found = found + _ROUNDING * (1.0 + order * inside) * order / (order - 1.0) + _ROUNDING * found
    # Beyond what is computed it is the level; NaN is not less.
    found = np.where((levels <= _LARGEST) & (found < levels), found, levels)
    return np.where(levels > 0.0, found, 0.0)  # [Y4]


@dataclass(frozen=True)
class RenyiFilter:
    """What the steps of a window may lose together: (privacy.level, privacy.delta).

    `test` and `noise` bound what one test and one noise lose; `noise` is given the epsilon.
    """

    privacy: Privacy
    test: Divergence
    noise: Divergence
    on_globe: float | None = None  # on a sphere: the radius of the earth in its own unit
    order: float = field(init=False)
    bound: Bound = field(init=False)

    def __post_init__(self) -> None:
        level, delta = self.privacy.level, self.privacy.delta
        if delta is None:
            raise ParameterError("a Rényi filter needs a privacy with a delta")
        object.__setattr__(self, "order", _best_order(level, delta))
        object.__setattr__(self, "bound", Bound(filter_total(level, delta, self.order)))

    @classmethod
    def of(cls, privacy: Privacy, space: Space, decider: Decision) -> RenyiFilter:
        """The filter of a test and the noise of a space."""
        if not isinstance(decider, TestThenNoise):
            raise PartError(
                "a delta needs a decision that tests and then draws noise (hereish.LaplaceTest), "
                f"found {type(decider).__name__}; leave out delta"
            )
        test = line_divergence if type(decider) is LaplaceTest else any_divergence
        noise, on_globe = any_divergence, None
        if type(space) is Plane:
            noise = planar_divergence
        elif type(space) is Line:
            noise = line_divergence
        elif type(space) is Sphere:
            noise, on_globe = planar_divergence, space.claim_factor * _EARTH_M
        return cls(privacy, test, noise, on_globe)

    def costs(self, eps_test: PerLane, eps_noise: PerLane) -> tuple[Floats, Floats]:
        """What an easy and a hard outcome count for, in whole quanta: the test, and both."""
        test = self._of_test(np.asarray(eps_test, dtype=np.float64))
        both = test + self._of_noise(np.asarray(eps_noise, dtype=np.float64))
        return self._quanta(test), self._quanta(both)  # [Y5]

    def _of_test(self, eps: Floats) -> Floats:
        coin = _COIN * 2.0 * self.order / (self.order - 1.0)
        found = rounded_up(self.test, eps * self.privacy.radius_m, self.order)
        return np.where(eps > 0.0, found + coin, 0.0)  # [Y6]

    def _of_noise(self, eps: Floats) -> Floats:
        level = eps * self.privacy.radius_m
        found = rounded_up(self.noise, level, self.order)
        if self.on_globe is None:
            return found
        with np.errstate(divide="ignore"):
            wider = np.log1p((eps * self.on_globe) ** -2.0) * (1.0 + 1e-12)
        planar = found + wider / (self.order - 1.0)
        return np.minimum(planar, rounded_up(any_divergence, level, self.order))  # [Y7]

    def _quanta(self, cost: Floats) -> Floats:
        """Rounded up; what is above the total is never counted further."""
        return np.asarray(np.minimum(self.bound.rounded_up(cost), self._over))

    @property
    def _over(self) -> float:
        """The first number of quanta that is above the total."""
        return self.bound.part(1) + self.bound.quantum

    def fits(
        self, levels: Bound, spent: Floats, worst: PerLane, sums: Floats, cost: PerLane
    ) -> Bools:
        """Whether a step fits: by the levels spent and its worst one, or by the divergences."""
        within = self.bound.fits(sums, cost)
        counted = np.asarray(spent + worst <= _MOST_TIMES * levels.total)
        return levels.fits(spent, worst) | (within & counted)  # [Y8]

    def add(self, sums: Floats, cost: Floats) -> Floats:
        """The sum with this cost; above the total it does not matter how far."""
        return np.asarray(np.minimum(sums + cost, self._over))  # [Y9]

    def fault(self, levels: Bound, spent: Floats, sums: Floats) -> str | None:
        """What is wrong with sums that a run has, if anything."""
        if not ((sums >= 0.0) & (sums <= self._over)).all():
            return "its Rényi sum is less than nothing, or more than is counted"
        if np.not_equal(self.bound.quantised(sums), sums).any():
            return "its Rényi sum is no sum of costs"
        if not ((spent <= levels.total) | (sums <= self.bound.total)).all():
            return "it has spent more than the budget"
        if not (spent <= _MOST_TIMES * levels.total).all() or ((spent == 0.0) & (sums > 0.0)).any():
            return "what it has spent does not fit its Rényi sum"
        if ((spent > 0.0) & (sums == 0.0)).any():
            return "it has spent, and its Rényi sum is 0"
        return None

    def share(self, levels: Bound, reports: int, plan: Callable[[float], Any]) -> float:
        """The largest whole quanta of an epsilon of which so many reports are expected to fit.

        `plan` says of an epsilon what it buys: eps_test, eps_noise and the share of hard reports.
        """

        def fit(quanta: int) -> bool:
            eps_test, eps_noise, hard = plan(quanta * levels.quantum)
            test, both = (float(cost) for cost in self.costs(eps_test, eps_noise))
            within = reports * (test + hard * (both - test)) <= self.bound.total
            return within and quanta * levels.quantum * reports <= _MOST_TIMES * levels.total

        low = round(levels.part(reports) / levels.quantum)  # fits by its level
        high = 2 * low
        while fit(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fit(middle) else (low, middle)
        return low * levels.quantum


def filter_total(level: float, delta: float, order: float) -> float:
    """The largest sum of divergences of this order that is (level, delta)-private."""
    kept = level - math.log1p(-1.0 / order)
    total = kept + (math.log(delta) + math.log(order)) / (order - 1.0)
    return total - 1e-12 * kept  # [Y10]


def _best_order(level: float, delta: float) -> float:
    """Of which most small steps fit: their divergences are in proportion to the order."""

    def steps(log_order: float) -> float:
        order = 1.0 + math.exp(log_order)
        return filter_total(level, delta, order) / order

    low, high = -4.0, 25.0
    for _ in range(100):
        third = (high - low) / 3.0
        if steps(low + third) < steps(high - third):
            low += third
        else:
            high -= third
    order = float(f"{1.0 + math.exp(0.5 * (low + high)):.4g}")  # the same on every machine
    if order <= 1.0 or filter_total(level, delta, order) <= 0.0:
        raise ParameterError(f"no budget of level {level:g} can have a delta of {delta:g}")
    return order


_MANAGERS = (AlwaysNoise, FixedUtility, FixedRate, FunctionManager)


def filter_of(m: PredictiveMechanism, decider: Decision, *, limited: bool) -> RenyiFilter | None:
    """The filter of a mechanism whose privacy has a delta; refuses parts that know of none."""
    if m.privacy.delta is None:
        return None
    if limited:
        raise ParameterError(
            "a delta is for one window that begins anew, or for ever: leave out the limits and "
            "rolling windows, or the delta"
        )
    kind = type(m.budget)
    if kind not in _MANAGERS and kind.__module__.startswith("hereish."):
        raise ParameterError(
            f"{kind.__name__} plans by what is left of a budget without a delta: use "
            "hereish.independent, fixed_utility or fixed_rate, or leave out the delta"
        )
    return RenyiFilter.of(m.privacy, m.space, decider)


def refuse_delta(privacy: Privacy, what: str) -> None:
    """For what counts in levels alone."""
    if privacy.delta is not None:
        raise ParameterError(
            f"{what} of budgets without a delta alone, found delta={privacy.delta:g}: leave it "
            "out, or use a session or hereish.sanitize"
        )
