from __future__ import annotations

import gzip
import importlib.metadata
import io
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import gpxpy
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xmlschema
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish.errors import ParameterError
from hereish.traces.columns import Columns
from hereish.traces.faults import Fault, UnreadableFileError
from hereish.traces.formats import gpx
from hereish.traces.formats.base import Source
from hereish.traces.table import Ids, ReleasedRows, RowBatch
from tests.support.markup_samples import (
    GPX,
    LATS,
    LONS,
    PROMISE,
    batches,
    faults,
    read,
    read_until_broken,
    released,
    source,
    unreadable,
    written,
)
from tests.support.paths import GEOLIFE

SPACE = {"": "http://www.topografix.com/GPX/1/1", "hereish": gpx.NAMESPACE}
MAY_1_US = 1_714_550_400_000_000  # 08:00 in UTC
DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def schema() -> xmlschema.XMLSchema:
    """GPX 1.1 as it was published, from a package that ships it."""
    files = importlib.metadata.files("gpx-player") or []
    path = next(file for file in files if file.name == "gpx_1.1.xsd").locate()
    return xmlschema.XMLSchema(str(path), allow="local")


def track(points: str, ids: str = "") -> str:
    return f"<trk>{ids}<trkseg>\n{points}</trkseg></trk>\n"


def file(*tracks: str, space: str = 'xmlns="http://www.topografix.com/GPX/1/1"') -> str:
    return f'<gpx version="1.1" creator="c" {space}>\n{"".join(tracks)}</gpx>'


def fix(lat: str = 'lat="1.25"', lon: str = 'lon="2.5"', time: str = "2024-05-01T08:00:00Z") -> str:
    return f"<trkpt {lat} {lon}><time>{time}</time></trkpt>\n"


def test_the_points_of_all_tracks_are_read_and_nothing_else(tmp_path: Path) -> None:
    batch = read(source(tmp_path, "a.gpx", GPX))
    assert faults(batch) == [Fault.NONE] * 3
    assert batch.lat.tolist() == list(LATS)
    assert batch.lon.tolist() == list(LONS)
    assert batch.at_us.tolist() == [MAY_1_US, MAY_1_US + 1_500_000, MAY_1_US + DAY_US]
    assert batch.line.tolist() == [8, 11, 14]
    assert batch.user is None
    assert batch.trace is not None
    assert batch.trace.values() == [1, 1, 2]
    assert batch.layout.numbered
    assert batch.kept == {}
    assert batch.done == 1.0


@pytest.mark.parametrize("space", ['xmlns="http://www.topografix.com/GPX/1/0"', ""])
def test_older_files_and_such_without_a_namespace_are_read(tmp_path: Path, space: str) -> None:
    batch = read(source(tmp_path, "a.gpx", file(track(fix()), space=space)))
    assert batch.lat.tolist() == [1.25]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1", "windows-1252"])
def test_an_encoding_that_is_declared_is_read(tmp_path: Path, encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?>' + file(
        track("<trkpt lat='1' lon='2'><time>2024-05-01T08:00:00Z</time><sym>é</sym></trkpt>")
    )
    batch = read(source(tmp_path, "a.gpx", text.encode(encoding)), Columns(keep=("sym",)))
    assert batch.kept["sym"].tolist() == ["é"]


