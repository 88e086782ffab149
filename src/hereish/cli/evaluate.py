"""`hereish evaluate`: the paper's case study on anybody's data."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from hereish.cli import _options, _units
from hereish.cli._datasets import identity, trajectories
from hereish.cli._progress import Progress
from hereish.cli._wording import far
from hereish.core.privacy import Privacy
from hereish.errors import ParameterError
from hereish.evaluation import dataset, query_files, study
from hereish.evaluation.break_even import Payoff, payoff
from hereish.evaluation.configurations import Setting
from hereish.traces.columns import Columns

EXAMPLE = """\b
Examples:
  hereish evaluate -o city --quick
  hereish evaluate geolife.parquet -o study --sampling gaps --samples 3
  hereish evaluate --sampled sampled-p0.2.csv --as-published -o authors
"""
_WHAT, _HOW = "What is evaluated", "How it runs"
_SHOWN = (0.0, 0.2, 0.5, 1.0)  # of p, in the terminal


@click.command(cls=_options.Command, epilog=EXAMPLE, short_help="the paper's case study")
@click.argument("names", nargs=-1, metavar="[DATA]...", type=click.Path())
@_options.output(
    "FOLDER",
    "For results.parquet and the figures; what is finished there is not done again.",
    folder=True,
)
@_options.option(
    _WHAT,
    "--sampled",
    multiple=True,
    metavar="FILE",
    type=click.Path(),
    help="Query traces that are sampled already: trace_id, t, lat, lon. More than once.",
)
@_options.option(
    _WHAT,
    "--sampling",
    type=click.Choice(["authors", "gaps", "both"]),
    default="both",
    show_default=True,
    help="What a silent logger means: somebody who is still (authors), or the end of a trace.",
)
@_options.option(
    _WHAT, "--as-published", is_flag=True, help="By the rules of the authors' program, not by ours."
)
@_options.option(_WHAT, "--quick", is_flag=True, help="One sample of 500 traces.")
@_options.option(
    _WHAT,
    "--samples",
    type=click.IntRange(1),
    help="Of each trace, or runs of each that is given. 10 if not given.",
)
@_options.promise
@_options.option(
    "How it is spent",
    "--accuracy",
    default="3km",
    show_default=True,
    help="Of the fixed utility.",
)
@_options.option(
    "How it is spent",
    "--reports",
    type=click.IntRange(2),
    default=30,
    show_default=True,
    help="Of the fixed rate.",
)
@_options.option(
    "How it is spent",
    "--skip-speed",
    default="30km/h",
    show_default=True,
    help="Where tests are skipped.",
)
@_options.columns
@_options.option(
    _HOW, "--seed", type=int, default=1, show_default=True, help="The same table again."
)
@_options.option(_HOW, "--jobs", type=click.IntRange(1), help="Threads. All cores if not.")
@_options.option(_HOW, "--quiet", is_flag=True, help="Say nothing unless it fails.")
@_options.option(_HOW, "--json", "as_json", is_flag=True, help="The results for programs.")
def command(
    names: tuple[str, ...],
    out: str,
    sampled: tuple[str, ...],
    sampling: str,
    as_published: bool,
    quick: bool,
    samples: int | None,
    level: str,
    radius: str,
    accuracy: str,
    reports: int,
    skip_speed: str,
    user: str | None,
    trace: str | None,
    time: str | None,
    lat: str | None,
    lon: str | None,
    form: str | None,
    time_zone: str | None,
    seed: int,
    jobs: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run the case study: query traces of p = 0, 0.1, …, 1 from trajectories, both budget managers
    with and without skipping, against independent noise; tables, intervals and figures.

    Each DATA is a data set: a file, a folder, or a glob. Without any it is the made-up city.
    """
    asked = study.Study(
        setting=Setting(
            privacy=Privacy(_units.level(level), _units.length_m(radius)),
            accuracy_m=_units.length_m(accuracy),
            reports=reports,
            skip_kmh=_units.speed_kmh(skip_speed),
            as_published=as_published,
        ),
        samples=1 if quick else samples or 10,
        seed=seed,
        most_traces=study.QUICK_TRACES if quick else None,
    )
    if user is not None and user.startswith("@"):
        raise ParameterError("--user names a column here; trajectories are told by --trace")
    columns = Columns(user, trace, time, lat, lon, zone=_options.zone(time_zone))
    threads = jobs or os.cpu_count() or 1
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    watch = _Watch()
    wanted = [*_given(sampled)]
    sets = []
    if names or not sampled:
        modes: tuple[study.Sampling, ...] = ("authors", "gaps")
        if sampling != "both":
            modes = ("authors",) if sampling == "authors" else ("gaps",)
        for found, known in trajectories(names, columns, form, threads, quiet):
            watch.lap("reading")
            sets.append(found)
            wanted += study.cells(asked, found, known, modes)
            watch.lap("choosing trajectories")
    with Progress("evaluating", quiet, "cells") as progress:
        rows = study.run(asked, wanted, folder, jobs=threads, progress=progress)
    watch.lap("sampling and sanitising")
    study.write(rows, folder / "results.parquet")
    drawn = _figures(rows, sets, asked, folder)
    watch.lap("figures")
    if as_json:
        click.echo(json.dumps({"rows": rows, "seconds": watch.laps}))
    elif not quiet:
        click.echo(summary(rows, asked.setting))
        click.echo(f"\n{folder / 'results.parquet'} and {drawn} figures. {watch}")


