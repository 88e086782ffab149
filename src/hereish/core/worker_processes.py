"""Forks of this process that step blocks of a batch beside it.

Threads of Python wait for each other after every operation of NumPy; processes do not. A fork has
the traces already, as they were given, so no true point is copied, pickled or put anywhere. What
comes back is released: chunk by chunk through a little anonymous memory that is used again and
again, and has no name. The parent steps blocks as well, and writes what the others have sent
between its own chunks. Nothing is returned before all of it is there.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hereish.core.batch_results import Results, Sanitized
from hereish.core.chunks import Chunk, Scratch
from hereish.core.forks import (
    as_far_as_there_is_room,
    claimed_numbers,
    end_forks,
    offer_numbers,
    start_fork,
    uninterrupted,
)
from hereish.core.run import Run
from hereish.core.types import Floats, Ints
from hereish.errors import HereishError

_SLOTS = 3  # chunks that a fork may be ahead of the parent, which is busy with its own
_PIPE_BYTES = 1 << 20
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of Linux, which Python has no name for
MOST_BLOCKS = 10_000  # their numbers fit a pipe

FinishBlock = Callable[[int], None]


class BatchLayout(NamedTuple):
    """Where traces begin, how long they are, and how many points a chunk has at most."""

    starts: Ints
    lengths: Ints
    points: int


def guided_blocks(counts: Ints, workers: int, widest: int, least: int) -> list[slice]:
    """Blocks of lanes with so many reports each: smaller ones at the end, so that none waits long.

    Guarantee: together they are all lanes, each once.
    """
    lanes, done = len(counts), np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    least = max(least, -(-lanes // MOST_BLOCKS))
    blocks, first = [], 0
    while first < lanes:
        # Whole, as `done` is: for a fraction, all of it would be converted each time.
        wanted = done[first] + (done[-1] - done[first]) // workers
        end = min(max(int(np.searchsorted(done, wanted)), first + least), first + widest)
        end = lanes if lanes - end < least else end
        blocks.append(slice(first, end))
        first = end
    return blocks


def step_with_forks(
    begin: Callable[[Results], FinishBlock],
    blocks: int,
    workers: int,
    out: Sanitized,
    layout: BatchLayout,
    check: Callable[[], None] | None,
) -> None:
    """Step so many blocks with so many processes, this one among them, and write all they release.

    `begin` is called in each process, with what takes its results. No block is begun before the
    `check`, if there is one, which this process makes while the others get ready.
    Guarantee: if any of them fails, this fails, and none of them goes on.
    """
    unclaimed = offered = -1
    gathered = _GatheredResults(out, layout)
    try:
        with as_far_as_there_is_room():  # otherwise fewer do it
            unclaimed, offered = os.pipe()
            for _ in range(workers - 1):
                gathered.start(begin, unclaimed, offered)
        if check is not None:
            check()
        numbers: Iterable[int] = range(blocks)
        if gathered.are_there_forks:
            offer_numbers(offered, numbers)
            os.close(offered)
            offered = -1
            numbers = claimed_numbers(unclaimed)
        finish = begin(gathered)
        for number in numbers:
            finish(number)
        gathered.receive_rest()
    finally:
        gathered.end()
        for end in (unclaimed, offered):
            if end >= 0:
                os.close(end)


class _Window:
    """Memory that two processes share, with room for the rectangles of a chunk."""

    def __init__(self, columns: dict[str, NDArray[Any]], points: int) -> None:
        self._columns, self._offsets, size = columns, {}, 0
        for name, column in columns.items():
            self._offsets[name] = size
            bytes_each = column.itemsize * int(np.prod(column.shape[1:]))
            size += -(-bytes_each * points // 64) * 64
        self._memory = mmap.mmap(-1, size)

    def populate(self) -> None:
        """Have the system clear all of it at once, and not page by page when they are needed."""
        with suppress(OSError):  # Linux before 5.14
            self._memory.madvise(_POPULATE_WRITE)

    def rectangles(self, shape: tuple[int, int]) -> dict[str, NDArray[Any]]:
        """Of each column, for so many steps of so many lanes."""
        steps, lanes = shape
        found = {}
        for name, column in self._columns.items():
            whole = (steps, *column.shape[1:], lanes)
            count, offset = int(np.prod(whole)), self._offsets[name]
            found[name] = np.frombuffer(self._memory, column.dtype, count, offset).reshape(whole)
        return found


class _Fork(NamedTuple):
    """What the parent has of a fork."""

    messages: Connection
    free: int  # where it is told which windows it may fill again
    waiting: int  # where it reads that; open here, so that nothing is written to a closed pipe
    windows: list[_Window]


class _GatheredResults(Results):
    """The parent's: writes its own chunks, and then those that forks have sent meanwhile."""

    def __init__(self, out: Sanitized, layout: BatchLayout) -> None:
        super().__init__(out)
        self._layout, self._scratch = layout, Scratch()
        self._forks: dict[Connection, _Fork] = {}
        self._all: list[_Fork] = []
        self._pids: list[int] = []

    def start(self, begin: Callable[[Results], FinishBlock], unclaimed: int, offered: int) -> None:
        """Fork this process. The copy steps blocks, and ends. Raises OSError."""
        windows = [_Window(self.columns, self._layout.points) for _ in range(_SLOTS)]
        messages, sent = _wide_pipe()
        waiting, free = os.pipe()
        os.write(free, bytes(range(_SLOTS)))
        self._all.append(_Fork(messages, free, waiting, windows))

        def act() -> None:
            for end in self._all:  # the parent's, so that they are closed once it has ended
                end.messages.close()
                os.close(end.free)
            os.close(offered)
            results = _SentResults(self.out, sent, waiting, windows)
            finish = begin(results)
            for number in claimed_numbers(unclaimed):
                finish(number)
            results.end()

        try:
            start_fork(self._pids, act)
            self._forks[messages] = self._all[-1]
        finally:
            sent.close()

    @property
    def are_there_forks(self) -> bool:
        return bool(self._forks)

    def write(
        self, chunk: Chunk, traces: Ints, targets: dict[str, NDArray[Any]], most: Floats
    ) -> None:
        super().write(chunk, traces, targets, most)
        while self._forks and (ready := wait(list(self._forks), timeout=0)):
            self._receive(ready)

    def receive_rest(self) -> None:
        """Wait for what the forks still have to send."""
        while self._forks:
            self._receive(wait(list(self._forks)))

    def _receive(self, ready: list[Any]) -> None:
        for messages in ready:
            fork = self._forks[messages]
            try:
                kind, given = messages.recv()
            except TimeoutError:  # of a handler of the caller; pipes have none
                raise
            except (EOFError, OSError):  # before a message, or within one
                raise HereishError(
                    "a worker process ended before its traces were done, and nothing was "
                    "returned; try again with workers=1"
                ) from None
            match kind:
                case "chunk":
                    slot, traces, done, steps, most = given
                    starts, lengths = self._layout.starts[traces], self._layout.lengths[traces]
                    chunk = Chunk(self._scratch, starts, lengths, done, steps)
                    targets = fork.windows[slot].rectangles(chunk.shape)
                    super().write(chunk, traces, targets, most)
                    os.write(fork.free, bytes([slot]))  # if it has ended, that is noticed next
                case "refuse":
                    self.refuse(*given)
                case "store":
                    self.store(*given)
                case "end":
                    del self._forks[messages]

    def end(self) -> None:
        """Let no fork go on, nor any be left behind."""
        with uninterrupted():
            self._forks.clear()
            while self._all:  # the windows go while the forks end
                fork = self._all.pop()
                fork.messages.close()
                os.close(fork.free)
                os.close(fork.waiting)
                fork.windows.clear()
            end_forks(self._pids)


