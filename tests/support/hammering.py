"""Load for a ledger: gateways that are forked and killed, and devices that send everything thrice.

Reports of all devices of a user come from one clock in the past that moves through windows of a
minute, so a short test sees many windows begin and end.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hereish.gateway.admin import accounts
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.paths import GatewayPaths
from tests.support.hammer import Counts, Told
from tests.support.paths import ROOT
from tests.support.stage import HELSINKI, policy

WINDOW_S = 60.0
STEP_S = 1.8  # 33 reports a window, more than its budget pays for
_WITHIN_S = 60.0
_IDLE_S = 2.0  # how long a connection is kept for the next request
_PAUSE_S = 0.02  # before what failed is sent again


class Launcher:
    """The process that forks gateways; see fault_launcher.py."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.alive: set[int] = set()

    def _ask(self, **order: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def listen(self) -> int:
        """A port that outlives the gateways behind it."""
        return self._ask(do="listen", port=0)

    def serve(self, where: GatewayPaths, port: int, dies: str | None = None) -> int:
        """Fork a gateway; the id of its process."""
        pid = self._ask(
            do="serve",
            port=port,
            database=where.database,
            key_file=str(where.key_file),
            mark=str(where.mark_file),
            log=str(Path(where.key_file).with_name("log")),
            dies=dies,
        )
        self.alive.add(pid)
        return pid

    def wait(self, pid: int) -> int:
        """How it ended; negative: by which signal."""
        self.alive.discard(pid)
        return self._ask(do="wait", pid=pid)

    def end(self, pid: int, how: signal.Signals = signal.SIGTERM) -> int:
        os.kill(pid, how)
        return self.wait(pid)


@contextmanager
def launching() -> Iterator[Launcher]:
    process = subprocess.Popen(  # our own interpreter
        [sys.executable, "-m", "tests.support.fault_launcher"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    launcher = Launcher(process)
    try:
        yield launcher
    finally:
        for pid in sorted(launcher.alive):
            launcher.end(pid, signal.SIGKILL)
        process.communicate()


def until(holds: Callable[[], bool], what: str, within_s: float = _WITHIN_S) -> None:
    """Wait for a condition."""
    end_s = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > end_s:
            raise AssertionError(f"waited {within_s:g} s in vain: {what}")
        time.sleep(0.01)


def status(port: int, path: str = "/readyz") -> int:
    """What a gateway answers; 0 if it does not."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_WITHIN_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


@dataclass
class Person:
    """A user with several devices, and the clock that their reports come from."""

    name: str
    tokens: dict[str, str] = field(repr=False)  # of each device
    clock_s: float
    rng: random.Random
    step_s: float = STEP_S
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    number: int = 0

    def next(self, device: str) -> Told:
        """A report that was never sent."""
        with self.lock:
            self.number += 1
            # To the microsecond, as datetimes have it.
            at_s = round(self.clock_s + self.number * self.step_s + self.rng.random() / 8, 6)
            lat, lon = (x + self.rng.gauss(0.0, 0.02) for x in HELSINKI)
            name = f"{device}-{self.number}" if self.rng.random() < 0.5 else None
            return Told(self.name, device, self.tokens[device], lat, lon, at_s, name)


def people(
    ledger: Ledger,
    number: int,
    devices: int,
    rng: random.Random,
    ago_s: float = 86400.0,
    slower: float = 1.0,
    **settings: Any,
) -> list[Person]:
    """New users of a ledger, with the usual policy or these settings of it.

    With `slower` their windows, and the time between two reports, are so many times as long.
    """
    made, window_s = [], WINDOW_S * slower
    for i in range(number):
        name = f"user {i}"
        accounts.add_user(ledger, name, policy(window=str(int(window_s)), **settings))
        tokens = {
            f"device {j}": accounts.new_token(ledger, name, f"device {j}") for j in range(devices)
        }
        accounts.set_primary(ledger, name, "device 0", silence_s=0.0)  # all of them compete
        clock_s = (time.time() - ago_s) // window_s * window_s
        own = random.Random(rng.random())  # noqa: S311  # load
        made.append(Person(name, tokens, clock_s, own, STEP_S * slower))
    return made


class Crowd:
    """Devices that send as fast as they can, each report three times and until it is answered."""

    def __init__(self, persons: Sequence[Person], ports: Sequence[int], rng: random.Random) -> None:
        self.persons, self.ports = persons, ports
        self.told: list[Told] = []
        self.statuses: Counter[int] = Counter()  # 0: no answer
        self.thrown_away = 0
        self._rng = rng
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._local = threading.local()
        self._connections: list[http.client.HTTPConnection] = []

    @contextmanager
    def sending(self, most: int | None = None) -> Iterator[Crowd]:
        """Under load; `most` ends it after so many reports of each device."""
        self._end.clear()
        devices = [(person, device) for person in self.persons for device in person.tokens]
        with ThreadPoolExecutor(len(devices)) as pool:
            running = [
                pool.submit(self._report, person, device, most, self._rng.random())
                for person, device in devices
            ]
            try:
                yield self
                if most is not None:
                    for device_done in running:
                        device_done.result()
            finally:
                self._end.set()
            for device_done in running:
                device_done.result()

    def _report(self, person: Person, device: str, most: int | None, seed: float) -> None:
        rng = random.Random(seed)  # noqa: S311  # load, not secrets
        with ThreadPoolExecutor(3) as pool:
            made = 0
            while not self._end.is_set() and (most is None or made < most):
                made += 1
                report = person.next(device)
                with self._lock:
                    self.told.append(report)
                ports = [rng.choice(self.ports) for _ in range(3)]
                way = rng.randrange(3)
                if way == 0:  # all three at the same moment
                    list(pool.map(lambda port, report=report: self.send(report, port), ports))
                elif way == 1:  # one after the other
                    for port in ports:
                        self.send(report, port)
                else:  # nobody stays for the first answer
                    self._send_and_leave(report, ports[0])
                    for port in ports[1:]:
                        self.send(report, port)
                while not report.answers and not self._end.wait(_PAUSE_S):
                    self.send(report, rng.choice(self.ports))

    def send(self, report: Told, port: int) -> int:
        """Send a report once; 0 if nothing came back."""
        with report.lock:
            report.sent += 1
        status, content = self._posted(report, port)
        if status == 200:
            told = json.loads(content)
            with report.lock:
                report.answers.append(told)
        with self._lock:
            self.statuses[status] += 1
        return status

    def _posted(self, report: Told, port: int) -> tuple[int, bytes]:
        """Over a connection that this thread keeps, as phones do."""
        kept: dict[int, http.client.HTTPConnection] = self._local.__dict__.setdefault("kept", {})
        if port not in kept:
            kept[port] = http.client.HTTPConnection("127.0.0.1", port, timeout=_WITHIN_S)
            with self._lock:
                self._connections.append(kept[port])
        used: dict[int, float] = self._local.__dict__.setdefault("used", {})
        if time.monotonic() - used.get(port, 0.0) > _IDLE_S:
            kept[port].close()  # the server is about to, and a request could cross with that
        used[port] = time.monotonic()
        headers = {"Authorization": f"Bearer {report.token}"}
        try:
            kept[port].request("POST", "/v1/report", json.dumps(report.body()), headers)
            answer = kept[port].getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            kept[port].close()  # the next request opens another
            return 0, b""

    def _send_and_leave(self, report: Told, port: int) -> None:
        body = json.dumps(report.body()).encode()
        head = (
            f"POST /v1/report HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            f"Authorization: Bearer {report.token}\r\n\r\n"
        )
        with report.lock:
            report.sent += 1
        try:
            with socket.create_connection(("127.0.0.1", port), _WITHIN_S) as connection:
                connection.sendall(head.encode() + body)
        except OSError:
            pass
        with self._lock:
            self.thrown_away += 1

    def resend_all(self, port: int) -> None:
        """Everything once more, in any order: all of it must be answered."""
        again = list(self.told)
        self._rng.shuffle(again)
        with ThreadPoolExecutor(4) as pool:
            found = Counter(pool.map(lambda report: self.send(report, port), again))
        assert set(found) == {200}, f"answers to what was sent again: {dict(found)}"

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    @property
    def acknowledged(self) -> int:
        with self._lock:
            return self.statuses[200]

    def until_answered(self, status: int, more: int) -> None:
        """Wait for so many more answers of this status."""
        before = self.statuses[status]
        until(lambda: self.statuses[status] >= before + more, f"{more} answers of {status}")


def publish(
    name: str, crowd: Crowd, counts: Counts, record: Callable[[str, object], None], **more: object
) -> None:
    """The numbers of a scenario, for the report of the run."""
    numbers = {
        **counts._asdict(),
        "resends": counts.sent - counts.reports,
        "thrown_away": crowd.thrown_away,
        "unanswered": crowd.statuses[0],
        "refused": crowd.statuses[503],
        **more,
    }
    words = ", ".join(
        f"{key} {number:.6f}" if isinstance(number, float) else f"{key} {number}"
        for key, number in numbers.items()
    )
    record("counts", f"{name}: {words}")  # printed at the end of the run
