"""Lines on a map made into a graph: joined where they meet, cut into even pieces, in one part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from hereish.core.privacy import positive
from hereish.core.spaces import Sphere
from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError
from hereish.roads.graph import LONGEST_CM, PER_DEGREE, RoadGraph, node_keys, unit_vectors

_SPHERE = Sphere()
_TURN = 360 * PER_DEGREE


class Chains(NamedTuple):
    """Roads between junctions and ends, laid end to end.

    Chain i has the nodes `nodes[offsets[i]:offsets[i + 1]]`; the first and the last are junctions
    or ends, and all between them have two neighbours.
    """

    nodes: Ints
    offsets: Ints
    along: Floats  # how far each node is from the beginning of its chain


def graph_from_lines(
    lines: Iterable[ArrayLike], *, name: str, spacing_m: float = 100.0, licence: str = ""
) -> RoadGraph:
    """A road network of lines, each an array of latitudes and longitudes, one row per point.

    Lines meet where they share a point, to seven decimals. There is a node at each junction and
    end, and between them one every `spacing_m` metres or sooner. What is not connected with the
    longest part is left out.
    """
    spacing_m = positive("spacing_m", spacing_m)
    points, line = _laid_end_to_end(lines)
    nodes_e7 = _rounded(points)
    keys = node_keys(nodes_e7)
    _, first, node = np.unique(keys, return_index=True, return_inverse=True)
    nodes_e7, node = nodes_e7[first], node.reshape(-1)
    joined = (line[1:] == line[:-1]) & (node[1:] != node[:-1])
    if not joined.any():
        raise ParameterError("found no road: a line needs two different points")
    edges = _unique_pairs(node[:-1][joined], node[1:][joined], len(nodes_e7))
    nodes = nodes_e7 / PER_DEGREE
    lengths = _SPHERE.distance(nodes[edges[:, 0]], nodes[edges[:, 1]])
    kept = _longest_part(edges, lengths, len(nodes))
    edges, lengths = edges[kept], lengths[kept]
    chains = find_chains(edges, lengths, len(nodes))
    return _resampled(nodes, chains, spacing_m, name, licence)


def find_chains(edges: Ints, lengths: Floats, count: int) -> Chains:
    """The roads between junctions and ends. A ring without either begins at its lowest node."""
    ends = np.concatenate([edges, edges[:, ::-1]])
    order = np.lexsort((ends[:, 1], ends[:, 0]))
    place = np.argsort(order)
    twins = np.concatenate([place[len(edges) :], place[: len(edges)]])[order].tolist()
    starts = np.searchsorted(ends[order, 0], np.arange(count + 1)).tolist()
    towards = ends[order, 1].tolist()
    length = np.concatenate([lengths, lengths])[order].tolist()
    degree = np.bincount(ends[:, 0], minlength=count)
    passes = (degree == 2).tolist()
    walked = bytearray(len(towards))
    nodes: list[int] = []
    along: list[float] = []
    offsets = [0]
    for begin in [*np.flatnonzero(degree != 2).tolist(), *np.flatnonzero(degree == 2).tolist()]:
        for half in range(starts[begin], starts[begin + 1]):
            if walked[half]:
                continue
            nodes.append(begin)
            along.append(0.0)
            gone, going = 0.0, half
            while True:
                walked[going] = walked[twins[going]] = 1
                at = towards[going]
                gone += length[going]
                nodes.append(at)
                along.append(gone)
                if not passes[at] or at == begin:
                    break
                back, going = twins[going], starts[at]
                going += going == back
            offsets.append(len(nodes))
    return Chains(np.array(nodes), np.array(offsets), np.array(along))


def _laid_end_to_end(lines: Iterable[ArrayLike]) -> tuple[Floats, Ints]:
    """All points, and the number of the line of each."""
    arrays = [np.asarray(line, dtype=np.float64) for line in lines]
    if any(line.ndim != 2 or line.shape[1] != 2 for line in arrays):
        raise ParameterError("a line must be an array of latitudes and longitudes, (k, 2)")
    if not arrays:
        raise ParameterError("found no road: there are no lines")
    points = np.concatenate(arrays)
    lat, lon = np.abs(points).T
    if not (np.all(lat <= 90.0) and np.all(lon <= 180.0)):  # NaN is not
        raise ParameterError(
            "lines must be latitudes up to 90 and longitudes up to 180 degrees, in this order"
        )
    return points, np.repeat(np.arange(len(arrays)), [len(line) for line in arrays])


def _rounded(points: Floats) -> Ints:
    """In units of 1e-7 degrees; the antimeridian has one name."""
    whole = np.rint(points * PER_DEGREE).astype(np.int64)
    whole[whole[:, 1] >= _TURN // 2, 1] -= _TURN
    return whole


def _unique_pairs(a: Ints, b: Ints, count: int) -> Ints:
    keys = np.unique(np.minimum(a, b) * count + np.maximum(a, b))
    return np.column_stack(np.divmod(keys, count))


def _longest_part(edges: Ints, lengths: Floats, count: int) -> Ints:
    """The edges of the connected part with the longest roads."""
    ones = csr_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(count, count))
    _, part = connected_components(ones, directed=False)
    of_edge = part[edges[:, 0]]
    return np.flatnonzero(of_edge == np.bincount(of_edge, weights=lengths).argmax())


def _resampled(
    nodes: Floats, chains: Chains, spacing_m: float, name: str, licence: str
) -> RoadGraph:
    """The graph with nodes at even distances along each chain, from its beginning to its end."""
    offsets, along = chains.offsets, chains.along
    total = along[offsets[1:] - 1]
    # A road that ends where it begins would vanish with less than three pieces.
    closed = chains.nodes[offsets[:-1]] == chains.nodes[offsets[1:] - 1]
    least = np.where(closed, 3.0, 1.0)
    pieces = np.maximum(np.ceil(total / spacing_m), least).astype(np.int64)
    # Chains one after the other on one long road, with gaps, so that one search serves all.
    begins = np.cumsum(total + 1.0) - (total + 1.0)
    road = along + np.repeat(begins, np.diff(offsets))
    chain = np.repeat(np.arange(len(pieces)), pieces + 1)
    step = np.arange(len(chain)) - np.repeat(np.cumsum(pieces + 1) - (pieces + 1), pieces + 1)
    wanted = begins[chain] + total[chain] * step / pieces[chain]
    vectors = unit_vectors(nodes[chains.nodes])
    moved = np.column_stack([np.interp(wanted, road, axis) for axis in vectors.T])
    lat = np.degrees(np.arctan2(moved[:, 2], np.hypot(moved[:, 0], moved[:, 1])))
    lon = np.degrees(np.arctan2(moved[:, 1], moved[:, 0]))
    points_e7 = _rounded(np.column_stack([lat, lon]))
    # Junctions stay exactly where they are.
    at_end = (step == 0) | (step == pieces[chain])
    original = chains.nodes[np.where(step == 0, offsets[:-1][chain], offsets[1:][chain] - 1)]
    points_e7[at_end] = _rounded(nodes[original[at_end]])
    _, first, node = np.unique(node_keys(points_e7), return_index=True, return_inverse=True)
    nodes_e7, node = points_e7[first], node.reshape(-1)
    goes_on = np.flatnonzero(chain[1:] == chain[:-1])
    a, b, metres = node[goes_on], node[goes_on + 1], (total / pieces)[chain[goes_on]]
    # Rounded up, and no shorter than the crow flies: noise rests on it (road_network.proof.md).
    placed = nodes_e7 / PER_DEGREE
    metres = np.maximum(metres, _SPHERE.distance(placed[a], placed[b]))
    lengths = np.maximum(np.ceil(100.0 * metres), 1.0)
    if lengths.max() > LONGEST_CM:
        raise ParameterError(
            f"an edge must be at most {LONGEST_CM} cm long: give a smaller spacing_m"
        )
    low, high = np.minimum(a, b), np.maximum(a, b)
    order = np.lexsort((lengths, high, low))
    order = order[low[order] != high[order]]
    keys = low[order] * len(nodes_e7) + high[order]
    order = order[np.diff(keys, prepend=-1) != 0]  # of several the shortest
    edges = np.column_stack([low[order], high[order]])
    return RoadGraph(name, nodes_e7, edges, lengths[order].astype(np.int64), licence)
