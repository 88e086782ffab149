"""The globe as an observer sees it: latitude and longitude, great circles, planar Laplace noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hereish.attack.acceptance import log_accepted_noise_first, noise_first_table
from hereish.attack.cells import NoiseCell, make_cell
from hereish.attack.geometry import Postprocessed, ReplayTolerance, Undone
from hereish.attack.lattice import FINEST_M, M_PER_DEG, Frame, Grid, distance_m
from hereish.attack.movement import MOVEMENTS, Movement
from hereish.core.types import Floats

# Where noise that was moved is searched for: starts on rings around the release.
_ANGLES, _RADII, _BEST, _ITERATIONS = 24, 16, 8, 30
_CONVERGED_M, _ROUNDED_M = 0.05, 0.8  # releases are rounded to about a metre


@dataclass(frozen=True)
class OnGlobe:
    """The space of `hereish.Sphere`."""

    coordinates = 2
    cells = 64
    rounds = 3
    margins_m = (500.0, 200_000.0)
    tolerance = ReplayTolerance(cost=2e-3, contradictions=0.0)  # costs in files are decimal

    @property
    def movements(self) -> tuple[Movement, ...]:
        return MOVEMENTS

    def distance_m(self, a: Floats, b: Floats) -> Floats:
        return distance_m(a, b)

    def offsets_m(self, places: Floats, point: Floats) -> tuple[Floats, Floats]:
        """East and north."""
        return offsets_m(places, point)

    def covering(self, points: Floats, margin_m: float, cells: int) -> Grid:
        frame = Frame.around(points)
        return Grid.covering(frame, frame.to_metres(points), margin_m, cells, FINEST_M)

    def log_accepted(
        self, distance_m: Floats, eps_test: float, eps_noise: float, threshold_m: float
    ) -> Floats:
        return log_accepted_noise_first(distance_m, _table(eps_test, eps_noise, threshold_m))

    def undo(self, release: Postprocessed) -> Undone:
        noisy, exact = _undo(release)
        return Undone(noisy, exact, _cell(release) if _stands_for_much(release) else None)


GLOBE = OnGlobe()


@lru_cache(maxsize=8192)
def _table(eps_test: float, eps_noise: float, threshold_m: float) -> tuple[Floats, Floats]:
    return noise_first_table(eps_test, eps_noise, threshold_m)


def offsets_m(places: Floats, point: Floats) -> tuple[Floats, Floats]:
    """How far east and north of each place a point is."""
    north = (point[..., 0] - places[..., 0]) * 111_195.0797
    east = (point[..., 1] - places[..., 1] + 180.0) % 360.0 - 180.0
    return east * 111_195.0797 * np.cos(np.radians(places[..., 0])), north


def _undo(release: Postprocessed) -> tuple[Floats, bool]:
    """Newton's method from several starts, all of them in one call of the part."""
    value = release.value
    metres = np.array([M_PER_DEG, M_PER_DEG * max(np.cos(np.radians(value[0])), 1e-6)])
    scale_m = 1.0 / release.eps_noise

    def released(offsets_m: Floats) -> Floats:
        """Where noise so far north and east of the release would have been moved to."""
        apart = _moved(release, value + offsets_m / metres) - value
        apart[:, 1] = (apart[:, 1] + 180.0) % 360.0 - 180.0
        return np.asarray(apart * metres)

    residual = released(np.zeros((1, 2)))
    if float(np.hypot(*residual[0])) < _ROUNDED_M:  # nothing was near
        return value, True
    angle = np.arange(_ANGLES) * (2.0 * np.pi / _ANGLES)
    radius = release.reach_m * (np.arange(1, _RADII + 1) / _RADII) ** 2
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    starts = np.concatenate([np.zeros((1, 2)), (radius[:, None, None] * ring).reshape(-1, 2)])
    residual = released(starts)
    best = np.argsort(np.hypot(residual[:, 0], residual[:, 1]))[:_BEST]
    at, residual = starts[best], residual[best]
    step_m, damped = 1e-4 * scale_m, np.ones(len(at))
    slopes, determinant = np.zeros((len(at), 2, 2)), np.ones(len(at))
    for _ in range(_ITERATIONS):
        aside = np.concatenate([at + step_m * axis for axis in np.eye(2)])
        changed = (released(aside).reshape(2, -1, 2) - residual) / step_m
        slopes = changed.transpose(1, 2, 0)
        determinant = np.linalg.det(slopes)
        slopes = np.where((np.abs(determinant) > 1e-9)[:, None, None], slopes, np.eye(2))
        move = -np.linalg.solve(slopes, residual[:, :, None])[:, :, 0]
        length = np.hypot(move[:, 0], move[:, 1])
        move *= (damped * np.minimum(1.0, scale_m / np.maximum(length, 1e-9)))[:, None]
        tried = released(at + move)
        better = (tried**2).sum(axis=1) < (residual**2).sum(axis=1)
        at = np.where(better[:, None], at + move, at)
        residual = np.where(better[:, None], tried, residual)
        damped = np.where(better, np.minimum(2.0 * damped, 1.0), 0.3 * damped)
        if (((residual**2).sum(axis=1) < _CONVERGED_M**2) | (damped < 0.01)).all():
            break
    found = np.hypot(residual[:, 0], residual[:, 1]) < _ROUNDED_M
    if not found.any():
        return value, False
    spread = np.where(found, 1.0 / np.maximum(np.abs(determinant), 1e-9), 0.0)
    point = value + at[int(spread.argmax())] / metres
    point[1] = (point[1] + 180.0) % 360.0 - 180.0
    return np.asarray(point), True


def _stands_for_much(release: Postprocessed) -> bool:
    """Whether noise beside the release would have become the same one."""
    if not release.learns:
        return False
    aside = release.value + np.array([[0.0, 0.0], [2e-4, 0.0], [-2e-4, 0.0]])  # 20 m
    return bool((distance_m(_moved(release, aside), release.value) < _ROUNDED_M).all())


def _cell(release: Postprocessed) -> NoiseCell:
    def released_as(noisy: Floats) -> Floats:
        same = distance_m(_moved(release, noisy), release.value) < _ROUNDED_M
        return np.where(same, release.let_out(noisy), 0.0)

    return make_cell(release.value, release.eps_noise, release.reach_m, released_as)


def _moved(release: Postprocessed, noisy: Floats) -> Floats:
    points = np.clip(noisy, [-90.0, -np.inf], [90.0, np.inf])
    points[:, 1] = (points[:, 1] + 180.0) % 360.0 - 180.0
    return np.array(release.moved(points))
