"""What the formats of plain text share: lines, rows of fields, and batches of rows."""

from __future__ import annotations

import codecs
import contextlib
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from hereish.core.types import Floats, Ints
from hereish.traces.columns import Layout
from hereish.traces.faults import Fault, Faults, UnreadableFileError
from hereish.traces.formats._bytes import SourceBytes, check_not_utf16
from hereish.traces.formats._times import TimeParser
from hereish.traces.table import BATCH_ROWS, Ids, RowBatch

CHUNK_BYTES = 1 << 18
LONGEST_LINE_BYTES = 1 << 20
BLOCK_ROWS = 1 << 14  # rows that are text at one time: text takes ten times the memory of numbers


def read_lines(file: SourceBytes) -> Iterator[str]:
    r"""The lines of a UTF-8 text with their ends, which are \n, \r\n or \r."""
    before, rest = 0, b""
    for chunk in _chunks(file):
        data = rest + chunk
        # The last line may go on; and \n may follow a \r that is the last byte.
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
        complete, rest = data[:end], data[end:]
        yield from _decode_lines(complete, before)
        before += complete.count(b"\n") + complete.count(b"\r") - complete.count(b"\r\n")
        if len(rest) > LONGEST_LINE_BYTES:
            raise UnreadableFileError("it is too long for a row of a table", before + 1)
    yield from _decode_lines(rest, before)


def _chunks(file: SourceBytes) -> Iterator[bytes]:
    chunk = file.read(CHUNK_BYTES)
    check_not_utf16(chunk)
    chunk = chunk.removeprefix(codecs.BOM_UTF8) or file.read(CHUNK_BYTES)
    while chunk:
        yield chunk
        chunk = file.read(CHUNK_BYTES)


def _decode_lines(data: bytes, before: int) -> Iterator[str]:
    text = _decode_utf8(data)
    if text is not None:
        yield from io.StringIO(text, newline="")
        return
    for line, part in enumerate(data.splitlines(keepends=True), before + 1):
        text = _decode_utf8(part)
        if text is None:
            raise UnreadableFileError("it is not text in UTF-8; save it as UTF-8", line)
        yield text


def _decode_utf8(data: bytes) -> str | None:
    # The error of a failed decoding holds the text, so nothing is raised while it is handled.
    with contextlib.suppress(UnicodeDecodeError):
        return None if b"\0" in data else data.decode()
    return None


def parse_number(text: str) -> float | None:
    """A finite decimal number; None for anything else that Python would take for a number."""
    if "_" in text or not text.isascii():
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _parse_numbers(texts: Sequence[str]) -> Floats:
    """Each text's number, NaN where it is none."""
    together = "".join(texts)
    if "_" not in together and together.isascii():
        with contextlib.suppress(ValueError):
            values = np.fromiter(map(float, texts), np.float64, len(texts))
            values[~np.isfinite(values)] = np.nan
            return values
    careful = [math.nan if value is None else value for value in map(parse_number, texts)]
    return np.array(careful, dtype=np.float64)


def _parse_times(texts: Sequence[str], parser: TimeParser) -> tuple[Ints, Faults]:
    """Microseconds since 1970, and what is wrong with each time."""
    at_us = _parse_uniform_times(texts, parser)
    if at_us is not None:
        return at_us, np.zeros(len(texts), dtype=np.uint8)
    times = [parser.parse(text) for text in texts]
    fault = [time if isinstance(time, Fault) else Fault.NONE for time in times]
    return np.array(times, dtype=np.int64), np.array(fault, dtype=np.uint8)


def _parse_uniform_times(texts: Sequence[str], parser: TimeParser) -> Ints | None:
    """The times at once, if all are good and alike."""
    if any(text[4:5] != "-" for text in texts):  # it could be a Unix time
        return None
    try:
        moments = list(map(datetime.fromisoformat, texts))
    except ValueError:
        return None
    return parser.parse_all(moments)


