"""Writes KML: a placemark with a gx:Track per trace, as Google Earth plays it."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable
from typing import Any, BinaryIO

from hereish.traces.formats._gpx_writer import degrees, escape
from hereish.traces.formats._markup import ROWS, TraceGroups, json_values
from hereish.traces.formats._times import format_utc
from hereish.traces.formats.base import Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import ReleasedRows

DATA_NAME = "hereish"  # of the guarantee among the document's data
_HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<kml xmlns="http://www.opengis.net/kml/2.2" '
    'xmlns:gx="http://www.google.com/kml/ext/2.2">\n<Document>\n'
)
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # of the document in an archive: when it was written is not told


class KmlWriter(Writer):
    """Rows in memory until the end; then the document."""

    def __init__(self, file: BinaryIO, guarantee: GuaranteeMetadata) -> None:
        self._file = file
        self._guarantee = guarantee
        self._groups = TraceGroups()
        self._kept: dict[str, None] = {}

    def write(self, rows: ReleasedRows) -> None:
        self._kept.update(dict.fromkeys(rows.kept))
        self._groups.add(rows)

    def finish(self) -> None:
        self._write_document(self._file)
        self._file.flush()

    def _write_document(self, file: BinaryIO) -> None:
        settings = json.dumps(self._guarantee.as_dict(), ensure_ascii=False)
        arrays = "".join(
            f'<gx:SimpleArrayField name="{escape(name)}" type="string"/>'
            for name in ("kind", "cost", *self._kept)
        )
        head = (
            f"{_HEAD}<name>hereish</name>"
            f"<description>{escape(self._guarantee.description)}</description>\n"
            f"<ExtendedData>{_data(DATA_NAME, settings)}</ExtendedData>\n"
            f'<Schema id="report">{arrays}</Schema>\n'
        )
        file.write(head.encode())
        for user, trace, rows in self._groups.groups():
            for text in self._placemark(user, trace, rows):
                file.write(text.encode())
        file.write(b"</Document>\n</kml>\n")

    def _placemark(self, user: Any, trace: Any, rows: ReleasedRows) -> Iterable[str]:
        name = " ".join(str(part) for part in (user, trace) if part is not None)
        ids = "".join(
            _data(role, value)
            for role, value in (("user", user), ("trace", trace))
            if value is not None
        )
        yield f"<Placemark><name>{escape(name or 'trace')}</name>"
        yield ids and f"<ExtendedData>{ids}</ExtendedData>"
        yield "<gx:Track><altitudeMode>clampToGround</altitudeMode>\n"
        for begin in range(0, len(rows), ROWS):
            part = rows.at_us[begin : begin + ROWS]
            yield "".join(f"<when>{time}</when>\n" for time in format_utc(part))
        for lat, lon in zip(rows.lat.tolist(), rows.lon.tolist(), strict=True):
            yield f"<gx:coord>{degrees(lon)} {degrees(lat)}</gx:coord>\n"
        yield '<ExtendedData><SchemaData schemaUrl="#report">\n'
        columns = {"kind": rows.kind_names(), "cost": rows.cost.tolist()}
        columns |= {name: json_values(column) for name, column in rows.kept.items()}
        for name, values in columns.items():
            yield f'<gx:SimpleArrayData name="{escape(name)}">'
            for value in values:
                yield f"<gx:value>{'' if value is None else escape(value)}</gx:value>"
            yield "</gx:SimpleArrayData>\n"
        yield "</SchemaData></ExtendedData></gx:Track></Placemark>\n"


class KmzWriter(KmlWriter):
    """The same document, as the only file of a zip archive."""

    def finish(self) -> None:
        document = io.BytesIO()
        self._write_document(document)
        with zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_member(), document.getvalue())
        self._file.flush()


def _member() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("doc.kml", _LONG_AGO)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _data(name: str, value: object) -> str:
    return f'<Data name="{escape(name)}"><value>{escape(value)}</value></Data>'
