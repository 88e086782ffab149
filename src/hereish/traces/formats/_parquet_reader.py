"""Reads Parquet and GeoParquet, a batch at a time.

A text that repeats may be in a file once for millions of rows, so texts are read as numbers of
different ones, and never written out for each row: a small file could take all memory that way.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError
from hereish.traces.column_names import normal_name, unit_in_name
from hereish.traces.columns import NO_USER, Columns, Layout, owner_columns
from hereish.traces.faults import Fault, Faults, NoPointsError, damaged_file
from hereish.traces.foreign_errors import replace_foreign_errors
from hereish.traces.formats import _wkb
from hereish.traces.formats._arrow_values import present, values_of
from hereish.traces.formats._bytes import read_whole
from hereish.traces.formats._degrees import Axis, in_degrees, parse_all_degrees
from hereish.traces.formats._times import TimeParser
from hereish.traces.formats.base import Source
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import BATCH_ROWS, Ids, RowBatch

METADATA_KEY = "hereish.promise"  # of the guarantee in the metadata of the schema
_LONGEST_BYTES = 1 << 12  # of a name, a number or a time
PART_BATCH_ROWS = 1 << 17  # of a part, which others are read beside
_US_IN = {"s": 1_000_000, "ms": 1_000}  # how many microseconds


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The rows of a file, a row group or less at a time."""
    file = open_file(source)
    names = find_columns(file, columns)
    layout = _output_layout(names, columns)
    wanted = [names.user, names.trace, names.time, *columns.keep]
    wanted += [names.geometry] if names.geometry else [names.lat, names.lon]
    present = file.schema_arrow.names
    total = file.metadata.num_rows
    if total == 0:
        raise NoPointsError("it has no rows")
    parser, row = TimeParser(columns.zone, columns.time_format), 0
    wanted = [name for name in wanted if name in present]
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
        convert = partial(_convert, records, names, columns, parser, row)
        batch = replace_foreign_errors(convert, damaged)
        yield replace(batch, layout=layout, done=row / total, offsets=parser.offsets)


def _record_batches(file: Any, source: Source, names: list[str]) -> Iterator[Any]:
    """All rows of a file, or those of a part of it, in their order."""
    if source.part is None:
        yield from file.iter_batches(BATCH_ROWS, columns=names)
        return
    first, end = source.part.begin, source.part.end
    begins = group_begins(file)
    groups = [i for i, (a, b) in enumerate(pairwise(begins)) if a < end and b > first]
    at = begins[groups[0]]
    for records in file.iter_batches(PART_BATCH_ROWS, row_groups=groups, columns=names):
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


def find_columns(file: Any, columns: Columns) -> Layout:
    schema = file.schema_arrow
    geometry = None
    if columns.lat is None and columns.lon is None:
        geometry = _wkb.geometry_column(file.metadata.metadata or {}, schema.names)
    required = ("time", "lat", "lon") if geometry is None else ("time",)
    roles: dict[str, Any] = columns.find_all(schema.names, required)
    types = {name: schema.field(name).type for name in (*roles.values(), *columns.keep)}
    whose = "user" in roles or columns.user == NO_USER
    owners = () if whose else owner_columns(schema.names, [*roles.values(), *columns.keep])
    likely = tuple(name for name in owners if normal_name(name) not in ("id", "name"))
    return Layout(geometry=geometry, types=types, owners=likely, **roles)


def _output_layout(names: Layout, columns: Columns) -> Layout:
    """The columns of an output: none is named by another unit, and numbers of traces fit in."""
    plain: dict[str, Any] = {"lat": Layout.lat, "lon": Layout.lon}
    renamed = {role: name for role, name in plain.items() if unit_in_name(getattr(names, role))}
    types = dict(names.types)
    kind = types.get(names.trace)
    if not columns.keep_trace_names and kind is not None and pa.types.is_integer(kind):
        types[names.trace] = pa.int64()
    return replace(names, types=types, **renamed)


def _convert(
    records: Any, names: Layout, columns: Columns, parser: TimeParser, last: int
) -> RowBatch:
    """A record batch of Arrow, the last row of which is row `last` of its file."""
    rows = len(records)
    fault = np.zeros(rows, dtype=np.uint8)
    if names.geometry is None:
        lat = _read_degrees(records, names.lat, "lat", columns)
        lon = _read_degrees(records, names.lon, "lon", columns)
    else:
        lat, lon = _wkb.decode_points(shared_values(records.column(names.geometry)))
    fault[~np.isfinite(lon)] = Fault.LON
    fault[~np.isfinite(lat)] = Fault.LAT
    at_us = _read_times(records, names.time, columns, parser, fault)
    user = _read_ids(records, names.user, fault, Fault.USER)
    return RowBatch(
        line=np.arange(last - rows, last) + 1,
        at_us=at_us,
        lat=lat,
        lon=lon,
        fault=fault,
        user=user,
        trace=_read_ids(records, names.trace, fault, Fault.NONE),
        kept={name: _objects(records.column(name)) for name in columns.keep},
    )


