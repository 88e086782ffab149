"""The ledger: fixes in, releases out, one transaction a request.

A release and its cost are committed before anything leaves. The lock on the user's row keeps two
processes from serving one user at the same moment. A report that is sent again gets the same
answer, so every call may be repeated, whatever became of the first one.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

from sqlalchemy import Connection, insert, literal, select

from hereish.errors import HereishError
from hereish.gateway.ledger.database import Database, LedgerUnreachable, position
from hereish.gateway.ledger.health import Liveness
from hereish.gateway.ledger.high_water_mark import Mark, Missing, Restored, era_after
from hereish.gateway.ledger.keys import Keys, KeyTrouble, load
from hereish.gateway.ledger.models import Fix, Release
from hereish.gateway.ledger.policy import Policy, Rules, mechanism_of
from hereish.gateway.ledger.positions import Positions
from hereish.gateway.ledger.queries import account_of, locked_accounts, newest_of
from hereish.gateway.ledger.tables import entries, ledger, removed, users
from hereish.gateway.ledger.tokens import Presented
from hereish.gateway.ledger.transaction import (
    AHEAD_S,
    NO_ENTRY,
    Answer,
    Device,
    Numbered,
    Scribe,
    policy_row,
    write,
)
from hereish.gateway.ledger.user_state import Book, Devices, Entry, Standing
from hereish.gateway.paths import Places

_MOST_KNOWN = 100_000  # policies that a process remembers


class Refused(HereishError):  # noqa: N818  # it says what it is
    """The token is unknown, revoked, or its user is disabled."""


class Ask(NamedTuple):
    """A request: what `Ledger.report` takes."""

    token: Presented
    fixes: Sequence[Fix]
    tid: str | None = None
    answers: bool = True
    now_s: float | None = None
    position: str | None = None  # that the client shows


class Reported(NamedTuple):
    """All answers of a request, in the order of its fixes, and where the budget stands."""

    device: Device
    answers: list[Answer]
    standing: Standing
    policy: Policy
    number: int  # of the user's entries: what `Ledger.position` takes


class Ledger:
    """Open one a process; its methods may be called from many threads."""

    def __init__(self, database: Database, keys: Keys, mark: Mark) -> None:
        self.database = database
        self.keys = keys
        self.mark = mark
        self.restored: str | None = None
        self.made = False  # by `open`, since there was none
        self._rules: dict[int, Rules] = {}  # policies never change in an era, so they may be kept
        self._positions = Positions(keys, mark.ledger)
        self._liveness = Liveness(self._look)
        database.on_connect = self._connected

    @classmethod
    def open(cls, where: Places, *, check: bool = True, pool: int = 8) -> Ledger:
        """The ledger, its tables made or brought up to date.

        Raises Restored if it stands below its mark, unless `check` is off; then nothing but
        `accept` should be called.
        """
        database = Database(where.database, pool=pool)
        try:
            database.first_contact()
            database.upgrade()
            with database.writing() as tx:
                database.keep_others_out(tx)
                known = tx.execute(
                    select(ledger.c.id, ledger.c.era, ledger.c.key_check)
                ).one_or_none()
                # A new key for a new ledger only: an old one needs its own.
                keys = load(where.key_file, create=known is None)
                if known is None:
                    name, era = str(uuid4()), era_after()
                    row = {"id": name, "era": era, "key_check": keys.check}
                    tx.execute(insert(ledger), {**row, "created_s": time.time()})
                else:
                    name, era = known.id, known.era
                    if not hmac.compare_digest(known.key_check, keys.check):
                        raise KeyTrouble("this is not the key that the ledger was made with")
                # Without a mark, nobody can tell whether those who are in it have spent since.
                used = any(
                    tx.execute(select(literal(1)).select_from(table).limit(1)).first()
                    for table in (users, removed)
                )
            missing: Missing = "refuse" if check else "lost"
            mark = Mark(where.mark, name, era, missing if used else "new")
            database.engine.dispose()
        except BaseException:
            database.close()
            raise
        opened = cls(database, keys, mark)
        opened.made = known is None
        try:
            if check:
                with database.reading():
                    pass  # connects, and so checks
            else:
                database.on_connect = None
        except BaseException:
            opened.close()
            raise
        return opened

    def close(self) -> None:
        self.database.close()
        self.mark.close()

    def _connected(self, connection: Any) -> None:
        """A new connection may lead to a ledger that was restored while nobody looked."""
        mark = self.mark.value()  # first: others may go on between the two
        found = position(connection, self.database.dialect)
        if not self.database.sqlite:
            connection.rollback()  # reading began a transaction
        self._unless_restored(found.last, found.era, mark)
        # Who wrote them may have died before the mark was raised.
        self._reach(Numbered(found.committed, found.made_s))

    def catch_up(self) -> None:
        """Raise the mark to what was committed, by whomever, and notice a restore."""
        if self.restored is None:
            self._liveness.look()

    def _look(self) -> None:
        mark = self.mark.value()
        with self.database.reading() as tx:
            found = position(tx, self.database.dialect)
        self._unless_restored(found.last, found.era, mark)
        self._reach(Numbered(found.committed, found.made_s))

    def _unless_restored(self, last: int, era: str, mark: int) -> None:
        if self.restored is None:
            try:
                self.mark.check(last, era, mark)
            except Restored as told:
                self.restored = str(told)
        if self.restored is not None:
            raise Restored(self.restored)

    # What a device asks

    def report(
        self,
        token: Presented,
        fixes: Sequence[Fix],
        *,
        tid: str | None = None,
        answers: bool = True,
        now_s: float | None = None,
        position: str | None = None,
    ) -> Reported:
        """Answer fixes, oldest first, whatever their order. Paid and durable when it returns.

        Without `answers`, those that can be had for free are not looked up.
        Raises Refused, LedgerUnreachable or Restored; then nothing was released.
        """
        [outcome] = self.report_all([Ask(token, fixes, tid, answers, now_s, position)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def report_all(self, asks: Sequence[Ask]) -> list[Reported | Exception]:
        """Answer several requests in one transaction, so that they share its way to the disk.

        Each gets what it would have got alone: if there is any trouble, each is asked alone.
        """
        if len(asks) > 1:
            try:
                return self._together(asks)
            except LedgerUnreachable as trouble:
                self._liveness.doubt()
                if self.database.sqlite and not trouble.lost:
                    return [trouble] * len(asks)  # it is everybody's: nobody waits for it in turn
            except Exception:  # noqa: BLE001, S110  # whosever it is: each hears their own below
                pass
        outcomes: list[Reported | Exception] = []
        busy: dict[str, Exception] = {}  # a lock that one has waited for is not waited for again
        for ask in asks:
            outcome = busy.get(ask.token.id) or self._alone(ask)
            if isinstance(outcome, LedgerUnreachable):
                busy[ask.token.id] = outcome
                self._liveness.doubt()
            outcomes.append(outcome)
        return outcomes

    def _alone(self, ask: Ask) -> Reported | Exception:
        for _ in range(2):
            try:
                [outcome] = self._together([ask])
                return outcome
            except LedgerUnreachable as trouble:
                if not trouble.lost:
                    return trouble
                # The connection had broken. Whether or not it was committed, to ask again does
                # no harm.
                failure: Exception = trouble
            except Exception as trouble:  # noqa: BLE001  # it is the asker's to hear
                return trouble
        return failure

    def _together(self, asks: Sequence[Ask]) -> list[Reported | Exception]:
        outcomes: list[Reported | Exception] = []
        scribes: dict[int, Scribe] = {}
        known = NO_ENTRY
        for ask in asks:
            self._look_at(ask.position)
        with self.database.writing() as tx:
            mark = self.mark.value()  # before one looks: others go on
            named = {"tokens": list({ask.token.id for ask in asks})}
            locked = tx.execute(locked_accounts[self.database.dialect], named)  # [L2]
            accounts: dict[str, Any] = {account.token: account for account in locked}
            for account in accounts.values():
                self._unless_restored(account.last_number or 0, account.era or "", mark)  # [L7]
                # What is told again may not have been told before: its writer may have died.
                if account.newest_id is not None:
                    known = max(known, Numbered(account.newest_id, account.newest_made_s))
            for ask in asks:
                try:
                    account = self._admitted(accounts.get(ask.token.id), ask.token)
                except Refused as refused:
                    outcomes.append(refused)
                    continue
                if account.id not in scribes:
                    book = self.book(tx, account, account.newest_at_s)
                    if book.newest is not None and book.newest.at_s != account.newest_at_s:
                        # We waited for the lock: the row is newer than what was looked up with it.
                        newest = tx.execute(newest_of, {"user": account.id}).one_or_none()
                        known = known if newest is None else max(known, Numbered(*newest))
                    scribes[account.id] = Scribe(tx, account.id, book, self.keys, account.forwards)
                outcomes.append(self._answered(ask, _device(account), scribes[account.id]))
            last = write(tx, scribes.values())
        self._reach(max(known, last))  # [L6]
        return outcomes

    def _answered(self, ask: Ask, device: Device, scribe: Scribe) -> Reported:
        now_s = time.time() if ask.now_s is None else ask.now_s
        fixes = [self._on_clock(fix) for fix in ask.fixes]
        told: dict[int, Answer] = {}
        for i in sorted(range(len(fixes)), key=lambda i: fixes[i].at_s):
            told[i] = scribe.answer(fixes[i], device.device, ask.tid, ask.answers, now_s)
        # Of the time that was asked about, or of the present window if that is later.
        standing_s = max((fix.at_s for fix in fixes), default=now_s)
        if standing_s > now_s + AHEAD_S:
            standing_s = now_s
        standing = scribe.book.standing(standing_s)
        policy = scribe.book.rules.policy
        answers = [told[i] for i in range(len(fixes))]
        return Reported(device, answers, standing, policy, scribe.book.number)

    def _reach(self, entry: Numbered) -> None:
        """Raise the mark. If that fails, nothing leaves; what was paid is there to be asked for."""
        try:
            self.mark.reach(entry.number)
        except OSError:
            raise LedgerUnreachable("the high-water mark cannot be written") from None
        self._positions.note(entry)

    def position(self, number: int) -> str:
        """How far the ledger has come, for a user with so many entries to keep and show again."""
        return self._positions.now(self.mark.era, number)

    def _look_at(self, position: str | None) -> None:
        """Stop, for everybody, if a client shows a position that this ledger once gave and does not
        have any more. One that it never gave does nothing.
        """
        seen = None if position is None else self._positions.read(position)
        if seen is None or self._positions.has(seen, self.mark.era):
            return
        if self.restored is not None:
            raise Restored(self.restored)
        # A process that looks at another file, or at a ledger below the mark, is behind by itself:
        # it stops alone, and what it does not have is no reason to stop the others.
        self.database.unless_replaced()
        with self.database.reading() as tx:
            if not self._positions.is_set_back(tx, seen):
                return
        self._look()
        try:
            self.mark.set_back(seen.era)  # [L10]
        except OSError:
            raise LedgerUnreachable("the high-water mark cannot be written") from None
        self._unless_restored(0, seen.era, self.mark.value())

    def device(self, token: Presented) -> Device:
        """Who a token speaks for."""
        with self.database.reading() as tx:
            return _device(self._found(tx, token))

    def budget(self, token: Presented, position: str | None = None) -> tuple[Device, Book]:
        """The user's book, to be looked at only."""
        self._look_at(position)
        with self.database.reading() as tx:
            account = self._found(tx, token)
            return _device(account), self.book(tx, account)

    def history(
        self, token: Presented, before_s: float | None, limit: int
    ) -> list[tuple[Release, str]]:
        """Releases and their devices, newest first."""
        with self.database.reading() as tx:
            account = self._found(tx, token)
            found = (
                select(*(entries.c[name] for name in Entry._fields))
                .where(entries.c.user_id == account.id, entries.c.lat.is_not(None))
                .order_by(entries.c.at_s.desc())
                .limit(limit)
            )
            if before_s is not None:
                found = found.where(entries.c.at_s < before_s)
            releases = []
            for row in tx.execute(found):
                entry = Entry(*row)
                release = entry.release(self.rules_of(tx, entry.policy_id))
                if release is not None:
                    releases.append((release, entry.device))
            return releases

    def alive(self) -> None:
        """Raises if the ledger cannot be used, as far as the last seconds tell (liveness.py)."""
        if self.restored is None:
            self.database.unless_replaced()
            self._liveness.check()
        if self.restored is not None:
            raise Restored(self.restored)

    # Parts

    def _found(self, tx: Connection, token: Presented) -> Any:
        return self._admitted(tx.execute(account_of, {"token": token.id}).one_or_none(), token)

    @staticmethod
    def _admitted(row: Any, token: Presented) -> Any:
        # Compared even if there is none, so that the time tells nothing.
        digest = row.digest if row is not None else bytes(32)
        right = hmac.compare_digest(digest, token.digest)
        if row is None or not right or row.revoked_s is not None or row.disabled_s is not None:
            raise Refused("the token is not known, was revoked, or its user is disabled")
        return row

    def book(self, tx: Connection, account: Any, newest_at_s: float | None = None) -> Book:
        """The book of a row of users; the time of their newest entry is compared with it."""
        following = account.next_policy_id
        book = Book(
            self.rules_of(tx, account.policy_id),
            None if following is None else self.rules_of(tx, following),
            account.state,
            account.closed_s,
            Devices(account.primary_device, account.silence_s),
        )
        if newest_at_s is not None and not book.knows(newest_at_s):
            self.restored = (
                "a user's run is older than their entries: parts of a backup and of a later ledger "
                "are mixed. Put back a whole backup, without the files -wal and -shm of another, "
                "and call 'hereish ledger accept'"
            )
            raise Restored(self.restored)
        return book

    def rules_of(self, tx: Connection, policy_id: int) -> Rules:
        """A policy and its mechanism."""
        rules = self._rules.get(policy_id)
        if rules is None:
            row = tx.execute(policy_row, {"policy": policy_id}).one()
            policy, mechanism = mechanism_of(row.body)
            rules = Rules(policy_id, row.version, policy, mechanism)
            if len(self._rules) >= _MOST_KNOWN:
                self._rules.clear()
            self._rules[policy_id] = rules
        return rules

    @staticmethod
    def _on_clock(fix: Fix) -> Fix:
        """Its time as a datetime has it, so that it stays the same through every format."""
        return fix._replace(at_s=datetime.fromtimestamp(fix.at_s, UTC).timestamp())


def _device(account: Any) -> Device:
    return Device(
        account.id, account.name, account.device, account.passphrase, account.show_release
    )
