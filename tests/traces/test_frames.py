from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from shapely.geometry import LineString, Point

import hereish
from hereish import synthetic
from hereish.traces import Budgets, sanitize_frame

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
M = hereish.fixed_utility(PRIVACY, 3000, window=hereish.Day("Europe/Helsinki"))
BY: dict[str, Any] = {"user": "who", "time": "when"}


def shuffled() -> Any:
    """A day of six people, its rows in no order, with columns that must stay behind."""
    day = synthetic.day()
    lane = np.repeat(np.arange(len(day.users)), np.diff(day.offsets))
    frame = pd.DataFrame(
        {
            "speed": 3.7,
            "lon": day.points[:, 1],
            "who": np.array(day.users)[lane],
            "when": pd.to_datetime((day.at_s * 1e6).astype(np.int64), unit="us", utc=True),
            "lat": day.points[:, 0],
            "note": "home",
        }
    )
    frame["when"] = frame["when"].dt.tz_convert("Europe/Helsinki")
    return frame.sample(frac=1.0, random_state=1)


def geo(frame: Any) -> Any:
    places = gpd.points_from_xy(frame.lon, frame.lat, crs="EPSG:4326")
    return gpd.GeoDataFrame(frame.drop(columns=["lat", "lon"]), geometry=places).to_crs("EPSG:3067")


def from_geo(frame: Any) -> Any:
    places = frame.geometry.to_crs("EPSG:4326")
    plain = pd.DataFrame(frame.drop(columns=frame.geometry.name))
    return plain.assign(lat=places.y.round(5), lon=places.x.round(5))


KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], type]] = {
    "pandas": (lambda frame: frame, lambda frame: frame, pd.DataFrame),
    "polars": (pl.from_pandas, lambda frame: frame.to_pandas(), pl.DataFrame),
    "arrow": (
        lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
        lambda frame: frame.to_pandas(),
        pa.Table,
    ),
    "geopandas": (geo, from_geo, gpd.GeoDataFrame),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_goes_in_and_one_of_the_same_kind_comes_out(kind: str) -> None:
    into, back, cls = KINDS[kind]
    frame = into(shuffled())
    before = frame.copy() if hasattr(frame, "copy") else frame
    out = sanitize_frame(frame, M, **BY, seed=1)
    assert type(out) is cls
    assert frame.equals(before)
    assert out is not frame
    plain, expected = back(out), sanitize_frame(shuffled(), M, **BY, seed=1)
    for column in ("lat", "lon", "kind", "cost"):
        assert plain[column].tolist() == expected[column].tolist(), column
    assert plain["when"].tolist() == expected["when"].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_what_may_be_public_comes_out(kind: str) -> None:
    into, back, _ = KINDS[kind]
    out = back(sanitize_frame(into(shuffled()), M, **BY))
    assert set(out.columns) == {"who", "when", "lat", "lon", "kind", "cost"}
    kept = back(sanitize_frame(into(shuffled()), M, **BY, keep=["speed"]))
    assert set(kept.columns) == {"who", "when", "lat", "lon", "kind", "cost", "speed"}


def test_each_user_has_one_budget_however_the_rows_lie() -> None:
    frame = shuffled()
    out = sanitize_frame(frame, M, **BY)
    for _, rows in out.groupby("who"):
        assert math.fsum(rows["cost"]) <= PRIVACY.eps_per_m
    assert len(out) < len(frame), "the budget ends before the day does"
    together = sanitize_frame(frame, M, time="when")
    assert math.fsum(together["cost"]) <= PRIVACY.eps_per_m


def test_rows_come_by_user_and_time_and_times_keep_their_zone() -> None:
    frame = shuffled()
    out = sanitize_frame(frame, M, **BY)
    assert out["when"].dtype == frame["when"].dtype
    assert out.equals(out.sort_values(["who", "when"], ignore_index=True))
    polars = sanitize_frame(pl.from_pandas(frame), M, **BY)
    assert polars["when"].dtype == pl.from_pandas(frame)["when"].dtype


def test_the_same_rows_in_another_order_give_the_same_releases() -> None:
    frame = shuffled()
    key = hereish.KeyedDraws(b"k" * 32)
    one = sanitize_frame(frame, M, **BY, draws=key)
    other = sanitize_frame(frame.iloc[::-1], M, **BY, draws=key)
    columns = ["who", "when", "lat", "lon"]
    assert one[columns].equals(other[columns])


def test_the_order_of_the_input_is_a_choice_that_the_output_tells() -> None:
    frame = shuffled()
    out = sanitize_frame(frame, M, **BY, order="input")
    order = {when: i for i, when in enumerate(frame["when"])}
    positions = [order[when] for when in out["when"]]
    assert positions == sorted(positions)
    assert out.attrs["hereish"].startswith(M.guarantee_for_each("user"))
    assert "in the order of the input, which this does not cover" in out.attrs["hereish"]
    with pytest.raises(hereish.ParameterError, match="public, input, found 'random'"):
        sanitize_frame(frame, M, **BY, order="random")  # type: ignore[arg-type]


def test_the_index_stays_behind_and_the_guarantee_comes_along() -> None:
    frame = shuffled().set_index("note", append=True)
    out = sanitize_frame(frame, M, **BY)
    assert isinstance(out.index, pd.RangeIndex)
    assert out.attrs["hereish"] == M.guarantee_for_each("user")
    table = sanitize_frame(pa.Table.from_pandas(shuffled()), M, **BY, seed=1)
    assert b"NOT PRIVATE" in table.schema.metadata[b"hereish"]
    assert b"pandas" not in table.schema.metadata, "what the input said of itself is left behind"


def small(**changed: Any) -> Any:
    columns: dict[str, Any] = {
        "time": [datetime(2026, 5, 5, 12, i, tzinfo=UTC) for i in range(3)],
        "lat": [60.11111, 60.22222, 60.33333],
        "lon": [24.11111, 24.22222, 24.33333],
    }
    columns.update(changed)
    return pd.DataFrame(columns)


def test_decimals_integers_and_numbers_as_users_are_read() -> None:
    frame = small(lat=[Decimal("60.1"), Decimal("60.2"), Decimal("60.3")], lon=[24, 24, 25], id=7)
    out = sanitize_frame(pa.Table.from_pandas(frame), M, user="id")
    assert out.num_rows == 3
    assert out["id"].to_pylist() == [7, 7, 7]


REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], str]] = {
    "latitude": (lambda: small(lat=[60.1, 400.17, 60.3]), {}, "row 1: latitude is outside -90..90"),
    "no place": (lambda: small(lon=[24.1, 24.2, None]), {}, "row 2: longitude is not a finite"),
    "no time": (lambda: small(time=[*small().time[:2], None]), {}, "row 2: it has no time"),
    "naive": (lambda: small(time=small().time.dt.tz_localize(None)), {}, "say their zone"),
    "text": (lambda: small(lat=["60.1", "60.2", "x60.3"]), {}, "row 2: latitude is not a finite"),
    "no number": (lambda: small(lat=small().time), {}, "'lat' must hold numbers of degrees"),
    "empty user": (lambda: small(id=["a", "b", " "]), {"user": "id"}, "row 2: it has no id"),
    "column": (
        lambda: small().rename(columns={"lat": "y"}),
        {},
        "no column is called lat .* one of 'time', 'y'",
    ),
    "no user": (lambda: small(id=["a", None, "b"]), {"user": "id"}, "row 1: it has no id"),
    "taken": (lambda: small(kind=1), {"keep": ["kind"]}, "'kind' and 'cost' are taken"),
    "twice": (small, {"keep": ["lat"]}, "must differ"),
    "no frame": (lambda: [1, 2, 3], {}, "pandas, GeoPandas or polars .* found list"),
    "lazy": (
        lambda: pl.from_pandas(small()).lazy(),
        {"order": "input"},
        "a stream is sorted by user and time",
    ),
    "no crs": (
        lambda: gpd.GeoDataFrame(small(), geometry=[Point(24, 60)] * 3),
        {},
        "set_crs first",
    ),
    "a line": (
        lambda: gpd.GeoDataFrame(
            small(), geometry=[Point(24, 60), LineString([(24, 60), (25, 61)]), Point()], crs=4326
        ),
        {},
        "row 1: its geometry is not a point",
    ),
}