def _read_degrees(records: Any, name: str, axis: Axis, columns: Columns) -> Floats:
    column = records.column(name)
    if is_text(_type_of_values(column), binary=False):
        column = column.dictionary_encode()
        _check_lengths(column)
        different = parse_all_degrees([text or "" for text in column.dictionary.to_pylist()], axis)
        values = np.append(different, np.nan)[_codes(column)]
        return in_degrees(values, columns.unit(name))
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        raise ParameterError(f"the column {name!r} must hold numbers, found {kind}")
    numbers = column.cast(pa.float64(), safe=False)
    values = values_of(numbers, np.float64)
    if numbers.null_count:
        values = np.where(present(numbers), values, np.nan)
    return in_degrees(values, columns.unit(name))


def _read_times(
    records: Any, name: str, columns: Columns, parser: TimeParser, fault: Faults
) -> Ints:
    """Microseconds; marks the rows that have no time."""
    column = records.column(name)
    if pa.types.is_timestamp(column.type):
        fault[~present(column)] = Fault.TIME
        return _instants(column, columns, fault)
    at_us = np.zeros(len(records), dtype=np.int64)
    _check_lengths(column)
    for row, value in enumerate(shared_values(column)):
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
        zone = columns.zone.key
        column = pc.assume_timezone(column, zone, ambiguous="earliest", nonexistent="earliest")
    count = values_of(column, np.int64)
    if column.null_count:
        count = np.where(present(column), count, 0)
    if kind.unit == "ns":
        return np.asarray(count // 1000)
    factor = _US_IN.get(kind.unit, 1)
    fault[np.abs(count) > np.iinfo(np.int64).max // (2 * factor)] = Fault.TIME
    return np.asarray(count * factor)


def _read_ids(records: Any, name: str, fault: Faults, missing: Fault) -> Ids | None:
    if name not in records.schema.names:
        return None
    column = records.column(name)
    kind = _type_of_values(column)
    if not pa.types.is_integer(kind) and not is_text(kind, binary=False):
        raise ParameterError(f"the column {name!r} must hold texts or whole numbers, found {kind}")
    column = column.dictionary_encode()
    _check_lengths(column)
    # The dictionary may have values of other batches, or one of them twice.
    given, codes = [*column.dictionary.to_pylist(), None], _codes(column)
    first = np.full(len(given), len(codes))
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    used = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(codes))].tolist()
    numbers = {value: i for i, value in enumerate(_unique(given[i] for i in used))}
    by_use = np.zeros(len(given), dtype=np.int64)
    by_use[used] = [numbers[given[i]] for i in used]
    codes = by_use[codes]
    if None in numbers and missing:
        fault[codes == numbers[None]] = missing
    return Ids(codes, list(numbers))


def _unique(values: Iterable[Any]) -> list[Any]:
    """Each value once, as they first come; None last."""
    different = dict.fromkeys(values)
    none = [None] if None in different else []
    return [value for value in different if value is not None] + none


def _objects(column: Any) -> NDArray[Any]:
    values = np.empty(len(column), dtype=object)
    values[:] = shared_values(column)
    return values


def _type_of_values(column: Any) -> Any:
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def is_text(kind: Any, *, binary: bool = True) -> bool:
    """Whether values of a type are texts, or bytes: of any length."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return True
    return binary and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def shared_values(column: Any) -> list[Any]:
    """The values of a column; equal texts are one object."""
    if not (pa.types.is_dictionary(column.type) and is_text(column.type.value_type)):
        return list(column.to_pylist())
    different = [*column.dictionary.to_pylist(), None]
    return [different[code] for code in _codes(column).tolist()]


def _codes(column: Any) -> Ints:
    """The number of each row's value in the dictionary, and one more where there is none."""
    indices = column.indices.cast(pa.int64())
    codes: Ints = values_of(indices, np.int64)
    if indices.null_count:
        codes = np.where(present(indices), codes, len(column.dictionary))
    return codes


def _check_lengths(column: Any) -> None:
    """Refuse texts as long as no name, number or time is."""
    if not (pa.types.is_dictionary(column.type) and is_text(column.type.value_type)):
        return
    longest = pc.max(pc.binary_length(column.dictionary)).as_py() or 0
    if longest > _LONGEST_BYTES:
        raise damaged_file("a name, a number or a time in it is far too long", "shorter ones")


def read_guarantee(source: Source) -> GuaranteeMetadata | None:
    """The guarantee in a file that was written here; None if there is none."""
    text = (open_file(source).metadata.metadata or {}).get(METADATA_KEY.encode())
    try:
        return None if text is None else GuaranteeMetadata.from_dict(json.loads(text))
    except ValueError:
        return None
