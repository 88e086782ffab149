"""What a run over files did. It depends on the true places: for the terminal, never published."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hereish.core.accounting import SecondPromise
from hereish.core.types import Floats
from hereish.traces.displacement import Displacements
from hereish.traces.table import RELEASED_KINDS, ReleasedRows


@dataclass
class ReleaseCounts:
    """Counts what became of valid points, and how far the released ones are from the truth."""

    thinned: int = 0
    refused: int = 0
    displacements: Displacements = field(default_factory=Displacements)

    def __post_init__(self) -> None:
        self.kinds = np.zeros(len(RELEASED_KINDS), dtype=np.int64)

    def add(self, rows: ReleasedRows, distance_m: Floats) -> None:
        """Add released rows, and how far they are from the truth."""
        self.kinds += np.bincount(rows.kind, minlength=len(self.kinds))
        self.displacements.add(distance_m)

    def include(self, other: ReleaseCounts) -> None:
        """Add the counts of other points."""
        self.thinned += other.thinned
        self.refused += other.refused
        self.kinds += other.kinds
        self.displacements.include(other.displacements)

    @property
    def released(self) -> int:
        return int(self.kinds.sum())


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
    taken_as_utc: bool = False  # times without an offset, since no time zone was given
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
