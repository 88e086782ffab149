"""No sequence of reports, jobs, policies, prunings and restores passes a limit, of many tried."""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from hereish.errors import StateError
from hereish.gateway.admin import accounts, maintenance
from hereish.gateway.ledger import job_reservations, jobs, limit_charges, queries, user_state
from hereish.gateway.ledger.high_water_mark import HighWaterMark
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from tests.gateway.ledger.test_jobs_sequences import ACTIONS, TOTAL, Payment, Sequence
from tests.support.ledgers import DAY_S, NOON_S, back_up_sqlite
from tests.support.stage import HELSINKI, paths_in

SEQUENCES, STEPS = 7, 40
LEVEL = math.log(10)
THREE_DAYS, EVER = 1.6, 12.0  # of a day's budget
LIMITS = (("3d", THREE_DAYS * LEVEL), ("forever", EVER * LEVEL))
WITH_JOBS = {**ACTIONS, "policy": 0.1, "prune": 0.01}
# Many backups, since a restore that loses a policy of another time zone fills the limits.
WITH_RESTORES = {"report": 0.6, "policy": 0.1, "prune": 0.03, "back_up": 0.4, "restore": 0.05}


class Clock:
    """The time by all clocks of the machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = NOON_S
        clock = SimpleNamespace(time=lambda: self.now_s, strftime=time.strftime, gmtime=time.gmtime)
        for module in (accounts, maintenance, jobs):
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(accounts, "forecast_rest", lambda *_: None)  # which takes its time
        monkeypatch.setattr(HighWaterMark, "written_s", lambda _: self.now_s)


class LimitedSequence(Sequence):
    """One person with a day's budget within those of any three days and for ever."""

    settings = {"mechanism": "independent", "limits": LIMITS}  # noqa: RUF012  # as its base has it

    def __init__(self, folder: Path, seed: int, clock: Clock) -> None:
        self.folder, self.clock = folder, clock
        super().__init__(Ledger.open(paths_in(folder)), seed)
        self.now_s = clock.now_s = NOON_S
        self.restores = self.paid_after = 0
        self.back_up()

    def try_actions(self, weights: dict[str, float]) -> None:
        chances = np.array(list(weights.values()))
        for action in self.rng.choice(list(weights), STEPS, p=chances / chances.sum()):
            self.now_s += self.rng.choice([0.0, 0.05, 0.3, 0.6]) * DAY_S
            self.clock.now_s = self.now_s
            getattr(self, action)()
            self.check()
        self.ledger.close()

    def report(self) -> None:
        first_s = round(self.now_s - self.rng.choice([0.0, 0.0, 0.4]) * DAY_S)
        for at_s in (first_s + 60.0 * i for i in range(3)):
            sent = self.ledger.report(self.token, [Fix(*HELSINKI, at_s)], now_s=self.now_s)
            [answer] = sent.answers
            if answer.own and answer.release is not None and at_s not in self.reported:
                self.reported.add(at_s)
                zone = accounts.describe_user(self.ledger, self.name).policy.time_zone
                self.paid.append(Payment(zone, at_s, at_s, answer.release.cost))
                self.paid_after += self.restores > 0

    def back_up(self) -> None:
        back_up_sqlite(self.folder / "ledger.db", self.folder / "backup.db")

    def restore(self) -> None:
        """The ledger as it was backed up; its mark stayed where it was."""
        self.ledger.close()
        for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
            (self.folder / name).unlink(missing_ok=True)
        back_up_sqlite(self.folder / "backup.db", self.folder / "ledger.db")
        restored = Ledger.open(paths_in(self.folder), check=False)
        maintenance.accept_restored(restored)
        restored.close()
        self.ledger = Ledger.open(paths_in(self.folder))
        self.running.clear()
        self.restores += 1

    def check(self) -> None:
        super().check()
        paid = [p for p in self.paid if p.cost > 0.0]
        for edge in paid:
            # Any three days that begin with something: what a job paid may be anywhere in its day.
            low_s, high_s = edge.last_s, edge.last_s + 3 * DAY_S
            inside = [p.cost for p in paid if p.last_s >= low_s and p.first_s <= high_s]
            assert sum(inside) <= THREE_DAYS * TOTAL * (1.0 + 1e-9), "more than a budget"
        assert sum(p.cost for p in paid) <= EVER * TOTAL * (1.0 + 1e-9), "more than a budget"


class Tally(NamedTuple):
    """What was tried."""

    reports: int
    paid_jobs: int
    after_restores: int
    restores: int


def try_sequences(
    folder: Path, monkeypatch: pytest.MonkeyPatch, weights: dict[str, float]
) -> Tally:
    """How many reports and jobs were paid for, how many of them after a restore."""
    tally = np.zeros(4, dtype=int)
    clock = Clock(monkeypatch)
    for seed in range(SEQUENCES):
        home = folder / str(seed)
        home.mkdir()
        tried = LimitedSequence(home, seed, clock)
        tried.try_actions(weights)
        paid = [payment for payment in tried.paid if payment.cost > 0.0]
        reports = sum(payment.first_s == payment.last_s for payment in paid)
        tally += [reports, len(paid) - reports, tried.paid_after, tried.restores]
    return Tally(*tally.tolist())


def test_no_sequence_with_jobs_passes_a_limit(tmp_path: Path, monkeypatch: Any) -> None:
    tally = try_sequences(tmp_path, monkeypatch, WITH_JOBS)
    assert tally.reports > 4 * SEQUENCES
    assert tally.paid_jobs > SEQUENCES


def test_no_sequence_with_restores_passes_a_limit(tmp_path: Path, monkeypatch: Any) -> None:
    tally = try_sequences(tmp_path, monkeypatch, WITH_RESTORES)
    assert tally.restores > SEQUENCES
    assert tally.after_restores > SEQUENCES // 2


# What would be found if something were wrong


def finds_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, weights: dict[str, float] = WITH_JOBS
) -> bool:
    with pytest.raises((AssertionError, StateError), match=r"more than (a|the) budget"):
        try_sequences(folder, monkeypatch, weights)
    return True


def test_reports_that_do_not_see_jobs_in_limits_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(queries, "read_spans", lambda *_: ())
    assert finds_it(tmp_path, monkeypatch)


def test_jobs_that_ask_no_limit_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    left = "_left_by_limits"
    monkeypatch.setattr(job_reservations._Asking, left, lambda *_: math.inf)
    assert finds_it(tmp_path, monkeypatch)


def test_jobs_that_count_too_few_reports_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    reported = "_reported_in_buckets"
    monkeypatch.setattr(job_reservations._Asking, reported, lambda *_: [])
    assert finds_it(tmp_path, monkeypatch)


def test_policies_that_forget_what_was_spent_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(user_state, "carry_over", lambda *_: {})
    assert finds_it(tmp_path, monkeypatch)


def test_restores_that_charge_nothing_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(user_state.UserState, "charge_unseen", lambda *_: None)
    assert finds_it(tmp_path, monkeypatch, WITH_RESTORES)


def test_a_limit_that_forgets_a_bucket_too_early_is_found(tmp_path: Path, monkeypatch: Any) -> None:
    real = limit_charges.reach
    monkeypatch.setattr(limit_charges, "reach", lambda window: max(0, real(window) - 9))
    assert finds_it(tmp_path, monkeypatch)
