"""GeoJSON: Points with a time each, or lines with the times of their positions.

A LineString is a trace, and so is a MultiLineString with all its lines. Their times are in the
property `coordTimes`, `times` or `coordinateProperties.times`. Lines without a trace id are given
numbers in the order of their users and times; points without one, in a file that has traces, are
the trace 0 of their user.
"""

from __future__ import annotations

import codecs
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from hereish.errors import ParameterError
from hereish.traces.discovery import Source
from hereish.traces.formats._bbox import Box
from hereish.traces.formats._markup import (
    ROWS,
    Gathered,
    Row,
    blocks,
    check_keep,
    dumped,
    flat,
    piece_of,
    plain,
    whole_file,
)
from hereish.traces.formats._times import Clock, iso
from hereish.traces.table import (
    KINDS,
    Columns,
    Fault,
    Layout,
    Piece,
    Promise,
    Released,
    Unreadable,
    Writer,
    listed,
)

_POINT, _LINE, _LINES = "Point", "LineString", "MultiLineString"
_GEOMETRIES = (_POINT, "MultiPoint", _LINE, _LINES, "Polygon", "MultiPolygon", "GeometryCollection")
_WGS84 = re.compile(r"(urn:ogc:def:crs:)?(OGC:([\d.]*:)?CRS84|EPSG:([\d.]*:)?4326)", re.IGNORECASE)
_LISTS = {"kind": "kinds", "cost": "costs"}  # what those of reports are called in a line
# Names of properties are told in errors. One that looks like a place is not.
_PLACE = re.compile(r"\d[.,]\d\d|\d{5}")


class _Feature(NamedTuple):
    number: int
    shape: object  # None if the feature cannot be read
    coordinates: list[Any]
    properties: Mapping[str, Any]


def read(source: Source, columns: Columns) -> Iterator[Piece]:
    """The points of all features; the `line` of a row is the number of its feature."""
    features = list(_features(_parsed(source)))
    reader = _Reader(features, columns)
    every = (row for feature in features for row in reader.rows(feature))
    pieces = []
    while rows := list(itertools.islice(every, ROWS)):
        pieces.append(reader.piece(rows, rows[-1].line / len(features)))
    if not pieces:
        raise Unreadable("it has no points")
    yield whole_file(pieces, reader.clock)


def _parsed(source: Source) -> Any:
    data = b"".join(block for block, _ in blocks(source))
    if not data.strip():
        raise Unreadable("it is empty")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Unreadable("it is UTF-16; save it as UTF-8")
    # These errors hold the text of the file, so nothing is raised while they are handled.
    try:
        return json.loads(data.removeprefix(codecs.BOM_UTF8).decode(), parse_constant=_no_number)
    except UnicodeDecodeError as error:
        problem = Unreadable("it is not UTF-8", data.count(b"\n", 0, error.start) + 1)
    except json.JSONDecodeError as error:
        early = not error.doc[error.pos :].strip()
        problem = Unreadable("it ends too early" if early else "its JSON is broken", error.lineno)
    except RecursionError:
        problem = Unreadable("it is nested too deeply")
    except ValueError:  # Python's limit for digits
        problem = Unreadable("one of its numbers is too long")
    raise problem


def _no_number(_: str) -> None:
    """For NaN and Infinity, which are not JSON, but are seen."""


def _features(top: Any) -> Iterator[_Feature]:
    kind = top.get("type") if isinstance(top, dict) else None
    if kind in _GEOMETRIES:
        raise Unreadable("it is a geometry alone, which has no times; make it a Feature with some")
    if kind not in ("FeatureCollection", "Feature"):
        raise Unreadable("it is not GeoJSON")
    if "crs" in top and not _is_wgs84(top["crs"]):
        raise Unreadable("its crs is another than WGS 84 longitude and latitude, as GeoJSON has it")
    features = [top] if kind == "Feature" else top.get("features")
    if not isinstance(features, list):
        raise Unreadable("it is a FeatureCollection without features")
    for number, feature in enumerate(features, start=1):
        yield _feature(number, feature)


def _is_wgs84(crs: Any) -> bool:
    properties = crs.get("properties") if isinstance(crs, dict) else None
    name = properties.get("name") if isinstance(properties, dict) else None
    return isinstance(name, str) and _WGS84.fullmatch(name) is not None


