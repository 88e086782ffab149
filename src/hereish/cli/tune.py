"""`hereish tune`: settings that suit people like those in some data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

import hereish
from hereish.cli import _units
from hereish.cli._datasets import load_datasets
from hereish.cli._formatting import format_distance
from hereish.cli._input_options import InputOptions, input_options
from hereish.cli._mechanism_options import PRIVACY_OPTIONS, parse_privacy
from hereish.cli._messages import note
from hereish.cli._options import (
    RUNNING,
    Command,
    RunOptions,
    collect,
    option,
    output,
    run_options,
    study_seed,
)
from hereish.cli._progress import Progress
from hereish.core.mechanism import check_accuracy_or_reports
from hereish.errors import ParameterError
from hereish.evaluation import settings_file, tuning

EXAMPLE = """\b
Examples:
  hereish tune -o settings.toml --trials 12 --p 0.5
  hereish tune geolife.parquet -o settings.toml --p 0.1 --trials 8 --picture pareto_front.png
  hereish sanitize walk.gpx -o public.gpx --settings settings.toml
"""
WARNING = (
    "These settings were tuned on people's traces and are derived from them: if the traces are "
    "secret, tune on others."
)
_WHAT = "What is tuned"


@dataclass(frozen=True)
class TuningOptions:
    """What is tuned for what, and how thoroughly."""

    level: str
    radius: str
    accuracy: str | None
    reports: int | None
    p: float
    sampling: Literal["authors", "gaps"]
    skip: tuning.SkipChoice

    def goal(self) -> tuning.Goal:
        """The least rate at an accuracy, or the least error at a rate."""
        accuracy = "3km" if self.accuracy is None and self.reports is None else self.accuracy
        check_accuracy_or_reports(accuracy, self.reports)
        privacy = parse_privacy(self.level, self.radius)
        goal = tuning.Goal.of_accuracy(privacy, _units.length_m(accuracy or "3km"))
        if self.reports is None:
            return goal
        return tuning.Goal(privacy, goal.mean_m, goal.p90_m, 1.0 / self.reports)


@dataclass(frozen=True)
class SearchOptions:
    """How thoroughly settings are searched for."""

    trials: int
    train_share: float
    picture: str | None


@click.command(cls=Command, epilog=EXAMPLE, short_help="settings that suit your people")
@click.argument("names", nargs=-1, metavar="[DATA]...", type=click.Path())
@output("FILE", "Such as settings.toml.")
@collect(
    "options",
    TuningOptions,
    PRIVACY_OPTIONS,
    option(
        _WHAT,
        "--accuracy",
        help="Spend as little as possible with errors as of independent noise of this accuracy. "
        "3km if neither this nor --reports is given.",
    ),
    option(
        _WHAT,
        "--reports",
        type=click.IntRange(2),
        help="Be as accurate as possible with a budget that lasts for this many reports.",
    ),
    option(
        _WHAT,
        "--p",
        type=click.FloatRange(0.0, 1.0),
        default=0.2,
        show_default=True,
        help="How often an hour lies between two queries, and not a minute.",
    ),
    option(
        _WHAT,
        "--sampling",
        type=click.Choice(["authors", "gaps"]),
        default="gaps",
        show_default=True,
        help="What a silent logger means: somebody who is still, or the end of a trace.",
    ),
    option(
        _WHAT,
        "--skip",
        type=click.Choice(["off", "hard", "tested", "any"]),
        default="any",
        show_default=True,
        help="When tests may be skipped. off: never; hard: for a while after fresh noise; tested: "
        "also after a passed test; any: whichever of these does best.",
    ),
)
@input_options()
@collect(
    "search",
    SearchOptions,
    option(
        RUNNING,
        "--trials",
        type=click.IntRange(4),
        default=150,
        show_default=True,
        help="How many to try.",
    ),
    option(
        RUNNING,
        "--train-share",
        type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True),
        default=0.5,
        show_default=True,
        help="Of the users, to tune on; the others are to measure on.",
    ),
    option(
        RUNNING,
        "--picture",
        metavar="PNG",
        type=click.Path(),
        help="Error against rate of all trials.",
    ),
)
@study_seed("For the same result.")
@run_options(
    "Threads. One per core if not given.",
    "What was measured, for programs.",
)
def command(
    names: tuple[str, ...],
    out: str,
    options: TuningOptions,
    source: InputOptions,
    search: SearchOptions,
    seed: int,
    run: RunOptions,
) -> None:
    """Find eta, gamma, the noise and the pause between tests that suit people like those in DATA.

    Some of the users are tuned on, and the result is measured on the others. Without DATA it is the
    made-up city. The guarantee does not depend on any of these settings.
    """
    goal = options.goal()
    path = Path(out)
    if path.is_dir() or not path.parent.is_dir():
        raise ParameterError(f"-o must name a file in an existing folder, found {out}")
    if len(names) > 1:
        raise ParameterError("tune on one data set at a time: a file, a folder or a glob")
    ((trajectories, _),) = load_datasets(names, source, run)
    with Progress("tuning", run.quiet, "trials") as progress:
        tuned = tuning.tune(
            trajectories,
            goal,
            p=options.p,
            gaps=options.sampling == "gaps",
            skip=options.skip,
            trials=search.trials,
            train_share=search.train_share,
            seed=seed,
            jobs=run.threads,
            progress=progress,
        )
    about: dict[str, Any] = {
        "data": trajectories.name,
        "sampling": options.sampling,
        "p": options.p,
        "training_users": tuned.training_users,
        "held_out_users": tuned.held_out_users,
        "trials": search.trials,
        "seed": seed,
        "hereish": hereish.__version__,
    }
    measured = _measurements(tuned)
    part = path.with_name(f".{path.name}.part")
    part.write_text(
        settings_file.format_settings(tuned.settings, about, measured), encoding="utf-8"
    )
    part.replace(path)
    if search.picture is not None:
        from hereish.evaluation.figures import pareto_front

        pareto_front.draw(tuned, Path(search.picture))
    if run.as_json:
        click.echo(json.dumps({"about": about, "measured": measured}, indent=2))
    elif not run.quiet:
        click.echo(summarise(tuned))
    if not run.quiet:
        note(WARNING)


def _measurements(tuned: tuning.Tuned) -> dict[str, float | bool]:
    """The metrics of the held-out users, by name."""
    values: dict[str, float | bool] = {}
    for name, (metrics, low, high) in tuned.held_out.items():
        values |= {
            f"{name}_rate": metrics.rate,
            f"{name}_rate_lo": low.rate,
            f"{name}_rate_hi": high.rate,
            f"{name}_error_mean_m": metrics.error_mean_m,
            f"{name}_error_p90_m": metrics.error_p90_m,
        }
    return values | {"within_limits": tuned.within_limits}


def summarise(tuned: tuning.Tuned) -> str:
    """How the settings do, beside others, for held-out users."""
    lines = [
        f"Tuned on {tuned.training_users} users; measured on {tuned.held_out_users} others, "
        f"{tuned.held_out_traces:,} query traces:"
    ]
    for name, (metrics, low, high) in tuned.held_out.items():
        lines.append(
            f"  {name:12} rate {metrics.rate:.2%} ({low.rate:.2%} to {high.rate:.2%}), "
            f"{1 / metrics.rate:.0f} reports; average error "
            f"{format_distance(metrics.error_mean_m)}, 90 % within "
            f"{format_distance(metrics.error_p90_m)}"
        )
    if tuned.goal.rate is None and not tuned.within_limits:
        lines.append(
            "For the held-out users the errors are above the limits of "
            f"{format_distance(tuned.goal.mean_m)} and {format_distance(tuned.goal.p90_m)}: more "
            "users to tune on may help."
        )
    return "\n".join(lines)
