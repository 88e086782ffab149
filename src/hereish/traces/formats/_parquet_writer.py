"""Writes Parquet and GeoParquet."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hereish.errors import ParameterError
from hereish.traces.columns import Layout
from hereish.traces.foreign_errors import replace_foreign_errors
from hereish.traces.formats import _wkb
from hereish.traces.formats._arrow_values import column_of, texts_of
from hereish.traces.formats._bbox import BoundingBox
from hereish.traces.formats._parquet_reader import METADATA_KEY
from hereish.traces.formats.base import Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import RELEASED_KINDS, Ids, ReleasedRows

_GROUP_ROWS = 1 << 17


class ParquetWriter(Writer):
    """Writes row groups as rows come. Statistics are those of the released rows."""

    def __init__(self, file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> None:
        self._file = file
        self._layout = layout
        self._guarantee = guarantee
        self._out: Any = None
        self._pending: list[Any] = []
        self._bbox = BoundingBox()

    def write(self, rows: ReleasedRows) -> None:
        columns = self._columns(rows)
        if self._out is None:
            metadata = {
                "hereish": self._guarantee.description,
                METADATA_KEY: json.dumps(self._guarantee.as_dict()),
            }
            schema = pa.schema([(name, column.type) for name, column in columns], metadata=metadata)
            self._out = pq.ParquetWriter(self._file, schema, compression="zstd")
        table = pa.table([column for _, column in columns], schema=self._out.schema)
        self._pending.append(table)
        if sum(map(len, self._pending)) >= _GROUP_ROWS:
            self._flush()
        self._bbox.add(rows.lat, rows.lon)

    def _flush(self, all_rows: bool = False) -> None:
        """Row groups of a fixed size: any other would tell how the input was divided."""
        if not self._pending:
            return
        table = pa.concat_tables(self._pending)
        while len(table) >= _GROUP_ROWS or (all_rows and len(table)):
            self._out.write_table(table.slice(0, _GROUP_ROWS).combine_chunks())
            table = table.slice(_GROUP_ROWS)
        self._pending = [table] if len(table) else []

    def finish(self) -> None:
        if self._out is None:
            nothing = np.empty(0)
            none = nothing.astype(np.int64)
            self.write(ReleasedRows(none, nothing, nothing, nothing.astype(np.uint8), nothing))
        self._flush(all_rows=True)
        if self._layout.geometry:
            described = json.dumps(_wkb.describe(self._layout.geometry, self._bbox))
            self._out.add_key_value_metadata({"geo": described})
        self._out.close()

    def abandon(self) -> None:
        """Close it now: Arrow would write the end of the file when it is garbage-collected."""
        if self._out is not None:
            self._out.close()

    def _columns(self, rows: ReleasedRows) -> list[tuple[str, Any]]:
        layout, types = self._layout, self._layout.types
        columns: list[tuple[str, Any]] = []
        for name, ids in ((layout.user, rows.user), (layout.trace, rows.trace)):
            if ids is not None:
                columns.append((name, _id_column(ids, types.get(name))))
        kind = types.get(layout.time)
        if kind is None or not pa.types.is_timestamp(kind) or kind.tz is None:
            kind = pa.timestamp("us", "UTC")
        at = column_of(rows.at_us, pa.timestamp("us", "UTC")).cast(kind, safe=False)
        columns.append((layout.time, at))
        if layout.geometry:
            columns.append((layout.geometry, _wkb.encode_points(rows.lat, rows.lon)))
        else:
            places = ((layout.lat, rows.lat), (layout.lon, rows.lon))
            columns += [(name, column_of(values, pa.float64())) for name, values in places]
        kind_names = texts_of([kind.value for kind in RELEASED_KINDS])
        kinds = pa.DictionaryArray.from_arrays(column_of(rows.kind, pa.int8()), kind_names)
        columns += [
            ("kind", kinds.dictionary_decode()),
            ("cost", column_of(rows.cost, pa.float64())),
        ]
        for name, values in rows.kept.items():
            kind = types.get(name)
            error = ParameterError(
                f"the column {name!r} of type {kind} cannot be kept; turn it into texts or numbers "
                "first"
            )
            columns.append(
                (name, replace_foreign_errors(partial(_kept_column, values, kind), error))
            )
        return columns


def _id_column(ids: Ids, kind: Any) -> Any:
    """Ids as the first file had them; texts where that had no types."""
    kind = kind or pa.string()
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    used, codes = np.unique(ids.codes, return_inverse=True)
    names = [ids.names[code] for code in used.tolist()]
    if pa.types.is_integer(kind) and any(isinstance(name, str) for name in names):
        raise ParameterError(
            "ids are numbers in one input and texts in another: give a folder as OUT, and --to "
            "parquet, or write CSV"
        )
    if pa.types.is_integer(kind):
        column = _whole_numbers(names, kind)
    else:
        column = texts_of(_texts(names)).cast(kind)
    return column.take(column_of(codes.astype(np.int64), pa.int64()))


def _whole_numbers(names: Sequence[Any], kind: Any) -> Any:
    if all(isinstance(name, int) for name in names):
        with contextlib.suppress(OverflowError):
            numbers = np.array(names, dtype=np.int64)
            return column_of(numbers, pa.int64()).cast(kind)
    return pa.array(names, kind)


def _kept_column(values: NDArray[Any], kind: Any) -> Any:
    if kind is None:
        return pa.array(_texts(values), pa.string())
    return pa.array(values.tolist(), kind)


def _texts(values: Sequence[Any] | NDArray[Any]) -> list[str | None]:
    return [None if value is None else str(value) for value in values]