def _feature(number: int, value: Any) -> _Feature:
    if not isinstance(value, dict) or value.get("type") != "Feature":
        return _Feature(number, None, [], {})
    properties, geometry = value.get("properties"), value.get("geometry")
    known = properties if isinstance(properties, dict) else {}
    shape = geometry.get("type") if isinstance(geometry, dict) else None
    coordinates = geometry.get("coordinates") if isinstance(geometry, dict) else None
    if shape not in (_POINT, _LINE, _LINES) or not isinstance(coordinates, list):
        return _Feature(number, None, [], known)
    return _Feature(number, shape, coordinates, known)


class _Reader:
    """Knows the properties that matter, and makes rows of features."""

    def __init__(self, features: Sequence[_Feature], columns: Columns) -> None:
        points = [feature for feature in features if feature.shape == _POINT]
        lines = any(feature.shape in (_LINE, _LINES) for feature in features)
        every = _names(features, columns)
        self._user = columns.find("user", every)
        self._trace = columns.find("trace", every)
        self._time = columns.time and columns.find("time", every)
        if points:
            self._time = columns.need("time", _names(points, columns))
        self._traces = lines or self._trace is not None
        self._layout = Layout(
            user=self._user or "user",
            trace=self._trace or "trace",
            time=self._time or "time",
            numbered=lines and self._trace is None,
            lines=lines,
        )
        self.clock = Clock(columns.zone)
        self._keep = columns.keep
        layout = self._layout
        taken = ("coordTimes", *_LISTS.values()) if lines else ()
        check_keep(self._keep, (layout.user, layout.trace, layout.time, *taken))
        for name in self._keep:
            if name not in every and _LISTS.get(name) not in every:
                raise ParameterError(
                    f"there is no property {name!r} to keep; found {listed(every)}"
                )

    def piece(self, rows: Sequence[Row], done: float) -> Piece:
        told = self._user is not None
        return piece_of(rows, self._keep, self._layout, told=told, done=done)

    def rows(self, feature: _Feature) -> Iterator[Row]:
        user, trace = self._ids(feature)
        positions = self._positions(feature)
        known = feature.properties
        values = [known.get(name, known.get(_LISTS.get(name, ""))) for name in self._keep]
        columns = [_spread(value, len(positions)) for value in values]
        for i, (position, time) in enumerate(positions):
            at, lat, lon = self._read(position, time)
            kept = [column[i] for column in columns]
            yield Row.of(feature.number, at, lat, lon, user, trace, kept)

    def _ids(self, feature: _Feature) -> tuple[str | int | None, str | int | None]:
        user = trace = None
        if self._user is not None:
            user = _identity(feature.properties.get(self._user))
        if self._trace is not None:
            trace = flat(feature.properties.get(self._trace))
        if isinstance(trace, (bool, float)):
            trace = str(trace)
        if trace is None and self._traces:
            trace = feature.number if feature.shape in (_LINE, _LINES) else 0
        return user, trace

    def _positions(self, feature: _Feature) -> list[tuple[Any, Any]]:
        """The positions of a feature, each with its time; not a list if it cannot be read."""
        places, known = feature.coordinates, feature.properties
        if feature.shape == _POINT:
            return [(places, known.get(self._time or ""))]
        if feature.shape == _LINE:
            return _paired(places, self._times(known))
        if feature.shape == _LINES:
            lines = _paired(places, self._times(known))
            return [pair for line, times in lines for pair in _paired(line, times)]
        return [(None, None)]

    def _times(self, known: Mapping[str, Any]) -> object:
        nested = known.get("coordinateProperties")
        found = [known.get(name) for name in (self._time or "", "coordTimes", "times")]
        found.append(nested.get("times") if isinstance(nested, dict) else None)
        return next((times for times in found if isinstance(times, list)), None)

    def _read(self, position: Any, time: Any) -> tuple[int | Fault, float | None, float | None]:
        known = isinstance(time, (str, int, float)) and not isinstance(time, bool)
        at = self.clock.read(time if known else None)
        if not isinstance(position, list) or len(position) < 2:
            return Fault.LINE, None, None
        return at, _number(position[1]), _number(position[0])


def _names(features: Iterable[_Feature], columns: Columns) -> list[str]:
    """The names of all properties, without those that should not be told."""
    asked = (columns.user, columns.trace, columns.time, *columns.keep)
    every = dict.fromkeys(name for feature in features for name in feature.properties)
    return [name for name in every if name in asked or not _PLACE.search(name)]


