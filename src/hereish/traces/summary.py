"""What a run over files did. It depends on the true places: for the terminal, never published."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hereish.core.accounting import SecondPromise
from hereish.core.types import Floats
from hereish.traces.table import RELEASED_KINDS, ReleasedRows

# Displacements are counted in bins a thousandth wide, so that a billion of them take no memory.
_EDGES_M = np.geomspace(1e-3, 3e7, 1 + round(np.log(3e10) / np.log1p(1e-3)))


@dataclass
class ReleaseCounts:
    """Counts what became of valid points, and how far the released ones are from the truth."""

    thinned: int = 0
    refused: int = 0

    def __post_init__(self) -> None:
        self.kinds = np.zeros(len(RELEASED_KINDS), dtype=np.int64)
        self._bins = np.zeros(len(_EDGES_M) + 1, dtype=np.int64)
        self._sum_m = 0.0

    def add(self, rows: ReleasedRows, distance_m: Floats) -> None:
        """Add released rows, and how far they are from the truth."""
        self.kinds += np.bincount(rows.kind, minlength=len(self.kinds))
        self._bins += np.bincount(np.searchsorted(_EDGES_M, distance_m), minlength=len(self._bins))
        self._sum_m += float(distance_m.sum())

    def include(self, other: ReleaseCounts) -> None:
        """Add the counts of other points."""
        self.thinned += other.thinned
        self.refused += other.refused
        self.kinds += other.kinds
        self._bins += other._bins
        self._sum_m += other._sum_m

    @property
    def released(self) -> int:
        return int(self.kinds.sum())

    @property
    def displacement_mean_m(self) -> float | None:
        return self._sum_m / self.released if self.released else None

    @property
    def displacement_p90_m(self) -> float | None:
        """Nine reports out of ten are within this distance of the truth, to a thousandth."""
        if not self.released:
            return None
        bin_ = int(np.searchsorted(np.cumsum(self._bins), 0.9 * self.released))
        return _upper_edge_m(bin_)


def round_up_m(distance_m: float) -> float:
    """A distance as the counts have it: the upper edge of its bin, a thousandth more at most."""
    return _upper_edge_m(int(np.searchsorted(_EDGES_M, distance_m)))


def _upper_edge_m(bin_: int) -> float:
    return float(_EDGES_M[min(bin_, len(_EDGES_M) - 1)])


@dataclass(frozen=True)
class Summary:
    """Each point that was read is in one of bad, thinned, hard, easy, untested and refused."""

    files: int = 0
    users: int = 0
    traces: int = 0
    points: int = 0
    bad: dict[str, int] = field(default_factory=dict)  # dropped, by reason
    unreadable: list[str] = field(default_factory=list)  # files that were read in part or not
    without_points: list[str] = field(default_factory=list)  # such as workouts indoors
    ignored: dict[str, int] = field(default_factory=dict)  # files of no format read, by ending
    possible_users: list[str] = field(default_factory=list)  # columns, where no users were read
    thinned: int = 0  # left out by --every
    hard: int = 0
    easy: int = 0
    untested: int = 0
    refused: int = 0
    guarantee: str = ""
    private: bool = True
    prior: str | None = None  # that has moved fresh noise
    second: SecondPromise | None = None  # what holds besides, with a small delta
    displacement_mean_m: float | None = None
    displacement_p90_m: float | None = None
    job: dict[str, Any] | None = None  # what it has reserved, if it shares budgets with others

    @property
    def released(self) -> int:
        return self.hard + self.easy + self.untested

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)
