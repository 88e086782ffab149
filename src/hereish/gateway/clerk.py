"""The clerk: reports that came while the ledger was busy share its next transaction.

The way to the disk is what takes long, and many can go it together. With nobody waiting each report
goes alone and at once.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import NamedTuple

from hereish.gateway.ledger import Ask, Ledger, Reported

_END_S = 5.0
_MOST = 32  # in one transaction, so that nobody waits for very many
# SQLite has one writer. On PostgreSQL those behind a lock or a slow answer do not hold up the rest.
_THREADS = {"sqlite": 1, "postgresql": 4}


class _Waiting(NamedTuple):
    ask: Ask
    answer: asyncio.Future[Reported]
    loop: asyncio.AbstractEventLoop


class Clerk:
    """Threads that talk to the ledger, for coroutines."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"clerk-{i}", daemon=True)
            for i in range(_THREADS[ledger.database.dialect])
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Answer those who wait, and end."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(_END_S)  # a ledger that does not answer is not waited for for ever

    async def report(self, ask: Ask) -> Reported:
        """As `Ledger.report`: paid and durable when it returns."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Reported] = loop.create_future()
        self._queue.put(_Waiting(ask, answer, loop))
        return await answer

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            together = [first]
            ends = False
            while len(together) < _MOST and not ends:
                try:
                    another = self._queue.get_nowait()
                except queue.Empty:
                    break
                ends = another is None
                if another is not None:
                    together.append(another)
            outcomes: list[Reported | Exception]
            try:
                outcomes = self._ledger.report_all([waiting.ask for waiting in together])
            except Exception as defect:  # noqa: BLE001  # those who wait hear it; the clerk stays
                outcomes = [defect] * len(together)
            first.loop.call_soon_threadsafe(_tell, together, outcomes)
            if ends:
                return


def _tell(together: list[_Waiting], outcomes: list[Reported | Exception]) -> None:
    for waiting, outcome in zip(together, outcomes, strict=True):
        if waiting.answer.done():  # its client has gone away
            continue
        if isinstance(outcome, Exception):
            waiting.answer.set_exception(outcome)
        else:
            waiting.answer.set_result(outcome)
