"""Arrays in memory that is new from the system.

What is freed is kept by `malloc` and used again. After a fork the system copies each page of it
that either process writes to, a small page at a time, which takes longer than new memory does.
"""

from __future__ import annotations

import mmap
import sys
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_WORTH_IT = 1 << 16  # bytes
_HUGE_PAGE = 1 << 21


def fresh_array(shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """As `np.empty`, in memory that no fork has to copy."""
    count = int(np.prod(shape))
    size = count * np.dtype(dtype).itemsize
    if sys.platform != "linux" or size < _WORTH_IT:
        return np.empty(shape, dtype)
    if size >= _HUGE_PAGE:  # whole ones, which the system then puts where huge pages begin
        size = -(-size // _HUGE_PAGE) * _HUGE_PAGE
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE_PAGE:
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype, count).reshape(shape)