@pytest.mark.parametrize(
    ("point", "fault"),
    [
        (fix(lat=""), Fault.LAT),
        (fix(lat='lat=""'), Fault.LAT),
        (fix(lat='lat="nan"'), Fault.LAT),
        (fix(lat='lat="inf"'), Fault.LAT),
        (fix(lat='lat="1e999"'), Fault.LAT),
        (fix(lat='lat="1_0"'), Fault.LAT),
        (fix(lat='lat="0x10"'), Fault.LAT),
        (fix(lat='lat="١"'), Fault.LAT),
        (fix(lat='lat="60,17"'), Fault.LAT),
        (fix(lon=""), Fault.LON),
        (fix(lon='lon="-Infinity"'), Fault.LON),
        (fix(lon='lon="2 3"'), Fault.LON),
        (fix(time=""), Fault.TIME),
        (fix(time="yesterday"), Fault.TIME),
        (fix(time="2024-05-01T08:00:00"), Fault.ZONE),
        ('<trkpt lat="1" lon="2"/>', Fault.TIME),
        ('<trkpt lat="1" lon="2"><extensions><time>2024-05-01</time></extensions></trkpt>', 3),
        (fix(lat='lat="400"'), Fault.NONE),  # a later stage's
        (fix(lat='lat=" +1.5e1 "'), Fault.NONE),
    ],
)
def test_a_point_that_cannot_be_used_is_marked_and_the_rest_is_read(
    tmp_path: Path, point: str, fault: Fault
) -> None:
    batch = read(source(tmp_path, "a.gpx", file(track(fix() + point + fix()))))
    assert faults(batch) == [Fault.NONE, fault, Fault.NONE]
    assert batch.line.tolist() == [3, 4, 4 + point.count("\n")]


def test_times_without_a_zone_are_of_the_zone_that_is_given(tmp_path: Path) -> None:
    one = source(tmp_path, "a.gpx", file(track(fix(time="2024-05-01T08:00:00"))))
    assert read(one).at_us.tolist() == [MAY_1_US]
    berlin = Columns(zone=ZoneInfo("Europe/Berlin"))
    assert read(one, berlin).at_us.tolist() == [MAY_1_US - 2 * 3_600_000_000]


def test_only_what_is_kept_is_kept(tmp_path: Path) -> None:
    batch = read(source(tmp_path, "a.gpx", GPX), Columns(keep=("ele", "hr")))
    assert batch.kept["ele"].tolist() == ["411.5", None, None]
    assert batch.kept["hr"].tolist() == ["61", None, None]
    with pytest.raises(ParameterError, match="no 'sat' to keep"):
        read(source(tmp_path, "a.gpx", GPX), Columns(keep=("ele", "sat")))


def test_names_that_are_taken_cannot_be_kept(tmp_path: Path) -> None:
    for keep in (("time",), ("ele", "ele")):
        with pytest.raises(ParameterError, match=keep[0]):
            read(source(tmp_path, "a.gpx", GPX), Columns(keep=keep))


@pytest.mark.parametrize(
    ("content", "why", "line"),
    [
        ("", "empty", None),
        (" \n \n", "empty", None),
        ("lat,lon\n1,2\n", "broken: syntax error", 1),
        ("\n<kml><Document/></kml>", "not GPX", 2),
        (file(track("")), "no track points", None),
        (file("<wpt lat='1' lon='2'/>"), "no track points", None),
        ("<!DOCTYPE gpx>" + file(track(fix())), "document type", 1),
        ('<!DOCTYPE g [<!ENTITY a "1">]>' + file(track(fix(lat='lat="&a;"'))), "document type", 1),
        ('<?xml version="1.0" encoding="klingon"?>' + file(track(fix())), "encoding", None),
        ('<?xml version="1.0" encoding="shift_jis"?>' + file(track(fix())), "encoding", None),
        (file(track('<x:a lat="1"/>')), "unbound prefix", 3),
    ],
)
def test_what_is_not_gpx_is_refused(
    tmp_path: Path, content: str, why: str, line: int | None
) -> None:
    said, where = unreadable(source(tmp_path, "a.gpx", content))
    assert why in said
    assert where == line


def test_the_points_before_a_break_are_read(tmp_path: Path) -> None:
    for cut, why, rows, line in (
        (GPX.index("</trkseg></trk>\n<trk>"), "ends too early", 2, 12),
        (GPX.index("<time>2024-05-01T08:00:01"), "ends too early", 1, 11),
    ):
        found, problem = read_until_broken(source(tmp_path, "a.gpx", GPX[:cut]))
        assert [len(batch) for batch in found] == [rows]
        assert isinstance(problem, UnreadableFileError)
        assert why in problem.reason
        assert problem.line == line
    found, problem = read_until_broken(source(tmp_path, "a.gpx", GPX.replace("</gpx>", "</trk>")))
    assert [len(batch) for batch in found] == [3]
    assert str(problem) == "line 16: its XML is broken: mismatched tag"


