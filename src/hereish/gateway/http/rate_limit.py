"""How many points a token may send: a bucket that fills at a steady rate."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict

_MOST_BUCKETS = 100_000
_BURST_S = 10.0


class Limiter:
    """Points per second for each key, ten seconds of them at once. In this process alone.

    A request without points counts as one. One with more points than the bucket holds is let
    through by a full bucket and leaves it in debt: so every batch gets its turn, however large it
    is and however small the rate, and no batch has to be cut.
    """

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s
        self._buckets: OrderedDict[bytes, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait_s(
        self, key: bytes, points: int = 1, *, counted: int = 0, now_s: float | None = None
    ) -> float:
        """0 if so many points may go on, and then they are counted; else how long to wait.

        `counted` of them were counted when the request came, before anybody knew how many it has.
        They stay counted if it has to wait: it was read in vain.
        """
        if self.per_s <= 0 or points <= counted:
            return 0.0
        now_s = time.monotonic() if now_s is None else now_s
        most = max(1.0, self.per_s * _BURST_S)
        needed = min(points, most)
        with self._lock:
            left, since_s = self._buckets.pop(key, (most, now_s))
            left = min(most, left + (now_s - since_s) * self.per_s)
            goes = left >= needed - counted
            self._buckets[key] = (left - (points - counted) if goes else left, now_s)
            if len(self._buckets) > _MOST_BUCKETS:
                self._buckets.popitem(last=False)
        return 0.0 if goes else (needed - left) / self.per_s


def whole_s(wait_s: float) -> str:
    """For a Retry-After header."""
    return str(max(1, math.ceil(wait_s)))
