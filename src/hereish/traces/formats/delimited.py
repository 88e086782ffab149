"""CSV: a header line, then one row per line, separated by commas, semicolons, tabs or bars."""

from __future__ import annotations

import contextlib
import csv
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hereish.errors import HereishError, ParameterError
from hereish.traces.column_names import USUAL_NAMES, known_names, normal_name, unit_in_name
from hereish.traces.columns import NO_USER, Columns, Layout, owner_columns, side_column
from hereish.traces.faults import NoPointsError, UnreadableFileError, empty_file
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._degrees import parse_number
from hereish.traces.formats._lines import Lines
from hereish.traces.formats._part_file import FilePart
from hereish.traces.formats._text import (
    FieldBlock,
    FieldPositions,
    RowOrBlock,
    batches_of_fields,
)
from hereish.traces.formats._text_parts import TableText, divide_text
from hereish.traces.formats._times import TimeParser, format_utc
from hereish.traces.formats.base import Format, Source, Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import ReleasedRows, RowBatch

if TYPE_CHECKING:
    from hereish.traces.formats._arrow_csv import ArrowReader

DELIMITERS = ",;\t|"  # the first is taken where the header has none of them
_WRITE_ROWS = 1 << 14
WORTH_BYTES = 1 << 18  # of a block; fewer are read sooner than Arrow is imported
# Errors list column names. What looks like a coordinate is not a name: 60.17N, 60°, 24938400.
_PLACE = re.compile(r"\d[.,]\d\d|\d\s*°|\d{5}")
_COMMENT = "#"
_DECLARED = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # the first line of what Excel saves
_NAMES = "a first line with the names of the columns, such as user,time,lat,lon"


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The rows of a file with a header, in UTF-8, UTF-16 or Latin-1."""
    times = TimeParser(columns.zone, columns.time_format)
    with SourceBytes(source) as file:
        lines = Lines(file)
        head, delimiter = _read_head(lines)
        reader = csv.reader(itertools.chain(head, lines), delimiter=delimiter, strict=True)
        fields, layout = _find_columns(columns, _read_names(reader))
        rows = _read_rows(reader, lines, BlockReader(lines, fields, delimiter, times), fields.width)
        if_empty = NoPointsError(
            "it has a header and no rows",
            expected="a row for each point",
            remedy="leave this file out",
        )
        yield from batches_of_fields(rows, fields, times, layout, file.done, if_empty)


def _read_head(lines: Iterator[str]) -> tuple[list[str], str]:
    """The lines up to the header, those before it as blank ones, and the delimiter."""
    head: list[str] = []
    declared: str | None = None
    for line in lines:
        text = line.strip()
        said = _DECLARED.fullmatch(text)
        if said is not None and declared is None:
            declared = said[1]
        elif text and not (text.startswith(_COMMENT) and not _names_places(text)):
            head.append(line)
            return head, declared or _guess_delimiter(line)
        head.append("\n")
    raise empty_file(f"{_NAMES}, and a row for each point")


def _names_places(text: str) -> bool:
    """Whether a line that begins like a comment is a header."""
    names = re.split(r"[,;\t|]", text.removeprefix(_COMMENT))
    known = known_names("lat") | {*USUAL_NAMES["point"]}
    return any(normal_name(name) in known for name in names)


def _guess_delimiter(header: str) -> str:
    def fields(delimiter: str) -> int:
        try:
            return len(next(csv.reader([header], delimiter=delimiter)))
        except csv.Error:
            return 0

    return max(DELIMITERS, key=fields)


def _read_names(reader: Any) -> list[str]:
    while (row := _read_record(reader, reader.line_num)) is not None:
        if row and (len(row) > 1 or row[0].strip()):
            row[0] = row[0].removeprefix(_COMMENT)
            names = [name.strip() for name in row]
            if any(parse_number(name) is not None or _PLACE.search(name) for name in names):
                raise UnreadableFileError(
                    "it has numbers, so it is no header",
                    reader.line_num,
                    expected=_NAMES,
                    remedy="add a line with the names of the columns",
                )
            while len(names) > 1 and not names[-1]:  # a delimiter at the end of each line
                names.pop()
            return names
    raise empty_file(f"{_NAMES}, and a row for each point")


def _read_record(reader: Any, before: int) -> list[str] | None:
    """The next row, which comes after so many lines."""
    try:
        return next(reader, None)
    except csv.Error:
        pass
    raise _wrong_quotes("its quotes do not fit, or one of its fields is far too long", before + 1)


def _wrong_quotes(reason: str, line: int) -> UnreadableFileError:
    return UnreadableFileError(
        reason,
        line,
        expected="a quote before and after a field, and two for one inside of it",
        remedy="mend the quotes of that line",
    )


class BlockReader:
    """Reads many lines at once with Arrow, where that is installed, pays off and can be done."""

    def __init__(
        self, lines: Lines, fields: FieldPositions, delimiter: str, times: TimeParser
    ) -> None:
        self._lines, self._fields, self._delimiter, self._times = lines, fields, delimiter, times
        self._arrow: ArrowReader | None = None
        self.possible = delimiter in DELIMITERS and find_spec("pyarrow") is not None

    def read(self) -> Iterator[RowOrBlock]:
        """The rows of the next blocks, up to one that must be read line by line."""
        while block := self._lines.next_block():
            rows = self._read_block(block)
            if rows is None:
                return
            self._lines.take_block()
            for row in rows:
                if isinstance(row, FieldBlock):
                    yield row
                    continue
                line, text = row
                for fields in csv.reader([text], delimiter=self._delimiter, strict=True):
                    usable = _usable(fields, self._fields.width)
                    if usable is not None:
                        yield line, usable

    def _read_block(self, block: bytes) -> list[FieldBlock | tuple[int, str]] | None:
        if self._arrow is None:
            if len(block) < WORTH_BYTES:
                return None
            from hereish.traces.formats._arrow_csv import ArrowReader  # it takes time to import

            self._arrow = ArrowReader(self._fields, self._delimiter, self._times)
        if not self._lines.is_utf8(block):
            return None
        return self._arrow.read(block, self._lines.before, self._lines.next_count)


def _read_rows(reader: Any, lines: Lines, blocks: BlockReader, width: int) -> Iterator[RowOrBlock]:
    """The rows that are not blank and their lines, without empty fields beyond the header."""
    while True:
        if lines.between_blocks and blocks.possible:
            yield from blocks.read()
        before = reader.line_num + lines.taken
        row = _read_record(reader, before)
        if row is None:
            return
        line = reader.line_num + lines.taken
        if len(row) != width:
            if line > before + 1:  # a quote spans rows, and nobody knows how many
                raise _wrong_quotes("its quotes do not fit", before + 1)
            row = _usable(row, width)
        if row is not None:
            yield line, row


def _usable(row: list[str], width: int) -> list[str] | None:
    """A row without empty fields beyond the header; None if it is blank or a comment."""
    if not row or (len(row) == 1 and not row[0].strip()) or row[0].lstrip().startswith(_COMMENT):
        return None
    while len(row) > width and not row[-1].strip():
        row.pop()
    return row


def _find_columns(columns: Columns, names: Sequence[str]) -> tuple[FieldPositions, Layout]:
    if len(names) == 1:
        raise UnreadableFileError(
            "its first line has a single field",
            expected=f"{_NAMES}, separated by commas, semicolons, tabs or bars",
            remedy="remove the lines before that one, or separate its fields by one of these",
        )
    roles = columns.find_all(names, required=("time", "lat", "lon"), points=True, dates=True)
    positions: dict[str, Any] = {role: names.index(name) for role, name in roles.items()}
    if "point" not in roles:
        for role in ("lat", "lon"):
            side = side_column(role, names)
            if side is not None and side not in roles.values():
                positions[f"{role}_side"] = names.index(side)
            positions[f"{role}_unit"] = columns.unit(roles[role])
    whose = "user" in roles or columns.user == NO_USER
    owners = [] if whose else owner_columns(names, [*roles.values(), *columns.keep])
    keep = {name: names.index(name) for name in columns.keep}
    fields = FieldPositions(
        width=len(names),
        keep=keep,
        date_always=columns.date is not None,
        time_of_day=columns.must_tell_time_of_day(roles["time"]),
        owners={name: names.index(name) for name in owners},
        **positions,
    )
    return fields, Layout(**_output_names(roles))


def _output_names(roles: Mapping[str, str]) -> dict[str, Any]:
    """The names of the columns in the output, but not those that say another unit than degrees."""
    written = ("user", "trace", "time", "lat", "lon")
    return {
        role: name
        for role, name in roles.items()
        if role in written and not (role in ("lat", "lon") and unit_in_name(name))
    }


def divide(source: Source, columns: Columns, jobs: int) -> Sequence[FilePart]:
    """Bytes of a large file, so that nobody's rows are in two parts if they come user by user."""
    with SourceBytes(source) as file, contextlib.suppress(HereishError):
        head, delimiter = _read_head(Lines(file))
        fields, _ = _find_columns(columns, _read_names(csv.reader(head, delimiter=delimiter)))
        if fields.user is not None:
            table = TableText(len(head), delimiter, fields.user, fields.width)
            return divide_text(source, table, jobs)
    return ()


