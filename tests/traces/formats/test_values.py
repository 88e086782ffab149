"""Nothing is misread: times, places and encodings as people's tables have them."""

from __future__ import annotations

import codecs
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hereish.errors import ParameterError
from hereish.traces.column_names import (
    OTHER_NAMES,
    RARE_NAMES,
    ROW_NUMBERS,
    USUAL_NAMES,
    normal_name,
)
from hereish.traces.columns import Columns
from hereish.traces.faults import FAULT_TEXTS, Fault, UnreadableFileError
from hereish.traces.formats import delimited
from hereish.traces.formats._degrees import parse_degrees
from hereish.traces.formats._time_numbers import UNITS_US, number_time, unit_of
from hereish.traces.formats._times import TimeParser
from hereish.traces.formats.base import Source
from hereish.traces.table import RowBatch

MOMENT = datetime(2024, 6, 15, 10, 30, tzinfo=UTC)
US = round(MOMENT.timestamp()) * 1_000_000
SECONDS = round(MOMENT.timestamp())


def read(path: Path, **columns: Any) -> RowBatch:
    (batch,) = delimited.read(Source(path, delimited.FORMAT, path), Columns(**columns))
    return batch


def table(tmp_path: Path, content: str | bytes, **columns: Any) -> RowBatch:
    path = tmp_path / "in.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read(path, **columns)


SAME = [
    "2024-06-15T10:30:00Z",
    "2024-06-15 10:30:00 UTC",
    "2024-06-15 10:30:00 GMT",
    "2024-06-15 10:30:00UTC",
    "2024-06-15 13:30:00 +0300",
    "2024-06-15T13:30:00+03",
    "2024/06/15 10:30",
    "2024:06:15 10:30:00",
    "15.06.2024 10:30:00",
    "15 Jun 2024 10:30:00",
    "15-Jun-2024 10:30:00",
    "June 15, 2024 10:30 AM",
    "Jun 15, 2024, 10:30:00\N{NARROW NO-BREAK SPACE}AM",  # as browsers write it
    "2024-06-15\N{NO-BREAK SPACE}10:30:00\N{NO-BREAK SPACE}UTC",
    "2024/06/15 10:30:00.",
    "15. 6. 2024 10:30",
    "Sat, 15 Jun 2024 10:30:00 GMT",
    "Sat Jun 15 10:30:00 UTC 2024",
    "20240615T103000Z",
    "2024-06-15 13:30:00 +0300 EEST",  # as Go writes it, and then JavaScript and Java
    "Sat Jun 15 2024 13:30:00 GMT+0300 (Eastern European Summer Time)",
    "2024-06-15T13:30:00+03:00[Europe/Helsinki]",
    "Sat Jun 15 13:30:00 +0300 2024",
    "2024-06-15T07:30:00\N{MINUS SIGN}03:00",
    "2024-06-15T10:29:60Z",
    "20240615103000",
    str(SECONDS),
    f"{SECONDS}.0",
    str(SECONDS * 10**3),
    str(SECONDS * 10**6),
    str(SECONDS * 10**9),
    "45458.4375",  # Excel
    "45458,4375",
]


