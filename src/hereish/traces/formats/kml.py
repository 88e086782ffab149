"""KML and KMZ: timed tracks in and out; and timed points in.

Of three things the first that a file has is read: tracks (`gx:Track`, each placemark's a trace),
points with a time (`TimeStamp`), and places with a span of time (`TimeSpan`), which are those of
visits: at its begin and its end. Converters write the points of a track beside it, once more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO

from hereish.traces.columns import Columns, Layout
from hereish.traces.faults import damaged_file
from hereish.traces.foreign_errors import replace_foreign_errors
from hereish.traces.formats._archive import damaged_member, open_bytes, safe_members
from hereish.traces.formats._bytes import SourceBytes, read_whole
from hereish.traces.formats._degrees import parse_number
from hereish.traces.formats._fixes import FileFix, merge_fixes
from hereish.traces.formats._kml_writer import DATA_NAME, KmlWriter, KmzWriter
from hereish.traces.formats._markup import BLOCK_BYTES
from hereish.traces.formats._places import NO_PLACE, Place
from hereish.traces.formats._xml import XmlParser
from hereish.traces.formats.base import Format, Source, Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import RowBatch

_TEXTS = frozenset({"name", "when", "coord", "coordinates", "begin", "end", "value"})
# KML allows years and months as times, which say nothing of when somebody was there.
_WITH_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*", re.ASCII)


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The points of one KML file."""
    with SourceBytes(source) as file:
        reader = _PlacemarkReader(columns)
        fixes = reader.fixes(file.blocks(BLOCK_BYTES))
        yield from merge_fixes(fixes, columns, file.done, reader.describe_emptiness)


