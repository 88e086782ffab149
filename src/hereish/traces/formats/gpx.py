"""GPX: the points of its tracks in, tracks of released points out.

A track is a trace, with all its segments; waypoints and routes are left out. The files written
here have users and traces in elements of a namespace of their own, which are read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO, TypeAlias
from xml.parsers import expat

import numpy as np

from hereish.errors import ParameterError
from hereish.traces.columns import Columns, Layout
from hereish.traces.faults import (
    Fault,
    NoPointsError,
    UnreadableFileError,
    counted,
    empty_file,
    no_times,
)
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._degrees import parse_all_degrees, parse_number
from hereish.traces.formats._gpx_points import MARK, PlainPoints
from hereish.traces.formats._gpx_writer import NAMESPACE as NAMESPACE
from hereish.traces.formats._gpx_writer import TrackWriter
from hereish.traces.formats._markup import (
    BLOCK_BYTES,
    ROWS,
    RowColumns,
    batch_from_columns,
    check_keep,
    merge_file,
)
from hereish.traces.formats._text import parse_times
from hereish.traces.formats._times import TimeParser
from hereish.traces.formats._xml import (
    EARLY,
    TokenGuard,
    begin_with_declaration,
    broken_xml,
    declares_type,
    ends_early,
    other_root,
    unknown_encoding,
)
from hereish.traces.formats.base import Format, Source, Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import RowBatch

_POINT = ["gpx", "trk", "trkseg", "trkpt"]
_IDS = ["gpx", "trk", "extensions"]
_NAME = ["gpx", "trk", "name"]
_WAYPOINT, _ROUTE = ["gpx", "wpt"], ["gpx", "rte"]
_TRACKS = "tracks of points that have a <time> each"
_DEEPEST = 4  # nothing that is read outside of points is deeper than this
_UNBOUND_PREFIX = expat.errors.codes[expat.errors.XML_ERROR_UNBOUND_PREFIX]


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The points of all tracks; the names in `columns` do not apply, except those of `keep`."""
    reader, batches, problem = _read_tracks(source, columns, namespaces=True)
    if reader.unbound_prefix and source.path is not None:
        # A prefix that nothing declares: read without namespaces, as most programs do.
        reader, batches, problem = _read_tracks(source, columns, namespaces=False)
    if problem is None and not reader.any_time:
        raise no_times()
    if batches:
        yield replace(merge_file(batches, reader.times), passed_over=reader.passed_over())
    if problem is not None:
        raise problem
    reader.check_kept()


def _read_tracks(
    source: Source, columns: Columns, *, namespaces: bool
) -> tuple[_TrackReader, list[RowBatch], UnreadableFileError | None]:
    """All that can be read of a file, and why the rest cannot."""
    reader = _TrackReader(columns, namespaces=namespaces)
    problem = None
    batches = []  # all of them, as tracks are numbered by what is in them
    try:
        with SourceBytes(source) as file:
            for block in file.blocks(BLOCK_BYTES):
                reader.feed(block)
                if len(reader.rows) >= ROWS:
                    batches.append(reader.take_batch(file.done()))
        reader.close()
    except UnreadableFileError as error:
        problem = error
    try:
        if reader.rows:
            batches.append(reader.take_batch(1.0))
    except UnreadableFileError as error:
        problem = error
    return reader, batches, problem


def read_guarantee(source: Source) -> GuaranteeMetadata | None:
    """The guarantee in a file that was written here; None if there is none."""
    reader = _TrackReader(Columns())
    with SourceBytes(source) as file:
        for block in file.blocks(BLOCK_BYTES):
            reader.feed(block)
            if reader.guarantee is not None or reader.rows:  # metadata come before the tracks
                break
    settings = reader.guarantee
    if settings is None:
        return None
    return GuaranteeMetadata(
        statement=reader.metadata.get("desc", ""),
        private=settings.get("private") == "true",
        eps_per_m=_parse_optional(settings.get("eps-per-m")),
        window=settings.get("window", "none"),
        time_zone=settings.get("time-zone"),
        prior=settings.get("prior"),
        every_s=_parse_optional(settings.get("every-s")),
    )


# A point's line, the texts of its latitude, longitude and time, its user, its trace, what is kept.
_Point: TypeAlias = tuple[int, str, str, str, str | None, str | int, list[str | None]]


