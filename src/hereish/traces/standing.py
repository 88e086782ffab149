"""Where users stand between two calls, or two chunks of rows: public, and all that is carried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.run import Run
from hereish.core.types import Ints
from hereish.traces.lane_rounds import put_runs, writable_copy

NEVER = int(np.iinfo(np.int64).min)


class Standing(NamedTuple):
    """Where some users stand, a lane for each. All of it is public."""

    lane: NDArray[np.object_]  # which window, or trace, the last one is; None before the first
    last_us: Ints  # the time of the last report that was taken, NEVER before the first
    run: Run  # of the mechanism without windows: a lane is a window

    @classmethod
    def empty(cls, mechanism: PredictiveMechanism, users: int) -> Standing:
        """Before the first report, in arrays that can be written to."""
        run = writable_copy(mechanism.run(users))
        lane: NDArray[np.object_] = np.full(users, None)
        return cls(lane, np.full(users, NEVER, dtype=np.int64), run)

    def take(self, users: Ints) -> Standing:
        return Standing(self.lane[users], self.last_us[users], self.run.take(users))

    def put(self, users: Ints, others: Standing) -> None:
        """Write where some of the users stand."""
        self.lane[users] = others.lane
        self.last_us[users] = others.last_us
        put_runs(self.run, users, others.run)


class Standings(Protocol):
    """Keeps where users stand."""

    def load(self, users: Sequence[str]) -> Standing:
        """A lane for each of these users, of whom none comes twice."""
        ...

    def save(self, users: Sequence[str], standing: Standing) -> None: ...


class LastUser:
    """Keeps where the last user stands: of sorted rows nobody else comes again."""

    def __init__(self, mechanism: PredictiveMechanism) -> None:
        self._mechanism = mechanism
        self._user: str | None = None
        self._standing: Standing | None = None

    def load(self, users: Sequence[str]) -> Standing:
        standing = Standing.empty(self._mechanism, len(users))
        if self._standing is not None and users[0] == self._user:
            standing.put(np.zeros(1, dtype=np.int64), self._standing)
        return standing

    def save(self, users: Sequence[str], standing: Standing) -> None:
        self._user = users[-1]
        self._standing = standing.take(np.array([len(users) - 1]))
