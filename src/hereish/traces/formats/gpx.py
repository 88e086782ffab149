"""GPX: the points of its tracks in, tracks of released points out.

A track is a trace, with all its segments; waypoints and routes are left out. The files written
here have users and traces in elements of a namespace of their own, which are read again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import BinaryIO
from xml.parsers import expat

import numpy as np

from hereish.errors import ParameterError
from hereish.traces.columns import Columns, Layout
from hereish.traces.faults import UnreadableFileError
from hereish.traces.formats._bbox import BoundingBox
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._markup import (
    BLOCK_BYTES,
    ROWS,
    Row,
    TraceGroups,
    batch_from_rows,
    check_keep,
    merge_file,
)
from hereish.traces.formats._text import parse_number
from hereish.traces.formats._times import TimeParser, format_utc
from hereish.traces.formats.base import Format, Source, Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import ReleasedRows, RowBatch

NAMESPACE = "urn:hereish:gpx:1"
_POINT = ["gpx", "trk", "trkseg", "trkpt"]
_IDS = ["gpx", "trk", "extensions"]
_DEEPEST = 4  # nothing that is read outside of points is deeper than this
_EARLY = {
    expat.errors.codes[error]
    for error in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
        expat.errors.XML_ERROR_PARTIAL_CHAR,
    )
}
_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<gpx version="1.1" creator="hereish" xmlns="http://www.topografix.com/GPX/1/1" '
    f'xmlns:hereish="{NAMESPACE}">\n'
)
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# White space too, or a parser would normalise it.
_ESCAPES = str.maketrans({c: f"&#{ord(c)};" for c in '&<>"\t\n\r'})


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The points of all tracks; the names in `columns` do not apply, except those of `keep`."""
    reader = _TrackReader(columns)
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
    if batches:
        yield merge_file(batches, reader.times)
    if problem is not None:
        raise problem
    reader.check_kept()


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
    )


class _TrackReader:
    """Collects points while the XML parser goes through the file."""

    def __init__(self, columns: Columns) -> None:
        self.rows: list[Row] = []
        self.metadata: dict[str, str] = {}
        self.guarantee: dict[str, str] | None = None
        self._keep = columns.keep
        self._kept: set[str] = set()  # those of them that some point had
        check_keep(self._keep, ("user", "trace", "time", "lat", "lon"))
        self.times = TimeParser(columns.zone)
        self._has_users: bool | None = None  # None until the first batch
        self._blank = True
        self._path: list[str] = []
        self._tracks = 0
        self._track: dict[str, str] = {}  # its ids
        self._point: dict[str, str] | None = None  # its texts, while the parser is inside it
        self._place: tuple[int, float | None, float | None] = (0, None, None)
        self._recording: tuple[int, dict[str, str], str] | None = None  # depth, and where it goes
        self._text: list[str] = []
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters

    def feed(self, block: bytes, *, last: bool = False) -> None:
        self._blank = self._blank and not block.strip()
        problem = self._problem(block, last)
        if problem is not None:
            raise problem

    def close(self) -> None:
        """The end of the file."""
        if self._blank:
            raise UnreadableFileError("it is empty")
        self.feed(b"", last=True)
        if not self.rows and self._has_users is None:
            raise UnreadableFileError("it has no track points")

    def check_kept(self) -> None:
        """After the last batch: raises if a column to keep was never there."""
        missing = [name for name in self._keep if name not in self._kept]
        if missing:
            raise ParameterError(f"its points have no {missing[0]!r} to keep")

    def take_batch(self, done: float) -> RowBatch:
        rows, self.rows = self.rows, []
        with_user = next((row for row in rows if row.user is not None), None)
        if self._has_users is None:
            self._has_users = with_user is not None
        if with_user is not None and not self._has_users:
            raise UnreadableFileError(
                "this track has a user, and those before it have none", with_user.line
            )
        for i, name in enumerate(self._keep):
            if any(row.kept[i] is not None for row in rows):
                self._kept.add(name)
        return batch_from_rows(
            rows, self._keep, Layout(numbered=True), has_users=self._has_users, done=done
        )

    def _problem(self, block: bytes, last: bool) -> UnreadableFileError | None:
        try:
            self._parser.Parse(block, last)
        except UnreadableFileError as problem:
            return problem
        except expat.ExpatError as error:
            broken = f"its XML is broken: {expat.ErrorString(error.code)}"
            return UnreadableFileError(
                "it ends too early" if error.code in _EARLY else broken, error.lineno
            )
        except (LookupError, ValueError):
            return UnreadableFileError("it is in an encoding that is not read; save it as UTF-8")
        return None

    def _doctype(self, *_: object) -> None:
        line = self._parser.CurrentLineNumber
        raise UnreadableFileError("it declares a document type, which is refused", line)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        space, _, local = name.rpartition(" ")
        path = self._path
        path.append(local)
        if self._point is not None:
            self._child(self._point, space, local, attributes)
        elif path == _POINT:
            line = self._parser.CurrentLineNumber
            self._place = (
                line,
                _parse_optional(attributes.get("lat")),
                _parse_optional(attributes.get("lon")),
            )
            self._point = {}
        elif path == _POINT[:2]:
            self._tracks += 1
            self._track = {}
        elif len(path) > _DEEPEST:
            return
        elif space == NAMESPACE and path[:-1] == _IDS and local in ("user", "trace"):
            self._record(self._track, local)
        elif path == ["gpx", "metadata", "desc"]:
            self._record(self.metadata, local)
        elif space == NAMESPACE and path == ["gpx", "metadata", "extensions", "promise"]:
            self.guarantee = attributes
        elif len(path) == 1 and local != "gpx":
            raise UnreadableFileError("it is not GPX", self._parser.CurrentLineNumber)

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
        depth = len(self._path)
        if self._recording is not None and depth == self._recording[0]:
            self._recording[1].setdefault(self._recording[2], "".join(self._text))
            self._recording = None
        if self._point is not None and depth == len(_POINT):
            self.rows.append(self._row(self._point))
            self._point = None
        self._path.pop()

    def _row(self, point: Mapping[str, str]) -> Row:
        line, lat, lon = self._place
        at = self.times.parse(point.get("time", ""))
        user = self._track.get("user", "")
        trace = self._track.get("trace", "")
        kept = [point.get(name) for name in self._keep]
        who = user if user.strip() else None
        return Row.parsed(line, at, lat, lon, who, trace or self._tracks, kept)


