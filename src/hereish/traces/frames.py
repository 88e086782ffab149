"""Data frames in, the same kind out: pandas, GeoPandas, polars and Arrow, through narwhals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from hereish.arrays import Floats, Ints
from hereish.batch import Sanitized
from hereish.errors import ParameterError, PointError
from hereish.mechanism import PredictiveMechanism
from hereish.randomness import Draws, KeyedDraws
from hereish.traces.rows import Budgets, same_name, sanitize_rows

try:
    import narwhals as nw
except ImportError as missing:
    raise ImportError("data frames need more: pip install 'hereish[frames]'") from missing

Frame = TypeVar("Frame")
WGS84 = "EPSG:4326"


def sanitize_frame(
    frame: Frame,
    mechanism: PredictiveMechanism,
    *,
    user: str | None = None,
    time: str = "time",
    lat: str = "lat",
    lon: str = "lon",
    keep: Sequence[str] = (),
    seed: int | None = None,
    draws: Draws | KeyedDraws | None = None,
    budgets: Budgets | None = None,
) -> Frame:
    """The rows that may be released, in a new frame of the same kind and in the same order.

    It has the columns `user` (if one is named), `time`, `lat`, `lon`, `kind` and `cost`, and those
    of `keep`, which are passed on as they are: that is your choice, and they may tell a place.
    Everything else stays behind. A GeoDataFrame of points is read from its geometry and released
    in its own coordinate system. Times keep their zone. Rows that the budget refused are left
    out, and so is the index of a pandas frame, which could hold anything. A table that comes in
    pieces takes the same `budgets` for each; otherwise a call knows nothing of the one before.

    Guarantee: as the mechanism's, for each user (for all rows together if no user is named).
    """
    names = [coordinate.name for coordinate in mechanism.space.coordinates]
    if names != ["latitude", "longitude"]:
        raise ParameterError(
            f"frames hold latitudes and longitudes; the mechanism's space has {', '.join(names)}"
        )
    if _is_geo(frame):
        moved: Frame = _sanitize_geo(frame, mechanism, user, time, keep, seed, draws, budgets)
        return moved
    table = _table(frame)
    wanted = [name for name in (user, time, lat, lon, *keep) if name is not None]
    _check_columns(table, wanted)
    points = np.column_stack([_numbers(table, lat), _numbers(table, lon)])
    out = _sanitized(table, mechanism, user, time, points, seed, draws, budgets)
    released = _released(table, [name for name in wanted if name not in (lat, lon)], out)
    columns = _columns(table, {lat: out.value[:, 0], lon: out.value[:, 1]}, out)
    ordered = [name for name in (user, time, lat, lon, "kind", "cost", *keep) if name is not None]
    native = released.with_columns(*columns).select(*ordered).to_native()
    finished: Frame = _with_guarantee(native, out)
    return finished


def _sanitized(
    table: Any,
    mechanism: PredictiveMechanism,
    user: str | None,
    time: str,
    points: Floats,
    seed: int | None,
    draws: Draws | KeyedDraws | None,
    budgets: Budgets | None,
) -> Sanitized:
    codes, names = _users(table, user)
    at_s = _seconds(table, time)
    return sanitize_rows(
        mechanism, codes, names, points, at_s, seed=seed, draws=draws, budgets=budgets
    )


def _table(frame: Any) -> Any:
    try:
        return nw.from_native(frame, eager_only=True)
    except TypeError:
        raise ParameterError(
            "frame must be a pandas, GeoPandas or polars DataFrame or an Arrow Table, found "
            f"{type(frame).__name__} (collect a lazy one first)"
        ) from None
    except (nw.exceptions.NarwhalsError, ValueError):
        raise ParameterError("columns of a frame must have different names") from None


def _check_columns(table: Any, wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in table.columns:
            raise ParameterError(
                f"there is no column {name!r}; found {', '.join(map(repr, table.columns))}"
            )
    clashes = {"kind", "cost"} & set(wanted)
    if clashes or len(set(wanted)) < len(wanted):
        raise ParameterError(
            f"the columns {', '.join(wanted)} must differ, and 'kind' and 'cost' are taken"
        )


def _numbers(table: Any, name: str) -> Floats:
    column = table[name]
    if not column.dtype.is_numeric():
        raise ParameterError(f"column {name!r} must hold numbers, found {column.dtype}")
    return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _seconds(table: Any, name: str) -> Floats:
    column = table[name]
    zone = getattr(column.dtype, "time_zone", None)
    if not isinstance(column.dtype, nw.Datetime) or zone is None:
        raise ParameterError(
            f"column {name!r} must hold times that say their zone, found {column.dtype}; "
            "give them one first (tz_localize in pandas, dt.replace_time_zone in polars)"
        )
    missing = column.is_null().to_numpy()
    micros = column.dt.timestamp("us").fill_null(0).to_numpy().astype(np.float64)
    micros[missing] = np.nan
    return np.asarray(micros * 1e-6)


def _users(table: Any, name: str | None) -> tuple[Ints, list[str]]:
    """A number for each row's user, and the users by their numbers."""
    rows = len(table)
    if name is None:
        return np.zeros(rows, dtype=np.int64), ["all"]
    column = table[name]
    if column.is_null().any():
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise PointError(f"row {row}: it has no {name}; nothing was released")
    names: dict[str, int] = {}
    if column.dtype.is_float():
        column = _whole(column, name)
    different, codes = np.unique(column.cast(nw.String).to_numpy().astype(str), return_inverse=True)
    if column.dtype == nw.Object:  # a mixture, in which 1 and 1.0 would be two texts
        different, codes = np.unique([same_name(v) for v in column.to_list()], return_inverse=True)
    numbers = [names.setdefault(same_name(user), len(names)) for user in different]
    return np.array(numbers, dtype=np.int64)[codes.reshape(-1)], list(names)


