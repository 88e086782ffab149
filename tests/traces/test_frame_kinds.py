"""Frames of other libraries: found columns, time indexes, derived classes, streams and tallies."""

from __future__ import annotations

import math
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import geopandas as gpd
import movingpandas as mpd
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import trackintel as ti

import hereish
from hereish.errors import ParameterError, PointError
from hereish.traces import Budgets, FrameTally, frame_streams, sanitize_frame

PRIVACY = hereish.Privacy(math.log(10), 100)
M = hereish.independent(PRIVACY, reports=3, window=hereish.Day("UTC"))
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
KEY = hereish.KeyedDraws(b"k" * 32)


def table(rows: int = 5, names: tuple[str, ...] = ("uid", "datetime", "lat", "lng")) -> Any:
    """Two users in turns, the newest row first."""
    columns = [
        ["ann", "bob"] * rows,
        [NOON - timedelta(minutes=10 * i) for i in range(2 * rows)],
        [60.0 + i / 1000 for i in range(2 * rows)],
        [25.0] * (2 * rows),
    ]
    return pd.DataFrame(dict(zip(names, columns, strict=True)))


def test_columns_are_found_by_their_usual_names() -> None:
    out = sanitize_frame(table(), M)
    assert list(out.columns) == ["uid", "datetime", "lat", "lng", "kind", "cost"]
    assert out["uid"].tolist() == ["ann"] * 3 + ["bob"] * 3
    together = sanitize_frame(table(), M, user="")
    assert list(together.columns) == ["datetime", "lat", "lng", "kind", "cost"]
    assert len(together) == 3


def test_the_times_may_be_the_index() -> None:
    by_time = table().set_index("datetime")
    out = sanitize_frame(by_time, M, draws=KEY)
    assert list(out.columns) == ["uid", "datetime", "lat", "lng", "kind", "cost"]
    assert out.equals(sanitize_frame(table(), M, draws=KEY))
    assert list(sanitize_frame(by_time.rename_axis(None), M).columns)[1] == "time"
    for name in ("when", "date"):
        assert list(sanitize_frame(by_time.rename_axis(name), M).columns)[1] == name
    with pytest.raises(ParameterError, match="no column is called time"):
        sanitize_frame(table().rename(columns={"datetime": "when"}).set_index("lat"), M)


def test_an_index_comes_before_columns_with_rarer_names() -> None:
    """Otherwise each row could be a user with a budget of its own, or at the time of its import."""
    frame = table().rename(columns={"uid": "user", "datetime": "t"})
    noted = frame.assign(created_at=NOON + timedelta(days=400), participant_id=range(10))
    expected = sanitize_frame(frame, M, draws=KEY)
    assert sanitize_frame(noted.set_index("t"), M, draws=KEY).equals(expected)
    assert sanitize_frame(noted.set_index("user"), M, draws=KEY).equals(expected)
    for name in (None, "walked"):
        by_time = noted.set_index("t").rename_axis(name)
        out = sanitize_frame(by_time, M, draws=KEY).rename(columns={name or "time": "t"})
        assert out.equals(expected)
    named = sanitize_frame(noted.set_index("t"), M, time="created_at")
    assert set(named["created_at"]) == {NOON + timedelta(days=400)}


def test_users_and_times_may_be_levels_of_the_index() -> None:
    by_both = table().set_index(["uid", "datetime"])
    out = sanitize_frame(by_both, M, draws=KEY)
    assert out.equals(sanitize_frame(table(), M, draws=KEY))
    numbered = table().set_index([pd.RangeIndex(10), "datetime"])
    assert sanitize_frame(numbered, M, draws=KEY).equals(out)


def test_errors_name_arguments_and_no_options() -> None:
    with pytest.raises(ParameterError, match=r"give time=, one of 'uid', 'lat', 'lng'") as wrong:
        sanitize_frame(table().drop(columns="datetime"), M)
    assert "--" not in str(wrong.value)
    with pytest.raises(ParameterError, match="give lat='y', lon='x'"):
        sanitize_frame(table().rename(columns={"lat": "y", "lng": "x"}), M)
    column: Any
    for column in (table()["lat"], pl.Series([1.0])):
        with pytest.raises(ParameterError, match=r"frame must be a pandas, .* found Series"):
            sanitize_frame(column, M)
    every: Any = "10min"
    with pytest.raises(ParameterError, match=r"every must be a timedelta, .* found str"):
        sanitize_frame(table(), M, every=every)
    odd = table().assign(datetime="3/6/2025 08:15")
    with pytest.raises(PointError, match=r"to_datetime takes the format= of texts"):
        sanitize_frame(odd, M)
    with pytest.raises(ParameterError, match=r"must hold times, .* found Boolean"):
        sanitize_frame(odd.assign(datetime=True), M)


