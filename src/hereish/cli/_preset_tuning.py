"""`hereish tune --preset`: the situations that options describe, and what came of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hereish.cli import _units
from hereish.cli._formatting import format_distance, format_table
from hereish.core.privacy import Privacy
from hereish.core.settings import ACCURACY_M, LASTING, MechanismSettings, PredictionName, Preset
from hereish.core.types import Bools
from hereish.core.windows import Day, Window
from hereish.errors import ParameterError
from hereish.evaluation import preset_tuning, tuning
from hereish.evaluation.dataset import Trajectories, split_users
from hereish.evaluation.situations import (
    LeastRate,
    Limits,
    Measured,
    PlannedReports,
    QueryTraces,
    Situation,
    WholeDays,
)
from hereish.evaluation.study_settings import StudySettings

STEADY: tuple[Preset, ...] = ("walker", "taxi")
_REPORTS = 30  # the paper's
_EVERY: dict[Preset, str] = {"whole-day": "30min", "frequent": "5min", "few-days": "30min"}


@dataclass(frozen=True)
class PresetTuning:
    """A preset, and the situations that its numbers shall suit."""

    preset: Preset
    privacy: Privacy
    accuracy: str | None
    reports: int | None
    ps: tuple[float, ...]
    every: tuple[str, ...]
    sampling: Literal["authors", "gaps"]
    memory: bool
    prediction: PredictionName | None = None

    def __post_init__(self) -> None:
        paced = self.preset in LASTING
        if self.every and (not paced or self.reports is not None):
            raise ParameterError("--every is for presets that pace, and without --reports")
        if self.memory and self.of_days:
            raise ParameterError("days of a user are always in order: leave out --memory")
        if self.accuracy is not None and self.preset not in STEADY:
            raise ParameterError(f"the preset {self.preset} is not tuned for an accuracy")
        if self.reports is not None and self.preset in STEADY:
            raise ParameterError(f"the preset {self.preset} has no reports: leave out --reports")

    @property
    def of_days(self) -> bool:
        """Whether it is tuned on whole days, and not on query traces."""
        return self.preset in LASTING and self.reports is None

    @property
    def _planned(self) -> int:
        return self.reports or _REPORTS

    def settings(self) -> MechanismSettings:
        """What is tuned."""
        one = MechanismSettings(
            self.privacy.level,
            self.privacy.radius_m,
            preset=self.preset,
            prediction=self.prediction,
        )
        if self.of_days:
            every_s = self._every_s()
            return replace(one, every_s=every_s[0]) if len(every_s) == 1 else one
        return one if self.preset in STEADY else replace(one, reports=self._planned)

    def _every_s(self) -> tuple[float, ...]:
        given = self.every or (_EVERY[self.preset],)
        return tuple(dict.fromkeys(_units.duration_s(text) for text in given))

    def compared(self) -> dict[str, MechanismSettings]:
        """What the tuned preset is measured beside, with the same goal."""
        if self.preset in STEADY:
            accuracy_m = self._limits().p90_m
            paper = tuning.paper_settings(self.privacy, accuracy_m, "hard")
            study = StudySettings(self.privacy, accuracy_m=accuracy_m)
            return {"paper": paper, "independent": study.describe("fixed_utility", "independent")}
        if self.of_days:
            return {}  # they depend on how often queries come: see hereish evaluate --days
        study = StudySettings(self.privacy, reports=self._planned)
        others = {"independent": study.describe("fixed_rate", "independent")}
        return (
            others
            if self.preset == "paper-rate"
            else {"paper": study.describe("fixed_rate")} | others
        )

    def _limits(self) -> Limits:
        accuracy_m = ACCURACY_M if self.accuracy is None else _units.length_m(self.accuracy)
        return Limits.of_accuracy(accuracy_m)

    def situations(
        self, trajectories: Trajectories, training: Bools, time_zone: str | None, seed: int
    ) -> list[Situation]:
        if time_zone is not None:
            return [
                WholeDays.of(trajectories, training, time_zone, every_s)
                for every_s in self._every_s()
            ]
        made: list[Situation] = []
        for p in dict.fromkeys(self.ps):
            parts = QueryTraces.sampled(
                trajectories,
                training,
                p,
                gaps=self.sampling == "gaps",
                in_order=self.memory,
                seed=seed,
            )
            common = (f"p = {p:g}", self.privacy, *parts, self.memory)
            if self.preset in STEADY:
                made.append(LeastRate(*common, limits=self._limits()))
            else:
                made.append(PlannedReports(*common, reports=self._planned))
        return made

    def run(
        self,
        trajectories: Trajectories,
        time_zone: str | None,
        *,
        trials: int,
        train_share: float,
        seed: int,
        jobs: int,
        progress: Callable[[int, int], None],
    ) -> tuple[preset_tuning.TunedPreset, Bools]:
        """What was found, and which users had a say in it."""
        training = split_users(trajectories.users, train_share, seed)
        window: Window | None = None if time_zone is None else Day(time_zone)
        tuned = preset_tuning.tune_preset(
            self.settings(),
            self.situations(trajectories, training, time_zone, seed),
            window=window,
            compared=self.compared(),
            trials=trials,
            seed=seed,
            jobs=jobs,
            progress=progress,
        )
        return tuned, training


_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("belief_mean_m", "average", format_distance),
    ("belief_median_m", "median", format_distance),
    ("belief_p90_m", "90 %", format_distance),
    ("belief_p99_m", "99 %", format_distance),
    ("ended_share", "ended", lambda value: f"{value:.0%}"),
    ("rate", "rate", lambda value: f"{value:.3%}"),
    ("rate_pooled", "pooled", lambda value: f"{value:.3%}"),
    ("rate_at_limits", "at the limits", lambda value: f"{value:.3%}"),
    ("error_mean_m", "average error", format_distance),
    ("error_p90_m", "90 % within", format_distance),
    ("delivered", "delivered", lambda value: f"{value:.1%}"),
)


def measurements(tuned: preset_tuning.TunedPreset) -> dict[str, float]:
    """What was measured on the held-out users, by names that TOML takes."""
    return {
        re.sub(r"\W+", "_", f"{situation}_{name}_{metric}"): value
        for situation, rows in tuned.held_out.items()
        for name, measured in rows.items()
        for metric, value in measured.items()
        if metric.removesuffix("_lo").removesuffix("_hi") in {key for key, _, _ in _COLUMNS}
    }


def summarise(tuned: preset_tuning.TunedPreset, training: Bools) -> str:
    """How the preset does in each situation, beside others, for held-out users."""
    seen = int(training.sum())
    parts = [
        f"Tuned on {seen} users: a score of {tuned.best.score:.4f} times that of the numbers that "
        f"the search began with. Measured on the {len(training) - seen} others:"
    ]
    for situation, rows in tuned.held_out.items():
        parts.append(f"{situation}\n{_format_rows(rows)}")
    worse = [situation for situation, rows in tuned.held_out.items() if _is_worse(rows)]
    if worse:
        parts.append(
            f"NOT BETTER than independent noise for the held-out users ({', '.join(worse)}): give "
            "the search more --trials, or use --mechanism independent."
        )
    numbers = tuned.settings.numbers
    if numbers is not None:
        parts.append(", ".join(f"{name}={value:g}" for name, value in numbers.items()))
    return "\n\n".join(parts)


def _is_worse(rows: dict[str, Measured]) -> bool:
    """Whether what was tuned does worse than independent noise."""
    tuned, independent = rows["tuned"], rows.get("independent", {})
    goal = "rate" if "rate_at_limits" in tuned else "error_mean_m"
    return goal in independent and tuned[goal] > independent[goal]


def _format_rows(rows: dict[str, Measured]) -> str:
    columns = [one for one in _COLUMNS if any(one[0] in measured for measured in rows.values())]
    lines: list[Sequence[str]] = [["", *(title for _, title, _ in columns)]]
    for name, measured in rows.items():
        cells = [form(measured[key]) if key in measured else "-" for key, _, form in columns]
        lines.append([name, *cells])
    return format_table(lines)
