"""Parquet and GeoParquet, a piece at a time. `pip install 'hereish[parquet]'`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError
from hereish.traces.discovery import Source
from hereish.traces.foreign_errors import shielded
from hereish.traces.formats import _wkb
from hereish.traces.formats._bbox import Box
from hereish.traces.formats._times import Clock
from hereish.traces.table import (
    KINDS,
    PIECE_ROWS,
    Columns,
    Fault,
    Ids,
    Layout,
    Piece,
    Promise,
    Released,
    Unreadable,
    listed,
)

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as missing:
    raise ParameterError("Parquet needs more: pip install 'hereish[parquet]'") from missing

_US_IN = {"s": 1_000_000, "ms": 1_000}  # how many microseconds
_PROMISE = "hereish.promise"
_GROUP_ROWS = 1 << 17


def read(source: Source, columns: Columns) -> Iterator[Piece]:
    """The rows of a file, a row group or less at a time."""
    file = _opened(source)
    layout = _layout(file, columns)
    asked = [layout.user, layout.trace, layout.time, *columns.keep]
    asked += [layout.geometry] if layout.geometry else [layout.lat, layout.lon]
    present = file.schema_arrow.names
    total = file.metadata.num_rows
    if total == 0:
        raise Unreadable("it has no rows")
    clock, row = Clock(columns.zone), 0
    batches = file.iter_batches(PIECE_ROWS, columns=[name for name in asked if name in present])
    while True:
        # What a damaged file makes Arrow raise may quote the data.
        damaged = Unreadable(f"it is damaged after row {row}")
        batch = shielded(lambda: next(batches, None), damaged)
        if batch is None:
            return
        row += len(batch)
        read_to = partial(_piece, batch, layout, columns, clock, row - len(batch) + 1, row / total)
        yield shielded(read_to, damaged)


def _opened(source: Source) -> Any:
    if source.path is None:
        raise ParameterError("Parquet is read from a file, not from standard input")
    path = source.path

    def opened() -> Any:
        file = pq.ParquetFile(path)
        str(file.schema_arrow)  # names and types, which are looked at only now
        return file

    return shielded(opened, Unreadable("it is no Parquet file, or a damaged one"))


def _layout(file: Any, columns: Columns) -> Layout:
    schema = file.schema_arrow
    names = schema.names
    for name in columns.keep:
        if name not in names:
            raise ParameterError(f"there is no column {name!r} to keep; found {listed(names)}")
    geometry = None
    if columns.lat is None and columns.lon is None:
        geometry = _wkb.geometry_column(file.metadata.metadata or {}, names)
    found = {role: columns.find(role, names) for role in ("user", "trace")}
    found["time"] = columns.need("time", names)
    if geometry is None:
        found |= {role: columns.need(role, names) for role in ("lat", "lon")}
    roles: dict[str, Any] = {role: name for role, name in found.items() if name is not None}
    wanted = [*roles.values(), *columns.keep]
    for name in wanted:
        if wanted.count(name) > 1 or names.count(name) > 1:
            raise ParameterError(f"the column {name!r} is asked for twice, or there are two of it")
    types = {name: schema.field(name).type for name in wanted}
    return replace(Layout(geometry=geometry, types=types), **roles)


def _piece(
    batch: Any, layout: Layout, columns: Columns, clock: Clock, first: int, done: float
) -> Piece:
    rows = len(batch)
    fault = np.zeros(rows, dtype=np.uint8)
    if layout.geometry is None:
        lat = _numbers(batch, layout.lat)
        lon = _numbers(batch, layout.lon)
    else:
        lat, lon = _wkb.points(batch.column(layout.geometry).to_pylist())
    fault[~np.isfinite(lon)] = Fault.LON
    fault[~np.isfinite(lat)] = Fault.LAT
    at_us = _times(batch, layout.time, columns, clock, fault)
    user = _ids(batch, layout.user, fault, Fault.USER)
    return Piece(
        line=np.arange(first, first + rows),
        at_us=at_us,
        lat=lat,
        lon=lon,
        fault=fault,
        user=user,
        trace=_ids(batch, layout.trace, fault, Fault.NONE),
        kept={name: _objects(batch.column(name)) for name in columns.keep},
        layout=layout,
        done=done,
    )


def _numbers(batch: Any, name: str) -> Floats:
    column = batch.column(name)
    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        raise ParameterError(f"the column {name!r} must hold numbers, found {kind}")
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def _times(batch: Any, name: str, columns: Columns, clock: Clock, fault: NDArray[np.uint8]) -> Ints:
    """Microseconds; marks the rows that have no time."""
    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        fault[column.is_null().to_numpy(zero_copy_only=False)] = Fault.TIME
        return _instants(column, columns, fault)
    at_us = np.zeros(len(batch), dtype=np.int64)
    for row, value in enumerate(column.to_pylist()):
        at = clock.read(value)
        if isinstance(at, Fault):
            fault[row] = at
        else:
            at_us[row] = at
    clock.settle(fault)
    return at_us


def _instants(column: Any, columns: Columns, fault: NDArray[np.uint8]) -> Ints:
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


def _ids(batch: Any, name: str, fault: NDArray[np.uint8], missing: Fault) -> Ids | None:
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
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


class ParquetWriter:
    """Writes row groups as rows come. Statistics are of the released rows: there are no others."""

    def __init__(self, file: BinaryIO, layout: Layout, promise: Promise) -> None:
        self._file = file
        self._layout = layout
        self._promise = promise
        self._out: Any = None
        self._waiting: list[Any] = []
        self._box = Box()

    def write(self, rows: Released) -> None:
        columns = self._columns(rows)
        if self._out is None:
            metadata = {
                "hereish": self._promise.guarantee,
                _PROMISE: json.dumps(self._promise.as_dict()),
            }
            schema = pa.schema([(name, column.type) for name, column in columns], metadata=metadata)
            self._out = pq.ParquetWriter(self._file, schema, compression="zstd")
        table = pa.table([column for _, column in columns], schema=self._out.schema)
        self._waiting.append(table)
        if sum(map(len, self._waiting)) >= _GROUP_ROWS:
            self._flush()
        self._box.add(rows.lat, rows.lon)

    def _flush(self, to_the_end: bool = False) -> None:
        """Groups of as many rows each, however the rows came: that would tell how the input lay."""
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting)
        while len(table) >= _GROUP_ROWS or (to_the_end and len(table)):
            self._out.write_table(table.slice(0, _GROUP_ROWS).combine_chunks())
            table = table.slice(_GROUP_ROWS)
        self._waiting = [table] if len(table) else []

    def finish(self) -> None:
        if self._out is None:
            nothing = np.empty(0)
            none = nothing.astype(np.int64)
            self.write(Released(none, nothing, nothing, nothing.astype(np.uint8), nothing))
        self._flush(to_the_end=True)
        if self._layout.geometry:
            described = json.dumps(_wkb.description(self._layout.geometry, self._box))
            self._out.add_key_value_metadata({"geo": described})
        self._out.close()

    def abandon(self) -> None:
        """Let go of the file: Arrow would write the end of it whenever it is tidied away."""
        if self._out is not None:
            self._out.close()

    def _columns(self, rows: Released) -> list[tuple[str, Any]]:
        layout, types = self._layout, self._layout.types
        columns: list[tuple[str, Any]] = []
        for name, ids in ((layout.user, rows.user), (layout.trace, rows.trace)):
            if ids is not None:
                columns.append((name, _id_column(ids, types.get(name))))
        kind = types.get(layout.time)
        if kind is None or not pa.types.is_timestamp(kind) or kind.tz is None:
            kind = pa.timestamp("us", "UTC")
        at = pa.array(rows.at_us, pa.timestamp("us", "UTC")).cast(kind, safe=False)
        columns.append((layout.time, at))
        if layout.geometry:
            columns.append((layout.geometry, _wkb.column(rows.lat, rows.lon)))
        else:
            columns += [(layout.lat, pa.array(rows.lat)), (layout.lon, pa.array(rows.lon))]
        kinds = pa.DictionaryArray.from_arrays(pa.array(rows.kind, pa.int8()), pa.array(KINDS))
        columns += [("kind", kinds.dictionary_decode()), ("cost", pa.array(rows.cost))]
        for name, values in rows.kept.items():
            kind = types.get(name)
            wrong = ParameterError(
                f"the column {name!r} of type {kind} cannot be kept; turn it into texts or numbers "
                "first"
            )
            columns.append((name, shielded(partial(_kept_column, values, kind), wrong)))
        return columns


writer = ParquetWriter


def _id_column(ids: Ids, kind: Any) -> Any:
    """Ids as the first file had them; texts where that had no types."""
    kind = kind or pa.string()
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    used, codes = np.unique(ids.codes, return_inverse=True)
    names = [ids.names[code] for code in used.tolist()]
    if pa.types.is_integer(kind) and any(isinstance(name, str) for name in names):
        raise ParameterError(
            "ids are numbers in one input and texts in another; sanitise them apart, or into a "
            "folder"
        )
    texts = names if pa.types.is_integer(kind) else _texts(names)
    return pa.array(texts, kind).take(pa.array(codes))


def _kept_column(values: NDArray[Any], kind: Any) -> Any:
    if kind is None:
        return pa.array(_texts(values), pa.string())
    return pa.array(values.tolist(), kind)


def _texts(values: Sequence[Any] | NDArray[Any]) -> list[str | None]:
    return [None if value is None else str(value) for value in values]


def promise_of(source: Source) -> Promise | None:
    """What was promised for a file, if it says so."""
    text = (_opened(source).metadata.metadata or {}).get(_PROMISE.encode())
    try:
        return None if text is None else Promise.read(json.loads(text))
    except ValueError:
        return None
