"""What the ledger reads: typed rows of users and tokens, entries, and policies."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, bindparam, case, func, literal_column, select

from hereish.core.types import Kind
from hereish.core.windows import NoReset
from hereish.errors import HereishError
from hereish.gateway.ledger.budget_status import JobCharges
from hereish.gateway.ledger.database import LAST_NUMBER
from hereish.gateway.ledger.entry import Entry, window_number
from hereish.gateway.ledger.high_water_mark import LedgerRestoredError
from hereish.gateway.ledger.limit_charges import KnownCosts, Span, window_bounds
from hereish.gateway.ledger.models import EntryRef
from hereish.gateway.ledger.policy import StoredPolicy
from hereish.gateway.ledger.tables import (
    entries,
    jobs,
    ledger,
    policies,
    reservations,
    tokens,
    users,
)
from hereish.gateway.ledger.tokens import PresentedToken
from hereish.gateway.ledger.user_state import PrimaryDeviceSettings, UserState

_MAX_CACHED = 100_000  # policies per process


class TokenRefusedError(HereishError):
    """The token is unknown or revoked, or its user is disabled."""


class MixedBackupError(LedgerRestoredError):
    """A user's run is older than their entries."""

    def __init__(self) -> None:
        super().__init__(
            "a user's run is older than their entries: parts of a backup and of a later ledger "
            "are mixed. Put back a whole backup, without the files -wal and -shm of another, "
            "and call 'hereish ledger accept'"
        )


class UserRow(NamedTuple):
    """A row of `users`."""

    id: int
    name: str
    created_s: float
    disabled_s: float | None
    policy_id: int
    next_policy_id: int | None
    state: str | None
    forwards: int
    closed_s: float | None
    chosen_device: str | None
    primary_device: str | None
    silence_s: float | None
    policy_since_s: float | None
    reserved_s: float | None


class TokenRow(NamedTuple):
    """A row of `tokens`."""

    id: str
    digest: bytes
    device: str
    created_s: float
    revoked_s: float | None
    passphrase: bytes | None
    show_release: bool


class DeviceIdentity(NamedTuple):
    """The user and the device that a token stands for. A token's never changes."""

    user_id: int
    user: str
    device: str
    passphrase: bytes | None  # sealed
    show_release: bool


class Account(NamedTuple):
    """A token with its user."""

    user: UserRow
    token: TokenRow

    @property
    def identity(self) -> DeviceIdentity:
        token = self.token
        return DeviceIdentity(
            self.user.id, self.user.name, token.device, token.passphrase, token.show_release
        )


class LockedAccount(NamedTuple):
    """An account whose user is locked, and how far the ledger has come."""

    account: Account
    newest: EntryRef | None  # of the user's entries
    newest_at_s: float | None
    last_number: int
    era: str


_USER_COLUMNS = tuple(users.c[name] for name in UserRow._fields)
_TOKEN_COLUMNS = tuple(tokens.c[name] for name in TokenRow._fields)
_USERS, _ACCOUNTS = len(_USER_COLUMNS), len(_USER_COLUMNS) + len(_TOKEN_COLUMNS)
_select_user = select(*_USER_COLUMNS)
_select_account = (
    select(*_USER_COLUMNS, *_TOKEN_COLUMNS)
    .join_from(tokens, users, tokens.c.user_id == users.c.id)
    .where(tokens.c.id == bindparam("token"))
)
_newest_of_user = (
    entries.select()
    .where(entries.c.user_id == users.c.id)
    .order_by(entries.c.at_s.desc())
    .limit(1)
    .correlate(users)
)
# With the locks of the users (SQLite has one for all, taken when the transaction began), in the
# same order everywhere, so that two processes never deadlock; and with what tells whether this is
# the ledger that we know.
_lock_users = {
    dialect: select(
        *_USER_COLUMNS,
        *_TOKEN_COLUMNS,
        _newest_of_user.with_only_columns(entries.c.id).scalar_subquery(),
        _newest_of_user.with_only_columns(entries.c.made_s).scalar_subquery(),
        _newest_of_user.with_only_columns(entries.c.at_s).scalar_subquery(),
        literal_column(f"({last})", BigInteger),
        select(ledger.c.era).scalar_subquery(),
    )
    .join_from(tokens, users, tokens.c.user_id == users.c.id)
    .order_by(users.c.id)
    .with_for_update(of=users)
    for dialect, last in LAST_NUMBER.items()
}
# Apart from those of several tokens: a list of parameters is expanded anew for each execution.
_lock_one = {
    dialect: query.where(tokens.c.id == bindparam("tokens"))
    for dialect, query in _lock_users.items()
}
_lock_many = {
    dialect: query.where(tokens.c.id.in_(bindparam("tokens", expanding=True)))
    for dialect, query in _lock_users.items()
}
_select_newest = (
    select(entries.c.id, entries.c.made_s)
    .where(entries.c.user_id == bindparam("user"))
    .order_by(entries.c.at_s.desc())
    .limit(1)
)
_ENTRY_COLUMNS = tuple(entries.c[name] for name in Entry._fields)
_select_in_force = (
    select(*_ENTRY_COLUMNS)
    .where(entries.c.user_id == bindparam("user"), entries.c.at_s <= bindparam("at"))
    .order_by(entries.c.at_s.desc())
    .limit(1)
)
_select_released = (
    select(*_ENTRY_COLUMNS)
    .where(entries.c.user_id == bindparam("user"), entries.c.lat.is_not(None))
    .order_by(entries.c.at_s.desc())
)
_select_policy = select(policies.c.version, policies.c.body).where(
    policies.c.id == bindparam("policy")
)


