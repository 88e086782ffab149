"""A Parquet file is read as the CSV file of the same table: the same places, times and faults."""

from __future__ import annotations

import csv
import json
import struct
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hereish.errors import ParameterError
from hereish.traces.columns import Columns
from hereish.traces.discovery import find_sources
from hereish.traces.faults import Fault
from hereish.traces.table import RowBatch

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
MOMENTS = [NOON + timedelta(minutes=10 * i) for i in range(3)]
SECONDS = [int(moment.timestamp()) for moment in MOMENTS]
CLOCKS = ["12:00:00", "12:10:00", "12:20:00"]
DAYS = ["2026-05-05"] * 3
LAT, LON = [60.17, -60.18, 60.19], [24.94, 24.95, -24.96]
EXCEL = [(moment - datetime(1899, 12, 30, tzinfo=UTC)) / timedelta(days=1) for moment in MOMENTS]
WKB = [struct.pack("<BIdd", 1, 1, lon, lat) for lat, lon in zip(LAT, LON, strict=True)]
EWKB = [
    struct.pack("<BIIdd", 1, 0x20000001, 4326, lon, lat) for lat, lon in zip(LAT, LON, strict=True)
]
METRES = [
    struct.pack("<BIIdd", 1, 0x20000001, 3857, lon, lat) for lat, lon in zip(LAT, LON, strict=True)
]
WKT = [f"POINT ({lon} {lat})" for lat, lon in zip(LAT, LON, strict=True)]


