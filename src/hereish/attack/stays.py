"""Stays and places: where somebody stopped, and which stops were at one place.

A stay is a stretch of time spent within a distance of where it began; stays close to each other are
one place. On clean traces these are the rules of trackintel's `sliding` staypoints and of
its locations. An observer of noisy releases has only the posterior's means to apply them to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from hereish.attack.lattice import Frame, distance_m
from hereish.core.types import Floats, Ints


@dataclass(frozen=True)
class StayRules:
    """What counts as a stay, and which stays are at one place."""

    within_m: float = 100.0
    at_least_s: float = 1800.0
    longest_gap_s: float = 6 * 3600.0  # between two fixes of one stay
    one_place_m: float = 100.0


@dataclass(frozen=True, eq=False)
class Stays:
    """Stays in the order of their times."""

    begin_s: Floats
    end_s: Floats
    middle: Floats  # (n, 2) latitude and longitude
    place: Ints  # the number of each stay's place

    def __len__(self) -> int:
        return len(self.begin_s)

    def places(self) -> tuple[Floats, Floats]:
        """Latitude and longitude of each place, and the hours spent there; most hours first."""
        hours = (self.end_s - self.begin_s) / 3600.0
        count = int(self.place.max(initial=-1)) + 1
        total: Floats = np.asarray(np.bincount(self.place, hours, count), dtype=np.float64)
        middle = (
            np.stack(
                [np.bincount(self.place, self.middle[:, axis] * hours, count) for axis in range(2)],
                axis=1,
            )
            / np.maximum(total, 1e-9)[:, None]
        )
        order = np.argsort(-total, kind="stable")
        return middle[order], total[order]


def find_stays(at_s: Floats, points: Floats, rules: StayRules | None = None) -> Stays:
    """The stays of a trace, the last one included."""
    rules = rules or StayRules()
    begins: list[int] = []
    ends: list[int] = []
    start = 0
    for number in range(1, len(at_s) + 1):
        last = number == len(at_s)
        gap = not last and at_s[number] - at_s[number - 1] > rules.longest_gap_s
        left = not (last or gap) and _apart_m(points, start, number) >= rules.within_m
        if last or gap or left:
            until = number - 1 if last or gap else number
            # A gap ends a stay without a trace: who knows where that was spent.
            if not gap and at_s[until] - at_s[start] >= rules.at_least_s:
                begins.append(start)
                ends.append(number)
            start = number
    middle = np.array([points[a:b].mean(axis=0) for a, b in zip(begins, ends, strict=True)])
    middle = middle.reshape(-1, 2)
    final = np.minimum(np.array(ends, dtype=np.int64), len(at_s) - 1)
    return Stays(at_s[begins], at_s[final], middle, _join(middle, rules.one_place_m))


def _apart_m(points: Floats, first: int, second: int) -> float:
    return float(distance_m(points[first], points[second]))


def _join(middle: Floats, one_place_m: float) -> Ints:
    """A number for all stays of which each is near the next."""
    if not len(middle):
        return np.empty(0, dtype=np.int64)
    pairs = cKDTree(Frame.around(middle).to_metres(middle)).query_pairs(
        one_place_m, output_type="ndarray"
    )
    joined = coo_matrix((np.ones(len(pairs)), pairs.T), shape=(len(middle), len(middle)))
    return np.asarray(connected_components(joined, directed=False)[1], dtype=np.int64)


def places_found(found: Floats, true: Floats, within_m: float = 200.0) -> float:
    """The share of true places with one that was found within so many metres."""
    if not len(true):
        return float("nan")
    if not len(found):
        return 0.0
    apart_m = distance_m(true[:, None], found[None, :])
    return float((apart_m.min(axis=1) <= within_m).mean())
