"""The mechanisms that are compared, each as a function of query traces."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hereish.core.batch import sanitize
from hereish.core.budget import Plan
from hereish.core.decision import TestThenNoise
from hereish.core.mechanism import (
    DoesNotPayOffWarning,
    PredictiveMechanism,
    fixed_rate,
    fixed_utility,
    independent,
)
from hereish.core.privacy import Privacy
from hereish.core.run import Run
from hereish.core.skip import SkipBySpeed
from hereish.core.spaces import Space, Sphere
from hereish.core.types import Bools, Floats, PerLane
from hereish.evaluation import authors_program
from hereish.evaluation.metrics import Outcome
from hereish.evaluation.sampling import Queries

MANAGERS = ("fixed_rate", "fixed_utility")
# Of a square of side 1 and a point anywhere in it: nine out of ten lie within this of the centre.
_SQUARE_90 = 0.5352


@dataclass(frozen=True)
class Setting:
    """What the study asks of everybody. The defaults are the paper's."""

    privacy: Privacy = Privacy(math.log(10), 100)  # noqa: RUF009  # frozen, safe to share
    accuracy_m: float = 3000.0
    reports: int = 30
    skip_kmh: float = 30.0
    as_published: bool = False


@dataclass(frozen=True)
class Configuration:
    """A mechanism, what keeps its budget, and whether it skips tests. `private` says if it is."""

    mechanism: str
    manager: str
    skip: bool
    run: Callable[[Queries, int], Outcome]
    private: bool = True

    @property
    def name(self) -> str:
        return f"{self.mechanism}_{self.manager}{'_skip' if self.skip else ''}"


def configurations(setting: Setting) -> list[Configuration]:
    """All rows of the table for one p."""
    rows = []
    for manager in MANAGERS:
        for skip in (False, True):
            run = partial(_predictive, setting, manager, skip)
            rows.append(Configuration("predictive", manager, skip, run))
        rows += [
            Configuration("independent", manager, False, partial(_independent, setting, manager)),
            Configuration("rounding", manager, False, partial(_rounded, setting, manager), False),
            Configuration("repeat", manager, False, partial(_repeated, setting, manager), False),
        ]
    return rows


def outcome(m: PredictiveMechanism, queries: Queries, seed: int) -> Outcome:
    """What a mechanism of the library does."""
    out = sanitize(m, queries.points, queries.at_s, queries.offsets, seed=seed)
    reported = out.released
    error_m = np.full(len(reported), np.nan)
    error_m[reported] = m.space.distance(queries.points[reported], out.value[reported])
    untested = reported & ~out.hard & ~np.isfinite(out.threshold)
    return Outcome(reported, out.hard, untested, error_m, out.eps_test, out.cost)


def _predictive(setting: Setting, manager: str, skip: bool, queries: Queries, seed: int) -> Outcome:
    rule = SkipBySpeed(kmh=setting.skip_kmh) if skip else None
    if setting.as_published:
        return authors_program.run(
            setting.privacy, manager, rule, queries, seed, setting.accuracy_m, setting.reports
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoesNotPayOffWarning)
        if manager == "fixed_utility":
            return outcome(
                fixed_utility(setting.privacy, setting.accuracy_m, skip=rule), queries, seed
            )
        m = fixed_rate(setting.privacy, setting.reports, skip=rule)
    return _planned(setting.reports, m, queries, seed)


def _independent(setting: Setting, manager: str, queries: Queries, seed: int) -> Outcome:
    if manager == "fixed_utility":
        m = independent(setting.privacy, accuracy_m=setting.accuracy_m)
        return outcome(m, queries, seed)
    return outcome(independent(setting.privacy, reports=setting.reports), queries, seed)


def _planned(most: int, m: PredictiveMechanism, queries: Queries, seed: int) -> Outcome:
    """A plan for n reports ends with the n-th, whatever is left of the budget."""
    lengths = np.diff(queries.offsets)
    place = np.arange(len(queries.at_s)) - np.repeat(queries.offsets[:-1], lengths)
    inside = place < most
    short = outcome(m, queries.first(most), seed)
    columns: list[Any] = []
    for column in short:
        whole = np.zeros(len(inside), dtype=column.dtype)
        whole[inside] = column
        columns.append(whole)
    return Outcome(*columns)


def _rounded(setting: Setting, manager: str, queries: Queries, seed: int) -> Outcome:
    """Rounding to a grid as coarse as the independent noise is wide. Not private: no noise."""
    reach_m = _independent_90_m(setting, manager)
    side_deg = math.degrees(reach_m / _SQUARE_90 / 6_371_008.8)
    lat = (np.floor(queries.points[:, 0] / side_deg) + 0.5) * side_deg
    wide = side_deg / np.maximum(np.cos(np.radians(lat)), 1e-3)
    lon = (np.floor(queries.points[:, 1] / wide) + 0.5) * wide
    moved = np.column_stack([np.clip(lat, -90.0, 90.0), np.clip(lon, -180.0, 180.0)])
    error_m = Sphere().distance(queries.points, moved)
    every = np.ones(len(error_m), dtype=np.bool_)
    return Outcome(every, every, ~every, error_m, np.zeros(len(every)), np.zeros(len(every)))


def _independent_90_m(setting: Setting, manager: str) -> float:
    if manager == "fixed_utility":
        return setting.accuracy_m
    return Sphere().c_noise(0.9) * setting.reports / setting.privacy.eps_per_m


@dataclass(frozen=True)
class ExactTest(TestThenNoise):
    """Whether a guess is close, without noise: what no private test can beat. Not private."""

    private = False
    uniforms = 0

    def __call__(
        self, space: Space, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        with np.errstate(invalid="ignore"):
            near = space.distance(x, guess) <= threshold
        return np.asarray(near | np.equal(threshold, math.inf))

    def c_test(self, delta: float) -> float:
        return 0.0  # it has no noise


@dataclass(frozen=True)
class NoiseOnly:
    """Pays for noise and not for tests, which `ExactTest` does for nothing."""

    eps_noise: float
    threshold_m: float
    needs_history = False

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        return Plan(0.0, self.eps_noise, self.threshold_m)


def _repeated(setting: Setting, manager: str, queries: Queries, seed: int) -> Outcome:
    """Fresh noise only after a move beyond what it reaches, seen without noise. Not private."""
    reach_m = _independent_90_m(setting, manager)
    plan = NoiseOnly(Sphere().c_noise(0.9) / reach_m, reach_m)
    return outcome(PredictiveMechanism(setting.privacy, plan, decision=ExactTest()), queries, seed)