@pytest.mark.parametrize("text", SAME)
def test_one_moment_in_many_ways(text: str) -> None:
    assert TimeParser().parse(text) == US
    assert TimeParser().parse(f" {text} ") == US


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),  # a leap second, as Unix time counts it
        ("20161231T235960Z", "2017-01-01T00:00:00Z"),
        ("2024-06-15T24:00:00Z", "2024-06-16T00:00:00Z"),
        ("15.6.2024 24:00", "2024-06-16T00:00:00Z"),
    ],
)
def test_the_end_of_a_day_is_the_begin_of_the_next(text: str, same: str) -> None:
    assert TimeParser().parse(text) == TimeParser().parse(same)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("2024-06-15T24:01", Fault.TIME),
        ("2024-06-15T23:59:61Z", Fault.TIME),
        ("9999-12-31T24:00:00Z", Fault.TIME),
        ("5-May-2024 PDT", Fault.ZONE_NAME),
        ("5/6/2024 10:30", Fault.DAY_OR_MONTH),
        ("15/6/2024 10:30", Fault.DAY_OR_MONTH),  # by itself clear, but others beside it are not
        ("06-05-24", Fault.DAY_OR_MONTH),
        ("Sat Jun 15 10:30:00 PDT 2024", Fault.ZONE_NAME),
        ("2024-06-15 10:30:00 CEST", Fault.ZONE_NAME),
        ("10:30:00", Fault.NO_DATE),
        ("10:30 PM", Fault.NO_DATE),
        ("0", Fault.NUMBER),
        ("17217869", Fault.NUMBER),  # of a device's own clock
        ("1e30", Fault.NUMBER),
        ("-45458", Fault.NUMBER),
        ("2024-06-31", Fault.TIME),
        ("2024-06-15 25:00", Fault.TIME),
        ("13:00 PM 2024-06-15", Fault.TIME),
        ("2024-06-15 13:00 PM", Fault.TIME),
        ("", Fault.TIME),
        ("15 Marraskuu 2024", Fault.TIME),
        ("15 Okt 2024", Fault.TIME),  # names of months are English
        ("x" * 1000, Fault.TIME),
    ],
)
def test_what_is_no_time_or_may_be_two_is_not_read(text: str, fault: Fault) -> None:
    found = TimeParser().parse(text)
    assert (found if isinstance(found, Fault) else Fault.NONE) == fault


@given(st.floats(9.47e8, 4.13e9), st.sampled_from(list(UNITS_US)))
def test_no_number_of_a_likely_year_is_of_two_units(at_s: float, unit: str) -> None:
    number = at_s * 1e6 / UNITS_US[unit] + (25_569 if unit == "excel" else 0)
    fits = [
        one
        for one in UNITS_US
        if not isinstance(time := number_time(number, one), Fault) and _likely(time)
    ]
    assert fits == [unit]
    assert unit_of(number) == unit


def _likely(time: int | datetime) -> bool:
    if isinstance(time, datetime):
        return 2000 <= time.year <= 2100
    return 9.466848e14 <= time < 4.133980e15


# 15 June 2024, 10:30 in UTC.
@pytest.mark.parametrize(
    ("number", "unit"),
    [("740140200", "apple"), ("638540442000000000", "ticks"), ("133629210000000000", "filetime")],
)
def test_numbers_that_begin_elsewhere_are_read_if_they_are_named(
    tmp_path: Path, number: str, unit: str
) -> None:
    """They are refused otherwise: others of their size are times of the nineties, or of none."""
    text = f"time,lat,lon\n{number},60,25\n{number}.0,60,25\n"
    assert table(tmp_path, text).fault.tolist() == [Fault.NUMBER] * 2
    batch = table(tmp_path, text, time_format=unit)
    assert (batch.fault.tolist(), batch.at_us.tolist()) == ([0, 0], [US, US])
    assert TimeParser(None, unit).parse(int(number)) == US
    assert unit in FAULT_TEXTS[Fault.NUMBER].remedy


def test_numbers_of_before_2000_are_read_if_they_are_named(tmp_path: Path) -> None:
    text = "time,lat,lon\n820454400,60,25\n"
    assert table(tmp_path, text).fault.tolist() == [Fault.NUMBER]
    assert table(tmp_path, text, time_format="s").at_us.tolist() == [820_454_400_000_000]


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_any_number_is_a_time_or_a_fault(number: float) -> None:
    assert isinstance(TimeParser().parse(number), int)


def test_a_format_decides(tmp_path: Path) -> None:
    text = "time,lat,lon\n5/6/2024 10:30:00,60,25\n"
    for form, month in (("%d/%m/%Y %H:%M:%S", 6), ("%m/%d/%Y %H:%M:%S", 5)):
        batch = table(tmp_path, text, time_format=form)
        assert datetime.fromtimestamp(batch.at_us[0] / 1e6, UTC).month == month
    zone = ZoneInfo("America/Los_Angeles")
    form = "%a %b %d %H:%M:%S PDT %Y"
    text = "time,lat,lon\nSat Jun 15 03:30:00 PDT 2024,60,25\n"
    assert table(tmp_path, text, time_format=form, zone=zone).at_us.tolist() == [US]
    assert table(tmp_path, "time,lat,lon\n60,60,25\n", time_format="s").at_us[0] == 60_000_000
    for wrong in ("%H:%M", "nonsense", "%Y-%m", ""):
        with pytest.raises(ParameterError, match="strptime"):
            table(tmp_path, text, time_format=wrong)


