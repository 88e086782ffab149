"""Users, their policies and tokens, for the operator."""

from __future__ import annotations

import math
import time
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, func, insert, select, update

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.windows import NoReset
from hereish.errors import HereishError, ParameterError
from hereish.gateway.ledger import tokens
from hereish.gateway.ledger.budget_status import BudgetStatus, SecondStatus
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.limit_charges import costs_no_more
from hereish.gateway.ledger.policy import Policy
from hereish.gateway.ledger.queries import (
    UserRow,
    find_user,
    list_tokens,
    lock_user_of_token,
    read_known_costs,
    read_spans,
)
from hereish.gateway.ledger.rest_forecast import RestForecast, forecast_rest
from hereish.gateway.ledger.tables import (
    counts,
    destinations,
    entries,
    policies,
    raise_forgotten,
    receipts,
    removed,
    reservations,
    users,
)
from hereish.gateway.ledger.tables import ledger as ledger_row
from hereish.gateway.ledger.tables import tokens as token_rows
from hereish.traces.names import canonical_name

_MAX_NAME = 64
_MAX_SILENCE_S = 30 * 86400.0


class NotFoundError(HereishError):
    """No such user, device, token or destination."""


class TokenInfo(NamedTuple):
    """A token as its operator may see it."""

    id: str
    device: str
    created_s: float
    revoked_s: float | None
    encrypted: bool
    show_release: bool


class UserOverview(NamedTuple):
    """A user as the operator may see them: no place, not even a released one."""

    name: str
    created_s: float
    disabled_s: float | None
    version: int
    policy: Policy
    waiting: Policy | None  # applies from a later window on
    budget: BudgetStatus
    forecast: RestForecast | None  # of the present window; None: nothing is left of it
    guarantee: str
    second: SecondStatus | None  # what holds besides, with a small delta
    entries: int
    tokens: list[TokenInfo]
    primary_device: str | None
    silence_s: float  # of the primary device, before others count


def normalize_name(text: str, what: str = "user") -> str:
    """A name as it is stored: two spellings of one name would be two budgets."""
    name = unicodedata.normalize("NFC", text.strip())
    if not 0 < len(name) <= _MAX_NAME or not name.isprintable() or set(name) & set("/:"):
        raise ParameterError(
            f"the name of a {what} has 1 to {_MAX_NAME} letters, digits, spaces or signs other "
            f"than / and :, found {text!r}"
        )
    return name


def add_user(ledger: Ledger, name: str, policy: Policy) -> None:
    """Add a user with a first policy."""
    name = normalize_name(name)
    policy.build_checked()  # raises what is wrong with it
    now_s = time.time()
    with ledger.database.writing() as tx:
        if _was_removed(ledger, tx, name):
            raise ParameterError(
                f"{name!r} was deleted, and a new user of that name would get a second budget for "
                "the same days; choose another name"
            )
        if tx.execute(select(users.c.id).where(users.c.name == name)).first() is not None:
            raise ParameterError(f"there is a user {name!r} already")
        # They may have been here before a restore, which lost them and what they spent.
        closed_s = tx.execute(select(ledger_row.c.closed_s)).scalar()
        if closed_s is not None and _is_for_ever(policy):
            raise ParameterError(
                "this ledger was restored once, so a new user begins with the next window, and "
                "window none, or a budget for ever, has only one; choose another window"
            )
        _insert_user(tx, name, policy, now_s, closed_s)


class NewUsers:
    """Adds users of a job whom the ledger does not know, with one policy.

    Not those who were deleted, nor names that could be other spellings of somebody's: they stay
    unknown, and nothing of theirs is released.
    """

    def __init__(self, ledger: Ledger, policy: Policy) -> None:
        policy.build_checked()
        self._ledger, self._policy = ledger, policy
        with ledger.database.reading() as tx:
            names = set(tx.execute(select(users.c.name)).scalars())
        self._other_spellings = {canonical_name(name) for name in names} - names

    def __call__(self, names: Sequence[str]) -> None:
        ledger, now_s = self._ledger, time.time()
        with ledger.database.writing() as tx:
            ledger.database.lock_ledger(tx)  # another job may add the same
            closed_s = tx.execute(select(ledger_row.c.closed_s)).scalar()
            if closed_s is not None and _is_for_ever(self._policy):
                return  # as `add_user` says
            query = select(users.c.name).where(users.c.name.in_(names))
            known = set(tx.execute(query).scalars()) | self._other_spellings
            for name in names:
                if name not in known and _is_name(name) and not _was_removed(ledger, tx, name):
                    _insert_user(tx, name, self._policy, now_s, closed_s)


