"""Parts of trajectories by how somebody moved: straight and fast, fast, slow, or whatever.

They are cut out by the true movement, so they say where a prediction helps, not how to choose one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hereish.core.spaces import Sphere
from hereish.core.types import Bools, Floats, Ints
from hereish.errors import PointError
from hereish.evaluation.dataset import Trajectories, cut_at_silence
from hereish.evaluation.sampling import Queries

_STEP_S = 30.0  # over which speed and direction are taken: shorter, and errors of fixes turn it
_SILENT_S = 60.0  # of the logger: where it was silent nobody knows how somebody moved
_START_S = 1.75e9
_PER_DEGREE_M = 111_195.0
_FIX_S, _FIX_ERROR_M = 5.0, 4.0  # of made-up fixes


class MovementCriteria(NamedTuple):
    """Which parts are meant: their speeds, their turns, and how long they are at least."""

    name: str
    low_kmh: float
    high_kmh: float
    most_turn_deg: float  # from one half minute to the next
    least_s: float


STRAIGHT = MovementCriteria("straight and fast", 40.0, 400.0, 10.0, 600.0)
FAST = MovementCriteria("fast, with turns", 40.0, 400.0, 180.0, 600.0)
SLOW = MovementCriteria("on foot or staying", 0.0, 8.0, 180.0, 1200.0)
ANY = MovementCriteria("whatever they do", 0.0, 1000.0, 180.0, 1200.0)
MOVEMENTS = (STRAIGHT, FAST, SLOW, ANY)


class Parts(NamedTuple):
    """Parts of trajectories: of which, from when, and until when."""

    trajectories: Trajectories
    trajectory: Ints
    begin_s: Floats
    end_s: Floats

    def of(self, users: Bools) -> Parts:
        """Those of these users."""
        own = users[self.trajectories.user[self.trajectory]]
        return Parts(self.trajectories, self.trajectory[own], self.begin_s[own], self.end_s[own])

    def reports(self, every_s: float, most: int, rng: np.random.Generator) -> Queries:
        """A report every so often, the first fix of each slot, of about so many in all.

        Of the parts any, as `rng` has it, until there are enough.
        """
        order = rng.permutation(len(self.trajectory))
        expected = np.cumsum((self.end_s - self.begin_s)[order] / every_s)
        order = np.sort(order[: np.searchsorted(expected, most) + 1])
        if not len(order):
            raise PointError("nobody moves like this for long enough")
        data = self.trajectories
        rows = []
        for part in order:
            first, last = data.offsets[self.trajectory[part] : self.trajectory[part] + 2]
            at_s = data.at_s[first:last]
            begin = np.searchsorted(at_s, self.begin_s[part])
            end = np.searchsorted(at_s, self.end_s[part], side="right")
            slot = np.floor(at_s[begin:end] / every_s)
            rows.append(first + begin + np.flatnonzero(np.diff(slot, prepend=-1.0)))
        every = np.concatenate(rows)
        return Queries(
            data.at_s[every],
            data.points[every],
            np.r_[0, np.cumsum([len(own) for own in rows])],
            data.user[self.trajectory[order]],
            data.users,
        )


def find_parts(trajectories: Trajectories, movement: MovementCriteria) -> Parts:
    """All longest parts of trajectories in which somebody moves like this all the time."""
    data = cut_at_silence(trajectories, _SILENT_S)
    trace = np.repeat(np.arange(len(data)), np.diff(data.offsets))
    slot = np.floor(data.at_s / _STEP_S)
    kept = np.flatnonzero(np.r_[True, (np.diff(trace) != 0) | (np.diff(slot) != 0)])
    at_s, points, trace = data.at_s[kept], data.points[kept], trace[kept]
    north = np.diff(points[:, 0])
    east = np.diff(points[:, 1])
    east -= 360.0 * np.round(east / 360.0)
    east *= np.cos(np.radians(points[1:, 0]))
    turn = np.abs((np.diff(np.arctan2(east, north)) + np.pi) % (2.0 * np.pi) - np.pi)
    speed_kmh = 3.6 * Sphere().distance(points[1:], points[:-1]) / np.maximum(np.diff(at_s), 1e-9)
    fits = (speed_kmh >= movement.low_kmh) & (speed_kmh < movement.high_kmh)
    fits &= np.diff(trace) == 0
    goes_on = fits[1:] & fits[:-1] & (turn <= np.radians(movement.most_turn_deg))
    begin = np.flatnonzero(fits & ~np.r_[False, goes_on])
    end = np.flatnonzero(fits & ~np.r_[goes_on, False]) + 1
    long = at_s[end] - at_s[begin] >= movement.least_s
    begin, end = begin[long], end[long]
    return Parts(data, trace[begin], at_s[begin], at_s[end])


def made_up_trips(users: int = 24, hours: float = 1.5, seed: int = 1) -> Trajectories:
    """Of each user a ride on a train, a walk with stops, and a day of both; nobody's data."""
    rng = np.random.default_rng(seed)
    count = round(hours * 3600.0 / _FIX_S)
    kinds = [(ride := _ride(users, count, rng)), (walk := _walk(users, count, rng))]
    half = count // 2
    kinds.append(np.concatenate([walk[:, :half], ride[:, half:]], axis=1))  # speeds
    degrees = []
    for velocity in kinds:
        metres = np.cumsum(velocity * _FIX_S, axis=1)
        metres += _slowly_varying(rng, metres.shape, _FIX_ERROR_M, 60.0)
        north, east = metres[..., 0] / _PER_DEGREE_M, metres[..., 1] / _PER_DEGREE_M
        lat = 60.0 + north
        degrees.append(np.stack([lat, 24.0 + east / np.cos(np.radians(60.0))], axis=-1))
    points = np.stack(degrees, axis=1).reshape(-1, 2)
    at_s = np.tile(_START_S + _FIX_S * np.arange(count), 3 * users)
    whose = np.repeat(np.arange(users), 3)
    return Trajectories("made-up", at_s, points, count * np.arange(3 * users + 1), whose, users)


