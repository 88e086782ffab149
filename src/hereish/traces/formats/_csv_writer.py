"""Released rows as CSV, or with tabs: what `csv.writer` writes, many times as fast."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hereish.errors import ParameterError
from hereish.traces.columns import Layout
from hereish.traces.formats._times import format_utc
from hereish.traces.formats.base import Writer
from hereish.traces.table import Ids, ReleasedRows

_WRITE_ROWS = 1 << 14
_PLAIN = re.compile(r"[A-Za-z0-9_.:+-]+")  # which no rule of any version puts in quotes


class CsvWriter(Writer):
    """Writes rows as they come; the columns are those of the first."""

    def __init__(self, file: BinaryIO, layout: Layout, delimiter: str = ",") -> None:
        self._file = file
        self._delimiter = delimiter
        self._fields = _Fields(delimiter)
        self._layout = layout
        self._names: list[str] | None = None  # of the columns, once the first rows are known

    def write(self, rows: ReleasedRows) -> None:
        columns = self._columns(rows)
        if self._names is None:
            self._write_header(list(columns))
        absent = [""] * len(rows)
        fields = [columns.get(name, absent) for name in self._names or ()]
        for first in range(0, len(rows), _WRITE_ROWS):
            some = (column[first : first + _WRITE_ROWS] for column in fields)
            self._write_lines(map(self._delimiter.join, zip(*some, strict=True)))

    def finish(self) -> None:
        if self._names is None:
            layout = self._layout
            self._write_header([layout.time, layout.lat, layout.lon, "kind", "cost"])
        self._file.flush()

    def _columns(self, rows: ReleasedRows) -> dict[str, list[str]]:
        """The fields of each column, in quotes where they need some."""
        layout = self._layout
        columns: dict[str, list[str]] = {}
        if rows.user is not None:
            columns[layout.user] = self._ids(rows.user)
        if rows.trace is not None:
            columns[layout.trace] = self._ids(rows.trace)
        columns[layout.time] = format_utc(rows.at_us)
        columns[layout.lat] = list(map(repr, rows.lat.tolist()))
        columns[layout.lon] = list(map(repr, rows.lon.tolist()))
        columns["kind"] = list(rows.kind_names())
        columns["cost"] = list(map(repr, rows.cost.tolist()))
        for name, column in rows.kept.items():
            if name in columns:  # never a true column in place of a released one
                raise ParameterError(f"a column that is kept cannot be called {name!r}")
            columns[name] = self._fields.of(_writable(column))
        return columns

    def _ids(self, ids: Ids) -> list[str]:
        used = np.unique(ids.codes).tolist()
        fields = dict(zip(used, self._fields.of([ids.names[code] for code in used]), strict=True))
        return [fields[code] for code in ids.codes.tolist()]

    def _write_header(self, names: list[str]) -> None:
        self._names = names
        self._write_lines([self._delimiter.join(self._fields.of(names))])

    def _write_lines(self, lines: Any) -> None:
        # Ids from JSON may be texts that UTF-8 cannot encode.
        self._file.write(("\n".join(lines) + "\n").encode(errors="backslashreplace"))


class _Fields:
    """Values as fields of a line."""

    def __init__(self, delimiter: str) -> None:
        self._lines: list[str] = []
        # It quotes a lone \r only if lines end in one.
        self._writer = csv.writer(self, lineterminator="\r\n", delimiter=delimiter)

    def write(self, line: str) -> None:
        """What `csv.writer` writes to."""
        self._lines.append(line)

    def of(self, values: Sequence[Any]) -> list[str]:
        """The field of each value."""
        kinds = set(map(type, values))
        if kinds == {float}:
            return list(map(repr, values))
        if kinds == {int}:
            return list(map(str, values))
        return [
            value if type(value) is str and _PLAIN.fullmatch(value) else self._field(value)
            for value in values
        ]

    def _field(self, value: Any) -> str:
        # With an empty field behind it: one that is empty and alone would be put in quotes.
        self._writer.writerow((value, ""))
        return self._lines.pop()[: -len(",\r\n")]


def _writable(column: NDArray[Any]) -> list[Any]:
    """The values as Python objects; times as texts, since a list of them would be numbers."""
    values: list[Any] = (
        np.datetime_as_string(column) if column.dtype.kind == "M" else column
    ).tolist()
    return values
