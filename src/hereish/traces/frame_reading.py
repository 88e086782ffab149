"""Columns of a frame as arrays: places and users."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np

from hereish.core.spaces import Space, find_point_outside
from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError, PointError
from hereish.traces.column_names import unit_in_name
from hereish.traces.columns import side_column
from hereish.traces.foreign_errors import replace_foreign_errors
from hereish.traces.formats._degrees import Axis, in_degrees, parse_degrees, with_sides
from hereish.traces.formats._wkb import decode_point
from hereish.traces.formats._wkt import parse_point
from hereish.traces.names import canonical_name, name_key

_EXACT = 2.0**53  # from here on a float is not one whole number but several


def read_degrees(table: Any, name: str, axis: Axis) -> Floats:
    """A column of coordinates in degrees, as files have them; NaN where there is none.

    They are numbers, of the unit that the name of the column tells, or texts; letters for the side
    may be in a column of their own.
    """
    values = _read_numbers(table[name], name, axis)
    side = side_column(axis, list(table.columns))
    if side is not None and side != name:
        letters = ["" if letter is None else str(letter) for letter in table[side].to_list()]
        values = with_sides(values, letters, axis) if letters else values
    return in_degrees(values, unit_in_name(name))


def read_points(column: Any) -> Floats:
    """Latitudes and longitudes of a column of WKT, or of WKB as bytes or hexadecimal digits."""
    pairs = [_point(value) for value in column.to_list()]
    points = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    wrong = np.flatnonzero(~np.isfinite(points).all(axis=1))
    if len(wrong):
        raise PointError(
            f"row {wrong[0]}: its point is missing, or not a single point; expected WKT or WKB in "
            "WGS 84; nothing was released. To lose nothing, fill it in, or name columns of degrees "
            "with lat= and lon=; otherwise leave such rows out first"
        )
    return points


def _point(value: object) -> tuple[float, float]:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return decode_point(bytes(value))
    return parse_point(value) if isinstance(value, str) else (np.nan, np.nan)


def degrees_name(name: str, axis: Axis) -> str:
    """What a column of released places is called: not by another unit than degrees."""
    return axis if unit_in_name(name) else name


def _read_numbers(column: Any, name: str, axis: Axis) -> Floats:
    if column.dtype in (nw.String, nw.Categorical, nw.Enum, nw.Object):
        read = (_parse_value(value, axis) for value in column.to_list())
        return np.array([np.nan if one is None else one for one in read], dtype=np.float64)
    if not column.dtype.is_numeric():
        raise ParameterError(
            f"column {name!r} must hold numbers of degrees, or texts of them, found {column.dtype}"
        )
    if column.dtype.is_integer():  # by hand: casts refuse those beyond 2**53, and quote them
        pairs = zip(column.to_list(), column.is_null().to_list(), strict=True)
        values = [np.nan if missing else float(value) for value, missing in pairs]
        return np.array(values, dtype=np.float64)
    cast_to: Callable[[], Any] = lambda: column.cast(nw.Float64).to_numpy()  # noqa: E731  # lazy
    error = PointError(f"column {name!r} holds numbers that cannot be read; nothing was released")
    return np.asarray(replace_foreign_errors(cast_to, error), dtype=np.float64)


def _parse_value(value: object, axis: Axis) -> float | None:
    # Decimals, which pandas has as objects, are read exactly as their texts.
    return parse_degrees(str(value) if isinstance(value, Decimal) else value, axis)


def check_places(space: Space, points: Floats) -> None:
    """Raises for the first row without a place that can be."""
    wrong = find_point_outside(space, points)
    if wrong is not None:
        row, problem = wrong
        remedy = (
            "if latitude and longitude are swapped, say which is which with lat= and lon=; turn "
            "what is not degrees into degrees"
            if np.isfinite(points[row]).all()
            else "fill it in, or name another column with lat= and lon="
        )
        raise PointError(
            f"row {row}: {problem}; nothing was released. To lose nothing, {remedy}; otherwise "
            "leave such rows out first"
        )


def read_users(table: Any, name: str | None) -> tuple[Ints, list[str]]:
    """A number for each row's user, and the users in the order of their names."""
    rows = len(table)
    if name is None:
        return np.zeros(rows, dtype=np.int64), ["all"]
    column = table[name]
    missing = (
        f"it has no {name}; nothing was released. Fill it in, leave such rows out, or name another "
        'column with user= (user="": all rows are one person\'s)'
    )
    if column.is_null().any():
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise PointError(f"row {row}: {missing}")
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
    codes = codes.reshape(-1)
    if "" in names:
        nobody = [number for number, name_of in enumerate(names) if not name_of]
        row = int(np.flatnonzero(np.isin(codes, nobody))[0])
        raise PointError(f"row {row}: {missing}")
    different_users = sorted(set(names), key=name_key)
    numbers = {user: i for i, user in enumerate(different_users)}
    table_of = np.array([numbers[user] for user in names], dtype=np.int64)
    return table_of[codes], different_users


def _as_integers(column: Any, name: str) -> Any:
    """Users that were whole numbers until a missing one made them fractions."""
    values = np.asarray(column.to_numpy(), dtype=np.float64)
    if not (np.abs(values) < _EXACT).all() or (values != np.round(values)).any():
        raise ParameterError(
            f"column {name!r} must hold texts or whole numbers; as fractions, those of 2**53 and "
            "more have lost digits: read it as integers or texts"
        )
    return column.cast(nw.Int64)
