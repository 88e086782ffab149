"""The ledger: fixes in, releases out, one transaction per request or group of requests.

A release and its cost are committed before anything leaves. The lock on the user's row keeps two
processes from serving one user at the same moment. A report that is sent again gets the same
answer, so every call may be repeated, whatever became of the first one.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Sequence
from uuid import uuid4

from sqlalchemy import Connection, insert, literal, select

from hereish.gateway.ledger.database import Database, LedgerUnavailableError
from hereish.gateway.ledger.health import Liveness
from hereish.gateway.ledger.high_water_mark import HighWaterMark, IfMissing, next_era
from hereish.gateway.ledger.keys import Keys, LedgerKeyError, load_keys
from hereish.gateway.ledger.models import Fix, LedgerRelease, ReportRequest
from hereish.gateway.ledger.positions import LedgerPositions
from hereish.gateway.ledger.queries import (
    DeviceIdentity,
    MixedBackupError,
    StoredPolicies,
    find_account,
    list_released,
    lock_accounts,
)
from hereish.gateway.ledger.restore_guard import RestoreGuard
from hereish.gateway.ledger.tables import ledger, removed, users
from hereish.gateway.ledger.tokens import PresentedToken
from hereish.gateway.ledger.transaction import ReportResponse, ReportTransaction
from hereish.gateway.ledger.user_state import UserState
from hereish.gateway.paths import GatewayPaths


class Ledger:
    """Open one per process; its methods may be called from many threads."""

    def __init__(self, database: Database, keys: Keys, mark: HighWaterMark) -> None:
        self.database = database
        self.keys = keys
        self.mark = mark
        self.policies = StoredPolicies()
        self.created = False  # by `open`, since there was none
        self._positions = LedgerPositions(keys, mark.ledger)
        self.guard = RestoreGuard(database, mark, self._positions)
        self._liveness = Liveness(self.guard.check_ledger)
        database.on_connect = self.guard.check_connection

    @classmethod
    def open(cls, where: GatewayPaths, *, check: bool = True, pool: int = 8) -> Ledger:
        """The ledger, its tables created or upgraded.

        Raises LedgerRestoredError if it ends below its high-water mark, unless `check` is off;
        then nothing but the functions of `admin.maintenance` should be called.
        """
        database = Database(where.database, pool=pool)
        try:
            database.check_connection()
            database.upgrade()
            with database.writing() as tx:
                database.lock_ledger(tx)
                ledger_id, era, keys, created = _identify_ledger(tx, where)
                # Without a mark, nobody can tell whether its users have spent since.
                used = any(
                    tx.execute(select(literal(1)).select_from(table).limit(1)).first()
                    for table in (users, removed)
                )
            if_missing: IfMissing = "refuse" if check else "lost"
            mark = HighWaterMark(where.mark_file, ledger_id, era, if_missing if used else "new")
            database.engine.dispose()
        except BaseException:
            database.close()
            raise
        opened = cls(database, keys, mark)
        opened.created = created
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

    def catch_up(self) -> None:
        """Raise the mark to what was committed by any process, and detect a restore."""
        if self.guard.reason is None:
            self._liveness.probe()

    def check_health(self) -> None:
        """Raise if the ledger cannot be used, as far as the last seconds tell (health.py)."""
        if self.guard.reason is None:
            self.database.refuse_replaced_file()
            self._liveness.check()
        self.guard.refuse_if_stopped()

    # Reports

    def report(
        self,
        token: PresentedToken,
        fixes: Sequence[Fix],
        *,
        tid: str | None = None,
        answers: bool = True,
        now_s: float | None = None,
        position: str | None = None,
    ) -> ReportResponse:
        """Answer fixes, oldest first, whatever their order. Paid and durable when it returns.

        Raises TokenRefusedError, LedgerUnavailableError or LedgerRestoredError; then nothing was
        released.
        """
        request = ReportRequest(token, fixes, tid, answers, now_s, position)
        [outcome] = self.report_all([request])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def report_all(self, requests: Sequence[ReportRequest]) -> list[ReportResponse | Exception]:
        """Answer several requests in one transaction, so that they share its way to the disk.

        Each gets what it would have got alone: if anything fails, each is tried alone.
        """
        if len(requests) > 1:
            try:
                return self._commit(requests)
            except LedgerUnavailableError as error:
                self._liveness.mark_suspect()
                if self.database.sqlite and not error.lost:
                    return [error] * len(requests)  # it is everybody's: nobody waits for it in turn
            except Exception:  # noqa: BLE001, S110  # whosever it is: each gets their own below
                pass
        outcomes: list[ReportResponse | Exception] = []
        busy: dict[str, Exception] = {}  # a lock that one has waited for is not waited for again
        for request in requests:
            outcome = busy.get(request.token.id) or self._report_alone(request)
            if isinstance(outcome, LedgerUnavailableError):
                busy[request.token.id] = outcome
                self._liveness.mark_suspect()
            outcomes.append(outcome)
        return outcomes

    def _report_alone(self, request: ReportRequest) -> ReportResponse | Exception:
        for _ in range(2):
            try:
                [outcome] = self._commit([request])
                return outcome
            except LedgerUnavailableError as error:
                if not error.lost:
                    return error
                # The connection broke. Whether or not it was committed, trying again is harmless.
                failure: Exception = error
            except Exception as error:  # noqa: BLE001  # it is returned to its request
                return error
        return failure

    def _commit(self, requests: Sequence[ReportRequest]) -> list[ReportResponse | Exception]:
        for request in requests:
            self.guard.check_position(request.position)
        try:
            with self.database.writing() as tx:
                mark = self.mark.value()  # before the ledger is read: others go on
                token_ids = (request.token.id for request in requests)
                accounts = lock_accounts(tx, self.database.dialect, token_ids)
                for locked in accounts.values():
                    self.guard.check(locked.last_number, locked.era, mark)  # [L7]
                transaction = ReportTransaction(tx, self.keys, self.policies, accounts)
                outcomes = transaction.answer(requests)
                newest = transaction.write()
        except MixedBackupError as error:
            self.guard.stop(str(error))
            raise
        self.guard.raise_mark(newest)  # [L6]
        return outcomes

    # Reading

    def position(self, entry_count: int) -> str:
        """How far the ledger has come, for a user with so many entries to keep and present."""
        return self._positions.issue(self.mark.era, entry_count)

    def identify(self, token: PresentedToken) -> DeviceIdentity:
        """The user and the device of a token."""
        with self.database.reading() as tx:
            return find_account(tx, token).identity

    def read_state(
        self, token: PresentedToken, position: str | None = None
    ) -> tuple[DeviceIdentity, UserState]:
        """The state of the token's user, to be read only."""
        self.guard.check_position(position)
        with self.database.reading() as tx:
            account = find_account(tx, token)
            return account.identity, self.policies.load_state(tx, account.user)

    def history(
        self, token: PresentedToken, before_s: float | None, limit: int
    ) -> list[tuple[LedgerRelease, str]]:
        """Releases and their devices, newest first."""
        with self.database.reading() as tx:
            user_id = find_account(tx, token).user.id
            releases = []
            for entry in list_released(tx, user_id, before_s, limit):
                release = entry.release(self.policies.read(tx, entry.policy_id))
                if release is not None:
                    releases.append((release, entry.device))
            return releases


def _identify_ledger(tx: Connection, where: GatewayPaths) -> tuple[str, str, Keys, bool]:
    """Id, era and keys of the ledger, and whether it was created now."""
    row = tx.execute(select(ledger.c.id, ledger.c.era, ledger.c.key_check)).one_or_none()
    # A new key for a new ledger only: an existing one needs its own.
    keys = load_keys(where.key_file, create=row is None)
    if row is not None:
        if not hmac.compare_digest(row.key_check, keys.check):
            raise LedgerKeyError("this is not the key that the ledger was made with")
        return row.id, row.era, keys, False
    ledger_id, era = str(uuid4()), next_era()
    identity = {"id": ledger_id, "era": era, "key_check": keys.check}
    tx.execute(insert(ledger), {**identity, "created_s": time.time()})
    return ledger_id, era, keys, True
