"""Forwarding: what was released goes on to the user's destinations, at least once and in order.

A release is committed together with a row in the outbox for each destination. Here those rows are
delivered, and deleted after the receiver said that it took them. Whoever delivers holds the lease
of the destination, so many processes may do this on one ledger. If one dies, its lease runs out.
No transaction is open while anything waits for the network.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, bindparam, delete, func, literal, select, update

from hereish.errors import HereishError
from hereish.gateway.admin.destinations import DestinationTarget
from hereish.gateway.forwarding.senders import BATCH, Go, Parcel, Sender
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import LedgerRelease
from hereish.gateway.ledger.tables import destinations, entries, outbox, users
from hereish.gateway.observability.logs import log_event

POLL_S = 1.0
LEASE_S = 120.0
"""Longer than a go of `deliver` can take, slow name servers and all."""
_BREATH_S = 0.02  # many pokes in a short time are one
_AT_ONCE = 100
_TROUBLED_AT_ONCE = 25  # those that failed the last time; they never take the others' places
_DATABASE_THREADS = 2  # of the ledger's connections, most are for reports
_LONGEST_WAIT_S = 3600.0
_SKEW_S = 60.0  # of the clocks of two machines, at most

_T = TypeVar("_T")

_anything = select(outbox.c.id).limit(1)
_enabled = (
    select(literal(1))
    .where(users.c.id == destinations.c.user_id, users.c.disabled_s.is_(None))
    .exists()
)
# Nobody writes a time that is further ahead than that: then the clock was set back, and nothing
# waits until it has come there again.
_ready = (
    ~destinations.c.leased_until_s.between(bindparam("now"), bindparam("lease_end"))
    & (
        (destinations.c.next_try_s <= bindparam("now"))
        | (destinations.c.next_try_s > bindparam("last_try"))
    )
    & _enabled
)
_oldest = (
    select(func.min(outbox.c.id))
    .where(outbox.c.destination_id == destinations.c.id)
    .scalar_subquery()
)
_due = (
    select(destinations.c.id)
    .where(_ready, _oldest.is_not(None), (destinations.c.tries > 0) == bindparam("troubled"))
    .order_by(destinations.c.next_try_s, _oldest)
)
_claim = (
    update(destinations)
    .where(destinations.c.id == bindparam("destination"), _ready)
    .values(leased_until_s=bindparam("until"))
    .returning(destinations.c.user_id, destinations.c.sealed, destinations.c.tries)
)
_batch = (
    select(outbox)
    .join(destinations, outbox.c.destination_id == destinations.c.id)
    .where(outbox.c.destination_id == bindparam("destination"), _enabled)
    .order_by(outbox.c.id)
    .limit(BATCH)
)
# Entries are made in the order of time, so the newest has the highest number.
_newest = (
    select(entries.c.id)
    .where(entries.c.user_id == bindparam("user"))
    .order_by(entries.c.at_s.desc())
    .limit(1)
)
_taken = delete(outbox).where(
    outbox.c.destination_id == bindparam("destination"), outbox.c.id <= bindparam("last")
)
_held = (
    update(destinations)
    .where(
        destinations.c.id == bindparam("destination"),
        destinations.c.leased_until_s == bindparam("mine"),
    )
    .values(leased_until_s=bindparam("until"))
)
_outcome = (
    update(destinations)
    .where(destinations.c.id == bindparam("destination"))
    .values(tries=bindparam("failed"), next_try_s=bindparam("next"), trouble=bindparam("words"))
)


class _Lease(NamedTuple):
    """A destination that is ours until then. The time is also how the lease is known again."""

    destination: int
    user_id: int
    sealed: bytes
    tries: int
    until_s: float
    parcels: list[Parcel]


def waiting(ledger: Ledger) -> int:
    """How many deliveries wait, over all destinations."""
    with ledger.database.reading() as tx:
        return int(tx.execute(select(func.count()).select_from(outbox)).scalar_one())


class Forwarder:
    """One a process. Works in a thread of its own between `start` and `stop`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._stopping = threading.Event()
        self._grace_s = 0.0
        self._goes: set[Go] = set()
        # Which are served here, and whether they failed the last time. A lease says the same to
        # other processes, but it can run out before a delivery is over.
        self._serving: dict[int, bool] = {}

    def start(self) -> None:
        if self._thread is not None:
            raise RuntimeError("a forwarder is started once")
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run()), name="hereish-forward", daemon=True
        )
        self._thread.start()

    def poke(self) -> None:
        """Something was released: look at once. Cheap, from any thread, at any time."""
        with self._lock:
            if self._loop is not None and self._wake is not None and not self._wake.is_set():
                self._loop.call_soon_threadsafe(self._wake.set)

    def stop(self, timeout_s: float = 10.0) -> None:
        """Begin no further delivery, wait so long for those that run, then give them up."""
        self._grace_s = timeout_s
        self._stopping.set()
        self.poke()
        if self._thread is not None:
            self._thread.join(timeout_s + 5.0)

    def run_once(self, now_s: float) -> int:
        """Deliver all that is due at this time, here and now; how many were taken."""
        return asyncio.run(self._once(now_s))

    async def _once(self, now_s: float) -> int:
        sender, threads = Sender(_AT_ONCE), ThreadPoolExecutor(1)
        try:
            due = [*self._look(now_s, troubled=False), *self._look(now_s, troubled=True)]
            served = [self._serve(number, sender, threads, lambda: now_s) for number in due]
            return sum(await asyncio.gather(*served))
        finally:
            sender.close()
            threads.shutdown()

    async def _run(self) -> None:
        sender = Sender(_AT_ONCE + _TROUBLED_AT_ONCE)
        threads = ThreadPoolExecutor(_DATABASE_THREADS, "hereish-forward-db")
        wake = asyncio.Event()
        with self._lock:
            self._loop, self._wake = asyncio.get_running_loop(), wake
        tasks: set[asyncio.Task[int]] = set()
        passed_over: set[int] = set()

        def done(number: int, task: asyncio.Task[int]) -> None:
            tasks.discard(task)
            # Another destination may wait for its place, or the same one for its next turn.
            if self._room(self._serving[number]) == 0 or number in passed_over:
                wake.set()
            del self._serving[number]

        try:
            while not self._stopping.is_set():
                wake.clear()
                passed_over.clear()
                for troubled in (False, True):
                    for number in await self._due(threads, troubled):
                        if number in self._serving:
                            passed_over.add(number)
                        elif self._room(troubled) > 0:
                            self._serving[number] = troubled
                            serving = self._serve(number, sender, threads, time.time)
                            tasks.add(task := asyncio.create_task(serving))
                            task.add_done_callback(partial(done, number))
                try:
                    async with asyncio.timeout(POLL_S):
                        await wake.wait()
                    await asyncio.sleep(_BREATH_S)
                except TimeoutError:
                    pass
            await self._finish(tasks)
        finally:
            with self._lock:
                self._loop = self._wake = None
            sender.close()
            threads.shutdown(wait=False)

    def _room(self, troubled: bool) -> int:
        most = _TROUBLED_AT_ONCE if troubled else _AT_ONCE
        return most - sum(one == troubled for one in self._serving.values())

    async def _finish(self, tasks: set[asyncio.Task[int]]) -> None:
        for go in self._goes:
            go.ending = True
        left = set(tasks)
        if left:
            await asyncio.wait(left, timeout=self._grace_s)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _due(self, threads: ThreadPoolExecutor, troubled: bool) -> Sequence[int]:
        room = self._room(troubled)
        if room <= 0:
            return []
        look = partial(self._look, time.time(), troubled, limit=room + len(self._serving))
        try:
            return await _in(threads, look)
        except Exception as trouble:  # noqa: BLE001  # another time it may go well
            log_event("nothing can be forwarded", logging.WARNING, words=_fit(trouble))
            return []

    async def _serve(
        self,
        destination: int,
        sender: Sender,
        threads: ThreadPoolExecutor,
        now: Callable[[], float],
    ) -> int:
        """Deliver what waits for one destination, if it is free. Trouble stays in here."""
        taken = 0
        try:
            lease = await _in(threads, partial(self._claimed, destination, now()))
            while lease is not None:
                go = Go()
                go.ending = self._stopping.is_set()
                self._goes.add(go)
                words: str | None = None
                try:
                    words = await self._go(sender, lease, go)
                except asyncio.CancelledError:
                    # Given up. Another process may go on at once.
                    go.ending = True
                    await _in(threads, partial(self._settled, lease, go, None, now()))
                    raise
                finally:
                    self._goes.discard(go)
                    taken += go.taken
                lease = await _in(threads, partial(self._settled, lease, go, words, now()))
        except Exception as trouble:  # noqa: BLE001  # one destination never stops the others
            # What was taken and could not be noted will be sent again when the lease has run out.
            about = {"destination": destination, "words": _fit(trouble)}
            log_event("forwarding interrupted", logging.WARNING, **about)
        return taken

    async def _go(self, sender: Sender, lease: _Lease, go: Go) -> str | None:
        """Deliver, and say what went wrong."""
        try:
            target = DestinationTarget.unseal(self._ledger.keys, lease.sealed, lease.user_id)
            await sender.deliver(target, lease.parcels, go)
        except Exception as trouble:  # noqa: BLE001  # one destination never stops the others
            return _fit(trouble)
        return None

    # What is done in the database; each is one short transaction.

    def _look(self, now_s: float, troubled: bool, limit: int | None = None) -> Sequence[int]:
        with self._ledger.database.reading() as tx:
            if tx.execute(_anything).first() is None:
                return []
            about = {**_times(now_s), "troubled": troubled}
            return tx.execute(_due.limit(limit), about).scalars().all()

    def _claimed(self, destination: int, now_s: float) -> _Lease | None:
        until_s = _lease_end_s(now_s)
        about = {**_times(now_s), "destination": destination, "until": until_s}
        with self._ledger.database.writing() as tx:
            row = tx.execute(_claim, about).one_or_none()
            if row is None:
                return None  # another process was first, or it is gone
            parcels = _parcels(tx, destination)
            if not parcels:
                _hold(tx, destination, until_s, 0.0)
                return None
            newest = tx.execute(_newest, {"user": row.user_id}).scalar()
        self._marked(newest)
        return _Lease(destination, row.user_id, row.sealed, row.tries, until_s, parcels)

    def _marked(self, newest: int | None) -> None:
        """Raise the ledger's mark before anything leaves: the report may not have come to that."""
        if newest is not None:
            self._ledger.mark.raise_to(newest)

    def _settled(self, lease: _Lease, go: Go, words: str | None, now_s: float) -> _Lease | None:
        """Forget what was taken and note the outcome. The next lease, if there is more to do."""
        tries = (0 if go.taken else lease.tries) + (words is not None)
        until_s = _lease_end_s(now_s)
        with self._ledger.database.writing() as tx:
            # The destination before its outbox, as those do who remove it: so nobody deadlocks.
            ours = _hold(tx, lease.destination, lease.until_s, until_s)
            if go.taken:
                last = lease.parcels[go.taken - 1].id
                tx.execute(_taken, {"destination": lease.destination, "last": last})
            if not ours:
                return None
            if go.taken or words is not None:
                about = {"failed": tries, "words": words, "destination": lease.destination}
                # No time where none is needed: the clock may be wrong.
                next_s = now_s + _pause_s(tries) if words is not None else 0.0
                tx.execute(_outcome, {**about, "next": next_s})
            on = words is None and not go.ending
            parcels = _parcels(tx, lease.destination) if on else []
            if not parcels:
                _hold(tx, lease.destination, until_s, 0.0)
            newest = tx.execute(_newest, {"user": lease.user_id}).scalar() if parcels else None
        self._marked(newest)
        if words is not None and tries == 1:
            log_event("not forwarded", logging.WARNING, destination=lease.destination, words=words)
        return lease._replace(tries=tries, until_s=until_s, parcels=parcels) if parcels else None


