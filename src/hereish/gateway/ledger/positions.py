"""Positions of the ledger, which clients keep and present again.

A machine that is set back as a whole takes its ledger, its key and its high-water mark with it, and
none of them can tell. Clients can: each response carries a position, which they present with later
requests. A genuine one that the ledger does not have proves that it was set back.

A position is `era.number.sealed`. The first two are there to find the latest: when the era began,
and how many entries the user has. The sealed part is what counts: the newest entry of the whole
ledger, by its number and its creation time. So nobody learns from it how much others report, and a
ledger that was set back and has come as far again is recognised by its different times.
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

from hereish.gateway.ledger.high_water_mark import ERA_WIDTH, era_count
from hereish.gateway.ledger.keys import Keys, LedgerKeyError
from hereish.gateway.ledger.models import NO_ENTRY, EntryRef
from hereish.gateway.ledger.tables import entries, ledger

HEADER = "Hereish-Ledger-Position"
_FORMAT = re.compile(r"([0-9]{1,12}\.[0-9]{1,18})\.([A-Za-z0-9_-]{60,120})", re.ASCII)
# In one statement, so that nothing is pruned between its parts.
_select_entry = select(
    select(entries.c.made_s).where(entries.c.id == bindparam("number")).scalar_subquery(),
    ledger.c.forgotten,
    ledger.c.era,
)
_SEALED = struct.Struct(f"<qd{ERA_WIDTH}s")
_MAX_KNOWN = 10_000  # entries that a process remembers to be in the ledger


class ClientPosition(NamedTuple):
    """The content of a genuine position."""

    era: str
    entry: EntryRef


class LedgerPositions:
    """Issues and parses positions of one ledger. Safe to share between threads."""

    def __init__(self, keys: Keys, ledger_id: str) -> None:
        self._keys, self._ledger_id = keys, ledger_id
        self._newest = NO_ENTRY
        self._known: OrderedDict[EntryRef, None] = OrderedDict()
        self._lock = threading.Lock()

    def record(self, entry: EntryRef) -> None:
        """An entry that was committed to, or found in, the ledger."""
        with self._lock:
            self._newest = max(self._newest, entry)
            self._known[entry] = None
            if len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)

    def is_known(self, position: ClientPosition, era: str) -> bool:
        """Whether this process knows, without a query, that a ledger of this era has it."""
        with self._lock:
            return position.era == era and position.entry in self._known

    def is_set_back(self, tx: Connection, position: ClientPosition) -> bool:
        """Whether the ledger does not have what it once had."""
        row = tx.execute(_select_entry, {"number": position.entry.number}).one_or_none()
        if row is None:
            return False  # no ledger at all, which every report detects by itself
        made_s, forgotten, era = row
        if position.era != era:  # those from before a restore that was accepted are irrelevant
            return era_count(position.era) >= era_count(era)
        pruned = made_s is None and position.entry.number <= forgotten
        if not (pruned or made_s == position.entry.made_s):  # [L11]
            return True
        self.record(position.entry)
        return False

    def issue(self, era: str, entry_count: int) -> str:
        """The position for a user with so many entries."""
        order = f"{era_count(era)}.{entry_count}"
        content = _SEALED.pack(*self._newest, era.encode("ascii"))
        sealed = self._keys.seal_position(content, self._context(order))
        return f"{order}.{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}"

    def parse(self, text: str) -> ClientPosition | None:
        """The content of a position; None if it is not one that this ledger issued."""
        match = _FORMAT.fullmatch(text)
        if match is None:
            return None
        try:
            sealed = base64.urlsafe_b64decode(match[2] + "=" * (-len(match[2]) % 4))
            content = self._keys.open_position(sealed, self._context(match[1]))
            number, made_s, era = _SEALED.unpack(content)
        except (LedgerKeyError, binascii.Error, struct.error):
            return None
        return ClientPosition(era.decode("ascii"), EntryRef(number, made_s))

    def _context(self, order: str) -> bytes:
        return f"{self._ledger_id} {order}".encode()
