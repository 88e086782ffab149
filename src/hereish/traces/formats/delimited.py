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

from hereish.errors import HereishError
from hereish.traces.column_names import unit_in_name
from hereish.traces.columns import NO_USER, Columns, Layout, owner_columns, side_column
from hereish.traces.faults import NoPointsError, UnreadableFileError, empty_file
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._csv_writer import CsvWriter
from hereish.traces.formats._degrees import parse_number
from hereish.traces.formats._lines import Lines
from hereish.traces.formats._part_file import FilePart
from hereish.traces.formats._table_head import (
    COMMENT,
    DELIMITERS,
    NAMES,
    has_header,
    read_head,
)
from hereish.traces.formats._text import (
    FieldBlock,
    FieldPositions,
    RowOrBlock,
    batches_of_fields,
)
from hereish.traces.formats._text_parts import TableText, divide_text
from hereish.traces.formats._times import TimeParser
from hereish.traces.formats.base import Format, Source, Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import RowBatch

if TYPE_CHECKING:
    from hereish.traces.formats._arrow_csv import ArrowReader

WORTH_BYTES = 1 << 18  # of a block; fewer are read sooner than Arrow is imported
# Errors list column names. What looks like a coordinate is not a name: 60.17N, 60°, 24938400.
_PLACE = re.compile(r"\d[.,]\d\d|\d\s*°|\d{5}")


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The rows of a file with a header, in UTF-8, UTF-16 or Latin-1."""
    times = TimeParser(columns.zone, columns.time_format)
    with SourceBytes(source) as file:
        lines = Lines(file)
        head = read_head(lines, columns)
        text = itertools.chain(head.lines, head.ahead, lines)
        reader = csv.reader(text, delimiter=head.delimiter, strict=True)
        fields, layout = _find_columns(columns, _read_names(reader))
        blocks = BlockReader(lines, fields, head.delimiter, times)
        begins = source.part is None or source.part.begin == source.part.head
        units = fields if begins else None
        ahead = len(head.lines) + len(head.ahead)
        rows = _read_rows(reader, lines, blocks, fields, ahead, units)
        if_empty = NoPointsError(
            "it has a header and no rows",
            expected="a row for each point",
            remedy="leave this file out",
        )
        yield from batches_of_fields(rows, fields, times, layout, file.done, if_empty)


def _read_names(reader: Any) -> list[str]:
    while (row := _read_record(reader, reader.line_num)) is not None:
        if row and (len(row) > 1 or row[0].strip()):
            row[0] = row[0].removeprefix(COMMENT)
            names = [name.strip() for name in row]
            if any(parse_number(name) is not None or _PLACE.search(name) for name in names):
                raise UnreadableFileError(
                    "it has numbers, so it is no header",
                    reader.line_num,
                    expected=NAMES,
                    remedy="add a line with the names of the columns",
                )
            while len(names) > 1 and not names[-1]:  # a delimiter at the end of each line
                names.pop()
            return names
    raise empty_file(f"{NAMES}, and a row for each point")


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


def _read_rows(
    reader: Any,
    lines: Lines,
    blocks: BlockReader,
    fields: FieldPositions,
    ahead: int,
    units: FieldPositions | None,
) -> Iterator[RowOrBlock]:
    """The rows that are not blank and their lines, without empty fields beyond the header.

    So many lines were read `ahead`. Where the rows begin, the first may be one of units.
    """
    while True:
        if units is None and reader.line_num >= ahead and lines.between_blocks and blocks.possible:
            yield from blocks.read()
        before = reader.line_num + lines.taken
        row = _read_record(reader, before)
        if row is None:
            return
        line = reader.line_num + lines.taken
        if len(row) != fields.width:
            if line > before + 1:  # a quote spans rows, and nobody knows how many
                raise _wrong_quotes("its quotes do not fit", before + 1)
            row = _usable(row, fields.width)
        elif not (row[fields.time].strip() or any(map(str.strip, row))):
            row = None  # as spreadsheets write rows without anything
        if row is None:
            continue
        is_of_units = units is not None and _has_units(row, units)
        units = None
        if not is_of_units:
            yield line, row


def _has_units(row: list[str], at: FieldPositions) -> bool:
    """Whether a row is of units, such as `,deg,deg,m`: there is no digit in its time and place."""
    if len(row) != at.width:
        return False
    places = [row[at.lat], row[at.lon]] if at.point is None else [row[at.point]]
    cells = [row[at.time], *places, *([] if at.date is None else [row[at.date]])]
    return any(text.strip() for text in places) and not any(map(str.isdigit, "".join(cells)))


def _usable(row: list[str], width: int) -> list[str] | None:
    """A row without empty fields beyond the header; None if it is blank or a comment."""
    if not any(map(str.strip, row)) or row[0].lstrip().startswith(COMMENT):
        return None
    while len(row) > width and not row[-1].strip():
        row.pop()
    return row


def _find_columns(columns: Columns, names: Sequence[str]) -> tuple[FieldPositions, Layout]:
    if len(names) == 1:
        raise UnreadableFileError(
            "its first line has a single field",
            expected=f"{NAMES}, separated by commas, semicolons, tabs or bars",
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
        head = read_head(Lines(file), columns)
        names = _read_names(csv.reader(head.lines, delimiter=head.delimiter))
        fields, _ = _find_columns(columns, names)
        if fields.user is not None:
            table = TableText(len(head.lines), head.delimiter, fields.user, fields.width)
            return divide_text(source, table, jobs)
    return ()


def sniff(head: bytes, columns: Columns | None = None) -> bool:
    """Whether the first lines have a header that names latitude and longitude, or points."""
    return has_header(head.decode(errors="replace").splitlines(), columns or Columns())


def open_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """A CSV file in UTF-8, its times in UTC. It has no place for the guarantee."""
    return CsvWriter(file, layout)


def open_tsv_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """The same, separated by tabs."""
    return CsvWriter(file, layout, "\t")


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
