"""kill -9 at random moments: whatever was under way, the ledger stays what it must be."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.paths import GatewayPaths
from tests.support.hammer import audit
from tests.support.hammering import Crowd, launching, people, publish
from tests.support.postgres import Postgres
from tests.support.stage import paths_in


def killed(
    where: GatewayPaths, rounds: int, seed: int, record: Callable[[str, object], None], name: str
) -> None:
    rng = random.Random(seed)  # noqa: S311  # moments, not secrets
    ledger = Ledger.open(where)
    persons = people(ledger, 3, 2, rng)
    ledger.close()
    with launching() as launcher:
        port = launcher.listen()
        crowd = Crowd(persons, [port], rng)
        began_s = time.monotonic()
        with crowd.sending():
            for i in range(rounds):
                pid = launcher.serve(where, port)
                if i % 4:  # every fourth may die while it opens the ledger
                    crowd.until_answered(200, 1)
                time.sleep(rng.uniform(0.02, 0.25))
                assert launcher.end(pid, signal.SIGKILL) == -signal.SIGKILL
            took_s = time.monotonic() - began_s
            pid = launcher.serve(where, port)
        acknowledged = crowd.acknowledged
        crowd.resend_all(port)
        crowd.close()
        counts = audit(where, crowd.told)
        assert launcher.end(pid) == 0
    publish(name, crowd, counts, record, kills=rounds, seconds=took_s)
    # It was a real load, and really cut off.
    assert acknowledged > rounds
    assert crowd.statuses[0] > rounds / 2
    assert set(crowd.statuses) <= {0, 200, 503}
    assert counts.acknowledged == counts.reports
    assert counts.ended > 0
    assert audit(where, crowd.told) == counts


def test_200_kills_lose_nothing_and_pay_nothing_twice_on_sqlite(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    killed(paths_in(tmp_path), 200, 1, record_property, "kill -9, SQLite")


def test_40_kills_lose_nothing_and_pay_nothing_twice_on_postgresql(
    tmp_path: Path, cluster: Postgres, record_property: Callable[[str, object], None]
) -> None:
    where = paths_in(tmp_path, cluster.fresh("kills"))
    killed(where, 40, 2, record_property, "kill -9, PostgreSQL")
