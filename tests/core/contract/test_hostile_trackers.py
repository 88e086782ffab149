"""Predictions that learn, attacked: they write, keep, fail and answer nonsense.

They are given public data and noise that may be released, so whatever they answer is
post-processing. What they must not do is change what was released or spent, release a point off
the map, or carry a text that a part of them saw.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hereish import (
    BudgetExhaustedError,
    NoiseFirst,
    Parrot,
    PartError,
    Plan,
    Plane,
    PredictiveMechanism,
    Privacy,
    Run,
    Session,
    SkipBySpeed,
    Tracker,
    sanitize,
)
from hereish.core.step import decide, prepare
from hereish.core.types import Bools, Floats, Ints, PerLane
from hereish.testing import FixedDraws
from tests.support.whole_days import SPACES, people, presets, uniforms

START = datetime(2026, 5, 5, 12, tzinfo=UTC)
TOTAL = 0.02
Answer = Callable[[Run, Ints, Floats, Floats, PerLane], Any]


def as_told(run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps: PerLane) -> Any:
    return fresh, run.learnt[lanes] + 1.0


@dataclass
class Own(Tracker):
    """A prediction that learns, of a user's own."""

    answer: Answer = as_told
    guess: Callable[[Run, Floats], Any] = lambda run, at_s: run.value
    numbers: int = 2
    memory = 1
    needs_history = True
    reach = 0.0

    @property
    def width(self) -> int:
        return self.numbers

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        return self.guess(run, at_s)  # type: ignore[no-any-return]  # which may be anything

    def update(
        self, run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps_noise: PerLane, /
    ) -> Any:
        return self.answer(run, lanes, at_s, fresh, eps_noise)


@dataclass(frozen=True)
class OwnRemap:
    """A remapping of a user's own."""

    answer: Callable[[Floats, PerLane], Any]
    name: Any = "mine"
    max_shift: float = 1.0

    def __call__(self, z: Floats, eps: PerLane) -> Any:
        return self.answer(z, eps)


def always_hard(run: Run, at_s: Floats, /) -> Plan:
    return Plan(0.0, TOTAL / 50, -math.inf)


def build(tracker: Any, budget: Any = always_hard, **rest: Any) -> PredictiveMechanism:
    given = {"space": Plane(), "decision": NoiseFirst(), **rest}
    return PredictiveMechanism(Privacy(TOTAL * 100.0, 100.0), budget, prediction=tracker, **given)


def report(session: Session, minute: int = 0, x: tuple[float, ...] = (0.0, 0.0)) -> Any:
    return session.report(x, START + timedelta(minutes=minute))


