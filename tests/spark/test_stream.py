"""Streams: the bits of one call, whatever the micro-batches, and one budget over all of them."""

from __future__ import annotations

import base64
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hereish import ParameterError, StateError, fixed_utility
from hereish.traces.arrow import ArrowColumns
from hereish.traces.budgets import EachTrace
from hereish.traces.key_file import write_key_file
from tests.support.spark_stream_stage import (
    COLUMNS,
    MECHANISMS,
    PRIVACY,
    SCHEMA,
    START_US,
    contents,
    cut_by_time,
    expected_rows,
    need_streams,
    people_points,
    points_table,
    released_rows,
    secrets_in,
    stream_session,
    table_rows,
    write_pieces,
)

need_streams()

from pyspark import cloudpickle  # noqa: E402
from pyspark.errors import StreamingQueryException  # noqa: E402

from hereish.spark import sanitize, sanitize_stream, stream  # noqa: E402
from hereish.spark.query_file import check_query_file  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # pandas 3 is new to PySpark


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    session = stream_session(cores=2)
    yield session
    session.stop()


_TOLD = """
import sys
from pyspark import cloudpickle

processor = cloudpickle.loads(open(sys.argv[1], "rb").read())
asked = type("Handle", (), {"getMapState": staticmethod(lambda *state: print(*state))})
processor.init(asked)
print(*({"hereish", "pandas", "pyarrow"} & set(sys.modules)))
"""


def test_spark_is_told_of_the_state_without_importing_hereish(tmp_path: Path) -> None:
    # Each start of a query does so in a new process, which would take longer than its rows.
    columns = ArrowColumns(**COLUMNS)
    own = stream._BucketProcessor(MECHANISMS["whole day"], columns, "key", None, 2)
    held = cloudpickle.dumps(stream._deferred(own))  # type: ignore[no-untyped-call]  # Spark's
    (tmp_path / "processor").write_bytes(held)
    command = [sys.executable, "-c", _TOLD, str(tmp_path / "processor")]
    told = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # our own code
    assert told.stdout.splitlines() == ["standings page INT users BINARY", ""]


def _begin(folder: Path, pieces: Sequence[pa.Table], key: bytes | None = None) -> None:
    write_key_file(folder / "key")
    if key:
        (folder / "key").write_bytes(base64.b64encode(key))
    write_pieces(pieces, folder / "in")


