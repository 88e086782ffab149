"""Which rows of a Parquet file can be read apart: row groups, and the rest of their last user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hereish.errors import HereishError
from hereish.traces.columns import Columns
from hereish.traces.formats._arrow_values import values_of
from hereish.traces.formats._parquet_reader import (
    find_columns,
    group_begins,
    open_file,
)
from hereish.traces.formats._parquet_values import is_text, shared_values
from hereish.traces.formats._part_file import FilePart, guided_size
from hereish.traces.formats.base import Source

WORTH_ROWS = 1 << 20  # of a file; fewer are read sooner than processes start
LEAST_ROWS, MOST_ROWS = 1 << 18, 1 << 21  # of a part
_LOOK_ROWS = 1 << 15
_LEAST_RUN = 8  # rows of a user that stand together, on average, where a file can be divided


def divide(source: Source, columns: Columns, jobs: int) -> Sequence[FilePart]:
    """The parts; nothing if the rows of users do not seem to stand together."""
    if source.members:
        return ()
    try:
        file = open_file(source)
        user = find_columns(file, columns).user
    except HereishError:  # whoever reads the file will say so
        return ()
    begins = group_begins(file)
    if user is None or begins[-1] < WORTH_ROWS:
        return ()
    if is_text(file.schema_arrow.field(user).type):
        file = open_file(source, [user])
    parts, first, group, total = [], 0, 0, begins[-1]
    while first < total:
        wanted = first + guided_size(total - first, jobs, LEAST_ROWS, MOST_ROWS)
        group = next((i for i in range(group + 1, len(begins)) if begins[i] >= wanted), -1)
        end = total if group < 0 else _next_user(file, user, group, begins)
        if end is None:
            return ()
        parts.append(FilePart(first, end))
        first = end
    return parts if len(parts) > 1 else ()


def _next_user(file: Any, name: str, group: int, begins: Sequence[int]) -> int | None:
    """The first row of another user than the first of a row group; None if users take turns."""
    at, user = begins[group], None
    groups = list(range(group, len(begins) - 1))
    for records in file.iter_batches(_LOOK_ROWS, row_groups=groups, columns=[name]):
        users = _values(records.column(0))
        changes = np.flatnonzero(users[1:] != users[:-1]) + 1
        if len(changes) * _LEAST_RUN > len(users):
            return None
        if user is not None and users[0] != user:
            return at
        if len(changes):
            return at + int(changes[0])
        at, user = at + len(users), users[-1]
    return begins[-1]


def _values(column: Any) -> NDArray[Any]:
    if pa.types.is_integer(column.type) and not column.null_count:
        return values_of(column, column.type.to_pandas_dtype())
    return np.array(shared_values(column), dtype=object)