WRONG: dict[str, Answer] = {
    "nothing": lambda run, lanes, at_s, fresh, eps: None,
    "points alone": lambda run, lanes, at_s, fresh, eps: fresh,
    "a list of both": lambda run, lanes, at_s, fresh, eps: [fresh, run.learnt[lanes]],
    "three": lambda run, lanes, at_s, fresh, eps: (fresh, run.learnt[lanes], fresh),
    "NaN points": lambda run, lanes, at_s, fresh, eps: (fresh * np.nan, run.learnt[lanes]),
    "infinite points": lambda run, lanes, at_s, fresh, eps: (fresh + np.inf, run.learnt[lanes]),
    "points off the map": lambda run, lanes, at_s, fresh, eps: (fresh + 1e300, run.learnt[lanes]),
    "one number for a point": lambda run, lanes, at_s, fresh, eps: (5.0, run.learnt[lanes]),
    "too many points": lambda run, lanes, at_s, fresh, eps: (
        np.zeros((len(fresh) + 1, 2)),
        run.learnt[lanes],
    ),
    "points of another space": lambda run, lanes, at_s, fresh, eps: (
        fresh[:, :1],
        run.learnt[lanes],
    ),
    "texts": lambda run, lanes, at_s, fresh, eps: ([["a", "b"]], run.learnt[lanes]),
    "objects": lambda run, lanes, at_s, fresh, eps: (object(), object()),
    "NaN learnt": lambda run, lanes, at_s, fresh, eps: (fresh, run.learnt[lanes] * np.nan),
    "infinite learnt": lambda run, lanes, at_s, fresh, eps: (fresh, run.learnt[lanes] - np.inf),
    "too much learnt": lambda run, lanes, at_s, fresh, eps: (fresh, np.zeros((len(fresh), 3))),
    "all lanes learnt": lambda run, lanes, at_s, fresh, eps: (fresh, np.zeros((99, 2))),
    "a row learnt": lambda run, lanes, at_s, fresh, eps: (fresh, np.zeros(2)),
    "texts learnt": lambda run, lanes, at_s, fresh, eps: (fresh, [["a", "b"]] * len(fresh)),
    "huge integers learnt": lambda run, lanes, at_s, fresh, eps: (fresh, [[10**400, 0]]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_answer_is_refused_and_paid_for(wrong: str) -> None:
    answers: list[Answer] = [as_told, as_told, WRONG[wrong]]

    def answer(*given: Any) -> Any:
        return answers.pop(0)(*given)

    session = build(Own(answer)).session(seed=1)
    report(session, 0)
    report(session, 1)
    before = session.run
    with pytest.raises(PartError, match="nothing was released"):
        report(session, 2, (1234567.0, 7654321.0))
    assert session.run.learnt.tolist() == before.learnt.tolist(), "nothing was learnt"
    assert session.spent == 1.5 * before.spent[0]
    Session.from_state(session.mechanism, session.to_state())


def test_noise_that_a_part_has_seen_is_paid_even_if_it_then_fails() -> None:
    # Otherwise it could look at one noise after the other, fail each time, and take their mean.
    seen: list[Floats] = []

    def looks(z: Floats, eps: PerLane) -> Any:
        seen.append(z)
        raise KeyboardInterrupt if len(seen) % 2 else RuntimeError

    def fails(run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps: PerLane) -> Any:
        looks(fresh, eps)

    def budget_of(m: PredictiveMechanism) -> int:
        seen.clear()
        session = m.session(seed=1)
        for minute in range(200):
            with pytest.raises((PartError, KeyboardInterrupt, BudgetExhaustedError)):
                report(session, minute)
        return len(seen)

    assert budget_of(build(Own(fails))) == 50
    assert budget_of(build(Parrot(), remap=OwnRemap(looks))) == 50


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_answer_in_a_batch_leaves_the_callers_run_as_it_is(wrong: str) -> None:
    m = build(Own())
    run = sanitize(m, np.zeros((6, 2)), np.arange(6.0), [0, 3, 6], seed=1, run=m.run(2)).run
    assert run is not None
    before = [kept.tobytes() for kept in run]
    object.__setattr__(m.prediction, "answer", WRONG[wrong])
    with pytest.raises(PartError, match="nothing was released"):
        sanitize(m, np.zeros((6, 2)), np.arange(6.0) + 9.0, [0, 3, 6], seed=1, run=run)
    assert before == [kept.tobytes() for kept in run]


def test_a_text_of_its_own_does_not_get_out() -> None:
    class TellingError(Exception):
        pass

    def fails(run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps: PerLane) -> Any:
        raise TellingError(f"noise at {fresh[0].tolist()}")

    with pytest.raises(PartError, match="nothing was released") as failure:
        report(build(Own(fails)).session(seed=1))
    assert "noise at" not in str(failure.value)


def test_it_cannot_write_to_the_run_and_what_it_keeps_is_a_copy() -> None:
    kept: list[Any] = []

    def hoards(run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps: PerLane) -> Any:
        for shown in (*run, lanes, at_s, fresh):
            assert not shown.flags.writeable
            assert shown.base is None
        rows = run.learnt[lanes] + 1.0
        points = fresh.copy()
        kept.append((run, fresh, points, rows))
        return points, rows

    for session in (build(Own(hoards)).session(seed=1), build(Own(hoards)).session(seed=1)):
        one, spent = report(session, 0), session.spent
        for run, fresh, points, rows in kept:
            for shown in (*run, fresh):
                shown.flags.writeable = True
                shown[...] = np.zeros((), shown.dtype)
            points[...] = 77.0
            rows[...] = -5.0
        assert session.spent == spent
        assert session.run.value[0].tolist() == list(one.value)
        assert session.run.learnt.tolist() == [[1.0, 1.0]]


def test_views_of_the_run_that_it_returns_are_not_what_is_kept() -> None:
    def views(run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps: PerLane) -> Any:
        return fresh, run.learnt  # as it was, not a copy

    m = build(Own(views))
    out = sanitize(m, np.zeros((8, 2)), np.arange(8.0), [0, 4, 8], seed=1, run=m.run(2))
    assert out.run is not None
    assert not out.run.learnt.any()
    assert out.released.all()


def test_no_answer_passes_the_budget() -> None:
    def generous(run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps: PerLane) -> Any:
        for shown in run:
            shown.flags.writeable = True
            shown[...] = np.zeros((), shown.dtype)
        return fresh * 0.0, run.learnt[lanes]

    m = build(Own(generous))
    out = sanitize(m, np.zeros((200, 2)), np.arange(200.0), [0, 200], seed=1)
    assert sum(map(Fraction, out.cost.tolist())) <= Fraction(TOTAL)
    assert np.count_nonzero(out.released) == 50
    assert not out.value[out.released].any(), "it may say what it likes"


@pytest.mark.parametrize("width", [-1, 1.5, True, "2", None])
def test_a_width_that_is_none_is_refused_when_the_parts_are_joined(width: Any) -> None:
    with pytest.raises(PartError, match="must declare width"):
        build(Own(numbers=width))


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf, None, "far"])
def test_how_far_noise_is_moved_must_be_declared_as_a_number(wrong: Any) -> None:
    class Reaching(Own):
        reach = wrong

    with pytest.raises(PartError, match="must declare reach"):
        build(Reaching())
    with pytest.raises(PartError, match="must declare max_shift"):
        build(Own(), remap=OwnRemap(lambda z, eps: z, max_shift=wrong))
    with pytest.raises(PartError, match="must declare name"):
        build(Own(), remap=OwnRemap(lambda z, eps: z, name=None if wrong == "far" else wrong))


