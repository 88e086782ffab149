"""Times in frames are read as in files of the same table: texts, numbers, clocks beside dates."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import geopandas as gpd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import hereish
from hereish.errors import HereishError, ParameterError, PointError
from hereish.traces import sanitize_frame
from hereish.traces.columns import Columns
from hereish.traces.files import load_rows

M = hereish.fixed_utility(
    hereish.Privacy(math.log(10), 100), accuracy_m=3000, window=hereish.Day("UTC")
)
KEY = hereish.KeyedDraws(b"k" * 32)
HELSINKI = ZoneInfo("Europe/Helsinki")
FIRST = datetime(2026, 5, 5, 20, 15, 30, tzinfo=UTC)
TIMES = [FIRST + timedelta(minutes=25 * i) for i in range(6)]
LOCAL = [time.astimezone(HELSINKI).replace(tzinfo=None) for time in TIMES]
EXCEL = datetime(1899, 12, 30)  # noqa: DTZ001  # a clock without a zone
UNIX = [int(time.timestamp()) for time in TIMES]
# How times may be written, and whether they say their offset from UTC.
WRITTEN: dict[str, tuple[dict[str, list[Any]], bool]] = {
    "texts": ({"time": [time.isoformat() for time in TIMES]}, True),
    "texts with a Z": ({"time": [f"{t:%Y-%m-%dT%H:%M:%SZ}" for t in TIMES]}, True),
    "texts of a clock": ({"time": [f"{t:%d.%m.%Y %H:%M:%S}" for t in LOCAL]}, False),
    "seconds": ({"timestamp": UNIX}, True),
    "seconds as floats": ({"timestamp": [float(s) for s in UNIX]}, True),
    "milliseconds": ({"timestamp_ms": [s * 1000 for s in UNIX]}, True),
    "nanoseconds": ({"t": [s * 10**9 for s in UNIX]}, True),
    "seconds as texts": ({"t": [str(s) for s in UNIX]}, True),
    "Excel's days": (
        {"time": [(t - EXCEL) / timedelta(days=1) for t in LOCAL]},
        False,
    ),
    "clocks and dates": (
        {"date": [f"{t:%Y-%m-%d}" for t in LOCAL], "time": [f"{t:%H:%M:%S}" for t in LOCAL]},
        False,
    ),
    "clocks as pandas reads them": (
        {
            "date": [f"{t:%Y-%m-%d}" for t in LOCAL],
            "time": [t.replace(year=1900, month=1, day=1) for t in LOCAL],
        },
        False,
    ),
}
KINDS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame.set_axis([0] * len(frame)),
    "pandas over arrow": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "geopandas": lambda frame: gpd.GeoDataFrame(
        frame.drop(columns=["lat", "lon"]),
        geometry=gpd.points_from_xy(frame["lon"], frame["lat"], crs="EPSG:4326"),
    ),
    "polars": pl.from_pandas,
    "arrow": pa.Table.from_pandas,
}


def frame_of(columns: dict[str, list[Any]]) -> pd.DataFrame:
    places = {"lat": [60.17 + i / 1000 for i in range(6)], "lon": [24.94] * 6}
    return pd.DataFrame({"user": ["ann"] * 3 + ["bob"] * 3, **columns, **places})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", WRITTEN)
def test_times_are_read_however_they_are_written(how: str, kind: str, tmp_path: Path) -> None:
    columns, says_offset = WRITTEN[how]
    name = list(columns)[-1]
    frame = KINDS[kind](frame_of(columns))
    zone = None if says_offset else "Europe/Helsinki"
    out = sanitize_frame(frame, M, time_zone=zone, draws=KEY)
    known = sanitize_frame(KINDS[kind](frame_of({name: TIMES})), M, draws=KEY)
    assert list(out[name].to_pylist() if kind == "arrow" else out[name]) == TIMES
    assert list(out["cost"]) == list(known["cost"])  # the same draws: those of these instants
    # And a file of the table is read alike.
    path = tmp_path / "in.parquet"
    frame_of(columns).to_parquet(path)
    rows = load_rows([str(path)], Columns(zone=None if zone is None else HELSINKI))
    assert rows.at_us.tolist() == [round(time.timestamp() * 1e6) for time in TIMES]
    if zone is not None:
        with pytest.raises(ParameterError, match=r"say their zone.*time_zone="):
            sanitize_frame(frame, M)


@pytest.mark.parametrize("kind", ["lazy", "reader", "relation"])
def test_streams_have_them_too(kind: str) -> None:
    table = pa.Table.from_pandas(frame_of(WRITTEN["texts"][0]), preserve_index=False)
    known = sanitize_frame(frame_of({"time": TIMES}), M, draws=KEY)
    if kind == "lazy":
        lazy = pl.DataFrame(pl.from_arrow(table)).lazy()
        out = sanitize_frame(lazy, M, draws=KEY).collect().to_arrow()
    elif kind == "reader":
        out = sanitize_frame(table.to_reader(max_chunksize=2), M, draws=KEY).read_all()
    else:
        out = sanitize_frame(duckdb.from_arrow(table), M, draws=KEY).to_arrow_table()
    assert [time.astimezone(UTC) for time in out["time"].to_pylist()] == TIMES
    assert out["lat"].to_pylist() == known["lat"].tolist()
    # Texts in their own order are not in that of the times: never with a budget that went back.
    mixed = [t.astimezone(timezone(timedelta(hours=3 * (i % 2)))) for i, t in enumerate(TIMES)]
    texts = frame_of({"time": [f"{t:%d %B %Y %H:%M:%S%z}" for t in mixed]}).assign(user="ann")
    with pytest.raises(PointError, match="sort by user and time, or collect the frame"):
        sanitize_frame(pl.from_pandas(texts.sort_values("time")).lazy(), M)
    assert len(sanitize_frame(texts, M)) == 6


def test_objects_with_several_offsets_are_instants() -> None:
    zones = [timezone(timedelta(hours=i)) for i in range(6)]
    times = [time.astimezone(zone) for time, zone in zip(TIMES, zones, strict=True)]
    out = sanitize_frame(frame_of({"time": times}).astype({"time": object}), M)
    assert out["time"].tolist() == TIMES


FAULTY: dict[str, tuple[Any, str]] = {
    "day or month": ("3/6/2025 08:15", "may begin with the day or with the month"),
    "no date": ("08:15", "its time has no date"),
    "a small number": (12, "a number, and no plausible one"),
    "an abbreviation": ("2025-06-03 08:15 EEST", "time zone is abbreviated"),
    "words": ("at 61.234567", "no time, or none that can be read"),
    "nothing": (None, "no time"),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_what_cannot_be_told_is_refused_with_what_was_expected(fault: str) -> None:
    value, reason = FAULTY[fault]
    good: list[Any] = [f"{t:%Y-%m-%dT%H:%M:%SZ}" for t in TIMES]
    times = UNIX[:5] if isinstance(value, int) else good[:5]
    with pytest.raises(PointError, match=f"row 5: .*{reason}.*expected.*nothing was rel") as wrong:
        sanitize_frame(frame_of({"time": [*times, value]}), M)
    assert "To lose nothing, " in str(wrong.value)
    assert "61.234567" not in str(wrong.value)
    assert "--" not in str(wrong.value)


@pytest.mark.parametrize("year", ["1800", "9000"])
def test_years_of_no_clock_are_refused_as_in_files(year: str) -> None:
    times = pd.Series(np.array([f"{year}-01-01"] * 6, "datetime64[s]")).dt.tz_localize("UTC")
    with pytest.raises(PointError, match="row 0: its time is outside the years 1900 to 2400"):
        sanitize_frame(frame_of({"time": [FIRST] * 6}).assign(time=times), M)


CHANGES = ["2026-10-25 02:59", "2026-10-25 03:30", "2026-10-25 04:00"]
SKIPPED = ["2026-03-29 02:59", "2026-03-29 03:30", "2026-03-29 04:00"]
MEANT = ["23:59", "00:30", "02:00", "00:59", "01:30", "01:00"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "ns.parquet", "pandas", "polars", "arrow"])
def test_where_clocks_are_changed_frames_and_files_read_the_same(kind: str, tmp_path: Path) -> None:
    """Of two instants the first; of a time that was skipped, as if clocks had not been changed."""
    frame = frame_of({"time": [*CHANGES, *SKIPPED]})
    if kind != "csv":
        frame["time"] = pd.to_datetime(frame["time"])
        frame["time"] = frame["time"].dt.as_unit("ns" if kind.startswith("ns") else "us")
    if kind in KINDS:
        given = KINDS[kind](frame)
        out = sanitize_frame(given, M, time_zone="Europe/Helsinki", draws=KEY)
        known = frame_of({"time": [FIRST] * 6}).assign(time=meant())
        expected = sanitize_frame(KINDS[kind](known), M, draws=KEY)
        assert list(map(float, np.asarray(out["lat"]))) == list(np.asarray(expected["lat"]))
        return
    path = tmp_path / f"in.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    rows = load_rows([str(path)], Columns(zone=HELSINKI))
    assert sorted(rows.at_us.tolist()) == sorted(pd.Series(meant()).astype("int64") // 1000)


def meant() -> Any:
    days = ["2026-10-24", "2026-10-25", "2026-10-25", "2026-03-29", "2026-03-29", "2026-03-29"]
    texts = [f"{day}T{clock}:00Z" for day, clock in zip(days, MEANT, strict=True)]
    return pd.DatetimeIndex(pd.to_datetime(texts)).as_unit("ns")


WKT = [f"POINT (24.94 {60.17 + i / 1000})" for i in range(6)]
POINTS: dict[str, list[Any]] = {
    "texts": WKT,
    "bytes": list(gpd.GeoSeries.from_wkt(WKT).to_wkb()),
    "hexadecimal": list(gpd.GeoSeries.from_wkt(WKT).to_wkb(hex=True)),
}


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "lazy"])
@pytest.mark.parametrize("how", POINTS)
def test_points_in_one_column_are_read(how: str, kind: str) -> None:
    plain = frame_of({"time": TIMES})
    frame = plain.drop(columns=["lat", "lon"]).assign(geometry=POINTS[how])
    given: Any = pl.from_pandas(frame).lazy() if kind == "lazy" else KINDS[kind](frame)
    out: Any = sanitize_frame(given, M, draws=KEY)
    out = out.collect() if kind == "lazy" else out
    names = list(out.column_names if kind == "arrow" else out.columns)
    assert names == ["user", "time", "lat", "lon", "kind", "cost"]
    expected = sanitize_frame(plain, M, draws=KEY)
    assert np.allclose(np.asarray(out["lat"]), expected["lat"], atol=1e-6)


def test_points_that_are_none_are_refused_without_their_place() -> None:
    frame = frame_of({"time": TIMES}).drop(columns=["lat", "lon"])
    for odd in ("LINESTRING (24.765 61.234, 1 2)", "SRID=3067;POINT (61.234 7)", None, b"\1", 7):
        wrong_one = frame.assign(geom=pd.Series([*WKT[:5], odd], dtype=object))
        with pytest.raises(PointError, match="row 5: its point is missing, or not") as wrong:
            sanitize_frame(wrong_one, M)
        assert "61.234" not in str(wrong.value)
    for columns in (
        {"geom": [1.5] * 6},
        {"geom": WKT, "wkt": WKT},
        {"geom": WKT, "lat": [1.0] * 6},
    ):
        with pytest.raises(HereishError, match=r"lat=|lon="):
            sanitize_frame(frame.assign(**columns), M)
