"""`hereish attack`: what an observer of released files learns."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import click

from hereish.attack.findings import AttackOptions, Findings, Task, attack_many
from hereish.attack.home import NIGHT, WORK, Hours
from hereish.attack.identity import Pasts
from hereish.attack.page import page
from hereish.attack.released_files import ReleasedFile, read_released, read_truth
from hereish.attack.summary import summary_rows
from hereish.cli import _units
from hereish.cli._budget_options import BudgetOptions
from hereish.cli._command_lines import is_on_command_line
from hereish.cli._formatting import format_count, format_rows
from hereish.cli._input_options import DROP_BAD, InputOptions, input_options
from hereish.cli._mechanism_options import MECHANISM_OPTIONS, on_exhausted_option
from hereish.cli._options import Command, RunOptions, collect, option, output, run_options
from hereish.cli._progress import Progress
from hereish.cli.show import check_page_path, write_for_owner
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.types import Floats
from hereish.errors import ParameterError
from hereish.roads.reading import read_roads
from hereish.traces.discovery import STANDARD_STREAM

EXAMPLE = """\b
Examples:
  hereish attack observed.csv -o attack.html
  hereish attack observed.csv --truth city.csv -o attack.html --json
  hereish attack observed.gpx -o attack.html --preset paper-utility --accuracy 3km
