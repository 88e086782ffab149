"""Rolling windows: any period of a duration, whenever it begins. Proof: budget.proof.md."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np

from hereish.core.privacy import positive
from hereish.core.types import Floats, Ints
from hereish.core.windows import Combinable
from hereish.errors import ParameterError

# Lengths of buckets that people can tell; longer ones are whole numbers of the last.
_BUCKETS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200),
    *(86400, 2 * 86400, 5 * 86400, 10 * 86400, 15 * 86400, 30 * 86400),
)
_MOST_BUCKETS = 32
# Of the duration. Of halves, quarters and so on this gave the smallest errors on made-up days.
_AHEAD = 1.0 / 8.0


@dataclass(frozen=True)
class Rolling(Combinable):
    """Any period of this `duration`, whenever it begins: `Hours(24)`, `Days(30)`.

    Time is cut into buckets (`bucket_s`), of which the sums are kept: what was spent is forgotten
    when all of its bucket is older than the duration, so up to a bucket later and never too early.
    """

    duration: timedelta
    bucket_s: int = field(init=False, repr=False, compare=False)
    older: int = field(init=False, repr=False, compare=False)  # buckets kept beside the newest

    def __post_init__(self) -> None:
        if not isinstance(self.duration, timedelta):
            raise ParameterError(
                f"duration must be a datetime.timedelta, found {type(self.duration).__name__}"
            )
        positive("duration in seconds", self.duration.total_seconds())
        most = timedelta(seconds=_BUCKETS_S[-1])
        bucket_s = _BUCKETS_S[-1] * max(1, -(-self.duration // (_MOST_BUCKETS * most)))
        for shorter_s in reversed(_BUCKETS_S):
            if self.duration <= _MOST_BUCKETS * timedelta(seconds=shorter_s):
                bucket_s = shorter_s
        object.__setattr__(self, "bucket_s", bucket_s)
        object.__setattr__(self, "older", -(-self.duration // timedelta(seconds=bucket_s)))  # [B7]

    def index(self, at_s: Floats) -> Ints | None:
        """None, as if there was one for ever: no report begins a new window of this kind."""
        return None

    def bucket(self, at_s: Floats) -> Ints:
        """The number of the bucket of each time. Exact."""
        length_s = float(self.bucket_s)
        if len(at_s) == 1:  # a live report, sooner in Python
            at = at_s.item(0)
            number = math.floor(at / length_s)
            return np.array([number - (number * length_s > at)])
        numbers = np.floor(at_s / length_s)
        # A quotient just below a whole number may have been rounded up to it; the product of two
        # whole numbers is not rounded.
        numbers -= numbers * length_s > at_s  # [B8]
        return numbers.astype(np.int64)

    def end_s(self, at_s: Floats) -> Floats:
        """Until when what is left has to last, for budget managers that pace: more comes back."""
        return np.asarray(at_s + _AHEAD * self.duration.total_seconds())

    def covers(self, index: int | None = None) -> str:
        return f"the reports of any {_spoken(self.duration)}"


def Days(days: float) -> Rolling:  # noqa: N802  # it stands for a class: Day & Days(30)
    """Any period of so many days, whenever it begins."""
    return Rolling(timedelta(days=positive("days", days)))


def Hours(hours: float) -> Rolling:  # noqa: N802  # it stands for a class
    """Any period of so many hours, whenever it begins."""
    return Rolling(timedelta(hours=positive("hours", hours)))


def _spoken(duration: timedelta) -> str:
    """A duration as people say it: 24 hours, 30 days."""
    for unit, name in ((timedelta(days=1), "day"), (timedelta(hours=1), "hour")):
        count, rest = divmod(duration, unit)
        if not rest and (count > 1 or unit < timedelta(days=1)):
            return f"{count} {name}{'s' if count > 1 else ''}"
    return str(duration)
