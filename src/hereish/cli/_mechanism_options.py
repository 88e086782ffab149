"""Options that describe a mechanism: what is promised, and how the budget is spent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import click

from hereish.cli import _units
from hereish.cli._command_lines import is_on_command_line
from hereish.cli._formatting import format_distance, format_duration
from hereish.cli._messages import warn
from hereish.cli._options import Decorator, combine, option
from hereish.core.mechanism import PredictiveMechanism, check_accuracy_or_reports
from hereish.core.privacy import Privacy
from hereish.core.settings import MechanismSettings
from hereish.core.windows import Every
from hereish.errors import ParameterError
from hereish.evaluation import settings_file

_PROMISE = "What is promised"
SPENDING = "How it is spent"
_SPENDING = f"{SPENDING}: --accuracy or --reports"
_WEAK_LEVEL = math.log(100.0)
_SHORT_WINDOW_S = 3600.0
_IN_SETTINGS_FILE = ("level", "radius", "accuracy", "reports", "mechanism", "skip_speed")


@dataclass(frozen=True)
class MechanismOptions:
    """The options as they are given."""

    level: str
    radius: str
    accuracy: str | None
    reports: int | None
    mechanism: Literal["predictive", "independent"]
    skip_speed: str
    settings: str | None

    def mechanism_settings(self) -> MechanismSettings:
        """What the options describe, or the settings file that they name."""
        if self.settings is not None:
            _refuse_options_in_settings_file()
            return settings_file.read(self.settings)
        check_accuracy_or_reports(self.accuracy, self.reports)
        privacy = parse_privacy(self.level, self.radius)
        return MechanismSettings(
            privacy.level,
            privacy.radius_m,
            accuracy_m=None if self.accuracy is None else _units.length_m(self.accuracy),
            reports=self.reports,
            mechanism=self.mechanism,
            skip_kmh=None if self.skip_speed == "off" else _units.speed_kmh(self.skip_speed),
        )


def parse_privacy(level: str, radius: str) -> Privacy:
    """The promise of --level and --radius."""
    return Privacy(_units.level(level), _units.length_m(radius))


def _refuse_options_in_settings_file() -> None:
    for name in _IN_SETTINGS_FILE:
        if is_on_command_line(name):
            flag = f"--{name.replace('_', '-')}"
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
    if isinstance(window, Every) and window.duration.total_seconds() < _SHORT_WINDOW_S:
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
# The fields of MechanismOptions.
MECHANISM_OPTIONS = combine(
    PRIVACY_OPTIONS,
    option(
        _SPENDING, "--accuracy", help="Fresh reports lie within this, nine times out of ten: 3km."
    ),
    option(
        _SPENDING, "--reports", type=int, help="About how many reports the budget shall last for."
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
        "--settings",
        metavar="FILE",
        type=click.Path(),
        help="A file that hereish tune has written, in place of --accuracy and the other settings.",
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
