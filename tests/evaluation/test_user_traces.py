"""Traces of a user in the order of time: against sessions that are fed the same uniforms."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import hereish
from hereish.core import presets
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.step import step
from hereish.core.types import Floats
from hereish.core.windows import Day
from hereish.errors import ParameterError
from hereish.evaluation import user_traces
from hereish.evaluation.configurations import run_mechanism
from hereish.evaluation.metrics import Outcome
from hereish.evaluation.sampling import Queries
from hereish.evaluation.user_traces import run_in_order

PRIVACY = hereish.Privacy(math.log(10), 100)
HOME, WORK = (60.17, 24.94), (60.22, 24.80)
HOUR_S = 3600.0


def walker(accuracy_m: float = 1500.0) -> PredictiveMechanism:
    return presets.steady(PRIVACY, accuracy_m, numbers=presets.WALKER)


def commute(users: int, days: int, reports: int, seed: int) -> Queries:
    """Two traces from home and then two from work, and so on, out of order, of everybody."""
    rng = np.random.default_rng(seed)
    at_s, points, user = [], [], []
    for who in range(users):
        for day in rng.permutation(2 * days).tolist():
            at_s.append(12 * HOUR_S * day + who + 300.0 * np.arange(reports))
            points.append(np.tile(WORK if day % 4 > 1 else HOME, (reports, 1)))
            user.append(who)
    offsets = reports * np.arange(len(user) + 1)
    return Queries(np.concatenate(at_s), np.concatenate(points), offsets, np.array(user), users)


def test_it_is_the_step_from_trace_to_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """One lane, done the long way: a fresh budget at the start of each trace, and all else kept."""
    queries = commute(users=1, days=6, reports=40, seed=1)
    rng = np.random.default_rng(5)
    drawn: list[Floats] = []

    class Remembered:
        def __init__(self, seed: int) -> None:
            assert seed == 9

        def uniforms(self, count: int) -> Floats:
            drawn.append(rng.uniform(1e-9, 1 - 1e-9, count))
            return drawn[-1]

    monkeypatch.setattr(user_traces, "SeededDraws", Remembered)
    m = walker(400.0)
    (out,) = run_in_order(m, [queries], 9)
    run, used = m.run(1), 0
    empty = m.run(1)
    for trace in np.argsort(queries.at_s[queries.offsets[:-1]]).tolist():
        run = run._replace(
            **{name: getattr(empty, name) for name in ("reports", "easy", "spent", "ended")}
        )
        for row in range(queries.offsets[trace], queries.offsets[trace + 1]):
            if run.ended[0]:
                assert not out.reported[row]
                continue
            x, at_s = queries.points[row : row + 1], queries.at_s[row : row + 1]
            release, run = step(m, run, x, at_s, drawn[used].reshape(1, -1))
            used += 1
            assert out.reported[row] == release.released[0]
            assert out.hard[row] == release.hard[0]
            assert out.cost[row] == release.cost[0]
            if release.released[0]:
                assert out.error_m[row] == m.space.distance(x, release.value)[0]
    assert used == len(drawn)
    assert (~out.reported).sum() > 40  # some budgets ended


def per_trace(queries: Queries, out: Outcome, name: str) -> Floats:
    trace = np.repeat(np.arange(len(queries)), np.diff(queries.offsets))
    return np.bincount(trace, getattr(out, name), len(queries)).astype(np.float64)


def test_each_trace_has_a_budget_and_memory_pays() -> None:
    queries = commute(users=30, days=10, reports=30, seed=2)
    m = walker(2500.0)
    (kept,) = run_in_order(m, [queries], 3)
    alone = run_mechanism(m, queries, 3)
    spent = per_trace(queries, kept, "cost")
    assert spent.max() <= PRIVACY.eps_per_m
    assert spent.sum() > 30 * PRIVACY.eps_per_m  # not one budget for all traces of a user
    # Later traces begin with a guess, which independent ones do not have; 600 traces each.
    first = queries.offsets[:-1]
    assert alone.hard[first].all()
    assert 0.5 < kept.hard[first].mean() < 0.8  # every other one begins where the last one ended
    assert kept.error_m[kept.reported].mean() < alone.error_m[alone.reported].mean()


def test_samples_share_steps_and_nothing_else() -> None:
    """A user of a second sample is as somebody else."""
    samples = [commute(users=3, days=3, reports=10, seed=seed) for seed in (1, 2)]
    m = walker()
    both = run_in_order(m, samples, 4)
    assert [len(out.reported) for out in both] == [len(q.at_s) for q in samples]
    joined = user_traces.join(samples)
    apart = replace(joined, user=np.r_[samples[0].user, 3 + samples[1].user], users=6)
    (same,) = run_in_order(m, [apart], 4)
    for name in Outcome._fields:
        np.testing.assert_array_equal(
            np.concatenate([getattr(out, name) for out in both]), getattr(same, name)
        )


def test_a_trace_beside_another_of_the_same_user_has_no_memory() -> None:
    one = commute(users=1, days=1, reports=10, seed=1)
    at_s = np.r_[one.at_s[:10], one.at_s[:10] + 60.0]  # two devices at the same time
    twice = Queries(at_s, np.tile(HOME, (20, 1)), one.offsets, np.array([0, 0]), 1)
    (out,) = run_in_order(walker(), [twice], 1)
    assert out.hard[[0, 10]].all()
    behind = replace(twice, at_s=np.r_[one.at_s[:10], one.at_s[:10] + 7200.0])
    hard = [run_in_order(walker(), [behind], seed)[0].hard[10] for seed in range(20)]
    assert not all(hard)


def test_a_window_of_its_own_is_refused() -> None:
    daily = presets.steady(PRIVACY, 3000.0, numbers=presets.WALKER, window=Day("UTC"))
    with pytest.raises(ParameterError, match="without a window"):
        run_in_order(daily, [commute(1, 1, 5, 1)], 1)
