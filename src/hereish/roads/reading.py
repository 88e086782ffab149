"""Road files: OpenStreetMap's, GeoJSON, CSV or JSON of ways, and our own .npz.

Which file is read must not depend on where somebody is (docs/roads.md).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Collection, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hereish._array_files import read_arrays
from hereish.errors import ParameterError
from hereish.roads.building import graph_from_lines
from hereish.roads.graph import RoadGraph

_FORMAT = "hereish roads 1"
_SUFFIXES = ".osm.pbf, .pbf, .osm, .geojson, .json, .csv (the last three also .gz) or .npz"
_WAY_COLUMNS = ("way", "way_id", "way_idx", "line", "id")
_LAT_COLUMNS, _LON_COLUMNS = ("lat", "latitude", "y"), ("lon", "lng", "longitude", "x")
# Values of OpenStreetMap's key highway on which nobody goes from one place to another.
NO_ROADS = frozenset(
    {
        *("abandoned", "construction", "corridor", "elevator", "planned", "platform"),
        *("proposed", "raceway", "razed", "rest_area", "services"),
    }
)
# Unpacked bytes per packed byte; texts of roads have about five. Small files may have any.
_MOST_RATIO = 250
_RATIO_FROM_BYTES = 64 << 20
_Line = list[tuple[float, float]]  # latitudes and longitudes


def read_roads(
    path: str | Path,
    *,
    name: str | None = None,
    spacing_m: float = 100.0,
    kinds: Collection[str] | None = None,
    licence: str = "",
) -> RoadGraph:
    """The road network of a file, by its suffix.

    OpenStreetMap's files (.osm.pbf, .osm) need `pip install 'hereish[roads]'`; of them the ways
    with one of these `kinds` of highway are taken ("residential", …), or all that people use.
    GeoJSON: lines and lines of lines, whatever else is in it is passed over. CSV: the columns way,
    lat and lon, the points of a way in their order. JSON: an object of ways, each a list of
    [latitude, longitude].
    """
    path = Path(path)
    suffix = "".join(path.suffixes[-2:] if path.suffix == ".gz" else path.suffixes[-1:]).lower()
    if suffix == ".npz":
        return load_roads(path)
    readers = {".geojson": _read_json, ".json": _read_json, ".csv": _read_csv}
    try:
        if suffix in (".pbf", ".osm"):
            lines = _read_osm(path, kinds)
        elif (reader := readers.get(suffix.removesuffix(".gz"))) is not None:
            if kinds is not None:
                raise ParameterError("kinds of roads are known in OpenStreetMap's files only")
            lines = list(reader(path))
        else:
            raise ParameterError(f"{path.name}: a road file ends with {_SUFFIXES}")
    except OSError as error:
        raise ParameterError(f"{path}: cannot be read ({error.strerror or error})") from None
    except csv.Error:  # such as a field without an end
        raise ParameterError(f"{path}: expected a CSV of ways, found something else") from None
    try:
        return graph_from_lines(lines, name=name or path.name, spacing_m=spacing_m, licence=licence)
    except ParameterError as error:
        raise ParameterError(f"{path}: {error}") from None


def save_roads(graph: RoadGraph, path: str | Path) -> None:
    """Write a road network to one .npz file, with its name and its licence."""
    with Path(path).open("wb") as file:
        np.savez_compressed(
            file,
            format=np.array(_FORMAT),
            name=np.array(graph.name),
            licence=np.array(graph.licence),
            nodes_e7=graph.nodes_e7,
            edges=graph.edges,
            lengths_cm=graph.lengths_cm,
        )


def load_roads(path: str | Path) -> RoadGraph:
    """A road network that `save_roads` wrote."""
    wanted = {"name", "licence", "nodes_e7", "edges", "lengths_cm"}
    held = read_arrays(path, {"format", *wanted})
    if str(held.get("format")) != _FORMAT or not wanted <= held.keys():
        raise ParameterError(f"{path}: expected roads that hereish saved, found something else")
    return RoadGraph(
        str(held["name"]),
        held["nodes_e7"],
        held["edges"],
        held["lengths_cm"],
        str(held["licence"]),
    )


def _read_text(path: Path) -> str:
    held = path.read_bytes()
    most = max(_RATIO_FROM_BYTES, _MOST_RATIO * len(held))
    try:
        if path.suffix.lower() == ".gz":
            with gzip.GzipFile(fileobj=io.BytesIO(held)) as packed:
                held = packed.read(most + 1)
        text = held.decode("utf-8-sig")
    except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile):
        raise ParameterError(f"{path}: expected a text, found something else") from None
    if len(held) > most:
        raise ParameterError(f"{path}: it unpacks to more than {_MOST_RATIO} times its size")
    return text


def _read_csv(path: Path) -> Iterator[_Line]:
    rows = csv.reader(_read_text(path).splitlines())
    header = [column.strip().lower() for column in next(rows, [])]
    at = []
    for names in (_WAY_COLUMNS, _LAT_COLUMNS, _LON_COLUMNS):
        found = [header.index(name) for name in names if name in header]
        if not found:
            raise ParameterError(
                f"{path}: a CSV of ways needs the columns way, lat and lon, found {header}"
            )
        at.append(found[0])
    way, lat, lon = at
    line: _Line = []
    current = None
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        try:
            point = float(row[lat]), float(row[lon])
            if row[way] != current and line:
                yield line
                line = []
            current = row[way]
        except (ValueError, IndexError):
            raise ParameterError(f"{path}: line {number} is not a point of a way") from None
        line.append(point)
    if line:
        yield line


def _read_json(path: Path) -> Iterator[_Line]:
    try:
        held = json.loads(_read_text(path))
        if isinstance(held, dict) and "type" not in held:
            yield from ([(float(lat), float(lon)) for lat, lon in way] for way in held.values())
            return
        yield from _geojson_lines(held)
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError) as error:
        if isinstance(error, ParameterError):
            raise
        raise ParameterError(
            f"{path}: expected GeoJSON, or an object of ways that are lists of [lat, lon], found "
            "something else"
        ) from None


def _geojson_lines(held: Any) -> Iterator[_Line]:
    """Positions of GeoJSON are longitude first, and may have an altitude."""
    kind = held["type"]
    if kind == "FeatureCollection":
        for feature in held["features"]:
            yield from _geojson_lines(feature)
    elif kind == "Feature":
        if held["geometry"] is not None:
            yield from _geojson_lines(held["geometry"])
    elif kind == "GeometryCollection":
        for geometry in held["geometries"]:
            yield from _geojson_lines(geometry)
    elif kind in ("LineString", "MultiLineString"):
        lines = held["coordinates"]
        for line in [lines] if kind == "LineString" else lines:
            yield [(float(position[1]), float(position[0])) for position in line]


def _read_osm(path: Path, kinds: Collection[str] | None) -> list[_Line]:
    try:
        osmium = import_module("osmium")
    except ImportError:
        raise ParameterError(
            "OpenStreetMap's files need more: pip install 'hereish[roads]'"
        ) from None
    if not path.is_file():
        raise FileNotFoundError(2, "No such file or directory")
    lines: list[_Line] = []
    try:
        ways = osmium.FileProcessor(str(path)).with_locations()
        for way in ways.with_filter(osmium.filter.KeyFilter("highway")):
            if not way.is_way():
                continue
            kind = way.tags["highway"]
            if (kind in NO_ROADS) if kinds is None else (kind not in kinds):
                continue
            line: _Line = []
            for node in way.nodes:
                if node.location.valid():
                    line.append((node.location.lat, node.location.lon))
                elif line:  # beyond the edge of an extract
                    lines.append(line)
                    line = []
            if line:
                lines.append(line)
    except (RuntimeError, ValueError):
        raise ParameterError(f"{path}: cannot be read as a file of OpenStreetMap") from None
    return lines