def _given(names: tuple[str, ...]) -> Iterator[study.Cell]:
    for name in names:
        queries, p = query_files.read(name)
        yield study.given_cell(query_files.dataset(name), identity([Path(name)]), p, queries)


def _figures(
    rows: list[study.Row], sets: list[dataset.Trajectories], asked: study.Study, folder: Path
) -> int:
    try:
        from hereish.evaluation.figures import files
    except ImportError:
        click.echo("hereish: note: figures need more: pip install 'hereish[plot]'", err=True)
        return 0
    drawn = len(files.draw(rows, folder))
    if sets:
        kept, slow = dataset.of_somebody_on_foot(sets[0])
        path = folder / "true-trace.png"
        drawn += files.draw_trace(kept, slow, path, asked.seed, asked.setting)
    return drawn


class _Watch:
    """Which stage takes how long."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._since
        self._since = now

    def __str__(self) -> str:
        return ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.laps.items())


def summary(rows: list[study.Row], setting: Setting) -> str:
    """The main numbers in a table for each data set and sampling."""
    groups = list(dict.fromkeys((row["dataset"], row["sampling"]) for row in rows))
    parts = []
    for name, sampling in groups:
        own = [row for row in rows if (row["dataset"], row["sampling"]) == (name, sampling)]
        told = {row["p"] for row in own}
        ps: list[float | None] = [p for p in _SHOWN if p in told] or sorted(
            told, key=lambda p: p or 0.0
        )
        traces = max(row["traces"] for row in own)
        parts.append(f"{name}, sampling: {sampling}, up to {traces:,} query traces\n")
        parts[-1] += _table(own, ps) + "\n" + _pays(payoff(own, setting))
    return "\n\n".join(parts)


def _pays(found: Payoff) -> str:
    even = f"its prediction rate falls below the break-even of {found.break_even:.1%}"
    if found.rate_crosses is None:
        return "Fixed utility without skipping does not stop to pay at any p that was tried."
    at = "at none" if found.prediction_crosses is None else f"at p = {found.prediction_crosses:.2f}"
    return (
        f"Fixed utility without skipping stops to pay at p = {found.rate_crosses:.2f}; {even} {at}."
    )


def _table(rows: list[study.Row], ps: list[float | None]) -> str:
    names = list(dict.fromkeys((r["mechanism"], r["manager"], r["skip"]) for r in rows))
    head = ["", *(f"p = {'?' if p is None else f'{p:g}'}" for p in ps)]
    lines = [head]
    kinds: tuple[tuple[str, Callable[[Any], str]], ...] = (
        ("rate", lambda value: f"{value:.2%}"),
        ("error_mean_m", far),
        ("error_p90_m", far),
    )
    words = {"rate": "rate", "error_mean_m": "average error", "error_p90_m": "90 % within"}
    for mechanism, manager, skip in names:
        own = {
            row["p"]: row
            for row in rows
            if (row["mechanism"], row["manager"], row["skip"]) == (mechanism, manager, skip)
        }
        private = "" if next(iter(own.values()))["private"] else " (not private)"
        label = f"{mechanism}, {manager.replace('_', ' ')}{', skip' if skip else ''}{private}"
        lines.append([label, *("" for _ in ps)])
        for field, say in kinds:
            values = [own[p][field] for p in ps]
            if any(value is not None for value in values):
                told = ["-" if value is None else say(value) for value in values]
                lines.append([f"  {words[field]}", *told])
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        line[0].ljust(widths[0])
        + "".join(f"  {cell:>{w}}" for cell, w in zip(line[1:], widths[1:], strict=True))
        for line in lines
    )
