"""Times of a trace that do not rise in the order of its file: the fewest rows to leave out."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from hereish.core.types import Ints
from hereish.traces.faults import Fault, Faults
from hereish.traces.table import Ids, RowBatch
from hereish.traces.validate import (
    YEAR_US,
    group_starts,
    main_era,
    row_faults,
    rows_of_given_traces,
)


class TimeOrderChecker:
    """Checks the batches of one file in their order; remembers the last time of each trace."""

    def __init__(self) -> None:
        self._last_us: dict[tuple[object, object], int] = {}

    def faults(self, batch: RowBatch) -> Faults:
        """The fault of each row: the reader's, or one of place, of time or of order."""
        fault = row_faults(batch)
        rows, begins, keys = _by_trace(batch, np.flatnonzero(fault == Fault.NONE))
        if not len(rows):
            return fault
        at_us = batch.at_us[rows]
        last = [self._last_us.get(key) for key in keys]
        step = np.diff(at_us, prepend=at_us[0])
        step[begins] = [
            1 if us is None else at_us[i] - us for i, us in zip(begins, last, strict=True)
        ]
        given = rows_of_given_traces(batch)[rows]
        unordered = (step < 0) | (given & (step > YEAR_US))
        fault[rows[step == 0]] = Fault.TWICE
        ends = np.append(begins[1:], len(rows))
        for i in np.unique(np.searchsorted(begins, np.flatnonzero(unordered), side="right") - 1):
            span = slice(begins[i], ends[i])
            fault[rows[span]] = _trace_faults(at_us[span], last[i], given=bool(given[begins[i]]))
        good = fault[rows] == Fault.NONE
        valid_us = np.where(good, at_us, np.iinfo(np.int64).min)
        for key, latest in zip(keys, np.maximum.reduceat(valid_us, begins).tolist(), strict=True):
            self._last_us[key] = max(latest, self._last_us.get(key, latest))
        return fault


def _by_trace(batch: RowBatch, rows: Ints) -> tuple[Ints, Ints, list[tuple[object, object]]]:
    """The rows with those of a trace together, where each trace begins, and its user and id."""
    users, traces = batch.users(), batch.trace or Ids.constant(None, len(batch))
    key = batch.trace_codes()[rows]
    begins = group_starts(key)
    if len(np.unique(key[begins])) < len(begins):
        order = np.argsort(key, kind="stable")
        rows, key = rows[order], key[order]
        begins = group_starts(key)
    first = rows[begins]
    codes = zip(users.codes[first].tolist(), traces.codes[first].tolist(), strict=True)
    return rows, begins, [(users.names[u], traces.names[t]) for u, t in codes]


def _trace_faults(at_us: Ints, last_us: int | None, *, given: bool) -> Faults:
    """Faults of a trace whose clock went back or jumped; as many points as possible stay."""
    fault = np.zeros(len(at_us), dtype=np.uint8)
    if given:
        low, high = main_era(at_us, last_us)
        fault[(at_us < low) | (at_us > high)] = Fault.JUMP
    inside = np.flatnonzero(fault == Fault.NONE)
    if last_us is not None:
        fault[inside[at_us[inside] < last_us]] = Fault.ORDER
        fault[inside[at_us[inside] == last_us]] = Fault.TWICE
        inside = inside[at_us[inside] > last_us]
    increasing = _longest_increase(at_us[inside].tolist())
    out = np.ones(len(inside), dtype=np.bool_)
    out[increasing] = False
    fault[inside[out]] = Fault.ORDER
    same = out[1:] & (np.diff(at_us[inside]) == 0)
    fault[inside[1:][same]] = Fault.TWICE
    return fault


def _longest_increase(times: list[int]) -> list[int]:
    """The elements of the longest strictly increasing subsequence; of several, with earlier rows.

    From the back, so that of two that exclude each other the later one is left out.
    """
    heads: list[int] = []  # minus the largest first value of a subsequence of each length
    where: list[int] = []
    after = [-1] * len(times)
    for i in range(len(times) - 1, -1, -1):
        length = bisect_left(heads, -times[i])
        after[i] = where[length - 1] if length else -1
        if length == len(heads):
            heads.append(-times[i])
            where.append(i)
        else:
            heads[length], where[length] = -times[i], i
    chosen = []
    i = where[-1] if where else -1
    while i >= 0:
        chosen.append(i)
        i = after[i]
    return chosen