def _is_for_ever(policy: Policy) -> bool:
    """Whether a budget of it has one window for ever."""
    periods = {period for period, _ in policy.limits or ()}
    return policy.window == "none" or "forever" in periods


def _is_name(text: str) -> bool:
    try:
        return normalize_name(text) == text
    except ParameterError:
        return False


def _insert_user(
    tx: Connection, name: str, policy: Policy, now_s: float, closed_s: float | None
) -> None:
    row = {"name": name, "created_s": now_s, "forwards": 0, "closed_s": closed_s}
    user_id = tx.execute(insert(users).returning(users.c.id), row).scalar_one()
    policy_id = _add_policy(tx, user_id, 1, policy, now_s)
    tx.execute(update(users).where(users.c.id == user_id).values(policy_id=policy_id))


def _add_policy(tx: Connection, user_id: int, version: int, policy: Policy, now_s: float) -> int:
    row = {
        "user_id": user_id,
        "version": version,
        "body": policy.with_preset_numbers().to_json(),
        "created_s": now_s,
    }
    return int(tx.execute(insert(policies).returning(policies.c.id), row).scalar_one())


def set_policy(ledger: Ledger, name: str, policy: Policy) -> int:
    """Set another policy for a user; returns its version.

    It applies from the first window on that begins after the present one has ended, and that
    holds no report of the present policy: so no window is paid twice.
    """
    mechanism, number, dearer = policy.build_checked(), None, False
    with ledger.database.writing() as tx:
        user = require_user(tx, name, lock=True)
        # Before the first report nothing was paid, unless by a job, or by a ledger that a restore
        # has lost.
        paid = (user.state, user.closed_s, user.reserved_s)
        begun = any(evidence is not None for evidence in paid)
        if begun:
            present = ledger.policies.read(tx, user.policy_id).mechanism
            if any(isinstance(m.window, NoReset) for m in (present, mechanism)):
                raise ParameterError(
                    "one budget for ever has no next window, so a policy with window none can "
                    "neither follow nor be followed by another once there are reports; add a new "
                    "user"
                )
            _check_new_limits(ledger, tx, user, present, mechanism)
            dearer = not costs_no_more(mechanism, present) and _has_limits(tx, user, policy)
        newest = select(func.max(policies.c.version)).where(policies.c.user_id == user.id)
        version = int(tx.execute(newest).scalar_one()) + 1
        policy_id = _add_policy(tx, user.id, version, policy, time.time())
        changed: dict[str, int | None] = {"next_policy_id": policy_id}
        if not begun:
            changed = {"policy_id": policy_id, "next_policy_id": None}
        tx.execute(update(users).where(users.c.id == user.id).values(changed))
        if dearer:
            number = ledger.database.take_payment_number(tx)
    if number is not None:  # so that a restore which loses this policy is known to have done so
        ledger.guard.raise_mark_to(number)  # [L23]
    return version


def _has_limits(tx: Connection, user: UserRow, policy: Policy) -> bool:
    """Whether this policy has limits, or any that the user has had."""
    limited = policies.c.body.contains('"limits"')
    own = select(policies.c.id).where(policies.c.user_id == user.id, limited)
    return policy.limits is not None or tx.execute(own.limit(1)).first() is not None


