"""Linear: lines through noisy points, on every space; turns, silence, and those who stand still."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish import (
    Line,
    Linear,
    ParameterError,
    Parrot,
    PartError,
    Plane,
    PredictiveMechanism,
    Privacy,
    Run,
    Session,
    SkipBySpeed,
    Sphere,
    StateError,
    fixed_utility,
    sanitize,
)
from hereish.core.spaces import Space
from hereish.core.types import Floats
from tests.support.courses import SPACES, mechanisms, travellers
from tests.support.whole_days import uniforms

EPS = 0.01
SIGMA_M = math.sqrt(3.0) / EPS  # of its noise, along each axis
START_S = 1.75e9
steadily = settings(derandomize=True, deadline=None, max_examples=200)


def learn(linear: Linear, noisy: list[tuple[float, Any, float]]) -> Run:
    """What is known after fresh noise: seconds, places and epsilons."""
    dim = len(linear.space.coordinates)
    run = Run.empty(1, dim, width=linear.width)
    for at, point, eps in noisy:
        at_s = np.array([START_S + at])
        fresh = np.array(point, dtype=np.float64).reshape(1, dim)
        value, learnt = linear.update(run, np.arange(1), at_s, fresh, eps)
        np.testing.assert_array_equal(value, fresh, err_msg="noise is released as it was drawn")
        run = run._replace(values=value[:, None], times_s=at_s[:, None], learnt=learnt)
    return run


def guess(linear: Linear, run: Run, at: float) -> Floats:
    return np.asarray(linear(run, np.array([START_S + at]))[0])


@pytest.mark.parametrize("dim", [1, 2])
def test_it_is_the_weighted_regression_over_the_last_points(dim: int) -> None:
    rng = np.random.default_rng(5)
    linear = Linear(Line() if dim == 1 else Plane(), points=5, turn=50.0, sure=1e-6)
    for _ in range(20):
        at = np.sort(rng.uniform(0.0, 300.0, 8))
        points = 20.0 * at[:, None] * [1.0, -0.5][:dim] + rng.normal(0.0, 50.0, (8, dim))
        eps = rng.uniform(0.005, 0.05, 8)
        run = learn(linear, list(zip(at.tolist(), points, eps.tolist(), strict=True)))
        fits = [np.polyfit(at[-5:], points[-5:, i], 1, w=eps[-5:]) for i in range(dim)]
        expected = [np.polyval(fit, at[-1] + 17.0) for fit in fits]
        np.testing.assert_allclose(guess(linear, run, at[-1] + 17.0), expected, rtol=1e-6)


def degrees(metres: float) -> float:
    return math.degrees(metres / 6_371_008.8)


STRAIGHT: dict[str, tuple[Space, Any]] = {
    "line": (Line(), lambda s: (40.0 * s,)),
    "plane": (Plane(), lambda s: (30.0 * s, -20.0 * s)),
    "north": (Sphere(), lambda s: (60.0 + degrees(50.0 * s), 25.0)),
    "equator, over the antimeridian": (
        Sphere(),
        lambda s: (0.0, (179.99 + degrees(50.0 * s) + 180.0) % 360.0 - 180.0),
    ),
    "over the pole": (
        Sphere(),
        lambda s: (
            (89.99 + degrees(50.0 * s), 30.0)
            if 89.99 + degrees(50.0 * s) <= 90.0
            else (180.0 - 89.99 - degrees(50.0 * s), -150.0)
        ),
    ),
}


@pytest.mark.parametrize("where", STRAIGHT)
def test_it_goes_on_along_a_straight_course_wherever_that_leads(where: str) -> None:
    space, course = STRAIGHT[where]
    linear = Linear(space)
    run = learn(linear, [(10.0 * i, course(10.0 * i), 1.0) for i in range(4)])
    for ahead in (5.0, 30.0, 120.0):
        there = np.array([course(30.0 + ahead)])
        missed = space.distance(guess(linear, run, 30.0 + ahead)[None], there)
        assert missed[0] < 0.5, f"{ahead} s ahead"


def test_after_a_turn_the_last_release_is_repeated_and_then_the_new_course() -> None:
    linear = Linear(Plane())
    step_m = 8.0 * SIGMA_M
    before = [(10.0 * i, (step_m * i, 0.0), EPS) for i in range(4)]
    north = [(30.0 + 10.0 * i, (3.0 * step_m, step_m * i), EPS) for i in range(1, 5)]
    run = learn(linear, before)
    np.testing.assert_allclose(guess(linear, run, 40.0), (4.0 * step_m, 0.0), atol=1.0)
    corner = learn(linear, before + north[:1])
    np.testing.assert_array_equal(guess(linear, corner, 50.0), corner.value[0])
    run = learn(linear, before + north)
    np.testing.assert_allclose(guess(linear, run, 80.0), (3.0 * step_m, 5.0 * step_m), atol=1.0)


def test_noise_that_explains_it_is_no_turn() -> None:
    # The negative control: off the course by what the noise of one point in a hundred is.
    linear = Linear(Plane())
    points = [(10.0 * i, (2000.0 * i, 0.0), EPS) for i in range(4)]
    off = (40.0, (8000.0, 6.6 / EPS), EPS)
    run = learn(linear, [*points, off])
    assert guess(linear, run, 50.0)[0] > 9000.0


def test_somebody_who_may_not_move_at_all_is_where_the_last_release_says() -> None:
    linear = Linear(Plane())
    rng = np.random.default_rng(2)
    repeated = 0
    for _ in range(100):
        noisy = rng.normal(0.0, SIGMA_M, (4, 2))
        run = learn(linear, [(10.0 * i, point, EPS) for i, point in enumerate(noisy)])
        repeated += (guess(linear, run, 40.0) == run.value[0]).all()
    assert repeated >= 95  # a speed of three standard errors is one of about ninety


def test_what_is_long_ago_says_nothing() -> None:
    linear = Linear(Plane(), longest_s=100.0)
    course = [(10.0 * i, (1000.0 * i, 0.0), EPS) for i in range(4)]
    run = learn(linear, course)
    assert guess(linear, run, 129.0)[0] > 5000.0
    np.testing.assert_array_equal(guess(linear, run, 131.0), run.value[0])
    later = [(1000.0, (0.0, 0.0), EPS), (1010.0, (0.0, 2000.0), EPS)]
    run = learn(linear, course + later)
    np.testing.assert_allclose(guess(linear, run, 1020.0), (0.0, 4000.0), atol=1e-6)


def test_where_it_repeats_the_last_release_tests_are_skipped_as_for_a_parrot() -> None:
    privacy, skip = Privacy(math.log(10.0), 1.0), SkipBySpeed(5.0)
    still = np.zeros((50, 2))
    at_s = START_S + 60.0 * np.arange(50)
    outs = [
        sanitize(
            fixed_utility(privacy, 100.0, prediction=one, skip=skip, space=Plane()),
            still,
            at_s,
            [0, 50],
            seed=1,
        )
        for one in (Parrot(), Linear(Plane()))
    ]
    assert "untested" in outs[0].kind
    assert outs[0].value.tobytes() == outs[1].value.tobytes()
    # On a course each guess is another, and none is released untested.
    moving = np.column_stack([200.0 * np.arange(50.0), np.zeros(50)])
    m = fixed_utility(privacy, 100.0, prediction=Linear(Plane()), skip=skip, space=Plane())
    out = sanitize(m, moving, at_s, [0, 50], seed=1)
    changed = (out.value[1:] != out.value[:-1]).any(axis=1)
    assert np.count_nonzero(out.kind[1:][changed] == "easy") > 10
    assert "untested" not in out.kind[1:][changed]


@pytest.mark.parametrize("place", SPACES)
def test_on_straight_courses_far_fewer_reports_need_fresh_noise(place: str) -> None:
    space = SPACES[place]
    data = travellers(space, [120] * 20)
    hard = {}
    for name, one in (("parrot", Parrot()), ("linear", Linear(space))):
        m = mechanisms(one, space)["noise first"]
        out = sanitize(m, *data, uniforms=uniforms(m, len(data.at_s)))
        hard[name] = np.count_nonzero(out.hard)
    assert hard["linear"] < 0.85 * hard["parrot"]


@steadily
@given(
    st.sampled_from(sorted(SPACES)),
    st.lists(
        st.tuples(
            st.floats(0.0, 1e6),
            st.floats(0.0, 1.0),
            st.floats(0.0, 1.0),
            st.floats(-12.0, 3.0),
        ),
        min_size=1,
        max_size=7,
    ),
    st.floats(0.0, 1e9),
)
def test_whatever_is_released_guesses_are_places_and_states_are_sound(
    place: str, noisy: list[tuple[float, float, float, float]], later: float
) -> None:
    space = SPACES[place]
    linear = Linear(space, sure=1e-6, longest_s=1e9)
    low, high = (np.array([getattr(c, end) for c in space.coordinates]) for end in ("low", "high"))
    at, released = 0.0, []
    for wait, first, second, power in noisy:
        at += wait
        share = np.array([first, second][: len(low)])
        released.append((at, low + share * (high - low), 10.0**power))
    run = learn(linear, released)
    assert np.isfinite(run.learnt).all()
    assert linear.find_fault(run.learnt) is None
    there = guess(linear, run, at + later)
    assert ((there >= low) & (there <= high)).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"points": 2}, "points must be a whole number from 3"),
        ({"points": True}, "points must be a whole number from 3"),
        ({"turn": 0.0}, "turn"),
        ({"sure": -1.0}, "sure"),
        ({"longest_s": math.inf}, "longest_s"),
        ({"space": object()}, "works on a hereish.Sphere, Plane or Line"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Linear(**wrong)


def test_it_must_be_told_the_space_of_the_mechanism() -> None:
    with pytest.raises(PartError, match=r"write Linear\(space\)"):
        fixed_utility(Privacy(1.0, 1.0), 100.0, prediction=Linear(), space=Plane())
    with pytest.raises(PartError, match=r"write Linear\(space\)"):
        fixed_utility(
            Privacy(1.0, 1.0),
            100.0,
            prediction=Linear(Plane()),
            space=Line(),
            prediction_rate=0.9,
        )


def moving_session() -> tuple[PredictiveMechanism, Session]:
    m = mechanisms(Linear(Plane()), Plane())["noise first"]
    session = m.session(seed=1)
    for i in range(30):
        at = datetime(2026, 5, 5, 12, tzinfo=UTC) + timedelta(seconds=5 * i)
        session.report((150.0 * i, 0.0), at)
    return m, session


@pytest.mark.parametrize(
    ("at", "number", "message"),
    [(0, 1e301, "beyond"), (4, 1e300, "no time"), (8, -1.0, "less exact"), (5, 1e301, "beyond")],
)
def test_a_state_that_it_could_not_have_learnt_is_refused(
    at: int, number: float, message: str
) -> None:
    m, session = moving_session()
    state = session.to_state()
    Session.from_state(m, state)
    state["run"]["learnt"][at] = number
    with pytest.raises(StateError, match=message):
        Session.from_state(m, state)


def test_it_shows_its_settings() -> None:
    assert repr(Linear(Plane(), points=6)) == (
        "Linear(space=Plane(grid_m=1.0), points=6, turn=2.5, sure=3.0, longest_s=600.0)"
    )
    assert Linear(turn=2.0) != Linear()
    numbers = {fixed_utility(Privacy(1, 1), 9, prediction=Linear(sure=s)).number for s in (2.0, 3)}
    assert len(numbers) == 2
