"""A gateway that dies after it wrote a release down and before it told anybody."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import pytest

from hereish.gateway.admin import maintenance
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.paths import GatewayPaths
from tests.support.hammer import audit
from tests.support.hammering import Crowd, launching, people
from tests.support.postgres import Postgres
from tests.support.stage import paths_in

MOMENTS = ("before the mark", "after the mark")
REPORTS = 3


def crashed(where: GatewayPaths, dies: str, **settings: Any) -> None:
    rng = random.Random(6)  # noqa: S311  # places, not secrets
    ledger = Ledger.open(where)
    [person] = people(ledger, 1, 1, rng, **settings)
    ledger.close()
    with launching() as launcher:
        port = launcher.listen()
        crowd = Crowd([person], [port], rng)
        for number in range(1, REPORTS + 1):
            report = person.next("device 0")
            crowd.told.append(report)
            pid = launcher.serve(where, port, dies)
            assert crowd.send(report, port) == 0
            assert launcher.wait(pid) == -signal.SIGKILL
            written = audit(where, crowd.told)
            assert (written.entries, written.acknowledged) == (number, number - 1)
            pid = launcher.serve(where, port)
            for _ in range(2):
                assert crowd.send(report, port) == 200
            assert launcher.end(pid, signal.SIGKILL) == -signal.SIGKILL
            crowd.close()  # its connection led there
            assert report.answers[0] == report.answers[1]
            told = audit(where, crowd.told)
            assert told == written._replace(
                acknowledged=number, answers=2 * number, sent=3 * number
            )


@pytest.mark.parametrize("dies", MOMENTS)
def test_who_resends_after_a_crash_gets_the_release_that_was_written_on_sqlite(
    tmp_path: Path, dies: str
) -> None:
    crashed(paths_in(tmp_path), dies)


@pytest.mark.parametrize("dies", MOMENTS)
def test_who_resends_after_a_crash_gets_the_release_that_was_written_on_postgresql(
    tmp_path: Path, cluster: Postgres, dies: str
) -> None:
    crashed(paths_in(tmp_path, cluster.fresh(dies.replace(" ", "_"))), dies)


def test_what_was_answered_after_a_crash_is_below_the_mark(tmp_path: Path) -> None:
    """Or else a backup from before it would be taken for the newest ledger."""
    where = paths_in(tmp_path)
    ledger = Ledger.open(where)
    rng = random.Random(7)  # noqa: S311  # places, not secrets
    [person] = people(ledger, 1, 1, rng)
    with launching() as launcher:
        port = launcher.listen()
        crowd = Crowd([person], [port], rng)
        report = person.next("device 0")
        pid = launcher.serve(where, port, "before the mark")
        assert crowd.send(report, port) == 0
        assert launcher.wait(pid) == -signal.SIGKILL
        pid = launcher.serve(where, port)
        assert crowd.send(report, port) == 200
        assert report.answers[0]["cost"] > 0.0
        crowd.close()
        assert launcher.end(pid) == 0
    found = maintenance.read_status(ledger)
    ledger.close()
    assert found.mark == found.last == 1
