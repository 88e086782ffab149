"""The angle of noise on the globe solves its equation: survival on the globe = in the plane.

Each angle is checked, so nothing here is statistical. Decimals have 60 digits.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext

import numpy as np
import pytest

from hereish.core.noise import sphere_angle
from hereish.core.types import Floats
from tests.support.exact_trigonometry import PI, sine_cosine
from tests.support.laws import uniforms

# From noise of a thousand globe radii to noise of half a metre; both sides of the change of method.
KS = [1e-3, 0.1, 1.0, 1.27, 3.0, 10.0, 64.0, 264.0, 265.0, 300.0, 900.0, 1e3, 1e4, 6.4e5, 1e7]
LEAST, MOST = 2.0**-53, 1.0 - 2.0**-53
PAIRS = [
    (LEAST, LEAST),
    (LEAST, 0.3),
    (1e-12, 1e-6),
    (1e-6, 1e-3),
    (1e-3, 0.1),
    (0.02, 0.9),
    (0.1, 0.5),
    (0.3, 0.8),
    (0.7, 0.5),
    (0.6, 0.9),
    (0.9, 0.99),
    (0.999, 0.9999),
    (1.0 - 1e-6, 1.0 - 1e-5),
    (1.0 - 2.0**-30, 1.0 - 2.0**-31),
    (1.0 - 2.0**-50, 1.0 - 2.0**-51),
    (2.0**-65, 2.0**-65),
    (2.0**-60, 0.9),
    (MOST, 0.5),
    (MOST, LEAST),
    (MOST, MOST),
]


def _survival(angle: Decimal, k: Decimal) -> Decimal:
    angle = min(max(angle, Decimal(0)), PI)
    sine, cosine = sine_cosine(angle)
    round_the_globe = (-PI * k).exp()
    return ((-k * angle).exp() * (cosine + k * sine) + round_the_globe) / (1 + round_the_globe)


def _allowed(angle: Floats, k: float) -> Floats:
    """A billionth of the angle, and of that to the antipode, up to the spacing of doubles."""
    return np.asarray(1e-9 * np.minimum(angle, math.pi - angle) + 1e-15)


@pytest.mark.parametrize("k", KS)
def test_the_angle_solves_the_equation_of_its_law(k: float) -> None:
    """The survival function falls, so the exact angle lies between two at which it is too large
    and too small."""
    u1, u2 = np.array(PAIRS).T
    angles = sphere_angle(k, u1, u2)
    with localcontext(Context(prec=60, Emin=-(10**9))):
        for u, angle, allowed in zip(u1 * u2, angles, _allowed(angles, k), strict=True):
            planar = -Decimal(float(u)).ln()
            share = (1 + planar) * (-planar).exp()
            t, within = Decimal(float(angle)), Decimal(float(allowed))
            assert _survival(t - within, Decimal(k)) >= share >= _survival(t + within, Decimal(k))


@pytest.mark.parametrize("k", [1e-3, *np.geomspace(1e-2, 264.0, 16), 265.0, 300.0, 900.0])
def test_no_draw_of_many_is_left_half_solved(k: float) -> None:
    """n = 100,000 draws: one more step of Newton's, in doubles, would move none of them by 1e-9 of
    the scale on which the density changes. Away from the ends, where doubles can tell."""
    u1, u2 = uniforms(502, 100_000, 2).T
    t = sphere_angle(k, u1, u2)
    planar = -np.log(u1 * u2)
    share = (1.0 + planar) * np.exp(k * t - planar) * (1.0 + math.exp(-math.pi * k))
    excess = np.cos(t) + k * np.sin(t) + np.exp(-k * (math.pi - t)) - share
    step = np.abs(excess) / ((k * k + 1.0) * np.sin(t)) * (k + 1.0 / t + 1.0 / (math.pi - t))
    middle = (t > 1e-2 / (k + 1.0)) & (t < math.pi - 1e-2)
    assert middle.sum() > 99_000
    assert step[middle].max() < 1e-9


def test_an_angle_off_by_a_millionth_does_not_solve_it() -> None:
    """The control of the test above: the planar angle, where the globe is hardly felt."""
    k, u = 3e3, 0.35
    planar = -Decimal(u).ln()
    with localcontext(Context(prec=60)):
        share = (1 + planar) * (-planar).exp()
        t = planar / Decimal(k)
        assert not _survival(t * (1 - Decimal("1e-9")), Decimal(k)) >= share or not (
            share >= _survival(t * (1 + Decimal("1e-9")), Decimal(k))
        )
        exact = sphere_angle(k, np.array([u]), np.array([1.0]))[0]
        assert 1e-8 < 1.0 - exact / float(t) < 1e-6


@pytest.mark.parametrize("k", KS)
def test_the_angle_lies_on_the_globe_and_grows_as_the_product_of_the_uniforms_falls(
    k: float,
) -> None:
    products = np.exp(-np.geomspace(2.0**-52, 106.0 * math.log(2.0), 3000))
    angle = sphere_angle(k, products, np.ones(3000))
    assert (angle >= 0.0).all()
    assert (angle <= math.pi).all()
    assert (np.diff(angle) >= -_allowed(angle, k)[1:]).all()
    planar = -np.log(products) / k
    assert (angle <= planar * (1.0 + 1e-15)).all(), "the globe draws in, it never pushes out"


@pytest.mark.parametrize("k", KS)
def test_the_largest_and_the_smallest_draws_stay_sane(k: float) -> None:
    far = sphere_angle(k, np.array([LEAST]), np.array([LEAST]))[0]
    near = sphere_angle(k, np.array([MOST]), np.array([MOST]))[0]
    longest = 106.0 * math.log(2.0) / k
    assert 0.0 <= near < 1e-7
    if longest < 1.0:
        # Where the globe still looks flat the whole planar tail is there: 73 scales, no cut-off.
        assert longest * (1.0 - longest) < far <= longest
    elif longest > 10.0:
        assert math.pi - far < 1e-6, "the antipode, and not round and back"


def test_only_the_product_of_the_two_uniforms_counts() -> None:
    u1, u2 = np.array([0.25, 0.5]), np.array([0.5, 0.25])
    for k in KS:
        one, other = sphere_angle(k, u1, u2)
        assert one == other


@pytest.mark.parametrize("k", [1e-3, 1.27, 64.0, 300.0, 500.0, 1e4, 6.4e5])
def test_the_angle_of_a_lane_does_not_depend_on_the_lanes_beside_it(k: float) -> None:
    """A live session is one lane and a batch is many: the same uniforms must give the same bits."""
    u1, u2 = np.ascontiguousarray(uniforms(501, 300, 2).T)
    together = sphere_angle(k, u1, u2)
    alone = [sphere_angle(k, u1[i : i + 1], u2[i : i + 1])[0] for i in range(len(u1))]
    assert np.array_equal(together, alone)
    among_others = np.full(300, k)
    among_others[::2] = 2.0
    assert np.array_equal(sphere_angle(among_others, u1, u2)[1::2], together[1::2])
