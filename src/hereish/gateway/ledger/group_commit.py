"""The clerk: reports that wait for the ledger share a transaction, and their users have turns.

The way to the disk is what takes long, and many can go it together. With nobody waiting each report
goes alone and at once. A transaction has room for a few new releases only, and a batch that needs
more goes on in the next one: each of its points is paid and durable by itself, so it need not be
one transaction. Who gets the room is decided as in start-time fair queueing: whoever had the least
of it comes first, so one report does not wait for the whole of somebody else's batch.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from hereish.gateway.ledger.ledger import Ask, Ledger, Reported
from hereish.gateway.ledger.tokens import Presented
from hereish.gateway.ledger.transaction import Answer

_END_S = 5.0
_MOST = 32  # new releases of one transaction, so that nobody waits for very many
_TURN, _ALONE = 8, 16  # of them for one user: while others wait, and while nobody does
_FREE = 32  # points that can release nothing take as much room as one that may
_MOST_KNOWN = 100_000  # tokens whose user is remembered, and users whose share is
# SQLite has one writer. On PostgreSQL those behind a lock or a slow answer do not hold up the rest.
_THREADS = {"sqlite": 1, "postgresql": 4}


class _User(NamedTuple):
    """Whose a token is, as the ledger said the last time."""

    id: int
    interval_s: float


@dataclass(eq=False)
class _Waiting:
    """A request, and how far it has come. Its points are taken in the order of their times."""

    ask: Ask
    answer: asyncio.Future[Reported]
    loop: asyncio.AbstractEventLoop
    order: list[int]
    done: int = 0
    answers: dict[int, Answer] = field(default_factory=dict)


@dataclass(eq=False)
class _Line:
    """The requests of one user, the first first. `used` is how much room they had, fairly.

    A token that nobody has seen yet has a line of its own. It may be a guess, so all such lines
    together get what one user gets.
    """

    key: int | bytes  # the user's number, or the digest of a token whose user is not known
    waiting: deque[_Waiting] = field(default_factory=deque)
    used: float = 0.0
    stands: bool = False  # among those who are to be served
    served: bool = False  # by some thread just now

    @property
    def is_strange(self) -> bool:
        return isinstance(self.key, bytes)


@dataclass(eq=False)
class _Piece:
    """What one transaction does of a request: its points from `done` up to `end`."""

    waiting: _Waiting
    line: _Line
    end: int = 0
    room: int = 0


class Clerk:
    """Threads that talk to the ledger, for coroutines."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._changed = threading.Condition()
        self._users: OrderedDict[bytes, _User] = OrderedDict()
        self._lines: OrderedDict[int | bytes, _Line] = OrderedDict()
        self._heap: list[tuple[float, int, int, _Line]] = []
        self._number = count()
        self._used = 0.0  # by whoever was served last
        self._used_by_strangers = 0.0
        self._ends = False
        self._threads = [
            threading.Thread(target=self._work, name=f"clerk-{i}", daemon=True)
            for i in range(_THREADS[ledger.database.dialect])
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Answer those who wait, and end."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(_END_S)  # a ledger that does not answer is not waited for for ever

    async def report(self, ask: Ask) -> Reported:
        """As `Ledger.report`: paid and durable when it returns."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Reported] = loop.create_future()
        order = sorted(range(len(ask.fixes)), key=lambda i: ask.fixes[i].at_s)
        with self._changed:
            line = self._line_of(ask.token)
            line.waiting.append(_Waiting(ask, answer, loop, order))
            self._queue(line)
        return await answer

    def _work(self) -> None:
        while pieces := self._taken():
            told: list[Reported | Exception | None]
            try:
                outcomes = self._ledger.report_all([_part(piece) for piece in pieces])
                told = [self._noted(*pair) for pair in zip(pieces, outcomes, strict=True)]
            except Exception as defect:  # noqa: BLE001  # those who wait hear it; the clerk stays
                told = [defect] * len(pieces)
            with self._changed:
                self._put_back(pieces, told)
            pieces[0].waiting.loop.call_soon_threadsafe(_tell, pieces, told)

    # Whose turn it is; the lock is held.

    def _line_of(self, token: Presented) -> _Line:
        known = self._users.get(token.digest)
        key = token.digest if known is None else known.id
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(key)
            if len(self._lines) > _MOST_KNOWN:
                idle = (one for one in self._lines.values() if not one.waiting and not one.served)
                self._lines.pop(next(idle, line).key)
        return line

    def _put_back(self, pieces: list[_Piece], told: list[Reported | Exception | None]) -> None:
        """What is left of a piece before what comes after it; then the lines wait again."""
        for piece, outcome in zip(pieces, told, strict=True):
            piece.line.served = False
            if outcome is None:
                piece.line.waiting.appendleft(piece.waiting)
        for piece in pieces:
            old, line = piece.line, self._line_of(piece.waiting.ask.token)
            if old.is_strange and line is not old:  # no stranger any more
                line.waiting.extendleft(reversed(old.waiting))
                old.waiting.clear()
                line.used = max(line.used, self._used) + piece.room
            if old.is_strange and not old.waiting:
                self._lines.pop(old.key, None)
            self._queue(old)
            self._queue(line)

    def _queue(self, line: _Line) -> None:
        if line.waiting and not line.stands and not line.served:
            line.stands = True
            used = self._used_by_strangers if line.is_strange else line.used
            line.used = max(used, self._used)  # what was not used is not saved up
            if line.is_strange:  # now: many may come before the first of them is served
                self._used_by_strangers = line.used + 1
            first = line.waiting[0]
            short = min(_TURN, len(first.order) - first.done)  # of equals, who is done soon
            heapq.heappush(self._heap, (line.used, short, next(self._number), line))
            self._changed.notify()

    def _taken(self) -> list[_Piece]:
        """What the next transaction does; empty at the end."""
        with self._changed:
            pieces: list[_Piece] = []
            while not pieces:
                while not self._heap:
                    if self._ends:
                        return []
                    self._changed.wait()
                room = _MOST
                lines: dict[_Line, _Piece] = {}
                while self._heap and room > 0:
                    self._used, _, _, line = heapq.heappop(self._heap)
                    if not self._heap:  # nobody else waits: guesses of before weigh no more
                        self._used_by_strangers = min(self._used_by_strangers, self._used + 1)
                    line.stands = False
                    room -= self._given(line, min(room, _TURN), pieces, lines)
                    line.served = line in lines
                if len(lines) == 1:  # nobody else waits, neither for the room nor in it
                    for line in list(lines):
                        self._given(line, _ALONE - (_MOST - room), pieces, lines)
            return pieces

    def _given(
        self, line: _Line, room: int, pieces: list[_Piece], lines: dict[_Line, _Piece]
    ) -> int:
        """Give a line so much more room in a transaction, if it needs it. Returns what it took."""
        taken = 0
        while taken < room:
            piece = lines.get(line)
            if piece is None or piece.end == len(piece.waiting.order):
                while line.waiting and line.waiting[0].answer.done():  # its client has gone away
                    line.waiting.popleft()
                if not line.waiting:
                    break
                piece = lines[line] = _Piece(line.waiting.popleft(), line)
                pieces.append(piece)
            taken += self._grown(piece, room - taken)
            if piece.end < len(piece.waiting.order):
                break  # what comes after it has to wait for it
        line.used += taken
        return taken

    def _grown(self, piece: _Piece, room: int) -> int:
        """Let a piece have more of its points. Returns how many new releases they may make."""
        waiting = piece.waiting
        known = self._users.get(waiting.ask.token.digest)
        interval_s = known.interval_s if known is not None else 0.0
        before = piece.room
        if not waiting.order and before == 0:
            piece.room = 1  # to ask about nothing takes a place, too
        fixes, order = waiting.ask.fixes, waiting.order
        piece.end = max(piece.end, waiting.done)
        last, last_s = -_FREE, 0.0  # the last point that took room
        while piece.end < len(order):
            at_s = fixes[order[piece.end]].at_s
            # At most so many of them can be releases: no two are closer than the interval.
            if piece.end - last >= _FREE or at_s >= last_s + interval_s:
                if piece.room - before >= room:
                    break
                piece.room += 1
                last, last_s = piece.end, at_s
            piece.end += 1
        return piece.room - before

    def _noted(self, piece: _Piece, outcome: Reported | Exception) -> Reported | Exception | None:
        """What the request is told; None while there is more of it to do."""
        if isinstance(outcome, Exception):
            return outcome
        waiting = piece.waiting
        mine = waiting.order[waiting.done : piece.end]
        waiting.answers.update(zip(mine, outcome.answers, strict=True))
        waiting.done = piece.end
        with self._changed:
            self._users[waiting.ask.token.digest] = _User(
                outcome.device.user_id, outcome.policy.interval_s
            )
            if len(self._users) > _MOST_KNOWN:
                self._users.popitem(last=False)
        if waiting.done < len(waiting.order):
            return None
        return outcome._replace(answers=[waiting.answers[i] for i in range(len(waiting.order))])


def _part(piece: _Piece) -> Ask:
    waiting = piece.waiting
    if len(waiting.order) <= 1:
        return waiting.ask
    mine = waiting.order[waiting.done : piece.end]
    return waiting.ask._replace(fixes=[waiting.ask.fixes[i] for i in mine])


def _tell(pieces: list[_Piece], told: list[Reported | Exception | None]) -> None:
    for piece, outcome in zip(pieces, told, strict=True):
        answer = piece.waiting.answer
        if outcome is None or answer.done():  # its client has gone away
            continue
        if isinstance(outcome, Exception):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)
