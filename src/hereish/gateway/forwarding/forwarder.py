"""The forwarder: one thread per process that delivers what waits in the outbox."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from hereish.errors import HereishError
from hereish.gateway.forwarding.delivery import DeliveryAttempt
from hereish.gateway.forwarding.outbox import Lease, Outbox
from hereish.gateway.forwarding.senders import Sender
from hereish.gateway.forwarding.targets import DestinationTarget
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.observability.logs import log_event

POLL_S = 1.0
_DEBOUNCE_S = 0.02  # many wake-ups in a short time are one
_MAX_DELIVERIES = 100
_MAX_FAILING = 25  # whose last attempt failed; they never take the others' slots
_DATABASE_THREADS = 2  # of the ledger's connections, most are for reports

_T = TypeVar("_T")


class Forwarder:
    """One per process. Works in a thread of its own between `start` and `stop`."""

    def __init__(self, ledger: Ledger) -> None:
        self.outbox = Outbox(ledger)
        self._keys = ledger.keys
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken: asyncio.Event | None = None
        self._stopping = threading.Event()
        self._grace_s = 0.0
        self._attempts: set[DeliveryAttempt] = set()
        # Which are served here, and whether they failed the last time. A lease tells other
        # processes the same, but it can run out before a delivery is over.
        self._serving: dict[int, bool] = {}

    def start(self) -> None:
        if self._thread is not None:
            raise RuntimeError("a forwarder is started once")
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run()), name="hereish-forward", daemon=True
        )
        self._thread.start()

    def wake(self) -> None:
        """Something was released: look at once. Cheap, from any thread, at any time."""
        with self._lock:
            if self._loop is not None and self._woken is not None and not self._woken.is_set():
                self._loop.call_soon_threadsafe(self._woken.set)

    def stop(self, timeout_s: float = 10.0) -> None:
        """Begin no further delivery, wait so long for those that run, then abandon them."""
        self._grace_s = timeout_s
        self._stopping.set()
        self.wake()
        if self._thread is not None:
            self._thread.join(timeout_s + 5.0)

    def run_once(self, now_s: float) -> int:
        """Deliver all that is due at this time, here and now; how many were acknowledged."""
        return asyncio.run(self._run_once(now_s))

    async def _run_once(self, now_s: float) -> int:
        sender, threads = Sender(_MAX_DELIVERIES), ThreadPoolExecutor(1)
        try:
            due = [
                *self.outbox.find_due(now_s, failing=False),
                *self.outbox.find_due(now_s, failing=True),
            ]
            served = [self._serve(number, sender, threads, lambda: now_s) for number in due]
            return sum(await asyncio.gather(*served))
        finally:
            sender.close()
            threads.shutdown()

    async def _run(self) -> None:
        sender = Sender(_MAX_DELIVERIES + _MAX_FAILING)
        threads = ThreadPoolExecutor(_DATABASE_THREADS, "hereish-forward-db")
        woken = asyncio.Event()
        with self._lock:
            self._loop, self._woken = asyncio.get_running_loop(), woken
        tasks: set[asyncio.Task[int]] = set()
        passed_over: set[int] = set()

        def done(number: int, task: asyncio.Task[int]) -> None:
            tasks.discard(task)
            # Another destination may wait for its slot, or the same one for its next turn.
            if self._free_slots(self._serving[number]) == 0 or number in passed_over:
                woken.set()
            del self._serving[number]

        try:
            while not self._stopping.is_set():
                woken.clear()
                passed_over.clear()
                for failing in (False, True):
                    for number in await self._find_due(threads, failing):
                        if number in self._serving:
                            passed_over.add(number)
                        elif self._free_slots(failing) > 0:
                            self._serving[number] = failing
                            serving = self._serve(number, sender, threads, time.time)
                            tasks.add(task := asyncio.create_task(serving))
                            task.add_done_callback(partial(done, number))
                try:
                    async with asyncio.timeout(POLL_S):
                        await woken.wait()
                    await asyncio.sleep(_DEBOUNCE_S)
                except TimeoutError:
                    pass
            await self._finish(tasks)
        finally:
            with self._lock:
                self._loop = self._woken = None
            sender.close()
            threads.shutdown(wait=False)

    def _free_slots(self, failing: bool) -> int:
        most = _MAX_FAILING if failing else _MAX_DELIVERIES
        return most - sum(one == failing for one in self._serving.values())

    async def _finish(self, tasks: set[asyncio.Task[int]]) -> None:
        for attempt in self._attempts:
            attempt.stopping = True
        left = set(tasks)
        if left:
            await asyncio.wait(left, timeout=self._grace_s)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _find_due(self, threads: ThreadPoolExecutor, failing: bool) -> Sequence[int]:
        slots = self._free_slots(failing)
        if slots <= 0:
            return []
        limit = slots + len(self._serving)
        try:
            return await _run_in(
                threads, partial(self.outbox.find_due, time.time(), failing, limit)
            )
        except Exception as error:  # noqa: BLE001  # the next try may succeed
            log_event("nothing can be forwarded", logging.WARNING, words=_safe_message(error))
            return []

    async def _serve(
        self,
        destination: int,
        sender: Sender,
        threads: ThreadPoolExecutor,
        now: Callable[[], float],
    ) -> int:
        """Deliver what waits for one destination, if it is free. Never raises."""
        delivered = 0
        try:
            lease = await _run_in(threads, partial(self.outbox.claim, destination, now()))
            while lease is not None:
                attempt = DeliveryAttempt()
                attempt.stopping = self._stopping.is_set()
                self._attempts.add(attempt)
                error: str | None = None
                try:
                    error = await self._deliver(sender, lease, attempt)
                except asyncio.CancelledError:
                    # Abandoned. Another process may go on at once.
                    attempt.stopping = True
                    await _run_in(threads, partial(self.outbox.settle, lease, attempt, None, now()))
                    raise
                finally:
                    self._attempts.discard(attempt)
                    delivered += attempt.delivered
                lease = await _run_in(
                    threads, partial(self.outbox.settle, lease, attempt, error, now())
                )
        except Exception as failure:  # noqa: BLE001  # one destination never stops the others
            # What was delivered and could not be noted is sent again when the lease has run out.
            fields = {"destination": destination, "words": _safe_message(failure)}
            log_event("forwarding interrupted", logging.WARNING, **fields)
        return delivered

    async def _deliver(self, sender: Sender, lease: Lease, attempt: DeliveryAttempt) -> str | None:
        """Deliver, and return what went wrong."""
        try:
            target = DestinationTarget.unseal(self._keys, lease.sealed, lease.user_id)
            await sender.deliver(target, lease.queued, attempt)
        except Exception as error:  # noqa: BLE001  # one destination never stops the others
            return _safe_message(error)
        return None


def _safe_message(error: Exception) -> str:
    """Our own messages only: those of others may hold an address or a place."""
    if isinstance(error, HereishError):
        return str(error)
    return f"failed in here ({type(error).__name__})"


async def _run_in(threads: ThreadPoolExecutor, function: Callable[[], _T]) -> _T:
    return await asyncio.get_running_loop().run_in_executor(threads, function)
