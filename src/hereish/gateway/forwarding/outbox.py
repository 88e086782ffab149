"""The outbox: which releases wait for which destination, and who delivers them.

A release is committed together with one outbox row per destination. A row is deleted after the
receiver has acknowledged it: at-least-once delivery, in order. Whoever delivers holds the lease of
the destination, so many processes may serve one ledger; if one dies, its lease runs out.
Each method is one short transaction, and none is open while anything waits for the network.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, literal, select, update

from hereish.core.types import Kind
from hereish.gateway.forwarding.delivery import BATCH, DeliveryAttempt, QueuedRelease
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import LedgerRelease
from hereish.gateway.ledger.tables import destinations, entries, outbox, users
from hereish.gateway.observability.logs import log_event

LEASE_S = 120.0
"""Longer than an attempt to deliver can take, slow name servers and all."""
_LONGEST_WAIT_S = 3600.0
_SKEW_S = 60.0  # at most, between the clocks of two machines

_any_queued = select(outbox.c.id).limit(1)
_is_enabled = (
    select(literal(1))
    .where(users.c.id == destinations.c.user_id, users.c.disabled_s.is_(None))
    .exists()
)
# Nobody writes a time that is further ahead than that: then the clock was set back, and nothing
# waits until it has come there again.
_is_ready = (
    ~destinations.c.leased_until_s.between(bindparam("now"), bindparam("lease_end"))
    & (
        (destinations.c.next_try_s <= bindparam("now"))
        | (destinations.c.next_try_s > bindparam("last_try"))
    )
    & _is_enabled
)
_oldest = (
    select(func.min(outbox.c.id))
    .where(outbox.c.destination_id == destinations.c.id)
    .scalar_subquery()
)
_select_due = (
    select(destinations.c.id)
    .where(_is_ready, _oldest.is_not(None), (destinations.c.tries > 0) == bindparam("failing"))
    .order_by(destinations.c.next_try_s, _oldest)
)
_claim = (
    update(destinations)
    .where(destinations.c.id == bindparam("destination"), _is_ready)
    .values(leased_until_s=bindparam("until"))
    .returning(destinations.c.user_id, destinations.c.sealed, destinations.c.tries)
)
_select_batch = (
    select(outbox)
    .join(destinations, outbox.c.destination_id == destinations.c.id)
    .where(outbox.c.destination_id == bindparam("destination"), _is_enabled)
    .order_by(outbox.c.id)
    .limit(BATCH)
)
# Entries are made in the order of time, so the newest has the highest number.
_select_newest = (
    select(entries.c.id)
    .where(entries.c.user_id == bindparam("user"))
    .order_by(entries.c.at_s.desc())
    .limit(1)
)
_delete_delivered = delete(outbox).where(
    outbox.c.destination_id == bindparam("destination"), outbox.c.id <= bindparam("last")
)
_update_lease = (
    update(destinations)
    .where(
        destinations.c.id == bindparam("destination"),
        destinations.c.leased_until_s == bindparam("mine"),
    )
    .values(leased_until_s=bindparam("until"))
)
_update_outcome = (
    update(destinations)
    .where(destinations.c.id == bindparam("destination"))
    .values(tries=bindparam("failed"), next_try_s=bindparam("next"), trouble=bindparam("error"))
)


class Lease(NamedTuple):
    """A destination that is ours until then. The time also identifies the lease."""

    destination: int
    user_id: int
    sealed: bytes
    tries: int
    until_s: float
    queued: list[QueuedRelease]


class Outbox:
    """The outbox of a ledger. Its methods may be called from many threads."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def count(self) -> int:
        """How many deliveries wait, over all destinations."""
        with self._ledger.database.reading() as tx:
            return int(tx.execute(select(func.count()).select_from(outbox)).scalar_one())

    def find_due(self, now_s: float, failing: bool, limit: int | None = None) -> Sequence[int]:
        """The destinations to deliver to now: those whose last attempt failed, or the others."""
        with self._ledger.database.reading() as tx:
            if tx.execute(_any_queued).first() is None:
                return []
            values = {**_times(now_s), "failing": failing}
            return tx.execute(_select_due.limit(limit), values).scalars().all()

    def claim(self, destination: int, now_s: float) -> Lease | None:
        """Lease a destination that has something queued; None if another process was first."""
        until_s = _lease_end_s(now_s)
        values = {**_times(now_s), "destination": destination, "until": until_s}
        with self._ledger.database.writing() as tx:
            row = tx.execute(_claim, values).one_or_none()
            if row is None:
                return None
            queued = _read_batch(tx, destination)
            if not queued:
                _move_lease(tx, destination, until_s, 0.0)
                return None
            newest = tx.execute(_select_newest, {"user": row.user_id}).scalar()
        self._raise_mark(newest)
        return Lease(destination, row.user_id, row.sealed, row.tries, until_s, queued)

    def settle(
        self, lease: Lease, attempt: DeliveryAttempt, error: str | None, now_s: float
    ) -> Lease | None:
        """Delete what was delivered and note the outcome. The next lease, if there is more."""
        tries = (0 if attempt.delivered else lease.tries) + (error is not None)
        until_s = _lease_end_s(now_s)
        with self._ledger.database.writing() as tx:
            # The destination before its outbox, in the order of its removal: so nobody deadlocks.
            ours = _move_lease(tx, lease.destination, lease.until_s, until_s)
            if attempt.delivered:
                last = lease.queued[attempt.delivered - 1].id
                tx.execute(_delete_delivered, {"destination": lease.destination, "last": last})
            if not ours:
                return None
            if attempt.delivered or error is not None:
                values = {"failed": tries, "error": error, "destination": lease.destination}
                # No time where none is needed: the clock may be wrong.
                next_s = now_s + _pause_s(tries) if error is not None else 0.0
                tx.execute(_update_outcome, {**values, "next": next_s})
            on = error is None and not attempt.stopping
            queued = _read_batch(tx, lease.destination) if on else []
            if not queued:
                _move_lease(tx, lease.destination, until_s, 0.0)
            newest = (
                tx.execute(_select_newest, {"user": lease.user_id}).scalar() if queued else None
            )
        self._raise_mark(newest)
        if error is not None and tries == 1:
            log_event("not forwarded", logging.WARNING, destination=lease.destination, words=error)
        return lease._replace(tries=tries, until_s=until_s, queued=queued) if queued else None

    def _raise_mark(self, newest: int | None) -> None:
        """Before anything leaves: the report that made it may not have raised the mark yet."""
        if newest is not None:
            self._ledger.mark.raise_to(newest)


