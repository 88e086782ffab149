"""Whose week is this? Releases without a name, and a set of people whose past is known.

The observer knows where each of them was at each hour of the day, and asks from whose past the
releases are most probable. Somebody who was nowhere before may still be one of them, so a part of
each past is everybody's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hereish.attack.home import local_seconds
from hereish.attack.observations import Observations
from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError

_PARTS = 6  # of the day
_DAY_S = 86400.0
_OTHERS = 0.2  # of a past that is everybody's
_MOST = 400  # places of a past in each part of the day


@dataclass(frozen=True, eq=False)
class Pasts:
    """Where some people were, by part of the day."""

    names: tuple[str, ...]
    time_zone: str
    places: list[list[Floats]]  # by person and part of the day: (n, 2)

    @classmethod
    def of(cls, traces: dict[str, tuple[Floats, Floats]], time_zone: str, seed: int = 1) -> Pasts:
        """From the times and places of each person."""
        if len(traces) < 2:
            raise ParameterError(
                f"whose releases these are is a question among at least 2 people, found "
                f"{len(traces)}"
            )
        rng = np.random.default_rng(seed)  # which places stand for many others
        places = [_by_part(at_s, points, time_zone, rng) for at_s, points in traces.values()]
        return cls(tuple(traces), time_zone, places)

    def log_scores(self, seen: Observations) -> Floats:
        """The logarithm of how probable the releases are from each person's past."""
        rows = np.flatnonzero(seen.informative())
        parts = _part_of_day(seen.at_s[rows], self.time_zone)
        total = np.zeros(len(self.names))
        for part in np.unique(parts).tolist():
            own = [places[part] for places in self.places]
            counts = np.array([len(places) for places in own])
            if not counts.any():
                continue
            there, begins = np.concatenate(own), np.append(0, np.cumsum(counts))[:-1]
            known = counts > 0
            for i in rows[parts == part].tolist():
                logs = seen.log_likelihood_at(i, there)
                most = float(logs.max())
                chance = np.exp(logs - most)
                # Everybody counts the same, however long their past is.
                means = np.add.reduceat(chance, begins[known]) / counts[known]
                usual = float(means.mean())
                scores = np.full(len(self.names), usual)
                scores[known] = means
                mixed = (1.0 - _OTHERS) * scores + _OTHERS * usual
                total += most + np.log(np.maximum(mixed, 1e-300))
        return total

    def rank_of(self, name: str, seen: Observations) -> int:
        """1 if the releases are most probable from this person's past; ties count against it."""
        scores = self.log_scores(seen)
        return int((scores >= scores[self.names.index(name)]).sum())


def _part_of_day(at_s: Floats, time_zone: str) -> Ints:
    return np.floor(local_seconds(at_s, time_zone) % _DAY_S / (_DAY_S / _PARTS)).astype(np.int64)


def _by_part(
    at_s: Floats, points: Floats, time_zone: str, rng: np.random.Generator
) -> list[Floats]:
    part = _part_of_day(at_s, time_zone)
    return [_some(points[part == number], rng) for number in range(_PARTS)]


def _some(points: Floats, rng: np.random.Generator) -> Floats:
    if len(points) <= _MOST:
        return points
    return points[rng.choice(len(points), _MOST, replace=False)]
