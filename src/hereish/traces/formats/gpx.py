"""GPX: the points of its tracks in, tracks of released points out.

A track is a trace, with all its segments; waypoints and routes are left out. The files written
here tell users and traces in elements of a namespace of their own, which are read again.
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
from hereish.traces.discovery import Source
from hereish.traces.formats._bbox import Box
from hereish.traces.formats._markup import (
    ROWS,
    Gathered,
    Row,
    blocks,
    check_keep,
    piece_of,
    whole_file,
)
from hereish.traces.formats._text import number
from hereish.traces.formats._times import Clock, iso
from hereish.traces.table import (
    KINDS,
    Columns,
    Layout,
    Piece,
    Promise,
    Released,
    Unreadable,
    Writer,
)

NAMESPACE = "urn:hereish:gpx:1"
_POINT = ["gpx", "trk", "trkseg", "trkpt"]
_IDS = ["gpx", "trk", "extensions"]
_DEEPEST = 4  # what matters outside of points is no deeper than this
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
# White space too, or a parser would read it as other white space.
_ESCAPES = str.maketrans({c: f"&#{ord(c)};" for c in '&<>"\t\n\r'})


def read(source: Source, columns: Columns) -> Iterator[Piece]:
    """The points of all tracks; the names in `columns` do not apply, except those of `keep`."""
    reader = _Reader(columns)
    problem = None
    pieces = []  # all of them, as its tracks are numbered by what is in them
    try:
        for block, done in blocks(source):
            reader.feed(block)
            if len(reader.rows) >= ROWS:
                pieces.append(reader.piece(done))
        reader.close()
    except Unreadable as error:
        problem = error
    try:
        if reader.rows:
            pieces.append(reader.piece(1.0))
    except Unreadable as error:
        problem = error
    if pieces:
        yield whole_file(pieces, reader.clock)
    if problem is not None:
        raise problem
    reader.check_kept()


def promise_of(source: Source) -> Promise | None:
    """What was promised for a file that was written here; None if it does not say."""
    reader = _Reader(Columns())
    for block, _ in blocks(source):
        reader.feed(block)
        if reader.promised is not None or reader.rows:  # metadata come before the tracks
            break
    told = reader.promised
    if told is None:
        return None
    return Promise(
        guarantee=reader.about.get("desc", ""),
        private=told.get("private") == "true",
        eps_per_m=_number(told.get("eps-per-m")),
        window=told.get("window", "none"),
        time_zone=told.get("time-zone"),
    )


class _Reader:
    """Gathers points while the parser goes through the file."""

    def __init__(self, columns: Columns) -> None:
        self.rows: list[Row] = []
        self.about: dict[str, str] = {}
        self.promised: dict[str, str] | None = None
        self._keep = columns.keep
        self._kept: set[str] = set()  # those of them that some point had
        check_keep(self._keep, ("user", "trace", "time", "lat", "lon"))
        self.clock = Clock(columns.zone)
        self._told: bool | None = None  # whether the file tells users; None until the first piece
        self._blank = True
        self._path: list[str] = []
        self._tracks = 0
        self._track: dict[str, str] = {}  # its ids
        self._point: dict[str, str] | None = None  # what it holds, while the parser is inside
        self._place: tuple[int, float | None, float | None] = (0, None, None)
        self._into: tuple[int, dict[str, str], str] | None = None  # where text goes, how deep
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
            raise Unreadable("it is empty")
        self.feed(b"", last=True)
        if not self.rows and self._told is None:
            raise Unreadable("it has no track points")

    def check_kept(self) -> None:
        """After the last piece: what was never there cannot have been meant."""
        missing = [name for name in self._keep if name not in self._kept]
        if missing:
            raise ParameterError(f"its points have no {missing[0]!r} to keep")

    def piece(self, done: float) -> Piece:
        rows, self.rows = self.rows, []
        with_user = next((row for row in rows if row.user is not None), None)
        if self._told is None:
            self._told = with_user is not None
        if with_user is not None and not self._told:
            raise Unreadable("this track has a user, and those before it have none", with_user.line)
        for i, name in enumerate(self._keep):
            if any(row.kept[i] is not None for row in rows):
                self._kept.add(name)
        return piece_of(rows, self._keep, Layout(numbered=True), told=self._told, done=done)

    def _problem(self, block: bytes, last: bool) -> Unreadable | None:
        try:
            self._parser.Parse(block, last)
        except Unreadable as problem:
            return problem
        except expat.ExpatError as error:
            broken = f"its XML is broken: {expat.ErrorString(error.code)}"
            return Unreadable("it ends too early" if error.code in _EARLY else broken, error.lineno)
        except (LookupError, ValueError):
            return Unreadable("it is in an encoding that is not read; save it as UTF-8")
        return None

    def _doctype(self, *_: object) -> None:
        line = self._parser.CurrentLineNumber
        raise Unreadable("it declares a document type, which is refused", line)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        space, _, local = name.rpartition(" ")
        path = self._path
        path.append(local)
        if self._point is not None:
            self._child(self._point, space, local, attributes)
        elif path == _POINT:
            line = self._parser.CurrentLineNumber
            self._place = (line, _number(attributes.get("lat")), _number(attributes.get("lon")))
            self._point = {}
        elif path == _POINT[:2]:
            self._tracks += 1
            self._track = {}
        elif len(path) > _DEEPEST:
            return
        elif space == NAMESPACE and path[:-1] == _IDS and local in ("user", "trace"):
            self._listen(self._track, local)
        elif path == ["gpx", "metadata", "desc"]:
            self._listen(self.about, local)
        elif space == NAMESPACE and path == ["gpx", "metadata", "extensions", "promise"]:
            self.promised = attributes
        elif len(path) == 1 and local != "gpx":
            raise Unreadable("it is not GPX", self._parser.CurrentLineNumber)

    def _child(
        self, point: dict[str, str], space: str, local: str, attributes: dict[str, str]
    ) -> None:
        """An element inside a point: its time, or one that is kept."""
        if space == NAMESPACE and local == "kept":
            local = attributes.get("name", "")
        direct = len(self._path) == len(_POINT) + 1
        if direct and local == "type" and "kind" in self._keep:
            local = "kind"  # it stands there in the files written here
        if local in self._keep or (direct and local == "time"):
            self._listen(point, local)

    def _listen(self, into: dict[str, str], name: str) -> None:
        self._into = (len(self._path), into, name)
        self._text = []

    def _characters(self, text: str) -> None:
        if self._into is not None and len(self._path) == self._into[0]:
            self._text.append(text)

    def _end(self, _: str) -> None:
        depth = len(self._path)
        if self._into is not None and depth == self._into[0]:
            self._into[1].setdefault(self._into[2], "".join(self._text))
            self._into = None
        if self._point is not None and depth == len(_POINT):
            self.rows.append(self._row(self._point))
            self._point = None
        self._path.pop()

    def _row(self, point: Mapping[str, str]) -> Row:
        line, lat, lon = self._place
        at = self.clock.read(point.get("time", ""))
        user = self._track.get("user", "")
        trace = self._track.get("trace", "")
        kept = [point.get(name) for name in self._keep]
        who = user if user.strip() else None
        return Row.of(line, at, lat, lon, who, trace or self._tracks, kept)


def _number(text: str | None) -> float | None:
    return None if text is None else number(text)


def writer(file: BinaryIO, layout: Layout, promise: Promise) -> Writer:
    """Writes GPX 1.1, which has names of its own: the layout does not matter.

    The rows stay in memory until the end, where each user's trace becomes a track.
    """
    return _Writer(file, promise)


class _Writer:
    def __init__(self, file: BinaryIO, promise: Promise) -> None:
        self._file = file
        self._promise = promise
        self._rows = Gathered()
        self._box = Box()

    def write(self, rows: Released) -> None:
        # The same meridian has two names, and the schema allows one of them.
        rows = replace(rows, lon=np.where(rows.lon == 180.0, -180.0, rows.lon))
        self._rows.add(rows)
        self._box.add(rows.lat, rows.lon)

    def finish(self) -> None:
        self._put(_HEAD + _metadata(self._promise, _bounds(self._box)))
        for user, trace, rows in self._rows.groups():
            self._put(f"<trk>{_ids(user, trace)}<trkseg>\n")
            for begin in range(0, len(rows), ROWS):
                self._put(_points(rows.take(np.arange(begin, min(begin + ROWS, len(rows))))))
            self._put("</trkseg></trk>\n")
        self._put("</gpx>\n")
        self._file.flush()

    def _put(self, text: str) -> None:
        self._file.write(text.encode())


def _metadata(promise: Promise, bounds: str) -> str:
    settings = {
        "eps-per-m": promise.eps_per_m,
        "window": promise.window,
        "time-zone": promise.time_zone,
        "private": str(promise.private).lower(),
    }
    told = "".join(f' {k}="{_escaped(v)}"' for k, v in settings.items() if v is not None)
    return (
        f"<metadata><desc>{_escaped(promise.guarantee)}</desc>{bounds}"
        f"<extensions><hereish:promise{told}/></extensions></metadata>\n"
    )


def _bounds(box: Box) -> str:
    if box.sides is None:
        return ""
    west, south, east, north = map(_degrees, box.sides)
    return f'<bounds minlat="{south}" minlon="{west}" maxlat="{north}" maxlon="{east}"/>'


def _ids(user: object, trace: object) -> str:
    name = "" if trace is None else f"<name>{_escaped(trace)}</name>"
    ids = "".join(
        f"<hereish:{role}>{_escaped(value)}</hereish:{role}>"
        for role, value in (("user", user), ("trace", trace))
        if value is not None
    )
    return name + (ids and f"<extensions>{ids}</extensions>")


def _points(rows: Released) -> str:
    kept = [f'<hereish:kept name="{_escaped(name)}">' for name in rows.kept]
    values = zip(*rows.kept.values(), strict=True) if kept else [()] * len(rows)
    columns = (rows.lat.tolist(), rows.lon.tolist(), iso(rows.at_us), rows.kind.tolist())
    points = []
    for lat, lon, at, kind, cost, more in zip(*columns, rows.cost.tolist(), values, strict=True):
        extra = "".join(
            f"{tag}{_escaped(value)}</hereish:kept>"
            for tag, value in zip(kept, more, strict=True)
            if value is not None
        )
        points.append(
            f'<trkpt lat="{_degrees(lat)}" lon="{_degrees(lon)}"><time>{at}</time>'
            f"<type>{KINDS[kind]}</type><extensions><hereish:cost>{cost!r}</hereish:cost>{extra}"
            "</extensions></trkpt>\n"
        )
    return "".join(points)


def _degrees(value: float) -> str:
    """The shortest text of a number, without an exponent, which the schema does not allow."""
    text = repr(value)
    return f"{Decimal(text):f}" if "e" in text else text


def _escaped(value: object) -> str:
    return _FORBIDDEN.sub("\ufffd", str(value)).translate(_ESCAPES)