class _SentResults(Results):
    """A fork's: hands everything to the parent."""

    def __init__(
        self, out: Sanitized, messages: Connection, free: int, windows: list[_Window]
    ) -> None:
        super().__init__(out)
        self._messages, self._free, self._windows = messages, free, windows
        self._slot = 0
        for window in windows:
            window.populate()

    def targets(self, chunk: Chunk) -> dict[str, NDArray[Any]]:
        told = os.read(self._free, 1)
        if not told:
            raise EOFError("the parent has ended")
        self._slot = told[0]
        return self._windows[self._slot].rectangles(chunk.shape)

    def write(
        self, chunk: Chunk, traces: Ints, targets: dict[str, NDArray[Any]], most: Floats
    ) -> None:
        self._messages.send(("chunk", (self._slot, traces, chunk.done, chunk.shape[0], most)))

    def refuse(self, starts: Ints, counts: Ints) -> None:
        self._messages.send(("refuse", (starts, counts)))

    def store(self, traces: Ints, run: Run) -> None:
        if self.out.run is not None:
            self._messages.send(("store", (traces, run)))

    def end(self) -> None:
        self._messages.send(("end", None))


def _wide_pipe() -> tuple[Connection, Connection]:
    """For messages, and not so narrow that a fork would have to wait until they are read."""
    import fcntl  # not on every system

    messages, sent = Pipe(duplex=False)
    with suppress(OSError):  # it works with narrow ones as well
        fcntl.fcntl(sent.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return messages, sent
