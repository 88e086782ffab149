"""GeoJSON: points with a time each, or lines with the times of their positions.

A LineString is a trace, and so is a MultiLineString with all its lines. Their times are in the
property `coordTimes`, `times` or `coordinateProperties.times`. Lines without a trace id are given
numbers in the order of their users and times; points without one, in a file that has traces, are
the trace 0 of their user.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from hereish.errors import ParameterError
from hereish.traces.columns import Columns, Layout, describe_names
from hereish.traces.faults import (
    Fault,
    NoPointsError,
    UnreadableFileError,
    damaged_file,
    empty_file,
    no_times,
)
from hereish.traces.formats._bbox import BoundingBox
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._encodings import mixed_encodings, utf16_encoding
from hereish.traces.formats._json_kinds import json_kind
from hereish.traces.formats._markup import (
    BLOCK_BYTES,
    ROWS,
    Row,
    TraceGroups,
    batch_from_rows,
    check_keep,
    compact_json,
    json_scalar,
    json_values,
    merge_file,
)
from hereish.traces.formats._places import parse_position
from hereish.traces.formats._times import TimeParser, format_utc
from hereish.traces.formats.base import Format, Source, Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import ReleasedRows, RowBatch

_POINT, _LINE, _LINES = "Point", "LineString", "MultiLineString"
_GEOMETRIES = (_POINT, "MultiPoint", _LINE, _LINES, "Polygon", "MultiPolygon", "GeometryCollection")
_WGS84 = re.compile(r"(urn:ogc:def:crs:)?(OGC:([\d.]*:)?CRS84|EPSG:([\d.]*:)?4326)", re.IGNORECASE)
_LISTS = {"kind": "kinds", "cost": "costs"}  # their names in a line, where they are lists
_TIMES = ("coordTimes", "times", "datetimes")  # lists of times, one per position
# Errors list names of properties, but none that looks like a coordinate.
_PLACE = re.compile(r"\d[.,]\d\d|\d{5}")


class _Feature(NamedTuple):
    number: int
    shape: object  # None if the feature cannot be read
    coordinates: list[Any]
    properties: Mapping[str, Any]


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The points of all features; the `line` of a row is the number of its feature."""
    features = list(_parse_features(parse_json(source)))
    reader = _FeatureReader(features, columns)
    features_with_places = any(feature.shape is not None for feature in features)
    all_rows = (row for feature in features for row in reader.rows(feature))
    batches = []
    while rows := list(itertools.islice(all_rows, ROWS)):
        batches.append(reader.batch(rows, rows[-1].line / len(features)))
    if not batches:
        raise NoPointsError("it has no points")
    if features_with_places and not reader.any_time:
        raise no_times()
    yield merge_file(batches, reader.times)


def parse_json(source: Source) -> Any:
    """The JSON of a file that is read as a whole."""
    with SourceBytes(source) as file:
        data = b"".join(file.blocks(BLOCK_BYTES))
    if not data.strip():
        raise empty_file("a FeatureCollection of features with times")
    encoding = utf16_encoding(data)
    if encoding is not None:
        data = _as_utf8(data, encoding)
    # These errors hold the text of the file, so nothing is raised while they are handled.
    try:
        return json.loads(
            data.removeprefix(codecs.BOM_UTF8).decode(), parse_constant=_ignore_constant
        )
    except UnicodeDecodeError as error:
        problem = UnreadableFileError(
            "it is not UTF-8",
            data.count(b"\n", 0, error.start) + 1,
            expected="JSON in UTF-8 or UTF-16",
            remedy="save it as UTF-8",
        )
    except json.JSONDecodeError as error:
        early = not error.doc[error.pos :].strip()
        problem = damaged_file(
            "it ends too early" if early else "its JSON is broken", "JSON", error.lineno
        )
    except RecursionError:
        problem = damaged_file("it is nested too deeply", "GeoJSON or MF-JSON")
    except ValueError:  # Python's limit for digits
        problem = damaged_file("one of its numbers is too long", "degrees and times")
    raise problem


