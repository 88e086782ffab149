"""Some rows of an Arrow column, and nothing of the others.

Columns can carry values of rows that are not in them any more: in dictionaries, also deep inside
of structs and lists, and in buffers that are shared with the table they came from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from hereish.core.types import Ints


def take_arrow_rows(column: Any, rows: Ints) -> Any:
    """These rows of a column, as one that has nothing else in it."""
    if not is_deep(column.type):
        return column.take(pa.array(rows))
    kind = column.type
    # Value by value: only so is nothing shared, and each dictionary as short as it can be.
    values = [column[row].as_py() for row in rows.tolist()]
    plain = getattr(kind, "storage_type", kind)
    array = pa.array(values, plain)
    return pa.chunked_array(
        [array if plain is kind else pa.ExtensionArray.from_storage(kind, array)]
    )


def is_deep(kind: Any) -> bool:
    """Whether values of a type are nested, or refer to values elsewhere, such as a dictionary."""
    flat: tuple[Callable[[Any], bool], ...] = (
        pa.types.is_primitive,
        pa.types.is_decimal,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_null,
    )
    return not any(check(kind) for check in flat)
