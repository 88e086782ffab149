"""`hereish sanitize`: files of traces in, sanitised files out."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import FrameType
from typing import NoReturn, get_args

import click

from hereish.cli import _options, _units
from hereish.cli._progress import Progress
from hereish.cli._wording import far
from hereish.core.mechanism import OnExhausted, PredictiveMechanism
from hereish.core.windows import Day, NoReset, Window
from hereish.traces.budgets import EachTrace
from hereish.traces.columns import Columns
from hereish.traces.discovery import STANDARD_STREAM
from hereish.traces.files import sanitize_files
from hereish.traces.formats.registry import FORMAT_NAMES
from hereish.traces.order import ORDERS, Order
from hereish.traces.summary import Summary
from hereish.traces.writing import SplitBy

EXAMPLE = """\b
Examples:
  hereish sanitize walk.gpx -o public.gpx --accuracy 3km --every 5min
  hereish sanitize traces/ -o public/ --reports 30 --time-zone Europe/Helsinki
  hereish sanitize taxis.parquet -o public.parquet --accuracy 3km --window trace --drop-bad
  cat fixes.csv | hereish sanitize - -o - --user phone --accuracy 3km > public.csv

\b
Exit codes: 0 done, 1 the data or the disk did not allow it, 2 asked wrongly, 70 a defect of
hereish, 130 interrupted, 143 told to end. Unless it is 0, nothing was released, except what was
read from standard output before it was closed.
"""


@click.command(cls=_options.Command, epilog=EXAMPLE, short_help="traces in, sanitised traces out")
@click.argument("inputs", nargs=-1, required=True, metavar="IN...", type=click.Path())
@_options.output("OUT", "File, folder or -.")
@_options.option(
    "Where to",
    "--to",
    type=click.Choice(FORMAT_NAMES),
    help="Of OUT, where its name does not tell.",
)
@_options.option(
    "Where to",
    "--order",
    type=click.Choice(ORDERS),
    default="public",
    show_default=True,
    help="Rows by user, trace and time, or as they come in. The order of the input is then "
    "published: if it is that of places, it can tell them better than the reports do.",
)
@_options.option(
    "Where to",
    "--split-by",
    type=click.Choice(get_args(SplitBy)),
    default="input",
    show_default=True,
    help="Files of a folder: one for each that was read, which tells how the input lay in files, "
    "or one for each user.",
)
@_options.promise
@_options.spending
@_options.tuning
@_options.option(
    "What has one budget",
    "--window",
    type=click.Choice(["none", "day", "trace"]),
    default="day",
    show_default=True,
    help="All reports of a user, those of a day, or those of a trace.",
)
@_options.option(
    "What has one budget",
    "--every",
    metavar="DURATION",
    help="Take each user's points at least this far apart, such as 5min. A log with a fix every "
    "two seconds does not fit a budget; thirty reports a day do.",
)
@_options.on_exhausted("What has one budget")
@_options.columns
@_options.option("What is read", "--drop-bad", is_flag=True, help="Leave out what cannot be used.")
@_options.option(
    "What is read",
    "--keep",
    multiple=True,
    metavar="COLUMN",
    help="Pass this column on as it is: your choice, and it may tell a place. More than once.",
)
@_options.option("How it runs", "--seed", type=int, help="Repeatable, and therefore NOT PRIVATE.")
@_options.option(
    "How it runs",
    "--jobs",
    type=click.IntRange(1),
    help="Files read at a time. One a core if not.",
)
@_options.option("How it runs", "--quiet", is_flag=True, help="Say nothing unless it fails.")
@_options.option("How it runs", "--json", "as_json", is_flag=True, help="The summary for programs.")
def command(
    inputs: tuple[str, ...],
    out: str,
    to: str | None,
    order: Order,
    split_by: SplitBy,
    level: str,
    radius: str,
    accuracy: str | None,
    reports: int | None,
    mechanism: str,
    skip_speed: str,
    settings: str | None,
    window: str,
    every: str | None,
    on_exhausted: OnExhausted,
    user: str | None,
    trace: str | None,
    time: str | None,
    lat: str | None,
    lon: str | None,
    form: str | None,
    time_zone: str | None,
    drop_bad: bool,
    keep: tuple[str, ...],
    seed: int | None,
    jobs: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Sanitise files of traces: GPX, GeoJSON, CSV, Parquet, GeoParquet, GeoLife and T-Drive.

    IN are files, folders, globs, or - for CSV on standard input. What comes out is the reported
    place, its time, the ids as given, the kind of the report and its cost, and nothing else. It
    appears whole or not at all.
    """
    if settings is not None:
        built = _tuned(settings, _window(window, time_zone), on_exhausted)
    else:
        built = _options.mechanism(
            level,
            radius,
            accuracy,
            reports,
            mechanism,
            skip_speed=skip_speed,
            window=_window(window, time_zone),
            on_exhausted=on_exhausted,
        )
    every_s = None if every is None else _units.duration_s(every)
    user, users_from = _options.users(user)
    replaced = out != STANDARD_STREAM and Path(out).is_file()
    signal.signal(signal.SIGTERM, _stop)
    with Progress("sanitising", quiet) as progress:
        tally = sanitize_files(
            inputs,
            out,
            built,
            columns=Columns(user, trace, time, lat, lon, keep, _options.zone(time_zone)),
            users_from=users_from,
            every_s=every_s,
            drop_bad=drop_bad,
            seed=seed,
            jobs=jobs or os.cpu_count() or 1,
            form=form,
            to_form=to,
            order=order,
            split_by=split_by,
            progress=progress,
        )
    if as_json:
        _say(json.dumps({"output": out} | tally.as_dict(), indent=2), out)
    elif not quiet:
        _say(summary(tally, out, every, replaced), out)
    if not tally.private:
        click.echo("hereish: NOT PRIVATE: whoever has the seed can undo the noise", err=True)