def read_kmz(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The same of the document in a KMZ, which is a zip archive."""
    reader = _PlacemarkReader(columns)
    fixes = reader.fixes(_document(source))
    yield from merge_fixes(fixes, columns, lambda: 1.0, reader.describe_emptiness)


def _document(source: Source) -> Iterator[bytes]:
    """The bytes of the first KML file in a KMZ; doc.kml by convention, but any name will do."""
    with open_bytes(read_whole(source)) as archive:
        names = [member.name for member in safe_members(archive)]
        documents = [name for name in names if name.lower().endswith(".kml")]
        if not documents:
            raise damaged_file("it is an archive without a KML file", "KMZ, which has one")
        name = min(documents, key=lambda name: (name.count("/"), name.lower() != "doc.kml", name))
        damaged = damaged_member()
        with replace_foreign_errors(lambda: archive.open(name), damaged) as file:
            while block := replace_foreign_errors(lambda: file.read(BLOCK_BYTES), damaged):
                yield block


class _Placemark:
    """What has been read of one placemark."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = ""
        self.when: str | None = None
        self.begin: str | None = None
        self.end: str | None = None
        self.point: tuple[int, str] | None = None
        self.lines = 0  # and areas
        self.several = False  # several places, so that none of them is where somebody was
        self.data: dict[str, str] = {}


class _Track:
    """What has been read of one track: times and places are two lists."""

    def __init__(self) -> None:
        self.times: list[str] = []
        self.coords: list[tuple[int, str]] = []
        self.arrays: dict[str, list[str]] = {}


class _PlacemarkReader:
    def __init__(self, columns: Columns) -> None:
        # Names of placemarks may say where somebody went.
        self._keep_names = columns.keep_trace_names is True
        self._parser = XmlParser("kml", "KML", _TEXTS, self._start, self._end)
        self.guarantee: GuaranteeMetadata | None = None
        self._placemarks = 0
        self._places = 0  # those without times
        self._spans = 0  # lines and areas in a span of time
        self._placemark: _Placemark | None = None
        self._track: _Track | None = None
        self._tracks: list[_Track] = []  # of the placemark
        self._data = ""  # the name of the value that is being read
        self._timed: list[FileFix] = []
        self._points: list[FileFix] = []
        self._visits: list[FileFix] = []
        self._any_track = False

    def fixes(self, blocks: Iterator[bytes]) -> Iterator[FileFix]:
        for _ in self._parser.parse(blocks):
            yield from self._timed
            self._timed = []
        if not self._any_track:
            timed = [fix for fix in self._visits if _WITH_TIME.fullmatch(fix.time)]
            yield from self._points or timed

    def describe_emptiness(self) -> str:
        if self._spans:
            return "its lines tell when they begin and end, and not when somebody was at each point"
        if self._places:
            return (
                "its placemarks have no times of day: they are places that were marked, or routes, "
                "and not where somebody was when"
            )
        return "it has no placemarks with places and times"

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "Placemark":
            self._placemarks += 1
            self._placemark, self._tracks = _Placemark(self._placemarks), []
        elif name == "Track" and self._placemark is not None:
            self._track = _Track()
            self._tracks.append(self._track)
        elif name in ("Data", "SimpleArrayData"):
            self._data = attributes.get("name", "")
        elif name == "MultiGeometry" and self._placemark is not None:
            self._placemark.several = True

    def _end(self, name: str, text: str) -> None:
        text = text.strip()
        if name == "Placemark" and self._placemark is not None:
            self._finish_placemark(self._placemark)
            self._placemark = self._track = None
        elif name == "Track":
            self._track = None
        elif self._track is not None:
            self._add_to_track(self._track, name, text)
        elif name == "value":
            self._add_data(text)
        elif self._placemark is not None:
            self._add_to_placemark(self._placemark, name, text)

    def _add_to_track(self, track: _Track, name: str, text: str) -> None:
        if name == "when":
            track.times.append(text)
        elif name == "coord":
            track.coords.append((self._parser.line, text))
        elif name == "value" and self._data:
            track.arrays.setdefault(self._data, []).append(text)

    def _add_data(self, text: str) -> None:
        if self._placemark is not None:
            self._placemark.data.setdefault(self._data, text)
        elif self._data == DATA_NAME:
            self.guarantee = GuaranteeMetadata.from_json(text)

    def _add_to_placemark(self, placemark: _Placemark, name: str, text: str) -> None:
        *_, outer, above, _ = self._parser.path
        own = outer == "Placemark"  # and not of a view at it, which has a time of its own
        if name == "name" and above == "Placemark":
            placemark.name = text
        elif name == "when" and above == "TimeStamp" and own:
            placemark.when = text
        elif above == "TimeSpan" and name == "begin" and own:
            placemark.begin = text
        elif above == "TimeSpan" and name == "end" and own:
            placemark.end = text
        elif name == "coordinates" and above == "Point":
            placemark.point = (self._parser.line, text)
        elif name == "coordinates":
            self._places += 1
            placemark.lines += 1

    def _finish_placemark(self, placemark: _Placemark) -> None:
        for track in self._tracks:
            self._timed += self._track_fixes(placemark, track)
        if self._timed:
            self._any_track = True
        if _WITH_TIME.fullmatch(placemark.begin or placemark.end or ""):
            self._spans += placemark.lines
        if placemark.point is None or not placemark.point[1]:
            return
        line, text = placemark.point
        place, data = _parse_place(text.split(",")), placemark.data
        if placemark.several:
            self._places += 1
        elif placemark.when is not None and _WITH_TIME.fullmatch(placemark.when):
            self._points.append(FileFix(line, placemark.when, *place, data))
        elif placemark.begin or placemark.end:
            times = filter(None, (placemark.begin, placemark.end))
            self._visits += [FileFix(line, time, *place, data) for time in times]
        else:
            self._places += 1

    def _track_fixes(self, placemark: _Placemark, track: _Track) -> Iterator[FileFix]:
        if not track.times:
            self._places += len(track.coords)
            self._visits += _track_ends(placemark, track)
            return
        complete = len(track.times) == len(track.coords)
        user = placemark.data.get("user") or None
        named = placemark.name if self._keep_names else ""
        trace = placemark.data.get("trace") or named or placemark.number
        for i, (line, text) in enumerate(track.coords):
            if not text:  # the standard's way to say that nothing is known of that time
                continue
            time = track.times[i] if complete else None
            if time is not None and not _WITH_TIME.fullmatch(time):
                time = None
            fields = {**placemark.data, **_items(track.arrays, i)}
            place = _parse_place(_numbers(text))
            yield FileFix(line, time, *place, fields, trace, user, broken=not complete)


def _track_ends(placemark: _Placemark, track: _Track) -> Iterator[FileFix]:
    """Of a track without times, in a span of time: where it began and ended."""
    coords = [coord for coord in track.coords if coord[1]]
    if coords:
        for time, (line, text) in ((placemark.begin, coords[0]), (placemark.end, coords[-1])):
            if time:
                yield FileFix(line, time, *_parse_place(_numbers(text)), placemark.data)


def _items(arrays: dict[str, list[str]], i: int) -> dict[str, Any]:
    return {name: values[i] for name, values in arrays.items() if i < len(values)}


def _numbers(coord: str) -> list[str]:
    """Those of a `gx:coord`: between them are spaces, or as in `coordinates` nothing but commas."""
    numbers = coord.split()
    return numbers if len(numbers) > 1 else coord.split(",")


def _parse_place(numbers: list[str]) -> Place:
    """Longitude, latitude and perhaps altitude."""
    if len(numbers) < 2:
        return NO_PLACE
    return parse_number(numbers[1]), parse_number(numbers[0])


def read_guarantee(source: Source) -> GuaranteeMetadata | None:
    """The guarantee in a file that was written here; None if there is none."""
    with SourceBytes(source) as file:
        return _find_guarantee(file.blocks(BLOCK_BYTES))


def read_kmz_guarantee(source: Source) -> GuaranteeMetadata | None:
    """The same of a KMZ."""
    return _find_guarantee(_document(source))


def _find_guarantee(blocks: Iterator[bytes]) -> GuaranteeMetadata | None:
    reader = _PlacemarkReader(Columns())
    for _ in reader.fixes(blocks):
        break  # it comes before the first placemark
    return reader.guarantee


def open_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """One placemark with a gx:Track per trace; the rows stay in memory until the end."""
    return KmlWriter(file, guarantee)


def open_kmz_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """The same as the doc.kml of an archive."""
    return KmzWriter(file, guarantee)


KML = Format(
    name="kml",
    extensions=(".kml",),
    read=read,
    open_writer=open_writer,
    read_guarantee=read_guarantee,
)
KMZ = replace(
    KML,
    name="kmz",
    extensions=(".kmz",),
    read=read_kmz,
    open_writer=open_kmz_writer,
    read_guarantee=read_kmz_guarantee,
    compressed=True,
)
