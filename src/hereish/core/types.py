"""The array types that the rooms pass to each other; the leading axis is the lane."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
# A number shared by all lanes, or one number a lane.
PerLane: TypeAlias = float | NDArray[np.float64]


def all_finite(values: PerLane) -> bool:
    """Whether no lane is infinite or NaN."""
    if isinstance(values, np.ndarray):
        return bool(np.count_nonzero(np.isfinite(values)) == values.size)
    return math.isfinite(values)
