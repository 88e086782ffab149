"""Predictions that learn where a guess was accepted: what they are shown, and what they answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from hereish import (
    NoiseFirst,
    PartError,
    PlaceMemory,
    Plan,
    Plane,
    PredictiveMechanism,
    Privacy,
    Run,
    Session,
    Tracker,
    sanitize,
)
from hereish.core.types import Floats, Ints, PerLane
from hereish.testing import FixedDraws
from tests.support.whole_days import live, uniforms

START = datetime(2026, 5, 5, 12, tzinfo=UTC)
TOTAL = 0.02
Answer = Callable[[Run, Ints, Floats, Floats, Plan], Any]


def count_easy(run: Run, lanes: Ints, at_s: Floats, guess: Floats, plan: Plan) -> Any:
    return run.learnt[lanes] + [0.0, 1.0]


@dataclass
class Counting(Tracker):
    """How many noises, and how many accepted guesses; keeps what it was shown of these."""

    answer: Answer = count_easy
    shown: list[tuple[Any, ...]] = field(default_factory=list)
    memory = 1
    needs_history = True
    width = 2
    reach = 0.0

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        return run.value

    def update(
        self, run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps_noise: PerLane, /
    ) -> tuple[Floats, Floats]:
        return fresh, run.learnt[lanes] + [1.0, 0.0]

    def accepted(self, run: Run, lanes: Ints, at_s: Floats, guess: Floats, plan: Plan, /) -> Floats:
        self.shown.append((run, lanes, at_s, guess, plan))
        return self.answer(run, lanes, at_s, guess, plan)  # type: ignore[no-any-return]  # or not


def by_turns(run: Run, at_s: Floats, /) -> Plan:
    """A test, and at every third report none; the second lane's budget ends."""
    spare = np.arange(len(at_s)) == 1
    return Plan(
        TOTAL / 500,
        np.where(spare, TOTAL / 3, TOTAL / 100),
        np.where(run.reports % 3 == 2, np.inf, 300.0),
    )


def build(tracker: Tracker, **rest: Any) -> PredictiveMechanism:
    given = {"space": Plane(), "decision": NoiseFirst(), "on_exhausted": "predict", **rest}
    return PredictiveMechanism(Privacy(TOTAL * 100.0, 100.0), by_turns, prediction=tracker, **given)


def walk(steps: int) -> Floats:
    moves = np.random.default_rng(3).normal(0.0, 60.0, (steps, 2))
    return np.asarray(np.cumsum(moves, axis=0))


def test_it_is_shown_every_guess_that_passed_a_test_and_nothing_else() -> None:
    tracker = Counting()
    m = build(tracker)
    traces, steps = 3, 60
    points = np.tile(walk(steps), (traces, 1))
    at_s = np.tile(60.0 * np.arange(steps), traces)
    out = sanitize(m, points, at_s, steps * np.arange(traces + 1), seed=1, run=m.run(traces))
    kind = out.kind.reshape(traces, steps)
    assert set(kind[0]) == {"hard", "easy", "untested"}
    assert "untested" in kind[1, -3:], "its budget has ended"
    easy = {(lane, float(60.0 * step)) for lane, step in np.argwhere(kind == "easy").tolist()}
    seen = set()
    for run, lanes, times, guess, plan in tracker.shown:
        for row, lane in enumerate(lanes.tolist()):
            at = float(times[row])
            seen.add((lane, at))
            place = lane * steps + round(at / 60.0)
            np.testing.assert_array_equal(guess[row], out.value[place])
            for name in ("eps_test", "eps_noise", "threshold"):
                number = np.broadcast_to(getattr(plan, name), len(lanes))[row]
                assert number == getattr(out, name)[place]
            assert run.at_s[lane] < at, "the run is as it was before"
    assert seen == easy
    assert out.run is not None
    np.testing.assert_array_equal(out.run.learnt[:, 0], (kind == "hard").sum(axis=1))
    np.testing.assert_array_equal(out.run.learnt[:, 1], (kind == "easy").sum(axis=1))


def test_what_it_is_shown_are_copies_that_cannot_be_written_to() -> None:
    tracker = Counting()
    session = build(tracker).session(seed=1)
    for minute in range(30):
        session.report((0.0, 0.0), START + timedelta(minutes=minute))
    assert tracker.shown
    before = session.run
    for run, lanes, at_s, guess, _ in tracker.shown:
        for shown in (*run, lanes, at_s, guess):
            assert not shown.flags.writeable
            assert shown.base is None
            shown.flags.writeable = True
            shown[...] = np.zeros((), shown.dtype)
    assert [kept.tobytes() for kept in session.run] == [kept.tobytes() for kept in before]
    assert session.spent > 0.0


WRONG: dict[str, Answer] = {
    "nothing": lambda run, lanes, at_s, guess, plan: None,
    "points as well": lambda run, lanes, at_s, guess, plan: (guess, run.learnt[lanes]),
    "NaN": lambda run, lanes, at_s, guess, plan: run.learnt[lanes] * np.nan,
    "infinite": lambda run, lanes, at_s, guess, plan: run.learnt[lanes] - np.inf,
    "too much": lambda run, lanes, at_s, guess, plan: np.zeros((len(lanes), 3)),
    "all lanes": lambda run, lanes, at_s, guess, plan: np.zeros((99, 2)),
    "texts": lambda run, lanes, at_s, guess, plan: [["a", "b"]] * len(lanes),
    "an error": lambda run, lanes, at_s, guess, plan: 1 / 0,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_answer_is_refused_and_the_accepted_guess_paid_for(wrong: str) -> None:
    tracker = Counting()
    session = build(tracker).session(seed=1)
    session.report((0.0, 0.0), START)
    tracker.answer = WRONG[wrong]
    before, minute, refused = session.run, 1, []
    while session.run.easy[0] == before.easy[0]:
        learnt, spent = session.run.learnt, session.spent
        try:
            session.report((0.0, 0.0), START + timedelta(minutes=minute))
        except PartError as broken:
            refused.append(str(broken))
        minute += 1
        assert minute < 50, "a guess is accepted now and then"
    assert session.run.learnt.tolist() == learnt.tolist(), "nothing was learnt"
    assert session.spent > spent, "and it was paid"
    assert ["nothing was released" in text for text in refused] == [True]
    Session.from_state(session.mechanism, session.to_state())


def test_live_and_batch_learn_the_same() -> None:
    m = build(Counting())
    u = uniforms(m, 60)
    out = sanitize(m, walk(60), 60.0 * np.arange(60), [0, 60], uniforms=u, run=m.run(1))
    session = m.session(draws=FixedDraws(u))
    value, _, kind = live(session, walk(60), 60.0 * np.arange(60.0))
    assert value.tobytes() == out.value.tobytes()
    assert {"hard", "easy", "untested"} == set(kind)
    assert out.run is not None
    assert session.run.learnt.tobytes() == out.run.learnt.tobytes()


def test_one_that_has_none_is_not_asked() -> None:
    @dataclass
    class Deaf(Counting):
        accepted = Tracker.accepted

    assert build(Counting()).learns_from_easy
    assert not build(PlaceMemory(Plane())).learns_from_easy
    m = build(Deaf())
    assert not m.learns_from_easy
    out = sanitize(m, walk(60), 60.0 * np.arange(60), [0, 60], seed=1, run=m.run(1))
    assert out.run is not None
    assert "easy" in out.kind
    assert out.run.learnt[0, 1] == 0.0
    assert math.isclose(out.run.learnt[0, 0], np.count_nonzero(out.hard))