def _whole(column: Any, name: str) -> Any:
    """Users that were whole numbers until a missing one made them fractions."""
    whole = column.cast(nw.Int64)
    if not (whole.cast(nw.Float64) == column).all():
        raise ParameterError(f"column {name!r} must hold texts or whole numbers")
    return whole


def _released(table: Any, names: Sequence[str], out: Sanitized) -> Any:
    mask = nw.new_series("released", out.released, nw.Boolean, backend=table.implementation)
    kept = table.select(*names).filter(mask)
    # A list of categories would tell the values of rows that were refused.
    told = [name for name in names if kept[name].dtype in (nw.Categorical, nw.Enum)]
    return kept.with_columns(*(_only_used(kept[name]) for name in told))


def _only_used(column: Any) -> Any:
    texts = column.cast(nw.String)
    if column.dtype == nw.Categorical:
        return texts.cast(nw.Categorical)
    return texts.cast(nw.Enum(sorted(texts.drop_nulls().unique().to_list())))


def _columns(table: Any, places: dict[str, Floats], out: Sanitized) -> list[Any]:
    """The released places, and what each row is and cost."""
    backend = table.implementation
    values: dict[str, tuple[Any, Any]] = {
        name: (column[out.released], nw.Float64) for name, column in places.items()
    }
    values["kind"] = (out.kind[out.released].tolist(), nw.String)
    values["cost"] = (out.cost[out.released], nw.Float64)
    return [
        nw.new_series(name, column, dtype, backend=backend)
        for name, (column, dtype) in values.items()
    ]


def _is_geo(frame: object) -> bool:
    # By name, so that GeoPandas is not imported for those who do not use it.
    return type(frame).__module__.startswith("geopandas.")


def _sanitize_geo(
    frame: Any,
    mechanism: PredictiveMechanism,
    user: str | None,
    time: str,
    keep: Sequence[str],
    seed: int | None,
    draws: Draws | KeyedDraws | None,
    budgets: Budgets | None,
) -> Any:
    import geopandas
    import pandas

    if getattr(frame, "_geometry_column_name", None) not in frame.columns:
        raise ParameterError("the frame has no geometry; use set_geometry first")
    if frame.geometry.name in ("kind", "cost"):
        raise ParameterError("the columns 'kind' and 'cost' are of the output; rename the geometry")
    if frame.crs is None:
        raise ParameterError("the frame does not say its coordinate system; use set_crs first")
    geometry = frame.geometry
    wrong = np.flatnonzero(~(np.asarray(geometry.geom_type == "Point") & ~geometry.is_empty))
    if len(wrong):
        raise PointError(f"row {wrong[0]}: its geometry is not a point; nothing was released")
    places = geometry.to_crs(WGS84)
    table = _table(pandas.DataFrame(frame.drop(columns=geometry.name)))
    wanted = [name for name in (user, time, *keep) if name is not None]
    _check_columns(table, wanted)
    points = np.column_stack([places.y, places.x])
    out = _sanitized(table, mechanism, user, time, points, seed, draws, budgets)
    plain = _released(table, wanted, out).with_columns(*_columns(table, {}, out)).to_native()
    lat, lon = out.value[out.released].T
    moved = geopandas.GeoSeries.from_xy(lon, lat, index=plain.index, crs=WGS84).to_crs(frame.crs)
    released = geopandas.GeoDataFrame(plain).set_geometry(moved.rename(geometry.name))
    return _with_guarantee(released, out)


def _with_guarantee(native: Any, out: Sanitized) -> Any:
    """Say what was promised where the kind of frame has a place for it, and drop the index."""
    if hasattr(native, "reset_index"):  # pandas
        native = native.reset_index(drop=True)
        native.attrs = {"hereish": out.guarantee}
    if hasattr(native, "replace_schema_metadata"):  # Arrow
        import pyarrow as pa

        bare = pa.schema([field.remove_metadata() for field in native.schema])
        return native.cast(bare).replace_schema_metadata({"hereish": out.guarantee})
    return native