def test_excels_days_are_those_of_a_clock(tmp_path: Path) -> None:
    batch = table(tmp_path, "time,lat,lon\n45458.5625,60,25\n", zone=ZoneInfo("Europe/Helsinki"))
    assert batch.at_us.tolist() == [US]


@pytest.mark.parametrize(
    "text",
    [
        "Date,Time,lat,lon\n2024/06/15,10:30:00,60,25\n",
        "utc_d,utc_t,lat,lon\n2024-06-15,10:30:00 AM,60,25\n",
        "DATE;TIME;LATITUDE;N/S;LONGITUDE;E/W;\n15.06.2024;10:30;60;N;25;E;\n",
        "date,time,lat,lon\nignored,2024-06-15T10:30:00Z,60,25\n",
        "date,time,lat,lon\n2024-06-15,1900-01-01 10:30:00,60,25\n",
        "date,time,lat,lon\n2024-06-15,1899-12-30T10:30:00Z,60,25\n",
        "date,time,lat,lon\n2024-06-15,1/0/1900 10:30:00 AM,60,25\n",
        "date,time,lat,lon\n2024-06-15,1970-01-01 10:30,60,25\n",
        "date,time,lat,lon\n2024/06/15,10:30:00.,60,25\n",
        "DATE,TIME,lat,lon\n20240615,103000,60,25\n",
        "DATE,TIME,lat,lon\n15.06.2024,103000.000,60,25\n",
        "date,time,lat,lon\n2024-06-15 00:00:00,10:30:00,60,25\n",
        "date,time,lat,lon\n2024-06-15T00:00:00.000,103000,60,25\n",
    ],
)
def test_date_and_time_may_be_in_two_columns(tmp_path: Path, text: str) -> None:
    batch = table(tmp_path, text)
    assert not batch.fault.any()
    assert (batch.at_us[0], batch.lat[0], batch.lon[0]) == (US, 60.0, 25.0)
    digits = "DATE,TIME,lat,lon\n240615,103000,60,25\n"  # or 24 June 2015
    assert table(tmp_path, digits).fault.tolist() == [Fault.TIME]
    assert table(tmp_path, digits, time_format="%y%m%d %H%M%S").at_us.tolist() == [US]
    named = "day,clock,lat,lon\n15/06/2024,10.30,60,25\n"
    form = "%d/%m/%Y %H.%M"
    batch = table(tmp_path, named, date="day", time="clock", time_format=form)
    assert batch.at_us.tolist() == [US]


@pytest.mark.parametrize(
    ("text", "lat"),
    [
        ("60.5", 60.5),
        ("60,5", 60.5),
        ("-60,5", -60.5),
        ("\N{MINUS SIGN}60.5", -60.5),
        ("\N{MINUS SIGN}60,5", -60.5),
        ("60.5N", 60.5),
        ("60.5 S", -60.5),
        ("S 60.5", -60.5),
        ("60.5°N", 60.5),
        ("60°30'N", 60.5),
        ("60° 30′ 00″ S", -60.5),
        ("N60 30.000", 60.5),
        ("60°30,0'N", 60.5),
        ("60.5E", None),
        ("-60.5S", None),
        ("60 30", None),
        ("60°61'N", None),
        ("60.5°30'N", None),
        ("N60.5S", None),
        ("sixty", None),
        ("", None),
    ],
)
def test_degrees_in_many_ways(text: str, lat: float | None) -> None:
    assert parse_degrees(text, "lat") == lat


def test_a_side_in_a_column_of_its_own_is_not_overlooked(tmp_path: Path) -> None:
    text = "time,lat,N/S,lon,E/W\n"
    rows = ["60,N,25,E", "60,S,25,W", "-60,S,-25,W", "-60,N,25,E", "60,?,25,E"]
    text += "".join(f"2024-06-15T10:{i}0Z,{row}\n" for i, row in enumerate(rows))
    batch = table(tmp_path, text)
    assert batch.lat[:3].tolist() == [60.0, -60.0, -60.0]
    assert batch.lon[:3].tolist() == [25.0, -25.0, -25.0]
    assert batch.fault[3:].tolist() == [Fault.LAT, Fault.LAT]


