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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, NamedTuple

from hereish.errors import ParameterError
from hereish.traces.column_names import known_names, normal_name
from hereish.traces.columns import Columns, Layout, describe_names
from hereish.traces.faults import (
    Fault,
    NoPointsError,
    UnreadableFileError,
    counted,
    damaged_file,
    empty_file,
    no_times,
)
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._encodings import mixed_encodings, utf16_encoding
from hereish.traces.formats._geojson_writer import LineWriter, PointWriter
from hereish.traces.formats._json_kinds import json_kind
from hereish.traces.formats._markup import (
    BLOCK_BYTES,
    ROWS,
    Row,
    batch_from_rows,
    check_keep,
    json_scalar,
    merge_file,
)
from hereish.traces.formats._places import parse_position
from hereish.traces.formats._time_texts import with_date_among
from hereish.traces.formats._times import TimeParser, tells_time_of_day
from hereish.traces.formats.base import Format, Source, Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import RowBatch

_POINT, _LINE, _LINES = "Point", "LineString", "MultiLineString"
_POINTS = "MultiPoint"
_OTHERS = ("Polygon", "MultiPolygon", _POINTS, "GeometryCollection")  # are passed over
_NOWHERE = "null"  # a feature without a place, which is null in place of a geometry
_GEOMETRIES = (_POINT, _LINE, _LINES, *_OTHERS)
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
    every = list(_parse_features(parse_json(source)))
    reader = _FeatureReader(every, columns)
    has_places = any(one.coordinates for one in every)
    features = [feature for feature in every if reader.takes(feature)]
    all_rows = (row for feature in features for row in reader.rows(feature))
    batches = []
    while rows := list(itertools.islice(all_rows, ROWS)):
        batches.append(reader.batch(rows, rows[-1].line / len(every)))
    if has_places and not reader.any_time:
        raise no_times()
    if not batches:
        raise NoPointsError("it has no points")
    yield replace(merge_file(batches, reader.times), passed_over=reader.passed_over())


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
        if error.msg == "Extra data" and error.doc[error.pos] == "{":
            problem = several_texts(error.lineno)
    except RecursionError:
        problem = damaged_file("it is nested too deeply", "GeoJSON or MF-JSON")
    except ValueError:  # Python's limit for digits
        problem = damaged_file("one of its numbers is too long", "degrees and times")
    raise problem


def several_texts(line: int) -> UnreadableFileError:
    """Of JSON that is one object per line, under a name that does not say so."""
    return UnreadableFileError(
        "it goes on behind its end, as a file of one object per line does",
        line,
        expected="a single FeatureCollection or object",
        remedy="if there is one object per line, name it .geojsonl, or give --format records",
    )


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
    if geometry is None and "geometry" in value:
        shape = _NOWHERE
    coordinates = geometry.get("coordinates") if isinstance(geometry, dict) else None
    if shape == _POINTS and isinstance(coordinates, list) and len(coordinates) == 1:
        # As databases and QGIS write each point where some layer has several.
        shape, coordinates = _POINT, coordinates[0]
    if shape in (_NOWHERE, *_OTHERS):
        return _Feature(number, shape, [], known)
    if shape not in (_POINT, _LINE, _LINES) or not isinstance(coordinates, list):
        return _Feature(number, None, [], known)
    return _Feature(number, shape, coordinates, known)


