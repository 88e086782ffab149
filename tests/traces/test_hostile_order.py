"""The order of rows tells no places: frames, rows, and an attack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings

import hereish
from hereish.traces import sanitize_frame
from hereish.traces.budgets import sanitize_rows
from tests.support.permuted_traces import (
    BY_DAY,
    FIXES,
    KEY,
    NOON,
    PRIVACY,
    Fix,
    pandas_frame,
    permuted,
)


def geo_frame(fixes: Sequence[Fix]) -> Any:
    frame = pandas_frame(fixes)
    places = gpd.points_from_xy(frame.lon, frame.lat, crs="EPSG:4326")
    return gpd.GeoDataFrame(frame.drop(columns=["lat", "lon"]), geometry=places)


FRAMES: dict[str, tuple[Callable[[Sequence[Fix]], Any], Callable[[Any], list[dict[str, Any]]]]] = {
    "pandas": (pandas_frame, lambda out: out.to_dict("records")),
    "polars": (lambda fixes: pl.from_pandas(pandas_frame(fixes)), lambda out: out.to_dicts()),
    "arrow": (lambda fixes: pa.Table.from_pandas(pandas_frame(fixes)), lambda out: out.to_pylist()),
    "geopandas": (geo_frame, lambda out: out.to_dict("records")),
    "categories": (
        lambda fixes: pandas_frame(fixes).astype({"user": "category", "note": "category"}),
        lambda out: [
            *out.to_dict("records"),
            {"categories": [list(out[name].cat.categories) for name in ("user", "note")]},
        ],
    ),
    "dictionaries": (
        lambda fixes: pa.Table.from_pandas(
            pandas_frame(fixes).astype({"user": "category", "note": "category"})
        ),
        lambda out: [
            *out.to_pylist(),
            {"words": [out[name].combine_chunks().dictionary for name in ("user", "note")]},
        ],
    ),
}


@pytest.mark.parametrize("kind", FRAMES)
@settings(max_examples=15, deadline=None)
@given(both=permuted(FIXES))
def test_a_frame_in_any_order_gives_the_same_frame(
    kind: str, both: tuple[list[Fix], list[Fix]]
) -> None:
    """With a key, to the last bit; so public data and ties come in one order too."""
    into, back = FRAMES[kind]
    one, other = (
        back(sanitize_frame(into(fixes), BY_DAY, user="user", keep=["note"], draws=KEY))
        for fixes in both
    )
    assert one == other


@settings(max_examples=15, deadline=None)
@given(both=permuted(FIXES))
def test_rows_in_any_order_are_taken_alike(both: tuple[list[Fix], list[Fix]]) -> None:
    """Rows of the same user and time too: which is first is no function of the input's order."""

    def released(fixes: Sequence[Fix]) -> list[tuple[Any, ...]]:
        names = sorted({fix.user for fix in fixes})
        user = np.array([names.index(fix.user) for fix in fixes])
        points = np.array([(fix.lat, fix.lon) for fix in fixes])
        at_s = np.array([fix.time.timestamp() for fix in fixes])
        out = sanitize_rows(BY_DAY, user, names, points, at_s, draws=KEY)
        told = zip(fixes, out.released.tolist(), out.value.tolist(), strict=True)
        # What `sanitize_rows` does not know may be swapped.
        return sorted((fix.user, fix[2:5], *map(repr, more)) for fix, *more in told)

    assert released(both[0]) == released(both[1])


def test_which_of_two_rows_of_one_time_comes_first_is_chance() -> None:
    """A budget for one report, and two rows: which is released must not tell which came first."""
    m = hereish.independent(PRIVACY, reports=1)
    frame = pandas_frame([Fix("ann", "x", 0, 59.0, 25.0, "a")] * 2)
    frame["lat"] = [10.0, 60.0]
    runs = 120
    first = sum(sanitize_frame(frame, m, user="user")["lat"][0] < 35.0 for _ in range(runs))
    # Two-sided, alpha = 1e-6: with a chance of 1/2 it is outside of this once in a million.
    assert 33 < first < 87


def guessed(released: np.typing.NDArray[np.float64], neighbours: int) -> Any:
    """Latitudes from the order alone: the mean of those that stand next to each."""
    total = np.cumsum(np.pad(released, 1 + neighbours, mode="reflect"))
    return (total[2 * neighbours + 1 :] - total[: -2 * neighbours - 1])[: len(released)] / (
        2 * neighbours + 1
    )


@pytest.mark.parametrize("order", ["input", "public"])
def test_who_stands_beside_whom_tells_no_latitude(order: Any) -> None:
    """20,000 users by latitude: their order tells it to some metres, the released values do not."""
    rng = np.random.default_rng(3)
    users = 20_000
    truth = np.sort(rng.uniform(60.1, 60.3, users))
    frame = pd.DataFrame(
        {
            "user": rng.permutation(users),
            "time": pd.Timestamp(NOON),
            "lat": truth,
            "lon": rng.uniform(24.8, 25.0, users),
        }
    )
    m = hereish.independent(PRIVACY, accuracy_m=3000)
    out = sanitize_frame(frame, m, user="user", order=order)
    assert len(out) == users
    true = frame.set_index("user")["lat"].loc[out["user"]].to_numpy()
    metres = 111_195.0
    from_order = np.median(np.abs(guessed(out["lat"].to_numpy(), 500) - true)) * metres
    from_value = np.median(np.abs(out["lat"].to_numpy() - true)) * metres
    assert from_value > 400
    if order == "input":
        assert from_order < 60
    else:
        assert from_order > 2 * from_value


def test_two_people_a_metre_apart_do_not_swap_places() -> None:
    for north in ("ann", "bob"):
        south = "bob" if north == "ann" else "ann"
        frame = pandas_frame(
            [Fix(south, "x", 0, 60.0, 25.0, ""), Fix(north, "x", 0, 60.00001, 25.0, "")]
        )
        out = sanitize_frame(frame.sort_values("lat"), BY_DAY, user="user")
        assert out["user"].tolist() == ["ann", "bob"]
