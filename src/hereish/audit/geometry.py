"""How an observer measures. Written apart from `core.spaces`, so that the two share no mistake."""

from __future__ import annotations

import math

import numpy as np

from hereish.core.types import Floats

_EQUATOR_M = 6378137.0
_POLE_M = _EQUATOR_M * (1.0 - 1.0 / 298.257223563)
RADIUS_M = (2.0 * _EQUATOR_M + _POLE_M) / 3.0
_TIGHTEST_M = _POLE_M * _POLE_M / _EQUATOR_M  # the smallest radius of curvature of WGS84
LONGEST_M = 100_000.0  # as far as `geodesic_m` is exact


class Globe:
    """Great-circle metres, by unit vectors; a map by distance and direction."""

    def positions(self, points: Floats) -> Floats:
        lat, lon = np.radians(points).T
        flat = np.cos(lat)
        return np.column_stack([flat * np.cos(lon), flat * np.sin(lon), np.sin(lat)])

    def distance(self, place: Floats, positions: Floats) -> Floats:
        chord = np.sqrt(((positions - place) ** 2).sum(axis=1))
        return np.asarray(2.0 * RADIUS_M * np.arcsin(np.minimum(0.5 * chord, 1.0)))

    def flat(self, place: Floats, positions: Floats) -> Floats:
        # At a pole, where there is no north, any two directions will do.
        axis = np.array([0.0, 0.0, 1.0]) if abs(place[2]) < 1.0 - 1e-15 else np.eye(3)[0]
        east = np.cross(axis, place)
        east /= np.sqrt(east @ east)
        moved = positions @ np.column_stack([east, np.cross(place, east)])
        length = np.hypot(*moved.T)
        stretch = self.distance(place, positions) / np.where(length > 0.0, length, 1.0)
        return np.asarray(moved * stretch[:, None])


class Flat:
    """A plane, or a line, which is a plane without a north."""

    def positions(self, points: Floats) -> Floats:
        if points.shape[1] == 2:
            return points
        return np.column_stack([points, np.zeros(len(points))])

    def distance(self, place: Floats, positions: Floats) -> Floats:
        return np.asarray(np.hypot(*(positions - place).T))

    def flat(self, place: Floats, positions: Floats) -> Floats:
        return np.asarray(positions - place)


def geodesic_m(a: Floats, b: Floats) -> Floats:
    """WGS84 geodesic metres between points less than 100 km apart, never too short.

    From the chord through the ellipsoid, bent as tightly as any arc on it: the two differ by
    a share of less than 2e-7 within 10 km.
    """
    chord = np.sqrt(((_geocentric(a) - _geocentric(b)) ** 2).sum(axis=1))
    return np.asarray(2.0 * _TIGHTEST_M * np.arcsin(np.minimum(chord / (2.0 * _TIGHTEST_M), 1.0)))


def _geocentric(points: Floats) -> Floats:
    """Metres from the centre of the earth, on the ellipsoid."""
    lat, lon = np.radians(points).T
    eccentric = 1.0 - (_POLE_M / _EQUATOR_M) ** 2
    normal = _EQUATOR_M / np.sqrt(1.0 - eccentric * np.sin(lat) ** 2)
    return np.column_stack(
        [
            normal * np.cos(lat) * np.cos(lon),
            normal * np.cos(lat) * np.sin(lon),
            (1.0 - eccentric) * normal * np.sin(lat),
        ]
    )


def destination(place: tuple[float, float], metres: float, bearing_deg: float) -> Floats:
    """The latitude and longitude that a great circle from a place leads to."""
    lat, lon, bearing = (math.radians(angle) for angle in (*place, bearing_deg))
    angle = metres / RADIUS_M
    up = math.sin(lat) * math.cos(angle) + math.cos(lat) * math.sin(angle) * math.cos(bearing)
    east = math.sin(bearing) * math.sin(angle) * math.cos(lat)
    north = math.cos(angle) - math.sin(lat) * up
    end = math.degrees(lon + math.atan2(east, north))
    latitude = math.degrees(math.asin(max(-1.0, min(1.0, up))))
    return np.array([latitude, (end + 540.0) % 360.0 - 180.0])
