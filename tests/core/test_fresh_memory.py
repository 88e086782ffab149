"""Arrays in memory that is new from the system."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hereish.core.fresh_memory import fresh_array


@pytest.mark.parametrize("shape", [0, 7, (3, 2), 100_000, (300_000, 2)])
@pytest.mark.parametrize("dtype", [np.float64, np.bool_])
def test_it_is_an_array_to_write_to(shape: int | tuple[int, ...], dtype: type) -> None:
    array = fresh_array(shape, dtype)
    plain: NDArray[Any] = np.empty(shape, dtype)
    assert (array.shape, array.dtype) == (plain.shape, plain.dtype)
    array[...] = 1
    assert array.all()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems are not forked")
def test_large_ones_are_new_memory() -> None:
    used = np.ones(100_000)
    del used  # `np.empty` would get it again, ones and all
    assert not fresh_array(100_000).any()
