"""What an observer of one person has seen, and how probable it was from each place.

Each release is evidence: fresh noise by its density, an accepted guess by the chance that it had of
being accepted, a guess that nobody tested by nothing at all. What is not known of a release is
left out, which makes an observer weaker and never wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hereish.attack.acceptance import (
    log_accepted_noise_first,
    log_test_failed,
    log_test_passed,
    noise_first_table,
)
from hereish.attack.cells import NoiseCell
from hereish.attack.lattice import Grid, distance_m
from hereish.core.types import Bools, Floats, Ints


class Test(IntEnum):
    """What is known of the private test of a guess."""

    __test__ = False  # it is not one of pytest's

    NONE = 0  # there was none, or its outcome tells nothing
    PASSED = 1  # the paper's
    FAILED = 2
    ACCEPTED = 3  # with the noise first; where it does not accept, the noise says it all


class NoiseLaw(Protocol):
    """The law of a noise that is not planar Laplace: the logarithm of its density, or more."""

    def log_density(self, east_m: Floats, north_m: Floats) -> Floats:
        """Of the released place being so far east and north of the true one."""
        ...


@dataclass(frozen=True, eq=False)
class Observations:
    """Releases of one person in the order of their times; all of it is public.

    The epsilons are per metre of great-circle distance. `noisy` is the point that was drawn, which
    is the released one unless that was moved afterwards; NaN where no noise was released.
    """

    at_s: Floats  # (n,)
    value: Floats  # (n, 2) what was released: latitude and longitude
    noisy: Floats  # (n, 2)
    eps_noise: Floats  # (n,) of the noise that is in `noisy`, or of that which a test has used
    slack_m: Floats  # (n,) how far from `noisy` the noise itself may have been
    test: NDArray[np.uint8]  # (n,) a Test
    guess: Floats  # (n, 2) what was tested
    eps_test: Floats  # (n,)
    threshold_m: Floats  # (n,)
    cost: Floats  # (n,) per metre: what the guarantee allows this release to tell
    cell: NDArray[np.object_]  # (n,) a NoiseCell where a release stands for much noise, else None
    law: NoiseLaw | None = None  # of the noise, if it is not planar Laplace

    def __len__(self) -> int:
        return len(self.at_s)

    def __repr__(self) -> str:
        return f"<Observations of {len(self)} releases>"

    @property
    def hard(self) -> Bools:
        """Which releases are fresh noise."""
        return np.asarray(self.noisy[:, 0] == self.noisy[:, 0])

    def take(self, rows: Ints | Bools | slice) -> Observations:
        """These releases only."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _COLUMNS})

    def informative(self) -> Bools:
        """Which releases tell anything."""
        return np.asarray(self.hard | (self.test != Test.NONE))

    def log_likelihood(self, i: int, grid: Grid) -> Floats | None:
        """Of release `i` from each cell, up to a constant; None if it tells nothing."""
        total: Floats | None = None
        cell: NoiseCell | None = self.cell[i]
        if cell is not None:
            total = cell.log_chance_at(grid.frame.to_degrees(grid.middles_m()))
        elif self.hard[i]:
            if self.law is not None:
                offset = grid.frame.to_metres(self.noisy[i]) - grid.middles_m()
                total = self.law.log_density(offset[..., 0], offset[..., 1])
            else:
                total = self._log_noise(i, self._apart_m(i, grid, self.noisy[i]))
        if self.test[i] != Test.NONE:
            tested = self._log_test(i, self._apart_m(i, grid, self.guess[i]))
            total = tested if total is None else total + tested
        return total

    def log_likelihood_at(self, i: int, places: Floats) -> Floats:
        """The same at some places, (m, 2) of latitude and longitude."""
        total = np.zeros(len(places))
        cell: NoiseCell | None = self.cell[i]
        if cell is not None:
            total += cell.log_chance_at(places)
        elif self.hard[i]:
            if self.law is not None:
                east_m, north_m = offsets_m(places, self.noisy[i])
                total += self.law.log_density(east_m, north_m)
            else:
                total += self._log_noise(i, distance_m(places, self.noisy[i]))
        if self.test[i] != Test.NONE:
            total += self._log_test(i, distance_m(places, self.guess[i]))
        return total

    def _apart_m(self, i: int, grid: Grid, point: Floats) -> Floats:
        """Distances of the cells from a point: of their middles, if they are finer than the noise.

        The middle of a cell far wider than that says that a release from within it cannot be, and
        all the other cells together would seem as probable.
        """
        distance = grid.distances_m(point)
        if grid.step_m * max(float(self.eps_noise[i]), float(self.eps_test[i])) > _COARSE:
            distance = np.maximum(distance - grid.half_diagonal_m, 0.0)
        return distance

    def _log_noise(self, i: int, distance: Floats) -> Floats:
        eps, slack_m = float(self.eps_noise[i]), float(self.slack_m[i])
        if slack_m:
            distance = np.maximum(distance - slack_m, 0.0)
        return -eps * distance

    def _log_test(self, i: int, distance: Floats) -> Floats:
        eps, threshold_m = float(self.eps_test[i]), float(self.threshold_m[i])
        if self.test[i] == Test.PASSED:
            return log_test_passed(distance, eps, threshold_m)
        if self.test[i] == Test.FAILED:
            return log_test_failed(distance, eps, threshold_m)
        table = _table(eps, float(self.eps_noise[i]), threshold_m)
        return log_accepted_noise_first(distance, table)


