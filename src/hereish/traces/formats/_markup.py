"""What GPX and GeoJSON share: bytes in blocks, rows to pieces, released rows to traces."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hereish.core.randomness import SECURE
from hereish.core.types import Ints
from hereish.errors import ParameterError
from hereish.traces.discovery import Source
from hereish.traces.formats._times import Clock
from hereish.traces.names import name_key, same_name
from hereish.traces.table import (
    Fault,
    Ids,
    Layout,
    Piece,
    Released,
    Unreadable,
    joined,
    joined_pieces,
)

# Rows of a piece, and a few more: each is a Python object until the piece is whole.
ROWS = 1 << 16
_BLOCK_BYTES = 1 << 16
_INT64 = range(-(1 << 63), 1 << 63)


class Row(NamedTuple):
    """One row of a piece, as its columns have it. Holds secrets, and lives in a reader only."""

    line: int
    at_us: int
    lat: float
    lon: float
    fault: Fault
    user: str | int | None
    trace: str | int | None
    kept: Sequence[Any]

    @classmethod
    def of(
        cls,
        line: int,
        at: int | Fault,
        lat: float | None,
        lon: float | None,
        user: str | int | None,
        trace: str | int | None,
        kept: Sequence[Any],
    ) -> Row:
        """A row with the first of its faults; a number that cannot be read is None."""
        if isinstance(at, Fault):
            return cls(line, 0, 0.0, 0.0, at, user, trace, kept)
        if lat is None or lon is None:
            fault = Fault.LAT if lat is None else Fault.LON
            return cls(line, 0, 0.0, 0.0, fault, user, trace, kept)
        return cls(line, at, lat, lon, Fault.NONE, user, trace, kept)


def check_keep(keep: Sequence[str], taken: Sequence[str]) -> None:
    """Kept columns have names of their own, so that none stands for another in the output."""
    clashes = {*taken} & set(keep)
    if clashes or len(set(keep)) < len(keep):
        names = ", ".join(map(repr, sorted(clashes) or keep))
        raise ParameterError(f"columns to keep must differ from each other and others: {names}")


def piece_of(
    rows: Sequence[Row], keep: Sequence[str], layout: Layout, *, told: bool, done: float
) -> Piece:
    """Rows as columns. Where the file tells users, rows without one are at fault."""
    line, at_us, lat, lon, faults, user, trace, kept = zip(*rows, strict=True)
    fault = np.array(faults, dtype=np.uint8)
    if told:
        nobody = np.array([name is None for name in user])
        fault[nobody & (fault != Fault.LINE)] = Fault.USER
    columns = {name: np.empty(len(rows), dtype=object) for name in keep}
    for name, values in zip(keep, zip(*kept, strict=True), strict=True):
        columns[name][:] = values
    return Piece(
        line=np.array(line, dtype=np.int64),
        at_us=np.array(at_us, dtype=np.int64),
        lat=np.array(lat, dtype=np.float64),
        lon=np.array(lon, dtype=np.float64),
        fault=fault,
        user=Ids.of(["" if name is None else name for name in user]) if told else None,
        trace=None if trace[0] is None else Ids.of(trace),
        kept=columns,
        layout=layout,
        done=done,
    )


def blocks(source: Source) -> Iterator[tuple[bytes, float]]:
    """The bytes of a file, each block with how much has been read by then."""
    size = source.size
    file = source.open()
    with contextlib.nullcontext() if source.path is None else file:
        while (block := _block(file)) is not None:
            if not block:
                return
            # A packed file's size is that of its packed bytes, so its place is counted in those.
            place = getattr(file, "fileobj", file)
            yield block, min(place.tell() / size, 1.0) if size else 1.0
    raise Unreadable("its compression is damaged")


def _block(file: BinaryIO) -> bytes | None:
    try:
        return file.read(_BLOCK_BYTES)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return None


def whole_file(pieces: Sequence[Piece], clock: Clock) -> Piece:
    """All pieces of a file as one, with its traces numbered by public data.

    Their order in the file is not public: it may be that of their places.
    """
    piece = joined_pieces(pieces)
    clock.settle(piece.fault)
    if piece.trace is None or not piece.layout.numbered:
        return piece
    codes, names = piece.trace
    numbered = [code for code, name in enumerate(names) if isinstance(name, int) and name]
    rows = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[rows], np.arange(len(names) + 1))
    traces = {code: piece.take(rows[bounds[code] : bounds[code + 1]]) for code in numbered}
    traces = {code: trace.take(trace.fault == Fault.NONE) for code, trace in traces.items()}
    briefs = {code: _brief(trace) for code, trace in traces.items()}
    chance = dict(zip(numbered, SECURE.uniforms(len(numbered)).tolist(), strict=True))
    new = list(names)
    number = 0
    for _, alike in groupby(sorted(numbered, key=briefs.__getitem__), briefs.__getitem__):
        several = list(alike)
        if len(several) > 1:
            several.sort(key=lambda code: (_in_full(traces[code]), chance[code]))
        for code in several:
            new[code] = number = number + 1
    return replace(piece, trace=Ids(codes, new))


def _brief(trace: Piece) -> tuple[Any, ...]:
    """Public data that mostly tells two traces apart: whose it is, and its first and last time."""
    if not len(trace):
        return (1,)
    user = "" if trace.user is None else same_name(trace.user.names[trace.user.codes[0]])
    times = trace.at_us
    return (0, name_key(user), int(times.min()), int(times.max()), len(times))


def _in_full(trace: Piece) -> list[tuple[int, ...]]:
    """All public data of a trace."""
    kept = [[repr(value) for value in column.tolist()] for column in trace.kept.values()]
    return sorted(zip(trace.at_us.tolist(), *kept, strict=True))


class Gathered:
    """Released rows in memory, until all are there; then by user and trace."""

    def __init__(self) -> None:
        self._parts: list[Released] = []
        self._numbers: dict[tuple[Any, Any], int] = {}
        self._groups: list[Ints] = []

    def add(self, rows: Released) -> None:
        nobody = [None] * len(rows)
        users = nobody if rows.user is None else rows.user.values()
        traces = nobody if rows.trace is None else rows.trace.values()
        numbers = self._numbers
        codes = [numbers.setdefault(key, len(numbers)) for key in zip(users, traces, strict=True)]
        self._groups.append(np.array(codes, dtype=np.int64))
        self._parts.append(replace(rows, kept={n: _objects(c) for n, c in rows.kept.items()}))

    def groups(self) -> Iterator[tuple[Any, Any, Released]]:
        """Each user and trace (None where there is none) as they first came, in order of time."""
        if not self._numbers:
            return
        every = joined(self._parts)
        group = np.concatenate(self._groups)
        order = np.lexsort((every.at_us, group))
        begins = np.searchsorted(group[order], np.arange(len(self._numbers) + 1))
        for (user, trace), number in self._numbers.items():
            yield user, trace, every.take(order[begins[number] : begins[number + 1]])


def _objects(column: NDArray[Any]) -> NDArray[Any]:
    values = np.empty(len(column), dtype=object)
    values[:] = plain(column)
    return values


def plain(column: NDArray[Any]) -> list[Any]:
    """The values of a kept column, each flat."""
    if column.dtype.kind in "mM":
        texts = column.astype(str).tolist()
        return [None if text == "NaT" else text for text in texts]
    return [flat(value) for value in column.tolist()]


def flat(value: Any) -> Any:
    """A value that JSON has and that fits into a table: text for all that is nested or unknown."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (dict, list)):
        value = dumped(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and value in _INT64:
        return value
    return str(value).encode(errors="replace").decode()  # halves of characters have no UTF-8


def dumped(value: Any) -> str:
    """As JSON, in one line."""
    with contextlib.suppress(RecursionError):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    raise Unreadable("it is nested too deeply")
