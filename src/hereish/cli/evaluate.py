"""`hereish evaluate`: the paper's case study on anybody's data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import click

from hereish.cli import _units
from hereish.cli._command_lines import is_on_command_line
from hereish.cli._datasets import identify, load_datasets
from hereish.cli._days import evaluate_days
from hereish.cli._formatting import format_distance, format_table
from hereish.cli._input_options import InputOptions, input_options
from hereish.cli._leaderboard import run_leaderboard
from hereish.cli._mechanism_options import PRIVACY_OPTIONS, SPENDING, parse_privacy
from hereish.cli._messages import note
from hereish.cli._options import (
    Command,
    RunOptions,
    collect,
    option,
    output,
    run_options,
    study_seed,
)
from hereish.cli._progress import Progress, StageTimer
from hereish.errors import ParameterError
from hereish.evaluation import dataset, day_study, query_files, study
from hereish.evaluation.break_even import Payoff, find_payoff
from hereish.evaluation.leaderboard import QUICK_CASES, Leaderboard
from hereish.evaluation.study_settings import StudySettings

EXAMPLE = """\b
Examples:
  hereish evaluate -o city --quick
  hereish evaluate geolife.parquet -o study --sampling gaps --samples 3
  hereish evaluate --sampled sampled-p0.2.csv --as-published -o authors
  hereish evaluate geolife.parquet -o days --days --time-zone Asia/Shanghai --every 30min
