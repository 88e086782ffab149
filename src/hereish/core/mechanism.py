"""The mechanism: a frozen bundle of parts that checks, once, that they fit each other."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import numpy as np

from hereish.core.budget import (
    AlwaysNoise,
    Bound,
    BudgetFunction,
    BudgetManager,
    Constants,
    FixedRate,
    FixedUtility,
    FunctionManager,
)
from hereish.core.compatibility import (
    check_parts_fit,
    declared_decision,
    declared_tracker,
    own_decision,
)
from hereish.core.decision import (
    ClosenessFunction,
    Decision,
    LaplaceTest,
    TestThenNoise,
)
from hereish.core.fingerprint import fingerprint, number_of
from hereish.core.limits import LimitBuckets
from hereish.core.parts import check_declared, check_methods, declared
from hereish.core.prediction import (
    FunctionPrediction,
    Parrot,
    Prediction,
    PredictionFunction,
    Tracker,
)
from hereish.core.privacy import Privacy, check_one_report_fits, positive, spoken_factor
from hereish.core.remap import Remap
from hereish.core.renyi import RenyiFilter, filter_of
from hereish.core.rolling import Rolling
from hereish.core.run import Run
from hereish.core.skip import FunctionSkipRule, SkipFunction, SkipRule
from hereish.core.spaces import Space, Sphere
from hereish.core.step import check_grid
from hereish.core.windows import (
    Limit,
    NoReset,
    Window,
    as_window,
    check_limits,
    split_windows,
)
from hereish.errors import ParameterError, PartError

if TYPE_CHECKING:
    from hereish.core.randomness import Draws, KeyedDraws
    from hereish.core.session import Session

# Up to here n parts of a budget leave less than one part: exactly n reports fit (budget.Bound).
_MOST_REPORTS = 2**20
OnExhausted = Literal["stop", "predict"]
_HISTORY = "needs_history"


class DoesNotPayOffWarning(UserWarning):
    """The predictive mechanism is expected to cost more than independent noise."""


DoesNotPay = DoesNotPayOffWarning  # its former name


@dataclass(frozen=True)
class PredictiveMechanism:
    """Guess, decide privately, and draw fresh noise only where the guess is not close enough.

    `fixed_utility`, `fixed_rate` and `independent` build the usual ones. Build it by hand to use
    parts of your own; parts that do not fit each other are refused here. `test` is the former name
    of `decision`. A window may be several, as in `Day(…) & Days(30).within(…)`: the mechanism then
    has the first as its `window` and the others as its `limits`.

    Guarantee: the reports of one budget window are together `privacy.eps_per_m`-private per
    metre between two traces (the largest distance at any one time), whatever the parts predict,
    and those of each window of a limit are so within its own budget. With a delta they are
    (privacy.level, privacy.delta)-private inside the radius, and no more.
    """

    privacy: Privacy
    budget: BudgetManager | BudgetFunction
    space: Space = Sphere()
    prediction: Prediction | PredictionFunction = Parrot()
    decision: Decision | ClosenessFunction = LaplaceTest()
    skip: SkipRule | SkipFunction | None = None
    window: Window = NoReset()
    on_exhausted: OnExhausted = "stop"
    remap: Remap | None = None
    limits: tuple[Limit, ...] = ()
    test: InitVar[Decision | ClosenessFunction | None] = None
    bound: Bound = field(init=False, repr=False, compare=False)
    limiter: LimitBuckets | None = field(init=False, repr=False, compare=False)
    renyi: RenyiFilter | None = field(init=False, repr=False, compare=False)
    decider: Decision = field(init=False, repr=False, compare=False)
    own_decision: type[Any] | None = field(init=False, repr=False, compare=False)
    uniforms: int = field(init=False, repr=False, compare=False)
    memory: int = field(init=False, repr=False, compare=False)
    tracker: Tracker | None = field(init=False, repr=False, compare=False)
    learns_from_easy: bool = field(init=False, repr=False, compare=False)
    needs_history: bool = field(init=False, repr=False, compare=False)
    smallest_eps: float = field(init=False, repr=False, compare=False)

    def __post_init__(self, test: Decision | ClosenessFunction | None) -> None:
        if not isinstance(self.privacy, Privacy):
            raise ParameterError(
                f"privacy must be a hereish.Privacy, found {type(self.privacy).__name__}"
            )
        if self.on_exhausted not in ("stop", "predict"):
            raise ParameterError(
                f"on_exhausted must be 'stop' or 'predict', found {self.on_exhausted!r}"
            )
        if test is not None:
            if not (type(self.decision) is LaplaceTest or self.decision is test):
                raise ParameterError("give decision or test, its former name, not both")
            object.__setattr__(self, "decision", test)
        for name, value in self._declared().items():
            object.__setattr__(self, name, value)
        check_parts_fit(self)

    def _declared(self) -> dict[str, Any]:
        """What follows from what the parts declare. The parts themselves stay as they are given."""
        prediction = declared(
            self.prediction, "prediction", FunctionPrediction, "memory", "needs_history"
        )
        parts = [prediction, declared(self.budget, "budget manager", FunctionManager, _HISTORY)]
        if self.skip is not None:
            parts.append(declared(self.skip, "skip rule", FunctionSkipRule, _HISTORY))
        if self.remap is not None:
            check_declared(self.remap, "remapping", "name", "max_shift")
        tracker = declared_tracker(prediction)
        decider = declared_decision(self.decision)
        space = self.space
        check_declared(space, "space", "coordinates", "uniforms", "claim_factor", "unit")
        check_declared(space, "space", "smallest_eps", "private")
        check_methods(space, "space", "distance", "noise", "snap", "c_noise")
        window, limits = split_windows(self.window)
        check_limits(self.limits)
        limits = (*limits, *self.limits)
        rolling = isinstance(window, Rolling)
        kept = (Limit(window, self.privacy.level), *limits) if rolling else limits
        totals = tuple(limit.level / self.privacy.radius_m for limit in kept if limit.level)
        renyi = filter_of(self, decider, limited=bool(kept))
        return {
            "renyi": renyi,
            "window": window,
            "limits": limits,
            "limiter": LimitBuckets(kept, rolling_first=rolling) if kept else None,
            "bound": Bound(self.privacy.eps_per_m, totals),
            "decider": decider,
            "own_decision": own_decision(decider),
            "uniforms": decider.uniforms + space.uniforms,
            "memory": prediction.memory,
            "tracker": tracker,
            "learns_from_easy": tracker is not None and tracker.learns_from_easy,
            "needs_history": any(part.needs_history for part in parts),
            "smallest_eps": float(space.smallest_eps),
        }

    @property
    def dim(self) -> int:
        """How many numbers a point has."""
        return len(self.space.coordinates)

    @property
    def break_even(self) -> float | None:
        """The prediction rate above which this pays off; None if its manager has no such number."""
        if isinstance(self.budget, (FixedUtility, FixedRate)):
            return self.budget.constants.k
        return None

    @property
    def private(self) -> bool:
        """False if a part says of itself that it is not, as those of `hereish.testing` do."""
        return self.space.private and self.decider.private

    @property
    def guarantee(self) -> str:
        """What is promised, in a sentence."""
        if not self.private:
            return "NOT PRIVATE: a part of the mechanism is for tests only."
        return f"For {self.window.covers()}: {self._promises()}."

    def guarantee_for_each(self, what: str) -> str:
        """The same where each of several traces, users or the like has a budget of its own."""
        if not self.private:
            return self.guarantee
        return f"For each {what}, {self.window.covers()}: {self._promises()}."

    def _promises(self) -> str:
        """What is promised for the window, and for each of the limits."""
        promised = [self.privacy.sentence(self.space.unit)]
        for limit in self.limits:
            factor = spoken_factor(limit.level or 0.0)
            promised.append(f"for {limit.covers()}, at most {factor} times")
        return "; ".join(promised)

    @cached_property
    def fingerprint(self) -> str:
        """Names the parts and their settings, so that a saved state is not used with others.

        Raises PartError for a part whose settings cannot be shown.
        """
        parts = [self.budget, self.space, self.prediction, self.decision, self.skip, self.window]
        shown = [repr(self.privacy), *map(fingerprint, parts), self.on_exhausted]
        if self.remap is not None:  # so that states of mechanisms without it stay theirs
            shown.append(fingerprint(self.remap))
        if self.limits:
            shown.append(f"limits {fingerprint(self.limits)}")
        if self.renyi is not None:
            shown.append(f"order {self.renyi.order!r}")
        return "; ".join(shown)

    @cached_property
    def number(self) -> int:
        """A digest of the fingerprint, by which runs know whose they are."""
        try:
            return number_of(self.fingerprint)
        except PartError:  # then a run is of this very mechanism, and of no other
            return number_of(uuid4().hex)

    @cached_property
    def without_windows(self) -> PredictiveMechanism:
        """The same with one budget for ever: what a lane that is one window is run with.

        Limits go on, from lane to lane; and so does a rolling window, which is one for ever.
        """
        return self if isinstance(self.window, Rolling) else replace(self, window=NoReset())

    @property
    def carries_over(self) -> bool:
        """Whether a window goes on from the one before: by what it remembers, or by its limits."""
        return self.tracker is not None or self.limiter is not None

    @property
    def width(self) -> int:
        """How many numbers the prediction learns per lane."""
        return 0 if self.tracker is None else self.tracker.width

    @property
    def moves_noise(self) -> float:
        """How far post-processing moves fresh noise at most, in multiples of 1 / eps_noise."""
        moved = 0.0 if self.remap is None else self.remap.max_shift
        return moved if self.tracker is None else moved + self.tracker.reach

    def run(self, lanes: int) -> Run:
        """The empty public history of so many traces, to begin `sanitize` in pieces with."""
        return self._empty_run(lanes, self.number)

    def empty_run(self, lanes: int) -> Run:
        """The same of nobody's: for a look at what a mechanism would do."""
        return self._empty_run(lanes, 0)

    def _empty_run(self, lanes: int, number: int) -> Run:
        limits, older = (0, 0) if self.limiter is None else (len(self.limiter), self.limiter.older)
        shape = (self.dim, self.memory, number, self.width, limits, older)
        return Run.empty(lanes, *shape, with_delta=self.renyi is not None)

    def session(
        self,
        *,
        seed: int | None = None,
        draws: Draws | KeyedDraws | None = None,
        user: str | None = None,
    ) -> Session:
        """A live session for one trace. Secure unless a seed (NOT PRIVATE) or draws are given."""
        from hereish.core.session import Session

        return Session(self, seed=seed, draws=draws, user=user)


