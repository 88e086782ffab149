"""`NoiseFirst` in mechanisms: costs, refusals, thresholds of ±inf, budgets."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

import hereish
from hereish import (
    BudgetExhaustedError,
    Kind,
    Line,
    NoiseFirst,
    PartError,
    Plan,
    Plane,
    PredictiveMechanism,
    Question,
    Sphere,
)
from hereish.core.step import step
from hereish.core.types import Bools, Floats, PerLane
from hereish.testing import NoNoise

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
EPS = PRIVACY.eps_per_m
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
LOW, HIGH = 2.0**-53, 1.0 - 2.0**-53


def build(
    eps_test: PerLane = EPS / 200,
    eps_noise: PerLane = EPS / 20,
    threshold: PerLane = 500.0,
    **rest: Any,
) -> PredictiveMechanism:
    """A mechanism that plans the same at every step, on the plane unless it says otherwise."""
    plan = Plan(eps_test, eps_noise, threshold)
    return PredictiveMechanism(
        PRIVACY, lambda run, at_s: plan, **{"space": Plane(), "decision": NoiseFirst(), **rest}
    )


def test_easy_costs_the_test_and_hard_the_noise_alone() -> None:
    m = build()
    easy, hard = m.bound.quantised(EPS / 200), m.bound.quantised(EPS / 20)
    x = np.cumsum(np.random.default_rng(1).normal(0.0, 400.0, (300, 2)), axis=0)
    out = hereish.sanitize(m, x, np.arange(300.0), [0, 300], seed=1)
    assert set(out.kind[out.released].tolist()) == {"easy", "hard"}
    assert set(out.cost[out.kind == "easy"].tolist()) == {easy}
    assert set(out.cost[out.kind == "hard"].tolist()) == {hard}
    assert (out.cost[~out.released] == 0.0).all()
    assert out.spent[0] == math.fsum(out.cost.tolist()) <= EPS
    assert out.spent[0] + hard > EPS, "it goes on until the worst case, the noise, does not fit"
    assert out.charged is None, "costs follow from the epsilons and need no column of their own"
    assert np.array_equal(pickle.loads(pickle.dumps(out)).cost, out.cost)  # noqa: S301  # our own

    session = m.session(seed=1)
    reports = [session.report(x[i], NOON + timedelta(minutes=i)) for i in range(20)]
    assert {report.cost for report in reports} == {easy, hard}
    assert {report.kind for report in reports} == {Kind.EASY, Kind.HARD}
    assert hereish.Session.from_state(m, session.to_state()).spent == session.spent


@pytest.mark.parametrize("space", [Line(), Plane(), Sphere()], ids=repr)
def test_a_prediction_that_never_works_costs_what_independent_noise_does(space: Any) -> None:
    """As many reports as `hereish.independent` with the same noise, and the same noise."""

    def elsewhere(run: hereish.Run, at_s: Floats) -> Floats:
        return np.full_like(run.value, 80.0 if isinstance(space, Sphere) else 1e9)

    alone = hereish.independent(PRIVACY, reports=17, space=space)
    plan = alone.budget(alone.run(1), np.zeros(1))
    m = build(plan.eps_noise / 5, plan.eps_noise, 500.0, space=space, prediction=elsewhere)
    x, at_s = np.zeros((40, len(space.coordinates))), np.arange(40.0)
    u = np.random.default_rng(2).uniform(0.01, 0.99, (40, m.uniforms))
    ours = hereish.sanitize(m, x, at_s, [0, 40], uniforms=u)
    theirs = hereish.sanitize(alone, x, at_s, [0, 40], uniforms=u)
    assert ours.released.sum() == theirs.released.sum() == 17
    assert ours.spent[0] == theirs.spent[0]
    assert np.array_equal(ours.value, theirs.value, equal_nan=True)


def _asked(threshold: PerLane, lanes: int = 4, **changed: Any) -> Question:
    point = np.zeros((lanes, 2))
    tested = bool(np.isfinite(threshold).all())
    asked = Question(point, point, 0.001, 0.01, threshold, tested, np.ones(lanes, dtype=np.bool_))
    return asked._replace(**changed)


def test_infinite_thresholds_decide_alone() -> None:
    for coin in (LOW, HIGH):
        u = np.column_stack([np.full(4, coin), np.full((4, 3), 0.3)])
        hard, fresh = NoiseFirst().decide(Plane(), _asked(math.inf), u)
        assert not hard.any()
        assert fresh.shape == (0, 2)
        hard, fresh = NoiseFirst().decide(Plane(), _asked(-math.inf), u)
        assert hard.all()
        assert np.array_equal(fresh, Plane().noise(np.zeros((4, 2)), 0.01, u[:, 1:]))
        mixed = np.array([math.inf, -math.inf, 100.0, -math.inf])
        hard, fresh = NoiseFirst().decide(Plane(), _asked(mixed), u)
        assert hard.tolist() == [False, True, coin == HIGH, True]
        assert len(fresh) == hard.sum()


def test_an_unknown_guess_and_lanes_that_are_not_open() -> None:
    u = np.full((4, 4), 0.5)
    unknown = _asked(np.full(4, -math.inf), guess=np.full((4, 2), np.nan))
    assert NoiseFirst().decide(Plane(), unknown, u)[0].all()
    shut = np.array([True, False, True, False])
    for threshold in (-1e9, 100.0, math.inf, -math.inf):
        hard, fresh = NoiseFirst().decide(Plane(), _asked(threshold, open=shut), u)
        assert hard.tolist() == (shut & (threshold < 0.0)).tolist()
        assert len(fresh) == hard.sum()
    nobody = _asked(100.0, open=np.zeros(4, dtype=np.bool_))
    assert not NoiseFirst().decide(Plane(), nobody, u)[0].any()


def test_the_step_goes_straight_to_noise_without_a_guess_and_skips_for_free() -> None:
    def nights(run: hereish.Run, at_s: Floats, plan: Plan) -> Bools:
        return at_s > 0.0

    m = build(skip=nights)
    run, x = m.run(2), np.array([[0.0, 0.0], [9e5, 9e5]])
    first, run = step(m, run, x, np.zeros(2), np.full((2, 4), 0.3))
    assert first.hard.all()
    assert (first.cost == first.eps_noise).all()
    assert (np.broadcast_to(first.eps_test, 2) == 0.0).all()
    skipped, run = step(m, run, x, np.ones(2), np.full((2, 4), 0.3))
    assert not skipped.hard.any()
    assert (skipped.cost == 0.0).all()
    assert np.array_equal(skipped.value, first.value)


@pytest.mark.parametrize("on_exhausted", ["stop", "predict"])
def test_when_the_budget_is_gone_nothing_is_drawn(on_exhausted: Any) -> None:
    m = build(threshold=-1e9, on_exhausted=on_exhausted)
    session = m.session(seed=1)
    reports = [session.report((0.0, 0.0), NOON) for _ in range(20)]
    if on_exhausted == "stop":
        with pytest.raises(BudgetExhaustedError):
            session.report((0.0, 0.0), NOON)
    else:
        last = session.report((0.0, 0.0), NOON)
        assert (last.kind, last.cost, last.value) == (Kind.UNTESTED, 0.0, reports[-1].value)
    assert {report.kind for report in reports} == {Kind.HARD}
    assert session.spent <= EPS


@pytest.mark.parametrize("lane_by_lane", [False, True])
def test_a_test_that_costs_more_than_the_noise_is_refused(lane_by_lane: bool) -> None:
    def plan(run: hereish.Run, at_s: Floats) -> Plan:
        eps_test = np.where(at_s > 100.0, EPS / 10, EPS / 20)
        return Plan(eps_test if lane_by_lane else float(eps_test[0]), EPS / 20, 500.0)

    m = PredictiveMechanism(PRIVACY, plan, Plane(), decision=NoiseFirst())
    session = m.session(seed=1)
    session.report((0.0, 0.0), NOON.fromtimestamp(0, UTC))
    before = session.spent
    with pytest.raises(PartError, match="eps_test <= eps_noise"):
        session.report((5.0, 5.0), NOON)
    assert session.spent == before
    with pytest.raises(PartError, match="eps_test <= eps_noise"):
        build(EPS / 10, EPS / 20)
    assert build(EPS / 10, EPS / 10)


# Spaces.


class Bare:
    """A space of somebody's own, as they were before: noise, and nothing unrounded."""

    def __init__(self, space: Any) -> None:
        self._space = space

    def __getattr__(self, name: str) -> Any:
        if name == "unrounded_noise":
            raise AttributeError(name)
        return getattr(self._space, name)

    def distance(self, a: Floats, b: Floats) -> Floats:
        return np.asarray(self._space.distance(a, b))

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return np.asarray(self._space.noise(x, eps, u))

    def snap(self, points: Floats) -> Floats:
        return np.asarray(self._space.snap(points))

    def c_noise(self, delta: float) -> float:
        return float(self._space.c_noise(delta))


