"""DuckDB relations: the bits of one process, whatever the order of the rows."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hereish
from hereish.errors import ParameterError, PointError
from hereish.traces.arrow import ArrowCounts, sanitize_batches
from hereish.traces.arrow_rows import ArrowColumns
from hereish.traces.key_file import read_key_file, write_key_file
from tests.traces.test_arrow import people

duckdb = pytest.importorskip("duckdb", reason="needs duckdb: pip install 'hereish[duckdb]'")
from hereish.traces.duckdb import sanitize_relation  # noqa: E402  # it needs Arrow

PRIVACY = hereish.Privacy(math.log(10), 100)
WHOLE_DAY = hereish.whole_day(PRIVACY, window=hereish.Day("Europe/Helsinki"))
NAMES: dict[str, Any] = {"user": "user", "time": "time", "lat": "lat", "lon": "lon"}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    write_key_file(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def con() -> Any:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    return con


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    return table.take(pa.array(np.random.default_rng(seed).permutation(len(table))))


def test_the_bits_are_those_of_one_process(con: Any, key_file: Path) -> None:
    table, columns = people(), ArrowColumns(**NAMES)
    batches = sanitize_batches(table.to_batches(), WHOLE_DAY, read_key_file(key_file), columns)
    expected = pa.Table.from_batches(list(batches))
    for seed in (1, 2):
        mixed = shuffled(table, seed)  # DuckDB finds it by its name
        assert len(mixed) == len(table)
        relation = con.sql("SELECT * FROM mixed")
        out = sanitize_relation(relation, WHOLE_DAY, **NAMES, key_file=key_file).read_all()
        assert out.cast(expected.schema).equals(expected)


def test_what_comes_out_can_be_queried_again(con: Any, key_file: Path) -> None:
    table = shuffled(people(5, 100, 60), 1)
    table = table.append_column('a "note"', pa.array(range(len(table))))
    relation = con.from_arrow(table)
    released = sanitize_relation(
        relation,
        WHOLE_DAY,
        **NAMES,
        key_file=key_file,
        keep=['a "note"'],
        every=timedelta(minutes=30),
    )
    assert released.schema.names[-1] == 'a "note"'
    [(users, most)] = (
        con.cursor()
        .sql(
            "SELECT count(DISTINCT user), max(total) FROM "
            "(SELECT user, sum(cost) AS total FROM released GROUP BY user, "
            "(time AT TIME ZONE 'Europe/Helsinki')::DATE)"
        )
        .fetchall()
    )
    assert users == 5
    assert 0.0 < most <= PRIVACY.eps_per_m


def test_bad_points_are_refused_without_digits_or_counted(con: Any, key_file: Path) -> None:
    relation = con.sql(
        "SELECT * FROM (VALUES ('a', '2026-01-01 00:00+00'::TIMESTAMPTZ, '60.1', '25.1'), "
        "('a', '2026-01-01 01:00+00'::TIMESTAMPTZ, '1x.2345', '25.1'), "
        "('b', '2026-01-01 01:00+00'::TIMESTAMPTZ, '97.4321', '25.1')) t(user, time, lat, lon)"
    )
    with pytest.raises(PointError, match="cannot be used") as refused:
        sanitize_relation(relation, WHOLE_DAY, **NAMES, key_file=key_file).read_all()
    assert not any(digits in str(refused.value) for digits in ("2345", "4321", "60.1"))
    counts = ArrowCounts()
    out = sanitize_relation(
        relation, WHOLE_DAY, **NAMES, key_file=key_file, drop_bad=True, counts=counts
    ).read_all()
    assert len(out) == 1
    assert sum(counts.bad.values()) == 2
    with pytest.raises(ParameterError, match="no column 'who'"):
        sanitize_relation(relation, WHOLE_DAY, **(NAMES | {"user": "who"}), key_file=key_file)
