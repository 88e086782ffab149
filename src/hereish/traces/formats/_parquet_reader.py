"""Reads Parquet and GeoParquet, a batch at a time.

A text that repeats may be in a file once for millions of rows, so texts are read as numbers of
different ones, and never written out for each row: a small file could take all memory that way.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hereish.errors import ParameterError
from hereish.traces.column_names import normal_name, unit_in_name
from hereish.traces.columns import NO_USER, Columns, Layout, owner_columns, side_column
from hereish.traces.faults import Fault, NoPointsError, damaged_file
from hereish.traces.foreign_errors import replace_foreign_errors
from hereish.traces.formats import _wkb
from hereish.traces.formats._bytes import read_whole
from hereish.traces.formats._parquet_values import (
    is_text,
    read_ids,
    read_objects,
    read_places,
    read_times,
    type_of_ids,
)
from hereish.traces.formats._times import TimeParser
from hereish.traces.formats.base import Source
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import BATCH_ROWS, RowBatch

METADATA_KEY = "hereish.promise"  # of the guarantee in the metadata of the schema
PART_BATCH_ROWS = 1 << 17  # of a part, which others are read beside


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The rows of a file, a row group or less at a time."""
    file = open_file(source)
    found = find_columns(file, columns)
    total = file.metadata.num_rows
    if total == 0:
        raise NoPointsError("it has no rows")
    parser, row = TimeParser(columns.zone, columns.time_format), 0
    wanted = list(dict.fromkeys([*found.roles.values(), *columns.keep]))
    texts = [name for name in wanted if is_text(file.schema_arrow.field(name).type)]
    if texts:
        file = open_file(source, texts)
    record_batches = _record_batches(file, source, wanted)
    while True:
        # What a damaged file makes Arrow raise may quote the data.
        damaged = damaged_file(f"it is damaged after row {row}", "a Parquet file that is whole")
        records = replace_foreign_errors(lambda: next(record_batches, None), damaged)
        if records is None:
            return
        row += len(records)
        convert = partial(_convert, records, found.roles, columns, parser, row)
        batch = replace_foreign_errors(convert, damaged)
        yield replace(batch, layout=found.layout, done=row / total, offsets=parser.offsets)


def _record_batches(file: Any, source: Source, names: list[str]) -> Iterator[Any]:
    """All rows of a file, or those of a part of it, in their order.

    Without threads of Arrow's: how many cores are used is for the caller to say.
    """
    read = partial(file.iter_batches, columns=names, use_threads=False)
    if source.part is None:
        yield from read(BATCH_ROWS)
        return
    first, end = source.part.begin, source.part.end
    begins = group_begins(file)
    groups = [i for i, (a, b) in enumerate(pairwise(begins)) if a < end and b > first]
    at = begins[groups[0]]
    for records in read(PART_BATCH_ROWS, row_groups=groups):
        cut = records.slice(max(first - at, 0), end - max(first, at)) if at < end else None
        at += len(records)
        if cut is not None and len(cut):
            yield cut
        if at >= end:
            return


def group_begins(file: Any) -> list[int]:
    """The first row of each row group, and the end of the last."""
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    return [0, *np.cumsum(sizes, dtype=np.int64).tolist()]


def open_file(source: Source, texts: Sequence[str] = ()) -> Any:
    """The file; columns of `texts` come as numbers of different ones."""
    if source.path is None:
        raise ParameterError("Parquet is read from a file, not from standard input")
    path = source.path

    def opened() -> Any:
        # Inside an archive it cannot be read from the end, so it is read into memory.
        held = io.BytesIO(read_whole(source)) if source.members else path
        file = pq.ParquetFile(held, read_dictionary=list(texts))
        str(file.schema_arrow)  # names and types, which are looked at only now
        return file

    return replace_foreign_errors(
        opened, damaged_file("it is not a Parquet file, or a damaged one", "Parquet")
    )


@dataclass(frozen=True)
class FileColumns:
    """The columns of a file that are read, by their roles, and how the output names them."""

    roles: Mapping[str, str]  # user, trace, time, date, lat, lon, point, lat_side, lon_side
    layout: Layout

    @property
    def user(self) -> str | None:
        return self.roles.get("user")


def find_columns(file: Any, columns: Columns) -> FileColumns:
    """Which columns are read: as those of CSV, or the geometry that the metadata name."""
    schema = file.schema_arrow
    geometry = None
    if columns.lat is None and columns.lon is None and columns.point is None:
        geometry = _wkb.geometry_column(file.metadata.metadata or {}, schema.names)
    required = ("time", "lat", "lon") if geometry is None else ("time",)
    roles = columns.find_all(schema.names, required, points=True, dates=True)
    if geometry is not None:
        roles["point"] = geometry
    elif "point" not in roles:
        for axis in ("lat", "lon"):
            side = side_column(axis, schema.names)
            if side is not None and side not in roles.values():
                roles[f"{axis}_side"] = side
    whose = "user" in roles or columns.user == NO_USER
    owners = () if whose else owner_columns(schema.names, [*roles.values(), *columns.keep])
    likely = tuple(name for name in owners if normal_name(name) not in ("id", "name"))
    layout = replace(_output_layout(schema, roles, columns), geometry=geometry, owners=likely)
    return FileColumns(roles, layout)


def _output_layout(schema: Any, roles: Mapping[str, str], columns: Columns) -> Layout:
    """The columns of an output: none is named by another unit, and numbers of traces fit in."""
    names: dict[str, Any] = {
        role: name
        for role, name in roles.items()
        if role in ("user", "trace", "time", "lat", "lon")
        and not (role in ("lat", "lon") and unit_in_name(name))
    }
    types = {name: schema.field(name).type for name in (*roles.values(), *columns.keep)}
    for role in ("user", "trace"):
        if role in roles:
            types[roles[role]] = type_of_ids(types[roles[role]])
    kind = types.get(roles.get("trace", ""))
    if not columns.keep_trace_names and kind is not None and pa.types.is_integer(kind):
        types[roles["trace"]] = pa.int64()
    return Layout(types=types, **names)


def _convert(
    records: Any, roles: Mapping[str, str], columns: Columns, parser: TimeParser, last: int
) -> RowBatch:
    """A record batch of Arrow, the last row of which is row `last` of its file."""
    rows = len(records)
    fault = np.zeros(rows, dtype=np.uint8)
    at_us = read_times(records, roles, columns, parser, fault)
    lat, lon = read_places(records, roles, columns)
    missing = (Fault.POINT, Fault.POINT) if "point" in roles else (Fault.LAT, Fault.LON)
    for values, what in zip((lat, lon), missing, strict=True):
        fault[(fault == Fault.NONE) & ~np.isfinite(values)] = what
    return RowBatch(
        line=np.arange(last - rows, last) + 1,
        at_us=at_us,
        lat=lat,
        lon=lon,
        fault=fault,
        user=read_ids(records, roles.get("user"), fault, Fault.USER),
        trace=read_ids(records, roles.get("trace"), fault, Fault.NONE),
        kept={name: read_objects(records.column(name)) for name in columns.keep},
    )


def read_guarantee(source: Source) -> GuaranteeMetadata | None:
    """The guarantee in a file that was written here; None if there is none."""
    text = (open_file(source).metadata.metadata or {}).get(METADATA_KEY.encode())
    return None if text is None else GuaranteeMetadata.from_json(text)
