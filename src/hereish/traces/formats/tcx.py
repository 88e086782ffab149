"""TCX of Garmin's Training Center: the points of activities. Each activity is a trace.

Courses are planned and not travelled, but converters write travelled tracks as courses too: they
are read where a file has no activities.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hereish.traces.columns import Columns
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._degrees import parse_degrees
from hereish.traces.formats._fixes import FileFix, merge_fixes
from hereish.traces.formats._markup import BLOCK_BYTES
from hereish.traces.formats._xml import XmlParser
from hereish.traces.formats.base import Format, Source
from hereish.traces.table import RowBatch

_POINT, _LAT, _LON = "Trackpoint", "LatitudeDegrees", "LongitudeDegrees"
_TEXTS = (
    "Id",
    "Name",
    "Time",
    _LAT,
    _LON,
    "AltitudeMeters",
    "DistanceMeters",
    "Cadence",
    "SensorState",
    "Value",
)


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The points of all activities that have a position: indoors and in pauses there is none."""
    reader = _PointReader(columns)
    with SourceBytes(source) as file:
        fixes = reader.fixes(file.blocks(BLOCK_BYTES))
        yield from merge_fixes(fixes, columns, file.done, reader.describe_emptiness)


class _PointReader:
    def __init__(self, columns: Columns) -> None:
        self._parser = XmlParser(
            "TrainingCenterDatabase",
            "TCX",
            frozenset({*_TEXTS, *columns.keep}),
            self._start,
            self._end,
        )
        self._points: list[FileFix] = []
        self._courses: list[FileFix] = []  # until it is known whether there are activities
        self._any_activity = False
        self._keep_names = columns.keep_trace_names is True
        self._traces = 0
        self._name = ""  # of the activity or course
        self._point: dict[str, Any] | None = None
        self._line = 0
        self._without_place = 0

    def fixes(self, blocks: Iterator[bytes]) -> Iterator[FileFix]:
        for _ in self._parser.parse(blocks):
            yield from self._points
            self._points = []
        if not self._any_activity:
            yield from self._courses

    def describe_emptiness(self) -> str:
        if self._without_place:
            return "its points have no positions, as those of a workout indoors"
        return "it has no track points"

    def _start(self, name: str, _: dict[str, str]) -> None:
        if name in ("Activity", "Course"):
            self._traces += 1
            self._name = ""
            self._any_activity |= name == "Activity"
        elif name == _POINT:
            self._point, self._line = {}, self._parser.line

    def _end(self, name: str, text: str) -> None:
        if self._keep_names and self._parser.path[-2:] in (["Activity", "Id"], ["Course", "Name"]):
            self._name = text.strip()
        if self._point is None:
            return
        if name == _POINT:
            self._add(self._point)
            self._point = None
        elif name == "Value":  # such as that of HeartRateBpm, which it is inside
            self._point.setdefault(self._parser.path[-2], text.strip())
        elif text.strip():
            self._point.setdefault(name, text.strip())

    def _add(self, point: dict[str, Any]) -> None:
        if _LAT not in point and _LON not in point:
            self._without_place += 1
            return
        lat, lon = parse_degrees(point.get(_LAT), "lat"), parse_degrees(point.get(_LON), "lon")
        fix = FileFix(self._line, point.get("Time"), lat, lon, point, self._name or self._traces)
        (self._courses if "Course" in self._parser.path else self._points).append(fix)


FORMAT = Format(name="tcx", extensions=(".tcx",), read=read)
