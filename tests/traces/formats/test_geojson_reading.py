"""GeoJSON is read: points, lines, faults, and what is not GeoJSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from hereish.errors import ParameterError
from hereish.traces.columns import Columns, Layout
from hereish.traces.faults import Fault, NoPointsError
from hereish.traces.formats.base import Source
from hereish.traces.formats.registry import get_format
from tests.support.geojson_samples import AT, AT_US, traces, users
from tests.support.markup_samples import (
    LATS,
    LINES,
    LONS,
    MAY_1_US,
    POINTS,
    batches,
    collection,
    faults,
    feature,
    line,
    point,
    read,
    read_until_broken,
    source,
    unreadable,
)


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
    assert batch.line.tolist() == [1, 1, 3, 3, 4, 4, 4, 4, 4]
    assert faults(batch) == [
        *[Fault.TIME] * 4,
        *[Fault.NONE] * 2,
        Fault.TIME,
        Fault.LINE,
        Fault.TIME,
    ]
    assert batch.passed_over == "1 line without times"
    alone = collection(line(0, 1, coordTimes=AT), line(0, 1))  # is no planned route
    assert faults(read(source(tmp_path, "a.geojson", alone))) == [Fault.TIME] * 2
    planned = collection(line(0, 1, coordTimes=[None, None]), line(0, 1, coordTimes=[]))
    with pytest.raises(NoPointsError, match="none of its points has a time"):
        read(source(tmp_path, "a.geojson", planned))


def test_each_point_has_the_time_of_its_own_property(tmp_path: Path) -> None:
    content = collection(
        point(0, time=AT[0], timestamp=None),
        point(1, timestamp=AT[1]),
        point(2, recorded_at=AT[2]),
        point(2, time=None),
    )
    batch = read(source(tmp_path, "a.geojson", content))
    assert faults(batch) == [*[Fault.NONE] * 3, Fault.TIME]
    assert batch.at_us.tolist()[:3] == AT_US
    assert (batch.layout.time, batch.passed_over) == ("time", "")
    named = read(source(tmp_path, "a.geojson", content), Columns(time="timestamp"))
    assert faults(named) == [Fault.TIME, Fault.NONE]
    assert named.passed_over == "2 points without a time"


def test_a_collection_of_a_single_point_is_that_point(tmp_path: Path) -> None:
    single = {"type": "MultiPoint", "coordinates": [[LONS[0], LATS[0], 3.5]]}
    several = {"type": "MultiPoint", "coordinates": [[1, 2], [3, 4]]}
    content = collection(feature(single, {"time": AT[0]}), feature(several, {"name": "a"}))
    batch = read(source(tmp_path, "a.geojson", content))
    assert (faults(batch), batch.at_us.tolist()) == ([Fault.NONE], AT_US[:1])
    assert (batch.lat.tolist(), batch.lon.tolist()) == ([LATS[0]], [LONS[0]])
    empty = collection(feature({"type": "MultiPoint", "coordinates": [[]]}, {"time": AT[0]}))
    assert faults(read(source(tmp_path, "a.geojson", empty))) == [Fault.LINE]


@pytest.mark.parametrize("name", ["a.geojson", "a.json"])
def test_features_on_lines_of_their_own_are_not_called_broken(tmp_path: Path, name: str) -> None:
    lines = [json.dumps(point(i, time=AT[i])) for i in range(2)]
    one = source(tmp_path, name, "\n".join(lines))
    reason, where = unreadable(one)
    assert ("one object per line" in reason, where) == (True, 2)
    records = Source(one.path, get_format("records"), Path("a.geojsonl"))
    assert faults(read(records)) == [Fault.NONE] * 2


def test_points_without_any_property_have_no_times(tmp_path: Path) -> None:
    content = collection(feature({"type": "Point", "coordinates": [1, 2]}, {}), point(0))
    with pytest.raises(NoPointsError, match="none of its points has a time"):
        read(source(tmp_path, "a.geojson", content))


def test_features_without_a_place_are_passed_over(tmp_path: Path) -> None:
    nowhere = feature(None, {"time": AT[1]})
    (batch,) = batches(source(tmp_path, "a.geojson", collection(nowhere, point(0, time=AT[0]))))
    assert not batch.fault.any()
    assert (len(batch), batch.passed_over) == (1, "1 feature without a place")
    reason, _ = unreadable(source(tmp_path, "b.geojson", collection(nowhere)))
    assert reason == "it has no points"


def test_markers_routes_and_areas_beside_points_with_times_are_passed_over(tmp_path: Path) -> None:
    """They say nothing of when somebody was there, by the names of their properties alone."""
    area = {"type": "Polygon", "coordinates": [[[1, 2], [3, 4], [5, 6]]]}
    content = collection(
        point(0, name="home"),
        line(0, 1),
        point(1, time=AT[1]),
        feature(area, {"name": "zone"}),
        point(2),
    )
    batch = read(source(tmp_path, "a.geojson", content))
    assert (batch.line.tolist(), faults(batch)) == ([3], [Fault.NONE])
    assert (
        batch.passed_over == "2 points without a time, 1 line without times, 1 area or collection"
    )
    assert not batch.layout.lines
    beside = collection(point(0, name="home"), line(0, 1, coordTimes=AT[:2]))
    assert traces(read(source(tmp_path, "a.geojson", beside))) == [1, 1]
    for alone in (collection(line(0, 1), line(1, 2)), collection(feature(area, {}), line(0, 1))):
        said, _ = unreadable(source(tmp_path, "a.geojson", alone))
        assert "none of its points has a time" in said


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
        ([1, "two"], Fault.LAT),
        (["1", "2"], Fault.NONE),  # as some exports have them
        (["1", "2 N"], Fault.NONE),
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
        {"type": "Feature", "properties": {"time": AT[0]}},
        feature([], {"time": AT[0]}),
        feature({"type": "Polygon", "coordinates": [[[1, 2], [3, 4], [5, 6]]]}, {"time": AT[0]}),
        feature({"type": ["Point"], "coordinates": [1, 2]}, {"time": AT[0]}),
        feature({"type": "LineString", "coordinates": {}}, {"coordTimes": []}),
        feature({"type": "GeometryCollection", "geometries": []}, {"time": AT[0]}),
    ],
)
def test_a_feature_that_is_none_is_marked(tmp_path: Path, wrong: Any) -> None:
    content = collection(point(0, time=AT[0], user="a"), wrong, point(1, time=AT[1], user="a"))
    batch = read(source(tmp_path, "a.geojson", content))
    assert faults(batch) == [Fault.NONE, Fault.LINE, Fault.NONE]


@pytest.mark.parametrize("time", [None, True, "soon", [], {}, 10**400, float("nan")])
def test_a_time_that_is_none_is_marked(tmp_path: Path, time: Any) -> None:
    content = collection(point(0, time=AT[0]), point(0, time=time), feature([], None))
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
        (POINTS.encode("utf-16") + b"x", "UTF-16", None),
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


def test_a_date_is_the_time_of_a_point_if_it_tells_that_of_the_day(tmp_path: Path) -> None:
    content = collection(point(0, date=AT[0]), point(1, date="2024-05-01"), point(2, time=AT[2]))
    batch = read(source(tmp_path, "a.geojson", content))
    assert faults(batch) == [Fault.NONE, Fault.NO_CLOCK, Fault.NONE]
    content = collection(point(1, date="2024-05-01"))
    assert not read(source(tmp_path, "a.geojson", content), Columns(time="date")).fault.any()
