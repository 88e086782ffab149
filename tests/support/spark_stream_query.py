"""A stream query as a program of its own, to be killed: parquet files in, parquet files out.

    python -m tests.support.spark_stream_query POINTS FOLDER [--hang BATCH] [--fresh]

FOLDER has the `key`, and gets `out` and `checkpoint`. With --hang the last task of that
micro-batch writes `hangs` when the other has written its part file, and waits to be killed. With
--fresh it draws with another key than any start before: the negative control.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from hereish.core.randomness import KeyedDraws
from hereish.spark import sanitize_stream, stream
from tests.support.spark_stream_stage import BUCKETS, COLUMNS, MECHANISMS, SCHEMA, stream_session

_LONGEST_S = 120.0


class HangingProcessor(stream._BucketProcessor):
    """The real one, which stops in the middle of a micro-batch."""

    hang: int | None
    other_key: bytes | None
    folder: str

    def draws(self) -> KeyedDraws:
        return super().draws() if self.other_key is None else KeyedDraws(self.other_key)

    def released(self, rows: Any) -> Iterator[Any]:
        yield from super().released(rows)
        context = TaskContext.get()
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if context is not None and context.partitionId() == 1 and batch == str(self.hang):
            Path(self.folder, "hangs").write_text(str(os.getpid()))
            time.sleep(_LONGEST_S)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("points", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hang", type=int)
    parser.add_argument("--fresh", action="store_true")
    given = parser.parse_args()

    def hanging(*settings: Any) -> HangingProcessor:
        processor = HangingProcessor(*settings)
        processor.hang, processor.folder = given.hang, str(given.folder)
        processor.other_key = os.urandom(32) if given.fresh else None
        return processor

    stream._BucketProcessor = hanging  # type: ignore[assignment, misc]  # called, and no more
    spark = stream_session(cores=1)  # so that the tasks of a stage run one after the other
    points = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    released = sanitize_stream(
        points.parquet(str(given.points)),
        MECHANISMS["whole day"],
        **COLUMNS,
        key_file=given.folder / "key",
        buckets=BUCKETS,
    )
    query = (
        released.writeStream.format("parquet")
        .option("path", str(given.folder / "out"))
        .option("checkpointLocation", str(given.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
