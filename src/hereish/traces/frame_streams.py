"""Tables that need not fit into memory: DuckDB relations, polars LazyFrames and Arrow readers.

Each is read once, as Arrow batches that are sorted by user and time; DuckDB and polars sort. What
is released of them is computed once: a lazy result would be another release each time it is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hereish.errors import PointError
from hereish.traces.formats.base import optional_dependency
from hereish.traces.names import canonical_name

BATCH_ROWS = 1 << 17


class FrameStream(ABC):
    """A table that is read in batches."""

    def __init__(self, native: Any) -> None:
        self._native = native

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The names of its columns."""

    @property
    def columns(self) -> list[str]:
        """The same, as frames have them."""
        return self.names

    def sorted_batches(
        self, names: Sequence[str], user: str | None, time: str, with_times: Callable[[Any], Any]
    ) -> Iterator[Any]:
        """Arrow tables of these columns by user and time; rows of one time are in one of them.

        Of each batch, `with_times` makes a table that has instants in the column of times.
        """
        by = [time] if user is None else [user, time]
        tables = map(_as_table, self._batches(names, by))
        return _whole_moments(map(with_times, tables), by)

    @abstractmethod
    def _batches(self, names: Sequence[str], by: Sequence[str]) -> Iterator[Any]:
        """Arrow batches or tables of some columns, sorted; the first has types and no rows."""

    @abstractmethod
    def collect(self, parts: Iterator[Any]) -> Any:
        """Released Arrow tables as what the stream was."""


def open_stream(frame: Any) -> FrameStream | None:
    """The stream that a value is; None for frames in memory, and for what is no table."""
    kind = type(frame)
    name = f"{kind.__module__.split('.')[0]}.{kind.__name__}"
    streams: dict[str, type[FrameStream]] = {
        "polars.LazyFrame": _Lazy,
        "pyarrow.RecordBatchReader": _Reader,
        "duckdb.DuckDBPyRelation": _Relation,
        "_duckdb.DuckDBPyRelation": _Relation,
    }
    stream = streams.get(name)
    if stream is None:
        return None
    with optional_dependency("a table that is streamed", "parquet"):
        import pyarrow  # noqa: F401  # batches are Arrow's, whatever they come from
    return stream(frame)


class _Lazy(FrameStream):
    @property
    def names(self) -> list[str]:
        return list(self._native.collect_schema().names())

    def _batches(self, names: Sequence[str], by: Sequence[str]) -> Iterator[Any]:
        import polars as pl

        wanted = self._native.select(names).sort(by)
        yield pl.DataFrame(schema=wanted.collect_schema()).to_arrow()
        if hasattr(wanted, "collect_batches"):
            batches = wanted.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)
        else:  # before polars 1.34
            batches = wanted.collect(engine="streaming").iter_slices(BATCH_ROWS)
        for batch in batches:
            yield batch.to_arrow()

    def collect(self, parts: Iterator[Any]) -> Any:
        import polars as pl

        return pl.DataFrame(pl.from_arrow(_concat(parts))).lazy()


class _Reader(FrameStream):
    @property
    def names(self) -> list[str]:
        return list(self._native.schema.names)

    def _batches(self, names: Sequence[str], by: Sequence[str]) -> Iterator[Any]:
        yield self._native.schema.empty_table().select(list(names))
        for batch in self._native:
            for begin in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(begin, BATCH_ROWS).select(list(names))

    def collect(self, parts: Iterator[Any]) -> Any:
        import pyarrow as pa

        first = next(parts)
        metadata = first.schema.metadata

        def batches() -> Iterator[Any]:
            yield from first.to_batches()
            for part in parts:
                yield from part.replace_schema_metadata(metadata).to_batches()

        return pa.RecordBatchReader.from_batches(first.schema, batches())


class _Relation(FrameStream):
    @property
    def names(self) -> list[str]:
        return list(self._native.columns)

    def _batches(self, names: Sequence[str], by: Sequence[str]) -> Iterator[Any]:
        wanted = self._native.project(_quoted(names)).order(_quoted(by))
        reader = wanted.to_arrow_reader(BATCH_ROWS)
        yield reader.schema.empty_table()
        yield from reader

    def collect(self, parts: Iterator[Any]) -> Any:
        import duckdb

        return duckdb.from_arrow(_concat(parts))


def _as_table(batch: Any) -> Any:
    import pyarrow as pa

    return pa.table(batch) if isinstance(batch, pa.RecordBatch) else batch


def _quoted(names: Sequence[str]) -> str:
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def _concat(parts: Iterator[Any]) -> Any:
    import pyarrow as pa

    tables = list(parts)
    metadata = tables[0].schema.metadata
    return pa.concat_tables([table.replace_schema_metadata(metadata) for table in tables])


def _whole_moments(batches: Iterator[Any], by: Sequence[str]) -> Iterator[Any]:
    """Tables that end where a user or a time does: which of two rows of one time comes first is
    decided within a table, and not by the order of the stream. There is one table at least."""
    import pyarrow as pa

    nothing = next(iter(batches))
    held: Any = None
    order = _SortCheck(by)
    for part in batches:
        if not part.num_rows:
            continue
        order.check(part)
        table = part if held is None else pa.concat_tables([held, part])
        begin = _last_moment(table, by)
        held = table.slice(begin)
        if begin:
            yield table.slice(0, begin).combine_chunks()
    yield (nothing if held is None else held).combine_chunks()


def _last_moment(table: Any, by: Sequence[str]) -> int:
    """The first of the rows at the end that have the user and time of the last."""
    last = [table[name][-1].as_py() for name in by]
    begin: int = table.num_rows - 1
    while begin and [table[name][begin - 1].as_py() for name in by] == last:
        begin -= 1
    return begin


class _SortCheck:
    """Raises where a user comes again after another, or time goes back: budgets go by time."""

    def __init__(self, by: Sequence[str]) -> None:
        self._user = by[0] if len(by) > 1 else None
        self._time = by[-1]
        self._gone: set[str] = set()
        self._last: tuple[str, Any] | None = None

    def check(self, table: Any) -> None:
        rows = table.num_rows
        users = [""] * rows if self._user is None else table[self._user].to_pylist()
        column = table[self._time].combine_chunks()
        if column.null_count:
            return  # said where the rows are read
        times = column.cast("int64").to_numpy() if hasattr(column.type, "unit") else None
        if times is None:
            return
        names = np.array([canonical_name(user) for user in users], dtype=object)
        begins = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
        for begin, end in zip(begins, np.append(begins[1:], rows), strict=True):
            self._check_user(str(names[begin]), times[begin:end])

    def _check_user(self, name: str, times: Any) -> None:
        last = None
        if self._last is not None:
            if self._last[0] == name:
                last = self._last[1]
            else:
                self._gone.add(self._last[0])
        rises = (np.diff(times) >= 0).all() and (last is None or times[0] >= last)
        if name in self._gone or not rises:
            raise PointError(
                "the rows of a stream must come sorted by user and time, and a user or a time came "
                "again after a later one: sort by user and time, or collect the frame; nothing of "
                "this batch was released"
            )
        self._last = (name, times[-1])
