"""Releases lie on a public grid, so no value of one secret is impossible for its neighbour.

Frequencies: n = 1,000,000 releases of each secret, alpha = 1e-6, fixed seeds. A cell that both
secrets should hit 50 times is missed by one with a chance of exp(-50) = 2e-22.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from hereish import Line, Plane, Sphere
from hereish.core.noise import line_offset, plane_radius
from hereish.core.types import Floats, Ints
from tests.support.compass import RADIUS_M, seen_from, walk
from tests.support.laws import ALPHA, ratio_p, smallest_ratio, uniforms

N = 1_000_000
EXPECTED = 50
Space = Line | Plane | Sphere
Pair = tuple[Space, float, list[float], list[float]]


def _on_globe(lat: float, lon: float, metres: float) -> tuple[list[float], list[float]]:
    """A place, and one that lies so many metres north-east of it."""
    x = np.array([[lat, lon]])
    moved = walk(x, np.array([metres / RADIUS_M]), np.array([math.pi / 4]))
    return [lat, lon], moved[0].tolist()


def _last_bit(value: float) -> float:
    return float(np.nextafter(value, math.inf))


# Space, eps, and two neighbours. Noise of a few cells; the last of each kind differ by last bits.
PAIRS: dict[str, Pair] = {
    "line, 1 apart": (Line(grid=1.0), 1 / 4, [0.1], [1.1]),
    "line, 10 apart": (Line(grid=1.0), 1 / 4, [0.1], [10.1]),
    "line, last bit": (Line(grid=1.0), 1 / 4, [0.1], [_last_bit(0.1)]),
    "line, across zero": (Line(grid=1.0), 1 / 4, [-1e-9], [1e-9]),
    "plane, 1 m apart": (Plane(), 1 / 3, [0.3, -0.2], [0.9, 0.6]),
    "plane, 10 m apart": (Plane(), 1 / 3, [0.3, -0.2], [6.3, 7.8]),
    "plane, last bit": (Plane(), 1 / 3, [0.3, -0.2], [_last_bit(0.3), _last_bit(-0.2)]),
    "globe, 1 m apart": (Sphere(), 1 / 3, *_on_globe(40.0, 116.3, 1.0)),
    "globe, 10 m apart": (Sphere(), 1 / 3, *_on_globe(40.0, 116.3, 10.0)),
    "globe, last bit": (Sphere(), 1 / 3, [40.0, 116.3], [_last_bit(40.0), _last_bit(116.3)]),
    "globe, across the antimeridian": (Sphere(), 1 / 3, [10.0, -180.0], [10.0, 179.99999]),
    # Meridians meet there: only cells of whole degrees are large enough to be hit twice.
    "globe, around the pole": (Sphere(decimals=0), 1 / 2e5, [89.6, 0.0], [89.6, 180.0]),
}


def _distance(space: Space, a: list[float], b: list[float]) -> float:
    return float(space.distance(np.array([a]), np.array([b]))[0])


def _releases(space: Space, eps: float, secret: list[float], seed: int) -> Floats:
    return space.noise(np.tile(secret, (N, 1)), eps, uniforms(seed, N, space.uniforms))


def _raw(space: Space, eps: float, secret: list[float], seed: int) -> Floats:
    """The same noise as doubles, not rounded to the grid: what a careless library would release."""
    x, u = np.tile(secret, (N, 1)), uniforms(seed, N, 3)
    if isinstance(space, Line):
        return np.asarray(x + line_offset(eps, u[:, 0], u[:, 1])[:, None])
    radius, turn = plane_radius(eps, u[:, 0], u[:, 1]), 2.0 * math.pi * u[:, 2]
    if isinstance(space, Sphere):
        return walk(x, radius / RADIUS_M, turn)
    return np.asarray(x + radius[:, None] * np.column_stack([np.cos(turn), np.sin(turn)]))


def _tables(a: Floats, b: Floats) -> tuple[Ints, Ints]:
    """How often each value that was released at all was released for the two secrets."""
    both = np.ascontiguousarray(np.concatenate([a, b]))
    names = both.view(np.dtype((np.void, both.dtype.itemsize * both.shape[1]))).ravel()
    _, which = np.unique(names, return_inverse=True)
    cells = int(which.max()) + 1
    return tuple(np.bincount(half, minlength=cells) for half in np.split(which, 2))  # type: ignore[return-value]  # two halves


def _impossible(a: Ints, b: Ints, bound: float) -> int:
    """Values released for one secret so often that the other should have hit them 50 times, by
    the promised bound, and that it never hit."""
    most, least = np.maximum(a, b), np.minimum(a, b)
    return int(((most >= EXPECTED * bound) & (least == 0)).sum())


@pytest.mark.parametrize("name", PAIRS)
def test_neighbours_share_all_their_releases_and_their_frequencies_obey_the_bound(
    name: str,
) -> None:
    """Seen, in the fullest cell: a ratio of 1.4 times the bound for near neighbours, of 1.8 times
    for those that are 10 m apart (a bound of 28)."""
    space, eps, x, y = PAIRS[name]
    bound = math.exp(eps * _distance(space, x, y))
    a, b = _tables(_releases(space, eps, x, 701), _releases(space, eps, y, 702))
    assert (np.maximum(a, b) >= EXPECTED * bound).sum() > 40, "there is something to see"
    seen = smallest_ratio(int((a + b).max()), len(a), bound)
    assert seen < (1.4 if bound < 4.0 else 1.8) * bound
    assert _impossible(a, b, bound) == 0
    assert ratio_p(a, b, bound) >= ALPHA


@pytest.mark.parametrize("name", [name for name in PAIRS if "10 " in name])
def test_too_little_noise_breaks_the_bound_on_the_grid(name: str) -> None:
    """The control of the ratios: eps times 1.5, that is a third of the noise missing."""
    space, eps, x, y = PAIRS[name]
    bound = math.exp(eps * _distance(space, x, y))
    a, b = _tables(_releases(space, 1.5 * eps, x, 701), _releases(space, 1.5 * eps, y, 702))
    assert ratio_p(a, b, bound) < ALPHA


@pytest.mark.parametrize("name", [name for name in PAIRS if "1 " in name or "bit" in name])
def test_raw_doubles_of_neighbours_are_almost_disjoint(name: str) -> None:
    """The control of the sets: unrounded, a value names its secret. Nearly none is shared."""
    space, eps, x, y = PAIRS[name]
    a, b = _tables(_raw(space, eps, x, 701), _raw(space, eps, y, 702))
    assert ((a > 0) & (b > 0)).sum() < 1e-3 * len(a)


def test_a_grid_that_moves_with_the_secret_is_caught() -> None:
    """The control of `_impossible`: rounding the noise instead of the release names the secret."""
    eps, grid = 0.25, Line(grid=1.0)
    u = uniforms(703, N, 2)
    noise = grid.snap(line_offset(eps, u[:, 0], u[:, 1])[:, None])
    a, b = _tables(noise + 0.1, noise + 0.6)
    assert _impossible(a, b, math.exp(eps * 0.5)) > 20


@pytest.mark.parametrize("name", PAIRS)
def test_every_release_is_exactly_a_point_of_the_grid(name: str) -> None:
    """From a release nothing finer than the grid can be read: it is a function of whole numbers."""
    space, eps, x, _ = PAIRS[name]
    released = _releases(space, eps, x, 704)
    if isinstance(space, Sphere):
        scale = 10.0**space.decimals
        assert np.array_equal(np.rint(released * scale) / scale, released), "as one would type it"
    else:
        assert np.array_equal(np.rint(released), released)
    assert np.array_equal(space.snap(released), released)
    assert not np.signbit(released[released == 0.0]).any(), "-0.0 would tell which side it was"


def test_the_low_bits_of_a_release_do_not_depend_on_the_low_bits_of_the_secret() -> None:
    """Same uniforms, secrets that differ in the last bits only: the same releases but for the few
    draws that fall on a cell's edge, of which there are none in n = 1,000,000."""
    for space, secret in ((Plane(), [0.3, -0.2]), (Sphere(), [40.0, 116.3]), (Line(), [0.1])):
        near = [_last_bit(value) for value in secret]
        assert np.array_equal(
            _releases(space, 1 / 30, secret, 705), _releases(space, 1 / 30, near, 705)
        )


