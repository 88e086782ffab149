"""Eight gateways with one ledger, and one user whose devices report to all of them at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.paths import GatewayPaths
from tests.support.hammer import audit
from tests.support.hammering import Crowd, launching, people, publish, status
from tests.support.postgres import Postgres
from tests.support.stage import paths_in

PROCESSES, DEVICES, REPORTS = 8, 6, 40


def hammered(
    where: GatewayPaths, seed: int, record: Callable[[str, object], None], name: str
) -> None:
    rng = random.Random(seed)  # noqa: S311  # load, not secrets
    ledger = Ledger.open(where)
    persons = people(ledger, 1, DEVICES, rng)
    ledger.close()
    with launching() as launcher:
        ports = [launcher.listen() for _ in range(PROCESSES)]
        pids = [launcher.serve(where, port) for port in ports]
        assert [status(port) for port in ports] == [200] * PROCESSES
        crowd = Crowd(persons, ports, rng)
        with crowd.sending(REPORTS):
            pass
        crowd.resend_all(ports[0])
        crowd.close()
        counts = audit(where, crowd.told)
        assert [launcher.end(pid) for pid in pids] == [0] * PROCESSES
    publish(name, crowd, counts, record, processes=PROCESSES)
    assert counts.acknowledged == counts.reports == DEVICES * REPORTS
    assert set(crowd.statuses) == {200}
    assert counts.ended > 0


def test_eight_processes_pay_one_user_once_on_sqlite(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    hammered(paths_in(tmp_path), 3, record_property, "eight processes, SQLite")


def test_eight_processes_pay_one_user_once_on_postgresql(
    tmp_path: Path, cluster: Postgres, record_property: Callable[[str, object], None]
) -> None:
    where = paths_in(tmp_path, cluster.fresh("eight"))
    hammered(where, 4, record_property, "eight processes, PostgreSQL")
