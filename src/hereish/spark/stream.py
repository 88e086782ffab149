"""A stream of points in, a stream of releases out: budgets hold over all micro-batches.

Rows of a bucket of users go through Spark's state operator together, packed as Arrow: row by row,
and with a state for each user's own group, it takes several times as long. What is kept of a user
is the public run, so neither state nor checkpoint holds a place that was reported.
"""

from __future__ import annotations

import dataclasses
import importlib
import pickle
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import KeyedDraws
from hereish.core.types import Ints
from hereish.errors import ParameterError, PointError
from hereish.spark.batch import released_schema, typed, usable
from hereish.spark.query_file import check_query_file
from hereish.spark.state_pages import MapState, StandingRecords, StatePages, groups
from hereish.traces.arrow import CHUNK_ROWS, ArrowColumns, check_keyed, sanitize_batches
from hereish.traces.budgets import EachTrace
from hereish.traces.foreign_errors import replace_foreign_errors
from hereish.traces.key_file import read_key_file

try:
    from pyspark import TaskContext, cloudpickle
    from pyspark.sql import functions as f
except ImportError as missing:
    raise ImportError("Spark needs more: pip install 'hereish[spark]'") from missing
try:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
except ImportError:  # Spark 3.5, where data frames can be sanitised that are not streams
    StatefulProcessor = object  # type: ignore[assignment, misc]  # and is refused below

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_QUERY = "sql.streaming.queryId"  # Spark keeps it in the checkpoint, and gives it to every task
_PACKED = "bucket INT, packed BINARY"
_UNREADABLE = "rows of a stream cannot be put together; nothing of them was released"


def sanitize_stream(
    df: DataFrame,
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
    buckets: int = 16,
) -> DataFrame:
    """The rows of a stream that may be released, with the columns of `hereish.spark.sanitize`.

    If no micro-batch has points of a user at or before the user's last, the releases are the same,
    bit by bit, as those of `sanitize` with this key, however the stream was cut. A late point, at
    or before the last report of its user that was taken in an earlier micro-batch, is left out:
    the gateway would answer it with the release in force at that time, which the stream has given
    out already. Within a micro-batch points may come in any order.

    Where each user stands is kept for ever, by no clock: whoever comes back has the rest of the
    budget. A micro-batch that is run again, after a crash, releases the same again. A stream that
    has lost its checkpoint and goes on in the middle would give users a second budget in windows
    that have begun: so a key file is for one query, whose id is written beside it
    (`<key_file>.stream`, on each machine that sanitises rows: let them share the folder, since a
    new machine knows nothing), and another query is refused, and told what can be done.

    Rows of a micro-batch are held in memory, those of one of the `buckets` of users at a time; let
    the source limit them (maxFilesPerTrigger, maxOffsetsPerTrigger). `buckets` cannot be changed
    later, nor can the mechanism. Set spark.sql.shuffle.partitions to no more than `buckets`. A bad
    point fails the query, without being quoted, each time it is started: `drop_bad` leaves such
    points out. The other parameters are those of `sanitize`.

    Guarantee: as the mechanism's, for each user, over all that this data frame ever releases. Two
    of them in one query have two budgets: put all points of a user into one.
    """
    columns = ArrowColumns(user, time, lat, lon, trace, order, tuple(keep))
    _check_stream(df, mechanism, key_file, buckets)
    check_keyed(mechanism, columns)
    rows, inner = typed(df, columns)
    rows = usable(rows, drop_bad)
    # By the text, so that a user stays in the bucket if the column's type changes.
    number = f.pmod(f.hash(f.col("user").cast("string")), f.lit(buckets))
    every_s = None if every is None else every.total_seconds()
    processor = _BucketProcessor(mechanism, inner, str(key_file), every_s, buckets)
    released = (
        rows.withColumn("bucket", number)
        .mapInArrow(_packed, _PACKED)
        .groupBy("bucket")
        .transformWithStateInPandas(_deferred(processor), "packed BINARY", "Append", "None")
    )
    out = released.mapInArrow(_unpacked, released_schema(rows.schema, inner))
    return out.toDF(*columns.released)


def _check_stream(
    df: DataFrame, mechanism: PredictiveMechanism, key_file: str | Path, buckets: int
) -> None:
    if StatefulProcessor is object:
        raise ParameterError(f"streams need Spark 4.0 or later, found {df.sparkSession.version}")
    try:
        for needed in ("pandas", "google.protobuf.descriptor"):
            importlib.import_module(needed)
    except ImportError as missing:  # of which Spark says no more than that a worker crashed
        raise ImportError("streams need more: pip install 'hereish[spark]'") from missing
    if not df.isStreaming:
        raise ParameterError("a stream is needed; for other data frames hereish.spark.sanitize")
    if key_file is None:
        raise ParameterError(
            "key_file is needed: Spark runs a micro-batch again after a failure, and fresh noise "
            "would then be a second release"
        )
    if isinstance(mechanism.window, EachTrace):
        raise ParameterError(
            "a stream has no budget per trace, since nobody knows when a trace is over: choose a "
            "window of time, such as hereish.Day"
        )
    if isinstance(buckets, bool) or not isinstance(buckets, int) or buckets < 1:
        raise ParameterError(f"buckets must be a whole number from 1, found {buckets!r}")
    provider = df.sparkSession.conf.get(_PROVIDER, None)
    if provider is None or not provider.endswith("RocksDBStateStoreProvider"):
        raise ParameterError(f"the state of a stream needs RocksDB: set {_PROVIDER} to {_ROCKS_DB}")


