"""What the supplier of a home reads from released meter readings: its bill, and its habits.

A supplier wants to know what a home has used, which the bill needs and the owner may well tell;
and could learn more than that: what it uses on each day, and how much of it falls into which hours.
All are plain sums and means, of the releases or of what an observer makes of them
(`hereish.attack.meter_observer`). That is one observer, not a bound; the bound is the guarantee.
"""

from __future__ import annotations

import numpy as np

from hereish.core.types import Floats


def bill_error(released: Floats, truth: Floats) -> float:
    """By how much the sum of a home's readings is off, as a share of it, on average over homes.

    Both are (homes, readings).
    """
    used = truth.sum(axis=1)
    return float((np.abs(released.sum(axis=1) - used) / used).mean())


def day_error(released: Floats, truth: Floats, slots: int) -> float:
    """By how much the sum of a day is off, as a share of the mean day, on average over homes."""
    days, used = (each.reshape(len(each), -1, slots).sum(axis=2) for each in (released, truth))
    return float((np.abs(days - used).mean(axis=1) / used.mean(axis=1)).mean())


def habits_told(released: Floats, truth: Floats, slots: int) -> float:
    """How well the mean day of a home tells its own from those of the others: a share of homes.

    The supplier has the true mean days of all homes without their names, each over its own level,
    and takes for each home the one that is most like its releases. By chance one in so many.
    """
    seen, known = (_shape_of_day(each, slots) for each in (released, truth))
    apart = ((seen[:, None] - known[None]) ** 2).sum(axis=2)
    return float((apart.argmin(axis=1) == np.arange(len(truth))).mean())


def _shape_of_day(readings: Floats, slots: int) -> Floats:
    """(homes, slots) The mean day of each home, over its mean reading."""
    days = readings.reshape(len(readings), -1, slots).mean(axis=1)
    level = days.mean(axis=1, keepdims=True)
    return np.asarray(days / np.where(level > 0.0, level, 1.0))
