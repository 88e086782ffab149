"""`hereish show`: the true and the reported trace on one page, for the owner's eyes."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from hereish.cli._input_options import DROP_BAD, InputOptions, input_options
from hereish.cli._options import QUIET, Command, output
from hereish.errors import ParameterError
from hereish.traces.columns import Columns
from hereish.traces.discovery import STANDARD_STREAM
from hereish.traces.files import load_rows, read_guarantee
from hereish.traces.formats.registry import recognize
from hereish.traces.reading import UsersFrom
from hereish.traces.table import RowBatch
from hereish.viewer.page import page

EXAMPLE = """\b
Examples:
  hereish show day.gpx public.gpx -o page.html
  hereish show true.csv public.csv -o page.html --user phone --time-zone Europe/Helsinki
"""


@click.command(
    cls=Command,
    epilog=EXAMPLE,
    short_help="true and reported traces on a page for their owner",
)
@click.argument("true", metavar="TRUE", type=click.Path())
@click.argument("reported", metavar="REPORTED", type=click.Path())
@output("PAGE", "Such as page.html.")
@input_options(DROP_BAD)
@QUIET
def command(true: str, reported: str, out: str, source: InputOptions, quiet: bool) -> None:
    """Draw where somebody was and what was reported: a map, the budget as it burns down, and how
    large the errors were. TRUE is what `hereish sanitize` read and REPORTED what it wrote.

    The page opens without a network. It contains true positions: it is for the owner's eyes, and
    is written so that other users of this computer cannot read it.
    """
    path = _check_output(out, true, reported)
    if reported == STANDARD_STREAM:
        raise ParameterError("REPORTED must be a file: it is read more than once")
    reported_form = None if Path(reported).is_dir() or recognize(reported) else source.form
    guarantee = read_guarantee(reported, reported_form)
    zone = source.time_zone or (guarantee.time_zone if guarantee is not None else None)
    columns = source.columns(zone)
    # One file that was written has its users in it; several have them in their names again.
    separate = source.users_from if Path(reported).is_dir() else None
    text = page(
        load_rows([true], columns, source.form, source.drop_bad, source.users_from),
        _load_reported(reported, columns, reported_form, separate, source.drop_bad),
        guarantee,
        zone,
    )
    write_for_owner(path, text)
    if not quiet:
        click.echo(f"{path} contains true positions: it is for the owner's eyes, do not publish it")


def _check_output(out: str, *inputs: str) -> Path:
    """The path of the page, if it replaces no traces."""
    path = Path(out)
    if out == STANDARD_STREAM or path.is_dir() or not path.parent.is_dir():
        raise ParameterError(f"-o must name a file in an existing folder, found {out}")
    taken = path.exists() and any(Path(name).exists() and path.samefile(name) for name in inputs)
    if taken or recognize(out) is not None:
        raise ParameterError(f"-o {out} is a file of traces; call the page such as page.html")
    return path


def _load_reported(
    name: str,
    columns: Columns,
    form: str | None,
    users_from: UsersFrom | None,
    drop_bad: bool,
) -> RowBatch:
    """With kinds and costs if the file has them."""
    try:
        with_kinds = replace(columns, keep=("kind", "cost"))
        return load_rows([name], with_kinds, form, drop_bad, users_from, in_order=False)
    except ParameterError:
        pass
    return load_rows([name], columns, form, drop_bad, users_from, in_order=False)


def write_for_owner(path: Path, text: str) -> None:
    """Write atomically, and never readable by others, not even in the temporary file."""
    handle, part = tempfile.mkstemp(".part", f".{path.name}.", path.parent)  # 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(part).replace(path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
