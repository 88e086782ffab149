"""Remapping: the least expected error, the same bits for any lanes, harmless where it is wrong."""

from __future__ import annotations

import dataclasses
import functools
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hereish
from hereish.core.fingerprint import fingerprint
from hereish.core.prior import Prior
from hereish.core.remap import METRES_PER_DEGREE, PriorRemap
from hereish.core.types import Floats
from hereish.errors import ParameterError

EPS = (1e-4, 4e-4, 1e-3, 4e-3, 1e-2, 1e-1)
SPHERE = hereish.Sphere()


def density_of(prior: Prior) -> tuple[Floats, Floats]:
    """The middle of each cell that holds something, and people per area there."""
    row, column = np.divmod(prior.cells, prior.shape[1])
    lat = prior.south + (row + 0.5) * prior.cell_deg[0]
    lon = prior.west + (column + 0.5) * prior.cell_deg[1]
    return np.stack([lat, lon], axis=1), prior.weights


@functools.cache
def town(seed: int = 1, *, west: float = 10.0, south: float = 50.0, side: int = 160) -> Prior:
    """Blobs of people in a square of cells of about 250 m."""
    random = np.random.default_rng(seed)
    height = 250.0 / METRES_PER_DEGREE
    width = height / math.cos(math.radians(south + 0.5 * side * height))
    rows, columns = np.mgrid[0.5:side, 0.5:side]
    weights = np.zeros((side, side))
    for _ in range(6):
        at = random.uniform(0.2 * side, 0.8 * side, 2)
        size = random.uniform(1.0, 8.0)
        squared = (rows - at[0]) ** 2 + (columns - at[1]) ** 2
        weights += random.uniform(1.0, 10.0) * np.exp(-squared / (2.0 * size**2))
    weights[weights < 1e-3] = 0.0
    return Prior.from_grid("town", weights, south=south, west=west, cell_deg=(height, width))


def uniform_prior(lat: float = 50.0, lon: float = 10.0, side: int = 100) -> Prior:
    """The same density everywhere in 100 x 100 cells of 0.1 degrees."""
    rows = lat - 0.05 * side + 0.1 * (np.arange(side) + 0.5)
    weights = np.cos(np.radians(rows))[:, None] * np.ones(side)
    west = lon - 0.05 * side
    return Prior.from_grid("flat", weights, south=lat - 0.05 * side, west=west, cell_deg=(0.1, 0.1))


def points_in(prior: Prior, count: int, seed: int = 2, margin: float = 0.3) -> Floats:
    south, west, north, east = prior.region
    share = np.random.default_rng(seed).uniform(margin, 1.0 - margin, (count, 2))
    return np.array([south, west]) + share * [north - south, east - west]


def noisy_points(prior: Prior, eps: float, count: int, seed: int) -> tuple[Floats, Floats]:
    """Places as the prior has them, and with noise."""
    random = np.random.default_rng(seed)
    places, weights = density_of(prior)
    x = places[random.choice(len(places), count, p=weights / weights.sum())]
    return x, SPHERE.noise(x, eps, random.uniform(size=(count, 3)))


def metres(a: Floats, b: Floats) -> Floats:
    return SPHERE.distance(np.ascontiguousarray(a), np.ascontiguousarray(b))


def posterior(remap: PriorRemap, z: Floats, eps: float) -> tuple[Floats, Floats]:
    """All places around z, in metres north and east of it, and their shares: from the cells."""
    places, weights = density_of(remap.prior)
    flat = (places - z) * METRES_PER_DEGREE * [1.0, math.cos(math.radians(z[0]))]
    near = np.max(np.abs(flat), axis=1) <= 8.0 / eps
    people = weights[near] * (remap.prior.cell_deg[0] * METRES_PER_DEGREE) ** 2
    steps = (np.arange(64) - 31.5) * 0.25 / eps
    background = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
    places = np.concatenate([flat[near], background])
    spread = np.full(len(background), remap.background * people.sum() / len(background))
    share = np.concatenate([people, spread]) * np.exp(-eps * np.hypot(*places.T))
    share /= share.sum()
    kept = share > 1e-5
    return places[kept], share[kept]


