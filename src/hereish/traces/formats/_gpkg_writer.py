"""Writes a GeoPackage 1.3: one table of points, made in memory."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO

from hereish.errors import ParameterError
from hereish.traces.columns import Layout
from hereish.traces.formats._bbox import BoundingBox
from hereish.traces.formats._markup import json_values
from hereish.traces.formats._times import format_utc
from hereish.traces.formats.base import Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import ReleasedRows

TABLE = "reports"
METADATA_URI = "urn:hereish:guarantee:1"
_APPLICATION, _VERSION = 0x47504B47, 10300
_POINT = struct.Struct("<2sBBi BI dd")
_LONG_AGO = "1980-01-01T00:00:00.000Z"  # when it was written is not told
_WGS84 = (
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],'
    'PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433],AUTHORITY["EPSG","4326"]]'
)
_SCHEMA = """
CREATE TABLE gpkg_spatial_ref_sys (srs_name TEXT NOT NULL, srs_id INTEGER NOT NULL PRIMARY KEY,
  organization TEXT NOT NULL, organization_coordsys_id INTEGER NOT NULL, definition TEXT NOT NULL,
  description TEXT);
CREATE TABLE gpkg_contents (table_name TEXT NOT NULL PRIMARY KEY, data_type TEXT NOT NULL,
  identifier TEXT UNIQUE, description TEXT DEFAULT '',
  last_change DATETIME NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ','now')), min_x DOUBLE,
  min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, srs_id INTEGER,
  CONSTRAINT fk_gc_r_srs_id FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys(srs_id));
CREATE TABLE gpkg_geometry_columns (table_name TEXT NOT NULL, column_name TEXT NOT NULL,
  geometry_type_name TEXT NOT NULL, srs_id INTEGER NOT NULL, z TINYINT NOT NULL, m TINYINT NOT NULL,
  CONSTRAINT pk_geom_cols PRIMARY KEY (table_name, column_name),
  CONSTRAINT uk_gc_table_name UNIQUE (table_name),
  CONSTRAINT fk_gc_tn FOREIGN KEY (table_name) REFERENCES gpkg_contents(table_name),
  CONSTRAINT fk_gc_srs FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys (srs_id));
CREATE TABLE gpkg_extensions (table_name TEXT, column_name TEXT, extension_name TEXT NOT NULL,
  definition TEXT NOT NULL, scope TEXT NOT NULL,
  CONSTRAINT ge_tce UNIQUE (table_name, column_name, extension_name));
CREATE TABLE gpkg_metadata (id INTEGER CONSTRAINT m_pk PRIMARY KEY ASC NOT NULL,
  md_scope TEXT NOT NULL DEFAULT 'dataset', md_standard_uri TEXT NOT NULL,
  mime_type TEXT NOT NULL DEFAULT 'text/xml', metadata TEXT NOT NULL DEFAULT '');
CREATE TABLE gpkg_metadata_reference (reference_scope TEXT NOT NULL, table_name TEXT,
  column_name TEXT, row_id_value INTEGER,
  timestamp DATETIME NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ','now')),
  md_file_id INTEGER NOT NULL, md_parent_id INTEGER,
  CONSTRAINT crmr_mfi_fk FOREIGN KEY (md_file_id) REFERENCES gpkg_metadata(id),
  CONSTRAINT crmr_mpi_fk FOREIGN KEY (md_parent_id) REFERENCES gpkg_metadata(id));
