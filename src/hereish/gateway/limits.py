"""How often one token may ask: a bucket that fills at a steady rate."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict

_MOST_BUCKETS = 100_000
_BURST_S = 10.0


class Limiter:
    """Requests a second for each key, ten seconds of them at once. In this process alone."""

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s
        self._buckets: OrderedDict[bytes, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait_s(self, key: bytes, now_s: float | None = None) -> float:
        """0 if the request may go on, else how long to wait."""
        if self.per_s <= 0:
            return 0.0
        now_s = time.monotonic() if now_s is None else now_s
        most = max(1.0, self.per_s * _BURST_S)
        with self._lock:
            left, since_s = self._buckets.pop(key, (most, now_s))
            left = min(most, left + (now_s - since_s) * self.per_s)
            wait_s = 0.0 if left >= 1.0 else (1.0 - left) / self.per_s
            self._buckets[key] = (left if wait_s else left - 1.0, now_s)
            if len(self._buckets) > _MOST_BUCKETS:
                self._buckets.popitem(last=False)
        return wait_s


def whole_s(wait_s: float) -> str:
    """For a Retry-After header."""
    return str(max(1, math.ceil(wait_s)))
