"""Where secrets live: distance, noise, and the public grid that releases are rounded to.

A space is anything with the members of `Space`. Arrays have one row per lane and one column per
coordinate, so one report and a million go through the same lines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from hereish.core import noise
from hereish.core.privacy import positive
from hereish.core.types import Floats, PerLane
from hereish.errors import ParameterError

# WGS84, and the mean radius that great-circle distances are usually given with.
_EQUATOR_M, _POLE_M = 6378137.0, 6356752.314245179
_MEAN_RADIUS_M = 6371008.771415059
_RADIANS, _DEGREES = math.pi / 180.0, 180.0 / math.pi
# From here on a step of longitude is less than a tenth of a step of latitude.
_POLAR_DEG = 84.0
# Coordinates beyond this many grid steps would leave no room below the grid for exact noise.
_MOST_GRID_STEPS = 2.0**40
# Noise of eps = 1 per so many grid steps goes no further than 90 times as many, where doubles are
# finer than the grid by 2**15: what that costs is in known-limits.md.
_WIDEST_NOISE_STEPS = 2.0**30


class Coordinate(NamedTuple):
    """One number of a point: its name, and the finite range it must lie in."""

    name: str
    low: float
    high: float


class Space(Protocol):
    """What the mechanism needs of a space; your own metric is a class with these members.

    It may also have `unrounded_noise(x, eps, u)`, of which `noise` is the `snap`: `NoiseFirst`
    needs it.
    """

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """The numbers that a point consists of, with the range of each."""
        ...

    @property
    def uniforms(self) -> int:
        """How many uniforms one noisy point takes."""
        ...

    @property
    def claim_factor(self) -> float:
        """`claim_factor * distance(a, b)` never exceeds the distance the guarantee speaks of."""
        ...

    @property
    def unit(self) -> str:
        """What `distance` is measured in, for people."""
        ...

    @property
    def smallest_eps(self) -> float:
        """With less than this, noise would be too large for the grid; 0 if there is no such end."""
        ...

    @property
    def private(self) -> bool:
        """Whether `noise` is private; False for tests and comparisons."""
        ...

    def distance(self, a: Floats, b: Floats) -> Floats:
        """The metric, lane by lane."""
        ...

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        """A release on the grid, `eps * distance`-private in `x`; `u` has `uniforms` columns."""
        ...

    def snap(self, points: Floats) -> Floats:
        """The nearest points of the public grid, in one canonical form; NaN stays NaN."""
        ...

    def c_noise(self, delta: float) -> float:
        """The delta-quantile of `distance(x, noise(x))` for eps = 1."""
        ...


def find_point_outside(space: Space, points: Floats) -> tuple[int, str] | None:
    """The first lane whose point is not in the space, and why, without the point."""
    for i, (name, low, high) in enumerate(space.coordinates):
        column = points[:, i]
        inside = (column >= low) & (column <= high)  # NaN is not
        if np.count_nonzero(inside) < len(inside):
            lane = int(np.flatnonzero(~inside)[0])
            if not math.isfinite(column[lane]):
                return lane, f"{name} is not a finite number"
            return lane, f"{name} is outside {low:g}..{high:g}"
    return None


def columns(u: Floats) -> tuple[Floats, ...]:
    """The columns of `u`, each contiguous: transcendental loops then take one path for any size."""
    return tuple(np.ascontiguousarray(u[:, i]) for i in range(u.shape[1]))


def gamma2_quantile(delta: float) -> float:
    """Solves `1 - (1 + c) exp(-c) = delta`: the planar (and Manhattan) `c_noise`."""
    usual = _USUAL_QUANTILES.get(probability("delta", delta))
    if usual is not None:
        return usual
    from scipy.special import gammaincinv  # here because scipy is slow to import

    return float(gammaincinv(2.0, delta))


# As gammaincinv gives them: most programs need no other, and scipy takes longer to import than
# many a file to sanitise.
_USUAL_QUANTILES = {
    0.5: 1.6783469900166612,
    0.8: 2.9943083470021232,
    0.9: 3.889720169867429,
    0.95: 4.743864518390577,
    0.99: 6.638352067993811,
}


def probability(name: str, value: float) -> float:
    """`value` if it lies strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise ParameterError(f"{name} must lie strictly between 0 and 1, found {value!r}")
    return float(value)


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= positive(name, value) <= high:
        raise ParameterError(f"{name} must lie between {low:g} and {high:g}, found {value!r}")


