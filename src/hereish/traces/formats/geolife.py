"""GeoLife's .plt files: one trace each, below a folder for each user."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import PurePath
from typing import BinaryIO
from zoneinfo import ZoneInfo

import numpy as np

from hereish.core.types import Ints
from hereish.errors import ParameterError
from hereish.traces.discovery import Source
from hereish.traces.formats import _text
from hereish.traces.formats._times import iso
from hereish.traces.table import Columns, Ids, Layout, Piece, Promise, Released, Unreadable
from hereish.traces.table import Writer as Writing

HEADER_LINES = 6
ALTITUDE = "altitude"  # the one column that can be kept: in feet, -777 if there is none
_FIELDS = _text.Fields(width=6, lat=0, lon=1, time=5)
_ALTITUDE_FIELD = 3
_WHOLE_TIME = len("2008-10-23T02:53:04")
_GMT = ZoneInfo("UTC")  # of all its times
_DAYS_BEFORE_1970 = 25569  # since 1899-12-30, where its days begin
_DAY_US = 86_400_000_000


def read(source: Source, columns: Columns) -> Iterator[Piece]:
    """The points of one file; its name is the trace, and the folder above Trajectory the user."""
    for name in columns.keep:
        if name != ALTITUDE:
            raise ParameterError(f"GeoLife files can keep {ALTITUDE!r} and nothing else: {name!r}")
    fields = dataclasses.replace(_FIELDS, keep=dict.fromkeys(columns.keep, _ALTITUDE_FIELD))
    user, trace = _user(source), _trace(source)
    with _text.opened(source) as (file, done):
        rows = _rows(_text.lines(file))
        none = "it has a header and no points"
        for piece in _text.pieces(rows, fields, _GMT, Layout(), done, none):
            yield dataclasses.replace(piece, user=_all(user, piece), trace=_all(trace, piece))


def _rows(texts: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    first = next(texts, None)
    if first is None:
        raise Unreadable("it is empty")
    if not first.lower().startswith("geolife trajectory"):
        raise Unreadable("it is no GeoLife file: those begin with 'Geolife trajectory'", 1)
    for line, text in enumerate(texts, 2):
        if line > HEADER_LINES and (bare := text.rstrip()):
            row = "T".join(bare.rsplit(",", 1)).split(",")  # date and time are one
            if len(row[-1]) < _WHOLE_TIME:  # where a file breaks off, a time without its seconds
                row[-1] = ""
            yield line, row


def _user(source: Source) -> str | None:
    if source.path is None:
        return None
    folder = source.path.absolute().parent
    if ".." in folder.parts:
        folder = folder.resolve()
    return folder.parent.name or None if folder.name == "Trajectory" else None


def _trace(source: Source) -> str | None:
    return None if source.path is None else PurePath(source.path.name.removesuffix(".gz")).stem


def _all(identity: str | None, piece: Piece) -> Ids | None:
    """The same id for every row."""
    return None if identity is None else Ids(np.zeros(len(piece), dtype=np.int64), [identity])


def file_name(user: object | None, trace: object | None) -> str:
    """Where the file of a trace lies in a tree like the published one."""
    folder = "000" if user is None else _text.file_part(user)
    return f"Data/{folder}/Trajectory/{'trace' if trace is None else _text.file_part(trace)}.plt"


def _firsts(ids: Ids) -> Ints:
    """A row of each id that is used."""
    return np.unique(ids.codes, return_index=True)[1]


def writer(file: BinaryIO, layout: Layout, promise: Promise) -> Writing:
    """One file as published; it has no place for ids, kinds and costs.

    The promise is in its fourth line, which is reserved. There are no altitudes.
    """
    return _Writer(file, promise)


class _Writer:
    def __init__(self, file: BinaryIO, promise: Promise) -> None:
        self._file = file
        self._whose: set[tuple[object, object]] = set()
        header = (
            "Geolife trajectory",
            "WGS 84",
            "Altitude is in Feet",
            f"Reserved 3: {' '.join(promise.guarantee.split())}",
            "0,2,255,My Track,0,0,2,8421376",
            "0",
        )
        self._put(header)

    def write(self, rows: Released) -> None:
        self._check_alone(rows)
        days = np.round(_DAYS_BEFORE_1970 + rows.at_us / _DAY_US, 10)
        columns = (rows.lat.tolist(), rows.lon.tolist(), days.tolist(), iso(rows.at_us))
        self._put(
            f"{lat!r},{lon!r},0,-777,{day!r},{time.replace('T', ',').removesuffix('Z')}"
            for lat, lon, day, time in zip(*columns, strict=True)
        )

    def finish(self) -> None:
        self._file.flush()

    def _check_alone(self, rows: Released) -> None:
        users = [None] if rows.user is None else rows.user.take(_firsts(rows.user)).values()
        traces = [None] if rows.trace is None else rows.trace.take(_firsts(rows.trace)).values()
        self._whose |= {(user, trace) for user in users for trace in traces}
        if len(self._whose) > 1:
            raise ParameterError("a .plt file holds one trace; name a folder for several")

    def _put(self, lines: Iterator[str] | tuple[str, ...]) -> None:
        self._file.writelines(f"{line}\r\n".encode() for line in lines)
