"""Data frames that would tell more than they should, or give somebody two budgets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import geopandas as gpd
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from test_frames import BY, M, shuffled

from hereish.errors import ParameterError
from hereish.traces import Budgets, sanitize_frame

NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
PLACES = [f"place {i}" for i in range(200)]


def dense() -> Any:
    """Somebody with far more rows than a budget lasts for, each with a place of its own."""
    return pd.DataFrame(
        {
            "who": "ann",
            "when": [NOON + timedelta(seconds=i) for i in range(200)],
            "lat": [60.0 + 0.05 * i for i in range(200)],
            "lon": 25.0,
            "poi": pd.Categorical(PLACES),
        }
    )


def users(budgets: Budgets) -> int:
    return len({name for name, _ in budgets._lanes})


def test_one_user_is_one_whether_a_column_has_a_hole_or_not() -> None:
    ones = shuffled().sort_values("when").assign(who=7)
    budgets, half = Budgets(M), len(ones) // 2
    sanitize_frame(ones.iloc[:half], M, **BY, budgets=budgets)
    sanitize_frame(ones.iloc[half:].assign(who=7.0), M, **BY, budgets=budgets)
    assert users(budgets) == 1
    mixed = ones.assign(who=pd.Series([7, 7.0] * len(ones), dtype=object)[: len(ones)].to_numpy())
    fresh = Budgets(M)
    sanitize_frame(mixed, M, **BY, budgets=fresh)
    assert users(fresh) == 1
    with pytest.raises(ParameterError, match="texts or whole numbers"):
        sanitize_frame(ones.assign(who=7.5), M, **BY)


def test_categories_of_refused_rows_stay_behind() -> None:
    asked: dict[str, Any] = {**BY, "keep": ["poi"]}
    out = sanitize_frame(dense(), M, **asked)
    assert 0 < len(out) < 100
    assert sorted(out["poi"].cat.categories) == sorted(out["poi"])
    arrow = sanitize_frame(pa.Table.from_pandas(dense()), M, **asked)
    assert len(arrow["poi"].combine_chunks().dictionary) == len(arrow)


@pytest.mark.parametrize("kind", [pl.Categorical(), pl.Enum(PLACES)], ids=["categorical", "enum"])
def test_categories_of_refused_rows_stay_behind_in_polars(kind: Any) -> None:
    frame = pl.from_pandas(dense().assign(poi=PLACES)).with_columns(pl.col("poi").cast(kind))
    out = sanitize_frame(frame, M, **BY, keep=["poi"])
    assert 0 < len(out) < 100
    if isinstance(kind, pl.Enum):
        told: Any = out["poi"].dtype
        assert set(told.categories) == set(out["poi"].cast(pl.String))
    assert set(out["poi"].cast(pl.String)) <= set(PLACES)


def test_what_fields_say_of_themselves_stays_behind() -> None:
    table = pa.Table.from_pandas(shuffled())
    field = table.schema.field("when").with_metadata({"home": "60.1699,24.9384"})
    fields = [field if f.name == "when" else f for f in table.schema]
    out = sanitize_frame(table.cast(pa.schema(fields)), M, **BY)
    assert all(field.metadata is None for field in out.schema)


def test_frames_that_cannot_be_taken_say_so() -> None:
    frame = shuffled()
    with pytest.raises(ParameterError, match="different names"):
        sanitize_frame(pd.concat([frame, frame[["lat"]]], axis=1), M, **BY)
    with pytest.raises(ParameterError, match="no geometry"):
        sanitize_frame(gpd.GeoDataFrame(frame), M, **BY)
