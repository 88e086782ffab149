from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish.errors import ParameterError
from hereish.traces.columns import Columns, Layout
from hereish.traces.faults import Fault
from hereish.traces.formats import geojson
from hereish.traces.table import Ids, ReleasedRows, RowBatch
from tests.support.markup_samples import (
    LATS,
    LINES,
    LONS,
    POINTS,
    PROMISE,
    batches,
    collection,
    faults,
    feature,
    line,
    point,
    read,
    read_until_broken,
    released,
    source,
    unreadable,
    written,
)
from tests.support.paths import GEOLIFE

MAY_1_US = 1_714_550_400_000_000  # 08:00 in UTC
DAY_US = 86_400_000_000
AT = ("2024-05-01T08:00:00Z", "2024-05-01T08:00:01.5Z", "2024-05-02T08:00:00Z")
AT_US = [MAY_1_US, MAY_1_US + 1_500_000, MAY_1_US + DAY_US]
IN_LINES = Layout(lines=True)


def users(batch: RowBatch) -> list[Any]:
    assert batch.user is not None
    return batch.user.values()


def traces(batch: RowBatch) -> list[Any]:
    assert batch.trace is not None
    return batch.trace.values()


def test_points_are_read(tmp_path: Path) -> None:
    batch = read(source(tmp_path, "a.geojson", POINTS))
    assert faults(batch) == [Fault.NONE] * 3
    assert (batch.lat.tolist(), batch.lon.tolist()) == (list(LATS), list(LONS))
    assert batch.at_us.tolist() == AT_US
    assert batch.line.tolist() == [1, 2, 3]
    assert users(batch) == ["ann", "ann", 7]
    assert batch.trace is None
    assert batch.layout == Layout()
    assert batch.kept == {}


def test_lines_are_traces(tmp_path: Path) -> None:
    batch = read(source(tmp_path, "a.geojson", LINES))
    assert faults(batch) == [Fault.NONE] * 3
    assert (batch.lat.tolist(), batch.lon.tolist()) == (list(LATS), list(LONS))
    assert batch.at_us.tolist() == AT_US
    assert batch.line.tolist() == [1, 1, 2]
    assert batch.user is None
    assert traces(batch) == [1, 1, 2]
    assert batch.layout == Layout(numbered=True, lines=True)


def test_a_feature_alone_is_read(tmp_path: Path) -> None:
    batch = read(source(tmp_path, "a.geojson", json.dumps(point(2, at=1_714_550_400))))
    assert batch.at_us.tolist() == [MAY_1_US]
    assert batch.layout.time == "at"


def test_lines_of_a_feature_with_several_are_one_trace(tmp_path: Path) -> None:
    coordinates = [[[1.5, 2.5], [3.5, 4.5]], [[5.5, 6.5]]]
    geometry = {"type": "MultiLineString", "coordinates": coordinates}
    times = [AT[:2], AT[2:]]
    for properties in (
        {"coordTimes": times, "user": "ann", "trip": 1.5},
        {"coordinateProperties": {"times": times}, "user": "ann", "trip": 1.5},
        {"when": times, "user": "ann", "trip": 1.5},
    ):
        columns = Columns(time="when" if "when" in properties else None)
        content = collection(feature(geometry, properties))
        batch = read(source(tmp_path, "a.geojson", content), columns)
        assert batch.lon.tolist() == [1.5, 3.5, 5.5]
        assert batch.at_us.tolist() == AT_US
        assert users(batch) == ["ann"] * 3
        assert traces(batch) == ["1.5"] * 3
        assert batch.layout.trace == "trip"
        assert not batch.layout.numbered


def test_a_line_needs_a_time_for_each_position(tmp_path: Path) -> None:
    geometry = {
        "type": "MultiLineString",
        "coordinates": [[[1, 2], [3, 4]], [[5, 6]], 7, [[8, 9]]],
    }
    content = collection(
        line(0, 1, coordTimes=AT),
        line(0, 1),
        line(0, 1, coordTimes="2024-05-01T08:00:00Z"),
        feature(geometry, {"coordTimes": [AT[:2], AT[:2], AT[:1], [None]]}),
    )
    batch = read(source(tmp_path, "a.geojson", content))
    assert batch.line.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 4]
    assert faults(batch) == [
        *[Fault.TIME] * 6,
        *[Fault.NONE] * 2,
        Fault.TIME,
        Fault.LINE,
        Fault.TIME,
    ]


def test_points_beside_lines_are_a_trace_of_their_own(tmp_path: Path) -> None:
    content = collection(
        line(0, 1, coordTimes=AT[:2], time="the day it began"),
        point(1, time=AT[1]),
        point(2, time=AT[2]),
    )
    batch = read(source(tmp_path, "a.geojson", content))
    assert faults(batch) == [Fault.NONE] * 4
    assert traces(batch) == [1, 1, 0, 0]
    content = collection(point(0, time=AT[0], trip="x"), point(1, time=AT[1], trip=None))
    batch = read(source(tmp_path, "a.geojson", content))
    assert traces(batch) == ["x", 0]


