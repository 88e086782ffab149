"""T-Drive's text files: per line a taxi, a local time, longitude and latitude; no header."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, timedelta
from pathlib import Path
from typing import BinaryIO
from zoneinfo import ZoneInfo

from hereish.errors import ParameterError
from hereish.traces.columns import Columns, Layout
from hereish.traces.faults import empty_file
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._text import FieldPositions, batches_of_fields, read_lines
from hereish.traces.formats._times import EPOCH, TimeParser
from hereish.traces.formats.base import Format, Source, Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.names import safe_file_name
from hereish.traces.table import ReleasedRows, RowBatch

_FIELDS = FieldPositions(width=4, user=0, time=1, lon=2, lat=3)
_WHOLE_TIME = len("2008-02-02 15:36:08")
_ESCAPES = str.maketrans({",": "%2C", "\r": "%0D", "\n": "%0A"})  # the format has no quotes


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The points of one file. Its times do not say their zone: it is `columns.zone`."""
    if columns.keep:
        raise ParameterError(f"T-Drive files have nothing to keep: {', '.join(columns.keep)}")
    with SourceBytes(source) as file:
        rows = _read_rows(read_lines(file))
        times = TimeParser(columns.zone or ZoneInfo("UTC"))
        if_empty = empty_file("lines of user, time, longitude and latitude")
        yield from batches_of_fields(rows, _FIELDS, times, Layout(), file.done, if_empty)


def _read_rows(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    for line, text in enumerate(lines, 1):
        if bare := text.rstrip():
            row = bare.split(",")
            if len(row) > 1 and len(row[1]) < _WHOLE_TIME:  # not a date alone, nor a number
                row[1] = ""
            yield line, row


def is_data_file(path: Path) -> bool:
    """Its files are named by the number of a taxi; other texts in a folder are not data."""
    return path.stem.isdigit()


def path_in_folder(user: object | None, trace: object | None) -> str:
    """The name of a user's file, as published; traces have none of their own."""
    return f"{'0' if user is None else safe_file_name(user)}.txt"


def open_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """The same four fields; there is no place for traces, kinds, costs and the guarantee.

    Times are those of the guarantee's time zone, UTC if it has none, as `read` takes them.
    """
    return _TaxiWriter(file, guarantee)


FORMAT = Format(
    name="tdrive",
    extensions=(".txt",),
    read=read,
    open_writer=open_writer,
    is_data_file=is_data_file,
    path_in_folder=path_in_folder,
    sidecar=True,
)


class _TaxiWriter(Writer):
    def __init__(self, file: BinaryIO, guarantee: GuaranteeMetadata) -> None:
        self._file = file
        self._zone = UTC if guarantee.time_zone is None else ZoneInfo(guarantee.time_zone)

    def write(self, rows: ReleasedRows) -> None:
        users = ["0"] * len(rows) if rows.user is None else rows.user.values()
        columns = (users, rows.at_us.tolist(), rows.lon.tolist(), rows.lat.tolist())
        self._file.writelines(
            f"{str(user).translate(_ESCAPES)},{self._local_time(at_us)},{lon!r},{lat!r}\r\n".encode(
                errors="backslashreplace"
            )
            for user, at_us, lon, lat in zip(*columns, strict=True)
        )

    def finish(self) -> None:
        self._file.flush()

    def _local_time(self, at_us: int) -> str:
        # The hour that is repeated in autumn is ambiguous: the format has no offsets.
        moment = (EPOCH + timedelta(microseconds=at_us)).astimezone(self._zone)
        return moment.isoformat(" ")[: 26 if moment.microsecond else _WHOLE_TIME]