def _as_utf8(data: bytes, encoding: str) -> bytes:
    # The error of a failed decoding holds the text, so nothing is raised while it is handled.
    with contextlib.suppress(UnicodeError):
        return data.decode(encoding).encode()
    raise mixed_encodings()


def _ignore_constant(_: str) -> None:
    """NaN and Infinity, which occur although they are not JSON, are read as null."""


def _parse_features(top: Any) -> Iterator[_Feature]:
    kind = top.get("type") if isinstance(top, dict) else None
    if kind in _GEOMETRIES:
        raise UnreadableFileError(
            "it is a geometry alone, which has no times",
            expected="a Feature with times, or a FeatureCollection",
            remedy="export it with times",
        )
    if kind not in ("FeatureCollection", "Feature"):
        raise UnreadableFileError(
            "it is not GeoJSON, nor JSON of another kind that is read",
            expected="GeoJSON, MF-JSON, Google's location history, or a list of objects with a "
            "place and a time each",
            remedy="export it as one of these",
        )
    if "crs" in top and not is_wgs84(top["crs"]):
        raise UnreadableFileError(
            "its crs is not WGS 84 longitude and latitude",
            expected="WGS 84, as GeoJSON requires",
            remedy="convert it first: ogr2ogr -t_srs EPSG:4326 out.geojson in.geojson",
        )
    features = [top] if kind == "Feature" else top.get("features")
    if not isinstance(features, list):
        raise without_features()
    for number, feature in enumerate(features, start=1):
        yield _parse_feature(number, feature)


def without_features() -> UnreadableFileError:
    """Of a FeatureCollection whose features are no list."""
    return damaged_file("it is a FeatureCollection without features", "a list of features")


def is_wgs84(crs: Any) -> bool:
    """Whether a `crs` is longitude and latitude in WGS 84."""
    properties = crs.get("properties") if isinstance(crs, dict) else None
    name = properties.get("name") if isinstance(properties, dict) else None
    return isinstance(name, str) and _WGS84.fullmatch(name) is not None


def _parse_feature(number: int, value: Any) -> _Feature:
    if not isinstance(value, dict) or value.get("type") != "Feature":
        return _Feature(number, None, [], {})
    properties, geometry = value.get("properties"), value.get("geometry")
    known = properties if isinstance(properties, dict) else {}
    shape = geometry.get("type") if isinstance(geometry, dict) else None
    coordinates = geometry.get("coordinates") if isinstance(geometry, dict) else None
    if shape not in (_POINT, _LINE, _LINES) or not isinstance(coordinates, list):
        return _Feature(number, None, [], known)
    return _Feature(number, shape, coordinates, known)


