"""What an observer must know of a space: distances, lattices, how noise is undone.

Everything else about an attack is the same in all spaces: a mechanism is replayed, each release is
evidence by its likelihood, and what lies between two of them is a movement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from hereish.attack.lattice import Lattice
from hereish.attack.movement import Movement
from hereish.core.types import Floats


class ManyNoises(Protocol):
    """A release that stands for more than one noisy point: what that tells."""

    def log_chance_at(self, points: Floats, nearer_m: Floats | float = 0.0) -> Floats:
        """The logarithm of its chance from these points of the space, (…, coordinates).

        Or from so much nearer to it.
        """
        ...


class Postprocessed(NamedTuple):
    """Fresh noise that was moved before it was released, with what is public of it.

    `moved(points)` is where noise at each of these points would have been moved to, not rounded;
    `let_out(points)` is how likely it would have been released at all rather than the guess.
    """

    value: Floats  # the release
    eps_noise: float  # per unit of the distance
    reach_m: float  # how far noise may have been moved
    moved: Callable[[Floats], Floats]
    let_out: Callable[[Floats], Floats]
    learns: bool  # it may be one of several that were released alike


class Undone(NamedTuple):
    """What a release tells of its noise."""

    noisy: Floats  # the noisy point; of several, the one around which most noise is
    exact: bool  # whether it would have become the release
    cell: ManyNoises | None = None  # where it stands for much noise


class ReplayTolerance(NamedTuple):
    """By how much releases may differ from what was replayed, and still be of the mechanism.

    Noise is found again to a step of the grid, or to a metre, and what follows from it is as exact.
    """

    cost: float  # the share by which a cost may be another one
    contradictions: float  # the share of releases that may have been planned otherwise


class ObservedSpace(Protocol):
    """A space as an observer sees it. Lengths are in the unit of its distance."""

    @property
    def coordinates(self) -> int:
        """Of a point."""
        ...

    @property
    def movements(self) -> tuple[Movement, ...]:
        """Of which an observer takes the one that fits, if none is given."""
        ...

    @property
    def cells(self) -> int:
        """Of a lattice along each axis."""
        ...

    @property
    def rounds(self) -> int:
        """How often a posterior is made again, on finer lattices or with own places learnt."""
        ...

    @property
    def margins_m(self) -> tuple[float, float]:
        """The least and the most around releases that a lattice covers."""
        ...

    @property
    def tolerance(self) -> ReplayTolerance: ...

    def distance_m(self, a: Floats, b: Floats) -> Floats: ...

    def offsets_m(self, places: Floats, point: Floats) -> tuple[Floats, ...]:
        """How far a point is from each place, along each coordinate."""
        ...

    def covering(self, points: Floats, margin_m: float, cells: int) -> Lattice:
        """A lattice over these points and a margin, with so many cells to a side at most."""
        ...

    def log_accepted(
        self, distance_m: Floats, eps_test: float, eps_noise: float, threshold_m: float
    ) -> Floats:
        """The logarithm of the chance that noise drawn first leads to the guess."""
        ...

    def undo(self, release: Postprocessed) -> Undone:
        """The noise that became this release."""
        ...
