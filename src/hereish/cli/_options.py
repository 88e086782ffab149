"""Options that several commands have, in groups that their help shows."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import click

from hereish import Privacy, SkipBySpeed, fixed_rate, fixed_utility, independent
from hereish.cli import _units
from hereish.cli._wording import far, long
from hereish.core.mechanism import OnExhausted, PredictiveMechanism
from hereish.core.windows import Day, Every, Window
from hereish.errors import ParameterError
from hereish.traces.formats.registry import FORMAT_NAMES
from hereish.traces.reading import UsersFrom

OTHER = "Other"
Decorator = Callable[[Callable[..., None]], Callable[..., None]]


class Option(click.Option):
    """An option that belongs to a group."""

    def __init__(self, *names: Any, group: str = OTHER, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.group = group


class Command(click.Command):
    """A command whose help shows its options by group."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if isinstance(param, click.Option) and record is not None:
                groups.setdefault(getattr(param, "group", OTHER), []).append(record)
        for group, records in sorted(groups.items(), key=lambda item: item[0] == OTHER):
            with formatter.section(group):
                formatter.write_dl(records)


def option(group: str, *names: str, **settings: Any) -> Decorator:
    """Like click.option, in a group."""
    return click.option(*names, cls=Option, group=group, **settings)


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, in this order."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        for one in reversed(options):
            function = one(function)
        return function

    return decorate


def output(metavar: str, words: str, *, folder: bool = False) -> Decorator:
    """Where a command writes to."""
    return option(
        "Where to",
        "-o",
        "--output",
        "out",
        required=True,
        metavar=metavar,
        type=click.Path(file_okay=not folder),
        help=words,
    )


_PROMISE = "What is promised"
promise = together(
    option(
        _PROMISE, "--level", default="ln 10", show_default=True, help="Privacy inside the radius."
    ),
    option(_PROMISE, "--radius", default="100m", show_default=True, help="Where it holds."),
)
SPENT = "How it is spent: --accuracy or --reports"
spending = together(
    option(SPENT, "--accuracy", help="Fresh reports lie within this, nine times out of ten: 3km."),
    option(SPENT, "--reports", type=int, help="About how many reports the budget shall last for."),
    option(
        SPENT,
        "--mechanism",
        type=click.Choice(["predictive", "independent"]),
        default="predictive",
        show_default=True,
        help="Guess and test, or fresh noise each time.",
    ),
)
tuning = together(
    option(
        SPENT,
        "--skip-speed",
        default="off",
        show_default=True,
        metavar="SPEED|off",
        help="Spare the test while somebody this fast, such as 30km/h, could not have gone far.",
    ),
    option(
        SPENT,
        "--settings",
        metavar="FILE",
        type=click.Path(),
        help="What hereish tune has written, in place of --accuracy and the other settings.",
    ),
)


def on_exhausted(group: str) -> Decorator:
    """What happens when the budget is spent."""
    return option(
        group,
        "--on-exhausted",
        type=click.Choice(["stop", "predict"]),
        default="stop",
        show_default=True,
        help="When it is spent: release nothing, or the last report again.",
    )


_PASSWORD = re.compile(r"(://[^:/@]*):[^@]*@")


def said() -> dict[str, str]:
    """The options that the command line gives, by their names in Python; flags are not among them.

    What the environment says holds for the next command too, and is not repeated; nor is a password
    in an address, since this is for printing.
    """
    ctx = click.get_current_context()
    return {
        param.name: _PASSWORD.sub(r"\1:***@", str(ctx.params[param.name]))
        for param in ctx.command.params
        if isinstance(param, click.Option)
        and param.name is not None
        and not param.is_flag
        and ctx.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE
    }


def command_line(words: str, arguments: Sequence[str], options: Mapping[str, str | None]) -> str:
    """A command of ours as a shell takes it, whatever is in the values."""
    given = [
        part
        for name, value in options.items()
        if value is not None
        for part in (f"--{name.replace('_', '-')}", value)
    ]
    dashed = any(argument.startswith("-") for argument in arguments)
    rest = [*given, "--", *arguments] if dashed else [*arguments, *given]
    return shlex.join(["hereish", *words.split(), *rest])


