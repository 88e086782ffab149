"""What the gateway costs: against the same server that does one bare durable insert per request."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from sqlalchemy import insert

from benchmarks.results import Result, shortest_times
from hereish.gateway.ledger import tokens
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.tables import policies, users
from hereish.gateway.ledger.tables import tokens as token_rows
from hereish.gateway.ledger.tokens import PresentedToken
from tests.support.postgres import postgres
from tests.support.stage import free_port, member, paths_in, policy, shown

HERE = Path(__file__).parent
SENDERS = 16
ROUNDS, SECONDS = 4, 3.0
BATCHES = 4  # of a thousand points, which a neighbour sends at once
REPORTS_PER_S, REPORTS_S = 20.0, 8.0  # of one user, for whom the gateway has plenty of time
MANY = 100_000
# Nobody's budget ends while it is measured.
ENDLESS: dict[str, Any] = {"level": 1e7, "window": "none"}
ONE_WINDOW: dict[str, Any] = {"level": 1e7, "window": "day"}
THREE_WINDOWS: dict[str, Any] = {**ONE_WINDOW, "limits": (("30d", 1e8), ("forever", 1e9))}


_stretches = count()


class Load(NamedTuple):
    """What a server answered, and how fast."""

    per_s: float
    median_ms: float
    p99_ms: float


def gateway() -> list[Result]:
    """Load, latency and growth on both databases."""
    rows = []
    pinned = _cores()
    _use(_all_cores())  # the server, the load, and the database are programs of their own
    try:
        for name, databases in (("SQLite", _sqlite), ("PostgreSQL", _postgresql)):
            with databases() as fresh:
                rows += [*_load(name, fresh), _neighbour(name, fresh), *_growth(name, fresh)]
    finally:
        _use(pinned)
    return rows


def _cores() -> set[int]:
    return set(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else set()


def _all_cores() -> set[int]:
    return set(os.sched_getaffinity(os.getppid())) if hasattr(os, "sched_getaffinity") else set()


def _use(cores: set[int], pid: int = 0) -> None:
    if cores:
        os.sched_setaffinity(pid, cores)


@contextmanager
def _sqlite() -> Iterator[Callable[[Path, str], str]]:
    yield lambda folder, name: f"sqlite:///{folder / name}.db"


@contextmanager
def _postgresql() -> Iterator[Callable[[Path, str], str]]:
    with postgres() as running:
        yield lambda _, name: running.fresh(f"{name}{time.time_ns()}")


def _load(name: str, fresh: Callable[[Path, str], str]) -> list[Result]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        ours, bare = fresh(folder, "ours"), fresh(folder, "bare")
        ledger = Ledger.open(paths_in(folder, ours))
        keys = [member(ledger, f"user{i}", **ENDLESS) for i in range(SENDERS)]
        ledger.close()
        loads: dict[str, list[Load]] = {"hereish": [], "bare": []}
        slow: dict[str, list[Load]] = {"hereish": [], "bare": []}
        with _serving("hereish", ours, folder) as one, _serving("bare", bare, folder) as other:
            ports = {"hereish": one, "bare": other}
            for _ in range(ROUNDS):
                for kind, port in ports.items():
                    loads[kind].append(_measure_load(port, keys, 0.0))
            most = {kind: max(load.per_s for load in found) for kind, found in loads.items()}
            for _ in range(ROUNDS):
                for kind, port in ports.items():
                    slow[kind].append(_measure_load(port, keys, most["hereish"] / 2))
    ratio = most["hereish"] / most["bare"]
    p99 = {kind: min(load.p99_ms for load in found) for kind, found in slow.items()}
    what = f"{name}: durable reports per second, {SENDERS} connections"
    return [
        Result(
            f"{what} / the same server with one bare durable insert per request",
            f"{ratio:.2f}",
            "at least 0.5",
            ratio >= 0.5,
        ),
        Result(
            f"{name}: p99 latency at half that load / the bare server's at the same load",
            f"{p99['hereish'] / p99['bare']:.1f} ({p99['hereish']:.0f} ms)",
            "for comparison",
            True,
        ),
    ]


def _neighbour(name: str, fresh: Callable[[Path, str], str]) -> Result:
    """One user's latency while another user sends batches, and while nobody does."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        database = fresh(folder, "neighbour")
        ledger = Ledger.open(paths_in(folder, database))
        light, heavy = (member(ledger, user, **ENDLESS) for user in ("light", "heavy"))
        ledger.close()
        idle, busy = [], []
        with _serving("hereish", database, folder) as port:
            for _ in range(ROUNDS):
                idle.append(_measure_load(port, [light], REPORTS_PER_S, REPORTS_S))
                with _batches(port, heavy):
                    busy.append(_measure_load(port, [light], REPORTS_PER_S, REPORTS_S))
    ours, alone = (min(load.p99_ms for load in found) for found in (busy, idle))
    ratio = ours / alone
    return Result(
        f"{name}: p99 latency of a user while another sends {BATCHES} batches of 1,000 points "
        "at once / on an idle gateway",
        f"{ratio:.1f} ({ours:.0f} ms)",
        "at most 5",
        ratio <= 5,
    )


@contextmanager
def _batches(port: int, token: str) -> Iterator[None]:
    start_s = time.time() - 3e8 + 1e7 * next(_stretches)
    numbers = map(str, (port, BATCHES, start_s))
    command = [sys.executable, str(HERE / "gateway_batches.py"), *numbers]
    sending = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)  # noqa: S603  # our own
    _stay_on_core(sending.pid, 1)
    try:
        if sending.stdin is not None:
            sending.stdin.write(f"{token}\n")
            sending.stdin.close()
        time.sleep(1.0)  # until they are under way
        yield
        if sending.poll() is not None:
            raise RuntimeError("the batches were not taken")
    finally:
        sending.terminate()
        sending.wait()


