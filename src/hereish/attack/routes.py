"""On which road somebody was: the posterior of each time, kept to the roads.

People are on or beside roads. Where reports are frequent and exact enough for a route, the
observer's track is matched to the roads by leuvenmapmatching, a hidden Markov model over edges.
Elsewhere each node of the map gets the same chance beforehand, which takes the place of every cell
having it, and the best guess is put onto a node.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from hereish.attack.lattice import Grid
from hereish.attack.smoothing import Smoothed
from hereish.core.types import Bools, Floats, Ints
from hereish.errors import ParameterError
from hereish.roads.graph import PER_DEGREE, RoadGraph

_SHARP_M = 120.0  # the radius of a region of 50 % within which a road can be told from the next
_FREQUENT_S = 60.0  # between two reports of a route
_SHORTEST = 4  # reports of a route
_AROUND_M = 500.0  # of the roads that are looked at
_WIDTH = 12  # candidates that are kept for each report


def match_to_roads(smoothed: Smoothed, roads: RoadGraph) -> Floats:
    """(n, 2) Where on the roads somebody was, at each time.

    Where no road is in reach of the posterior, as beyond the edge of the map, it is the posterior's
    mean.
    """
    grids = [grid for grid in smoothed.grids if isinstance(grid, Grid)]
    if len(grids) < len(smoothed):
        raise ParameterError("roads are on the globe, and these releases are not")
    frame = grids[0].frame
    metres = frame.to_metres(roads.nodes_e7 / PER_DEGREE)
    matched_m = _match_to_nodes(smoothed, grids, metres)
    sharp_m = smoothed.radius_m(0.5)
    means_m = frame.to_metres(smoothed.mean())
    for first, end in _routes(smoothed.at_s, sharp_m <= _SHARP_M):
        rows = slice(first, end)
        noise_m = max(float(np.median(sharp_m[rows])), 5.0)
        _match_route(means_m[rows], noise_m, metres, roads.edges, matched_m[rows])
    return frame.to_degrees(matched_m)


def _match_to_nodes(smoothed: Smoothed, grids: list[Grid], metres: Floats) -> Floats:
    """(n, 2) metres: the node nearest to the mean over the nodes."""
    matched = grids[0].frame.to_metres(smoothed.mean())
    reach_m = smoothed.radius_m(0.9)
    for i, (grid, mass) in enumerate(zip(grids, smoothed.mass, strict=True)):
        column = np.floor(metres[:, 0] / grid.step_m).astype(np.int64) - grid.west
        row = np.floor(metres[:, 1] / grid.step_m).astype(np.int64) - grid.south
        near = np.flatnonzero((row >= 0) & (row < grid.high) & (column >= 0) & (column < grid.wide))
        chance = mass[row[near], column[near]].astype(np.float64)
        if not chance.sum() > 0.0:
            continue
        middle = (chance[:, None] * metres[near]).sum(axis=0) / chance.sum()
        # Of nodes that are possible at all, the nearest to the middle.
        possible = near[chance > 1e-3 * chance.max()]
        best = metres[possible[np.hypot(*(metres[possible] - middle).T).argmin()]]
        if np.hypot(*(best - matched[i])) <= reach_m[i]:
            matched[i] = best
    return matched


def _routes(at_s: Floats, sharp: Bools) -> list[tuple[int, int]]:
    """The first row of each stretch of frequent and exact reports, and the row after its last."""
    joined = sharp[1:] & sharp[:-1] & (np.diff(at_s) <= _FREQUENT_S)
    edges = np.flatnonzero(np.diff(np.r_[False, joined, False].astype(np.int8)))
    return [
        (first, last + 1)
        for first, last in edges.reshape(-1, 2).tolist()
        if last + 1 - first >= _SHORTEST
    ]


def _match_route(
    track_m: Floats, noise_m: float, nodes_m: Floats, edges: Ints, matched_m: Floats
) -> None:
    """Put the matched places of a stretch into `matched_m`; those that fit no road stay.

    The library ends where no road leads on: then it begins again with the next report.
    """
    begin = 0
    found = _matcher(track_m, noise_m, nodes_m, edges)
    while found is not None and begin < len(track_m):
        found.match([(north, east) for east, north in track_m[begin:].tolist()])
        best = [state for state in found.lattice_best or [] if state.obs_ne == 0]
        for number, state in enumerate(best):
            matched_m[begin + number] = state.edge_m.pi[::-1]
        begin += max(len(best), 1)


def _matcher(track_m: Floats, noise_m: float, nodes_m: Floats, edges: Ints) -> Any:
    try:
        from leuvenmapmatching.map.inmem import InMemMap
        from leuvenmapmatching.matcher.distance import DistanceMatcher
    except ImportError:
        raise ParameterError(
            "routes are matched by leuvenmapmatching: pip install 'hereish[roads]'"
        ) from None
    logging.getLogger("be.kuleuven.cs.dtai.mapmatching").setLevel(logging.ERROR)
    low, high = track_m.min(axis=0) - _AROUND_M, track_m.max(axis=0) + _AROUND_M
    inside = ((nodes_m >= low) & (nodes_m <= high)).all(axis=1)
    near = edges[inside[edges].all(axis=1)]
    if not len(near):
        return None
    town = InMemMap("roads", use_latlon=False)
    for node in np.unique(near).tolist():
        town.add_node(node, (float(nodes_m[node, 1]), float(nodes_m[node, 0])))
    for one, other in near.tolist():
        town.add_edge(one, other)
        town.add_edge(other, one)
    return DistanceMatcher(
        town,
        max_dist=4.0 * noise_m,
        max_dist_init=4.0 * noise_m,
        min_prob_norm=1e-4,
        obs_noise=noise_m,
        obs_noise_ne=2.0 * noise_m,
        dist_noise=2.0 * noise_m,
        non_emitting_states=True,
        max_lattice_width=_WIDTH,
    )
