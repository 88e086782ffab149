"""What every prediction keeps, whichever it is: it sees public data alone, and the same bits.

Live, in batch, in pieces and after a restart; the same for two people who were forced to the same
releases; with the same few numbers per lane for ever. On every space that they work on: line,
plane, sphere, city blocks, vectors and roads. Exactly enumerated in test_lemma1_predictions, and on
vectors and roads in test_lemma1_vectors and test_lemma1_on_roads.
"""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import hereish
import hereish.domains
import hereish.roads
from hereish import (
    BudgetExhaustedError,
    KeyedDraws,
    Parrot,
    PredictiveMechanism,
    Run,
    Sanitized,
    Session,
    sanitize,
)
from hereish.core import batch
from hereish.core.prediction import FunctionPrediction
from hereish.core.step import decide, prepare
from hereish.core.types import Bools, Floats
from hereish.testing import FixedDraws
from tests.support.courses import PREDICTIONS, SPACES, cases, domains, mechanisms, travellers
from tests.support.whole_days import live, uniforms

CASES = cases()
LENGTHS = [0, 1, 60, 2, 45, 90, 50]  # the last among the streets of `courses`
# Of each prediction one case: the sphere's, or that of the space that it is for.
ONE_EACH = [
    *(f"{name}, sphere, noise first" for name in [*PREDICTIONS, "roads"]),
    *(f"{name}, noise first" for name in ("places, manhattan", "follow, vector l1")),
    *("parrot, vector l2, noise first", "roads, road network, laplace test"),
    "daily profile, vector of one, noise first",
    *domains(),
]
KEY = bytes(range(32))
MODULES = (hereish, hereish.domains, hereish.roads)


def same(one: Sanitized, other: Sanitized) -> bool:
    names = ("value", "released", "hard", "eps_test", "eps_noise", "threshold", "spent")
    return all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in names)


def same_run(one: Run, other: Run) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_live_pieces_and_other_cuts_give_the_bits_of_the_batch(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = CASES[case]
    data = travellers(m.space, LENGTHS)
    u = uniforms(m, len(data.at_s))
    out = sanitize(m, *data, uniforms=u, run=m.run(len(LENGTHS)))
    assert out.run is not None
    assert {"hard", "easy"} <= set(out.kind)
    for trace in (1, 2, 5, 6):
        rows = data.rows(trace)
        session = m.session(draws=FixedDraws(u[rows]))
        value, cost, kind = live(session, data.points[rows], data.at_s[rows])
        assert kind == out.kind[rows].tolist()
        assert value.tobytes() == out.value[rows].tobytes()
        assert cost.tobytes() == out.cost[rows].tobytes()
        assert same_run(session.run, out.run.take([trace])), "and the same is learnt"
    with monkeypatch.context() as cut:
        cut.setattr(batch, "LANES", 3)
        cut.setattr(batch, "POINTS", 12)
        assert same(out, sanitize(m, *data, uniforms=u))
    run = m.run(len(LENGTHS))
    for part in range(3):
        pieces = [
            np.arange(start, end)[(end - start) * part // 3 : (end - start) * (part + 1) // 3]
            for start, end in pairwise(data.offsets)
        ]
        own, offsets = np.concatenate(pieces), np.cumsum([0, *map(len, pieces)])
        piece = sanitize(m, data.points[own], data.at_s[own], offsets, uniforms=u[own], run=run)
        assert piece.value.tobytes() == out.value[own].tobytes()
        assert piece.run is not None
        run = piece.run
    assert same_run(run, out.run)


@pytest.mark.parametrize("case", CASES)
def test_a_saved_state_goes_on_and_keyed_draws_repeat(case: str) -> None:
    m = CASES[case]
    data = travellers(m.space, [60])
    whole, _, _ = live(m.session(seed=5), data.points, data.at_s)
    first = m.session(seed=5)
    before, _, _ = live(first, data.points[:37], data.at_s[:37])
    state = json.loads(json.dumps(first.to_state(), allow_nan=False))
    second = Session.from_state(m, state, seed=5)
    assert same_run(first.run, second.run)
    after, _, _ = live(second, data.points[37:], data.at_s[37:])
    assert np.concatenate([before, after]).tobytes() == whole.tobytes()
    keyed: dict[str, Any] = {"draws": KeyedDraws(KEY), "users": ["somebody"]}
    out = sanitize(m, *data, **keyed)
    assert same(out, sanitize(m, *data, **keyed))
    session = m.session(draws=KeyedDraws(KEY), user="somebody")
    assert live(session, data.points, data.at_s)[0].tobytes() == out.value.tobytes()


# Public data alone: two people who are forced to the same releases are guessed at alike.


class Forced:
    """In place of the decision's class: the first person's outcome, and then again."""

    def __init__(self, decision: Any) -> None:
        self.decision, self.outcome = decision, None

    def decide(self, decider: Any, space: Any, asked: Any, u: Floats) -> tuple[Bools, Floats]:
        outcome = self.outcome
        if outcome is None:
            outcome = self.outcome = self.decision.decide(decider, space, asked, u)
        else:
            self.outcome = None
        return outcome[0].copy(), outcome[1].copy()


def guessed_alike(m: PredictiveMechanism, peek: Any = None) -> bool:
    """Whether prepared steps and runs of two people who differ in secrets only are the same."""
    data = travellers(m.space, [70])
    u = uniforms(m, 70)
    run = other = m.run(1)
    forced, own = Forced(m.own_decision), m.own_decision
    object.__setattr__(m, "own_decision", forced)
    object.__setattr__(forced, "costs", own.costs)  # type: ignore[union-attr]  # it is ours
    try:
        for i, at in enumerate(data.at_s):
            at_s, results = np.array([at]), []
            x = data.points[i : i + 1]
            for secret, before in ((x, run), (x * 0.5 + 7.0, other)):
                if peek is not None:
                    peek(secret)
                prepared = prepare(m, before, at_s)
                release, after = decide(m, prepared, secret, u[i : i + 1])
                results.append((prepared, release, after))
            (one, _, run), (two, _, other) = results
            kept: list[Any] = [*one[1:], *run]
            for mine, theirs in zip(kept, [*two[1:], *other], strict=True):
                if np.asarray(mine).tobytes() != np.asarray(theirs).tobytes():
                    return False
    finally:
        object.__setattr__(m, "own_decision", own)
    return True


@pytest.mark.parametrize("case", CASES)
def test_guesses_and_what_is_learnt_follow_from_releases_alone(case: str) -> None:
    assert guessed_alike(CASES[case])


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("roads")])
def test_travellers_are_led_along_the_streets(case: str) -> None:
    """What the cases of roads are worth: some guesses that passed are another than the last."""
    m = CASES[case]
    data = travellers(m.space, LENGTHS)
    out = sanitize(m, *data, uniforms=uniforms(m, len(data.at_s)))
    rows = data.rows(6)
    moved = (np.diff(out.value[rows], axis=0) != 0.0).any(axis=1)
    assert (moved & (out.kind[rows][1:] == "easy")).any()


