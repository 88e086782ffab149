"""Files that are made to take all memory or time: refused before they do."""

from __future__ import annotations

import json
import sqlite3
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hereish.errors import ParameterError
from hereish.traces.columns import Columns
from hereish.traces.formats._parquet_reader import read_guarantee
from hereish.traces.formats.base import Source
from hereish.traces.formats.registry import FORMATS
from tests.support.history_samples import ANDROID, RECORDS, SAMPLES, as_json, sample
from tests.support.markup_samples import batches, unreadable

ENDLESS = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r)"


@pytest.mark.parametrize("opening", ["[", '{"x":'])
@pytest.mark.parametrize("noise", ["", '"\\\\",', '"]]]]\\"",'])
def test_json_that_is_nested_without_end_is_refused(
    tmp_path: Path, opening: str, noise: str
) -> None:
    """Some kilobytes of brackets would take gigabytes. Texts between them count for nothing."""
    noise = noise if opening == "[" else ""
    deep = (opening + noise) * 100_000
    text = f'{{"locations":[{{"latitudeE7":1,"longitudeE7":2,"x":{deep}'
    reason, _ = unreadable(sample(tmp_path, "Records.json", text.encode()))
    assert reason == "it is nested too deeply"


def test_brackets_in_texts_are_not_nested(tmp_path: Path) -> None:
    """Also where a block of bytes ends between a backslash and what it belongs to."""
    for shift in range(4):
        name = "x" * shift + '[{\\"' * 100_000
        records = {**RECORDS, "note": name, "last": name}
        (batch,) = batches(sample(tmp_path, "Records.json", json.dumps(records).encode()))
        assert len(batch) == 3


def test_ordinary_nesting_is_read(tmp_path: Path) -> None:
    many = {**ANDROID, "rawSignals": ANDROID["rawSignals"] * 5000}  # type: ignore[operator]  # a list
    found = batches(sample(tmp_path, "android.json", as_json(many)))
    assert sum(map(len, found)) == 5002


@pytest.mark.parametrize("part", [b"x", b'\\"', b"[", b"\\", b"1"])
def test_a_text_or_a_number_without_end_is_refused(tmp_path: Path, part: bytes) -> None:
    """The parser would look at it from its beginning for each block: for hours."""
    begin = b'{"locations":[{"latitudeE7":1,"longitudeE7":' + (b"" if part == b"1" else b'"')
    content = begin + part * (6 << 20)
    reason, _ = unreadable(sample(tmp_path, "Records.json", content))
    assert reason == "a text or a number in it is far too long"


def test_long_texts_and_many_numbers_are_read(tmp_path: Path) -> None:
    note = {"note": "x" * (3 << 20), "path": [1] * (3 << 20)}
    (batch,) = batches(sample(tmp_path, "Records.json", json.dumps({**RECORDS, **note}).encode()))
    assert len(batch) == 3


@pytest.mark.parametrize(
    "metadata", [{"geo": '{"columns":' * 100_000}, {"hereish.promise": "[" * 100_000}]
)
def test_metadata_that_are_nested_without_end_are_none(
    tmp_path: Path, metadata: dict[str, str]
) -> None:
    path = tmp_path / "in.parquet"
    at = pa.array([0], pa.timestamp("us", "UTC"))
    table = pa.table({"time": at, "lat": [60.0], "lon": [24.0]})
    pq.write_table(table.replace_schema_metadata(metadata), path)
    source = Source(path, FORMATS["parquet"], Path(path.name))
    assert read_guarantee(source) is None
    if "geo" in metadata:
        with pytest.raises(ParameterError, match="GeoParquet metadata cannot be read"):
            batches(source)


def _endless_contents(database: sqlite3.Connection) -> None:
    database.execute("ALTER TABLE gpkg_contents RENAME TO other")
    select = "SELECT x AS table_name, 'features' AS data_type FROM r"
    database.execute(f"CREATE VIEW gpkg_contents AS {ENDLESS} {select}")


def _endless_points(database: sqlite3.Connection) -> None:
    database.execute("ALTER TABLE reports RENAME TO other")
    select = "SELECT x AS fid, x AS geom, x AS time FROM r"
    database.execute(f"CREATE VIEW reports AS {ENDLESS} {select}")


