"""Fixtures of the gateway's tests: a real PostgreSQL, and a ledger that forwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hereish.gateway.admin import accounts
from hereish.gateway.forwarding import delivery, forwarder, http_sender, outbox
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.paths import GatewayPaths
from tests.support.forwarding_stage import POLICY, Phone, phone_of
from tests.support.postgres import Postgres, postgres
from tests.support.stage import paths_in


@pytest.fixture(scope="session")
def cluster() -> Iterator[Postgres]:
    """Shared by all tests of a worker, each with a database of its own."""
    with postgres() as running:
        yield running


@pytest.fixture(autouse=True)
def _no_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEREISH_KEY", raising=False)


@pytest.fixture
def paths(request: pytest.FixtureRequest, tmp_path: Path) -> GatewayPaths:
    database = None
    if getattr(request, "param", "sqlite") == "postgresql":
        running: Postgres = request.getfixturevalue("cluster")
        database = running.fresh(f"t{time.time_ns()}")
    return paths_in(tmp_path, database)


@pytest.fixture
def ledger(paths: GatewayPaths) -> Iterator[Ledger]:
    opened = Ledger.open(paths)
    accounts.add_user(opened, "alice", POLICY)
    yield opened
    opened.close()


@pytest.fixture
def phone(ledger: Ledger) -> Phone:
    return phone_of(ledger, "alice")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receivers have less time than they would in earnest."""
    monkeypatch.setattr(delivery, "SEND_S", 1.0)
    monkeypatch.setattr(http_sender, "_RESPONSE_S", 0.1)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures are tried again at once."""
    monkeypatch.setattr(outbox, "_pause_s", lambda _: 0.0)
    monkeypatch.setattr(forwarder, "POLL_S", 0.02)
