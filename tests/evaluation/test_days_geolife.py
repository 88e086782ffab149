"""Whole days of the real data, where they are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hereish.core.windows import Day
from hereish.evaluation import dataset, day_study
from hereish.evaluation.days import DayQueries, select_days, time_zone_of
from hereish.evaluation.study_settings import StudySettings
from tests.support.paths import GEOLIFE

SAMPLES = 4


@pytest.fixture(scope="module")
def queries() -> DayQueries:
    if not GEOLIFE.is_file():
        pytest.skip("the real traces (../shared/data) are not on this machine")
    found = dataset.load([str(GEOLIFE)], jobs=2)
    assert time_zone_of(found.points) == "Etc/GMT-8"
    return select_days(found, "Asia/Shanghai", 1800.0)


def test_independent_noise_is_as_wide_as_theory_says(queries: DayQueries) -> None:
    """Whoever moves how: fresh noise at each query is off by 2/eps on average.

    n is about 180,000 and the standard deviation sqrt(2)/eps, so at alpha = 1e-6 (4.9 standard
    errors) an average that is off by more than 0.9 % is detected.
    """
    compared = day_study.mechanisms(StudySettings(), 1800.0, Day("Asia/Shanghai"))
    m = next(one.mechanism for one in compared if one.name == "independent")
    sums = day_study.sum_up(m, queries, SAMPLES, np.random.default_rng(1))
    metrics, (low, high) = sums.metrics(), sums.interval(np.random.default_rng(2))
    eps = StudySettings().privacy.eps_per_m / 48 * m.space.claim_factor
    n = SAMPLES * len(queries.at_s)
    assert n > 150_000
    assert abs(metrics.belief_mean_m - 2.0 / eps) < 4.9 * math.sqrt(2.0 / n) / eps
    reach_m = (high.belief_mean_m - low.belief_mean_m) / 2.0  # 1.96 standard errors
    assert abs(metrics.belief_mean_m - 2.0 / eps) < 2.5 * reach_m
    assert metrics.answered_share == 1.0


def test_a_fixed_utility_leaves_the_evening_with_a_frozen_place(queries: DayQueries) -> None:
    compared = day_study.mechanisms(StudySettings(), 1800.0, Day("Asia/Shanghai"))
    m = next(one.mechanism for one in compared if one.name == "fixed_utility_skip")
    sums = day_study.sum_up(m, queries, 1, np.random.default_rng(1))
    metrics = sums.metrics()
    assert metrics.ended_before_22_share > 0.5
    means = {hour: mean_m for hour, mean_m, _ in sums.by_hour()}
    assert means[22] > 2 * means[10]
    assert metrics.belief_p99_m > 20 * metrics.belief_median_m