@pytest.mark.parametrize(
    ("coordinates", "fault"),
    [
        ([1, None], Fault.LAT),
        ([1, True], Fault.LAT),
        ([1, "2"], Fault.LAT),
        ([1, float("nan")], Fault.LAT),
        ([1, 10**400], Fault.LAT),
        ([float("inf"), 2], Fault.LON),
        ([[1], 2], Fault.LON),
        ([1], Fault.LINE),
        ([], Fault.LINE),
        ({"lon": 1, "lat": 2}, Fault.LINE),
        (None, Fault.LINE),
        ([1, 400], Fault.NONE),  # a later stage's
        ([1, 2, 3, 4], Fault.NONE),
    ],
)
def test_a_place_that_cannot_be_used_is_marked(
    tmp_path: Path, coordinates: Any, fault: Fault
) -> None:
    wrong = feature({"type": "Point", "coordinates": coordinates}, {"time": AT[0]})
    good = point(0, time=AT[0])
    batch = read(source(tmp_path, "a.geojson", collection(good, wrong, good)))
    assert faults(batch) == [Fault.NONE, fault, Fault.NONE]
    assert batch.line.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        3,
        [],
        {"type": "Point", "coordinates": [1, 2]},
        feature(None, {"time": AT[0]}),
        feature([], {"time": AT[0]}),
        feature({"type": "Polygon", "coordinates": [[[1, 2], [3, 4], [5, 6]]]}, {"time": AT[0]}),
        feature({"type": ["Point"], "coordinates": [1, 2]}, {"time": AT[0]}),
        feature({"type": "LineString", "coordinates": {}}, {"coordTimes": []}),
        feature({"type": "GeometryCollection", "geometries": []}, {}),
    ],
)
def test_a_feature_that_is_none_is_marked(tmp_path: Path, wrong: Any) -> None:
    content = collection(point(0, time=AT[0], user="a"), wrong, point(1, time=AT[1], user="a"))
    batch = read(source(tmp_path, "a.geojson", content))
    assert faults(batch) == [Fault.NONE, Fault.LINE, Fault.NONE]


@pytest.mark.parametrize("time", [None, True, "soon", [], {}, 10**400, float("nan")])
def test_a_time_that_is_none_is_marked(tmp_path: Path, time: Any) -> None:
    content = collection(point(0, time=AT[0]), point(0, time=time), feature(None, None))
    batch = read(source(tmp_path, "a.geojson", content))
    assert faults(batch) == [Fault.NONE, Fault.TIME, Fault.LINE]


def test_a_zone_is_used_for_times_that_say_none(tmp_path: Path) -> None:
    content = collection(point(0, time="2024-05-01T08:00"), point(0, time=AT[1]))
    one = source(tmp_path, "a.geojson", content)
    batch = read(one, Columns(zone=ZoneInfo("Asia/Tokyo")))
    assert faults(batch) == [Fault.NONE, Fault.NONE]
    assert batch.at_us[0] == MAY_1_US - 9 * 3_600_000_000
    assert faults(read(one)) == [Fault.ZONE, Fault.NONE]


@pytest.mark.parametrize("user", [None, True, 1.5, {}, [], "", "  "])
def test_a_user_that_is_none_is_marked(tmp_path: Path, user: Any) -> None:
    content = collection(
        point(0, time=AT[0], user="ann"), point(0, time=AT[0], user=user), point(0, time=AT[0])
    )
    batch = read(source(tmp_path, "a.geojson", content))
    assert faults(batch) == [Fault.NONE, Fault.USER, Fault.USER]


def test_ids_fit_into_any_table(tmp_path: Path) -> None:
    content = collection(
        point(0, time=AT[0], user=10**30, trace={"a": [1]}),
        point(0, time=AT[0], user="half \ud83d", trace=True),
    )
    batch = read(source(tmp_path, "a.geojson", content))
    assert users(batch) == ["1" + "0" * 30, "half ?"]
    assert traces(batch) == ['{"a":[1]}', "True"]


def test_only_what_is_kept_is_kept(tmp_path: Path) -> None:
    one = source(tmp_path, "a.geojson", POINTS)
    batch = read(one, Columns(keep=("speed", "name")))
    assert batch.kept["speed"].tolist() == [1.5, None, None]
    assert batch.kept["name"].tolist() == ["home", None, None]
    content = collection(
        line(0, 1, coordTimes=AT[:2], mode="walk", heart=[60, 61], tags=[1, 2, 3]),
    )
    batch = read(source(tmp_path, "b.geojson", content), Columns(keep=("mode", "heart", "tags")))
    assert batch.kept["mode"].tolist() == ["walk", "walk"]
    assert batch.kept["heart"].tolist() == [60, 61]
    assert batch.kept["tags"].tolist() == ["[1,2,3]", "[1,2,3]"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Columns(keep=("pulse",)), "no property 'pulse' to keep; found 'user', 'time', 'speed'"),
        (Columns(user="who"), "no column 'who'; found 'user', 'time'"),
        (Columns(time="when"), "no column 'when'"),
        (Columns(keep=("user",)), "must differ .*'user'"),
        (Columns(keep=("speed", "speed")), "must differ"),
    ],
)
def test_names_that_are_not_there_are_refused(
    tmp_path: Path, columns: Columns, message: str
) -> None:
    one = source(tmp_path, "a.geojson", POINTS)
    with pytest.raises(ParameterError, match=message):
        read(one, columns)


