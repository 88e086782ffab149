"""The kinds of release, and the array types of the core; the leading axis is the lane."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
# A number shared by all lanes, or one number per lane.
PerLane: TypeAlias = float | NDArray[np.float64]


class Kind(StrEnum):
    """What a report was answered with. The order is that of the numbers in files."""

    HARD = "hard"  # fresh noise
    EASY = "easy"  # the guess: the prediction was accepted by the private test
    UNTESTED = "untested"  # the guess, without a test, for free
    NONE = "none"  # nothing: the budget of the window is exhausted


def all_finite(values: PerLane) -> bool:
    """Whether no lane is infinite or NaN."""
    if isinstance(values, np.ndarray):
        return bool(np.count_nonzero(np.isfinite(values)) == values.size)
    return math.isfinite(values)


def take_rows(table: Floats, lanes: Ints) -> Floats:
    """The rows of these lanes, each column in one piece."""
    return table.T.take(lanes, axis=1).T


def put_rows(table: Floats, lanes: Ints, rows: Floats) -> None:
    """Write the rows of these lanes, column by column: far quicker than all columns at once."""
    for i in range(table.shape[1]):
        table[:, i][lanes] = rows[:, i]


def take_numbers(values: PerLane, lanes: Ints) -> PerLane:
    """The numbers of these lanes; one number that all lanes share stays as it is."""
    return values[lanes] if isinstance(values, np.ndarray) and values.ndim else values


def read_only_copy(public: Any) -> Any:
    """Arrays, or tuples of them, as copies that nobody else holds and that cannot be written to."""
    if isinstance(public, np.ndarray):
        copied = public.copy("K")
        copied.setflags(write=False)
        return copied
    if isinstance(public, tuple):
        copies = [read_only_copy(part) for part in public]
        return type(public)(*copies) if hasattr(public, "_fields") else tuple(copies)
    return public
