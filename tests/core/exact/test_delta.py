"""A budget with a delta, checked exactly: the delta of the real step is a sum over all its runs.

Short runs are all enumerated, for every pair of short traces (tests/support/exact_runs.py). Long
ones of noise between two places have a binomial law. Filters that count too little must be found
out.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from hereish import (
    AlwaysNoise,
    Constants,
    FixedRate,
    FixedUtility,
    Plan,
    PredictiveMechanism,
    Privacy,
    Run,
    sanitize,
)
from hereish.core.renyi import RenyiFilter
from hereish.core.types import Floats, PerLane
from tests.support.exact_runs import Places, all_runs

K = Constants(c_noise=math.log(10.0), c_test=math.log(5.0), eta=0.5, gamma=0.8)
MINUTES = [0.0, 60.0, 120.0, 180.0]


def wild(run: Run, at_s: Floats, /) -> Plan:
    """A plan that depends on what was released, lane by lane."""
    place = np.nan_to_num(run.value[:, 0])
    return Plan(0.1 + 0.05 * place, 0.5 - 0.1 * place, 0.7 + 0.3 * place)


SHORT: dict[str, PredictiveMechanism] = {
    "always noise": PredictiveMechanism(Privacy(1.0, 1.0, 0.3), AlwaysNoise(0.35), Places(3)),
    "fixed utility": PredictiveMechanism(
        Privacy(1.5, 1.0, 0.2), FixedUtility(5.0, K), Places(3), on_exhausted="predict"
    ),
    "fixed rate": PredictiveMechanism(
        Privacy(1.0, 1.0, 0.3), FixedRate(0.35, 0.5, 2, K), Places(3)
    ),
    "wild": PredictiveMechanism(Privacy(1.2, 1.0, 0.2), wild, Places(4)),
}


def exact_delta(m: PredictiveMechanism) -> tuple[float, float]:
    """The largest delta of the level between traces within the radius, and the largest cost."""
    runs = all_runs(m, MINUTES)
    assert isinstance(m.space, Places)
    traces = np.array(list(product(range(m.space.count), repeat=len(MINUTES))))
    assert len(traces) == runs.chance.shape[1]
    factor, worst = math.exp(m.privacy.level), 0.0
    for one, trace in enumerate(traces):
        near = np.abs(traces - trace).max(axis=1) <= m.privacy.radius_m
        beyond = runs.chance[:, one, None] - factor * runs.chance[:, near]
        worst = max(worst, float(np.maximum(beyond, 0.0).sum(axis=0).max()))
    return worst, float(runs.field("cost").sum(axis=1).max())


@pytest.mark.parametrize("name", SHORT)
def test_no_two_traces_are_told_apart_more_often_than_delta(name: str) -> None:
    m = SHORT[name]
    delta, most = exact_delta(m)
    assert m.privacy.delta is not None
    assert delta <= m.privacy.delta
    assert most > m.privacy.eps_per_m, "runs cost more than the level, so that delta is needed"


def test_without_a_filter_it_would_be_found() -> None:
    """The control: all costs count nothing."""
    m = PredictiveMechanism(Privacy(1.0, 1.0, 0.05), AlwaysNoise(0.9), Places(2))
    assert exact_delta(m)[0] <= 0.05
    assert m.renyi is not None
    object.__setattr__(m, "renyi", counting(m.renyi, 0.0))
    assert exact_delta(m)[0] > 0.05


def counting(renyi: RenyiFilter, share: float) -> RenyiFilter:
    """A filter with a fault: it counts a share of what it should."""
    faulty = replace(renyi)
    costs = renyi.costs

    def fewer(eps_test: PerLane, eps_noise: PerLane) -> tuple[Floats, Floats]:
        easy, hard = costs(eps_test, eps_noise)
        less = faulty.bound.quantised
        return np.asarray(less(share * easy)), np.asarray(less(share * hard))

    object.__setattr__(faulty, "costs", fewer)
    return faulty


@pytest.mark.parametrize(
    ("eps", "delta"), [(0.02, 1e-6), (0.05, 1e-6), (0.1, 1e-6), (0.1, 1e-2), (0.4, 1e-2)]
)
def test_long_runs_of_noise_between_two_places(eps: float, delta: float) -> None:
    """Runs of n reports with as many of one place are as likely as each other: a binomial law."""
    m = PredictiveMechanism(Privacy(math.log(10), 1.0, delta), AlwaysNoise(eps), Places(2))
    reports = reports_of(m)
    assert reports * eps > math.log(10), "more than without a delta"
    exact = binomial_delta(reports, eps, math.log(10))
    assert exact <= delta
    assert m.renyi is not None
    object.__setattr__(m, "renyi", counting(m.renyi, 0.5))
    assert binomial_delta(reports_of(m), eps, math.log(10)) > delta, "control: half of it counted"


def binomial_delta(reports: int, eps: float, level: float) -> float:
    k = np.arange(reports + 1)
    here = binom.pmf(k, reports, 1.0 / (1.0 + math.exp(-eps)))
    return float(np.maximum(0.0, here - math.exp(level) * here[::-1]).sum())


def reports_of(m: PredictiveMechanism) -> int:
    """How many reports the real batch releases."""
    n = 20_000
    out = sanitize(m, np.zeros((n, 1)), np.arange(n, dtype=np.float64), [0, n], seed=1)
    return int(np.count_nonzero(out.released))