def test_times_without_a_zone_need_one() -> None:
    naive = table().assign(datetime=lambda frame: frame["datetime"].dt.tz_localize(None))
    with pytest.raises(ParameterError, match="time_zone="):
        sanitize_frame(naive, M)
    out = sanitize_frame(naive, M, time_zone="UTC", draws=KEY)
    assert out["datetime"].dt.tz is None
    assert out["lat"].equals(sanitize_frame(table(), M, draws=KEY)["lat"])
    twice = naive.assign(datetime=pd.Timestamp("2026-10-25 03:30"))
    first = table().assign(datetime=pd.Timestamp("2026-10-25 00:30Z"))
    read = sanitize_frame(twice, M, time_zone="Europe/Helsinki", draws=KEY)
    assert read["lat"].equals(sanitize_frame(first, M, draws=KEY)["lat"])


def test_rows_are_thinned_and_counted() -> None:
    tally = FrameTally()
    out = sanitize_frame(table(20), M, every=timedelta(hours=1), tally=tally)
    for _, own in out.groupby("uid"):
        assert (own["datetime"].diff().dropna() >= pd.Timedelta(hours=1)).all()
    assert tally.rows == 40
    assert tally.rows == tally.thinned + tally.refused + tally.released
    assert (tally.released, tally.hard) == (len(out), len(out))
    bad = table().assign(lat=[60.0] * 9 + [400.0])
    with pytest.raises(PointError, match="row 9: latitude"):
        sanitize_frame(bad, M, every=timedelta(hours=1))


def test_a_tally_shows_what_was_released_and_nothing_of_the_truth() -> None:
    tally = FrameTally()
    out = sanitize_frame(table(), M, tally=tally)
    html = tally._repr_html_()
    assert html.count("<circle") == len(out)
    assert "whatever is released is at most 10 times" in html
    assert "<script" not in html
    assert "http" not in html
    moved = table().assign(lat=lambda frame: frame["lat"] + 1e-4)
    one, other = FrameTally(), FrameTally()
    fixed = hereish.KeyedDraws(b"x" * 32)
    for frame, into in ((table(), one), (table(), other)):
        sanitize_frame(frame, M, draws=fixed, tally=into)
    assert one._repr_html_() == other._repr_html_()
    assert len(sanitize_frame(moved, M)) == len(out)
    assert FrameTally()._repr_html_().count("<circle") == 0


def test_the_picture_of_a_tally_shows_each_place_as_it_came_up() -> None:
    """A place of fresh noise is not hidden below all the reports that repeat it."""
    tally = FrameTally()
    m = hereish.whole_day(PRIVACY, window=hereish.Day("UTC"))
    out = sanitize_frame(table(60), m, draws=KEY, tally=tally)
    fresh = {*out[out["kind"] == "hard"][["lat", "lng"]].itertuples(index=False, name=None)}
    assert len(fresh) < tally.hard + tally.easy
    html = tally._repr_html_()
    assert html.count("<circle") == len(out[["lat", "lng"]].drop_duplicates())
    assert html.count("fill='#d95f02'") == len(fresh)
    for name, colour in (("fresh noise", "#d95f02"), ("prediction accepted", "#1b9e77")):
        assert re.search(rf"color:{colour}'>●</span> {name}", html)


def test_the_picture_of_a_tally_has_no_seam_at_the_date_line() -> None:
    fiji = table().assign(
        lat=lambda frame: [-17.0, 17.0] * 5, lng=lambda frame: [179.99, -179.99] * 5
    )
    tally = FrameTally()
    sanitize_frame(fiji, M, tally=tally)
    across = [float(x) for x in re.findall(r"cx='([\d.]+)'", tally._repr_html_())]
    assert max(across) - min(across) < 20


def streams(frame: Any) -> dict[str, Any]:
    in_order = pa.Table.from_pandas(frame.sort_values(["uid", "datetime"]), preserve_index=False)
    return {
        "lazy": pl.from_pandas(frame).lazy(),
        "reader": in_order.to_reader(max_chunksize=3),
        "relation": duckdb.from_df(frame),
    }


@pytest.mark.parametrize("kind", ["lazy", "reader", "relation"])
@pytest.mark.parametrize("rows", [2, 3, 1000])
def test_a_stream_gives_what_a_frame_gives(
    kind: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_streams, "BATCH_ROWS", rows)
    frame = table(10)
    tally = FrameTally()
    out = sanitize_frame(streams(frame)[kind], M, draws=KEY, tally=tally)
    expected = {"lazy": pl.LazyFrame, "reader": pa.RecordBatchReader}
    assert isinstance(out, expected.get(kind, duckdb.DuckDBPyRelation))
    read = {
        "lazy": lambda: out.collect().to_dicts(),
        "reader": lambda: out.read_all().to_pylist(),
        "relation": lambda: out.to_arrow_table().to_pylist(),
    }[kind]()
    whole = sanitize_frame(frame, M, draws=KEY).to_dict("records")
    for row in read:
        row["datetime"] = row["datetime"].astimezone(UTC)
    assert read == whole
    assert (tally.rows, tally.released) == (20, len(whole))


def test_a_stream_has_one_seed_and_one_budget() -> None:
    frame = table(10)
    once, again = (sanitize_frame(streams(frame)["lazy"], M, seed=1).collect() for _ in range(2))
    assert once.equals(again)
    assert once["lat"].n_unique() == len(once)  # no noise is used twice
    budgets = Budgets(M)
    spent = [
        sanitize_frame(streams(frame)["relation"], M, budgets=budgets).to_arrow_table()["cost"]
        for _ in range(1)
    ]
    assert math.fsum(spent[0].to_pylist()) <= 2 * PRIVACY.eps_per_m * (1 + 1e-9)