def are_rows(a: Floats, b: Floats) -> bool:
    """Whether both are arrays with one row per lane."""
    return getattr(a, "ndim", 0) == 2 and getattr(b, "ndim", 0) == 2


def distance_of_any(space: Space, a: ArrayLike, b: ArrayLike) -> Floats:
    """Distances of what people write: one point and another, or one and many, in any sequence."""
    dim = len(space.coordinates)
    rows = [np.asarray(points, dtype=np.float64).reshape(-1, dim) for points in (a, b)]
    distances = space.distance(*np.broadcast_arrays(*rows))
    single = np.ndim(a) < 2 > np.ndim(b) and len(distances) == 1
    return distances[0] if single else distances


def _round_to(step: float, values: Floats) -> Floats:
    # + 0.0 turns -0.0 into 0.0: its sign would tell on which side of zero the secret lies.
    # Whatever lies beyond the range of the coordinates is released as its end.
    steps = np.clip(np.rint(values / step), -_MOST_GRID_STEPS, _MOST_GRID_STEPS)
    return np.asarray(steps * step + 0.0)


@dataclass(frozen=True)
class Line:
    """One number, such as a meter reading; Laplace noise; a grid of `grid` units.

    Guarantee: `noise` is eps * |a - b|-private up to the rounding bounded in known-limits.md.
    """

    grid: float = 1e-3
    uniforms = 2
    claim_factor = 1.0
    unit = "units"
    private = True

    def __post_init__(self) -> None:
        _within("grid", self.grid, 1e-250, 1e250)

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        limit = _MOST_GRID_STEPS * self.grid
        return (Coordinate("the number", -limit, limit),)

    @property
    def smallest_eps(self) -> float:
        """With less, noise would be so large that the gaps of doubles tell on the grid."""
        return 1.0 / (_WIDEST_NOISE_STEPS * self.grid)

    def distance(self, a: Floats, b: Floats) -> Floats:
        if not are_rows(a, b):
            return distance_of_any(self, a, b)
        return np.asarray(np.abs(a[:, 0] - b[:, 0]))

    def unrounded_noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        """What `noise` rounds. Never to be released: its last bits tell the secret."""
        u1, u2 = columns(u)
        moved = x[:, 0] + noise.line_offset(eps, u1, u2)
        return moved[:, None]  # [N14]

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return self.snap(self.unrounded_noise(x, eps, u))  # [N7]

    def snap(self, points: Floats) -> Floats:
        return _round_to(self.grid, points)

    def c_noise(self, delta: float) -> float:
        return -math.log1p(-probability("delta", delta))


@dataclass(frozen=True)
class Plane:
    """Metres east and north on a flat map; planar Laplace noise; a grid of `grid_m` metres.

    Guarantee: `noise` is eps * Euclid-private up to the rounding bounded in known-limits.md.
    """

    grid_m: float = 1.0
    uniforms = 3
    claim_factor = 1.0
    unit = "m"
    private = True

    def __post_init__(self) -> None:
        _within("grid_m", self.grid_m, 1e-100, 1e100)  # squares of distances are finite

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        limit = _MOST_GRID_STEPS * self.grid_m
        return Coordinate("metres east", -limit, limit), Coordinate("metres north", -limit, limit)

    @property
    def smallest_eps(self) -> float:
        """With less, noise would be so large that the gaps of doubles tell on the grid."""
        return 1.0 / (_WIDEST_NOISE_STEPS * self.grid_m)

    def distance(self, a: Floats, b: Floats) -> Floats:
        if not are_rows(a, b):
            return distance_of_any(self, a, b)
        east, north = a[:, 0] - b[:, 0], a[:, 1] - b[:, 1]
        return np.asarray(np.sqrt(east * east + north * north))

    def unrounded_noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        """What `noise` rounds. Never to be released: its last bits tell the secret."""
        u1, u2, u3 = columns(u)
        radius = noise.plane_radius(eps, u1, u2)
        sine, cosine = noise.sine_cosine(math.pi * u3)
        moved = np.empty_like(x)
        moved[:, 0] = x[:, 0] + radius * cosine
        moved[:, 1] = x[:, 1] + radius * sine
        return moved  # [N15]

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return self.snap(self.unrounded_noise(x, eps, u))  # [N8]

    def snap(self, points: Floats) -> Floats:
        return _round_to(self.grid_m, points)

    def c_noise(self, delta: float) -> float:
        return gamma2_quantile(delta)