def _say(words: str, out: str) -> None:
    """Print the summary. The output is there by now, so this must not look as if it failed."""
    try:
        click.echo(words, err=out == STANDARD_STREAM)
    except OSError:
        click.echo(f"hereish: note: {out} is complete; its summary could not be printed", err=True)


def _tuned(name: str, window: Window, on_exhausted: OnExhausted) -> PredictiveMechanism:
    """The mechanism of a file of settings, which says everything that these options say."""
    from hereish.evaluation.settings import read

    _options.unless_in_settings()
    return _options.warned(read(name).mechanism(window, on_exhausted))


def _window(name: str, time_zone: str | None) -> Window:
    if name == "day":
        return Day(time_zone or "UTC")
    return EachTrace() if name == "trace" else NoReset()


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """Told to end: as an exception, so that what was begun is tidied away."""
    raise SystemExit(128 + number)


def summary(tally: Summary, out: str, every: str | None, replaced: bool) -> str:
    """What was done, in words. It depends on the truth: for whoever runs this."""
    rows: list[tuple[str, int, str]] = [
        ("hard", tally.hard, "fresh noise"),
        ("easy", tally.easy, "a guess that passed the test"),
        ("untested", tally.untested, "a guess, for free"),
        ("refused", tally.refused, "the budget was spent"),
    ]
    if every is not None:
        rows.append(("thinned", tally.thinned, f"sooner than {every} after the one before"))
    rows += [("bad", count, reason) for reason, count in tally.bad.items()]
    width = max(len(f"{count:,}") for _, count, _ in rows)
    lines = [
        f"{_count(tally.points, 'point')} in {_count(tally.traces, 'trace')} of "
        f"{_count(tally.users, 'user')}, from {_count(tally.files, 'file')}:",
        *(f"  {name:9} {count:>{width},}  {reason}" for name, count, reason in rows),
        *(f"  not read: {words}" for words in tally.unreadable),
    ]
    mean, most = tally.displacement_mean_m, tally.displacement_p90_m
    if mean is not None and most is not None:
        lines.append(
            f"Reports lie {far(mean)} from the truth on average, nine out of ten within "
            f"{far(most)}. (Computed from the truth: for your eyes.)"
        )
    lines.append(tally.guarantee)
    if tally.refused > tally.released:
        again = "a longer --every" if every else "--every 5min"
        lines.append(
            f"Most points were refused, because the budget was spent: {again} takes fewer points, "
            "so that they last for the whole time."
        )
    if replaced:
        lines.append(
            f"{out} was there before and has been replaced. If anybody has seen the old one, both "
            "together tell up to twice as much."
        )
    return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
