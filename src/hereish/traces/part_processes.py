"""Processes that work on the parts of a file, and send what comes of them.

They are forks of this one, so no thread of it waits for them: a process that is ended in the middle
of a message is one that has ended, and nobody goes on waiting for the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

from hereish.core.forks import (
    as_far_as_there_is_room,
    claimed_numbers,
    end_forks,
    offer_numbers,
    start_fork,
    uninterrupted,
)
from hereish.errors import HereishError

_Result = TypeVar("_Result")


class LostPartError(HereishError):
    """A process ended before its part was done."""


def results_of_parts(
    work: Callable[[int], _Result], sizes: Sequence[int], jobs: int
) -> Generator[_Result, None, None]:
    """What `work` makes of the number of each part, in their order; parts have these sizes.

    About twice as many results wait as there are processes. Raises LostPartError.
    Guarantee: however it is left, none of the processes goes on.
    """
    forks = _PartForks[_Result]()
    try:
        with as_far_as_there_is_room():  # otherwise fewer do it
            forks.start(work, jobs)
        yield from forks.results(sizes, jobs)
    finally:
        forks.end()


class _PartForks(Generic[_Result]):
    def __init__(self) -> None:
        self._unclaimed = self._offered = -1
        self._pids: list[int] = []
        self._sent: list[Connection] = []  # what each of them has sent

    def start(self, work: Callable[[int], _Result], jobs: int) -> None:
        """Start so many processes. Raises OSError where there is no room for more."""
        self._unclaimed, self._offered = os.pipe()
        for _ in range(jobs):
            self._start(work)

    def _start(self, work: Callable[[int], _Result]) -> None:
        sent, results = Pipe(duplex=False)

        def act() -> None:
            for end in (sent, *self._sent):  # the parent's, so that they are closed once it ended
                end.close()
            os.close(self._offered)
            for number in claimed_numbers(self._unclaimed):
                results.send((number, work(number)))

        try:
            start_fork(self._pids, act)
            self._sent.append(sent)
        finally:
            results.close()

    def results(self, sizes: Sequence[int], jobs: int) -> Generator[_Result, None, None]:
        left, done = list(range(len(sizes))), dict[int, _Result]()
        running = 0
        if not self._sent:
            raise LostPartError("there is no room for another process")
        for turn in range(len(sizes)):
            while turn not in done:
                most = len(sizes) if turn in left else 2 * jobs
                while left and running <= jobs and len(done) < most:
                    number = left.pop(_next_place([sizes[i] for i in left], jobs))
                    offer_numbers(self._offered, [number])
                    running += 1
                if not left:
                    self._offer_no_more()
                for number, result in self._received():
                    done[number] = result
                    running -= 1
            yield done.pop(turn)

    def _received(self) -> list[tuple[int, _Result]]:
        """What some of them have done meanwhile; at least one, or one of them has ended."""
        if not self._sent:
            raise LostPartError("a process ended before its part was done")
        found = []
        for sent in [end for end in wait(self._sent) if isinstance(end, Connection)]:
            try:
                found.append(sent.recv())
            except TimeoutError:  # of a handler of the caller; pipes have none
                raise
            except (EOFError, OSError):  # before a message, or within one
                if self._offered >= 0:
                    raise LostPartError("a process ended while parts were left") from None
                self._sent.remove(sent)
                sent.close()
        return found

    def _offer_no_more(self) -> None:
        if self._offered >= 0:
            os.close(self._offered)
            self._offered = -1

    def end(self) -> None:
        with uninterrupted():
            self._offer_no_more()
            if self._unclaimed >= 0:
                os.close(self._unclaimed)
            for sent in self._sent:
                sent.close()
            end_forks(self._pids)


def _next_place(sizes: Sequence[int], jobs: int) -> int:
    """Which of the parts that are left to begin: a large one in time, so that none waits for it."""
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    return largest if jobs * sizes[largest] >= sum(sizes) else 0
