"""`NoiseFirst`: how much easy tells of the secret, and the law of what is released.

Slopes are sums over a fixed set of uniforms, through the code that draws, measures and accepts:
nothing in them is statistical. Frequencies: n = 400,000 decisions each, alpha = 1e-6, fixed seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from scipy.integrate import quad

from hereish import Line, Manhattan, NoiseFirst, Plane, Question, Sphere
from hereish.core.decision import CLAMP
from hereish.core.noise import sphere_angle
from hereish.core.spaces import Space
from hereish.core.types import Bools, Floats
from tests.support.compass import RADIUS_M
from tests.support.exact_trigonometry import PI, sine_cosine
from tests.support.laws import ALPHA, binomial_p, cells_p, smallest_share_error, uniforms

N = 400_000
EPS, E, THRESHOLD = 2e-3, 5e-4, 1000.0
METRE = math.degrees(1.0 / RADIUS_M)


class World(NamedTuple):
    """A space, the guess, and the secret that lies `metres` from it, always in one direction."""

    space: Line | Plane | Sphere
    guess: tuple[float, ...]
    at: Callable[[float], tuple[float, ...]]


WORLDS = {
    "line": World(Line(1.0), (30.0,), lambda metres: (30.0 + metres,)),
    "plane": World(
        Plane(), (100.0, -50.0), lambda metres: (100.0 + 0.6 * metres, -50.0 + 0.8 * metres)
    ),
    "city blocks": World(
        Manhattan(), (100.0, -50.0), lambda metres: (100.0 + 0.3 * metres, -50.0 + 0.7 * metres)
    ),
    "sphere": World(Sphere(), (-89.5, 77.0), lambda metres: (-89.5 + metres * METRE, 77.0)),
}


def _lattice(columns: int, count: int = 1 << 16) -> Floats:
    """Points that fill the unit cube evenly: multiples of powers of a generalised golden ratio."""
    ratio = 2.0
    for _ in range(60):
        ratio = (1.0 + ratio) ** (1.0 / (columns + 1))
    steps = ratio ** -np.arange(1.0, columns + 1.0)
    return np.asarray((0.5 + np.arange(1.0, count + 1.0)[:, None] * steps) % 1.0)


def _easy(world: World, metres: float, rounded: bool = False, eps: float = EPS) -> float:
    """P(easy): the mean acceptance over the lattice."""
    space, u = world.space, _lattice(world.space.uniforms)
    x = np.tile(world.at(metres), (len(u), 1))
    drawn = space.unrounded_noise(x, eps, u)
    if rounded:
        drawn = space.snap(drawn)
    guess = np.tile(world.guess, (len(u), 1))
    return float(NoiseFirst.acceptance(space.distance(drawn, guess), E, THRESHOLD).mean())


@pytest.mark.parametrize("place", WORLDS)
def test_easy_loses_nearly_all_that_it_costs_and_never_more(place: str) -> None:
    world = WORLDS[place]
    slopes = []
    for metres in np.linspace(0.0, 12_000.0, 25):
        for apart in (1.0, 300.0):
            one, other = _easy(world, metres), _easy(world, metres + apart)
            slopes.append(abs(math.log(one / other)) / (E * apart))
    assert max(slopes) <= 1.0 + 1e-9
    assert max(slopes) > 0.995


COARSE = {
    "line": World(Line(2000.0), (0.0,), lambda metres: (metres,)),
    "plane": World(Plane(2000.0), (0.0, 0.0), lambda metres: (metres, 0.0)),
}


@pytest.mark.parametrize("place", COARSE)
def test_on_the_rounded_place_easy_would_lose_twice_what_it_costs(place: str) -> None:
    """Noise smaller than the grid, secrets 50 m apart: acceptance moves by whole cells."""

    def steepest(rounded: bool) -> float:
        at = np.arange(2000.0, 6001.0, 50.0)
        chances = [_easy(COARSE[place], metres, rounded, 4.0 * EPS) for metres in at]
        return float(np.abs(np.diff(np.log(chances))).max()) / (50.0 * E)

    assert steepest(rounded=False) <= 1.0 + 1e-9
    assert steepest(rounded=True) > 2.0


def _decided(
    space: Space, x: tuple[float, ...], guess: tuple[float, ...], seed: int, eps_test: float = E
) -> tuple[Bools, Floats]:
    """Of N decisions, which are hard, and what they release."""
    asked = Question(
        x=np.tile(x, (N, 1)),
        guess=np.tile(guess, (N, 1)),
        eps_test=eps_test,
        eps_noise=EPS,
        threshold=THRESHOLD,
        all_tested=True,
        open=np.ones(N, dtype=np.bool_),
    )
    return NoiseFirst().decide(space, asked, uniforms(seed, N, 1 + space.uniforms))


def _accepted(distance: float) -> float:
    chance = math.exp(-E * max(0.0, distance - THRESHOLD))
    return min(max(chance, CLAMP), 1.0 - CLAMP)


def _exact_shares(on_line: bool, metres: float, edges: Floats) -> tuple[float, Floats]:
    """P(easy), and P(hard and so far from the guess) between each two edges. By quadrature.

    The noise lies within r and r + dr of the guess with the density of Laplace noise there, on
    the plane summed over the circle.
    """
    turns = (np.arange(4000) + 0.5) * (math.pi / 4000)

    def density(r: float) -> float:
        if on_line:
            return 0.5 * EPS * sum(math.exp(-EPS * abs(side * r - metres)) for side in (1, -1))
        away = np.sqrt(r * r + metres * metres - 2.0 * r * metres * np.cos(turns))
        return float(EPS * EPS * r * np.exp(-EPS * away).mean())

    def mass(low: float, high: float, weight: Callable[[float], float]) -> float:
        return float(quad(lambda r: density(r) * weight(r), low, high, limit=200)[0])

    cuts = sorted([0.0, THRESHOLD, metres, 20_000.0])
    easy = math.fsum(mass(a, b, _accepted) for a, b in pairwise(cuts))
    hard = [mass(a, b, lambda r: 1.0 - _accepted(r)) for a, b in pairwise(edges)]
    return easy, np.array(hard)


EDGES = np.array([1000.0, 1200, 1400, 1600, 1800, 2000, 2300, 2600, 3000, 3500, 4200, 5000, 20_000])


@pytest.mark.parametrize("place", ["line", "plane", "sphere"])  # whose rings are known
@pytest.mark.parametrize("metres", [1500.0, 3000.0])
def test_guesses_are_accepted_and_noise_released_by_their_laws(place: str, metres: float) -> None:
    """Shares: of 0.8 points; the law of the noise: 12 rings around the guess, chi-squared."""
    world = WORLDS[place]
    hard, fresh = _decided(world.space, world.at(metres), world.guess, 801)
    easy, rings = _exact_shares(place == "line", metres, EDGES)
    low, high = smallest_share_error(N, easy)
    assert easy - 0.008 < low < easy < high < easy + 0.008
    assert binomial_p(int((~hard).sum()), N, easy) >= ALPHA
    assert rings.sum() == pytest.approx(1.0 - easy, rel=1e-4)
    off = world.space.distance(fresh, np.tile(world.guess, (len(fresh), 1)))
    counts = np.histogram(off, np.concatenate([[0.0], EDGES[1:]]))[0]
    assert cells_p(counts, rings / rings.sum()) >= ALPHA
    # Controls: a coin of nine tenths of the eps, and noise that was not thinned out by the coin.
    wrong, _ = _decided(world.space, world.at(metres), world.guess, 801, 0.9 * E)
    assert binomial_p(int((~wrong).sum()), N, easy) < ALPHA
    x = np.tile(world.at(metres), (N, 1))
    plain = world.space.noise(x, EPS, uniforms(802, N, world.space.uniforms))
    off = world.space.distance(plain, np.tile(world.guess, (N, 1)))
    counts = np.histogram(off[off > THRESHOLD], np.concatenate([[0.0], EDGES[1:]]))[0]
    assert cells_p(counts, rings / rings.sum()) < ALPHA


def test_the_chance_is_clamped_away_from_0_and_1() -> None:
    edge = -math.log(CLAMP) / E
    at = THRESHOLD + np.array([-1e9, 0.0, 0.5 * CLAMP / E, 0.999 * edge, 1.001 * edge, 1e12])
    chance = NoiseFirst.acceptance(at, E, THRESHOLD)
    assert (chance[:3] == 1.0 - CLAMP).all()
    assert chance[3] == pytest.approx(CLAMP, rel=0.02)
    assert chance[3] > CLAMP
    assert (chance[4:] == CLAMP).all()
    far = NoiseFirst.acceptance(np.array([THRESHOLD + 2000.0]), E, THRESHOLD)
    assert far == pytest.approx([math.exp(-1.0)], rel=1e-14)


def _vector(angles: tuple[Decimal, Decimal]) -> tuple[Decimal, ...]:
    """Of latitude and longitude, in radians: out, east and up."""
    (sin_lat, cos_lat), (sin_lon, cos_lon) = map(sine_cosine, angles)
    return cos_lat * cos_lon, cos_lat * sin_lon, sin_lat


def _exact_place(x: Floats, angle: float, turn: float) -> tuple[Decimal, ...]:
    """Where noise of this angle and bearing leads to."""
    lat, lon = (Decimal(float(degrees)) * PI / 180 for degrees in x)
    (sin_t, cos_t), (sin_b, cos_b) = map(sine_cosine, (Decimal(angle), 2 * PI * Decimal(turn)))
    (sin_lat, cos_lat), (sin_lon, cos_lon) = sine_cosine(lat), sine_cosine(lon)
    out = cos_lat * cos_t - sin_lat * sin_t * cos_b
    up, east = sin_lat * cos_t + cos_lat * sin_t * cos_b, sin_t * sin_b
    return out * cos_lon - east * sin_lon, out * sin_lon + east * cos_lon, up


def test_the_drawn_place_and_its_distance_to_the_guess_are_right_to_a_few_nanometres() -> None:
    """60 digits; poles, the antimeridian, noise from metres to the globe's size, any guess.

    What noise_first.proof.md allows is 2e-8 m.
    """
    rng, count = np.random.default_rng(5), 300
    x = np.column_stack([rng.uniform(-90.0, 90.0, count), rng.uniform(-180.0, 180.0, count)])
    x[::5, 0] = rng.choice([90.0, -90.0, 89.99999, 0.0], len(x[::5]))
    x[::3, 1] = rng.choice([180.0, -180.0, 179.99999, 0.0], len(x[::3]))
    guess = np.column_stack([rng.uniform(-90.0, 90.0, count), rng.uniform(-180.0, 180.0, count)])
    guess[::2] = np.clip(x[::2] + rng.normal(0.0, 1e-2, x[::2].shape), -90.0, 90.0)
    u = uniforms(803, count, 3)
    eps = 10.0 ** rng.uniform(-8.0, 0.0, count)
    radius_m = 6371008.771415059
    angle = sphere_angle(eps * radius_m, np.array(u[:, 0]), np.array(u[:, 1]))
    off = Sphere().distance(Sphere().unrounded_noise(x, eps, u), guess)
    worst = 0.0
    with localcontext(Context(prec=60)):
        for i in range(count):
            place = _exact_place(x[i], float(angle[i]), float(u[i, 2]))
            lat, lon = (Decimal(float(degrees)) * PI / 180 for degrees in guess[i])
            known = _vector((lat, lon))
            sine, cosine = sine_cosine(Decimal(float(off[i])) / (2 * Decimal(radius_m)))
            # The chord to the guess or, on the far half of the globe, to its antipode.
            sign, half = (-1, sine) if sine < cosine else (1, cosine)
            chord = sum((a + sign * b) ** 2 for a, b in zip(place, known, strict=True))
            wrong = abs(Decimal(chord).sqrt() - 2 * half) * Decimal(2).sqrt()
            worst = max(worst, float(wrong) * radius_m)
    assert worst < 2e-8, worst
    assert worst > 1e-10, "doubles do round"
