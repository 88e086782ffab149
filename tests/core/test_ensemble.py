"""Ensemble: who is asked, how weights follow outcomes, and members that keep to themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

import hereish
from hereish import (
    Ensemble,
    Filter,
    Line,
    Linear,
    ParameterError,
    Parrot,
    PartError,
    Past,
    PlaceMemory,
    Plan,
    Plane,
    Prediction,
    Privacy,
    Run,
    Session,
    Sphere,
    StateError,
    fixed_utility,
    lift,
    sanitize,
)
from hereish.core.types import Floats
from tests.support.courses import SPACES, mechanisms, travellers
from tests.support.whole_days import uniforms

EPS = 0.01
START_S = 1.75e9


EAST = np.array([1.0, 0.0])


def east_of_last(metres: float) -> Prediction:
    def predict(run: Run, at_s: Floats) -> Floats:
        return run.value + metres * EAST

    return hereish.prediction(predict, needs_history=False)


def never(past: Sequence[Past], at_s: float) -> None:
    """No guess."""


def hard(ensemble: Ensemble, run: Run, at: float, point: Any, eps: float = EPS) -> Run:
    at_s = np.array([START_S + at])
    fresh = np.array([point], dtype=np.float64)
    value, learnt = ensemble.update(run, np.arange(1), at_s, fresh, eps)
    return run._replace(values=value[:, None], times_s=at_s[:, None], hard_at_s=at_s, learnt=learnt)


def easy(ensemble: Ensemble, run: Run, at: float) -> Run:
    at_s = np.array([START_S + at])
    guess, plan = ensemble(run, at_s), Plan(0.1 * EPS, EPS, 2.0 / EPS)
    learnt = ensemble.accepted(run, np.arange(1), at_s, guess, plan)
    return run._replace(values=guess[:, None], times_s=at_s[:, None], learnt=learnt)


def begin(ensemble: Ensemble) -> Run:
    run = Run.empty(1, 2, ensemble.memory, width=ensemble.width)
    return hard(ensemble, run, 0.0, (0.0, 0.0))


def asked(ensemble: Ensemble, run: Run, at: float = 60.0) -> int:
    return int(ensemble.asked(run, np.array([START_S + at]))[0])


def test_weights_are_what_the_noise_says_of_each_guess_and_a_share_is_dealt_anew() -> None:
    members = (Parrot(), east_of_last(300.0), east_of_last(-5000.0))
    ensemble = Ensemble(Plane(), members, rate=0.5, most=8.0, share=0.1, lead=2.0)
    run = begin(ensemble)
    expected = np.full(3, 1.0 / 3.0)
    np.testing.assert_allclose(ensemble.weights(run)[0], expected, err_msg="nothing is known yet")
    for i, step in enumerate((290.0, 310.0, 0.0, 450.0)):
        before = run.value[0]
        run = hard(ensemble, run, 60.0 * (i + 1), before + step * EAST)
        apart = np.abs(step - np.array([0.0, 300.0, -5000.0]))
        expected = expected * np.exp(-0.5 * np.minimum(EPS * apart, 8.0))
        expected = 0.9 * expected / expected.sum() + 0.1 / 3.0
        np.testing.assert_allclose(ensemble.weights(run)[0], expected, rtol=1e-9)


def test_the_first_is_asked_until_another_leads_and_again_when_it_is_no_better() -> None:
    ensemble = Ensemble(Plane(), (Parrot(), east_of_last(400.0)), lead=10.0)
    run = begin(ensemble)
    assert asked(ensemble, run) == 0, "of equals the first"
    run = hard(ensemble, run, 60.0, (180.0, 0.0))
    assert ensemble.weights(run)[0, 0] < 0.6
    assert asked(ensemble, run) == 0, "not by a little"
    for i in range(3):
        run = hard(ensemble, run, 120.0 + 60.0 * i, run.value[0] + 400.0 * EAST)
    assert asked(ensemble, run) == 1
    np.testing.assert_array_equal(ensemble(run, np.array([START_S + 1e3])), run.value + 400 * EAST)
    reports = 0
    while asked(ensemble, run) == 1:
        run = hard(ensemble, run, 600.0 + 60.0 * reports, run.value[0])
        reports += 1
    # By then the other's weight was all but a hundredth: a share of it had been dealt out.
    assert reports <= 2


def test_without_a_share_one_that_lost_for_long_is_long_not_back() -> None:
    def reports_until_back(share: float) -> int:
        ensemble = Ensemble(Plane(), (Parrot(), east_of_last(400.0)), share=share)
        run = begin(ensemble)
        for i in range(30):  # still
            run = hard(ensemble, run, 60.0 * i, run.value[0])
        reports = 0
        while asked(ensemble, run) == 0:
            run = hard(ensemble, run, 1e4 + 60.0 * reports, run.value[0] + 400.0 * EAST)
            reports += 1
        return reports

    assert reports_until_back(0.02) <= 3
    assert reports_until_back(1e-12) >= 8


def test_while_guesses_are_accepted_nothing_changes_but_what_members_learn() -> None:
    ensemble = Ensemble(Plane())
    run = begin(ensemble)
    for i in range(5):
        run = hard(ensemble, run, 10.0 * (i + 1), (500.0 * (i + 1), 0.0))
    after = easy(ensemble, run, 60.0)
    np.testing.assert_array_equal(ensemble.weights(after), ensemble.weights(run))
    assert ensemble.learns_from_easy, "as the filter does"
    assert after.learnt.tolist() != run.learnt.tolist()
    assert not Ensemble(members=(Parrot(), Linear())).learns_from_easy


def test_by_the_papers_rule_only_the_one_that_was_asked_wins_or_loses() -> None:
    ensemble = Ensemble(
        Plane(), (Parrot(), east_of_last(400.0)), rule="asked", share=1e-9, lead=1.5
    )
    run = Run.empty(1, 2, width=ensemble.width)
    np.testing.assert_allclose(ensemble.weights(run)[0], [0.5, 0.5])
    run = easy(ensemble, run._replace(values=np.zeros((1, 1, 2))), 60.0)
    np.testing.assert_allclose(ensemble.weights(run)[0, 0], math.e / (math.e + 1.0), rtol=1e-6)
    for i in range(2):
        run = hard(ensemble, run, 120.0 + 60.0 * i, run.value[0] + 400.0 * EAST)
    assert asked(ensemble, run) == 1, "it has lost more often than it has won"


def test_a_member_without_a_guess_is_not_asked() -> None:
    ensemble = Ensemble(Plane(), (lift(never), Parrot()))
    run = begin(ensemble)
    assert asked(ensemble, run) == 1
    run = hard(ensemble, run, 60.0, (5000.0, 0.0))
    assert asked(ensemble, run) == 1
    nobody = Ensemble(Plane(), (lift(never), lift(never)))
    assert np.isnan(nobody(begin(nobody), np.array([START_S]))).all()


@pytest.mark.parametrize("place", SPACES)
def test_members_learn_what_they_would_have_learnt_alone(place: str) -> None:
    # With outcomes forced: each report is hard, or the last release again.
    space = SPACES[place]
    alone: tuple[Any, ...] = (PlaceMemory(space), Linear(space), Filter(space))
    ensemble = Ensemble(space, (Parrot(), *alone))
    data = travellers(space, [40])
    runs = [Run.empty(1, len(space.coordinates), width=one.width) for one in (*alone, ensemble)]
    plan = Plan(0.1 * EPS, EPS, 2.0 / EPS)
    for i, at in enumerate(data.at_s):
        at_s, fresh, one_lane = np.array([at]), data.points[i : i + 1], np.arange(1)
        for number, tracker in enumerate((*alone, ensemble)):
            run = runs[number]
            if i % 4 == 3:
                value = run.value
                learnt = tracker.accepted(run, one_lane, at_s, value, plan)
            else:
                _, learnt = tracker.update(run, one_lane, at_s, fresh, EPS)
                value = fresh  # whatever they would release
                run = run._replace(hard_at_s=at_s)
            runs[number] = run._replace(
                values=value[:, None], times_s=at_s[:, None], tested_at_s=at_s, learnt=learnt
            )
        own = np.concatenate([run.learnt[0] for run in runs[:-1]])
        np.testing.assert_array_equal(runs[-1].learnt[0, 4:], own)


def test_what_the_one_that_is_asked_says_is_released_and_no_further_moved_than_declared() -> None:
    places, linear, course = PlaceMemory(Plane()), Linear(Plane()), Filter(Plane())
    ensemble = Ensemble(Plane(), (Parrot(), places, linear, course))
    assert ensemble.reach == max(places.reach, course.reach)
    assert Ensemble(Plane(), (Parrot(), linear)).reach == 0.0
    first = Ensemble(Plane(), (places, Parrot()))
    run = hard(first, begin(first), 3600.0, (100.0, 0.0))
    assert 20.0 < run.value[0, 0] < 80.0, "the mean of both, as the memory of places says"
    second = Ensemble(Plane(), (Parrot(), places))
    assert hard(second, begin(second), 3600.0, (100.0, 0.0)).value[0, 0] == 100.0


@pytest.mark.parametrize("place", SPACES)
def test_on_straight_courses_it_is_hardly_worse_than_the_best_member(place: str) -> None:
    space = SPACES[place]
    data = travellers(space, [120] * 20)
    counts = {}
    for name, one in (
        ("parrot", Parrot()),
        ("linear", Linear(space)),
        ("filter", Filter(space)),
        ("ensemble", Ensemble(space)),
    ):
        m = mechanisms(one, space)["noise first"]
        out = sanitize(m, *data, uniforms=uniforms(m, len(data.at_s)))
        counts[name] = np.count_nonzero(out.hard)
    best = min(counts["linear"], counts["filter"])
    assert counts["ensemble"] < 1.1 * best < 0.95 * counts["parrot"]


def test_for_somebody_who_stays_it_is_the_parrot_to_the_bit() -> None:
    data = np.random.default_rng(3).normal(0.0, 10.0, (400, 2))
    at_s = START_S + 60.0 * np.arange(400)
    outs = []
    for one in (Parrot(), Ensemble(Plane())):
        m = mechanisms(one, Plane())["laplace test"]
        outs.append(sanitize(m, data, at_s, [0, 400], uniforms=uniforms(m, 400)))
    assert outs[0].value.tobytes() == outs[1].value.tobytes()
    assert outs[0].cost.tobytes() == outs[1].cost.tobytes()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"members": (Parrot(),)}, "2 to 20 predictions"),
        ({"members": [Parrot(), Linear()]}, "members must be a tuple"),
        ({"rate": 0.0}, "rate"),
        ({"most": -1.0}, "most"),
        ({"share": 1.0}, "share must lie"),
        ({"share": 0.0}, "share must lie"),
        ({"lead": 0.5}, "lead be at least 1"),
        ({"rule": "best"}, "rule must be 'all' or 'asked'"),
        ({"space": object()}, r"works on a hereish\.Sphere, Plane or Line"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Ensemble(**wrong)


def test_members_are_looked_at_like_any_prediction() -> None:
    with pytest.raises(PartError, match="must declare memory"):
        Ensemble(members=(Parrot(), object()))  # type: ignore[arg-type]  # which is the point
    mixed = Ensemble(Plane(), (Parrot(), Linear(Line())))
    with pytest.raises(PartError, match=r"write Linear\(space\)"):
        fixed_utility(Privacy(1.0, 1.0), 100.0, prediction=mixed, space=Plane())
    with pytest.raises(PartError, match=r"write Ensemble\(space\)"):
        fixed_utility(
            Privacy(1.0, 1.0),
            100.0,
            prediction=Ensemble(Sphere(), (Parrot(), Parrot())),
            space=Plane(),
        )


def test_a_member_of_a_users_own_gets_copies_and_is_checked() -> None:
    given: list[Run] = []

    def writes(run: Run, at_s: Floats) -> Floats:
        given.append(run)
        return run.value

    ensemble = Ensemble(Plane(), (Parrot(), hereish.prediction(writes)))
    m = fixed_utility(Privacy(10.0, 1.0), 100.0, prediction=ensemble, space=Plane())
    session = m.session(seed=1)
    start = datetime(2026, 5, 5, 12, tzinfo=UTC)
    for minute in range(5):
        session.report((0.0, 0.0), start + timedelta(minutes=minute))
    kept = [field.tobytes() for field in session.run]
    for run in given:
        for field in run:
            base = field if field.base is None else field.base
            base.flags.writeable = True
            base[...] = np.zeros((), base.dtype)
    assert [field.tobytes() for field in session.run] == kept

    broken = Ensemble(Plane(), (Parrot(), hereish.prediction(lambda run, at_s: run.value[:0])))
    with pytest.raises(PartError):
        fixed_utility(Privacy(10.0, 1.0), 100.0, prediction=broken, space=Plane())


def test_a_state_that_it_could_not_have_learnt_is_refused() -> None:
    m = mechanisms(Ensemble(Plane()), Plane())["noise first"]
    data = travellers(Plane(), [30])
    session = m.session(seed=1)
    for point, at in zip(data.points.tolist(), data.at_s.tolist(), strict=True):
        session.report(point, datetime.fromtimestamp(at, UTC))
    Session.from_state(m, session.to_state())
    for at, number, message in ((0, 1.0, "weight"), (1, -1e9, "weight"), (-1, -1.0, "exactly")):
        state = session.to_state()
        state["run"]["learnt"][at] = number
        with pytest.raises(StateError, match=message):
            Session.from_state(m, state)


def test_it_shows_the_settings_of_all_its_members() -> None:
    one = Ensemble(Plane(), (Parrot(), Linear(Plane(), sure=2.5)), share=0.1)
    assert (
        "members=(Parrot(), Linear(space=Plane(grid_m=1.0), points=4, turn=2.5, sure=2.5"
        in repr(one)
    )
    numbers = {
        fixed_utility(Privacy(1.0, 1.0), 9.0, prediction=Ensemble(members=(Parrot(), two))).number
        for two in (Linear(), Linear(sure=2.5), Filter())
    }
    assert len(numbers) == 3
    assert repr(Ensemble(Plane()).members) == repr((Parrot(), Linear(Plane()), Filter(Plane())))