_FIRST = -(2**63)
# What a job may still spend is taken, until it is known what it has spent.
taken = case((jobs.c.settled_s.is_(None), reservations.c.reserved), else_=reservations.c.spent)
_select_charges = (
    select(reservations.c.window, func.sum(taken).label("taken"))
    .join(jobs, jobs.c.name == reservations.c.job)
    .where(
        reservations.c.user_id == bindparam("user"),
        reservations.c.policy_id == bindparam("policy"),
        reservations.c.window >= bindparam("first"),
    )
    .group_by(reservations.c.window)
)


_select_spans = (
    select(reservations.c.policy_id, reservations.c.window, func.sum(taken).label("taken"))
    .join(jobs, jobs.c.name == reservations.c.job)
    .where(reservations.c.user_id == bindparam("user"))
    .group_by(reservations.c.policy_id, reservations.c.window)
)
_select_costs = select(entries.c.at_s, entries.c.cost).where(
    entries.c.user_id == bindparam("user"),
    entries.c.at_s >= bindparam("since"),
    entries.c.cost > 0.0,
)


def find_user(tx: Connection, name: str, *, lock: bool = False) -> UserRow | None:
    """A user by name, if there is one; locked until the transaction ends if asked for."""
    query = _select_user.where(users.c.name == name)
    row = tx.execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else UserRow(*row)


def lock_users(tx: Connection, names: Collection[str]) -> dict[str, UserRow]:
    """The users of these names that there are, locked until the transaction ends.

    In the order in which reports lock them, so that nothing deadlocks.
    """
    query = _select_user.where(users.c.name.in_(names)).order_by(users.c.id).with_for_update()
    return {row.name: UserRow(*row) for row in tx.execute(query)}


def lock_user_of_token(tx: Connection, token_id: str) -> UserRow | None:
    """The user of a token, locked until the transaction ends."""
    owner = select(tokens.c.user_id).where(tokens.c.id == token_id).scalar_subquery()
    row = tx.execute(_select_user.where(users.c.id == owner).with_for_update()).one_or_none()
    return None if row is None else UserRow(*row)


def list_tokens(tx: Connection, user_id: int) -> list[TokenRow]:
    """The tokens of a user, the oldest first."""
    query = select(*_TOKEN_COLUMNS).where(tokens.c.user_id == user_id)
    return [TokenRow(*row) for row in tx.execute(query.order_by(tokens.c.created_s))]


def find_account(tx: Connection, token: PresentedToken) -> Account:
    """The account of a token; raises TokenRefusedError if it may not be used."""
    row = tx.execute(_select_account, {"token": token.id}).one_or_none()
    return check_token(None if row is None else _account(row), token)


def check_token(account: Account | None, token: PresentedToken) -> Account:
    """The account, if the token is the one that was presented and may be used."""
    # Compared even if there is none, so that the time tells nothing.
    digest = account.token.digest if account is not None else bytes(32)
    matches = hmac.compare_digest(digest, token.digest)
    if (
        account is None
        or not matches
        or account.token.revoked_s is not None
        or account.user.disabled_s is not None
    ):
        raise TokenRefusedError("the token is not known, was revoked, or its user is disabled")
    return account


def lock_accounts(
    tx: Connection, dialect: str, token_ids: Iterable[str]
) -> dict[str, LockedAccount]:
    """The accounts of these tokens by their ids, with their users locked until the end of `tx`."""
    ids = list(set(token_ids))
    if len(ids) == 1:
        rows = tx.execute(_lock_one[dialect], {"tokens": ids[0]})
    else:
        rows = tx.execute(_lock_many[dialect], {"tokens": ids})  # [L2]
    accounts = [_locked_account(row) for row in rows]
    return {locked.account.token.id: locked for locked in accounts}