def _key_check(draws: KeyedDraws) -> bytes:
    """Tells whether a stream was begun with this key, and nothing else about it."""
    zero = np.zeros(1, dtype=np.int64)
    drawn = draws.derive(
        ["key"], zero, zero, np.zeros(1), np.zeros((1, 1)), 1, mechanism=b"stream check"
    )
    return drawn.tobytes()


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with the number of their bucket in the last column, as bytes for each bucket."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(part.num_rows for part in held) >= CHUNK_ROWS:
            yield _pack(held)
            held = []
    if held:
        yield _pack(held)


def _pack(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(held)
    bucket = table.column(table.num_columns - 1).to_numpy()
    rows = table.drop_columns(table.column_names[-1:])
    packed = {number: _to_bytes(rows.take(pa.array(own))) for number, own in groups(bucket)}
    return pa.RecordBatch.from_arrays(
        [pa.array(packed.keys(), pa.int32()), pa.array(packed.values(), pa.binary())],
        ["bucket", "packed"],
    )


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for packed in batch.column(0):
            yield from _from_bytes(packed.as_py()).to_batches()


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _from_bytes(packed: bytes) -> pa.Table:
    return pa.ipc.open_stream(packed).read_all()


def _deferred(processor: _BucketProcessor) -> StatefulProcessor:
    """Spark's processor, which has ours as bytes that are read when rows come.

    Each start of a query asks a processor in a new process of Python what its state is. A class of
    this function goes there as it is, so that this process need not import hereish, pandas and
    pyarrow: that takes longer than sanitising some hundred thousand points.
    """
    held: bytes = cloudpickle.dumps(processor)  # type: ignore[no-untyped-call]  # Spark's
    state = ("standings", StatePages.KEY, StatePages.VALUE)

    class Deferred(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            """Called by Spark, also on the driver, where no rows follow."""
            self._state = handle.getMapState(*state)
            self._processor: _BucketProcessor | None = None

        def handleInputRows(  # noqa: N802  # Spark's name
            self,
            key: Any,
            rows: Iterator[pd.DataFrame],
            timerValues: TimerValues,  # noqa: N803  # Spark's name
        ) -> Iterator[pd.DataFrame]:
            """Called by Spark, once per bucket and micro-batch."""
            if self._processor is None:
                self._processor = pickle.loads(held)  # noqa: S301  # which came with this class
                self._processor.begin(self._state)
            return self._processor.released(rows)

        def close(self) -> None:
            """Called by Spark; there is nothing to close."""

    return Deferred()


@dataclasses.dataclass
class _BucketProcessor:
    """What an executor does with a bucket of users. It holds the path of the key, not the key."""

    mechanism: PredictiveMechanism
    columns: ArrowColumns
    key_file: str
    every_s: float | None
    buckets: int

    def begin(self, state: MapState) -> None:
        """In a task, before the first of its buckets."""
        self._state, self._records = state, StandingRecords(self.mechanism)
        self._keyed: tuple[KeyedDraws, bytes] | None = None

    def released(self, rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """What may be released of a bucket's rows in a micro-batch."""
        import pandas

        draws, key_check = self._begun()
        sent = [packed for frame in rows for packed in frame["packed"]]
        table = replace_foreign_errors(lambda: self._sorted(sent), PointError(_UNREADABLE))
        released = sanitize_batches(
            table.to_batches(),
            self.mechanism,
            draws,
            self.columns,
            every_s=self.every_s,
            standings=StatePages(self._records, self._state, key_check),
        )
        for batch in released:
            packed = _to_bytes(pa.Table.from_batches([batch]))
            yield pandas.DataFrame({"packed": [packed]})

    def _begun(self) -> tuple[KeyedDraws, bytes]:
        """The draws, and what tells their key: once for all buckets of a task."""
        if self._keyed is None:
            context = TaskContext.get()
            query = None if context is None else context.getLocalProperty(_QUERY)
            check_query_file(self.key_file, query, self.buckets)
            draws = self.draws()
            self._keyed = draws, _key_check(draws)
        return self._keyed

    def draws(self) -> KeyedDraws:
        """Of the key, which is read here and nowhere else."""
        return read_key_file(self.key_file)

    def _sorted(self, sent: list[bytes]) -> pa.Table:
        table = pa.concat_tables(map(_from_bytes, sent)).combine_chunks()
        return table.take(pa.array(_by_user_and_time(table, self.columns)))


def _by_user_and_time(table: pa.Table, columns: ArrowColumns) -> Ints:
    """In which order the rows are sorted. Sorting texts row by row takes several times as long."""
    encoded = pc.dictionary_encode(table[columns.user]).combine_chunks()
    # Few users have small numbers, which are sorted much faster.
    rank = np.empty(len(encoded.dictionary), dtype=np.min_scalar_type(len(encoded.dictionary)))
    rank[pc.array_sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
    # Rows of one user at one time get a public order later.
    by_time = np.argsort(pc.cast(table[columns.time], pa.int64()).to_numpy())
    user = rank[encoded.indices.to_numpy()]
    return np.asarray(by_time[np.argsort(user[by_time], kind="stable")])
