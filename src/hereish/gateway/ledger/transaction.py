"""One transaction of the ledger: answers the requests of any number of users, and writes them.

Data goes one way: locked accounts and fixes in, entries, runs and rows of the outbox out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, insert, select, update

from hereish.core.types import Kind
from hereish.gateway.ledger.budget_status import BudgetStatus
from hereish.gateway.ledger.entry import Entry, repeat_release
from hereish.gateway.ledger.keys import Keys
from hereish.gateway.ledger.limit_charges import KnownCosts
from hereish.gateway.ledger.models import (
    NO_ENTRY,
    EntryRef,
    Fix,
    LedgerRelease,
    ReportRequest,
)
from hereish.gateway.ledger.policy import Policy
from hereish.gateway.ledger.queries import (
    DeviceIdentity,
    LockedAccount,
    StoredPolicies,
    TokenRefusedError,
    UserRow,
    check_token,
    entry_in_force,
    newest_entry,
    read_known_costs,
)
from hereish.gateway.ledger.tables import destinations, entries, outbox, receipts, users
from hereish.gateway.ledger.user_state import UserState

# A phone's clock may be ahead of ours by this much. Later times are refused.
AHEAD_S = 300.0


class FixAnswer(NamedTuple):
    """The answer to one fix. `own`: the release was made for this very report."""

    release: LedgerRelease | None
    own: bool
    outcome: str  # for the metrics: a kind, or "again", "late", "other device", "ahead"
    full: str | None = None  # which window was full, where nothing could be released


class ReportResponse(NamedTuple):
    """All answers to a request, in the order of its fixes, and what is left of the budget."""

    device: DeviceIdentity
    answers: list[FixAnswer]
    budget: BudgetStatus
    policy: Policy
    entry_count: int  # of the user: what `Ledger.position` takes


_select_receipt = select(receipts.c.entry_at_s, receipts.c.at_s, receipts.c.own).where(
    receipts.c.user_id == bindparam("user"), receipts.c.key == bindparam("key")
)
_add_receipt = insert(receipts)
_update_user = (
    update(users)
    .where(users.c.id == bindparam("user"))
    .values(
        state=bindparam("state"),
        policy_id=bindparam("policy"),
        next_policy_id=bindparam("next_policy"),
        policy_since_s=bindparam("since"),
    )
)
_add_entries = insert(entries).returning(entries.c.id, entries.c.made_s)
# PostgreSQL does both in one statement, which saves a round trip to the server.
_COLUMNS = (*Entry._fields, "user_id", "made_s")
_added = (
    insert(entries)
    .values({name: bindparam(f"new_{name}", type_=entries.c[name].type) for name in _COLUMNS})
    .returning(entries.c.id)
    .cte("added")
)
_add_entry_and_update_user = _update_user.returning(select(_added.c.id).scalar_subquery())
_add_to_outbox = insert(outbox).from_select(
    ["destination_id", "at_s", "lat", "lon", "accuracy_m", "device", "tid"],
    select(
        destinations.c.id,
        bindparam("at", type_=entries.c.at_s.type),
        bindparam("lat", type_=entries.c.lat.type),
        bindparam("lon", type_=entries.c.lon.type),
        bindparam("accuracy", type_=entries.c.accuracy_m.type),
        bindparam("device", type_=entries.c.device.type),
        bindparam("tid", type_=entries.c.device.type),
    ).where(destinations.c.user_id == bindparam("user")),
)


class _Receipt(NamedTuple):
    """Which entry was made for a report that came with an id."""

    entry_at_s: float | None
    at_s: float
    own: bool


class _NewEntry(NamedTuple):
    entry: Entry
    tid: str | None
    made_s: float


class ReportTransaction:
    """Answers requests one after the other; `write` then stores what they added."""

    def __init__(
        self,
        tx: Connection,
        keys: Keys,
        policies: StoredPolicies,
        accounts: Mapping[str, LockedAccount],
    ) -> None:
        self._tx, self._keys, self._policies = tx, keys, policies
        self._accounts = {token_id: locked.account for token_id, locked in accounts.items()}
        self._newest_at_s = {one.account.user.id: one.newest_at_s for one in accounts.values()}
        self._users: dict[int, _UserReports] = {}
        # What is released again may not have been released before: its writer may have died.
        known = (one.newest for one in accounts.values() if one.newest is not None)
        self._newest = max(known, default=NO_ENTRY)

    def answer(self, requests: Iterable[ReportRequest]) -> list[ReportResponse | Exception]:
        """Answer each request, or return that its token is refused."""
        outcomes: list[ReportResponse | Exception] = []
        for request in requests:
            try:
                outcomes.append(self._answer(request))
            except TokenRefusedError as refused:
                outcomes.append(refused)
        return outcomes

    def _answer(self, request: ReportRequest) -> ReportResponse:
        account = check_token(self._accounts.get(request.token.id), request.token)
        device = account.identity
        reports = self._users.get(device.user_id) or self._load(account.user)
        now_s = time.time() if request.now_s is None else request.now_s
        fixes = [_round_to_clock(fix) for fix in request.fixes]
        answers: dict[int, FixAnswer] = {}
        for i in sorted(range(len(fixes)), key=lambda i: fixes[i].at_s):
            answers[i] = reports.answer(fixes[i], device.device, request, now_s)
        # Of the newest fix's window, unless its time is refused.
        budget_s = max((fix.at_s for fix in fixes), default=now_s)
        if budget_s > now_s + AHEAD_S:
            budget_s = now_s
        state = reports.state
        return ReportResponse(
            device,
            [answers[i] for i in range(len(fixes))],
            state.budget_at(budget_s),
            state.policy.settings,
            state.entry_count,
        )

    def _load(self, user: UserRow) -> _UserReports:
        newest_at_s = self._newest_at_s[user.id]
        state = self._policies.load_state(self._tx, user, newest_at_s)
        if state.newest is not None and state.newest.at_s != newest_at_s:
            # We waited for the lock: the row is newer than the entry that was read with it.
            newest = newest_entry(self._tx, user.id)
            self._newest = self._newest if newest is None else max(self._newest, newest)
        reports = _UserReports(self._tx, self._keys, self._policies, user, state)
        self._users[user.id] = reports
        return reports

    def write(self) -> EntryRef:
        """Write entries, runs and the outbox. The newest entry that may have been released."""
        changed = [one for one in self._users.values() if one.added or one.state.needs_writing]
        rows = [row for reports in changed for row in reports.entry_rows()]
        if len(rows) == len(changed) == 1 and self._tx.dialect.name == "postgresql":
            new = {f"new_{name}": value for name, value in rows[0].items()}
            row = changed[0].user_row() | new
            number = self._tx.execute(_add_entry_and_update_user, row).scalar_one()
            self._newest = max(self._newest, EntryRef(int(number), rows[0]["made_s"]))
        else:
            if rows:
                added = (EntryRef(*row) for row in self._tx.execute(_add_entries, rows))
                self._newest = max(self._newest, *added)
            if changed:
                self._tx.execute(_update_user, [reports.user_row() for reports in changed])
        outgoing = [row for reports in changed for row in reports.outbox_rows()]
        if outgoing:
            self._tx.execute(_add_to_outbox, outgoing)
        return self._newest


class _UserReports:
    """Answers the reports of one user, and keeps what is to be written at the end."""

    def __init__(
        self, tx: Connection, keys: Keys, policies: StoredPolicies, user: UserRow, state: UserState
    ) -> None:
        self.state = state
        self.added: list[_NewEntry] = []
        self._tx, self._keys, self._policies = tx, keys, policies
        self._user_id, self._forwards = user.id, user.forwards
        state.known_costs = self._known_costs

    def _known_costs(self, since_s: float) -> KnownCosts:
        """What the ledger knows, and what is not written yet."""
        known = read_known_costs(self._tx, self._user_id, since_s)
        added = [(one.entry.at_s, one.entry.cost) for one in self.added]
        return known._replace(costs=[*known.costs, *(c for c in added if c[0] >= since_s)])

    def answer(self, fix: Fix, device: str, request: ReportRequest, now_s: float) -> FixAnswer:
        key = None
        if fix.id is not None:
            key = self._keys.report_key(self._user_id, device, fix.id)
            row = self._tx.execute(_select_receipt, {"user": self._user_id, "key": key})
            receipt = row.one_or_none()
            if receipt is not None:
                return self._repeat(_Receipt(*receipt))
        if fix.at_s > now_s + AHEAD_S:
            return FixAnswer(None, own=False, outcome="ahead")
        state = self.state
        due = state.is_due(fix.at_s)
        entry = None
        if due and state.is_counted(device, fix.at_s, now_s):
            entry = state.add(fix, device)
            if entry is None:  # as before: nothing is left
                answer = FixAnswer(None, own=False, outcome=Kind.NONE, full=self._full_window())
            else:
                full = entry.full_window(state.policy)
                answer = FixAnswer(entry.release(state.policy), True, entry.kind, full)
        else:
            answer = self._free_answer(fix, device, request.answers, settled=not due)
        state.note_report(device, fix.at_s, now_s)
        if entry is not None:
            self.added.append(_NewEntry(entry, request.tid, now_s))
            if key is not None:
                receipt_of = {"user_id": self._user_id, "key": key, "made_s": now_s}
                made = _Receipt(entry.at_s, fix.at_s, own=True)
                self._tx.execute(_add_receipt, receipt_of | made._asdict())
        return answer

    def _free_answer(self, fix: Fix, device: str, looked_up: bool, settled: bool) -> FixAnswer:
        """The entry in force at that time: it is public, so it costs nothing to repeat it.

        Until reports that count have come to that time another entry may still be made for it.
        Then the answer is the last release, as the answer for its own time.
        """
        outcome = "again" if self.state.newest_is_in_force(fix.at_s) else "late"
        if not settled:
            outcome = "other device"
        entry = self._in_force(fix.at_s) if looked_up else None  # [L8]
        if entry is None:
            return FixAnswer(None, own=False, outcome=outcome)
        # Whatever its place is: whether it is the same one would reveal the secret to a guesser.
        own = entry.at_s == fix.at_s and entry.device == device
        release = self._release(entry)
        if release is not None and not own:
            release = repeat_release(release, fix.at_s if settled else entry.at_s)
        return FixAnswer(release, own, outcome, self._full_window(entry))

    def _repeat(self, receipt: _Receipt) -> FixAnswer:
        """The answer that a report with this id had before."""
        entry = None if receipt.entry_at_s is None else self._in_force(receipt.entry_at_s)
        if entry is not None and entry.at_s != receipt.entry_at_s:
            entry = None  # it was pruned, and an earlier one is not the same answer
        release = None if entry is None else self._release(entry)
        if release is not None and not receipt.own:
            release = repeat_release(release, receipt.at_s)
        full = None if entry is None else self._full_window(entry)
        return FixAnswer(release, receipt.own, outcome="again", full=full)

    def _in_force(self, at_s: float) -> Entry | None:
        if self.state.newest_is_in_force(at_s):
            return self.state.newest
        for added in reversed(self.added):
            if added.entry.at_s <= at_s:
                return added.entry
        return entry_in_force(self._tx, self._user_id, at_s)

    def _release(self, entry: Entry) -> LedgerRelease | None:
        return entry.release(self._policies.read(self._tx, entry.policy_id))

    def _full_window(self, entry: Entry | None = None) -> str | None:
        """The window that was full when this entry was made, or the newest one."""
        entry = entry or self.state.newest
        if entry is None or entry.kind != Kind.NONE:
            return None
        return entry.full_window(self._policies.read(self._tx, entry.policy_id))

    def entry_rows(self) -> list[dict[str, Any]]:
        return [
            {**added.entry._asdict(), "user_id": self._user_id, "made_s": added.made_s}
            for added in self.added
        ]

    def user_row(self) -> dict[str, Any]:
        next_policy = self.state.next_policy
        return {
            "user": self._user_id,
            "state": self.state.to_json(),
            "policy": self.state.policy.id,
            "next_policy": None if next_policy is None else next_policy.id,
            "since": self.state.policy_since_s,
        }

    def outbox_rows(self) -> list[dict[str, Any]]:
        if not self._forwards:
            return []
        return [
            {
                "user": self._user_id,
                "at": added.entry.at_s,
                "lat": added.entry.lat,
                "lon": added.entry.lon,
                "accuracy": added.entry.accuracy_m,
                "device": added.entry.device,
                "tid": added.tid,
            }
            for added in self.added
            if added.entry.lat is not None
        ]


def _round_to_clock(fix: Fix) -> Fix:
    """Its time as a datetime has it, so that it stays the same through every format."""
    return fix._replace(at_s=datetime.fromtimestamp(fix.at_s, UTC).timestamp())
