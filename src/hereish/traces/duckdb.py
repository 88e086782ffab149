"""DuckDB relations through `hereish.traces.arrow`: DuckDB sorts, also beyond memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from hereish.core.mechanism import PredictiveMechanism
from hereish.errors import ParameterError, PointError
from hereish.traces.arrow import ArrowCounts, check_keyed, sanitize_batches
from hereish.traces.arrow_rows import ArrowColumns, check_types
from hereish.traces.budgets import EachTrace
from hereish.traces.foreign_errors import replace_foreign_errors
from hereish.traces.key_file import read_key_file

_BATCH_ROWS = 100_000


def sanitize_relation(
    relation: Any,
    mechanism: PredictiveMechanism,
    *,
    user: str,
    time: str,
    lat: str,
    lon: str,
    trace: str | None = None,
    key_file: str | Path,
    order: str | None = None,
    keep: Sequence[str] = (),
    every: timedelta | None = None,
    drop_bad: bool = False,
    granted: str | None = None,
    counts: ArrowCounts | None = None,
) -> pa.RecordBatchReader:
    """What may be released of a DuckDB relation, as Arrow batches that DuckDB can query again.

    As `hereish.spark.sanitize`: columns, keys, ties and bad points are treated alike, and the same
    rows with the same key give the same bits. The relation is read once, when the result is, and
    until then its connection is busy: query the result over a cursor of its own (`con.cursor()`).
    `granted` is a column that says in each row of a user what may be spent of which windows, as
    `ArrowColumns` has it.

    Guarantee: as the mechanism's, for each user, over all of the relation.
    """
    columns = ArrowColumns(user, time, lat, lon, trace, order, tuple(keep), granted)
    check_keyed(mechanism, columns)
    draws = read_key_file(key_file)
    for name in columns.read:
        if name not in relation.columns:
            found = ", ".join(map(repr, relation.columns))
            raise ParameterError(f"there is no column {name!r}; found {found}")
    places = (lat, lon)
    selected = [
        f"try_cast({_quoted(n)} AS DOUBLE) AS {_quoted(n)}" if n in places else _quoted(n)
        for n in columns.read
    ]
    by = [user, *([str(trace)] if isinstance(mechanism.window, EachTrace) else []), time]
    by += [] if order is None else [order]
    placed = relation.project(", ".join(selected)).order(", ".join(map(_quoted, by)))
    error = PointError("the relation cannot be read; nothing was released")
    rows = replace_foreign_errors(lambda: placed.to_arrow_reader(_BATCH_ROWS), error)
    check_types(rows.schema, columns)
    batches = sanitize_batches(
        rows,
        mechanism,
        draws,
        columns,
        every_s=None if every is None else every.total_seconds(),
        drop_bad=drop_bad,
        counts=counts,
    )
    released = _read_to_the_end(rows, batches)
    return pa.RecordBatchReader.from_batches(columns.schema(rows.schema), released)


def _read_to_the_end(
    rows: pa.RecordBatchReader, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The batches; then, or when one fails, DuckDB's connection is free for other queries."""
    try:
        yield from batches
    finally:
        rows.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