_WEAK_LEVEL = math.log(100.0)
_SHORT_WINDOW_S = 3600.0


def warn(words: str) -> None:
    """On standard error; what was asked for is done all the same."""
    click.echo(f"hereish: warning: {words}", err=True)


def warned(mechanism: PredictiveMechanism) -> PredictiveMechanism:
    """The same mechanism, after a warning if it promises little."""
    level, radius_m = mechanism.privacy.level, mechanism.privacy.radius_m
    if level > _WEAK_LEVEL:
        odds = f"{math.exp(level):.4g}" if level < math.log(1e6) else "more than a million"
        warn(
            f"level {level:.4g} lets an observer tell two places {far(radius_m)} apart with odds "
            f"of {odds} to 1; above ln 100 (100 to 1) that is hardly private: choose a lower "
            "level, such as 'ln 10', or a larger radius"
        )
    window = mechanism.window
    if isinstance(window, Every) and window.duration.total_seconds() < _SHORT_WINDOW_S:
        length_s = window.duration.total_seconds()
        budgets = f"{86400.0 / length_s:.0f}"
        warn(
            f"a window of {long(length_s)} is {budgets} budgets a day, and together they tell up "
            f"to {budgets} times as much as the level says: choose a window of hours, or day"
        )
    return mechanism


_IN_SETTINGS = ("level", "radius", "accuracy", "reports", "mechanism", "skip_speed")


def unless_in_settings() -> None:
    """Refuse options that a file of settings says already."""
    ctx = click.get_current_context()
    for name in _IN_SETTINGS:
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise ParameterError(
                f"--settings says it already: leave out --{name.replace('_', '-')}"
            )


_COLUMNS = "What is read"
columns = together(
    option(_COLUMNS, "--user", help="Column of the users; @file or @folder: each is a user."),
    option(_COLUMNS, "--trace", help="Column of the traces."),
    option(_COLUMNS, "--time", help="Column of the times."),
    option(_COLUMNS, "--lat", help="Column of the latitudes."),
    option(_COLUMNS, "--lon", help="Column of the longitudes."),
    option(
        _COLUMNS,
        "--format",
        "form",
        type=click.Choice(FORMAT_NAMES),
        help="Of the input, where its name does not tell.",
    ),
    option(
        _COLUMNS,
        "--time-zone",
        metavar="NAME",
        help="Such as Europe/Helsinki: of days, and of times that do not say theirs. UTC if not "
        "given.",
    ),
)


def users(name: str | None) -> tuple[str | None, UsersFrom | None]:
    """What --user says: a column, or where else users come from."""
    if name == "@file":
        return None, "file"
    return (None, "folder") if name == "@folder" else (name, None)


def zone(name: str | None) -> ZoneInfo | None:
    """A time zone by its name."""
    if name is None:
        return None
    Day(name)  # says what is wrong with it
    return ZoneInfo(name)


def mechanism(
    level: str,
    radius: str,
    accuracy: str | None,
    reports: int | None,
    kind: str,
    *,
    skip_speed: str = "off",
    window: Window | None = None,
    on_exhausted: OnExhausted = "stop",
) -> PredictiveMechanism:
    """The mechanism that the options describe, after a warning if it promises little."""
    privacy = Privacy(_units.level(level), _units.length_m(radius))
    if (accuracy is None) == (reports is None):
        raise ParameterError("give either --accuracy, such as 3km, or --reports, such as 30")
    accuracy_m = None if accuracy is None else _units.length_m(accuracy)
    skip = None if skip_speed == "off" else SkipBySpeed(kmh=_units.speed_kmh(skip_speed))
    if kind == "independent":
        if skip is not None:
            raise ParameterError("--skip-speed spares tests, and independent noise has none")
        return warned(
            independent(
                privacy,
                reports=reports,
                accuracy_m=accuracy_m,
                window=window,
                on_exhausted=on_exhausted,
            )
        )
    if accuracy_m is not None:
        return warned(
            fixed_utility(privacy, accuracy_m, skip=skip, window=window, on_exhausted=on_exhausted)
        )
    return warned(
        fixed_rate(privacy, reports or 0, skip=skip, window=window, on_exhausted=on_exhausted)
    )
