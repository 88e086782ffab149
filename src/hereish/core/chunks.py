"""Chunks of a batch: some steps of some traces as rectangles, in memory that is used again."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hereish.core.types import Floats, Ints

_TILE = 512  # lanes whose rows are turned into columns at once: a third of the time of all lanes

Empty = Callable[..., NDArray[Any]]  # `np.empty`, or another that is called like it


class Scratch:
    """Memory that all chunks use one after the other, so that it is not asked for again."""

    def __init__(self, empty: Empty = np.empty) -> None:
        self._empty = empty
        self._held: dict[str, NDArray[Any]] = {}

    def get(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        size = int(np.prod(shape))
        held = self._held.get(name)
        if held is None or held.size < size:
            held = self._held[name] = self._empty(size, dtype)
        return held[:size].reshape(shape)

    def numbers(self, name: str, count: int) -> Floats:
        """So many numbers, whatever they are."""
        return self.get(name, (count,), np.float64)


class Chunk:
    """Some steps of some traces as a rectangle: step by step, then coordinates, then lanes.

    Lanes come last so that what the step reads and writes for one coordinate lies together.
    """

    def __init__(
        self, scratch: Scratch, starts: Ints, lengths: Ints, done: int, steps: int
    ) -> None:
        lanes, length = len(starts), int(lengths[0])
        self.shape, self.done = (steps, lanes), done
        self.scratch = scratch
        self._span = slice(done, done + steps)
        side_by_side = starts[0] + length * np.arange(lanes)
        self._rows = None
        if lengths[-1] == length and np.array_equal(starts, side_by_side):
            self._rows = slice(int(starts[0]), int(starts[0]) + lanes * length)
            return
        ahead = done + np.arange(steps)[:, None]
        self._inside = ahead < lengths
        self._index = starts + np.where(self._inside, ahead, 0)

    @cached_property
    def _rows_inside(self) -> Ints:
        return self._index[self._inside]

    def _tiles(self) -> list[slice]:
        """Lanes that are turned together: as many as stay in cache."""
        return [slice(i, i + _TILE) for i in range(0, self.shape[1], _TILE)]

    def _view(self, column: NDArray[Any]) -> NDArray[Any]:
        """The rectangle where it lies, lanes first."""
        return column[self._rows].reshape(self.shape[1], -1, *column.shape[1:])[:, self._span]

    def blank(self, name: str, column: NDArray[Any]) -> NDArray[Any]:
        """An empty rectangle for values like these."""
        steps, lanes = self.shape
        return self.scratch.get(name, (steps, *column.shape[1:], lanes), column.dtype)

    def read(self, name: str, column: NDArray[Any]) -> NDArray[Any]:
        """A copy of the rectangle; what lies beyond the end of a trace means nothing."""
        copied = self.blank(name, column)
        lanes_last = copied if copied.ndim == 2 else copied.transpose(0, 2, 1)
        if self._rows is None:
            lanes_last[...] = column[self._index]
            return copied
        turned = self._view(column).swapaxes(0, 1)
        for lanes in self._tiles():
            lanes_last[:, lanes] = turned[:, lanes]
        return copied

    def write(self, column: NDArray[Any], rectangle: NDArray[Any]) -> None:
        """Put a rectangle back in its place."""
        if self._rows is not None and rectangle.ndim == 3:
            view = self._view(column)
            for lanes in self._tiles():
                for i in range(rectangle.shape[1]):  # quicker than all coordinates at once
                    view[lanes, :, i] = rectangle[:, i, lanes].T
            return
        if rectangle.ndim == 3:
            rectangle = rectangle.transpose(0, 2, 1)
        if self._rows is None:
            column[self._rows_inside] = rectangle[self._inside]
        else:
            self._view(column)[...] = rectangle.swapaxes(0, 1)


def lanes_left(counts: Ints, steps: int) -> Ints:
    """(steps,) How many lanes have a report at each step: the first so many."""
    return np.searchsorted(-counts, -np.arange(steps))


class Reports(NamedTuple):
    """The next reports of some lanes: (steps, …, lanes)."""

    secrets: Floats
    at_s: Floats
    counts: Ints  # (lanes,) how many each has, never more than the lane before it

    @property
    def lanes_left(self) -> Ints:
        return lanes_left(self.counts, len(self.at_s))

    def at(self, step: Ints, lane: Ints) -> tuple[Floats, Floats]:
        """Times and secrets of these, each coordinate in one piece."""
        return self.at_s[step, lane], self.secrets.transpose(1, 0, 2)[:, step, lane].T