"""
_REFERENCE_SYSTEMS = (
    ("WGS 84", 4326, "EPSG", 4326, _WGS84, None),
    ("Undefined Cartesian", -1, "NONE", -1, "undefined", None),
    ("Undefined geographic", 0, "NONE", 0, "undefined", None),
)


class GpkgWriter(Writer):
    """Makes the table when the first rows are known, and the file at the end."""

    def __init__(self, file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> None:
        self._file = file
        self._layout = layout
        self._guarantee = guarantee
        self._bbox = BoundingBox()
        self._geometry = layout.geometry or "geom"
        self._names: list[str] | None = None  # of the columns, once the first rows are known
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.executescript(_SCHEMA)
        self._database.execute(f"PRAGMA application_id = {_APPLICATION}")
        self._database.execute(f"PRAGMA user_version = {_VERSION}")
        self._insert("gpkg_spatial_ref_sys", _REFERENCE_SYSTEMS)

    def write(self, rows: ReleasedRows) -> None:
        self._bbox.add(rows.lat, rows.lon)
        columns = self._columns(rows)
        if self._names is None:
            self._create_table(columns)
        names = self._names or []
        absent = [None] * len(rows)
        values = [columns.get(name, absent) for name in names]
        listed = ", ".join(map(_quote, names))
        marks = ", ".join("?" * len(names))
        self._database.executemany(
            f"INSERT INTO {TABLE} ({listed}) VALUES ({marks})",  # noqa: S608  # names are quoted
            zip(*values, strict=True),
        )

    def finish(self) -> None:
        if self._names is None:
            self._create_table({self._geometry: [b""], self._layout.time: ["text"]})
        box = self._bbox.sides or (None,) * 4
        contents = (TABLE, "features", TABLE, self._guarantee.description, _LONG_AGO, *box, 4326)
        self._insert("gpkg_contents", [contents])
        self._insert("gpkg_geometry_columns", [(TABLE, self._geometry, "POINT", 4326, 0, 0)])
        definition = "http://www.geopackage.org/spec121/#extension_metadata"
        self._insert(
            "gpkg_extensions",
            [
                (name, None, "gpkg_metadata", definition, "read-write")
                for name in ("gpkg_metadata", "gpkg_metadata_reference")
            ],
        )
        text = json.dumps(self._guarantee.as_dict(), ensure_ascii=False)
        self._insert("gpkg_metadata", [(1, "dataset", METADATA_URI, "application/json", text)])
        reference = ("table", TABLE, None, None, _LONG_AGO, 1, None)
        self._insert("gpkg_metadata_reference", [reference])
        self._database.commit()
        self._file.write(self._database.serialize())
        self._file.flush()
        self._database.close()

    def abandon(self) -> None:
        self._database.close()

    def _columns(self, rows: ReleasedRows) -> dict[str, Sequence[Any]]:
        layout = self._layout
        columns: dict[str, Sequence[Any]] = {}
        places = zip(rows.lon.tolist(), rows.lat.tolist(), strict=True)
        columns[self._geometry] = [_POINT.pack(b"GP", 0, 1, 4326, 1, 1, *xy) for xy in places]
        if rows.user is not None:
            columns[layout.user] = rows.user.values()
        if rows.trace is not None:
            columns[layout.trace] = rows.trace.values()
        columns[layout.time] = [_with_millis(time) for time in format_utc(rows.at_us)]
        columns["kind"] = rows.kind_names()
        columns["cost"] = rows.cost.tolist()
        for name, column in rows.kept.items():
            if name.lower() in {known.lower() for known in (*columns, "fid")}:
                raise ParameterError(f"a column that is kept cannot be called {name!r}")
            columns[name] = json_values(column)
        return columns

    def _create_table(self, columns: dict[str, Sequence[Any]]) -> None:
        self._names = list(columns)
        types = {self._geometry: "POINT", self._layout.time: "DATETIME", "cost": "DOUBLE"}
        listed = ", ".join(
            f"{_quote(name)} {types.get(name) or _type(values)}" for name, values in columns.items()
        )
        self._database.execute(
            f"CREATE TABLE {TABLE} (fid INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, {listed})"
        )

    def _insert(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        marks = ", ".join("?" * len(rows[0]))
        self._database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608  # a constant


def _type(values: Sequence[Any]) -> str:
    known = {type(value) for value in values if value is not None}
    if known == {int}:
        return "INTEGER"
    return "DOUBLE" if known and known <= {int, float} else "TEXT"


def _with_millis(text: str) -> str:
    """With a fraction of a second, as the standard wants it."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return f"{whole}.{fraction.ljust(3, '0')}Z"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