@dataclass(frozen=True)
class FieldPositions:
    """Which field of a row of text each column is."""

    width: int
    time: int
    lat: int
    lon: int
    user: int | None = None
    trace: int | None = None
    keep: Mapping[str, int] = field(default_factory=dict)


def batches_of_fields(
    rows: Iterable[tuple[int, list[str]]],
    fields: FieldPositions,
    zone: ZoneInfo | None,
    layout: Layout,
    done: Callable[[], float],
    if_empty: str,
) -> Iterator[RowBatch]:
    """Rows of fields, each with its line number, as batches.

    Rows before an `UnreadableFileError` are yielded first. A file without any row raises one too,
    for the reason `if_empty`.
    """
    parser = TimeParser(zone)
    numbers: list[int] = []
    texts: list[list[str]] = []
    builder = _BatchBuilder(fields, parser)
    any_row, error = False, None
    try:
        for line, row in rows:
            any_row = True
            numbers.append(line)
            texts.append(row)
            if len(texts) == BLOCK_ROWS:
                builder.add(numbers, texts)
                numbers, texts = [], []
                if builder.rows + BLOCK_ROWS > BATCH_ROWS:
                    yield builder.build(layout, done())
                    builder = _BatchBuilder(fields, parser)
    except UnreadableFileError as raised:
        error = raised
    if texts:
        builder.add(numbers, texts)
    if builder.rows:
        yield builder.build(layout, done())
    if error is not None:
        raise error
    if not any_row:
        raise UnreadableFileError(if_empty)


class _BatchBuilder:
    """Turns rows of text into columns of numbers, block by block, until they are a batch."""

    def __init__(self, fields: FieldPositions, parser: TimeParser) -> None:
        self.rows = 0
        self._fields = fields
        self._parser = parser
        self._blocks: list[tuple[NDArray[Any], ...]] = []
        self._users: dict[str, int] = {}
        self._traces: dict[str, int] = {}
        self._kept: dict[str, list[str]] = {name: [] for name in fields.keep}

    def add(self, numbers: Sequence[int], rows: Sequence[list[str]]) -> None:
        at, width = self._fields, self._fields.width
        broken = np.array([len(row) != width for row in rows])
        if broken.any():
            nothing = [""] * width
            rows = [row if len(row) == width else nothing for row in rows]
        columns: list[Sequence[str]] = list(zip(*rows, strict=True))
        at_us, fault = _parse_times(columns[at.time], self._parser)
        lat, lon = _parse_numbers(columns[at.lat]), _parse_numbers(columns[at.lon])
        fault[(fault == 0) & np.isnan(lat)] = Fault.LAT
        fault[(fault == 0) & np.isnan(lon)] = Fault.LON
        if at.user is not None:
            fault[[not text.strip() for text in columns[at.user]]] = Fault.USER
        fault[broken] = Fault.LINE
        line = np.array(numbers, dtype=np.int64)
        users = _encode(columns, at.user, self._users)
        traces = _encode(columns, at.trace, self._traces)
        self._blocks.append((line, at_us, lat, lon, fault, users, traces))
        for name, kept in self._kept.items():
            kept += columns[at.keep[name]]
        self.rows += len(rows)

    def build(self, layout: Layout, done: float) -> RowBatch:
        columns = map(np.concatenate, zip(*self._blocks, strict=True))
        line, at_us, lat, lon, fault, users, traces = columns
        self._parser.mark_missing_offsets(fault)
        return RowBatch(
            line,
            at_us,
            lat,
            lon,
            fault,
            user=None if self._fields.user is None else Ids(users, list(self._users)),
            trace=None if self._fields.trace is None else Ids(traces, list(self._traces)),
            kept={name: np.array(texts, dtype=object) for name, texts in self._kept.items()},
            layout=layout,
            done=done,
        )


def _encode(columns: Sequence[Sequence[str]], position: int | None, known: dict[str, int]) -> Ints:
    texts = () if position is None else columns[position]
    return np.array([known.setdefault(text, len(known)) for text in texts], dtype=np.int64)
