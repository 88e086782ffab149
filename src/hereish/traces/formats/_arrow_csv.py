"""Blocks of CSV as columns, read by Arrow: no more of it than Arrow reads as we do.

A block is refused, and so read row by row, unless each of its lines is a row and each of its quotes
stands at the beginning or the end of a field. Of a column that holds something which Arrow does not
take for a number or a time, the texts are taken. Everything that Arrow takes means the same to us
(see `tests/traces/formats/test_arrow_csv.py`).
"""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from hereish.core.types import Floats, Ints
from hereish.traces.formats._arrow_values import present, values_of
from hereish.traces.formats._text import FieldBlock, FieldPositions, Moments
from hereish.traces.formats._time_numbers import EXCEL, numbers_us
from hereish.traces.formats._times import TimeParser
from hereish.traces.table import Ids

# Neither a number nor a time, and written where there is none.
NOTHING = ("", "NA", "N/A", "n/a", "#N/A", "NULL", "Null", "null", "None", "NaN", "nan", "-", "\\N")
_FIELD_BYTES = 1 << 16  # longer fields may be longer than the csv module takes
_ODD_ROWS = 256  # one of so many rows may be odd
_QUOTE = ord('"')
# Arrow counts years from 0 to 9999, Python from 1: what is far off is left to Python.
_FIRST_US, _LAST_US = (
    round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000 for year in (1000, 3000)
)
_IDS = pa.dictionary(pa.int32(), pa.string())
_TIMES = {True: pa.timestamp("us"), False: pa.timestamp("us", "UTC"), None: pa.float64()}


# Rows, and lines that have not as many fields as there are columns.
Parts: TypeAlias = list[FieldBlock | tuple[int, str]]