@pytest.mark.parametrize(
    ("header", "row", "unit"),
    [
        ("latitudeE7,longitudeE7", "600000000,250000000", None),
        ("lat_e7,lon_e7", "600000000,250000000", None),
        ("lat,lon", "600000000,250000000", "e7"),
        ("lat,lon", "60000000,25000000", "e6"),
        ("position_lat,position_long", "715827883,298261618", None),
        ("position_lat,position_long", "60,25", None),
        ("geom", "POINT (25 60)", None),
        ("wkt", "SRID=4326;POINT Z (25 60 7)", None),
        ("the_geom", "0101000020E610000000000000000039400000000000004E40", None),
        ("location-lat,location-long", "60,25", None),
        ("GPS Latitude,GPS Longitude", "60 N,25 E", None),
        ("Latitude [deg],Longitude [deg]", "60,25", None),
    ],
)
def test_places_in_many_columns(tmp_path: Path, header: str, row: str, unit: str | None) -> None:
    text = f"time,{header}\n2024-06-15T10:30:00Z,{row}\n"
    batch = table(tmp_path, text, coordinate_unit=unit)
    assert (batch.lat[0], batch.lon[0]) == pytest.approx((60.0, 25.0), abs=1e-6)
    if "7" in header or "pos" in header:  # the output is in degrees, so it is not called so
        assert (batch.layout.lat, batch.layout.lon) == ("lat", "lon")


@pytest.mark.parametrize("header", ["latitudeE7,longitudeE7", "lat_e7,lon_e7"])
def test_degrees_are_no_counts(tmp_path: Path, header: str) -> None:
    """In a column of integers they would be a metre from 0, 0."""
    text = f"time,{header}\n2024-06-15T10:30:00Z,60.17,24.94\n"
    assert table(tmp_path, text).fault.tolist() == [Fault.LAT]
    batch = table(tmp_path, text, coordinate_unit="degrees")
    assert (batch.lat[0], batch.lon[0]) == (60.17, 24.94)
    near = text.replace("60.17", "170").replace("24.94", "601700000.5")  # the mean of some
    assert (table(tmp_path, near).lat[0], table(tmp_path, near).fault.tolist()) == (1.7e-5, [0])


@pytest.mark.parametrize("point", ["LINESTRING (25 60, 26 60)", "POINT EMPTY", "60 25", "0101", ""])
def test_what_is_no_single_point_is_no_place(tmp_path: Path, point: str) -> None:
    batch = table(tmp_path, f'time,geom\n2024-06-15T10:30:00Z,"{point}"\n')
    assert batch.fault.tolist() == [Fault.POINT]


PRESETS = {
    "trackintel": "id;user_id;tracked_at;latitude;longitude;elevation;accuracy",
    "MovingPandas": "t;traj_id;geometry;user_id",
    "scikit-mobility": "lat;lng;datetime;uid;tid",
    "Movebank": "event-id;visible;timestamp;location-long;location-lat;individual-local-identifier",
}


@pytest.mark.parametrize("header", PRESETS.values(), ids=PRESETS.keys())
def test_the_columns_of_tools_are_known(tmp_path: Path, header: str) -> None:
    values = {
        **dict.fromkeys(("tracked_at", "t", "datetime", "timestamp"), "2024-06-15 10:30:00 UTC"),
        **dict.fromkeys(("latitude", "lat", "location-lat"), "60"),
        **dict.fromkeys(("longitude", "lng", "location-long"), "25"),
        **dict.fromkeys(("user_id", "uid", "individual-local-identifier"), "ann"),
        "geometry": "POINT (25 60)",
    }
    row = ";".join(values.get(name, "7") for name in header.split(";"))
    batch = table(tmp_path, f"{header}\n{row}\n")
    assert (batch.at_us[0], batch.lat[0], batch.lon[0]) == (US, 60.0, 25.0)
    assert batch.user is not None
    assert batch.user.values() == ["ann"]


