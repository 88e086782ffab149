"""OGC Moving Features JSON (MF-JSON): moving points in, and out.

A feature with a MovingPoint is a trace; so is one with a line and as many `datetimes` among its
properties. Users and traces are properties, as in GeoJSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from hereish.traces.columns import Columns, Layout
from hereish.traces.faults import UnreadableFileError, damaged_file
from hereish.traces.formats._fixes import FileFix, merge_fixes, parse_user
from hereish.traces.formats._json_kinds import json_kind
from hereish.traces.formats._markup import TraceGroups, compact_json, json_scalar, json_values
from hereish.traces.formats._places import parse_position
from hereish.traces.formats._times import format_utc
from hereish.traces.formats.base import Format, Source, Writer
from hereish.traces.formats.geojson import is_wgs84, parse_json, without_features
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import ReleasedRows, RowBatch

_POINT, _COLLECTION = "MovingPoint", "MovingGeometryCollection"
_POINTS = (_POINT, "MovingGeomPoint", "MovingGeogPoint")  # as MobilityDB calls them
_CRS = {"type": "Name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}
_TRS = {"type": "Name", "properties": {"name": "urn:ogc:data:time:iso8601"}}


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The positions of all moving points; the `line` of a row is the number of its feature."""
    features = list(_parse_features(parse_json(source)))
    names = list(dict.fromkeys(name for feature in features for name in _properties(feature)))
    user, trace = columns.find("user", names), columns.find("trace", names)
    fixes = (
        fix
        for number, feature in enumerate(features, 1)
        for fix in _fixes(number, feature, user, trace)
    )
    yield from merge_fixes(fixes, columns, lambda: 1.0, lambda: "it has no moving points")


def _parse_features(top: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(top, dict):
        raise damaged_file("it is not MF-JSON", "an object with moving points")
    features = top.get("features") if top.get("type") == "FeatureCollection" else [top]
    if not isinstance(features, list):
        raise without_features()
    for feature in (top, *features):
        if isinstance(feature, dict) and feature.get("crs") and not is_wgs84(feature["crs"]):
            raise UnreadableFileError(
                "its crs is not WGS 84 longitude and latitude",
                expected="WGS 84",
                remedy="convert it first",
            )
    for feature in features:
        yield feature if isinstance(feature, dict) else {}


def _properties(feature: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = feature.get("properties")
    return properties if isinstance(properties, dict) else {}


def _fixes(
    number: int, feature: Mapping[str, Any], user: str | None, trace: str | None
) -> Iterator[FileFix]:
    known = _properties(feature)
    who = None if user is None else parse_user(known.get(user))
    which: str | int | None = None if trace is None else json_scalar(known.get(trace))
    if which is None or isinstance(which, (bool, float)):
        which = number if which is None else str(which)
    if not feature:
        yield FileFix(number, None, None, None, trace=which, user=who, broken=True)
    columns = dict(_temporal_properties(feature))
    for places, times in _moving_points(feature):
        if len(places) != len(times):
            times = [None] * len(places)
        for i, (position, time) in enumerate(zip(places, times, strict=True)):
            fields = {**known, **{name: _item(values, i) for name, values in columns.items()}}
            broken = not isinstance(position, list) or len(position) < 2
            yield FileFix(number, time, *parse_position(position), fields, which, who, broken)


def _moving_points(feature: Mapping[str, Any]) -> Iterator[tuple[list[Any], list[Any]]]:
    moving = feature.get("temporalGeometry")
    if moving is None and feature.get("type") in (*_POINTS, _COLLECTION):
        moving = feature
    if isinstance(moving, dict):
        prisms = moving.get("prisms") if moving.get("type") == _COLLECTION else [moving]
        for prism in prisms if isinstance(prisms, list) else []:
            if isinstance(prism, dict) and prism.get("type") in _POINTS:
                # MobilityDB writes the stretches of a point that was not always seen as a list.
                for part in (prism, *_list(prism.get("sequences"))):
                    if isinstance(part, dict):
                        yield _list(part.get("coordinates")), _list(part.get("datetimes"))
        return
    geometry = feature.get("geometry")
    if isinstance(geometry, dict) and geometry.get("type") == "LineString":
        yield _list(geometry.get("coordinates")), _list(_properties(feature).get("datetimes"))


def _temporal_properties(feature: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """The columns that belong to positions, each with a value per position."""
    for group in _list(feature.get("temporalProperties")):
        for name, value in group.items() if isinstance(group, dict) else ():
            values = value.get("values") if isinstance(value, dict) else value
            if name != "datetimes" and isinstance(values, list):
                yield name, values
    for name, value in _properties(feature).items():
        if isinstance(value, list):
            yield name, value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _item(values: list[Any], i: int) -> Any:
    return values[i] if i < len(values) else None


def read_guarantee(source: Source) -> GuaranteeMetadata | None:
    """The guarantee in a file that was written here; None if there is none."""
    top = parse_json(source)
    return GuaranteeMetadata.from_dict(top.get("hereish") if isinstance(top, dict) else None)


def sniff(head: bytes) -> bool:
    """Whether a .json file begins like this."""
    return json_kind(head) == "mfjson"


class _MovingPointWriter(Writer):
    """A FeatureCollection; the rows stay in memory until the end, one feature per trace."""

    def __init__(self, file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> None:
        self._file = file
        self._layout = layout
        self._guarantee = guarantee
        self._groups = TraceGroups()

    def write(self, rows: ReleasedRows) -> None:
        self._groups.add(rows)

    def finish(self) -> None:
        settings = {n: json_scalar(value) for n, value in self._guarantee.as_dict().items()}
        head = {"type": "FeatureCollection", "hereish": settings, "crs": _CRS, "trs": _TRS}
        self._write_text(compact_json(head)[:-1] + ',"features":[')
        separator = "\n"
        for user, trace, rows in self._groups.groups():
            self._write_text(separator + compact_json(self._feature(user, trace, rows)))
            separator = ",\n"
        self._write_text("\n]}\n")
        self._file.flush()

    def _feature(self, user: Any, trace: Any, rows: ReleasedRows) -> dict[str, Any]:
        times = format_utc(rows.at_us)
        places = list(zip(rows.lon.tolist(), rows.lat.tolist(), strict=True))
        columns = {"kind": rows.kind_names(), "cost": rows.cost.tolist()}
        columns |= {name: json_values(column) for name, column in rows.kept.items()}
        ids = {self._layout.user: user, self._layout.trace: trace}
        return {
            "type": "Feature",
            "properties": {name: value for name, value in ids.items() if value is not None},
            "temporalGeometry": {
                "type": _POINT,
                "coordinates": places,
                "datetimes": times,
                "interpolation": "Discrete",  # nobody was reported between the reports
            },
            "temporalProperties": [
                {
                    "datetimes": times,
                    **{
                        name: {"type": "Measure", "values": values, "interpolation": "Discrete"}
                        for name, values in columns.items()
                    },
                }
            ],
        }

    def _write_text(self, text: str) -> None:
        self._file.write(text.encode(errors="replace"))


def open_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """One MovingPoint per trace."""
    return _MovingPointWriter(file, layout, guarantee)


FORMAT = Format(
    name="mfjson",
    extensions=(".mfjson", ".json"),
    read=read,
    open_writer=open_writer,
    read_guarantee=read_guarantee,
    sniff=sniff,
    line_word="feature",
)
