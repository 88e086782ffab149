"""Keeps what every attempt of a task released, also of attempts whose output Spark threw away.

Such rows were out of the task already: somebody who watches the network or a disk has seen them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

import hereish

PRIVACY = hereish.Privacy(math.log(10), 100)
WHOLE_DAY = hereish.whole_day(PRIVACY, window=hereish.Day("Europe/Helsinki"))
PATIENCE_S = 60.0
# So that a task hands over several batches, and can be lost between two of them.
ROWS_AT_A_TIME = 50


class Attempt(NamedTuple):
    """Of a task: which part of the rows it was for, and which attempt of all in the application."""

    partition: int
    number: int


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A task of `hereish.spark` that writes what it releases into a folder as well."""

    task: Any
    folder: str
    trouble: str  # "kill", "wait" or "none"
    fresh_key: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from hereish.traces import arrow

        arrow.CHUNK_ROWS = ROWS_AT_A_TIME
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("this is for executors only")
        attempt = Attempt(context.partitionId(), context.taskAttemptId())
        for i, batch in enumerate(self._task(attempt)(batches)):
            self._record(attempt, i, batch)
            yield batch
            if i == 1 and self.trouble == "kill" and self._is_first("killed"):
                _kill_executor()
            if i == 1 and self.trouble == "wait" and self._is_first("waited"):
                self._wait_for_another(attempt)

    def _task(self, attempt: Attempt) -> Any:
        if not self.fresh_key:
            return self.task
        from hereish.traces.key_file import write_key_file

        path = Path(self.folder, f"key-{attempt.number}")
        write_key_file(path)
        return dataclasses.replace(self.task, key_file=str(path))

    def _record(self, attempt: Attempt, i: int, batch: pa.RecordBatch) -> None:
        path = Path(self.folder, f"{attempt.partition}-{attempt.number}-{i}.parquet")
        unfinished = path.with_suffix(".unfinished")
        pq.write_table(pa.Table.from_batches([batch]), unfinished)
        unfinished.rename(path)

    def _is_first(self, what: str) -> bool:
        """True for one attempt of the whole job."""
        with contextlib.suppress(FileExistsError):
            Path(self.folder, what).touch(exist_ok=False)
            return True
        return False

    def _wait_for_another(self, attempt: Attempt) -> None:
        """Until a second attempt for the same partition is as far as this one."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            for path in Path(self.folder).glob(f"{attempt.partition}-*-1.parquet"):
                if path.name != f"{attempt.partition}-{attempt.number}-1.parquet":
                    return
            time.sleep(0.05)
        # An error would bring a second attempt about, though not the one that is waited for.
        Path(self.folder, "waited in vain").touch()


def _kill_executor() -> None:
    """SIGKILL to the Java process that this Python works for, and to this one."""
    daemon = os.getppid()
    status = Path(f"/proc/{daemon}/status").read_text()
    executor = next(int(line.split()[1]) for line in status.splitlines() if "PPid:" in line)
    if "CoarseGrainedExecutorBackend" not in Path(f"/proc/{executor}/cmdline").read_text():
        raise RuntimeError("this does not run on an executor of its own")
    for process in (executor, daemon, os.getpid()):
        os.kill(process, signal.SIGKILL)


def recorded(folder: Path) -> dict[Attempt, pa.Table]:
    """What each attempt released, as far as it came."""
    parts: dict[Attempt, list[pa.Table]] = {}
    for path in sorted(folder.glob("*.parquet")):
        partition, number, _ = map(int, path.stem.split("-"))
        parts.setdefault(Attempt(partition, number), []).append(pq.read_table(path))
    return {attempt: pa.concat_tables(tables) for attempt, tables in parts.items()}
