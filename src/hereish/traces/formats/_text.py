"""What the formats of plain text share: lines to rows of fields, and these to pieces."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import hashlib
import io
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO, TypeAlias
from urllib.parse import quote
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from hereish.core.types import Floats, Ints
from hereish.traces.discovery import Source
from hereish.traces.formats._times import Clock
from hereish.traces.table import PIECE_ROWS, Fault, Ids, Layout, Piece, Unreadable

Faults: TypeAlias = NDArray[np.uint8]

CHUNK_BYTES = 1 << 18
LONGEST_LINE_BYTES = 1 << 20
BLOCK_ROWS = 1 << 14  # rows that are text at one time: text takes ten times the memory of numbers
_LONGEST_NAME = 200  # file systems allow 255 bytes, and an ending follows


@contextlib.contextmanager
def opened(source: Source) -> Iterator[tuple[BinaryIO, Callable[[], float]]]:
    """The bytes of a source, and a function for the share of them that has been read."""
    size, file = source.size, source.open()
    beneath: Any = getattr(file, "fileobj", file)  # of gzip: progress is that of the packed file

    def done() -> float:
        return min(1.0, beneath.tell() / size) if size else 0.0

    try:
        yield file, done
    finally:
        if source.path is not None:  # standard input is not ours to close
            file.close()


def lines(file: BinaryIO) -> Iterator[str]:
    r"""The lines of a UTF-8 text with their ends, which are \n, \r\n or \r."""
    before, rest = 0, b""
    for chunk in _chunks(file):
        data = rest + chunk
        # The last line may go on; and \n may follow a \r that is the last byte.
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
        whole, rest = data[:end], data[end:]
        yield from _decoded(whole, before)
        before += whole.count(b"\n") + whole.count(b"\r") - whole.count(b"\r\n")
        if len(rest) > LONGEST_LINE_BYTES:
            raise Unreadable("it is too long for a row of a table", before + 1)
    yield from _decoded(rest, before)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    chunk = _chunk(file)
    if chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Unreadable("it is UTF-16; save it as UTF-8")
    chunk = chunk.removeprefix(codecs.BOM_UTF8) or _chunk(file)
    while chunk:
        yield chunk
        chunk = _chunk(file)


def _chunk(file: BinaryIO) -> bytes:
    with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):
        return file.read(CHUNK_BYTES)
    raise Unreadable("it is not a gzip file, or a damaged one")


def _decoded(data: bytes, before: int) -> Iterator[str]:
    text = _utf8(data)
    if text is not None:
        yield from io.StringIO(text, newline="")
        return
    for line, part in enumerate(data.splitlines(keepends=True), before + 1):
        text = _utf8(part)
        if text is None:
            raise Unreadable("it is not text in UTF-8; save it as UTF-8", line)
        yield text


def _utf8(data: bytes) -> str | None:
    # The error of a failed decoding holds the text, so nothing is raised while it is handled.
    with contextlib.suppress(UnicodeDecodeError):
        return None if b"\0" in data else data.decode()
    return None


def number(text: str) -> float | None:
    """A finite decimal number; None for anything else that Python would take for a number."""
    if "_" in text or not text.isascii():
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _numbers(texts: Sequence[str]) -> Floats:
    """Each text's number, NaN where it is none."""
    together = "".join(texts)
    if "_" not in together and together.isascii():
        with contextlib.suppress(ValueError):
            values = np.fromiter(map(float, texts), np.float64, len(texts))
            values[~np.isfinite(values)] = np.nan
            return values
    careful = [math.nan if value is None else value for value in map(number, texts)]
    return np.array(careful, dtype=np.float64)


def _times(texts: Sequence[str], clock: Clock) -> tuple[Ints, Faults]:
    """Microseconds since 1970, and what is wrong with each time."""
    at_us = _at_once(texts, clock)
    if at_us is not None:
        return at_us, np.zeros(len(texts), dtype=np.uint8)
    times = [clock.read(text) for text in texts]
    fault = [time if isinstance(time, Fault) else Fault.NONE for time in times]
    return np.array(times, dtype=np.int64), np.array(fault, dtype=np.uint8)