def _check_new_limits(
    ledger: Ledger,
    tx: Connection,
    user: UserRow,
    present: PredictiveMechanism,
    new: PredictiveMechanism,
) -> None:
    """Refuse a budget for ever that would be full from the beginning, and so for ever."""
    for limit, total in zip(new.limits, new.bound.limits, strict=True):
        known_before = any(limit.window == one.window for one in present.limits)
        if known_before or not isinstance(limit.window, NoReset):
            continue
        known = read_known_costs(tx, user.id, -math.inf)
        taken = sum(span.eps for span in read_spans(tx, user, ledger.policies))
        spent = sum(cost for _, cost in known.costs) + taken
        lost = known.unknown_s is not None or user.closed_s is not None
        if lost or spent >= (1.0 - 1e-9) * total:
            why = "what they have spent is not known any more: it was pruned, or lost in a restore"
            if not lost:
                level = spent * new.privacy.radius_m
                why = f"they have spent a level of {level:.4g} already, and it allows {limit.level}"
            raise ParameterError(
                f"a budget for ever counts all that {user.name!r} ever spent, and {why}; choose "
                "budgets of a month or so, or add a new user"
            )


def list_users(ledger: Ledger) -> list[tuple[str, float | None]]:
    """Names, and since when they are disabled, if they are."""
    with ledger.database.reading() as tx:
        rows = tx.execute(select(users.c.name, users.c.disabled_s).order_by(users.c.name))
        return [(row.name, row.disabled_s) for row in rows]


def describe_user(ledger: Ledger, name: str, now_s: float | None = None) -> UserOverview:
    """What an operator may know about a user."""
    now_s = time.time() if now_s is None else now_s
    with ledger.database.reading() as tx:
        user = require_user(tx, name)
        state = ledger.policies.load_state(tx, user)
        number = select(func.count()).select_from(entries).where(entries.c.user_id == user.id)
        return UserOverview(
            name=user.name,
            created_s=user.created_s,
            disabled_s=user.disabled_s,
            version=state.policy.version,
            policy=state.policy.settings,
            waiting=None if state.next_policy is None else state.next_policy.settings,
            budget=state.budget_at(now_s),
            forecast=forecast_rest(state, now_s),
            guarantee=state.policy.mechanism.guarantee,
            second=state.second_promise_at(now_s),
            entries=tx.execute(number).scalar_one(),
            tokens=[
                TokenInfo(
                    token.id,
                    token.device,
                    token.created_s,
                    token.revoked_s,
                    token.passphrase is not None,
                    token.show_release,
                )
                for token in list_tokens(tx, user.id)
            ],
            primary_device=user.primary_device,
            silence_s=state.silence_s,
        )


def set_disabled(ledger: Ledger, name: str, disabled: bool) -> None:
    """A disabled user's tokens are refused, and nothing is forwarded."""
    with ledger.database.writing() as tx:
        user = require_user(tx, name, lock=True)
        at_s = (user.disabled_s or time.time()) if disabled else None
        tx.execute(update(users).where(users.c.id == user.id).values(disabled_s=at_s))


def delete_user(ledger: Ledger, name: str) -> None:
    """Delete a user and all that was released. Only a keyed hash of the name stays.

    With SQLite no byte of it is left in the database and its log, not even where earlier versions
    have left some. PostgreSQL keeps deleted rows in its files until it needs the space.
    """
    with ledger.database.writing() as tx:
        if not _was_removed(ledger, tx, normalize_name(name)):
            _delete(ledger, tx, name)
    ledger.database.vacuum()  # also if only that had failed before


def _was_removed(ledger: Ledger, tx: Connection, name: str) -> bool:
    key = ledger.keys.name_key(name)
    return tx.execute(select(removed).where(removed.c.name_key == key)).first() is not None


def _delete(ledger: Ledger, tx: Connection, name: str) -> None:
    user = require_user(tx, name, lock=True)
    newest = select(func.max(entries.c.id)).where(entries.c.user_id == user.id)
    last = tx.execute(newest).scalar() or 0
    # The outbox goes with its destinations: in that order, as deliveries lock them.
    owned = (destinations, counts, receipts, reservations, entries, token_rows, policies)
    for table in owned:
        tx.execute(delete(table).where(table.c.user_id == user.id))
    tx.execute(delete(users).where(users.c.id == user.id))
    tx.execute(raise_forgotten, {"number": last})  # last of all, as those who prune
    # And as jobs spell it, who would otherwise add the user again; unless that is another user.
    for spelling in {user.name, canonical_name(user.name)}:
        if not _was_removed(ledger, tx, spelling) and find_user(tx, spelling) is None:
            row = {"name_key": ledger.keys.name_key(spelling), "removed_s": time.time()}
            tx.execute(insert(removed), row)


