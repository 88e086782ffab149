"""Exceptions of other libraries may quote a place; those that leave this package never do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hereish.errors import HereishError

Result = TypeVar("Result")


def replace_foreign_errors(function: Callable[[], Result], error: HereishError) -> Result:
    """What `function` returns; if it raises anything that is not ours, raises `error` instead.

    Guarantee: nothing of the other exception is in `error`, not even in its context.
    """
    try:
        return function()
    except (HereishError, MemoryError):
        raise
    except Exception:  # noqa: BLE001, S110  # whatever it is, it may quote the data
        pass
    # Not raised above, where its context would be the other exception.
    raise error
