"""Smart meters: readings on a line, guessed from the same time of the days before.

A secret is the energy of one interval in watt-hours, and two secrets are as far apart as they
differ. What is promised and what is not: docs/meters.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
from scipy.special import expit

from hereish.core.mechanism import OnExhausted, PredictiveMechanism
from hereish.core.privacy import Privacy, positive
from hereish.core.run import Run
from hereish.core.spaces import probability
from hereish.core.types import Bools, Floats, Ints, PerLane
from hereish.core.vector import Vector
from hereish.core.windows import Day, Every, Month, Window, split_windows
from hereish.domains.streams import (
    STREAM,
    Condition,
    Follow,
    StreamNumbers,
    mean_distance,
    stream,
)
from hereish.errors import ParameterError

_DAY_S = 86400.0
_HALF_HOUR = timedelta(minutes=30)
_LONGEST_MONTH_DAYS = 31
# Of the mean reading: how far times of the day differ from each other, and readings from their
# guess. Public: households of all sizes are about as unlike themselves.
_SPREAD, _RESIDUE = 0.7, 0.6
# In so many of ten cases a reading differs from its guess by a few times as much.
_RARELY, _FURTHER = 0.1, 5.0
# Noise wider than this share of the residue is worth waiting for finer noise, if so long at least.
_FINE, _SHORTEST_PAUSE = 0.3, 6.0
# How near the last release and the profile have been to fresh noise, in its scales: the weight of
# the newest, the most that counts, and how much further away the profile may be.
_SCORES, _SCORING, _FURTHEST, _FAVOUR = 2, 0.1, 5.0, 1.05


@dataclass(frozen=True)
class DailyProfile(Follow):
    """Guesses what was released at this time of the days before, and what the last release adds.

    A profile of `day / every_s` slots keeps the mean of the noise at each time of the day, weighted
    by how exact it is, as if of the last `days`; where little is known of a slot yet, the mean of
    all of them stands for it, and before the first release `usual`, a public number. Of what the
    last release was above or below its slot, the share `carry` is expected of the next one.

    In homes that the profile does not fit, where the last release has been nearer to the noise, it
    guesses that instead, as `Follow` does.

    Guarantee: sees released readings and public times alone, so it costs nothing.
    """

    time_zone: str = "UTC"
    every_s: float = 1800.0
    usual: float = 250.0
    carry: float = 0.93
    days: float = 14.0

    def __post_init__(self) -> None:
        super().__post_init__()
        Day(self.time_zone)
        if self.space.count != 1 or self.space.sensitivity != 1.0:
            raise ParameterError(
                "a meter has one number, whose distance is a difference, found "
                f"count={self.space.count} and sensitivity={self.space.sensitivity}"
            )
        for name in ("usual", "days"):
            positive(name, getattr(self, name))
        probability("carry", self.carry)
        if not 60.0 <= positive("every_s", self.every_s) <= _DAY_S:
            raise ParameterError(
                f"every_s must lie between a minute and a day, found {self.every_s!r}"
            )

    @property
    def slots(self) -> int:
        """Times of the day that are told apart."""
        return math.ceil(_DAY_S / self.every_s)

    @property
    def _first(self) -> int:
        """The first column of its own: two scores, then means and weights, of all and of slots."""
        return super().width

    @property
    def width(self) -> int:
        return self._first + _SCORES + 2 + 2 * self.slots

    @property
    def reach(self) -> float:
        """Where noise tells nothing it is moved to the guess, and noise ends at 46 scales."""
        return 50.0

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        by_profile = self._by_profile(run, at_s)
        return np.where(self._trusts_profile(run), by_profile, run.value[:, 0])[:, None]

    def pause(self, run: Run, eps_equal: float) -> Floats:
        """Until one noise can be as fine as what there is to find out."""
        pause = 1.5 / (eps_equal * _FINE * self._residue(run))
        return np.where(pause < _SHORTEST_PAUSE, 1.0, pause)

    def weights(self, run: Run, condition: Condition) -> Floats:
        """By the profile a reading is known as noise of its residue would tell it."""
        by_profile = 1.0 / np.square(self._residue(run))
        last = super().weights(run, condition)[:, 0]
        return np.where(self._trusts_profile(run), by_profile, last)[:, None]

    def update(
        self, run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps_noise: PerLane, /
    ) -> tuple[Floats, Floats]:
        released, learnt = super().update(run, lanes, at_s, fresh, eps_noise)
        run, noisy = run.take(lanes), fresh[:, 0]
        self._score(learnt, run, at_s, noisy, eps_noise)
        residue = self._residue(run)
        exact = 1.0 / (2.0 / np.square(eps_noise) + residue * residue)
        most = self.days / (residue * residue)
        flat, first = learnt.reshape(-1), np.arange(len(lanes)) * self.width + self._first + _SCORES
        for mean, slots in ((first, self.slots), (first + 2 + 2 * self._slot(at_s), 1)):
            weight = np.minimum(flat[mean + 1], most * slots)
            flat[mean] = (weight * flat[mean] + exact * noisy) / (weight + exact)
            flat[mean + 1] = weight + exact
        return released, learnt

    def find_fault(self, learnt: Floats, /) -> str | None:
        table = learnt[:, self._first + _SCORES :]
        _, low, high = self.space.coordinates[0]
        if not np.all((table[:, ::2] >= low) & (table[:, ::2] <= high)):
            return "a mean of the profile is no reading"
        if not np.all(table[:, 1::2] >= 0.0):
            return "a weight of the profile is below nought"
        return super().find_fault(learnt[:, : self._first + _SCORES])

    def _score(
        self, learnt: Floats, run: Run, at_s: Floats, noisy: Floats, eps_noise: PerLane
    ) -> None:
        """Note how near the last release and the profile were."""
        known = run.at_s == run.at_s
        for i, guess in enumerate((run.value[:, 0], self._by_profile(run, at_s))):
            apart = np.minimum(np.abs(noisy - guess) * eps_noise, _FURTHEST)
            score = learnt[:, self._first + i]
            newest = score + _SCORING * (apart - score)
            learnt[:, self._first + i] = np.where(known, newest, score)

    def _trusts_profile(self, run: Run) -> Bools:
        last, profile = run.learnt[:, self._first], run.learnt[:, self._first + 1]
        return np.asarray(profile <= _FAVOUR * last)

    def _estimate(
        self, run: Run, guess: Floats, fresh: Floats, eps: Floats, pull: Floats
    ) -> Floats:
        """By the profile: the mean of what a reading can be, given its guess and the noise."""
        residue, apart = self._residue(run), (fresh - guess)[:, 0]
        like, likely = laplace_posterior(apart, residue, 1.0 / eps)
        unlike, rarely = laplace_posterior(apart, _FURTHER * residue, 1.0 / eps)
        # By logarithms: far out both densities are nought, and a reading that fails would tell.
        usual = expit(likely - rarely + math.log((1.0 - _RARELY) / _RARELY))
        moved = usual * like + (1.0 - usual) * unlike
        by_last = super()._estimate(run, guess, fresh, eps, pull)
        return np.where(self._trusts_profile(run)[:, None], guess + moved[:, None], by_last)

    def _slot(self, at_s: Floats) -> Ints:
        into_s = at_s - Day(self.time_zone).start_s(at_s)
        return np.minimum((into_s / self.every_s).astype(np.int64), self.slots - 1)

    def _by_profile(self, run: Run, at_s: Floats) -> Floats:
        before_s = np.where(run.at_s == run.at_s, run.at_s, at_s)
        here, before = (self._expected(run, each) for each in (at_s, before_s))
        last = np.where(run.at_s == run.at_s, run.value[:, 0], before)
        carried = np.exp((at_s - before_s) * (math.log(self.carry) / self.every_s))
        limits = self.space.coordinates[0]
        low, high = max(self.space.low, limits.low), min(self.space.high, limits.high)
        return np.clip(here + carried * (last - before), low, high)

    def _expected(self, run: Run, at_s: Floats) -> Floats:
        """The profile at these times of the day."""
        mean = np.arange(len(at_s)) * self.width + self._first + _SCORES + 2 + 2 * self._slot(at_s)
        flat = run.learnt.reshape(-1)
        known = 1.0 / (_SPREAD * self.usual) ** 2
        total = flat[mean + 1] * flat[mean] + known * self._level(run)
        return np.asarray(total / (flat[mean + 1] + known))

    def _level(self, run: Run) -> Floats:
        """The mean reading of all times; `usual` before anything is known, and never far below."""
        mean, weight = run.learnt[:, self._first + _SCORES :][:, :2].T
        known = 1.0 / self.usual**2
        level = (weight * mean + known * self.usual) / (weight + known)
        return np.asarray(np.maximum(level, 0.1 * self.usual))

    def _residue(self, run: Run) -> Floats:
        """How far readings are from their guess, by their mean."""
        return np.asarray(_RESIDUE * self._level(run))


def laplace_posterior(apart: Floats, scale: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Of a Laplace variable of this scale that is seen `apart` through Laplace noise: its mean,

    and the logarithm of the density of seeing that.
    """
    # With equal scales the formulas are 0 / 0; those of a scale next to it are right to 1e-3.
    scale = np.where(np.abs(scale - noise) < 1e-3 * noise, 1.001 * noise, scale)
    v, a, b = np.abs(apart), 1.0 / scale, 1.0 / noise
    least, both, gap = np.minimum(a, b), a + b, b - a
    by_noise, by_scale = np.exp((least - b) * v), np.exp((least - a) * v)
    mass = (by_noise + by_scale) / both + (by_scale - by_noise) / gap
    below = -by_noise / (both * both)
    between = v * by_scale / gap - (by_scale - by_noise) / (gap * gap)
    beyond = by_scale * (v / both + 1.0 / (both * both))
    mean = np.copysign((below + between + beyond) / mass, apart)
    return mean, np.log(0.25 * a * b * mass) - least * v


