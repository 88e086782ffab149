"""Crashes and races with a budget that is paced: one release per time, and none that is not paid.

The auditor plans each entry anew from the entries before it, so an entry that was planned with
another history than the ledger's (a lost write, two processes at once) does not pass.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hereish.gateway.ledger.ledger import Ledger
from tests.gateway.ledger.test_faults_audit import ROWS as PAPERS_ROWS
from tests.gateway.ledger.test_faults_audit import TAMPERED as PAPERS_TAMPERED
from tests.gateway.ledger.test_faults_audit import copied
from tests.support.hammer import Unsound, audit
from tests.support.hammering import Crowd, launching, people, publish, status
from tests.support.stage import paths_in

# Negative controls: the auditor rejects these copies of an honest ledger. No budget ends in it.
TAMPERED = {
    **{name: change for name, change in PAPERS_TAMPERED.items() if change[0] != "end"},
    "noise paid with its test": (
        "tested",
        "UPDATE entries SET cost = eps_test + eps_noise WHERE id = :row",
        "cost is not that of its kind",
    ),
    "a guess paid like noise": (
        "easy",
        "UPDATE entries SET cost = eps_noise WHERE id = :row",
        "cost is not that of its kind",
    ),
}
ROWS = PAPERS_ROWS | {
    "tested": "SELECT id FROM entries WHERE kind = 'hard' AND eps_test > 0 ORDER BY id LIMIT 1"
}
PROCESSES, DEVICES, REPORTS, KILLS = 4, 6, 40, 40
# Windows of six hours with a report every eleven minutes: within seconds nobody is asked strictly,
# and hardly any guess would fail.
PACED: dict[str, Any] = {"preset": "whole-day", "slower": 360.0, "ago_s": 60 * 86400.0}


def test_four_processes_and_six_devices_share_one_paced_budget(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    where, rng = paths_in(tmp_path), random.Random(5)  # noqa: S311  # load, not secrets
    ledger = Ledger.open(where)
    persons = people(ledger, 1, DEVICES, rng, **PACED)
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
    publish("four processes, whole-day", crowd, counts, record_property, processes=PROCESSES)
    assert counts.acknowledged == counts.reports == DEVICES * REPORTS
    assert set(crowd.statuses) == {200}
    assert counts.ended == 0, "a paced budget does not end"
    assert counts.fullest > 0.5, "it was really spent"
    for change, (row, statement, words) in TAMPERED.items():
        folder = tmp_path / change
        folder.mkdir()
        tampered = copied(where, folder)
        database = sqlite3.connect(folder / "ledger.db")
        with database:
            [number] = database.execute(ROWS[row]).fetchone()
            assert database.execute(statement, {"row": number}).rowcount == 1
        database.close()
        with pytest.raises(Unsound, match=words):
            audit(tampered, crowd.told)


def test_kills_do_not_pay_a_paced_budget_twice(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    where, rng = paths_in(tmp_path), random.Random(6)  # noqa: S311  # moments, not secrets
    ledger = Ledger.open(where)
    persons = people(ledger, 3, 2, rng, **PACED)
    ledger.close()
    with launching() as launcher:
        port = launcher.listen()
        crowd = Crowd(persons, [port], rng)
        with crowd.sending():
            for i in range(KILLS):
                pid = launcher.serve(where, port)
                if i % 4:  # every fourth may die while it opens the ledger
                    crowd.until_answered(200, 1)
                time.sleep(rng.uniform(0.02, 0.25))
                assert launcher.end(pid, signal.SIGKILL) == -signal.SIGKILL
            pid = launcher.serve(where, port)
        crowd.resend_all(port)
        crowd.close()
        counts = audit(where, crowd.told)
        assert launcher.end(pid) == 0
    publish("kill -9, whole-day", crowd, counts, record_property, kills=KILLS)
    assert crowd.statuses[0] > KILLS / 2, "it was really cut off"
    assert set(crowd.statuses) <= {0, 200, 503}
    assert counts.acknowledged == counts.reports
    assert counts.ended == 0