"""
_WHAT = "What is evaluated"
_NOT_OF_DAYS = ("sampled", "sampling", "as_published", "reports")
_NOT_OF_BOARD = ("days", "every", "sampled", "sampling", "as_published", "reports", "samples")
_TABLE_PS = (0.0, 0.2, 0.5, 1.0)  # columns of the table in the terminal


@dataclass(frozen=True)
class StudyOptions:
    """What is evaluated, and in which settings."""

    sampled: tuple[str, ...]
    sampling: Literal["authors", "gaps", "both"]
    as_published: bool
    held_out: bool
    quick: bool
    samples: int | None
    level: str
    radius: str
    accuracy: str
    reports: int
    skip_speed: str
    days: bool
    every: tuple[str, ...]
    leaderboard: bool
    trials: int | None

    def settings(self) -> StudySettings:
        """What is asked of every mechanism."""
        return StudySettings(
            privacy=parse_privacy(self.level, self.radius),
            accuracy_m=_units.length_m(self.accuracy),
            reports=self.reports,
            skip_kmh=_units.speed_kmh(self.skip_speed),
            as_published=self.as_published,
        )

    def grid(self, seed: int) -> study.Study:
        """The grid that the options describe."""
        return study.Study(
            settings=self.settings(),
            samples=1 if self.quick else self.samples or 10,
            seed=seed,
            most_traces=study.QUICK_TRACES if self.quick else None,
        )

    def whole_days(self, seed: int) -> day_study.DayStudy:
        """The study of whole days that the options describe."""
        for name in _NOT_OF_DAYS:
            if is_on_command_line(name):
                flag = f"--{name.replace('_', '-')}"
                raise ParameterError(
                    f"{flag} is of the paper's case study and not of --days: leave out {flag}"
                )
        every_s = dict.fromkeys(_units.duration_s(text) for text in self.every)
        return day_study.DayStudy(
            settings=self.settings(),
            every_s=tuple(every_s) or (day_study.EVERY_S,),
            samples=1 if self.quick else self.samples or 10,
            seed=seed,
            most_users=day_study.QUICK_USERS if self.quick else None,
            held_out=self.held_out,
        )

    def board(self, seed: int) -> Leaderboard:
        """The leaderboard that the options describe."""
        for name in _NOT_OF_BOARD:
            if is_on_command_line(name):
                flag = f"--{name.replace('_', '-')}"
                raise ParameterError(f"{flag} is not of --leaderboard: leave out {flag}")
        plain = Leaderboard(self.settings(), seed=seed)
        if self.quick:
            plain = replace(plain, cases=QUICK_CASES, trials=4, held_out_samples=1)
        return plain if self.trials is None else replace(plain, trials=self.trials)

    def samplings(self) -> tuple[study.Sampling, ...]:
        return ("authors", "gaps") if self.sampling == "both" else (self.sampling,)


@click.command(cls=Command, epilog=EXAMPLE, short_help="the paper's case study")
@click.argument("names", nargs=-1, metavar="[DATA]...", type=click.Path())
@output(
    "FOLDER",
    "For results.parquet, days.parquet or leaderboard.md, and the figures; what is finished there "
    "of the case study or a leaderboard is not done again.",
    folder=True,
)
@collect(
    "options",
    StudyOptions,
    option(
        _WHAT,
        "--sampled",
        multiple=True,
        metavar="FILE",
        type=click.Path(),
        help="Query traces that are sampled already: trace_id, t, lat, lon. More than once.",
    ),
    option(
        _WHAT,
        "--sampling",
        type=click.Choice(["authors", "gaps", "both"]),
        default="both",
        show_default=True,
        help="What a silent logger means: somebody who is still (authors), or the end of a trace.",
    ),
    option(
        _WHAT,
        "--as-published",
        is_flag=True,
        help="By the rules of the authors' program, not by ours.",
    ),
    option(
        _WHAT,
        "--days",
        is_flag=True,
        help="In place of the case study: what a receiver believes on whole days. They are those "
        "of --time-zone or, without it, of whole hours by the longitude of the data.",
    ),
    option(
        _WHAT,
        "--every",
        multiple=True,
        metavar="DURATION",
        help="With --days: the time between two queries. 30min if not given. More than once.",
    ),
    option(
        _WHAT,
        "--leaderboard",
        is_flag=True,
        help="Every mechanism tuned on some of the users and scored on the others; a page of it.",
    ),
    option(
        _WHAT,
        "--trials",
        type=click.IntRange(1),
        help="To tune each mechanism of a leaderboard. 40 if not given.",
    ),
    option(
        _WHAT,
        "--held-out",
        is_flag=True,
        help="With --days: only users that hereish tune, with the same --seed, does not tune on.",
    ),
    option(
        _WHAT, "--quick", is_flag=True, help="One sample of 500 traces, or of days of 50 users."
    ),
    option(
        _WHAT,
        "--samples",
        type=click.IntRange(1),
        help="Query traces per trajectory, or runs of each trace of --sampled and each user of "
        "--days. 10 if not given.",
    ),
    PRIVACY_OPTIONS,
    option(SPENDING, "--accuracy", default="3km", show_default=True, help="Of the fixed utility."),
    option(
        SPENDING,
        "--reports",
        type=click.IntRange(2),
        default=30,
        show_default=True,
        help="Of the fixed rate. With --days it is as many as fit 24 hours.",
    ),
    option(
        SPENDING,
        "--skip-speed",
        default="30km/h",
        show_default=True,
        help="Where tests are skipped.",
    ),
)
@input_options()
@study_seed("The same table again.")
@run_options(
    "Threads. One per core if not given.",
    "The results for programs.",
)
def command(
    names: tuple[str, ...],
    out: str,
    options: StudyOptions,
    source: InputOptions,
    seed: int,
    run: RunOptions,
) -> None:
    """Run the case study: query traces of p = 0, 0.1, …, 1 from trajectories, both budget managers
    with and without skipping, against independent noise; tables, intervals and figures. With
    --days it is what a receiver believes on whole days; with --leaderboard every mechanism is tuned
    on some of the users and scored on the others.

    Each DATA is a data set: a file, a folder, or a glob. Without any it is the made-up city.
    """
    folder = Path(out)
    if options.leaderboard:
        run_leaderboard(names, options.board(seed), options.quick, folder, source, run)
        return
    if options.trials is not None:
        raise ParameterError("--trials are of a leaderboard: give --leaderboard as well")
    if options.days:
        evaluate_days(names, options.whole_days(seed), folder, source, run)
        return
    if options.held_out:
        raise ParameterError("--held-out is of whole days: give --days as well")
    if options.every:
        raise ParameterError(
            "--every is the time between queries of whole days: give --days as well, or leave out "
            "--every"
        )
    grid = options.grid(seed)
    folder.mkdir(parents=True, exist_ok=True)
    stages = StageTimer()
    cells = [*_sampled_cells(options.sampled)]
    datasets = []
    if names or not options.sampled:
        for trajectories, identity in load_datasets(names, source, run):
            stages.end("reading")
            datasets.append(trajectories)
            cells += study.cells(grid, trajectories, identity, options.samplings())
            stages.end("choosing trajectories")
    with Progress("evaluating", run.quiet, "cells") as progress:
        rows = study.run(grid, cells, folder, jobs=run.threads, progress=progress)
    stages.end("sampling and sanitising")
    study.write_table(rows, folder / "results.parquet")
    figures = _draw_figures(rows, datasets, grid, folder)
    stages.end("figures")
    if run.as_json:
        click.echo(json.dumps({"rows": rows, "seconds": stages.seconds}))
    elif not run.quiet:
        click.echo(summarise(rows, grid.settings))
        click.echo(f"\n{folder / 'results.parquet'} and {figures} figures. {stages}")


def _sampled_cells(paths: tuple[str, ...]) -> Iterator[study.Cell]:
    for path in paths:
        queries, p = query_files.read(path)
        name = query_files.dataset_name(path)
        yield study.cell_of_queries(name, identify([Path(path)]), p, queries)


def _draw_figures(
    rows: list[study.Row], datasets: list[dataset.Trajectories], grid: study.Study, folder: Path
) -> int:
    """How many were drawn."""
    try:
        from hereish.evaluation.figures import files
    except ImportError:
        note("figures need matplotlib: pip install 'hereish[plot]'")
        return 0
    drawn = len(files.draw_study(rows, folder))
    if datasets:
        kept, slow = dataset.select_on_foot(datasets[0])
        path = folder / "true-trace.png"
        drawn += files.draw_trace(kept, slow, path, grid.seed, grid.settings)
    return drawn


def summarise(rows: list[study.Row], settings: StudySettings) -> str:
    """One table of the main metrics per data set and sampling."""
    groups = list(dict.fromkeys((row["dataset"], row["sampling"]) for row in rows))
    parts = []
    for name, sampling in groups:
        own = [row for row in rows if (row["dataset"], row["sampling"]) == (name, sampling)]
        found = {row["p"] for row in own}
        ps: list[float | None] = [p for p in _TABLE_PS if p in found] or sorted(
            found, key=lambda p: p or 0.0
        )
        traces = max(row["traces"] for row in own)
        parts.append(f"{name}, sampling: {sampling}, up to {traces:,} query traces\n")
        parts[-1] += _format_table(own, ps) + "\n" + _describe_payoff(find_payoff(own, settings))
    return "\n\n".join(parts)


def _describe_payoff(payoff: Payoff) -> str:
    if payoff.rate_crosses is None:
        return "Fixed utility without skipping does not stop paying off at any p that was tried."
    at = "at none"
    if payoff.prediction_crosses is not None:
        at = f"at p = {payoff.prediction_crosses:.2f}"
    return (
        f"Fixed utility without skipping stops paying off at p = {payoff.rate_crosses:.2f}; its "
        f"prediction rate falls below the break-even of {payoff.break_even:.1%} {at}."
    )


def _format_table(rows: list[study.Row], ps: list[float | None]) -> str:
    names = list(dict.fromkeys((r["mechanism"], r["manager"], r["skip"]) for r in rows))
    head = ["", *(f"p = {'?' if p is None else f'{p:g}'}" for p in ps)]
    lines = [head]
    metrics: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
        ("rate", "rate", lambda value: f"{value:.2%}"),
        ("rate_pooled", "pooled rate", lambda value: f"{value:.2%}"),
        ("error_mean_m", "average error", format_distance),
        ("error_p90_m", "90 % within", format_distance),
    )
    for mechanism, manager, skip in names:
        own = {
            row["p"]: row
            for row in rows
            if (row["mechanism"], row["manager"], row["skip"]) == (mechanism, manager, skip)
        }
        private = "" if next(iter(own.values()))["private"] else " (not private)"
        label = f"{mechanism}, {manager.replace('_', ' ')}{', skip' if skip else ''}{private}"
        lines.append([label, *("" for _ in ps)])
        for field, name, form in metrics:
            values = [own[p][field] for p in ps]
            if any(value is not None for value in values):
                texts = ["-" if value is None else form(value) for value in values]
                lines.append([f"  {name}", *texts])
    return format_table(lines)