def _lease_end_s(now_s: float) -> float:
    # A little at random, so that no two leases are the same.
    return now_s + LEASE_S + random.random()  # noqa: S311  # guards against chance, not people


def _times(now_s: float) -> dict[str, float]:
    """The values that `_is_ready` compares with."""
    return {
        "now": now_s,
        "lease_end": now_s + LEASE_S + _SKEW_S,
        "last_try": now_s + _LONGEST_WAIT_S + _SKEW_S,
    }


def _move_lease(tx: Connection, destination: int, mine_s: float, until_s: float) -> bool:
    """Renew a lease, or end it. False if it is not ours any more."""
    values = {"destination": destination, "mine": mine_s, "until": until_s}
    return tx.execute(_update_lease, values).rowcount == 1


def _read_batch(tx: Connection, destination: int) -> list[QueuedRelease]:
    return [_to_queued(row) for row in tx.execute(_select_batch, {"destination": destination})]


def _to_queued(row: Any) -> QueuedRelease:
    # Kind and cost are not in the outbox; the formats do not have them.
    release = LedgerRelease(
        lat=row.lat,
        lon=row.lon,
        at_s=row.at_s,
        kind=Kind.UNTESTED,
        cost=0.0,
        accuracy_m=row.accuracy_m,
        eps_test=0.0,
        eps_noise=0.0,
        threshold_m=None,
        window="",
    )
    return QueuedRelease(row.id, release, row.device, row.tid)


def _pause_s(tries: int) -> float:
    """Exponential backoff from a second to an hour, with jitter: receivers are not flooded."""
    longest = min(_LONGEST_WAIT_S, 2.0 ** min(tries, 12))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  # nobody gains by guessing it
