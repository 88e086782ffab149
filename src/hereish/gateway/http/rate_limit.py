"""How many points a token may send: a token bucket that fills at a steady rate."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict

from hereish.errors import HereishError

_MAX_BUCKETS = 100_000
_BURST_S = 10.0


class RateLimitError(HereishError):
    """A token that sends more points than it may."""

    def __init__(self, wait_s: float) -> None:
        super().__init__("too many points with this token; nothing was taken, so send them later")
        self.wait_s = wait_s


class RateLimiter:
    """Points per second for each key, ten seconds of them at once. Per process.

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

        `counted` of them were counted when the request came, before its points were known. They
        stay counted if it has to wait: reading it took work.
        """
        if self.per_s <= 0 or points <= counted:
            return 0.0
        now_s = time.monotonic() if now_s is None else now_s
        capacity = max(1.0, self.per_s * _BURST_S)
        needed = min(points, capacity)
        with self._lock:
            left, since_s = self._buckets.pop(key, (capacity, now_s))
            left = min(capacity, left + (now_s - since_s) * self.per_s)
            passes = left >= needed - counted
            self._buckets[key] = (left - (points - counted) if passes else left, now_s)
            if len(self._buckets) > _MAX_BUCKETS:
                self._buckets.popitem(last=False)
        return 0.0 if passes else (needed - left) / self.per_s


def to_retry_after(wait_s: float) -> str:
    """The value of a Retry-After header: whole seconds, at least one."""
    return str(max(1, math.ceil(wait_s)))
