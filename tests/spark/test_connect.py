"""Spark Connect, which has no RDDs and whose client has no Java: the bits of one process."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hereish.traces.arrow import sanitize_batches
from hereish.traces.arrow_rows import ArrowColumns
from hereish.traces.faults import FAULT_REASONS, Fault
from hereish.traces.key_file import read_key_file
from tests.support.spark import need_spark
from tests.support.spark_attempts import WHOLE_DAY
from tests.support.spark_programs import finish, start
from tests.traces.test_arrow import people

need_spark()
pytest.importorskip("grpc", reason="needs pyspark[connect]")
pytest.importorskip("grpc_status", reason="needs pyspark[connect]")
COLUMNS = ArrowColumns("user", "time", "lat", "lon")
KEY = b"a key of connect, of 32 bytes..."
USERS, REPORTS = 6, 40


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """In an order that does not depend on partitions; times as numbers."""
    at = table.schema.get_field_index("time")
    whole = table.set_column(at, "time", table["time"].cast(pa.timestamp("us")).cast(pa.int64()))
    return sorted(zip(*(column.to_pylist() for column in whole.columns), strict=True))


def by_one_process(table: pa.Table, folder: Path) -> list[tuple[Any, ...]]:
    draws = read_key_file(folder / "key")
    out = sanitize_batches(table.to_batches(), WHOLE_DAY, draws, COLUMNS)
    return rows_of(pa.Table.from_batches(out))


def numbered() -> pa.Table:
    """The same people, with numbers for names."""
    return people(USERS, REPORTS).set_column(0, "user", pa.array(_numbers("{}")))


def _numbers(*spellings: str) -> list[str]:
    rows = range(USERS * REPORTS)
    return [spellings[i % len(spellings)].format(1 + i // REPORTS) for i in rows]


def _shuffled(table: pa.Table) -> pa.Table:
    return table.take(pa.array(np.random.default_rng(1).permutation(len(table))))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the program made of three files."""
    made = tmp_path_factory.mktemp("connect")
    (made / "key").write_bytes(base64.b64encode(KEY))
    (made / "key").chmod(0o600)
    table = people(USERS, REPORTS)
    pq.write_table(_shuffled(table), made / "in.parquet")
    spelt = table.set_column(0, "user", pa.array(_numbers("{}", "{}.0", " {}", "+{}")))
    pq.write_table(_shuffled(spelt), made / "spelt.parquet")
    bad = table.slice(0, 3).set_column(2, "lat", pa.array([95.0, None, -91.0]))
    pq.write_table(_shuffled(pa.concat_tables([bad, table])), made / "faulty.parquet")
    finish(start("spark_connected", made / "log", str(made)), made / "log")
    return made


def test_the_bits_are_those_of_one_process(folder: Path) -> None:
    report = json.loads((folder / "report.json").read_text())
    assert report["session"] == "pyspark.sql.connect.session", "it is not over Connect"
    released = pq.read_table(folder / "out.parquet")
    assert rows_of(released) == by_one_process(people(USERS, REPORTS), folder)


def test_users_get_one_spelling(folder: Path) -> None:
    released = pq.read_table(folder / "mended.parquet")
    assert rows_of(released) == by_one_process(numbered(), folder)


def test_bad_points_are_counted_and_left_out(folder: Path) -> None:
    report = json.loads((folder / "report.json").read_text())
    reasons = {FAULT_REASONS[Fault.SWAPPED]: 2, FAULT_REASONS[Fault.LAT]: 1}
    assert report["bad"] == reasons
    released = pq.read_table(folder / "kept.parquet")
    assert rows_of(released) == by_one_process(people(USERS, REPORTS), folder)
