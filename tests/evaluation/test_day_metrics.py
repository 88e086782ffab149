"""Beliefs against their definition, computed the long way."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import hereish
from hereish.core.batch_results import Sanitized
from hereish.core.types import Bools
from hereish.evaluation import dataset
from hereish.evaluation.day_metrics import BeliefSums, find_beliefs
from hereish.evaluation.days import DayQueries, select_days
from hereish.synthetic import TIME_ZONE

PRIVACY = hereish.Privacy(math.log(10), 100)
M = hereish.fixed_utility(PRIVACY, 3000, window=hereish.Day(TIME_ZONE))


@pytest.fixture(scope="module")
def queries() -> DayQueries:
    return select_days(dataset.synthetic_days(users=12, days=5), TIME_ZONE, 1800.0)


@pytest.fixture(scope="module")
def out(queries: DayQueries) -> Sanitized:
    return hereish.sanitize(M, queries.points, queries.at_s, queries.offsets, seed=1)


def with_only(out: Sanitized, released: Bools) -> Sanitized:
    return replace(out, released=released, value=np.where(released[:, None], out.value, np.nan))


def test_after_the_end_of_the_budget_the_belief_is_frozen(
    queries: DayQueries, out: Sanitized
) -> None:
    beliefs = find_beliefs(M, queries, out)
    frozen = 0
    for day in range(queries.days):
        believed = None
        for i in np.flatnonzero(queries.day == day):
            if out.released[i]:
                believed = out.value[i]
            else:
                frozen += 1
            assert believed is not None
            error_m = M.space.distance(queries.points[i : i + 1], believed[None])[0]
            assert beliefs.error_m[i] == error_m
    assert frozen > 1000
    assert not beliefs.carried.any()
    np.testing.assert_array_equal(beliefs.answered, out.released)


def test_when_the_budget_ends_is_the_first_query_after_the_last_release(
    queries: DayQueries, out: Sanitized
) -> None:
    ended = find_beliefs(M, queries, out).ended_hour
    for day in range(queries.days):
        own = np.flatnonzero(queries.day == day)
        refused = own[~out.released[own]]
        assert ended[day] == queries.local_hour[refused[0]]
    released = np.ones(len(out.released), dtype=np.bool_)
    released[5] = False  # a silence is no end
    assert np.isnan(find_beliefs(M, queries, with_only(out, released)).ended_hour).all()
    assert (find_beliefs(M, queries, with_only(out, ~released)).ended_hour[1:] == 0.0).all()


def test_a_day_without_a_release_yet_believes_the_day_before(
    queries: DayQueries, out: Sanitized
) -> None:
    """Leaving such queries out would flatter a mechanism that is silent when it is hard."""
    own = out.released.copy()
    second = np.flatnonzero(queries.day == 1)
    own[second] = False
    own[:3] = False
    beliefs = find_beliefs(M, queries, with_only(out, own))
    assert np.isnan(beliefs.error_m[:3]).all()
    last = np.flatnonzero(own[: second[0]])[-1]
    still = np.broadcast_to(out.value[last], (len(second), 2))
    np.testing.assert_array_equal(
        beliefs.error_m[second], M.space.distance(queries.points[second], still)
    )
    assert np.flatnonzero(beliefs.carried).tolist() == second.tolist()
    # Nobody else's release is believed.
    first = queries.offsets[1]
    own[first : first + 4] = False
    assert np.isnan(find_beliefs(M, queries, with_only(out, own)).error_m[first])


def test_the_metrics_are_the_definitions(queries: DayQueries, out: Sanitized) -> None:
    beliefs = find_beliefs(M, queries, out)
    sums = BeliefSums(queries.users)
    sums.add(queries, beliefs)
    metrics = sums.metrics()
    errors = beliefs.error_m
    assert metrics.belief_mean_m == pytest.approx(errors.mean())
    for value, share in zip(metrics[1:4], (0.5, 0.9, 0.99), strict=True):
        # Bins are one per cent wide, and in the tail neighbours lie further apart than that.
        lower, higher = (np.quantile(errors, share, method=m) for m in ("lower", "higher"))
        assert lower / 1.01 <= value <= higher * 1.01
    assert metrics.answered_share == pytest.approx(out.released.mean())
    spent = [out.cost[queries.day == day].sum() for day in range(queries.days)]
    assert metrics.spent_share == pytest.approx(np.mean(spent) / PRIVACY.eps_per_m)
    assert max(spent) <= PRIVACY.eps_per_m
    assert metrics.ended_share == np.isfinite(beliefs.ended_hour).mean()
    assert metrics.ended_before_22_share == (beliefs.ended_hour < 22).mean()
    assert (metrics.carried_share, metrics.unknown_share) == (0.0, 0.0)
    assert sums.ended_first_and_median() == (
        np.nanmin(beliefs.ended_hour),
        np.nanmedian(beliefs.ended_hour),
    )
    hours = sums.by_hour()
    assert [hour for hour, _, _ in hours] == list(range(24))
    for hour, mean_m, p90_m in hours:
        own = errors[queries.local_hour.astype(int) == hour]
        assert mean_m == pytest.approx(own.mean())
        assert p90_m == pytest.approx(np.quantile(own, 0.9), rel=0.03)
    low, high = sums.interval(np.random.default_rng(1))
    for lo, value, hi in zip(low, metrics, high, strict=True):
        assert lo - 1e-9 <= value <= hi + 1e-9
    assert low.belief_mean_m < high.belief_mean_m


def test_what_is_never_released_is_not_believed_exactly(
    queries: DayQueries, out: Sanitized
) -> None:
    nothing = find_beliefs(M, queries, with_only(out, np.zeros_like(out.released)))
    sums = BeliefSums(queries.users)
    sums.add(queries, nothing)
    metrics = sums.metrics()
    assert np.isnan(metrics[:4]).all()
    assert (metrics.answered_share, metrics.unknown_share) == (0.0, 1.0)
    low, _ = sums.interval(np.random.default_rng(1))
    assert np.isnan(low.belief_p99_m)
    assert sums.by_hour() == []