class OtherNoise(Plane):
    """Noise of its own, and that of the plane before rounding: two laws."""

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return super().noise(x, 0.5 * eps, u)


class OtherUnrounded(Plane):
    """Both of its own, and they do not agree."""

    def unrounded_noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return super().unrounded_noise(x, 0.1 * eps, u)

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return self.snap(Plane().unrounded_noise(x, eps, u))


class Half(Plane):
    def unrounded_noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return super().unrounded_noise(x, 0.5 * eps, u)


@pytest.mark.parametrize(
    ("space", "why"),
    [
        (Bare(Plane()), r"found none in Bare; add it"),
        (OtherNoise(), "override unrounded_noise instead"),
        (OtherUnrounded(), r"must return self\.snap\(self\.unrounded_noise"),
    ],
    ids=["none", "inherited", "another"],
)
def test_a_space_without_its_own_unrounded_noise_is_refused(space: Any, why: str) -> None:
    with pytest.raises(PartError, match=why):
        build(space=space)
    assert build(space=space, decision=hereish.LaplaceTest()), "with other decisions it works"
    assert build(space=Half())


@pytest.mark.parametrize("space", [Line(), Plane(), Sphere()], ids=repr)
def test_noise_is_the_unrounded_noise_on_the_grid(space: Any) -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(-80.0, 80.0, (500, len(space.coordinates)))
    u = rng.uniform(0.0, 1.0, (500, space.uniforms))
    drawn = space.unrounded_noise(x, 1e-3, u)
    assert np.array_equal(space.noise(x, 1e-3, u), space.snap(drawn))
    assert (drawn != space.snap(drawn)).any(axis=1).all()


