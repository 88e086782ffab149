"""Query traces: where somebody who is logged all the time would have asked for something.

From the first fix on, somebody asks again after a minute or, with probability p, after an hour,
each give or take a fifth. The query is the fix nearest to that time, if it is within five minutes
and slow. If it is the fix that was taken last, the user is still, and asks from the same place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hereish.core.types import Bools, Floats, Ints
from hereish.evaluation.dataset import Trajectories

SHORT_S, LONG_S, SPREAD = 60.0, 3600.0, 0.2
NEAR_S = 300.0
LEAST_QUERIES = 6  # "more than 5"


@dataclass(frozen=True, eq=False)
class Queries:
    """Query traces laid end to end, as `hereish.sanitize` takes them."""

    at_s: Floats
    points: Floats
    offsets: Ints
    user: Ints  # (k,) whose each trace is
    users: int

    def __len__(self) -> int:
        return len(self.user)

    def __repr__(self) -> str:
        return f"<{len(self.at_s)} queries in {len(self)} traces>"

    @property
    def index_in_trace(self) -> Ints:
        """(n,) The number of each query within its trace, from 0."""
        return np.arange(len(self.at_s)) - np.repeat(self.offsets[:-1], np.diff(self.offsets))

    def first(self, most: int) -> Queries:
        """At most so many queries of each trace."""
        kept = self.index_in_trace < most
        offsets = np.r_[0, np.cumsum(np.minimum(np.diff(self.offsets), most))]
        return Queries(self.at_s[kept], self.points[kept], offsets, self.user, self.users)

    def take(self, traces: Ints) -> Queries:
        """These traces only, or some of them several times."""
        rows, offsets = self._rows_of(traces)
        return Queries(self.at_s[rows], self.points[rows], offsets, self.user[traces], self.users)

    def _rows_of(self, traces: Ints) -> tuple[Ints, Ints]:
        """The queries of these traces, and where each trace begins among them."""
        lengths = np.diff(self.offsets)[traces]
        offsets = np.r_[0, np.cumsum(lengths)]
        rows = np.repeat(self.offsets[:-1][traces] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return rows, offsets


def sample(trajectories: Trajectories, slow: Bools, p: float, rng: np.random.Generator) -> Queries:
    """One query trace of each trajectory, without those that are too short."""
    walk = _Walk(trajectories, slow)
    taken = [
        (
            np.arange(len(trajectories)),
            trajectories.offsets[:-1],
            trajectories.at_s[trajectories.offsets[:-1]],
        )
    ]
    while len(walk.lanes):
        taken.append(walk.step(p, rng))
    lane, fix, at_s = (np.concatenate(part) for part in zip(*taken, strict=True))
    enough = np.bincount(lane, minlength=len(trajectories)) >= LEAST_QUERIES
    kept = enough[lane]
    lane, fix, at_s = lane[kept], fix[kept], at_s[kept]
    order = np.argsort(lane, kind="stable")  # steps went forward in time
    counts = np.bincount(lane, minlength=len(trajectories))[enough]
    return Queries(
        np.floor(at_s[order]),
        trajectories.points[fix[order]],
        np.r_[0, np.cumsum(counts)],
        trajectories.user[enough],
        trajectories.users,
    )


class _Walk:
    """All trajectories walked at once; those that have come to their ends are left."""

    def __init__(self, trajectories: Trajectories, slow: Bools) -> None:
        self._at_s, self._slow = trajectories.at_s, slow
        self.lanes = np.arange(len(trajectories))
        self._first, self._end = trajectories.offsets[:-1].copy(), trajectories.offsets[1:].copy()
        self._last = self._first.copy()  # the fix that was taken last
        self._now_s = trajectories.at_s[self._first].copy()
        self._ends_s = trajectories.at_s[self._end - 1]
        # One search for all lanes: each lane's times are moved beyond those of the lanes before.
        lengths = np.diff(trajectories.offsets)
        self._start_s = self._now_s.copy()
        widths = self._ends_s - self._start_s + 2.0
        self._shift = np.cumsum(widths) - widths
        self._keys = trajectories.at_s - np.repeat(self._start_s - self._shift, lengths)

    def step(self, p: float, rng: np.random.Generator) -> tuple[Ints, Ints, Floats]:
        """One move of everybody: who asked, at which fix, and when."""
        jump = rng.random(len(self.lanes)) < p
        spread = 1.0 + SPREAD * rng.standard_normal(len(self.lanes))
        self._now_s += np.where(jump, LONG_S, SHORT_S) * np.maximum(spread, 0.0)
        self._leave(self._now_s <= self._ends_s)
        near = self._nearest()
        still = near == self._last
        close = np.abs(self._at_s[near] - self._now_s) <= NEAR_S
        asks = still | (close & self._slow[near])
        at_s = np.where(still, self._now_s, self._at_s[near])
        self._last = np.where(asks, near, self._last)
        self._now_s = np.where(asks, at_s, self._now_s)  # the next one is so long after this one
        return self.lanes[asks], near[asks], at_s[asks]

    def _leave(self, on: Bools) -> None:
        if on.all():
            return
        for name in ("lanes", "_first", "_end", "_last", "_now_s", "_ends_s", "_start_s", "_shift"):
            setattr(self, name, getattr(self, name)[on])

    def _nearest(self) -> Ints:
        after = np.searchsorted(self._keys, self._now_s - self._start_s + self._shift)
        after = np.clip(after, self._first + 1, self._end - 1)
        before = after - 1
        nearer = self._now_s - self._at_s[before] <= self._at_s[after] - self._now_s
        return np.where(nearer, before, after)
