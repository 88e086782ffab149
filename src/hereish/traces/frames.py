"""Data frames in, the same kind out: pandas, GeoPandas, polars and Arrow, through narwhals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from hereish.core.batch import Sanitized
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import Draws, KeyedDraws
from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError, PointError
from hereish.traces.budgets import Budgets, sanitize_rows, tie_breaker
from hereish.traces.foreign_errors import replace_foreign_errors
from hereish.traces.guarantee import describe_prior, prior_name
from hereish.traces.names import canonical_name, name_key
from hereish.traces.order import Order, check_order, inverse, public_order, qualify_guarantee

try:
    import narwhals as nw
except ImportError as missing:
    raise ImportError("data frames need more: pip install 'hereish[frames]'") from missing

from hereish.traces.frame_columns import take_rows

Frame = TypeVar("Frame")
WGS84 = "EPSG:4326"
_EXACT = 2.0**53  # from here on a float is not one whole number but several


class _Options(NamedTuple):
    """The arguments of `sanitize_frame`, without the frame and the columns of its places."""

    mechanism: PredictiveMechanism
    user: str | None
    time: str
    keep: Sequence[str]
    order: Order
    seed: int | None
    draws: Draws | KeyedDraws | None
    budgets: Budgets | None


def sanitize_frame(
    frame: Frame,
    mechanism: PredictiveMechanism,
    *,
    user: str | None = None,
    time: str = "time",
    lat: str = "lat",
    lon: str = "lon",
    keep: Sequence[str] = (),
    order: Order = "public",
    seed: int | None = None,
    draws: Draws | KeyedDraws | None = None,
    budgets: Budgets | None = None,
) -> Frame:
    """The rows that may be released, in a new frame of the same kind.

    It has the columns `user` (if one is named), `time`, `lat`, `lon`, `kind` and `cost`, and those
    of `keep`, which are passed on as they are: that is your choice, and they may reveal a place.
    Everything else is left out. A GeoDataFrame of points is read from its geometry and released
    in its own coordinate system. Times keep their zone. Rows that the budget refused are left
    out, and so is the index of a pandas frame, which could hold anything. A table that comes in
    batches takes the same `budgets` for each; otherwise each call spends a budget of its own.

    Rows come out by user and time, then by kept columns, then in random order. `order="input"`
    publishes the order in which they came in: of a table that was sorted by place, that alone can
    reveal more than the released places do.

    Guarantee: as the mechanism's, for each user (for all rows together if no user is named),
    whatever the order of the frame depends on; not with `order="input"`, which says so.
    """
    names = [coordinate.name for coordinate in mechanism.space.coordinates]
    if names != ["latitude", "longitude"]:
        raise ParameterError(
            f"frames hold latitudes and longitudes; the mechanism's space has {', '.join(names)}"
        )
    check_order(order)
    options = _Options(mechanism, user, time, keep, order, seed, draws, budgets)
    error = PointError(
        "the frame cannot be read, or a new one cannot be made; nothing was released"
    )
    if _is_geo(frame):
        return cast("Frame", replace_foreign_errors(lambda: _sanitize_geo(frame, options), error))
    return cast(
        "Frame", replace_foreign_errors(lambda: _sanitize_plain(frame, options, lat, lon), error)
    )


def _sanitize_plain(frame: Any, options: _Options, lat: str, lon: str) -> Any:
    table = _table(frame)
    user, time, keep = options.user, options.time, options.keep
    _check_columns(table, [name for name in (user, time, lat, lon, *keep) if name is not None])
    points = np.column_stack([_read_numbers(table, lat), _read_numbers(table, lon)])
    out, rows = _sanitize(table, points, options)
    places = {lat: out.value[rows, 0], lon: out.value[rows, 1]}
    released = _build_released(table, options, out, rows, places)
    names = [name for name in (user, time, lat, lon, "kind", "cost", *keep) if name is not None]
    return _with_guarantee(released.select(*names).to_native(), _describe(out, options))


def _sanitize(table: Any, points: Floats, options: _Options) -> tuple[Sanitized, Ints]:
    """The rows sanitised, and which of them are released, in the order in which they come out."""
    codes, names = _read_users(table, options.user)
    ticks, at_s = _read_times(table, options.time)

    def kept(rows: Ints) -> list[list[Any]]:
        return [table[name][rows.tolist()].to_list() for name in options.keep]

    random = tie_breaker(options.seed, options.draws, names, codes, at_s, points)
    order = public_order((codes, ticks), kept, random)
    out = sanitize_rows(
        options.mechanism,
        codes,
        names,
        points,
        at_s,
        seed=options.seed,
        draws=options.draws,
        budgets=options.budgets,
        place=inverse(order),
    )
    if options.order == "input":
        order = np.arange(len(order))
    return out, order[out.released[order]]


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


def _read_numbers(table: Any, name: str) -> Floats:
    column = table[name]
    if not column.dtype.is_numeric():
        raise ParameterError(f"column {name!r} must hold numbers, found {column.dtype}")
    if column.dtype.is_integer():  # by hand: casts refuse those beyond 2**53, and quote them
        pairs = zip(column.to_list(), column.is_null().to_list(), strict=True)
        values = [np.nan if missing else float(value) for value, missing in pairs]
        return np.array(values, dtype=np.float64)
    cast_to: Callable[[], Any] = lambda: column.cast(nw.Float64).to_numpy()  # noqa: E731  # lazy
    error = PointError(f"column {name!r} holds numbers that cannot be read; nothing was released")
    return np.asarray(replace_foreign_errors(cast_to, error), dtype=np.float64)


def _read_times(table: Any, name: str) -> tuple[Ints, Floats]:
    """Each time as a whole number of the column's own unit, to order by, and in seconds."""
    column = table[name]
    zone = getattr(column.dtype, "time_zone", None)
    if not isinstance(column.dtype, nw.Datetime) or zone is None:
        raise ParameterError(
            f"column {name!r} must hold times that say their zone, found {column.dtype}; "
            "give them one first (tz_localize in pandas, dt.replace_time_zone in polars)"
        )
    error = PointError(f"column {name!r} holds times that cannot be counted; nothing was released")
    return replace_foreign_errors(lambda: _count_ticks(column), error)


