"""Columns of Arrow as arrays of NumPy and back, without what Arrow imports for that.

Its own functions import pandas where that is installed, which takes longer than most files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hereish.core.types import Bools


def values_of(column: Any, dtype: type[np.generic]) -> NDArray[Any]:
    """The numbers of a column where they lie; what stands where there is none means nothing."""
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(len(column), dtype=dtype)
    return np.frombuffer(data, dtype)[column.offset : column.offset + len(column)]


def present(column: Any) -> Bools:
    """Which rows of a column have a value."""
    bits = column.buffers()[0]
    if bits is None or not column.null_count:
        return np.ones(len(column), dtype=np.bool_)
    every = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return every[column.offset : column.offset + len(column)].view(np.bool_)


def column_of(values: NDArray[Any], kind: Any) -> Any:
    """A column of Arrow of numbers, of a type that takes as many bytes as each of them has."""
    return pa.Array.from_buffers(
        kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))]
    )


def texts_of(texts: Sequence[str | None]) -> Any:
    """A column of texts; None where there is none."""
    encoded = [b"" if text is None else text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)])
    if ends[-1] > np.iinfo(np.int32).max:
        return pa.array(texts, pa.string())
    known = np.array([text is not None for text in texts], dtype=np.bool_)
    bits = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.StringArray.from_buffers(
        len(encoded), pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(encoded)), bits
    )
