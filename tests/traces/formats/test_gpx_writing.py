"""GPX is written as its schema demands, and read back."""

from __future__ import annotations

import importlib.metadata
import io
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import gpxpy
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xmlschema
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish.traces.columns import Columns
from hereish.traces.faults import Fault
from hereish.traces.formats import gpx
from hereish.traces.table import Ids, ReleasedRows, RowBatch
from tests.support.gpx_samples import SPACE
from tests.support.markup_samples import (
    GPX,
    GUARANTEE,
    read,
    released,
    source,
    unreadable,
    written,
)
from tests.support.paths import GEOLIFE


@pytest.fixture(scope="module")
def schema() -> xmlschema.XMLSchema:
    """GPX 1.1 as it was published, from a package that ships it."""
    files = importlib.metadata.files("gpx-player") or []
    path = next(file for file in files if file.name == "gpx_1.1.xsd").locate()
    return xmlschema.XMLSchema(str(path), allow="local")


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
    assert top.findtext("metadata/desc", namespaces=SPACE) == GUARANTEE.statement
    told = top.find("metadata/extensions/hereish:promise", SPACE)
    assert told is not None
    assert told.attrib == {
        "eps-per-m": "0.023",
        "window": "day",
        "time-zone": "Europe/Berlin",
        "private": "true",
    }
    assert gpx.read_guarantee(source(tmp_path, "a.gpx", content)) == GUARANTEE
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
