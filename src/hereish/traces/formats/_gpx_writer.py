"""Writes GPX 1.1: a track for each user's trace."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import BinaryIO

import numpy as np

from hereish.traces.formats._bbox import BoundingBox
from hereish.traces.formats._markup import ROWS, TraceGroups
from hereish.traces.formats._times import format_utc
from hereish.traces.formats.base import Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import ReleasedRows

NAMESPACE = "urn:hereish:gpx:1"
_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<gpx version="1.1" creator="hereish" xmlns="http://www.topografix.com/GPX/1/1" '
    f'xmlns:hereish="{NAMESPACE}">\n'
)
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# White space too, or a parser would normalise it.
_ESCAPES = str.maketrans({c: f"&#{ord(c)};" for c in '&<>"\t\n\r'})


class TrackWriter(Writer):
    """Collects released rows, and writes them as tracks at the end."""

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
        "every-s": guarantee.every_s,
    }
    attributes = "".join(
        f' {name}="{escape(value)}"' for name, value in settings.items() if value is not None
    )
    return (
        f"<metadata><desc>{escape(guarantee.statement)}</desc>{bounds}"
        f"<extensions><hereish:promise{attributes}/></extensions></metadata>\n"
    )


def _bounds(bbox: BoundingBox) -> str:
    if bbox.sides is None:
        return ""
    west, south, east, north = map(degrees, bbox.sides)
    return f'<bounds minlat="{south}" minlon="{west}" maxlat="{north}" maxlon="{east}"/>'


def _ids(user: object, trace: object) -> str:
    name = "" if trace is None else f"<name>{escape(trace)}</name>"
    ids = "".join(
        f"<hereish:{role}>{escape(value)}</hereish:{role}>"
        for role, value in (("user", user), ("trace", trace))
        if value is not None
    )
    return name + (ids and f"<extensions>{ids}</extensions>")


def _points(rows: ReleasedRows) -> str:
    kept = [f'<hereish:kept name="{escape(name)}">' for name in rows.kept]
    values = zip(*rows.kept.values(), strict=True) if kept else [()] * len(rows)
    columns = (rows.lat.tolist(), rows.lon.tolist(), format_utc(rows.at_us), rows.kind_names())
    points = []
    for lat, lon, at, kind, cost, more in zip(*columns, rows.cost.tolist(), values, strict=True):
        extra = "".join(
            f"{tag}{escape(value)}</hereish:kept>"
            for tag, value in zip(kept, more, strict=True)
            if value is not None
        )
        points.append(
            f'<trkpt lat="{degrees(lat)}" lon="{degrees(lon)}"><time>{at}</time>'
            f"<type>{kind}</type><extensions><hereish:cost>{cost!r}</hereish:cost>{extra}"
            "</extensions></trkpt>\n"
        )
    return "".join(points)


def degrees(value: float) -> str:
    """The shortest text of a number, without an exponent, which the schema does not allow."""
    text = repr(value)
    return f"{Decimal(text):f}" if "e" in text else text


def escape(value: object) -> str:
    """A value as text in XML, or in one of its attributes."""
    return _FORBIDDEN.sub("\ufffd", str(value)).translate(_ESCAPES)
