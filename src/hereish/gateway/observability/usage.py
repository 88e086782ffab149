"""Usage counts: how many points each device sent per day. Statistics, flushed from time to time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.queries import DeviceIdentity
from hereish.gateway.ledger.tables import counts, users


def local_day(time_zone: str, now_s: float | None = None) -> str:
    """Today, where the user's days begin."""
    now = datetime.fromtimestamp(time.time() if now_s is None else now_s, UTC)
    return now.astimezone(ZoneInfo(time_zone)).date().isoformat()


class UsageCounts:
    """Counts in memory until `flush`; a crash loses what was not flushed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[int, str, str]] = Counter()

    def add(self, device: DeviceIdentity, day: str, points: int) -> None:
        if points:
            with self._lock:
                self._counts[device.user_id, device.device, day] += points

    def flush(self, ledger: Ledger) -> None:
        with self._lock:
            unwritten, self._counts = self._counts, Counter()
        if not unwritten:
            return
        try:
            with ledger.database.writing() as tx:
                user_ids = {user_id for user_id, _, _ in unwritten}
                existing = set(
                    tx.execute(select(users.c.id).where(users.c.id.in_(user_ids))).scalars()
                )
                for (user_id, device, day), points in sorted(unwritten.items()):
                    if user_id in existing:  # somebody may have been deleted meanwhile
                        _add(tx, user_id, device, day, points)
        except BaseException:
            with self._lock:
                self._counts.update(unwritten)
            raise

    def on_day(self, ledger: Ledger, user_id: int, day: str) -> dict[str, int]:
        """The points of each device on a day, with those not written yet."""
        written = select(counts.c.device, counts.c.points).where(
            counts.c.user_id == user_id, counts.c.day == day
        )
        with ledger.database.reading() as tx:
            total = Counter({row.device: int(row.points) for row in tx.execute(written)})
        with self._lock:
            for (user, device, on), points in self._counts.items():
                if user == user_id and on == day:
                    total[device] += points
        return dict(sorted(total.items()))


def _add(tx: Connection, user_id: int, device: str, day: str, points: int) -> None:
    row = {"user_id": user_id, "device": device, "day": day, "points": points}
    more = {"points": counts.c.points + points}
    key = ["user_id", "device", "day"]
    if tx.dialect.name == "sqlite":
        tx.execute(
            sqlite.insert(counts).values(row).on_conflict_do_update(index_elements=key, set_=more)
        )
    else:
        tx.execute(
            postgresql.insert(counts)
            .values(row)
            .on_conflict_do_update(index_elements=key, set_=more)
        )
