"""What a batch has released, and how chunks of it find their places."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hereish.core.chunks import Chunk
from hereish.core.decision import TestThenNoise
from hereish.core.run import Run
from hereish.core.types import Bools, Floats, Ints, Kind

# What is written for each point, and what stands there if nothing is released.
WRITTEN = {
    "value": np.nan,
    "released": False,
    "hard": False,
    "eps_test": 0.0,
    "eps_noise": 0.0,
    "threshold": np.inf,
}
_LONG = 64  # rows


@dataclass(frozen=True)
class Sanitized:
    """What `sanitize` released, point by point in the order of its input. All of it is public."""

    value: Floats  # (n, 2), or (n,) on a Line; NaN where nothing was released
    released: Bools  # (n,)
    hard: Bools  # (n,) fresh noise
    eps_test: Floats  # (n,) 0 where there was no test
    eps_noise: Floats  # (n,) 0 where no noise could be drawn
    threshold: Floats  # (n,) ±inf where there was no test
    spent: Floats  # (k,) the most that any one budget window of the trace cost
    run: Run | None  # (k lanes) where each trace stands now, if a run was given to go on from
    guarantee: str
    private: bool
    # How the cost follows from the epsilons or, where it does not, (n,) what was charged.
    priced_by: type[Any] = field(default=TestThenNoise, repr=False)
    charged: Floats | None = field(default=None, repr=False)

    @cached_property
    def cost(self) -> Floats:
        """(n,) What each point cost, by its outcome."""
        if self.charged is not None:
            return self.charged
        cost_easy, cost_hard = self.priced_by.costs(self.eps_test, self.eps_noise)
        return np.asarray(np.where(self.hard, cost_hard, cost_easy))

    @property
    def kind(self) -> NDArray[np.str_]:
        """'hard', 'easy', 'untested', or '' where nothing was released."""
        easy = np.where(np.isfinite(self.threshold), Kind.EASY.value, Kind.UNTESTED.value)
        return np.where(self.released, np.where(self.hard, Kind.HARD.value, easy), "")

    def __repr__(self) -> str:
        warning = "" if self.private else ", NOT PRIVATE"
        return (
            f"<Sanitized: {np.count_nonzero(self.released)} of {len(self.released)} points of "
            f"{len(self.spent)} traces released, {np.count_nonzero(self.hard)} hard{warning}>"
        )


class Results:
    """Writes what was released into the columns that are returned."""

    def __init__(self, out: Sanitized) -> None:
        self.out = out
        self.columns: dict[str, NDArray[Any]] = {name: getattr(out, name) for name in WRITTEN}
        if out.charged is not None:
            self.columns["cost"] = out.charged

    def targets(self, chunk: Chunk) -> dict[str, NDArray[Any]]:
        """Rectangles for what will be released in a chunk."""
        return {name: chunk.blank(name, column) for name, column in self.columns.items()}

    def write(
        self, chunk: Chunk, traces: Ints, targets: dict[str, NDArray[Any]], most: Floats
    ) -> None:
        """Put the rectangles of a chunk in their places; the traces had spent so much at most."""
        for name, column in self.columns.items():
            chunk.write(column, targets[name])
        self.out.spent[traces] = np.maximum(self.out.spent[traces], most)

    def refuse(self, starts: Ints, counts: Ints) -> None:
        """Write that nothing was released in `counts` rows from each of `starts`."""
        long = counts >= _LONG  # written one by one; many short ones are quicker together
        spans = list(zip(starts[long].tolist(), (starts + counts)[long].tolist(), strict=True))
        starts, counts = starts[~long], counts[~long]
        before = np.cumsum(counts) - counts
        rows = np.arange(counts.sum()) + np.repeat(starts - before, counts)
        for name, column in self.columns.items():
            nothing = WRITTEN.get(name, 0.0)
            column[rows] = nothing
            for begin, end in spans:
                column[begin:end] = nothing

    def store(self, traces: Ints, run: Run) -> None:
        """Remember where traces stand that have no more points."""
        for kept, left in zip(self.out.run or (), run, strict=False):
            kept[traces] = left
