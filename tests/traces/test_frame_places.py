"""Places in frames are read as in files of the same table: texts, units, letters for the side."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import hereish
from hereish.errors import ParameterError
from hereish.traces import sanitize_frame
from hereish.traces.files import sanitize_files

M = hereish.whole_day(hereish.Privacy(math.log(1e6), 10))  # noise of a few metres
LAT, LON = -33.86, -151.21
WRITTEN: dict[str, dict[str, Any]] = {
    "numbers": {"lat": LAT, "lon": LON},
    "texts": {"lat": f"{LAT}", "lon": f"{LON}"},
    "decimal commas": {"lat": "-33,86", "lon": "-151,21"},
    "degrees and minutes": {"lat": "33°51'36\"S", "lon": "151°12'36\"W"},
    "decimals": {"lat": Decimal("-33.86"), "lon": Decimal("-151.21")},
    "letters in columns": {"lat": -LAT, "lat_ref": "S", "lon": -LON, "lon_ref": "W"},
    "E7": {"latitudeE7": round(LAT * 1e7), "longitudeE7": round(LON * 1e7)},
    "semicircles": {
        "position_lat": round(LAT / 180 * 2**31),
        "position_long": round(LON / 180 * 2**31),
    },
}
KINDS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "arrow": pa.Table.from_pandas,
    "lazy": lambda frame: pl.from_pandas(frame).lazy(),
}


def written(places: dict[str, Any]) -> pd.DataFrame:
    times = pd.date_range("2026-05-05T08:00Z", periods=4, freq="20min")
    return pd.DataFrame({"user": "ann", "time": times, **{n: [v] * 4 for n, v in places.items()}})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", WRITTEN)
def test_places_are_read_however_they_are_written(how: str, kind: str) -> None:
    out = sanitize_frame(KINDS[kind](written(WRITTEN[how])), M)
    out = out.collect() if kind == "lazy" else out
    names = list(out.column_names if kind == "arrow" else out.columns)
    assert names == ["user", "time", "lat", "lon", "kind", "cost"]  # degrees, and named so
    assert np.abs(np.asarray(out["lat"]) - LAT).max() < 0.01
    assert np.abs(np.asarray(out["lon"]) - LON).max() < 0.01


@pytest.mark.parametrize("how", WRITTEN)
def test_a_file_of_the_same_table_is_read_alike(how: str, tmp_path: Path) -> None:
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    written(WRITTEN[how]).to_parquet(source)
    sanitize_files([source], out, M)
    back = pd.read_parquet(out)
    assert list(back.columns) == ["user", "time", "lat", "lon", "kind", "cost"]
    assert np.abs(back["lat"] - LAT).max() < 0.01
    assert np.abs(back["lon"] - LON).max() < 0.01


def test_a_kept_column_does_not_take_the_name_of_released_places() -> None:
    frame = written(WRITTEN["E7"]).assign(lat="old")
    with pytest.raises(ParameterError, match="must differ"):
        sanitize_frame(frame, M, lat="latitudeE7", lon="longitudeE7", keep=["lat"])
