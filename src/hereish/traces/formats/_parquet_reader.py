"""Reads Parquet and GeoParquet, a batch at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError
from hereish.traces.columns import Columns, Layout
from hereish.traces.faults import Fault, Faults, UnreadableFileError
from hereish.traces.foreign_errors import replace_foreign_errors
from hereish.traces.formats import _wkb
from hereish.traces.formats._times import TimeParser
from hereish.traces.formats.base import Source
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import BATCH_ROWS, Ids, RowBatch

METADATA_KEY = "hereish.promise"  # of the guarantee in the metadata of the schema
_US_IN = {"s": 1_000_000, "ms": 1_000}  # how many microseconds


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The rows of a file, a row group or less at a time."""
    file = _open(source)
    layout = _find_columns(file, columns)
    wanted = [layout.user, layout.trace, layout.time, *columns.keep]
    wanted += [layout.geometry] if layout.geometry else [layout.lat, layout.lon]
    present = file.schema_arrow.names
    total = file.metadata.num_rows
    if total == 0:
        raise UnreadableFileError("it has no rows")
    parser, row = TimeParser(columns.zone), 0
    record_batches = file.iter_batches(
        BATCH_ROWS, columns=[name for name in wanted if name in present]
    )
    while True:
        # What a damaged file makes Arrow raise may quote the data.
        damaged = UnreadableFileError(f"it is damaged after row {row}")
        records = replace_foreign_errors(lambda: next(record_batches, None), damaged)
        if records is None:
            return
        row += len(records)
        convert = partial(_convert, records, layout, columns, parser, row)
        yield replace(replace_foreign_errors(convert, damaged), done=row / total)


def _open(source: Source) -> Any:
    if source.path is None:
        raise ParameterError("Parquet is read from a file, not from standard input")
    path = source.path

    def opened() -> Any:
        file = pq.ParquetFile(path)
        str(file.schema_arrow)  # names and types, which are looked at only now
        return file

    return replace_foreign_errors(
        opened, UnreadableFileError("it is not a Parquet file, or a damaged one")
    )


def _find_columns(file: Any, columns: Columns) -> Layout:
    schema = file.schema_arrow
    geometry = None
    if columns.lat is None and columns.lon is None:
        geometry = _wkb.geometry_column(file.metadata.metadata or {}, schema.names)
    required = ("time", "lat", "lon") if geometry is None else ("time",)
    roles: dict[str, Any] = columns.find_all(schema.names, required)
    types = {name: schema.field(name).type for name in (*roles.values(), *columns.keep)}
    return Layout(geometry=geometry, types=types, **roles)


def _convert(
    records: Any, layout: Layout, columns: Columns, parser: TimeParser, last: int
) -> RowBatch:
    """A record batch of Arrow, the last row of which is row `last` of its file."""
    rows = len(records)
    fault = np.zeros(rows, dtype=np.uint8)
    if layout.geometry is None:
        lat = _read_numbers(records, layout.lat)
        lon = _read_numbers(records, layout.lon)
    else:
        lat, lon = _wkb.decode_points(records.column(layout.geometry).to_pylist())
    fault[~np.isfinite(lon)] = Fault.LON
    fault[~np.isfinite(lat)] = Fault.LAT
    at_us = _read_times(records, layout.time, columns, parser, fault)
    user = _read_ids(records, layout.user, fault, Fault.USER)
    return RowBatch(
        line=np.arange(last - rows, last) + 1,
        at_us=at_us,
        lat=lat,
        lon=lon,
        fault=fault,
        user=user,
        trace=_read_ids(records, layout.trace, fault, Fault.NONE),
        kept={name: _objects(records.column(name)) for name in columns.keep},
        layout=layout,
    )


def _read_numbers(records: Any, name: str) -> Floats:
    column = records.column(name)
    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        raise ParameterError(f"the column {name!r} must hold numbers, found {kind}")
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def _read_times(
    records: Any, name: str, columns: Columns, parser: TimeParser, fault: Faults
) -> Ints:
    """Microseconds; marks the rows that have no time."""
    column = records.column(name)
    if pa.types.is_timestamp(column.type):
        fault[column.is_null().to_numpy(zero_copy_only=False)] = Fault.TIME
        return _instants(column, columns, fault)
    at_us = np.zeros(len(records), dtype=np.int64)
    for row, value in enumerate(column.to_pylist()):
        at = parser.parse(value)
        if isinstance(at, Fault):
            fault[row] = at
        else:
            at_us[row] = at
    parser.mark_missing_offsets(fault)
    return at_us


def _instants(column: Any, columns: Columns, fault: Faults) -> Ints:
    kind = column.type
    if kind.tz is None and columns.zone is not None:
        import pyarrow.compute as pc

        zone = columns.zone.key
        column = pc.assume_timezone(column, zone, ambiguous="earliest", nonexistent="earliest")
    count = column.cast(pa.int64()).fill_null(0).to_numpy()
    if kind.unit == "ns":
        return np.asarray(count // 1000)
    factor = _US_IN.get(kind.unit, 1)
    fault[np.abs(count) > np.iinfo(np.int64).max // (2 * factor)] = Fault.TIME
    return np.asarray(count * factor)


def _read_ids(records: Any, name: str, fault: Faults, missing: Fault) -> Ids | None:
    if name not in records.schema.names:
        return None
    column = records.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not text and not pa.types.is_integer(kind):
        raise ParameterError(f"the column {name!r} must hold texts or whole numbers, found {kind}")
    encoded = column.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if column.null_count:
        absent = column.is_null().to_numpy(zero_copy_only=False)
        if missing:
            fault[absent] = missing
        codes = encoded.indices.fill_null(len(names)).to_numpy()
        return Ids(codes.astype(np.int64), [*names, None])
    return Ids(encoded.indices.to_numpy().astype(np.int64), names)


def _objects(column: Any) -> NDArray[Any]:
    values = np.empty(len(column), dtype=object)
    values[:] = column.to_pylist()
    return values


def read_guarantee(source: Source) -> GuaranteeMetadata | None:
    """The guarantee in a file that was written here; None if there is none."""
    text = (_open(source).metadata.metadata or {}).get(METADATA_KEY.encode())
    try:
        return None if text is None else GuaranteeMetadata.from_dict(json.loads(text))
    except ValueError:
        return None
