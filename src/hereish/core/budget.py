"""Beta: how much to spend on the next step, and the bound that no plan can pass.

A budget manager is called `(run, at_s) -> Plan`, with public data. Proof: budget.proof.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from hereish.core.privacy import positive
from hereish.core.run import Run
from hereish.core.types import Bools, Floats, PerLane
from hereish.errors import ParameterError

_FEWEST_QUANTA_BITS = 20  # of the smallest of several budgets


class Plan(NamedTuple):
    """What the next step may spend, and how near a guess has to be. One number, or one per lane.

    What each outcome costs (`cost_easy`, `cost_hard`) follows from `eps_test` and `eps_noise` by
    the decision: for the paper's, the test, and the test and the noise. A threshold of -inf goes
    straight to noise and +inf accepts the guess untested; the test is then free, whatever
    `eps_test` says. `skip_limit` is how far the user may have moved for a guess to need no test,
    for skip rules that ask.
    """

    eps_test: PerLane
    eps_noise: PerLane
    threshold: PerLane
    skip_limit: PerLane | None = None


class BudgetManager(Protocol):
    """The plan for the next step of each lane, from the public run and the public time."""

    @property
    def needs_history(self) -> bool:
        """Whether it looks at `hard_at_s`, `hard_threshold` or `tested_at_s` of the run."""
        ...

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        """What the next step of each lane may spend."""
        ...


BudgetFunction: TypeAlias = Callable[[Run, Floats], Plan]


@dataclass(frozen=True)
class FunctionManager:
    """A plain function as a budget manager, with what it declares. Made by `budget_manager`."""

    function: BudgetFunction
    needs_history: bool = True

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        return self.function(run, at_s)


def budget_manager(function: BudgetFunction, *, needs_history: bool = True) -> FunctionManager:
    """A budget manager from `function(run, at_s) -> Plan`."""
    return FunctionManager(function, needs_history)


@dataclass(frozen=True)
class Constants:
    """The paper's configuration: what ties test, noise and threshold to each other."""

    c_noise: float
    c_test: float
    eta: float
    gamma: float

    def __post_init__(self) -> None:
        for name in ("c_noise", "c_test", "eta", "gamma"):
            positive(name, getattr(self, name))

    @property
    def k(self) -> float:
        """eps_test / eps_noise, and the prediction rate above which testing pays."""
        return self.eta * (self.c_test / self.c_noise) * (1.0 + 1.0 / self.gamma)

    def threshold(self, eps_test: float) -> float:
        """The threshold l with `gamma = alpha_test / l`."""
        return self.c_test / (self.gamma * eps_test)


@dataclass(frozen=True)
class FixedUtility:
    """Spends what keeps every report accurate to `accuracy`, and no more (section 3)."""

    accuracy: float
    constants: Constants
    needs_history = False
    plan: Plan = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        positive("accuracy", self.accuracy)
        eps_noise = self.constants.c_noise / self.accuracy
        eps_test = self.constants.k * eps_noise
        plan = Plan(eps_test, eps_noise, self.constants.threshold(eps_test), self.accuracy)
        object.__setattr__(self, "plan", plan)

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        return self.plan


@dataclass(frozen=True)
class FixedRate:
    """Spends `rate` per report on average, and gets the accuracy that this buys (section 3).

    A report may cost more: the first one, noise without a test, costs `rate / ((1 - PR) + k)`.
    The expected prediction rate serves until `learn_after` reports; then the run's own does.
    """

    rate: float
    prediction_rate: float
    learn_after: int
    constants: Constants
    needs_history = False  # `hard_threshold` is for skip rules, which declare that they need it

    def __post_init__(self) -> None:
        positive("rate", self.rate)
        if not 0.0 <= self.prediction_rate < 1.0:
            raise ParameterError(
                f"prediction_rate must be at least 0 and below 1, found {self.prediction_rate!r}"
            )
        if self.learn_after < 1:
            raise ParameterError(f"learn_after must be at least 1, found {self.learn_after!r}")

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        k, rate = self.constants.k, self.rate
        learnt = run.reports >= self.learn_after
        lanes = np.count_nonzero(learnt)
        seen: PerLane = self.prediction_rate
        if lanes == len(learnt):
            seen = run.easy / run.reports
        elif lanes:
            seen = np.where(learnt, run.easy / np.maximum(run.reports, 1), seen)
        shares = (1.0 + k) - seen  # (1 - PR) + k
        eps_noise = rate / shares
        eps_test = k * eps_noise
        threshold = shares * self.constants.threshold(k * rate)
        return Plan(eps_test, eps_noise, threshold, 0.8 * run.hard_threshold)


