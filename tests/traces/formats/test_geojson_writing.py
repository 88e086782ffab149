"""GeoJSON is written as points or lines, and read back."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish.traces.columns import Columns, Layout
from hereish.traces.faults import Fault
from hereish.traces.formats import geojson
from hereish.traces.table import Ids, ReleasedRows, RowBatch
from tests.support.geojson_samples import IN_LINES, traces
from tests.support.markup_samples import (
    GUARANTEE,
    POINTS,
    read,
    released,
    source,
    unreadable,
    written,
)
from tests.support.paths import GEOLIFE

# Rows of two users and three traces, interleaved and out of order, in two parts.
ROWS = (
    released(
        [30, 20, 1_500_001, 10],
        [0.00001, -1e-7, 90.0, 3.25],
        [180.0, -1.5e-9, -180.0, 5.5],
        user=["b", "a", "a", "b"],
        trace=["t1", "t1", 2, "t1"],
    ),
    released([5], [-33.5], [1.0], user=["a"], trace=["t1"]),
)


def loaded(content: bytes) -> Any:
    def fail(name: str) -> None:
        raise AssertionError(name)

    return json.loads(content, parse_constant=fail)


def test_points_are_written_as_they_come() -> None:
    top = loaded(written("geojson", *ROWS, layout=Layout(user="who", time="at")))
    assert list(top) == ["type", "hereish", "features", "bbox"]
    assert top["hereish"] == GUARANTEE.as_dict()
    assert top["bbox"] == [-180.0, -33.5, 180.0, 90.0]
    assert len(top["features"]) == 5
    assert top["features"][2] == {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [-180.0, 90.0]},
        "properties": {
            "who": "a",
            "trace": 2,
            "at": "1970-01-01T00:00:01.500001Z",
            "kind": "untested",
            "cost": 2e-7,
        },
    }
    assert list(top["features"][0]["properties"]) == ["who", "trace", "at", "kind", "cost"]


def test_points_are_not_held_back() -> None:
    file = io.BytesIO()
    writer = geojson.open_writer(file, Layout(), GUARANTEE)
    writer.write(ROWS[0])
    assert file.getvalue().count(b'"Point"') == len(ROWS[0])


def test_lines_are_written_trace_by_trace() -> None:
    top = loaded(written("geojson", *ROWS, layout=IN_LINES))
    assert list(top) == ["type", "hereish", "features", "bbox"]
    assert [feature["geometry"] for feature in top["features"]] == [
        {"type": "LineString", "coordinates": [[5.5, 3.25], [180.0, 0.00001]]},
        {"type": "LineString", "coordinates": [[1.0, -33.5], [-1.5e-9, -1e-7]]},
        {"type": "Point", "coordinates": [-180.0, 90.0]},
    ]
    assert [feature["properties"] for feature in top["features"]] == [
        {
            "user": "b",
            "trace": "t1",
            "coordTimes": ["1970-01-01T00:00:00.00001Z", "1970-01-01T00:00:00.00003Z"],
            "kinds": ["hard", "hard"],
            "costs": [3e-7, 0.0],
        },
        {
            "user": "a",
            "trace": "t1",
            "coordTimes": ["1970-01-01T00:00:00.000005Z", "1970-01-01T00:00:00.00002Z"],
            "kinds": ["hard", "easy"],
            "costs": [0.0, 1e-7],
        },
        {
            "user": "a",
            "trace": 2,
            "time": "1970-01-01T00:00:01.500001Z",
            "kind": "untested",
            "cost": 2e-7,
        },
    ]


@pytest.mark.parametrize("layout", [Layout(), IN_LINES])
def test_without_points_there_is_no_box(tmp_path: Path, layout: Layout) -> None:
    for parts in ((), (released([], [], []),)):
        content = written("geojson", *parts, layout=layout)
        assert loaded(content) == {
            "type": "FeatureCollection",
            "hereish": GUARANTEE.as_dict(),
            "features": [],
        }
        assert unreadable(source(tmp_path, "a.geojson", content))[0] == "it has no points"


def test_the_promise_is_read_again(tmp_path: Path) -> None:
    assert geojson.read_guarantee(source(tmp_path, "a.geojson", written("geojson"))) == GUARANTEE
    for content in (POINTS, "[]", '{"hereish": 1}', '{"hereish": {}}'):
        assert geojson.read_guarantee(source(tmp_path, "b.geojson", content)) is None


KEPT: dict[str, Any] = {
    "ele": np.array([1.5, np.nan]),
    "count": np.array([3, 2**63 - 1]),
    "mode": np.array(["wälk", None], dtype=object),
    "mixed": np.array([{"a": {1, 2}}, np.float32("inf")], dtype=object),
    "half": np.array(["\ud83d", b"x"], dtype=object),
    "seen": np.array(["2024-05-01T08:00:00.5", "NaT"], dtype="datetime64[ns]"),
}


@pytest.mark.parametrize("layout", [Layout(), IN_LINES])
def test_kept_columns_are_json_and_read_again(tmp_path: Path, layout: Layout) -> None:
    rows = released([0, 1], [1.0, 2.0], [3.0, 4.0], trace=["a", "a"], kept=KEPT)
    content = written("geojson", rows, layout=layout)
    loaded(content)
    batch = read(source(tmp_path, "a.geojson", content), Columns(keep=tuple(KEPT)))
    assert batch.kept["ele"].tolist() == [1.5, None]
    assert batch.kept["count"].tolist() == [3, 2**63 - 1]
    assert batch.kept["mode"].tolist() == ["wälk", None]
    assert batch.kept["mixed"].tolist() == ['{"a":"{1, 2}"}', None]
    assert batch.kept["half"].tolist() == ["?", "b'x'"]
    assert batch.kept["seen"].tolist() == ["2024-05-01T08:00:00.500000000", None]
    assert traces(batch) == ["a", "a"]


def test_geopandas_reads_both(tmp_path: Path) -> None:
    path = tmp_path / "a.geojson"
    rows = replace(ROWS[0], trace=Ids.of(["t1", "t1", "t2", "t1"]))
    path.write_bytes(written("geojson", rows))
    frame = geopandas.read_file(path)
    assert frame.crs == "EPSG:4326"
    assert frame.geometry.y.tolist() == rows.lat.tolist()
    assert frame.geometry.x.tolist() == rows.lon.tolist()
    assert frame["user"].tolist() == ["b", "a", "a", "b"]
    assert frame["cost"].tolist() == rows.cost.tolist()
    assert frame["time"].dt.round("ms").dt.microsecond.tolist() == [0, 0, 500_000, 0]
    path.write_bytes(written("geojson", rows, layout=IN_LINES))
    frame = geopandas.read_file(path)
    assert frame.geometry.geom_type.tolist() == ["LineString", "Point", "Point"]
    assert list(frame.geometry[0].coords) == [(5.5, 3.25), (180.0, 0.00001)]
    assert list(frame["costs"][0]) == [3e-7, 0.0]
    assert list(frame["coordTimes"][0])[1] == "1970-01-01T00:00:00.00003Z"


def same(batch: RowBatch, rows: ReleasedRows) -> None:
    """A batch has these rows, in any order."""

    def listed(part: RowBatch | ReleasedRows) -> list[Any]:
        nobody = [""] * len(part)
        who = nobody if part.user is None else part.user.values()
        which = nobody if part.trace is None else part.trace.values()
        columns = (part.at_us.tolist(), part.lat.tolist(), part.lon.tolist())
        return sorted(zip(map(repr, who), map(repr, which), *columns, strict=True))

    assert (batch.fault == Fault.NONE).all()
    assert listed(batch) == listed(rows)


text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.integers(-(10**15), 10**17),
            st.floats(-90, 90),
            st.floats(-180, 180),
            text | st.integers(-(2**63), 2**63 - 1),
            text | st.integers(-(2**63), 2**63 - 1),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([Layout(), IN_LINES, Layout(user="who", trace="trip", time="at")]),
)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], layout: Layout
) -> None:
    at_us, lat, lon, user, trace = zip(*rows, strict=True)
    given = released(at_us, lat, lon, user, trace)
    content = written("geojson", given, layout=layout)
    columns = Columns(user=layout.user, trace=layout.trace)
    batch = read(source(tmp_path_factory.mktemp("again"), "a.geojson", content), columns)
    same(batch, given)
    assert (batch.layout.user, batch.layout.trace) == (layout.user, layout.trace)


def test_real_fixes_are_written_and_read_again(tmp_path: Path) -> None:
    if not GEOLIFE.is_file():
        pytest.skip(f"needs {GEOLIFE.name}, which is not ours to ship")
    table = pq.ParquetFile(GEOLIFE).read_row_group(0).slice(0, 20_000)
    at_us = table["at"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    rows = released(
        at_us, table["lat"].to_pylist(), table["lon"].to_pylist(), table["user"].to_pylist()
    )
    parts = [rows.take(np.arange(i, i + 5000)) for i in range(0, 20_000, 5000)]
    same(read(source(tmp_path, "a.geojson", written("geojson", *parts))), rows)
    lines = read(source(tmp_path, "b.geojson", written("geojson", *parts, layout=IN_LINES)))
    assert lines.layout.lines
    same(replace(lines, trace=None), rows)