def fixed_utility(
    privacy: Privacy,
    accuracy_m: float,
    *,
    eta: float = 0.5,
    gamma: float = 0.8,
    delta: float = 0.9,
    prediction_rate: float = 0.70,
    prediction: Prediction | PredictionFunction | None = None,
    decision: Decision | ClosenessFunction | None = None,
    test: Decision | ClosenessFunction | None = None,
    skip: SkipRule | SkipFunction | None = None,
    space: Space | None = None,
    window: Window | str | timedelta | None = None,
    on_exhausted: OnExhausted = "stop",
) -> PredictiveMechanism:
    """Reports accurate to `accuracy_m` (with probability `delta` when hard), as many as fit.

    `prediction_rate` is only used to warn when the settings would not pay.
    """
    space, chosen = space or Sphere(), _one_of(decision, test)
    constants = _constants(space, chosen, eta, gamma, delta, prediction_rate)
    budget = FixedUtility(positive("accuracy_m", accuracy_m), constants)
    check_one_report_fits(privacy, constants.c_noise, budget.accuracy)
    return PredictiveMechanism(
        privacy,
        budget,
        space,
        prediction or Parrot(),
        chosen,
        skip,
        as_window(window),
        on_exhausted,
    )


def fixed_rate(
    privacy: Privacy,
    reports: int,
    *,
    eta: float = 0.6,
    gamma: float = 0.8,
    delta: float = 0.9,
    prediction_rate: float = 0.75,
    prediction: Prediction | PredictionFunction | None = None,
    decision: Decision | ClosenessFunction | None = None,
    test: Decision | ClosenessFunction | None = None,
    skip: SkipRule | SkipFunction | None = None,
    space: Space | None = None,
    window: Window | str | timedelta | None = None,
    on_exhausted: OnExhausted = "stop",
) -> PredictiveMechanism:
    """About `reports` reports on average, each as accurate as the rest of the budget allows.

    `prediction_rate` is what to expect until the run itself tells, after 10 reports or a quarter
    of the planned ones. The number of reports is a plan, not a promise: a trace that is harder to
    predict than expected ends sooner, and an easier one later.
    """
    space, chosen = space or Sphere(), _one_of(decision, test)
    constants = _constants(space, chosen, eta, gamma, delta, prediction_rate)
    planned = _whole("reports", reports)
    hard = 1.0 - prediction_rate

    def expected(rate: float) -> tuple[float, float, float]:
        eps_noise = rate / (hard + constants.k)
        return constants.k * eps_noise, eps_noise, hard

    budget = FixedRate(
        rate=_share(privacy, space, chosen, planned, expected),
        prediction_rate=prediction_rate,
        learn_after=min(10, math.ceil(planned / 4)),
        constants=constants,
    )
    first = budget.rate / ((1.0 - prediction_rate) + constants.k)
    if first > privacy.eps_per_m:
        raise ParameterError(
            f"with these settings the first of {planned} report(s) alone would cost {first:.4g}, "
            f"and the whole budget is {privacy.eps_per_m:.4g}; plan for more reports, or use "
            "hereish.independent"
        )
    m = PredictiveMechanism(
        privacy,
        budget,
        space,
        prediction or Parrot(),
        chosen,
        skip,
        as_window(window),
        on_exhausted,
    )
    check_grid(m, budget.rate / (1.0 + constants.k))  # the least that any run will make it spend
    return m


