"""Streams of Spark: what sanitising adds to them, and what comes out when they are killed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import hereish
from benchmarks.processes import all_cores, processor_s_in_turns
from benchmarks.results import Result
from benchmarks.spark import (
    COLUMNS,
    FIXED_UTILITY,
    ROUNDS,
    WHOLE_DAY,
    not_measured,
    spark_session,
    write_table,
)
from hereish.traces.key_file import write_key_file

_MICRO_BATCHES = 8
_POINTS = 200_000  # of a micro-batch
_BUCKETS = 16
_KILLS = 20
_SCHEMA = "user BIGINT, time TIMESTAMP, lat DOUBLE, lon DOUBLE"
_SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def streams() -> list[Result]:
    """Streams against the identity over the same buckets, packed and unpacked in the same way."""
    if shutil.which("java") is None:
        return not_measured("sanitising streams of Spark", "0.8")
    return [*_shares(each=10, wanted=0.8), *_shares(each=1, wanted=None)]


def stream_kills() -> list[Result]:
    """A stream that is killed in the middle of micro-batches, and one that is not."""
    if shutil.which("java") is None:
        return not_measured("a stream that is killed", "0")
    from tests.support.spark_stream_kills import KillableStream, reports_with_two_places

    pieces = _KILLS // 2
    with tempfile.TemporaryDirectory() as name, all_cores():
        whole = KillableStream.begin(Path(name, "points"), Path(name, "whole"), pieces, each=100)
        killed = whole.copy(Path(name, "killed"))
        whole.finish()
        for batch in range(pieces):
            for _ in range(2):
                killed.kill_within(batch)
        killed.finish()
        written, released = killed.written_rows(), killed.released_rows()
        twice, same = reports_with_two_places(written), released == whole.released_rows()
        again = len(written) - len(released)
    return [
        Result(
            f"a stream of Spark that is killed in the middle of micro-batches, {_KILLS} times: "
            "reports with two places; all that was released / a run without kills",
            f"{twice} of {len(released)}, {again} of which were written again; "
            + ("the same rows" if same else "other rows"),
            "0; the same rows",
            not twice and same and again > 0,
        )
    ]


def _shares(each: int, wanted: float | None) -> list[Result]:
    """Two mechanisms, for users with so many points in every micro-batch."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_stream(folder / "points", _POINTS // each, each)
        with spark_session(folder, settings=_SETTINGS) as session:
            queries = _Queries(session, folder)
            identity_s, *sanitize_s = processor_s_in_turns(
                ROUNDS,
                queries.identity,
                lambda: queries.sanitize(FIXED_UTILITY),
                lambda: queries.sanitize(WHOLE_DAY),
                rounds_before=2,  # Java takes that long to compile it all
            )
    results = []
    whose = f"{each} points" if each > 1 else "a point"
    for mechanism, taken_s in zip(("fixed utility, 3 km", "whole_day"), sanitize_s, strict=True):
        ratio = identity_s / taken_s
        goal = wanted if mechanism != "whole_day" else None
        results.append(
            Result(
                f"Spark streams, micro-batches of {_POINTS:,} points, {whose} per user, "
                f"{mechanism}: the identity over the same buckets / hereish.spark.sanitize_stream, "
                "processor seconds",
                f"{ratio:.2f} ({taken_s * 1e6 / (_POINTS * _MICRO_BATCHES):.1f} µs per point)",
                "for comparison" if goal is None else f"at least {goal}",
                goal is None or ratio >= goal,
            )
        )
    return results


def _write_stream(path: Path, users: int, each: int) -> None:
    """A file for each micro-batch, in which everybody has walked on from where they were."""
    rng = np.random.default_rng(3)
    places, span_us = rng.normal(0.0, 0.03, (users, 2)), 86_400_000_000 // _MICRO_BATCHES
    for number in range(_MICRO_BATCHES):
        share = (np.arange(each) + rng.random((users, each))) / each
        at_us = (span_us * (number + share)).astype(np.int64).ravel()
        walk = places[:, None] + rng.normal(0.0, 0.002, (users, each, 2)).cumsum(axis=1)
        places = walk[:, -1]
        owner = np.repeat(np.arange(users), each)
        write_table(path, number, owner, at_us, walk.reshape(-1, 2), rng)


class _Queries:
    """Queries from the same files to nowhere, each with a checkpoint and a key of its own."""

    def __init__(self, session: Any, folder: Path) -> None:
        self._session, self._folder, self._numbers = session, folder, count()

    def identity(self) -> None:
        """Rows are packed and go through the state operator as ours do.

        It is what Spark itself takes, and no more: its rows are not checked, sorted or read, it
        declares a state and keeps nothing in it, and adds no columns. In one way it does more: all
        rows come out of it and go back to Java, as with whole_day, while the budgets of fixed
        utility end after a third of them. So the rows of whole_day belong beside those.
        """
        from pyspark.sql import functions as f

        from hereish.spark import stream

        points = self._points()
        bucket = f.pmod(f.hash(f.col("user").cast("string")), f.lit(_BUCKETS))
        passed = (
            points.withColumn("bucket", bucket)
            .mapInArrow(stream._packed, stream._PACKED)
            .groupBy("bucket")
            .transformWithStateInPandas(_identity_processor(), "packed BINARY", "Append", "None")
        )
        self._run(passed.mapInArrow(stream._unpacked, points.schema))

    def sanitize(self, mechanism: hereish.PredictiveMechanism) -> None:
        import hereish.spark

        key_file = self._folder / f"key-{next(self._numbers)}"
        write_key_file(key_file)
        self._run(
            hereish.spark.sanitize_stream(
                self._points(), mechanism, **COLUMNS, key_file=key_file, buckets=_BUCKETS
            )
        )

    def _points(self) -> Any:
        files = self._session.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
        return files.parquet(str(self._folder / "points"))

    def _run(self, released: Any) -> None:
        checkpoint = self._folder / f"checkpoint-{next(self._numbers)}"
        query = (
            released.writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seen = [progress["numInputRows"] for progress in query.recentProgress]
        if seen.count(_POINTS) != _MICRO_BATCHES:
            raise RuntimeError(f"micro-batches of {_POINTS} points were wanted, found {seen}")
        shutil.rmtree(checkpoint)


def _identity_processor() -> Any:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Identity(StatefulProcessor):
        def init(self, handle: Any) -> None:
            handle.getMapState("standings", "page INT", "users BINARY")

        def handleInputRows(  # noqa: N802  # Spark's names
            self,
            key: Any,
            rows: Iterator[Any],
            timerValues: Any,  # noqa: N803  # Spark's names
        ) -> Iterator[Any]:
            for frame in rows:
                yield frame[["packed"]]

        def close(self) -> None:
            """There is nothing to close."""

    return Identity()