def expected_m(candidates: Floats, places: Floats, share: Floats) -> Floats:
    north, east = (candidates[:, i, None] - places[:, i] for i in range(2))
    return np.asarray((np.hypot(north, east) * share).sum(axis=1) / share.sum())


@pytest.mark.parametrize("eps", [5e-4, 1e-3, 2e-3])
def test_no_other_point_has_a_much_smaller_expected_error(eps: float) -> None:
    # Against a search around the noisy point. The best would be the geometric median of the
    # posterior; its mean is nearly as good.
    steps = (np.arange(19) - 9.0) * 0.4 / eps
    candidates = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
    ratios = []
    for seed in range(1, 5):
        remap = PriorRemap(town(seed), background=0.3, max_shift=4.0)
        for z in noisy_points(remap.prior, eps, 8, seed)[1]:
            places, share = posterior(remap, z, eps)
            moved = (remap(z[None], eps) - z) * METRES_PER_DEGREE
            moved[:, 1] *= math.cos(math.radians(z[0]))
            best = expected_m(candidates, places, share).min()
            # The released point, the noisy one, and one moved as far the other way.
            tried = np.concatenate([moved, 0.0 * moved, -moved])
            ratios.append(expected_m(tried, places, share) / best)
    moved_ratio, noisy_ratio, opposite_ratio = np.mean(ratios, axis=0)
    assert moved_ratio < 1.02
    assert noisy_ratio > moved_ratio + 0.03
    assert opposite_ratio > moved_ratio + 0.1
    assert np.max(ratios, axis=0)[0] < 1.12


def test_on_average_it_comes_closer_where_the_prior_is_right() -> None:
    # 20000 draws: the ratio has a standard error below 0.005, and the control does not pass.
    prior, eps = town(4), 1e-3
    x, z = noisy_points(prior, eps, 20_000, seed=5)
    before = metres(x, z)
    ratio = metres(x, PriorRemap(prior)(z, eps)).mean() / before.mean()
    assert ratio < 0.9
    away = 2.0 * z - PriorRemap(prior)(z, eps)
    assert metres(x, away).mean() > before.mean()


@pytest.mark.parametrize("eps", EPS)
def test_the_bits_of_a_lane_do_not_depend_on_the_others(eps: float) -> None:
    remap = PriorRemap(town())
    z = points_in(remap.prior, 5000, margin=-0.1)
    eps_of = eps * np.random.default_rng(1).uniform(0.5, 2.0, len(z))
    together = remap(z, eps_of)
    for count in (1, 2, 3, 7, 8, 2047, 2049):
        some = slice(11, 11 + count)
        assert together[some].tobytes() == remap(z[some], eps_of[some]).tobytes()
    for lane in range(0, 200, 7):
        alone = remap(z[lane : lane + 1], float(eps_of[lane]))
        assert together[lane].tobytes() == alone[0].tobytes()
    assert together[::-1].tobytes() == remap(z[::-1], eps_of[::-1]).tobytes()


def test_one_epsilon_for_all_is_one_for_each() -> None:
    remap = PriorRemap(town())
    z = points_in(remap.prior, 100)
    assert remap(z, 1e-3).tobytes() == remap(z, np.full(100, 1e-3)).tobytes()


def test_what_is_given_stays_as_it_is() -> None:
    remap = PriorRemap(town())
    z = points_in(remap.prior, 10)
    z.setflags(write=False)
    assert not np.shares_memory(remap(z, 1e-3), z)
    assert remap(z[:0], 1e-3).shape == (0, 2)


