"""How much of its window's budget had been spent with each report, and when windows begin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import numpy as np

from hereish.core.types import Bools, Floats, Ints
from hereish.core.windows import Day
from hereish.errors import PointError
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import RowBatch

DAY_MS = 86_400_000
_QUARTER_US = 900_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, eq=False)
class WindowSpending:
    """What had been spent in the window of each report, before it and with it."""

    before: Floats
    after: Floats
    window: Ints  # numbers of windows
    midnight_ms: Ints | None  # when they began in local time, if they are days
    shares: bool  # of the window's budget; otherwise costs, because the budget is unknown

    def take(self, rows: Ints) -> WindowSpending:
        midnight_ms = None if self.midnight_ms is None else self.midnight_ms[rows]
        return WindowSpending(
            self.before[rows], self.after[rows], self.window[rows], midnight_ms, self.shares
        )


def window_spending(
    reported: RowBatch, user: Ints, guarantee: GuaranteeMetadata | None, zone: ZoneInfo
) -> WindowSpending | None:
    """What each report and those before it in its window cost; None if the file has no costs."""
    costs = _costs(reported)
    if costs is None:
        return None
    eps_per_m = guarantee.eps_per_m if guarantee is not None else None
    shares = eps_per_m is not None and 0.0 < eps_per_m < math.inf
    window, midnight_ms = _windows(reported, guarantee, zone)
    order = np.lexsort((reported.at_us, window, user))
    new = group_starts(user[order], window[order])
    cost = costs[order] / (eps_per_m if eps_per_m is not None and shares else 1.0)
    total, number = np.cumsum(cost), np.cumsum(new) - 1
    earlier = total - cost
    earlier -= earlier[new][number]
    back = np.argsort(order)
    return WindowSpending(earlier[back], (earlier + cost)[back], number[back], midnight_ms, shares)


def _windows(
    reported: RowBatch, guarantee: GuaranteeMetadata | None, zone: ZoneInfo
) -> tuple[Ints, Ints | None]:
    """Which window each report belongs to, among those of its user; when days began."""
    if guarantee is not None and guarantee.window == "day":
        name = guarantee.time_zone or "UTC"
        day = np.asarray(Day(name).index(np.asarray(reported.at_us * 1e-6)), dtype=np.int64)
        days, which = np.unique(day, return_inverse=True)
        midnights = [
            datetime.combine(date.fromordinal(number), time(), tzinfo=ZoneInfo(name)) - _EPOCH
            for number in days.tolist()
        ]
        at_us = np.array([midnight // timedelta(microseconds=1) for midnight in midnights])
        return which, local_ms(at_us, zone)[which]
    if guarantee is not None and guarantee.window == "trace" and reported.trace is not None:
        return reported.trace.codes, None
    return np.zeros(len(reported), dtype=np.int64), None


def _costs(reported: RowBatch) -> Floats | None:
    column = reported.kept.get("cost")
    if column is None:
        return None
    try:
        costs = np.asarray(column.astype(np.float64))
    except (TypeError, ValueError):
        return None
    return costs if bool(((costs >= 0) & (costs < np.inf)).all()) else None


def local_ms(at_us: Ints, zone: ZoneInfo) -> Ints:
    """Local time in a zone, as milliseconds since 1970."""
    quarters, which = np.unique(at_us // _QUARTER_US, return_inverse=True)
    # Clocks are changed on the quarter of an hour, so one look serves all times within it.
    try:
        offsets = [
            (_EPOCH + timedelta(microseconds=quarter * _QUARTER_US)).astimezone(zone).utcoffset()
            for quarter in quarters.tolist()
        ]
    except (OverflowError, ValueError):
        offsets = []
    if len(offsets) < len(quarters):
        raise PointError("a time is outside the years 1 to 9999; check the clock")
    shift_ms = np.array(
        [offset / timedelta(milliseconds=1) if offset else 0.0 for offset in offsets]
    )
    return np.asarray(at_us // 1000 + shift_ms.astype(np.int64)[which.reshape(-1)])


def group_starts(*columns: Ints) -> Bools:
    """Whether each row differs from the one before; the first one does."""
    new = np.ones(len(columns[0]), dtype=np.bool_)
    new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return new