def _fit(trouble: Exception) -> str:
    """In words of ours: those of others may hold an address or a place."""
    if isinstance(trouble, HereishError):
        return str(trouble)
    return f"failed in here ({type(trouble).__name__})"


async def _in(threads: ThreadPoolExecutor, work: Callable[[], _T]) -> _T:
    return await asyncio.get_running_loop().run_in_executor(threads, work)


def _lease_end_s(now_s: float) -> float:
    # A little at random, so that no two leases are the same.
    return now_s + LEASE_S + random.random()  # noqa: S311  # guards against chance, not people


def _times(now_s: float) -> dict[str, float]:
    """What `_ready` compares with."""
    return {
        "now": now_s,
        "lease_end": now_s + LEASE_S + _SKEW_S,
        "last_try": now_s + _LONGEST_WAIT_S + _SKEW_S,
    }


def _hold(tx: Connection, destination: int, mine_s: float, until_s: float) -> bool:
    """Renew a lease, or end it. False if it is not ours any more."""
    about = {"destination": destination, "mine": mine_s, "until": until_s}
    return tx.execute(_held, about).rowcount == 1


def _parcels(tx: Connection, destination: int) -> list[Parcel]:
    return [_parcel(row) for row in tx.execute(_batch, {"destination": destination})]


def _parcel(row: Any) -> Parcel:
    # How it came about stays here; the formats do not say it.
    release = LedgerRelease(
        lat=row.lat,
        lon=row.lon,
        at_s=row.at_s,
        kind="untested",
        cost=0.0,
        accuracy_m=row.accuracy_m,
        eps_test=0.0,
        eps_noise=0.0,
        threshold_m=None,
        window="",
    )
    return Parcel(row.id, release, row.device, row.tid)


def _pause_s(tries: int) -> float:
    """From a second to an hour, at random within a factor of two: so receivers are not flooded."""
    longest = min(_LONGEST_WAIT_S, 2.0 ** min(tries, 12))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  # nobody gains by guessing it
