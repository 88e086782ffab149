"""What sanitising adds to Spark and DuckDB, and what a worker of Spark holds.

Measured in processor seconds of all processes involved, Java's too. Spark runs on one core.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import hereish
from benchmarks.processes import largest_worker_mib, processor_s_in_turns
from benchmarks.results import Result
from hereish.traces.duckdb import sanitize_relation
from hereish.traces.files import sanitize_files
from hereish.traces.key_file import write_key_file

PRIVACY = hereish.Privacy(math.log(10), 100)
FIXED_UTILITY = hereish.fixed_utility(PRIVACY, 3000.0, window=hereish.Day("UTC"))
WHOLE_DAY = hereish.whole_day(PRIVACY, window=hereish.Day("UTC"))
COLUMNS: dict[str, Any] = {"user": "user", "time": "time", "lat": "lat", "lon": "lon"}
MIDNIGHT_US = 1_700_006_400_000_000
ROUNDS = 5
_REPORTS = 30
_PARTITIONS = 8
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "4g",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


def engines() -> list[Result]:
    """Spark against the identity over the same partitions and sort; DuckDB against files."""
    if shutil.which("java") is None:
        return not_measured("sanitising on Spark", "0.75")
    with _folder() as folder:
        return [_spark(folder, 10_000_000), *_duckdb(folder)]


def engine_memory() -> list[Result]:
    """The largest Python worker with many users, with more, and with one who has all points."""
    if shutil.which("java") is None:
        return not_measured("memory of a Python worker of Spark", "400 MiB")
    one = " of one user, a point per second,"
    return [
        _memory(10_000_000, "", write_points, FIXED_UTILITY),
        _memory(50_000_000, "", write_points, FIXED_UTILITY),
        _memory(10_000_000, f"{one} fixed utility per day", write_one_user, FIXED_UTILITY),
        _memory(
            *(10_000_000, f"{one} whole_day every half hour", write_one_user, WHOLE_DAY),
            every=timedelta(minutes=30),
        ),
    ]


def not_measured(what: str, wanted: str, why: str = "there is no Java") -> list[Result]:
    return [Result(what, f"not measured: {why}", wanted, met=False)]


@contextmanager
def _folder() -> Iterator[Path]:
    """With a key."""
    with tempfile.TemporaryDirectory() as name:
        write_key_file(Path(name) / "key")
        yield Path(name)


@contextmanager
def spark_session(
    folder: Path, cores: int = 1, settings: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """A session of its own, whose workers are gone afterwards."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder.master(f"local[{cores}]").appName("benchmarks")
    all_settings = {**_SETTINGS, "spark.local.dir": str(folder), **(settings or {})}
    for setting, value in all_settings.items():
        builder = builder.config(setting, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


def write_points(path: Path, points: int) -> None:
    """People who walk about for a day, in files of a million rows; by no order."""
    rng = np.random.default_rng(1)
    users = points // _REPORTS
    for number, first in enumerate(range(0, users, 33_000)):
        count = min(33_000, users - first)
        every_s = 86400 // _REPORTS  # nobody reports twice at one time
        at_s = every_s * np.arange(_REPORTS) + rng.integers(0, every_s, (count, _REPORTS))
        walk = rng.normal(0.0, 0.002, (count, _REPORTS, 2)).cumsum(axis=1).reshape(-1, 2)
        owner = np.repeat(np.arange(first, first + count), _REPORTS)
        write_table(path, number, owner, at_s.ravel() * 1_000_000, walk, rng)


def write_one_user(path: Path, points: int) -> None:
    """One who is asked every second for months, in files of a million rows."""
    rng = np.random.default_rng(2)
    for number, first in enumerate(range(0, points, 1_000_000)):
        at_s = np.arange(first, min(first + 1_000_000, points))
        walk = rng.normal(0.0, 1e-5, (len(at_s), 2)).cumsum(axis=0)
        write_table(path, number, np.zeros(len(at_s), dtype=np.int64), at_s * 1_000_000, walk, rng)


def write_table(
    path: Path, number: int, user: Any, at_us: Any, walk: Any, rng: np.random.Generator
) -> None:
    """A file of rows in no order; files are dated in the order of their numbers."""
    path.mkdir(exist_ok=True)
    time = pa.array(at_us + MIDNIGHT_US, pa.timestamp("us", tz="UTC"))
    places = {"lat": 60.0 + walk[:, 0], "lon": 25.0 + walk[:, 1]}
    table = pa.table({"user": user, "time": time, **places})
    file = path / f"{number:03}.parquet"
    pq.write_table(table.take(pa.array(rng.permutation(len(table)))), file)
    os.utime(file, (1_000_000 + number, 1_000_000 + number))


def _identity(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def identity_and_sanitize(
    session: Any,
    folder: Path,
    mechanism: hereish.PredictiveMechanism = FIXED_UTILITY,
    every: timedelta | None = None,
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Both over the same partitions and sort, from the points in a folder to nowhere."""
    import hereish.spark

    df = session.read.parquet(str(folder / "points"))
    placed = df.repartition(_PARTITIONS, "user").sortWithinPartitions("user", "time")
    ours = hereish.spark.sanitize(
        df, mechanism, **COLUMNS, key_file=folder / "key", partitions=_PARTITIONS, every=every
    )

    def run(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    return lambda: run(placed.mapInArrow(_identity, df.schema)), lambda: run(ours)


def _spark(folder: Path, points: int) -> Result:
    write_points(folder / "points", points)
    with spark_session(folder) as session:
        both = identity_and_sanitize(session, folder)
        identity_s, sanitize_s = processor_s_in_turns(ROUNDS, *both)
    ratio = identity_s / sanitize_s
    return Result(
        f"Spark, {points:,} points: the identity over the same partitions and sort / "
        "hereish.spark.sanitize, processor seconds",
        f"{ratio:.2f} ({sanitize_s * 1e6 / points:.2f} µs per point)",
        "at least 0.75",
        ratio >= 0.75,
    )


def _memory(
    points: int,
    whose: str,
    write: Callable[[Path, int], None],
    mechanism: hereish.PredictiveMechanism,
    every: timedelta | None = None,
) -> Result:
    """Of one run, in a session of its own: peaks of workers before it do not count."""
    with _folder() as folder:
        write(folder / "points", points)
        with spark_session(folder) as session, largest_worker_mib() as largest:
            _, ours = identity_and_sanitize(session, folder, mechanism, every)
            ours()
    return Result(
        f"memory of the largest Python worker of Spark, {points:,} points{whose}",
        f"{largest[0]:.0f} MiB",
        "at most 400 MiB",
        0.0 < largest[0] <= 400.0,
    )


def _duckdb(folder: Path) -> list[Result]:
    """In one process: sorted by DuckDB, and by `sanitize_files`."""
    import duckdb

    points = 1_000_000
    write_points(folder / "some", points)
    source = folder / "some"

    def by_files() -> None:
        sanitize_files([str(source)], str(folder / "files"), WHOLE_DAY, jobs=1)
        shutil.rmtree(folder / "files")

    def by_duckdb() -> None:
        con = duckdb.connect()
        con.execute("SET threads = 1")
        relation = con.read_parquet(str(source / "*.parquet"))
        out = sanitize_relation(relation, WHOLE_DAY, **COLUMNS, key_file=folder / "key")
        with pq.ParquetWriter(folder / "duckdb.parquet", out.schema) as writer:
            for batch in out:
                writer.write_batch(batch)

    files_s, duckdb_s = processor_s_in_turns(ROUNDS, by_files, by_duckdb)
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