class _TrackReader:
    """Collects points while the XML parser goes through the file."""

    def __init__(self, columns: Columns, *, namespaces: bool = True) -> None:
        self.rows: list[_Point] = []
        self.unbound_prefix = False
        self.metadata: dict[str, str] = {}
        self.guarantee: dict[str, str] | None = None
        self._keep = columns.keep
        self._kept: set[str] = set()  # those of them that some point had
        check_keep(self._keep, ("user", "trace", "time", "lat", "lon"))
        self._wanted = {"time", "type", *self._keep}  # elements inside of points
        self._keep_names = columns.keep_trace_names is True
        self.times = TimeParser(columns.zone, columns.time_format)
        self._has_users: bool | None = None  # None until the first batch
        self._blank = True
        self.any_time = False
        self._path: list[str] = []
        self._tracks = 0
        self._planned = 0  # tracks none of whose points has a time
        # Points of this track, while none of them has a time; None once one has.
        self._timeless: list[_Point] | None = []
        self._waypoints = self._routes = 0
        self._track: dict[str, str] = {}  # its ids
        self._point: dict[str, str] | None = None  # its texts, while the parser is inside it
        self._place: tuple[int, str, str] = (0, "", "")
        self._recording: tuple[int, dict[str, str], str] | None = None  # depth, and where it goes
        self._text: list[str] = []
        self._plain = None if self._keep else PlainPoints()
        self._namespaces = namespaces
        self._parser = expat.ParserCreate(namespace_separator=" " if namespaces else None)
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._guard = TokenGuard(self._parser, "GPX")

    def feed(self, block: bytes, *, last: bool = False) -> None:
        if self._blank:
            block = begin_with_declaration(block)
            self._blank = not block.strip()
        if self._plain is not None:
            block = self._plain.without_points(block)
        problem = self._problem(block, last)
        if problem is not None:
            raise problem

    def close(self) -> None:
        """The end of the file."""
        if self._blank:
            raise empty_file(_TRACKS)
        self.feed(b"", last=True)
        if not self.rows and self._has_users is None and not self._planned:
            raise self._no_tracks()

    def _no_tracks(self) -> NoPointsError:
        """Waypoints and routes are places that somebody chose, not where somebody was."""
        others = {"waypoint": self._waypoints, "route": self._routes}
        some = " and ".join(
            counted(count, name, f"{name}s") for name, count in others.items() if count
        )
        reason = f", but {some}: places that were marked or planned, not where somebody was when"
        return NoPointsError(
            f"it has no track points{reason if some else ''}",
            expected=_TRACKS,
            remedy="leave this file out, or export the track itself",
        )

    def passed_over(self) -> str:
        """What the summary says of tracks without times; nothing if there are none."""
        if not self._planned:
            return ""
        return f"{counted(self._planned, 'track', 'tracks')} without times, as planned routes are"

    def check_kept(self) -> None:
        """After the last batch: raises if a column to keep was never there."""
        missing = [name for name in self._keep if name not in self._kept]
        if missing:
            raise ParameterError(
                f"its points have no {missing[0]!r} to keep: leave out --keep {missing[0]}"
            )

    def take_batch(self, done: float) -> RowBatch:
        line, lats, lons, times, user, trace, kept = zip(*self.rows, strict=True)
        self.rows = []
        with_user = next(
            (at for at, name in zip(line, user, strict=True) if name is not None), None
        )
        if self._has_users is None:
            self._has_users = with_user is not None
        if with_user is not None and not self._has_users:
            raise UnreadableFileError(
                "this track has a user, and those before it have none",
                with_user,
                expected="a user in each track or in none",
                remedy="name them all, or make each file a user with --user @file",
            )
        for i, name in enumerate(self._keep):
            if any(values[i] is not None for values in kept):
                self._kept.add(name)
        at_us, fault = parse_times(times, self.times)
        lat, lon = parse_all_degrees(lats, "lat"), parse_all_degrees(lons, "lon")
        fault[(fault == Fault.NONE) & np.isnan(lat)] = Fault.LAT
        fault[(fault == Fault.NONE) & np.isnan(lon)] = Fault.LON
        # Ids are those of an output of ours, or names that were asked for.
        layout = Layout(numbered=True, public_traces=True)
        rows = RowColumns(line, at_us, lat, lon, fault, user, trace, kept)
        return batch_from_columns(rows, self._keep, layout, has_users=self._has_users, done=done)

    def _problem(self, block: bytes, last: bool) -> UnreadableFileError | None:
        try:
            self._parser.Parse(block, last)
            self._guard.check(block, blank=self._blank)
        except UnreadableFileError as problem:
            return problem
        except expat.ExpatError as error:
            self.unbound_prefix = error.code == _UNBOUND_PREFIX
            if error.code in EARLY:
                return ends_early("a file that ends with </gpx>", error.lineno)
            return broken_xml(error)
        except (LookupError, ValueError):
            return unknown_encoding()
        return None

    def _doctype(self, *_: object) -> None:
        raise declares_type("GPX", self._parser.CurrentLineNumber)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        space, _, local = name.rpartition(" ")
        if not self._namespaces:
            local = local.rpartition(":")[2]
        path = self._path
        path.append(local)
        if self._point is not None:
            if space == NAMESPACE or local in self._wanted:
                self._child(self._point, space, local, attributes)
        elif path == _POINT and self._plain is not None and MARK in attributes:
            self._take_plain(self._plain, attributes[MARK])
        elif path == _POINT:
            get = attributes.get
            self._place = (self._parser.CurrentLineNumber, get("lat", ""), get("lon", ""))
            self._point = {}
        elif path == _POINT[:2]:
            self._tracks += 1
            self._track = {}
            self._timeless = []
        elif path == _WAYPOINT:
            self._waypoints += 1
        elif path == _ROUTE:
            self._routes += 1
        elif len(path) > _DEEPEST:
            return
        elif self._keep_names and path == _NAME:
            self._record(self._track, "name")
        elif space == NAMESPACE and path[:-1] == _IDS and local in ("user", "trace"):
            self._record(self._track, local)
        elif path == ["gpx", "metadata", "desc"]:
            self._record(self.metadata, local)
        elif space == NAMESPACE and path == ["gpx", "metadata", "extensions", "promise"]:
            self.guarantee = attributes
        elif len(path) == 1 and local != "gpx":
            raise other_root("gpx", "GPX", self._parser.CurrentLineNumber)

    def _child(
        self, point: dict[str, str], space: str, local: str, attributes: dict[str, str]
    ) -> None:
        """An element inside a point: its time, or one that is kept."""
        if space == NAMESPACE and local == "kept":
            local = attributes.get("name", "")
        direct = len(self._path) == len(_POINT) + 1
        if direct and local == "type" and "kind" in self._keep:
            local = "kind"  # where the files written here have it
        if local in self._keep or (direct and local == "time"):
            self._record(point, local)

    def _record(self, into: dict[str, str], name: str) -> None:
        self._recording = (len(self._path), into, name)
        self._text = []

    def _characters(self, text: str) -> None:
        if self._recording is not None and len(self._path) == self._recording[0]:
            self._text.append(text)

    def _end(self, _: str) -> None:
        path = self._path
        depth = len(path)
        if self._recording is not None and depth == self._recording[0]:
            self._recording[1].setdefault(self._recording[2], "".join(self._text))
            self._recording = None
        if depth == len(_POINT) and self._point is not None:
            self._add(self._finished(self._point))
            self._point = None
        elif path == _POINT[:2]:
            self._planned += bool(self._timeless)
            self._timeless = []
        path.pop()

    def _add(self, point: _Point) -> None:
        """A point of this track; those before its first time wait for that."""
        if self._timeless is not None:
            if not point[3].strip():
                self._timeless.append(point)
                return
            self.any_time = True
            self.rows += self._timeless
            self._timeless = None
        self.rows.append(point)

    def _finished(self, point: dict[str, str]) -> _Point:
        kept = [point.get(name) for name in self._keep]
        return (*self._place, point.get("time", ""), *self._ids(), kept)

    def _take_plain(self, plain: PlainPoints, run: str) -> None:
        """Points that have been read, where they stand."""
        user, trace = self._ids()
        nothing: list[str | None] = []
        for line, lat, lon, time in plain.take(run):
            self._add((line, lat, lon, time or "", user, trace, nothing))

    def _ids(self) -> tuple[str | None, str | int]:
        """The user and the trace of this track."""
        track = self._track
        if not track:
            return None, self._tracks
        user = track.get("user", "")
        trace = track.get("trace", "") or track.get("name", "").strip()
        return user if user.strip() else None, trace or self._tracks


def _parse_optional(text: str | None) -> float | None:
    return None if text is None else parse_number(text)


def open_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """Writes GPX 1.1, which has names of its own: the layout does not matter.

    The rows stay in memory until the end, where each user's trace becomes a track.
    """
    return TrackWriter(file, guarantee)


FORMAT = Format(
    name="gpx",
    extensions=(".gpx",),
    read=read,
    open_writer=open_writer,
    read_guarantee=read_guarantee,
)