def test_the_noise_leaves_no_cell_out() -> None:
    """Around a secret each cell of a square is hit, at n times its chance (smallest 100)."""
    released = _releases(Plane(), 1 / 3, [0.3, -0.2], 706)
    inside = (np.abs(released) <= 12).all(axis=1)
    column, row = (released[inside] + 12).astype(np.int64).T
    counts = np.bincount(column * 25 + row, minlength=625)
    assert len(counts) == 625
    assert counts.min() > 10
    centres = np.stack(np.meshgrid(np.arange(-12.0, 13.0), np.arange(-12.0, 13.0), indexing="ij"))
    away = np.hypot(centres[0] - 0.3, centres[1] + 0.2).ravel()
    density = N / (18.0 * math.pi) * np.exp(-away / 3)
    assert np.allclose(counts, density, rtol=0.05, atol=6.0 * math.sqrt(density.max()))


def test_noise_near_a_pole_reaches_the_pole_and_the_other_side() -> None:
    released = _releases(Sphere(), 1 / 3, [89.99998, 30.0], 707)
    seen = seen_from(np.tile([89.99998, 30.0], (N, 1)), released)
    poles = released[:, 0] == 90.0
    assert poles.sum() > 100
    assert (released[poles, 1] == 0.0).all(), "a pole has one name, or it would tell the meridian"
    beyond = np.abs((released[:, 1] - 30.0 + 180.0) % 360.0 - 180.0) > 90.0
    assert beyond.sum() > 100
    assert (seen.angle[beyond] * RADIUS_M > 1.0).all()
