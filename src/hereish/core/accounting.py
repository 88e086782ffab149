"""The second promise: (epsilon, delta)-differential privacy of several releases together.

The first promise, the sum of the costs, holds for every output and against every other trace, even
one that is chosen after the output was seen. The second is for two traces that are fixed before
anything is released. Between them the sum is attained only if the noise of every report points away
from the other trace, which hardly ever happens to many reports. The level that any set of outcomes
keeps, plus a probability of delta, is computed here for costs that are fixed beforehand, as of
independent noise: `FixedPlan` composes the distribution of the privacy loss numerically. It is an
upper bound, rounding included. The loss itself may pass the level more often than delta says, by
little. For costs that depend on what comes out, as with predictions, no second promise is stated.
Proof: accounting.proof.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from hereish.core.budget import AlwaysNoise
from hereish.core.decision import LaplaceTest
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.noise_first import NoiseFirst
from hereish.core.spaces import Line, Plane, Sphere
from hereish.core.types import Floats
from hereish.errors import ParameterError

DELTA = 1e-6
_TOLERANCE = 0.005  # nats: how much the grid of losses may add to a level, or this share
_TOLERANCE_SHARE = 0.002
_MOST_POINTS = 2**22  # of the grid of all losses together
_ANGLES = 4000
_MOST_GROUPS = 48  # of different costs; more of them are rounded up
_MOST_TILT = 200.0  # times the sum of the costs: keeps exponentials in range
_ROUNDING = 1e-8  # a share of delta, for what exp and log are off
_WORTH_SAYING = 0.98  # of the first promise
_MOST_REPORTS, _MOST_LEVEL = 100_000, 500.0  # beyond these nothing is computed
_EARTH_M = 6_371_008.771415059  # as of Sphere


@dataclass(frozen=True)
class LossDistribution:
    """Privacy losses, rounded up to a grid: `mass[i]` is the chance of `(first + i) * step`."""

    step: float
    first: int
    mass: Floats

    @property
    def losses(self) -> Floats:
        return self.step * np.arange(self.first, self.first + len(self.mass), dtype=np.float64)


def planar_loss(level: float, step: float) -> LossDistribution:
    """Of planar Laplace noise, between places so far apart that it loses up to `level`.

    In units of 1 / eps: places at 0 and `level`, a radius of Gamma(2) and a uniform angle.
    """
    losses, first = _grid(level, step)
    inner = losses[:-1]
    widest = np.arccos(-np.clip(inner / level, -1.0, 1.0))  # beyond that angle all lose more
    total = np.zeros(len(inner))
    for shares in np.array_split(np.arange(1, _ANGLES + 1) / _ANGLES, 16):
        ahead = 2.0 * (inner[:, None] + level * np.cos(widest[:, None] * shares))
        with np.errstate(divide="ignore", invalid="ignore"):
            radius = (level**2 - inner[:, None] ** 2) / ahead
        radius = np.where(ahead > 0.0, np.minimum(radius, 700.0), 700.0)
        total += ((1.0 + radius) * np.exp(-radius)).sum(axis=1)
    # The integrand falls with the angle, so its values at the ends of cells make a lower bound.
    below = widest / math.pi * total / _ANGLES  # [A1]
    return _rounded_up(below, first, step)


def line_loss(level: float, step: float) -> LossDistribution:
    """Of Laplace noise on a line."""
    losses, first = _grid(level, step)
    below = 0.5 * np.exp(-0.5 * (level - losses[:-1]))
    return _rounded_up(np.where(losses[:-1] >= -level, below, 0.0), first, step)  # [A2]


def any_loss(level: float, step: float) -> LossDistribution:
    """Of anything that never loses more than `level`: randomised response is the worst."""
    losses, first = _grid(level, step)
    lie = math.exp(-level) / (1.0 + math.exp(-level))
    below = np.where(losses[:-1] >= -level, lie, 0.0)
    return _rounded_up(below, first, step)  # [A3]


def _grid(level: float, step: float) -> tuple[Floats, int]:
    """Multiples of the step from the last below `-level` to the first above `level`."""
    last = math.ceil(level / step)
    return step * np.arange(-last, last + 1, dtype=np.float64), -last


def _rounded_up(below: Floats, first: int, step: float) -> LossDistribution:
    """From lower bounds on the chances of losses up to each point of the grid but the last."""
    cumulative = np.append(np.maximum.accumulate(np.clip(below, 0.0, 1.0)), 1.0)
    return LossDistribution(step, first, np.diff(cumulative, prepend=0.0))  # [A4]


LossOf = Callable[[float, float], LossDistribution]


@dataclass(frozen=True)
class FixedPlan:
    """Releases whose costs are fixed beforehand, in nats: the level of each.

    `loss` is the kind of noise; `slack` is a factor on delta that its space asks for.

    Guarantee: of `level` and `delta`, for every two traces that are fixed before anything is
    released and are nowhere farther apart than the costs are for.
    """

    costs: tuple[float, ...]
    loss: LossOf = any_loss
    slack: float = 1.0

    def __post_init__(self) -> None:
        if not all(0.0 < cost < math.inf for cost in self.costs):
            raise ParameterError("costs must be finite numbers above 0")
        if not 1.0 <= self.slack < math.inf:
            raise ParameterError(f"slack must be a finite number from 1, found {self.slack!r}")

    @property
    def pure(self) -> float:
        """The level without delta."""
        return math.fsum(self.costs)

    def level(self, delta: float = DELTA) -> float:
        """The smallest level at which all releases together are (level, delta)-private.

        Guarantee: an upper bound on it, and never above the sum of the costs.
        """
        check_delta(delta)
        if not self.costs:
            return 0.0
        most = delta / self.slack * (1.0 - _ROUNDING)
        tail = self._tail(most)
        low, high = 0.0, self.pure
        if tail(low) <= most:
            return low
        while high - low > 1e-6:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if tail(middle) > most else (low, middle)
        return high  # [A7]

    def delta(self, level: float) -> float:
        """The delta of a level; an upper bound, like the level of a delta."""
        if level >= self.pure:
            return 0.0
        near = 0.5
        for _ in range(4):  # where to look closely is itself found by looking
            near = max(self.slack * self._tail(min(near, 1.0))(level), 1e-300)
        return min(near * (1.0 + _ROUNDING), 1.0)  # [A8]

    @cached_property
    def _parts(self) -> tuple[tuple[LossDistribution, int], ...]:
        """The different costs, each with its number; rounded up where they are very many."""
        costs = np.array(self.costs)
        if len(np.unique(costs)) > _MOST_GROUPS:
            low, high = math.log(costs.min()), math.log(costs.max())
            width = max((high - low) / (_MOST_GROUPS - 1), 1e-12)
            rounded = np.exp(low + width * np.ceil((np.log(costs) - low) / width))
            costs = np.maximum(rounded, costs) * (1.0 + 1e-12)
        levels, counts = np.unique(costs, return_counts=True)
        added = max(_TOLERANCE, _TOLERANCE_SHARE * self.pure)
        step = max(added / len(costs), 2.0 * self.pure / _MOST_POINTS)
        return tuple(
            (self.loss(float(level), step), int(count))
            for level, count in zip(levels, counts, strict=True)
        )

    def _tail(self, delta: float) -> Callable[[float], float]:
        """The delta of each level, most exact near this one.

        Masses are tilted, as for a Chernoff bound, so that the far tail is in the middle of what
        is transformed, where the errors of a Fourier transform are small beside it.
        """
        tilt = self._tilt(delta)
        parts = self._parts
        count = sum(number for _, number in parts)
        size = 1 + sum(number * (len(part.mass) - 1) for part, number in parts)
        points = 1 << (size - 1).bit_length()
        spectrum, log_scale = np.ones(points // 2 + 1, dtype=np.complex128), 0.0
        for part, number in parts:
            tilted = part.mass * np.exp(tilt * part.losses)
            scale = float(tilted.sum())
            log_scale += number * math.log(scale)
            spectrum *= np.fft.rfft(tilted / scale, points) ** number
        mass = np.maximum(np.fft.irfft(spectrum, points)[:size], 0.0)
        mass += 8.0 * count * math.log2(points + 1.0) * 2.0**-52  # [A5]
        step = parts[0][0].step
        losses = step * (sum(number * part.first for part, number in parts) + np.arange(size))

        def tail(level: float) -> float:
            above = slice(int(np.searchsorted(losses, level)), None)
            beyond = losses[above]
            weight = np.exp(log_scale - tilt * beyond) * -np.expm1(level - beyond)
            return float((mass[above] * weight).sum())  # [A6]

        return tail

    def _tilt(self, delta: float) -> float:
        """Where the Chernoff bound on the level is smallest."""
        from scipy.optimize import minimize_scalar  # here because scipy is slow to import

        def chernoff(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            moments = math.fsum(
                number * math.log(float((part.mass * np.exp(tilt * part.losses)).sum()))
                for part, number in self._parts
            )
            return (moments - math.log(delta)) / tilt

        most = math.log(_MOST_TILT / self.pure)
        return math.exp(minimize_scalar(chernoff, bounds=(most - 12.0, most), method="bounded").x)


@dataclass(frozen=True)
class SecondPromise:
    """Beside the first: the reports of a window are (level, delta)-private within the radius.

    For every two traces that are fixed before anything is released.
    """

    level: float
    delta: float
    statement: str  # a sentence

    @property
    def factor(self) -> float:
        """As many times as likely at most, plus a probability of delta."""
        return math.exp(min(self.level, 700.0))

    def __str__(self) -> str:
        return self.statement


def second_promise(
    mechanism: PredictiveMechanism, delta: float = DELTA, each: str | None = None
) -> SecondPromise | None:
    """What independent noise promises besides; None where it would add nothing to the first.

    It is for one window of the mechanism's first budget, whatever its limits. `each` names who has
    a budget of their own. None for mechanisms with a guess: their costs depend on what comes out.
    """
    m = mechanism
    check_delta(delta)
    reports = _most_reports(m)
    if reports is None:
        return None
    level = _level_of(m, reports, delta)
    if level >= _WORTH_SAYING * m.privacy.level:
        return None
    return SecondPromise(level, delta, _sentence(m, level, delta, each))


def level_so_far(
    mechanism: PredictiveMechanism, reports: int, delta: float = DELTA
) -> float | None:
    """The level of the first so many reports of a window; None where no second promise is made.

    Guarantee: of (level, delta), as `second_promise`, if the number of reports does not depend on
    what was released: if it follows from public times, as that of a ledger does.
    """
    check_delta(delta)
    most = _most_reports(mechanism)
    if most is None or not 0 <= reports <= most:
        return None
    return _level_of(mechanism, reports, delta) if reports else 0.0


def _most_reports(m: PredictiveMechanism) -> int | None:
    """How many reports a window has at most, if each costs the same; None if none is computed."""
    if type(m.budget) is not AlwaysNoise or type(m.decider) not in (LaplaceTest, NoiseFirst):
        return None
    if not m.private or m.privacy.delta is not None:
        return None
    eps = float(m.bound.quantised(m.budget.eps_noise))
    reports = math.floor(m.bound.total / eps * (1.0 + 1e-9))
    if reports > _MOST_REPORTS or m.privacy.level > _MOST_LEVEL:
        return None
    return reports


def _level_of(m: PredictiveMechanism, reports: int, delta: float) -> float:
    """The level of so many reports of independent noise, at most the sum of their costs."""
    eps = float(m.bound.quantised(m.budget.eps_noise))  # type: ignore[union-attr]  # AlwaysNoise
    kind: LossOf = any_loss
    log_slack = 0.0
    if type(m.space) is Plane:
        kind = planar_loss
    elif type(m.space) is Line:
        kind = line_loss
    elif type(m.space) is Sphere:
        on_globe = reports * math.log1p((eps * m.space.claim_factor * _EARTH_M) ** -2.0)  # [A9]
        # Noise that spans the globe is far from planar; what holds for any is smaller then.
        if on_globe < -math.log(delta):
            kind, log_slack = planar_loss, on_globe
    return _level(eps * m.privacy.radius_m, reports, kind, math.exp(log_slack), delta)


def _sentence(m: PredictiveMechanism, level: float, delta: float, each: str | None) -> str:
    """Of which reports it is, and between which traces."""
    whose = "" if each is None else f"each {each}, "
    return (
        f"For {whose}{m.window.covers()}: any set of outcomes is at most {math.exp(level):.3g} "
        "times as likely from one trace as from any one other that stays within "
        f"{m.privacy.radius_m:g} {m.space.unit} of it and was chosen before anything was released, "
        f"plus a probability of {delta:.2g} ((epsilon, delta)-differential privacy)."
    )


@lru_cache(maxsize=1024)
def _level(cost: float, reports: int, kind: LossOf, slack: float, delta: float) -> float:
    return FixedPlan((cost,) * reports, kind, slack).level(delta)


def check_delta(delta: float) -> None:
    """Refuse what is no probability of failing."""
    if not 0.0 < delta < 1.0:
        raise ParameterError(f"delta must lie strictly between 0 and 1, found {delta!r}")