class _FeatureReader:
    """Finds the properties that are read, and turns features into rows."""

    def __init__(self, features: Sequence[_Feature], columns: Columns) -> None:
        points = [feature for feature in features if feature.shape == _POINT]
        lines = any(feature.shape in (_LINE, _LINES) for feature in features)
        names = _property_names(features, columns)
        self._user = columns.find("user", names)
        self._trace = columns.find("trace", names)
        self._time = columns.time and columns.find("time", names)
        if points:
            self._time = columns.require("time", _property_names(points, columns))
        self._has_traces = lines or self._trace is not None
        self._layout = Layout(
            user=self._user or "user",
            trace=self._trace or "trace",
            time=self._time or "time",
            numbered=lines and self._trace is None,
            lines=lines,
        )
        self.times = TimeParser(columns.zone, columns.time_format)
        self.any_time = False
        self._keep = columns.keep
        layout = self._layout
        reserved = ("coordTimes", *_LISTS.values()) if lines else ()
        check_keep(self._keep, (layout.user, layout.trace, layout.time, *reserved))
        for name in self._keep:
            if name not in names and _LISTS.get(name) not in names:
                raise ParameterError(
                    f"there is no property {name!r} to keep; found {describe_names(names)}"
                )

    def batch(self, rows: Sequence[Row], done: float) -> RowBatch:
        has_users = self._user is not None
        return batch_from_rows(rows, self._keep, self._layout, has_users=has_users, done=done)

    def rows(self, feature: _Feature) -> Iterator[Row]:
        user, trace = self._ids(feature)
        positions = self._positions(feature)
        known = feature.properties
        values = [known.get(name, known.get(_LISTS.get(name, ""))) for name in self._keep]
        columns = [_spread(value, len(positions)) for value in values]
        for i, (position, time) in enumerate(positions):
            at, lat, lon = self._parse_position(position, time)
            kept = [column[i] for column in columns]
            yield Row.parsed(feature.number, at, lat, lon, user, trace, kept)

    def _ids(self, feature: _Feature) -> tuple[str | int | None, str | int | None]:
        user = trace = None
        if self._user is not None:
            user = _parse_user(feature.properties.get(self._user))
        if self._trace is not None:
            trace = json_scalar(feature.properties.get(self._trace))
        if isinstance(trace, (bool, float)):
            trace = str(trace)
        if trace is None and self._has_traces:
            trace = feature.number if feature.shape in (_LINE, _LINES) else 0
        return user, trace

    def _positions(self, feature: _Feature) -> list[tuple[Any, Any]]:
        """The positions of a feature, each with its time; None where it cannot be read."""
        places, known = feature.coordinates, feature.properties
        if feature.shape == _POINT:
            return [(places, known.get(self._time or ""))]
        if feature.shape == _LINE:
            return _pair(places, self._times(known))
        if feature.shape == _LINES:
            lines = _pair(places, self._times(known))
            return [pair for line, times in lines for pair in _pair(line, times)]
        return [(None, None)]

    def _times(self, known: Mapping[str, Any]) -> object:
        nested = known.get("coordinateProperties")
        candidates = [known.get(name) for name in (self._time or "", *_TIMES)]
        candidates.append(nested.get("times") if isinstance(nested, dict) else None)
        return next((times for times in candidates if isinstance(times, list)), None)

    def _parse_position(
        self, position: Any, time: Any
    ) -> tuple[int | Fault, float | None, float | None]:
        known = isinstance(time, (str, int, float)) and not isinstance(time, bool)
        self.any_time |= known
        at = self.times.parse(time if known else None)
        if not isinstance(position, list) or len(position) < 2:
            return Fault.LINE, None, None
        return at, *parse_position(position)


def _property_names(features: Iterable[_Feature], columns: Columns) -> list[str]:
    """The names of all properties, without those that errors must not list."""
    requested = (columns.user, columns.trace, columns.time, *columns.keep)
    names = dict.fromkeys(name for feature in features for name in feature.properties)
    return [name for name in names if name in requested or not _PLACE.search(name)]


def _pair(places: Any, times: Any) -> list[tuple[Any, Any]]:
    """Each place with its time; no times at all unless there is one for each place."""
    if not isinstance(places, list):
        return [(None, None)]
    if not isinstance(times, list) or len(times) != len(places):
        times = [None] * len(places)
    return list(zip(places, times, strict=True))


