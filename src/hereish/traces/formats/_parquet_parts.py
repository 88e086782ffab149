"""Which rows of a Parquet file can be read apart: row groups, and the rest of their last user."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
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
_MOST_LOOKS = 4  # for the end of a part
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
    parts, first, total = [], 0, begins[-1]
    while first < total:
        wanted = guided_size(total - first, jobs, LEAST_ROWS, MOST_ROWS)
        ends = [_next_user(file, user, group, begins) for group in _near(begins, first, wanted)]
        if None in ends:
            return ()
        # The next part begins in the middle of a row group, which is decoded again up to there.
        end = min(filter(None, ends), key=lambda end: _place_in_group(end, begins) / (end - first))
        parts.append(FilePart(first, end))
        first = end
    return parts if len(parts) > 1 else ()


def _near(begins: Sequence[int], first: int, wanted: int) -> Sequence[int]:
    """Row groups that begin about so many rows after the first one; at least the next of them."""
    near = [
        group
        for group, begin in enumerate(begins)
        if begin > first and wanted <= 2 * (begin - first) <= 4 * wanted
    ]
    following = bisect_left(begins, min(first + wanted, begins[-1]))
    return near[:_MOST_LOOKS] or [following]


def _place_in_group(row: int, begins: Sequence[int]) -> int:
    return row - begins[bisect_right(begins, row) - 1]


def _next_user(file: Any, name: str, group: int, begins: Sequence[int]) -> int | None:
    """The first row of another user than the first of a row group; None if users take turns."""
    at, user = begins[group], None
    groups = list(range(group, len(begins) - 1))
    looks = file.iter_batches(_LOOK_ROWS, row_groups=groups, columns=[name], use_threads=False)
    for records in looks:
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
