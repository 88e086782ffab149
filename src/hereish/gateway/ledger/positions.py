"""How far the ledger had come, for clients to keep and to show again.

A machine that is set back as a whole takes its ledger, its key and its high-water mark with it, and
none of them can tell. Clients can: each answer carries a position, which they show with later
requests. A genuine one that the ledger does not have proves that it was set back.

A position is `era.number.sealed`. The first two are there to find the highest: when the era began,
and how many entries the user has. What counts is sealed: the newest entry of the whole ledger, by
its number and by when it was made. So nobody learns from it how much others report, and a ledger
that was set back and has come as far again is known by its other times.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
import threading
from collections import OrderedDict
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select

from hereish.gateway.ledger.high_water_mark import ERA_WIDTH, count_of
from hereish.gateway.ledger.keys import Keys, KeyTrouble
from hereish.gateway.ledger.tables import entries, ledger
from hereish.gateway.ledger.transaction import NO_ENTRY, Numbered

HEADER = "Hereish-Ledger-Position"
_SHAPE = re.compile(r"([0-9]{1,12}\.[0-9]{1,18})\.([A-Za-z0-9_-]{60,120})", re.ASCII)
# In one statement, so that nobody prunes between its parts.
_held = select(
    select(entries.c.made_s).where(entries.c.id == bindparam("number")).scalar_subquery(),
    ledger.c.forgotten,
    ledger.c.era,
)
_ENTRY = struct.Struct(f"<qd{ERA_WIDTH}s")
_MOST = 10_000  # entries that a process remembers to be there


class Seen(NamedTuple):
    """What a genuine position says."""

    era: str
    entry: Numbered


class Positions:
    """Makes and reads positions of one ledger. Safe to share between threads."""

    def __init__(self, keys: Keys, ledger: str) -> None:
        self._keys, self._ledger = keys, ledger
        self._newest = NO_ENTRY
        self._there: OrderedDict[Numbered, None] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, entry: Numbered) -> None:
        """An entry that was committed, or found, in the ledger as it is."""
        with self._lock:
            self._newest = max(self._newest, entry)
            self._there[entry] = None
            if len(self._there) > _MOST:
                self._there.popitem(last=False)

    def has(self, seen: Seen, era: str) -> bool:
        """Whether this process knows that a ledger of this era has it, without looking."""
        with self._lock:
            return seen.era == era and seen.entry in self._there

    def is_set_back(self, tx: Connection, seen: Seen) -> bool:
        """Whether the ledger does not have what it once had."""
        found = tx.execute(_held, {"number": seen.entry.number}).one_or_none()
        if found is None:
            return False  # no ledger at all, which every report notices by itself
        made_s, forgotten, era = found
        if seen.era != era:  # those from before a restore that was accepted are of no interest
            return count_of(seen.era) >= count_of(era)
        pruned = made_s is None and seen.entry.number <= forgotten
        if not (pruned or made_s == seen.entry.made_s):  # [L11]
            return True
        self.note(seen.entry)
        return False

    def now(self, era: str, number: int) -> str:
        """The position to give to a user with so many entries."""
        order = f"{count_of(era)}.{number}"
        content = _ENTRY.pack(*self._newest, era.encode("ascii"))
        sealed = self._keys.seal_position(content, self._about(order))
        return f"{order}.{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}"

    def read(self, position: str) -> Seen | None:
        """What a position says; None if it is not one that this ledger gave."""
        found = _SHAPE.fullmatch(position)
        if found is None:
            return None
        try:
            sealed = base64.urlsafe_b64decode(found[2] + "=" * (-len(found[2]) % 4))
            content = self._keys.open_position(sealed, self._about(found[1]))
            number, made_s, era = _ENTRY.unpack(content)
        except (KeyTrouble, binascii.Error, struct.error):
            return None
        return Seen(era.decode("ascii"), Numbered(number, made_s))

    def _about(self, order: str) -> bytes:
        return f"{self._ledger} {order}".encode()
