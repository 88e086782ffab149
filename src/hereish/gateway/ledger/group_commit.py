"""Group commit: reports that wait for the ledger share a transaction, and users are served fairly.

Writing to disk is what takes long, and many reports can share it. With nobody waiting each report
is committed alone and at once. A transaction has capacity for a few new releases only, and a batch
that needs more continues in the next one: each of its points is paid and durable by itself, so it
need not be one transaction. Capacity is shared by start-time fair queueing: whoever used the least
of it comes first, so one report does not wait for the whole of another user's batch.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple, TypeAlias

from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import ReportRequest
from hereish.gateway.ledger.queries import DeviceIdentity, TokenRefusedError
from hereish.gateway.ledger.tokens import PresentedToken
from hereish.gateway.ledger.transaction import FixAnswer, ReportResponse

_STOP_S = 5.0
_CAPACITY = 32  # new releases per transaction, so that nobody waits for very many
_SHARE, _LONE_SHARE = 8, 16  # of it per user: while others wait, and while nobody does
_FREE_POINTS = 32  # points that can release nothing cost as much as one that may
_MAX_KNOWN = 100_000  # tokens whose user is remembered, and users whose share is
# SQLite has one writer. On PostgreSQL those behind a lock or a slow answer do not block the rest.
_THREADS = {"sqlite": 1, "postgresql": 4}

_Outcome: TypeAlias = ReportResponse | Exception


class _KnownUser(NamedTuple):
    """Whose a token is, according to its last response."""

    identity: DeviceIdentity
    interval_s: float


@dataclass(eq=False)
class _PendingRequest:
    """A request and its progress. Its points are served in the order of their times."""

    request: ReportRequest
    response: asyncio.Future[ReportResponse]
    loop: asyncio.AbstractEventLoop
    order: list[int]
    done: int = 0
    answers: dict[int, FixAnswer] = field(default_factory=dict)


@dataclass(eq=False)
class _UserQueue:
    """The requests of one user, first in, first out. `used` is the capacity used, its start tag.

    A token that was not seen yet has a queue of its own. It may be a guess, so all such queues
    together get the share of one user.
    """

    key: int | bytes  # the user's number, or the digest of a token whose user is not known
    pending: deque[_PendingRequest] = field(default_factory=deque)
    used: float = 0.0
    scheduled: bool = False  # in the heap
    in_service: bool = False  # by some thread just now

    @property
    def is_unknown(self) -> bool:
        return isinstance(self.key, bytes)


@dataclass(eq=False)
class _RequestPart:
    """The part of a request that one transaction serves: its points from `done` to `end`."""

    pending: _PendingRequest
    queue: _UserQueue
    end: int = 0
    cost: int = 0


class GroupCommit:
    """Threads that commit reports to the ledger, for coroutines."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._changed = threading.Condition()
        self._users: OrderedDict[bytes, _KnownUser] = OrderedDict()
        self._queues: OrderedDict[int | bytes, _UserQueue] = OrderedDict()
        self._heap: list[tuple[float, int, int, _UserQueue]] = []
        self._arrival = count()
        self._used = 0.0  # virtual time: the start tag of whoever was served last
        self._used_by_unknown = 0.0
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._work, name=f"group-commit-{i}", daemon=True)
            for i in range(_THREADS[ledger.database.dialect])
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Serve what is pending, and end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(_STOP_S)  # a ledger that does not answer is not waited for for ever

    async def report(self, request: ReportRequest) -> ReportResponse:
        """As `Ledger.report`: paid and durable when it returns."""
        loop = asyncio.get_running_loop()
        response: asyncio.Future[ReportResponse] = loop.create_future()
        fixes = request.fixes
        order = sorted(range(len(fixes)), key=lambda i: fixes[i].at_s)
        with self._changed:
            queue = self._queue_of(request.token)
            queue.pending.append(_PendingRequest(request, response, loop, order))
            self._schedule(queue)
        return await response

    def known_identity(self, token: PresentedToken) -> DeviceIdentity | None:
        """The identity of a token that the ledger accepted before, without a query.

        A token's identity never changes, but it may have been revoked since. So this may choose
        how a request is parsed; the ledger still decides, under its lock, whether it is served.
        """
        with self._changed:
            known = self._users.get(token.digest)
        return None if known is None else known.identity

    def _work(self) -> None:
        while parts := self._next_transaction():
            outcomes: list[_Outcome | None]
            try:
                served = self._ledger.report_all([_part_request(part) for part in parts])
                outcomes = [self._collect(*pair) for pair in zip(parts, served, strict=True)]
            except Exception as error:  # noqa: BLE001  # returned to the requests; the thread stays
                outcomes = [error] * len(parts)
            with self._changed:
                self._requeue(parts, outcomes)
            parts[0].pending.loop.call_soon_threadsafe(_resolve, parts, outcomes)

    # Scheduling; the lock is held.

    def _queue_of(self, token: PresentedToken) -> _UserQueue:
        known = self._users.get(token.digest)
        key = token.digest if known is None else known.identity.user_id
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _UserQueue(key)
            if len(self._queues) > _MAX_KNOWN:
                queues = self._queues.values()
                idle = (one for one in queues if not one.pending and not one.in_service)
                self._queues.pop(next(idle, queue).key)
        return queue

    def _requeue(self, parts: list[_RequestPart], outcomes: list[_Outcome | None]) -> None:
        """Put unfinished requests back at the head of their queues, and schedule these again."""
        for part, outcome in zip(parts, outcomes, strict=True):
            part.queue.in_service = False
            if outcome is None:
                part.queue.pending.appendleft(part.pending)
        for part in parts:
            old, queue = part.queue, self._queue_of(part.pending.request.token)
            if old.is_unknown and queue is not old:  # its user is known now
                queue.pending.extendleft(reversed(old.pending))
                old.pending.clear()
                queue.used = max(queue.used, self._used) + part.cost
            if old.is_unknown and not old.pending:
                self._queues.pop(old.key, None)
            self._schedule(old)
            self._schedule(queue)

    def _schedule(self, queue: _UserQueue) -> None:
        if queue.pending and not queue.scheduled and not queue.in_service:
            queue.scheduled = True
            used = self._used_by_unknown if queue.is_unknown else queue.used
            queue.used = max(used, self._used)  # unused capacity is not saved up
            if queue.is_unknown:  # now: many may come before the first of them is served
                self._used_by_unknown = queue.used + 1
            first = queue.pending[0]
            length = min(_SHARE, len(first.order) - first.done)  # shortest first among equals
            heapq.heappush(self._heap, (queue.used, length, next(self._arrival), queue))
            self._changed.notify()

    def _next_transaction(self) -> list[_RequestPart]:
        """What the next transaction serves; empty at the end."""
        with self._changed:
            parts: list[_RequestPart] = []
            while not parts:
                while not self._heap:
                    if self._stopping:
                        return []
                    self._changed.wait()
                capacity = _CAPACITY
                last_parts: dict[_UserQueue, _RequestPart] = {}
                while self._heap and capacity > 0:
                    self._used, _, _, queue = heapq.heappop(self._heap)
                    if not self._heap:  # nobody else waits: earlier guesses weigh no more
                        self._used_by_unknown = min(self._used_by_unknown, self._used + 1)
                    queue.scheduled = False
                    capacity -= self._allot(queue, min(capacity, _SHARE), parts, last_parts)
                    queue.in_service = queue in last_parts
                if len(last_parts) == 1:  # nobody else waits or is served in it
                    for queue in list(last_parts):
                        self._allot(queue, _LONE_SHARE - (_CAPACITY - capacity), parts, last_parts)
            return parts

    def _allot(
        self,
        queue: _UserQueue,
        capacity: int,
        parts: list[_RequestPart],
        last_parts: dict[_UserQueue, _RequestPart],
    ) -> int:
        """Give a queue so much more of a transaction, if it needs it. Returns what it took."""
        taken = 0
        while taken < capacity:
            part = last_parts.get(queue)
            if part is None or part.end == len(part.pending.order):
                while queue.pending and queue.pending[0].response.done():  # its client has left
                    queue.pending.popleft()
                if not queue.pending:
                    break
                part = last_parts[queue] = _RequestPart(queue.pending.popleft(), queue)
                parts.append(part)
            taken += self._extend(part, capacity - taken)
            if part.end < len(part.pending.order):
                break  # what comes after it has to wait for it
        queue.used += taken
        return taken

    def _extend(self, part: _RequestPart, capacity: int) -> int:
        """Let a part have more of its points. Returns how many new releases they may make."""
        pending = part.pending
        known = self._users.get(pending.request.token.digest)
        interval_s = known.interval_s if known is not None else 0.0
        before = part.cost
        if not pending.order and before == 0:
            part.cost = 1  # a request without points costs, too
        fixes, order = pending.request.fixes, pending.order
        part.end = max(part.end, pending.done)
        last, last_s = -_FREE_POINTS, 0.0  # the last point that cost capacity
        while part.end < len(order):
            at_s = fixes[order[part.end]].at_s
            # At most so many of them can be releases: no two are closer than the interval.
            if part.end - last >= _FREE_POINTS or at_s >= last_s + interval_s:
                if part.cost - before >= capacity:
                    break
                part.cost += 1
                last, last_s = part.end, at_s
            part.end += 1
        return part.cost - before

    def _collect(self, part: _RequestPart, outcome: _Outcome) -> _Outcome | None:
        """The outcome of a request; None while there is more of it to serve."""
        pending = part.pending
        digest = pending.request.token.digest
        if isinstance(outcome, Exception):
            if isinstance(outcome, TokenRefusedError):
                with self._changed:
                    self._users.pop(digest, None)
            return outcome
        served = pending.order[pending.done : part.end]
        pending.answers.update(zip(served, outcome.answers, strict=True))
        pending.done = part.end
        with self._changed:
            self._users[digest] = _KnownUser(outcome.device, outcome.policy.interval_s)
            if len(self._users) > _MAX_KNOWN:
                self._users.popitem(last=False)
        if pending.done < len(pending.order):
            return None
        return outcome._replace(answers=[pending.answers[i] for i in range(len(pending.order))])


def _part_request(part: _RequestPart) -> ReportRequest:
    pending = part.pending
    if len(pending.order) <= 1:
        return pending.request
    served = pending.order[pending.done : part.end]
    return pending.request._replace(fixes=[pending.request.fixes[i] for i in served])


def _resolve(parts: list[_RequestPart], outcomes: list[_Outcome | None]) -> None:
    for part, outcome in zip(parts, outcomes, strict=True):
        response = part.pending.response
        if outcome is None or response.done():  # its client has left
            continue
        if isinstance(outcome, Exception):
            response.set_exception(outcome)
        else:
            response.set_result(outcome)
