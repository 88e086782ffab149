"""Decisions, attacked: they see the secret, and still cannot pass the budget or rewrite the run."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

import hereish
from hereish import (
    BudgetExhaustedError,
    LaplaceTest,
    PartError,
    Plan,
    Plane,
    PredictiveMechanism,
    Privacy,
    Question,
    sanitize,
)
from hereish.core.step import step
from hereish.core.types import Bools, Floats, PerLane

PRIVACY = Privacy(1.0, 1.0)
START = datetime(2026, 5, 5, 12, tzinfo=UTC)
SECRET = (5.0, 5.0)


def quarter(run: hereish.Run, at_s: Floats) -> Plan:
    lanes = len(at_s)
    return Plan(np.zeros(lanes), np.full(lanes, 0.25), np.full(lanes, -math.inf))


@dataclass(frozen=True)
class Plain:
    """Sound: always fresh noise."""

    uniforms = 0
    private = True

    def costs(self, eps_test: PerLane, eps_noise: PerLane) -> tuple[PerLane, PerLane]:
        return eps_test, eps_test + eps_noise

    def decide(self, space: Any, asked: Question, u: Floats) -> tuple[Bools, Floats]:
        hard = asked.open.copy()
        return hard, space.noise(asked.x[hard], 0.25, u[hard])


def mechanism(decision: Any) -> PredictiveMechanism:
    return PredictiveMechanism(PRIVACY, quarter, Plane(), decision=decision)


def paid(m: PredictiveMechanism, reports: int = 20) -> float:
    """What a session and a batch really release for, at most."""
    session, costs = m.session(seed=1), []
    for minute in range(reports):
        try:
            costs.append(session.report(SECRET, START + timedelta(minutes=minute)).cost)
        except (BudgetExhaustedError, PartError, ValueError):
            continue
    try:
        out = sanitize(m, np.tile(SECRET, (reports, 1)), np.arange(float(reports)), [0, reports])
    except PartError:
        return math.fsum(costs)
    assert out.spent[0] == math.fsum(out.cost.tolist()) >= 0.0
    return max(math.fsum(costs), float(out.spent[0]))


def writable(array: Any) -> Any:
    while isinstance(array, np.ndarray):
        array.flags.writeable = True
        if array.base is None:
            return array
        array = array.base
    return array


class Opens(Plain):
    def decide(self, space: Any, asked: Question, u: Floats) -> tuple[Bools, Floats]:
        hard = writable(asked.open)
        hard |= True
        return hard, space.noise(asked.x, 0.25, u)


class Rewrites(Plain):
    """Keeps what it said of its costs, and changes it afterwards."""

    def costs(self, eps_test: PerLane, eps_noise: PerLane) -> tuple[PerLane, PerLane]:
        self.__dict__["said"] = np.full(np.shape(eps_noise), 0.25)
        return self.__dict__["said"], self.__dict__["said"]

    def decide(self, space: Any, asked: Question, u: Floats) -> tuple[Bools, Floats]:
        if "said" in self.__dict__:
            self.__dict__["said"][...] = -10.0
        return super().decide(space, asked, u)


class Cheapens(Plain):
    """Draws with a million times the epsilon that it pays for."""

    def costs(self, eps_test: PerLane, eps_noise: PerLane) -> tuple[PerLane, PerLane]:
        answer = eps_test + 0.0, eps_test + eps_noise
        loud = writable(eps_noise)
        loud *= 1e6
        return answer

    def decide(self, space: Any, asked: Question, u: Floats) -> tuple[Bools, Floats]:
        self.__dict__["eps"] = float(np.max(asked.eps_noise))
        return super().decide(space, asked, u)


@pytest.mark.parametrize("decision", [Plain(), Opens(), Rewrites(), Cheapens()], ids=repr)
def test_no_decision_passes_the_budget_by_writing_to_what_it_is_given(decision: Any) -> None:
    assert paid(mechanism(decision)) <= 1.0
    assert decision.__dict__.get("eps", 0.25) == 0.25


def test_a_decision_does_not_hold_what_the_run_remembers() -> None:
    class Holds(Plain):
        def decide(self, space: Any, asked: Question, u: Floats) -> tuple[Bools, Floats]:
            self.__dict__["kept"] = super().decide(space, asked, u)
            return self.__dict__["kept"]  # type: ignore[no-any-return]

    decision = Holds()
    m = mechanism(decision)
    x = np.full((4, 2), 5.0)
    release, run = step(m, m.run(4), x, np.zeros(4), np.full((4, 3), 0.3))
    before = run.values.copy(), run.hards.copy(), release.value.copy()
    for array in decision.__dict__["kept"]:
        writable(array)[...] = 0
    assert all(map(np.array_equal, before, (run.values, run.hards, release.value)))
    assert x.flags.writeable


class Talks(Exception):  # noqa: N818  # raised once
    """Its class would be named after the place."""


@pytest.mark.parametrize("where", ["costs", "decide"])
@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, Talks])
def test_no_error_of_a_decision_comes_out_with_its_text(
    where: str, error: type[BaseException]
) -> None:
    class Loud(Plain):
        armed = False

        def costs(self, eps_test: PerLane, eps_noise: PerLane) -> tuple[PerLane, PerLane]:
            if Loud.armed and where == "costs":
                raise error("the place is 5.0 5.0")
            return super().costs(eps_test, eps_noise)

        def decide(self, space: Any, asked: Question, u: Floats) -> tuple[Bools, Floats]:
            if Loud.armed:
                raise error("the place is 5.0 5.0")
            return super().decide(space, asked, u)

    session = mechanism(Loud()).session(seed=1)
    Loud.armed = True
    with pytest.raises((PartError, KeyboardInterrupt)) as raised:
        session.report(SECRET, START)
    assert "5.0" not in str(raised.value)
    assert "Talks" not in str(raised.value)
    assert raised.value.__cause__ is None is raised.value.__context__
    assert session.spent == 0.0


class Alternates(Plain):
    """Asks for another price each time, and for a fee where nothing is released."""

    def costs(self, eps_test: PerLane, eps_noise: PerLane) -> tuple[PerLane, PerLane]:
        self.__dict__["turn"] = not self.__dict__.get("turn", False)
        price = 0.25 if self.__dict__["turn"] else 0.125
        return price, price


def test_a_result_says_what_was_charged_whatever_a_decision_says_later() -> None:
    out = sanitize(mechanism(Alternates()), np.zeros((20, 2)), np.arange(20.0), [0, 20], seed=1)
    assert math.fsum(out.cost.tolist()) == out.spent[0] <= 1.0
    assert (out.cost[~out.released] == 0.0).all()


def test_skipped_reports_are_free_whatever_a_decision_asks_for_them() -> None:
    def skips(run: hereish.Run, at_s: Floats) -> Plan:
        return Plan(0.0, 0.25, np.where(run.reports == 0, -math.inf, math.inf))

    class Fee(Plain):
        def costs(self, eps_test: PerLane, eps_noise: PerLane) -> tuple[PerLane, PerLane]:
            return 0.25, 0.25

        def decide(self, space: Any, asked: Question, u: Floats) -> tuple[Bools, Floats]:
            hard = asked.open & np.less(asked.threshold, 0.0)
            return hard, space.noise(asked.x[hard], 0.25, u[hard])

    m = PredictiveMechanism(PRIVACY, skips, Plane(), decision=Fee())
    out = sanitize(m, np.zeros((9, 2)), np.arange(9.0), [0, 9], seed=1)
    assert out.kind.tolist() == ["hard", *["untested"] * 8]
    assert out.spent[0] == 0.25


# Closeness tests, which see the secret too.


def test_a_closeness_test_has_no_price_and_no_decision_of_its_own() -> None:
    class Free(LaplaceTest):
        def costs(self, eps_test: PerLane, eps_noise: PerLane) -> Any:  # type: ignore[misc, override]
            return 0.0, 0.0

    class Own(LaplaceTest):
        def decide(self, space: Any, asked: Question, u: Floats) -> Any:  # type: ignore[misc, override]
            return asked.open, space.noise(asked.x, 1.0, u[:, 1:])

    patched = LaplaceTest()
    object.__setattr__(patched, "decide", lambda *_: None)
    for test in (Free(), Own(), patched):
        with pytest.raises(PartError, match="must not have a"):
            hereish.fixed_utility(hereish.Privacy(math.log(10), 100), 3000, decision=test)


def test_a_closeness_function_cannot_decide_where_nothing_is_asked() -> None:
    def skips(run: hereish.Run, at_s: Floats) -> Plan:
        first = run.reports == 0
        return Plan(0.0, 0.25, np.where(first, -math.inf, math.inf))

    def overwrites(
        space: Any, x: Floats, guess: Floats, eps: PerLane, threshold: Any, u: Floats
    ) -> Bools:
        for given, wrong in ((threshold, 0.0), (guess, x), (u, 0.5)):
            if isinstance(given, np.ndarray):
                writable(given)[...] = wrong
        return np.zeros(len(x), dtype=np.bool_)

    m = PredictiveMechanism(PRIVACY, skips, Plane(), decision=overwrites)
    out = sanitize(m, np.full((6, 2), 5.0), np.arange(6.0), [0, 6], seed=1)
    assert out.kind.tolist() == ["hard", *["untested"] * 5]
    assert len(np.unique(out.value, axis=0)) == 1
    usual = PredictiveMechanism(PRIVACY, skips, Plane())
    same = sanitize(usual, np.full((6, 2), 5.0), np.arange(6.0), [0, 6], seed=1)
    assert np.array_equal(out.value, same.value), "the noise has its own numbers"


def test_an_answer_that_is_masked_is_none() -> None:
    def masked(
        space: Any, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Any:
        return np.ma.array(np.zeros(len(x), dtype=np.bool_), mask=True)

    with pytest.raises(PartError):
        mechanism(masked).session().report(SECRET, START)


def test_a_decision_and_its_former_name_are_not_given_together() -> None:
    def near(
        space: Any, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        return np.ones(len(x), dtype=np.bool_)

    with pytest.raises(hereish.ParameterError, match="former name"):
        PredictiveMechanism(PRIVACY, quarter, Plane(), decision=Plain(), test=near)
    with pytest.raises(hereish.ParameterError, match="former name"):
        hereish.fixed_rate(PRIVACY, 30, decision=near, test=near)


def test_results_can_be_sent_to_other_processes_whatever_the_test_is() -> None:
    def never(
        space: Any, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        return np.zeros(len(x), dtype=np.bool_)

    m = hereish.fixed_utility(hereish.Privacy(math.log(10), 100), 3000, decision=never)
    out = sanitize(m, [(60.0, 25.0)] * 3, range(3), [0, 3])
    assert np.array_equal(pickle.loads(pickle.dumps(out)).cost, out.cost)  # noqa: S301  # our own
