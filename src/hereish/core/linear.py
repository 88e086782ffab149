"""A prediction for those who go straight on: trains, boats, cars on a motorway.

Everything here is post-processing of what was released: a line through noisy points.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hereish.core.motion import Axes, axes_of, squared_length, sum_rows
from hereish.core.prediction import Tracker
from hereish.core.privacy import positive
from hereish.core.run import Run
from hereish.core.spaces import Space, Sphere
from hereish.core.types import Bools, Floats, Ints, PerLane
from hereish.errors import ParameterError

_SPHERE = Sphere()
_KEPT = 2  # points after a turn: the newest, and the one before, which a line may begin with
_LATEST_S = 1e12
_MOST = 1e300


@dataclass(frozen=True)
class Linear(Tracker):
    """Goes on along a line through the last `points` fresh noises, at the speed that fits them.

    Each counts by its known noise, and those older than `longest_s` not at all. A speed of less
    than `sure` standard errors may be none, and then the last release is repeated. So it is after a
    turn: a point that fits the line `turn` times worse than its noise explains.

    Guarantee: sees released points and public times, so it costs nothing.
    """

    space: Space = _SPHERE
    points: int = 4
    turn: float = 2.5
    sure: float = 3.0
    longest_s: float = 600.0
    memory = 1
    needs_history = False
    reach = 0.0  # noise is released as it was drawn
    axes: Axes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", axes_of(self.space, "Linear"))
        if isinstance(self.points, bool) or not (
            isinstance(self.points, int) and 3 <= self.points <= 100
        ):
            raise ParameterError(f"points must be a whole number from 3 to 100: {self.points!r}")
        for name in ("turn", "sure", "longest_s"):
            positive(name, getattr(self, name))

    @property
    def width(self) -> int:
        """Where somebody was when, and how fast; and of each point where, when and how exact."""
        axes = self.axes.count
        return 2 * axes + 1 + self.points * (axes + 2)

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        axes = self.axes
        course = np.ascontiguousarray(run.learnt[:, : 2 * axes.count + 1].T)
        place, speed = course[: axes.count], course[axes.count : -1]
        elapsed_s = at_s - course[-1]
        moving = _any_row(speed != 0.0) & (elapsed_s <= self.longest_s)
        lanes = moving.nonzero()[0]
        if not len(lanes):
            return run.value
        with np.errstate(over="ignore"):  # which ends at the edge of the space
            there = place[:, lanes] + speed[:, lanes] * elapsed_s[lanes]
        guess = run.value.copy()
        guess[lanes] = axes.points(there)
        return guess

    def update(
        self, run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps_noise: PerLane, /
    ) -> tuple[Floats, Floats]:
        axes = self.axes
        learnt = np.empty((self.width, len(lanes)))
        place, speed, since_s, known = self._split(learnt)
        known[1:] = self._split(run.learnt[lanes].T)[3][:-1]
        newest = known[0]
        newest[: axes.count], newest[-2], newest[-1] = axes.of(fresh), at_s, eps_noise
        # Distances that are squared may be beyond doubles; no line is drawn through those.
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            fit = self._fit(known)
            turned = fit.misfit > self.turn * self.turn
            known[_KEPT:, -1] = np.where(turned, 0.0, known[_KEPT:, -1])
            moving = fit.surely_moving & ~turned
            place[...] = np.where(moving, fit.place, newest[: axes.count])
            speed[...] = np.where(moving, fit.speed, 0.0)
        since_s[...] = at_s
        return fresh, learnt.T

    def find_fault(self, learnt: Floats, /) -> str | None:
        place, speed, since_s, known = self._split(learnt.T)
        numbers = (place, speed, known[:, : self.axes.count])
        if not all(np.all(np.abs(number) <= _MOST) for number in numbers):
            return "a place or a speed is beyond all that is possible"
        times_s = np.concatenate([since_s[None], known[:, -2]])
        if not np.all(np.abs(times_s) <= _LATEST_S):
            return "a point was released at no time"
        if not np.all((known[:, -1] >= 0.0) & (known[:, -1] <= _MOST)):
            return "a point is less exact than not at all, or too exact"
        return None

    def _split(self, learnt: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Place, speed, their time, and the points: views, each number of all lanes together."""
        axes, lanes = self.axes.count, learnt.shape[1]
        first = 2 * axes + 1
        known = learnt[first:].reshape(self.points, axes + 2, lanes)
        return learnt[:axes], learnt[axes : 2 * axes], learnt[2 * axes], known

    def _fit(self, known: Floats) -> _Fit:
        """The line through the points, the newest first, in units of the newest's noise."""
        axes = self.axes
        eps = known[0, -1]
        ago_s = known[:, -2] - known[0, -2]
        own = known[:, -1] * (ago_s >= -self.longest_s) / eps
        weight = own * own
        whole = sum_rows(weight)
        middle_s = sum_rows(weight * ago_s) / whole
        from_middle_s = ago_s - middle_s
        spread = sum_rows(weight * from_middle_s * from_middle_s)
        steady = spread > 0.0
        place, speed = np.empty((2, axes.count, len(eps)))
        error = np.zeros(len(eps))
        for i in range(axes.count):
            # From the newest, which is near: sums of what is far would round.
            offset = (known[:, i] - known[0, i]) * (own > 0.0)
            mean = sum_rows(weight * offset) / whole
            offset -= mean
            slope = sum_rows(weight * from_middle_s * offset) / np.where(steady, spread, 1.0)
            speed[i] = np.where(steady, slope, 0.0)
            place[i] = known[0, i] + (mean - speed[i] * middle_s)
            missed = own * (offset - speed[i] * from_middle_s) * eps
            error += sum_rows(missed * missed)
        count = sum_rows((own > 0.0).astype(np.float64))
        per_point = axes.variance * axes.freedom
        misfit = error / (per_point * np.maximum(count - 2.0, 1.0))
        surely = squared_length(speed * eps) * spread >= (self.sure * self.sure) * per_point
        finite = np.isfinite(place).all(axis=0) & np.isfinite(speed).all(axis=0)
        return _Fit(place, speed, np.where(count > 2.0, misfit, 0.0), surely & steady & finite)


class _Fit(NamedTuple):
    """A line: where it is at the newest point, the speed along it, and how well it fits."""

    place: Floats
    speed: Floats
    misfit: Floats  # the mean square of what the noise does not explain, 1 if it explains all
    surely_moving: Bools


def _any_row(rows: Bools) -> Bools:
    """(lanes,) Whether any row is true: quicker than along the axis, for few rows."""
    found = rows[0]
    for row in rows[1:]:
        found = found | row
    return np.asarray(found)