def independent(
    privacy: Privacy,
    *,
    reports: int | None = None,
    accuracy_m: float | None = None,
    delta: float = 0.9,
    space: Space | None = None,
    window: Window | str | timedelta | None = None,
    on_exhausted: OnExhausted = "stop",
) -> PredictiveMechanism:
    """Fresh noise for each report: exactly `reports` of them, or as many of `accuracy_m` as fit."""
    space = space or Sphere()
    check_accuracy_or_reports(accuracy_m, reports)
    if reports is not None:
        planned = _whole("reports", reports)
        eps_noise = _share(privacy, space, LaplaceTest(), planned, lambda eps: (0.0, eps, 1.0))
    else:
        c_noise = space.c_noise(delta)
        eps_noise = c_noise / positive("accuracy_m", accuracy_m)  # type: ignore[arg-type]  # given
        check_one_report_fits(privacy, c_noise, c_noise / eps_noise)
    return PredictiveMechanism(
        privacy,
        AlwaysNoise(eps_noise),
        space,
        window=as_window(window),
        on_exhausted=on_exhausted,
    )


def _share(
    privacy: Privacy,
    space: Space,
    decision: Decision | ClosenessFunction,
    reports: int,
    plan: Callable[[float], tuple[float, float, float]],
) -> float:
    """What each of so many reports may cost, if it buys a test, noise and a share of hard ones."""
    levels = Bound(privacy.eps_per_m)
    if privacy.delta is None:
        return levels.part(reports)
    renyi = RenyiFilter.of(privacy, space, declared_decision(decision))
    return renyi.share(levels, reports, plan)


