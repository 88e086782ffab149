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

from hereish.errors import BudgetExhausted
from hereish.gateway.fixes import Fix, Release
from hereish.gateway.policy import Rules
from hereish.mechanism import PredictiveMechanism
from hereish.run import NO_WINDOW
from hereish.session import Report, Session
from hereish.step import in_window
from hereish.windows import Window

NOTHING = "none"  # the kind of an entry that says: nothing could be released


class Entry(NamedTuple):
    """What one report added to the ledger. Public but for `resend`, which is a keyed hash."""

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
    resend: bytes | None

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

    @property
    def remaining(self) -> float:
        return self.total - self.spent


class Book:
    """Opened inside a transaction that holds the user's lock, and written back in it."""

    def __init__(
        self, rules: Rules, following: Rules | None, state: str | None, closed_s: float | None
    ) -> None:
        self.rules = rules
        self.following = following
        self._closed_s = closed_s
        self._session: Session | None = None
        self._state: dict[str, Any] | None = None
        self.newest: Entry | None = None
        if state is not None:
            told = json.loads(state)
            self._state = told["session"]
            resend = told["newest"].pop("resend")
            self.newest = Entry(**told["newest"], resend=bytes.fromhex(resend))

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
        if self.newest is None:
            return True
        last_s = self.newest.at_s
        return at_s > last_s and at_s >= last_s + self.rules.policy.interval_s

    def add(self, fix: Fix, device: str, resend: bytes) -> Entry | None:
        """The next entry; None if it would only say once more that the budget has ended.

        The secret goes into `Session.report` and nowhere else.
        """
        self._turn(fix.at_s)
        window = _number(self.rules.mechanism.window, fix.at_s)
        newest = self.newest
        ended = newest is not None and newest.kind == NOTHING and newest.window == window
        if ended and newest is not None and newest.policy_id == self.rules.id:
            return None
        if self._closed_s is not None and not _later(
            self.rules.mechanism.window, fix.at_s, self._closed_s
        ):
            entry = self._nothing(fix.at_s, window, device, resend)
        else:
            try:
                at = datetime.fromtimestamp(fix.at_s, UTC)
                report = self.session.report((fix.lat, fix.lon), at)
                entry = self._entry(report, fix.at_s, device, resend)
            except BudgetExhausted:
                entry = self._nothing(fix.at_s, window, device, resend)
        self.newest = entry
        return entry

    def _entry(self, report: Report, at_s: float, device: str, resend: bytes) -> Entry:
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
            resend=resend,
        )

    def _accuracy_m(self) -> float:
        known = self.newest.accuracy_m if self.newest is not None else None
        return known if known is not None else math.pi * 6_371_008.8

    def _nothing(self, at_s: float, window: int | None, device: str, resend: bytes) -> Entry:
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
            resend=resend,
        )

    def _turn(self, at_s: float) -> None:
        """Begin with the policy that waits, where no window of either would be paid twice.

        The old window must be over, and no window of the new policy may hold a report that the
        old one paid for. One budget for ever is never over.
        """
        new = self.following
        if new is None:
            return
        if self.newest is not None:
            paid_s = max(self.newest.at_s, self._closed_s or -math.inf)
            windows = (self.rules.mechanism.window, new.mechanism.window)
            if not all(_later(window, at_s, paid_s) for window in windows):
                return
            self._state = _carried(self.session, new.mechanism, at_s)
            self._session = None
        self.rules, self.following = new, None

    def to_json(self) -> str:
        """For the ledger. Holds what was released, and no secret."""
        if self.newest is None:
            raise RuntimeError("an empty book has no state")
        newest = self.newest._asdict()
        newest["resend"] = (newest["resend"] or b"").hex()
        return json.dumps({"session": self.session.to_state(), "newest": newest})

    def standing(self, at_s: float) -> Standing:
        """Where the budget stands at this time, in the policy in force."""
        m = self.rules.mechanism
        run = in_window(m, self.session.run, np.array([at_s]))
        number = int(run.window[0])
        closed = self._closed_s is not None and not _later(m.window, at_s, self._closed_s)
        return Standing(
            spent=float(run.spent[0]),
            total=m.privacy.eps_per_m,
            window=m.window.covers(None if number == NO_WINDOW else number),
            reports=int(run.reports[0]),
            exhausted=bool(run.ended[0]) or closed,
        )


def _number(window: Window, at_s: float) -> int | None:
    numbers = window.index(np.array([at_s]))
    return None if numbers is None else int(numbers[0])


def _later(window: Window, at_s: float, than_s: float) -> bool:
    """Whether a time lies in a later window than another time."""
    number, other = _number(window, at_s), _number(window, than_s)
    return number is not None and other is not None and number > other


def _carried(session: Session, m: PredictiveMechanism, at_s: float) -> dict[str, Any]:
    """The public history of a session, with a fresh budget of another mechanism."""
    empty = m.session().to_state()
    old = session.to_state()["run"]
    kept = ("values", "times_s", "hards", "hard_at_s", "hard_threshold", "tested_at_s")
    return {**empty, "run": {**empty["run"], **{name: old[name] for name in kept}}}
