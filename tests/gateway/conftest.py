"""Fixtures of the gateway's tests: a real PostgreSQL, and a ledger that forwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from forwarding_stage import POLICY, Phone, phone_of
from postgres import Postgres, postgres
from stage import places_in

from hereish.gateway import accounts, deliver, forward
from hereish.gateway.ledger import Ledger
from hereish.gateway.places import Places


@pytest.fixture(scope="module")
def cluster() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def places(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Places:
    monkeypatch.delenv("HEREISH_KEY", raising=False)
    database = None
    if getattr(request, "param", "sqlite") == "postgresql":
        running: Postgres = request.getfixturevalue("cluster")
        database = running.fresh(f"t{time.time_ns()}")
    return places_in(tmp_path, database)


@pytest.fixture
def ledger(places: Places) -> Iterator[Ledger]:
    opened = Ledger.open(places)
    accounts.add_user(opened, "alice", POLICY)
    yield opened
    opened.close()


@pytest.fixture
def phone(ledger: Ledger) -> Phone:
    return phone_of(ledger, "alice")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receivers have less time than they would in earnest."""
    monkeypatch.setattr(deliver, "SEND_S", 1.0)
    monkeypatch.setattr(deliver, "_ANSWER_S", 0.1)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures are tried again at once."""
    monkeypatch.setattr(forward, "_pause_s", lambda _: 0.0)
    monkeypatch.setattr(forward, "POLL_S", 0.02)
