"""Limits: the budgets of further windows, beside the one that a mechanism's `privacy` speaks of.

Each limit numbers its buckets of time, which never fall: a calendar month is one bucket, and so is
all time; a rolling window is as many as cover its duration. What was spent in the newest buckets is
kept, in constant space, and what was spent in others is forgotten. Proof: budget.proof.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hereish.core.part_calls import window_numbers
from hereish.core.rolling import Rolling
from hereish.core.run import NO_WINDOW, Run
from hereish.core.types import Bools, Floats, Ints
from hereish.core.windows import Day, Limit, Month, NoReset, Window


class _Column(NamedTuple):
    """Where a limit stands in the fields of a run."""

    window: Window
    number: int
    older: slice  # its columns of `limit_older`, newest first


class _Known(NamedTuple):
    """The buckets of all times from one to another."""

    first_s: float
    end_s: float
    buckets: Ints


class LimitBuckets:
    """What a run keeps of the limits of a mechanism, and how that changes as time goes on.

    With a rolling first window the first limit is that window itself, and `spent` of the run is
    what counts as spent of it.
    """

    def __init__(self, limits: tuple[Limit, ...], *, rolling_first: bool) -> None:
        self.limits = limits
        self.rolling_first = rolling_first
        self._columns: list[_Column] = []
        # Replaced whole, never changed.
        self._known = _Known(math.inf, -math.inf, np.empty((0, 0), dtype=np.int64))
        self.older = 0  # buckets beside the newest, of all limits
        for number, limit in enumerate(limits):
            begin = self.older
            self.older += limit.window.older if isinstance(limit.window, Rolling) else 0
            self._columns.append(_Column(limit.window, number, slice(begin, self.older)))

    def __len__(self) -> int:
        return len(self.limits)

    def buckets(self, at_s: Floats) -> Ints:
        """(lanes, limits) The bucket of each time."""
        if len(at_s) == 1:  # a live report: mostly in the buckets of the last one
            known, at = self._known, at_s.item(0)
            if not known.first_s <= at < known.end_s:
                first_s, end_s = self._bounds(at_s)
                known = self._known = _Known(first_s, end_s, self._buckets(at_s))
            return known.buckets
        return self._buckets(at_s)

    def _bounds(self, at_s: Floats) -> tuple[float, float]:
        """Times around this one that are all in its buckets."""
        first_s, end_s = -math.inf, math.inf
        for column in self._columns:
            window = column.window
            if isinstance(window, Rolling):
                length_s, number = window.bucket_s, int(window.bucket(at_s)[0])
                first_s = max(first_s, number * length_s)
                end_s = min(end_s, (number + 1) * length_s)
            elif type(window) in (Day, Month):
                first_s = max(first_s, float(window.start_s(at_s)[0]))  # type: ignore[attr-defined]  # it has
                end_s = min(end_s, float(window.end_s(at_s)[0]))  # type: ignore[attr-defined]  # it has
            elif not isinstance(window, NoReset):
                return math.inf, -math.inf
        return first_s, end_s

    def _buckets(self, at_s: Floats) -> Ints:
        numbers = np.zeros((len(at_s), len(self.limits)), dtype=np.int64)
        for column in self._columns:
            window = column.window
            if isinstance(window, Rolling):
                numbers[:, column.number] = window.bucket(at_s)
                continue
            numbered = window_numbers(window, at_s)
            if numbered is not None:
                numbers[:, column.number] = numbered
        return numbers

    def at(self, run: Run, at_s: Floats) -> Run:
        """The run as it stands at this time: what is old enough is forgotten, and where a bucket
        begins it is asked again whether a report fits.

        Never an earlier time than before: a refused report moves the buckets, and going back would
        count a later report in a bucket that is forgotten too early.
        """
        bucket = self.buckets(at_s)
        if len(bucket) == 1 and bucket.tobytes() == run.limit_bucket.tobytes():
            return run  # soonest for one lane
        new = bucket > run.limit_bucket  # [B10]
        if not np.count_nonzero(new):
            return run
        spent, older = run.limit_spent, run.limit_older
        # Where nothing counts as spent there is nothing to move.
        moving = new & (spent > 0.0)
        if np.count_nonzero(moving):
            spent, older = spent.copy(), older.copy()
            for column in self._columns:
                lanes = np.flatnonzero(moving[:, column.number])
                if len(lanes):
                    _move_on(column, lanes, bucket, run.limit_bucket, spent, older)
        run = run._replace(
            ended=run.ended & ~new.any(axis=1),
            limit_bucket=np.where(new, bucket, run.limit_bucket),
            limit_spent=spent,
            limit_older=older,
        )
        if self.rolling_first:
            run = run._replace(spent=spent[:, 0].copy())
        return run.frozen()

    def newest(self, run: Run) -> Floats:
        """(lanes, limits) What was spent in the newest bucket of each."""
        spent = run.limit_spent.copy()
        for column in self._columns:
            spent[:, column.number] -= run.limit_older[:, column.older].sum(axis=1)
        return spent

    def refund(self, run: Run, bucket: Ints, eps: Floats) -> Run:
        """The run without what was added to its limits when these were the newest buckets."""
        spent, older = run.limit_spent.copy(), run.limit_older.copy()
        for column in self._columns:
            number, count = column.number, column.older.stop - column.older.start
            ago = run.limit_bucket[:, number] - bucket[:, number]
            kept = ago <= count
            spent[kept, number] -= eps[number]
            lanes = np.flatnonzero(kept & (ago > 0))
            older[lanes, column.older.start + ago[lanes] - 1] -= eps[number]
        run = run._replace(limit_spent=spent, limit_older=older)
        return (run._replace(spent=spent[:, 0].copy()) if self.rolling_first else run).frozen()

    def covers(self, number: int, bucket: int | None = None) -> str:
        """What the budget of a limit covers, for people."""
        return self.limits[number].covers(bucket)

    def fault(
        self, run: Run, totals: tuple[float, ...], at_s: Floats, used: Bools, paid: Bools
    ) -> str | None:
        """What is wrong with what a run says of the limits, if anything.

        `paid` are the lanes whose last release was of this run, and was not free.
        """
        newest = self.newest(run)
        if not (run.limit_spent <= np.array(totals)).all() or not (run.limit_older >= 0.0).all():
            return "it has spent less than nothing or more than the budget of a limit"
        if not (newest >= 0.0).all():
            return "it has spent more in older buckets of a limit than in all of them"
        begun = run.limit_bucket != NO_WINDOW
        if (used & ~begun.all(axis=1)).any() or (~begun & (run.limit_spent > 0.0)).any():
            return "it has no windows of its limits, and the mechanism has"
        some = at_s == at_s
        bucket = self.buckets(at_s[some])
        if (bucket > run.limit_bucket[some]).any():
            return "its last release lies in a later window of a limit than it says"
        in_newest = paid[some, None] & (bucket == run.limit_bucket[some])
        if (in_newest & ~(newest[some] > 0.0)).any():
            return "its last release was paid for, and does not count in a limit"
        if self.rolling_first and (run.spent != run.limit_spent[:, 0]).any():
            return "what it has spent is not what its buckets add up to"
        return None

    def session_fault(self, run: Run) -> str | None:
        """What is wrong with the limits of the one lane of a session, which holds for no batch.

        A lane of a batch may begin with a part of its budget spent, which no limit knows of, and
        with the buckets of a report that an earlier lane was refused.
        """
        for column in self._columns:
            ever = isinstance(column.window, NoReset)
            if ever and run.limit_spent[0, column.number] < run.spent[0]:
                return "it has spent more in its window than in all time"
        if run.ended[0]:
            return None
        begun = bool(run.at_s[0] == run.at_s[0])
        expected = self.buckets(run.at_s) if begun else NO_WINDOW
        if (run.limit_bucket != expected).any():
            return "it is in a later window of a limit than its last release, and has not ended"
        return None


def _move_on(
    column: _Column, lanes: Ints, bucket: Ints, before: Ints, spent: Floats, older: Floats
) -> None:
    """Begin a new bucket of a limit in these lanes; its older ones move back, the last ones out."""
    number, count = column.number, column.older.stop - column.older.start
    if not count:
        spent[lanes, number] = 0.0  # [B11]
        return
    own = older[lanes, column.older]
    newest = spent[lanes, number] - own.sum(axis=1)
    kept = np.concatenate([newest[:, None], own], axis=1)
    now = bucket[lanes, number]
    moved = now - np.maximum(before[lanes, number], now - (count + 1))  # NO_WINDOW: all the way
    if np.count_nonzero(moved == 1) == len(moved):  # far quicker, and what mostly happens
        own = kept[:, :-1]
    else:
        source = np.arange(count) - (moved[:, None] - 1)
        own = np.where(source >= 0, np.take_along_axis(kept, np.maximum(source, 0), axis=1), 0.0)
    older[lanes, column.older] = own
    spent[lanes, number] = own.sum(axis=1)  # [B12]
