"""Data frames in, the same kind out: pandas, GeoPandas, polars and Arrow, through narwhals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from hereish.core.batch_results import Sanitized
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import Draws, KeyedDraws, SeededDraws
from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError, PointError
from hereish.traces.budgets import Budgets, check_rows, sanitize_rows, tie_breaker
from hereish.traces.column_names import find_known
from hereish.traces.columns import NO_USER, Columns, side_column
from hereish.traces.foreign_errors import replace_foreign_errors
from hereish.traces.frame_streams import FrameStream, open_stream
from hereish.traces.frame_tally import FrameTally
from hereish.traces.guarantee import describe_prior, prior_name
from hereish.traces.order import Order, check_order, inverse, public_order, qualify_guarantee
from hereish.traces.thinning import Thinner

try:
    import narwhals as nw
except ImportError as missing:
    raise ImportError("data frames need more: pip install 'hereish[frames]'") from missing

from hereish.traces.frame_columns import take_rows
from hereish.traces.frame_index import with_index_columns
from hereish.traces.frame_reading import (
    check_places,
    degrees_name,
    read_degrees,
    read_points,
    read_users,
)
from hereish.traces.frame_times import date_column, read_times, with_instants

Frame = TypeVar("Frame")
WGS84 = "EPSG:4326"


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
    zone: str | None = None  # of times that do not say theirs
    thinner: Thinner | None = None
    tally: FrameTally | None = None


def sanitize_frame(
    frame: Frame,
    mechanism: PredictiveMechanism,
    *,
    user: str | None = None,
    time: str | None = None,
    lat: str | None = None,
    lon: str | None = None,
    keep: Sequence[str] = (),
    every: timedelta | None = None,
    time_zone: str | None = None,
    order: Order = "public",
    seed: int | None = None,
    draws: Draws | KeyedDraws | None = None,
    budgets: Budgets | None = None,
    tally: FrameTally | None = None,
) -> Frame:
    """The rows that may be released, in a new frame of the same kind.

    It has the columns `user` (if there is one), `time`, `lat`, `lon`, `kind` and `cost`, and those
    of `keep`, which are passed on as they are: that is your choice, and they may reveal a place.
    Everything else is left out. Columns that are not named are found by their usual names, as in
    files, and the time may be a pandas index; `user=""` reads no users. A GeoDataFrame of points,
    or of a class derived from it, is read from its geometry and released in its own coordinate
    system. Times keep their zone; `time_zone` is that of times without one. Texts, numbers and
    points in one column are read as in files. `every` takes a user's rows at least so far apart.
    Rows that the budget refused are left out, and so is the index of a pandas frame, which could
    hold anything. A table that comes in batches takes the same `budgets` for each; otherwise each
    call spends a budget of its own. A `tally` counts what became of rows.

    DuckDB relations, polars LazyFrames and Arrow readers are streamed, a batch at a time; the rows
    of a reader must be sorted by user and time.

    Rows come out by user and time, then by kept columns, then in random order. `order="input"`
    publishes the order in which they came in: of a table that was sorted by place, that alone can
    reveal more than the released places do.

    Guarantee: as the mechanism's, for each user (for all rows together if there are none),
    whatever the order of the frame depends on; not with `order="input"`, which says so.
    """
    names = [coordinate.name for coordinate in mechanism.space.coordinates]
    if names != ["latitude", "longitude"]:
        raise ParameterError(
            f"frames hold latitudes and longitudes; the mechanism's space has {', '.join(names)}"
        )
    check_order(order)
    if isinstance(keep, str):
        raise ParameterError(f"keep must be a list of names, found a text: give keep=[{keep!r}]")
    if every is not None and not isinstance(every, timedelta):
        raise ParameterError(
            f"every must be a timedelta, such as timedelta(minutes=5), found {type(every).__name__}"
        )
    thinner = None if every is None else Thinner.by_seconds(every.total_seconds())
    columns = Columns(user, NO_USER, time, lat, lon, tuple(keep))
    about = (keep, order, seed, draws, budgets, time_zone, thinner, tally)
    error = PointError(
        "the frame cannot be read, or a new one cannot be made; nothing was released"
    )
    stream = open_stream(frame)
    if stream is not None:
        if order == "input":
            raise ParameterError(
                "a stream is sorted by user and time, so it has no order of its own"
            )
        return cast(
            "Frame",
            replace_foreign_errors(
                lambda: _sanitize_stream(stream, columns, mechanism, about), error
            ),
        )
    return cast(
        "Frame",
        replace_foreign_errors(lambda: _sanitize_whole(frame, columns, mechanism, about), error),
    )


def _sanitize_whole(
    frame: Any, columns: Columns, mechanism: PredictiveMechanism, about: tuple[Any, ...]
) -> Any:
    if not hasattr(frame, "columns"):
        raise _no_frame(frame)
    frame, columns = with_index_columns(frame, columns)
    table = None if _is_geo(frame) else _table(frame)
    available = list(map(str, frame.columns)) if table is None else list(table.columns)
    names = _find_columns(columns, available, places=table is not None)
    options = _Options(mechanism, names.get("user"), names["time"], *about)
    if table is None:
        return _sanitize_geo(frame, options)
    return _sanitize_plain(table, options, names)


def _find_columns(columns: Columns, available: Sequence[str], *, places: bool) -> dict[str, str]:
    """As in files; the error names arguments in place of options."""
    point = _point_column(columns, available) if places else None
    required = ("time", "lat", "lon") if places and point is None else ("time",)
    try:
        names = columns.find_all(available, required)
        return names if point is None else {**names, "point": point}
    except ParameterError as error:
        problem = re.sub(r"--lat (\S+) --lon (\S+)", r"lat='\1', lon='\2'", str(error))
        problem = re.sub(r"--([a-z]+)", r"\1=", problem)
    raise ParameterError(problem)


def _point_column(columns: Columns, available: Sequence[str]) -> str | None:
    """The column of points, where none of latitudes or longitudes is named or found."""
    if columns.lat is not None or columns.lon is not None:
        return None
    if any(find_known(axis, available) for axis in ("lat", "lon")):
        return None
    found = find_known("point", available)
    return found[0] if len(found) == 1 else None


def _sanitize_stream(
    stream: FrameStream, columns: Columns, mechanism: PredictiveMechanism, about: tuple[Any, ...]
) -> Any:
    """Sorted batches one after the other, with the same budgets and the same draws."""
    names = _find_columns(columns, stream.names, places=True)
    keep, order, seed, draws, budgets, zone, thinner, tally = about
    options = _Options(
        mechanism,
        names.get("user"),
        names["time"],
        keep,
        order,
        None,
        draws if seed is None else SeededDraws(seed),
        Budgets(mechanism) if budgets is None else budgets,
        zone,
        thinner,
        tally,
    )
    read = [*names.values(), *keep]
    _check_columns(stream, read)
    time = names["time"]
    beside = [side_column(axis, stream.names) for axis in ("lat", "lon")]
    beside.append(date_column(stream.names, time))
    read += [name for name in beside if name is not None and name not in read]

    def with_times(batch: Any) -> Any:
        table = with_instants(nw.from_native(batch, eager_only=True), time, zone)
        return table.to_native()

    return stream.collect(
        _sanitize_plain(nw.from_native(batch, eager_only=True), options, names)
        for batch in stream.sorted_batches(read, names.get("user"), time, with_times)
    )


def _sanitize_plain(table: Any, options: _Options, names: Mapping[str, str]) -> Any:
    user, time, keep = options.user, options.time, options.keep
    lat, lon = names.get("lat", "lat"), names.get("lon", "lon")
    out_lat, out_lon = degrees_name(lat, "lat"), degrees_name(lon, "lon")
    _check_columns(table, [*names.values(), *keep])
    _check_different([name for name in (user, time, out_lat, out_lon, *keep) if name is not None])
    if "point" in names:
        points = read_points(table[names["point"]])
    else:
        points = np.column_stack([read_degrees(table, lat, "lat"), read_degrees(table, lon, "lon")])
    table = with_instants(table, time, options.zone)
    out, taken = _sanitize(table, points, options)
    places = {out_lat: out.value[taken.released, 0], out_lon: out.value[taken.released, 1]}
    released = _build_released(table, options, out, taken, places)
    chosen = [name for name in (user, time, *places, "kind", "cost", *keep) if name is not None]
    return _with_guarantee(released.select(*chosen).to_native(), _describe(out, options))


class _Taken(NamedTuple):
    """The rows that are released, in the order in which they come out."""

    rows: Ints  # of the table
    released: Ints  # of what was sanitised


def _sanitize(table: Any, points: Floats, options: _Options) -> tuple[Sanitized, _Taken]:
    """The rows sanitised, and which of them are released."""
    check_places(options.mechanism.space, points)
    codes, names = read_users(table, options.user)
    ticks, at_s = read_times(table, options.time, options.zone)

    def kept(rows: Ints) -> list[list[Any]]:
        return [table[name][rows.tolist()].to_list() for name in options.keep]

    random = tie_breaker(options.seed, options.draws, names, codes, at_s, points)
    order = public_order((codes, ticks), kept, random)
    taken = np.arange(len(order))  # the rows that are sanitised
    if options.thinner is not None:
        check_rows(options.mechanism, codes, names, points, at_s)
        at_us = np.round(at_s * 1e6).astype(np.int64)
        # In this order, so that rows at the same time are chosen at random, not by the input.
        chosen = options.thinner.keep(codes[order], names, at_us[order])
        taken = np.sort(order[chosen])
    place = inverse(order)
    out = sanitize_rows(
        options.mechanism,
        codes[taken],
        names,
        points[taken],
        at_s[taken],
        seed=options.seed,
        draws=options.draws,
        budgets=options.budgets,
        place=place[taken],
    )
    if options.tally is not None:
        options.tally.add(len(order), out, _describe(out, options))
    released = np.flatnonzero(out.released)
    if options.order != "input":
        released = released[np.argsort(place[taken[released]])]
    return out, _Taken(taken[released], released)


def _table(frame: Any) -> Any:
    try:
        return nw.from_native(frame, eager_only=True)
    except TypeError:
        raise _no_frame(frame) from None
    except (nw.exceptions.NarwhalsError, ValueError):
        raise ParameterError("columns of a frame must have different names") from None


def _no_frame(found: Any) -> ParameterError:
    points = "; give its to_point_gdf()" if hasattr(found, "to_point_gdf") else ""
    return ParameterError(
        "frame must be a pandas, GeoPandas or polars frame, an Arrow table or reader, or a "
        f"DuckDB relation, found {type(found).__name__}{points}"
    )


def _check_columns(table: Any, wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in table.columns:
            raise ParameterError(
                f"there is no column {name!r}; found {', '.join(map(repr, table.columns))}"
            )
    _check_different(wanted)


def _check_different(names: Sequence[str]) -> None:
    if {"kind", "cost"} & set(names) or len(set(names)) < len(names):
        raise ParameterError(
            f"the columns {', '.join(names)} must differ, and 'kind' and 'cost' are taken"
        )


def _build_released(
    table: Any, options: _Options, out: Sanitized, taken: _Taken, places: dict[str, Floats]
) -> Any:
    """The columns that are passed on, the released places, and what each row is and cost."""
    backend = table.implementation
    names = [name for name in (options.user, options.time, *options.keep) if name is not None]
    values: dict[str, tuple[Any, Any]] = {
        name: (column, nw.Float64) for name, column in places.items()
    }
    values["kind"] = (out.kind[taken.released].tolist(), nw.String)
    values["cost"] = (out.cost[taken.released], nw.Float64)
    columns = [_take_column(table, name, taken.rows) for name in names]
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
    return any(kind.__module__.startswith("geopandas.") for kind in type(frame).__mro__)


def _sanitize_geo(frame: Any, options: _Options) -> Any:
    import geopandas
    import pandas

    kind = type(frame)
    if getattr(frame, "_geometry_column_name", None) not in frame.columns:
        raise ParameterError("the frame has no geometry; use set_geometry first")
    if frame.geometry.name in ("kind", "cost"):
        raise ParameterError("the columns 'kind' and 'cost' are of the output; rename the geometry")
    if frame.crs is None:
        raise ParameterError("the frame does not say its coordinate system; use set_crs first")
    geometry = frame.geometry
    wrong = np.flatnonzero(~(np.asarray(geometry.geom_type == "Point") & ~geometry.is_empty))
    if len(wrong):
        raise PointError(
            f"row {wrong[0]}: its geometry is not a point; nothing was released. Name the geometry "
            "of points with set_geometry, or leave such rows out first"
        )
    places = geometry.to_crs(WGS84)
    table = _table(pandas.DataFrame(frame.drop(columns=geometry.name)))
    names = [name for name in (options.user, options.time, *options.keep) if name is not None]
    _check_columns(table, names)
    points = np.column_stack([places.y, places.x])
    table = with_instants(table, options.time, options.zone)
    out, taken = _sanitize(table, points, options)
    plain = (
        _build_released(table, options, out, taken, {}).select(*names, "kind", "cost").to_native()
    )
    lat, lon = out.value[taken.released].T
    moved = geopandas.GeoSeries.from_xy(lon, lat, index=plain.index, crs=WGS84).to_crs(frame.crs)
    released = geopandas.GeoDataFrame(plain).set_geometry(moved.rename(geometry.name))
    released = _with_guarantee(released, _describe(out, options))
    if kind is not geopandas.GeoDataFrame:  # as the derived class makes frames of its own
        attrs = released.attrs
        released = frame._constructor(released)
        released.attrs = attrs
    return released


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