def new_token(
    ledger: Ledger,
    name: str,
    device: str,
    *,
    passphrase: str | None = None,
    show_release: bool = False,
    primary: bool = False,
) -> str:
    """Issue a token for a device of a user. It is returned once and cannot be read again.

    The device becomes the primary one, unless another was chosen; with `primary` it is chosen.
    """
    device = normalize_name(device, "device")
    token = tokens.generate_token()
    presented = tokens.parse_token(token)
    if presented is None:
        raise RuntimeError("a new token has the shape of one")
    with ledger.database.writing() as tx:
        user = require_user(tx, name, lock=True)
        sealed = None
        if passphrase is not None:
            sealed = ledger.keys.seal(passphrase, context=f"passphrase {presented.id}")
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
        user = require_user(tx, name)
        return PrimaryDevice(user.primary_device, ledger.policies.load_state(tx, user).silence_s)


def set_primary(
    ledger: Ledger, name: str, device: str, *, silence_s: float | None = None
) -> PrimaryDevice:
    """Let the reports of this device count, and others only after it was silent for that long.

    With `silence_s` None that setting stays as it is.
    """
    device = normalize_name(device, "device")
    if silence_s is not None and not 0.0 <= silence_s <= _MAX_SILENCE_S:
        raise ParameterError(f"the silence must lie between 0 and 30 days, found {silence_s!r} s")
    with ledger.database.writing() as tx:
        user = require_user(tx, name, lock=True)
        if device not in _list_devices(tx, user.id):
            raise NotFoundError(
                f"{name!r} has no device {device!r} with a token that is not revoked; 'hereish "
                "user show' lists them, and 'hereish token new' makes one"
            )
        if silence_s is not None:
            tx.execute(update(users).where(users.c.id == user.id).values(silence_s=silence_s))
        _set_primary(tx, user.id, device)
    return primary_device(ledger, name)


def _list_devices(tx: Connection, user_id: int) -> list[str]:
    """The devices that can report, newest token first."""
    valid = (token_rows.c.user_id == user_id, token_rows.c.revoked_s.is_(None))
    newest = (token_rows.c.created_s.desc(), token_rows.c.id)
    return list(tx.execute(select(token_rows.c.device).where(*valid).order_by(*newest)).scalars())


def _set_primary(
    tx: Connection, user_id: int, chosen: str | None, newest: str | None = None
) -> None:
    """The chosen device if it can report, else the one with the newest token."""
    able = _list_devices(tx, user_id)
    primary = chosen if chosen in able else newest or next(iter(able), None)
    change = update(users).where(users.c.id == user_id)
    tx.execute(change.values(chosen_device=chosen, primary_device=primary))


def revoke_token(ledger: Ledger, token_id: str) -> None:
    """Refuse a token for ever. Takes its id, or all of it."""
    parsed = tokens.parse_token(token_id)
    known = parsed.id if parsed is not None else token_id.removeprefix("hereish_")
    with ledger.database.writing() as tx:
        user = lock_user_of_token(tx, known)
        if user is None:
            raise NotFoundError("there is no such token; 'hereish user show NAME' lists their ids")
        valid = (token_rows.c.id == known, token_rows.c.revoked_s.is_(None))
        if tx.execute(update(token_rows).where(*valid).values(revoked_s=time.time())).rowcount:
            _set_primary(tx, user.id, user.chosen_device)


def require_user(tx: Connection, name: str, *, lock: bool = False) -> UserRow:
    """The user of this name; with `lock` nobody reports for them until the transaction ends."""
    user = find_user(tx, normalize_name(name), lock=lock)
    if user is None:
        raise NotFoundError(f"there is no user {name!r}; 'hereish user list' lists them")
    return user
