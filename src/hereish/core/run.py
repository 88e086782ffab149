"""Run: what was released so far, and nothing else. All of it is public."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hereish.core.types import Bools, Floats, Ints

NO_WINDOW = np.iinfo(np.int64).min


class Run(NamedTuple):
    """The released history of each lane, in constant space: sums, and the last few releases.

    `values`, `times_s` and `hards` hold the last `memory` releases of each lane, newest first, NaN
    where there are none yet. `reports`, `easy`, `spent` and `ended` speak of the current window.
    Those with `limit` in their names speak of the other windows that the mechanism has, its limits,
    a column each; they have no columns where it has none.
    `hard_at_s`, `hard_threshold` and `tested_at_s` are kept where a part may look at them: skip
    rules, and parts of your own. `learnt` is what a `Tracker` keeps of earlier releases.

    The step returns read-only arrays: what was released and spent is not to be rewritten.
    """

    values: Floats  # (lanes, memory, dim)
    times_s: Floats  # (lanes, memory)
    hards: Bools  # (lanes, memory)
    reports: Ints  # released in this window, free ones included
    easy: Ints  # those that were predictions, tested or not
    spent: Floats  # a whole number of quanta, see budget.Bound
    ended: Bools  # the budget of this window is exhausted
    window: Ints
    mechanism: Ints  # whose run it is, see PredictiveMechanism.number; 0 if nobody has said
    hard_at_s: Floats  # time of the last hard release, NaN before the first
    hard_threshold: Floats  # the threshold that it failed; -inf if it was not tested
    tested_at_s: Floats  # time of the last release on which the secret had a say
    learnt: Floats  # (lanes, width) the prediction's own numbers, of public data
    limit_bucket: Ints  # (lanes, limits) the newest bucket of each limit, see limits.LimitBuckets
    limit_spent: Floats  # (lanes, limits) what counts as spent of each, in whole quanta
    limit_older: Floats  # (lanes, buckets) of that, what was spent in the older buckets
    renyi_spent: (
        Floats  # (lanes, 1) with a delta: the sum of its filter, see renyi; else (lanes, 0)
    )

    @classmethod
    def empty(
        cls,
        lanes: int,
        dim: int,
        memory: int = 1,
        mechanism: int = 0,
        width: int = 0,
        limits: int = 0,
        older: int = 0,
        with_delta: bool = False,
    ) -> Run:
        """No release yet, in any lane."""
        never = np.full(lanes, np.nan)
        return cls(
            values=np.full((lanes, memory, dim), np.nan),
            times_s=np.full((lanes, memory), np.nan),
            hards=np.zeros((lanes, memory), dtype=np.bool_),
            reports=np.zeros(lanes, dtype=np.int64),
            easy=np.zeros(lanes, dtype=np.int64),
            spent=np.zeros(lanes),
            ended=np.zeros(lanes, dtype=np.bool_),
            window=np.full(lanes, NO_WINDOW, dtype=np.int64),
            mechanism=np.full(lanes, mechanism, dtype=np.int64),
            hard_at_s=never,
            hard_threshold=np.full(lanes, -np.inf),
            tested_at_s=never,
            learnt=np.zeros((lanes, width)),
            limit_bucket=np.full((lanes, limits), NO_WINDOW, dtype=np.int64),
            limit_spent=np.zeros((lanes, limits)),
            limit_older=np.zeros((lanes, older)),
            renyi_spent=np.zeros((lanes, int(with_delta))),
        ).frozen()

    @property
    def value(self) -> Floats:
        """The last release of each lane."""
        return self.values[:, 0]

    @property
    def at_s(self) -> Floats:
        """When it was released."""
        return self.times_s[:, 0]

    @property
    def hard(self) -> Ints:
        """How many releases of this window were fresh noise."""
        return self.reports - self.easy

    def frozen(self) -> Run:
        """The same run, whose arrays can be read and not written to from now on."""
        for field in self:
            field.setflags(write=False)
        return self

    def take(self, lanes: Any) -> Run:
        """Only these lanes (a slice, a mask or indices)."""
        kept: list[Any] = [field[lanes] for field in self]
        return Run(*kept)

    def with_fresh_budget(self) -> Run:
        """The same history, in a window of which nothing is spent. Limits go on."""
        nothing = np.zeros_like(self.reports)
        return self._replace(
            reports=nothing,
            easy=nothing.copy(),
            spent=np.zeros_like(self.spent),
            ended=np.zeros_like(self.ended),
            renyi_spent=np.zeros_like(self.renyi_spent),
        ).frozen()

    def in_window(self, window: Ints) -> Run:
        """The same history, with a fresh budget in the lanes whose window is a later one.

        Never an earlier one: a refused report moves the window but not the time of the last
        release, and going back would hand out a budget twice.
        """
        new = window > self.window  # [B4]
        if not np.count_nonzero(new):
            return self
        return self._replace(
            reports=np.where(new, 0, self.reports),
            easy=np.where(new, 0, self.easy),
            spent=np.where(new, 0.0, self.spent),
            ended=self.ended & ~new,
            window=np.where(new, window, self.window),
            renyi_spent=np.where(new[:, None], 0.0, self.renyi_spent),
        ).frozen()