@contextmanager
def _serving(kind: str, database: str, folder: Path) -> Iterator[int]:
    port = free_port()
    command = [sys.executable, str(HERE / "gateway_server.py"), kind, database, str(folder)]
    server = subprocess.Popen([*command, str(port)])  # noqa: S603  # our own program
    _stay_on_core(server.pid, 0)
    try:
        for _ in range(600):
            try:
                httpx.get(f"http://127.0.0.1:{port}/healthz")
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield port
    finally:
        server.terminate()
        server.wait()


def _measure_load(port: int, keys: list[str], rate: float, seconds: float = SECONDS) -> Load:
    # Each time has its own stretch of the past, since what was reported already is free.
    start_s = time.time() - 1e7 + 1e5 * next(_stretches)
    numbers = map(str, (port, seconds, rate, start_s))
    command = [sys.executable, str(HERE / "gateway_load.py"), *numbers]
    load = subprocess.Popen(  # noqa: S603  # our own program
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    _stay_on_core(load.pid, 1)
    output, _ = load.communicate("\n".join(keys))
    if load.returncode:
        raise RuntimeError(output)
    return Load(*map(float, output.split()))


def _stay_on_core(pid: int, number: int) -> None:
    """The server on one core, and the load on another, if there is one."""
    cores = sorted(_cores())
    if cores:
        _use({cores[number % len(cores)]}, pid)


def _growth(name: str, fresh: Callable[[Path, str], str]) -> list[Result]:
    """The ledger alone: a user's ten-thousandth report, and one among very many users."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        # Two ledgers that take turns, so that what else the machine does meets both.
        small, large = (_ledger(folder / size, fresh) for size in ("small", "large"))
        young, old = _some(small, "young", 1), _some(small, "old", 1)
        old.reports(10_000)
        early, late = shortest_times(9, partial(young.reports, 50), partial(old.reports, 50))
        one, three = (
            _some(small, "one", 1, ONE_WINDOW),
            _some(small, "three", 1, THREE_WINDOWS),
        )
        alone, nested = shortest_times(9, partial(one.reports, 50), partial(three.reports, 50))
        new = _some(small, "new", 1, THREE_WINDOWS)
        three.reports(10_000)
        new_one, old_one = shortest_times(9, partial(new.reports, 50), partial(three.reports, 50))
        some, many = _some(small, "some", 1000), _many(large)
        among_some, among_many = shortest_times(
            9, partial(some.reports, 100), partial(many.reports, 100)
        )
        small.close()
        large.close()
    later, crowd = late / early, among_many / among_some
    more, later_nested = nested / alone, old_one / new_one
    return [
        Result(
            f"{name}: a report with budgets of three windows / of one",
            f"{more:.2f}",
            "at most 1.3",
            more < 1.3,
        ),
        Result(
            f"{name}: with three windows, a report after ten thousand / one of the first",
            f"{later_nested:.2f}",
            "1",
            later_nested < 1.2,
        ),
        Result(
            f"{name}: a report of a user after ten thousand / one of the first",
            f"{later:.2f}",
            "1",
            later < 1.2,
        ),
        Result(
            f"{name}: a report of one of {MANY:,} users / of one of a thousand",
            f"{crowd:.2f}",
            "1",
            crowd < 1.2,
        ),
    ]


class _Reporter:
    """Reports for users in turn, each a second after the last."""

    def __init__(self, ledger: Ledger, tokens: list[PresentedToken]) -> None:
        self._ledger, self.tokens, self._next = ledger, tokens, 0
        self._at_s = time.time() - 5e6

    def report(self) -> None:
        token = self.tokens[self._next % len(self.tokens)]
        self._next += 1
        self._ledger.report(token, [Fix(60.17, 24.94, self._at_s + self._next)])

    def reports(self, count: int) -> None:
        for _ in range(count):
            self.report()


def _ledger(folder: Path, fresh: Callable[[Path, str], str]) -> Ledger:
    folder.mkdir()
    return Ledger.open(paths_in(folder, fresh(folder, "growth")))


def _some(ledger: Ledger, name: str, count: int, settings: dict[str, Any] = ENDLESS) -> _Reporter:
    found = [shown(member(ledger, f"{name}{i}", **settings)) for i in range(count)]
    return _Reporter(ledger, found)


def _many(ledger: Ledger) -> _Reporter:
    """Very many users, written in bulk, who report in any order."""
    body = policy(**ENDLESS).to_json()
    made = [shown(tokens.generate_token()) for _ in range(MANY)]
    first = 1_000_000
    with ledger.database.writing() as tx:
        numbers = range(first, first + MANY)
        rows = [
            {"id": n, "name": f"many{n}", "created_s": 0.0, "forwards": 0, "policy_id": n}
            for n in numbers
        ]
        tx.execute(insert(users), rows)
        common = {"version": 1, "body": body, "created_s": 0.0}
        tx.execute(insert(policies), [{"id": n, "user_id": n, **common} for n in numbers])
        device = {"device": "phone", "created_s": 0.0, "show_release": False}
        tx.execute(
            insert(token_rows),
            [
                {"id": token.id, "digest": token.digest, "user_id": n, **device}
                for n, token in zip(numbers, made, strict=True)
            ],
        )
    random.Random(1).shuffle(made)  # noqa: S311  # the order is no secret
    return _Reporter(ledger, made)
