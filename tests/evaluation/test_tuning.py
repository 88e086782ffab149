"""Tuning: on some users, for others, the same for the same seed, and better than the paper."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hereish
from hereish.errors import ParameterError
from hereish.evaluation import dataset, tuning
from hereish.evaluation.figures import pareto_front
from hereish.evaluation.sampling import Queries, sample
from hereish.evaluation.tuning import Goal, Tuned, tune

PRIVACY = hereish.Privacy(math.log(10), 100)
GOAL = Goal.of_accuracy(PRIVACY, 3000)


@pytest.fixture(scope="module")
def city() -> dataset.Trajectories:
    return dataset.synthetic(users=80)


@pytest.fixture(scope="module")
def tuned(city: dataset.Trajectories) -> Tuned:
    return tune(city, GOAL, p=0.5, trials=12, samples=2)


def test_the_limits_are_those_of_independent_noise() -> None:
    assert GOAL.mean_m == pytest.approx(1542.6, abs=0.5)
    assert GOAL.p90_m == 3000


def test_it_beats_the_paper_for_users_that_it_has_not_seen(tuned: Tuned) -> None:
    ours, theirs = tuned.held_out["tuned"], tuned.held_out["paper"]
    assert ours[2].rate < theirs[1].rate  # not even their intervals meet
    assert tuned.training_users + tuned.held_out_users == 80
    assert tuned.trials[0].score < 1e6
    assert 0.3 < (tuned.settings.prediction_rate or 0.0) < 1.0


def test_trials_that_count_are_within_the_limits(tuned: Tuned) -> None:
    good = [trial for trial in tuned.trials if trial.score < 1e6]
    assert good
    for trial in good:
        assert trial.metrics.error_mean_m <= GOAL.mean_m
        assert trial.metrics.error_p90_m <= GOAL.p90_m
    assert min(trial.score for trial in tuned.trials) == min(t.metrics.rate for t in good)


def test_the_same_seed_gives_the_same_whatever_the_jobs(
    city: dataset.Trajectories, tuned: Tuned
) -> None:
    again = tune(city, GOAL, p=0.5, trials=12, samples=2, jobs=3)
    assert again == tuned
    other = tune(city, GOAL, p=0.5, trials=12, samples=2, seed=2)
    assert other.settings != tuned.settings


def test_users_are_seen_or_measured_on_and_never_both(
    city: dataset.Trajectories, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[int]] = []

    def watched(given: dataset.Trajectories, slow: object, p: float, rng: object) -> Queries:
        asked.append(set(given.user.tolist()))
        return sample(given, slow, p, rng)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(tuning, "sample", watched)
    tune(city, GOAL, p=0.5, trials=4, samples=1, train_share=0.25)
    training, held_out = asked
    assert not training & held_out
    assert len(training) == 20


def test_at_a_rate_it_makes_the_error_small(city: dataset.Trajectories) -> None:
    goal = replace(GOAL, rate=1 / 60)
    found = tune(city, goal, p=0.5, trials=12, samples=2)
    best = min(found.trials, key=lambda trial: trial.score)
    assert best.metrics.rate <= 1 / 60
    assert best.metrics.error_mean_m < found.held_out["paper"][0].error_mean_m


def test_what_cannot_be_tuned_on_is_said(city: dataset.Trajectories) -> None:
    alone = city.take(np.array([0]))
    with pytest.raises(ParameterError, match="at least two users"):
        tune(alone, GOAL, trials=4)
    with pytest.raises(ParameterError, match="no query trace is long enough"):
        tune(dataset.synthetic(users=4), GOAL, p=1.0, trials=4)


def test_the_front_has_what_nobody_beats(tuned: Tuned, tmp_path: Path) -> None:
    every = [point for trial in tuned.trials for point in trial.tried]
    assert len(every) == 12 * 6
    best = pareto_front.pareto_front(every)
    for rate, error_m in every:
        assert any(r <= rate and e <= error_m for r, e in best)
    assert [rate for rate, _ in best] == sorted(rate for rate, _ in best)
    assert [e for _, e in best] == sorted((e for _, e in best), reverse=True)
    pareto_front.draw(tuned, tmp_path / "front.png")
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")
