"""Google's location history: the Timeline that a phone exports, and the files of Takeout.

Fixes are read: raw positions (`rawSignals`, the `locations` of Records.json, `timelineEdits`) and
points of paths (`timelinePath`, `simplifiedRawPath`). Visits and activities are inferred from them,
so their ends are read only where nothing else is there: nowhere in the file for a phone's export,
not in the same segment for Semantic Location History.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from hereish.traces.columns import Columns
from hereish.traces.faults import Fault
from hereish.traces.formats._degrees import parse_number
from hereish.traces.formats._fixes import FileFix, stream_fixes
from hereish.traces.formats._json_kinds import json_kind
from hereish.traces.formats._json_stream import JsonFile
from hereish.traces.formats._places import NO_PLACE, Place, parse_members
from hereish.traces.formats._time_texts import parse_time_text
from hereish.traces.formats.base import Format, Source
from hereish.traces.table import RowBatch

Item = Mapping[str, Any]
Extract = Callable[[int, Item], Iterator[FileFix]]
_COORDINATES = ("latitudeE7", "longitudeE7")
_ON_DEVICE = ("semanticSegments", "rawSignals")
_LISTS = (*_ON_DEVICE, "locations", "timelineObjects", "timelineEdits")
_LONGEST_MINUTES = 1e6  # of an offset from the start of a segment


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The fixes of one file; the `line` of a row is the number of its item in its list."""
    file = JsonFile(source)
    yield from stream_fixes(
        _fixes(file), columns, file.done, lambda: "it has no positions with times"
    )


def _fixes(file: JsonFile) -> Iterator[FileFix]:
    if file.head.lstrip().startswith(b"["):
        fixes, visits = {"item": _path}, {"item": _visit}
    else:
        fixes = {
            "locations.item": _record,
            "timelineObjects.item": _timeline_object,
            "timelineEdits.item": _edit,
            "semanticSegments.item": _path,
            "rawSignals.item": _raw_signal,
        }
        visits = {"semanticSegments.item": _visit}
    any_fix = False
    for passes in (fixes, visits):
        for prefix, extract in passes.items():
            if _may_have(file, prefix):
                for number, item in enumerate(file.items(prefix), 1):
                    if not isinstance(item, dict):
                        yield FileFix(number, None, None, None, broken=True)
                        any_fix = True
                        continue
                    for fix in extract(number, item):
                        any_fix = True
                        yield fix
        if any_fix:
            return


def _may_have(file: JsonFile, prefix: str) -> bool:
    """Whether a list can be in the file. A phone's export has two, the second far from the head."""
    name = prefix.removesuffix(".item")
    quoted = {other for other in _LISTS if f'"{other}"'.encode() in file.head}
    if name == "item" or not quoted:  # something else comes first, such as a profile
        return True
    return name in quoted or (name in _ON_DEVICE and not quoted.isdisjoint(_ON_DEVICE))


def _record(number: int, item: Item) -> Iterator[FileFix]:
    """Of Records.json, in which scans without a place are recorded, too."""
    if item.keys().isdisjoint(_COORDINATES):
        return
    yield _stamped(number, item)


def _stamped(number: int, item: Item) -> FileFix:
    time = item.get("timestamp", item.get("timestampMs"))
    return FileFix(number, time, *parse_members(item), item)


def _raw_signal(number: int, item: Item) -> Iterator[FileFix]:
    position = item.get("position")
    if isinstance(position, dict):
        yield _position(number, position)


def _edit(number: int, item: Item) -> Iterator[FileFix]:
    position = _get(item, "rawSignal", "signal", "position")
    if isinstance(position, dict):
        yield _position(number, position)


def _position(number: int, position: Item) -> FileFix:
    point = position.get("point", position)
    return FileFix(number, position.get("timestamp"), *parse_members(point), position)


def _path(number: int, item: Item) -> Iterator[FileFix]:
    """The path of a segment; of a phone with iOS, its times are minutes since the start."""
    path = item.get("timelinePath")
    if path is None:
        return
    for point in path if isinstance(path, list) else [None]:
        if not isinstance(point, dict):
            yield FileFix(number, None, None, None, broken=True)
            continue
        time = point.get("time")
        if time is None:
            time = _later(item.get("startTime"), point.get("durationMinutesOffsetFromStartTime"))
        yield FileFix(number, time, *parse_members(point.get("point")), point)


def _later(start: Any, minutes: Any) -> datetime | None:
    """A time some minutes after another; None if either cannot be read."""
    offset = parse_number(minutes)
    if not isinstance(start, str) or offset is None or abs(offset) > _LONGEST_MINUTES:
        return None
    begin = parse_time_text(start.strip())
    try:
        return None if isinstance(begin, Fault) else begin + timedelta(minutes=offset)
    except OverflowError:
        return None


def _visit(number: int, item: Item) -> Iterator[FileFix]:
    """A visit's place when it began and ended; where an activity began and ended."""
    place = parse_members(_get(item, "visit", "topCandidate", "placeLocation"))
    activity = item.get("activity")
    ends = (place, place)
    if isinstance(activity, dict):
        ends = (parse_members(activity.get("start")), parse_members(activity.get("end")))
    yield from _ends(number, ends, item.get("startTime"), item.get("endTime"))


def _timeline_object(number: int, item: Item) -> Iterator[FileFix]:
    """Of Semantic Location History: a visit or an activity, with its path if there is one."""
    for name in ("placeVisit", "activitySegment"):
        segment = item.get(name)
        if not isinstance(segment, dict):
            continue
        points = _get(segment, "simplifiedRawPath", "points")
        if isinstance(points, list) and points:
            for point in points:
                if isinstance(point, dict):
                    yield _stamped(number, point)
                else:
                    yield FileFix(number, None, None, None, broken=True)
            continue
        yield from _ends(number, _segment_ends(segment), *_duration(segment))


def _segment_ends(segment: Item) -> tuple[Place, Place]:
    place = parse_members(segment.get("location"))
    if place == NO_PLACE:  # of a visit to a place that is not known, its middle
        middle = {"latE7": segment.get("centerLatE7"), "lngE7": segment.get("centerLngE7")}
        place = parse_members(middle)
    if place != NO_PLACE:
        return place, place
    begin, end = (parse_members(segment.get(name)) for name in ("startLocation", "endLocation"))
    waypoints = _get(segment, "waypointPath", "waypoints")
    if isinstance(waypoints, list) and waypoints:
        begin = parse_members(waypoints[0]) if begin == NO_PLACE else begin
        end = parse_members(waypoints[-1]) if end == NO_PLACE else end
    return begin, end


def _duration(segment: Item) -> tuple[Any, Any]:
    duration = segment.get("duration")
    if not isinstance(duration, dict):
        return None, None
    begin, end = (
        duration.get(name, duration.get(f"{name}Ms")) for name in ("startTimestamp", "endTimestamp")
    )
    return begin, end


def _ends(number: int, places: tuple[Place, Place], begin: Any, end: Any) -> Iterator[FileFix]:
    for place, time in zip(places, (begin, end), strict=True):
        if place != NO_PLACE and time is not None:
            yield FileFix(number, time, *place)


def _get(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def sniff(head: bytes) -> bool:
    """Whether a .json file begins like one of these."""
    return json_kind(head) == "google"


FORMAT = Format(name="google", extensions=(".json",), read=read, sniff=sniff, line_word="item")
