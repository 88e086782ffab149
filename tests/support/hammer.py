"""What must hold of a ledger after every fault, and the reports that it is judged by.

`audit` reads the database by itself, without the gateway's own code for reading it, and replays
every user's run from the entries alone.
"""

from __future__ import annotations

import json
import math
import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import create_engine, select
from sqlalchemy.pool import NullPool

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.noise_first import NoiseFirst
from hereish.core.rolling import Rolling
from hereish.core.run import Run
from hereish.core.step import prepare
from hereish.core.types import Kind, PerLane
from hereish.gateway.ledger.policy import Policy
from hereish.gateway.ledger.tables import entries, policies, users
from hereish.gateway.paths import GatewayPaths

# What a release is made of. The rest of an answer says where the budget stands by now.
RELEASE = (
    *("lat", "lon", "at", "kind", "cost"),
    *("eps_test", "eps_noise", "threshold_m", "accuracy_m"),
)


class Unsound(AssertionError):  # noqa: N818  # it says what the ledger is
    """The ledger is not what it must be."""


@dataclass
class Told:
    """One report of a device, how often it was sent, and every answer of 200 that it got."""

    user: str
    device: str
    token: str = field(repr=False)
    lat: float = field(repr=False)
    lon: float = field(repr=False)
    at_s: float
    id: str | None
    sent: int = 0
    answers: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def body(self) -> dict[str, Any]:
        named = {} if self.id is None else {"id": self.id}
        return {"lat": self.lat, "lon": self.lon, "at": self.at_s, **named}


class Counts(NamedTuple):
    """Numbers of an audit that found nothing wrong."""

    reports: int
    sent: int
    acknowledged: int  # reports with an answer
    answers: int
    entries: int
    releases: int
    windows: int
    ended: int  # windows whose budget was exhausted
    fullest: float  # the most that was spent, as a share of the budget


class _Row(NamedTuple):
    at_s: float
    lat: float | None
    lon: float | None
    kind: str
    cost: float
    accuracy_m: float | None
    eps_test: float
    eps_noise: float
    threshold_m: float | None
    window: int | None
    policy_id: int
    device: str
    full_limit: int | None = None


class _User(NamedTuple):
    id: int
    mechanism: PredictiveMechanism
    state: dict[str, Any] | None
    closed_s: float | None
    rows: list[_Row]  # in the order in which they were written


def audit(where: GatewayPaths, told: Iterable[Told]) -> Counts:
    """Raises Unsound unless the ledger and all answers fit each other and the budgets."""
    told = list(told)
    found = _read(where)
    spent: dict[tuple[str, int | None], list[float]] = defaultdict(list)
    ended = set()
    fullest = 0.0
    for name, user in found.items():
        _replay(name, user)
        _check_limits(name, user.mechanism, [(row.at_s, row.cost) for row in user.rows])
        for row in user.rows:
            spent[name, row.window].append(row.cost)
            if row.kind == Kind.NONE:
                ended.add((name, row.window))
        for (owner, window), costs in spent.items():
            if owner == name:
                budget = user.mechanism.privacy.eps_per_m
                _hold(math.fsum(costs) <= budget, f"{name} spent too much in window {window}")
                fullest = max(fullest, math.fsum(costs) / budget)
    _judge(found, told)
    within_budget(where, told)
    rows = [row for user in found.values() for row in user.rows]
    return Counts(
        reports=len(told),
        sent=sum(report.sent for report in told),
        acknowledged=sum(bool(report.answers) for report in told),
        answers=sum(len(report.answers) for report in told),
        entries=len(rows),
        releases=sum(row.kind != Kind.NONE for row in rows),
        windows=len(spent),
        ended=len(ended),
        fullest=fullest,
    )


