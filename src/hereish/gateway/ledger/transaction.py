"""Answers the fixes of one transaction, and writes what they added to the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, insert, select, update

from hereish.gateway.ledger.keys import Keys
from hereish.gateway.ledger.models import Fix, Release
from hereish.gateway.ledger.policy import Rules, mechanism_of
from hereish.gateway.ledger.tables import destinations, entries, outbox, policies, receipts, users
from hereish.gateway.ledger.user_state import NOTHING, Book, Entry, again

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
    outcome: str  # for the metrics: a kind, or "again", "late", "other device", "ahead", "none"


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
_add_entries = insert(entries).returning(entries.c.id, entries.c.made_s)
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


class Numbered(NamedTuple):
    """An entry by its number, and when it was made: one of another history has another time."""

    number: int
    made_s: float


NO_ENTRY = Numbered(0, 0.0)


class _Added(NamedTuple):
    entry: Entry
    tid: str | None
    made_s: float


class Scribe:
    """Answers what one user asks in a transaction, and keeps what is to be written at its end."""

    def __init__(self, tx: Connection, user_id: int, book: Book, keys: Keys, forwards: int) -> None:
        self.user_id, self.book, self.forwards = user_id, book, forwards
        self.added: list[_Added] = []
        self._tx, self._keys = tx, keys

    def answer(
        self, fix: Fix, device: str, tid: str | None, looked_up: bool, now_s: float
    ) -> Answer:
        key = None
        if fix.id is not None:
            key = self._keys.named(self.user_id, device, fix.id)
            asked = {"user": self.user_id, "key": key}
            known = self._tx.execute(_receipt, asked).one_or_none()
            if known is not None:
                return self._known(known)
        if fix.at_s > now_s + AHEAD_S:
            return Answer(None, own=False, outcome="ahead")
        book = self.book
        due = book.is_due(fix.at_s)
        entry = None
        if due and book.counts(device, fix.at_s, now_s):
            entry = book.add(fix, device)
            if entry is None:  # as before: nothing is left
                answer = Answer(None, own=False, outcome=NOTHING)
            else:
                answer = Answer(entry.release(book.rules), own=True, outcome=entry.kind)
        else:
            answer = self._free(fix, device, looked_up, settled=not due)
        book.hear(device, fix.at_s, now_s)
        if entry is not None:
            self.added.append(_Added(entry, tid, now_s))
            if key is not None:
                receipt = {"entry_at_s": entry.at_s, "at_s": fix.at_s, "own": True}
                of_whom = {"user_id": self.user_id, "key": key, "made_s": now_s}
                self._tx.execute(_add_receipt, of_whom | receipt)
        return answer

    def _free(self, fix: Fix, device: str, looked_up: bool, settled: bool) -> Answer:
        """The entry in force at that time: it is public, so it costs nothing to say it again.

        Until reports that count have come to that time another entry may still be made for it. So
        what is told then is the last release as the answer for its own time.
        """
        outcome = "again" if self.book.is_answered_by_the_newest(fix.at_s) else "late"
        if not settled:
            outcome = "other device"
        entry = self._in_force(fix.at_s) if looked_up else None  # [L8]
        if entry is None:
            return Answer(None, own=False, outcome=outcome)
        # Whatever its place is: whether it is the same one would tell who asks about the secret.
        own = entry.at_s == fix.at_s and entry.device == device
        release = self._release(entry)
        if release is not None and not own:
            release = again(release, fix.at_s if settled else entry.at_s)
        return Answer(release, own, outcome)

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
        if self.book.is_answered_by_the_newest(at_s):
            return self.book.newest
        for added in reversed(self.added):
            if added.entry.at_s <= at_s:
                return added.entry
        row = self._tx.execute(_in_force, {"user": self.user_id, "at": at_s}).one_or_none()
        return None if row is None else Entry(*row)

    def _release(self, entry: Entry) -> Release | None:
        book = self.book
        if entry.policy_id == book.rules.id:
            return entry.release(book.rules)
        row = self._tx.execute(policy_row, {"policy": entry.policy_id}).one()
        policy, mechanism = mechanism_of(row.body)
        return entry.release(Rules(entry.policy_id, row.version, policy, mechanism))

    def state(self) -> dict[str, Any]:
        """The user's new row."""
        following = self.book.following
        return {
            "user": self.user_id,
            "state": self.book.to_json(),
            "policy": self.book.rules.id,
            "following": None if following is None else following.id,
        }


def write(tx: Connection, scribes: Iterable[Scribe]) -> Numbered:
    """Write what they kept: entries, runs and the outbox. The last entry, or none."""
    active = [scribe for scribe in scribes if scribe.added or scribe.book.is_worth_writing]
    rows = [
        {**added.entry._asdict(), "user_id": scribe.user_id, "made_s": added.made_s}
        for scribe in active
        for added in scribe.added
    ]
    last = NO_ENTRY
    if len(rows) == len(active) == 1 and tx.dialect.name == "postgresql":
        new = {f"new_{name}": value for name, value in rows[0].items()}
        number = tx.execute(_add_and_remember, active[0].state() | new).scalar_one()
        last = Numbered(int(number), rows[0]["made_s"])
    else:
        if rows:
            last = max(Numbered(*row) for row in tx.execute(_add_entries, rows))
        if active:
            tx.execute(_remember, [scribe.state() for scribe in active])
    posts = [
        {
            "user": scribe.user_id,
            "at": added.entry.at_s,
            "lat": added.entry.lat,
            "lon": added.entry.lon,
            "accuracy": added.entry.accuracy_m,
            "device": added.entry.device,
            "tid": added.tid,
        }
        for scribe in active
        if scribe.forwards
        for added in scribe.added
        if added.entry.lat is not None
    ]
    if posts:
        tx.execute(_post, posts)
    return last
