"""What an observer of one person has seen, and how probable it was from each place.

Each release is evidence: fresh noise by its density, an accepted guess by the chance that it had of
being accepted, a guess that nobody tested by nothing at all. What is not known of a release is
left out, which makes an observer weaker and never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hereish.attack.acceptance import log_test_failed, log_test_passed
from hereish.attack.geometry import ManyNoises, ObservedSpace
from hereish.attack.globe import GLOBE, OnGlobe
from hereish.attack.lattice import Lattice
from hereish.core.types import Bools, Floats, Ints
from hereish.errors import ParameterError


class Test(IntEnum):
    """What is known of the private test of a guess."""

    __test__ = False  # it is not one of pytest's

    NONE = 0  # there was none, or its outcome tells nothing
    PASSED = 1  # the paper's
    FAILED = 2
    ACCEPTED = 3  # with the noise first; where it does not accept, the noise says it all


class NoiseLaw(Protocol):
    """The law of a noise that is not planar Laplace: the logarithm of its density, or more."""

    @property
    def log_density(self) -> Callable[..., Floats]:
        """Of the released place being so far from the true one: on the globe east and north."""
        ...


@dataclass(frozen=True, eq=False)
class Observations:
    """Releases of one person in the order of their times; all of it is public.

    The epsilons are per unit of the distance, metres of great circles on the globe. `noisy` is the
    point that was drawn, which is the released one unless that was moved afterwards; NaN where no
    noise was released.
    """

    at_s: Floats  # (n,)
    value: Floats  # (n, coordinates) what was released: latitude and longitude on the globe
    noisy: Floats  # (n, coordinates)
    eps_noise: Floats  # (n,) of the noise that is in `noisy`, or of that which a test has used
    slack_m: Floats  # (n,) how far from `noisy` the noise itself may have been
    test: NDArray[np.uint8]  # (n,) a Test
    guess: Floats  # (n, coordinates) what was tested
    eps_test: Floats  # (n,)
    threshold_m: Floats  # (n,)
    cost: Floats  # (n,) per metre: what the guarantee allows this release to tell
    cell: NDArray[np.object_]  # (n,) ManyNoises where a release stands for such, else None
    law: NoiseLaw | None = None  # of the noise, if it is not that of the space
    geometry: ObservedSpace = GLOBE

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

    def require_places(self) -> None:
        """Refuse what is no place on the globe, for attacks that look for such."""
        if not isinstance(self.geometry, OnGlobe):
            raise ParameterError(
                "homes, stays and routes are places on the globe; of numbers use smooth, found "
                f"{type(self.geometry).__name__}"
            )

    def informative(self) -> Bools:
        """Which releases tell anything."""
        return np.asarray(self.hard | (self.test != Test.NONE))

    def log_likelihood(self, i: int, lattice: Lattice) -> Floats | None:
        """Of release `i` from each cell, up to a constant; None if it tells nothing."""
        total: Floats | None = None
        cell: ManyNoises | None = self.cell[i]
        if cell is not None:
            total = cell.log_chance_at(lattice.points(), self._nearer_m(i, lattice))
        elif self.hard[i]:
            if self.law is not None:
                total = self.law.log_density(*lattice.offsets_m(self.noisy[i]))
            else:
                total = self._log_noise(i, self._apart_m(i, lattice, self.noisy[i]))
        if self.test[i] != Test.NONE:
            tested = self._log_test(i, self._apart_m(i, lattice, self.guess[i]))
            total = tested if total is None else total + tested
        return total

    def log_likelihood_at(self, i: int, places: Floats) -> Floats:
        """The same at some points of the space, (m, coordinates)."""
        total = np.zeros(len(places))
        cell: ManyNoises | None = self.cell[i]
        if cell is not None:
            total += cell.log_chance_at(places)
        elif self.hard[i]:
            if self.law is not None:
                total += self.law.log_density(*self.geometry.offsets_m(places, self.noisy[i]))
            else:
                total += self._log_noise(i, self.geometry.distance_m(places, self.noisy[i]))
        if self.test[i] != Test.NONE:
            total += self._log_test(i, self.geometry.distance_m(places, self.guess[i]))
        return total

    def _apart_m(self, i: int, lattice: Lattice, point: Floats) -> Floats:
        """Distances of the cells from a point: of their middles, if those are fine enough."""
        distance, nearer_m = lattice.distances_m(point), self._nearer_m(i, lattice)
        return np.maximum(distance - nearer_m, 0.0) if np.any(nearer_m) else distance

    def _nearer_m(self, i: int, lattice: Lattice) -> Floats:
        """How much nearer than its middle some of a cell is, where it is far wider than the noise.

        Its middle would say that a release from within it cannot be, and all the other cells
        together would seem as probable.
        """
        half = lattice.half_diagonal_m
        coarse = half * max(float(self.eps_noise[i]), float(self.eps_test[i])) > _COARSE
        return np.asarray(np.where(coarse, half, 0.0))

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
        return self.geometry.log_accepted(distance, eps, float(self.eps_noise[i]), threshold_m)


_COARSE = 2.0 * math.sqrt(2.0)  # scales of the noise, of half a diagonal
_COLUMNS = (
    *("at_s", "value", "noisy", "eps_noise", "slack_m"),
    *("test", "guess", "eps_test", "threshold_m", "cost", "cell"),
)


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
    nowhere = np.full(released.shape, np.nan)
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
    return told, float(seen.cost.sum() * seen.geometry.distance_m(first, second))


def joined(parts: Sequence[Observations]) -> Observations:
    """Observations of one person in several runs, in the order of their times."""
    if len(parts) == 1:
        return parts[0]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS
    }
    whole = replace(parts[0], **columns)
    return whole.take(np.argsort(whole.at_s, kind="stable"))
