"""Distances along roads between any two nodes, in microseconds, from tables made once.

The network is cut in two by a few nodes, each half again, and so on. A shortest way between two
nodes passes one of the nodes that first came between them, so it is enough to know, for each node,
the distances to those that cut it off: hub labels by nested separators. Distances are whole
centimetres and exact. The tables depend on the network alone, and nothing is remembered of
what was asked.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from hereish.core.types import Bools, Floats, Ints
from hereish.errors import ParameterError
from hereish.roads.building import find_chains
from hereish.roads.graph import LONGEST_CM, RoadGraph

_FAR = LONGEST_CM  # not to be reached without crossing a node of an earlier cut
# Parts this small are not cut any further: all their nodes are hubs.
_LEAF = 48
# Where cuts are tried, as shares of the nodes, and the directions; fewer in small parts.
_SHARES, _ANGLES, _FEW_ANGLES = (0.4, 0.5, 0.6), 8, 2
_SMALL = 600


class _Core(NamedTuple):
    """Junctions and ends, with what lies between them left out."""

    nodes: Ints  # their numbers in the network
    matrix: Any
    ends: Ints  # (n, 2) of each node of the network: the junctions at both ends of its road
    off_cm: Ints  # (n, 2) how far they are along it
    chain: Ints  # (n,) the number of its road, -1 for junctions


class DistanceIndex:
    """Tables of a road network, and the distances that follow from them."""

    def __init__(self, graph: RoadGraph) -> None:
        core = _find_core(graph)
        self._ends, self._off = core.ends, core.off_cm
        self._chain = core.chain
        self._starts, self._labels, self._path, self._hubs = _make_labels(
            core.matrix, graph.vectors[core.nodes]
        )

    @property
    def nbytes(self) -> int:
        """How much memory the tables take."""
        tables = (self._ends, self._off, self._chain, self._starts, self._labels, self._path)
        return sum(table.nbytes for table in (*tables, self._hubs))

    def between_cm(self, a: Ints, b: Ints) -> Ints:
        """The length of the shortest way between each pair of nodes."""
        return np.array(
            [self.between_one_cm(i, j) for i, j in zip(a.tolist(), b.tolist(), strict=True)],
            dtype=np.int64,
        )

    def between_one_cm(self, a: int, b: int) -> int:
        """The same for one pair."""
        shortest = 2 * _FAR
        if self._chain[a] == self._chain[b] >= 0:
            shortest = abs(int(self._off[a, 0]) - int(self._off[b, 0]))
        (a0, a1), (b0, b1) = self._ends[a].tolist(), self._ends[b].tolist()
        (from0, from1), (to0, to1) = self._off[a].tolist(), self._off[b].tolist()
        for i, gone in ((a0, from0), (a1, from1)) if a0 != a1 else ((a0, min(from0, from1)),):
            for j, left in ((b0, to0), (b1, to1)) if b0 != b1 else ((b0, min(to0, to1)),):
                if gone + left < shortest:
                    shortest = min(shortest, gone + left + self._between_junctions(i, j))
        return shortest

    def _between_junctions(self, i: int, j: int) -> int:
        if i == j:
            return 0
        common = int(np.count_nonzero(self._path[i] == self._path[j]))  # parts are cut from parts
        hubs, first, other = self._hubs[i, common - 1], self._starts[i], self._starts[j]
        sums = self._labels[first : first + hubs] + self._labels[other : other + hubs]
        return int(sums.min())


@lru_cache(maxsize=2)
def index_of(graph: RoadGraph) -> DistanceIndex:
    """Made once for all spaces on a network."""
    return DistanceIndex(graph)


def _find_core(graph: RoadGraph) -> _Core:
    n = len(graph)
    nodes, offsets, along = find_chains(graph.edges, graph.lengths_cm.astype(np.float64), n)
    first, last = nodes[offsets[:-1]], nodes[offsets[1:] - 1]
    core = np.unique(np.concatenate([first, last]))
    number = np.full(n, -1, dtype=np.int64)
    number[core] = np.arange(len(core))
    chain_of = np.repeat(np.arange(len(first)), np.diff(offsets))
    total = along[offsets[1:] - 1]
    ends = np.column_stack([number, number])
    off, chain = np.zeros((n, 2), dtype=np.int64), np.full(n, -1, dtype=np.int64)
    inner = number[nodes] < 0
    node, on = nodes[inner], chain_of[inner]
    ends[node] = np.column_stack([number[first[on]], number[last[on]]])
    off[node] = np.column_stack([along[inner], total[on] - along[inner]])
    chain[node] = on
    a, b = number[first], number[last]
    order = np.lexsort((total, np.maximum(a, b), np.minimum(a, b)))
    order = order[a[order] != b[order]]
    low, high = np.minimum(a, b)[order], np.maximum(a, b)[order]
    shortest = np.diff(low * len(core) + high, prepend=-1) != 0
    low, high, total = low[shortest], high[shortest], total[order][shortest]
    pairs = np.concatenate([low, high]), np.concatenate([high, low])
    matrix = csr_array((np.concatenate([total, total]), pairs), shape=(len(core), len(core)))
    return _Core(core, matrix, ends, off, chain)


def _make_labels(matrix: Any, vectors: Floats) -> tuple[Ints, Any, Any, Any]:
    """Where the label of each junction begins, the labels, and for each level of the cuts the part
    that a junction is in and how many hubs it has up to there."""
    count = matrix.shape[0]
    parts: list[tuple[int, Ints, Any]] = []  # level, junctions, distances to the hubs
    waiting = [(0, np.arange(count), matrix)]
    while waiting:
        level, members, roads = waiting.pop()
        hubs, left = _cut(roads, vectors[members])
        reached = np.atleast_2d(dijkstra(roads, indices=hubs))
        parts.append((level, members, np.minimum(reached, _FAR).astype(np.int32)))
        if level == 0 and reached.max() > LONGEST_CM // 2:  # all ways lead over a hub
            raise ParameterError(f"ways must be shorter than {LONGEST_CM // 200_000} km")
        rest = np.ones(len(members), dtype=np.bool_)
        rest[hubs] = False
        for side in (rest & left, rest & ~left):
            inside = np.flatnonzero(side)
            if len(inside):
                waiting.append((level + 1, members[inside], roads[inside][:, inside]))
    depth = 1 + max(level for level, _, _ in parts)
    lengths = np.zeros(count, dtype=np.int64)
    for _, members, table in parts:
        lengths[members] += len(table)
    starts = np.cumsum(lengths) - lengths
    labels = np.empty(int(lengths.sum()), dtype=np.int32)
    path = -1 - np.tile(np.arange(count, dtype=np.int32)[:, None], depth)  # nobody else's
    hubs_up_to = np.zeros((count, depth), dtype=np.int32)
    filled = starts.copy()
    for number, (level, members, table) in sorted(enumerate(parts), key=lambda part: part[1][0]):
        size = len(table)
        labels[filled[members][:, None] + np.arange(size)] = table.T
        filled[members] += size
        path[members, level] = number
        hubs_up_to[members, level] = (filled - starts)[members]
    return starts, labels, path, hubs_up_to


def _cut(roads: Any, vectors: Floats) -> tuple[Ints, Bools]:
    """Few junctions whose removal separates those on the left from the others."""
    count = len(vectors)
    if count <= _LEAF:
        return np.arange(count), np.ones(count, dtype=np.bool_)
    middle = vectors.mean(axis=0)
    east = np.array([-middle[1], middle[0], 0.0])
    east = east / max(math.hypot(*east), 1e-12) if abs(middle[2]) < 1.0 - 1e-9 else np.eye(3)[0]
    flat = vectors @ np.column_stack([east, np.cross(middle, east)])
    angles = math.pi * np.arange(_ANGLES if count > _SMALL else _FEW_ANGLES)
    angles /= len(angles)
    edges = roads.tocoo()
    one, other = edges.coords
    tried: list[tuple[float, Ints, Bools]] = []
    for along in (flat @ np.stack([np.cos(angles), np.sin(angles)])).T:
        order = np.argsort(along, kind="stable")
        for share in _SHARES if count > _SMALL else _SHARES[1:2]:
            left = np.zeros(count, dtype=np.bool_)
            left[order[: int(share * count)]] = True
            crossing = left[one] & ~left[other]
            side = one if _distinct(one[crossing]) <= _distinct(other[crossing]) else other
            hubs = np.unique(side[crossing])
            tried.append((len(hubs) / math.sqrt(min(share, 1.0 - share)), hubs, left))
    return min(tried, key=lambda cut: cut[0])[1:]


def _distinct(numbers: Ints) -> int:
    return len(np.unique(numbers))