def _account(row: Sequence[Any]) -> Account:
    return Account(UserRow(*row[:_USERS]), TokenRow(*row[_USERS:_ACCOUNTS]))


def _locked_account(row: Sequence[Any]) -> LockedAccount:
    newest_id, newest_made_s, newest_at_s, last_number, era = row[_ACCOUNTS:]
    newest = None if newest_id is None else EntryRef(newest_id, newest_made_s)
    return LockedAccount(_account(row), newest, newest_at_s, last_number or 0, era or "")


def newest_entry(tx: Connection, user_id: int) -> EntryRef | None:
    """The newest entry of a user, if there is one."""
    row = tx.execute(_select_newest, {"user": user_id}).one_or_none()
    return None if row is None else EntryRef(*row)


def entry_in_force(tx: Connection, user_id: int, at_s: float) -> Entry | None:
    """The last entry whose time is not after this one."""
    row = tx.execute(_select_in_force, {"user": user_id, "at": at_s}).one_or_none()
    return None if row is None else _entry(row)


def list_released(tx: Connection, user_id: int, before_s: float | None, limit: int) -> list[Entry]:
    """Entries with a release, newest first."""
    query = _select_released.limit(limit)
    if before_s is not None:
        query = query.where(entries.c.at_s < before_s)
    return [_entry(row) for row in tx.execute(query, {"user": user_id})]


def _entry(row: Sequence[Any]) -> Entry:
    entry = Entry(*row)
    return entry._replace(kind=Kind(entry.kind))


def _read_charges(tx: Connection, user: UserRow, state: UserState) -> dict[int | None, float]:
    """What jobs have taken of the windows that reports may still pay from.

    A statement of its own, after the one that locks the user: so nothing is missed.
    """
    window, newest = state.policy.mechanism.window, state.newest
    first = None if newest is None else window_number(window, newest.at_s)
    asked = {"user": user.id, "policy": user.policy_id, "first": _FIRST if first is None else first}
    once = isinstance(window, NoReset)
    return {
        None if once else row.window: row.taken for row in tx.execute(_select_charges, asked)
    }  # [L13]


def read_spans(tx: Connection, user: UserRow, policies: StoredPolicies) -> tuple[Span, ...]:
    """What jobs have taken of all windows of a user, of whatever policy, as `_read_charges`."""
    return tuple(
        Span(
            *window_bounds(policies.read(tx, row.policy_id).mechanism.window, row.window), row.taken
        )
        for row in tx.execute(_select_spans, {"user": user.id})
        if row.taken > 0.0
    )  # [L21]


def read_known_costs(tx: Connection, user_id: int, since_s: float) -> KnownCosts:
    """What the reports of a user have cost since a time, and what of that may have been pruned."""
    rows = tx.execute(_select_costs, {"user": user_id, "since": since_s})
    costs = [(row.at_s, row.cost) for row in rows]
    # After the costs: whoever prunes does not wait for us, and may have done so before them.
    return KnownCosts(costs, tx.execute(select(ledger.c.pruned_s)).scalar())


class StoredPolicies:
    """Reads policies and keeps them: a policy never changes within an era."""

    def __init__(self) -> None:
        self._cached: dict[int, StoredPolicy] = {}

    def read(self, tx: Connection, policy_id: int) -> StoredPolicy:
        """A policy and its mechanism."""
        policy = self._cached.get(policy_id)
        if policy is None:
            row = tx.execute(_select_policy, {"policy": policy_id}).one()
            policy = StoredPolicy.from_row(policy_id, row.version, row.body)
            if len(self._cached) >= _MAX_CACHED:
                self._cached.clear()
            self._cached[policy_id] = policy
        return policy

    def load_state(
        self, tx: Connection, user: UserRow, newest_at_s: float | None = None
    ) -> UserState:
        """The state of a user. Raises MixedBackupError if their newest entry is not part of it."""
        next_id = user.next_policy_id
        state = UserState(
            self.read(tx, user.policy_id),
            None if next_id is None else self.read(tx, next_id),
            user.state,
            user.closed_s,
            PrimaryDeviceSettings(user.primary_device, user.silence_s),
            JobCharges(user.reserved_s),
            user.policy_since_s,
        )
        if user.reserved_s is not None:
            state.charges = state.charges._replace(by_window=_read_charges(tx, user, state))
            if state.has_limits:
                state.charges = state.charges._replace(spans=read_spans(tx, user, self))
        state.known_costs = partial(read_known_costs, tx, user.id)
        if newest_at_s is not None and not state.includes_newest(newest_at_s):
            raise MixedBackupError
        return state
