"""What parts declare about themselves, read when a mechanism is put together and never guessed.

A part is a small frozen class with declared attributes, or a plain function. A function declares
nothing, so it is called with the defaults of its adapter; to choose others wrap it:
`hereish.prediction(function, memory=2)`.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from hereish.errors import PartError

_PLAIN_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
    np.ufunc,
)


def _is_count(value: object) -> bool:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and bool(value >= 0)  # type: ignore[operator]  # it is a number


def _is_positive_count(value: object) -> bool:
    return _is_count(value) and value != 0


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and 0.0 <= value < math.inf  # NaN is not


# What each attribute must be, in words and as a check.
_DECLARATIONS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "memory": ("how many past releases it looks at, a whole number from 1", _is_positive_count),
    "needs_history": (
        "whether it looks at hard_at_s, hard_threshold or tested_at_s of the run, True or False",
        _is_flag,
    ),
    "width": ("how many numbers it keeps per lane, a whole number from 0", _is_count),
    "reach": (
        "how far it moves fresh noise at most, in multiples of 1 / eps_noise, a number from 0",
        _is_number,
    ),
    "max_shift": (
        "how far it moves a point at most, in multiples of 1 / eps, a number from 0",
        _is_number,
    ),
    "name": ("what the prior is, a text", lambda value: isinstance(value, str)),
    "uniforms": ("how many uniforms one report takes, a whole number from 0", _is_count),
    "private": ("whether it is private, True or False", _is_flag),
    "smallest_eps": (
        "the least epsilon that its noise can be drawn with, a number from 0",
        _is_number,
    ),
    "claim_factor": (
        "its distance times this never exceeds the promised one, a number",
        _is_number,
    ),
    "coordinates": ("a tuple of hereish.Coordinate", lambda value: isinstance(value, tuple)),
    "unit": ("what distances are measured in, a text", lambda value: isinstance(value, str)),
}


def check_declared(part: object, role: str, *names: str) -> None:
    """Refuse a part that does not declare these attributes, or declares something else."""
    for name in names:
        meaning, is_right = _DECLARATIONS[name]
        try:
            value = getattr(part, name)
        except AttributeError:
            raise PartError(
                f"the {role} {type(part).__name__} must declare {name} ({meaning}), "
                "found no such attribute"
            ) from None
        if not is_right(value):
            raise PartError(
                f"the {role} {type(part).__name__} must declare {name} ({meaning}), found {value!r}"
            )


def check_methods(part: object, role: str, *names: str) -> None:
    """Refuse a part that lacks one of these methods."""
    for name in names:
        if not (hasattr(type(part), name) and callable(getattr(part, name))):
            raise PartError(
                f"the {role} {type(part).__name__} must have a method {name}, found none"
            )


def declared(part: Any, role: str, adapter: Callable[[Any], Any], *names: str) -> Any:
    """The part, after a look at what it declares; a plain function in its adapter.

    A function with attributes is refused: nobody reads them, so they would be declared in vain.
    """
    if isinstance(part, _PLAIN_FUNCTIONS):
        held = vars(part) if hasattr(part, "__dict__") else {}
        attributes = [name for name in held if not name.startswith("__")]
        if attributes:
            name = role.replace(" ", "_")
            raise PartError(
                f"the {role} is a plain function with the attribute {min(attributes)!r}, and "
                f"attributes of functions are not read; declare it: hereish.{name}(function, …)"
            )
        part = adapter(part)
    check_declared(part, role, *names)
    return part