def sniff(head: bytes) -> bool:
    """Whether the first line names latitude and longitude, or points."""
    line = next((text for text in head.decode(errors="replace").splitlines() if text.strip()), "")
    names = {normal_name(name) for name in re.split(f"[{DELIMITERS}]", line.replace('"', ""))}

    def has(role: str) -> bool:
        return not names.isdisjoint(known_names(role))

    return (has("lat") and has("lon")) or has("point")


def open_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """A CSV file in UTF-8, its times in UTC. It has no place for the guarantee."""
    return _CsvWriter(file, layout)


def open_tsv_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """The same, separated by tabs."""
    return _CsvWriter(file, layout, "\t")


FORMAT = Format(
    name="csv",
    extensions=(".csv",),
    read=read,
    open_writer=open_writer,
    sniff=sniff,
    sniffed_extensions=(".txt",),
    sidecar=True,
    columns=True,
    reads_ahead=True,
    divide=divide,
)
TSV = replace(
    FORMAT,
    name="tsv",
    extensions=(".tsv", ".tab"),
    open_writer=open_tsv_writer,
    sniffed_extensions=(),
)


class _LineBuffer:
    """Takes the rows of a csv.writer, which quotes a lone \r only if lines end in one."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, text: str) -> None:
        self.lines.append(text.removesuffix("\r\n"))


class _CsvWriter(Writer):
    def __init__(self, file: BinaryIO, layout: Layout, delimiter: str = ",") -> None:
        self._file = file
        self._delimiter = delimiter
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
        csv.writer(buffer, lineterminator="\r\n", delimiter=self._delimiter).writerows(records)
        text = "\n".join(buffer.lines) + "\n"
        # Ids from JSON may be texts that UTF-8 cannot encode.
        self._file.write(text.encode(errors="backslashreplace"))


def _writable(column: NDArray[Any]) -> list[Any]:
    """The values as Python objects; times as texts, since a list of them would be numbers."""
    values: list[Any] = (
        np.datetime_as_string(column) if column.dtype.kind == "M" else column
    ).tolist()
    return values