"""
_OBSERVER = "What the observer knows"
_MADE = "How the releases were made: as the file says, unless these do"
_UNCHECKED = (
    "the file has no costs, so nothing shows whether it was made with these settings: what follows "
    "is right only if it was"
)


@click.command(
    cls=Command, epilog=EXAMPLE, short_help="what an observer learns from released files"
)
@click.argument("released", metavar="RELEASED", type=click.Path())
@output("PAGE", "Such as attack.html.")
@option(
    _OBSERVER,
    "--truth",
    metavar="TRUE",
    type=click.Path(),
    help="The true traces, to score the observer by; for the owner's eyes.",
)
@option(
    _OBSERVER,
    "--night",
    default="00:00-06:00",
    show_default=True,
    metavar="FROM-UNTIL",
    help="Hours in which people are at home.",
)
@option(
    _OBSERVER,
    "--work",
    default="10:00-16:00",
    show_default=True,
    metavar="FROM-UNTIL",
    help="Hours of weekdays in which people are at work.",
)
@option(
    _OBSERVER,
    "--past",
    metavar="FILE",
    type=click.Path(),
    help="True traces of earlier days of the same people: whose releases are these?",
)
@collect(
    "budget",
    BudgetOptions,
    MECHANISM_OPTIONS,
    option(
        _MADE,
        "--window",
        type=click.Choice(["none", "day", "trace"]),
        default="day",
        show_default=True,
        help="What had one budget.",
    ),
    option(_MADE, "--every", metavar="DURATION", help="As given to hereish sanitize."),
    on_exhausted_option(_MADE),
    option(_MADE, "--prior", metavar="world|FILE", help="As given to hereish sanitize."),
    option(
        _OBSERVER,
        "--roads",
        metavar="FILE",
        type=click.Path(),
        help="A road file, such as .osm.pbf: where on the roads was somebody? With --prediction "
        "roads it is the one that was given to hereish sanitize.",
    ),
    option(
        _MADE,
        "--mobility-model",
        metavar="FILE",
        type=click.Path(),
        help="As given to hereish sanitize.",
    ),
)
@input_options(DROP_BAD)
@run_options("Processes. One per core if not given.", "The findings for programs.")
def command(
    released: str,
    out: str,
    truth: str | None,
    night: str,
    work: str,
    past: str | None,
    budget: BudgetOptions,
    source: InputOptions,
    run: RunOptions,
) -> None:
    """Attack RELEASED, a file of hereish sanitize or the history of a gateway's ledger, as the
    strongest reasonable observer would: where was somebody at each time, where do they live and
    work, which places do they stay at, who are they?

    The observer knows the mechanism and its settings exactly, all releases, and nothing secret.
    With --truth it is scored, and the page contains true positions.
    """
    path = check_page_path(out, released, *(name for name in (truth, past) if name is not None))
    if STANDARD_STREAM in (released, truth, past):
        raise ParameterError("RELEASED, --truth and --past must be files")
    file = read_released(
        released,
        lambda zone: source.columns(source.time_zone or zone),
        source.form,
        source.users_from,
        by_trace=budget.window == "trace" if is_on_command_line("window") else None,
    )
    zone = source.time_zone or (file.guarantee and file.guarantee.time_zone) or "UTC"
    mechanism = _mechanism(budget, file, zone)

    def read(name: str) -> dict[str, tuple[Floats, Floats]]:
        return read_truth(name, source.columns(zone), None, source.users_from, source.drop_bad)

    options = AttackOptions(
        zone,
        night=_hours(night, NIGHT),
        work=_hours(work, WORK),
        roads=None if budget.roads is None else read_roads(budget.roads),
        pasts=None if past is None else Pasts.of(read(past), zone),
    )
    traces = {} if truth is None else read(truth)
    tasks = [
        Task(mechanism, parts, options, user, _trace_of(user, traces), not file.ledger)
        for user, parts in file.people.items()
    ]
    if truth is not None and all(task.trace is None for task in tasks):
        raise ParameterError(
            "no user of RELEASED is in --truth; these two files do not belong together"
        )
    # The processes share the cores, and matrices as small as these need no threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with Progress("attacking", run.quiet, "people") as progress:
        found = attack_many(tasks, run.threads, progress)
    statement = None if file.guarantee is None else file.guarantee.description
    write_for_owner(path, page(found, zone, statement))
    _report(found, path, run, scored=truth is not None, checked=file.checked)


def _mechanism(budget: BudgetOptions, file: ReleasedFile, zone: str) -> PredictiveMechanism:
    """With what the file says of itself, where no option says otherwise."""
    said = file.guarantee
    if said is not None:
        if said.window in ("none", "day", "trace") and not is_on_command_line("window"):
            budget = dataclasses.replace(budget, window=said.window)  # type: ignore[arg-type]  # one of them
        given = any(is_on_command_line(name) for name in ("level", "radius", "settings"))
        if said.eps_per_m is not None and not given:
            level = f"{said.eps_per_m * 100.0:.17g}"
            budget = dataclasses.replace(budget, level=level, radius="100m")
        if said.every_s is not None and budget.every is None:
            budget = dataclasses.replace(budget, every=f"{said.every_s:.17g}s")
        if said.prior is not None and budget.prior is None:
            raise ParameterError(
                f"fresh noise of this file was moved by the prior {said.prior}: give --prior"
            )
    if budget.prediction != "roads":
        budget = dataclasses.replace(budget, roads=None)  # they are the observer's alone
    return budget.build(zone)


def _trace_of(user: str, traces: dict[str, tuple[Floats, Floats]]) -> tuple[Floats, Floats] | None:
    return traces.get(user) or (traces[""] if set(traces) == {""} else None)


def _hours(text: str, usual: Hours) -> Hours:
    begin, until = (
        int(hour) + int(minute) / 60.0
        for hour, minute in (clock.split(":") for clock in _units.clock_hours(text).split("-"))
    )
    return usual._replace(begin=begin, until=until)


def _report(
    found: list[Findings], path: Path, run: RunOptions, *, scored: bool, checked: bool
) -> None:
    if not checked:
        click.echo(f"hereish: {_UNCHECKED}", err=True)
    if run.as_json:
        report: dict[str, Any] = {
            "page": str(path),
            "settings_checked": checked,
            "people": [one.as_dict() for one in found],
            "summary": dict(summary_rows(found)),
        }
        click.echo(json.dumps(report, indent=2))
    elif not run.quiet:
        click.echo(f"What an observer learns about {format_count(len(found), 'user')}:")
        click.echo(format_rows(summary_rows(found)))
        secret = ": it contains true positions, do not publish it" if scored else ""
        click.echo(f"{path} has maps{secret}")
