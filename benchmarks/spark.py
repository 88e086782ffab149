"""What sanitising adds to Spark and DuckDB, in processor seconds of all processes involved."""

from __future__ import annotations

import math
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import hereish
from benchmarks.results import Result
from hereish.traces.duckdb import sanitize_relation
from hereish.traces.files import sanitize_files
from hereish.traces.key_file import write_key_file

PRIVACY = hereish.Privacy(math.log(10), 100)
REPORTS = 30
ROUNDS = 5
MIDNIGHT_US = 1_700_006_400_000_000
_PARTITIONS = 8
_COLUMNS: dict[str, Any] = {"user": "user", "time": "time", "lat": "lat", "lon": "lon"}
_TICKS = os.sysconf("SC_CLK_TCK")


def engines() -> list[Result]:
    """Spark against the identity over the same partitions and sort; DuckDB against files."""
    if shutil.which("java") is None:
        return [Result("sanitising on Spark", "not measured: there is no Java", "0.75", False)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_key_file(folder / "key")
        return [*_spark(folder), *_duckdb(folder)]


def _points(path: Path, points: int) -> None:
    """People who walk about for a day, in files of a million rows; by no order."""
    path.mkdir()
    rng = np.random.default_rng(1)
    users = points // REPORTS
    for number, first in enumerate(range(0, users, 33_000)):
        count = min(33_000, users - first)
        every_s = 86400 // REPORTS  # nobody reports twice at one time
        at = every_s * np.arange(REPORTS) + rng.integers(0, every_s, (count, REPORTS))
        walk = rng.normal(0.0, 0.002, (count, REPORTS, 2)).cumsum(axis=1).reshape(-1, 2)
        table = pa.table(
            {
                "user": np.repeat(np.arange(first, first + count), REPORTS),
                "time": pa.array(
                    at.ravel() * 1_000_000 + MIDNIGHT_US, pa.timestamp("us", tz="UTC")
                ),
                "lat": 60.0 + walk[:, 0],
                "lon": 25.0 + walk[:, 1],
            }
        )
        rows = rng.permutation(len(table))
        pq.write_table(table.take(pa.array(rows)), path / f"{number:03}.parquet")


def _identity(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _spark(folder: Path) -> list[Result]:
    from pyspark.sql import SparkSession

    import hereish.spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    points = 10_000_000
    _points(folder / "points", points)
    builder: Any = SparkSession.builder.master("local[1]").appName("benchmarks")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.local.dir": str(folder),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
    }
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    df = session.read.parquet(str(folder / "points"))
    placed = df.repartition(_PARTITIONS, "user").sortWithinPartitions("user", "time")
    m = hereish.fixed_utility(PRIVACY, 3000.0, window=hereish.Day("UTC"))
    ours = hereish.spark.sanitize(
        df, m, **_COLUMNS, key_file=folder / "key", partitions=_PARTITIONS
    )
    nothing = placed.mapInArrow(_identity, df.schema)
    try:
        identity_s, sanitize_s = _in_turns(
            lambda: nothing.write.format("noop").mode("overwrite").save(),
            lambda: ours.write.format("noop").mode("overwrite").save(),
        )
        largest = _largest_worker_mib()
    finally:
        session.stop()
    ratio = identity_s / sanitize_s
    return [
        Result(
            f"Spark, {points:,} points: the identity over the same partitions and sort / "
            "hereish.spark.sanitize, processor seconds",
            f"{ratio:.2f} ({sanitize_s * 1e6 / points:.2f} µs per point)",
            "at least 0.75",
            ratio >= 0.75,
        ),
        Result(
            f"memory of the largest Python worker of Spark, {points:,} points",
            f"{largest:.0f} MiB",
            "at most 400 MiB",
            largest <= 400,
        ),
    ]


def _duckdb(folder: Path) -> list[Result]:
    """In one process: sorted by DuckDB, and by `sanitize_files`."""
    import duckdb

    points, m = 1_000_000, hereish.whole_day(PRIVACY, window=hereish.Day("UTC"))
    _points(folder / "some", points)
    source = folder / "some"

    def by_files() -> None:
        sanitize_files([str(source)], str(folder / "files"), m, jobs=1)
        shutil.rmtree(folder / "files")

    def by_duckdb() -> None:
        con = duckdb.connect()
        con.execute("SET threads = 1")
        relation = con.read_parquet(str(source / "*.parquet"))
        out = sanitize_relation(relation, m, **_COLUMNS, key_file=folder / "key")
        with pq.ParquetWriter(folder / "duckdb.parquet", out.schema) as writer:
            for batch in out:
                writer.write_batch(batch)

    files_s, duckdb_s = _in_turns(by_files, by_duckdb)
    ratio = files_s / duckdb_s
    return [
        Result(
            f"DuckDB, {points:,} points from Parquet to Parquet: hereish.traces.files / "
            "sanitize_relation, processor seconds",
            f"{ratio:.2f}",
            "at least 1",
            ratio >= 1.0,
        )
    ]


def _in_turns(*tasks: Callable[[], None]) -> list[float]:
    """The median of the processor seconds of each, with all child processes; a round to warm up."""
    for task in tasks:
        task()
    taken: list[list[float]] = [[] for _ in tasks]
    for _ in range(ROUNDS):
        for task, seconds in zip(tasks, taken, strict=True):
            before = _processor_s()
            task()
            seconds.append(_processor_s() - before)
    return [statistics.median(seconds) for seconds in taken]


def _processes() -> list[int]:
    """This process and all that it has started, and so on."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = [os.getpid()]
    for process in found:
        found += children.get(process, [])
    return found


def _processor_s() -> float:
    """Of all these processes, and of those that they have waited for."""
    total = 0
    for process in _processes():
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / _TICKS


def _largest_worker_mib() -> float:
    """The most memory that a Python worker of Spark has had at any time."""
    most = 0.0
    for process in _processes()[1:]:
        try:
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        if b"pyspark" in command and b"java" not in command.split(b"\0")[0]:
            peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
            most = max(most, int(peak.split()[1]) / 1024)
    return most
