"""Negative controls: mechanisms with a fault that an audit must find, and one without.

Each claims ln 10 within 100 m for all reports of a trace together, which is what `hereish audit`
assumes unless told otherwise:

    hereish audit hereish.audit.controls:geocentric_noise
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hereish.audit.mechanisms import EASY, run_batch
from hereish.audit.pair_audit import ReleasedRuns
from hereish.core.decision import LaplaceTest, TestThenNoise
from hereish.core.mechanism import PredictiveMechanism, fixed_utility, independent
from hereish.core.privacy import Privacy
from hereish.core.randomness import SeededDraws
from hereish.core.spaces import Space, Sphere
from hereish.core.types import Bools, Floats, PerLane

PRIVACY = Privacy(level=math.log(10), radius_m=100.0)
# Noise within this, nine times out of ten: the budget pays for five reports of it with their tests.
_ACCURACY_M = 1000.0
_MEAN_RADIUS_M = 6_371_008.8
_CACHE_M = 50.0


@dataclass(frozen=True)
class UnderpaidTest(LaplaceTest):
    """Tests with `times` the eps that is booked: 2 pays half."""

    times: float = 1.0

    def __call__(
        self, space: Space, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        return super().__call__(space, x, guess, eps * self.times, threshold, u)


@dataclass(frozen=True)
class NoiselessTest(LaplaceTest):
    """Compares the distance with the threshold itself, and books what a private test costs."""

    def __call__(
        self, space: Space, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        return np.asarray(space.distance(x, guess) <= threshold)


@dataclass(frozen=True)
class EastOnly(Sphere):
    """Moves east and west, and publishes the latitude."""

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        moved = super().noise(x, eps, u)
        return self.snap(np.column_stack([x[:, 0], moved[:, 1]]))


def sound(traces: Floats, at_s: Floats, rng: np.random.Generator) -> ReleasedRuns:
    """No fault: what the others would be without theirs."""
    return run_batch(_predictive(LaplaceTest()), traces, at_s, _draws(rng))


def half_paid_test(traces: Floats, at_s: Floats, rng: np.random.Generator) -> ReleasedRuns:
    """Each test uses twice the epsilon that is booked for it."""
    return run_batch(_predictive(UnderpaidTest(2.0)), traces, at_s, _draws(rng))


def noiseless_test(traces: Floats, at_s: Floats, rng: np.random.Generator) -> ReleasedRuns:
    """Whether the guess is close is told as it is."""
    return run_batch(_predictive(NoiselessTest()), traces, at_s, _draws(rng))


def east_only_noise(traces: Floats, at_s: Floats, rng: np.random.Generator) -> ReleasedRuns:
    """Noise that points east and west."""
    m = independent(PRIVACY, reports=traces.shape[1], space=EastOnly())
    return run_batch(m, traces, at_s, _draws(rng))


def geocentric_noise(traces: Floats, at_s: Floats, rng: np.random.Generator) -> Floats:
    """Planar noise added to geocentric x and y, as the library privkit does.

    The axis of the earth gets none: at the equator, that is the latitude.
    """
    radius, angle = _planar_noise(traces, rng)
    lat, lon = np.radians(np.moveaxis(traces, -1, 0))
    x = _MEAN_RADIUS_M * np.cos(lat) * np.cos(lon) + radius * np.cos(angle)
    y = _MEAN_RADIUS_M * np.cos(lat) * np.sin(lon) + radius * np.sin(angle)
    z = _MEAN_RADIUS_M * np.sin(lat)
    places = [np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)]
    return np.asarray(np.degrees(np.stack(places, axis=-1)))


def cache_by_place(traces: Floats, at_s: Floats, rng: np.random.Generator) -> ReleasedRuns:
    """Repeats its last release while somebody stays within 50 m: that it changes tells of a move.

    What is repeated is booked as free.
    """
    m = independent(PRIVACY, reports=traces.shape[1])
    fresh = run_batch(m, traces, at_s, _draws(rng))
    value, kind, cost = fresh.value.copy(), fresh.kind.copy(), fresh.cost.copy()
    drawn_at = traces[:, 0].copy()
    for step in range(1, traces.shape[1]):
        near = m.space.distance(drawn_at, traces[:, step]) <= _CACHE_M
        value[near, step] = value[near, step - 1]
        kind[near, step], cost[near, step] = EASY, 0.0
        drawn_at = np.where(near[:, None], drawn_at, traces[:, step])
    return ReleasedRuns(value, kind, cost)


def rounding(traces: Floats, at_s: Floats, rng: np.random.Generator) -> Floats:
    """Three decimals, about 100 m: no noise at all."""
    return np.round(traces, 3)


CONTROLS = (
    half_paid_test,
    noiseless_test,
    east_only_noise,
    geocentric_noise,
    cache_by_place,
    rounding,
)


def _predictive(test: TestThenNoise) -> PredictiveMechanism:
    return fixed_utility(PRIVACY, _ACCURACY_M, decision=test)


def _draws(rng: np.random.Generator) -> SeededDraws:
    return SeededDraws(int(rng.integers(2**63)))


def _planar_noise(traces: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Radii and angles of planar Laplace noise, an equal share of the budget for each report."""
    reports = traces.shape[:2]
    radius = rng.gamma(2.0, reports[1] / PRIVACY.eps_per_m, reports)
    return radius, rng.uniform(0.0, 2.0 * math.pi, reports)