@pytest.mark.parametrize("eps", EPS)
@pytest.mark.parametrize("lat", [-70.0, 0.0, 50.0])
def test_a_uniform_prior_moves_nothing(eps: float, lat: float) -> None:
    remap = PriorRemap(uniform_prior(lat))
    z = points_in(remap.prior, 300)
    # Nothing but the curvature between rows: far less than the noise, and than a cell.
    assert metres(z, remap(z, eps)).max() < 0.03 / eps


def test_a_uniform_prior_within_a_cell_moves_not_a_bit() -> None:
    z = points_in(uniform_prior(), 300)
    south, west = z.min(axis=0) - 1.0
    wide = Prior.from_grid("one cell", np.ones((1, 1)), south=south, west=west, cell_deg=(20, 20))
    assert PriorRemap(wide)(z, 1e-3).tobytes() == z.tobytes()


@given(
    lat=st.floats(-90, 90),
    lon=st.floats(-180, 180),
    eps=st.floats(1e-7, 10.0),
    seed=st.integers(1, 3),
    background=st.floats(1e-6, 100.0),
)
@settings(max_examples=60, deadline=None)
def test_no_point_moves_further_than_it_may(
    lat: float, lon: float, eps: float, seed: int, background: float
) -> None:
    z = np.array([[lat, lon], [50.2, 10.2]])
    prior = dataclasses.replace(town(seed), name="anything")
    moved = PriorRemap(prior, background, max_shift=1.5)(z, eps)
    assert np.all(np.isfinite(moved))
    assert np.all(np.abs(moved) <= [90.0, 180.0])
    assert np.all(metres(z, moved) <= 1.5 / eps * (1.0 + 1e-2) + 1e-6)
    again = PriorRemap(dataclasses.replace(town(seed), name="anything"), background, 1.5)(z, eps)
    assert moved.tobytes() == again.tobytes()


def test_a_wrong_prior_does_little_harm() -> None:
    # Everybody is 6 km from the only cell that the prior has.
    prior = town()
    one = dataclasses.replace(prior, cells=np.array([80 * 160 + 80]), weights=np.ones(1))
    (place,), _ = density_of(one)
    x = np.repeat([place + np.array([6000.0 / METRES_PER_DEGREE, 0.0])], 20_000, axis=0)
    random = np.random.default_rng(3)
    for eps in (4e-4, 1e-3, 4e-3):
        z = SPHERE.noise(x, eps, random.uniform(size=(len(x), 3)))
        before, after = metres(x, z), metres(x, PriorRemap(one)(z, eps))
        assert np.all(after - before <= 1.001 / eps)
        assert after.mean() < 1.25 * before.mean()
        assert np.quantile(after, 0.9) < 1.15 * np.quantile(before, 0.9)
        # The control: believed without reserve, the same prior does much more.
        if eps == 1e-3:
            believed = PriorRemap(one, background=1e-6, max_shift=4.0)(z, eps)
            assert metres(x, believed).mean() > 1.25 * before.mean()


def test_outside_of_the_region_nothing_moves() -> None:
    prior = town()
    south, west, north, east = prior.region
    sides = [[south - 1e-6, 10.1], [north + 1e-6, 10.1], [50.1, west - 1e-6], [50.1, east + 1e-6]]
    far = [[-50.0, 10.1], [50.1, -170.0], [math.nan, 10.1], [90.0, 0.0], [-90.0, 0.0]]
    z = np.array(sides + far)
    assert PriorRemap(prior)(z, 1e-4).tobytes() == z.tobytes()
    inside = points_in(prior, 50)
    assert np.all(metres(inside, PriorRemap(prior)(inside, 1e-3)) > 0.0)


def test_beyond_the_edges_there_is_nobody() -> None:
    height = 250.0 / METRES_PER_DEGREE
    weights = np.random.default_rng(1).uniform(size=(64, 64)) ** 4
    tight, wide = (
        Prior.from_grid("p", np.pad(weights, margin), south=-margin * height,
                        west=-margin * height, cell_deg=(height, height))
        for margin in (0, 64)
    )  # fmt: skip
    z = points_in(tight, 2000, margin=0.0)
    z = z[np.any((z < 8 * height) | (z > 56 * height), axis=1)]
    moved, same = (PriorRemap(prior)(z, 4e-3) for prior in (tight, wide))
    # A point on the edge of two cells may fall on its other side.
    assert np.quantile(metres(moved, same) * 4e-3, 0.95) < 1e-6


