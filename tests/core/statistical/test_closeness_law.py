"""The private test passes with the chance that Laplace noise on the threshold gives, and no other.

Frequencies: n = 400,000 coins each, alpha = 1e-6, fixed seeds.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hereish import LaplaceTest, Line, Plane, Sphere
from hereish.core.decision import CLAMP
from hereish.core.types import Bools, Floats, PerLane
from tests.support.laws import ALPHA, binomial_p, smallest_share_error, uniforms

N = 400_000
EPS, THRESHOLD = 2e-3, 1000.0
# From far inside the threshold to far outside; at the last the clamp would have the say.
DISTANCES = [0.0, 250.0, 900.0, 1000.0, 1100.0, 2000.0, 3500.0]
TEST = LaplaceTest()


def _exact(distance: float, eps: float = EPS, threshold: float = THRESHOLD) -> float:
    """P(distance <= threshold + Laplace(1/eps)): half of exp on one side, the rest on the other."""
    tail = 0.5 * math.exp(-eps * abs(distance - threshold))
    return tail if distance > threshold else 1.0 - tail


def _passes(distance: float, eps: PerLane = EPS, threshold: PerLane = THRESHOLD) -> Bools:
    x, guess = np.zeros((N, 1)), np.full((N, 1), distance)
    return TEST(Line(), x, guess, eps, threshold, uniforms(601, N, 1))


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_chance_to_pass_is_that_of_laplace_noise(distance: float) -> None:
    chance = TEST.acceptance(np.array([distance]), EPS, THRESHOLD)
    assert chance == pytest.approx([_exact(distance)], rel=1e-14)


def test_the_chance_is_clamped_away_from_0_and_1_and_continuous_there() -> None:
    edge = -math.log(2.0 * CLAMP) / EPS  # where the chance reaches the clamp
    near = TEST.acceptance(THRESHOLD + edge * np.array([0.999, 1.001, 50.0, 1e9]), EPS, THRESHOLD)
    assert near[0] > CLAMP
    assert near[0] == pytest.approx(CLAMP, rel=0.02)
    assert (near[1:] == CLAMP).all()
    far = TEST.acceptance(THRESHOLD - edge * np.array([0.999, 1.001, 50.0, 1e9]), EPS, THRESHOLD)
    assert far[0] < 1.0 - CLAMP
    assert (far[1:] == 1.0 - CLAMP).all()


@pytest.mark.parametrize("distance", DISTANCES)
def test_guesses_pass_as_often_as_they_should(distance: float) -> None:
    """A chance off by 0.8 points is seen where it is a half, and by less elsewhere."""
    chance = _exact(distance)
    low, high = smallest_share_error(N, chance)
    assert chance - 0.008 < low < chance < high < chance + 0.008
    assert binomial_p(int(_passes(distance).sum()), N, chance) >= ALPHA


@pytest.mark.parametrize("distance", [0.0, 250.0, 2000.0, 3500.0])
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_test_of_the_wrong_scale_is_rejected(distance: float, factor: float) -> None:
    """Scale off by 10 %; not near the threshold, where every scale gives about a half."""
    passed = int(_passes(distance, eps=EPS * factor).sum())
    assert binomial_p(passed, N, _exact(distance)) < ALPHA


def test_a_two_sided_reading_of_the_threshold_is_rejected() -> None:
    """|noise| on the threshold instead of noise: the mistake that would make c_test ln 10."""
    u1, u2 = uniforms(602, N, 2).T
    passed = int((DISTANCES[4] <= THRESHOLD + np.abs(np.log(u1 / u2) / EPS)).sum())
    assert binomial_p(passed, N, _exact(DISTANCES[4])) < ALPHA
    one_sided = int((DISTANCES[4] <= THRESHOLD + np.log(u1 / u2) / EPS).sum())
    assert binomial_p(one_sided, N, _exact(DISTANCES[4])) >= ALPHA


@pytest.mark.parametrize(
    ("space", "x", "guess"),
    [
        (Line(), [3.0], [903.0]),
        (Plane(), [10.0, -20.0], [550.0, 700.0]),
        (Sphere(), [40.0, 179.999], [40.0, -179.9904371]),
    ],
)
def test_the_distance_is_that_of_the_space(
    space: Line | Plane | Sphere, x: list[float], guess: list[float]
) -> None:
    """Each guess is 900 m away, on the globe across the antimeridian."""
    there, here = np.tile(guess, (N, 1)), np.tile(x, (N, 1))
    assert space.distance(here[:1], there[:1]) == pytest.approx([900.0], rel=1e-3)
    passed = TEST(space, here, there, EPS, THRESHOLD, uniforms(603, N, 1))
    assert binomial_p(int(passed.sum()), N, _exact(900.0)) >= ALPHA
    assert binomial_p(int(passed.sum()), N, _exact(800.0)) < ALPHA


@pytest.mark.parametrize("eps", [0.0, EPS, 1e6])
@pytest.mark.parametrize("distance", [0.0, 1e3, 1e9])
def test_an_infinite_threshold_decides_alone(eps: float, distance: float) -> None:
    """No coin: all of n = 400,000 pass, or none does, whatever the secret. So it is free."""
    assert _passes(distance, eps, math.inf).all()
    assert not _passes(distance, eps, -math.inf).any()


def test_infinite_and_finite_thresholds_can_stand_side_by_side() -> None:
    thresholds = np.tile([math.inf, -math.inf, THRESHOLD, THRESHOLD], N // 4)
    eps = np.tile([0.0, 0.0, EPS, 0.0], N // 4)
    passed = _passes(1500.0, eps, thresholds).reshape(-1, 4)
    assert passed[:, 0].all()
    assert not passed[:, 1].any()
    assert binomial_p(int(passed[:, 2].sum()), N // 4, _exact(1500.0)) >= ALPHA
    assert binomial_p(int(passed[:, 3].sum()), N // 4, 0.5) >= ALPHA, "no budget, no answer"


def _grid() -> Floats:
    """Distances around the threshold and around both ends of the clamp, dense and by last bits."""
    edge = -math.log(2.0 * CLAMP) / EPS
    around = [np.linspace(0.0, THRESHOLD + 1.2 * edge, 4000)]
    for middle in (THRESHOLD, THRESHOLD + edge):
        around.append(middle + np.linspace(-2.0, 2.0, 401))
        around.append(middle + np.spacing(middle) * np.arange(-20, 21))
    return np.sort(np.concatenate(around))


@pytest.mark.parametrize("threshold", [0.0, THRESHOLD, 20_000.0])
def test_neither_outcome_tells_two_distances_apart_by_more_than_promised(threshold: float) -> None:
    """Passing and failing, for all pairs of a dense grid; no allowance but the last bits of exp.

    By the triangle inequality the secrets are at least as far apart as their distances differ.
    """
    distance = _grid()
    chance = TEST.acceptance(distance, EPS, threshold)
    for outcome in (chance, 1.0 - chance):
        loss = np.log(outcome)
        # All pairs, by the running extremes of loss ± eps * distance: it must not fall or rise.
        worth = EPS * distance
        rises = (loss - worth) - np.minimum.accumulate(loss - worth)
        falls = np.maximum.accumulate(loss + worth) - (loss + worth)
        assert rises.max() < 2.0**-27
        assert falls.max() < 2.0**-27


def test_the_coin_itself_keeps_the_promise_to_the_last_bit_of_its_uniform() -> None:
    """Uniforms are odd multiples of 2**-53, so the true chance is a count of them, not `p`."""
    distance = _grid()
    chance = TEST.acceptance(distance, EPS, THRESHOLD)

    def true_chance(p: float) -> Fraction:
        """How many odd multiples of 2**-53 lie below p, of the 2**52 that there are."""
        return Fraction(math.ceil((Fraction(p) * 2**53 - 1) / 2), 2**52)

    exact = [true_chance(float(p)) for p in chance]
    assert min(exact) > 0
    assert max(exact) < 1
    for i in range(len(exact) - 1):
        allowed = EPS * float(distance[i + 1] - distance[i]) + 2.0**-27
        for one, other in ((exact[i], exact[i + 1]), (1 - exact[i], 1 - exact[i + 1])):
            assert abs(math.log(one / other)) <= allowed


def test_a_chance_without_the_clamp_would_fail_that_promise() -> None:
    """The control: so far out the bare chance is below the least uniform, and passing impossible.
    The test itself still passes by the least uniform, and not by the clamp."""
    assert 0.0 < _exact(40_000.0) < 2.0**-53
    x, guess = np.zeros((2, 1)), np.full((2, 1), 40_000.0)
    passed = TEST(Line(), x, guess, EPS, THRESHOLD, np.array([[2.0**-53], [CLAMP]]))
    assert passed.tolist() == [True, False]


@pytest.mark.parametrize("delta", [0.6, 0.9, 0.99])
def test_c_test_is_how_far_beyond_the_threshold_a_guess_still_passes(delta: float) -> None:
    """n = 400,000 guesses at exactly that distance pass with a chance of 1 - delta."""
    distance = THRESHOLD + TEST.c_test(delta) / EPS
    assert _exact(distance) == pytest.approx(1.0 - delta, rel=1e-12)
    assert binomial_p(int(_passes(distance).sum()), N, 1.0 - delta) >= ALPHA
    assert binomial_p(int(_passes(distance).sum()), N, (1.0 - delta) / 1.1) < ALPHA