def _computed_points(database: sqlite3.Connection) -> None:
    database.execute("DROP TABLE reports")
    database.execute(
        "CREATE TABLE reports (fid INTEGER PRIMARY KEY, time TEXT, "
        "geom BLOB GENERATED ALWAYS AS (zeroblob(900000000)) VIRTUAL)"
    )
    database.execute("INSERT INTO reports (time) VALUES ('2024-05-05T09:00:00Z')")


def _virtual_points(database: sqlite3.Connection) -> None:
    database.execute("DROP TABLE reports")
    database.execute("CREATE VIRTUAL TABLE reports USING fts5(time, geom)")
    database.execute("INSERT INTO reports VALUES ('2024-05-05T09:00:00Z', 'x')")


def _huge_point(database: sqlite3.Connection) -> None:
    database.execute("UPDATE reports SET geom = zeroblob(100000000)")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_huge_point, "it is damaged before its first row is read"),
        (_endless_contents, "it is not a GeoPackage, or a damaged one"),
        (_endless_points, "it has no table of points"),
        (_computed_points, "it is not a GeoPackage, or a damaged one"),
        (_virtual_points, "it has no table of points"),
    ],
)
def test_a_database_whose_tables_are_computed_is_refused(
    tmp_path: Path, change: Callable[[sqlite3.Connection], None], reason: str
) -> None:
    path = tmp_path / "made.gpkg"
    path.write_bytes(SAMPLES["ours.gpkg"][0])
    database = sqlite3.connect(path)
    change(database)
    database.commit()
    database.close()
    found, _ = unreadable(sample(tmp_path, "ours.gpkg", path.read_bytes()))
    assert found == reason


def _repeated(path: Path, length: int, *, stored: bool) -> Path:
    """Rows that share one text, which is in the file once."""
    rows = 20_000
    same = pa.array(np.zeros(rows, dtype=np.int32))
    texts = pa.DictionaryArray.from_arrays(same, pa.array(["x" * length]))
    at = pa.array(np.arange(rows) * 1_000_000, pa.timestamp("us", "UTC"))
    places = {"lat": np.full(rows, 60.0), "lon": np.full(rows, 24.0)}
    table = pa.table({"user": texts, "note": texts, "time": at, **places})
    pq.write_table(table, path, store_schema=stored)
    return path


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("length", [4000, 40_000])
def test_texts_that_repeat_in_parquet_take_no_memory_for_each_row(
    tmp_path: Path, length: int, stored: bool
) -> None:
    path = _repeated(tmp_path / "in.parquet", length, stored=stored)
    before = pa.default_memory_pool().max_memory()
    tracemalloc.start()
    if length > 4096:
        reason, _ = unreadable(Source(path, FORMATS["parquet"], Path(path.name)))
        assert "far too long" in reason
    else:
        source = Source(path, FORMATS["parquet"], Path(path.name))
        (batch,) = batches(source, Columns(keep=("note",)))
        assert batch.user is not None
        assert (len(batch), batch.user.names) == (20_000, ["x" * length])
        assert set(batch.kept["note"]) == {"x" * length}
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    grown = pa.default_memory_pool().max_memory() - before
    assert max(peak, grown) < 20_000 * length / 4


@pytest.mark.parametrize("name", ["walk.gpx", "walk.kml", "walk.tcx"])
@pytest.mark.parametrize(("begin", "end"), [('<x a="', '"/>'), ("<!--", "-->"), ("<x ", "/>")])
def test_tags_and_comments_without_end_are_refused(
    tmp_path: Path, name: str, begin: str, end: str
) -> None:
    """Looked at again for each block, a small compressed file would take minutes."""
    form = FORMATS[name.removeprefix("walk.")]
    root = {"gpx": "gpx", "kml": "kml", "tcx": "TrainingCenterDatabase"}[form.name]
    for length, refused in ((1 << 19, False), (3 << 20, True)):
        path = tmp_path / f"{length}.{form.name}"
        path.write_text(f"<{root}>\n{begin}{' ' * length}{end}</{root}>")
        reason, line = unreadable(Source(path, form, Path(path.name)))
        assert ("far too long" in reason) == refused
        assert not refused or line == 2