# What is learnt is a function of what was released.


@dataclass
class Recording(Own):
    """Keeps what it was given."""

    seen: list[bytes] = field(default_factory=list)

    def update(self, *given: Any) -> Any:
        flat = [part for each in given for part in (each if isinstance(each, Run) else [each])]
        self.seen.append(b"".join(np.asarray(part).tobytes() for part in flat))
        return super().update(*given)


class Shifted(Plane):
    """Noise that takes every secret to the same place, given the same uniforms."""

    def unrounded_noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return super().unrounded_noise(np.zeros_like(x), eps, u)


def test_two_secrets_with_the_same_releases_leave_the_same_public_state() -> None:
    states, seen = [], []
    for x in ((0.0, 0.0), (5e5, -5e5)):
        tracker = Recording()
        m = build(tracker, space=Shifted())
        seen.append(tracker.seen)
        session = m.session(draws=FixedDraws(uniforms(m, 20)))
        prepared = []
        for minute in range(20):
            at_s = np.array([(START + timedelta(minutes=minute)).timestamp()])
            prepared.append(
                [np.asarray(part).tobytes() for part in prepare(m, session.run, at_s)[1:]]
            )
            report(session, minute, x)
        states.append(([kept.tobytes() for kept in session.run], prepared))
    assert states[0] == states[1]
    assert seen[0] == seen[1]