@pytest.mark.parametrize(
    "header",
    [
        "Datum;Uhrzeit;Breitengrad;Längengrad",
        "Date;Heure;Latitude;Longitude",
        "Fecha;Hora;Latitud;Longitud",
    ],
)
def test_columns_of_other_languages_are_known(tmp_path: Path, header: str) -> None:
    batch = table(tmp_path, f"{header}\n15.6.2024;10:30;60,5;25,5\n")
    assert (batch.at_us[0], batch.lat[0], batch.lon[0]) == (US, 60.5, 25.5)


def test_a_date_is_not_taken_for_a_time(tmp_path: Path) -> None:
    """The clock may be in a column that nobody knows, and all would be at midnight."""
    text = "Date,clock,lat,lon\n2024-06-15,10:30:00,60,25\n"
    assert table(tmp_path, text).fault.tolist() == [Fault.NO_CLOCK]
    with pytest.raises(ParameterError, match=r"if 'Date' tells the time of day, too, give --time"):
        Columns().find_all(["Date", "lat", "lon"], ("time", "lat", "lon"))


def test_metres_are_not_taken_for_degrees(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"may be metres.* --lat y --lon x"):
        table(tmp_path, "t,x,y\n2024-06-15T10:30:00Z,25,60\n")


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.encode(),
        lambda text: codecs.BOM_UTF8 + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
        lambda text: text.encode("utf-16-le"),
        lambda text: text.encode("utf-16-be"),
        lambda text: text.encode("latin-1"),
        lambda text: text.encode("cp1252"),
    ],
)
def test_encodings_of_spreadsheets_are_read(tmp_path: Path, encode: Any) -> None:
    text = "user\ttime\tlat\tlon\n" + "Zoë\t2024-06-15 10:30:00 UTC\t60,5°N\t25\n" * 30_000
    batch = table(tmp_path, encode(text))
    assert not batch.fault.any()
    assert len(batch) == 30_000
    assert batch.user is not None
    assert batch.user.names == ["Zoë"]
    assert batch.lat[-1] == 60.5


def test_fields_may_be_filled_with_zeros(tmp_path: Path) -> None:
    """As Columbus loggers do; but zeros elsewhere are of damage."""
    text = "INDEX,DATE,TIME,LATITUDE N/S,LONGITUDE E/W,VOX\r\n"
    text += "1\0\0\0,20240615,103000,60.5N,025.5E,\0\0\0\r\n" * 2
    batch = table(tmp_path, text)
    assert (batch.fault.tolist(), batch.at_us.tolist()) == ([0, 0], [US, US])
    assert (batch.lat.tolist(), batch.lon.tolist()) == ([60.5] * 2, [25.5] * 2)
    for damage in ("\0\0\0", "\0\0\0\r\n", "1,20240615,10\x003000,60.5N,025.5E,\r\n"):
        with pytest.raises(UnreadableFileError, match="not text in UTF-8"):
            table(tmp_path, text + damage)


def test_what_stands_around_a_table_is_passed_over(tmp_path: Path) -> None:
    text = (
        "sep=;\n# made by a logger\n\n#time;lat;lon;\n"
        "2024-06-15T10:30Z;60;25;\n# paused\n2024-06-15T10:31Z;60;25\n"
    )
    batch = table(tmp_path, text)
    assert not batch.fault.any()
    assert batch.line.tolist() == [5, 7]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("date", "2024-06-15T10:30:00Z"),
        ("Date", "15 Jun 2024 10:30:00 GMT"),
        ("DATE", "20240615103000"),
        ("eventDate", "2024-06-15T13:30+03:00"),
        ("date", str(SECONDS)),
        ("date", "45458.4375"),
    ],
)
def test_a_date_with_the_time_of_day_is_a_time(tmp_path: Path, name: str, text: str) -> None:
    batch = table(tmp_path, f"{name},lat,lon\n{text},60,25\n")
    assert (batch.fault.tolist(), batch.at_us.tolist()) == ([0], [US])
    assert batch.layout.time == name


