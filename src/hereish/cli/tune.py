"""`hereish tune`: settings that suit people like those in some data."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

import hereish
from hereish.cli import _options, _units
from hereish.cli._datasets import trajectories
from hereish.cli._progress import Progress
from hereish.cli._wording import far
from hereish.core.privacy import Privacy
from hereish.errors import ParameterError
from hereish.evaluation import settings, tuning
from hereish.traces.columns import Columns

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
_WHAT, _HOW = "What is tuned", "How it runs"


@click.command(cls=_options.Command, epilog=EXAMPLE, short_help="settings that suit your people")
@click.argument("names", nargs=-1, metavar="[DATA]...", type=click.Path())
@_options.output("FILE", "Such as settings.toml.")
@_options.promise
@_options.option(
    _WHAT,
    "--accuracy",
    help="Spend as little as possible with errors as of independent noise of this accuracy. 3km if "
    "neither this nor --reports is given.",
)
@_options.option(
    _WHAT,
    "--reports",
    type=click.IntRange(2),
    help="Be as accurate as possible with a budget that lasts for this many reports.",
)
@_options.option(
    _WHAT,
    "--p",
    type=click.FloatRange(0.0, 1.0),
    default=0.2,
    show_default=True,
    help="How often an hour lies between two queries, and not a minute.",
)
@_options.option(
    _WHAT,
    "--sampling",
    type=click.Choice(["authors", "gaps"]),
    default="gaps",
    show_default=True,
    help="What a silent logger means: somebody who is still, or the end of a trace.",
)
@_options.option(
    _WHAT,
    "--skip",
    type=click.Choice(["off", "hard", "tested", "any"]),
    default="any",
    show_default=True,
    help="Never spare a test; for a while after fresh noise; also after a passed test; the best.",
)
@_options.columns
@_options.option(
    _HOW,
    "--trials",
    type=click.IntRange(4),
    default=150,
    show_default=True,
    help="How many to try.",
)
@_options.option(
    _HOW,
    "--train-share",
    type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True),
    default=0.5,
    show_default=True,
    help="Of the users, to tune on; the others are to measure on.",
)
@_options.option(
    _HOW, "--picture", metavar="PNG", type=click.Path(), help="Error against rate of all trials."
)
@_options.option(
    _HOW, "--seed", type=int, default=1, show_default=True, help="For the same result."
)
@_options.option(_HOW, "--jobs", type=click.IntRange(1), help="Threads. All cores if not.")
@_options.option(_HOW, "--quiet", is_flag=True, help="Say nothing unless it fails.")
@_options.option(_HOW, "--json", "as_json", is_flag=True, help="What was measured, for programs.")
def command(
    names: tuple[str, ...],
    out: str,
    level: str,
    radius: str,
    accuracy: str | None,
    reports: int | None,
    p: float,
    sampling: str,
    skip: tuning.Clock,
    user: str | None,
    trace: str | None,
    time: str | None,
    lat: str | None,
    lon: str | None,
    form: str | None,
    time_zone: str | None,
    trials: int,
    train_share: float,
    picture: str | None,
    seed: int,
    jobs: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Find eta, gamma, the noise and the pause between tests that suit people like those in DATA.

    Some of the users are tuned on, and the result is measured on the others. Without DATA it is the
    made-up city. The guarantee does not depend on any of these settings.
    """
    if accuracy is not None and reports is not None:
        raise ParameterError("give either --accuracy, such as 3km, or --reports, such as 30")
    path = Path(out)
    if path.is_dir() or not path.parent.is_dir():
        raise ParameterError(f"-o must name a file in a folder that is there, found {out}")
    privacy = Privacy(_units.level(level), _units.length_m(radius))
    goal = tuning.Goal.of_accuracy(privacy, _units.length_m(accuracy or "3km"))
    if reports is not None:
        goal = tuning.Goal(privacy, goal.mean_m, goal.p90_m, 1.0 / reports)
    columns = Columns(user, trace, time, lat, lon, zone=_options.zone(time_zone))
    threads = jobs or os.cpu_count() or 1
    ((given, _),) = trajectories(names[:1], columns, form, threads, quiet)
    if len(names) > 1:
        raise ParameterError("tune on one data set at a time: a file, a folder or a glob")
    with Progress("tuning", quiet, "trials") as progress:
        tuned = tuning.tune(
            given,
            goal,
            p=p,
            gaps=sampling == "gaps",
            clock=skip,
            trials=trials,
            train_share=train_share,
            seed=seed,
            jobs=threads,
            progress=progress,
        )
    about = {
        "data": given.name,
        "sampling": sampling,
        "p": p,
        "training_users": tuned.training_users,
        "held_out_users": tuned.held_out_users,
        "trials": trials,
        "seed": seed,
        "hereish": hereish.__version__,
    }
    measured = _measured(tuned)
    part = path.with_name(f".{path.name}.part")
    part.write_text(settings.text(tuned.settings, about, measured), encoding="utf-8")
    part.replace(path)
    if picture is not None:
        from hereish.evaluation.figures import pareto_front

        pareto_front.draw(tuned, Path(picture))
    if as_json:
        click.echo(json.dumps({"about": about, "measured": measured}, indent=2))
    elif not quiet:
        click.echo(summary(tuned))
    if not quiet:
        click.echo(f"hereish: note: {WARNING}", err=True)


def _measured(tuned: tuning.Tuned) -> dict[str, float | bool]:
    """What is told of the users that were not seen."""
    told: dict[str, float | bool] = {}
    for name, (numbers, low, high) in tuned.held_out.items():
        told |= {
            f"{name}_rate": numbers.rate,
            f"{name}_rate_lo": low.rate,
            f"{name}_rate_hi": high.rate,
            f"{name}_error_mean_m": numbers.error_mean_m,
            f"{name}_error_p90_m": numbers.error_p90_m,
        }
    return told | {"within_limits": tuned.within_limits}


def summary(tuned: tuning.Tuned) -> str:
    """How the settings do, beside others, for users that were not seen."""
    lines = [
        f"Tuned on {tuned.training_users} users; measured on {tuned.held_out_users} others, "
        f"{tuned.held_out_traces:,} query traces:"
    ]
    for name, (numbers, low, high) in tuned.held_out.items():
        lines.append(
            f"  {name:12} rate {numbers.rate:.2%} ({low.rate:.2%} to {high.rate:.2%}), "
            f"{1 / numbers.rate:.0f} reports; average error {far(numbers.error_mean_m)}, 90 % "
            f"within {far(numbers.error_p90_m)}"
        )
    if tuned.goal.rate is None and not tuned.within_limits:
        lines.append(
            "For the users that were not seen the errors are above the limits of "
            f"{far(tuned.goal.mean_m)} and {far(tuned.goal.p90_m)}: more users to tune on may help."
        )
    return "\n".join(lines)