def test_a_time_must_have_a_name(tmp_path: Path) -> None:
    content = collection(point(0, when=AT[0], **{f"at {LATS[0]}": 1}))
    _, problem = read_until_broken(source(tmp_path, "a.geojson", content))
    assert isinstance(problem, ParameterError)
    assert "--time, one of 'when'" in str(problem)
    batch = read(source(tmp_path, "a.geojson", content), Columns(time="when"))
    assert batch.layout.time == "when"
    content = collection(point(0, time=AT[0], timestamp=AT[0]))
    with pytest.raises(ParameterError, match="which is it, 'time', 'timestamp'"):
        read(source(tmp_path, "a.geojson", content))


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("content", "why", "line"),
    [
        ("", "empty", None),
        (" \n", "empty", None),
        ("lat,lon", "JSON is broken", 1),
        (POINTS[: len(POINTS) // 2].rpartition(",")[0], "ends too early", 24),
        (POINTS.replace('"type": "Point"', '"type" "Point"', 1), "JSON is broken", 7),
        ("[]", "not GeoJSON", None),
        ("3", "not GeoJSON", None),
        ('{"type": "Topology"}', "not GeoJSON", None),
        ('{"type": ["Feature"]}', "not GeoJSON", None),
        ('{"type": "Point", "coordinates": [1, 2]}', "geometry alone", None),
        ('{"type": "FeatureCollection"}', "without features", None),
        ('{"type": "FeatureCollection", "features": {}}', "without features", None),
        (collection(), "no points", None),
        (collection(line()), "no points", None),
        (DEEP, "nested too deeply", None),
        (POINTS.replace("48.", "1" * 5000 + ",", 1), "too long", None),
        (POINTS.encode("utf-16"), "UTF-16", None),
        (POINTS.encode().replace(b"ann", b"\xff", 1), "not UTF-8", 15),
        (collection(point(0, time=AT[0]), crs=None), "crs", None),
        (
            collection(
                point(0, time=AT[0]), crs={"type": "name", "properties": {"name": "EPSG:3857"}}
            ),
            "WGS 84",
            None,
        ),
    ],
)
def test_what_is_not_geojson_is_refused(
    tmp_path: Path, content: str | bytes, why: str, line: int | None
) -> None:
    said, where = unreadable(source(tmp_path, "a.geojson", content))
    assert why in said
    assert where == line


def test_a_property_that_is_nested_too_deeply_is_refused_when_it_is_kept(tmp_path: Path) -> None:
    for depth in range(940, 1000):
        deep = "[" * depth + "]" * depth
        content = collection(point(0, time=AT[0], deep="DEEP")).replace('"DEEP"', deep)
        read_until_broken(source(tmp_path, "a.geojson", content), Columns(keep=("deep",)))


@pytest.mark.parametrize(
    "name", ["urn:ogc:def:crs:OGC:1.3:CRS84", "urn:ogc:def:crs:EPSG::4326", "EPSG:4326"]
)
def test_the_usual_coordinates_may_be_named(tmp_path: Path, name: str) -> None:
    crs = {"type": "name", "properties": {"name": name}}
    assert len(read(source(tmp_path, "a.geojson", collection(point(0, time=AT[0]), crs=crs)))) == 1


def test_a_packed_file_is_read_and_a_damaged_one_refused(tmp_path: Path) -> None:
    packed = gzip.compress(POINTS.encode())
    assert len(read(source(tmp_path, "a.geojson.gz", packed))) == 3
    assert (
        unreadable(source(tmp_path, "b.geojson.gz", packed[:-9]))[0]
        == "it is not a gzip file, or a damaged one"
    )


def test_a_long_file_is_one_piece_with_its_lines_in_order(tmp_path: Path) -> None:
    many = 40_000
    geometry = {"type": "LineString", "coordinates": [[1.5, 2.5]] * many}
    one = feature(geometry, {"coordTimes": [AT[0]] * many})
    (found,) = batches(source(tmp_path, "a.geojson", collection(one, one)))
    # Two lines that nothing public tells apart: chance says which is the first.
    assert sorted(traces(found)) == [1] * many + [2] * many
    assert len(set(traces(found)[:many])) == 1
    assert found.done == 1.0


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
    assert top["hereish"] == PROMISE.as_dict()
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
    writer = geojson.open_writer(file, Layout(), PROMISE)
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
            "hereish": PROMISE.as_dict(),
            "features": [],
        }
        assert unreadable(source(tmp_path, "a.geojson", content))[0] == "it has no points"


def test_the_promise_is_read_again(tmp_path: Path) -> None:
    assert geojson.read_guarantee(source(tmp_path, "a.geojson", written("geojson"))) == PROMISE
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
