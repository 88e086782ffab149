"""Data frames that would tell more than they should, or give somebody two budgets."""

from __future__ import annotations

import pickle
import traceback
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import geopandas as gpd
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hereish.errors import HereishError, ParameterError, PointError
from hereish.traces import Budgets, sanitize_frame
from tests.traces.test_frames import BY, M, shuffled

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


DEEP: dict[str, Any] = {
    "struct": (
        lambda text: {"at": text},
        pa.struct([("at", pa.dictionary(pa.int32(), pa.string()))]),
    ),
    "list": (lambda text: [text], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    "list of structs": (
        lambda text: [{"at": text}],
        pa.list_(pa.struct([("at", pa.dictionary(pa.int16(), pa.string()))])),
    ),
    "dictionary": (lambda text: text, pa.dictionary(pa.int32(), pa.string())),
    "view": (lambda text: text, pa.string_view()),
    "list view": (lambda text: [text], pa.list_view(pa.string())),
    "map": (lambda text: [("at", text)], pa.map_(pa.string(), pa.string())),
    "fixed": (lambda text: [text], pa.list_(pa.string(), 1)),
}


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
@pytest.mark.parametrize(("value", "deep"), DEEP.values(), ids=DEEP.keys())
def test_nothing_of_refused_rows_is_deep_inside_of_kept_columns(
    kind: str, value: Any, deep: Any
) -> None:
    """Neither as a category nor in a buffer: pickled, the frame has none of their texts."""
    places = [f"a place with a long name, number {i:03}" for i in range(200)]
    table = pa.Table.from_pandas(dense().drop(columns="poi"))
    table = table.append_column("poi", pa.array([value(place) for place in places], deep))
    frame = table.to_pandas(types_mapper=pd.ArrowDtype) if kind == "pandas" else table
    out = sanitize_frame(frame, M, **BY, keep=["poi"])
    assert 0 < len(out) < 100
    pickled = pickle.dumps(out)
    told = [place for place in places if place.encode() in pickled]
    assert len(told) == len(out)
    kept = out["poi"].to_pylist() if kind == "arrow" else out["poi"].tolist()
    assert [str(place) for place in told] == sorted(told)
    assert all(place in repr(row) for place, row in zip(told, kept, strict=True))


@pytest.mark.parametrize("shape", ["struct", "list", "array", "plain"])
def test_no_category_of_a_refused_row_is_in_a_type_of_polars(shape: str) -> None:
    enum = pl.Enum(PLACES)
    frame = pl.from_pandas(dense().drop(columns="poi"))
    plain = pl.Series("poi", PLACES, enum)
    column = {
        "struct": lambda: pl.Series("poi", [{"at": p} for p in PLACES], pl.Struct({"at": enum})),
        "list": lambda: pl.Series("poi", [[p] for p in PLACES], pl.List(enum)),
        "array": lambda: pl.Series("poi", [[p] for p in PLACES], pl.Array(enum, 1)),
        "plain": lambda: plain,
    }[shape]()
    out = sanitize_frame(frame.with_columns(column), M, **BY, keep=["poi"])
    assert 0 < len(out) < 100
    assert PLACES[-1] not in repr(out.schema)
    assert PLACES[-1].encode() not in pickle.dumps(out)


def chain(error: BaseException) -> str:
    """All that somebody can read who has the error."""
    words = []
    seen: BaseException | None = error
    while seen is not None:
        words.append(repr(seen))
        seen = seen.__cause__ or seen.__context__
    return " ".join(words) + "".join(traceback.format_exception(error))


TOO_LARGE = 2**53 + 1  # no float is this number
BROKEN: dict[str, Any] = {
    "arrow int64": lambda frame: pa.Table.from_pandas(
        frame.drop(columns="poi").assign(lat=TOO_LARGE)
    ),
    "arrow uint64": lambda frame: pa.table(
        {
            **pa.Table.from_pandas(frame.drop(columns=["poi", "lat"])).to_pydict(),
            "when": pa.array(frame["when"]),
            "lat": pa.array([TOO_LARGE] * 200, pa.uint64()),
        }
    ),
    "pandas over arrow": lambda frame: frame.assign(lat=TOO_LARGE).astype(
        {"lat": "int64[pyarrow]"}
    ),
    "pandas nullable": lambda frame: frame.assign(
        lat=pd.array([TOO_LARGE] * 199 + [None], "Int64")
    ),
    "polars": lambda frame: pl.from_pandas(frame.assign(lat=TOO_LARGE)),
    "decimals": lambda frame: pa.Table.from_pandas(
        frame.drop(columns="poi").assign(lat=Decimal(TOO_LARGE))
    ),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_latitude_that_is_no_float_is_not_in_the_error(broken: Any) -> None:
    with pytest.raises(PointError, match="latitude is outside") as wrong:
        sanitize_frame(broken(dense()), M, **BY)
    assert str(TOO_LARGE) not in chain(wrong.value)
    assert "90071992547409" not in chain(wrong.value)


def far_times(unit: str) -> Any:
    table = pa.Table.from_pandas(dense().drop(columns=["poi", "when"]))
    counts = pa.array([2**62] * 200, pa.int64())
    return table.append_column("when", counts.cast(pa.timestamp(unit, "UTC")))


ODD: dict[str, Any] = {
    "times beyond counting": lambda: far_times("s"),
    "times far away": lambda: far_times("us"),
    "NaT": lambda: dense().assign(when=pd.NaT),
    "NaT among times": lambda: dense().assign(when=[*dense()["when"][:-1], pd.NaT]),
    "NA as user": lambda: dense().assign(who=pd.NA),
    "users that are lists": lambda: dense().assign(who=pd.Series([[1]] * 200)),
    "users that are bytes": lambda: pa.Table.from_pandas(
        dense().drop(columns=["poi", "who"])
    ).append_column("who", pa.array([b"\xff\xfe"] * 200)),
    "places that are NA": lambda: dense().assign(lat=pd.array([None] * 200, "Float64")),
    "complex places": lambda: dense().assign(lat=60.1234567 + 1j),
    "objects": lambda: dense().assign(lat=pd.Series([10**400] * 200, dtype=object)),
}


@pytest.mark.parametrize("frame", ODD.values(), ids=ODD.keys())
def test_what_cannot_be_taken_is_an_error_of_ours_or_none(frame: Any) -> None:
    try:
        sanitize_frame(frame(), M, **BY)
    except HereishError as wrong:
        assert "60.1234567" not in chain(wrong)  # noqa: PT017  # some are taken


def test_no_axis_of_coordinates_that_overflows_is_quoted() -> None:
    frame = dense().drop(columns=["lat", "lon", "poi"])
    places = gpd.points_from_xy([1e300] * 200, [1.2345678e300] * 200, crs="EPSG:3067")
    with pytest.raises(HereishError) as wrong:
        sanitize_frame(gpd.GeoDataFrame(frame, geometry=places), M, **BY)
    assert "2345678" not in chain(wrong.value)
