"""Spark data frames: the bits of one process, in any number of partitions, and what is refused."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hereish
from hereish.errors import ParameterError, PointError
from hereish.gateway.admin.accounts import NewUsers
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.policy import Policy
from hereish.gateway.paths import resolve_paths
from hereish.traces.arrow import ArrowColumns, sanitize_batches
from hereish.traces.budgets import EachTrace
from hereish.traces.key_file import read_key_file, write_key_file
from tests.support.paths import ROOT
from tests.support.spark import QUIETLY, need_spark, spark_session
from tests.traces.test_arrow import people

need_spark()
pytestmark = QUIETLY
PRIVACY = hereish.Privacy(math.log(10), 100)
WHOLE_DAY = hereish.whole_day(PRIVACY, window=hereish.Day("Europe/Helsinki"))
NAMES: dict[str, Any] = {"user": "user", "time": "time", "lat": "lat", "lon": "lon"}
COLUMNS = ArrowColumns(**NAMES)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    write_key_file(path)
    return path


@pytest.fixture(scope="module")
def shuffled(spark: Any) -> Any:
    """People's rows in no order, of which some come at the same time."""
    table = people()
    rows = np.random.default_rng(1).permutation(len(table))
    return spark.createDataFrame(table.take(pa.array(rows))).repartition(5)


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """In an order that does not depend on partitions; times as numbers."""
    at = table.schema.get_field_index("time")
    whole = table.set_column(at, "time", table["time"].cast(pa.timestamp("us")).cast(pa.int64()))
    return sorted(zip(*(column.to_pylist() for column in whole.columns), strict=True))


def by_one_process(m: Any, key_file: Path, table: pa.Table | None = None) -> list[Any]:
    table = people() if table is None else table
    out = sanitize_batches(table.to_batches(), m, read_key_file(key_file), COLUMNS)
    return rows_of(pa.Table.from_batches(list(out), schema=COLUMNS.schema(table.schema)))


@pytest.fixture(scope="module")
def expected(key_file: Path) -> list[Any]:
    return by_one_process(WHOLE_DAY, key_file)


@pytest.mark.parametrize(
    ("partitions", "batch_rows"), [(1, 10_000), (3, 10_000), (7, 100), (16, 10_000)]
)
def test_the_bits_are_those_of_one_process(
    spark: Any,
    shuffled: Any,
    key_file: Path,
    expected: list[Any],
    partitions: int,
    batch_rows: int,
) -> None:
    from hereish.spark import sanitize

    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", batch_rows)
    out = sanitize(shuffled, WHOLE_DAY, **NAMES, key_file=key_file, partitions=partitions)
    assert rows_of(out.toArrow()) == expected


def test_several_budgets_have_the_bits_of_one_process(shuffled: Any, key_file: Path) -> None:
    from hereish.spark import sanitize

    window = hereish.Day("Europe/Helsinki") & hereish.Hours(30).within(0.8 * PRIVACY.level)
    m = hereish.whole_day(PRIVACY, window=window)
    out = sanitize(shuffled, m, **NAMES, key_file=key_file, partitions=3)
    assert rows_of(out.toArrow()) == by_one_process(m, key_file)


def test_a_second_action_and_what_follows_see_the_same_release(
    shuffled: Any, key_file: Path, expected: list[Any]
) -> None:
    from hereish.spark import sanitize

    out = sanitize(shuffled, WHOLE_DAY, **NAMES, key_file=key_file, partitions=4)
    assert rows_of(out.toArrow()) == rows_of(out.toArrow()) == expected
    assert rows_of(out.coalesce(1).toArrow()) == expected
    assert rows_of(out.union(out).toArrow()) == sorted(2 * expected)


