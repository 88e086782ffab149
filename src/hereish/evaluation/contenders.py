"""The mechanisms of the leaderboard: what each is made of, and which of its numbers are tuned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import timedelta

from hereish.core import presets
from hereish.core.budget import BudgetManager, Plan
from hereish.core.mechanism import PredictiveMechanism, fixed_rate, fixed_utility, independent
from hereish.core.prediction import Parrot
from hereish.core.presets import PresetNumbers
from hereish.core.privacy import Privacy
from hereish.core.remap import Remap
from hereish.core.run import Run
from hereish.core.skip import SkipBySpeed
from hereish.core.types import Floats
from hereish.core.windows import Window
from hereish.evaluation.configurations import ExactTest
from hereish.evaluation.preset_tuning import RANGES
from hereish.evaluation.search import Range, Values

_KMH = 30.0  # only limit / speed matters, which is a time: the pause
_PAUSE_S = Range(30.0, 3 * 3600.0)
_OF_TEST = ("near", "near_noise", "strictness", "longest_s", "calm", "settle")
_OF_PLACES = ("reach", "blur", "habit")
_OF_PACE = ("share", "per_half_hour", "usual_hard", "learn_after", "adapt")


@dataclass(frozen=True)
class Contender:
    """A mechanism under its name, with what a search needs to know of it."""

    name: str
    make: Callable[[Values, float | None], PredictiveMechanism]  # of numbers and accuracy
    ranges: dict[str, Range]
    start: Values
    in_order: bool = False  # remembers a user's earlier traces
    private: bool = True


@dataclass(frozen=True)
class FreeTests:
    """The plans of another budget manager, with tests that cost nothing. For `ExactTest`."""

    budget: BudgetManager
    needs_history = True

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        plan = self.budget(run, at_s)
        return Plan(0.0, plan.eps_noise, plan.threshold)


def exactly_tested(m: PredictiveMechanism) -> PredictiveMechanism:
    """The same with a test that is free and exact: what no private test can beat. Not private."""
    return replace(m, budget=FreeTests(m.budget), decision=ExactTest())  # type: ignore[arg-type]  # it is a manager


def on_traces(privacy: Privacy, remap: Remap) -> list[Contender]:
    """For query traces: what each costs at a given accuracy."""

    def paper(values: Values, accuracy_m: float | None) -> PredictiveMechanism:
        skip = None
        if "pause_s" in values:
            skip = SkipBySpeed(_KMH, values["pause_s"] * _KMH / 3.6, "tested")
        return fixed_utility(
            privacy, accuracy_m or 0.0, eta=values["eta"], gamma=values["gamma"], skip=skip
        )

    def noise_first(
        values: Values, accuracy_m: float | None, places: bool = True, moved: Remap | None = None
    ) -> PredictiveMechanism:
        numbers = replace(presets.WALKER, **values)
        guess = None if places else Parrot()
        return presets.steady(
            privacy, accuracy_m or 0.0, numbers=numbers, prediction=guess, remap=moved
        )

    def bound(values: Values, accuracy_m: float | None) -> PredictiveMechanism:
        return exactly_tested(noise_first(values, accuracy_m))

    papers = {"eta": 0.5, "gamma": 0.8}
    found = {"eta": 0.3, "gamma": 1.5, "pause_s": 1200.0}
    paper_ranges = {"eta": Range(0.02, 1.5), "gamma": Range(0.1, 10.0), "pause_s": _PAUSE_S}
    test, every = _ranges(presets.WALKER, _OF_TEST), _ranges(presets.WALKER, _OF_TEST + _OF_PLACES)
    exact = _ranges(presets.WALKER, ("near", "near_noise", "settle", *_OF_PLACES))
    return [
        Contender(
            "independent noise", lambda _, m: independent(privacy, accuracy_m=m or 0.0), {}, {}
        ),
        Contender("the paper's fixed utility", paper, {}, papers),
        Contender(
            "the paper's fixed utility, skip",
            lambda values, m: replace(paper(values, m), skip=SkipBySpeed(_KMH)),
            {},
            papers,
        ),
        Contender("Laplace test, tuned, clock restarted", paper, paper_ranges, found),
        Contender(
            "noise first, last release",
            lambda values, m: noise_first(values, m, places=False),
            *test,
        ),
        Contender("noise first, places of the trace", noise_first, *every),
        Contender(
            "noise first, places of the trace, remapped",
            lambda values, m: noise_first(values, m, moved=remap),
            *every,
        ),
        Contender("noise first, places of all traces", noise_first, *every, in_order=True),
        Contender(
            "noise first, places of all traces, remapped",
            lambda values, m: noise_first(values, m, moved=remap),
            *every,
            in_order=True,
        ),
        Contender("bound: free exact test, places of the trace", bound, *exact, private=False),
        Contender(
            "bound: free exact test, places of all traces",
            bound,
            *exact,
            in_order=True,
            private=False,
        ),
    ]


def on_days(
    privacy: Privacy, remap: Remap, every_s: float, window: Window, reports: int
) -> list[Contender]:
    """For whole days: what a receiver believes."""

    def paced(
        values: Values, places: bool = True, moved: Remap | None = None
    ) -> PredictiveMechanism:
        return presets.whole_day(
            privacy,
            every=timedelta(seconds=every_s),
            window=window,
            numbers=replace(presets.FEW_DAYS, **values),
            prediction=None if places else Parrot(),
            remap=moved,
        )

    every = _ranges(presets.FEW_DAYS, _OF_TEST + _OF_PLACES + _OF_PACE)
    exact = _ranges(presets.FEW_DAYS, ("near", "near_noise", "settle", *_OF_PLACES, *_OF_PACE))
    return [
        Contender(
            "independent noise",
            lambda *_: independent(privacy, reports=reports, window=window),
            {},
            {},
        ),
        Contender(
            "the paper's fixed rate",
            lambda *_: fixed_rate(privacy, reports, window=window),
            {},
            {},
        ),
        Contender(
            "the paper's fixed utility",
            lambda *_: fixed_utility(privacy, 3000.0, window=window),
            {},
            {},
        ),
        Contender(
            "noise first, paced, last release",
            lambda values, _: paced(values, places=False),
            *_ranges(presets.FEW_DAYS, _OF_TEST + _OF_PACE),
        ),
        Contender("noise first, paced, places", lambda values, _: paced(values), *every),
        Contender(
            "noise first, paced, places, remapped",
            lambda values, _: paced(values, moved=remap),
            *every,
        ),
        Contender(
            "bound: free exact test",
            lambda values, _: exactly_tested(paced(values)),
            *exact,
            private=False,
        ),
    ]


def _ranges(numbers: PresetNumbers, names: tuple[str, ...]) -> tuple[dict[str, Range], Values]:
    """Where these numbers are searched, and where the search begins."""
    known = [field.name for field in fields(numbers) if field.name in names]
    return {name: RANGES[name] for name in known}, {name: getattr(numbers, name) for name in known}
