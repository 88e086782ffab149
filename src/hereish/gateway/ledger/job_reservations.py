"""One transaction in which a job reserves what is left of some users' windows.

Everything it looks at is public: names, times, policies and what was spent. Proof: ledger.proof.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, bindparam, func, insert, select, update

from hereish.core.fingerprint import fingerprint
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.run import NO_WINDOW
from hereish.core.windows import NoReset
from hereish.gateway.ledger.limit_charges import (
    BucketSum,
    Span,
    buckets_at,
    left_for_window,
    run_sums,
    start_of_reach,
)
from hereish.gateway.ledger.policy import StoredPolicy
from hereish.gateway.ledger.queries import StoredPolicies, UserRow, lock_users, taken
from hereish.gateway.ledger.tables import entries, jobs, ledger, reservations, users
from hereish.gateway.ledger.user_state import UserState
from hereish.traces.job_budget import UserWindow


class Refusal(StrEnum):
    """Why nothing is reserved of a user's window."""

    UNKNOWN = "not a user of the ledger (--add-users adds those that can be)"
    DISABLED = "the user is disabled"
    WINDOWS = "the user's policy has other windows (the job needs its --window and --time-zone)"
    POLICY = "the window is from before the user's policy, or another policy waits to begin"
    CLOSED = "the window was closed when the ledger was restored"
    PRUNED = "what was spent in the window was pruned"
    AHEAD = "the window has not begun yet"
    NOTHING = "nothing is left of the budget"
    LIMIT = "nothing is left of a further budget of the user (hereish user show names them)"
    SETTLED = "the job was paid for without it"


class RunningJob(NamedTuple):
    """A job that reserves."""

    name: str
    mechanism: PredictiveMechanism
    settled: bool  # it has been paid for, and is computed again


class _Key(NamedTuple):
    user_id: int
    policy_id: int
    window: int  # 0: one for ever


def reserve_windows(
    tx: Connection,
    policies: StoredPolicies,
    job: RunningJob,
    windows: Sequence[UserWindow],
    now_s: float,
) -> list[float | Refusal]:
    """What the job may spend in each window: a whole budget of its mechanism, or what is left.

    Whatever it has reserved before stays as it is. The job itself is locked.
    """
    rows = lock_users(tx, {one.user for one in windows})  # [L15]
    ids = [row.id for row in rows.values()]
    newest_at_s = _newest_times(tx, ids)
    states = {
        name: policies.load_state(tx, row, newest_at_s.get(row.id)) for name, row in rows.items()
    }
    asking = _Asking(tx, job, now_s, ids, windows)
    outcomes: list[float | Refusal] = [Refusal.UNKNOWN] * len(windows)
    # In the order of time, in which policies follow each other.
    for i in sorted(range(len(windows)), key=lambda i: windows[i].at_s):
        row = rows.get(windows[i].user)
        if row is not None:
            outcomes[i] = asking.reserve(row, states[row.name], windows[i])
    asking.write()
    return outcomes