def test_no_noise_for_the_tests_of_programs() -> None:
    m = build(space=NoNoise(Plane()), threshold=100.0)
    session = m.session(draws=hereish.testing.FixedDraws([0.5] * 2))
    assert session.report((10.4, 0.0), NOON).value == (10.0, 0.0)
    assert session.report((60.0, 0.0), NOON).kind == Kind.EASY
    assert not m.private


# Trusted by its exact type alone.


def test_a_class_that_derives_from_it_is_checked_like_any_other() -> None:
    class Loud(NoiseFirst):
        def decide(self, space: Any, asked: Question, u: Floats) -> tuple[Bools, Floats]:
            return np.ones(len(asked.x), dtype=np.bool_), asked.x.copy()

    m = build(decision=Loud(), on_exhausted="predict")
    assert m.own_decision is None
    session = m.session(seed=1)
    with pytest.raises(PartError, match="nothing was released"):
        for _ in range(40):
            session.report((0.0, 0.0), NOON)
    assert session.spent <= EPS


def test_what_an_object_has_under_the_names_of_its_methods_is_not_called() -> None:
    decision = NoiseFirst()
    m = build(decision=decision)
    object.__setattr__(decision, "decide", lambda *_: None)
    object.__setattr__(decision, "costs", lambda *_: (0.0, 0.0))
    report = m.session(seed=1).report((0.0, 0.0), NOON)
    assert report.cost == m.bound.quantised(EPS / 20)


def test_the_managers_of_the_paper_need_a_closeness_test() -> None:
    with pytest.raises(PartError, match="needs a closeness test"):
        hereish.fixed_utility(PRIVACY, 3000, decision=NoiseFirst())
