"""The numbers of a preset, tuned for one situation or for several at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.presets import PresetNumbers
from hereish.core.settings import NUMBERS, MechanismSettings
from hereish.core.windows import Window
from hereish.errors import ParameterError
from hereish.evaluation.search import Found, Range, Search, Values
from hereish.evaluation.situations import Fitted, LeastRate, Measured, Situation

# Of the fields of Numbers, and of the paper's fixed rate.
RANGES: dict[str, Range] = {
    "near": Range(1.0, 40.0),
    "near_noise": Range(0.3, 8.0),
    "strictness": Range(0.02, 0.8),
    "longest_s": Range(900.0, 14400.0),
    "reach": Range(2.0, 10.0, log=False),
    "blur": Range(0.2, 2.0),
    "habit": Range(0.0, 2.0, log=False),
    "share": Range(0.5, 2.0),
    "per_half_hour": Range(0.1, 1.0),
    "more_often": Range(0.0, 1.0, log=False),
    "per_report": Range(0.05, 1.0),
    "counted_strictness": Range(0.02, 0.8),
    "usual_hard": Range(0.03, 0.5),
    "learn_after": Range(1.0, 30.0),
    "adapt": Range(0.0, 0.6, log=False),
    "settle": Range(0.0, 2.0, log=False),
    "calm": Range(0.0, 2.0, log=False),
}
PAPER_RANGES: dict[str, Range] = {
    "eta": Range(0.02, 1.5),
    "gamma": Range(0.1, 10.0),
    "prediction_rate": Range(0.05, 0.98, log=False),
}
_PAPERS = {"eta": 0.5, "gamma": 0.8, "prediction_rate": 0.7}
_OF_CLOCK, _OF_COUNT = {"per_half_hour", "more_often"}, {"per_report"}


@dataclass(frozen=True)
class PresetTrial:
    """Settings that were tried on the training users, and how they did in each situation."""

    settings: MechanismSettings
    score: float  # 1 for the numbers at the start: the defaults, unless others were given
    fitted: tuple[Fitted, ...]


@dataclass(frozen=True)
class TunedPreset:
    """The best settings, and how they and others do for held-out users in each situation."""

    settings: MechanismSettings
    start: PresetTrial
    best: PresetTrial
    trials: tuple[PresetTrial, ...]
    held_out: dict[str, dict[str, Measured]]  # by situation, then by the name of the settings


def tune_preset(
    settings: MechanismSettings,
    situations: Sequence[Situation],
    *,
    window: Window | None = None,
    compared: dict[str, MechanismSettings] | None = None,
    trials: int = 200,
    seed: int = 1,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> TunedPreset:
    """Tune the preset that these settings name; measure it, its start, and others beside it."""

    def make(values: Values, accuracy_m: float | None) -> PredictiveMechanism:
        return _build(_with_values(settings, values), accuracy_m, window)

    def trial_of(found: Found) -> PresetTrial:
        chosen = _with_noise(_with_values(settings, found.values), found.fitted)
        return PresetTrial(chosen, found.score, found.fitted)

    preset = settings.preset
    search = Search(make, situations, *_searched(settings, window), seed)
    found = search.run(trials, jobs, progress)
    best, start = trial_of(found.best), trial_of(found.start)
    held_out = {}
    for i, one in enumerate(situations):
        rows = {
            name: _measure(one, trial.settings, trial.fitted[i].accuracy_m, window, seed)
            for name, trial in (("tuned", best), ("start", start))
        }
        if preset in NUMBERS:
            noise_m = one.fit(lambda noise_m: _build(settings, noise_m, window), seed).accuracy_m
            rows["as it comes"] = _measure(one, settings, noise_m, window, seed)
        for name, other in (compared or {}).items():
            rows[name] = _measure(one, other, None, window, seed)
        held_out[one.name] = rows
    return TunedPreset(best.settings, start, best, tuple(map(trial_of, found.trials)), held_out)


def _searched(
    settings: MechanismSettings, window: Window | None
) -> tuple[dict[str, Range], Values]:
    """Which numbers are searched, and from where."""
    preset = settings.preset
    if preset == "paper-rate":
        return PAPER_RANGES, dict(_PAPERS)
    if preset not in NUMBERS:
        raise ParameterError(f"the preset {preset} has no numbers to tune like this")
    # The same start whatever the code has by now, so that a command finds the same again.
    start = vars(PresetNumbers()) | (settings.numbers or {})
    unused = _OF_COUNT if settings.reports is None else _OF_CLOCK
    ranges = {
        name: RANGES[name]
        for name in (field.name for field in fields(PresetNumbers))
        if name in RANGES and name not in unused and _matters(settings, window, name)
    }
    return ranges, {name: start[name] for name in ranges}


def _matters(settings: MechanismSettings, window: Window | None, name: str) -> bool:
    """Whether the mechanism is another one with another value of this number."""
    known = RANGES[name]
    made = {
        replace(settings, numbers=(settings.numbers or {}) | {name: value}, every_s=700.0)
        .build(window)
        .fingerprint
        for value in (known.low + 0.3 * (known.high - known.low), known.high)
    }
    return len(made) > 1


def _with_values(settings: MechanismSettings, values: Values) -> MechanismSettings:
    if settings.preset in NUMBERS:
        return replace(settings, numbers=(settings.numbers or {}) | values)
    return replace(settings, **values)  # type: ignore[arg-type]  # the names are fields


def _with_noise(settings: MechanismSettings, fitted: Sequence[Fitted]) -> MechanismSettings:
    """With the noise that keeps the limits in every situation: the finest of those fitted."""
    noises = [one.accuracy_m for one in fitted if one.accuracy_m is not None]
    return replace(settings, accuracy_m=float(f"{min(noises):.4g}")) if noises else settings


def _build(
    settings: MechanismSettings, accuracy_m: float | None, window: Window | None
) -> PredictiveMechanism:
    if accuracy_m is not None:
        settings = replace(settings, accuracy_m=accuracy_m)
    return settings.build(window)


def _measure(
    situation: Situation,
    settings: MechanismSettings,
    accuracy_m: float | None,
    window: Window | None,
    seed: int,
) -> Measured:
    """With the noise that was fitted for this situation; and the rate at the very limits."""
    measured = situation.measure(_build(settings, accuracy_m, window), seed)
    if accuracy_m is None or not isinstance(situation, LeastRate):
        return measured
    at_limits = situation.rate_at_limits(lambda noise_m: _build(settings, noise_m, window), seed)
    return measured | {"accuracy_m": accuracy_m, "rate_at_limits": at_limits}