class _Asking:
    """Decides about the windows of users that are locked, and keeps what is to be written."""

    def __init__(
        self,
        tx: Connection,
        job: RunningJob,
        now_s: float,
        ids: Sequence[int],
        windows: Sequence[UserWindow],
    ) -> None:
        self._tx, self._job, self._now_s = tx, job, now_s
        self._asked = job.mechanism.privacy.eps_per_m
        self._window = job.mechanism.window
        self._window_text = fingerprint(self._window)
        numbers = [one.window for one in windows]
        span = {"first": min(numbers, default=0), "last": max(numbers, default=0)}
        self._own, self._others = self._read_reservations(ids, span)
        self._reported = _reported_costs(tx, ids, span)
        # After the costs: whoever prunes does not wait for us, and may have done so before them.
        self._pruned_s = tx.execute(select(ledger.c.pruned_s)).scalar()
        self._costs: dict[tuple[int, int], list[tuple[float, float]]] = {}
        self._new: list[dict[str, object]] = []
        self._changed: dict[int, dict[str, object]] = {}  # rows of users, by their ids

    def _read_reservations(
        self, ids: Sequence[int], span: dict[str, int]
    ) -> tuple[dict[tuple[int, int], float], dict[_Key, float]]:
        """What this job has reserved, and what others have taken."""
        own: dict[tuple[int, int], float] = {}
        others: dict[_Key, float] = {}
        r = reservations.c
        query = (
            select(r.user_id, r.policy_id, r.window, r.job, r.reserved, taken)
            .join(jobs, jobs.c.name == r.job)
            .where(r.user_id.in_(ids), r.window.between(span["first"], span["last"]))
        )
        for user_id, policy_id, window, job, reserved, gone in self._tx.execute(query):
            if job == self._job.name:
                own[user_id, window] = reserved
            else:
                key = _Key(user_id, policy_id, window)
                others[key] = others.get(key, 0.0) + gone
        return own, others

    def reserve(self, user: UserRow, state: UserState, one: UserWindow) -> float | Refusal:
        """What is reserved of a window; a policy that waits may begin with it."""
        before = self._own.get((user.id, one.window))
        if user.disabled_s is not None and not self._job.settled:
            return Refusal.DISABLED
        if before is not None:
            return before
        if self._job.settled:
            return Refusal.SETTLED
        start_s, end_s = self._bounds(one.at_s)
        refusal = self._refusal(state, start_s)
        if refusal is not None:
            return refusal
        bound = state.policy.mechanism.bound
        key = _Key(user.id, state.policy.id, one.window)
        gone = self._reported_in(state, key) + self._others.get(key, 0.0)
        granted = float(bound.quantised(min(self._asked, bound.total - gone)))  # [L16]
        if not granted > 0.0:
            return Refusal.NOTHING
        left = self._left_by_limits(user, state, Span(start_s, end_s, granted))
        if isinstance(left, Refusal):
            return left
        granted = float(bound.quantised(min(granted, left)))  # [L22]
        if not granted > 0.0:
            return Refusal.LIMIT
        self._own[user.id, one.window] = granted
        self._new.append({**key._asdict(), "job": self._job.name, "reserved": granted})
        # At once: a policy that waits begins after the windows of this call, too.
        state.charges = state.charges.extended(Span(start_s, end_s, granted))
        self._changed[user.id] = _changed_row(user, state)
        return granted

    def _left_by_limits(self, user: UserRow, state: UserState, window: Span) -> float | Refusal:
        """What the limits of the user's policy leave of a window."""
        m, left = state.policy.mechanism, math.inf
        if not m.limits:
            return left
        begin = buckets_at(m, [window.first_s])[0].tolist()
        spans = state.charges.spans
        firsts = buckets_at(m, [span.first_s for span in spans])
        lasts = buckets_at(m, [span.last_s for span in spans])
        for number, limit in enumerate(m.limits):
            sums = self._reported_in_buckets(user, state, number, window, begin[number])
            if sums is None:
                return Refusal.PRUNED
            alone = (*sums, *state.carried(limit.window))
            others = [(one.bucket, one.bucket, one.eps) for one in alone]
            taken_ = zip(firsts[:, number], lasts[:, number], spans, strict=True)
            others += [(int(first), int(last), span.eps) for first, last, span in taken_]
            left = min(left, left_for_window(m, number, window, others))
        return left

    def _reported_in_buckets(
        self, user: UserRow, state: UserState, number: int, window: Span, begin: int
    ) -> Sequence[BucketSum] | None:
        """What reports under the policy in force have cost in the buckets of a limit, from the
        first on that counts beside this window's; None if that was pruned.
        """
        m, run = state.policy.mechanism, state.session.run
        if begin >= int(run.limit_bucket[0, number]):  # as far back as the run knows, and it does
            return run_sums(m, run, number)
        since_s = start_of_reach(m.limits[number].window, window.first_s)
        if state.policy_since_s is not None:  # what is older was carried over
            since_s = max(since_s, state.policy_since_s)
        rows = self._costs_of(user, state.policy.id)
        if self._pruned_s is not None and since_s < self._pruned_s:
            return None
        costs = [(at_s, eps) for at_s, eps in rows if at_s >= since_s]
        buckets = buckets_at(m, [at_s for at_s, _ in costs])[:, number].tolist()
        return [BucketSum(*one) for one in zip(buckets, (eps for _, eps in costs), strict=True)]

    def _costs_of(self, user: UserRow, policy_id: int) -> list[tuple[float, float]]:
        """Times and costs of the user's reports under a policy, as far as they are not pruned."""
        key = (user.id, policy_id)
        if key not in self._costs:
            e = entries.c
            query = select(e.at_s, e.cost).where(
                e.user_id == user.id, e.policy_id == policy_id, e.cost > 0.0
            )
            self._costs[key] = [(row.at_s, row.cost) for row in self._tx.execute(query)]
            # As above: whatever was pruned before these were read.
            self._pruned_s = self._tx.execute(select(ledger.c.pruned_s)).scalar()
        return self._costs[key]

    def _bounds(self, at_s: float) -> tuple[float, float]:
        """The first and the last moment of the window of a time; of one for ever, that time."""
        window = self._window
        if isinstance(window, NoReset):
            return at_s, at_s
        times_s = np.array([at_s])
        start_s = float(window.start_s(times_s)[0])  # type: ignore[attr-defined]  # a Day or Every
        end_s = float(window.end_s(times_s)[0])  # type: ignore[attr-defined]  # the same
        return start_s, math.nextafter(end_s, -math.inf)

    def _refusal(self, state: UserState, start_s: float) -> Refusal | None:
        """Why a window that begins then cannot be paid from, whatever is left of it."""
        if not any(map(self._has_windows_of, (state.policy, state.next_policy))):
            return Refusal.WINDOWS
        if start_s > self._now_s:
            return Refusal.AHEAD
        if not state.may_pay(start_s):
            return Refusal.CLOSED if state.is_closed(start_s) else Refusal.POLICY
        if not self._has_windows_of(state.policy):
            return Refusal.WINDOWS
        pruned_s = self._pruned_s
        if state.newest is not None and pruned_s is not None and start_s < pruned_s:
            return Refusal.PRUNED
        return None

    def _has_windows_of(self, policy: StoredPolicy | None) -> bool:
        return policy is not None and fingerprint(policy.mechanism.window) == self._window_text

    def _reported_in(self, state: UserState, key: _Key) -> float:
        """What reports have cost in a window."""
        run = state.session.run
        number = int(run.window[0])
        if number in (NO_WINDOW, key.window):  # the former before the first report, or for ever
            return float(run.spent[0])
        return 0.0 if key.window > number else self._reported.get(key, 0.0)

    def write(self) -> None:
        if self._new:
            self._tx.execute(insert(reservations), self._new)
            self._tx.execute(_update_user, list(self._changed.values()))


