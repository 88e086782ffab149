"""Points in axes without poles and seams, for predictions that follow a movement.

On the globe there are three axes, in metres from its centre, so that a course may cross a pole or
the antimeridian; on a plane and a line the coordinates are the axes. Nothing is centred anywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hereish.core import noise
from hereish.core.parts import check_declared
from hereish.core.spaces import Line, Plane, Space, Sphere
from hereish.core.types import Bools, Floats
from hereish.errors import ParameterError

_RADIANS, _DEGREES = math.pi / 180.0, 180.0 / math.pi
_RADIUS_M = 6_371_008.8
_FAR_M = 0.5 * _RADIUS_M  # a way through the globe of this length is 1 % longer round it


@dataclass(frozen=True)
class Axes:
    """How points of a space are written along axes."""

    space: Space
    count: int
    freedom: int  # how many numbers a point has; one fewer than the axes on the globe
    variance: float  # of noise of epsilon 1, along each direction in which points differ

    def of(self, points: Floats) -> Floats:
        """(axes, lanes) Where the points lie along each axis."""
        if type(self.space) is not Sphere:
            return np.ascontiguousarray(points.T)
        sines, cosines = noise.sine_cosine(np.ascontiguousarray(points.T) * (0.5 * _RADIANS))
        place = np.empty((3, len(points)))
        out = cosines[0] * _RADIUS_M
        np.multiply(out, cosines[1], out=place[0])
        np.multiply(out, sines[1], out=place[1])
        np.multiply(sines[0], _RADIUS_M, out=place[2])
        return place

    def points(self, place: Floats) -> Floats:
        """The points of the space that lie there, or nearest to it."""
        points = np.empty((place.shape[1], self.freedom))
        if type(self.space) is Sphere:
            out, east, up = place
            points[:, 0] = np.arctan2(up, np.sqrt(out * out + east * east)) * _DEGREES
            points[:, 1] = np.arctan2(east, out) * _DEGREES  # never beyond 180: pi has no more
            return points
        for i, (_, low, high) in enumerate(self.space.coordinates):
            np.clip(place[i], low, high, out=points[:, i])
        return points

    def roughly_apart(self, points: Floats, others: Floats) -> Floats:
        """(lanes,) How far apart, for scores: exact on a flat map, and on the globe where near."""
        if type(self.space) is not Sphere:
            return np.sqrt(squared_length(points.T - others.T))
        lat = np.ascontiguousarray(points[:, 0])
        north = (others[:, 0] - lat) * (_RADIANS * _RADIUS_M)
        east = others[:, 1] - points[:, 1]
        east -= 360.0 * np.rint(east * (1.0 / 360.0))
        east *= np.cos(lat * _RADIANS)
        east *= _RADIANS * _RADIUS_M
        return np.sqrt(north * north + east * east)

    def along_surface(self, place: Floats, speed: Floats) -> tuple[Floats, Floats]:
        """What went straight on from the globe, brought back to it; elsewhere as it is."""
        if type(self.space) is not Sphere:
            return place, speed
        back = _RADIUS_M / np.sqrt(np.maximum(squared_length(place), 1.0))
        place = place * back
        upwards = sum_rows(speed * place) / (_RADIUS_M * _RADIUS_M)
        return place, speed - upwards * place

    def is_far(self, steps: Floats) -> Bools:
        """Whether steps are so long that the globe is curved along them."""
        if type(self.space) is not Sphere:
            return np.zeros(steps.shape[1], dtype=np.bool_)
        return np.asarray(squared_length(steps) > _FAR_M * _FAR_M)


def axes_of(space: Space, part: str) -> Axes:
    """The axes of one of our own spaces; `part` needs them."""
    if type(space) not in (Sphere, Plane, Line):
        raise ParameterError(
            f"{part} works on a hereish.Sphere, Plane or Line, found {type(space).__name__}"
        )
    check_declared(space, "space", "coordinates")
    dim = len(space.coordinates)
    # Of the radius Gamma(2) the mean square is 6, half of it along each direction; of Laplace 2.
    return Axes(space, 3 if type(space) is Sphere else dim, dim, 2.0 if dim == 1 else 3.0)


def squared_length(steps: Floats) -> Floats:
    """(lanes,) The sum of the squares along the axes, in their order: the same for any lanes."""
    total = steps[0] * steps[0]
    for step in steps[1:]:
        total = total + step * step
    return np.asarray(total)


def sum_rows(rows: Floats) -> Floats:
    """The sum of the rows, in their order: the same bits for one lane and for many."""
    total = rows[0].copy()
    for row in rows[1:]:
        total += row
    return np.asarray(total)