def test_a_prediction_that_has_the_secret_from_elsewhere_is_found_out() -> None:
    seen: list[Floats] = []

    @dataclass(frozen=True)
    class Peeking(Parrot):
        def __call__(self, run: Run, at_s: Floats, /) -> Floats:
            return run.value if not seen else np.where(run.value == run.value, seen[-1], np.nan)

    (m, *_) = mechanisms(Peeking(), SPACES["plane"]).values()
    assert not guessed_alike(m, seen.append)


# Constant work and space.


def calls_of(session: Session, point: Any, at: datetime) -> int:
    """How many calls, of Python and of C, one report makes."""
    counted = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        session.report(point, at)
    except BudgetExhaustedError:
        pass
    finally:
        sys.setprofile(before)
    return counted


def growth_of(m: PredictiveMechanism) -> tuple[float, bool]:
    """How many more calls the busiest reports make late than early; whether sizes stay."""
    data = travellers(m.space, [700])
    session = m.session(seed=1)
    calls, sizes = [], []
    for i, (point, at) in enumerate(zip(data.points.tolist(), data.at_s.tolist(), strict=True)):
        calls.append(calls_of(session, point, datetime.fromtimestamp(at, UTC)))
        if i % 10 == 0:
            sizes.append(len(json.dumps(session.to_state())))
    early, late = calls[50:250], calls[-200:]
    shapes = [(part.shape, part.dtype) for part in session.run]
    assert shapes == [(part.shape, part.dtype) for part in m.run(1)]
    return max(late) / max(early), max(sizes[-20:]) < 1.2 * max(sizes[5:25])


@pytest.mark.parametrize("case", ONE_EACH)
def test_a_report_takes_the_same_work_and_space_after_many(case: str) -> None:
    growth, same_size = growth_of(CASES[case])
    assert growth < 1.1
    assert same_size


def test_work_that_grows_would_show() -> None:
    past: list[float] = []

    @dataclass(frozen=True)
    class Hoarding(Parrot):
        def __call__(self, run: Run, at_s: Floats, /) -> Floats:
            past.append(float(at_s[0]))
            for at in past:
                abs(at)
            return run.value

    assert growth_of(mechanisms(Hoarding(), SPACES["plane"])["noise first"])[0] > 1.5


def shipped(*names: str) -> set[type]:
    """The public classes of hereish that have all of these, but for protocols and adapters."""
    public = [getattr(module, name) for module in MODULES for name in module.__all__]
    return {
        one
        for one in public
        if isinstance(one, type)
        and all(callable(getattr(one, name, None)) or name in vars(one) for name in names)
        and not (getattr(one, "_is_protocol", False) or inspect.isabstract(one))
    } - {FunctionPrediction}


def test_every_part_that_is_shipped_is_among_the_cases() -> None:
    """One that is added and forgotten here fails."""
    assert {type(m.space) for m in CASES.values()} == shipped("c_noise", "distance", "snap")
    assert {type(m.prediction) for m in CASES.values()} == {
        one for one in shipped("__call__") if {"memory", "needs_history"} <= set(dir(one))
    }
    built = {name for name in hereish.domains.__all__ if not name[0].isupper()}
    assert built == {"count_space", "dashboard", "smart_meter", "stream"}, "as `courses` has them"


@pytest.mark.parametrize("name", PREDICTIONS)
def test_settings_are_shown(name: str) -> None:
    one, other = (PREDICTIONS[name](space) for space in (SPACES["plane"], SPACES["line"]))
    m = mechanisms(one, SPACES["plane"])["noise first"]
    assert type(one).__name__ in m.fingerprint
    assert type(one).__name__ in repr(one)
    assert (repr(one) == repr(other)) == (name == "parrot")