def _at_once(texts: Sequence[str], clock: Clock) -> Ints | None:
    """The times at once, if all are good and alike."""
    if any(text[4:5] != "-" for text in texts):  # it could be a Unix time
        return None
    try:
        moments = list(map(datetime.fromisoformat, texts))
    except ValueError:
        return None
    return clock.read_all(moments)


@dataclass(frozen=True)
class Fields:
    """Where the columns stand in a row of text."""

    width: int
    time: int
    lat: int
    lon: int
    user: int | None = None
    trace: int | None = None
    keep: Mapping[str, int] = field(default_factory=dict)


def pieces(
    rows: Iterable[tuple[int, list[str]]],
    fields: Fields,
    zone: ZoneInfo | None,
    layout: Layout,
    done: Callable[[], float],
    if_none: str,
) -> Iterator[Piece]:
    """Rows, each with its line, as pieces; what came before an `Unreadable` is handed on first.

    A file without any row is `Unreadable` too, for the reason `if_none`.
    """
    clock = Clock(zone)
    numbers: list[int] = []
    texts: list[list[str]] = []
    gathered = _Gathered(fields, clock)
    some, broken = False, None
    try:
        for line, row in rows:
            some = True
            numbers.append(line)
            texts.append(row)
            if len(texts) == BLOCK_ROWS:
                gathered.add(numbers, texts)
                numbers, texts = [], []
                if gathered.rows + BLOCK_ROWS > PIECE_ROWS:
                    yield gathered.piece(layout, done())
                    gathered = _Gathered(fields, clock)
    except Unreadable as error:
        broken = error
    if texts:
        gathered.add(numbers, texts)
    if gathered.rows:
        yield gathered.piece(layout, done())
    if broken is not None:
        raise broken
    if not some:
        raise Unreadable(if_none)


class _Gathered:
    """Rows of text made into columns of numbers, block by block, until they are a piece."""

    def __init__(self, fields: Fields, clock: Clock) -> None:
        self.rows = 0
        self._fields = fields
        self._clock = clock
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
        at_us, fault = _times(columns[at.time], self._clock)
        lat, lon = _numbers(columns[at.lat]), _numbers(columns[at.lon])
        fault[(fault == 0) & np.isnan(lat)] = Fault.LAT
        fault[(fault == 0) & np.isnan(lon)] = Fault.LON
        if at.user is not None:
            fault[[not text.strip() for text in columns[at.user]]] = Fault.USER
        fault[broken] = Fault.LINE
        line = np.array(numbers, dtype=np.int64)
        users = _codes(columns, at.user, self._users)
        traces = _codes(columns, at.trace, self._traces)
        self._blocks.append((line, at_us, lat, lon, fault, users, traces))
        for name, kept in self._kept.items():
            kept += columns[at.keep[name]]
        self.rows += len(rows)

    def piece(self, layout: Layout, done: float) -> Piece:
        joined = map(np.concatenate, zip(*self._blocks, strict=True))
        line, at_us, lat, lon, fault, users, traces = joined
        self._clock.settle(fault)
        return Piece(
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


def _codes(columns: Sequence[Sequence[str]], place: int | None, known: dict[str, int]) -> Ints:
    texts = () if place is None else columns[place]
    return np.array([known.setdefault(text, len(known)) for text in texts], dtype=np.int64)


def file_part(identity: object) -> str:
    """An id as the name of a file or folder: it never leads elsewhere, and others stay others."""
    name = quote(str(identity), safe="", errors="backslashreplace")
    if name.startswith("."):  # hidden, or a folder that is there already
        name = "%2E" + name[1:]
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        name = f"{name[: _LONGEST_NAME - 17]}%{digest}"
    return name or "%"
