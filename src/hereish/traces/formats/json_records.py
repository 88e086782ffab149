"""Lists of JSON objects with a place and a time each: OwnTracks, Overland, Dawarich, Polarsteps.

The objects are items of a list, the whole file or a member of it such as `locations`; or there is
one on each line. Lines of OwnTracks' Recorder (.rec) have a time and a kind before the object. Of
OwnTracks' messages only those of the type `location` are fixes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hereish.errors import ParameterError
from hereish.traces.columns import Columns
from hereish.traces.faults import UnreadableFileError, empty_file
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._degrees import parse_degrees
from hereish.traces.formats._fixes import FileFix, stream_fixes
from hereish.traces.formats._json_kinds import HEAD_BYTES, LISTS, json_kind, record_list
from hereish.traces.formats._json_stream import JsonFile, parse_line
from hereish.traces.formats._places import NO_PLACE, Place, parse_members, parse_position
from hereish.traces.formats._text import read_lines
from hereish.traces.formats._time_texts import with_date_among
from hereish.traces.formats.base import Format, Source
from hereish.traces.table import RowBatch

_TIMES = (
    *("tst", "timestamp", "time", "recorded_at", "timestampMs", "datetime", "date", "at", "ts"),
    *("fixTime", "deviceTime"),  # of Traccar
)
_ARRIVED = "arrived"  # of a stay, where no other time is known (Polarsteps)
_NESTED = ("coords", "location")  # members that hold the place, such as those of a browser
_PLACES = {
    *_NESTED,
    "lat",
    "lon",
    "lng",
    "long",
    "latitude",
    "longitude",
    "lonlat",
    "latLng",
    "point",
}
_LINES = (".rec", ".jsonl", ".ndjson", ".geojsonl")
_RECORDS = "a list of objects with a place and a time each, or one on each line"
_ENCRYPTED = re.compile(rb'"_type":\s*"encrypted"')


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The fixes of one file; the `line` of a row is that of its object, or its number in a list."""
    if source.below.name.lower().removesuffix(".gz").endswith(_LINES):
        yield from _read_lines(source, columns)
        return
    file = JsonFile(source)
    name = record_list(file.head)
    if name is None:
        raise UnreadableFileError(
            "it is no list of objects with a place and a time each",
            expected=_RECORDS,
            remedy="export it as such, or as GPX or CSV",
        )
    if name == "" and not file.head.lstrip().startswith(b"["):
        yield from _read_lines(source, columns)
        return
    items = enumerate(file.items(f"{name}.item".lstrip(".")), 1)
    fixes = (fix for number, item in items for fix in _fixes(number, item, columns))
    yield from stream_fixes(fixes, columns, file.done, lambda: _describe_emptiness(source))


def _read_lines(source: Source, columns: Columns) -> Iterator[RowBatch]:
    with SourceBytes(source) as file:
        yield from stream_fixes(
            _line_fixes(read_lines(file), columns),
            columns,
            file.done,
            lambda: _describe_emptiness(source),
        )


def _describe_emptiness(source: Source) -> str:
    with SourceBytes(source) as file:
        # Standard input cannot be read again.
        head = file.read(HEAD_BYTES) if source.path is not None else b""
    if _ENCRYPTED.search(head):
        return "its messages are encrypted, and whoever has their key must decrypt them first"
    return "it has no positions with times"


def _line_fixes(lines: Iterator[str], columns: Columns) -> Iterator[FileFix]:
    any_line = False
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        any_line = True
        # Of the Recorder: a time, a tab, a kind, a tab, and the object.
        item = parse_line(line[line.index("{") :] if "{" in line.split("\t")[-1] else line)
        if item is None and not line.rstrip().endswith("}") and "{" not in line:
            continue  # the Recorder notes other things too, as plain text
        for one in _batch(item):
            yield from _fixes(number, one, columns)
    if not any_line:
        raise empty_file(_RECORDS)


def _batch(item: Any) -> list[Any]:
    """The objects of a line: itself, or those of its list, such as what Overland sends at once."""
    if isinstance(item, dict) and item.keys().isdisjoint(("_type", "geometry", *_PLACES)):
        lists = (item.get(name) for name in LISTS)
        return next(
            (many for many in lists if isinstance(many, list) and _may_be_fixes(many)), [item]
        )
    return [item]


def _may_be_fixes(many: list[Any]) -> bool:
    """Whether it may be one of fixes, and not of texts that an event has."""
    return not many or any(isinstance(one, dict) for one in many)


def _fixes(number: int, item: Any, columns: Columns) -> Iterator[FileFix]:
    if not isinstance(item, dict):
        yield FileFix(number, None, None, None, broken=True)
        return
    if item.get("_type", "location") != "location":
        return
    fields = item.get("properties")
    fields = {**item, **fields} if isinstance(fields, dict) else item
    nested = any(isinstance(fields.get(name), dict) for name in _NESTED)
    known = nested or fields.get("geometry") is not None or bool(_PLACES & fields.keys())
    if columns.lat is None and not known:
        return  # an event, such as that an app was closed
    yield FileFix(number, _time(fields, columns), *_place(item, fields, columns), fields)


def _time(fields: Mapping[str, Any], columns: Columns) -> Any:
    if columns.time is not None:
        return with_date_among(fields, fields.get(columns.time), columns)
    usual = next((name for name in _TIMES if fields.get(name) is not None), None)
    if usual is None:
        usual = columns.find("time", [name for name in fields if fields[name] is not None])
    if usual is None and fields.get(_ARRIVED) is not None:
        usual = _ARRIVED
    return None if usual is None else with_date_among(fields, fields[usual], columns)


def _place(item: Mapping[str, Any], fields: Mapping[str, Any], columns: Columns) -> Place:
    if columns.lat is not None or columns.lon is not None:
        if columns.lat is None or columns.lon is None:
            raise ParameterError("give both --lat and --lon, or neither")
        lat = parse_degrees(fields.get(columns.lat), "lat", columns.unit(columns.lat))
        return lat, parse_degrees(fields.get(columns.lon), "lon", columns.unit(columns.lon))
    geometry = item.get("geometry")
    position = geometry.get("coordinates") if isinstance(geometry, dict) else None
    if isinstance(position, list) and len(position) > 1:
        return parse_position(position)
    place = parse_members(fields)
    nested = (fields.get(name) for name in _NESTED)
    return next((parse_members(one) for one in nested if place == NO_PLACE and one), place)


def sniff(head: bytes) -> bool:
    """Whether a file begins like one of these."""
    return json_kind(head) == "records"


FORMAT = Format(
    name="records",
    extensions=(".rec", ".jsonl", ".ndjson", ".geojsonl", ".json"),
    read=read,
    sniff=sniff,
)
