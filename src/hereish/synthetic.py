"""A synthetic day in a made-up city: people, places and location queries, all from a seed.

Nothing here is derived from real people. Everybody wakes at home and goes through the same list
of stops at places and hours of their own; they walk short ways, cycle longer ones, ride the
rest, and ask where they are only when still or on foot (the case study's queries are like that).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError

CENTRE_DEG = (60.17, 24.94)  # latitude, longitude
CITY_RADIUS_M = 13_000.0  # nobody leaves it, not even round a corner
TIME_ZONE = "Europe/Helsinki"
MIDNIGHT_S = datetime(2025, 6, 3, tzinfo=ZoneInfo(TIME_ZONE)).timestamp()
STOPS = ("home", "bakery", "work", "lunch", "work", "shop", "visit", "home")
_SHARES = np.array([1.0, 0.3, 3.2, 0.7, 3.6, 0.5, 2.0, 2.2])  # of the time not spent on the way
_VISIT_M = 500.0, 6000.0  # from the centre
_FIRST_WEEKDAY = 1  # MIDNIGHT_S is that of a Tuesday
_WAKE_S, _SLEEP_S = 7.0 * 3600, 23.0 * 3600

# Streets cross at right angles. A leg goes up stairs: how much of its way east and north is done
# at each corner.
_CORNERS = np.array([[0.3, 0.0], [0.3, 0.6], [0.8, 0.6], [0.8, 1.0]])
ROUTE_STRIDE = 1 + len(_CORNERS)  # from stop to stop in a route
_STRIDE = 1 + ROUTE_STRIDE  # and where leaving it is a knot of its own

# On foot up to the first length, by bicycle up to the second, by public transport beyond it.
_LEG_M = (1500.0, 4500.0)
_LEG_KMH = np.array([4.5, 17.0, 25.0])
_SLOW_KMH = 15.0

_BLOCK_USERS = 1000  # at a time: few enough for the cache; part of what a seed means
_MINUTE_S, _HOUR_S = 60.0, 3600.0
_JUMP_PROBABILITY, _MOST_JUMPS = 1 / 3, 12  # an hour each: more would not fit a day

_M_PER_DEG = math.radians(6_371_008.8)
_SQUEEZE = math.cos(math.radians(CENTRE_DEG[0]))  # meridians draw together towards the pole


@dataclass(frozen=True, eq=False)
class Sample:
    """Traces laid end to end, as `hereish.sanitize` takes them."""

    users: tuple[str, ...]  # k names
    points: Floats  # (n, 2) latitude and longitude in degrees
    at_s: Floats  # (n,) Unix seconds
    offsets: Ints  # (k + 1,) trace i is points[offsets[i]:offsets[i + 1]]
    routes: Floats  # (k, 36, 2) the way from stop to stop, with the four corners of each leg

    def __repr__(self) -> str:
        return f"<Sample: {len(self.points)} queries of {len(self.users)} made-up people>"


def day(users: int = 6, seed: int = 9, *, points_each: int | None = None) -> Sample:
    """One calendar day (in TIME_ZONE) of `users` people with 30 to 45 queries, or `points_each`.

    The same arguments give the same day. The seed was chosen for the demo's picture: one of the
    first six people has places that lie apart, and is asked from morning to night.
    """
    for name, number in (("users", users), ("points_each", points_each)):
        if number is not None and number < 1:
            raise ParameterError(f"{name} must be a whole number from 1, found {number!r}")
    rng = np.random.default_rng(seed)  # for show, not for secrets
    blocks = [
        _make_people(rng, min(_BLOCK_USERS, users - first), points_each)
        for first in range(0, users, _BLOCK_USERS)
    ]
    points, at_s, counts, routes = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return Sample(
        users=tuple(f"person {i}" for i in range(1, users + 1)),
        points=points,
        at_s=at_s,
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        routes=routes,
    )


def _make_people(
    rng: np.random.Generator, users: int, points_each: int | None
) -> tuple[Floats, Floats, Ints, Floats]:
    """Points, times, how many of them each person has, and routes."""
    way = _make_itineraries(rng, users)
    if points_each is None:
        counts = rng.integers(30, 46, users)
    else:
        counts = np.full(users, points_each, dtype=np.int64)
    at_s, metres = _interpolate(way, _draw_slow_times(rng, counts, way.slow_s[:, -1:]))
    metres += _wander(rng, at_s)
    within_count = np.arange(at_s.shape[1]) < counts[:, None]
    route = np.delete(way.metres, slice(1, None, _STRIDE), axis=1)  # without the departures
    return (
        to_degrees(metres[within_count]),
        MIDNIGHT_S + at_s[within_count],
        counts,
        to_degrees(route),
    )


def whereabouts(users: int, seed: int, clock_s: Floats) -> Floats:
    """(users, n, 2) Latitude and longitude of made-up people at these seconds after midnight.

    The whole of a day like those of `day`: at home until they wake and after they have gone to bed,
    and on the way, however fast, in between. The same seed gives the same people.
    """
    rng = np.random.default_rng(seed)  # for show, not for secrets
    return _follow(rng, _make_itineraries(rng, users), clock_s)


def whereabouts_on_days(users: int, seed: int, days: int, clock_s: Floats) -> Floats:
    """(users, days, n, 2) The same on days in a row, the first of them a Tuesday like `day`'s.

    Home, work, bakery and shop stay where they are; lunch, visits and hours differ from day to day,
    and at weekends an outing takes the place of work. The same seed gives the same people.
    """
    rng = np.random.default_rng(seed)  # for show, not for secrets
    home, work = _choose_home_and_work(rng, users)
    usual = _choose_errands(rng, home, work)
    places = np.empty((users, days, len(clock_s), 2))
    for number in range(days):
        weekend = (number + _FIRST_WEEKDAY) % 7 >= 5
        by_day = _around(rng, users, 0.0, *_VISIT_M) if weekend else work
        today = _choose_errands(rng, home, by_day)
        today = today._replace(bakery=usual.bakery, shop=usual.shop)
        way = _travel(rng, _in_order(home, by_day, today))
        places[:, number] = _follow(rng, way, clock_s)
    return places


def _follow(rng: np.random.Generator, way: _Itineraries, clock_s: Floats) -> Floats:
    """(users, n, 2) Degrees at these seconds after midnight."""
    users = len(way.at_s)
    metres = np.empty((users, len(clock_s), 2))
    for person in range(users):
        for axis in range(2):
            knots = way.metres[person, :, axis]
            metres[person, :, axis] = np.interp(clock_s, way.at_s[person], knots)
    return to_degrees(metres + _wander(rng, np.broadcast_to(clock_s, metres.shape[:2])))


def to_degrees(metres: Floats) -> Floats:
    """Metres east and north of the centre as latitude and longitude: a flat map will do here."""
    degrees = np.empty_like(metres)
    degrees[..., 0] = CENTRE_DEG[0] + metres[..., 1] / _M_PER_DEG
    degrees[..., 1] = CENTRE_DEG[1] + metres[..., 0] / (_M_PER_DEG * _SQUEEZE)
    return degrees


def to_metres(degrees: Floats) -> Floats:
    """The inverse of `to_degrees`."""
    metres = np.empty_like(degrees)
    metres[..., 0] = (degrees[..., 1] - CENTRE_DEG[1]) * (_M_PER_DEG * _SQUEEZE)
    metres[..., 1] = (degrees[..., 0] - CENTRE_DEG[0]) * _M_PER_DEG
    return metres


class _Itineraries(NamedTuple):
    """Each person's day as knots: arrive at a stop, leave it, turn the corners, arrive, …"""

    at_s: Floats  # (users, knots) since midnight
    slow_s: Floats  # (users, knots) the same clock, but it stands while somebody moves fast
    metres: Floats  # (users, knots, 2)