def test_nothing_moves_where_nobody_lives() -> None:
    alone = dataclasses.replace(town(), cells=np.array([0]), weights=np.ones(1))
    z = points_in(alone, 50, margin=0.45)
    assert PriorRemap(alone)(z, 1e-2).tobytes() == z.tobytes()


@pytest.mark.parametrize("eps", [1e-4, 1e-3])
def test_the_antimeridian_is_a_place_like_any_other(eps: float) -> None:
    here, there = PriorRemap(town(west=10.0)), PriorRemap(town(west=179.7))
    z = points_in(here.prior, 500)
    z = z[np.abs(z[:, 1] + 169.7 - 180.0) > 1e-9]
    shifted = z + np.array([0.0, 169.7])
    shifted[:, 1] -= 360.0 * (shifted[:, 1] >= 180.0)
    assert {*np.sign(shifted[:, 1])} == {-1.0, 1.0}
    moved, other = here(z, eps), there(shifted, eps)
    assert np.all(np.abs(other[:, 1]) <= 180.0)
    other[:, 1] += 360.0 * (other[:, 1] < 0.0)
    # A point on the edge of two cells may fall on its other side.
    apart = metres(moved + np.array([0.0, 169.7]), other) * eps
    assert np.quantile(apart, 0.9) < 1e-6
    assert apart.max() < 0.2


def test_a_prior_of_all_longitudes_goes_round() -> None:
    weights = np.zeros((180, 360))
    weights[90, [0, 359]] = 1.0  # on both sides of the antimeridian, just north of the equator
    world = Prior.from_grid("world", weights, south=-90, west=-180, cell_deg=(1, 1))
    east = PriorRemap(world)(np.array([[0.5, 179.0], [0.5, -179.0]]), 2e-5)
    assert east[0, 1] == pytest.approx(-east[1, 1])
    assert abs(east[0, 1]) != 179.0


@pytest.mark.parametrize("lat", [-87.9, 80.0, 87.0, 89.9])
@pytest.mark.parametrize("eps", EPS)
def test_near_the_poles_it_works_or_stays(lat: float, eps: float) -> None:
    weights = np.random.default_rng(1).uniform(size=(180, 360))
    world = Prior.from_grid("world", weights, south=-90, west=-180, cell_deg=(1, 1))
    z = np.array([[lat, lon] for lon in (-180.0, -3.0, 179.99)])
    moved = PriorRemap(world)(z, eps)
    assert np.all(metres(z, moved) * eps <= 1.3)
    assert np.all(np.abs(moved) <= [90.0, 180.0])
    if abs(lat) > 88.0 - 8.0 / (eps * METRES_PER_DEGREE):
        assert moved.tobytes() == z.tobytes()


def test_other_settings_have_other_fingerprints() -> None:
    prior = town()
    cells = prior.cells.copy()
    cells[0] -= 1
    others = [
        PriorRemap(prior),
        PriorRemap(prior, background=0.1),
        PriorRemap(prior, max_shift=2.0),
        *(
            PriorRemap(dataclasses.replace(prior, **change))
            for change in (
                {"name": "city"},
                {"cells": cells},
                {"weights": prior.weights * np.linspace(1.0, 1.0 + 1e-12, len(cells))},
                {"south": 50.0001},
                {"cell_deg": (prior.cell_deg[0] * 1.0001, prior.cell_deg[1])},
            )
        ),
    ]
    shown = [fingerprint(remap) for remap in others]
    assert len(set(shown)) == len(shown)
    assert fingerprint(PriorRemap(town())) == shown[0]
    assert max(map(len, shown)) < 1000  # the arrays are shown by a digest
    assert others[0] == PriorRemap(town()) != others[1]
    assert hash(others[0]) == hash(PriorRemap(town()))


