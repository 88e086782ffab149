"""`hereish learn`: a mobility model of a group, from traces that are public."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np

from hereish.cli import _units
from hereish.cli._input_options import InputOptions, input_options
from hereish.cli._options import Command, RunOptions, option, output, run_options
from hereish.cli._progress import Progress
from hereish.core.mobility_model import MOST_PLACES
from hereish.evaluation import dataset
from hereish.mobility import learn_model, save_model

EXAMPLE = """\b
Examples:
  hereish learn observed.csv -o group.npz --time-zone Europe/Helsinki
  hereish sanitize walk.gpx -o out.gpx --prediction mobility --mobility-model group.npz
"""
_MODEL = "What is in it"
PUBLIC = (
    "The places of the traces are in the model, and releases may show them: the traces must be "
    "public, or sanitised before"
)


@click.command(cls=Command, epilog=EXAMPLE, short_help="a mobility model of public traces")
@click.argument("names", nargs=-1, required=True, metavar="IN...", type=click.Path())
@output("FILE", "Such as group.npz.")
@option(
    _MODEL,
    "--places",
    type=click.IntRange(1, MOST_PLACES),
    default=16,
    show_default=True,
    help="How many: those where people stay longest, each of them counting alike.",
)
@option(
    _MODEL,
    "--near",
    default="250m",
    show_default=True,
    help="Fixes this near to each other are at one place.",
)
@option(_MODEL, "--name", help="Of the model; that of the file if not given.")
@option(_MODEL, "--licence", default="", help="Of the traces, in a line.")
@input_options()
@run_options("Files read at a time. One per core if not given.", "What was learnt, for programs.")
def command(
    names: tuple[str, ...],
    out: str,
    places: int,
    near: str,
    name: str | None,
    licence: str,
    source: InputOptions,
    run: RunOptions,
) -> None:
    """Learn a mobility model from PUBLIC traces of a group: places, hours and moves between them.

    Never from the true traces of those who are to be protected: the places of the traces are in
    the model, and whoever reads a release may know it. Traces that hereish sanitize has written
    may be learnt from.
    """
    near_m = _units.length_m(near)
    with Progress("reading", run.quiet) as progress:
        data = dataset.load(
            list(names),
            source.columns_of_trajectories(),
            source.form,
            jobs=run.threads,
            progress=progress,
        )
    model = learn_model(
        data.at_s,
        data.points,
        np.repeat(data.user, np.diff(data.offsets)),
        name=name or data.name,
        time_zone=source.time_zone or "UTC",
        places=places,
        near_m=near_m,
        licence=licence,
    )
    save_model(model, Path(out))
    if run.as_json:
        told = {"output": out, "name": model.name, "places": len(model), "digest": model.digest}
        click.echo(json.dumps(told, indent=2))
    elif not run.quiet:
        click.echo(
            f"{out}: {len(model)} places of {data.users} people, {model.moves.sum():.0f} moves "
            f"between them, digest {model.digest}\n{PUBLIC}."
        )
