"""Crashes and races with three nested windows: a minute's, any three minutes' and all time's.

The auditor replays every entry, and sums what was spent in every window of a limit that begins
with a report: of the entries, and of the answers.
"""

from __future__ import annotations

import json
import math
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hereish.gateway.ledger.ledger import Ledger
from tests.gateway.ledger.test_faults_audit import copied
from tests.gateway.ledger.test_faults_crash import crashed
from tests.support.hammer import Unsound, audit, within_budget
from tests.support.hammering import Crowd, launching, people, publish, status
from tests.support.stage import paths_in

LEVEL = math.log(10)
NESTED: dict[str, Any] = {"limits": (("3min", 2.3 * LEVEL), ("forever", 4.1 * LEVEL))}
# Windows of six hours, and a report every eleven minutes.
PACED: dict[str, Any] = {
    "preset": "whole-day",
    "slower": 360.0,
    "ago_s": 60 * 86400.0,
    "limits": (("18h", 2.3 * LEVEL), ("forever", 400.0 * LEVEL)),
}
PROCESSES, DEVICES, REPORTS, KILLS = 3, 5, 36, 10


@pytest.mark.parametrize("dies", ["before the mark"])
def test_who_resends_after_a_crash_gets_the_release_that_was_written(
    tmp_path: Path, dies: str
) -> None:
    crashed(paths_in(tmp_path), dies, **NESTED)


def test_processes_that_race_pass_no_limit(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    where, rng = paths_in(tmp_path), random.Random(9)  # noqa: S311  # load, not secrets
    ledger = Ledger.open(where)
    persons = people(ledger, 1, DEVICES, rng, **NESTED)
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
    publish("three processes, limits", crowd, counts, record_property, processes=PROCESSES)
    assert counts.acknowledged == counts.reports == DEVICES * REPORTS
    assert set(crowd.statuses) == {200}
    full = {answer["full"] for told in crowd.told for answer in told.answers}
    assert {"the reports of any 0:03:00", "all reports together", None} <= full
    # Negative control: as if the ledger had been bound to a little less than was spent.
    three, ever = NESTED["limits"]
    for name, less in {
        "three minutes": (("3min", 2.0 * LEVEL), ever),
        "all time": (three, ("forever", 3.9 * LEVEL)),
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        tampered = copied(where, folder)
        database = sqlite3.connect(folder / "ledger.db")
        with database:
            change = "UPDATE policies SET body = json_set(body, '$.limits', json(?))"
            database.execute(change, (json.dumps(less),))
        database.close()
        with pytest.raises(Unsound, match="does not fit"):
            audit(tampered, crowd.told)
        with pytest.raises(Unsound, match="spent too much in"):
            within_budget(tampered, crowd.told)


def test_kills_pass_no_limit_of_a_paced_budget(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    where, rng = paths_in(tmp_path), random.Random(10)  # noqa: S311  # moments, not secrets
    ledger = Ledger.open(where)
    persons = people(ledger, 2, 2, rng, **PACED)
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
    publish("kill -9, limits", crowd, counts, record_property, kills=KILLS)
    assert crowd.statuses[0] > KILLS / 2, "it was really cut off"
    assert set(crowd.statuses) <= {0, 200, 503}
    assert counts.acknowledged == counts.reports
    assert counts.ended == 0, "a paced budget does not end"
