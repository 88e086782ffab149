"""Road files of every format, made here and real ones, and files that are none."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hereish import ParameterError
from hereish.roads import RoadGraph, load_roads, read_roads, save_roads
from tests.support.towns import HELSINKI, ROADS, village

# Two streets that meet, as latitudes and longitudes.
STREETS = [[(60.0, 25.0), (60.001, 25.0), (60.002, 25.0)], [(60.001, 25.0), (60.001, 25.003)]]
POSITIONS = [[[lon, lat, 12.0] for lat, lon in street] for street in STREETS]
OSM = """<?xml version="1.0"?><osm version="0.6">
<node id="1" lat="60.0" lon="25.0" version="1"/><node id="2" lat="60.001" lon="25.0" version="1"/>
<node id="3" lat="60.002" lon="25.0" version="1"/>
<node id="4" lat="60.001" lon="25.003" version="1"/>
<way id="1" version="1"><nd ref="1"/><nd ref="2"/><nd ref="3"/><tag k="highway" v="primary"/></way>
<way id="2" version="1"><nd ref="2"/><nd ref="4"/><nd ref="99"/>
<tag k="highway" v="footway"/></way>
<way id="3" version="1"><nd ref="3"/><nd ref="4"/><tag k="highway" v="proposed"/></way>
<way id="4" version="1"><nd ref="1"/><nd ref="4"/><tag k="building" v="yes"/></way>
</osm>"""


def csv_text() -> str:
    rows = [f"{way},{lat},{lon}" for way, street in enumerate(STREETS) for lat, lon in street]
    return "\n".join(["way_idx,lat,lon", *rows, ""])


def geojson(geometries: list[Any]) -> str:
    features = [{"type": "Feature", "properties": {}, "geometry": g} for g in geometries]
    return json.dumps({"type": "FeatureCollection", "features": features})


FILES = {
    "ways.csv": csv_text(),
    "ways.json": json.dumps({"17": STREETS[0], "4": STREETS[1]}),
    "lines.geojson": geojson(
        [{"type": "LineString", "coordinates": line} for line in POSITIONS]
        + [None, {"type": "Point", "coordinates": [25.0, 60.0]}]
    ),
    "multi.geojson": json.dumps(
        {
            "type": "GeometryCollection",
            "geometries": [{"type": "MultiLineString", "coordinates": POSITIONS}],
        }
    ),
    "extract.osm": OSM,
}


def write(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text(FILES[name], encoding="utf-8")
    return path


def same_roads(one: RoadGraph, other: RoadGraph) -> bool:
    return one.digest == other.digest


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_network(name: str, tmp_path: Path) -> None:
    expected = read_roads(write(tmp_path, "ways.csv"))
    found = read_roads(write(tmp_path, name), licence="public domain")
    assert same_roads(found, expected)
    assert (found.name, found.licence) == (name, "public domain")
    assert len(found) == 3 + len(found.edges) - 2  # a tree


@pytest.mark.parametrize("name", ["ways.csv", "ways.json", "lines.geojson"])
def test_compressed_files_are_read_as_they_are(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, name)
    packed = path.with_name(f"{name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert same_roads(read_roads(packed), read_roads(path))


def test_kinds_of_highways_can_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path, "extract.osm")
    cars = read_roads(path, kinds=("primary",))
    assert cars.lengths_cm.sum() < read_roads(path).lengths_cm.sum()
    with pytest.raises(ParameterError, match="found no road"):
        read_roads(path, kinds=("motorway",))
    with pytest.raises(ParameterError, match=r"in OpenStreetMap's files only"):
        read_roads(write(tmp_path, "ways.csv"), kinds=("primary",))


def test_spacing_is_passed_on(tmp_path: Path) -> None:
    path = write(tmp_path, "ways.csv")
    assert len(read_roads(path, spacing_m=10.0)) > 3 * len(read_roads(path))


def test_a_saved_network_comes_back_the_same(tmp_path: Path) -> None:
    save_roads(village(), tmp_path / "village.npz")
    assert load_roads(tmp_path / "village.npz") == village()
    assert read_roads(tmp_path / "village.npz") == village()


def test_osm_without_its_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "osmium", None)
    with pytest.raises(ParameterError, match=r"pip install 'hereish\[roads\]'"):
        read_roads(write(tmp_path, "extract.osm"))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.csv", b"lat,lon\n1,2\n", "needs the columns way, lat and lon"),
        ("a.csv", b"", "needs the columns"),
        ("a.csv", b"way,lat,lon\n1,60,25\n1,x,25\n", "line 3 is not a point"),
        ("a.csv", b"way,lat,lon\n1,60,25\n1,60\n", "line 3 is not a point"),
        ("a.csv", b"\xff\xfe\x00", "expected a text"),
        ("a.csv.gz", b"way,lat,lon\n", "expected a text"),
        ("a.csv.gz", gzip.compress(b"way,lat,lon\n")[:11] + bytes(99), "expected a text"),
        ("a.json.gz", gzip.compress(bytes(1 << 20)), "unpacks to more than 250 times"),
        ("a.json", b'{"1": [[60, %s]]}' % (b"9" * 400), "expected GeoJSON"),
        ("a.json", b"[1, 2]", "expected GeoJSON"),
        ("a.json", b'{"1": [[60, 25, 3, 4]]}', "expected GeoJSON"),
        ("a.json", b"{", "expected GeoJSON"),
        ("a.geojson", b'{"type": "FeatureCollection"}', "expected GeoJSON"),
        ("a.geojson", b'{"type": "Point", "coordinates": [1, 2]}', "there are no lines"),
        ("a.osm", b"<osm", "as a file of OpenStreetMap"),
        ("a.osm.pbf", b"nonsense", "as a file of OpenStreetMap"),
        ("a.npz", b"nonsense", "expected roads that hereish saved"),
        ("a.txt", b"", "a road file ends with"),
    ],
)
def test_what_is_no_road_file_is_refused(
    name: str, content: bytes, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hereish.roads.reading._RATIO_FROM_BYTES", 1 << 10)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ParameterError, match=reason):
        read_roads(tmp_path / name)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.geojson", "a.osm.pbf", "a.npz"])
def test_a_file_that_is_not_there_is_said_to_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="No such file"):
        read_roads(tmp_path / name)


@pytest.mark.skipif(not HELSINKI.exists(), reason="needs the data beside the repository")
@pytest.mark.parametrize(
    ("name", "nodes", "kilometres"),
    [
        ("helsinki.osm.pbf", (2_000, 4_000), (80, 150)),
        ("sf_ways.csv.gz", (45_000, 55_000), (2_900, 3_500)),
        ("beijing_5thring.json.gz", (65_000, 80_000), (5_500, 6_500)),
    ],
)
def test_real_networks_are_read(
    name: str, nodes: tuple[int, int], kilometres: tuple[int, int]
) -> None:
    graph = read_roads(ROADS / name)
    assert nodes[0] < len(graph) < nodes[1]
    assert kilometres[0] < graph.lengths_cm.sum() / 1e5 < kilometres[1]
    assert graph.directness >= 1.0 - 1e-9
    assert np.quantile(graph.lengths_cm, 0.99) <= 10_001


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "text.geojson",
            '{"type": "FeatureCollection", "features": [{"geometry": {"type": "LineString", '
            '"coordinates": [[2.123456, 48.654321], "x"]}}]}',
        ),
        ("long.csv", "x" * 1_000_000),
        ("array.npz", "no arrays"),
    ],
)
def test_what_is_no_road_file_is_refused_without_its_places(
    tmp_path: Path, name: str, text: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ParameterError, match="expected") as refused:
        read_roads(path)
    assert "48.65" not in str(refused.value)