def _changed_row(user: UserRow, state: UserState) -> dict[str, object]:
    """What a reservation changes of a user: a policy that waited may have begun with it."""
    waiting = state.next_policy
    switched = state.policy.id != user.policy_id and state.newest is not None
    return {
        "user": user.id,
        "new_state": state.to_json() if switched else user.state,
        "policy": state.policy.id,
        "next_policy": None if waiting is None else waiting.id,
        "since": state.policy_since_s,
        "end": state.charges.reserved_s,
    }


_update_user = (
    update(users)
    .where(users.c.id == bindparam("user"))
    .values(
        state=bindparam("new_state"),
        policy_id=bindparam("policy"),
        next_policy_id=bindparam("next_policy"),
        policy_since_s=bindparam("since"),
        reserved_s=bindparam("end"),
    )
)


def _newest_times(tx: Connection, ids: Sequence[int]) -> dict[int, float]:
    query = select(entries.c.user_id, func.max(entries.c.at_s)).where(entries.c.user_id.in_(ids))
    found = tx.execute(query.group_by(entries.c.user_id))
    return {int(row[0]): float(row[1]) for row in found}


def _reported_costs(tx: Connection, ids: Sequence[int], span: dict[str, int]) -> dict[_Key, float]:
    """What reports have cost, by user, policy and window. Exact: sums of whole quanta."""
    e = entries.c
    query = (
        select(e.user_id, e.policy_id, e.window, func.sum(e.cost))
        .where(e.user_id.in_(ids), e.window.between(span["first"], span["last"]))
        .group_by(e.user_id, e.policy_id, e.window)
    )
    return {_Key(*row[:3]): row[3] for row in tx.execute(query)}
