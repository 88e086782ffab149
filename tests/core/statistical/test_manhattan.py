"""City blocks: the law of `Manhattan`, what its releases tell, and mechanisms on it."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from hereish import (
    BudgetExhaustedError,
    LaplaceTest,
    Manhattan,
    PredictiveMechanism,
    Privacy,
    SeededDraws,
    fixed_utility,
    independent,
    sanitize,
    whole_day,
)
from hereish.core.types import Floats, Ints
from tests.support.laws import (
    ALPHA,
    binomial_p,
    cells_p,
    gamma_sum_p,
    joint_p,
    ratio_p,
    smallest_distance,
    smallest_ratio,
    smallest_scale_error,
    uniform_p,
    uniforms,
)

N = 400_000
EPS = 1e-3


SPACE = Manhattan()


def _offsets(eps: float = EPS) -> Floats:
    x = np.tile([35.25, -70.5], (N, 1))
    return np.asarray(SPACE.noise(x, eps, uniforms(301, N, 4)) - x)


def _survival(distance: Floats) -> Floats:
    return np.asarray((1.0 + distance) * np.exp(-distance))


def test_the_way_to_the_release_is_gamma() -> None:
    """n = 400,000, alpha = 1e-6. Seen: noise 1.1 % off, or a distribution function 0.0086 off."""
    assert smallest_scale_error(2 * N).high < 1.011
    assert smallest_distance(N) < 0.0086
    way = np.abs(_offsets()).sum(axis=1) * EPS
    assert gamma_sum_p(float(way.sum()), 2 * N) >= ALPHA
    assert uniform_p(_survival(way)) >= ALPHA


@pytest.mark.parametrize("factor", smallest_scale_error(2 * N))
def test_too_little_and_too_much_noise_is_rejected(factor: float) -> None:
    way = np.abs(_offsets(EPS / factor)).sum(axis=1) * EPS
    assert gamma_sum_p(float(way.sum()), 2 * N) < ALPHA


def test_every_corner_is_as_likely_and_the_corner_says_nothing_of_the_way() -> None:
    """n = 400,000: on the diamond of equal ways, the place along its rim is uniform."""
    east, north = _offsets().T
    way = np.abs(east) + np.abs(north)
    # An angle that is uniform on a diamond: a quarter turn for each side, linear along it.
    along = np.where(north >= 0, 1.0 - east / way, 3.0 + east / way) * (math.pi / 2)
    assert joint_p(_survival(way * EPS), along) >= ALPHA
    assert joint_p(_survival(way * EPS), np.arctan2(north, east)) < ALPHA, "it is not a circle"


def test_the_quantile_of_the_way_is_the_stated_constant() -> None:
    way = np.abs(_offsets()).sum(axis=1)
    within = int((way <= SPACE.c_noise(0.9) / EPS).sum())
    assert binomial_p(within, N, 0.9) >= ALPHA
    assert binomial_p(within, N, 0.91) < ALPHA
    assert binomial_p(within, N, 0.89) < ALPHA


# Streets of 4 m and noise of 5 m: a handful of corners, each with a chance known exactly.
TOWN, NEAR_EPS, CORNERS = Manhattan(grid_m=4.0), 0.2, 4.0 * np.arange(-4, 5)


def _shares(secret: tuple[float, float], eps: float) -> Floats:
    """The exact chance of each corner; the last is that of all others together."""
    edges = np.append(CORNERS, CORNERS[-1] + 4.0) - 2.0

    def street(at: float) -> Floats:
        tail = 0.5 * np.exp(-eps * np.abs(edges - at))
        return np.diff(np.where(edges < at, tail, 1.0 - tail))

    inner = np.outer(street(secret[0]), street(secret[1])).ravel()
    return np.append(inner, 1.0 - inner.sum())


def _counts(secret: tuple[float, float], eps: float, seed: int) -> Ints:
    releases = TOWN.noise(np.tile(secret, (N, 1)), eps, uniforms(seed, N, 4))
    column, row = ((releases - CORNERS[0]) / 4.0).astype(np.int64).T
    side = len(CORNERS)
    inside = (releases >= CORNERS[0]).all(axis=1) & (releases <= CORNERS[-1]).all(axis=1)
    return np.bincount(np.where(inside, column * side + row, side**2), minlength=side**2 + 1)


NEIGHBOURS = [
    ((0.0, 0.0), (1.0, 0.0)),
    ((0.3, -0.7), (1.1, 0.9)),
    ((0.0, 0.0), (-3.0, 3.0)),
]


@pytest.mark.parametrize(("a", "b"), NEIGHBOURS)
def test_the_exact_chance_of_each_release_obeys_the_bound_in_the_metric(
    a: tuple[float, float], b: tuple[float, float]
) -> None:
    """Not statistical: the chances of the 81 corners and of the rest, which are checked below."""
    level = NEAR_EPS * float(SPACE.distance(np.array([a]), np.array([b]))[0])
    loss = np.abs(np.log(_shares(a, NEAR_EPS)[:-1] / _shares(b, NEAR_EPS)[:-1]))
    assert loss.max() <= level + 1e-12
    assert loss.max() > 0.9 * level, "the bound is used up somewhere"


@pytest.mark.parametrize(("a", "b"), NEIGHBOURS)
def test_releases_have_these_chances_and_their_frequencies_obey_the_bound(
    a: tuple[float, float], b: tuple[float, float]
) -> None:
    """n = 400,000 for each secret, alpha = 1e-6, 82 cells; a fifth more than the bound is seen."""
    level = NEAR_EPS * float(SPACE.distance(np.array([a]), np.array([b]))[0])
    of_a, of_b = _counts(a, NEAR_EPS, 302), _counts(b, NEAR_EPS, 303)
    assert cells_p(of_a, _shares(a, NEAR_EPS)) >= ALPHA
    assert cells_p(of_b, _shares(b, NEAR_EPS)) >= ALPHA
    assert cells_p(of_a, _shares(b, NEAR_EPS)) < ALPHA, "control: the other secret's chances"
    assert cells_p(of_a, _shares(a, NEAR_EPS * 1.02)) < ALPHA, "control: 2 % too little noise"
    assert smallest_ratio(int((of_a + of_b).max()), 82, math.exp(level)) < 1.2 * math.exp(level)
    assert ratio_p(of_a, of_b, math.exp(level)) >= ALPHA
    loud = _counts(a, 2 * NEAR_EPS, 304), _counts(b, 2 * NEAR_EPS, 305)
    assert ratio_p(*loud, math.exp(level)) < ALPHA, "control: half the noise"


def _walk(steps: int) -> tuple[Floats, list[datetime]]:
    start = datetime(2024, 5, 1, 8, tzinfo=UTC)
    ways = np.cumsum(uniforms(306, steps, 2) * 200.0 - 100.0, axis=0)
    return ways, [start + timedelta(minutes=5 * i) for i in range(steps)]


def _mechanisms() -> dict[str, PredictiveMechanism]:
    privacy = Privacy(math.log(10), 100.0)
    return {
        "fixed utility": fixed_utility(privacy, 3000.0, space=Manhattan()),
        "independent": independent(privacy, reports=20, space=Manhattan()),
        "whole day": whole_day(privacy, space=Manhattan()),
    }


@pytest.mark.parametrize("name", _mechanisms())
def test_a_mechanism_in_this_space_gives_the_same_releases_live_and_in_batch(name: str) -> None:
    mechanism = _mechanisms()[name]
    points, times = _walk(20)
    drawn = SeededDraws(307).uniforms(20 * mechanism.uniforms).reshape(20, -1)
    batch = sanitize(mechanism, points, [at.timestamp() for at in times], [0, 20], uniforms=drawn)
    session = mechanism.session(seed=307)
    live = []
    for point, at in zip(points, times, strict=True):
        try:
            live.append(session.report(point, at).value)
        except BudgetExhaustedError:
            break
    assert len(live) == batch.released.sum() >= 12
    assert np.array_equal(live, batch.value[: len(live)])
    assert np.array_equal(SPACE.snap(batch.value[: len(live)]), live)
    assert session.spent == batch.spent[0] <= mechanism.privacy.eps_per_m


def test_the_closeness_test_measures_along_streets() -> None:
    """(30, 40) is 70 m away here and 50 m as the crow flies; the threshold lies between."""
    x, guess = np.zeros((1, 2)), np.array([[30.0, 40.0]])
    chance = LaplaceTest.acceptance(SPACE.distance(x, guess), 0.1, 60.0)
    assert chance == pytest.approx([0.5 * math.exp(-1.0)], rel=1e-12)
    for u, passes in ((chance[0] * 0.99, True), (chance[0] * 1.01, False)):
        assert LaplaceTest()(SPACE, x, guess, 0.1, 60.0, np.array([[u]])) == passes