@dataclass(frozen=True)
class Sphere:
    """Latitude and longitude in degrees; great-circle metres; a grid of `decimals` decimals.

    Laplace noise on a sphere has the same constant at every point, so no projection is needed,
    and none could leak where it was centred.

    Guarantee: with eps scaled by `claim_factor`, as the step does, what it promises per metre
    holds in WGS84 geodesic metres, everywhere, up to the rounding bounded in known-limits.md.
    """

    decimals: int = 5
    coordinates = (Coordinate("latitude", -90.0, 90.0), Coordinate("longitude", -180.0, 180.0))
    uniforms = 3
    # The narrowest curve of the ellipsoid (north-south at the equator, radius b*b/a) over the
    # mean radius: great circles are longer than geodesics by at most its inverse, 0.56 %.
    claim_factor = _POLE_M * _POLE_M / _EQUATOR_M / _MEAN_RADIUS_M  # [N9]
    unit = "m"
    smallest_eps = 0.0
    private = True

    def __post_init__(self) -> None:
        if not (isinstance(self.decimals, int) and 0 <= self.decimals <= 6):
            raise ParameterError(
                f"decimals must be a whole number from 0 to 6 (5 is about 1 m), "
                f"found {self.decimals!r}"
            )

    def distance(self, a: Floats, b: Floats) -> Floats:
        if not are_rows(a, b):
            return distance_of_any(self, a, b)
        # Squared tangents t of half the angles between latitudes, between longitudes, and of the
        # sum of the latitudes.
        t = np.empty((3, len(a)))
        np.subtract(a.T, b.T, out=t[:2])
        np.add(a[:, 0], b[:, 0], out=t[2])
        t *= 0.5 * _RADIANS
        np.tan(t, out=t)
        t *= t
        # The haversine h with sin² = t/(1+t) and cos² = 1/(1+t): its numerator over that of 1 - h,
        # each a sum of what is not negative, is the squared tangent of half the distance. That is
        # accurate at the poles and, unlike the arcsine of h, near the antipode.
        north, east, around = t
        one_and_north, one_and_around = 1.0 + north, 1.0 + around
        haversine = np.multiply(north, one_and_around, out=north)
        complement = np.multiply(east, around, out=around)
        complement *= one_and_north
        complement += one_and_around
        haversine += np.multiply(east, one_and_north, out=east)
        haversine /= complement
        tangent = np.sqrt(haversine, out=haversine)
        half_angle = np.arctan(tangent, out=tangent)
        return np.asarray(np.multiply(half_angle, 2.0 * _MEAN_RADIUS_M, out=half_angle))

    def unrounded_noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        """What `noise` rounds, its longitude not yet brought into range. Never to be released."""
        return self.place(self.draw(x, eps, u), x)

    def draw(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        """(3, lanes) Noise as unit vectors, in axes turned so that each secret has longitude 0."""
        u1, u2, u3 = columns(u)
        half = np.empty((3, len(x)))
        np.multiply(noise.sphere_angle(eps * _MEAN_RADIUS_M, u1, u2), 0.5, out=half[0])
        np.multiply(u3, math.pi, out=half[1])
        np.multiply(x[:, 0], 0.5 * _RADIANS, out=half[2])
        sines, cosines = noise.sine_cosine(half)
        (sin_angle, sin_bearing, sin_lat), (cos_angle, cos_bearing, cos_lat) = sines, cosines
        # Outwards, east and up. Well conditioned everywhere, the poles included.
        drawn = np.empty((3, len(x)))
        north = sin_angle * cos_bearing
        np.multiply(sin_angle, sin_bearing, out=drawn[1])
        np.subtract(cos_lat * cos_angle, sin_lat * north, out=drawn[0])
        np.add(sin_lat * cos_angle, cos_lat * north, out=drawn[2])
        return drawn

    def place(self, drawn: Floats, x: Floats) -> Floats:
        """Latitude and longitude of what was drawn for the secrets `x`."""
        out, east, up = drawn
        moved = np.empty_like(x)
        moved[:, 0] = np.arctan2(up, np.sqrt(out * out + east * east)) * _DEGREES
        moved[:, 1] = np.arctan2(east, out) * _DEGREES + x[:, 1]
        return moved  # [N16]

    def distance_to(self, guess: Floats, drawn: Floats, x: Floats) -> Floats:
        """The great-circle distance from what was drawn for the secrets `x` to the guesses."""
        half = np.empty((2, len(x)))
        np.multiply(guess[:, 0], 0.5 * _RADIANS, out=half[0])
        np.subtract(guess[:, 1], x[:, 1], out=half[1])
        half[1] *= 0.5 * _RADIANS
        (up, sin_lon), (cos_lat, cos_lon) = noise.sine_cosine(half)
        # Squared distances through the globe to the guess and to its antipode: their ratio is the
        # squared tangent of half the angle, accurate at both ends.
        vector = np.empty((3, len(x)))
        np.multiply(cos_lat, cos_lon, out=vector[0])
        np.multiply(cos_lat, sin_lon, out=vector[1])
        vector[2] = up
        apart = drawn - vector
        apart *= apart
        vector += drawn
        vector *= vector
        tangent = np.sqrt((apart[0] + apart[1] + apart[2]) / (vector[0] + vector[1] + vector[2]))
        return np.asarray(np.arctan(tangent, out=tangent) * (2.0 * _MEAN_RADIUS_M))

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return self.snap(self.unrounded_noise(x, eps, u))  # [N10]

    def snap(self, points: Floats) -> Floats:
        scale = 10.0**self.decimals
        steps = np.rint(points * scale)
        lat, lon = steps[:, 0], steps[:, 1]
        polar = np.abs(lat) > _POLAR_DEG * scale
        if np.count_nonzero(polar):
            lanes = np.flatnonzero(polar)
            lon[lanes] = self._polar_longitude(lat[lanes], lon[lanes])
        turn = 360.0 * scale
        if np.count_nonzero(np.abs(lon) >= 0.5 * turn):
            lon -= turn * np.floor((lon + 0.5 * turn) / turn)  # [-180, 180), in whole steps: exact
        steps += 0.0  # no -0.0, see _round_to
        steps /= scale
        return np.asarray(steps)

    def _polar_longitude(self, lat: Floats, lon: Floats) -> Floats:
        """Longitude on a grid that widens as the meridians draw together: cells stay that wide.

        Both are in grid steps. The width depends on the rounded latitude alone, which is released.
        """
        cosine = np.sin((90.0 - np.abs(lat) / 10.0**self.decimals) * _RADIANS)
        tens = np.clip(np.ceil(-np.log10(np.maximum(cosine, 1e-9)) - 1.0), 0.0, self.decimals + 1)
        wider = 10.0**tens
        at_pole = np.abs(lat) >= 90.0 * 10.0**self.decimals  # which has one name
        return np.where(at_pole, 0.0, np.rint(lon / wider) * wider)

    def c_noise(self, delta: float) -> float:
        # The planar constant: exact to 1e-6 for noise under 10 km, and an upper bound beyond.
        return gamma2_quantile(delta)