def _count_ticks(column: Any) -> tuple[Ints, Floats]:
    missing = column.is_null().to_numpy()
    finest = "ns" if column.dtype.time_unit == "ns" else "us"
    ticks, micros = (
        column.dt.timestamp(unit).fill_null(0).to_numpy().astype(np.int64)
        for unit in (finest, "us")
    )
    at_s = micros * 1e-6
    at_s[missing] = np.nan
    return ticks, at_s


def _read_users(table: Any, name: str | None) -> tuple[Ints, list[str]]:
    """A number for each row's user, and the users in the order of their names."""
    rows = len(table)
    if name is None:
        return np.zeros(rows, dtype=np.int64), ["all"]
    column = table[name]
    if column.is_null().any():
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise PointError(f"row {row}: it has no {name}; nothing was released")
    if column.dtype.is_float():
        column = _as_integers(column, name)
    if column.dtype == nw.Object:  # a mixture, in which 1 and 1.0 would be two texts
        different, codes = np.unique(
            [canonical_name(v) for v in column.to_list()], return_inverse=True
        )
    else:
        texts = column.cast(nw.String).to_numpy().astype(str)
        different, codes = np.unique(texts, return_inverse=True)
    names = [canonical_name(user) for user in different]
    different_users = sorted(set(names), key=name_key)
    numbers = {user: i for i, user in enumerate(different_users)}
    table_of = np.array([numbers[user] for user in names], dtype=np.int64)
    return table_of[codes.reshape(-1)], different_users


def _as_integers(column: Any, name: str) -> Any:
    """Users that were whole numbers until a missing one made them fractions."""
    values = np.asarray(column.to_numpy(), dtype=np.float64)
    if not (np.abs(values) < _EXACT).all() or (values != np.round(values)).any():
        raise ParameterError(
            f"column {name!r} must hold texts or whole numbers; as fractions, those of 2**53 and "
            "more have lost digits: read it as integers or texts"
        )
    return column.cast(nw.Int64)


def _build_released(
    table: Any, options: _Options, out: Sanitized, rows: Ints, places: dict[str, Floats]
) -> Any:
    """The columns that are passed on, the released places, and what each row is and cost."""
    backend = table.implementation
    names = [name for name in (options.user, options.time, *options.keep) if name is not None]
    values: dict[str, tuple[Any, Any]] = {
        name: (column, nw.Float64) for name, column in places.items()
    }
    values["kind"] = (out.kind[rows].tolist(), nw.String)
    values["cost"] = (out.cost[rows], nw.Float64)
    columns = [_take_column(table, name, rows) for name in names]
    columns += [
        nw.new_series(name, column, dtype, backend=backend)
        for name, (column, dtype) in values.items()
    ]
    first, *others = map(_without_index, columns)
    return first.to_frame().with_columns(*others)


def _take_column(table: Any, name: str, rows: Ints) -> Any:
    column = table[name]
    error = ParameterError(
        f"column {name!r} of type {column.dtype} cannot be passed on; turn it into texts or "
        "numbers first"
    )
    return replace_foreign_errors(lambda: take_rows(column, rows), error)


def _without_index(column: Any) -> Any:
    """A column that is not matched with others by its rows' labels, which may be there twice."""
    native = column.to_native()
    if not hasattr(native, "reset_index"):
        return column
    return nw.from_native(native.reset_index(drop=True), series_only=True)


def _is_geo(frame: object) -> bool:
    # By name, so that GeoPandas is not imported for those who do not use it.
    return type(frame).__module__.startswith("geopandas.")


def _sanitize_geo(frame: Any, options: _Options) -> Any:
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
    names = [name for name in (options.user, options.time, *options.keep) if name is not None]
    _check_columns(table, names)
    points = np.column_stack([places.y, places.x])
    out, rows = _sanitize(table, points, options)
    plain = (
        _build_released(table, options, out, rows, {}).select(*names, "kind", "cost").to_native()
    )
    lat, lon = out.value[rows].T
    moved = geopandas.GeoSeries.from_xy(lon, lat, index=plain.index, crs=WGS84).to_crs(frame.crs)
    released = geopandas.GeoDataFrame(plain).set_geometry(moved.rename(geometry.name))
    return _with_guarantee(released, _describe(out, options))


def _describe(out: Sanitized, options: _Options) -> str:
    """The guarantee, and the prior if one was used."""
    statement = qualify_guarantee(out.guarantee, options.order)
    return describe_prior(statement, prior_name(options.mechanism))


def _with_guarantee(native: Any, guarantee: str) -> Any:
    """With the guarantee where the kind of frame has metadata, and without the index."""
    if hasattr(native, "reset_index"):  # pandas
        native = native.reset_index(drop=True)
        native.attrs = {"hereish": guarantee}
    if hasattr(native, "replace_schema_metadata"):  # Arrow
        import pyarrow as pa

        bare = pa.schema([field.remove_metadata() for field in native.schema])
        return native.cast(bare).replace_schema_metadata({"hereish": guarantee})
    return native
