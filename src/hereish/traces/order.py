"""The order of what is written: by public data alone, and ties at random.

Whoever sorts a table by latitude and publishes it in that order has published latitudes. So rows
are ordered by their users, traces and times, then by their kept columns, which are public too, and
then at random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hereish.core.types import Bools, Floats, Ints
from hereish.errors import ParameterError

Order = Literal["public", "input"]
ORDERS: tuple[Order, ...] = get_args(Order)
_INPUT_ORDER = " The rows are in the order of the input, which this does not cover."

# The values of the kept columns of some rows, column by column.
KeptValues = Callable[[Ints], Sequence[Sequence[Any]]]
# A random number for each of some rows, which nobody else can predict.
TieBreaker = Callable[[Ints], Floats]


def check_order(order: str) -> None:
    """Refuse an order that does not exist."""
    if order not in ORDERS:
        raise ParameterError(f"order must be one of {', '.join(ORDERS)}, found {order!r}")


def qualify_guarantee(guarantee: str, order: Order) -> str:
    """The guarantee; if rows keep the order of the input, with the remark that it is excluded."""
    return guarantee + _INPUT_ORDER if order == "input" else guarantee


def public_order(keys: Sequence[NDArray[Any]], kept: KeptValues, tie_breaker: TieBreaker) -> Ints:
    """The rows by public keys, the first of which counts most; then by `kept`, then at random.

    Guarantee: the distribution of the output does not depend on the order of the input.
    """
    order = np.arange(len(keys[0]))
    falls, same = _compare_neighbours(keys)
    if falls.any():
        order = np.lexsort(keys[::-1])
        _, same = _compare_neighbours([key[order] for key in keys])
    tied = np.append(same, False) | np.append(False, same)
    if len(order) and tied.any():
        places = np.flatnonzero(tied)
        rows = order[places]
        group = np.cumsum(np.append(True, ~same))[places]
        public = [ranks([_sort_text(value) for value in column]) for column in kept(rows)]
        order[places] = rows[np.lexsort((tie_breaker(rows), *public[::-1], group))]
    return order


def inverse(order: Ints) -> Ints:
    """The place of each row in an order."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


def _compare_neighbours(keys: Sequence[NDArray[Any]]) -> tuple[Bools, Bools]:
    """From each row to the next: whether the keys fall, and whether they stay the same."""
    rows = max(len(keys[0]) - 1, 0)
    falls, same = np.zeros(rows, dtype=np.bool_), np.ones(rows, dtype=np.bool_)
    for key in keys:
        falls |= same & (key[1:] < key[:-1])
        same &= key[1:] == key[:-1]
    return falls, same


def ranks(keys: Sequence[Any]) -> Ints:
    """The place of each key among all different ones."""
    place = {key: i for i, key in enumerate(sorted(set(keys)))}
    return np.array([place[key] for key in keys], dtype=np.int64)


def _sort_text(value: Any) -> str:
    """A text to sort by, for values that need not be comparable."""
    return f"{type(value).__name__} {value!r}"
