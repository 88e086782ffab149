"""Users, their policies and tokens: what an operator does."""

from __future__ import annotations

import time
import unicodedata
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from hereish.core.windows import NoReset
from hereish.errors import HereishError, ParameterError
from hereish.gateway.ledger import tokens
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.policy import Policy
from hereish.gateway.ledger.tables import (
    counts,
    destinations,
    entries,
    forget,
    policies,
    receipts,
    removed,
    users,
)
from hereish.gateway.ledger.tables import ledger as ledger_row
from hereish.gateway.ledger.tables import tokens as token_rows
from hereish.gateway.ledger.user_state import Standing

_LONGEST_NAME = 64
_LONGEST_SILENCE_S = 30 * 86400.0


class Unknown(HereishError):  # noqa: N818  # it says what it is
    """There is no such user or token."""


class TokenRow(NamedTuple):
    """A token as its operator may see it."""

    id: str
    device: str
    created_s: float
    revoked_s: float | None
    encrypted: bool
    show_release: bool


class Account(NamedTuple):
    """A user as the operator may see them: no place, not even a released one."""

    name: str
    created_s: float
    disabled_s: float | None
    version: int
    policy: Policy
    waiting: Policy | None  # applies from a later window on
    standing: Standing
    guarantee: str
    entries: int
    tokens: list[TokenRow]
    primary_device: str | None
    silence_s: float  # of the primary device, before others count


def name_of(text: str, what: str = "user") -> str:
    """A name as it is kept: two spellings of one name would be two budgets."""
    name = unicodedata.normalize("NFC", text.strip())
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable() or set(name) & set("/:"):
        raise ParameterError(
            f"the name of a {what} has 1 to {_LONGEST_NAME} letters, digits, spaces or signs other "
            f"than / and :, found {text!r}"
        )
    return name


def add_user(ledger: Ledger, name: str, policy: Policy) -> None:
    """A user with a first policy."""
    name = name_of(name)
    policy.fit()  # says what is wrong with it
    now_s = time.time()
    with ledger.database.writing() as tx:
        gone = select(removed.c.name_key).where(removed.c.name_key == ledger.keys.name(name))
        if tx.execute(gone).first() is not None:
            raise ParameterError(
                f"{name!r} was deleted, and a new user of that name would get a second budget for "
                "the same days; choose another name"
            )
        if tx.execute(select(users.c.id).where(users.c.name == name)).first() is not None:
            raise ParameterError(f"there is a user {name!r} already")
        # They may have been here before a restore, which has forgotten them and what they spent.
        closed_s = tx.execute(select(ledger_row.c.closed_s)).scalar()
        if closed_s is not None and policy.window == "none":
            raise ParameterError(
                "this ledger was restored once, so a new user begins with the next window, and "
                "window none has only one; choose another window"
            )
        row = {"name": name, "created_s": now_s, "forwards": 0, "closed_s": closed_s}
        user_id = tx.execute(insert(users).returning(users.c.id), row).scalar_one()
        policy_id = _add_policy(tx, user_id, 1, policy, now_s)
        tx.execute(update(users).where(users.c.id == user_id).values(policy_id=policy_id))


def _add_policy(tx: Connection, user_id: int, version: int, policy: Policy, now_s: float) -> int:
    row = {
        "user_id": user_id,
        "version": version,
        "body": policy.to_json(),
        "created_s": now_s,
    }
    return int(tx.execute(insert(policies).returning(policies.c.id), row).scalar_one())


def set_policy(ledger: Ledger, name: str, policy: Policy) -> int:
    """Another policy for a user; returns its version.

    It applies from the first window on that begins after the present one has ended, and that
    holds no report of the present policy: so no window is paid twice.
    """
    mechanism = policy.fit()
    with ledger.database.writing() as tx:
        user = _locked(tx, name)
        # Before the first report nothing was paid, unless by a ledger that a restore has lost.
        begun = user.state is not None or user.closed_s is not None
        if begun:
            present = ledger.rules_of(tx, user.policy_id).mechanism
            if any(isinstance(m.window, NoReset) for m in (present, mechanism)):
                raise ParameterError(
                    "one budget for ever has no next window, so a policy with window none can "
                    "neither follow nor be followed by another once there are reports; add a new "
                    "user"
                )
        newest = select(func.max(policies.c.version)).where(policies.c.user_id == user.id)
        version = int(tx.execute(newest).scalar_one()) + 1
        policy_id = _add_policy(tx, user.id, version, policy, time.time())
        changed: dict[str, int | None] = {"next_policy_id": policy_id}
        if not begun:
            changed = {"policy_id": policy_id, "next_policy_id": None}
        tx.execute(update(users).where(users.c.id == user.id).values(changed))
        return version