def test_numbers_of_numpy_make_no_other_prior() -> None:
    prior: Any = town()
    same = dataclasses.replace(
        prior, south=np.float64(prior.south), shape=tuple(np.array(prior.shape))
    )
    assert fingerprint(same) == fingerprint(prior)


def test_it_can_be_pickled_and_cannot_be_written_to() -> None:
    remap = PriorRemap(town(), 0.2, 1.5)
    again = pickle.loads(pickle.dumps(remap))  # noqa: S301  # our own bytes
    z = points_in(remap.prior, 100)
    assert again == remap
    assert again(z, 1e-3).tobytes() == remap(z, 1e-3).tobytes()
    assert len(pickle.dumps(remap)) < 17 * len(remap.prior.cells) + 2000  # without the pyramid
    for array in (remap.prior.cells, again.prior.weights):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_the_prior_keeps_no_array_of_its_maker() -> None:
    weights = np.ones((4, 4))
    prior = Prior.from_grid("p", weights, south=0, west=0, cell_deg=(1, 1))
    weights[:] = 2.0
    assert prior.weights.sum() == 16.0


def test_cells_that_are_named_twice_are_added_up() -> None:
    cells, weights = np.array([5, 1, 5, 2]), np.array([1.0, 2.0, 3.0, 0.0])
    prior = Prior("p", 0, 0, (1, 1), (3, 3), cells, weights)
    assert prior.cells.tolist() == [1, 5]
    assert prior.weights.tolist() == [2.0, 4.0]
    assert repr(prior) == "<Prior 'p': 2 of 3 x 3 cells>"


def test_a_huge_grid_takes_room_for_what_it_holds_alone() -> None:
    cells = np.arange(10_000) * 90_000
    prior = Prior("seconds", -90, -180, (180 / 21600, 360 / 43200), (21600, 43200), cells,
                  np.ones(len(cells)))  # fmt: skip
    assert len(pickle.dumps(prior)) < 200_000
    assert PriorRemap(prior)(np.array([[10.0, 10.0]]), 1e-3).shape == (1, 2)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"name": " "}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"shape": (0, 3)}, "shape"),
        ({"shape": (3, 3, 3)}, "shape"),
        ({"cell_deg": (0.0, 1.0)}, "cell_deg"),
        ({"south": 88.0}, "latitude"),
        ({"south": math.nan}, "latitude"),
        ({"cell_deg": (1.0, 200.0)}, "360 wide"),
        ({"west": math.inf}, "west"),
        ({"cells": np.array([9])}, "grid"),
        ({"cells": np.array([-1])}, "grid"),
        ({"weights": np.array([-1.0])}, "from 0"),
        ({"weights": np.array([math.nan])}, "from 0"),
        ({"weights": np.array([0.0])}, "above 0"),
        ({"weights": np.array([1.0, 2.0])}, "same length"),
    ],
)
def test_a_wrong_prior_is_refused(change: dict[str, Any], expected: str) -> None:
    right = Prior("p", 0, 0, (1, 1), (3, 3), np.array([4]), np.ones(1))
    with pytest.raises(ParameterError, match=expected):
        dataclasses.replace(right, **change)


def test_wrong_settings_are_refused() -> None:
    for background in (0.0, -1.0, math.nan):
        with pytest.raises(ParameterError, match="background"):
            PriorRemap(town(), background)
    for max_shift in (0.0, 5.0):
        with pytest.raises(ParameterError, match="max_shift"):
            PriorRemap(town(), max_shift=max_shift)
    nothing: Any = "world"
    with pytest.raises(ParameterError, match=r"hereish\.Prior"):
        PriorRemap(nothing)


def test_its_name_is_that_of_the_prior() -> None:
    remap: hereish.Remap = PriorRemap(town())
    assert remap.name == "town"