def test_fresh_noise_would_be_a_second_release(shuffled: Any, monkeypatch: Any) -> None:
    """The control: what the test above would see if draws did not come from a key."""
    from hereish.spark import batch

    def fresh(batches: Any) -> Any:
        import os

        draws = hereish.KeyedDraws(os.urandom(32))  # another key in each task
        return sanitize_batches(batches, WHOLE_DAY, draws, COLUMNS)

    placed = shuffled.select(*COLUMNS.read).repartition(4, "user")
    placed = placed.sortWithinPartitions("user", "time")
    schema = batch.released_schema(shuffled.schema, COLUMNS)
    out = placed.mapInArrow(fresh, schema)
    assert rows_of(out.toArrow()) != rows_of(out.toArrow())


def test_a_user_in_several_partitions_fails_the_job(spark: Any, key_file: Path) -> None:
    """REBALANCE may split a large partition: each part would have a budget of its own."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    from hereish.spark import batch

    spark.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", "20kb")
    try:
        many = spark.range(0, 60_000, 1, 4).selectExpr(
            "'one' AS user", "timestamp_seconds(1700000000 + id) AS time", "60.0D AS lat",
            "25.0D + rand(1) AS lon",
        )  # fmt: skip
        split = many.hint("rebalance", "user").sortWithinPartitions("user", "time")
        guarded = batch._guarded(split, 4)
        task = batch._Task(WHOLE_DAY, COLUMNS, str(key_file), None)
        out = guarded.mapInArrow(task, batch.released_schema(many.schema, COLUMNS))
        parts = split.select(f.spark_partition_id().alias("part")).distinct().count()
        assert parts > 1, "the control: the rows are really split"
        with pytest.raises(PySparkException, match="in several partitions"):
            out.count()
    finally:
        spark.conf.unset("spark.sql.adaptive.advisoryPartitionSizeInBytes")


def test_bad_points_fail_the_job_without_digits_or_are_left_out(spark: Any, key_file: Path) -> None:
    from pyspark.errors import PySparkException

    from hereish.spark import count_bad, sanitize

    rows = [
        ("a", 0, "60.1", "25.1"),
        ("a", 60, "91.2345", "25.2"),
        (None, 120, "60.3", "25.3"),
        ("b", 180, "x60.4567", "25.4"),
        ("b", 240, "60.5", "NaN"),
        ("b", 300, "60.6", "25.6"),
    ]
    texts = spark.createDataFrame(rows, "user string, at long, lat string, lon string")
    df = texts.selectExpr("user", "timestamp_seconds(at + 1700000000) AS time", "lat", "lon")
    with pytest.raises(PySparkException, match="a point cannot be used") as failed:
        sanitize(df, WHOLE_DAY, **NAMES, key_file=key_file, partitions=2).collect()
    assert not any(digits in str(failed.value) for digits in ("91.2", "60.4567", "25.2"))
    out = sanitize(df, WHOLE_DAY, **NAMES, key_file=key_file, partitions=2, drop_bad=True)
    assert [row.user for row in out.orderBy("user").collect()] == ["a", "b"]
    bad = count_bad(df, **NAMES)
    assert sum(bad.values()) == 4
    assert "it has no user" in bad


def test_users_have_one_spelling(spark: Any, key_file: Path) -> None:
    from pyspark.errors import PySparkException

    from hereish.spark import canonical_users, sanitize

    table = people(1, 40)
    names = pa.array(["7", "7.0", " 7", "+7"] * 10)
    df = spark.createDataFrame(table.set_column(0, "user", names))
    with pytest.raises(PySparkException, match="two budgets"):
        sanitize(df, WHOLE_DAY, **NAMES, key_file=key_file, partitions=2).collect()
    mended = canonical_users(df, "user")
    out = sanitize(mended, hereish.fixed_rate(PRIVACY, 5), **NAMES, key_file=key_file)
    released = out.collect()
    assert {row.user for row in released} == {"7"}
    assert sum(row.cost for row in released) <= PRIVACY.eps_per_m


def test_columns_are_kept_thinned_and_have_budgets_per_trace(
    spark: Any, shuffled: Any, key_file: Path
) -> None:
    from pyspark.sql import functions as f

    from hereish.spark import sanitize

    df = shuffled.withColumn("a trip`", f.pmod(f.dayofyear("time"), f.lit(2)))
    df = df.withColumn("note", f.lit("x")).withColumn("secret", f.lit(1))
    m = hereish.fixed_rate(PRIVACY, 4, window=EachTrace())
    out = sanitize(df, m, **NAMES, trace="a trip`", keep=["note"], key_file=key_file, partitions=3)
    assert out.columns == ["user", "time", "a trip`", "lat", "lon", "kind", "cost", "note"]
    frame = out.toArrow().to_pandas()
    spent = frame.groupby(["user", "a trip`"])["cost"].sum()
    assert len(spent) == 80
    assert (spent <= PRIVACY.eps_per_m).all()
    every = timedelta(minutes=30)
    thinned = sanitize(df, WHOLE_DAY, **NAMES, key_file=key_file, partitions=3, every=every)
    gaps = (
        thinned.toArrow().to_pandas().sort_values(["user", "time"]).groupby("user")["time"].diff()
    )
    assert gaps.dropna().min() >= every


def test_what_cannot_work_is_refused_before_anything_runs(
    spark: Any, shuffled: Any, key_file: Path
) -> None:
    from hereish.spark import sanitize

    for changed, words in (
        ({"key_file": None}, "second release"),
        ({"partitions": 0}, "partitions"),
        ({"user": "who"}, "no column 'who'"),
        ({"time": "lat", "lat": "time"}, "timestamps with a time zone"),
        ({"user": "time", "time": "user"}, "timestamps with a time zone"),
        ({"user": "time"}, "must differ"),
        ({"keep": ["kind"]}, "taken"),
    ):
        with pytest.raises(ParameterError, match=words):
            sanitize(shuffled, WHOLE_DAY, **(NAMES | {"key_file": key_file} | changed))
    naive = shuffled.selectExpr("user", "cast(time as timestamp_ntz) as time", "lat", "lon")
    with pytest.raises(ParameterError, match="timestamps with a time zone"):
        sanitize(naive, WHOLE_DAY, **NAMES, key_file=key_file)


def test_keys_are_read_from_safe_files(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_key_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ParameterError, match="there already"):
        write_key_file(path)
    path.chmod(0o644)
    with pytest.raises(ParameterError, match="chmod 600"):
        read_key_file(path)
    path.chmod(0o600)
    path.write_text("short")
    with pytest.raises(ParameterError, match="base64") as refused:
        read_key_file(path)
    assert "short" not in str(refused.value).replace(str(path), "")
    with pytest.raises(ParameterError, match="every machine"):
        read_key_file(tmp_path / "missing")


def test_sql_has_a_table_function(
    spark: Any, shuffled: Any, key_file: Path, expected: list[Any]
) -> None:
    from pyspark.errors import PySparkException

    from hereish.spark import register

    def query(rows: str, how: str) -> Any:
        return spark.sql(f"SELECT * FROM hereish_sanitize(TABLE({rows}) {how})")  # noqa: S608  # ours

    with pytest.raises(ParameterError, match="second release"):
        register(spark, WHOLE_DAY, key_file=None)  # type: ignore[arg-type]
    register(spark, WHOLE_DAY, key_file=key_file)
    shuffled.createOrReplaceTempView("points")
    counted = "SELECT *, count(*) OVER (PARTITION BY user) AS rows_of_user FROM points"
    whole = "PARTITION BY pmod(hash(user), 5) ORDER BY (user, time)"
    assert rows_of(query(counted, whole).toArrow()) == expected
    # Each part would have a budget of its own.
    parts = "PARTITION BY pmod(hash(user, time), 5) ORDER BY (user, time)"
    with pytest.raises(PySparkException, match="in several partitions"):
        query(counted, parts).collect()
    with pytest.raises(PySparkException, match="rows_of_user"):
        query("points", whole).collect()
    with pytest.raises(PySparkException, match="sorted"):
        query(counted, "PARTITION BY pmod(hash(user), 5) ORDER BY (user, time DESC)").collect()


@pytest.mark.parametrize(
    ("users", "counts", "said"),
    [
        (["a", "a", "b"], [3, 3, 1], "in several partitions"),
        (["a", None], [1, 1], "no user"),
        (["a", "a"], [2, None], "whole numbers"),
        (["a", "a"], [2.0, 2.0], "whole numbers"),
    ],
)
def test_sql_says_what_is_wrong_with_its_rows(users: Any, counts: Any, said: str) -> None:
    from hereish.spark.sql import _CountedUsers

    counted = _CountedUsers("user")
    counted.add(pa.record_batch({"user": pa.array([], pa.string()), "rows_of_user": []}))
    with pytest.raises(PointError, match=said):
        counted.add(pa.record_batch({"user": users, "rows_of_user": counts}))


def test_rows_that_a_join_has_put_together_by_user_stay_whole(
    spark: Any, shuffled: Any, key_file: Path
) -> None:
    """Spark would leave out a shuffle that seems to be there already, and then take it apart."""
    from hereish.spark import sanitize

    users = shuffled.select("user").distinct()
    joined = shuffled.hint("merge").join(users, "user")
    count = int(spark.conf.get("spark.sql.shuffle.partitions"))
    out = sanitize(joined, WHOLE_DAY, **NAMES, key_file=key_file, partitions=count)
    plain = sanitize(shuffled, WHOLE_DAY, **NAMES, key_file=key_file, partitions=3)
    assert rows_of(out.toArrow()) == rows_of(plain.toArrow())


def test_the_page_runs_as_it_is_written(
    spark: Any, shuffled: Any, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "spark.md").read_text("utf-8")
    blocks = re.findall(r"^```py\n(.*?)^```$", page, re.M | re.S)
    assert len(blocks) == 3
    monkeypatch.setenv("HEREISH_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("HEREISH_MARK", str(tmp_path / "mark"))
    database = str(tmp_path / "ledger.db")
    with contextlib.closing(Ledger.open(resolve_paths(database))) as ledger:
        helsinki = Policy(level=math.log(10), radius_m=100, time_zone="Europe/Helsinki")
        NewUsers(ledger, helsinki)([f"user {number:03}" for number in range(40)])
    given: dict[str, Any] = {"df": shuffled, "spark": spark, "key_file": key_file}
    given |= {"database": database, "staging": str(tmp_path / "staging")}
    for number, block in enumerate(blocks):
        given["out"] = str(tmp_path / f"out {number}")
        exec(block, given)  # noqa: S102  # our own page
    given["ledger"].close()
    rows = [rows_of(spark.read.parquet(str(tmp_path / f"out {i}")).toArrow()) for i in (0, 2)]
    assert rows == [rows_of(given["again"].toArrow())] * 2, "the same, with whole budgets granted"


def test_an_output_appears_when_it_is_paid_for_and_is_removed_otherwise(
    spark: Any, tmp_path: Path
) -> None:
    from hereish.spark.staging import StagedOutput

    out, rows = tmp_path / "out", spark.range(3)
    with StagedOutput(spark, str(out)) as staged:
        grants = pa.table({"user": ["ada"], "window": [1], "eps": [0.5]})
        assert staged.keep_grants([grants, grants]).count() == 2
        rows.write.parquet(staged.rows)
    assert list(tmp_path.iterdir()) == [], "it was not published"
    with StagedOutput(spark, f"{out}/") as staged:
        rows.write.parquet(staged.rows)
        assert not out.exists()
        staged.publish()
        with pytest.raises(PointError, match="paid for"):
            staged.publish()
    assert spark.read.parquet(str(out)).count() == 3
    assert list(tmp_path.iterdir()) == [out]
    with pytest.raises(PointError, match="there already"):
        StagedOutput(spark, str(out))


def test_a_frame_that_is_no_stream_is_told_so(shuffled: Any, key_file: Path) -> None:
    from hereish.spark import sanitize_stream

    with pytest.raises(ParameterError, match=r"hereish\.spark\.sanitize"):
        sanitize_stream(shuffled, WHOLE_DAY, **NAMES, key_file=key_file)
