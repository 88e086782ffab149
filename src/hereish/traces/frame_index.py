"""The index of a pandas frame, which may hold what is read: users, times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hereish.errors import ParameterError
from hereish.traces.column_names import RARE_NAMES, find_known, normal_name
from hereish.traces.columns import Columns


def with_index_columns(frame: Any, columns: Columns) -> tuple[Any, Columns]:
    """A pandas frame with its index as columns, if that has what no column has by as usual a name.

    Of an index of several levels, such as user and time, each that has a name. An index of times
    is that of the rows, whatever its name, where no column is called so, or only by a rare name:
    the columns name it then.
    """
    index = getattr(frame, "index", None)
    if index is None or not hasattr(frame, "reset_index"):
        return frame, columns
    _check_names(frame)
    if type(index).__name__ == "MultiIndex":
        levels = [name for name in index.names if isinstance(name, str)]
        return frame.reset_index([name for name in levels if name not in frame.columns]), columns
    name, of_times = index.name, type(index).__name__ == "DatetimeIndex"
    if name is None and of_times:
        name = "time"
    if not isinstance(name, str) or name in frame.columns or not _is_wanted(name, frame, columns):
        return frame, columns
    if of_times and name not in (columns.user, columns.lat, columns.lon, *columns.keep):
        columns = replace(columns, time=columns.time or name)
    return frame.rename_axis(index=name).reset_index(), columns


def _is_wanted(name: str, frame: Any, columns: Columns) -> bool:
    """Whether an index is a column that was named, or that is found before any other."""
    given = (columns.user, columns.time, columns.lat, columns.lon, *columns.keep)
    if name in given:
        return True
    available = list(frame.columns)
    if columns.time is None and type(frame.index).__name__ == "DatetimeIndex":
        times = find_known("time", available)
        # Such as `created_at`, which may be that of the rows and not of the fixes.
        if all(normal_name(time) in RARE_NAMES["time"] for time in times):
            return True
    return any(
        getattr(columns, role) is None and find_known(role, [*available, name]) == [name]
        for role in ("user", "time")
    )


def _check_names(frame: Any) -> None:
    for name in frame.columns:
        if not isinstance(name, str):
            raise ParameterError(
                f"the names of columns must be texts, found one of type {type(name).__name__}: "
                "rename them first, as frame.rename(columns=str) does"
            )
