"""Whether the ledger can be used, for those who ask often: they do not cost it a query each."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from hereish.errors import HereishError
from hereish.gateway.ledger.database import LedgerUnreachable

LOOK_S = 1.0  # what is said may be that old; a gateway looks every second
ANSWER_S = 4.0  # a ledger that takes longer than this to answer is taken for dead


class Liveness:
    """Remembers the last look. However many ask, one of them looks again when it is too old."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._looked_s = -math.inf
        self._trouble: str | None = None
        self._doubtful = False
        self._one = threading.Lock()

    def look(self) -> None:
        """Look now, and raise what is wrong."""
        trouble: str | None = "the ledger cannot be used just now"
        self._doubtful = False
        try:
            self._look()
            trouble = None
        except HereishError as wrong:
            trouble = str(wrong)
            raise
        finally:
            self._looked_s, self._trouble = time.monotonic(), trouble

    def doubt(self) -> None:
        """Somebody could not use it: whoever asks next looks again."""
        self._doubtful = True

    def check(self) -> None:
        """Raise what was wrong at the last look, or that there was none for too long."""
        old = self._doubtful or self._age_s > LOOK_S
        if old and self._one.acquire(blocking=False):
            try:
                self.look()
            finally:
                self._one.release()
        if self._trouble is not None:
            raise LedgerUnreachable(self._trouble)
        if self._age_s > LOOK_S + ANSWER_S:  # whoever looks still waits for the answer
            raise LedgerUnreachable("the ledger has not answered for some seconds")

    @property
    def _age_s(self) -> float:
        return time.monotonic() - self._looked_s
