"""A Kalman filter over what was released: where somebody is, how fast, and how exactly.

Everything here is post-processing of what was released: noisy points, and accepted guesses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hereish.core.budget import Plan
from hereish.core.motion import Axes, axes_of, squared_length
from hereish.core.prediction import Tracker
from hereish.core.privacy import positive
from hereish.core.run import Run
from hereish.core.spaces import Space, Sphere
from hereish.core.types import Bools, Floats, Ints, PerLane

_SPHERE = Sphere()
_NUMBERS = 4  # when that was, and the covariance of place and speed, the same along each axis
_CURVED = 1.02  # how much longer than straight on a way is on the globe, at most
_LATEST_S = 1e12
_MOST = 1e300
_LEAST_SHARE = 1e-9  # of what is not known of a speed at first: rounding leaves no less


class PlaceEstimate(NamedTuple):
    """Where somebody is believed to be."""

    points: Floats  # (lanes, coordinates)
    deviation: Floats  # (lanes,) the standard deviation in each direction, in the space's unit


@dataclass(frozen=True)
class Filter(Tracker):
    """Follows somebody at constant speed, give or take (a Kalman filter), and guesses ahead.

    Fresh noise is a measurement with the error of its epsilon, and what is released in its place
    is the mean of it and of what was known. That a guess was accepted says that it was not far
    off: less exactly so the larger the threshold and the fainter the test. `speed` is that of
    people like this, in metres per second along each axis, and `agility` how soon it changes, in
    m²/s³. A point that is `turn` deviations off begins anew, and so does one after `longest_s`. A
    speed of less than `sure` deviations may be none, and then the last release is repeated.

    Guarantee: sees released points and public times, so it costs nothing.
    """

    space: Space = _SPHERE
    speed: float = 15.0
    agility: float = 0.5
    turn: float = 3.5
    sure: float = 2.0
    longest_s: float = 600.0
    memory = 1
    needs_history = False
    axes: Axes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", axes_of(self.space, "Filter"))
        for name in ("speed", "agility", "turn", "sure", "longest_s"):
            positive(name, getattr(self, name))

    @property
    def width(self) -> int:
        """Place and speed along each axis, and how exactly both are known."""
        return 2 * self.axes.count + _NUMBERS

    @property
    def reach(self) -> float:
        """What is further off than a turn is not averaged, so nothing is moved further."""
        return _CURVED * self.turn * math.sqrt(self.axes.variance * self.axes.freedom)

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        learnt, axes = np.ascontiguousarray(run.learnt.T), self.axes
        speed, vv = learnt[axes.count : 2 * axes.count], learnt[-1]
        surely = squared_length(speed) >= (self.sure * self.sure * axes.freedom) * vv
        lanes = (surely & self._is_known(learnt, at_s)).nonzero()[0]
        if not len(lanes):
            return run.value
        guess = run.value.copy()
        guess[lanes] = axes.points(self._ahead(learnt[:, lanes], at_s[lanes]).place)
        return guess

    def estimate(self, run: Run, at_s: Floats) -> PlaceEstimate:
        """Where each lane is believed to be at a time, moving or not; NaN where nobody knows."""
        known = self._is_known(run.learnt.T, at_s)
        ahead = self._ahead(run.learnt.T, np.where(known, at_s, 0.0))
        points = np.where(known[:, None], self.axes.points(ahead.place), np.nan)
        return PlaceEstimate(points, np.where(known, np.sqrt(np.maximum(ahead.pp, 0.0)), np.nan))

    def update(
        self, run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps_noise: PerLane, /
    ) -> tuple[Floats, Floats]:
        axes, before = self.axes, np.ascontiguousarray(run.learnt[lanes].T)
        error = np.broadcast_to(axes.variance / (eps_noise * eps_noise), len(lanes))
        there = axes.of(fresh)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            ahead = self._ahead(before, at_s)
            off = there - ahead.place
            known = self._is_known(before, at_s)
            both = ahead.pp + error
            known &= squared_length(off) <= (self.turn * self.turn * axes.freedom) * both
            after = self._corrected(ahead, off, ahead.pp / both)
            step = after.place - there
            moved = known & ~axes.is_far(step)
            learnt = self._joined(known, after, there, error, at_s)
        released = fresh
        if np.count_nonzero(moved):
            released = fresh.copy()
            some = moved.nonzero()[0]
            released[some] = axes.points(after.place[:, some])
        return released, learnt

    def accepted(self, run: Run, lanes: Ints, at_s: Floats, guess: Floats, plan: Plan, /) -> Floats:
        axes, before = self.axes, np.ascontiguousarray(run.learnt[lanes].T)
        there = axes.of(guess)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            error = np.broadcast_to(_variance_of_accepted(plan, axes.freedom), len(lanes))
            ahead = self._ahead(before, at_s)
            # Within a disc there is nothing to learn until as much is unknown as the disc is wide:
            # the variance of a Gaussian cut off at a radius, of which this is half the square.
            wide = np.clip(2.0 * error / ahead.pp, 1e-9, 700.0)
            after = self._corrected(ahead, there - ahead.place, wide / np.expm1(wide))
            known = self._is_known(before, at_s)
            return self._joined(known, after, there, error, at_s)

    def find_fault(self, learnt: Floats, /) -> str | None:
        numbers = learnt.T
        if not np.all(np.abs(numbers) <= _MOST):
            return "a place, a speed or how exactly it is known is beyond all that is possible"
        at_s, pp, pv, vv = numbers[-_NUMBERS:]
        if not np.all(np.abs(at_s) <= _LATEST_S):
            return "something is known of no time"
        most = 1.000001 * np.sqrt(np.maximum(pp, 0.0)) * np.sqrt(np.maximum(vv, 0.0))
        if not np.all((pp >= 0.0) & (vv >= 0.0) & (np.abs(pv) <= most)):
            return "a place or a speed is known more exactly than is possible"
        return None

    def _is_known(self, learnt: Floats, at_s: Floats) -> Bools:
        """Whether there is something to go on from, and not from too long ago."""
        return np.asarray((learnt[-3] > 0.0) & (at_s - learnt[-4] <= self.longest_s))

    def _ahead(self, learnt: Floats, at_s: Floats) -> _State:
        """What was known then, at a later time."""
        count = self.axes.count
        since_s, pp, pv, vv = learnt[-_NUMBERS:]
        with np.errstate(over="ignore", invalid="ignore"):  # of lanes that know nothing
            dt = at_s - since_s
            speed = learnt[count : 2 * count]
            place, speed = self.axes.along_surface(learnt[:count] + speed * dt, speed)
            drift = self.agility * dt
            return _State(
                place,
                speed,
                pp + dt * (2.0 * pv + dt * (vv + drift * (1.0 / 3.0))),
                pv + dt * (vv + 0.5 * drift),
                vv + drift,
            )

    def _corrected(self, ahead: _State, off: Floats, gain: Floats) -> _State:
        """What is known when a place was found to be off by so much; `gain` of it is believed."""
        place, speed, pp, pv, vv = ahead
        turned = gain * pv / pp
        left = 1.0 - gain
        least = _LEAST_SHARE * self.speed * self.speed
        return _State(
            place + gain * off,
            speed + turned * off,
            left * pp,
            left * pv,
            np.maximum(vv - turned * pv, least),
        )

    def _joined(
        self, known: Bools, after: _State, there: Floats, error: Floats, at_s: Floats
    ) -> Floats:
        """(lanes, width) What goes on where something was known, and begins anew elsewhere."""
        count = self.axes.count
        learnt = np.empty((self.width, len(at_s)))
        place, speed = self.axes.along_surface(after.place, after.speed)
        learnt[:count] = np.where(known, place, there)
        learnt[count : 2 * count] = np.where(known, speed, 0.0)
        learnt[-4] = at_s
        learnt[-3] = np.where(known, after.pp, np.minimum(error, _MOST))
        learnt[-2] = np.where(known, after.pv, 0.0)
        learnt[-1] = np.where(known, after.vv, self.speed * self.speed)
        return learnt.T


class _State(NamedTuple):
    """Place and speed along the axes, and the covariance of the two."""

    place: Floats
    speed: Floats
    pp: Floats
    pv: Floats
    vv: Floats


def _variance_of_accepted(plan: Plan, freedom: int) -> PerLane:
    """How far off an accepted guess is along each axis: the mean square, if anywhere is as likely.

    It passes within the threshold, and beyond it with a chance that falls by the epsilon of the
    test.
    """
    near = np.maximum(plan.threshold, 0.0) * plan.eps_test
    if freedom == 1:
        square = (((near / 3.0 + 1.0) * near + 2.0) * near + 2.0) / (near + 1.0)
    else:
        square = ((((0.25 * near + 1.0) * near + 3.0) * near + 6.0) * near + 6.0) / (
            (0.5 * near + 1.0) * near + 1.0
        )
    return square / (freedom * plan.eps_test * plan.eps_test)
