"""`hereish sanitize`: files of traces in, sanitised files out."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal, NoReturn, get_args

import click

from hereish.cli._budget_options import BUDGET_OPTIONS, BudgetOptions
from hereish.cli._command_lines import is_on_command_line
from hereish.cli._input_options import (
    DROP_BAD,
    KEEP,
    KEEP_TRACE_NAMES,
    InputOptions,
    input_options,
)
from hereish.cli._job_options import JOB_OPTIONS, JobOptions
from hereish.cli._memory import keep_freed_memory
from hereish.cli._messages import note
from hereish.cli._options import RUNNING, Command, RunOptions, collect, option, output, run_options
from hereish.cli._progress import Progress
from hereish.cli._sanitize_summary import summarise
from hereish.core.mechanism import PredictiveMechanism
from hereish.errors import ParameterError
from hereish.traces.discovery import STANDARD_STREAM
from hereish.traces.files import sanitize_files
from hereish.traces.formats.registry import WRITTEN_NAMES
from hereish.traces.order import ORDERS, Order
from hereish.traces.summary import Summary
from hereish.traces.writing import SplitBy

if TYPE_CHECKING:
    from hereish.gateway.ledger.jobs import LedgerJob

EXAMPLE = """\b
Examples:
  hereish sanitize walk.gpx -o public.gpx --time-zone Europe/Helsinki
  hereish sanitize traces/ -o public/ --every 15min --quiet-hours 23:00-06:30
  hereish sanitize city.csv -o public.csv --reports 30
  hereish sanitize taxis.parquet -o public.parquet --accuracy 3km --window trace --drop-bad
  hereish sanitize city.csv -o shared.csv --ledger ledger.db --job 2026-05-05 --add-users
  cat fixes.csv | hereish sanitize - -o - --user phone --accuracy 3km > public.csv

