"""Decisions: what each outcome costs, and one that is not "test, then noise" in the same step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

import hereish
from hereish import LaplaceTest, Line, PartError, Plan, Plane, PredictiveMechanism, Question
from hereish.core.step import step
from hereish.core.types import Bools, Floats, PerLane

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
EPS = PRIVACY.eps_per_m
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)


@dataclass(frozen=True)
class DrawnFirst:
    """A decision of a user's own, by way of example. Not `hereish.NoiseFirst`, and not as private:

    it compares the rounded place with the guess.
    """

    uniforms = 1
    private = True

    def costs(self, eps_test: PerLane, eps_noise: PerLane) -> tuple[PerLane, PerLane]:
        return eps_test, np.maximum(eps_test, eps_noise)

    def decide(self, space: Any, asked: Question, u: Floats) -> tuple[Bools, Floats]:
        drawn = space.noise(asked.x, asked.eps_noise, u[:, 1:])
        beyond = np.maximum(0.0, space.distance(drawn, asked.guess) - asked.threshold)
        easy = np.asarray(u[:, 0] < np.exp(-asked.eps_test * beyond))
        if not asked.all_tested:
            easy = np.where(np.isfinite(asked.threshold), easy, np.equal(asked.threshold, math.inf))
        hard = asked.open & ~easy
        return hard, drawn[hard]


def plan(run: hereish.Run, at_s: Floats) -> Plan:
    return Plan(EPS / 200, EPS / 20, 500.0)


def test_a_decision_of_another_kind_goes_through_the_same_step() -> None:
    m = PredictiveMechanism(PRIVACY, plan, Plane(), decision=DrawnFirst())
    easy, hard = m.bound.quantised(EPS / 200), m.bound.quantised(EPS / 20)
    rng = np.random.default_rng(1)
    x = np.cumsum(rng.normal(0.0, 400.0, (300, 2)), axis=0)
    out = hereish.sanitize(m, x, np.arange(300.0), [0, 300], seed=1)
    kinds = set(out.kind[out.released].tolist())
    assert kinds == {"easy", "hard"}
    assert set(out.cost[out.kind == "easy"].tolist()) == {easy}
    assert set(out.cost[out.kind == "hard"].tolist()) == {hard}
    assert out.spent[0] == math.fsum(out.cost.tolist()) <= EPS
    assert out.spent[0] + hard > EPS, "it goes on until the worst case does not fit"

    session = m.session(seed=1)
    reports = [session.report(x[i], NOON + timedelta(minutes=i)) for i in range(20)]
    assert {report.cost for report in reports} == {easy, hard}
    again = hereish.Session.from_state(m, session.to_state())
    assert again.spent == session.spent


def test_the_outcomes_of_the_paper_cost_the_test_or_the_test_and_the_noise() -> None:
    m = hereish.fixed_utility(PRIVACY, 3000, space=Plane())
    u = np.full((1, m.uniforms), 0.5)
    run, x, at_s = m.run(1), np.zeros((1, 2)), np.zeros(1)
    first, run = step(m, run, x, at_s, u)
    assert (first.cost_easy, first.cost_hard) == (0.0, first.eps_noise), "there is nothing to test"
    easy, run = step(m, run, x, at_s, np.full((1, m.uniforms), 1e-9))
    assert easy.cost[0] == easy.cost_easy == easy.eps_test
    far = np.full((1, 2), 1e6)
    hard, _ = step(m, run, far, at_s, np.full((1, m.uniforms), 1.0 - 1e-9))
    assert hard.cost[0] == hard.cost_hard == hard.eps_test + hard.eps_noise


class Unfair(DrawnFirst):
    """Costs and outcomes as it is told."""

    def __init__(self, **wrong: Any) -> None:
        self.__dict__.update(wrong)

    def costs(self, eps_test: PerLane, eps_noise: PerLane) -> tuple[PerLane, PerLane]:
        told: tuple[PerLane, PerLane] = self.__dict__.get("told", (eps_test, eps_noise))
        return told

    def decide(self, space: Any, asked: Question, u: Floats) -> tuple[Bools, Floats]:
        hard, drawn = super().decide(space, asked, u)
        if "hard" in self.__dict__:
            hard = np.full(len(hard), self.__dict__["hard"])
            return hard, np.zeros((np.count_nonzero(hard), asked.x.shape[1]))
        return hard, drawn[:, : self.__dict__.get("columns", 2)]


@pytest.mark.parametrize(
    "told",
    [(0.002, 0.001), (-0.001, 0.001), (0.0, math.nan), (0.0, EPS / 3.0)],
    ids=["easy dearer than hard", "paid back", "not a number", "between quanta"],
)
def test_costs_that_the_bound_could_not_hold_are_refused(told: tuple[float, float]) -> None:
    with pytest.raises(PartError):
        m = PredictiveMechanism(PRIVACY, plan, Plane(), decision=Unfair(told=told))
        m.session().report((0.0, 0.0), NOON)


@pytest.mark.parametrize(("threshold", "hard"), [(math.inf, True), (-math.inf, False)])
def test_a_decision_that_listens_where_nothing_is_asked_releases_nothing(
    threshold: float, hard: bool
) -> None:
    def asks_nothing(run: hereish.Run, at_s: Floats) -> Plan:
        return Plan(0.0, EPS / 20, np.where(run.reports == 0, -math.inf, threshold))

    decision = Unfair()
    m = PredictiveMechanism(PRIVACY, asks_nothing, Plane(), decision=decision)
    session = m.session(seed=1)
    session.report((0.0, 0.0), NOON)
    before = session.spent
    decision.__dict__["hard"] = hard
    with pytest.raises(PartError, match="nothing was released"):
        session.report((0.0, 0.0), NOON)
    assert session.spent == before


def test_a_decision_that_draws_without_budget_releases_nothing() -> None:
    decision = Unfair()
    m = PredictiveMechanism(PRIVACY, plan, Plane(), decision=decision, on_exhausted="predict")
    session = m.session(seed=1)
    while not session.run.ended[0]:
        session.report((0.0, 1e5 * int(session.run.reports[0])), NOON)
    decision.__dict__["hard"] = True
    with pytest.raises(PartError, match="nothing was released"):
        session.report((0.0, 0.0), NOON)


def test_noise_of_the_wrong_shape_is_refused_when_the_parts_are_put_together() -> None:
    m = PredictiveMechanism(PRIVACY, plan, Plane(), decision=Unfair(columns=1))
    with pytest.raises(PartError, match="the decision failed"):
        m.session().report((0.0, 0.0), NOON)


# Declarations.


class Undeclared:
    def __call__(self, *public: Any) -> Any:
        return public[0].value


class Misspelt(Undeclared):
    memroy = 2
    needs_history = False


class Mistyped(Undeclared):
    memory = "two"
    needs_history = False


@pytest.mark.parametrize(
    "part", [Undeclared(), Misspelt(), Mistyped()], ids=lambda p: type(p).__name__
)
def test_what_a_prediction_does_not_declare_is_an_error(part: Any) -> None:
    with pytest.raises(PartError, match="must declare memory"):
        hereish.fixed_utility(PRIVACY, 3000, prediction=part)


def test_managers_skip_rules_spaces_and_decisions_declare_too() -> None:
    class Manager:
        def __call__(self, run: hereish.Run, at_s: Floats) -> Plan:
            return Plan(0.0, 0.001, -math.inf)

    class Bare(LaplaceTest):
        uniforms = -1

    class Loose(Line):
        smallest_eps = "none"  # type: ignore[assignment]

    build = PredictiveMechanism
    with pytest.raises(PartError, match="budget manager Manager must declare needs_history"):
        build(PRIVACY, Manager())
    with pytest.raises(PartError, match=r"skip rule .* must declare needs_history"):
        build(PRIVACY, plan, skip=Undeclared())
    with pytest.raises(PartError, match=r"must declare uniforms .* found -1"):
        build(PRIVACY, plan, decision=Bare())
    with pytest.raises(PartError, match="space Loose must declare smallest_eps"):
        build(PRIVACY, plan, Loose())  # type: ignore[arg-type]
    with pytest.raises(PartError, match=r"derive from hereish\.TestThenNoise"):
        build(PRIVACY, plan, decision=Half())  # type: ignore[arg-type]


class Half:
    uniforms = 1
    private = True


def test_attributes_of_a_plain_function_are_refused_and_the_adapter_is_named() -> None:
    def guess(run: hereish.Run, at_s: Floats) -> Floats:
        return run.value

    guess.memory = 2  # type: ignore[attr-defined]
    with pytest.raises(PartError, match=r"'memory'.*hereish\.prediction\(function"):
        hereish.fixed_utility(PRIVACY, 3000, prediction=guess)
    declared = hereish.prediction(guess, memory=3, needs_history=False)
    assert hereish.fixed_utility(PRIVACY, 3000, prediction=declared).memory == 3


def test_history_is_kept_where_a_part_declares_that_it_needs_it() -> None:
    usual = hereish.fixed_utility(PRIVACY, 3000)
    assert not usual.needs_history
    assert hereish.fixed_utility(PRIVACY, 3000, skip=hereish.SkipBySpeed()).needs_history

    def never(run: hereish.Run, at_s: Floats, plan: Plan) -> Bools:
        return np.zeros(len(at_s), dtype=np.bool_)

    for needs in (True, False):
        rule = hereish.skip_rule(never, needs_history=needs)
        session = hereish.fixed_utility(PRIVACY, 3000, skip=rule).session()
        session.report((60.0, 25.0), NOON)
        assert math.isnan(session.run.hard_at_s[0]) != needs


def test_a_closeness_test_that_is_a_function_declares_its_uniforms() -> None:
    def shy(
        space: Any, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        answer = LaplaceTest()(space, x, guess, eps, threshold, u)
        return np.where((u[:, 1] < 0.5) & np.isfinite(threshold), u[:, 1] < 0.25, answer)

    test = hereish.closeness_test(shy, uniforms=2, c_test=lambda delta: 1.7)
    m = hereish.fixed_utility(PRIVACY, 3000, decision=test)
    assert m.uniforms == 5
    assert m.budget.constants.c_test == 1.7  # type: ignore[union-attr]  # of a fixed utility
    assert hereish.fixed_utility(PRIVACY, 3000, test=test) == m, "the former name"
    with pytest.raises(PartError, match="needs a closeness test"):
        hereish.fixed_utility(PRIVACY, 3000, decision=DrawnFirst())
