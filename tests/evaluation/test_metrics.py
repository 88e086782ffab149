"""The numbers of the study against their definitions, computed the long way."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hereish
from hereish.core.types import Bools, Floats
from hereish.evaluation import dataset, sampling
from hereish.evaluation.configurations import configurations, run_mechanism
from hereish.evaluation.metrics import Outcome, Sums
from hereish.evaluation.sampling import Queries
from hereish.evaluation.study_settings import StudySettings

PRIVACY = hereish.Privacy(math.log(10), 100)


@pytest.fixture(scope="module")
def queries() -> Queries:
    kept, slow = dataset.select_on_foot(dataset.synthetic(users=60))
    return sampling.sample(kept, slow, 0.3, np.random.default_rng(1))


def test_the_numbers_are_the_definitions(queries: Queries) -> None:
    m = hereish.fixed_utility(PRIVACY, 3000, skip=hereish.SkipBySpeed(30))
    out = run_mechanism(m, queries, 3)
    sums = Sums.zero(queries.users)
    sums.add(queries, out, PRIVACY.eps_per_m)
    predicted, skipped, rate, errors = [], [], [], []
    for first, end in zip(queries.offsets[:-1], queries.offsets[1:], strict=True):
        own = slice(first, end)
        reports = out.reported[own].sum()
        predicted.append(1 - out.hard[own].sum() / reports)
        skipped.append(out.untested[own].sum() / reports)
        rate.append(out.cost[own].sum() / reports / PRIVACY.eps_per_m)
        errors += out.error_m[own][out.reported[own]].tolist()
    numbers = sums.metrics()
    assert numbers.prediction_rate == pytest.approx(np.mean(predicted))
    assert numbers.skipped_share == pytest.approx(np.mean(skipped))
    assert numbers.rate == pytest.approx(np.mean(rate))
    assert numbers.rate_pooled == pytest.approx(
        out.cost.sum() / out.reported.sum() / PRIVACY.eps_per_m
    )
    assert numbers.rate_pooled != pytest.approx(numbers.rate, rel=0.02)
    assert numbers.test_share == pytest.approx(out.eps_test.sum() / out.cost.sum())
    assert numbers.error_mean_m == pytest.approx(np.mean(errors))
    assert numbers.error_p90_m == pytest.approx(np.quantile(errors, 0.9), rel=0.01)


def test_the_intervals_cover_what_they_should() -> None:
    """The mean of users who differ, and not of reports: 95 % of intervals hold it."""
    rng = np.random.default_rng(0)
    held = 0
    users, studies = 40, 200
    for _ in range(studies):
        sums = Sums.zero(users)
        of_user = rng.normal(1000.0, 200.0, users)
        error_m = np.abs(np.repeat(of_user, 10) + rng.normal(0, 50, users * 10))
        every = np.ones(len(error_m), dtype=np.bool_)
        made = Queries(
            np.zeros(len(error_m)),
            np.zeros((len(error_m), 2)),
            np.arange(0, len(error_m) + 1, 10),
            np.arange(users),
            users,
        )
        cost = np.ones(len(error_m))
        sums.add(made, _outcome(every, error_m, cost), 1.0)
        low, high = sums.interval(rng)
        held += low.error_mean_m <= 1000.0 <= high.error_mean_m
    # Binomial(200, 0.95): fewer than 170 with probability 1e-7; reports alone would give about 70.
    assert held >= 170


def _outcome(every: Bools, error_m: Floats, cost: Floats) -> Outcome:
    return Outcome(every, every, ~every, error_m, np.zeros(len(cost)), cost)


def test_every_configuration_keeps_to_its_rules(queries: Queries) -> None:
    setting = StudySettings()
    lengths = np.diff(queries.offsets)
    trace = np.repeat(np.arange(len(queries)), lengths)
    for configuration in configurations(setting):
        out = configuration.run(queries, 5)
        reports = np.bincount(trace, out.reported, len(queries))
        spent = np.bincount(trace, out.cost, len(queries))
        assert (out.cost[~out.reported] == 0).all()
        assert (out.hard & ~out.reported).sum() == 0
        assert np.isfinite(out.error_m[out.reported]).all()
        if configuration.mechanism in ("predictive", "independent"):
            assert configuration.private
            assert spent.max() <= PRIVACY.eps_per_m
            if configuration.manager == "fixed_rate":
                assert reports.max() <= setting.reports
        assert out.untested.any() == configuration.skip
        if configuration.mechanism in ("rounding", "repeat"):
            assert not configuration.private


def test_repeating_without_noise_in_the_test_is_the_best_that_can_be(queries: Queries) -> None:
    rates = {}
    for configuration in configurations(StudySettings()):
        if configuration.manager == "fixed_utility":
            sums = Sums.zero(queries.users)
            sums.add(queries, configuration.run(queries, 1), PRIVACY.eps_per_m)
            rates[configuration.name] = sums.metrics().rate
    bound = rates.pop("repeat_fixed_utility")
    rates.pop("rounding_fixed_utility")
    assert bound < min(rates.values())


def test_rounding_is_as_coarse_as_the_noise_is_wide(queries: Queries) -> None:
    rounding = next(
        c for c in configurations(StudySettings()) if c.name == "rounding_fixed_utility"
    )
    out = rounding.run(queries, 0)
    assert np.quantile(out.error_m, 0.9) == pytest.approx(3000.0, rel=0.15)
    assert out.error_m.max() < 3000 / 0.5352 * math.sqrt(0.5) * 1.01