class ArrowReader:
    """Reads the blocks of one file."""

    def __init__(self, fields: FieldPositions, delimiter: str, parser: TimeParser) -> None:
        self._fields, self._delimiter, self._parser = fields, delimiter, parser
        others = (fields.point, fields.date, fields.lat_side, fields.lon_side)
        self._texts = {at for at in others if at is not None}
        self._texts |= {*fields.keep.values(), *fields.owners.values()}
        if fields.date is not None or fields.time_of_day:
            self._texts.add(fields.time)
        self._degrees = {fields.lat, fields.lon} if fields.point is None else set()
        self._ids = {at for at in (fields.user, fields.trace) if at is not None}
        self._degrees -= self._texts
        self._ids -= self._texts
        # Whether times have no offset, or are numbers (None); the first is tried first.
        self._kinds: list[bool | None] = []
        if fields.time not in self._texts:
            if parser.plain:
                self._kinds = [False, True, None] if parser.zone is None else [False, None]
            elif parser.unit is not None and parser.unit != EXCEL:
                self._kinds = [None]

    def read(self, block: bytes, before: int, lines: int) -> Parts | None:
        """The rows of so many lines in UTF-8, which come after others; None if they are refused.

        Rows that have not as many fields as there are columns come as texts, with their lines.
        """
        if not self._is_simple(block):
            return None
        found = self._read_table(block)
        if found is None:
            return None
        table, moments, odd = found
        if table.num_rows + len(odd) != lines or len(odd) > 1 + lines // _ODD_ROWS:
            return None  # blank lines, rows of several lines, or too much that is odd
        line = np.arange(before + 1, before + lines + 1)
        if odd:
            line = np.delete(line, np.array(odd) - 1)
        rows = self._convert(table, moments, line)
        if self._may_be_blank(rows):
            return None
        return list(_with_odd(rows, odd, block, before)) if odd else [rows]

    def _may_be_blank(self, rows: FieldBlock) -> bool:
        """Whether a row may have nothing in it, which all of its fields tell."""
        if rows.moments is not None:
            empty = ~rows.moments.known
        else:
            times = rows.texts[self._fields.time]
            empty = np.array([not text.strip() for text in times], dtype=np.bool_)
        for degrees in rows.degrees.values():
            empty = empty & np.isnan(degrees)
        return bool(empty.any())

    def _is_simple(self, block: bytes) -> bool:
        """Whether quotes enclose whole fields, and lines end as they do everywhere."""
        if block.startswith(codecs.BOM_UTF8):  # Arrow would pass over it
            return False
        if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
            return False
        windows = range(0, len(block) - _FIELD_BYTES, _FIELD_BYTES)
        if any(block.find(b"\n", at, at + _FIELD_BYTES) < 0 for at in windows):
            return False
        if b'"' not in block:
            return True
        data = np.frombuffer(block, np.uint8)
        quotes = np.flatnonzero(data == _QUOTE)
        if len(quotes) % 2:
            return False
        ends = np.zeros(256, dtype=np.bool_)
        ends[[*self._delimiter.encode(), *b"\r\n"]] = True
        opening, closing = quotes[0::2], quotes[1::2]
        opening = opening[int(opening[0] == 0) :]  # of a field at the beginning of the block
        closing = closing[: len(closing) - int(closing[-1] == len(data) - 1)]
        return bool(ends[data[opening - 1]].all() and ends[data[closing + 1]].all())

    def _read_table(self, block: bytes) -> tuple[Any, Moments | None, list[int]] | None:
        while True:
            types = dict.fromkeys(self._texts, pa.string()) | dict.fromkeys(self._ids, _IDS)
            types |= dict.fromkeys(self._degrees, pa.float64())
            types[self._fields.time] = _TIMES[self._kinds[0]] if self._kinds else pa.string()
            found = self._read_columns(block, types)
            if found is not None:
                table, odd = found
                moments = self._moments(table, self._kinds[0]) if self._kinds else None
                if moments is not None or not self._kinds:
                    return table, moments, odd
            if not self._settle(block):
                return None

    def _read_columns(self, block: bytes, types: dict[int, Any]) -> tuple[Any, list[int]] | None:
        """Some columns, and the rows that are odd; None if they are not of these types."""
        odd: list[int] = []

        def skip(row: Any) -> str:
            odd.append(row.number)
            return "skip"

        names = {at: f"{at}" for at in range(self._fields.width)}
        # What it raises quotes the data, so it is not passed on.
        with contextlib.suppress(pa.ArrowException):
            table = arrow_csv.read_csv(
                pa.BufferReader(block),
                arrow_csv.ReadOptions(
                    use_threads=False, block_size=len(block) + 1, column_names=[*names.values()]
                ),
                arrow_csv.ParseOptions(delimiter=self._delimiter, invalid_row_handler=skip),
                arrow_csv.ConvertOptions(
                    check_utf8=False,
                    include_columns=[names[at] for at in types],
                    column_types={names[at]: kind for at, kind in types.items()},
                    null_values=NOTHING,
                    strings_can_be_null=False,
                    timestamp_parsers=[arrow_csv.ISO8601],
                ),
            )
            return table, odd
        return None

    def _settle(self, block: bytes) -> bool:
        """Take as texts, from here on, what cannot be read otherwise. False: it is nothing."""
        before = (set(self._degrees), list(self._kinds))
        for at in sorted(self._degrees):
            if self._read_columns(block, {at: pa.float64()}) is None:
                self._degrees.remove(at)
                self._texts.add(at)
        time = self._fields.time
        for kind in list(self._kinds):
            found = self._read_columns(block, {time: _TIMES[kind]})
            if found is not None and self._moments(found[0], kind) is not None:
                self._kinds = [kind, *(other for other in self._kinds if other != kind)]
                break
        else:
            self._kinds = []
        return before != (self._degrees, self._kinds)

    def _moments(self, table: Any, kind: bool | None) -> Moments | None:
        """The times; None if one of them is not what it seems to be."""
        column = _chunk(table, self._fields.time)
        known = present(column)
        if kind is not None:
            at_us = values_of(column, np.int64)
            if not known.all():
                at_us = np.where(known, at_us, _FIRST_US)
            far = len(at_us) and (at_us.min() < _FIRST_US or at_us.max() > _LAST_US)
            return None if far else Moments(at_us, known, kind)
        numbers = values_of(column, np.float64)
        known = known & np.isfinite(numbers)
        if not known.any():
            return Moments(np.zeros(len(numbers), dtype=np.int64), known, None)
        some = numbers_us(numbers[known], self._parser.unit)
        if some is None:
            return None
        at_us = np.zeros(len(numbers), dtype=np.int64)
        at_us[known] = some
        return Moments(at_us, known, None)

    def _convert(self, table: Any, moments: Moments | None, line: Ints) -> FieldBlock:
        texts = {*self._texts, *(() if self._kinds else (self._fields.time,))}
        return FieldBlock(
            line,
            {at: _chunk(table, at).to_pylist() for at in texts},
            moments,
            {at: _numbers(_chunk(table, at)) for at in self._degrees},
            {at: _encoded(_chunk(table, at)) for at in self._ids},
        )


def _chunk(table: Any, at: int) -> Any:
    column = table.column(f"{at}")
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _numbers(column: Any) -> Floats:
    values = values_of(column, np.float64)
    good = np.isfinite(values)
    if column.null_count:
        good &= present(column)
    return values if good.all() else np.where(good, values, np.nan)


def _encoded(column: Any) -> Ids:
    return Ids(values_of(column.indices, np.int32), column.dictionary.to_pylist())


def _with_odd(
    whole: FieldBlock, odd: list[int], block: bytes, before: int
) -> Iterator[FieldBlock | tuple[int, str]]:
    """The rows in their order; those that are odd as texts."""
    lines = block.split(b"\n")
    done = 0
    for passed, number in enumerate(odd):
        yield whole.take(slice(done, number - 1 - passed))
        done = number - 1 - passed
        yield before + number, lines[number - 1].decode() + "\n"
    yield whole.take(slice(done, len(whole)))
