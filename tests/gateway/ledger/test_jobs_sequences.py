"""No sequence of reports, jobs, policies and prunings passes a budget, of many that are tried."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import hereish
from hereish.core.windows import Day
from hereish.errors import StateError
from hereish.gateway.admin import accounts, maintenance
from hereish.gateway.ledger import job_reservations, user_state
from hereish.gateway.ledger.budget_status import JobCharges
from hereish.gateway.ledger.jobs import JobError, LedgerJob, cancel_job
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.traces.job_budget import UserWindow, WindowCost
from tests.support.ledgers import DAY_S, NOON_S, empty_ledger
from tests.support.stage import HELSINKI, member, policy, shown

ZONES = ("UTC", "UTC", "UTC", "Asia/Tokyo", "America/New_York")
TOTAL = policy().build().bound.total
SEQUENCES, STEPS = 24, 40
ACTIONS = {
    "report": 0.4,
    "reserve": 0.25,
    "settle": 0.22,
    "cancel": 0.03,
    "policy": 0.08,
    "prune": 0.02,
}


class Payment(NamedTuple):
    """Something that was released and paid for: by a report at a time, or by a job in a window."""

    zone: str  # of the policy that paid
    first_s: float
    last_s: float
    cost: float


def window_of(zone: str, at_s: float) -> tuple[int, float, float]:
    day, times = Day(zone), np.array([at_s])
    number = day.index(times)
    assert number is not None
    return int(number[0]), float(day.start_s(times)[0]), float(day.end_s(times)[0])


class Sequence:
    """One person who reports, whose traces are sanitised by jobs, and whose policy changes."""

    settings: ClassVar[dict[str, Any]] = {"mechanism": "independent"}

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self.ledger, self.rng, self.name = ledger, np.random.default_rng(seed), f"person {seed}"
        self.token = shown(member(ledger, self.name, reports=4, **self.settings))
        self.paid: list[Payment] = []
        self.reported: set[float] = set()
        self.jobs = 0
        self.running: dict[str, tuple[LedgerJob, str, dict[float, float]]] = {}
        # Each later than the ones before, whose entries may have been pruned.
        self.now_s = NOON_S - (SEQUENCES - seed) * 60 * DAY_S

    def run(self) -> None:
        names, weights = list(ACTIONS), list(ACTIONS.values())
        for action in self.rng.choice(names, STEPS, p=np.array(weights) / sum(weights)):
            self.now_s += self.rng.choice([0.0, 0.1, 0.5]) * DAY_S
            getattr(self, action)()
            self.check()

    def report(self) -> None:
        first_s = round(self.now_s + self.rng.uniform(-0.7, 0.3) * DAY_S)
        for at_s in (first_s + 60.0 * i for i in range(3)):
            [answer] = self.ledger.report(self.token, [Fix(*HELSINKI, at_s)]).answers
            if answer.own and answer.release is not None and at_s not in self.reported:
                self.reported.add(at_s)  # sent again it is the same release
                zone = accounts.describe_user(self.ledger, self.name).policy.time_zone
                self.paid.append(Payment(zone, at_s, at_s, answer.release.cost))

    def reserve(self) -> None:
        present = accounts.describe_user(self.ledger, self.name)
        zone = (present.waiting or present.policy).time_zone
        if self.rng.random() < 0.3:
            zone = str(self.rng.choice(ZONES))
        privacy = hereish.Privacy(self.rng.choice([0.3, 0.7, 1.0]) * np.log(10), 100)
        m = hereish.fixed_utility(privacy, 10_000.0, window=Day(zone))
        self.jobs += 1
        job = LedgerJob.begin(self.ledger, f"{self.name}, {self.jobs}", m)
        days = self.rng.choice([-2, -1, 0, 0, 1], 2)
        times_s = {window_of(zone, at_s)[0]: at_s for at_s in self.now_s + days * DAY_S}
        asked = [UserWindow(self.name, window, at_s) for window, at_s in times_s.items()]
        granted = job.reserve(asked).tolist()
        held = {one.at_s: eps for one, eps in zip(asked, granted, strict=True) if eps > 0.0}
        self.running[job.name] = (job, zone, held)

    def settle(self) -> None:
        if not self.running:
            return
        job, zone, held = self.running.pop(str(self.rng.choice(sorted(self.running))))
        share = self.rng.choice([0.0, 0.5, 1.0, 1.0])
        windows = {at_s: window_of(zone, at_s) for at_s in held}
        costs = [WindowCost(self.name, windows[at_s][0], share * eps) for at_s, eps in held.items()]
        with contextlib.suppress(JobError):  # it has got nothing
            job.settle(costs)
            spans = [window[1:] for window in windows.values()]
            for (first_s, end_s), cost in zip(spans, costs, strict=True):
                self.paid.append(Payment(zone, first_s, end_s - 1e-3, cost.cost))

    def cancel(self) -> None:
        if not self.running:
            return
        name = str(self.rng.choice(sorted(self.running)))
        job, _, _ = self.running.pop(name)
        cancel_job(self.ledger, name)
        with pytest.raises(JobError, match="cancelled"):
            job.settle([])

    def policy(self) -> None:
        zone, reports = str(self.rng.choice(ZONES)), int(self.rng.integers(2, 6))
        new = policy(reports=reports, time_zone=zone, **self.settings)
        accounts.set_policy(self.ledger, self.name, new)

    def prune(self) -> None:
        maintenance.prune(self.ledger, self.now_s - DAY_S)

    def check(self) -> None:
        """Every window of every policy that has paid from it, whoever else has paid in its time."""
        windows = {(p.zone, window_of(p.zone, p.first_s)[1:]) for p in self.paid if p.cost > 0.0}
        for _, (begin_s, end_s) in windows:
            inside = [p.cost for p in self.paid if p.last_s >= begin_s and p.first_s < end_s]
            assert sum(inside) <= TOTAL * (1.0 + 1e-12), "more than a budget"


def try_sequences(folder: Path) -> tuple[int, int]:
    """How many reports and how many jobs were paid for."""
    reports = jobs = 0
    with empty_ledger(folder) as ledger:
        for seed in range(SEQUENCES):
            tried = Sequence(ledger, seed)
            tried.run()
            paid = [payment for payment in tried.paid if payment.cost > 0.0]
            reports += sum(payment.first_s == payment.last_s for payment in paid)
            jobs += sum(payment.first_s < payment.last_s for payment in paid)
    return reports, jobs


def test_no_sequence_of_reports_and_jobs_passes_a_budget(tmp_path: Path) -> None:
    reports, jobs = try_sequences(tmp_path)
    assert reports > 2 * SEQUENCES
    assert jobs > 2 * SEQUENCES


# What would be found if something were wrong


def finds_it(folder: Path) -> bool:
    # Found here, or refused by the session, which would pass its budget.
    with pytest.raises((AssertionError, StateError), match=r"more than (a|the) budget"):
        try_sequences(folder)
    return True


def test_reports_that_do_not_see_jobs_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("hereish.gateway.ledger.queries._read_charges", lambda *_: {})
    assert finds_it(tmp_path)


def test_jobs_that_do_not_see_reports_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(job_reservations._Asking, "_reported_in", lambda *_: 0.0)
    assert finds_it(tmp_path)


def test_jobs_that_forget_what_was_pruned_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(ACTIONS, "prune", 0.2)
    monkeypatch.setattr(job_reservations._Asking, "_pruned_s", None, raising=False)
    real = job_reservations._Asking.__init__

    def forgetful(self: Any, *given: Any) -> None:
        real(self, *given)
        self._pruned_s = None

    monkeypatch.setattr(job_reservations._Asking, "__init__", forgetful)
    assert finds_it(tmp_path)


def test_policies_that_begin_beside_a_job_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    paid_s: Any = user_state.UserState.__dict__["_paid_s"].fget

    def without_jobs(state: user_state.UserState) -> float:
        charges, state.charges = state.charges, JobCharges()
        try:
            return float(paid_s(state))
        finally:
            state.charges = charges

    monkeypatch.setattr(user_state.UserState, "_paid_s", property(without_jobs))
    assert finds_it(tmp_path)


def test_reports_from_before_a_policy_are_found(tmp_path: Path, monkeypatch: Any) -> None:
    real = user_state.UserState.may_pay

    def at_any_time(state: user_state.UserState, at_s: float) -> bool:
        may = real(state, at_s)
        before = state.policy_since_s is not None and at_s < state.policy_since_s
        return may or (before and not state.is_closed(at_s))

    monkeypatch.setattr(user_state.UserState, "may_pay", at_any_time)
    assert finds_it(tmp_path)