def _one_of(
    decision: Decision | ClosenessFunction | None, test: Decision | ClosenessFunction | None
) -> Decision | ClosenessFunction:
    if decision is not None and test is not None:
        raise ParameterError("give decision or test, its former name, not both")
    chosen = test if decision is None else decision
    return LaplaceTest() if chosen is None else chosen


def check_accuracy_or_reports(accuracy: object | None, reports: object | None) -> None:
    """Refuse settings that say both how accurate and how many, or neither."""
    if (accuracy is None) == (reports is None):
        found = "neither" if reports is None else "both"
        raise ParameterError(
            "give either an accuracy (--accuracy 3km, accuracy_m=3000) or a number of reports "
            f"(--reports 30, reports=30), found {found}"
        )


def _constants(
    space: Space,
    decision: Decision | ClosenessFunction,
    eta: float,
    gamma: float,
    delta: float,
    expected: float,
) -> Constants:
    test = declared_decision(decision)
    if not isinstance(test, TestThenNoise):
        raise PartError(
            "this mechanism needs a closeness test (a hereish.TestThenNoise, or a function in "
            f"hereish.closeness_test), found {type(test).__qualname__}"
        )
    check_methods(space, "space", "c_noise")
    constants = Constants(space.c_noise(delta), test.c_test(delta), eta, gamma)
    if not 0.0 <= expected < 1.0:
        raise ParameterError(f"prediction_rate must be at least 0 and below 1, found {expected!r}")
    if expected <= constants.k:
        warnings.warn(
            f"testing pays off only if more than {constants.k:.1%} of the reports are predicted, "
            f"and {expected:.1%} are expected; hereish.independent would spend less",
            DoesNotPayOffWarning,
            stacklevel=3,
        )
    return constants


def _whole(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ParameterError(f"{name} must be a whole number from 1, found {value!r}")
    if value > _MOST_REPORTS:
        raise ParameterError(f"{name} must be at most {_MOST_REPORTS}, found {value!r}")
    return int(value)
