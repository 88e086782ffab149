"""A prediction that follows the roads: the next place on the way that the releases went.

All tables are made of the public network, before anything is reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.spatial import cKDTree

from hereish.core.privacy import positive
from hereish.core.run import Run
from hereish.core.types import Bools, Floats, Ints
from hereish.errors import ParameterError
from hereish.roads.graph import RoadGraph, unit_vectors

_RADIANS = math.pi / 180.0
_RADIUS_M = 6_371_008.8
_METRES_PER_DEGREE = _RADIANS * _RADIUS_M
# Ways straight on of up to 2**10 edges are looked up, and those to a goal of fewer: nobody goes
# further from one report to the next.
_DOUBLINGS, _MOST_TURNS = 10, 200
# The road that somebody is on, for each square of the map and each of so many directions.
_SECTORS, _SQUARE_M, _MOST_SQUARES, _MARGIN_M = 16, 50.0, 400_000, 1000.0
# A road that leads the opposite way is as bad as one that is so much further away.
_OPPOSITE_M, _NEIGHBOURS = 600.0, 8
_CHUNK = 20_000

Towards: TypeAlias = Callable[[Run, Floats], Floats]


@dataclass(frozen=True)
class RoadPrediction:
    """The last releases matched to roads and moved on along them; for a `Sphere` or `RoadNetwork`.

    Direction and speed are those of the last three releases, as far as they are not older than
    `horizon_s`; the way is looked for near the last one, in that direction, and goes straight on at
    crossings for `pace` times as far as the speed would lead. With `towards`, a function of the run
    and the time like a prediction, it turns to where that points instead. Where the releases lie
    within `still_m` of each other, which should be about twice the accuracy of the reports, or
    nothing was released for `horizon_s`, the last release is repeated.

    Guarantee: sees released points and public times, so it costs nothing. The network must not be
    chosen by the secret.
    """

    graph: RoadGraph
    still_m: float = 400.0
    pace: float = 0.5
    horizon_s: float = 240.0
    fastest_kmh: float = 110.0
    towards: Towards | None = None
    memory = 3

    def __post_init__(self) -> None:
        if not isinstance(self.graph, RoadGraph):
            raise ParameterError(
                "graph must be a hereish.roads.RoadGraph, such as read_roads makes, found "
                f"{type(self.graph).__name__}"
            )
        for name in ("still_m", "pace", "horizon_s", "fastest_kmh"):
            positive(name, getattr(self, name))
        if self.towards is not None and not callable(self.towards):
            raise ParameterError("towards must be a function of the run and the time")

    @property
    def needs_history(self) -> bool:
        """Only if `towards` might look at it."""
        return self.towards is not None

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        guess = run.value.copy()
        motion = _motion_of(run, self.horizon_s)
        since_s = at_s - run.at_s
        moves = (motion.went_m > self.still_m) & (since_s <= self.horizon_s)
        lanes = moves.nonzero()[0]
        tables = _tables_of(self.graph)
        if len(lanes):
            edge = tables.match(guess[lanes], motion.north[lanes], motion.east[lanes])
            lanes, edge = lanes[edge >= 0], edge[edge >= 0]
        if not len(lanes):
            return guess
        speed = np.minimum(motion.speed[lanes], self.fastest_kmh / 3.6)
        left_m = self.pace * speed * since_s[lanes] + tables.along(edge, guess[lanes])
        if self.towards is not None:
            goal = np.asarray(self.towards(run, at_s), dtype=np.float64)[lanes]
            edge, left_m = tables.turn_to(goal, edge, left_m)
        guess[lanes] = tables.straight_on(edge, left_m)
        return guess


class _Motion(NamedTuple):
    """How the releases of each lane have moved: a line fitted to them, by least squares."""

    north: Floats  # the direction, a unit vector
    east: Floats
    speed: Floats  # m/s
    went_m: Floats  # along that line, from the oldest to the newest; 0 if there is none


def _motion_of(run: Run, horizon_s: float) -> _Motion:
    ago_s = (run.times_s - run.times_s[:, :1]).T  # (memory, lanes), 0 or below
    counts = ago_s >= -horizon_s  # not what is missing
    ago_s = np.where(counts, ago_s, 0.0)
    lat, lon = np.ascontiguousarray(run.values.transpose(2, 1, 0))
    east = lon - lon[0]
    east -= 360.0 * np.round(east * (1.0 / 360.0))
    offsets = [lat - lat[0], east * np.cos(lat[0] * _RADIANS)]
    number = np.maximum(_sum(counts.astype(np.float64)), 1.0)
    centred = np.where(counts, ago_s - _sum(ago_s) / number, 0.0)
    spread = np.maximum(_sum(centred * centred), 1e-9)
    slopes = [
        _sum(centred * np.where(counts, offset, 0.0)) * (_METRES_PER_DEGREE / spread)
        for offset in offsets
    ]
    speed = np.sqrt(slopes[0] * slopes[0] + slopes[1] * slopes[1])
    way = np.maximum(speed, 1e-9)
    lasted_s = -np.minimum.reduce(ago_s)
    return _Motion(slopes[0] / way, slopes[1] / way, speed, speed * lasted_s)


def _sum(rows: Floats) -> Floats:
    """The sum of few rows, in their order: the same bits for one lane and for many."""
    total = rows[0].copy()
    for row in rows[1:]:
        total += row
    return np.asarray(total)


class _Tables:
    """Roads by square of the map and direction, and what lies straight on. Public."""

    def __init__(self, graph: RoadGraph) -> None:
        pairs = np.concatenate([graph.edges, graph.edges[:, ::-1]])
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        self.begin, self.end = np.ascontiguousarray(pairs[order].T)
        metres = 0.01 * graph.lengths_cm.astype(np.float64)
        self.length_m = np.concatenate([metres, metres])[order]
        self.lat, self.lon = np.ascontiguousarray(graph.nodes.T)
        north, east = self._apart(self.begin, self.end)
        size = np.maximum(np.hypot(north, east), 1e-9)
        self.north, self.east = north / size, east / size
        self.out = _padded(self.begin, len(graph))
        self._link()
        self._match_squares(graph)

    def _apart(self, a: Ints, b: Ints) -> tuple[Floats, Floats]:
        """Metres north and east from some nodes to others."""
        east = self.lon[b] - self.lon[a]
        east -= 360.0 * np.round(east * (1.0 / 360.0))
        east *= np.cos(0.5 * (self.lat[a] + self.lat[b]) * _RADIANS)
        return (self.lat[b] - self.lat[a]) * _METRES_PER_DEGREE, east * _METRES_PER_DEGREE

    def _link(self) -> None:
        """The edge straight on from each edge, and 2, 4, 8, … edges further."""
        ahead = self.out[self.end]
        straight = self.north[ahead] * self.north[:, None] + self.east[ahead] * self.east[:, None]
        # Not back the way it came, and not beyond the end of a road.
        turns = (ahead < 0) | (self.end[ahead] == self.begin[:, None])
        straight = np.where(turns, -2.0, straight)
        best = straight.argmax(axis=1)
        edges = np.arange(len(self.begin))
        stops = straight[edges, best] < -1.5
        self.following = [np.where(stops, edges, ahead[edges, best])]
        self.reach_m = [np.where(stops, np.inf, self.length_m)]
        for _ in range(_DOUBLINGS - 1):
            once, reach = self.following[-1], self.reach_m[-1]
            self.following.append(once[once])
            self.reach_m.append(reach + reach[once])

    def _match_squares(self, graph: RoadGraph) -> None:
        """Find the road for each square and direction: near, and leading that way."""
        low, high = graph.nodes.min(axis=0), graph.nodes.max(axis=0)
        middle = 0.5 * (low[1] + high[1])
        if high[1] - low[1] > 180.0:  # across the antimeridian
            west = np.where(self.lon > 0.0, self.lon - 360.0, self.lon)
            middle = 0.5 * (west.min() + west.max())
        off = self.lon - middle
        off -= 360.0 * np.round(off * (1.0 / 360.0))
        shrink = math.cos(0.5 * (low[0] + high[0]) * _RADIANS)
        height = (high[0] - low[0]) * _METRES_PER_DEGREE + 2.0 * _MARGIN_M
        width = (off.max() - off.min()) * _METRES_PER_DEGREE * shrink + 2.0 * _MARGIN_M
        size = max(_SQUARE_M, math.sqrt(height * width / _MOST_SQUARES))
        self._step = size / _METRES_PER_DEGREE, size / (_METRES_PER_DEGREE * max(shrink, 1e-3))
        self._shape = math.ceil(height / size), math.ceil(width / size)
        margin = _MARGIN_M / size
        self._south, self._middle = low[0] - margin * self._step[0], middle
        self._west = off.min() - margin * self._step[1]
        rows, columns = np.divmod(np.arange(self._shape[0] * self._shape[1]), self._shape[1])
        lat = self._south + (rows + 0.5) * self._step[0]
        lon = middle + self._west + (columns + 0.5) * self._step[1]
        centres = np.column_stack([np.clip(lat, -90.0, 90.0), lon])
        tree = cKDTree(graph.vectors)
        self._road = np.empty((len(rows), _SECTORS), dtype=np.int32)
        for first in range(0, len(rows), _CHUNK):
            some = slice(first, first + _CHUNK)
            self._road[some] = self._best_roads(tree, centres[some])

    def _best_roads(self, tree: Any, centres: Floats) -> Ints:
        found = tree.query(unit_vectors(centres), k=min(_NEIGHBOURS, len(self.lat)))
        away_m, nodes = (np.reshape(part, (len(centres), -1)) for part in found)
        edges = self.out[nodes]
        away = np.broadcast_to((away_m * _RADIUS_M)[:, :, None], edges.shape).reshape(
            len(centres), -1
        )
        edges = edges.reshape(len(centres), -1)
        best = np.empty((len(centres), _SECTORS), dtype=np.int64)
        for sector in range(_SECTORS):
            angle = (sector + 0.5) * (2.0 * math.pi / _SECTORS)
            agrees = self.north[edges] * math.cos(angle) + self.east[edges] * math.sin(angle)
            cost = np.where(edges < 0, np.inf, away + 0.5 * _OPPOSITE_M * (1.0 - agrees))
            best[:, sector] = edges[np.arange(len(centres)), cost.argmin(axis=1)]
        return best

    def match(self, points: Floats, north: Floats, east: Floats) -> Ints:
        """The edge that somebody here follows who goes in this direction; -1 off the map."""
        off = points[:, 1] - self._middle
        off -= 360.0 * np.round(off * (1.0 / 360.0))
        row = np.floor((points[:, 0] - self._south) / self._step[0]).astype(np.int64)
        column = np.floor((off - self._west) / self._step[1]).astype(np.int64)
        inside = (row >= 0) & (row < self._shape[0]) & (column >= 0) & (column < self._shape[1])
        turn = np.arctan2(east, north) * (_SECTORS / (2.0 * math.pi))
        sector = np.floor(turn).astype(np.int64) % _SECTORS
        square = np.where(inside, row * self._shape[1] + column, 0)
        return np.where(inside, self._road[square, sector].astype(np.int64), -1)

    def along(self, edge: Ints, points: Floats) -> Floats:
        """How far along its edge each point has come already, in metres."""
        begin = self.begin[edge]
        east = points[:, 1] - self.lon[begin]
        east -= 360.0 * np.round(east * (1.0 / 360.0))
        east *= np.cos(self.lat[begin] * _RADIANS)
        north = points[:, 0] - self.lat[begin]
        come = (north * self.north[edge] + east * self.east[edge]) * _METRES_PER_DEGREE
        return np.asarray(np.clip(come, 0.0, self.length_m[edge]))

    def straight_on(self, edge: Ints, left_m: Floats) -> Floats:
        """The place so far along the road from the beginning of each edge."""
        for following, reach_m in zip(self.following[::-1], self.reach_m[::-1], strict=True):
            reach = reach_m[edge]
            goes = reach <= left_m
            left_m = left_m - np.where(goes, reach, 0.0)
            edge = np.where(goes, following[edge], edge)
        share = np.minimum(left_m / self.length_m[edge], 1.0)
        begin, end = self.begin[edge], self.end[edge]
        east = self.lon[end] - self.lon[begin]
        east -= 360.0 * np.round(east * (1.0 / 360.0))
        lon = self.lon[begin] + share * east
        lon -= 360.0 * np.round(lon * (1.0 / 360.0))
        return np.column_stack([self.lat[begin] * (1.0 - share) + self.lat[end] * share, lon])

    def turn_to(self, goal: Floats, edge: Ints, left_m: Floats) -> tuple[Ints, Floats]:
        """Where a walk that turns towards a goal at each crossing ends; lanes without one wait."""
        edge, left_m = edge.copy(), left_m.copy()
        walking: Bools = np.asarray(np.isfinite(goal).all(axis=1))
        goals = unit_vectors(np.where(walking[:, None], goal, 0.0))
        # They stand at the beginning of their edge, and may leave it by any other.
        came_from = np.full(len(edge), -1)
        at = self.begin[edge]
        nodes = unit_vectors(np.column_stack([self.lat, self.lon])) if walking.any() else goals
        for _ in range(_MOST_TURNS):
            lanes = walking.nonzero()[0]
            if not len(lanes):
                break
            ahead = self.out[at[lanes]]
            ends = self.end[ahead]
            barred = (ahead < 0) | (ends == came_from[lanes][:, None])
            off = nodes[ends] - goals[lanes][:, None]
            far = np.where(barred, np.inf, (off * off).sum(axis=2))
            best = far.argmin(axis=1)
            rows = np.arange(len(lanes))
            here = ((nodes[at[lanes]] - goals[lanes]) ** 2).sum(axis=1)
            nearer = far[rows, best] < here
            chosen = ahead[rows, best]
            whole = nearer & (self.length_m[chosen] <= left_m[lanes])
            edge[lanes[nearer]] = chosen[nearer]
            arrived = lanes[~nearer]  # no way leads nearer: this is the place
            left_m[arrived] = 0.0
            edge[arrived] = np.where(ahead[~nearer, 0] >= 0, ahead[~nearer, 0], edge[arrived])
            moved = lanes[whole]
            left_m[moved] -= self.length_m[chosen[whole]]
            came_from[moved], at[moved] = at[moved], ends[rows, best][whole]
            walking[lanes[~whole]] = False
        left_m[walking] = self.length_m[edge[walking]]  # far enough: where they stand now
        return edge, left_m


@lru_cache(maxsize=2)
def _tables_of(graph: RoadGraph) -> _Tables:
    """Made once for all predictions on a network."""
    return _Tables(graph)


def _padded(begin: Ints, count: int) -> Ints:
    """(count, most) The edges that begin at each node, -1 where there are no more."""
    starts = np.searchsorted(begin, np.arange(count + 1))
    degree = np.diff(starts)
    table = starts[:-1, None] + np.arange(degree.max())
    return np.where(np.arange(degree.max()) < degree[:, None], table, -1)