def _ride(users: int, count: int, rng: np.random.Generator) -> Floats:
    """Velocities of trains: 60 to 200 km/h that change slowly, long curves, stops at stations."""
    speed = 36.0 + _slowly_varying(rng, (users, count, 1), 7.0, 600.0)[..., 0]
    station_s = rng.uniform(0.0, 1500.0, (users, 1))
    clock_s = _FIX_S * np.arange(count)
    # 0.3 m/s² to the stop, a minute of it, and from it, every 25 minutes.
    away_s = np.abs((clock_s + station_s) % 1500.0 - 750.0) - 30.0
    speed = np.clip(speed, 17.0, 56.0) * np.clip(away_s / 120.0, 0.0, 1.0)
    curve = _slowly_varying(rng, (users, count, 1), 6e-5, 120.0)[..., 0]  # 1/m: 15 km and more
    heading = rng.uniform(0.0, 2.0 * np.pi, (users, 1)) + np.cumsum(curve * speed * _FIX_S, axis=1)
    return np.stack([speed * np.cos(heading), speed * np.sin(heading)], axis=-1)


def _walk(users: int, count: int, rng: np.random.Generator) -> Floats:
    """Velocities of people on foot: streets of a minute or two, and stays of some minutes."""
    turns = rng.random((users, count)) < _FIX_S / 90.0
    heading = np.cumsum(np.where(turns, rng.choice([-1.0, 1.0, 2.0], turns.shape), 0.0), axis=1)
    heading *= 0.5 * np.pi
    changes = np.cumsum(rng.random((users, count)) < _FIX_S / 600.0, axis=1)
    walks = (changes + rng.integers(0, 2, (users, 1))) % 2
    speed = 1.35 * walks
    return np.stack([speed * np.cos(heading), speed * np.sin(heading)], axis=-1)


def _slowly_varying(
    rng: np.random.Generator, shape: tuple[int, ...], deviation: float, memory_s: float
) -> Floats:
    """Gaussian numbers along the second axis that are forgotten after so many seconds."""
    keeps = float(np.exp(-_FIX_S / memory_s))
    fresh = rng.normal(0.0, deviation, shape)
    for i in range(1, shape[1]):
        fresh[:, i] = keeps * fresh[:, i - 1] + np.sqrt(1.0 - keeps * keeps) * fresh[:, i]
    return fresh
