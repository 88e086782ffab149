"""Threads that step the lanes of a batch side by side, where it is not safe to fork.

NumPy and the cipher let go of the interpreter while they work on an array of some size. True points
stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import pairwise
from types import TracebackType
from typing import TypeVar

import numpy as np

from hereish.core.types import Ints
from hereish.errors import ParameterError

# Lanes that a thread gets at least: with fewer it would wait for the interpreter, mostly.
LEAST_LANES = 1000

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def checked_workers(workers: int) -> int:
    """How many workers a caller wants."""
    if isinstance(workers, bool) or not isinstance(workers, (int, np.integer)) or workers < 1:
        raise ParameterError(f"workers must be a whole number from 1 on, found {workers!r}")
    return int(workers)


class Workers:
    """So many threads, the caller's among them. The others are there within `with`, and no longer.

    However it is left, no thread goes on: what has begun is waited for, which takes no longer than
    one chunk, and what has not is not begun. Only a thread that was just being started when an
    interrupt came is not waited for; it ends by itself, with its part of the chunk.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._others = ThreadPoolExecutor(count - 1, "hereish") if count > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._others is not None:
            self._others.shutdown(wait=True, cancel_futures=True)

    def each(self, work: Callable[[int, _Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """What comes of each item, which `work` gets with its number; at most one per worker.

        If several fail, the error of the first of them is raised.
        """
        others = []
        if self._others is not None:
            # With the caller's settings, such as those of np.errstate.
            others = [
                self._others.submit(copy_context().run, work, number, item)
                for number, item in enumerate(items[1:], start=1)
            ]
        return [work(0, items[0]), *(other.result() for other in others)]


def shares(counts: Ints, workers: int) -> list[slice]:
    """Lanes with so many reports each, the most first, for each worker: about as many reports."""
    lanes = len(counts)
    if workers < 2:
        return [slice(0, lanes)]
    reports = np.cumsum(counts)
    wanted = np.arange(1, workers) * reports[-1] / workers
    cuts = np.unique([0, *np.searchsorted(reports, wanted, side="right").tolist(), lanes])
    return [slice(int(a), int(b)) for a, b in pairwise(cuts)]