def test_a_long_file_is_one_piece_with_its_tracks_in_order(tmp_path: Path) -> None:
    many = 70_000
    text = file(*(track(fix() * (many // 2)) for _ in range(2)))
    (found,) = batches(source(tmp_path, "a.gpx", text))
    assert len(found) == many
    assert found.done == 1.0
    assert found.trace is not None
    traces = found.trace.values()
    # Two tracks that nothing public tells apart: chance says which is the first.
    assert sorted(traces) == [1] * (many // 2) + [2] * (many // 2)
    assert len(set(traces[: many // 2])) == 1
    assert found.line.tolist()[-1] == many + 4
    (packed,) = batches(source(tmp_path, "a.gpx.gz", gzip.compress(text.encode())))
    assert len(packed) == many


def test_a_damaged_archive_is_refused_after_the_points_that_can_be_read(tmp_path: Path) -> None:
    whole = gzip.compress(GPX.encode())
    for content in (whole[:-4], whole[:-8] + b"damaged!", GPX.encode()):
        found, problem = read_until_broken(source(tmp_path, "a.gpx.gz", content))
        assert sum(map(len, found)) in (0, 3)
        assert str(problem) == "it is not a gzip file, or a damaged one"


def test_standard_input_is_read_and_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.BytesIO(GPX.encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
    batch = read(Source(None, gpx.FORMAT, Path("stdin.gpx")))
    assert len(batch) == 3
    assert batch.done == 1.0
    assert not given.closed


def ids(user: str | None = None, trace: str | None = None) -> str:
    parts = [f"<h:{k}>{v}</h:{k}>" for k, v in (("user", user), ("trace", trace)) if v is not None]
    return f'<extensions xmlns:h="{gpx.NAMESPACE}">{"".join(parts)}</extensions>'


def test_users_and_traces_are_read_from_our_own_files(tmp_path: Path) -> None:
    text = file(
        track(fix(), ids("ann", "t1")), track(fix(), ids(" bob", "t1")), track(fix(), ids())
    )
    batch = read(source(tmp_path, "a.gpx", text))
    assert batch.user is not None
    assert batch.trace is not None
    assert batch.user.values()[:2] == ["ann", " bob"]
    assert batch.trace.values() == ["t1", "t1", 1]
    assert batch.layout.numbered  # the third has a number, and the others have ids
    assert faults(batch) == [Fault.NONE, Fault.NONE, Fault.USER]


def test_a_user_after_a_piece_without_is_refused(tmp_path: Path) -> None:
    text = file(track(fix() * 70_000), track(fix(), ids("ann")))
    found, problem = read_until_broken(source(tmp_path, "a.gpx", text))
    assert len(found) == 1
    assert found[0].user is None
    assert isinstance(problem, UnreadableFileError)
    assert "has a user" in problem.reason
    assert problem.line == 70_005


def test_elements_of_other_namespaces_are_no_ids(tmp_path: Path) -> None:
    text = file(track(fix(), ids("ann", "t1").replace(gpx.NAMESPACE, "urn:other")))
    batch = read(source(tmp_path, "a.gpx", text))
    assert batch.user is None
    assert batch.layout.numbered


# Rows of two users and three traces, interleaved and out of order, in two parts.
ROWS = (
    released(
        [30, 20, 1_500_001, 10],
        [0.00001, -1e-7, 90.0, 3.25],
        [180.0, -1.5e-9, -180.0, 5.5],
        user=["b<&>", "a", "a", "b<&>"],
        trace=["t1", "t1", 2, "t1"],
    ),
    released([5, 0], [-33.5, 40.125], [1.0, 2.0], user=["a", "a"], trace=["t1", 2]),
)


def test_what_is_written_is_gpx(schema: xmlschema.XMLSchema) -> None:
    rows = released([0, 5], [1.0, 2.0], [3.0, 4.0])
    kept = released(
        [0], [1.0], [3.0], ["u"], kept={"a \n\"b'": np.array(["<\x00\r>"], dtype=object)}
    )
    for parts in (ROWS, (rows,), (kept,), ()):
        schema.validate(io.BytesIO(written("gpx", *parts)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("</time><type>hard</type>", "</time><type>hard</type><ele>1</ele>"),
        ('lat="0.00001"', 'lat="1e-05"'),
        ('lon="-180.0"', 'lon="180.0"'),
        ("</desc><bounds", "</desc><desc></desc><bounds"),
        ("<trkseg>", "<trkseg><name>a</name>"),
    ],
)
def test_the_schema_sees_what_is_not_gpx(schema: xmlschema.XMLSchema, old: str, new: str) -> None:
    text = written("gpx", *ROWS).decode()
    assert old in text
    assert not schema.is_valid(io.BytesIO(text.replace(old, new, 1).encode()))


def test_tracks_come_as_they_first_appear_and_points_in_order_of_time() -> None:
    found = gpxpy.parse(written("gpx", *ROWS).decode())
    assert [t.name for t in found.tracks] == ["t1", "t1", "2"]
    assert [len(t.segments) for t in found.tracks] == [1, 1, 1]
    points = [
        [(p.latitude, p.longitude, p.time) for p in t.segments[0].points] for t in found.tracks
    ]
    at = [datetime(1970, 1, 1, 0, 0, us // 1_000_000, us % 1_000_000, UTC) for us in range(31)]
    late = datetime(1970, 1, 1, 0, 0, 1, 500_001, UTC)
    assert points == [
        [(3.25, 5.5, at[10]), (0.00001, -180.0, at[30])],
        [(-33.5, 1.0, at[5]), (-1e-7, -1.5e-9, at[20])],
        [(40.125, 2.0, at[0]), (90.0, -180.0, late)],
    ]
    assert {p.type for t in found.tracks for p in t.segments[0].points} == {
        "hard",
        "easy",
        "untested",
    }
    bounds = found.bounds
    assert bounds is not None
    assert (bounds.min_latitude, bounds.max_latitude) == (-33.5, 90.0)
    assert (bounds.min_longitude, bounds.max_longitude) == (-180.0, 5.5)


def test_the_promise_is_told_and_read_again(tmp_path: Path) -> None:
    content = written("gpx", *ROWS)
    top = ET.fromstring(content)  # noqa: S314  # our own text
    assert top.findtext("metadata/desc", namespaces=SPACE) == PROMISE.statement
    told = top.find("metadata/extensions/hereish:promise", SPACE)
    assert told is not None
    assert told.attrib == {
        "eps-per-m": "0.023",
        "window": "day",
        "time-zone": "Europe/Berlin",
        "private": "true",
    }
    assert gpx.read_guarantee(source(tmp_path, "a.gpx", content)) == PROMISE
    assert gpx.read_guarantee(source(tmp_path, "b.gpx", GPX)) is None


def test_nothing_but_the_rows_is_written() -> None:
    """Every element and attribute of an output, so that a new one is noticed here."""
    top = ET.fromstring(written("gpx", *ROWS))  # noqa: S314  # our own text
    names = {element.tag.rpartition("}")[2] for element in top.iter()}
    assert names == {
        "gpx", "metadata", "desc", "bounds", "extensions", "promise", "trk", "name", "user",
        "trace", "trkseg", "trkpt", "time", "type", "cost",
    }  # fmt: skip
    attributes = {name for element in top.findall(".//{*}trkpt") for name in element.attrib}
    assert attributes == {"lat", "lon"}


def test_without_points_there_are_no_bounds_and_no_tracks(tmp_path: Path) -> None:
    nothing = released([], [], [])
    for content in (written("gpx"), written("gpx", nothing)):
        found = gpxpy.parse(content.decode())
        assert found.bounds is None
        assert found.tracks == []
        assert unreadable(source(tmp_path, "a.gpx", content))[0] == "it has no track points"


def test_kept_columns_are_written_and_read_again(tmp_path: Path) -> None:
    kept: dict[str, Any] = {
        "ele": np.array([1.5, np.nan]),
        "mode": np.array(["walk & <run>", None], dtype=object),
        "seen": np.array(["2024-05-01T08:00:00.5", "NaT"], dtype="datetime64[ns]"),
    }
    rows = released([0, 1], [1.0, 2.0], [3.0, 4.0], kept=kept)
    other = released([2], [1.0], [3.0])
    again = source(tmp_path, "a.gpx", written("gpx", rows, other))
    batch = read(again, Columns(keep=("ele", "mode", "seen")))
    assert batch.kept["ele"].tolist() == ["1.5", None, None]
    assert batch.kept["mode"].tolist() == ["walk & <run>", None, None]
    assert batch.kept["seen"].tolist() == ["2024-05-01T08:00:00.500000000", None, None]
    assert read(again).kept == {}


def test_characters_that_xml_forbids_are_replaced(tmp_path: Path) -> None:
    rows = released([0], [1.0], [2.0], user=["a\x00\x1f\ud800\ufffe\U0001f600"], trace=["\t \r\n<"])
    batch = read(source(tmp_path, "a.gpx", written("gpx", rows)))
    assert batch.user is not None
    assert batch.trace is not None
    assert batch.user.values() == ["a\ufffd\ufffd\ufffd\ufffd\U0001f600"]
    assert batch.trace.values() == ["\t \r\n<"]


def same(batch: RowBatch, rows: ReleasedRows) -> None:
    """A batch has these rows, with ids as text."""

    def listed(at_us: Any, lat: Any, lon: Any, user: Ids | None, trace: Ids | None) -> list[Any]:
        who = [""] * len(at_us) if user is None else list(map(str, user.values()))
        which = [""] * len(at_us) if trace is None else list(map(str, trace.values()))
        return sorted(zip(who, which, at_us.tolist(), lat.tolist(), lon.tolist(), strict=True))

    assert (batch.fault == Fault.NONE).all()
    assert listed(batch.at_us, batch.lat, batch.lon, batch.user, batch.trace) == listed(
        rows.at_us, rows.lat, rows.lon, rows.user, rows.trace
    )


xml_text = st.text(
    st.characters(min_codepoint=32, exclude_categories=["Cs"], exclude_characters="\ufffe\uffff"),
    min_size=1,
).filter(str.strip)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.integers(-(10**15), 10**17),
            st.floats(-90, 90),
            st.floats(-180, 180, exclude_max=True),
            xml_text,
            xml_text | st.integers(1, 9),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any]
) -> None:
    at_us, lat, lon, user, trace = zip(*rows, strict=True)
    given = released(at_us, lat, lon, user, trace)
    folder = tmp_path_factory.mktemp("again")
    same(read(source(folder, "a.gpx", written("gpx", given))), given)


def test_real_fixes_are_written_and_read_again(tmp_path: Path, schema: xmlschema.XMLSchema) -> None:
    if not GEOLIFE.is_file():
        pytest.skip(f"needs {GEOLIFE.name}, which is not ours to ship")
    table = pq.ParquetFile(GEOLIFE).read_row_group(0).slice(0, 5_000)
    at_us = table["at"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    rows = released(
        at_us, table["lat"].to_pylist(), table["lon"].to_pylist(), table["user"].to_pylist()
    )
    content = written("gpx", *(rows.take(np.arange(i, i + 1000)) for i in range(0, 5000, 1000)))
    batch = read(source(tmp_path, "a.gpx", content))
    same(replace(batch, trace=None), rows)
    assert gpxpy.parse(content.decode()).get_points_no() == len(rows)
    schema.validate(io.BytesIO(content))
