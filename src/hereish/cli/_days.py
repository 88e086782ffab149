"""`hereish evaluate --days`: what a receiver believes on whole days."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hereish.cli._datasets import choose_time_zone, load_datasets
from hereish.cli._formatting import (
    format_count,
    format_distance,
    format_duration,
    format_table,
)
from hereish.cli._input_options import InputOptions
from hereish.cli._messages import note
from hereish.cli._options import RunOptions
from hereish.cli._progress import Progress, StageTimer
from hereish.core.windows import Day
from hereish.evaluation import dataset, day_study
from hereish.evaluation.study import Row, write_table

_HEAD = ("", "average", "median", "90 %", "99 %", "answered", "spent", "ended", "median hour")


def evaluate_days(
    names: tuple[str, ...],
    study: day_study.DayStudy,
    folder: Path,
    source: InputOptions,
    run: RunOptions,
) -> None:
    """Compute, write and print the study of whole days."""
    if source.time_zone is not None:
        Day(source.time_zone)  # raises with a message if there is no such time zone
    stages = StageTimer()
    data = []
    for trajectories, _ in load_datasets(names, source, run, dataset.synthetic_days):
        data.append((trajectories, choose_time_zone(names, trajectories, source, run)))
    folder.mkdir(parents=True, exist_ok=True)
    stages.end("reading")
    with Progress("evaluating", run.quiet, "mechanisms") as progress:
        results = day_study.run(study, data, jobs=run.threads, progress=progress)
    stages.end("sanitising")
    if (folder / "days.parquet").exists():
        note(f"{folder / 'days.parquet'} was there before and is replaced")
    write_table(results.rows, folder / "days.parquet")
    write_table(results.hours, folder / "days-by-hour.parquet")
    figures = _draw_figures(results.hours, folder)
    stages.end("figures")
    if run.as_json:
        click.echo(json.dumps({**results._asdict(), "seconds": stages.seconds}))
    elif not run.quiet:
        click.echo(summarise(results.rows))
        drawn = format_count(figures, "figure")
        click.echo(f"\n{folder / 'days.parquet'} and {drawn}. {stages}")


def _draw_figures(hours: list[Row], folder: Path) -> int:
    """How many were drawn."""
    try:
        from hereish.evaluation.figures import files
    except ImportError:
        note("figures need matplotlib: pip install 'hereish[plot]'")
        return 0
    return len(files.draw_days(hours, folder))


def summarise(rows: list[Row]) -> str:
    """One table per data set and time between queries."""
    parts = []
    for group in dict.fromkeys((row["dataset"], row["every_s"]) for row in rows):
        own = [row for row in rows if (row["dataset"], row["every_s"]) == group]
        one = own[0]
        parts.append(
            f"{one['dataset']}, {one['days']:,} days ({one['time_zone']}) of {one['users']:,} "
            f"users, a query every {format_duration(one['every_s'])}: how far off a receiver is\n"
            + format_table([_HEAD, *map(_format_row, own)])
        )
    meaning = (
        "answered: queries with a release; spent: of a day's budget; ended: days whose budget "
        "ended before midnight, and the median local time at which it did."
    )
    return "\n\n".join([*parts, meaning])


def _format_row(row: Row) -> list[str]:
    errors = [row[f"belief_{name}_m"] for name in ("mean", "median", "p90", "p99")]
    shares = [row[f"{name}_share"] for name in ("answered", "spent", "ended")]
    return [
        day_study.describe_mechanism(row),
        *("-" if error is None else format_distance(error) for error in errors),
        *(f"{share:.0%}" for share in shares),
        _format_hour(row["ended_median_hour"]),
    ]


def _format_hour(hour: float | None) -> str:
    if hour is None:
        return "-"
    whole, minutes = divmod(round(hour * 60), 60)
    return f"{whole:02}:{minutes:02}"
