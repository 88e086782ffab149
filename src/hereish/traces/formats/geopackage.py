"""GeoPackage: a table of points with times, as GIS programs write them; in and out.

Columns are found as in CSV; the place is that of the geometry column, in WGS 84.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from hereish.errors import ParameterError
from hereish.traces.columns import Columns, Layout
from hereish.traces.faults import (
    Fault,
    Faults,
    NoPointsError,
    UnreadableFileError,
    damaged_file,
    no_times,
)
from hereish.traces.foreign_errors import replace_foreign_errors
from hereish.traces.formats import _wkb
from hereish.traces.formats._bytes import SourceBytes, read_whole
from hereish.traces.formats._fixes import parse_user
from hereish.traces.formats._gpkg_writer import METADATA_URI, GpkgWriter
from hereish.traces.formats._markup import ROWS, json_scalar
from hereish.traces.formats._time_texts import with_date
from hereish.traces.formats._times import TimeParser, tells_time_of_day
from hereish.traces.formats.base import Format, Source, Writer
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import Ids, RowBatch

_TRACK_POINTS = "track_points"  # where converters from GPX put what somebody travelled
_HEADER_BYTES = 100
_ENVELOPE_BYTES = (0, 32, 48, 48, 64)
_LONGEST_BYTES = 1 << 24  # of one value, which may be computed: a blob of a gigabyte is one call
# The tables that describe the others must be tables: a view may have rows without an end.
_MADE_UP = "SELECT 1 FROM sqlite_master WHERE name LIKE 'gpkg\\_%' ESCAPE '\\' AND type = 'view'"
_TABLES = """
    SELECT c.table_name, g.column_name, g.geometry_type_name, s.organization,
           s.organization_coordsys_id
    FROM gpkg_contents c JOIN gpkg_geometry_columns g ON g.table_name = c.table_name
    JOIN gpkg_spatial_ref_sys s ON s.srs_id = g.srs_id
    JOIN sqlite_master m ON m.name = c.table_name AND m.type = 'table' AND m.rootpage > 0
    WHERE c.data_type = 'features' ORDER BY c.table_name
"""


class _Table(NamedTuple):
    name: str
    geometry: str
    roles: dict[str, str]


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The rows of its table of points; the `line` of a row is its number there."""
    with closing(_open(source)) as database:
        table = _choose_table(database, columns)
        names = [table.geometry, *table.roles.values(), *columns.keep]
        count = f"SELECT count(*) FROM {_quote(table.name)}"  # noqa: S608  # names are quoted
        total = _select(database, count)[0][0]
        if not total:
            raise NoPointsError("its table of points is empty")
        listed = ", ".join(map(_quote, names))
        rows = f"SELECT {listed} FROM {_quote(table.name)}"  # noqa: S608  # names are quoted
        cursor = replace_foreign_errors(
            lambda: database.execute(rows), _damaged("it is damaged before its first row is read")
        )
        builder = _BatchBuilder(table, columns)
        row = 0
        while records := replace_foreign_errors(
            lambda: cursor.fetchmany(ROWS), _damaged(f"it is damaged after row {row}")
        ):
            yield builder.batch(records, row, min(1.0, (row + len(records)) / total))
            row += len(records)
        if not builder.any_time:
            raise no_times()


def _damaged(reason: str = "it is not a GeoPackage, or a damaged one") -> UnreadableFileError:
    return damaged_file(reason, "a GeoPackage that is whole")


def _open(source: Source) -> sqlite3.Connection:
    """The database, read only; in memory where it is compressed or in an archive."""

    def connect() -> sqlite3.Connection:
        if data is None and source.path is not None:
            uri = f"{source.path.resolve().as_uri()}?mode=ro&immutable=1"
            database = sqlite3.connect(uri, uri=True, check_same_thread=False)
        else:
            database = sqlite3.connect(":memory:", check_same_thread=False)
            database.deserialize(data or b"")
        try:
            # What the file says about itself is not run: no functions, no views.
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA query_only = ON")
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_BYTES)
            if database.execute(_MADE_UP).fetchone() is not None:
                raise sqlite3.DatabaseError
            database.execute("SELECT count(*) FROM gpkg_contents").fetchone()
        except BaseException:
            database.close()
            raise
        return database

    _check_length(source)
    plain = source.path is not None and not source.members and source.path.suffix != ".gz"
    data = None if plain else read_whole(source)
    return replace_foreign_errors(connect, _damaged())


def _check_length(source: Source) -> None:
    """Raises for a file that is shorter than it says; SQLite notices only what it looks at."""
    with SourceBytes(source) as file:
        head = file.read(_HEADER_BYTES)
        if source.path is None or len(head) < _HEADER_BYTES:
            return
        page, pages = struct.unpack_from(">H", head, 16)[0], struct.unpack_from(">I", head, 28)[0]
        length = len(head) + sum(map(len, file.blocks(1 << 20)))
        if length < (65536 if page == 1 else page) * pages:
            raise _damaged("it ends too early")


