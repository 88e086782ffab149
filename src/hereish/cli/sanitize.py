"""`hereish sanitize`: files of traces in, sanitised files out."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

import click

from hereish.cli import _units
from hereish.cli._command_lines import is_on_command_line
from hereish.cli._input_options import DROP_BAD, KEEP, InputOptions, input_options
from hereish.cli._job_options import JOB_OPTIONS, JobOptions
from hereish.cli._mechanism_options import (
    LASTING,
    MECHANISM_OPTIONS,
    MechanismOptions,
    on_exhausted_option,
    warn_if_weak,
)
from hereish.cli._messages import note
from hereish.cli._options import RUNNING, Command, RunOptions, collect, option, output, run_options
from hereish.cli._progress import Progress
from hereish.cli._sanitize_summary import summarise
from hereish.core.mechanism import OnExhausted, PredictiveMechanism
from hereish.core.remap import PriorRemap
from hereish.core.settings import MechanismSettings
from hereish.core.windows import Day, NoReset, Window
from hereish.errors import ParameterError
from hereish.priors import parse_prior
from hereish.traces.budgets import EachTrace
from hereish.traces.discovery import STANDARD_STREAM
from hereish.traces.files import sanitize_files
from hereish.traces.formats.registry import FORMAT_NAMES
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
class BudgetOptions(MechanismOptions):
    """A mechanism, and what has one budget."""

    window: Literal["none", "day", "trace"]
    every: str | None
    on_exhausted: OnExhausted
    prior: str | None

    @property
    def every_s(self) -> float | None:
        """The shortest interval between points that are taken; None: all are taken."""
        return None if self.every is None else _units.duration_s(self.every)

    def build(self, time_zone: str | None) -> PredictiveMechanism:
        """The mechanism, after a warning if it promises little."""
        windows: dict[str, Window] = {"none": NoReset(), "trace": EachTrace()}
        window = windows[self.window] if self.window in windows else Day(time_zone or "UTC")
        mechanism = self._settings().build(window, self.on_exhausted)
        if self.prior is not None:
            mechanism = replace(mechanism, remap=PriorRemap(parse_prior(self.prior)))
        warn_if_weak(mechanism)
        return mechanism

    def _settings(self) -> MechanismSettings:
        settings = self.mechanism_settings()
        if self.every_s is None:
            return settings
        lasts = settings.chosen_preset in LASTING
        return replace(settings, every_s=max(self.every_s, _FASTEST_S) if lasts else self.every_s)

    def policy_settings(self, time_zone: str | None) -> dict[str, Any]:
        """The same as a policy of the gateway has it, for users whom a ledger does not know."""
        return {
            **asdict(self._settings()),
            "window": self.window,
            "time_zone": time_zone or "UTC",
            "on_exhausted": self.on_exhausted,
        }


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


# Points more often than that are spent for as if they came this often: tests cost the same per hour
# anyway, and larger noise throughout has only made reports worse, on made-up days and on real ones.
_FASTEST_S = 300.0
_TO = "Where to"
_BUDGET = "What has one budget"


@click.command(cls=Command, epilog=EXAMPLE, short_help="traces in, sanitised traces out")
@click.argument("inputs", nargs=-1, required=True, metavar="IN...", type=click.Path())
@collect(
    "target",
    OutputFileOptions,
    output("OUT", "File, folder or -."),
    option(
        _TO, "--to", type=click.Choice(FORMAT_NAMES), help="Of OUT, where its name does not tell."
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
@collect(
    "budget",
    BudgetOptions,
    MECHANISM_OPTIONS,
    option(
        _BUDGET,
        "--window",
        type=click.Choice(["none", "day", "trace"]),
        default="day",
        show_default=True,
        help="All reports of a user, those of a day, or those of a trace.",
    ),
    option(
        _BUDGET,
        "--every",
        metavar="DURATION",
        help="Take each user's points at least this far apart, such as 30min. Without it all are "
        "taken: a log with a fix every two seconds then repeats most of its reports.",
    ),
    on_exhausted_option(_BUDGET),
    option(
        _BUDGET,
        "--prior",
        metavar="world|FILE",
        help="Move fresh noise to where people are, by a public map of them: the cities of the "
        "world, or a file (.npz, .csv, .parquet, .asc, .tif). The output names it.",
    ),
)
@input_options(DROP_BAD, KEEP)
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
    "Files read at a time. One per core if not given.",
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
    """Sanitise files of traces: GPX, GeoJSON, CSV, Parquet, GeoParquet, GeoLife and T-Drive.

    IN are files, folders, globs, or - for CSV on standard input. What comes out is the reported
    place, its time, the ids as given, the kind of the report and its cost, and nothing else. It
    appears complete or not at all.
    """
    engine.check(inputs, seed, source.users_from)
    sharing.check(seed)
    mechanism = budget.build(source.time_zone)
    on_spark = engine.engine == "spark"
    new_users = budget.policy_settings(source.time_zone) if sharing.add_users else None
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
