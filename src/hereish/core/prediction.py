"""Omega: guessing the next release from the releases so far.

A prediction is a function `(run, at_s) -> points`, one row a lane, NaN where it has no guess yet.
One attribute is read if it has it: `memory` (how many past releases it looks at, 1 unless given).
It sees public data only, and cannot write to it; the mechanism gives it nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from hereish.core.run import Run
from hereish.core.types import Floats
from hereish.errors import ParameterError


class Prediction(Protocol):
    """A guess for each lane from the public run and the public time."""

    def __call__(self, run: Run, at_s: Floats, /) -> Floats: ...


@dataclass(frozen=True)
class Parrot:
    """Repeats the last release (the paper's prediction)."""

    memory = 1

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        return run.value


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
    Python in it: one call a report.
    """
    if not (isinstance(memory, int) and memory >= 1):
        raise ParameterError(f"memory must be a whole number from 1, found {memory!r}")
    return Lifted(predict, memory)