\b
Exit codes: 0 done, 1 the data or the disk did not allow it, 2 a usage error, 70 a defect of
hereish, 130 interrupted, 143 terminated. Unless it is 0, nothing was released, except what was
read from standard output before it was closed.
"""


@dataclass(frozen=True)
class OutputFileOptions:
    """Where to write, and how."""

    out: str
    to: str | None
    order: Order
    split_by: SplitBy


@dataclass(frozen=True)
class EngineOptions:
    """Where the work is done."""

    engine: Literal["local", "spark"]
    master: str | None
    key_file: str | None

    def check(self, inputs: tuple[str, ...], seed: int | None, users_from: object) -> None:
        """Refuse what the engine cannot do."""
        if self.engine == "local":
            for name in ("master", "key_file"):
                if is_on_command_line(name):
                    flag = f"--{name.replace('_', '-')}"
                    raise ParameterError(
                        f"{flag} belongs to --engine spark: leave it out, or add that"
                    )
            return
        if self.key_file is None:
            raise ParameterError(
                "--engine spark needs a key, since Spark computes rows again: --key-file FILE, at "
                "this path on every machine (openssl rand -base64 32 > FILE; chmod 600 FILE)"
            )
        if (self.master or "").startswith("sc://"):
            raise ParameterError(
                "--master names a cluster, found the address of Spark Connect: over Connect, call "
                "hereish.spark.sanitize from a program"
            )
        reasons = {
            "order": "Spark's rows have no order of the input",
            "split_by": "Spark splits its output by partition",
            "date": "Spark reads times from one column",
            "point": "Spark reads places from two columns",
            "time_format": "Spark reads timestamps and ISO 8601",
            "coordinate_unit": "Spark reads degrees",
        }
        for name, reason in reasons.items():
            if is_on_command_line(name):
                flag = f"--{name.replace('_', '-')}"
                raise ParameterError(f"{reason}: leave out {flag}, or --engine spark")
        if seed is not None:
            raise ParameterError("--seed and the key of --engine spark exclude each other")
        if users_from is not None or STANDARD_STREAM in inputs:
            raise ParameterError(
                "--engine spark reads users from a column, found --user @file or @folder, or -: "
                "name the column, or leave out --engine spark"
            )


_TO = "Where to"


@click.command(cls=Command, epilog=EXAMPLE, short_help="traces in, sanitised traces out")
@click.argument("inputs", nargs=-1, required=True, metavar="IN...", type=click.Path())
@collect(
    "target",
    OutputFileOptions,
    output("OUT", "File, folder or -."),
    option(
        _TO,
        "--to",
        type=click.Choice(WRITTEN_NAMES),
        metavar="FORMAT",
        help=f"Of OUT, where its name does not tell: {', '.join(WRITTEN_NAMES)}.",
    ),
    option(
        _TO,
        "--order",
        type=click.Choice(ORDERS),
        default="public",
        show_default=True,
        help="Rows by user, trace and time, or as they come in. The order of the input is then "
        "published: if it is that of places, it can tell them better than the reports do.",
    ),
    option(
        _TO,
        "--split-by",
        type=click.Choice(get_args(SplitBy)),
        default="input",
        show_default=True,
        help="Files of a folder: one per file that was read, which tells how the input lay in "
        "files, or one per user.",
    ),
)
@BUDGET_OPTIONS
@input_options(DROP_BAD, KEEP, KEEP_TRACE_NAMES)
@option(RUNNING, "--seed", type=int, help="Repeatable, and therefore NOT PRIVATE.")
@collect(
    "engine",
    EngineOptions,
    option(
        RUNNING,
        "--engine",
        type=click.Choice(["local", "spark"]),
        default="local",
        show_default=True,
        help="Here, or on Apache Spark: Parquet and CSV, into a folder.",
    ),
    option(RUNNING, "--master", metavar="URL", help="Of Spark, such as local[4] or yarn."),
    option(
        RUNNING,
        "--key-file",
        metavar="FILE",
        type=click.Path(),
        help="With --engine spark: the key that noise is derived from, on every machine.",
    ),
)
@JOB_OPTIONS
@run_options(
    "Processes that read files, or share a large one. One per core if not given.",
    "The summary for programs.",
)
def command(
    inputs: tuple[str, ...],
    target: OutputFileOptions,
    budget: BudgetOptions,
    source: InputOptions,
    seed: int | None,
    engine: EngineOptions,
    sharing: JobOptions,
    run: RunOptions,
) -> None:
    """Sanitise the location histories that people have, in the files that they are in.

    Read are GPX, KML and KMZ, GeoJSON, MF-JSON, CSV and TSV, Parquet and GeoParquet, GeoPackage,
    FIT, TCX, NMEA, Google's Timeline and Takeout, OwnTracks, Overland, GeoLife, T-Drive, and zip
    archives such as exports of Strava, Garmin and Dawarich; `--to` lists what is written.

    IN are files, folders, archives, globs, or - for CSV on standard input. What comes out is the
    reported place, its time, the ids as given, the kind of the report and its cost, and nothing
    else. It appears complete or not at all.
    """
    engine.check(inputs, seed, source.users_from)
    sharing.check(seed)
    new_users = budget.policy_settings(source.time_zone) if sharing.add_users else None
    mechanism = budget.build(source.time_zone)
    on_spark = engine.engine == "spark"
    replaced = not on_spark and target.out != STANDARD_STREAM and Path(target.out).is_file()
    # What Spark releases is derived from a key, so it can be computed again.
    with sharing.open(mechanism, repeats=on_spark, new_users=new_users) as job:
        if on_spark:
            tally = _sanitize_on_spark(inputs, target, budget, mechanism, source, engine, run, job)
        else:
            tally = _sanitize_here(inputs, target, budget, mechanism, source, seed, run, job)
    if job is not None:
        tally = replace(tally, job=job.summary())
    _report(tally, mechanism, target, budget, run, replaced=replaced)
    if not tally.private:
        click.echo("hereish: NOT PRIVATE: whoever has the seed can undo the noise", err=True)


def _sanitize_here(
    inputs: tuple[str, ...],
    target: OutputFileOptions,
    budget: BudgetOptions,
    mechanism: PredictiveMechanism,
    source: InputOptions,
    seed: int | None,
    run: RunOptions,
    job: LedgerJob | None,
) -> Summary:
    signal.signal(signal.SIGTERM, _exit_on_signal)
    keep_freed_memory()
    with Progress("sanitising", run.quiet) as progress:
        return sanitize_files(
            inputs,
            target.out,
            mechanism,
            columns=source.columns(),
            users_from=source.users_from,
            every_s=budget.every_s,
            drop_bad=source.drop_bad,
            seed=seed,
            jobs=run.threads,
            form=source.form,
            to_form=target.to,
            order=target.order,
            split_by=target.split_by,
            job=job,
            progress=progress,
        )


def _sanitize_on_spark(
    inputs: tuple[str, ...],
    target: OutputFileOptions,
    budget: BudgetOptions,
    mechanism: PredictiveMechanism,
    source: InputOptions,
    engine: EngineOptions,
    run: RunOptions,
    job: LedgerJob | None,
) -> Summary:
    try:
        from hereish.spark.files import sanitize_files as sanitize_on_spark
    except ImportError as missing:
        raise ParameterError(str(missing)) from None
    return sanitize_on_spark(
        inputs,
        target.out,
        mechanism,
        columns=source.columns(),
        key_file=str(engine.key_file),
        form=source.form,
        to_form=target.to,
        every_s=budget.every_s,
        drop_bad=source.drop_bad,
        master=engine.master,
        job=job,
        quiet=run.quiet,
    )


def _report(
    tally: Summary,
    mechanism: PredictiveMechanism,
    target: OutputFileOptions,
    budget: BudgetOptions,
    run: RunOptions,
    *,
    replaced: bool,
) -> None:
    """What was done, for programs or for people."""
    if run.as_json:
        _print_summary(json.dumps({"output": target.out} | tally.as_dict(), indent=2), target.out)
    elif not run.quiet:
        text = summarise(tally, mechanism, target.out, budget.every, replaced)
        _print_summary(text, target.out)


def _print_summary(text: str, out: str) -> None:
    """The output is complete by now, so a failure here must not look like one of the command."""
    try:
        click.echo(text, err=out == STANDARD_STREAM)
    except OSError:
        note(f"{out} is complete; its summary could not be printed")


def _exit_on_signal(number: int, frame: FrameType | None) -> NoReturn:
    """As an exception, so that temporary files are removed."""
    raise SystemExit(128 + number)
