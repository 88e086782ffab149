"""A real gateway for tests: a ledger in a folder, users with tokens, a server that listens."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from hereish.gateway.admin import accounts
from hereish.gateway.ledger import tokens
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.policy import Policy
from hereish.gateway.ledger.tokens import PresentedToken
from hereish.gateway.paths import GatewayPaths

HELSINKI = (60.169876, 24.938421)  # a true place: it must never come out again


def policy(**settings: Any) -> Policy:
    """The usual one: ln 10 within 100 m, 3 km, days of UTC, and no smallest interval."""
    usual = {"level": math.log(10), "radius_m": 100.0, "interval_s": 0.0}
    if not {"reports", "preset"} & set(settings):
        usual["accuracy_m"] = 3000.0
    return Policy(**(usual | settings))


def paths_in(folder: Path, database: str | None = None) -> GatewayPaths:
    """A ledger of SQLite in this folder, or one in another database; key and mark are here."""
    return GatewayPaths(
        database or f"sqlite:///{folder / 'ledger.db'}", folder / "key", folder / "mark"
    )


def member(ledger: Ledger, name: str = "alice", device: str = "phone", **settings: Any) -> str:
    """A new user with a token."""
    accounts.add_user(ledger, name, policy(**settings))
    return accounts.new_token(ledger, name, device)


def shown(token: str) -> PresentedToken:
    """A token as the ledger takes it."""
    found = tokens.parse_token(token)
    assert found is not None
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Running:
    """A server in a process of its own."""

    where: GatewayPaths
    port: int
    process: subprocess.Popen[bytes]
    log: Path
    _clients: list[httpx.Client] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def lines(self) -> list[dict[str, Any]]:
        """What it logged."""
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]

    def kill(self) -> None:
        """As the kernel would: no farewell."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Told to end; how it ended."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def command(where: GatewayPaths, port: int, *words: str) -> list[str]:
    """The command that serves this ledger."""
    return [
        *(str(Path(sys.executable).parent / "hereish"), "serve", "--port", str(port)),
        *("--database", where.database, "--key-file", str(where.key_file)),
        *("--mark", str(where.mark_file), *words),
    ]


@contextmanager
def serving(
    where: GatewayPaths, *words: str, rate: float = 0.0, port: int | None = None
) -> Iterator[Running]:
    """`hereish serve` as people run it, at the most talkative level."""
    port = free_port() if port is None else port
    log = Path(where.key_file).with_name(f"log-{port}")
    with log.open("wb") as lines, log.with_name(f"out-{port}").open("wb") as out:
        process = subprocess.Popen(  # noqa: S603  # our own command
            command(where, port, "--rate", str(rate), "--log-level", "debug", *words),
            stderr=lines,
            stdout=out,
            env={**os.environ, "PYTHONASYNCIODEBUG": "0"},
        )
    running = Running(where, port, process, log)
    try:
        until_ready(running)
        yield running
    finally:
        if process.poll() is None:
            running.end()


def until_ready(running: Running, within_s: float = 60.0) -> None:
    """Wait until it answers."""
    end_s = time.monotonic() + within_s
    while time.monotonic() < end_s:
        if running.process.poll() is not None:
            raise AssertionError(f"it ended: {running.log.read_text('utf-8')}")
        try:
            if httpx.get(f"{running.url}/healthz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("it did not start")
