"""Omega: guessing the next release from the releases so far.

A prediction is called `(run, at_s) -> points`, one row per lane, NaN where it has no guess yet. It
sees public data only, and cannot write to it; the mechanism gives it nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from hereish.core.budget import Plan
from hereish.core.run import Run
from hereish.core.types import Floats, Ints, PerLane
from hereish.errors import ParameterError


class Prediction(Protocol):
    """A guess for each lane from the public run and the public time."""

    @property
    def memory(self) -> int:
        """How many past releases it looks at, at least 1."""
        ...

    @property
    def needs_history(self) -> bool:
        """Whether it looks at `hard_at_s`, `hard_threshold` or `tested_at_s` of the run."""
        ...

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        """The guess of each lane, NaN where there is none."""
        ...


PredictionFunction: TypeAlias = Callable[[Run, Floats], Floats]


@dataclass(frozen=True)
class FunctionPrediction:
    """A plain function as a prediction, with what it declares. Made by `prediction`."""

    function: PredictionFunction
    memory: int = 1
    needs_history: bool = True

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        return self.function(run, at_s)


def prediction(
    function: PredictionFunction, *, memory: int = 1, needs_history: bool = True
) -> FunctionPrediction:
    """A prediction from `function(run, at_s) -> points`, which looks at `memory` past releases."""
    return FunctionPrediction(function, memory, needs_history)


@dataclass(frozen=True)
class Parrot:
    """Repeats the last release (the paper's prediction)."""

    memory = 1
    needs_history = False

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        return run.value


class Tracker(ABC):
    """A prediction that learns from releases, as a filter does, and improves on fresh noise.

    It keeps `width` numbers per lane in `run.learnt`, 0 before the first release. Where fresh noise
    was drawn, `update` says what to release in its place and what was learnt. All it is given is
    public, so whatever it answers is post-processing and costs nothing. A guess of its own that
    differs from the last release is always tested: skip rules have no say in it.
    """

    @property
    @abstractmethod
    def memory(self) -> int:
        """How many past releases it looks at, at least 1."""

    @property
    @abstractmethod
    def needs_history(self) -> bool:
        """Whether it looks at `hard_at_s`, `hard_threshold` or `tested_at_s` of the run."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many numbers it keeps per lane."""

    @property
    @abstractmethod
    def reach(self) -> float:
        """How far `update` moves fresh noise at most, in multiples of 1 / eps_noise."""

    @abstractmethod
    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        """The guess of each lane, NaN where there is none."""

    @abstractmethod
    def update(
        self, run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps_noise: PerLane, /
    ) -> tuple[Floats, Floats]:
        """What to release, and what is learnt, in the lanes of the run that drew fresh noise.

        `lanes` are their numbers in the run, as it was before; the others have a row for each.
        """

    def accepted(self, run: Run, lanes: Ints, at_s: Floats, guess: Floats, plan: Plan, /) -> Floats:
        """What is learnt where a guess passed a test: it is released, as `plan` asked for it.

        Called only where a class has one of its own. `lanes` as in `update`. A guess that was
        released without a test says nothing.
        """
        return run.learnt[lanes]

    @property
    def learns_from_easy(self) -> bool:
        """Whether it has an `accepted` of its own."""
        return type(self).accepted is not Tracker.accepted

    def find_fault(self, learnt: Floats, /) -> str | None:
        """What is wrong with numbers that were not learnt here, such as those of a saved state."""
        return None


class Past(NamedTuple):
    """One earlier release, as a lifted prediction sees it."""

    value: tuple[float, ...]
    at_s: float
    hard: bool


OneTrace = Callable[[Sequence[Past], float], Sequence[float] | None]


@dataclass(frozen=True)
class Lifted:
    """A prediction for one trace at a time, made to work on many. Made by `lift`."""

    predict: OneTrace
    memory: int = 1
    needs_history = True

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        guesses = np.full(run.value.shape, np.nan)
        for lane, now in enumerate(at_s):
            past = [
                Past(tuple(value.tolist()), float(at), bool(hard))
                for value, at, hard in zip(
                    run.values[lane], run.times_s[lane], run.hards[lane], strict=True
                )
                if not np.isnan(at)
            ]
            guess = self.predict(past, float(now))
            if guess is not None:
                guesses[lane] = guess
        return guesses


def lift(predict: OneTrace, memory: int = 1) -> Lifted:
    """Lift `predict(past, at_s) -> point or None` into the batch.

    `past` holds up to `memory` earlier releases, newest first. Simple to write, and as slow as the
    Python in it: one call per report.
    """
    if isinstance(memory, bool) or not (isinstance(memory, int) and memory >= 1):
        raise ParameterError(f"memory must be a whole number from 1, found {memory!r}")
    return Lifted(predict, memory)