def _select(database: sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
    return replace_foreign_errors(
        lambda: database.execute(query).fetchall(),
        _damaged(),
    )


def _choose_table(database: sqlite3.Connection, columns: Columns) -> _Table:
    rows = _select(database, _TABLES)
    points = [row for row in rows if str(row[2]).upper() in ("POINT", "GEOMETRY")]
    if not points:
        raise NoPointsError("it has no table of points")
    if len(points) > 1:
        tracks = [row for row in points if row[0] == _TRACK_POINTS]
        points = tracks or [row for row in points if _find_roles(database, row, columns, False)]
    if not points:
        raise NoPointsError("none of its tables of points has a column of times")
    if len(points) > 1:
        raise ParameterError(
            f"it has {len(points)} tables of points with times, so save the one that is meant to a "
            "file of its own"
        )
    name, geometry, _, organization, code = points[0]
    if (str(organization).upper(), str(code)) not in (("EPSG", "4326"), ("OGC", "CRS84")):
        raise UnreadableFileError(
            "its points are not in WGS 84 longitude and latitude",
            expected="EPSG:4326",
            remedy="convert it first: ogr2ogr -t_srs EPSG:4326 out.gpkg in.gpkg",
        )
    return _Table(name, geometry, _find_roles(database, points[0], columns, True) or {})


def _find_roles(
    database: sqlite3.Connection, row: tuple[Any, ...], columns: Columns, required: bool
) -> dict[str, str] | None:
    infos = _select(database, f"PRAGMA table_info({_quote(row[0])})")
    names = [str(info[1]) for info in infos if info[1] != row[1]]
    if len(names) == len(infos):  # its points are computed, and so may be of any size
        raise _damaged()
    if not required and columns.find_time(names) is None:
        return None
    return columns.find_all(names, ("time",), dates=True)


def _quote(name: str) -> str:
    return '"' + str(name).replace('"', '""') + '"'


class _BatchBuilder:
    def __init__(self, table: _Table, columns: Columns) -> None:
        self._roles = list(table.roles)
        self._keep = columns.keep
        self._parser = TimeParser(columns.zone, columns.time_format)
        self._date_always = columns.date is not None
        roles: dict[str, Any] = {name: of for name, of in table.roles.items() if name != "date"}
        self._layout = Layout(geometry=table.geometry, **roles)
        self._time_of_day = columns.must_tell_time_of_day(roles["time"])
        self.any_time = False

    def batch(self, records: Sequence[tuple[Any, ...]], before: int, done: float) -> RowBatch:
        geometry, *others = (list(column) for column in zip(*records, strict=True))
        roles = dict(zip(self._roles, others, strict=False))
        lat, lon = _wkb.decode_points([_without_header(value) for value in geometry])
        times = roles["time"]
        if "date" in roles:
            pairs = zip(roles["date"], times, strict=True)
            times = [self._with_date(date, time) for date, time in pairs]
        at = [self._parse_time(value) for value in times]
        fault: Faults = np.array([t if isinstance(t, Fault) else Fault.NONE for t in at], np.uint8)
        if self._time_of_day:
            known = np.array([tells_time_of_day(value) for value in roles["time"]])
            fault[(fault == Fault.NONE) & ~known] = Fault.NO_CLOCK
        fault[(fault == Fault.NONE) & ~np.isfinite(lat)] = Fault.LAT
        fault[(fault == Fault.NONE) & ~np.isfinite(lon)] = Fault.LON
        self._parser.mark_missing_offsets(fault)
        users = None
        if "user" in roles:
            given = [parse_user(value) for value in roles["user"]]
            fault[[value is None for value in given]] = Fault.USER
            users = Ids.of(["" if value is None else value for value in given])
        kept = {name: np.empty(len(records), dtype=object) for name in self._keep}
        for name, values in zip(self._keep, others[len(self._roles) :], strict=True):
            kept[name][:] = [json_scalar(_printable(value)) for value in values]
        return RowBatch(
            line=np.arange(before + 1, before + 1 + len(records)),
            at_us=np.array([0 if isinstance(t, Fault) else t for t in at], dtype=np.int64),
            lat=np.where(fault == Fault.NONE, lat, 0.0),
            lon=np.where(fault == Fault.NONE, lon, 0.0),
            fault=fault,
            user=users,
            trace=_trace_ids(roles["trace"]) if "trace" in roles else None,
            kept=kept,
            layout=self._layout,
            done=done,
        )

    def _with_date(self, date: Any, time: Any) -> Any:
        if not (isinstance(date, str) and isinstance(time, str)):
            return time
        return with_date(date, time, always=self._date_always)

    def _parse_time(self, value: Any) -> int | Fault:
        known = isinstance(value, (str, int, float))
        self.any_time |= known
        return self._parser.parse(value if known else None)


def _trace_ids(values: Sequence[Any]) -> Ids:
    scalars = [json_scalar(_printable(value)) for value in values]
    return Ids.of([value if isinstance(value, int) else str(value or "") for value in scalars])


def _printable(value: Any) -> Any:
    return None if isinstance(value, bytes) else value


def _without_header(value: Any) -> bytes | None:
    """The well-known binary of a geometry; None if it is empty or none."""
    if not isinstance(value, bytes) or value[:2] != b"GP" or len(value) < 8:
        return None
    flags = value[3]
    envelope = flags >> 1 & 7
    if flags & 0x10 or envelope >= len(_ENVELOPE_BYTES):
        return None
    return value[8 + _ENVELOPE_BYTES[envelope] :]


def read_guarantee(source: Source) -> GuaranteeMetadata | None:
    """The guarantee in a file that was written here; None if there is none."""
    with closing(_open(source)) as database, contextlib.suppress(UnreadableFileError):
        query = f"SELECT metadata FROM gpkg_metadata WHERE md_standard_uri = '{METADATA_URI}'"  # noqa: S608  # a constant
        for (text,) in _select(database, query):
            return GuaranteeMetadata.from_json(text)
    return None


def open_writer(file: BinaryIO, layout: Layout, guarantee: GuaranteeMetadata) -> Writer:
    """One table of points, `reports`; the database is in memory until the end."""
    return GpkgWriter(file, layout, guarantee)


FORMAT = Format(
    name="gpkg",
    extensions=(".gpkg",),
    read=read,
    open_writer=open_writer,
    read_guarantee=read_guarantee,
    columns=True,
    line_word="row",
)
