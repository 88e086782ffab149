"""Answers the fixes of one transaction, and writes what they added to the ledger."""

from __future__ import annotations

import hmac
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, insert, select, update

from hereish.gateway.book import Book, Entry, again
from hereish.gateway.fixes import Fix, Release
from hereish.gateway.keys import Keys
from hereish.gateway.policy import Rules, mechanism_of
from hereish.gateway.tables import destinations, entries, outbox, policies, receipts, users

# A phone's clock may be ahead of ours by this much. What claims to be later is not believed.
AHEAD_S = 300.0


class Device(NamedTuple):
    """Who a token speaks for."""

    user_id: int
    user: str
    device: str
    passphrase: bytes | None
    show_release: bool


class Answer(NamedTuple):
    """What a report is told. `own`: the release was made for this very report."""

    release: Release | None
    own: bool
    outcome: str  # for the metrics: a kind, or "again", "late", "ahead", "none"


policy_row = select(policies.c.version, policies.c.body).where(policies.c.id == bindparam("policy"))
_receipt = select(receipts.c.entry_at_s, receipts.c.at_s, receipts.c.own).where(
    receipts.c.user_id == bindparam("user"), receipts.c.key == bindparam("key")
)
_in_force = (
    select(*(entries.c[name] for name in Entry._fields))
    .where(entries.c.user_id == bindparam("user"), entries.c.at_s <= bindparam("at"))
    .order_by(entries.c.at_s.desc())
    .limit(1)
)
_remember = (
    update(users)
    .where(users.c.id == bindparam("user"))
    .values(
        state=bindparam("state"),
        policy_id=bindparam("policy"),
        next_policy_id=bindparam("following"),
    )
)
_add_entry = insert(entries).returning(entries.c.id)
# PostgreSQL does both in one go, which saves a way to the server and back.
_COLUMNS = (*Entry._fields, "user_id", "made_s")
_added = (
    insert(entries)
    .values({name: bindparam(f"new_{name}", type_=entries.c[name].type) for name in _COLUMNS})
    .returning(entries.c.id)
    .cte("added")
)
_add_and_remember = _remember.returning(select(_added.c.id).scalar_subquery())
_post = insert(outbox).from_select(
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
_add_receipt = insert(receipts)


class Scribe:
    """Answers the fixes of one transaction, and writes what they added."""

    def __init__(
        self,
        tx: Connection,
        book: Book,
        device: Device,
        keys: Keys,
        tid: str | None,
        forwards: int,
        now_s: float,
    ) -> None:
        self._tx, self._book, self._device, self._keys = tx, book, device, keys
        self._tid, self._forwards, self._now_s = tid, forwards, now_s
        self._added: list[Entry] = []

    def answer(self, fix: Fix, looked_up: bool) -> Answer:
        key = None
        if fix.id is not None:
            key = self._keys.named(self._device.user_id, self._device.device, fix.id)
            known = self._tx.execute(
                _receipt, {"user": self._device.user_id, "key": key}
            ).one_or_none()
            if known is not None:
                return self._known(known)
        if fix.at_s > self._now_s + AHEAD_S:
            return Answer(None, own=False, outcome="ahead")
        answer, entry, own = self._fresh_or_free(fix, looked_up or key is not None)
        if key is not None:
            self._tx.execute(
                _add_receipt,
                {
                    "user_id": self._device.user_id,
                    "key": key,
                    "entry_at_s": entry.at_s if entry is not None else None,
                    "at_s": fix.at_s,
                    "own": own,
                    "made_s": self._now_s,
                },
            )
        return answer

    def _fresh_or_free(self, fix: Fix, looked_up: bool) -> tuple[Answer, Entry | None, bool]:
        book = self._book
        if not book.is_due(fix.at_s):
            return self._free(fix, looked_up)
        user, device = self._device.user_id, self._device.device
        resend = self._keys.resend(user, device, fix.at_s, fix.lat, fix.lon)
        entry = book.add(fix, device, resend)
        if entry is None:  # as before: nothing is left
            return Answer(None, own=False, outcome="none"), book.newest, False
        self._added.append(entry)
        release = entry.release(book.rules)
        return Answer(release, own=True, outcome=entry.kind), entry, True

    def _free(self, fix: Fix, looked_up: bool) -> tuple[Answer, Entry | None, bool]:
        """The entry in force at that time: it is public, so it costs nothing to say it again."""
        newest = self._book.newest if self._book.is_answered_by_the_newest(fix.at_s) else None
        outcome = "late" if newest is None else "again"
        if not looked_up:
            return Answer(None, own=False, outcome=outcome), None, False
        entry = newest or self._in_force(fix.at_s)  # [L8]
        if entry is None:
            return Answer(None, own=False, outcome=outcome), None, False
        own = self._is_resent(fix, entry)
        release = self._release(entry)
        if release is not None and not own:
            release = again(release, fix.at_s)
        return Answer(release, own, outcome), entry, own

    def _is_resent(self, fix: Fix, entry: Entry) -> bool:
        if entry.at_s != fix.at_s or entry.resend is None:
            return False
        user, device = self._device.user_id, self._device.device
        resend = self._keys.resend(user, device, fix.at_s, fix.lat, fix.lon)
        return hmac.compare_digest(entry.resend, resend)

    def _known(self, receipt: Any) -> Answer:
        """The answer that a report with this id had before."""
        entry = None if receipt.entry_at_s is None else self._in_force(receipt.entry_at_s)
        if entry is not None and entry.at_s != receipt.entry_at_s:
            entry = None  # it was forgotten, and an earlier one is not the same answer
        release = None if entry is None else self._release(entry)
        if release is not None and not receipt.own:
            release = again(release, receipt.at_s)
        return Answer(release, receipt.own, outcome="again")

    def _in_force(self, at_s: float) -> Entry | None:
        for entry in reversed(self._added):
            if entry.at_s <= at_s:
                return entry
        found = self._tx.execute(_in_force, {"user": self._device.user_id, "at": at_s})
        row = found.one_or_none()
        return None if row is None else Entry(*row)

    def _release(self, entry: Entry) -> Release | None:
        book = self._book
        if entry.policy_id == book.rules.id:
            return entry.release(book.rules)
        row = self._tx.execute(policy_row, {"policy": entry.policy_id}).one()
        policy, mechanism = mechanism_of(row.body)
        return entry.release(Rules(entry.policy_id, row.version, policy, mechanism))

    def write(self) -> list[int]:
        """Write what was added; the numbers of the new entries."""
        if not self._added:
            return []
        book, following = self._book, self._book.following
        state = {
            "user": self._device.user_id,
            "state": book.to_json(),
            "policy": book.rules.id,
            "following": None if following is None else following.id,
        }
        rows = [
            {**entry._asdict(), "user_id": self._device.user_id, "made_s": self._now_s}
            for entry in self._added
        ]
        if len(rows) == 1 and self._tx.dialect.name == "postgresql":
            new = {f"new_{name}": value for name, value in rows[0].items()}
            numbers = [self._tx.execute(_add_and_remember, state | new).scalar_one()]
        else:
            numbers = [self._tx.execute(_add_entry, row).scalar_one() for row in rows]
            self._tx.execute(_remember, state)
        if self._forwards:
            for entry in self._added:
                self._send_on(entry)
        return numbers

    def _send_on(self, entry: Entry) -> None:
        """Into the outbox of each destination, in the same transaction."""
        if entry.lat is None:
            return
        self._tx.execute(
            _post,
            {
                "user": self._device.user_id,
                "at": entry.at_s,
                "lat": entry.lat,
                "lon": entry.lon,
                "accuracy": entry.accuracy_m,
                "device": entry.device,
                "tid": self._tid,
            },
        )