def within_budget(where: GatewayPaths, told: Iterable[Told]) -> float:
    """What all answers together cost, whatever the ledger remembers: the most as a share.

    Raises Unsound if that is more than the budget of a window.
    """
    found = _read(where)
    costs: dict[tuple[str, int | None], set[tuple[Any, ...]]] = defaultdict(set)
    paid_by: dict[str, set[tuple[Any, ...]]] = defaultdict(set)
    for report in told:
        window = _number(found[report.user].mechanism, report.at_s)
        paid = {(report.at_s, _release(answer)) for answer in report.answers if answer["cost"]}
        costs[report.user, window] |= paid
        paid_by[report.user] |= paid
    for name, releases in paid_by.items():
        costs_at = [(at_s, release[RELEASE.index("cost")]) for at_s, release in sorted(releases)]
        _check_limits(name, found[name].mechanism, costs_at)
    fullest = 0.0
    for (name, window), releases in costs.items():
        budget = found[name].mechanism.privacy.eps_per_m
        spent = math.fsum(release[RELEASE.index("cost")] for _, release in releases)
        _hold(spent <= budget, f"the answers of {name} cost too much in window {window}")
        fullest = max(fullest, spent / budget)
    return fullest


def _check_limits(name: str, m: PredictiveMechanism, paid: list[tuple[float, float]]) -> None:
    """No window of a limit holds more than its budget, wherever it begins."""
    for limit, total in zip(m.limits, m.bound.limits, strict=True):
        begins, length_s = paid[:1], math.inf
        if isinstance(limit.window, Rolling):
            begins, length_s = paid, limit.window.duration.total_seconds()
        for begin_s, _ in begins:
            inside = (cost for at_s, cost in paid if begin_s <= at_s <= begin_s + length_s)
            _hold(math.fsum(inside) <= total, f"{name} spent too much in {limit.covers()}")


def _hold(right: bool, words: str) -> None:
    if not right:
        raise Unsound(words)


def _read(where: GatewayPaths) -> dict[str, _User]:
    engine = create_engine(where.database, poolclass=NullPool)
    with engine.connect() as tx:
        bodies = {row.id: row.body for row in tx.execute(select(policies))}
        people = tx.execute(select(users)).all()
        columns = [entries.c[name] for name in _Row._fields]
        rows = defaultdict(list)
        for user_id, *row in tx.execute(select(entries.c.user_id, *columns).order_by(entries.c.id)):
            rows[user_id].append(_Row(*row))
    return {
        person.name: _User(
            person.id,
            Policy.from_json(bodies[person.policy_id]).build(),
            None if person.state is None else json.loads(person.state),
            person.closed_s,
            rows[person.id],
        )
        for person in people
    }


def _replay(name: str, user: _User) -> None:
    """Every entry is what the public run before it allows; the run in the end is the user's."""
    m = user.mechanism
    run = m.run(1)
    before_s = -math.inf
    for row in user.rows:
        words = f"{name} at {row.at_s:.6f}"
        _hold(row.at_s > before_s, f"{words}: the entry before is not earlier")
        before_s = row.at_s
        now = np.array([row.at_s])
        _hold(row.window == _number(m, row.at_s), f"{words}: of another window")
        if row.kind == Kind.NONE and _closed(user, row.window):
            _hold(row.cost == 0.0 and row.lat is None, f"{words}: nothing must cost nothing")
            continue  # no run was asked
        plan = prepare(m, run, now)
        if row.kind == Kind.NONE:
            _hold(not plan.fits[0], f"{words}: there was budget left")
            _hold(row.cost == 0.0 and row.lat is None, f"{words}: nothing must cost nothing")
            run = plan.run._replace(ended=np.array([True]))
            continue
        _hold(bool(plan.fits[0]), f"{words}: it does not fit what was spent before it")
        planned = [_alone(x) for x in (plan.eps_test, plan.eps_noise, plan.threshold)]
        _check_cost(m, row, planned, words)
        if row.kind != "hard":
            _hold([row.lat, row.lon] == plan.guess[0].tolist(), f"{words}: not what was guessed")
        run = _after(m, plan.run, row, planned)
    state = user.state
    _hold((state is None) == (not user.rows), f"{name}: a state without entries, or none with")
    if state is None:
        return
    kept = state["session"]["run"]
    for field_name in ("spent", "reports", "easy", "ended", "window", "values", "times_s", "hards"):
        replayed = getattr(run, field_name)[0].tolist()
        if field_name in ("values", "times_s") and not np.isfinite(replayed).all():
            continue  # nothing was ever released
        _hold(replayed == kept[field_name], f"{name}: {field_name} is not what the entries say")
    newest = _Row(**state["newest"])
    _hold(newest == user.rows[-1], f"{name}: the newest entry is not what the entries say")