@pytest.mark.parametrize("place", SPACES)
def test_guess_plan_and_memory_of_a_preset_follow_from_its_releases_alone(place: str) -> None:
    # Two people are forced to the same releases: the second is given the outcomes of the first.
    for name, m in presets(SPACES[place]).items():
        data = people(m.space, [60], 5)
        u = uniforms(m, 60)
        run = other = m.run(1)
        for i, at in enumerate(data.at_s):
            at_s = np.array([at])
            prepared, again = prepare(m, run, at_s), prepare(m, other, at_s)
            for one, two in zip(prepared[1:], again[1:], strict=True):
                assert np.asarray(one).tobytes() == np.asarray(two).tobytes(), name
            outcome: list[Any] = []

            def recorded(
                space: Any, asked: Any, u: Floats, outcome: list[Any] = outcome
            ) -> tuple[Bools, Floats]:
                outcome[:] = NoiseFirst().decide(space, asked, u)
                return outcome[0].copy(), outcome[1].copy()

            def repeated(
                space: Any, asked: Any, u: Floats, outcome: list[Any] = outcome
            ) -> tuple[Bools, Floats]:
                return outcome[0].copy(), outcome[1].copy()

            x = data.points[i : i + 1]
            elsewhere = x[:, ::-1] * 0.5 + 7.0
            results = []
            for secret, before, how in ((x, prepared, recorded), (elsewhere, again, repeated)):
                object.__setattr__(m, "own_decision", Fixed(how))
                results.append(decide(m, before, secret, u[i : i + 1]))
            object.__setattr__(m, "own_decision", NoiseFirst)
            (one_release, run), (two_release, other) = results
            kept: list[Any] = [*one_release, *run]
            for mine, theirs in zip(kept, [*two_release, *other], strict=True):
                assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes(), name


class Fixed:
    """In place of the decision's class: the outcome is fixed."""

    def __init__(self, how: Callable[..., tuple[Bools, Floats]]) -> None:
        self.how = how

    def decide(self, decider: Any, space: Any, asked: Any, u: Floats) -> tuple[Bools, Floats]:
        return self.how(space, asked, u)


# A guess that has changed is tested.


def skip_all(run: Run, at_s: Floats, plan: Plan, /) -> Bools:
    yes = np.ones(len(at_s), dtype=np.bool_)
    yes.setflags(write=False)  # what it returns is its own
    return yes


def asks(run: Run, at_s: Floats, /) -> Plan:
    return Plan(TOTAL / 1000, TOTAL / 100, 50.0)


def returns_home(run: Run, at_s: Floats) -> Floats:
    """The last release, and at every third report another place."""
    third = (run.reports % 3 == 0)[:, None] & (run.value == run.value)
    return np.where(third, run.value + 1000.0, run.value)


@pytest.mark.parametrize("skip", [skip_all, SkipBySpeed(1000.0, 1e9)], ids=["always", "by speed"])
def test_no_test_is_skipped_right_after_the_guess_has_changed(skip: Any) -> None:
    m = build(Own(guess=returns_home), asks, skip=skip)
    u = uniforms(m, 60)
    u[:, 0] = 2.0**-53  # every test passes
    u[0, 1:] = 0.5
    out = sanitize(m, np.zeros((60, 2)), np.arange(60.0), [0, 60], uniforms=u)
    changed = np.zeros(60, dtype=np.bool_)
    changed[1:] = (out.value[1:] != out.value[:-1]).any(axis=1)
    assert set(out.kind[changed]) == {"easy"}
    assert set(out.kind[1:][~changed[1:]]) == {"untested"}
    assert np.count_nonzero(changed) == 19


def test_a_manager_that_asks_for_no_test_repeats_the_last_release() -> None:
    def quiet(run: Run, at_s: Floats, /) -> Plan:
        return Plan(TOTAL / 1000, TOTAL / 100, np.where(run.reports % 2 == 1, np.inf, 50.0))

    m = build(Own(guess=lambda run, at_s: run.value + 1000.0), quiet)
    u = uniforms(m, 40)
    u[:, 0] = 2.0**-53
    out = sanitize(m, np.zeros((40, 2)), np.arange(40.0), [0, 40], uniforms=u)
    untested = np.flatnonzero(out.kind == "untested")
    assert len(untested) > 10
    np.testing.assert_array_equal(out.value[untested], out.value[untested - 1])
    easy = np.flatnonzero(out.kind == "easy")
    assert len(easy) > 10
    np.testing.assert_array_equal(out.value[easy], out.value[easy - 1] + 1000.0)
