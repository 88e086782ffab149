"""`hereish show`: the true and the reported trace on one page, for the owner's eyes."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from hereish.cli._input_options import DROP_BAD, InputOptions, input_options
from hereish.cli._options import QUIET, Command, output
from hereish.errors import HereishError, ParameterError
from hereish.traces.column_names import unit_in_name
from hereish.traces.columns import Columns
from hereish.traces.discovery import STANDARD_STREAM
from hereish.traces.files import load_rows, read_guarantee
from hereish.traces.formats.registry import recognize
from hereish.traces.reading import UsersFrom
from hereish.traces.table import RELEASED_KINDS, RowBatch
from hereish.traces.validate import DropBad
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
    path = check_page_path(out, true, reported)
    if reported == STANDARD_STREAM:
        raise ParameterError("REPORTED must be a file: it is read more than once")
    _check_different(true, reported)
    reported_form = None if Path(reported).is_dir() or recognize(reported) else source.form
    guarantee = read_guarantee(reported, reported_form)
    if guarantee is None:
        _check_not_swapped(true, reported, source.form)
    zone = source.time_zone or (guarantee.time_zone if guarantee is not None else None)
    columns = source.columns(zone)
    # One file that was written has its users in it; several have them in their names again.
    separate = source.users_from if Path(reported).is_dir() else None
    rows = _load_reported(reported, _written(columns), reported_form, separate, source.drop_bad)
    if guarantee is None and "kind" not in rows.kept and _has_kinds(true, columns, source):
        raise _swapped(true, reported)
    true_rows = load_rows([true], columns, source.form, source.drop_bad, source.users_from)
    text = page(true_rows, rows, guarantee, zone)
    write_for_owner(path, text)
    if not quiet:
        click.echo(f"{path} contains true positions: it is for the owner's eyes, do not publish it")


def check_page_path(out: str, *inputs: str) -> Path:
    """The path of the page, if it replaces no traces."""
    path = Path(out)
    if out == STANDARD_STREAM or path.is_dir() or not path.parent.is_dir():
        raise ParameterError(f"-o must name a file in an existing folder, found {out}")
    taken = path.exists() and any(Path(name).exists() and path.samefile(name) for name in inputs)
    if taken or recognize(out) is not None:
        raise ParameterError(f"-o {out} is a file of traces; call the page such as page.html")
    return path


def _check_different(true: str, reported: str) -> None:
    """Refuse one file as both, in which nothing would be an error."""
    both = true != STANDARD_STREAM and Path(true).exists() and Path(reported).exists()
    if both and Path(true).samefile(reported):
        raise ParameterError(
            f"TRUE and REPORTED must be two files, found {true} twice: give what hereish sanitize "
            "read, and then what it wrote"
        )


def _check_not_swapped(true: str, reported: str, form: str | None) -> None:
    """Refuse what hereish wrote as the truth of a file that it did not write."""
    if true == STANDARD_STREAM:  # which can be read once
        return
    own_form = None if Path(true).is_dir() or recognize(true) else form
    if read_guarantee(true, own_form) is not None:
        raise _swapped(true, reported)


def _has_kinds(true: str, columns: Columns, source: InputOptions) -> bool:
    """Whether a file tells kinds of reports, as a table does that lost the file beside it."""
    if true == STANDARD_STREAM:
        return False
    try:
        rows = _load_reported(true, _written(columns), source.form, None, source.drop_bad)
    except HereishError:
        return False  # which is said where it is read as the truth
    kinds = rows.kept.get("kind")
    return kinds is not None and set(kinds.tolist()) <= {kind.value for kind in RELEASED_KINDS}


def _swapped(true: str, reported: str) -> ParameterError:
    return ParameterError(
        "TRUE must be what hereish sanitize read, and REPORTED what it wrote; found that "
        f"{true} was written by it, and {reported} was not: swap them"
    )


def _written(columns: Columns) -> Columns:
    """The columns of an output: its times are in ISO 8601, and its places are degrees."""
    plain = replace(columns, date=None, point=None, time_format=None, coordinate_unit=None)
    names = {role: getattr(columns, role) for role in ("lat", "lon")}
    renamed: dict[str, Any] = {
        role: None for role, name in names.items() if name and unit_in_name(name)
    }
    return replace(plain, **renamed)


def _load_reported(
    name: str,
    columns: Columns,
    form: str | None,
    users_from: UsersFrom | None,
    drop_bad: DropBad,
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
