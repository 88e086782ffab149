"""The authors' program by its own rules, which are not ours: for comparison with its numbers only.

It stops after the budget is passed, not before. Without skipping, its first step tests a guess that
means nothing, fails, and pays for both. The last of the planned reports of its fixed rate is noise
with all that is left. None of this is in the mechanisms of the library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hereish.core.batch import sanitize
from hereish.core.budget import Constants, FixedRate, FixedUtility, Plan
from hereish.core.decision import LaplaceTest
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.privacy import Privacy
from hereish.core.run import Run
from hereish.core.skip import SkipBySpeed, SkipRule
from hereish.core.spaces import Sphere
from hereish.core.types import Bools, Floats
from hereish.evaluation.metrics import Outcome
from hereish.evaluation.sampling import Queries
from hereish.evaluation.study_settings import Manager, StudySettings

_DELTA, _GAMMA, _ETA_RATE, _ETA_UTILITY = 0.9, 0.8, 0.6, 0.5
_EXPECTED, _LEARN_AFTER = 0.75, 8
_UNBOUNDED = 1e4  # times the budget: their program is the one that stops
_LEAST_EPS = 1e-7  # per metre; what is left for the last report may be next to nothing


@dataclass(frozen=True)
class LastStep:
    """A fixed rate whose last report takes all that is left."""

    rate: FixedRate
    total: float
    planned: int
    first_eps_noise: float
    first_extra: float  # paid for the first test, which the run does not know of
    needs_history = True

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        plan = self.rate(run, at_s)
        first, last = run.reports == 0, run.reports == self.planned - 1
        left = np.maximum(self.total - run.spent - self.first_extra, _LEAST_EPS)
        eps_noise = np.where(last, left, np.where(first, self.first_eps_noise, plan.eps_noise))
        threshold = np.where(last, -math.inf, plan.threshold)
        return Plan(plan.eps_test, eps_noise, threshold, plan.skip_limit)


@dataclass(frozen=True)
class SkipBeforeLast:
    """Skips as ever, but not the last of the planned reports."""

    rule: SkipBySpeed
    planned: int
    needs_history = True

    def __call__(self, run: Run, at_s: Floats, plan: Plan, /) -> Bools:
        return np.asarray(self.rule(run, at_s, plan) & (run.reports != self.planned - 1))


def run(
    settings: StudySettings, manager: Manager, skip: bool, queries: Queries, seed: int
) -> Outcome:
    """What their program would have done, as far as its rules are known."""
    privacy, reports = settings.privacy, settings.reports
    eps = privacy.eps_per_m
    unbounded = Privacy(privacy.level * _UNBOUNDED, privacy.radius_m)
    c_noise, c_test = Sphere().c_noise(_DELTA), LaplaceTest().c_test(_DELTA)
    by_speed = SkipBySpeed(kmh=settings.skip_kmh) if skip else None
    rule: SkipRule | None = by_speed
    most = None
    if manager == "fixed_utility":
        constants = Constants(c_noise, c_test, _ETA_UTILITY, _GAMMA)
        utility = FixedUtility(settings.accuracy_m, constants)
        first_test = float(utility.plan.eps_test)
        m = PredictiveMechanism(unbounded, utility, skip=rule)
    else:
        constants = Constants(c_noise, c_test, _ETA_RATE, _GAMMA)
        rate = FixedRate(eps / reports, _EXPECTED, _LEARN_AFTER, constants)
        tested = rate.rate / ((1.0 - _EXPECTED) + constants.k)
        first_test = constants.k * tested
        first_noise = rate.rate if skip else tested
        extra = 0.0 if skip else first_test
        plan = LastStep(rate, eps, reports, first_noise, extra)
        if by_speed is not None:
            rule = SkipBeforeLast(by_speed, reports)
        m, most = PredictiveMechanism(unbounded, plan, skip=rule), reports
    return _stop_after_budget(m, queries, seed, eps, 0.0 if skip else first_test, most)


def _stop_after_budget(
    m: PredictiveMechanism,
    queries: Queries,
    seed: int,
    eps: float,
    first_test: float,
    most: int | None,
) -> Outcome:
    """Reports up to and with the one that passes the budget."""
    out = sanitize(m, queries.points, queries.at_s, queries.offsets, seed=seed)
    starts, lengths = queries.offsets[:-1], np.diff(queries.offsets)
    eps_test, cost = out.eps_test.copy(), out.cost.copy()
    eps_test[starts] += first_test
    cost[starts] += first_test
    total = np.cumsum(cost)
    before = total - cost - np.repeat(total[starts] - cost[starts], lengths)
    reported = out.released & (before < eps)
    if most is not None:
        reported &= queries.index_in_trace < most
    return Outcome.of_releases(m, queries, out, reported)._replace(
        eps_test=np.where(reported, eps_test, 0.0), cost=np.where(reported, cost, 0.0)
    )