def listed(ledger: Ledger) -> list[tuple[str, float | None]]:
    """Names, and since when they are disabled, if they are."""
    with ledger.database.reading() as tx:
        rows = tx.execute(select(users.c.name, users.c.disabled_s).order_by(users.c.name))
        return [(row.name, row.disabled_s) for row in rows]


def shown(ledger: Ledger, name: str, now_s: float | None = None) -> Account:
    """What an operator may know about a user."""
    with ledger.database.reading() as tx:
        user = _found(tx, name)
        book = ledger.book(tx, user)
        number = select(func.count()).select_from(entries).where(entries.c.user_id == user.id)
        keys = select(token_rows).where(token_rows.c.user_id == user.id)
        return Account(
            name=user.name,
            created_s=user.created_s,
            disabled_s=user.disabled_s,
            version=book.rules.version,
            policy=book.rules.policy,
            waiting=None if book.following is None else book.following.policy,
            standing=book.standing(time.time() if now_s is None else now_s),
            guarantee=book.rules.mechanism.guarantee,
            entries=tx.execute(number).scalar_one(),
            tokens=[
                TokenRow(
                    row.id,
                    row.device,
                    row.created_s,
                    row.revoked_s,
                    row.passphrase is not None,
                    row.show_release,
                )
                for row in tx.execute(keys.order_by(token_rows.c.created_s))
            ],
            primary_device=user.primary_device,
            silence_s=book.silence_s,
        )


def set_disabled(ledger: Ledger, name: str, disabled: bool) -> None:
    """A disabled user's tokens are refused, and nothing is forwarded."""
    with ledger.database.writing() as tx:
        user = _locked(tx, name)
        at_s = (user.disabled_s or time.time()) if disabled else None
        tx.execute(update(users).where(users.c.id == user.id).values(disabled_s=at_s))


def delete_user(ledger: Ledger, name: str) -> None:
    """Forget a user and all that was released. Only a keyed hash of the name stays.

    With SQLite no byte of it is left in the database and its log, not even where earlier versions
    have left some. PostgreSQL keeps deleted rows in its files until it needs the space.
    """
    with ledger.database.writing() as tx:
        gone = select(removed.c.name_key).where(
            removed.c.name_key == ledger.keys.name(name_of(name))
        )
        if tx.execute(gone).first() is None:
            _delete(ledger, tx, name)
    ledger.database.scrub()  # also if only that had failed before


def _delete(ledger: Ledger, tx: Connection, name: str) -> None:
    user = _locked(tx, name)
    theirs = select(func.max(entries.c.id)).where(entries.c.user_id == user.id)
    last = tx.execute(theirs).scalar() or 0
    # The outbox goes with its destinations: in that order, as deliveries lock them.
    for table in (destinations, counts, receipts, entries, token_rows, policies):
        tx.execute(delete(table).where(table.c.user_id == user.id))
    tx.execute(delete(users).where(users.c.id == user.id))
    tx.execute(forget, {"number": last})  # last of all, as those who prune
    tx.execute(
        insert(removed),
        {"name_key": ledger.keys.name(user.name), "removed_s": time.time()},
    )


