"""Runs jobs on true places and keeps all that Spark wrote and said: `spark_leaks.py FOLDER CASE`.

The folder has the inputs and the key; what is to be searched goes into its folder CASE. A process
of its own, so that all logs of the driver are in one file: the output of this program.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import sys
import traceback
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from hereish.spark import batch, files
from hereish.traces import key_file
from hereish.traces.columns import Columns
from tests.support.spark import spark_session
from tests.support.spark_attempts import WHOLE_DAY
from tests.support.spark_replays import shadow_home

NAMES = {"user": "user", "time": "time", "lat": "lat", "lon": "lon"}
_TASK = batch._Task
PAGES = (
    "/api/v1/applications",
    *(
        f"/api/v1/applications/{{id}}/{page}"
        for page in (
            "environment",
            "jobs",
            "stages?details=true&withSummaries=true",
            "sql?details=true&planDescription=true",
            "allexecutors",
            "storage/rdd",
        )
    ),
    *(f"/{page}/" for page in ("environment", "jobs", "stages", "SQL", "executors")),
)


@dataclasses.dataclass(frozen=True)
class Copying:
    """A task that copies Spark's folder while its rows are there: spills go when a task ends."""

    task: Any
    local: str
    to: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.task(self._copying(batches))

    def _copying(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for i, given in enumerate(batches):
            if i == 0:
                copy(Path(self.local), Path(self.to))
            yield given


def copy(source: Path, to: Path) -> None:
    """All files, of which some may go while they are copied."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            made = to / path.relative_to(source)
            made.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(path, made)


def settings(found: Path, key: str, case: str) -> dict[str, str]:
    """The same for both cases but for what the control is for."""
    common = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (found / "events").as_uri(),
        "spark.eventLog.logStageExecutorMetrics": "true",
        "spark.executor.memory": "512m",
        "spark.log.level": "INFO",
        # So that bytes stand as they are, if they are not encrypted.
        "spark.shuffle.compress": "false",
        "spark.shuffle.spill.compress": "false",
        "spark.shuffle.spill.numElementsForceSpillThreshold": "1000",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    }
    if case == "control":
        return common | {"spark.executorEnv.HEREISH_KEY": key}
    return common | {"spark.io.encryption.enabled": "true"}


def fetch(spark: Any, to: Path) -> None:
    """What the web pages and the REST interface say."""
    to.mkdir()
    context = spark.sparkContext
    for i, page in enumerate(PAGES):
        url = context.uiWebUrl + page.format(id=context.applicationId)
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310  # our own
            (to / f"{i}").write_bytes(answer.read())


def count_displacements(folder: Path, case: str) -> None:
    """A job with a summary. What the driver was sent of displacements is kept: a file for each."""
    received = folder / f"{case}-received"
    received.mkdir()
    unseal = key_file.unseal

    def kept(path: str | Path, sealed: bytes) -> bytes | None:
        (received / f"{len(list(received.iterdir()))}").write_bytes(sealed)
        return unseal(path, sealed)

    files.unseal = kept  # type: ignore[attr-defined]  # imported there
    summary = files.sanitize_files(
        [str(folder / "good.parquet")],
        str(folder / f"{case}-counted.parquet"),
        WHOLE_DAY,
        columns=Columns(),
        key_file=str(folder / "key"),
    )
    (folder / f"{case}-summary.json").write_text(json.dumps(summary.as_dict()))


def main(folder: Path, case: str) -> None:
    home, found, local = folder / f"{case}-home", folder / case, folder / f"{case}-local"
    for path in (home, found, found / "events", local):
        path.mkdir()
    os.environ["SPARK_HOME"] = str(shadow_home(home))
    key = (folder / "key").read_text()
    private: Any = {**NAMES, "key_file": folder / "key", "partitions": 1, "keep": ["note"]}
    more = settings(found, key, case)
    with spark_session(local, "local-cluster[1,1,1024]", **more) as spark:
        spark.sparkContext.setLogLevel("INFO")
        batch._Task = lambda *given: Copying(_TASK(*given), str(local), str(found / "spilt"))  # type: ignore[assignment,misc]
        # From files: Spark writes the rows of a local relation into the plan, and so everywhere.
        good = spark.read.parquet(str(folder / "good.parquet"))
        batch.sanitize(good, WHOLE_DAY, **private).write.parquet(str(folder / f"{case}-out"))
        count_displacements(folder, case)
        spark.sparkContext.setLogLevel("INFO")  # which the command has lowered
        for name in ("bad", "garbled") if case == "real" else ():
            given = spark.read.parquet(str(folder / f"{name}.parquet"))
            try:
                batch.sanitize(given, WHOLE_DAY, **private).collect()
            except Exception as failure:  # noqa: BLE001  # whatever it is, it is searched
                said = [*traceback.format_exception(failure), *map(str, vars(failure).values())]
                (found / f"{name}-failure").write_text("\n".join(said))
        copy(local, found / "left")
        fetch(spark, found / "web")
    # The logs of the executors.
    copy(home / "spark-home" / "work", found / "executors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
