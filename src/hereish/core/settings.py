"""A mechanism described by plain values, as options, files and the gateway's policies have it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import time, timedelta
from typing import Any, Literal, get_args

from hereish.core import presets
from hereish.core.ensemble import Ensemble
from hereish.core.filter import Filter
from hereish.core.linear import Linear
from hereish.core.mechanism import (
    OnExhausted,
    PredictiveMechanism,
    check_accuracy_or_reports,
    fixed_rate,
    fixed_utility,
    independent,
)
from hereish.core.mobility import Mobility
from hereish.core.places import PlaceMemory
from hereish.core.prediction import Parrot, Prediction
from hereish.core.presets import PresetNumbers
from hereish.core.privacy import Privacy, positive
from hereish.core.rolling import Rolling
from hereish.core.skip import SkipBySpeed
from hereish.core.spaces import Sphere
from hereish.core.windows import (
    Day,
    Forever,
    Limit,
    Month,
    Nested,
    Window,
    as_window,
    split_windows,
)
from hereish.errors import ParameterError

Preset = Literal[
    "whole-day", "frequent", "few-days", "walker", "taxi", "paper-rate", "paper-utility"
]
# What each is for, in the words of a help text.
PRESETS: dict[Preset, str] = {
    "whole-day": "a budget that lasts the day, for anybody",
    "frequent": "the same for a report every few minutes",
    "few-days": "as whole-day, but places get ever more exact: more is learnt of them in weeks",
    "walker": "one accuracy throughout, for people on foot who report every minute or so",
    "taxi": "the same for vehicles, which are hard to predict",
    "paper-rate": "the paper's fixed rate: a number of reports",
    "paper-utility": "the paper's fixed utility: an accuracy",
}
# The numbers of those that hereish tune can tune.
NUMBERS: dict[Preset, PresetNumbers] = {
    "whole-day": presets.WHOLE_DAY,
    "frequent": presets.FREQUENT,
    "few-days": presets.FEW_DAYS,
    "walker": presets.WALKER,
    "taxi": presets.TAXI,
}
LASTING: tuple[Preset, ...] = ("whole-day", "frequent", "few-days")  # to the end of their window
# What guesses follow from. Stored policies have the names alone: defaults are part of them.
PredictionName = Literal["parrot", "places", "mobility", "linear", "filter", "ensemble"]
PREDICTIONS: dict[PredictionName, str] = {
    "parrot": "the last release again",
    "places": "the same, with a memory of places released before",
    "mobility": "the same, by the hours and weekdays of places and the moves between them",
    "linear": "straight on, for trains, boats and motorways with frequent reports",
    "filter": "the same by a Kalman filter, which also evens out the noise",
    "ensemble": "whichever of these has done best",
}
ACCURACY_M = 3000.0  # the paper's, where a preset has one and none is given
_PAPERS = ("eta", "gamma", "prediction_rate", "skip_kmh")
# Settings that a preset has no use for. How often reports come may be said to all of them.
_WITHOUT: dict[Preset, tuple[str, ...]] = {
    "whole-day": _PAPERS,
    "frequent": _PAPERS,
    "few-days": _PAPERS,
    "walker": (*_PAPERS, "quiet", "reports"),
    "taxi": (*_PAPERS, "quiet", "reports"),
    "paper-rate": ("numbers", "quiet", "accuracy_m"),
    "paper-utility": ("numbers", "quiet", "reports"),
}
_SPHERE = Sphere()
_EVERY_S: dict[Preset, float] = {"whole-day": 1800.0, "frequent": 300.0, "few-days": 1800.0}
_SHORTEST_EVERY_S, _LONGEST_EVERY_S = 1e-3, 1e10  # a millisecond to a few centuries
_DAY_S = 86400.0
# How large a number of a preset may be, of either sign; those that are powers less.
LARGEST_NUMBER = 1e6
LARGEST_NUMBERS = {"more_often": 10.0}


@dataclass(frozen=True)
class MechanismSettings:
    """What is promised and how it is spent; `build` makes the mechanism.

    With neither an accuracy nor a number of reports the budget lasts the day (`whole-day`). With
    one of them it is spent as the paper does, unless `preset` says otherwise. What is None is left
    to the mechanism's own defaults.
    """

    level: float
    radius_m: float
    accuracy_m: float | None = None
    reports: int | None = None
    mechanism: Literal["predictive", "independent"] = "predictive"
    eta: float | None = None
    gamma: float | None = None
    prediction_rate: float | None = None
    skip_kmh: float | None = None  # None: no test is skipped
    skip_limit_m: float | None = None
    skip_since: Literal["hard", "tested"] = "hard"
    preset: Preset | None = None
    every_s: float | None = None  # how often reports will come, for presets that pace
    quiet: str | None = None  # hours without tests, such as 23:00-06:30, of the window's time zone
    # Numbers of the preset that differ from its own, as hereish tune finds them.
    numbers: dict[str, float] | None = field(default=None, hash=False)
    prediction: PredictionName | None = None  # None: places with a preset of ours, else parrot
    # Budgets of further windows: a period such as month, 30d or forever (`period_window`), and a
    # level inside the same radius.
    limits: tuple[tuple[str, float], ...] | None = None

    @property
    def privacy(self) -> Privacy:
        """What is promised, whatever the other numbers are."""
        return Privacy(self.level, self.radius_m)

    @property
    def chosen_preset(self) -> Preset | None:
        """The preset, which is `whole-day` where nothing says how the budget is spent."""
        if self.preset is None and self.accuracy_m is None and self.reports is None:
            return "whole-day" if self.mechanism == "predictive" else None
        return self.preset

    @property
    def accuracy_in_force_m(self) -> float | None:
        """The accuracy, which is the paper's where a preset needs one and none is given."""
        needed = self.chosen_preset in ("walker", "taxi", "paper-utility")
        return ACCURACY_M if self.accuracy_m is None and needed else self.accuracy_m

    def build(
        self,
        window: Window | str | timedelta | None = None,
        on_exhausted: OnExhausted = "stop",
    ) -> PredictiveMechanism:
        """The mechanism that this describes; says what is wrong if it describes none."""
        preset = self.chosen_preset
        window = self._with_limits(window)
        given: dict[str, Any] = {"window": window, "on_exhausted": on_exhausted}
        if self.prediction is not None and self.prediction not in PREDICTIONS:
            raise ParameterError(
                f"prediction must be one of {', '.join(PREDICTIONS)}, found {self.prediction!r}"
            )
        if self.prediction is not None and self.mechanism == "independent":
            raise ParameterError("independent noise predicts nothing: leave out the prediction")
        if preset is not None:
            self._check_preset(preset)
        elif self.quiet is not None or self.numbers is not None:
            found = "quiet" if self.quiet is not None else "numbers"
            raise ParameterError(
                f"{found} belongs to a preset such as whole-day: name it, or leave out {found}"
            )
        if preset in NUMBERS:
            return self._build_tuned(preset, given)
        return self._for_paper(preset)._build_paper(given)

    def _with_limits(
        self, window: Window | str | timedelta | None
    ) -> Window | str | timedelta | None:
        """The window with the limits beside it."""
        if not self.limits:
            return window
        if window is None and self.chosen_preset in _EVERY_S:
            window = Day("UTC")
        nested = window if isinstance(window, Nested) else Nested(as_window(window))
        for period, level in checked_limits(self.limits):
            nested = nested & Limit(period_window(period, _time_zone(window)), level)
        return nested

    def _check_preset(self, preset: Preset) -> None:
        if preset not in get_args(Preset):
            raise ParameterError(
                f"preset must be one of {', '.join(get_args(Preset))}, found {preset!r}"
            )
        if self.mechanism == "independent":
            raise ParameterError("a preset predicts: leave out the preset for independent noise")
        for name in _WITHOUT[preset]:
            if getattr(self, name) is not None:
                raise ParameterError(f"the preset {preset} has no {name}: leave it out")
        every_s = None if self.every_s is None else positive("every_s", self.every_s)
        if every_s is not None and not _SHORTEST_EVERY_S <= every_s <= _LONGEST_EVERY_S:
            raise ParameterError(
                f"every_s must lie between {_SHORTEST_EVERY_S:g} and {_LONGEST_EVERY_S:g}, "
                f"found {self.every_s!r}"
            )

    def _build_tuned(self, preset: Preset, given: dict[str, Any]) -> PredictiveMechanism:
        numbers = NUMBERS[preset]
        if given["window"] is not None:  # else it is a day
            numbers = presets.numbers_for(numbers, split_windows(given["window"])[0])
        numbers = with_numbers(numbers, self.numbers or {})
        if self.prediction is not None:
            memory = numbers.memory(self.privacy, _SPHERE, _time_zone(given["window"]))
            given["prediction"] = self._predicts(self.prediction, memory, memory)
        if preset in ("walker", "taxi"):
            accuracy_m = ACCURACY_M if self.accuracy_m is None else self.accuracy_m
            return presets.steady(self.privacy, accuracy_m, numbers=numbers, **given)
        every_s = _EVERY_S[preset] if self.every_s is None else self.every_s
        return presets.whole_day(
            self.privacy,
            every=timedelta(seconds=every_s),
            quiet=None if self.quiet is None else parse_quiet(self.quiet),
            reports=self.reports,
            accuracy_m=self.accuracy_m,
            numbers=numbers,
            **given,
        )

    def _for_paper(self, preset: Preset | None) -> MechanismSettings:
        """With the accuracy or the number of reports that the preset of the paper has."""
        if preset == "paper-utility":
            return replace(self, accuracy_m=self.accuracy_in_force_m)
        if preset == "paper-rate" and self.reports is None:
            every_s = _EVERY_S["whole-day"] if self.every_s is None else self.every_s
            return replace(self, reports=max(2, round(_DAY_S / every_s)))
        return self

    def _build_paper(self, given: dict[str, Any]) -> PredictiveMechanism:
        check_accuracy_or_reports(self.accuracy_m, self.reports)
        if self.mechanism == "independent":
            if self.skip_kmh is not None:
                raise ParameterError(
                    "a skip speed (--skip-speed) skips tests, and independent noise has none"
                )
            return independent(
                self.privacy, reports=self.reports, accuracy_m=self.accuracy_m, **given
            )
        for name in ("eta", "gamma", "prediction_rate"):
            if getattr(self, name) is not None:
                given[name] = getattr(self, name)
        if self.prediction is not None:
            memory = PlaceMemory(time_zone=_time_zone(given["window"]))
            given["prediction"] = self._predicts(self.prediction, memory, Parrot())
        if self.skip_kmh is not None:
            given["skip"] = SkipBySpeed(self.skip_kmh, self.skip_limit_m, self.skip_since)
        if self.accuracy_m is not None:
            return fixed_utility(self.privacy, self.accuracy_m, **given)
        return fixed_rate(self.privacy, self.reports or 0, **given)

    @staticmethod
    def _predicts(name: PredictionName, memory: PlaceMemory, usual: Prediction) -> Prediction:
        """The prediction of this name, with the memory of the preset; `usual` without a name."""
        if name == "ensemble":
            return Ensemble(members=(usual, Linear(), Filter()))
        named: dict[PredictionName, Prediction] = {
            "parrot": Parrot(),
            "places": memory,
            "mobility": Mobility(memory.space, memory.time_zone),
            "linear": Linear(),
            "filter": Filter(),
        }
        return named[name]