@pytest.mark.parametrize("text", ["2024-06-15", "20240615", "15.6.2024", "2024:06:15", "45458"])
def test_a_bare_date_is_not_taken_for_midnight(tmp_path: Path, text: str) -> None:
    content = f"date,lat,lon\n{text},60,25\n"
    assert table(tmp_path, content).fault.tolist() == [Fault.NO_CLOCK]
    midnight = table(tmp_path, content, time="date")
    assert midnight.fault.tolist() == [0]
    assert midnight.at_us.tolist() == [US - 10.5 * 3600 * 1_000_000]


def test_a_column_of_dates_beside_one_of_times_is_that_of_their_dates(tmp_path: Path) -> None:
    text = "eventDate,eventTime,decimalLatitude,decimalLongitude\n2024-06-15,10:30:00Z,60,25\n"
    batch = table(tmp_path, text)
    assert (batch.fault.tolist(), batch.at_us.tolist()) == ([0], [US])
    plain = "date,ts,lat,lon\nnever,1718447400,60,25\n"
    assert table(tmp_path, plain).at_us.tolist() == [US]


@pytest.mark.parametrize(
    "header",
    [
        "ts,latitude_deg,longitude_deg",
        "created_at,decimalLatitude,decimalLongitude",
        "gps_datetime,gpsLat,gpsLon",
        "@timestamp,lat,lon",
        "Event Time,LATITUDE °,LONGITUDE °",
        "vehicle.timestamp,position.latitude,position.longitude",
        "aika,leveysaste,pituusaste",
        "时间,纬度,经度",
    ],
)
def test_rarer_names_are_known(tmp_path: Path, header: str) -> None:
    batch = table(tmp_path, f"{header}\n2024-06-15T10:30:00Z,60,25\n")
    assert (batch.fault.tolist(), batch.at_us.tolist()) == ([0], [US])
    assert (batch.lat.tolist(), batch.lon.tolist()) == ([60.0], [25.0])


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("ts,created_at,lat,lon", "which is it, 'ts', 'created_at'"),
        ("time,lat_dd,decimalLatitude,lon", "which is it, 'lat_dd', 'decimalLatitude'"),
        ("time,lat_deg,lat_min,lon_deg,lon_min", "no column is called lat"),
        ("time,latitude_degrees,latitude_minutes,lon", "no column is called lat"),
        ("time,pickup_latitude,dropoff_latitude,lon", "no column is called lat"),
    ],
)
def test_of_two_equally_usual_names_neither_is_taken(tmp_path: Path, header: str, why: str) -> None:
    cells = ",".join("1" for _ in header.split(","))
    with pytest.raises(ParameterError, match=why):
        table(tmp_path, f"{header}\n{cells}\n")


def test_of_local_times_and_others_the_others_are_taken(tmp_path: Path) -> None:
    """As receivers write both; the others need no time zone."""
    columns = "UTC DATE,UTC TIME,LOCAL DATE,LOCAL TIME,lat,lon"
    text = f"{columns}\n2024/06/15,10:30:00,2024/06/16,01:30:00,60,25\n"
    assert table(tmp_path, text).at_us.tolist() == [US]
    numbers = f"Local Timestamp,Unix Timestamp,lat,lon\n2024-06-15 13:30,{SECONDS},60,25\n"
    assert table(tmp_path, numbers).at_us.tolist() == [US]
    # The date of a local time, or of one that is named, is not guessed.
    for content, name in ((text, "LOCAL TIME"), (text.replace("UTC TIME", "x"), None)):
        with pytest.raises(ParameterError, match="which is it, 'UTC DATE', 'LOCAL DATE'"):
            table(tmp_path, content, time=name)


def test_a_more_usual_name_is_taken_before_rarer_ones(tmp_path: Path) -> None:
    text = f"created_at,gps_time,ts,lat,lon\nnever,{SECONDS},never,60,25\n"
    assert table(tmp_path, text).at_us.tolist() == [US]


def test_each_known_name_is_of_one_role_and_is_written_as_it_is_compared() -> None:
    tiers = (USUAL_NAMES, OTHER_NAMES, RARE_NAMES)
    names = [name for tier in tiers for known in tier.values() for name in known]
    assert len(names) == len(set(names))
    assert [normal_name(name) for name in names] == names
    assert not set(names) & set(ROW_NUMBERS)
