"""One user's book: the public run, the newest entry, and what a new report adds to them.

Pure: no database, no clock. A user has at most one entry for each time, entries are made in the
order of time, and every time has one answer for ever: the entry in force at that time. So what is
asked about the past is answered from what was released, and costs nothing.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.run import NO_WINDOW
from hereish.core.session import Report, Session
from hereish.core.step import in_window
from hereish.core.windows import Window
from hereish.errors import BudgetExhaustedError
from hereish.gateway.ledger.models import Fix, Release
from hereish.gateway.ledger.policy import Rules

NOTHING = "none"  # the kind of an entry that says: nothing could be released


class Entry(NamedTuple):
    """What one report added to the ledger. Public."""

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

    def release(self, rules: Rules) -> Release | None:
        """As it leaves, if something does."""
        if self.lat is None or self.lon is None or self.accuracy_m is None:
            return None
        return Release(
            lat=self.lat,
            lon=self.lon,
            at_s=self.at_s,
            kind=self.kind,  # type: ignore[arg-type]  # one of Kind: it is not NOTHING
            cost=self.cost,
            accuracy_m=self.accuracy_m,
            eps_test=self.eps_test,
            eps_noise=self.eps_noise,
            threshold_m=self.threshold_m,
            window=rules.mechanism.window.covers(self.window),
        )


def again(release: Release, at_s: float) -> Release:
    """An earlier release as the answer to another report: free, and nobody tested it."""
    return replace(
        release,
        at_s=at_s,
        kind="untested",
        cost=0.0,
        eps_test=0.0,
        eps_noise=0.0,
        threshold_m=None,
    )


class Standing(NamedTuple):
    """Where a budget stands at some time. Public."""

    spent: float
    total: float
    window: str
    reports: int
    exhausted: bool
    closed: bool  # by a restore: what is left of it will not be paid out

    @property
    def remaining(self) -> float:
        return 0.0 if self.closed else self.total - self.spent


class Devices(NamedTuple):
    """Whose reports count: settings of a user, public and independent of any place."""

    primary: str | None = None  # None: all devices count alike
    silence_s: float | None = None  # before others count; None: as the policy says


class Book:
    """Opened inside a transaction that holds the user's lock, and written back in it."""

    def __init__(
        self,
        rules: Rules,
        following: Rules | None,
        state: str | None,
        closed_s: float | None,
        devices: Devices = Devices(),  # noqa: B008  # it cannot be changed
    ) -> None:
        self.rules = rules
        self.following = following
        self.number = 0  # of entries so far
        self._closed_s = closed_s
        self._devices = devices
        self._heard_s = self._noted_s = -math.inf  # of the primary device
        self._said_s = -math.inf  # up to here it was said that nothing is left
        self._said_more = False
        self._session: Session | None = None
        self._state: dict[str, Any] | None = None
        self.newest: Entry | None = None
        self._last_s = -math.inf  # of the entries, where a restore has mixed them with another run
        if state is not None:
            told = json.loads(state)
            self._state = told["session"]
            self.newest = Entry(**told["newest"])
            self._last_s = self.newest.at_s
            self.number = told.get("number", 0)
            self._said_s = told.get("said_s", self._last_s)
            heard, heard_s = told.get("heard", (None, None))
            if heard is not None and heard == devices.primary:
                self._heard_s = self._noted_s = heard_s

    def knows(self, newest_at_s: float) -> bool:
        """Whether the newest entry of the ledger is of this run, or of a window that was closed."""
        known = newest_at_s <= max(self._last_s, self._closed_s or -math.inf)
        self._last_s = max(self._last_s, newest_at_s)
        return known

    def is_answered_by_the_newest(self, at_s: float) -> bool:
        """Whether the newest entry is the one in force at this time."""
        return self.newest is not None and self.newest.at_s == self._last_s <= at_s

    @property
    def session(self) -> Session:
        if self._session is None:
            m = self.rules.mechanism
            self._session = (
                m.session() if self._state is None else Session.from_state(m, self._state)
            )
        return self._session

    def is_due(self, at_s: float) -> bool:
        """Whether a report for this time may add an entry: times are public."""
        last_s = max(self._last_s, self._said_s)
        return at_s > last_s and at_s >= last_s + self.rules.policy.interval_s  # [L3]

    @property
    def silence_s(self) -> float:
        """How long the primary device must have been silent before others count."""
        own = self._devices.silence_s
        return self.rules.policy.silence_s if own is None else own

    def counts(self, device: str, at_s: float, now_s: float) -> bool:
        """Whether a due report of this device may add an entry: by settings and times alone."""
        if self._devices.primary in (None, device):
            return True
        at_s = min(at_s, now_s)  # a clock that is ahead wins nothing
        silent = self.silence_s == 0.0 or at_s >= self._heard_s + self.silence_s + self._unnoted_s
        return silent and self.is_due(at_s)  # [L9]

    def hear(self, device: str, at_s: float, now_s: float) -> None:
        """Note that the primary device reported: by its own clock, and never ahead of ours."""
        if device == self._devices.primary:
            self._heard_s = max(self._heard_s, min(at_s, now_s))

    @property
    def _unnoted_s(self) -> float:
        """How much later it may have been heard than is written: so free reports stay cheap."""
        return self.silence_s / 8.0

    @property
    def is_worth_writing(self) -> bool:
        """Whether there is something to remember although no entry was added."""
        heard = 0.0 < self._unnoted_s <= self._heard_s - self._noted_s
        return self.newest is not None and (heard or self._said_more)

    def add(self, fix: Fix, device: str) -> Entry | None:
        """The next entry; None if it would only say once more that nothing is left.

        The secret goes into `Session.report` and nowhere else.
        """
        may_pay = self._turn(fix.at_s) and not self._closed(fix.at_s)
        window = _number(self.rules.mechanism.window, fix.at_s)
        newest = self.newest
        if newest is not None and newest.kind == NOTHING:
            same = (newest.window, newest.policy_id) == (window, self.rules.id)
            ended = not may_pay or self.standing(fix.at_s).exhausted
            if same and ended:
                # While another policy waits it is noted up to when this was said: what waits may
                # change. And in a window that nothing was paid from, where another might begin.
                begun = not _later(self.rules.mechanism.window, fix.at_s, self._paid_s)
                if not begun or self.following is not None:
                    self._said_s, self._said_more = fix.at_s, True
                return None
        entry = None
        if may_pay:
            try:
                at = datetime.fromtimestamp(fix.at_s, UTC)
                report = self.session.report((fix.lat, fix.lon), at)  # [L4]
                entry = self._entry(report, fix.at_s, device)
            except BudgetExhaustedError:
                entry = None
        self.newest = entry or self._nothing(fix.at_s, window, device)
        self._last_s = fix.at_s
        self.number += 1
        return self.newest

    def _entry(self, report: Report, at_s: float, device: str) -> Entry:
        m = self.rules.mechanism
        if report.eps_noise > 0.0:
            accuracy_m = m.space.c_noise(0.9) / (report.eps_noise * m.space.claim_factor)
        else:  # a guess that was not tested is as good as what it repeats was
            accuracy_m = self._accuracy_m()
        lat, lon = report.value
        number = int(self.session.run.window[0])
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
            window=None if number == NO_WINDOW else number,
            policy_id=self.rules.id,
            device=device,
        )

    def _accuracy_m(self) -> float:
        known = self.newest.accuracy_m if self.newest is not None else None
        return known if known is not None else math.pi * 6_371_008.8

    def _nothing(self, at_s: float, window: int | None, device: str) -> Entry:
        known = self.newest.accuracy_m if self.newest is not None else None
        return Entry(
            at_s=at_s,
            lat=None,
            lon=None,
            kind=NOTHING,
            cost=0.0,
            accuracy_m=known,  # kept for the guess of a later window
            eps_test=0.0,
            eps_noise=0.0,
            threshold_m=None,
            window=window,
            policy_id=self.rules.id,
            device=device,
        )

    def _turn(self, at_s: float) -> bool:
        """Begin with the policy that waits, if it is time; whether anything may be paid now.

        The old policy begins no window any more. The new one begins with its first window that
        holds no report of the old one, so that no window of either is paid twice. In between
        nothing can be paid; there is no such time unless the change is one of windows or zones.
        """
        new = self.following
        if new is None:
            return True
        if self._paid_s > -math.inf:
            if not _later(self.rules.mechanism.window, at_s, self._paid_s):
                return True
            if not _later(new.mechanism.window, at_s, self._paid_s):  # [L5]
                return False
        empty = math.isnan(float(self.session.run.at_s[0]))
        self._state = None if empty else _carried(self.session, new.mechanism)
        self._session = None
        self.rules, self.following = new, None
        return True

    @property
    def _paid_s(self) -> float:
        """The last time that was paid for, or may have been before a restore; else -inf."""
        released_s = float(self.session.run.at_s[0])
        released_s = -math.inf if math.isnan(released_s) else released_s
        return max(released_s, self._closed_s if self._closed_s is not None else -math.inf)

    def _closed(self, at_s: float) -> bool:
        """Whether this time lies in a window that a restore has closed."""
        closed_s = self._closed_s
        return closed_s is not None and not _later(self.rules.mechanism.window, at_s, closed_s)

    def to_json(self) -> str:
        """For the ledger. Holds what was released, and no secret."""
        if self.newest is None:
            raise RuntimeError("an empty book has no state")
        told: dict[str, Any] = {
            "session": self.session.to_state(),
            "newest": self.newest._asdict(),
            "number": self.number,
        }
        if self._said_s > self.newest.at_s:
            told["said_s"] = self._said_s
        if self._heard_s > -math.inf:
            told["heard"] = (self._devices.primary, self._heard_s)
        return json.dumps(told)

    def standing(self, at_s: float) -> Standing:
        """Where the budget stands at this time, in the policy in force."""
        m = self.rules.mechanism
        run = in_window(m, self.session.run, np.array([at_s]))
        number = int(run.window[0])
        return Standing(
            spent=float(run.spent[0]),
            total=m.privacy.eps_per_m,
            window=m.window.covers(None if number == NO_WINDOW else number),
            reports=int(run.reports[0]),
            exhausted=bool(run.ended[0]) or self._closed(at_s),
            closed=self._closed(at_s),
        )


def _number(window: Window, at_s: float) -> int | None:
    numbers = window.index(np.array([at_s]))
    return None if numbers is None else int(numbers[0])


def _later(window: Window, at_s: float, than_s: float) -> bool:
    """Whether a time lies in a later window than another time."""
    if than_s == -math.inf:
        return True
    number, other = _number(window, at_s), _number(window, than_s)
    return number is not None and other is not None and number > other


def _carried(session: Session, m: PredictiveMechanism) -> dict[str, Any]:
    """The public history of a session, with a fresh budget of another mechanism."""
    empty = m.session().to_state()
    old = session.to_state()["run"]
    kept = ("values", "times_s", "hards", "hard_at_s", "hard_threshold", "tested_at_s")
    return {**empty, "run": {**empty["run"], **{name: old[name] for name in kept}}}
