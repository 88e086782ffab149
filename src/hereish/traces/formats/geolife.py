"""GeoLife's .plt files: one trace each, in a folder per user."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import PurePath
from typing import BinaryIO
from zoneinfo import ZoneInfo

import numpy as np

from hereish.core.types import Ints
from hereish.errors import ParameterError
from hereish.traces.columns import Columns, Layout
from hereish.traces.faults import NoPointsError, UnreadableFileError, empty_file
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._text import FieldPositions, batches_of_fields, read_lines
from hereish.traces.formats._times import TimeParser, format_utc
from hereish.traces.formats.base import Format, Source, Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.names import safe_file_name
from hereish.traces.table import Ids, ReleasedRows, RowBatch

HEADER_LINES = 6
ALTITUDE = "altitude"  # the one column that can be kept: in feet, -777 if there is none
_FIELDS = FieldPositions(width=6, lat=0, lon=1, time=5)
_ALTITUDE_FIELD = 3
_WHOLE_TIME = len("2008-10-23T02:53:04")
_GMT = ZoneInfo("UTC")  # of all its times
_DAYS_BEFORE_1970 = 25569  # since 1899-12-30, where its days begin
_DAY_US = 86_400_000_000


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The points of one file; its name is the trace, and the folder above Trajectory the user."""
    for name in columns.keep:
        if name != ALTITUDE:
            raise ParameterError(f"GeoLife files can keep {ALTITUDE!r} and nothing else: {name!r}")
    fields = dataclasses.replace(_FIELDS, keep=dict.fromkeys(columns.keep, _ALTITUDE_FIELD))
    user, trace = _user(source), _trace(source)
    with SourceBytes(source) as file:
        rows = _read_rows(read_lines(file))
        if_empty = NoPointsError("it has a header and no points")
        times, layout = TimeParser(_GMT), Layout(public_traces=True)  # names of files are public
        for batch in batches_of_fields(rows, fields, times, layout, file.done, if_empty):
            yield dataclasses.replace(
                batch, user=_constant_id(user, batch), trace=_constant_id(trace, batch)
            )


def _read_rows(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    first = next(lines, None)
    if first is None:
        raise empty_file("a GeoLife file")
    if first.lower().startswith("oziexplorer"):
        raise UnreadableFileError(
            "it is a track of OziExplorer, and no GeoLife file",
            1,
            expected="the line 'Geolife trajectory'",
            remedy="convert it: gpsbabel -t -i ozi -f in.plt -o gpx -F out.gpx",
        )
    if not first.lower().startswith("geolife trajectory"):
        raise UnreadableFileError(
            "it is no GeoLife file",
            1,
            expected="the line 'Geolife trajectory'",
            remedy="name its format with --format",
        )
    for line, text in enumerate(lines, 2):
        if line > HEADER_LINES and (bare := text.rstrip()):
            row = "T".join(bare.rsplit(",", 1)).split(",")  # date and time are one
            if len(row[-1]) < _WHOLE_TIME:  # where a file breaks off, a time without its seconds
                row[-1] = ""
            yield line, row


def _user(source: Source) -> str | None:
    if source.location is None:
        return None
    folder = source.location.absolute().parent
    if ".." in folder.parts:
        folder = folder.resolve()
    return folder.parent.name or None if folder.name == "Trajectory" else None


def _trace(source: Source) -> str | None:
    return None if source.path is None else PurePath(source.below.name.removesuffix(".gz")).stem


def _constant_id(identity: str | None, batch: RowBatch) -> Ids | None:
    return None if identity is None else Ids.constant(identity, len(batch))


def path_in_folder(user: object | None, trace: object | None) -> str:
    """Where the file of a trace is in a folder like the published one."""
    folder = "000" if user is None else safe_file_name(user)
    return f"Data/{folder}/Trajectory/{'trace' if trace is None else safe_file_name(trace)}.plt"


def _first_rows(ids: Ids) -> Ints:
    """A row of each id that is used."""
    return np.unique(ids.codes, return_index=True)[1]


def open_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """One file as published; it has no place for ids, kinds and costs.

    The guarantee is in its fourth line, which is reserved. There are no altitudes.
    """
    return _PltWriter(file, guarantee)


FORMAT = Format(
    name="geolife",
    extensions=(".plt",),
    read=read,
    open_writer=open_writer,
    path_in_folder=path_in_folder,
)


class _PltWriter(Writer):
    def __init__(self, file: BinaryIO, guarantee: GuaranteeMetadata) -> None:
        self._file = file
        self._written: set[tuple[object, object]] = set()
        header = (
            "Geolife trajectory",
            "WGS 84",
            "Altitude is in Feet",
            f"Reserved 3: {' '.join(guarantee.description.split())}",
            "0,2,255,My Track,0,0,2,8421376",
            "0",
        )
        self._write_lines(header)

    def write(self, rows: ReleasedRows) -> None:
        self._check_one_trace(rows)
        days = np.round(_DAYS_BEFORE_1970 + rows.at_us / _DAY_US, 10)
        columns = (rows.lat.tolist(), rows.lon.tolist(), days.tolist(), format_utc(rows.at_us))
        self._write_lines(
            f"{lat!r},{lon!r},0,-777,{day!r},{time.replace('T', ',').removesuffix('Z')}"
            for lat, lon, day, time in zip(*columns, strict=True)
        )

    def finish(self) -> None:
        self._file.flush()

    def _check_one_trace(self, rows: ReleasedRows) -> None:
        users = [None] if rows.user is None else rows.user.take(_first_rows(rows.user)).values()
        traces = [None] if rows.trace is None else rows.trace.take(_first_rows(rows.trace)).values()
        self._written |= {(user, trace) for user in users for trace in traces}
        if len(self._written) > 1:
            raise ParameterError("a .plt file holds one trace; name a folder for several")

    def _write_lines(self, lines: Iterator[str] | tuple[str, ...]) -> None:
        self._file.writelines(f"{line}\r\n".encode() for line in lines)
