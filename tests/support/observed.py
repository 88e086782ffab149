"""Releases of made-up people, as an observer of them has them."""

from __future__ import annotations

import math

import numpy as np

from hereish import synthetic
from hereish.attack.observations import Observations
from hereish.attack.replay import Releases, replay
from hereish.core.batch import sanitize
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.privacy import Privacy
from hereish.core.types import Floats, Kind
from hereish.core.windows import Day

PRIVACY = Privacy(math.log(10.0), 100.0)
WINDOW = Day(synthetic.TIME_ZONE)
_PER_DAY = 48


def people(count: int, days: int, seed: int = 1) -> tuple[Floats, Floats]:
    """Times, and (count, n, 2) places every half hour."""
    clock_s: Floats = np.arange(float(_PER_DAY)) * 1800.0
    places = synthetic.whereabouts_on_days(count, seed, days, clock_s)
    at_s = (synthetic.MIDNIGHT_S + 86400.0 * np.arange(days)[:, None] + clock_s).ravel()
    return at_s, places.reshape(count, -1, 2)


def released(m: PredictiveMechanism, at_s: Floats, places: Floats, seed: int = 1) -> Releases:
    """What the mechanism releases of one person."""
    out = sanitize(m, places, at_s, np.array([0, len(at_s)]), seed=seed)
    there = np.asarray(out.released)
    kinds = [Kind(kind) for kind in out.kind[there].tolist()]
    return Releases(at_s[there], out.value[there], kinds, out.cost[there])


def observed(m: PredictiveMechanism, at_s: Floats, places: Floats, seed: int = 1) -> Observations:
    """The same as an observer who knows the mechanism sees it."""
    return replay(m, [released(m, at_s, places, seed)], windows_apart=False)[0]