class _FeatureReader:
    """Finds the properties that are read, and turns features into rows."""

    def __init__(self, features: Sequence[_Feature], columns: Columns) -> None:
        points = [feature for feature in features if feature.shape == _POINT]
        names = _property_names(features, columns)
        self._user = columns.find("user", names)
        self._trace = columns.find("trace", names)
        self._columns = columns
        self._given_time = columns.time and columns.find("time", names)
        known = known_names("time") | known_names("date")
        self._time_names = [name for name in names if normal_name(name) in known]
        self._own_times: dict[tuple[str, ...], str | None] = {}  # by the properties of a point
        lines = any(map(self._has_times, features))
        own = filter(None, (self._own_time(point) for point in points))
        self._time = self._given_time or next(own, None)
        if points and self._time is None and not lines:
            some = _property_names(points, columns)
            if not any(point.properties for point in points) and columns.time is None:
                raise no_times()
            columns.require("time", some)
        self._passed_over = Counter[str]()
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

    def _own_time(self, point: _Feature) -> str | None:
        """The property of a point's time: in a file that was made of several, each has its own."""
        known = point.properties
        if self._given_time is not None:
            return self._given_time if self._given_time in known else None
        filled = tuple(name for name, value in known.items() if value is not None)
        if filled not in self._own_times:
            self._own_times[filled] = self._columns.find_time(filled)
        empty = (name for name in known if name in self._time_names)
        return self._own_times[filled] or next(empty, None)

    def _has_times(self, line: _Feature) -> bool:
        shaped = line.shape in (_LINE, _LINES)
        return shaped and any(times is not None for times in self._time_lists(line))

    def _time_lists(self, line: _Feature) -> list[Any]:
        """What stands where the times of a line may be."""
        known = line.properties
        nested = known.get("coordinateProperties")
        candidates = [known.get(name) for name in (self._given_time or "", *_TIMES)]
        candidates.append(nested.get("times") if isinstance(nested, dict) else None)
        # A property `time` that is no list tells when a track began, or when it was saved.
        others = (known.get(name) for name in self._time_names)
        return [*candidates, *(times for times in others if isinstance(times, list))]

    def takes(self, feature: _Feature) -> bool:
        """Whether it says when somebody was there; markers, planned routes and areas are counted.

        That goes by the names of its properties, which are public.
        """
        what = None
        if feature.shape in (_POINT, *_OTHERS) and self._own_time(feature) is None:
            what = "points" if feature.shape == _POINT else "others"
        elif feature.shape in (_LINE, _LINES) and not self._has_times(feature):
            what = "lines"
        elif feature.shape == _NOWHERE:
            what = "nowhere"
        if what is not None:
            self._passed_over[what] += 1
        return what is None

    def passed_over(self) -> str:
        """What the summary says of features that are not where somebody was when."""
        kinds = {
            "points": ("point without a time", "points without a time"),
            "lines": ("line without times", "lines without times"),
            "others": ("area or collection", "areas or collections"),
            "nowhere": ("feature without a place", "features without a place"),
        }
        return ", ".join(
            counted(self._passed_over[kind], *names)
            for kind, names in kinds.items()
            if self._passed_over[kind]
        )

    def batch(self, rows: Sequence[Row], done: float) -> RowBatch:
        has_users = self._user is not None
        return batch_from_rows(rows, self._keep, self._layout, has_users=has_users, done=done)

    def rows(self, feature: _Feature) -> Iterator[Row]:
        user, trace = self._ids(feature)
        positions = self._positions(feature)
        known = feature.properties
        own = self._own_time(feature) if feature.shape == _POINT else None
        dated = own is not None and self._columns.must_tell_time_of_day(own)
        values = [known.get(name, known.get(_LISTS.get(name, ""))) for name in self._keep]
        columns = [_spread(value, len(positions)) for value in values]
        for i, (position, time) in enumerate(positions):
            at, lat, lon = self._parse_position(position, time)
            if dated and not isinstance(at, Fault) and not tells_time_of_day(time):
                at = Fault.NO_CLOCK
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
            time = known.get(self._own_time(feature) or "")
            return [(places, with_date_among(known, time, self._columns))]
        if feature.shape == _LINE:
            return _pair(places, self._times(feature))
        if feature.shape == _LINES:
            lines = _pair(places, self._times(feature))
            return [pair for line, times in lines for pair in _pair(line, times)]
        return [(None, None)]

    def _times(self, line: _Feature) -> object:
        lists = (times for times in self._time_lists(line) if isinstance(times, list))
        times = next(lists, None)
        # There may not be one for each position, but the line was travelled.
        self.any_time |= any(any(one) if isinstance(one, list) else one for one in times or ())
        return times

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
    return (LineWriter if layout.lines else PointWriter)(file, layout, guarantee)


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
