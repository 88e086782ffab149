"""A small Spark for streams, points of a few people, and what was released of them."""

from __future__ import annotations

import base64
import math
import os
import struct
import sys
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hereish import Day, Every, Forever, Hours, Privacy, fixed_utility, whole_day
from hereish.traces.arrow import ArrowColumns, sanitize_batches
from hereish.traces.key_file import read_key_file
from tests.support.spark import need_spark

PRIVACY = Privacy(math.log(10.0), 100.0)
MECHANISMS = {
    "whole day": whole_day(PRIVACY, window=Day("Europe/Helsinki")),
    "fixed utility": fixed_utility(PRIVACY, 3000.0, window=Every(timedelta(hours=9))),
    "nested": fixed_utility(
        PRIVACY,
        3000.0,
        window=Every(timedelta(hours=9))
        & Hours(30).within(1.2 * PRIVACY.level)
        & Forever.within(2.5 * PRIVACY.level),
    ),
}
COLUMNS: dict[str, Any] = {"user": "user", "time": "time", "lat": "lat", "lon": "lon"}
SCHEMA = "user STRING, time TIMESTAMP, lat DOUBLE, lon DOUBLE, note INT"
BUCKETS = 4
START_US = 1_700_000_000_000_000
_TOWN = 60.17, 24.94


def need_streams() -> None:
    """Skip the module where streams of Spark cannot run."""
    need_spark()
    for needed in ("pandas", "google.protobuf.descriptor"):
        pytest.importorskip(needed, reason=f"streams of Spark need {needed}")


def stream_session(cores: int) -> Any:
    """A local Spark that is as small as can be, with RocksDB for state."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", category=FutureWarning)  # pandas 3 is new to PySpark
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "700m",
        # Tests start Spark often and use it briefly: thorough compilers do not pay off.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "America/St_Johns",  # its clock changes: times must not
        # So that a search of the checkpoint finds what is there.
        "spark.sql.streaming.stateStore.rocksdb.compression": "none",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("hereish streams")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def people_points(users: int = 12, each: int = 60, days: float = 2.0, seed: int = 1) -> pa.Table:
    """Points of some people about their homes, some at the same time; sorted by time."""
    rng = np.random.default_rng(seed)
    count = users * each
    times_s = np.sort(rng.integers(0, int(days * 86400), count)) // 600 * 600
    owner = rng.integers(0, users, count)
    homes = _TOWN + rng.normal(0.0, 0.03, (users, 2))
    places = homes[owner] + rng.normal(0.0, 4e-3, (count, 2))
    return points_table(
        [f"person{number}" for number in owner],
        START_US + times_s * 1_000_000,
        places[:, 0],
        places[:, 1],
        rng.integers(0, 3, count),
    )


def points_table(
    users: Sequence[str | None], times_us: Any, lat: Any, lon: Any, note: Any = None
) -> pa.Table:
    notes = np.zeros(len(users)) if note is None else note
    return pa.table(
        {
            "user": pa.array(users, pa.string()),
            "time": pa.array(times_us, pa.timestamp("us", "UTC")),
            "lat": pa.array(lat, pa.float64()),
            "lon": pa.array(lon, pa.float64()),
            "note": pa.array(notes, pa.int32()),
        }
    )


def cut_by_time(table: pa.Table, pieces: int) -> list[pa.Table]:
    """Pieces of a table, the later ones of later times."""
    times = table["time"].cast(pa.int64()).to_numpy()
    bounds = np.quantile(times, np.linspace(0.0, 1.0, pieces + 1))[1:-1]
    piece = np.searchsorted(bounds, times, side="right")
    return [table.filter(pa.array(piece == i)) for i in range(pieces)]


def write_pieces(pieces: Sequence[pa.Table], folder: Path, first: int = 0) -> None:
    """A file for each, which Spark takes in this order."""
    folder.mkdir(exist_ok=True)
    for number, piece in enumerate(pieces, start=first):
        path = folder / f"{number:04}.parquet"
        pq.write_table(piece, path)
        os.utime(path, (1_000_000 + number, 1_000_000 + number))


def released_rows(files: Iterable[Path]) -> list[tuple[Any, ...]]:
    """User, time and all else of each row in these files, sorted."""
    return table_rows([pq.read_table(path) for path in files])


def table_rows(tables: Iterable[pa.Table]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for table in tables:
        columns = [
            column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            if pa.types.is_timestamp(column.type)
            else column
            for column in table.columns
        ]
        rows += zip(*(column.to_pylist() for column in columns), strict=True)
    return sorted(rows, key=repr)


def expected_rows(
    table: pa.Table, mechanism: str, key_file: Path, **settings: Any
) -> list[tuple[Any, ...]]:
    """What one call releases of all points at once, as `released_rows` has it."""
    public = {name: settings.pop(name) for name in ("order", "keep") if name in settings}
    columns = ArrowColumns(**COLUMNS, **public)
    ordered = table.sort_by([("user", "ascending"), ("time", "ascending")])
    draws = read_key_file(key_file)
    released = sanitize_batches(
        ordered.to_batches(), MECHANISMS[mechanism], draws, columns, **settings
    )
    return table_rows([pa.Table.from_batches(list(released))])


def secrets_in(folder: Path, points: pa.Table, key_file: Path) -> list[str]:
    """What of the key and of true places is in the files of a folder, and of their archives."""
    content = b"\n".join(contents(folder))
    key = key_file.read_bytes().strip()
    searched = {"the key as text": key, "the key": base64.b64decode(key)}
    for name in ("lat", "lon"):
        for row, value in enumerate(points[name].to_pylist()):
            searched[f"{name} of row {row} as text"] = f"{value:.9g}".encode()[:-1]
            searched[f"{name} of row {row}"] = struct.pack("<d", value)
            searched[f"{name} of row {row}, big end first"] = struct.pack(">d", value)
    return [name for name, secret in searched.items() if secret in content]


def contents(folder: Path) -> Iterator[bytes]:
    for path in folder.rglob("*"):
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                yield from map(archive.read, archive.namelist())
        elif path.is_file():
            yield path.read_bytes()