def new_token(
    ledger: Ledger,
    name: str,
    device: str,
    *,
    passphrase: str | None = None,
    show_release: bool = False,
    primary: bool = False,
) -> str:
    """A token for a device of a user. Nobody can see it a second time.

    The device becomes the primary one, unless another was chosen; with `primary` it is chosen.
    """
    device = name_of(device, "device")
    token = tokens.new()
    presented = tokens.presented(token)
    if presented is None:
        raise RuntimeError("a new token has the shape of one")
    with ledger.database.writing() as tx:
        user = _locked(tx, name)
        sealed = None
        if passphrase is not None:
            sealed = ledger.keys.seal(passphrase, about=f"passphrase {presented.id}")
        tx.execute(
            insert(token_rows),
            {
                "id": presented.id,
                "user_id": user.id,
                "device": device,
                "digest": presented.digest,
                "created_s": time.time(),
                "passphrase": sealed,
                "show_release": show_release,
            },
        )
        chosen = device if primary else user.chosen_device
        _set_primary(tx, user.id, chosen, newest=device)
    return token


class PrimaryDevice(NamedTuple):
    """Whose reports count, and how long it must be silent before those of others do."""

    device: str | None  # None: there is no token
    silence_s: float


def primary_device(ledger: Ledger, name: str) -> PrimaryDevice:
    """Whose reports count."""
    with ledger.database.reading() as tx:
        user = _found(tx, name)
        return PrimaryDevice(user.primary_device, ledger.book(tx, user).silence_s)


def set_primary(
    ledger: Ledger, name: str, device: str, *, silence_s: float | None = None
) -> PrimaryDevice:
    """Have the reports of this device count, and others only when it was silent for that long.

    `silence_s` None leaves that as it is.
    """
    device = name_of(device, "device")
    if silence_s is not None and not 0.0 <= silence_s <= _LONGEST_SILENCE_S:
        raise ParameterError(f"the silence must lie between 0 and 30 days, found {silence_s!r} s")
    with ledger.database.writing() as tx:
        user = _locked(tx, name)
        if device not in _devices(tx, user.id):
            raise Unknown(
                f"{name!r} has no device {device!r} with a token that is not revoked; 'hereish "
                "user show' lists them, and 'hereish token new' makes one"
            )
        if silence_s is not None:
            tx.execute(update(users).where(users.c.id == user.id).values(silence_s=silence_s))
        _set_primary(tx, user.id, device)
    return primary_device(ledger, name)


def _devices(tx: Connection, user_id: int) -> list[str]:
    """The devices that can report, newest token first."""
    valid = (token_rows.c.user_id == user_id, token_rows.c.revoked_s.is_(None))
    newest = (token_rows.c.created_s.desc(), token_rows.c.id)
    return list(tx.execute(select(token_rows.c.device).where(*valid).order_by(*newest)).scalars())


def _set_primary(
    tx: Connection, user_id: int, chosen: str | None, newest: str | None = None
) -> None:
    """The chosen device if it can report, else the one with the newest token."""
    able = _devices(tx, user_id)
    primary = chosen if chosen in able else newest or next(iter(able), None)
    change = update(users).where(users.c.id == user_id)
    tx.execute(change.values(chosen_device=chosen, primary_device=primary))


def revoke_token(ledger: Ledger, token_id: str) -> None:
    """A token that is never taken again. Takes the id, or the whole token."""
    whole = tokens.presented(token_id)
    known = whole.id if whole is not None else token_id.removeprefix("hereish_")
    with ledger.database.writing() as tx:
        owner = select(token_rows.c.user_id).where(token_rows.c.id == known).scalar_subquery()
        user = tx.execute(select(users).where(users.c.id == owner).with_for_update()).one_or_none()
        if user is None:
            raise Unknown("there is no such token; 'hereish user show NAME' lists their ids")
        row = tx.execute(select(token_rows).where(token_rows.c.id == known)).one()
        if row.revoked_s is None:
            change = update(token_rows).where(token_rows.c.id == known)
            tx.execute(change.values(revoked_s=time.time()))
            _set_primary(tx, user.id, user.chosen_device)


def _found(tx: Connection, name: str) -> Row[Any]:
    return _one(tx, select(users).where(users.c.name == name_of(name)), name)


def _locked(tx: Connection, name: str) -> Row[Any]:
    return _one(tx, select(users).where(users.c.name == name_of(name)).with_for_update(), name)


def _one(tx: Connection, query: Any, name: str) -> Row[Any]:
    user: Row[Any] | None = tx.execute(query).one_or_none()
    if user is None:
        raise Unknown(f"there is no user {name!r}; 'hereish user list' lists them")
    return user
