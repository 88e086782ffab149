"""Where the uniforms of a batch come from, for single steps and for whole chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hereish.core.chunks import Scratch
from hereish.core.decision import LaplaceTest
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import (
    SECURE,
    Draws,
    KeyedDraws,
    LateUniforms,
    SecureDraws,
    SecureStream,
    SeededDraws,
    Words,
)
from hereish.core.step import Prepared
from hereish.core.stretches import Uniforms
from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError, PartError


@dataclass(frozen=True)
class BatchDraws:
    """Where the uniforms of a batch come from."""

    draws: Draws | KeyedDraws
    given: Floats | None  # a row for each point; then nothing is drawn
    begun: Words  # for KeyedDraws: what they need of the user of each trace

    @property
    def private(self) -> bool:
        return self.given is None and self.draws.private

    @property
    def seeded(self) -> bool:
        return self.given is None and type(self.draws) is SeededDraws

    @property
    def is_ours(self) -> bool:
        """Whether it is known not to mind how many numbers are drawn at a time."""
        return type(self.draws) in (SecureDraws, SeededDraws, KeyedDraws)

    @property
    def drawn(self) -> int:
        """How many numbers of a seed were drawn."""
        return self.draws.drawn if isinstance(self.draws, SeededDraws) else 0

    def from_number(self, drawn: int) -> Draws | KeyedDraws | None:
        """The same draws, those of a seed from so many numbers on; None if uniforms are given."""
        if self.given is not None:
            return None
        if type(self.draws) is SeededDraws:
            return SeededDraws(self.draws.seed, skip=drawn)
        return self.draws

    def stream(self, m: PredictiveMechanism) -> SecureStream | None:
        """Where a chunk draws from, step by step, if a step may draw late; else None."""
        late = self.given is None and self.draws is SECURE and _may_be_late(m)
        return SecureStream() if late else None

    def uniforms(
        self,
        m: PredictiveMechanism,
        scratch: Scratch,
        traces: Ints,
        prepared: Prepared,
        x: Floats,
    ) -> Floats | LateUniforms:
        """A row of uniforms for each lane, drawn, or derived from the identity of its report."""
        if isinstance(self.draws, KeyedDraws):
            keyed, begun = self.draws, self.begun[traces]
            derive = keyed.late_for_reports if _may_be_late(m) else keyed.for_reports
            return derive(m, begun, prepared, x)
        drawn = scratch.get("drawn", (m.uniforms, len(traces)), np.float64)
        if type(self.draws) in (SecureDraws, SeededDraws):
            self.draws.uniforms(drawn.size, out=drawn.reshape(-1))
        else:  # others might leave what was there before as it is
            given = np.asarray(self.draws.uniforms(drawn.size))
            if given.shape != (drawn.size,) or given.dtype != np.float64:
                raise PartError(
                    f"draws must give {drawn.size} uniforms, found {given.shape} {given.dtype}; "
                    "nothing was released"
                )
            drawn.reshape(-1)[:] = given
        return drawn.T

    def of_chunk(self, m: PredictiveMechanism, scratch: Scratch, left: Ints) -> Floats | None:
        """The numbers of `uniforms` for a chunk in whose steps so many lanes are left.

        None if they follow from the reports.
        """
        if isinstance(self.draws, KeyedDraws):
            return None
        drawn = scratch.get("drawn", (m.uniforms * int(left.sum()),), np.float64)
        self.draws.uniforms(len(drawn), out=drawn)
        numbers = scratch.get("uniforms", (len(left), m.uniforms, int(left[0])), np.float64)
        used = 0
        for first, end in pairwise(np.flatnonzero(np.diff(left, prepend=-1, append=-1))):
            some = numbers[first:end, :, : left[first]]
            some[...] = drawn[used : used + some.size].reshape(some.shape)
            used += some.size
        return numbers

    def picked(self, m: PredictiveMechanism, traces: Ints, given: Floats | None) -> Uniforms:
        """Those of any reports of a chunk: of the given ones, or derived."""
        if isinstance(self.draws, KeyedDraws):
            keyed, begun = self.draws, self.begun[traces]
            return lambda step, lane, prepared, x: keyed.for_reports(m, begun[lane], prepared, x)
        by_number = np.asarray(given).transpose(1, 0, 2)
        return lambda step, lane, prepared, x: by_number[:, step, lane].T


def _may_be_late(m: PredictiveMechanism) -> bool:
    """Whether its decision looks at the uniforms of the noise only where the guess fails."""
    return type(m.decider) is LaplaceTest


def checked_draws(
    m: PredictiveMechanism,
    seed: int | None,
    draws: Draws | KeyedDraws | None,
    uniforms: Floats | None,
    users: Sequence[str] | None,
    points: int,
    traces: int,
) -> BatchDraws:
    """What a caller has said about it, for so many points and traces."""
    if sum(given is not None for given in (seed, draws, uniforms)) > 1:
        raise ParameterError("give at most one of seed, draws and uniforms")
    if isinstance(draws, KeyedDraws) != (users is not None):
        raise ParameterError("users are needed with KeyedDraws, and only with them")
    if draws is not None and not hasattr(draws, "private"):
        raise ParameterError(f"draws must be such as hereish.KeyedDraws, found {type(draws)}")
    if users is not None and (not hasattr(users, "__len__") or len(users) != traces):
        raise ParameterError(f"users must be a list that names each of the {traces} traces")
    begun = np.empty((0, 2), dtype=np.uint64)
    if isinstance(draws, KeyedDraws) and users is not None:
        begun = draws.begin(m, users)
    if uniforms is not None:
        try:
            uniforms = np.asarray(uniforms, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise ParameterError("uniforms must be an array of numbers") from None
        if uniforms.shape != (points, m.uniforms):
            raise ParameterError(
                f"uniforms must have shape {(points, m.uniforms)}, found {uniforms.shape}"
            )
        if uniforms.size and not (uniforms.min() > 0.0 and uniforms.max() < 1.0):
            raise ParameterError("uniforms must lie strictly between 0 and 1")
        return BatchDraws(SECURE, uniforms, begun)
    if seed is not None:
        draws = SeededDraws(seed)
    return BatchDraws(draws or SECURE, None, begun)
