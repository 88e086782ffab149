"""CSV: a header line, then a row a line, between commas, semicolons or tabs."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hereish.errors import ParameterError
from hereish.traces.discovery import Source
from hereish.traces.formats import _text
from hereish.traces.formats._times import iso
from hereish.traces.table import (
    KINDS,
    Columns,
    Layout,
    Piece,
    Promise,
    Released,
    Unreadable,
    listed,
)
from hereish.traces.table import Writer as Writing

ROLES = ("user", "trace", "time", "lat", "lon")
DELIMITERS = ",;\t"  # the first is meant where the header does not tell
_WRITE_ROWS = 1 << 14
# Names of columns are told in errors. What looks like a place is not a name: 60.17N, 60°, 24938400.
_PLACE = re.compile(r"\d[.,]\d\d|\d\s*°|\d{5}")


def read(source: Source, columns: Columns) -> Iterator[Piece]:
    """The rows of a CSV file in UTF-8 with a header; its times are ISO 8601 or Unix times."""
    with _text.opened(source) as (file, done):
        texts = _text.lines(file)
        head = _head(texts)
        reader = csv.reader(
            itertools.chain(head, texts), delimiter=_delimiter(head[-1]), strict=True
        )
        names = _names(reader)
        fields, layout = _found(columns, names)
        rows = _rows(reader, fields.width)
        none = "it has a header and no rows"
        yield from _text.pieces(rows, fields, columns.zone, layout, done, none)


def _head(texts: Iterator[str]) -> list[str]:
    """The lines up to the first that is not blank."""
    head: list[str] = []
    for text in texts:
        head.append(text)
        if text.strip():
            return head
    raise Unreadable("it is empty")


def _delimiter(header: str) -> str:
    return max(DELIMITERS, key=header.count)


def _names(reader: Any) -> list[str]:
    for _, row in _records(reader):
        if row and (len(row) > 1 or row[0].strip()):
            names = [name.strip() for name in row]
            if any(_text.number(name) is not None or _PLACE.search(name) for name in names):
                raise Unreadable(
                    "it has numbers, so it is no header; add a line with the names of the columns",
                    reader.line_num,
                )
            return names
    raise Unreadable("it is empty")


def _records(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """The rows of a reader and the line before each."""
    before: int = reader.line_num
    try:
        for row in reader:
            yield before, row
            before = reader.line_num
    except csv.Error:
        pass
    else:
        return
    raise Unreadable("its quotes do not fit, or one of its fields is far too long", before + 1)


def _rows(reader: Any, width: int) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank and their lines."""
    for before, row in _records(reader):
        line = reader.line_num
        if len(row) != width:
            if line > before + 1:  # a quote has swallowed rows, who knows how many
                raise Unreadable("its quotes do not fit", before + 1)
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
        yield line, row


def _found(columns: Columns, names: Sequence[str]) -> tuple[_text.Fields, Layout]:
    different = list(dict.fromkeys(names))
    found = {role: columns.find(role, different) for role in ("user", "trace")}
    found |= {role: columns.need(role, different) for role in ("time", "lat", "lon")}
    roles: dict[str, Any] = {role: name for role, name in found.items() if name is not None}
    for name in columns.keep:
        if name not in names:
            raise ParameterError(f"there is no column {name!r} to keep; found {listed(names)}")
    wanted = [*roles.values(), *columns.keep]
    if len(set(wanted)) < len(wanted):
        raise ParameterError(f"the columns {', '.join(map(repr, wanted))} must differ")
    for name in wanted:
        if names.count(name) > 1:
            raise ParameterError(f"which is it? {names.count(name)} columns are called {name!r}")
    places = {role: names.index(name) for role, name in roles.items()}
    keep = {name: names.index(name) for name in columns.keep}
    return _text.Fields(width=len(names), keep=keep, **places), Layout(**roles)


def writer(file: BinaryIO, layout: Layout, promise: Promise) -> Writing:
    """A CSV file in UTF-8, its times in UTC. It has no place for the promise."""
    return _Writer(file, layout)


class _Lines:
    """Takes the rows of a csv.writer, which quotes a lone \r only if lines end in one."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, text: str) -> None:
        self.lines.append(text.removesuffix("\r\n"))


class _Writer:
    def __init__(self, file: BinaryIO, layout: Layout) -> None:
        self._file = file
        self._layout = layout
        self._names: list[str] | None = None  # of the columns, once the first rows are known

    def write(self, rows: Released) -> None:
        columns = self._columns(rows)
        if self._names is None:
            self._begin(list(columns))
        absent = [""] * len(rows)
        values = [columns.get(name, absent) for name in self._names or ()]
        records = zip(*values, strict=True)
        while block := list(itertools.islice(records, _WRITE_ROWS)):
            self._put(block)

    def finish(self) -> None:
        if self._names is None:
            layout = self._layout
            self._begin([layout.time, layout.lat, layout.lon, "kind", "cost"])
        self._file.flush()

    def _columns(self, rows: Released) -> dict[str, Sequence[Any]]:
        layout = self._layout
        columns: dict[str, Sequence[Any]] = {}
        if rows.user is not None:
            columns[layout.user] = rows.user.values()
        if rows.trace is not None:
            columns[layout.trace] = rows.trace.values()
        columns[layout.time] = iso(rows.at_us)
        columns[layout.lat] = rows.lat.tolist()
        columns[layout.lon] = rows.lon.tolist()
        columns["kind"] = [KINDS[kind] for kind in rows.kind.tolist()]
        columns["cost"] = rows.cost.tolist()
        for name, column in rows.kept.items():
            if name in columns:  # never the true values of a column in place of the released
                raise ParameterError(f"a column that is kept cannot be called {name!r}")
            columns[name] = _plain(column)
        return columns

    def _begin(self, names: list[str]) -> None:
        self._names = names
        self._put([names])

    def _put(self, records: Sequence[Sequence[Any]]) -> None:
        taken = _Lines()
        csv.writer(taken, lineterminator="\r\n").writerows(records)
        text = "\n".join(taken.lines) + "\n"
        # Ids from JSON may be text that UTF-8 cannot say.
        self._file.write(text.encode(errors="backslashreplace"))


def _plain(column: NDArray[Any]) -> list[Any]:
    """Values that are written as they read; a list of times would be numbers."""
    values: list[Any] = (
        np.datetime_as_string(column) if column.dtype.kind == "M" else column
    ).tolist()
    return values