def _check_cost(m: PredictiveMechanism, row: _Row, planned: list[float], words: str) -> None:
    eps_test, eps_noise, threshold_m = planned
    quanta = row.cost / m.bound.quantum  # exact: the quantum is a power of two
    _hold(quanta == math.floor(quanta) and row.cost > 0.0, f"{words}: not whole quanta")
    _hold((row.eps_test, row.eps_noise) == (eps_test, eps_noise), f"{words}: another plan")
    tested = threshold_m if math.isfinite(threshold_m) else None
    _hold(row.threshold_m == tested, f"{words}: another threshold")
    cost = eps_noise if row.kind == "hard" else 0.0
    if m.own_decision is not NoiseFirst:
        cost += eps_test
    elif row.kind != "hard":
        cost = eps_test
    _hold(row.cost == cost, f"{words}: the cost is not that of its kind")


def _alone(shared: PerLane) -> float:
    return float(np.asarray(shared).reshape(-1)[0])


def _after(m: PredictiveMechanism, run: Run, row: _Row, planned: list[float]) -> Run:
    """The run with this release in front; what was learnt is not in the entries."""

    def pushed(history: Any, newest: Any) -> Any:
        return np.concatenate([np.array([[newest]]), history[:, :-1]], axis=1)

    hard = row.kind == "hard"
    if m.needs_history:
        now, (_, _, threshold) = np.array([row.at_s]), planned
        run = run._replace(tested_at_s=now if threshold < math.inf else run.tested_at_s)
        if hard:
            run = run._replace(hard_at_s=now, hard_threshold=np.array([threshold]))
    return run._replace(
        values=pushed(run.values, (row.lat, row.lon)),
        times_s=pushed(run.times_s, row.at_s),
        hards=pushed(run.hards, hard),
        reports=run.reports + 1,
        easy=run.easy + (not hard),
        spent=run.spent + row.cost,
        limit_spent=run.limit_spent + row.cost,
    )


def _number(m: PredictiveMechanism, at_s: float) -> int | None:
    numbers = m.window.index(np.array([at_s]))
    return None if numbers is None else int(numbers[0])


def _closed(user: _User, window: int | None) -> bool:
    if user.closed_s is None:
        return False
    last = _number(user.mechanism, user.closed_s)
    return window is None or last is None or window <= last


def _judge(found: dict[str, _User], told: list[Told]) -> None:
    """Every answer is what the ledger has for its time, and every entry was asked for."""
    by_time = defaultdict(list)
    for report in told:
        by_time[report.user, report.at_s].append(report)
    for name, user in found.items():
        for row in user.rows:
            asked = any(_is_of(row, report) for report in by_time[name, row.at_s])
            _hold(asked, f"{name} at {row.at_s:.6f}: nobody asked for it")
    times = {name: np.array([row.at_s for row in user.rows]) for name, user in found.items()}
    for report in told:
        user = found[report.user]
        before = int(np.searchsorted(times[report.user], report.at_s, side="right"))
        in_force = user.rows[before - 1] if before else None
        own = in_force is not None and _is_of(in_force, report)
        expected = _expected(report, in_force, own)
        for answer in report.answers:
            _hold(
                _release(answer) == expected,
                f"{report.user} at {report.at_s:.6f}: the answer is not what the ledger has",
            )


def _is_of(row: _Row, report: Told) -> bool:
    """Whether an entry was made for this very report."""
    return row.at_s == report.at_s and row.device == report.device


def _expected(report: Told, row: _Row | None, own: bool) -> tuple[Any, ...]:
    """The release that a report has to be answered with, from the entry in force at its time."""
    if row is None or row.kind == Kind.NONE:
        return (None, None, report.at_s, Kind.NONE, 0.0, 0.0, 0.0, None, None)
    if own:
        return (
            *(row.lat, row.lon, row.at_s, row.kind, row.cost),
            *(row.eps_test, row.eps_noise, row.threshold_m, row.accuracy_m),
        )
    return (row.lat, row.lon, report.at_s, "untested", 0.0, 0.0, 0.0, None, row.accuracy_m)


def _release(answer: dict[str, Any]) -> tuple[Any, ...]:
    at_s = datetime.fromisoformat(answer["at"]).timestamp()
    return tuple(at_s if name == "at" else answer[name] for name in RELEASE)
