"""What the formats of plain text share: lines, rows of fields, and batches of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hereish.core.types import Bools, Floats, Ints
from hereish.traces.columns import Layout
from hereish.traces.faults import Fault, Faults, UnreadableFileError
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._degrees import (
    Axis,
    in_degrees,
    parse_all_degrees,
    parse_number,
    with_sides,
)
from hereish.traces.formats._lines import Lines
from hereish.traces.formats._time_texts import with_date
from hereish.traces.formats._times import TimeParser, is_number_of_time, tells_time_of_day
from hereish.traces.formats._wkt import parse_points
from hereish.traces.table import BATCH_ROWS, Ids, RowBatch

BLOCK_ROWS = 1 << 14  # rows that are text at one time: text takes ten times the memory of numbers


def read_lines(file: SourceBytes) -> Iterator[str]:
    r"""The lines of a text with their ends, which are \n, \r\n or \r."""
    return Lines(file)


def parse_times(texts: Sequence[str], parser: TimeParser) -> tuple[Ints, Faults]:
    """Microseconds since 1970, and what is wrong with each time."""
    at_us = _parse_uniform_times(texts, parser)
    if at_us is not None:
        return at_us, np.zeros(len(texts), dtype=np.uint8)
    times = [parser.parse(text) for text in texts]
    fault = [time if isinstance(time, Fault) else Fault.NONE for time in times]
    return np.array(times, dtype=np.int64), np.array(fault, dtype=np.uint8)


def _parse_uniform_times(texts: Sequence[str], parser: TimeParser) -> Ints | None:
    """The times at once, if all are good and alike."""
    if not parser.plain or all(text[4:5].isdigit() for text in texts):
        return _parse_uniform_numbers(texts, parser)
    if any(text[4:5] not in ("-", "/") for text in texts):
        return None
    try:
        moments = [datetime.fromisoformat(text.replace("/", "-", 2)) for text in texts]
    except ValueError:
        return None
    return parser.parse_all(moments)


def _parse_uniform_numbers(texts: Sequence[str], parser: TimeParser) -> Ints | None:
    if not all(map(is_number_of_time, texts)):
        return None
    numbers = [parse_number(text) for text in texts]
    if any(number is None for number in numbers):
        return None
    return parser.parse_numbers(np.array(numbers, dtype=np.float64))


@dataclass(frozen=True)
class FieldPositions:
    """Which field of a row of text each column is."""

    width: int
    time: int
    lat: int = 0
    lon: int = 0
    user: int | None = None
    trace: int | None = None
    keep: Mapping[str, int] = field(default_factory=dict)
    date: int | None = None  # joined with a time that is a clock alone
    date_always: bool = False  # ... or with any
    time_of_day: bool = False  # the times are in a column of dates, and so must tell it
    point: int | None = None  # in place of lat and lon
    lat_side: int | None = None  # the letters N and S
    lon_side: int | None = None
    lat_unit: str | None = None  # what numbers count, None: degrees
    lon_unit: str | None = None
    owners: Mapping[str, int] = field(default_factory=dict)  # not read, but maybe users


class Moments(NamedTuple):
    """A column of times that were read at once."""

    at_us: Ints
    known: Bools  # where there is one
    local: bool | None  # whether they have no offset from UTC; None: they are numbers


@dataclass(frozen=True)
class FieldBlock:
    """Rows of fields as columns, each as texts or in a form that can be used sooner."""

    line: Ints
    texts: Mapping[int, Sequence[str]]  # by the place of the field in a row
    moments: Moments | None = None
    degrees: Mapping[int, Floats] = field(default_factory=dict)  # plain numbers; NaN: none
    ids: Mapping[int, Ids] = field(default_factory=dict)
    broken: Bools | None = None  # rows that have not as many fields as there are columns

    @classmethod
    def of(cls, rows: Sequence[tuple[int, list[str]]], width: int) -> FieldBlock:
        broken = np.array([len(row) != width for _, row in rows])
        nothing = [""] * width
        whole = [row if len(row) == width else nothing for _, row in rows]
        line = np.array([line for line, _ in rows], dtype=np.int64)
        return cls(line, dict(enumerate(zip(*whole, strict=True))), broken=broken)

    def __len__(self) -> int:
        return len(self.line)

    def take(self, rows: slice) -> FieldBlock:
        """These rows only."""
        if rows.start == 0 and rows.stop >= len(self):
            return self
        moments = self.moments
        return FieldBlock(
            self.line[rows],
            {at: column[rows] for at, column in self.texts.items()},
            moments and Moments(moments.at_us[rows], moments.known[rows], moments.local),
            {at: column[rows] for at, column in self.degrees.items()},
            {at: ids.take(rows) for at, ids in self.ids.items()},
            None if self.broken is None else self.broken[rows],
        )


# A row and its line, or many of them.
RowOrBlock: TypeAlias = tuple[int, list[str]] | FieldBlock


def batches_of_fields(
    rows: Iterable[RowOrBlock],
    fields: FieldPositions,
    parser: TimeParser,
    layout: Layout,
    done: Callable[[], float],
    if_empty: UnreadableFileError,
) -> Iterator[RowBatch]:
    """Rows of fields, each with its line number, as batches.

    Rows before an `UnreadableFileError` are yielded first. A file without any row raises
    `if_empty`.
    """
    most = max(1, BATCH_ROWS // BLOCK_ROWS) * BLOCK_ROWS
    builder = _BatchBuilder(fields, parser)
    any_row, error = False, None
    try:
        for block in _in_blocks(rows, fields.width):
            any_row, begin = True, 0
            while begin < len(block):
                part = block.take(slice(begin, begin + most - builder.rows))
                builder.add(part)
                begin += len(part)
                if builder.rows == most:
                    yield builder.build(layout, done())
                    builder = _BatchBuilder(fields, parser)
    except UnreadableFileError as raised:
        error = raised
    if builder.rows:
        yield builder.build(layout, done())
    if error is not None:
        raise error
    if not any_row:
        raise if_empty


def _in_blocks(rows: Iterable[RowOrBlock], width: int) -> Iterator[FieldBlock]:
    waiting: list[tuple[int, list[str]]] = []
    error = None
    try:
        for row in rows:
            if not isinstance(row, FieldBlock):
                waiting.append(row)
            if waiting and (len(waiting) == BLOCK_ROWS or isinstance(row, FieldBlock)):
                yield FieldBlock.of(waiting, width)
                waiting = []
            if isinstance(row, FieldBlock):
                yield row
    except UnreadableFileError as raised:
        error = raised
    if waiting:
        yield FieldBlock.of(waiting, width)
    if error is not None:
        raise error


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
        self._owners: dict[str, list[str]] = {name: [] for name in fields.owners}

    def add(self, block: FieldBlock) -> None:
        at, texts = self._fields, block.texts
        at_us, fault = self._times(block)
        lat, lon = _parse_places(block, at)
        missing_lat, missing_lon = Fault.LAT, Fault.LON
        if at.point is not None:
            missing_lat = missing_lon = Fault.POINT
        fault[(fault == 0) & np.isnan(lat)] = missing_lat
        fault[(fault == 0) & np.isnan(lon)] = missing_lon
        users = _encode(block, at.user, self._users)
        traces = _encode(block, at.trace, self._traces)
        if at.user is not None:
            fault[_blank(block, at.user)] = Fault.USER
        if block.broken is not None:
            fault[block.broken] = Fault.LINE
        self._blocks.append((block.line, at_us, lat, lon, fault, users, traces))
        for name, kept in self._kept.items():
            kept += texts[at.keep[name]]
        for name, some in self._owners.items():
            some += texts[at.owners[name]][: BLOCK_ROWS - len(some)]
        self.rows += len(block)

    def _times(self, block: FieldBlock) -> tuple[Ints, Faults]:
        moments = block.moments
        if moments is None:
            texts = _time_texts(block.texts, self._fields)
            at_us, fault = parse_times(texts, self._parser)
            if self._fields.time_of_day:
                fault[(fault == 0) & ~np.array([tells_time_of_day(text) for text in texts])] = (
                    Fault.NO_CLOCK
                )
            return at_us, fault
        self._parser.count(moments.known, local=moments.local)
        fault = np.where(moments.known, np.uint8(Fault.NONE), np.uint8(Fault.TIME))
        return moments.at_us, fault

    def build(self, layout: Layout, done: float) -> RowBatch:
        columns = map(np.concatenate, zip(*self._blocks, strict=True))
        line, at_us, lat, lon, fault, users, traces = columns
        self._parser.mark_missing_offsets(fault)
        owners = [
            name for name, some in self._owners.items() if 1 < len(set(some)) <= len(some) / 2
        ]
        return RowBatch(
            line,
            at_us,
            lat,
            lon,
            fault,
            user=None if self._fields.user is None else Ids(users, list(self._users)),
            trace=None if self._fields.trace is None else Ids(traces, list(self._traces)),
            kept={name: np.array(texts, dtype=object) for name, texts in self._kept.items()},
            layout=replace(layout, owners=tuple(owners)),
            done=done,
            offsets=self._parser.offsets,
        )


def _time_texts(texts: Mapping[int, Sequence[str]], at: FieldPositions) -> Sequence[str]:
    """The texts of times; with the date in front where that is in a column of its own."""
    times = texts[at.time]
    if at.date is None:
        return times
    return [
        with_date(date, time, always=at.date_always)
        for date, time in zip(texts[at.date], times, strict=True)
    ]


def _parse_places(block: FieldBlock, at: FieldPositions) -> tuple[Floats, Floats]:
    """Latitudes and longitudes in degrees, NaN where there is none."""
    if at.point is not None:
        return parse_points(block.texts[at.point])
    lat = _parse_degrees(block, at.lat, "lat", at.lat_side)
    lon = _parse_degrees(block, at.lon, "lon", at.lon_side)
    return in_degrees(lat, at.lat_unit), in_degrees(lon, at.lon_unit)


def _parse_degrees(block: FieldBlock, position: int, axis: Axis, side: int | None) -> Floats:
    sides = None if side is None else block.texts[side]
    known = block.degrees.get(position)
    if known is None:
        return parse_all_degrees(block.texts[position], axis, sides)
    return known if sides is None else with_sides(known, sides, axis)


def _encode(block: FieldBlock, position: int | None, known: dict[str, int]) -> Ints:
    """The number of each row's text among those `known`."""
    if position is None:
        return np.empty(0, dtype=np.int64)
    ids = block.ids.get(position)
    texts = block.texts[position] if ids is None else ids.names
    numbers = [known.setdefault(text, len(known)) for text in texts]
    codes = np.array(numbers, dtype=np.int64)
    return codes if ids is None else codes[ids.codes]


def _blank(block: FieldBlock, position: int) -> Bools:
    """Which rows have nothing there."""
    ids = block.ids.get(position)
    texts = block.texts[position] if ids is None else ids.names
    blank = np.array([not text.strip() for text in texts], dtype=np.bool_)
    return blank if ids is None else blank[ids.codes]
