"""A burglar who reads meter readings: is somebody at home now, on that evening, on that day?

The burglar knows other homes, whose presence and releases are both known to them, learns from these
what it looks like when somebody is at home, and guesses for the rest. A linear discriminant of a
few features: simple, and told everything that is released, kinds included. The readings may be the
releases themselves, or what an observer makes of them (`hereish.attack.meter_observer`). That is
one observer, not a bound; the bound is the guarantee.
"""

from __future__ import annotations

import numpy as np

from hereish.core.types import Bools, Floats

_NIGHT, _EVENING = (1, 5), (18, 23)  # hours of the clock
_AWAKE = (6, 24)
_LITTLE_WH = 10.0
BUSY = 1.5  # times what a home takes when it is idle
_RIDGE = 1e-3  # features may be the same in all homes


def idle_wh(wh: Floats) -> Floats:
    """(homes,) What each home takes when nobody does anything, as far as readings show it."""
    return np.asarray(np.quantile(wh, 0.25, axis=1) + _LITTLE_WH)


def is_busy(wh: Floats) -> Floats:
    """(homes, readings) 1 where a home takes well more than that, else 0.

    An observer who is not sure has the probability of it instead.
    """
    return np.asarray(wh > BUSY * idle_wh(wh)[:, None], dtype=np.float64)


def evening_features(
    released: Floats, hard: Bools, slots: int, busy: Floats | None = None
) -> Floats:
    """(homes, days, features) What stands out of an evening: its level, its peaks, its noise.

    `released`, `hard` and `busy` are (homes, readings), with so many slots per day.
    """
    days = released.reshape(len(released), -1, slots)
    fresh = hard.reshape(days.shape)
    evening, night = (slice(*(hour * slots // 24 for hour in part)) for part in (_EVENING, _NIGHT))
    idle = idle_wh(released)[:, None]
    during, before = days[:, :, evening], days[:, :, night]
    is_high = (is_busy(released) if busy is None else busy).reshape(days.shape)
    features = (
        np.log((during.mean(axis=2) + _LITTLE_WH) / idle),
        np.log((during.max(axis=2) + _LITTLE_WH) / idle),
        np.log((during.mean(axis=2) + _LITTLE_WH) / (before.mean(axis=2) + _LITTLE_WH)),
        is_high[:, :, evening].mean(axis=2),
        fresh[:, :, evening].mean(axis=2),
    )
    return np.stack(features, axis=2)


def half_hour_features(wh: Floats, busy: Floats, clock: Floats) -> Floats:
    """(homes, readings, features) What stands out of a reading and those around it.

    `clock` is (readings,): how often somebody is at home at such times, elsewhere.
    """
    around = sum(np.roll(busy, shift, axis=1) for shift in (-2, -1, 1, 2)) / 4.0
    level = np.log((wh + _LITTLE_WH) / idle_wh(wh)[:, None])
    return np.stack([level, busy, around, np.broadcast_to(clock, wh.shape)], axis=2)


def clock_of(present: Bools, slots: int) -> Floats:
    """(readings,) The share of these homes in which somebody is, by time of weekdays or weekends.

    Days are counted from a Monday.
    """
    days = present.reshape(len(present), -1, slots)
    weekend = np.arange(days.shape[1]) % 7 >= 5
    clock = np.zeros(days.shape[1:])
    for kind in (weekend, ~weekend):
        if kind.any():
            clock[kind] = days[:, kind].mean(axis=(0, 1))
    return clock.reshape(-1)


def day_features(wh: Floats, busy: Floats, slots: int) -> Floats:
    """(homes, days, features) What stands out of a whole day, beside others of that home."""
    days, high = (each.reshape(len(wh), -1, slots) for each in (wh, busy))
    awake = slice(*(hour * slots // 24 for hour in _AWAKE))
    mean = days.mean(axis=2) + _LITTLE_WH
    features = (
        np.log(mean / idle_wh(wh)[:, None]),
        np.log(mean / np.median(mean, axis=1, keepdims=True)),
        np.log((days[:, :, awake].max(axis=2) + _LITTLE_WH) / idle_wh(wh)[:, None]),
        high[:, :, awake].mean(axis=2),
    )
    return np.stack(features, axis=2)


def balanced_accuracy(features: Floats, home: Bools, known: int) -> float:
    """How often the burglar is right on homes after the first `known`: the mean of both answers'.

    `home` is (homes, questions), as many as `features` has.

    0.5 is what a coin achieves, and what there is to say where all evenings are alike; 1 is
    certainty.
    """
    if any(part.all() or not part.any() for part in (home[:known], home[known:])):
        return 0.5
    spread = features[:known].reshape(-1, features.shape[2])
    centre, scale = spread.mean(axis=0), spread.std(axis=0) + 1e-9
    scaled = np.clip((features - centre) / scale, -5.0, 5.0)
    learnt = scaled[:known].reshape(-1, features.shape[2])
    at_home = home[:known].reshape(-1)
    apart = learnt[at_home].mean(axis=0) - learnt[~at_home].mean(axis=0)
    within = np.cov(learnt[at_home], rowvar=False) + np.cov(learnt[~at_home], rowvar=False)
    weights = np.linalg.solve(within + _RIDGE * np.eye(len(apart)), apart)
    score = learnt @ weights
    cut = 0.5 * (score[at_home].mean() + score[~at_home].mean())
    guessed, truth = scaled[known:] @ weights > cut, home[known:]
    return float(0.5 * (guessed[truth].mean() + (~guessed[~truth]).mean()))
