"""Parts for mechanisms under audit: two that are sound, and many with a fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hereish import (
    Line,
    NoiseFirst,
    Plan,
    Plane,
    Question,
    Run,
    SeededDraws,
    Sphere,
)
from hereish.core.spaces import Space
from hereish.core.types import Bools, Floats, PerLane


@dataclass(frozen=True)
class OnePlace:
    """Sound: guesses one public place, always."""

    place: tuple[float, ...]
    memory = 1
    needs_history = False

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        return np.tile(self.place, (len(at_s), 1))


@dataclass(frozen=True)
class SamePlan:
    """Sound: plans the same for every step."""

    eps_test: float
    eps_noise: float
    threshold: float
    needs_history = False

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        return Plan(self.eps_test, self.eps_noise, self.threshold)


@dataclass(frozen=True)
class UnderpaidNoiseFirst(NoiseFirst):
    """Accepts guesses with `test_times` the eps that easy costs, and draws with `noise_times` that

    of hard.
    """

    test_times: float = 1.0
    noise_times: float = 1.0

    def decide(self, space: Space, asked: Question, u: Floats) -> tuple[Bools, Floats]:
        changed = asked._replace(
            eps_test=asked.eps_test * self.test_times, eps_noise=asked.eps_noise * self.noise_times
        )
        return super().decide(space, changed, u)


@dataclass(frozen=True)
class NearOnTheGrid(NoiseFirst):
    """Accepts guesses by the place that would be released, not by what was drawn."""

    def _accepted(self, space: Space, x: Floats, drawn: Floats, *public: Any) -> Bools:
        return super()._accepted(space, x, space.snap(drawn), *public)


@dataclass(frozen=True)
class DrawnAgain(NoiseFirst):
    """Decides by one noise and releases another: two looks at the secret, one of them free."""

    def decide(self, space: Space, asked: Question, u: Floats) -> tuple[Bools, Floats]:
        hard, _ = super().decide(space, asked, u)
        other = np.column_stack([u[:, :1], 1.0 - u[:, 1:]])[hard]
        return hard, space.noise(asked.x[hard], asked.eps_noise, other[:, 1:])


@dataclass(frozen=True)
class SmallNoiseOnLine(Line):
    """Noise of `times` the eps that is booked."""

    times: float = 1.0

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return super().noise(x, eps * self.times, u)


@dataclass(frozen=True)
class SmallNoise(Plane):
    """Noise of `times` the eps that is booked."""

    times: float = 1.0

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return super().noise(x, eps * self.times, u)


@dataclass(frozen=True)
class EastHalf(Sphere):
    """Never moves west. At a pole, what is west depends on the name that the pole is given."""

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return super().noise(x, eps, u * [1.0, 1.0, 0.5])


@dataclass(frozen=True)
class EndingNoise(Plane):
    """Noise that goes no further than `reach / eps`: from there on places are told apart."""

    reach: float = 5.0

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        moved = super().noise(x, eps, u) - x
        length = np.maximum(np.hypot(*moved.T), self.grid_m)
        return self.snap(x + moved * np.minimum(1.0, self.reach / (eps * length))[:, None])


@dataclass(frozen=True)
class NoiseInDegrees(Sphere):
    """Metres made into degrees by the same number for latitude and longitude."""

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        metres = Plane().noise(np.zeros_like(x), eps, u)
        return self.snap(x + metres / 111_195.0)


@dataclass(frozen=True)
class GaussianNoise(Plane):
    """Normal noise as wide as planar Laplace noise: its tails tell too much."""

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        radius = np.sqrt(-6.0 * np.log(u[:, 0])) / eps
        angle = 2.0 * np.pi * u[:, 2]
        return self.snap(x + radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]))


@dataclass(frozen=True)
class TellTale:
    """A prediction that was told the trace, and guesses where somebody is."""

    trace: tuple[tuple[float, ...], ...]
    times_s: tuple[float, ...]
    memory = 1
    needs_history = False

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        steps = np.minimum(np.searchsorted(self.times_s, at_s), len(self.trace) - 1)
        return np.array(self.trace)[steps]


@dataclass(frozen=True)
class SkipsNearby:
    """A skip rule that was told the trace: spares the test while the last release is near."""

    trace: tuple[tuple[float, ...], ...]
    times_s: tuple[float, ...]
    within_m: float
    needs_history = False

    def __call__(self, run: Run, at_s: Floats, plan: Plan, /) -> Bools:
        steps = np.minimum(np.searchsorted(self.times_s, at_s), len(self.trace) - 1)
        return np.asarray(np.hypot(*(run.value - np.array(self.trace)[steps]).T) <= self.within_m)


class UsedTwice:
    """Draws that hand every number out a second time."""

    private = False

    def __init__(self, seed: int) -> None:
        self._draws = SeededDraws(seed)
        self._again: Floats | None = None

    def uniforms(self, count: int, out: Floats | None = None) -> Floats:
        drawn, self._again = self._again, None
        if drawn is None or len(drawn) != count:
            drawn = self._again = self._draws.uniforms(count)
        if out is None:
            return drawn.copy()
        out[:] = drawn
        return out