class _Errands(NamedTuple):
    """(users, 2) metres each."""

    lunch: Floats
    visit: Floats
    bakery: Floats
    shop: Floats


def _make_itineraries(rng: np.random.Generator, users: int) -> _Itineraries:
    home, work = _choose_home_and_work(rng, users)
    return _travel(rng, _in_order(home, work, _choose_errands(rng, home, work)))


def _travel(rng: np.random.Generator, stops: Floats) -> _Itineraries:
    users = len(stops)
    # Arrive, leave, turn each corner; and after the last stop there is nowhere to go.
    metres = np.repeat(stops, _STRIDE, axis=1)[:, : -len(_CORNERS)]
    for i, done in enumerate(_CORNERS):
        metres[:, 2 + i :: _STRIDE] += done * np.diff(stops, axis=1)
    metres = _rotate(metres)
    sides_m = np.linalg.norm(np.diff(metres, axis=1), axis=2)
    legs_m = np.add.reduceat(sides_m, np.arange(0, sides_m.shape[1], _STRIDE), axis=1)
    leg_kmh = _LEG_KMH[np.digitize(legs_m, _LEG_M)] * rng.uniform(0.9, 1.1, (users, 1))
    side_kmh = np.repeat(leg_kmh, _STRIDE, axis=1)[:, : sides_m.shape[1]]
    side_kmh[:, 0::_STRIDE] = 0.0  # at a stop
    lasts_s = sides_m / np.maximum(side_kmh / 3.6, 1.0)
    # What the ways leave of the day is shared out among the stops, so that every day fits.
    wake_s = _WAKE_S + rng.uniform(-1800, 1800, (users, 1))
    sleep_s = _SLEEP_S + rng.uniform(-1800, 1800, (users, 1))
    shares = _SHARES * rng.uniform(0.7, 1.3, (users, len(STOPS)))
    shares /= shares.sum(axis=1, keepdims=True)
    lasts_s[:, 0::_STRIDE] = shares * (sleep_s - wake_s - lasts_s.sum(axis=1, keepdims=True))
    slow_s = np.where(side_kmh <= _SLOW_KMH, lasts_s, 0.0)
    return _Itineraries(_cumulate(wake_s, lasts_s), _cumulate(0.0 * wake_s, slow_s), metres)