def smart_meter(
    privacy: Privacy,
    *,
    every: timedelta = _HALF_HOUR,
    time_zone: str = "UTC",
    window: Window | None = None,
    highest_wh: float = 5000.0,
    usual_wh: float = 250.0,
    grid_wh: float = 1.0,
    numbers: StreamNumbers = STREAM,
    on_exhausted: OnExhausted = "predict",
) -> PredictiveMechanism:
    """Readings of a meter `every` so often, within a budget for each `window`.

    `privacy.radius_m` is in watt-hours per reading. The window is a calendar day of the time zone
    unless given; `hereish.Month(time_zone)` is the other usual one, alone or as a limit beside the
    day: `Day(zone) & Month(zone).within(level)`. `highest_wh` and `usual_wh` are
    public: readings are released between 0 and the highest, and the usual one is the first guess.

    Guarantee: as that of every PredictiveMechanism, for each window.
    """
    if not isinstance(privacy, Privacy):
        raise ParameterError(f"privacy must be a hereish.Privacy, found {type(privacy).__name__}")
    if not isinstance(every, timedelta):
        raise ParameterError(f"every must be a datetime.timedelta, found {type(every).__name__}")
    every_s = positive("every in seconds", every.total_seconds())
    chosen = Day(time_zone) if window is None else window
    readings = max(1, round(_window_s(split_windows(chosen)[0]) / every_s))
    space = Vector(1, "l1", grid_wh, 0.0, highest_wh, unit="Wh")
    # How surprising the first guess will be, where noise has an equal part of the budget.
    wide = _RESIDUE * positive("usual_wh", usual_wh) * privacy.eps_per_m / readings
    surprise = min(float(mean_distance(np.array(wide))), numbers.first_surprise)
    numbers = replace(numbers, first_surprise=surprise)
    profile = DailyProfile(space, numbers, time_zone, every_s, usual_wh)
    return stream(
        privacy, space, readings, window=chosen, follow=profile, on_exhausted=on_exhausted
    )


def _window_s(window: Window) -> float:
    if isinstance(window, Day):
        return _DAY_S
    if isinstance(window, Month):
        return _LONGEST_MONTH_DAYS * _DAY_S
    if isinstance(window, Every):
        return window.duration.total_seconds()
    raise ParameterError(
        "the window of a meter is a hereish.Day, a hereish.Month or a hereish.Every, "
        f"found {type(window).__name__}"
    )