def _parse_user(value: Any) -> str | int | None:
    """A user's id as given, None if it is not an id."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    return None if isinstance(value, str) and not value.strip() else json_scalar(value)


def _spread(value: Any, positions: int) -> list[Any]:
    """A property per position: its items if it is a list of that length, or the same for all."""
    if positions != 1 and isinstance(value, list) and len(value) == positions:
        return [json_scalar(item) for item in value]
    return [json_scalar(value)] * positions


def read_guarantee(source: Source) -> GuaranteeMetadata | None:
    """The guarantee in a file that was written here; None if there is none."""
    top = parse_json(source)
    return GuaranteeMetadata.from_dict(top.get("hereish") if isinstance(top, dict) else None)


def open_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """One Point per report as they come, or where the layout has lines, one line per trace."""
    return (_LineWriter if layout.lines else _PointWriter)(file, layout, guarantee)


def sniff(head: bytes) -> bool:
    """Whether a .json file begins like GeoJSON; or like no JSON at all, which will be an error."""
    return json_kind(head) in ("geojson", "none")


FORMAT = Format(
    name="geojson",
    extensions=(".geojson", ".json"),
    read=read,
    open_writer=open_writer,
    read_guarantee=read_guarantee,
    sniff=sniff,
    line_word="feature",
)


class _PointWriter(Writer):
    """A FeatureCollection; the guarantee comes first, the box of the released points last."""

    def __init__(self, file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> None:
        self._file = file
        self._layout = layout
        self._bbox = BoundingBox()
        settings = {name: json_scalar(value) for name, value in guarantee.as_dict().items()}
        self._write_text(
            f'{{"type":"FeatureCollection","hereish":{compact_json(settings)},"features":['
        )
        self._separator = "\n"

    def write(self, rows: ReleasedRows) -> None:
        self._bbox.add(rows.lat, rows.lon)
        columns = (rows.user_values(), rows.trace_values(), _reports(rows))
        for user, trace, report in zip(*columns, strict=True):
            self._write_point(user, trace, report)

    def finish(self) -> None:
        bbox = "" if self._bbox.sides is None else f',"bbox":{compact_json(self._bbox.sides)}'
        self._write_text(f"\n]{bbox}}}\n")
        self._file.flush()

    def _write_point(self, user: Any, trace: Any, report: _Report) -> None:
        own = {self._layout.time: report.time, "kind": report.kind, "cost": report.cost}
        self._write_feature(_POINT, report.position, user, trace, own, report.kept)

    def _write_feature(
        self,
        shape: str,
        coordinates: Sequence[Any],
        user: Any,
        trace: Any,
        own: Mapping[str, Any],
        kept: Mapping[str, Any],
    ) -> None:
        ids = {self._layout.user: user, self._layout.trace: trace}
        known = {name: value for name, value in ids.items() if value is not None}
        feature = {
            "type": "Feature",
            "geometry": {"type": shape, "coordinates": coordinates},
            "properties": {**known, **own, **kept},
        }
        self._write_text(self._separator + compact_json(feature))
        self._separator = ",\n"

    def _write_text(self, text: str) -> None:
        self._file.write(text.encode(errors="replace"))


class _LineWriter(_PointWriter):
    """The same, with the rows in memory until all are there."""

    def __init__(self, file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> None:
        super().__init__(file, layout, guarantee)
        self._groups = TraceGroups()

    def write(self, rows: ReleasedRows) -> None:
        self._bbox.add(rows.lat, rows.lon)
        self._groups.add(rows)

    def finish(self) -> None:
        for user, trace, rows in self._groups.groups():
            reports = list(_reports(rows))
            if len(reports) == 1:  # a line has two positions at least
                self._write_point(user, trace, reports[0])
                continue
            own = {
                "coordTimes": [report.time for report in reports],
                "kinds": [report.kind for report in reports],
                "costs": [report.cost for report in reports],
            }
            kept = {name: [report.kept[name] for report in reports] for name in rows.kept}
            positions = [report.position for report in reports]
            self._write_feature(_LINE, positions, user, trace, own, kept)
        super().finish()


class _Report(NamedTuple):
    """A released row as JSON has it."""

    position: list[float]
    time: str
    kind: str
    cost: float
    kept: Mapping[str, Any]


def _reports(rows: ReleasedRows) -> Iterator[_Report]:
    columns = [json_values(column) for column in rows.kept.values()]
    kept = zip(*columns, strict=True) if columns else [()] * len(rows)
    places = np.column_stack([rows.lon, rows.lat]).tolist()
    values = (places, format_utc(rows.at_us), rows.kind_names(), rows.cost.tolist(), kept)
    for position, time, kind, cost, more in zip(*values, strict=True):
        yield _Report(position, time, kind, cost, dict(zip(rows.kept, more, strict=True)))
