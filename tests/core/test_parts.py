"""Parts of a user's own, and parts that do not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import hereish
from hereish.core.types import Bools, Floats

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)


def straight_on(run: hereish.Run, at_s: Floats) -> Floats:
    """Goes on as from the release before the last to the last."""
    return 2 * run.values[:, 0] - run.values[:, -1]


STRAIGHT_ON = hereish.prediction(straight_on, memory=2)


def test_a_plain_function_is_a_prediction_and_sees_as_far_back_as_it_declares() -> None:
    m = hereish.fixed_utility(
        hereish.Privacy(1e6, 1), 5, prediction=STRAIGHT_ON, space=hereish.Plane()
    )
    assert m.memory == 2
    session = m.session(seed=1)
    for minute in range(40):
        session.report((100.0 * minute, 0.0), NOON + timedelta(minutes=minute))
    assert session.run.easy[0] > 10, "somebody who walks straight on is predicted"
    assert session.run.values.shape == (1, 2, 2)


def test_a_lifted_prediction_gives_what_the_vectorised_one_gives() -> None:
    def one(past: Sequence[hereish.Past], at_s: float) -> Sequence[float] | None:
        if len(past) < 2:
            return None
        newest, before = past[0].value, past[1].value
        return [2 * a - b for a, b in zip(newest, before, strict=True)]

    rng = np.random.default_rng(1)
    points = np.cumsum(rng.normal(0, 40, (300, 2)), axis=0)
    outs = [
        hereish.sanitize(
            hereish.fixed_utility(hereish.Privacy(1e6, 1), 50, prediction=p, space=hereish.Plane()),
            points,
            np.arange(300.0),
            [0, 100, 100, 300],
            seed=1,
        )
        for p in (STRAIGHT_ON, hereish.lift(one, memory=2))
    ]
    assert np.array_equal(outs[0].value, outs[1].value)
    assert 0 < outs[0].hard.sum() < 300


def test_past_releases_come_newest_first_with_their_times_and_kinds() -> None:
    seen: list[list[hereish.Past]] = []

    def watch(past: Sequence[hereish.Past], at_s: float) -> None:
        seen.append(list(past))

    m = hereish.fixed_utility(PRIVACY, 3000, prediction=hereish.lift(watch, memory=3))
    session = m.session()
    seen.clear()
    reports = [session.report((60.0, 25.0), NOON + timedelta(minutes=i)) for i in range(5)]
    assert [past.value for past in seen[4]] == [r.value for r in reports[3:0:-1]]
    assert [past.at_s for past in seen[4]] == [r.at.timestamp() for r in reports[3:0:-1]]
    assert all(past.hard for past in seen[4])
    assert seen[0] == []


def test_a_plain_function_is_a_budget_manager_and_cannot_pass_the_bound() -> None:
    def greedy(run: hereish.Run, at_s: Floats) -> hereish.Plan:
        return hereish.Plan(0.0, PRIVACY.eps_per_m / 2.5, -math.inf)

    out = hereish.sanitize(
        hereish.PredictiveMechanism(PRIVACY, greedy), [(60.0, 25.0)] * 5, range(5), [0, 5]
    )
    assert out.released.tolist() == [True, True, False, False, False]


def test_a_plain_function_is_a_skip_rule() -> None:
    def every_other(run: hereish.Run, at_s: Floats, plan: hereish.Plan) -> Bools:
        return np.asarray(run.reports % 2 == 1)

    m = hereish.fixed_utility(PRIVACY, 3000, skip=every_other)
    out = hereish.sanitize(m, [(60.0, 25.0)] * 6, range(6), [0, 6])
    assert (out.kind[1::2] == "untested").all()
    assert (out.cost[1::2] == 0).all()
    assert not (out.kind[::2] == "untested").any()


def test_skip_by_speed_counts_from_the_last_hard_release_or_from_the_last_test() -> None:
    points, at_s = [(60.0, 25.0)] * 8, np.arange(8) * 240.0  # 2 km every four minutes at 30 km/h
    never = np.full((8, 4), 0.5)
    never[:, 0] = 0.001  # every test passes
    kinds = {}
    for since in ("hard", "tested"):
        skip = hereish.SkipBySpeed(kmh=30, since=since)
        m = hereish.fixed_utility(PRIVACY, 3000, skip=skip)
        kinds[since] = list(hereish.sanitize(m, points, at_s, [0, 8], uniforms=never).kind)
    assert kinds["hard"] == ["hard", "untested", *["easy"] * 6]
    assert kinds["tested"] == ["hard", *["untested", "easy"] * 3, "untested"]


def test_fixed_rate_skips_only_after_a_hard_release_that_went_through_the_test() -> None:
    skip = hereish.SkipBySpeed(kmh=30)
    m = hereish.fixed_rate(PRIVACY, 30, skip=skip)
    u = np.full((4, 4), 0.5)
    u[:, 0] = [0.5, 0.999, 0.5, 0.5]  # the first has no guess; the second fails its test
    out = hereish.sanitize(m, [(60.0, 25.0)] * 4, np.arange(4) * 60.0, [0, 4], uniforms=u)
    assert list(out.kind) == ["hard", "hard", "untested", "untested"]
    # 0.8 of the threshold of the second report, at 500 m a minute
    minutes = math.floor(0.8 * out.threshold[1] / 500)
    later = np.array([0.0, 60.0, 60.0 + 60 * minutes, 60.0 + 60 * (minutes + 1)])
    out = hereish.sanitize(m, [(60.0, 25.0)] * 4, later, [0, 4], uniforms=u)
    assert list(out.kind[2:]) == ["untested", "easy"] or list(out.kind[2:]) == ["untested", "hard"]


class OneColumn:
    memory = 1
    needs_history = False

    def __call__(self, run: hereish.Run, at_s: Floats) -> Floats:
        return run.value[:, :1]


def off_the_map(run: hereish.Run, at_s: Floats) -> Floats:
    return np.full(run.value.shape, 123.0)


class Rawnoise(hereish.Plane):
    def noise(self, x, eps, u):  # type: ignore[no-untyped-def]
        return x + 0.123


class NoTest(hereish.LaplaceTest):
    def __call__(self, *args: object) -> Floats:  # type: ignore[override]
        return np.zeros(2)


MISFITS: dict[str, Callable[[], object]] = {
    "a prediction of the wrong shape": lambda: hereish.fixed_rate(
        PRIVACY, 30, prediction=OneColumn()
    ),
    "a prediction off the map": lambda: hereish.fixed_rate(PRIVACY, 30, prediction=off_the_map),
    "a prediction that fails": lambda: hereish.fixed_rate(
        PRIVACY,
        30,
        prediction=lambda run, at_s: run.nothing,  # type: ignore[attr-defined]
    ),
    "a test that does not answer yes or no": lambda: hereish.fixed_rate(
        PRIVACY,
        30,
        decision=NoTest(),
    ),
    "a skip rule that answers once for all": lambda: hereish.fixed_rate(
        PRIVACY,
        30,
        skip=lambda run, at_s, plan: np.True_,  # type: ignore[arg-type, return-value]
    ),
    "skipping by speed without a limit": lambda: hereish.PredictiveMechanism(
        PRIVACY, hereish.AlwaysNoise(0.001), skip=hereish.SkipBySpeed()
    ),
    "a manager that pays back": lambda: hereish.PredictiveMechanism(
        PRIVACY, lambda run, at_s: hereish.Plan(-0.001, 0.002, 100.0)
    ),
    "a manager without noise": lambda: hereish.PredictiveMechanism(
        PRIVACY, lambda run, at_s: hereish.Plan(0.001, 0.0, 100.0)
    ),
    "a manager that plans NaN": lambda: hereish.PredictiveMechanism(
        PRIVACY, lambda run, at_s: hereish.Plan(math.nan, 0.001, 100.0)
    ),
    "noise that is not on the grid": lambda: hereish.fixed_rate(PRIVACY, 30, space=Rawnoise()),
    "noise beyond the reach of the grid": lambda: hereish.independent(
        hereish.Privacy(1e-15, 1.0), reports=30, space=hereish.Plane()
    ),
    "a space without noise": lambda: hereish.PredictiveMechanism(
        PRIVACY,
        hereish.AlwaysNoise(0.001),
        space=object(),  # type: ignore[arg-type]
    ),
}


@pytest.mark.parametrize("build", MISFITS.values(), ids=MISFITS.keys())
def test_parts_that_do_not_fit_are_refused_when_they_are_put_together(
    build: Callable[[], object],
) -> None:
    with pytest.raises(hereish.PartError):
        build()


def test_a_plan_may_skip_with_no_budget_at_all() -> None:
    def free(run: hereish.Run, at_s: Floats) -> hereish.Plan:
        first = run.reports == 0
        return hereish.Plan(
            np.zeros(len(at_s)), np.where(first, 0.001, 0.0), np.where(first, 0.0, np.inf)
        )

    out = hereish.sanitize(
        hereish.PredictiveMechanism(PRIVACY, free), [(60.0, 25.0)] * 3, range(3), [0, 3]
    )
    assert list(out.kind) == ["hard", "untested", "untested"]


def test_a_plan_turned_bad_in_use_releases_nothing() -> None:
    def turns(run: hereish.Run, at_s: Floats) -> hereish.Plan:
        return hereish.Plan(0.0, 0.001 if run.reports[0] < 2 else math.nan, -math.inf)

    session = hereish.PredictiveMechanism(PRIVACY, turns).session()
    for _ in range(2):
        session.report((60.0, 25.0), NOON)
    with pytest.raises(hereish.PartError):
        session.report((60.0, 25.0), NOON)


def test_noise_without_a_budget_worth_counting_is_still_finite() -> None:
    m = hereish.PredictiveMechanism(PRIVACY, hereish.AlwaysNoise(1e-300))
    report = m.session().report((60.0, 25.0), NOON)
    assert report.cost == m.bound.quantum
    assert all(map(math.isfinite, report.value))
