"""One user's state: the public run, the newest entry, and what a new report adds to them.

Pure: no database, no clock. A user has at most one entry per time, entries are added in the order
of time, and every time has one answer for ever: the entry in force at that time. So a report about
the past is answered with what was released already, and costs nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.run import NO_WINDOW, Run
from hereish.core.session import Report, Session
from hereish.core.step import in_window
from hereish.core.types import Floats, Kind
from hereish.core.windows import Window
from hereish.errors import BudgetExhaustedError
from hereish.gateway.ledger.budget_status import (
    BudgetStatus,
    JobCharges,
    LimitStatus,
    SecondStatus,
)
from hereish.gateway.ledger.entry import Entry, window_number
from hereish.gateway.ledger.limit_charges import (
    BucketSum,
    Carried,
    KnownCosts,
    all_full,
    buckets_at,
    carry_over,
    joined,
    key_of,
    spent_beside,
    still_counting,
    unseen,
    whole_totals,
)
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.policy import StoredPolicy
from hereish.gateway.ledger.run_transfer import adopt_state, transfer_history


class PrimaryDeviceSettings(NamedTuple):
    """Whose reports count: settings of a user, public and independent of any place."""

    primary: str | None = None  # None: all devices count alike
    silence_s: float | None = None  # before others count; None: by the policy


def _nothing_known(since_s: float) -> KnownCosts:
    """Until the ledger says what it knows."""
    return KnownCosts((), math.inf)


class UserState:
    """Loaded inside a transaction that holds the user's lock, and written back in it."""

    def __init__(
        self,
        policy: StoredPolicy,
        next_policy: StoredPolicy | None,
        state: str | None,
        closed_s: float | None,
        devices: PrimaryDeviceSettings = PrimaryDeviceSettings(),  # noqa: B008  # immutable
        charges: JobCharges = JobCharges(),  # noqa: B008  # immutable
        policy_since_s: float | None = None,
    ) -> None:
        self.policy = policy
        self.next_policy = next_policy
        self.policy_since_s = policy_since_s
        self.charges = charges
        self.entry_count = 0
        # What reports have cost before: asked for where a policy begins that has other limits.
        self.known_costs: Callable[[float], KnownCosts] = _nothing_known
        self._closed_s = closed_s
        self._carried: Carried = {}
        self._devices = devices
        # When the primary device last reported, and what the ledger has stored of that.
        self._primary_seen_s = self._primary_seen_stored_s = -math.inf
        self._exhausted_until_s = -math.inf  # up to here the answer was that nothing is left
        self._exhausted_until_changed = False
        self._session: Session | None = None
        self._session_state: dict[str, Any] | None = None
        self.newest: Entry | None = None
        self._last_s = -math.inf  # of the entries, where a restore has mixed them with another run
        if state is not None:
            self._load(json.loads(state))
        elif closed_s is not None:  # what was spent before the restore is not known
            self._carried = all_full(policy.mechanism, closed_s)

    def _load(self, state: dict[str, Any]) -> None:
        self._session_state = state["session"]
        newest = state["newest"]
        self.newest = Entry(**{**newest, "kind": Kind(newest["kind"])})
        self._last_s = self.newest.at_s
        self.entry_count = state.get("number", 0)
        carried = state.get("limits", {})
        self._carried = {key: [BucketSum(*one) for one in sums] for key, sums in carried.items()}
        self._exhausted_until_s = state.get("said_s", self._last_s)
        primary, seen_s = state.get("heard", (None, None))
        if primary is not None and primary == self._devices.primary:
            self._primary_seen_s = self._primary_seen_stored_s = seen_s

    def includes_newest(self, newest_at_s: float) -> bool:
        """Whether the newest entry of the ledger is of this run, or of a window that was closed."""
        included = newest_at_s <= max(self._last_s, self._closed_s or -math.inf)
        self._last_s = max(self._last_s, newest_at_s)
        return included

    def newest_is_in_force(self, at_s: float) -> bool:
        """Whether the newest entry is the one in force at this time."""
        return self.newest is not None and self.newest.at_s == self._last_s <= at_s

    @property
    def has_limits(self) -> bool:
        """Whether the policy in force, or the one that waits, has windows beside its first."""
        policies = (self.policy, self.next_policy)
        return any(one is not None and one.mechanism.limits for one in policies)

    @property
    def session(self) -> Session:
        if self._session is None:
            m, state = self.policy.mechanism, self._session_state
            self._session = (
                m.session() if state is None else Session.from_state(m, adopt_state(state, m))
            )
        return self._session

    def is_due(self, at_s: float) -> bool:
        """Whether a report for this time may add an entry: times are public."""
        last_s = max(self._last_s, self._exhausted_until_s)
        return at_s > last_s and at_s >= last_s + self.policy.settings.interval_s  # [L3]

    @property
    def silence_s(self) -> float:
        """How long the primary device must have been silent before others count."""
        own = self._devices.silence_s
        return self.policy.settings.silence_s if own is None else own

    def is_counted(self, device: str, at_s: float, now_s: float) -> bool:
        """Whether a due report of this device may add an entry: by settings and times alone."""
        if self._devices.primary in (None, device):
            return True
        at_s = min(at_s, now_s)  # a clock that is ahead gains nothing
        silent_from_s = self._primary_seen_s + self.silence_s + self._unstored_s
        silent = self.silence_s == 0.0 or at_s >= silent_from_s
        return silent and self.is_due(at_s)  # [L9]

    def note_report(self, device: str, at_s: float, now_s: float) -> None:
        """Note that the primary device reported: by its own clock, and never ahead of ours."""
        if device == self._devices.primary:
            self._primary_seen_s = max(self._primary_seen_s, min(at_s, now_s))

    @property
    def _unstored_s(self) -> float:
        """How much later it may have reported than is stored: this keeps free reports cheap."""
        return self.silence_s / 8.0

    @property
    def needs_writing(self) -> bool:
        """Whether there is something to store although no entry was added."""
        seen = 0.0 < self._unstored_s <= self._primary_seen_s - self._primary_seen_stored_s
        return self.newest is not None and (seen or self._exhausted_until_changed)

    def add(self, fix: Fix, device: str) -> Entry | None:
        """The next entry; None if it would only repeat that nothing is left.

        The secret goes into `Session.report` and nowhere else.
        """
        may_pay = self.may_pay(fix.at_s)
        window = window_number(self.policy.mechanism.window, fix.at_s)
        newest, same = self.newest, False
        if newest is not None and newest.kind == Kind.NONE:
            same = (newest.window, newest.policy_id) == (window, self.policy.id)
            ended = not may_pay or self._has_ended(fix.at_s)
            if same and ended:
                # While another policy waits, store up to when this was answered: what waits may
                # change. And in a window that nothing was paid from, where another might begin.
                begun = not _is_later(self.policy.mechanism.window, fix.at_s, self._paid_s)
                if not begun or self.next_policy is not None:
                    self._exhausted_until_s, self._exhausted_until_changed = fix.at_s, True
                return None
        entry, full = None, None
        if may_pay:
            at = datetime.fromtimestamp(fix.at_s, UTC)
            by_jobs, beside = self.charges.by_window.get(window, 0.0), self._beside(fix.at_s)
            with self.session.charged(at, by_jobs, beside.tolist()):
                try:
                    report = self.session.report((fix.lat, fix.lon), at)  # [L4]
                    entry = self._paid_entry(report, fix.at_s, device)
                except BudgetExhaustedError:
                    full = self._full_limit()
            if entry is None and same:  # jobs have the rest, and may return it: stored up to when
                self._exhausted_until_s, self._exhausted_until_changed = fix.at_s, True
                return None
        self.newest = entry or self._empty_entry(fix.at_s, window, device, full)
        self._last_s = fix.at_s
        self.entry_count += 1
        return self.newest

    def _paid_entry(self, report: Report, at_s: float, device: str) -> Entry:
        m = self.policy.mechanism
        if report.eps_noise > 0.0:
            accuracy_m = m.space.c_noise(0.9) / (report.eps_noise * m.space.claim_factor)
        else:  # a guess that was not tested is as accurate as what it repeats
            accuracy_m = self._last_accuracy_m()
        lat, lon = report.value
        window = int(self.session.run.window[0])
        return Entry(
            at_s=at_s,
            lat=lat,
            lon=lon,
            kind=report.kind,
            cost=report.cost,
            accuracy_m=accuracy_m,
            eps_test=report.eps_test,
            eps_noise=report.eps_noise,
            threshold_m=report.threshold if math.isfinite(report.threshold) else None,
            window=None if window == NO_WINDOW else window,
            policy_id=self.policy.id,
            device=device,
        )

    def _last_accuracy_m(self) -> float:
        last_m = self.newest.accuracy_m if self.newest is not None else None
        return last_m if last_m is not None else math.pi * 6_371_008.8

    def _full_limit(self) -> int | None:
        """The limit that has least left, just now; None if the first window has no more."""
        left = [budget.remaining for budget in self.session.budgets]
        full = left.index(min(left))
        return full - 1 if full else None

    def _beside(self, at_s: float) -> Floats:
        """What counts as spent of each limit beside the run, and no more than is left of it."""
        m = self.policy.mechanism
        if not m.limits or not (self._carried or self.charges.spans):
            return np.zeros(len(m.limits))
        beside = spent_beside(m, self._carried, self.charges.spans, at_s)
        run = in_window(m, self.session.run, np.array([at_s]))
        return np.asarray(np.minimum(beside, whole_totals(m) - run.limit_spent[0]))

    def _empty_entry(
        self, at_s: float, window: int | None, device: str, full_limit: int | None
    ) -> Entry:
        """The entry that stores that nothing was released."""
        return Entry(
            at_s=at_s,
            lat=None,
            lon=None,
            kind=Kind.NONE,
            cost=0.0,
            # Kept for the guess of a later window.
            accuracy_m=self.newest.accuracy_m if self.newest is not None else None,
            eps_test=0.0,
            eps_noise=0.0,
            threshold_m=None,
            window=window,
            policy_id=self.policy.id,
            device=device,
            full_limit=full_limit,
        )

    def may_pay(self, at_s: float) -> bool:
        """Whether a window at this time may be paid from; begins with a policy that waits.

        Not before the policy in force began: jobs may have begun with it for a later window.
        """
        if not self._switch_policy(at_s) or self.is_closed(at_s):
            return False
        return self.policy_since_s is None or at_s >= self.policy_since_s  # [L12]

    def _switch_policy(self, at_s: float) -> bool:
        """Begin with the policy that waits, if it is time; whether anything may be paid now.

        The old policy begins no further window. The new one begins with its first window that
        holds no report of the old one, so that no window of either is paid twice. In between
        nothing can be paid; there is no such time unless windows or time zones change.
        """
        new = self.next_policy
        if new is None:
            return True
        if self._paid_s > -math.inf:
            if not _is_later(self.policy.mechanism.window, at_s, self._paid_s):
                return True
            if not _is_later(new.mechanism.window, at_s, self._paid_s):  # [L5]
                return False
        self._carried = self._carried_over(new.mechanism, at_s)
        empty = math.isnan(float(self.session.run.at_s[0]))
        self._session_state = None if empty else transfer_history(self.session, new.mechanism)
        self._session = None
        self.policy, self.next_policy, self.policy_since_s = new, None, at_s
        self.charges = self.charges._replace(by_window={})  # which were the old policy's
        return True

    def _carried_over(self, new: PredictiveMechanism, at_s: float) -> Carried:
        """What counts as spent of the limits of a policy that begins now."""
        if self.newest is None:  # no report is known
            return {} if self._closed_s is None else all_full(new, self._closed_s)
        old, run = self.policy.mechanism, self.session.run
        return carry_over(old, run, self._carried, new, at_s, self._known_before)

    def carried(self, window: Window) -> Sequence[BucketSum]:
        """What counts as spent of a limit beside the run and beside jobs."""
        return self._carried.get(key_of(window), ())

    def _known_before(self, since_s: float) -> KnownCosts:
        """What reports have cost; what was lost in a restore is not known."""
        known = self.known_costs(since_s)
        lost = (known.unknown_s, self._closed_s)
        unknown_s = max((s for s in lost if s is not None), default=None)
        reaches = unknown_s is not None and unknown_s >= since_s
        return known._replace(unknown_s=unknown_s if reaches else None)

    def charge_unseen(self, until_s: float, more_lost: bool) -> None:
        """Count what may have been spent of the limits since the newest entry: a restore lost it.

        By reports, and by jobs for windows since then; where jobs may have paid for any window, or
        a policy that is lost for more than the known ones allow, the limits are full.
        """
        m = self.policy.mechanism
        if not m.limits or self.newest is None:
            return
        run, known_s = self.session.run, self.newest.at_s
        spent = float(in_window(m, run, np.array([known_s])).spent[0])
        parts = [self._carried, unseen(m, m, known_s, spent, until_s)]
        if self.next_policy is not None:  # it may have begun
            parts.append(unseen(self.next_policy.mechanism, m, known_s, 0.0, until_s))
        if more_lost:
            parts.append(all_full(m, until_s))
        [now] = buckets_at(m, [until_s])
        self._carried = still_counting(m, joined(*parts), now.tolist())

    @property
    def _paid_s(self) -> float:
        """The last time that was paid for, by a report or a job, or may have been before a restore.

        Else -inf.
        """
        released_s = float(self.session.run.at_s[0])
        released_s = -math.inf if math.isnan(released_s) else released_s
        others = (self._closed_s, self.charges.reserved_s)
        return max(released_s, *(-math.inf if s is None else s for s in others))

    def is_closed(self, at_s: float) -> bool:
        """Whether this time lies in a window that a restore has closed."""
        closed_s = self._closed_s
        return closed_s is not None and not _is_later(self.policy.mechanism.window, at_s, closed_s)

    def to_json(self) -> str:
        """For the ledger. Holds what was released, and no secret."""
        if self.newest is None:
            raise RuntimeError("a user without entries has no state to store")
        state: dict[str, Any] = {
            "session": self.session.to_state(),
            "newest": self.newest.to_plain(),
            "number": self.entry_count,
        }
        if self._carried:  # all of it: a job may go back to when the policy began
            state["limits"] = self._carried
        if self._exhausted_until_s > self.newest.at_s:
            state["said_s"] = self._exhausted_until_s
        if self._primary_seen_s > -math.inf:
            state["heard"] = (self._devices.primary, self._primary_seen_s)
        return json.dumps(state)

    def _has_ended(self, at_s: float) -> bool:
        """Whether the run has said that nothing is left, and nothing has begun anew since."""
        m = self.policy.mechanism
        return bool(in_window(m, self.session.run, np.array([at_s])).ended[0])

    def budget_at(self, at_s: float) -> BudgetStatus:
        """The budget of the window of this time, by the policy in force."""
        m = self.policy.mechanism
        run = in_window(m, self.session.run, np.array([at_s]))
        window = int(run.window[0])
        closed = self.is_closed(at_s)
        by_jobs = self.charges.by_window.get(None if window == NO_WINDOW else window, 0.0)
        limits = self._limits_at(run, at_s)
        full = any(limit.is_full for limit in limits)
        return BudgetStatus(
            spent=float(run.spent[0]) + by_jobs,
            total=m.privacy.eps_per_m,
            window=m.window.covers(None if window == NO_WINDOW else window),
            reports=int(run.reports[0]),
            exhausted=bool(run.ended[0]) or closed or full,
            closed=closed,
            by_jobs=by_jobs,
            limits=limits,
        )

    def second_promise_at(self, at_s: float) -> SecondStatus | None:
        """What its reports lose together, with a small delta; None where none is stated.

        Apart from `budget_at`, which every report asks for: this is computed.
        """
        m = self.policy.mechanism
        run = in_window(m, self.session.run, np.array([at_s]))
        return SecondStatus.of(m, run, self.budget_at(at_s))

    def _limits_at(self, run: Run, at_s: float) -> tuple[LimitStatus, ...]:
        m = self.policy.mechanism
        beside = self._beside(at_s) if m.limits else ()
        return tuple(
            LimitStatus(
                window=limit.covers(window_number(limit.window, at_s)),
                level=limit.level or 0.0,
                spent=float(run.limit_spent[0, number] + by_jobs),
                total=m.bound.limits[number],
                by_jobs=float(by_jobs),
            )
            for number, (limit, by_jobs) in enumerate(zip(m.limits, beside, strict=True))
        )


def _is_later(window: Window, at_s: float, than_s: float) -> bool:
    """Whether a time lies in a later window than another time."""
    if than_s == -math.inf:
        return True
    number, other = window_number(window, at_s), window_number(window, than_s)
    return number is not None and other is not None and number > other
