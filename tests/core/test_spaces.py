"""Spaces: metrics that are metrics, a claim that holds on the ellipsoid, and a canonical grid."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyproj import Geod

from hereish import Line, Manhattan, ParameterError, Plane, SeededDraws, Sphere
from hereish.core.spaces import Space, columns, find_point_outside
from hereish.core.types import Floats

SPHERE = Sphere()
GEOD = Geod(ellps="WGS84")
EQUATOR_M, POLE_M = GEOD.a, GEOD.b
RADIUS_M = (2.0 * EQUATOR_M + POLE_M) / 3.0
# Distances come from a haversine in doubles: exact to this, near the antipode too.
CLOSE_M = 1e-7

latitudes = st.floats(-90.0, 90.0)
longitudes = st.floats(-180.0, 180.0)
places = st.tuples(latitudes, longitudes)
FIXED = settings(derandomize=True, database=None, max_examples=300)
SPACES: list[Space] = [Line(), Plane(), Manhattan(), SPHERE]


def _between(space: Space, a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return float(space.distance(np.array([a]), np.array([b]))[0])


def _metres(a: tuple[float, float], b: tuple[float, float]) -> float:
    return _between(SPHERE, a, b)


def _places(seed: int, n: int) -> Floats:
    """Uniform on the globe."""
    u = SeededDraws(seed).uniforms(2 * n).reshape(2, n)
    return np.column_stack([np.degrees(np.arcsin(2.0 * u[0] - 1.0)), 360.0 * u[1] - 180.0])


def _geodesic(a: Floats, b: Floats) -> Floats:
    return np.asarray(GEOD.inv(a[:, 1], a[:, 0], b[:, 1], b[:, 0])[2])


def _near(a: Floats, metres: float, seed: int) -> Floats:
    """Places so many geodesic metres away, in any direction."""
    bearing = 360.0 * SeededDraws(seed).uniforms(len(a))
    lon, lat, _ = GEOD.fwd(a[:, 1], a[:, 0], bearing, np.full(len(a), metres))
    return np.column_stack([lat, lon])


def _pairs() -> dict[str, tuple[Floats, Floats]]:
    anywhere = _places(1, 50_000)
    pairs = {"far": (anywhere, _places(2, 50_000))}
    for metres in (1.0, 100.0, 1e4, 1e6):
        pairs[f"{metres:g} m apart"] = (anywhere, _near(anywhere, metres, 3))
    lat = np.linspace(-90.0, 89.99, 20_000)
    lon = np.linspace(-180.0, 180.0, 20_000)
    zero = np.zeros(20_000)
    pairs["north-south"] = np.column_stack([lat, lon]), np.column_stack([lat + 0.01, lon])
    pairs["east-west"] = np.column_stack([lat, zero]), np.column_stack([lat, zero + 0.01])
    tight = np.linspace(-0.02, 0.02, 20_000)
    pairs["north-south at the equator"] = (
        np.column_stack([tight - 0.005, lon]),
        np.column_stack([tight + 0.005, lon]),
    )
    pairs["antipodes"] = anywhere, np.column_stack([-anywhere[:, 0], anywhere[:, 1] + 180.0])
    pairs["across the antimeridian"] = (
        np.column_stack([lat, zero + 179.9]),
        np.column_stack([lat, zero - 179.9]),
    )
    return pairs


PAIRS = _pairs()


@pytest.mark.parametrize("name", PAIRS)
def test_a_metre_of_the_claim_is_never_longer_than_one_of_the_ellipsoid(name: str) -> None:
    a, b = PAIRS[name]
    # The allowance is for the rounding of both libraries' distances, a few nanometres each.
    assert (SPHERE.claim_factor * SPHERE.distance(a, b) <= _geodesic(a, b) + CLOSE_M).all()


def test_the_claim_is_tight_where_the_ellipsoid_curves_most() -> None:
    """Short ways north and south at the equator; nothing larger than the factor would hold."""
    a, b = PAIRS["north-south at the equator"]
    used = SPHERE.claim_factor * SPHERE.distance(a, b) / _geodesic(a, b)
    assert used.max() == pytest.approx(1.0, abs=1e-6)
    assert ((SPHERE.claim_factor + 2e-6) * SPHERE.distance(a, b) > _geodesic(a, b) + CLOSE_M).any()
    assert SPHERE.claim_factor == pytest.approx(POLE_M**2 / EQUATOR_M / RADIUS_M, rel=1e-14)


@pytest.mark.parametrize("name", PAIRS)
def test_great_circles_are_within_0_57_percent_of_geodesics(name: str) -> None:
    a, b = PAIRS[name]
    great_circle, geodesic = SPHERE.distance(a, b), _geodesic(a, b)
    assert (np.abs(great_circle - geodesic) <= 0.0057 * geodesic + CLOSE_M).all()


def test_distances_on_the_globe_agree_with_unit_vectors() -> None:
    a, b = _places(4, 50_000), _places(5, 50_000)

    def vectors(points: Floats) -> Floats:
        lat, lon = np.radians(points).T
        return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])

    p, q = vectors(a), vectors(b)
    across = np.linalg.norm(np.cross(p, q, axis=0), axis=0)
    expected = RADIUS_M * np.arctan2(across, (p * q).sum(axis=0))
    assert np.allclose(SPHERE.distance(a, b), expected, rtol=1e-12, atol=1e-6)


@FIXED
@given(places, places)
def test_distance_is_symmetric_and_zero_only_at_home(
    a: tuple[float, float], b: tuple[float, float]
) -> None:
    assert _metres(a, b) == _metres(b, a)
    assert _metres(a, a) == 0.0
    assert 0.0 <= _metres(a, b) <= math.pi * RADIUS_M


@FIXED
@given(places, places, places)
def test_no_detour_is_shorter(
    a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]
) -> None:
    assert _metres(a, c) <= _metres(a, b) + _metres(b, c) + CLOSE_M


@FIXED
@given(longitudes, longitudes, st.sampled_from([90.0, -90.0]))
def test_a_pole_is_one_place_whatever_its_longitude(one: float, other: float, lat: float) -> None:
    assert _metres((lat, one), (lat, other)) < CLOSE_M
    assert _metres((lat, one), (-lat, other)) == pytest.approx(math.pi * RADIUS_M, rel=1e-8)


@FIXED
@given(latitudes, st.floats(0.0, 0.1), st.floats(0.0, 0.1))
def test_the_antimeridian_is_no_border(lat: float, west: float, east: float) -> None:
    over_it = _metres((lat, 180.0 - west), (lat, -180.0 + east))
    elsewhere = _metres((lat, -west), (lat, east))
    assert over_it == pytest.approx(elsewhere, abs=1e-6)
    assert _metres((lat, 180.0), (lat, -180.0)) < CLOSE_M


@FIXED
@given(places)
def test_the_antipode_is_half_way_round(a: tuple[float, float]) -> None:
    opposite = (-a[0], a[1] - math.copysign(180.0, a[1]))
    assert _metres(a, opposite) == pytest.approx(math.pi * RADIUS_M, abs=CLOSE_M)


@pytest.mark.parametrize("off_m", [1e-3, 0.05, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("lat", [0.0, 1e-9, -45.0])
def test_distances_near_the_antipode_fall_as_they_should(lat: float, off_m: float) -> None:
    """By the arc sine they were off by up to 0.18 m, and a test of an antipode told too much."""
    off = math.degrees(off_m / RADIUS_M)
    found = _metres((lat, 0.0), (-lat + off, 180.0))
    assert math.pi * RADIUS_M - found == pytest.approx(off_m, abs=CLOSE_M)


def test_known_distances() -> None:
    degree = RADIUS_M * math.pi / 180.0
    assert _metres((0.0, 0.0), (1.0, 0.0)) == pytest.approx(degree, rel=1e-13)
    assert _metres((60.0, 10.0), (60.0, 10.001)) == pytest.approx(degree / 2000.0, rel=1e-9)
    assert _metres((89.9, 0.0), (89.9, 180.0)) == pytest.approx(0.2 * degree, rel=1e-12)
    assert _between(Plane(), (1.0, 2.0), (4.0, -2.0)) == 5.0
    assert _between(Manhattan(), (1.0, 2.0), (4.0, -2.0)) == 7.0
    assert _between(Line(), (-1.5,), (2.0,)) == 3.5


@pytest.mark.parametrize("space", SPACES)
def test_distance_from_nowhere_is_not_a_number(space: Space) -> None:
    nowhere = np.full((1, len(space.coordinates)), np.nan)
    assert np.isnan(space.distance(nowhere, np.zeros_like(nowhere))).all()


def _scattered(space: Space) -> Floats:
    """Points on and off the grid, beyond the antimeridian, at the poles and around zero."""
    dim = len(space.coordinates)
    u = SeededDraws(6).uniforms(20_000 * dim).reshape(-1, dim)
    if isinstance(space, Sphere):
        special = [(90.0, 12.3), (-90.0, -7.0), (89.9999999, 5.0), (0.0, 180.0), (0.0, -180.0)]
        special += [(1.0, 179.9999999), (1.0, -180.0000001), (-1e-9, -1e-9), (5.0, 540.0)]
        return np.concatenate([(u - 0.5) * [180.0, 1080.0], special])
    return np.concatenate([(u - 0.5) * 1e7, (u - 0.5) * 1e-3, (u - 0.5) * 10.0])


GRIDS: list[Space] = [
    Line(),
    Line(grid=0.3),
    Plane(),
    Plane(grid_m=25.0),
    Manhattan(grid_m=25.0),
    SPHERE,
    *(Sphere(decimals=d) for d in (0, 2, 6)),
]


@pytest.mark.parametrize("space", GRIDS, ids=repr)
def test_snapping_twice_is_snapping_once_and_zero_has_no_sign(space: Space) -> None:
    points = _scattered(space)
    snapped = space.snap(points)
    assert np.array_equal(space.snap(snapped), snapped)
    assert not np.signbit(snapped[snapped == 0.0]).any()


@pytest.mark.parametrize("decimals", [0, 2, 5, 6])
def test_snapped_places_are_written_with_so_many_decimals(decimals: int) -> None:
    space = Sphere(decimals=decimals)
    snapped = space.snap(_scattered(space))
    lat, lon = snapped.T
    assert [float(f"{value:.{decimals}f}") for value in lon[:2000]] == lon[:2000].tolist()
    assert (np.abs(lat) <= 90.0).all()
    assert (lon >= -180.0).all()
    assert (lon < 180.0).all()
    assert (lon[np.abs(lat) == 90.0] == 0.0).all(), "a pole has one name"


@FIXED
@given(latitudes, longitudes)
def test_snapping_moves_a_place_by_half_a_step_at_the_most(lat: float, lon: float) -> None:
    snapped = SPHERE.snap(np.array([[lat, lon]]))
    step = math.radians(1e-5) * RADIUS_M
    assert SPHERE.distance(np.array([[lat, lon]]), snapped)[0] <= step * math.sqrt(0.5) + CLOSE_M


def test_both_names_of_the_antimeridian_and_all_of_a_pole_become_one() -> None:
    names = np.array([[7.0, 180.0], [7.0, -180.0], [7.0, 179.999999], [7.0, -179.999999]])
    assert SPHERE.snap(names).tolist() == [[7.0, -180.0]] * 4
    names = np.array([[90.0, 0.0], [90.0, 77.0], [89.999999, -180.0]])
    assert SPHERE.snap(names).tolist() == [[90.0, 0.0]] * 3


@pytest.mark.parametrize("space", SPACES)
def test_what_is_not_a_number_stays_so(space: Space) -> None:
    nowhere = np.full((2, len(space.coordinates)), np.nan)
    assert np.isnan(space.snap(nowhere)).all()


@pytest.mark.parametrize("space", SPACES)
def test_snapping_leaves_its_input_alone(space: Space) -> None:
    points = _scattered(space)
    before = points.copy()
    space.snap(points)
    space.noise(points, 1.0, np.full((len(points), space.uniforms), 0.3))
    space.distance(points, points)
    assert np.array_equal(points, before)


@pytest.mark.parametrize("space", SPACES)
def test_points_outside_are_named_by_lane_and_reason_and_never_by_value(space: Space) -> None:
    dim = len(space.coordinates)
    for i, (name, low, high) in enumerate(space.coordinates):
        for wrong, reason in (
            (math.nan, f"{name} is not a finite number"),
            (-math.inf, f"{name} is not a finite number"),
            (high * 1.01, f"{name} is outside"),
            (low * 1.01, f"{name} is outside"),
        ):
            points = np.zeros((4, dim))
            points[2, i] = wrong
            found = find_point_outside(space, points)
            assert found is not None
            assert found[0] == 2
            assert found[1].startswith(reason)
            assert str(wrong) not in found[1]
        edges = np.zeros((2, dim))
        edges[:, i] = low, high
        assert find_point_outside(space, edges) is None


@pytest.mark.parametrize("decimals", [-1, 7, 2.0, "5"])
def test_a_globe_grid_has_0_to_6_decimals(decimals: int) -> None:
    with pytest.raises(ParameterError, match="decimals must be a whole number from 0 to 6"):
        Sphere(decimals=decimals)


@pytest.mark.parametrize("grid", [0.0, -1.0, math.inf, math.nan])
def test_a_grid_has_a_positive_step(grid: float) -> None:
    with pytest.raises(ParameterError, match="grid must be a finite number above 0"):
        Line(grid=grid)
    with pytest.raises(ParameterError, match="grid_m must be a finite number above 0"):
        Plane(grid_m=grid)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("delta", [0.0, 1.0, -0.5, math.nan])
def test_quantiles_are_of_shares_strictly_between_0_and_1(space: Space, delta: float) -> None:
    with pytest.raises(ParameterError, match="delta must lie strictly between 0 and 1"):
        space.c_noise(delta)


@pytest.mark.parametrize("space", SPACES)
def test_noise_of_one_lane_is_that_lane_of_the_noise_of_many(space: Space) -> None:
    """Bit by bit, with one eps for all lanes and with one for each."""
    n, dim = 64, len(space.coordinates)
    u = SeededDraws(7).uniforms(n * (space.uniforms + dim)).reshape(n, -1)
    x, u = (u[:, :dim] - 0.5) * 100.0, u[:, dim:]
    eps = np.geomspace(1e-3, 1e-1, n)
    together, shared = space.noise(x, eps, u), space.noise(x, 0.01, u)
    for i in range(n):
        lane = slice(i, i + 1)
        assert np.array_equal(space.noise(x[lane], eps[lane], u[lane]), together[lane])
        assert np.array_equal(space.noise(x[lane], float(eps[i]), u[lane]), together[lane])
        assert np.array_equal(space.noise(x[lane], 0.01, u[lane]), shared[lane])


def test_columns_are_contiguous() -> None:
    assert all(c.flags["C_CONTIGUOUS"] for c in columns(np.arange(6.0).reshape(2, 3)))


def test_distance_takes_what_people_write() -> None:
    sphere, plane, line = Sphere(), Plane(), Line()
    one = sphere.distance((60.0, 25.0), [60.0, 26.0])  # type: ignore[arg-type]
    assert np.ndim(one) == 0
    many = sphere.distance((60.0, 25.0), np.array([[60.0, 26.0], [60.0, 25.0]]))  # type: ignore[arg-type]
    assert many.tolist() == [one, 0.0]
    assert plane.distance((0, 0), (3, 4)) == 5.0  # type: ignore[arg-type]
    assert Manhattan().distance((0, 0), (3, -4)) == 7.0  # type: ignore[arg-type]
    assert line.distance(7, 4.5) == 2.5  # type: ignore[arg-type]
    assert line.distance(np.array([7.0, 8.0]), np.array([4.0, 4.0])).tolist() == [3.0, 4.0]