_COARSE = 4.0  # scales of the noise
_COLUMNS = (
    *("at_s", "value", "noisy", "eps_noise", "slack_m"),
    *("test", "guess", "eps_test", "threshold_m", "cost", "cell"),
)


@lru_cache(maxsize=8192)
def _table(eps_test: float, eps_noise: float, threshold_m: float) -> tuple[Floats, Floats]:
    return noise_first_table(eps_test, eps_noise, threshold_m)


def offsets_m(places: Floats, point: Floats) -> tuple[Floats, Floats]:
    """How far east and north of each place a point is."""
    north = (point[..., 0] - places[..., 0]) * 111_195.0797
    east = (point[..., 1] - places[..., 1] + 180.0) % 360.0 - 180.0
    return east * 111_195.0797 * np.cos(np.radians(places[..., 0])), north


def from_noise(
    at_s: Floats, released: Floats, eps_noise: Floats | float, law: NoiseLaw | None = None
) -> Observations:
    """Releases that are independent noise, each of this epsilon, or of a law of its own.

    A release that repeats an earlier one to the last bit is a repetition and tells nothing new.
    """
    count = len(at_s)
    _, first = np.unique(released, axis=0, return_index=True)
    again = np.ones(count, dtype=np.bool_)
    again[first] = False
    nowhere = np.full((count, 2), np.nan)
    eps = np.broadcast_to(np.asarray(eps_noise, dtype=np.float64), (count,)).copy()
    return Observations(
        np.asarray(at_s, dtype=np.float64),
        released,
        np.where(again[:, None], np.nan, released),
        eps,
        np.zeros(count),
        np.full(count, Test.NONE, dtype=np.uint8),
        nowhere,
        np.zeros(count),
        np.full(count, np.inf),
        np.where(again, 0.0, eps),
        np.full(count, None),
        law,
    )


def promised_log_odds(seen: Observations, first: Floats, second: Floats) -> tuple[float, float]:
    """How much more probable the releases are from one place than from another.

    The logarithm of the posterior odds for somebody who thought both equally probable, and what
    the guarantee lets it be at most: the sum of the costs times the distance.
    """
    places = np.stack([first, second])
    told = sum(
        float(np.subtract(*seen.log_likelihood_at(i, places)))
        for i in np.flatnonzero(seen.informative()).tolist()
    )
    return told, float(seen.cost.sum() * distance_m(first, second))


def joined(parts: Sequence[Observations]) -> Observations:
    """Observations of one person in several runs, in the order of their times."""
    if len(parts) == 1:
        return parts[0]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS
    }
    whole = replace(parts[0], **columns)
    return whole.take(np.argsort(whole.at_s, kind="stable"))
