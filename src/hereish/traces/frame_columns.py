"""Some rows of a column of a frame, and nothing of the others.

Columns can carry values of rows that are not in them any more: categories, dictionaries, also deep
inside of structs and lists, and buffers that are shared with the table they came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import narwhals as nw

from hereish.core.types import Ints


def take_rows(column: Any, rows: Ints) -> Any:
    """These rows of a narwhals series, as a series of the same kind that has nothing else in it."""
    native, dtype = column.to_native(), column.dtype
    if dtype in (nw.Categorical, nw.Enum):
        return _categories(column[rows.tolist()])
    inside = getattr(getattr(native, "array", None), "_pa_array", None)
    if hasattr(native, "combine_chunks") or inside is not None:  # Arrow, or pandas over Arrow
        from hereish.traces.arrow_columns import is_deep, take_arrow_rows

        if inside is None:
            taken = take_arrow_rows(native, rows)
            return nw.from_native(taken, series_only=True).alias(column.name)
        if is_deep(inside.type):
            import pandas as pd

            array = type(native.array)(take_arrow_rows(inside, rows))
            series = pd.Series(array, name=native.name, index=native.index[rows])
            return nw.from_native(series, series_only=True)
    chosen = column[rows.tolist()]
    if dtype.is_nested() and column.implementation.is_polars():
        return _polars(chosen)
    return chosen


def _categories(column: Any) -> Any:
    """With the categories that are used, in the order of their texts or of the rows."""
    texts = column.cast(nw.String)
    if column.dtype == nw.Categorical:
        return texts.cast(nw.Categorical)
    return texts.cast(nw.Enum(sorted(texts.drop_nulls().unique().to_list())))


def _polars(column: Any) -> Any:
    """With the categories of each Enum inside that are used."""
    import polars as pl

    series = column.to_native()
    values = series.to_list()
    dtype = _narrowed(series.dtype, values)
    if dtype == series.dtype:
        return column
    return nw.from_native(pl.Series(series.name, values, dtype), series_only=True)


def _narrowed(dtype: Any, values: list[Any]) -> Any:
    """A polars type without the categories of Enums that none of the values has."""
    import polars as pl

    if isinstance(dtype, pl.Enum):
        return pl.Enum(sorted({value for value in values if value is not None}))
    if isinstance(dtype, pl.Struct):
        some = [value for value in values if value is not None]
        return pl.Struct(
            {
                field.name: _narrowed(field.dtype, [value[field.name] for value in some])
                for field in dtype.fields
            }
        )
    if isinstance(dtype, pl.List):
        return pl.List(_narrowed(dtype.inner, list(_inner(values))))
    if isinstance(dtype, pl.Array):
        return pl.Array(_narrowed(dtype.inner, list(_inner(values))), dtype.size)
    return dtype


def _inner(values: list[Any]) -> Iterator[Any]:
    for value in values:
        yield from () if value is None else value
