"""The statements that find who a token speaks for."""

from __future__ import annotations

from sqlalchemy import BigInteger, bindparam, literal_column, select

from hereish.gateway.ledger.database import LAST_NUMBER
from hereish.gateway.ledger.tables import entries, ledger, tokens, users

_DEVICE = (
    tokens.c.digest,
    tokens.c.device,
    tokens.c.revoked_s,
    tokens.c.passphrase,
    tokens.c.show_release,
    users.c.id,
    users.c.name,
    users.c.disabled_s,
    users.c.policy_id,
    users.c.next_policy_id,
    users.c.state,
    users.c.closed_s,
    users.c.forwards,
    users.c.primary_device,
    users.c.silence_s,
)
_newest = (
    entries.select()
    .where(entries.c.user_id == users.c.id)
    .order_by(entries.c.at_s.desc())
    .limit(1)
    .correlate(users)
)
newest_of = (
    select(entries.c.id, entries.c.made_s)
    .where(entries.c.user_id == bindparam("user"))
    .order_by(entries.c.at_s.desc())
    .limit(1)
)
account_of = (
    select(*_DEVICE)
    .join_from(tokens, users, tokens.c.user_id == users.c.id)
    .where(tokens.c.id == bindparam("token"))
)
# With the locks of the users (SQLite has one for all, taken when the transaction began), in the
# same order everywhere, so that two processes never wait for each other; and with what tells
# whether this is the ledger that we know.
locked_accounts = {
    dialect: select(
        tokens.c.id.label("token"),
        *_DEVICE,
        _newest.with_only_columns(entries.c.id).scalar_subquery().label("newest_id"),
        _newest.with_only_columns(entries.c.at_s).scalar_subquery().label("newest_at_s"),
        _newest.with_only_columns(entries.c.made_s).scalar_subquery().label("newest_made_s"),
        literal_column(f"({last})", BigInteger).label("last_number"),
        select(ledger.c.era).scalar_subquery().label("era"),
    )
    .join_from(tokens, users, tokens.c.user_id == users.c.id)
    .where(tokens.c.id.in_(bindparam("tokens", expanding=True)))
    .order_by(users.c.id)
    .with_for_update(of=users)
    for dialect, last in LAST_NUMBER.items()
}
