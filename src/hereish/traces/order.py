"""The order of what is written: by public data alone, or at random.

Whoever sorts a table by latitude and publishes it in that order has published latitudes. So rows
are put into the order of their users, traces and times. Where these are the same, kept columns
decide, which are public too, and where those are the same as well, chance.
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
_INPUT = " The rows are in the order of the input, which this does not cover."

# The values of kept columns for some rows, a column at a time.
Kept = Callable[[Ints], Sequence[Sequence[Any]]]
# A random number for each of some rows, secret enough that nobody else could draw it.
Chance = Callable[[Ints], Floats]


def check_order(order: str) -> None:
    if order not in ORDERS:
        raise ParameterError(f"order must be one of {', '.join(ORDERS)}, found {order!r}")


def covered(guarantee: str, order: Order) -> str:
    """What is guaranteed, and where the order of the input was asked for, that it is not."""
    return guarantee + _INPUT if order == "input" else guarantee


def public_order(keys: Sequence[NDArray[Any]], kept: Kept, chance: Chance) -> Ints:
    """The rows by public keys, the first of which counts most; then by `kept`, then by chance.

    Guarantee: whatever the order of the input, what comes out has the same distribution.
    """
    order = np.arange(len(keys[0]))
    falls, same = _steps(keys)
    if falls.any():
        order = np.lexsort(keys[::-1])
        _, same = _steps([key[order] for key in keys])
    tied = np.append(same, False) | np.append(False, same)
    if len(order) and tied.any():
        places = np.flatnonzero(tied)
        rows = order[places]
        group = np.cumsum(np.append(True, ~same))[places]
        public = [_ranks([_text(value) for value in column]) for column in kept(rows)]
        order[places] = rows[np.lexsort((chance(rows), *public[::-1], group))]
    return order


def inverse(order: Ints) -> Ints:
    """The place of each row in an order."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


def _steps(keys: Sequence[NDArray[Any]]) -> tuple[Bools, Bools]:
    """From each row to the next: whether the keys fall, and whether they stay the same."""
    rows = max(len(keys[0]) - 1, 0)
    falls, same = np.zeros(rows, dtype=np.bool_), np.ones(rows, dtype=np.bool_)
    for key in keys:
        falls |= same & (key[1:] < key[:-1])
        same &= key[1:] == key[:-1]
    return falls, same


def _ranks(texts: Sequence[str]) -> Ints:
    place = {text: i for i, text in enumerate(sorted(set(texts)))}
    return np.array([place[text] for text in texts], dtype=np.int64)


def _text(value: Any) -> str:
    """A text to order values by that need not be comparable."""
    return f"{type(value).__name__} {value!r}"