def test_a_stream_without_arrow_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    streams: Any = (pl.from_pandas(table()).lazy(), duckdb.sql("SELECT 1 AS lat"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for stream in streams:
        with pytest.raises(ParameterError, match=r"pip install 'hereish\[parquet\]'"):
            sanitize_frame(stream, M)


def test_a_reader_that_is_not_sorted_is_refused() -> None:
    frame = pa.Table.from_pandas(table(), preserve_index=False)
    with pytest.raises(PointError, match="sort by user and time"):
        sanitize_frame(frame.to_reader(), M).read_all()
    by_time = frame.sort_by("datetime")
    with pytest.raises(PointError, match="sort by user and time"):
        sanitize_frame(by_time.to_reader(), M).read_all()
    assert sanitize_frame(by_time.to_reader(), M, user="").read_all().num_rows == 3


def test_rows_of_one_time_in_two_batches_are_ordered_as_in_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame_streams, "BATCH_ROWS", 2)
    frame = pd.DataFrame({"user": "ann", "time": [NOON] * 5, "lat": range(5), "lon": 25.0})
    out = sanitize_frame(pl.from_pandas(frame).lazy(), M, draws=KEY).collect()
    back = sanitize_frame(pl.from_pandas(frame[::-1]).lazy(), M, draws=KEY).collect()
    assert out.equals(back)


def test_positionfixes_of_trackintel_stay_positionfixes() -> None:
    frame = table().rename(columns={"uid": "user_id", "datetime": "tracked_at"})
    places = gpd.points_from_xy(frame["lng"], frame["lat"], crs="EPSG:4326")
    fixes = ti.Positionfixes(
        gpd.GeoDataFrame(frame[["user_id", "tracked_at"]], geometry=places).rename_geometry("geom")
    )
    out = sanitize_frame(fixes, M)
    assert type(out) is type(fixes)
    assert list(out.columns) == ["user_id", "tracked_at", "kind", "cost", "geom"]
    assert out.attrs["hereish"] == M.guarantee_for_each("user")
    assert out.crs == fixes.crs


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of MovingPandas, in pandas 3
def test_points_of_movingpandas_become_trajectories_again() -> None:
    frame = table(10).rename(columns={"datetime": "t"})
    frame["t"] = frame["t"].dt.tz_localize(None)
    walks = mpd.TrajectoryCollection(
        frame, traj_id_col="uid", t="t", x="lng", y="lat", crs="EPSG:4326"
    )
    points = walks.to_point_gdf()
    m = hereish.whole_day(PRIVACY, window=hereish.Day("UTC"))
    out = sanitize_frame(points, m, user="uid", time_zone="UTC")
    assert len(out) == 20
    again = mpd.TrajectoryCollection(out, traj_id_col="uid", t="t")
    assert len(again) == 2


def test_an_index_of_users_is_read() -> None:
    """Without it all of them would share one budget, and nobody's rows could be told."""
    times = pd.date_range("2026-05-05T08:00Z", periods=4, freq="20min")
    frame = pd.DataFrame(
        {"user": ["ann", "bob"] * 2, "time": times, "lat": 60.17, "lon": 24.94, "x": 1}
    )
    for name, user in (("user", None), ("who", "who")):
        out = sanitize_frame(frame.rename(columns={"user": name}).set_index(name), M, user=user)
        assert list(out.columns) == [name, "time", "lat", "lon", "kind", "cost"]
        assert out[name].tolist() == ["ann", "ann", "bob", "bob"]
    numbered = frame.set_index(pd.Index(range(4), name=7))  # an index that is not read
    assert len(sanitize_frame(numbered, M)) == 4
    with pytest.raises(ParameterError, match="must be texts, found one of type int"):
        sanitize_frame(frame.rename(columns={"x": 0}), M)
    with pytest.raises(ParameterError, match=r"keep=\['x'\]"):
        sanitize_frame(frame, M, keep="x")


@pytest.mark.parametrize("kind", ["lazy", "reader", "relation"])
def test_a_stream_without_rows_gives_one_without_rows(kind: str) -> None:
    times = pd.date_range("2026-05-05T08:00Z", periods=2, freq="20min")
    frame = pd.DataFrame({"user": "ann", "time": times, "lat": 60.17, "lon": 24.94, "x": 1})
    table = pa.Table.from_pandas(frame).slice(0, 0)
    if kind == "lazy":
        out = sanitize_frame(pl.DataFrame(pl.from_arrow(table)).lazy(), M).collect().to_arrow()
    elif kind == "reader":
        out = sanitize_frame(table.to_reader(), M).read_all()
    else:
        out = sanitize_frame(duckdb.from_arrow(table), M).to_arrow_table()
    assert out.num_rows == 0
    assert out.column_names == ["user", "time", "lat", "lon", "kind", "cost"]
