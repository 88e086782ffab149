"""Whether the ledger can be used, cached: frequent health checks do not cost a query each."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from hereish.errors import HereishError
from hereish.gateway.ledger.database import LedgerUnavailableError

MAX_AGE_S = 1.0  # of a cached result; a gateway probes every second
MAX_PROBE_S = 4.0  # a ledger that takes longer than this to answer is taken for dead


class Liveness:
    """Caches the last probe. However many check, one of them probes again when it is too old."""

    def __init__(self, probe: Callable[[], None]) -> None:
        self._probe = probe
        self._probed_s = -math.inf
        self._failure: str | None = None
        self._suspect = False
        self._prober = threading.Lock()

    def probe(self) -> None:
        """Probe now, and raise what is wrong."""
        failure: str | None = "the ledger cannot be used just now"
        self._suspect = False
        try:
            self._probe()
            failure = None
        except HereishError as error:
            failure = str(error)
            raise
        finally:
            self._probed_s, self._failure = time.monotonic(), failure

    def mark_suspect(self) -> None:
        """A request could not use the ledger: the next check probes again."""
        self._suspect = True

    def check(self) -> None:
        """Raise what was wrong at the last probe, or that there was none for too long."""
        stale = self._suspect or self._age_s > MAX_AGE_S
        if stale and self._prober.acquire(blocking=False):
            try:
                self.probe()
            finally:
                self._prober.release()
        if self._failure is not None:
            raise LedgerUnavailableError(self._failure)
        if self._age_s > MAX_AGE_S + MAX_PROBE_S:  # another thread's probe still waits
            raise LedgerUnavailableError("the ledger has not answered for some seconds")

    @property
    def _age_s(self) -> float:
        return time.monotonic() - self._probed_s
