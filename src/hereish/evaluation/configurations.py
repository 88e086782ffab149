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
from hereish.core.mechanism import DoesNotPayOffWarning, PredictiveMechanism
from hereish.core.run import Run
from hereish.core.spaces import Space, Sphere
from hereish.core.types import Bools, Floats, PerLane
from hereish.evaluation import authors_program
from hereish.evaluation.metrics import Outcome
from hereish.evaluation.sampling import Queries
from hereish.evaluation.study_settings import MANAGERS, Manager, StudySettings

# Of a square of side 1 and a point anywhere in it: nine out of ten lie within this of the centre.
_SQUARE_90 = 0.5352


@dataclass(frozen=True)
class Configuration:
    """A mechanism, its budget manager, and whether it skips tests."""

    mechanism: str
    manager: Manager
    skip: bool
    run: Callable[[Queries, int], Outcome]
    private: bool = True

    @property
    def name(self) -> str:
        return f"{self.mechanism}_{self.manager}{'_skip' if self.skip else ''}"


def configurations(settings: StudySettings) -> list[Configuration]:
    """All rows of the table for one p."""
    rows = []
    for manager in MANAGERS:
        for skip in (False, True):
            run = partial(_run_predictive, settings, manager, skip)
            rows.append(Configuration("predictive", manager, skip, run))
        independent = partial(_run_independent, settings, manager)
        rounding = partial(_run_rounding, settings, manager)
        repeat = partial(_run_repeat, settings, manager)
        rows += [
            Configuration("independent", manager, False, independent),
            Configuration("rounding", manager, False, rounding, private=False),
            Configuration("repeat", manager, False, repeat, private=False),
        ]
    return rows


def run_mechanism(m: PredictiveMechanism, queries: Queries, seed: int) -> Outcome:
    """What a mechanism of the library does."""
    out = sanitize(m, queries.points, queries.at_s, queries.offsets, seed=seed)
    return Outcome.of_releases(m, queries, out, out.released)


def _run_predictive(
    settings: StudySettings, manager: Manager, skip: bool, queries: Queries, seed: int
) -> Outcome:
    if settings.as_published:
        return authors_program.run(settings, manager, skip, queries, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoesNotPayOffWarning)
        m = settings.describe(manager, skip=skip).build()
    if manager == "fixed_utility":
        return run_mechanism(m, queries, seed)
    return _run_planned(settings.reports, m, queries, seed)


def _run_independent(
    settings: StudySettings, manager: Manager, queries: Queries, seed: int
) -> Outcome:
    return run_mechanism(settings.describe(manager, "independent").build(), queries, seed)


def _run_planned(reports: int, m: PredictiveMechanism, queries: Queries, seed: int) -> Outcome:
    """A plan for n reports ends with the n-th, whatever is left of the budget."""
    inside = queries.index_in_trace < reports
    planned = run_mechanism(m, queries.first(reports), seed)
    columns: list[Any] = []
    for column in planned:
        full = np.zeros(len(inside), dtype=column.dtype)
        full[inside] = column
        columns.append(full)
    return Outcome(*columns)


def _run_rounding(
    settings: StudySettings, manager: Manager, queries: Queries, seed: int
) -> Outcome:
    """Rounding to a grid as coarse as the independent noise is wide. Not private: no noise."""
    reach_m = _independent_90_m(settings, manager)
    side_deg = math.degrees(reach_m / _SQUARE_90 / 6_371_008.8)
    lat = (np.floor(queries.points[:, 0] / side_deg) + 0.5) * side_deg
    wide = side_deg / np.maximum(np.cos(np.radians(lat)), 1e-3)
    lon = (np.floor(queries.points[:, 1] / wide) + 0.5) * wide
    moved = np.column_stack([np.clip(lat, -90.0, 90.0), np.clip(lon, -180.0, 180.0)])
    error_m = Sphere().distance(queries.points, moved)
    all_true = np.ones(len(error_m), dtype=np.bool_)
    nothing = np.zeros(len(error_m))
    return Outcome(all_true, all_true, ~all_true, error_m, nothing, nothing)


def _independent_90_m(settings: StudySettings, manager: Manager) -> float:
    if manager == "fixed_utility":
        return settings.accuracy_m
    return Sphere().c_noise(0.9) * settings.reports / settings.privacy.eps_per_m


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


def _run_repeat(settings: StudySettings, manager: Manager, queries: Queries, seed: int) -> Outcome:
    """Fresh noise only after a move beyond what it reaches, seen without noise. Not private."""
    reach_m = _independent_90_m(settings, manager)
    plan = NoiseOnly(Sphere().c_noise(0.9) / reach_m, reach_m)
    m = PredictiveMechanism(settings.privacy, plan, decision=ExactTest())
    return run_mechanism(m, queries, seed)
