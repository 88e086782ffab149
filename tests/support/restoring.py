"""A gateway whose ledger is restored from a backup, and what must hold then."""

from __future__ import annotations

import copy
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.tables import users
from hereish.gateway.paths import GatewayPaths
from tests.support.hammer import Told, audit, within_budget
from tests.support.hammering import WINDOW_S, Crowd, Launcher, Person, launching, people, status
from tests.support.stage import HELSINKI, command, free_port, shown

BEFORE, AFTER = 8, 30  # reports before the backup and after it: together more than a budget pays


@dataclass
class Restoring:
    """One gateway, one device, and all that it was ever told."""

    where: GatewayPaths
    launcher: Launcher
    port: int
    pid: int
    person: Person
    crowd: Crowd

    def spend(self, number: int) -> None:
        """New reports, all answered."""
        for _ in range(number):
            self.crowd.told.append(self.person.next("device 0"))
            assert self.crowd.send(self.crowd.told[-1], self.port) == 200

    def stop(self) -> None:
        assert self.launcher.end(self.pid) == 0
        self.crowd.close()

    def start(self) -> None:
        self.pid = self.launcher.serve(self.where, self.port)
        assert status(self.port) == 200

    def within_budget(self) -> None:
        within_budget(self.where, self.crowd.told)


@contextmanager
def restoring(where: GatewayPaths) -> Iterator[Restoring]:
    rng = random.Random(11)  # noqa: S311  # places, not secrets
    ledger = Ledger.open(where)
    [person] = people(ledger, 1, 1, rng, ago_s=3 * WINDOW_S)
    ledger.close()
    with launching() as launcher:
        port = launcher.listen()
        pid = launcher.serve(where, port)
        assert status(port) == 200
        crowd = Crowd([person], [port], rng)
        try:
            yield Restoring(where, launcher, port, pid, person, crowd)
        finally:
            crowd.close()


def restored(run: Restoring, back_up: Callable[[], object], restore: Callable[[], object]) -> None:
    """Spend, back up, spend more, restore; the gateway may be running or not."""
    run.spend(BEFORE)
    back_up()
    run.spend(AFTER)
    audit(run.where, run.crowd.told)
    restore()


def refuses_to_start(where: GatewayPaths) -> None:
    done = subprocess.run(  # noqa: S603  # our own command
        command(where, free_port()), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "it was restored from a backup" in done.stderr
    assert "hereish ledger accept" in done.stderr


def refuses_while_it_runs(run: Restoring) -> None:
    """What was spent after the backup is asked for again, and then new things."""
    again = [run.crowd.send(report, run.port) for report in run.crowd.told[BEFORE:]]
    fresh = [run.person.next("device 0") for _ in range(AFTER)]
    run.crowd.told += fresh
    told = [run.crowd.send(report, run.port) for report in fresh]
    run.within_budget()
    assert set(told) == {503}
    assert set(again) <= {200, 503}  # what was free may still be asked for
    assert 503 in again
    assert status(run.port) == 503
    run.stop()
    refuses_to_start(run.where)


def goes_on_after_accept(run: Restoring) -> None:
    """The windows that had begun stay closed; a later one is paid from again."""
    hereish = Path(sys.executable).with_name("hereish")
    where = run.where
    done = subprocess.run(  # noqa: S603  # our own command
        [
            *(hereish, "ledger", "accept", "--yes", "--database", where.database),
            *("--key-file", str(where.key_file), "--mark", str(where.mark_file)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    run.start()
    since = [copy.copy(report) for report in run.crowd.told]
    for report in since:
        report.answers = []
    now = run.person.next("device 0")
    now.at_s = round(time.time(), 6)
    since.append(now)
    for report in since:
        assert run.crowd.send(report, run.port) == 200
        assert run.crowd.send(report, run.port) == 200
    assert {answer["kind"] for answer in now.answers} == {"none"}
    run.crowd.told += since
    run.within_budget()  # of before and after together
    audit(where, since)
    run.stop()
    _pays_for_a_later_window(where, now)


def _pays_for_a_later_window(where: GatewayPaths, report: Told) -> None:
    ledger = Ledger.open(where)
    with ledger.database.reading() as tx:
        closed_s: float = tx.execute(select(users.c.closed_s)).scalar_one()
    # In the last window that a phone ahead of our clock could have reported for, and in the next.
    for at_s, paid in ((closed_s, False), (closed_s + WINDOW_S, True)):
        fix = Fix(*HELSINKI, at_s)
        [answer] = ledger.report(shown(report.token), [fix], now_s=at_s).answers
        assert (answer.release is not None) == paid
    ledger.close()
