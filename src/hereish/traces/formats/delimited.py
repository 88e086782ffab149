"""CSV: a header line, then one row per line, separated by commas, semicolons or tabs."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hereish.errors import ParameterError
from hereish.traces.columns import Columns, Layout
from hereish.traces.faults import UnreadableFileError
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._text import (
    FieldPositions,
    batches_of_fields,
    parse_number,
    read_lines,
)
from hereish.traces.formats._times import format_utc
from hereish.traces.formats.base import Format, Source, Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import ReleasedRows, RowBatch

DELIMITERS = ",;\t"  # the first is taken where the header has none of them
_WRITE_ROWS = 1 << 14
# Errors list column names. What looks like a coordinate is not a name: 60.17N, 60°, 24938400.
_PLACE = re.compile(r"\d[.,]\d\d|\d\s*°|\d{5}")


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The rows of a CSV file in UTF-8 with a header; its times are ISO 8601 or Unix times."""
    with SourceBytes(source) as file:
        lines = read_lines(file)
        head = _read_head(lines)
        reader = csv.reader(
            itertools.chain(head, lines), delimiter=_guess_delimiter(head[-1]), strict=True
        )
        fields, layout = _find_columns(columns, _read_names(reader))
        rows = _read_rows(reader, fields.width)
        if_empty = "it has a header and no rows"
        yield from batches_of_fields(rows, fields, columns.zone, layout, file.done, if_empty)


def _read_head(lines: Iterator[str]) -> list[str]:
    """The lines up to the first that is not blank."""
    head: list[str] = []
    for line in lines:
        head.append(line)
        if line.strip():
            return head
    raise UnreadableFileError("it is empty")


def _guess_delimiter(header: str) -> str:
    return max(DELIMITERS, key=header.count)


def _read_names(reader: Any) -> list[str]:
    for _, row in _read_records(reader):
        if row and (len(row) > 1 or row[0].strip()):
            names = [name.strip() for name in row]
            if any(parse_number(name) is not None or _PLACE.search(name) for name in names):
                raise UnreadableFileError(
                    "it has numbers, so it is no header; add a line with the names of the columns",
                    reader.line_num,
                )
            return names
    raise UnreadableFileError("it is empty")


def _read_records(reader: Any) -> Iterator[tuple[int, list[str]]]:
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
    raise UnreadableFileError(
        "its quotes do not fit, or one of its fields is far too long", before + 1
    )


def _read_rows(reader: Any, width: int) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank and their lines."""
    for before, row in _read_records(reader):
        line = reader.line_num
        if len(row) != width:
            if line > before + 1:  # a quote spans rows, and nobody knows how many
                raise UnreadableFileError("its quotes do not fit", before + 1)
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
        yield line, row


def _find_columns(columns: Columns, names: Sequence[str]) -> tuple[FieldPositions, Layout]:
    roles: dict[str, Any] = columns.find_all(names, required=("time", "lat", "lon"))
    positions = {role: names.index(name) for role, name in roles.items()}
    keep = {name: names.index(name) for name in columns.keep}
    return FieldPositions(width=len(names), keep=keep, **positions), Layout(**roles)


def open_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """A CSV file in UTF-8, its times in UTC. It has no place for the guarantee."""
    return _CsvWriter(file, layout)


FORMAT = Format(name="csv", extensions=(".csv",), read=read, open_writer=open_writer, sidecar=True)


class _LineBuffer:
    """Takes the rows of a csv.writer, which quotes a lone \r only if lines end in one."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, text: str) -> None:
        self.lines.append(text.removesuffix("\r\n"))


class _CsvWriter(Writer):
    def __init__(self, file: BinaryIO, layout: Layout) -> None:
        self._file = file
        self._layout = layout
        self._names: list[str] | None = None  # of the columns, once the first rows are known

    def write(self, rows: ReleasedRows) -> None:
        columns = self._columns(rows)
        if self._names is None:
            self._write_header(list(columns))
        absent = [""] * len(rows)
        values = [columns.get(name, absent) for name in self._names or ()]
        records = zip(*values, strict=True)
        while block := list(itertools.islice(records, _WRITE_ROWS)):
            self._write_records(block)

    def finish(self) -> None:
        if self._names is None:
            layout = self._layout
            self._write_header([layout.time, layout.lat, layout.lon, "kind", "cost"])
        self._file.flush()

    def _columns(self, rows: ReleasedRows) -> dict[str, Sequence[Any]]:
        layout = self._layout
        columns: dict[str, Sequence[Any]] = {}
        if rows.user is not None:
            columns[layout.user] = rows.user.values()
        if rows.trace is not None:
            columns[layout.trace] = rows.trace.values()
        columns[layout.time] = format_utc(rows.at_us)
        columns[layout.lat] = rows.lat.tolist()
        columns[layout.lon] = rows.lon.tolist()
        columns["kind"] = rows.kind_names()
        columns["cost"] = rows.cost.tolist()
        for name, column in rows.kept.items():
            if name in columns:  # never a true column in place of a released one
                raise ParameterError(f"a column that is kept cannot be called {name!r}")
            columns[name] = _writable(column)
        return columns

    def _write_header(self, names: list[str]) -> None:
        self._names = names
        self._write_records([names])

    def _write_records(self, records: Sequence[Sequence[Any]]) -> None:
        buffer = _LineBuffer()
        csv.writer(buffer, lineterminator="\r\n").writerows(records)
        text = "\n".join(buffer.lines) + "\n"
        # Ids from JSON may be texts that UTF-8 cannot encode.
        self._file.write(text.encode(errors="backslashreplace"))


def _writable(column: NDArray[Any]) -> list[Any]:
    """The values as Python objects; times as texts, since a list of them would be numbers."""
    values: list[Any] = (
        np.datetime_as_string(column) if column.dtype.kind == "M" else column
    ).tolist()
    return values