@dataclass(frozen=True)
class AlwaysNoise:
    """Fresh noise for every report: the independent mechanism."""

    eps_noise: float
    needs_history = False

    def __post_init__(self) -> None:
        positive("eps_noise", self.eps_noise)

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        return Plan(0.0, self.eps_noise, -math.inf)


@dataclass(frozen=True)
class Bound:
    """A total that no sum of costs can pass, not by one ulp.

    Costs are whole multiples of a power of two, the quantum, 2**-40 of the total or less. Sums of
    such numbers below the total need at most 42 bits: doubles add them without any rounding, in
    any order, so comparing the sum with the total is exact. With totals of other windows beside
    it, `limits`, the quantum is 2**-53 of the largest of them or more: sums need 53 bits at most.
    """

    total: float
    limits: tuple[float, ...] = ()
    quantum: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        positive("total", self.total)
        exponent = math.frexp(self.total)[1] - 41
        if self.limits:
            totals = [positive("total of a limit", limit) for limit in self.limits]
            exponent = max(exponent, math.frexp(max(totals))[1] - 53)  # [B6]
            if min(self.total, *totals) < math.ldexp(1.0, exponent + _FEWEST_QUANTA_BITS):
                raise ParameterError(
                    "the budgets of the windows must not be further apart than a factor of "
                    f"{2.0**32:.0e}, found {min(self.total, *totals):.3g} and "
                    f"{max(self.total, *totals):.3g}"
                )
        object.__setattr__(self, "quantum", math.ldexp(1.0, exponent))

    def quantised(self, eps: PerLane) -> PerLane:
        """The whole quanta in `eps`: this is what is spent, and what is drawn with."""
        whole: PerLane = eps * (1.0 / self.quantum)
        whole = np.floor(whole, out=whole if isinstance(whole, np.ndarray) else None)
        whole *= self.quantum  # [B1]
        return whole

    def fits(self, spent: Floats, worst: PerLane) -> Bools:
        """Whether `worst` more can be spent. Exact."""
        return np.asarray(spent + worst <= self.total)  # [B2]

    def fits_limits(self, limit_spent: Floats, worst: PerLane) -> Bools:
        """Whether `worst` more can be spent of every limit, of which so much is spent. Exact."""
        if len(limit_spent) == 1:  # a live report, sooner in Python, and rounded alike
            alone = worst.item() if isinstance(worst, np.ndarray) else worst
            each = zip(limit_spent[0].tolist(), self.limits, strict=True)
            return np.array([all(spent + alone <= total for spent, total in each)])
        fits = np.ones(len(limit_spent), dtype=np.bool_)
        for number, total in enumerate(self.limits):
            fits &= limit_spent[:, number] + worst <= total  # [B9]
        return fits

    def spent_leaving(self, left: PerLane) -> Floats:
        """What must count as spent for no more than `left` to be spent from now on. Exact."""
        whole = self.part(1)
        return np.asarray(whole - np.clip(self.quantised(left), 0.0, whole))  # [B5]

    def rounded_up(self, eps: PerLane) -> PerLane:
        """The fewest whole quanta that are no less than `eps`."""
        whole: PerLane = np.ceil(eps * (1.0 / self.quantum))
        return whole * self.quantum

    def part(self, n: int) -> float:
        """The largest whole number of quanta of which n times fit the total."""
        return math.floor(self.total / self.quantum) // n * self.quantum  # [B3]
