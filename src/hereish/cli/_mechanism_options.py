"""Options that describe a mechanism: what is promised, and how the budget is spent."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import click

from hereish.cli import _units
from hereish.cli._command_lines import is_on_command_line
from hereish.cli._formatting import format_distance, format_duration
from hereish.cli._messages import warn
from hereish.cli._options import Decorator, combine, option
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.privacy import Privacy
from hereish.core.rolling import Rolling
from hereish.core.settings import (
    LASTING,
    PREDICTIONS,
    PRESETS,
    MechanismSettings,
    PredictionName,
    Preset,
)
from hereish.core.windows import Every
from hereish.errors import ParameterError
from hereish.evaluation import settings_file

_PROMISE = "What is promised"
SPENDING = "How it is spent"
_SPENDING = f"{SPENDING}: so that it lasts the day, unless these say otherwise"
_WEAK_LEVEL = math.log(100.0)
_SHORT_WINDOW_S = 3600.0
_IN_SETTINGS_FILE = (
    "budget",
    "level",
    "radius",
    "accuracy",
    "reports",
    "preset",
    "mechanism",
    "skip_speed",
    "prediction",
)
# What each preset takes of the options that not all of them take.
_TAKES: dict[Preset, tuple[str, ...]] = {
    "whole-day": ("accuracy", "reports", "quiet_hours"),
    "frequent": ("accuracy", "reports", "quiet_hours"),
    "few-days": ("accuracy", "reports", "quiet_hours"),
    "walker": ("accuracy",),
    "taxi": ("accuracy",),
    "paper-rate": ("reports", "skip_speed"),
    "paper-utility": ("accuracy", "skip_speed"),
}


@dataclass(frozen=True)
class MechanismOptions:
    """The options as they are given."""

    level: str
    radius: str
    budget: tuple[str, ...]
    accuracy: str | None
    reports: int | None
    preset: Preset | None
    quiet_hours: str | None
    mechanism: Literal["predictive", "independent"]
    skip_speed: str
    prediction: PredictionName | Literal["roads"] | None
    settings: str | None
    window: str

    @property
    def budgets(self) -> list[_units.PeriodBudget]:
        """Those of --budget, the shortest period first; none where it is not given."""
        for name in ("level", "window") if self.budget else ():
            if is_on_command_line(name):
                raise ParameterError(
                    f"--budget says what {_flag(name)} says: leave out one of them"
                )
        return _units.budgets(self.budget)

    @property
    def window_in_force(self) -> str:
        """What --window says or, with --budget, the shortest period."""
        if not self.budget:
            return self.window
        period = self.budgets[0].period
        return "none" if period == "forever" else period

    def mechanism_settings(self) -> MechanismSettings:
        """What the options describe, or the settings file that they name."""
        if self.settings is not None:
            _refuse_options_in_settings_file()
            settings = self._with_quiet_hours(settings_file.read(self.settings))
        else:
            self._check_fit()
            budgets, quiet = self.budgets, self.quiet_hours
            privacy = parse_privacy(self.level, self.radius)
            if budgets:
                privacy = Privacy(budgets[0].level, privacy.radius_m)
            settings = MechanismSettings(
                privacy.level,
                privacy.radius_m,
                accuracy_m=None if self.accuracy is None else _units.length_m(self.accuracy),
                reports=self.reports,
                mechanism=self.mechanism,
                skip_kmh=None if self.skip_speed == "off" else _units.speed_kmh(self.skip_speed),
                preset=self.preset,
                quiet=None if quiet is None else _units.clock_hours(quiet),
                # Roads are a file, and settings are plain values: whoever builds adds them.
                prediction=None if self.prediction == "roads" else self.prediction,
                limits=tuple((one.period, one.level) for one in budgets[1:]) or None,
            )
        self._check_window(settings)
        return settings

    def _with_quiet_hours(self, settings: MechanismSettings) -> MechanismSettings:
        """The settings of a file, which has no quiet hours, with those of the options."""
        if self.quiet_hours is None:
            return settings
        if settings.chosen_preset not in LASTING:
            raise ParameterError(
                "--quiet-hours need a budget that is spent by the clock, and that of --settings "
                f"{self.settings} is not: leave out --quiet-hours, or give a file of the preset "
                f"{' or '.join(LASTING)}"
            )
        return replace(settings, quiet=_units.clock_hours(self.quiet_hours))

    def _given(self) -> list[str]:
        """The options of `_TAKES` that say something."""
        names = [n for n in ("accuracy", "reports", "quiet_hours") if getattr(self, n) is not None]
        return names if self.skip_speed == "off" else [*names, "skip_speed"]

    def _check_fit(self) -> None:
        """Refuse options that contradict each other."""
        given = self._given()
        if self.reports is not None and self.reports < 1:
            raise ParameterError(f"--reports must be a whole number from 1, found {self.reports}")
        if self.prediction is not None and self.mechanism == "independent":
            raise ParameterError(
                "--mechanism independent predicts nothing: leave out --prediction, or choose "
                "--mechanism predictive"
            )
        if self.preset is not None:
            self._check_preset(self.preset, given)
            return
        counted = [name for name in given if name in ("accuracy", "reports")]
        if len(counted) == 2 or (self.mechanism == "independent" and not counted):
            raise ParameterError(
                "give either an accuracy (--accuracy 3km) or a number of reports (--reports 30), "
                f"found {'both' if counted else 'neither'}"
            )
        if "quiet_hours" in given and self.mechanism == "independent":
            raise ParameterError(
                "--quiet-hours repeat a guess, and --mechanism independent has none: leave out "
                "--quiet-hours"
            )
        if "quiet_hours" in given and counted:
            raise ParameterError(
                f"--quiet-hours need a budget that is spent by the clock, and {_flag(counted[0])} "
                f"alone is not: leave out {_flag(counted[0])}, or add --preset whole-day"
            )
        if "skip_speed" in given and not counted:
            raise ParameterError(
                "--skip-speed belongs to --accuracy and --reports, found neither: give one of "
                "them, or leave out --skip-speed"
            )

    def _check_preset(self, preset: Preset, given: list[str]) -> None:
        if self.mechanism == "independent":
            raise ParameterError(
                f"--preset {preset} predicts, and --mechanism independent does not: leave out one "
                "of them"
            )
        for name in given:
            if name not in _TAKES[preset]:
                takes = " and ".join(_flag(one) for one in _TAKES[preset])
                raise ParameterError(
                    f"--preset {preset} takes {takes}, found {_flag(name)}: leave out "
                    f"{_flag(name)}, or choose another preset"
                )

    def _check_window(self, settings: MechanismSettings) -> None:
        """Refuse to spread a budget until the end of what does not end, and hours of no day."""
        if settings.quiet is not None and self.window_in_force != "day":
            raise ParameterError(
                "--quiet-hours are hours of a day, found --window "
                f"{self.window_in_force}: leave out one of them"
            )
        endless = self.window_in_force in ("none", "trace")
        if not endless or settings.chosen_preset not in LASTING or settings.reports is not None:
            return
        by_default = self.preset is None and self.settings is None
        default = ", which is the default," if by_default else ""
        raise ParameterError(
            f"the budget of --preset {settings.chosen_preset}{default} is spread until the end of "
            f"its window, and --window {self.window_in_force} has none that is known beforehand: "
            "leave out --window, or say how many reports there will be (--preset whole-day "
            "--reports 48) or how accurate they shall be (--preset paper-utility --accuracy 3km)"
        )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def parse_privacy(level: str, radius: str) -> Privacy:
    """The promise of --level and --radius."""
    return Privacy(_units.level(level), _units.length_m(radius))


def _refuse_options_in_settings_file() -> None:
    for name in _IN_SETTINGS_FILE:
        if is_on_command_line(name):
            flag = _flag(name)
            raise ParameterError(f"{flag} is a setting of the file of --settings: leave out {flag}")


def warn_if_weak(mechanism: PredictiveMechanism) -> None:
    """Warn of a mechanism that promises little."""
    level, radius_m = mechanism.privacy.level, mechanism.privacy.radius_m
    if level > _WEAK_LEVEL:
        odds = f"{math.exp(level):.4g}" if level < math.log(1e6) else "more than a million"
        warn(
            f"level {level:.4g} lets an observer tell two places {format_distance(radius_m)} apart "
            f"with odds of {odds} to 1; above ln 100 (100 to 1) that is hardly private: choose a "
            "lower level, such as 'ln 10', or a larger radius"
        )
    window = mechanism.window
    if isinstance(window, (Every, Rolling)) and window.duration.total_seconds() < _SHORT_WINDOW_S:
        length_s = window.duration.total_seconds()
        budgets = f"{86400.0 / length_s:.0f}"
        warn(
            f"a window of {format_duration(length_s)} is {budgets} budgets per day, and together "
            f"they reveal up to {budgets} times as much as the level says: choose a window of "
            "hours, or day"
        )


PRIVACY_OPTIONS = combine(
    option(
        _PROMISE, "--level", default="ln 10", show_default=True, help="Privacy inside the radius."
    ),
    option(_PROMISE, "--radius", default="100m", show_default=True, help="Where it holds."),
)
BUDGET_OPTION = option(
    _PROMISE,
    "--budget",
    multiple=True,
    metavar="LEVEL/PERIOD",
    help="Several levels at once, each for its period, in place of --level and --window: 'ln "
    "10/day', 'ln 1000/month', 'ln 10/24h' (any 24 hours), 'ln 1000/30d', 'ln 1e6/forever'. May be "
    "repeated.",
)
# The fields of MechanismOptions but the window.
MECHANISM_OPTIONS = combine(
    PRIVACY_OPTIONS,
    BUDGET_OPTION,
    option(
        _SPENDING,
        "--accuracy",
        help="Fresh noise lies within this, nine times out of ten: 3km. As many reports as the "
        "budget pays for. Presets but the paper's may then move a report further, to a place "
        "released before.",
    ),
    option(
        _SPENDING, "--reports", type=int, help="About how many reports the budget shall last for."
    ),
    option(
        _SPENDING,
        "--preset",
        type=click.Choice(get_args(Preset)),
        metavar="NAME",
        help="; ".join(f"{name}: {what}" for name, what in PRESETS.items()) + ".",
    ),
    option(
        _SPENDING,
        "--quiet-hours",
        metavar="FROM-UNTIL",
        help="Hours in which the last report is repeated, for free, such as 23:00-06:30 in the "
        "time zone of the days.",
    ),
    option(
        _SPENDING,
        "--mechanism",
        type=click.Choice(["predictive", "independent"]),
        default="predictive",
        show_default=True,
        help="Guess and test, or fresh noise each time.",
    ),
    option(
        _SPENDING,
        "--skip-speed",
        default="off",
        show_default=True,
        metavar="SPEED|off",
        help="Skip the test while somebody this fast, such as 30km/h, could not have gone far.",
    ),
    option(
        _SPENDING,
        "--prediction",
        type=click.Choice([*get_args(PredictionName), "roads"]),
        metavar="NAME",
        help="; ".join(f"{name}: {what}" for name, what in PREDICTIONS.items())
        + "; roads: along those of --roads, of hereish sanitize. Of the paper's presets parrot if "
        "not given, and of the others places.",
    ),
    option(
        _SPENDING,
        "--settings",
        metavar="FILE",
        type=click.Path(),
        help="A file that hereish tune has written, in place of --accuracy and the other settings; "
        "--quiet-hours may be added.",
    ),
)


def on_exhausted_option(group: str) -> Decorator:
    """What happens when the budget is spent."""
    return option(
        group,
        "--on-exhausted",
        type=click.Choice(["stop", "predict"]),
        default="stop",
        show_default=True,
        help="When it is spent: release nothing, or the last report again.",
    )
