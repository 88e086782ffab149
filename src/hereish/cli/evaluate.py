"""`hereish evaluate`: the paper's case study on anybody's data."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from hereish.cli import _units
from hereish.cli._datasets import identify, load_datasets
from hereish.cli._formatting import format_distance
from hereish.cli._input_options import InputOptions, input_options
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
from hereish.cli._progress import Progress
from hereish.evaluation import dataset, query_files, study
from hereish.evaluation.break_even import Payoff, find_payoff
from hereish.evaluation.study_settings import StudySettings

EXAMPLE = """\b
Examples:
  hereish evaluate -o city --quick
  hereish evaluate geolife.parquet -o study --sampling gaps --samples 3
  hereish evaluate --sampled sampled-p0.2.csv --as-published -o authors
"""
_WHAT = "What is evaluated"
_TABLE_PS = (0.0, 0.2, 0.5, 1.0)  # columns of the table in the terminal


@dataclass(frozen=True)
class StudyOptions:
    """What is evaluated, and in which settings."""

    sampled: tuple[str, ...]
    sampling: Literal["authors", "gaps", "both"]
    as_published: bool
    quick: bool
    samples: int | None
    level: str
    radius: str
    accuracy: str
    reports: int
    skip_speed: str

    def grid(self, seed: int) -> study.Study:
        """The grid that the options describe."""
        return study.Study(
            settings=StudySettings(
                privacy=parse_privacy(self.level, self.radius),
                accuracy_m=_units.length_m(self.accuracy),
                reports=self.reports,
                skip_kmh=_units.speed_kmh(self.skip_speed),
                as_published=self.as_published,
            ),
            samples=1 if self.quick else self.samples or 10,
            seed=seed,
            most_traces=study.QUICK_TRACES if self.quick else None,
        )

    def samplings(self) -> tuple[study.Sampling, ...]:
        return ("authors", "gaps") if self.sampling == "both" else (self.sampling,)


@click.command(cls=Command, epilog=EXAMPLE, short_help="the paper's case study")
@click.argument("names", nargs=-1, metavar="[DATA]...", type=click.Path())
@output(
    "FOLDER",
    "For results.parquet and the figures; what is finished there is not done again.",
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
    option(_WHAT, "--quick", is_flag=True, help="One sample of 500 traces."),
    option(
        _WHAT,
        "--samples",
        type=click.IntRange(1),
        help="Query traces per trajectory, or runs of each trace of --sampled. 10 if not given.",
    ),
    PRIVACY_OPTIONS,
    option(SPENDING, "--accuracy", default="3km", show_default=True, help="Of the fixed utility."),
    option(
        SPENDING,
        "--reports",
        type=click.IntRange(2),
        default=30,
        show_default=True,
        help="Of the fixed rate.",
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
    with and without skipping, against independent noise; tables, intervals and figures.

    Each DATA is a data set: a file, a folder, or a glob. Without any it is the made-up city.
    """
    grid = options.grid(seed)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    stages = _StageTimer()
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


class _StageTimer:
    """How long each stage takes."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def end(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now

    def __str__(self) -> str:
        return ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in self.seconds.items())


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
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        line[0].ljust(widths[0])
        + "".join(f"  {cell:>{w}}" for cell, w in zip(line[1:], widths[1:], strict=True))
        for line in lines
    )
