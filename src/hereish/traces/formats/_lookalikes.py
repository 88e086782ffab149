"""What a file begins like whose reader has failed: its name may be wrong, and not its content."""

from __future__ import annotations

import contextlib

from hereish.traces.faults import UnreadableFileError
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats.base import Source

_HEAD_BYTES = 16
# How files begin, what they are then, the formats that are right to, and what to do.
_BEGINS: tuple[tuple[bytes, str, tuple[str, ...], str], ...] = (
    (b"PK\3\4", "a zip archive", ("kmz",), "give it a name that ends in .zip"),
    (b"\x1f\x8b", "a file packed by gzip", (), "give it a name that ends in .gz, too"),
    (b"PAR1", "Parquet", ("parquet", "geoparquet"), "give --format parquet"),
    (b"SQLite format 3", "a GeoPackage", ("gpkg",), "give --format gpkg"),
    (b"<", "XML", ("gpx", "kml", "kmz", "tcx"), "give --format gpx, kml or tcx"),
    (b"{", "JSON", ("geojson", "mfjson", "google", "records"), "give it a name that ends in .json"),
    (b"$G", "a receiver's sentences", ("nmea",), "give --format nmea"),
)


def hint_at_content(source: Source) -> str:
    """What a file is that is not of its format, and what to do; empty if that is not known."""
    head = b""
    with contextlib.suppress(OSError, UnreadableFileError):
        if source.path is not None:  # standard input cannot be read again
            with SourceBytes(source) as file:
                head = file.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    for begin, kind, forms, remedy in _BEGINS:
        if head.startswith(begin) and source.format.name not in forms:
            return f"it begins like {kind}: {remedy}"
    return ""


def with_hint(source: Source, error: UnreadableFileError) -> UnreadableFileError:
    """The error of a reader, with that in place of its remedy if it is known."""
    error.remedy = hint_at_content(source) or error.remedy
    return error
