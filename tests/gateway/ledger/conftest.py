"""The ledger's tests run on both databases, unless a module has a `ledger` of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hereish.gateway.ledger.ledger import Ledger
from tests.support.ledgers import empty_ledger
from tests.support.postgres import Postgres


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    database = None
    if request.param == "postgresql":
        running: Postgres = request.getfixturevalue("cluster")
        database = running.fresh(f"t{time.time_ns()}")
    with empty_ledger(tmp_path, database) as opened:
        yield opened
