"""`hereish tune`: settings that suit people like those in some data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

import hereish
from hereish.cli import _preset_tuning, _units
from hereish.cli._command_lines import is_on_command_line
from hereish.cli._datasets import choose_time_zone, load_datasets
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
from hereish.cli._preset_tuning import PresetTuning
from hereish.cli._progress import Progress
from hereish.core.mechanism import check_accuracy_or_reports
from hereish.core.settings import PREDICTIONS, PRESETS, PredictionName, Preset
from hereish.errors import ParameterError
from hereish.evaluation import dataset, settings_file, tuning

EXAMPLE = """\b
Examples:
  hereish tune -o settings.toml --trials 4 --p 0.5
  hereish tune geolife.parquet -o settings.toml --p 0.1 --trials 8 --picture pareto_front.png
  hereish tune -o walker.toml --preset walker --p 0.5 --trials 4
  hereish sanitize walk.gpx -o public.gpx --settings settings.toml
"""
WARNING = (
    "These settings were tuned on people's traces and are derived from them: if the traces are "
    "secret, tune on others."
)
_WHAT = "What is tuned"
_P = 0.2  # if none is given


@dataclass(frozen=True)
class TuningOptions:
    """What is tuned for what, and how thoroughly."""

    level: str
    radius: str
    preset: Preset | None
    prediction: PredictionName | None
    accuracy: str | None
    reports: int | None
    p: tuple[float, ...]
    every: tuple[str, ...]
    sampling: Literal["authors", "gaps"]
    memory: bool
    skip: tuning.SkipChoice

    @property
    def ps(self) -> tuple[float, ...]:
        return self.p or (_P,)

    def of_preset(self) -> PresetTuning | None:
        """What --preset asks for; None for the paper's fixed utility."""
        if self.preset in (None, "paper-utility"):
            for name in ("every", "memory"):
                if is_on_command_line(name):
                    raise ParameterError(f"--{name} needs a --preset other than paper-utility")
            if len(self.ps) > 1:
                raise ParameterError("several --p need a --preset other than paper-utility")
            return None
        if is_on_command_line("skip"):
            raise ParameterError(f"the preset {self.preset} skips no tests: leave out --skip")
        return PresetTuning(
            self.preset,
            parse_privacy(self.level, self.radius),
            self.accuracy,
            self.reports,
            self.ps,
            self.every,
            self.sampling,
            self.memory,
            self.prediction,
        )

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
        "--preset",
        type=click.Choice(list(PRESETS)),
        help="The preset whose numbers are tuned. The paper's fixed utility if not given.",
    ),
    option(
        _WHAT,
        "--prediction",
        type=click.Choice(list(PREDICTIONS)),
        help="What guesses follow from, as in hereish sanitize. That of the preset if not given.",
    ),
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
        multiple=True,
        help="How often an hour lies between two queries, and not a minute; 0.2 if not given. A "
        "preset is tuned for several at once.",
    ),
    option(
        _WHAT,
        "--every",
        multiple=True,
        metavar="TIME",
        help="The time between queries of whole days, for presets that pace. More than once.",
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
        "--memory",
        is_flag=True,
        help="Traces of a user follow one another, and what was released before is remembered.",
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
    """Find the numbers of a mechanism that suit people like those in DATA.

    Of the paper's fixed utility, they are eta, gamma, the noise and the pause between tests; of a
    --preset, its own. Some of the users are tuned on, and the result is measured on the others.
    Without DATA it is the made-up city. The guarantee does not depend on any of these settings.
    """
    of_preset = options.of_preset()
    goal = options.goal() if of_preset is None else None
    path = Path(out)
    if path.is_dir() or not path.parent.is_dir():
        raise ParameterError(f"-o must name a file in an existing folder, found {out}")
    if len(names) > 1:
        raise ParameterError("tune on one data set at a time: a file, a folder or a glob")
    if goal is None and search.picture is not None:
        raise ParameterError("--picture is of the paper's fixed utility: leave it out")
    make_up = dataset.synthetic if goal is not None else dataset.synthetic_days
    ((trajectories, _),) = load_datasets(names, source, run, make_up)
    if of_preset is not None:
        zone = None
        if of_preset.of_days:
            zone = choose_time_zone(names, trajectories, source, run)
        _tune_preset(of_preset, trajectories, zone, search, seed, run, path)
        return
    if goal is None:  # there is one where there is no preset
        return
    with Progress("tuning", run.quiet, "trials") as progress:
        tuned = tuning.tune(
            trajectories,
            goal,
            p=options.ps[0],
            gaps=options.sampling == "gaps",
            skip=options.skip,
            prediction=options.prediction,
            trials=search.trials,
            train_share=search.train_share,
            seed=seed,
            jobs=run.threads,
            progress=progress,
        )
    about: dict[str, Any] = {
        "data": trajectories.name,
        "sampling": options.sampling,
        "p": options.ps[0],
        "training_users": tuned.training_users,
        "held_out_users": tuned.held_out_users,
        "trials": search.trials,
        "seed": seed,
        "hereish": hereish.__version__,
    }
    measured = _measurements(tuned)
    _write(path, settings_file.format_settings(tuned.settings, about, measured))
    if search.picture is not None:
        from hereish.evaluation.figures import pareto_front

        pareto_front.draw(tuned, Path(search.picture))
    if run.as_json:
        click.echo(json.dumps({"about": about, "measured": measured}, indent=2))
    elif not run.quiet:
        click.echo(summarise(tuned))
    if not run.quiet:
        note(WARNING)


def _tune_preset(
    wanted: PresetTuning,
    trajectories: dataset.Trajectories,
    time_zone: str | None,
    search: SearchOptions,
    seed: int,
    run: RunOptions,
    path: Path,
) -> None:
    with Progress("tuning", run.quiet, "trials") as progress:
        tuned, training = wanted.run(
            trajectories,
            time_zone,
            trials=search.trials,
            train_share=search.train_share,
            seed=seed,
            jobs=run.threads,
            progress=progress,
        )
    seen = int(training.sum())
    about: dict[str, Any] = {
        "data": trajectories.name,
        "situations": list(tuned.held_out),
        "sampling": wanted.sampling,
        "memory": wanted.memory,
        "training_users": seen,
        "held_out_users": len(training) - seen,
        "trials": search.trials,
        "seed": seed,
        "score": tuned.best.score,
        "hereish": hereish.__version__,
    }
    measured = _preset_tuning.measurements(tuned)
    _write(path, settings_file.format_settings(tuned.settings, about, measured))
    if run.as_json:
        click.echo(json.dumps({"about": about, "measured": measured}, indent=2))
    elif not run.quiet:
        click.echo(_preset_tuning.summarise(tuned, training))
    if not run.quiet:
        note(WARNING)


def _write(path: Path, text: str) -> None:
    """All of it or nothing."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


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