def _parse_optional(text: str | None) -> float | None:
    return None if text is None else parse_number(text)


def open_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """Writes GPX 1.1, which has names of its own: the layout does not matter.

    The rows stay in memory until the end, where each user's trace becomes a track.
    """
    return _TrackWriter(file, guarantee)


FORMAT = Format(
    name="gpx",
    extensions=(".gpx",),
    read=read,
    open_writer=open_writer,
    read_guarantee=read_guarantee,
)


class _TrackWriter(Writer):
    def __init__(self, file: BinaryIO, guarantee: GuaranteeMetadata) -> None:
        self._file = file
        self._guarantee = guarantee
        self._groups = TraceGroups()
        self._bbox = BoundingBox()

    def write(self, rows: ReleasedRows) -> None:
        # 180 and -180 are the same meridian, and the schema allows only the latter.
        rows = replace(rows, lon=np.where(rows.lon == 180.0, -180.0, rows.lon))
        self._groups.add(rows)
        self._bbox.add(rows.lat, rows.lon)

    def finish(self) -> None:
        self._write_text(_HEAD + _metadata(self._guarantee, _bounds(self._bbox)))
        for user, trace, rows in self._groups.groups():
            self._write_text(f"<trk>{_ids(user, trace)}<trkseg>\n")
            for begin in range(0, len(rows), ROWS):
                self._write_text(_points(rows.take(np.arange(begin, min(begin + ROWS, len(rows))))))
            self._write_text("</trkseg></trk>\n")
        self._write_text("</gpx>\n")
        self._file.flush()

    def _write_text(self, text: str) -> None:
        self._file.write(text.encode())


def _metadata(guarantee: GuaranteeMetadata, bounds: str) -> str:
    settings = {
        "eps-per-m": guarantee.eps_per_m,
        "window": guarantee.window,
        "time-zone": guarantee.time_zone,
        "private": str(guarantee.private).lower(),
        "prior": guarantee.prior,
    }
    attributes = "".join(
        f' {name}="{_escape(value)}"' for name, value in settings.items() if value is not None
    )
    return (
        f"<metadata><desc>{_escape(guarantee.statement)}</desc>{bounds}"
        f"<extensions><hereish:promise{attributes}/></extensions></metadata>\n"
    )


def _bounds(bbox: BoundingBox) -> str:
    if bbox.sides is None:
        return ""
    west, south, east, north = map(_degrees, bbox.sides)
    return f'<bounds minlat="{south}" minlon="{west}" maxlat="{north}" maxlon="{east}"/>'


def _ids(user: object, trace: object) -> str:
    name = "" if trace is None else f"<name>{_escape(trace)}</name>"
    ids = "".join(
        f"<hereish:{role}>{_escape(value)}</hereish:{role}>"
        for role, value in (("user", user), ("trace", trace))
        if value is not None
    )
    return name + (ids and f"<extensions>{ids}</extensions>")


def _points(rows: ReleasedRows) -> str:
    kept = [f'<hereish:kept name="{_escape(name)}">' for name in rows.kept]
    values = zip(*rows.kept.values(), strict=True) if kept else [()] * len(rows)
    columns = (rows.lat.tolist(), rows.lon.tolist(), format_utc(rows.at_us), rows.kind_names())
    points = []
    for lat, lon, at, kind, cost, more in zip(*columns, rows.cost.tolist(), values, strict=True):
        extra = "".join(
            f"{tag}{_escape(value)}</hereish:kept>"
            for tag, value in zip(kept, more, strict=True)
            if value is not None
        )
        points.append(
            f'<trkpt lat="{_degrees(lat)}" lon="{_degrees(lon)}"><time>{at}</time>'
            f"<type>{kind}</type><extensions><hereish:cost>{cost!r}</hereish:cost>{extra}"
            "</extensions></trkpt>\n"
        )
    return "".join(points)


def _degrees(value: float) -> str:
    """The shortest text of a number, without an exponent, which the schema does not allow."""
    text = repr(value)
    return f"{Decimal(text):f}" if "e" in text else text


def _escape(value: object) -> str:
    return _FORBIDDEN.sub("\ufffd", str(value)).translate(_ESCAPES)