def _around(
    rng: np.random.Generator, users: int, middle: Floats | float, low_m: float, high_m: float
) -> Floats:
    radius_m, angle = rng.uniform(low_m, high_m, users), rng.uniform(0, 2 * math.pi, users)
    return middle + np.stack([radius_m * np.cos(angle), radius_m * np.sin(angle)], axis=1)


def _choose_home_and_work(rng: np.random.Generator, users: int) -> tuple[Floats, Floats]:
    """(users, 2) metres each."""
    return _around(rng, users, 0.0, 2000, 7000), _around(rng, users, 0.0, 0, 3500)


def _choose_errands(rng: np.random.Generator, home: Floats, work: Floats) -> _Errands:
    users = len(home)
    at_desk = rng.random((users, 1)) < 0.3
    lunch = np.where(at_desk, work, _around(rng, users, work, 200, 700))
    night_in = rng.random((users, 1)) < 0.2
    visit = np.where(night_in, home, _around(rng, users, 0.0, *_VISIT_M))
    bakery = _around(rng, users, home, 300, 1000)
    return _Errands(lunch, visit, bakery, shop=_around(rng, users, home, 500, 2000))


def _in_order(home: Floats, work: Floats, errands: _Errands) -> Floats:
    """(users, stops, 2) metres, in the order of STOPS."""
    lunch, visit, bakery, shop = errands
    return np.stack([home, bakery, work, lunch, work, shop, visit, home], axis=1)


def _rotate(metres: Floats) -> Floats:
    """Streets that do not run exactly north look more like a city."""
    angle = math.radians(25.0)
    east, north = metres[..., 0], metres[..., 1]
    sine, cosine = math.sin(angle), math.cos(angle)
    return np.stack([cosine * east - sine * north, sine * east + cosine * north], axis=-1)


def _cumulate(start: Floats, steps: Floats) -> Floats:
    return np.cumsum(np.concatenate([start, steps], axis=1), axis=1)


def _draw_slow_times(rng: np.random.Generator, counts: Ints, most_s: Floats) -> Floats:
    """When each person asks, on the clock that stands while they move fast.

    A minute after the last time, or now and then an hour, each times 1 + Normal(0, 0.2).
    """
    shape = (len(counts), int(counts.max()) - 1)
    jump = rng.random(shape) < np.minimum(_JUMP_PROBABILITY, _MOST_JUMPS / counts)[:, None]
    gaps_s = np.where(jump, _HOUR_S, _MINUTE_S)
    gaps_s *= np.maximum(1.0 + rng.normal(0.0, 0.2, shape), 0.1)
    gaps_s[np.arange(1, shape[1] + 1) >= counts[:, None]] = 0.0
    total_s = gaps_s.sum(axis=1, keepdims=True)
    gaps_s *= np.minimum(1.0, most_s / np.maximum(total_s, 1.0))  # a busy day is a tighter one
    spare_s = np.maximum(most_s - total_s, 0.0)
    return np.minimum(_cumulate(spare_s * rng.random(spare_s.shape), gaps_s), most_s)


def _interpolate(way: _Itineraries, slow_s: Floats) -> tuple[Floats, Floats]:
    """Time since midnight, and place, at these readings of the slow clock."""
    knots = way.slow_s.shape[1]
    side = np.zeros(slow_s.shape, dtype=np.int64)
    for knot in range(1, knots - 1):
        side += slow_s >= way.slow_s[:, knot : knot + 1]

    def ends(table: Floats) -> tuple[Floats, Floats]:
        return np.take_along_axis(table, side, 1), np.take_along_axis(table, side + 1, 1)

    start, end = ends(way.slow_s)
    part = (slow_s - start) / (end - start)  # never 0/0: a side without length is passed over

    def at(table: Floats) -> Floats:
        first, last = ends(table)
        return first + part * (last - first)

    return at(way.at_s), np.stack([at(way.metres[..., 0]), at(way.metres[..., 1])], axis=2)


def _wander(rng: np.random.Generator, at_s: Floats) -> Floats:
    """Nobody sits still: slow loops of some tens of metres round wherever one is."""
    size_m = rng.uniform(20, 60, (2, len(at_s), 1))
    turn = rng.uniform(0, 2 * math.pi, (2, len(at_s), 1))
    per_s = 2 * math.pi / rng.uniform(1500, 3600, (2, len(at_s), 1))
    loops = [size_m[i] * np.sin(turn[i] + per_s[i] * at_s) for i in range(2)]
    return np.stack(loops, axis=2)