def _time_zone(window: Window | str | timedelta | None) -> str:
    """That of the days, as the presets take it."""
    chosen, _ = split_windows(window)
    return chosen.time_zone if isinstance(chosen, Day) else "UTC"


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(min|h|d)", re.ASCII)
_SHORTEST_PERIOD = timedelta(minutes=1)
_UNITS = {"min": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


def checked_limits(limits: Any) -> list[tuple[str, float]]:
    """Periods and levels, as settings and policies have them; says what is wrong with others."""
    try:
        pairs = [(period, level) for period, level in limits]
    except (TypeError, ValueError):
        pairs = None
    if pairs is None or isinstance(limits, (str, dict)):
        raise ParameterError(
            f"limits are pairs of a period and a level, such as (('month', 6.9),), found {limits!r}"
        )
    for period, level in pairs:
        if not isinstance(period, str) or isinstance(level, (bool, str)):
            raise ParameterError(
                "a limit is a period and a level, such as ('month', 6.9), found "
                f"{(period, level)!r}"
            )
    return [(period, positive(f"the level per {period}", level)) for period, level in pairs]


def period_window(period: str, time_zone: str) -> Window:
    """The window of a period: a calendar day or month, any 24h or 30d, or forever."""
    if period == "day":
        return Day(time_zone)
    if period == "month":
        return Month(time_zone)
    if period == "forever":
        return Forever
    match = _DURATION.fullmatch(period)
    try:
        if match is not None:
            rolling = Rolling(float(match[1]) * _UNITS[match[2]])
            if rolling.duration >= _SHORTEST_PERIOD:
                return rolling
    except OverflowError:
        pass
    raise ParameterError(
        "a period is day, month, forever or a rolling one of a minute or more, such as 24h or 30d, "
        f"found {period!r}"
    )


def with_numbers(numbers: PresetNumbers, changed: dict[str, float]) -> PresetNumbers:
    """The numbers of a preset, with some of them changed."""
    for name, value in changed.items():
        if name not in vars(numbers):
            raise ParameterError(f"a preset has no number {name!r}")
        most = LARGEST_NUMBERS.get(name, LARGEST_NUMBER)
        known = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not known or not -most <= value <= most:
            raise ParameterError(
                f"the number {name} of a preset must lie between {-most:g} and {most:g}, "
                f"found {value!r}"
            )
    return replace(numbers, **changed)


def parse_quiet(text: str) -> tuple[time, time]:
    """Quiet hours such as 23:00-06:30."""
    try:
        begins, ends = (time.fromisoformat(part.strip()) for part in text.split("-"))
    except ValueError:
        raise ParameterError(
            f"quiet hours must be two times of the day, such as 23:00-06:30, found {text!r}"
        ) from None
    return begins, ends
