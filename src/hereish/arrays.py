"""Names for the array types that the rooms pass to each other; the leading axis is the lane."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
# A number shared by all lanes, or one number a lane.
PerLane: TypeAlias = float | NDArray[np.float64]
Anything: TypeAlias = Any