def _released(
    spark: Any, folder: Path, mechanism: str, schema: str = SCHEMA, **settings: Any
) -> list[tuple[Any, ...]]:
    """What a query has released when it has seen all files in `in`."""
    points = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    settings = {"key_file": folder / "key", "buckets": 3, **settings}
    rows = points.parquet(str(folder / "in"))
    released = sanitize_stream(rows, MECHANISMS[mechanism], **COLUMNS, **settings)
    query = (
        released.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return released_rows((folder / "out").glob("*.parquet"))


@pytest.mark.parametrize("pieces", [2, 5])
def test_whole_days_have_the_bits_of_one_call_however_they_are_cut(
    spark: Any, tmp_path: Path, pieces: int
) -> None:
    table = people_points()
    cut = cut_by_time(table, pieces)
    _begin(tmp_path, cut)
    released = _released(spark, tmp_path, "whole day", keep=["note"])
    assert released == expected_rows(table, "whole day", tmp_path / "key", keep=("note",))
    days = {time // 86_400_000_000 for _, time, *_ in released}
    ties = len(released) - len({row[:2] for row in released})
    assert min(len(days), ties, *(piece.num_rows for piece in cut)) > 1
    if pieces == 2:
        # It holds releases, where they can be found, and neither points nor the key.
        state = b"".join(contents(tmp_path / "checkpoint"))
        assert any(struct.pack("<d", row[2]) in state for row in released)
        assert secrets_in(tmp_path / "checkpoint", table, tmp_path / "key") == []
        whole = sanitize(
            spark.read.schema(SCHEMA).parquet(str(tmp_path / "in")),
            MECHANISMS["whole day"],
            **COLUMNS,
            key_file=tmp_path / "key",
            keep=["note"],
        )
        assert released == table_rows([whole.toArrow()])


def test_budgets_end_and_begin_in_windows_over_micro_batches(spark: Any, tmp_path: Path) -> None:
    table = people_points(users=5, each=80, days=1.0, seed=2)
    numbers = [int(name.removeprefix("person")) for name in table["user"].to_pylist()]
    table = table.set_column(0, "user", pa.array(numbers, pa.int64()))
    nested = [None if note else {"deep": [note]} for note in table["note"].to_pylist()]
    table = table.set_column(4, "note", pa.array(nested, pa.struct({"deep": pa.list_(pa.int64())})))
    _begin(tmp_path, cut_by_time(table, 4))
    schema = "user BIGINT, time TIMESTAMP, lat DOUBLE, lon DOUBLE, note STRUCT<deep: ARRAY<BIGINT>>"
    settings: dict[str, Any] = {"every": timedelta(minutes=7), "keep": ["note"]}
    released = _released(spark, tmp_path, "fixed utility", schema, **settings)
    key = tmp_path / "key"
    assert released == expected_rows(table, "fixed utility", key, every_s=420.0, keep=("note",))
    spent: dict[tuple[int, int], float] = {}
    for user, time, _, _, _, cost, _ in released:
        window = user, time // (9 * 3_600_000_000)
        spent[window] = spent.get(window, 0.0) + cost
    assert max(spent.values()) <= PRIVACY.eps_per_m * (1.0 + 1e-9)
    assert 0 < len(released) < table.num_rows
    assert len(spent) > 5


def test_late_and_bad_points_are_left_out(spark: Any, tmp_path: Path) -> None:
    def points(
        users: Sequence[str | None], minutes: Sequence[int], lat: Any, note: Any = None
    ) -> pa.Table:
        times_us = START_US + 60_000_000 * np.array(minutes)
        return points_table(users, times_us, lat, np.full(len(users), 24.9), note)

    tied = points(["b"] * 5, [80] * 5, [60.1, 60.2, 60.3, 60.4, 60.5], [4, 2, 0, 1, 3])
    first = points(["a", "a", "a", "b"], [30, 10, 20, 90], [60.1, 60.2, 60.3, 60.4])
    first = pa.concat_tables([tied, first])
    second = points(["a", "c", "a", "a", "b"], [40, 5, 25, 30, 91], [60.5, 60.6, 60.7, 60.8, 60.9])
    bad = points([None, "a", "b"], [50, 51, 92], [60.1, np.nan, 97.3125])
    # With one key in five, the keyed order of ties gives the same releases as that of the notes.
    _begin(tmp_path, [first, pa.concat_tables([bad, second])], key=bytes(range(32)))
    released = _released(spark, tmp_path, "whole day", drop_bad=True, order="note")
    in_time = pa.concat_tables([first, second.take(pa.array([0, 1, 4]))])
    assert released == expected_rows(in_time, "whole day", tmp_path / "key", order="note")
    assert released != expected_rows(in_time, "whole day", tmp_path / "key")
    assert len(released) == in_time.num_rows
    write_pieces([points(["b"], [99], [97.3125])], tmp_path / "in", first=2)
    with pytest.raises(StreamingQueryException, match="are latitude and longitude swapped") as told:
        _released(spark, tmp_path, "whole day")
    assert "97.3" not in str(told.value)


def test_a_lost_checkpoint_is_refused(spark: Any, tmp_path: Path) -> None:
    first, second = cut_by_time(people_points(users=3, each=10), 2)
    _begin(tmp_path, [first])
    assert _released(spark, tmp_path, "whole day")
    for name in ("checkpoint", "in", "out"):  # which has a list of its own of what was written
        shutil.move(tmp_path / name, tmp_path / f"earlier {name}")
    write_pieces([second], tmp_path / "in")
    with pytest.raises(StreamingQueryException, match="in use by another query"):
        _released(spark, tmp_path, "whole day")
    assert released_rows((tmp_path / "out").glob("*.parquet")) == []


def test_what_cannot_be_a_stream_is_refused(spark: Any, tmp_path: Path) -> None:
    _begin(tmp_path, [people_points(users=2, each=3)])
    folder, settings = str(tmp_path / "in"), {**COLUMNS, "key_file": tmp_path / "key"}
    stream, whole = spark.readStream.schema(SCHEMA).parquet(folder), spark.read.parquet(folder)
    mechanism = MECHANISMS["whole day"]
    with pytest.raises(ParameterError, match="a stream is needed"):
        sanitize_stream(whole, mechanism, **settings)
    with pytest.raises(ParameterError, match="no budget per trace"):
        per_trace = fixed_utility(PRIVACY, 3000.0, window=EachTrace())
        sanitize_stream(stream, per_trace, **settings, trace="note")
    for buckets in (0, True, 1.5):
        with pytest.raises(ParameterError, match="buckets must be"):
            sanitize_stream(stream, mechanism, **settings, buckets=buckets)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="key_file is needed"):
        sanitize_stream(stream, mechanism, **COLUMNS, key_file=None)  # type: ignore[arg-type]
    provider = "spark.sql.streaming.stateStore.providerClass"
    rocks_db = spark.conf.get(provider)
    spark.conf.unset(provider)
    try:
        with pytest.raises(ParameterError, match="needs RocksDB"):
            sanitize_stream(stream, mechanism, **settings)
    finally:
        spark.conf.set(provider, rocks_db)


def test_a_key_is_for_the_first_query_that_takes_it(tmp_path: Path) -> None:
    key = tmp_path / "key"
    for _ in range(2):
        check_query_file(key, "first", 16)
    for query, buckets, reason in (("second", 16, "another query"), ("first", 8, "other buckets")):
        with pytest.raises(StateError, match=reason):
            check_query_file(key, query, buckets)
    with pytest.raises(ParameterError, match="which query"):
        check_query_file(key, None, 16)
    with pytest.raises(ParameterError, match="cannot be written"):
        check_query_file(tmp_path / "missing" / "key", "first", 16)
    assert [path.name for path in tmp_path.iterdir()] == ["key.stream"]