@pytest.mark.parametrize(("frame", "options", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_used_is_refused_by_row_and_without_the_place(
    frame: Callable[[], Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(hereish.HereishError, match=words) as refused:
        sanitize_frame(frame(), M, **options)
    for digits in ("60.", "24.", "400"):
        assert digits not in str(refused.value)


def test_a_mechanism_of_another_space_is_refused() -> None:
    with pytest.raises(hereish.ParameterError, match="latitudes and longitudes"):
        sanitize_frame(small(), hereish.fixed_utility(PRIVACY, 3000, space=hereish.Plane()))


def test_an_empty_frame_gives_an_empty_one() -> None:
    out = sanitize_frame(small().iloc[:0], M)
    assert list(out.columns) == ["time", "lat", "lon", "kind", "cost"]
    assert len(out) == 0


def test_without_narwhals_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['narwhals'] = None; from hereish.traces import sanitize_frame"
    done = subprocess.run(  # noqa: S603  # our own interpreter and our own words
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "pip install 'hereish[frames]'" in done.stderr


def test_a_table_in_pieces_has_one_budget_for_each_user_and_day() -> None:
    frame = shuffled().sort_values("when")
    budgets = Budgets(M)
    batches = [
        sanitize_frame(frame.iloc[i : i + 40], M, **BY, budgets=budgets)
        for i in range(0, len(frame), 40)
    ]
    together = pd.concat(batches)
    assert len(budgets) == 6
    for _, rows in together.groupby("who"):
        assert 0.8 * PRIVACY.eps_per_m < math.fsum(rows["cost"]) <= PRIVACY.eps_per_m
    apart = [sanitize_frame(frame.iloc[i : i + 40], M, **BY) for i in range(0, len(frame), 40)]
    assert pd.concat(apart)["cost"].sum() > 1.2 * together["cost"].sum(), "the check has teeth"


def test_pieces_cannot_go_back_in_time_or_change_the_mechanism() -> None:
    frame, budgets = shuffled().sort_values("when"), Budgets(M)
    sanitize_frame(frame.iloc[100:], M, **BY, budgets=budgets)
    with pytest.raises(hereish.PointError, match=r"row \d+: its user has a later report"):
        sanitize_frame(frame.iloc[:100], M, **BY, budgets=budgets)
    with pytest.raises(hereish.ParameterError, match="another mechanism"):
        sanitize_frame(frame, hereish.fixed_utility(PRIVACY, 2000), **BY, budgets=budgets)


def test_threads_that_share_budgets_cannot_overspend() -> None:
    frame, budgets = shuffled(), Budgets(M)
    frame["when"] = frame["when"].iloc[0]  # so that no batch is late, whoever comes first
    made: list[Any] = []

    def work(i: int) -> None:
        made.append(sanitize_frame(frame.iloc[i::8], M, **BY, budgets=budgets))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    for _, rows in pd.concat(made).groupby("who"):
        assert math.fsum(rows["cost"]) <= PRIVACY.eps_per_m
