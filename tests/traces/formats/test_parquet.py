"""Parquet and GeoParquet: what goes in comes out in the same shape, and nothing else does."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import geopandas as gpd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import hereish
from hereish.errors import ParameterError, PointError
from hereish.traces.columns import Columns
from hereish.traces.discovery import find_sources
from hereish.traces.faults import Fault
from hereish.traces.files import load_rows, read_guarantee, sanitize_files
from hereish.traces.formats._wkb import decode_points
from hereish.traces.formats.registry import get_format

M = hereish.fixed_utility(
    hereish.Privacy(math.log(10), 100), 3000, window=hereish.Day("Europe/Helsinki")
)
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)


def table(**changes: Any) -> pa.Table:
    columns = {
        "user": pa.array([7, 7, 9], pa.int16()),
        "trace": pa.array(["a", "a", "b"]),
        "at": pa.array([NOON, NOON.replace(hour=13), NOON], pa.timestamp("ms", "Europe/Helsinki")),
        "lat": pa.array([Decimal("60.171234"), Decimal("60.172234"), Decimal("60.2")]).cast(
            pa.decimal128(9, 6)
        ),
        "lon": pa.array([24.941234, 24.951234, 24.9]),
        "speed": pa.array([1.5, 2.0, 3.0]),
    }
    made = pa.table({**columns, **changes})
    return made.replace_schema_metadata({"pandas": "secret 60.171234"})


def saved(path: Path, given: pa.Table) -> str:
    pq.write_table(given, path)
    return str(path)


def test_columns_keep_their_names_and_types_and_the_rest_stays_behind(tmp_path: Path) -> None:
    source = saved(tmp_path / "in.parquet", table())
    out = tmp_path / "out.parquet"
    summary = sanitize_files([source], out, M, columns=Columns(keep_trace_names=True))
    written = pq.read_table(out)
    assert written.column_names == ["user", "trace", "at", "lat", "lon", "kind", "cost"]
    for name in ("user", "trace", "at"):
        assert written.schema.field(name).type == table().schema.field(name).type
        assert written[name].to_pylist() == table()[name].to_pylist()
    assert summary.points == summary.released == 3
    assert set(written.schema.metadata) == {b"hereish", b"hereish.promise"}
    assert written.schema.metadata[b"hereish"].decode() == M.guarantee_for_each("user")
    raw = out.read_bytes()
    assert b"secret" not in raw
    assert b"speed" not in raw


def test_statistics_are_of_the_released_rows(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    sanitize_files([saved(tmp_path / "in.parquet", table())], out, M, seed=1)
    written = pq.read_table(out)
    group = pq.ParquetFile(out).metadata.row_group(0)
    lat = written.column_names.index("lat")
    assert group.column(lat).statistics.min == min(written["lat"].to_pylist())
    assert group.column(lat).statistics.max == max(written["lat"].to_pylist())


def test_a_column_is_kept_on_request_with_its_type(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    given = table(speed=pa.array([1, None, 3], pa.int8()))
    sanitize_files(
        [saved(tmp_path / "in.parquet", given)], out, M, columns=Columns(keep=("speed",))
    )
    assert pq.read_table(out)["speed"].to_pylist() == [1, None, 3]
    assert pq.read_table(out).schema.field("speed").type == pa.int8()


@pytest.mark.parametrize(
    "at",
    [
        pa.array([NOON, NOON.replace(hour=13), NOON], pa.timestamp("ns", "UTC")),
        pa.array([NOON, NOON.replace(hour=13), NOON], pa.timestamp("s", "UTC")),
        pa.array([NOON.timestamp(), NOON.timestamp() + 3600, NOON.timestamp()]),
        pa.array([round(NOON.timestamp() * 1000) + 3_600_000 * i for i in (0, 1, 0)]),
        pa.array(["2026-05-05T15:00+03:00", "2026-05-05T16:00+03:00", "2026-05-05T15:00+03:00"]),
    ],
    ids=["ns", "s", "unix", "millis", "text"],
)
def test_times_of_every_type_are_the_same_instants(tmp_path: Path, at: pa.Array) -> None:
    batch = load_rows([saved(tmp_path / "in.parquet", table(at=at))], Columns())
    base = round(NOON.timestamp()) * 1_000_000
    assert batch.at_us.tolist() == [base, base + 3_600_000_000, base]


def test_times_without_a_zone_are_taken_in_the_given_one(tmp_path: Path) -> None:
    from zoneinfo import ZoneInfo

    naive = pa.array([datetime(2026, 5, 5, 15 + i) for i in (0, 1, 0)])  # noqa: DTZ001  # meant
    path = saved(tmp_path / "in.parquet", table(at=naive))
    helsinki = load_rows([path], Columns(zone=ZoneInfo("Europe/Helsinki")))
    assert helsinki.at_us[0] == round(NOON.timestamp()) * 1_000_000
    assert load_rows([path], Columns()).at_us[0] - helsinki.at_us[0] == 3 * 3_600_000_000


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"lat": pa.array([60.0, None, 60.0])}, Fault.LAT),
        ({"lat": pa.array([60.0, math.nan, 60.0])}, Fault.LAT),
        ({"lon": pa.array([25.0, math.inf, 25.0])}, Fault.LON),
        ({"at": pa.array([NOON, None, NOON], pa.timestamp("ms", "UTC"))}, Fault.TIME),
        ({"at": pa.array([2**61, 2**62, 0], pa.timestamp("ms", "UTC"))}, Fault.TIME),
        ({"user": pa.array(["a", None, "a"])}, Fault.USER),
        ({"at": pa.array(["2026-05-05", "5/5/2026", "2026-05-06"])}, Fault.DAY_OR_MONTH),
    ],
)
def test_rows_that_cannot_be_used_are_marked(
    tmp_path: Path, changes: dict[str, Any], fault: Fault
) -> None:
    source = find_sources([saved(tmp_path / "in.parquet", table(**changes))])[0]
    (batch,) = get_format("parquet").read(source, Columns())
    assert batch.fault[1] == fault
    assert batch.fault[2] == Fault.NONE
    with pytest.raises(PointError, match=r"in\.parquet, row [12]: "):
        load_rows([str(source.path)], Columns())


def test_what_is_no_parquet_is_said_to_be_none(tmp_path: Path) -> None:
    good = Path(saved(tmp_path / "good.parquet", table())).read_bytes()
    rng = np.random.default_rng(0)
    for i in range(150):
        bad = bytearray(good)
        if i % 3 == 0:
            bad = bad[: rng.integers(0, len(bad))]
        else:
            for _ in range(rng.integers(1, 8)):
                bad[rng.integers(0, len(bad))] = rng.integers(0, 256)
        path = tmp_path / "bad.parquet"
        path.write_bytes(bad)
        for digits in ("171234", "951234"):
            assert digits not in _words_of_loading(path)


def _words_of_loading(path: Path) -> str:
    try:
        load_rows([str(path)], Columns(), drop_bad=True)
    except hereish.HereishError as wrong:
        return f"{wrong!r} {wrong.__cause__!r} {wrong.__context__!r}"
    return ""


def test_an_empty_table_is_said_to_be_empty(tmp_path: Path) -> None:
    path = saved(tmp_path / "in.parquet", table().slice(0, 0))
    with pytest.raises(PointError, match="it has no rows"):
        load_rows([path], Columns())


def test_columns_that_are_not_there_or_of_the_wrong_kind_are_named(tmp_path: Path) -> None:
    path = saved(tmp_path / "in.parquet", table().rename_columns(list("abcdef")))
    with pytest.raises(ParameterError, match=r"in\.parquet: no column is called lat.*--lat"):
        load_rows([path], Columns())
    for columns, words in (
        (Columns(user="nobody"), "no column 'nobody'; found 'user'"),
        (Columns(lat="trace"), "'trace', 'lon' must differ"),
        (Columns(keep=("height",)), "no column 'height' to keep"),
        (Columns(user="speed"), "must hold texts or whole numbers"),
    ):
        with pytest.raises(ParameterError, match=words):
            load_rows([saved(tmp_path / "in.parquet", table())], columns)
    texts = table(lat=pa.array(["60", "60,5", "60.5N"]))
    batch = load_rows([saved(tmp_path / "in.parquet", texts)], Columns())
    assert sorted(batch.lat.tolist()) == [60.0, 60.5, 60.5]
    flags = table(lat=pa.array([True, False, True]))
    with pytest.raises(ParameterError, match="must hold numbers"):
        load_rows([saved(tmp_path / "in.parquet", flags)], Columns())


# GeoParquet


def geo(path: Path, crs: str = "EPSG:4326") -> str:
    frame = gpd.GeoDataFrame(
        {"user": ["a", "a", "b"], "time": [NOON, NOON.replace(hour=13), NOON], "ele": [1, 2, 3]},
        geometry=gpd.points_from_xy([24.94, 24.95, 24.9], [60.17, 60.17, 60.2]),
        crs="EPSG:4326",
    )
    frame.to_crs(crs).to_parquet(path)
    return str(path)


def test_geoparquet_is_read_by_geopandas_and_pyarrow(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    sanitize_files([geo(tmp_path / "in.parquet")], out, M)
    frame = gpd.read_parquet(out)
    assert list(frame.columns) == ["user", "time", "geometry", "kind", "cost"]
    assert frame.crs == "OGC:CRS84"
    described = json.loads(pq.read_metadata(out).metadata[b"geo"])["columns"]["geometry"]
    assert described["bbox"] == frame.total_bounds.tolist()
    assert described["geometry_types"] == ["Point"]
    again = load_rows([str(out)], Columns())
    assert again.lat.tolist() == frame.geometry.y.tolist()
    assert again.lon.tolist() == frame.geometry.x.tolist()


def test_any_format_can_become_geoparquet(tmp_path: Path) -> None:
    out = tmp_path / "out.geoparquet"
    sanitize_files([saved(tmp_path / "in.parquet", table())], out, M)
    frame = gpd.read_parquet(out)
    assert list(frame.columns) == ["user", "trace", "at", "geometry", "kind", "cost"]
    assert len(frame) == 3


def test_another_coordinate_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"not in WGS84.*to_crs"):
        load_rows([geo(tmp_path / "in.parquet", "EPSG:3067")], Columns())
    frame = gpd.read_parquet(geo(tmp_path / "in.parquet"))
    frame.set_crs(None, allow_override=True).to_parquet(tmp_path / "unsaid.parquet")
    with pytest.raises(ParameterError, match=r"does not say its coordinate system.*set_crs"):
        load_rows([str(tmp_path / "unsaid.parquet")], Columns())


def test_points_in_every_binary_form_are_read() -> None:
    point = shapely.Point(24.9, 60.2)
    forms = [
        shapely.to_wkb(point),
        shapely.to_wkb(point, byte_order=0),
        shapely.to_wkb(shapely.set_srid(point, 4326), include_srid=True),
        shapely.to_wkb(shapely.Point(24.9, 60.2, 7.0), output_dimension=3),
        shapely.to_wkb(shapely.Point(24.9, 60.2, 7.0), output_dimension=3, flavor="iso"),
    ]
    lat, lon = decode_points(forms)
    assert lat.tolist() == [60.2] * len(forms)
    assert lon.tolist() == [24.9] * len(forms)
    line = shapely.to_wkb(shapely.LineString([(0, 0), (1, 1)]))
    assert np.isnan(decode_points([line, None, b"", b"\x01", forms[0][:12]])[0]).all()


def test_the_promise_can_be_read_back(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    sanitize_files([saved(tmp_path / "in.parquet", table())], out, M)
    guarantee = read_guarantee(str(out))
    assert guarantee is not None
    assert guarantee.statement == M.guarantee_for_each("user")
    assert (guarantee.window, guarantee.time_zone) == ("day", "Europe/Helsinki")
    assert guarantee.eps_per_m == M.privacy.eps_per_m
    assert read_guarantee(saved(tmp_path / "in.parquet", table())) is None
