"""Made-up databases that change over time, all from a seed: who is in which group, snapshot by
snapshot, and the histogram of each.
"""

from __future__ import annotations

import numpy as np

from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError


def snapshots(
    persons: int = 5000,
    groups: int = 8,
    publications: int = 96,
    *,
    moving: float = 0.002,
    seed: int = 1,
) -> Ints:
    """(publications, persons) The group of each person at each publication.

    Between two publications a share `moving` of the persons join a group again, by how popular it
    is by then, which changes as slowly or as fast: 0.002 is a membership, 0.1 a town's traffic,
    and 1 a new crowd each time.
    """
    for name, number in (("persons", persons), ("groups", groups), ("publications", publications)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ParameterError(f"{name} must be a whole number from 1, found {number!r}")
    if not 0.0 <= moving <= 1.0:
        raise ParameterError(f"moving must be a share from 0 to 1, found {moving!r}")
    rng = np.random.default_rng(seed)  # for show, not for secrets
    taste = rng.normal(0.0, 0.7, groups)
    found = np.empty((publications, persons), dtype=np.int64)
    now = rng.choice(groups, persons, p=_popularity(taste))
    for step in range(publications):
        found[step] = now
        taste = (1.0 - moving) * taste + np.sqrt(moving) * rng.normal(0.0, 0.7, groups)
        moved = rng.random(persons) < moving
        now = np.where(moved, rng.choice(groups, persons, p=_popularity(taste)), now)
    return found


def histograms(found: Ints, groups: int) -> Floats:
    """(publications, groups) How many persons are in each group at each publication."""
    counted = [np.bincount(step, minlength=groups) for step in found]
    return np.array(counted, dtype=np.float64)


def _popularity(taste: Floats) -> Floats:
    weight = np.exp(taste - taste.max())
    return np.asarray(weight / weight.sum())
