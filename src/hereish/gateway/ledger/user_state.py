"""One user's state: the public run, the newest entry, and what a new report adds to them.

Pure: no database, no clock. A user has at most one entry per time, entries are added in the order
of time, and every time has one answer for ever: the entry in force at that time. So a report about
the past is answered with what was released already, and costs nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from hereish.core.noise_first import NoiseFirst
from hereish.core.run import NO_WINDOW
from hereish.core.session import Report, Session
from hereish.core.step import in_window
from hereish.core.types import Kind
from hereish.core.windows import Window
from hereish.errors import BudgetExhaustedError
from hereish.gateway.ledger.models import Fix, LedgerRelease
from hereish.gateway.ledger.policy import StoredPolicy
from hereish.gateway.ledger.run_transfer import adopt_state, transfer_history


class Entry(NamedTuple):
    """What one report added to the ledger. Public."""

    at_s: float
    lat: float | None
    lon: float | None
    kind: Kind  # Kind.NONE: nothing could be released
    cost: float
    accuracy_m: float | None
    eps_test: float
    eps_noise: float
    threshold_m: float | None
    window: int | None
    policy_id: int
    device: str

    def release(self, policy: StoredPolicy) -> LedgerRelease | None:
        """The release of this entry, if it has one."""
        if self.lat is None or self.lon is None or self.accuracy_m is None:
            return None
        m = policy.mechanism
        return LedgerRelease(
            lat=self.lat,
            lon=self.lon,
            at_s=self.at_s,
            kind=self.kind,
            cost=self.cost,
            accuracy_m=self.accuracy_m,
            eps_test=self.eps_test,
            eps_noise=self.eps_noise,
            threshold_m=self.threshold_m,
            window=m.window.covers(self.window),
            noise_first=m.own_decision is NoiseFirst,
            moves_noise=m.moves_noise,
        )


def repeat_release(release: LedgerRelease, at_s: float) -> LedgerRelease:
    """An earlier release as the answer to another report: free and untested."""
    return replace(
        release,
        at_s=at_s,
        kind=Kind.UNTESTED,
        cost=0.0,
        eps_test=0.0,
        eps_noise=0.0,
        threshold_m=None,
    )


class BudgetStatus(NamedTuple):
    """What was spent of a window's budget. Public."""

    spent: float
    total: float
    window: str
    reports: int
    exhausted: bool
    closed: bool  # by a restore: what is left of it will not be spent
    by_jobs: float = 0.0  # of what was spent: by jobs, or reserved for them

    @property
    def remaining(self) -> float:
        return 0.0 if self.closed else self.total - self.spent


class PrimaryDeviceSettings(NamedTuple):
    """Whose reports count: settings of a user, public and independent of any place."""

    primary: str | None = None  # None: all devices count alike
    silence_s: float | None = None  # before others count; None: by the policy


class JobCharges(NamedTuple):
    """What jobs have taken of a user's budgets: spent, or reserved as long as they run. Public."""

    reserved_s: float | None = None  # the end of the latest window that a job has reserved
    by_window: Mapping[int | None, float] = MappingProxyType({})  # of the policy in force

    def extended(self, end_s: float) -> JobCharges:
        """The same when a window that ends then is reserved, too."""
        return self._replace(reserved_s=max(end_s, self.reserved_s or -math.inf))


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
        self._closed_s = closed_s
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

    def _load(self, state: dict[str, Any]) -> None:
        self._session_state = state["session"]
        newest = state["newest"]
        self.newest = Entry(**{**newest, "kind": Kind(newest["kind"])})
        self._last_s = self.newest.at_s
        self.entry_count = state.get("number", 0)
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
            ended = not may_pay or self.budget_at(fix.at_s).exhausted
            if same and ended:
                # While another policy waits, store up to when this was answered: what waits may
                # change. And in a window that nothing was paid from, where another might begin.
                begun = not _is_later(self.policy.mechanism.window, fix.at_s, self._paid_s)
                if not begun or self.next_policy is not None:
                    self._exhausted_until_s, self._exhausted_until_changed = fix.at_s, True
                return None
        entry = None
        if may_pay:
            try:
                at = datetime.fromtimestamp(fix.at_s, UTC)
                with self.session.charged(at, self.charges.by_window.get(window, 0.0)):
                    report = self.session.report((fix.lat, fix.lon), at)  # [L4]
                entry = self._paid_entry(report, fix.at_s, device)
            except BudgetExhaustedError:
                if same:  # jobs have the rest, and may return it: stored up to when
                    self._exhausted_until_s, self._exhausted_until_changed = fix.at_s, True
                    return None
        self.newest = entry or self._empty_entry(fix.at_s, window, device)
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

    def _empty_entry(self, at_s: float, window: int | None, device: str) -> Entry:
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
        empty = math.isnan(float(self.session.run.at_s[0]))
        self._session_state = None if empty else transfer_history(self.session, new.mechanism)
        self._session = None
        self.policy, self.next_policy, self.policy_since_s = new, None, at_s
        self.charges = self.charges._replace(by_window={})  # which were the old policy's
        return True

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
            "newest": self.newest._asdict(),
            "number": self.entry_count,
        }
        if self._exhausted_until_s > self.newest.at_s:
            state["said_s"] = self._exhausted_until_s
        if self._primary_seen_s > -math.inf:
            state["heard"] = (self._devices.primary, self._primary_seen_s)
        return json.dumps(state)

    def budget_at(self, at_s: float) -> BudgetStatus:
        """The budget of the window of this time, by the policy in force."""
        m = self.policy.mechanism
        run = in_window(m, self.session.run, np.array([at_s]))
        window = int(run.window[0])
        closed = self.is_closed(at_s)
        by_jobs = self.charges.by_window.get(None if window == NO_WINDOW else window, 0.0)
        return BudgetStatus(
            spent=float(run.spent[0]) + by_jobs,
            total=m.privacy.eps_per_m,
            window=m.window.covers(None if window == NO_WINDOW else window),
            reports=int(run.reports[0]),
            exhausted=bool(run.ended[0]) or closed,
            closed=closed,
            by_jobs=by_jobs,
        )


def window_number(window: Window, at_s: float) -> int | None:
    """The number of the window of a time; None if there is one for ever."""
    numbers = window.index(np.array([at_s]))
    return None if numbers is None else int(numbers[0])


def _is_later(window: Window, at_s: float, than_s: float) -> bool:
    """Whether a time lies in a later window than another time."""
    if than_s == -math.inf:
        return True
    number, other = window_number(window, at_s), window_number(window, than_s)
    return number is not None and other is not None and number > other
