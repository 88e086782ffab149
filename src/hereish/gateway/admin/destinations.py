"""Destinations: where releases are forwarded to, as an operator adds, lists and removes them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from hereish.gateway.admin.accounts import NotFoundError, require_user
from hereish.gateway.forwarding.targets import DestinationTarget, parse_target
from hereish.gateway.ledger.keys import Keys, LedgerKeyError
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.tables import destinations, outbox, users


class Destination(NamedTuple):
    """A destination as an operator may see it: no credentials."""

    id: int
    format: str
    address: str
    note: str | None
    created_s: float
    waiting: int  # releases that were not delivered yet
    tries: int  # failed ones since the last success
    next_try_s: float
    trouble: str | None


def add_destination(
    ledger: Ledger,
    user: str,
    address: str,
    format: str,  # noqa: A002  # its name everywhere
    *,
    username: str | None = None,
    password: str | None = None,
    bearer: str | None = None,
    headers: Mapping[str, str] | None = None,
    device: str | None = None,
    accuracy: bool = True,
) -> int:
    """Send this user's releases from now on to an address, too. Returns the destination's number.

    OwnTracks' Recorder and Home Assistant need a user and a device with each request:
    headers={"X-Limit-U": …, "X-Limit-D": …}. `device` is what other receivers know it by.
    Without `accuracy` the noise radius is not sent: some hide what is not accurate enough for them.
    """
    target = parse_target(
        address,
        format,
        username=username,
        password=password,
        bearer=bearer,
        headers=headers,
        device=device,
        accuracy=accuracy,
    )
    with ledger.database.writing() as tx:
        user_id = require_user(tx, user, lock=True).id
        row = {
            "user_id": user_id,
            "format": target.format,
            "sealed": target.seal(ledger.keys, user_id),
            "created_s": time.time(),
            "leased_until_s": 0.0,
            "tries": 0,
            "next_try_s": 0.0,
        }
        added = tx.execute(insert(destinations).returning(destinations.c.id), row).scalar_one()
        _update_count(tx, user_id)
        return int(added)


def list_destinations(ledger: Ledger, user: str) -> list[Destination]:
    """The destinations of a user, the oldest first."""
    number = select(func.count()).where(outbox.c.destination_id == destinations.c.id)
    with ledger.database.reading() as tx:
        user_id = require_user(tx, user).id
        found = (
            select(destinations, number.scalar_subquery().label("waiting"))
            .where(destinations.c.user_id == user_id)
            .order_by(destinations.c.id)
        )
        return [_describe(ledger.keys, row) for row in tx.execute(found)]


def remove_destination(ledger: Ledger, user: str, destination_id: int) -> None:
    """Send nothing there any more, not even what waits."""
    with ledger.database.writing() as tx:
        user_id = require_user(tx, user, lock=True).id
        gone = tx.execute(
            delete(destinations).where(
                destinations.c.id == destination_id, destinations.c.user_id == user_id
            )
        )
        if gone.rowcount == 0:
            raise NotFoundError(f"{user!r} has no destination {destination_id}")
        _update_count(tx, user_id)


def _describe(keys: Keys, row: Row[Any]) -> Destination:
    try:
        target = DestinationTarget.unseal(keys, row.sealed, row.user_id)
        address, note = target.display_address, target.note
    except LedgerKeyError as error:
        address, note = "…", str(error)
    return Destination(
        id=row.id,
        format=row.format,
        address=address,
        note=note,
        created_s=row.created_s,
        waiting=row.waiting,
        tries=row.tries,
        next_try_s=row.next_try_s,
        trouble=row.trouble,
    )


def _update_count(tx: Connection, user_id: int) -> None:
    number = select(func.count()).where(destinations.c.user_id == user_id).scalar_subquery()
    tx.execute(update(users).where(users.c.id == user_id).values(forwards=number))