def _paired(places: Any, times: Any) -> list[tuple[Any, Any]]:
    """Each place with its time; there are none unless there is one for each."""
    if not isinstance(places, list):
        return [(None, None)]
    if not isinstance(times, list) or len(times) != len(places):
        times = [None] * len(places)
    return list(zip(places, times, strict=True))


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _identity(value: Any) -> str | int | None:
    """A user's id as given, None if it is none."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    return None if isinstance(value, str) and not value.strip() else flat(value)


def _spread(value: Any, positions: int) -> list[Any]:
    """A property for each position: a list of as many, or the same for all."""
    if positions != 1 and isinstance(value, list) and len(value) == positions:
        return [flat(item) for item in value]
    return [flat(value)] * positions


def promise_of(source: Source) -> Promise | None:
    """What was promised for a file that was written here; None if it does not say."""
    top = _parsed(source)
    told = top.get("hereish") if isinstance(top, dict) else None
    return Promise.read(told)


def writer(file: BinaryIO, layout: Layout, promise: Promise) -> Writer:
    """Writes one Point a report as they come, or where the layout has lines, one line a trace."""
    return (_Lines if layout.lines else _Points)(file, layout, promise)


class _Points:
    """A FeatureCollection; what is promised comes first, the box of the released points last."""

    def __init__(self, file: BinaryIO, layout: Layout, promise: Promise) -> None:
        self._file = file
        self._layout = layout
        self._box = Box()
        told = dumped({name: flat(value) for name, value in promise.as_dict().items()})
        self._put(f'{{"type":"FeatureCollection","hereish":{told},"features":[')
        self._between = "\n"

    def write(self, rows: Released) -> None:
        self._box.add(rows.lat, rows.lon)
        nobody = [None] * len(rows)
        users = nobody if rows.user is None else rows.user.values()
        traces = nobody if rows.trace is None else rows.trace.values()
        for user, trace, report in zip(users, traces, _reports(rows), strict=True):
            self._point(user, trace, report)

    def finish(self) -> None:
        box = "" if self._box.sides is None else f',"bbox":{dumped(self._box.sides)}'
        self._put(f"\n]{box}}}\n")
        self._file.flush()

    def _point(self, user: Any, trace: Any, report: _Report) -> None:
        own = {self._layout.time: report.time, "kind": report.kind, "cost": report.cost}
        self._feature(_POINT, report.position, user, trace, own, report.kept)

    def _feature(
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
        self._put(self._between + dumped(feature))
        self._between = ",\n"

    def _put(self, text: str) -> None:
        self._file.write(text.encode(errors="replace"))


class _Lines(_Points):
    """The same, with the rows in memory until all are there."""

    def __init__(self, file: BinaryIO, layout: Layout, promise: Promise) -> None:
        super().__init__(file, layout, promise)
        self._rows = Gathered()

    def write(self, rows: Released) -> None:
        self._box.add(rows.lat, rows.lon)
        self._rows.add(rows)

    def finish(self) -> None:
        for user, trace, rows in self._rows.groups():
            reports = list(_reports(rows))
            if len(reports) == 1:  # a line has two positions at least
                self._point(user, trace, reports[0])
                continue
            own = {
                "coordTimes": [report.time for report in reports],
                "kinds": [report.kind for report in reports],
                "costs": [report.cost for report in reports],
            }
            kept = {name: [report.kept[name] for report in reports] for name in rows.kept}
            positions = [report.position for report in reports]
            self._feature(_LINE, positions, user, trace, own, kept)
        super().finish()


class _Report(NamedTuple):
    """A released row as JSON has it."""

    position: list[float]
    time: str
    kind: str
    cost: float
    kept: Mapping[str, Any]


def _reports(rows: Released) -> Iterator[_Report]:
    columns = [plain(column) for column in rows.kept.values()]
    kept = zip(*columns, strict=True) if columns else [()] * len(rows)
    places = np.column_stack([rows.lon, rows.lat]).tolist()
    values = (places, iso(rows.at_us), rows.kind.tolist(), rows.cost.tolist(), kept)
    for position, time, kind, cost, more in zip(*values, strict=True):
        yield _Report(position, time, KINDS[kind], cost, dict(zip(rows.kept, more, strict=True)))
