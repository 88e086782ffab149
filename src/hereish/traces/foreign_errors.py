"""What other libraries raise may quote a place; what is raised here never does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hereish.errors import HereishError

Result = TypeVar("Result")


def shielded(work: Callable[[], Result], error: HereishError) -> Result:
    """What `work` returns; if it fails in a way that is not ours, `error` and no trail of that."""
    try:
        return work()
    except (HereishError, MemoryError):
        raise
    except Exception:  # noqa: BLE001, S110  # whatever it is, it may quote the data
        pass
    # Not raised above, where the error would carry the one that quotes.
    raise error
