"""T-Drive's text files: a taxi, a local time, longitude and latitude a line, without a header."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, timedelta
from typing import BinaryIO
from zoneinfo import ZoneInfo

from hereish.errors import ParameterError
from hereish.traces.discovery import Source
from hereish.traces.formats import _text
from hereish.traces.formats._times import EPOCH
from hereish.traces.table import Columns, Layout, Piece, Promise, Released
from hereish.traces.table import Writer as Writing

_FIELDS = _text.Fields(width=4, user=0, time=1, lon=2, lat=3)
_WHOLE_TIME = len("2008-02-02 15:36:08")
_ESCAPES = str.maketrans({",": "%2C", "\r": "%0D", "\n": "%0A"})  # the format has no quotes


def read(source: Source, columns: Columns) -> Iterator[Piece]:
    """The points of one file. Its times do not say their zone: it is `columns.zone`."""
    if columns.keep:
        raise ParameterError(f"T-Drive files have nothing to keep: {', '.join(columns.keep)}")
    with _text.opened(source) as (file, done):
        rows = _rows(_text.lines(file))
        zone = columns.zone or ZoneInfo("UTC")
        yield from _text.pieces(rows, _FIELDS, zone, Layout(), done, "it is empty")


def _rows(texts: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    for line, text in enumerate(texts, 1):
        if bare := text.rstrip():
            row = bare.split(",")
            if len(row) > 1 and len(row[1]) < _WHOLE_TIME:  # not a date alone, nor a number
                row[1] = ""
            yield line, row


def file_name(user: object | None, trace: object | None) -> str:
    """The name of a user's file, as published; traces have none of their own."""
    return f"{'0' if user is None else _text.file_part(user)}.txt"


def writer(file: BinaryIO, layout: Layout, promise: Promise) -> Writing:
    """The same four fields; there is no place for traces, kinds, costs and the promise.

    Times are those of the promise's time zone, UTC if it has none, as `read` takes them.
    """
    return _Writer(file, promise)


class _Writer:
    def __init__(self, file: BinaryIO, promise: Promise) -> None:
        self._file = file
        self._zone = UTC if promise.time_zone is None else ZoneInfo(promise.time_zone)

    def write(self, rows: Released) -> None:
        users = ["0"] * len(rows) if rows.user is None else rows.user.values()
        columns = (users, rows.at_us.tolist(), rows.lon.tolist(), rows.lat.tolist())
        self._file.writelines(
            f"{str(user).translate(_ESCAPES)},{self._local(at_us)},{lon!r},{lat!r}\r\n".encode(
                errors="backslashreplace"
            )
            for user, at_us, lon, lat in zip(*columns, strict=True)
        )

    def finish(self) -> None:
        self._file.flush()

    def _local(self, at_us: int) -> str:
        # The hour that autumn repeats is written alike; the format has no way to tell.
        moment = (EPOCH + timedelta(microseconds=at_us)).astimezone(self._zone)
        return moment.isoformat(" ")[: 26 if moment.microsecond else _WHOLE_TIME]
