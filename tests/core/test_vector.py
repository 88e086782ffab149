"""Vectors: distances that are metrics, releases on a bounded grid, and what is refused."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish import ParameterError, Parrot, Privacy, SeededDraws, Vector, independent, whole_day
from hereish.core.spaces import find_point_outside
from hereish.core.types import Floats
from hereish.core.vector import Norm
from tests.support.exact_trigonometry import PI, sine_cosine

NORMS: tuple[Norm, ...] = ("l1", "l2", "linf")
SPACES = [Vector(n, norm, sensitivity=s) for norm in NORMS for n, s in ((1, 1.0), (2, 2.0), (5, 1))]
FIXED = settings(derandomize=True, database=None, max_examples=100)
numbers = st.floats(-1e6, 1e6)
points = st.lists(numbers, min_size=5, max_size=5).map(np.array)


def between(space: Vector, a: Floats, b: Floats) -> float:
    n = space.count
    return float(space.distance(a[None, :n], b[None, :n])[0])


@pytest.mark.parametrize("space", SPACES, ids=repr)
@FIXED
@given(points, points, points)
def test_distance_is_a_metric(space: Vector, a: Floats, b: Floats, c: Floats) -> None:
    assert between(space, a, b) == between(space, b, a) >= 0.0
    assert between(space, a, a) == 0.0
    detour = between(space, a, b) + between(space, b, c)
    assert between(space, a, c) <= detour * (1.0 + 1e-14)


def test_known_distances() -> None:
    a, b = np.array([[1.0, 2.0, -1.0]]), np.array([[4.0, -2.0, -1.0]])
    found = [Vector(3, norm).distance(a, b)[0] for norm in NORMS]
    assert found == [7.0, 5.0, 4.0]
    assert Vector(3, "l1", sensitivity=2.0).distance(a, b)[0] == 3.5


@pytest.mark.parametrize("norm", NORMS)
def test_distance_takes_what_people_write(norm: Norm) -> None:
    many: Any = [[3.0, 0.0], [0.0, 0.0]]
    one: Any = [0.0, 0.0]
    assert Vector(2, norm).distance(one, many).tolist() == [3.0, 0.0]
    assert np.ndim(Vector(2, norm).distance(one, many[0])) == 0
    number: Any = 4.5
    assert Vector(1, norm).distance(number, np.array([7.0, 4.0])).tolist() == [2.5, 0.5]
    assert Vector(1, norm).distance(np.array([[7.0]]), np.array([[4.0]])).tolist() == [3.0]


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_what_is_not_a_number_stays_so(space: Vector) -> None:
    nowhere = np.full((2, space.count), np.nan)
    assert np.isnan(space.distance(nowhere, np.zeros_like(nowhere))).all()
    assert np.isnan(space.snap(nowhere)).all()


@pytest.mark.parametrize("grid", [1e-3, 0.25, 0.3, 7.0])
def test_releases_lie_on_the_grid_between_the_bounds(grid: float) -> None:
    space = Vector(3, grid=grid, low=-20.0, high=55.0)
    given = (SeededDraws(6).uniforms(30_000).reshape(-1, 3) - 0.5) * 200.0
    before = given.copy()
    snapped = space.snap(given)
    assert np.array_equal(given, before)
    assert np.array_equal(space.snap(snapped), snapped)
    assert not np.signbit(snapped[snapped == 0.0]).any()
    low, high = (round(bound / grid) * grid for bound in (-20.0, 55.0))
    assert (snapped.min(), snapped.max()) == (low, high)
    inside = (given > low) & (given < high)
    assert np.abs(snapped - given)[inside].max() <= grid * 0.5 * (1 + 1e-9)
    assert space.coordinates[0].high > 1e6, "secrets beyond the bounds are no error"


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 33])
def test_noise_of_one_lane_is_that_lane_of_the_noise_of_many(norm: Norm, n: int) -> None:
    """Bit by bit, with one eps for all lanes and with one for each, however they lie in memory."""
    space, lanes = Vector(n, norm, grid=1e-9, sensitivity=3.0), 40
    u = SeededDraws(7).uniforms(lanes * (space.uniforms + n)).reshape(lanes, -1)
    x, u = (u[:, :n] - 0.5) * 100.0, u[:, n:]
    eps = np.geomspace(1.0, 1e3, lanes)
    together, shared = space.unrounded_noise(x, eps, u), space.unrounded_noise(x, 3.0, u)
    by_columns = space.unrounded_noise(np.asfortranarray(x), eps, np.asfortranarray(u))
    assert np.array_equal(together, by_columns)
    assert np.array_equal(space.noise(x, eps, u), space.snap(together))
    far = space.distance(x, together)
    for i in range(lanes):
        lane = slice(i, i + 1)
        alone = space.unrounded_noise(x[lane], float(eps[i]), u[lane])
        assert np.array_equal(alone, together[lane])
        assert np.array_equal(space.unrounded_noise(x[lane], 3.0, u[lane]), shared[lane])
        assert np.array_equal(space.distance(x[lane], alone), far[lane])


def exact_noise(space: Vector, u: list[Decimal]) -> list[Decimal]:
    """What the proof says is drawn for eps = 1, with 60 digits."""
    n = space.count
    if space.norm == "l1":
        return [(u[2 * i] / u[2 * i + 1]).ln() for i in range(n)]
    if space.norm == "linf":
        length = -sum(each.ln() for each in u[: n + 1])
        return [length * (2 * each - 1) for each in u[n + 1 :]]
    normal: list[Decimal] = []
    for one, other in zip(u[n::2], u[n + 1 :: 2], strict=True):
        sine, cosine = sine_cosine(2 * PI * other)
        normal += [(-one.ln()).sqrt() * cosine, (-one.ln()).sqrt() * sine]
    whole = sum((part * part for part in normal[:n]), Decimal(0)).sqrt()
    length = -sum(each.ln() for each in u[:n])
    return [length * part / whole for part in normal[:n]]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [2, 3, 40])
def test_noise_is_computed_as_exactly_as_the_proof_says(norm: Norm, n: int) -> None:
    space = Vector(n, norm, grid=1e-9)
    ends = np.array([2.0**-65, 2.0**-53, 1.0 - 2.0**-53, 2.0**-20, 0.5, 0.25, 0.75])
    rng = np.random.default_rng(8)
    u = np.where(rng.random((40, space.uniforms)) < 0.3, rng.choice(ends, (40, space.uniforms)), 0)
    u = np.where(u == 0, SeededDraws(9).uniforms(u.size).reshape(u.shape), u)
    drawn = space.unrounded_noise(np.zeros((40, n)), 1.0, u)
    with localcontext(Context(prec=60)):
        for row, found in zip(u.tolist(), drawn.tolist(), strict=True):
            exact = exact_noise(space, [Decimal(each) for each in row])
            length = Vector(n, norm).distance(np.array([found]), np.zeros((1, n)))[0]
            allowed = (n + 16) * 2.0**-53 * max(1.0, float(length))
            for one, other in zip(found, exact, strict=True):
                assert abs(float(Decimal(one) - other)) <= allowed


def test_quantiles_of_the_length_are_those_of_a_gamma_law() -> None:
    assert Vector(1).c_noise(0.9) == pytest.approx(math.log(10.0), rel=1e-12)
    assert Vector(2, "linf").c_noise(0.9) == pytest.approx(3.889720, abs=1e-6)
    with pytest.raises(ParameterError, match="delta must lie strictly between 0 and 1"):
        Vector(2).c_noise(1.0)


def test_points_outside_are_named_by_lane_and_reason_and_never_by_value() -> None:
    space = Vector(3)
    given = np.zeros((4, 3))
    given[2, 1] = math.nan
    assert find_point_outside(space, given) == (2, "number 2 is not a finite number")
    given[2, 1] = 2.0**39 * 1e-3
    lane, reason = find_point_outside(space, given) or (0, "")
    assert (lane, reason.startswith("number 2 is outside")) == (2, True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"count": 0}, "count must be a whole number from 1 to 1024, found 0"),
        ({"count": True}, "count must be a whole number"),
        ({"count": 2, "norm": "l3"}, "norm must be 'l1', 'l2' or 'linf', found 'l3'"),
        ({"count": 2, "grid": 0.0}, "grid must be a finite number above 0"),
        ({"count": 2, "grid": 1e200}, "grid must lie between"),
        ({"count": 2, "sensitivity": -1.0}, "sensitivity must be a finite number above 0"),
        ({"count": 2, "low": 1.0, "high": 1.0}, "low must lie below high"),
        ({"count": 2, "grid": 1.0, "low": 0.1, "high": 0.4}, "by at least a step of the grid"),
        ({"count": 2, "low": math.nan}, "low must lie below high"),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Vector(**wrong)


def test_the_guarantee_names_the_unit() -> None:
    space = Vector(3, grid=0.01, unit="°C")
    m = independent(Privacy(math.log(2.0), 0.5), reports=4, space=space)
    assert m.guarantee.endswith("any other that stays within 0.5 °C of it.")
    assert m.guarantee_for_each("room").endswith("stays within 0.5 °C of it.")


def test_noise_that_is_too_large_for_the_grid_is_refused_when_parts_are_put_together() -> None:
    privacy = Privacy(1.0, 1.0)
    with pytest.raises(Exception, match="choose a coarser grid"):
        whole_day(privacy, space=Vector(3, grid=1e-9), prediction=Parrot())
    assert whole_day(privacy, space=Vector(3, grid=1e-3), prediction=Parrot()).private