def as_csv(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode() if value.startswith(b"2026") else value.hex()
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    return str(value)


def read(path: Path, columns: Columns) -> RowBatch:
    (source,) = find_sources([str(path)])
    (batch,) = source.format.read(source, columns)
    return batch


def both(tmp_path: Path, given: dict[str, Any], columns: Columns) -> tuple[RowBatch, RowBatch]:
    """The rows of a table as Parquet and as CSV."""
    table = pa.table(given)
    pq.write_table(table, tmp_path / "in.parquet")
    with (tmp_path / "in.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(table.column_names)
        rows = zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True)
        out.writerows([as_csv(value) for value in row] for row in rows)
    return read(tmp_path / "in.parquet", columns), read(tmp_path / "in.csv", columns)


TIMES: dict[str, dict[str, Any]] = {
    "texts": {"time": [moment.isoformat() for moment in MOMENTS]},
    "texts with mixed offsets": {
        "time": [
            moment.astimezone(timezone(timedelta(hours=i))).isoformat()
            for i, moment in enumerate(MOMENTS)
        ]
    },
    "texts without an offset": {"time": [f"2026-05-05 {clock}" for clock in CLOCKS]},
    "texts with UTC": {"time": [f"2026-05-05 {clock} UTC" for clock in CLOCKS]},
    "large texts": {"time": pa.array([m.isoformat() for m in MOMENTS], pa.large_string())},
    "views of texts": {"time": pa.array([m.isoformat() for m in MOMENTS], pa.string_view())},
    "bytes": {"time": pa.array([m.isoformat().encode() for m in MOMENTS])},
    "categories": {"time": pa.array([m.isoformat() for m in MOMENTS]).dictionary_encode()},
    "two columns of texts": {"date": DAYS, "time": CLOCKS},
    "two columns of types": {
        "date": [date.fromisoformat(day) for day in DAYS],
        "time": [time.fromisoformat(clock) for clock in CLOCKS],
    },
    "two columns, as pandas has clocks": {
        "date": DAYS,
        "time": pa.array([datetime.fromisoformat(f"1900-01-01 {clock}") for clock in CLOCKS]),
    },
    "two columns by other names": {"utc_d": DAYS, "utc_t": CLOCKS},
    "seconds": {"time": SECONDS},
    "fractions of seconds": {"time": [second + 0.5 for second in SECONDS]},
    "milliseconds": {"time": [second * 10**3 for second in SECONDS]},
    "microseconds": {"time": [second * 10**6 for second in SECONDS]},
    "nanoseconds": {"time": [second * 10**9 for second in SECONDS]},
    "decimals": {"time": [Decimal(second) for second in SECONDS]},
    "numbers in texts": {"time": [str(second) for second in SECONDS]},
    "Excel's days": {"time": EXCEL},
    "digits": {"time": [int(f"{moment:%Y%m%d%H%M%S}") for moment in MOMENTS]},
    "dates that are times": {"date": [moment.isoformat() for moment in MOMENTS]},
    "dates of another type": {"eventDate": MOMENTS},
    "dates that are Excel's": {"date": EXCEL},
    "one is missing": {"time": [SECONDS[0], None, SECONDS[2]]},
    "a text is missing": {"time": [MOMENTS[0].isoformat(), None, MOMENTS[2].isoformat()]},
    "implausible": {"time": [1, 2, 3]},
    "ambiguous": {"time": ["3/6/2026 08:00"] * 3},
    "abbreviated": {"time": ["2026-05-05 12:00:00 PDT"] * 3},
    "without a date": {"time": CLOCKS},
    "without a clock": {"date": DAYS},
    "days": {"date": [date.fromisoformat(day) for day in DAYS]},
    "days of Excel's": {"date": [45458, 45459, 45460]},
}


@pytest.mark.parametrize("zone", [None, ZoneInfo("Asia/Kolkata")])
@pytest.mark.parametrize("given", TIMES.values(), ids=TIMES.keys())
def test_times_are_those_of_csv(
    tmp_path: Path, given: dict[str, Any], zone: ZoneInfo | None
) -> None:
    parquet, text = both(tmp_path, {**given, "lat": LAT, "lon": LON}, Columns(zone=zone))
    assert parquet.fault.tolist() == text.fault.tolist()
    good = parquet.fault == Fault.NONE
    assert (parquet.at_us[good] == text.at_us[good]).all()


READ = list(TIMES)[: list(TIMES).index("one is missing")]


def test_a_day_that_is_saved_as_a_moment_has_no_time_of_day(tmp_path: Path) -> None:
    """As pandas has dates; in a column of times it is midnight."""
    days = pa.array([date.fromisoformat(day) for day in DAYS]).cast(pa.timestamp("ns"))
    batch, _ = both(tmp_path, {"date": days, "lat": LAT, "lon": LON}, Columns())
    assert batch.fault.tolist() == [Fault.NO_CLOCK] * 3
    batch, _ = both(tmp_path, {"date": days, "lat": LAT, "lon": LON}, Columns(time="date"))
    assert not batch.fault.any()
    moments = days.cast(pa.timestamp("us", "UTC"))  # as they are written here
    batch, _ = both(tmp_path, {"date": moments, "lat": LAT, "lon": LON}, Columns())
    assert not batch.fault.any()


@pytest.mark.parametrize("name", READ)
def test_times_are_the_right_ones(tmp_path: Path, name: str) -> None:
    batch, _ = both(tmp_path, {**TIMES[name], "lat": LAT, "lon": LON}, Columns())
    more = 500_000 if name.startswith("fractions") else 0
    assert batch.at_us.tolist() == [second * 10**6 + more for second in SECONDS]


PLACES: dict[str, dict[str, Any]] = {
    "doubles": {"lat": LAT, "lon": LON},
    "floats": {"lat": pa.array([60.0, 61.0, 62.5], pa.float32()), "lon": LON},
    "texts": {"lat": [str(lat) for lat in LAT], "lon": [str(lon) for lon in LON]},
    "commas": {"lat": ["60,17", "-60,18", "60,19"], "lon": ["24,94", "24,95", "-24,96"]},
    "letters": {"lat": ["60.17N", "60.18S", "60.19N"], "lon": ["24.94E", "24.95E", "24.96W"]},
    "letters beside": {
        "lat": [60.17, 60.18, 60.19],
        "N/S": list("NSN"),
        "lon": [24.94, 24.95, 24.96],
        "E/W": list("EEW"),
    },
    "decimals": {"lat": [Decimal(str(lat)) for lat in LAT], "lon": [Decimal(str(x)) for x in LON]},
    "E7": {
        "latitudeE7": [round(lat * 10**7) for lat in LAT],
        "longitudeE7": [round(lon * 10**7) for lon in LON],
    },
    "E7 as texts": {
        "latE7": [str(round(lat * 10**7)) for lat in LAT],
        "lonE7": [str(round(lon * 10**7)) for lon in LON],
    },
    "WKT": {"geometry": WKT},
    "WKB": {"geometry": WKB},
    "WKB with its system": {"geom": EWKB},
    "WKB in digits": {"wkb": [value.hex() for value in WKB]},
    "WKB of another system": {"geom": METRES},
    "no point": {"geometry": ["LINESTRING (1 2, 3 4)", None, "POINT EMPTY"]},
    "one is missing": {"lat": [60.17, None, 60.19], "lon": LON},
    "not a number": {"lat": ["60.17", "here", "60.19"], "lon": LON},
}


@pytest.mark.parametrize("given", PLACES.values(), ids=PLACES.keys())
def test_places_are_those_of_csv(tmp_path: Path, given: dict[str, Any]) -> None:
    parquet, text = both(tmp_path, {"time": SECONDS, **given}, Columns())
    assert parquet.fault.tolist() == text.fault.tolist()
    np.testing.assert_array_equal(parquet.lat, text.lat)
    np.testing.assert_array_equal(parquet.lon, text.lon)


@pytest.mark.parametrize(
    "name", ["texts", "commas", "letters", "letters beside", "decimals", "E7", "WKT", "WKB"]
)
def test_places_are_the_right_ones(tmp_path: Path, name: str) -> None:
    batch, _ = both(tmp_path, {"time": SECONDS, **PLACES[name]}, Columns())
    assert batch.lat.tolist() == pytest.approx(LAT, abs=1e-9)
    assert batch.lon.tolist() == pytest.approx(LON, abs=1e-9)
    assert (batch.layout.lat, batch.layout.lon) == ("lat", "lon")
    assert batch.layout.geometry is None


def test_options_of_csv_name_columns_of_parquet(tmp_path: Path) -> None:
    given = {"day": DAYS, "clock": CLOCKS, "where": WKT, "time": ["noise"] * 3}
    parquet, text = both(tmp_path, given, Columns(date="day", time="clock", point="where"))
    assert not parquet.fault.any()
    assert parquet.at_us.tolist() == text.at_us.tolist() == [s * 10**6 for s in SECONDS]
    assert parquet.lat.tolist() == text.lat.tolist() == LAT


@pytest.mark.parametrize(
    ("user", "names"),
    [
        (pa.array([1.0, None, 2.0]), [1, 2, None]),
        (pa.array([b"ann", b"bob", b"ann"], pa.binary()), ["ann", "bob"]),
        (pa.array(["ann", "  ", "bob"]), ["ann", "  ", "bob"]),
        (
            pa.array([uuid.UUID(int=i).bytes for i in (1, 2, 1)], pa.binary(16)),
            [str(uuid.UUID(int=1)), str(uuid.UUID(int=2))],
        ),
    ],
)
def test_ids_of_other_types_are_users(tmp_path: Path, user: Any, names: list[Any]) -> None:
    given = {"user": user, "time": SECONDS, "lat": LAT, "lon": LON}
    pq.write_table(pa.table(given), tmp_path / "in.parquet")
    batch = read(tmp_path / "in.parquet", Columns())
    assert batch.user is not None
    assert batch.user.names == names
    blank = [name is None or not str(name).strip() for name in batch.user.values()]
    assert (batch.fault == Fault.USER).tolist() == blank


def test_ids_that_are_fractions_are_refused(tmp_path: Path) -> None:
    given = {"user": [1.5, 2.0, 3.0], "time": SECONDS, "lat": LAT, "lon": LON}
    with pytest.raises(ParameterError, match="whole numbers, found fractions"):
        both(tmp_path, given, Columns())


def test_no_users_are_read_where_none_are_wanted(tmp_path: Path) -> None:
    given = {"user": ["ann", "bob", "ann"], "time": SECONDS, "lat": LAT, "lon": LON}
    parquet, text = both(tmp_path, given, Columns(user=""))
    assert parquet.user is None
    assert text.user is None


WKT_OF_WGS84 = 'GEOGCRS["WGS 84",DATUM["W",ELLIPSOID["W",6378137,298.2]],ID["EPSG",4326]]'


@pytest.mark.parametrize("encoding", ["WKB", "point"])
@pytest.mark.parametrize("crs", [WKT_OF_WGS84, "OGC:CRS84"])
def test_geoparquet_of_other_writers(tmp_path: Path, encoding: str, crs: str) -> None:
    points = [{"x": lon, "y": lat} for lat, lon in zip(LAT, LON, strict=True)]
    about = {"encoding": encoding, "crs": crs, "geometry_types": ["Point"]}
    geo = {"version": "1.1.0", "primary_column": "g", "columns": {"g": about}}
    table = pa.table({"time": SECONDS, "g": WKB if encoding == "WKB" else points})
    table = table.replace_schema_metadata({"geo": json.dumps(geo)})
    pq.write_table(table, tmp_path / "in.parquet")
    batch = read(tmp_path / "in.parquet", Columns())
    assert not batch.fault.any()
    assert batch.lat.tolist() == LAT
    assert batch.layout.geometry == "g"


def test_another_system_in_the_metadata_is_refused(tmp_path: Path) -> None:
    crs = 'PROJCRS["UTM",BASEGEOGCRS["WGS 84",ID["EPSG",4326]],ID["EPSG",32635]]'
    about = {"encoding": "WKB", "crs": crs}
    geo = {"primary_column": "g", "columns": {"g": about}}
    table = pa.table({"time": SECONDS, "g": WKB})
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), tmp_path / "in.parquet")
    with pytest.raises(ParameterError, match="not in WGS84"):
        read(tmp_path / "in.parquet", Columns())
