"""A space whose distance is the way along roads. Proof: road_network.proof.md."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

import numpy as np
from scipy.sparse.csgraph import dijkstra

from hereish.core.spaces import Coordinate, Sphere, are_rows, distance_of_any, probability
from hereish.core.types import Floats, Ints, PerLane
from hereish.errors import ParameterError
from hereish.roads.distances import DistanceIndex, index_of
from hereish.roads.graph import RoadGraph

_SPHERE = Sphere()
_RADIUS_M = 6371008.771415059  # of the sphere that distances are measured on
# So often a node is proposed by the crow's distance, before all distances are computed.
_TRIES = 6
# Nodes that are far away have together about this share of the weight of the secret's own node.
_FAR_SHARE = 1e-4
# No lower bound on a distance is off by more than this.
_MARGIN_M = 1e-3
# Weights are whole numbers up to 2**56, and 64 of them fit 63 bits.
_ONE, _BLOCK = 2.0**56, 64
# How far noise goes is looked up at so many nodes, for so many sizes of noise.
_PROBES, _SIZES, _DRAWS = 32, 16, 128


@dataclass(frozen=True)
class RoadNetwork:
    """Latitude and longitude on a road network: the distance is the shortest way along roads.

    A place stands for the node next to it, and releases are nodes. With the law "exponential" a
    node is released with a chance proportional to exp(-eps/2 * distance): the normalising constant
    differs from place to place, and costs the other half. With "laplace" noise is drawn as on a
    `Sphere` with the whole eps and released as the node next to it: roads are never shorter than
    the crow flies. docs/roads.md has which is better when.

    Guarantee: `noise` is eps * distance-private, where the distance of two places is that between
    the nodes next to them along the roads, in WGS84 metres, each edge up to 1 cm longer; up to
    the rounding bounded in known-limits.md. Two places with a river between them may be far apart.
    """

    graph: RoadGraph
    law: Literal["exponential", "laplace"] = "exponential"
    coordinates = (Coordinate("latitude", -90.0, 90.0), Coordinate("longitude", -180.0, 180.0))
    claim_factor = Sphere.claim_factor
    unit = "m along roads"
    smallest_eps = 0.0
    private = True

    def __post_init__(self) -> None:
        if not isinstance(self.graph, RoadGraph):
            raise ParameterError(
                "graph must be a hereish.roads.RoadGraph, such as read_roads makes, found "
                f"{type(self.graph).__name__}"
            )
        if self.law not in ("exponential", "laplace"):
            raise ParameterError(f"law must be 'exponential' or 'laplace', found {self.law!r}")
        if self.law == "laplace" and self.graph.directness < 1.0 - 1e-9:
            raise ParameterError(
                "the law 'laplace' needs roads that are no shorter than the crow flies, found "
                f"one of {self.graph.directness:.3g} of that; use the law 'exponential'"
            )

    @property
    def uniforms(self) -> int:
        return _SPHERE.uniforms if self.law == "laplace" else 3 * _TRIES + 2

    @property
    def index(self) -> DistanceIndex:
        """Tables of distances. They take some seconds to make, and depend on the roads alone."""
        return index_of(self.graph)

    def distance(self, a: Floats, b: Floats) -> Floats:
        if not are_rows(a, b):
            return distance_of_any(self, a, b)
        one, other = self.graph.nearest(a), self.graph.nearest(b)  # [G1]
        known = (one >= 0) & (other >= 0)
        apart = np.full(len(one), np.nan)
        apart[known] = 0.01 * self.index.between_cm(one[known], other[known])
        return apart

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        at = self.graph.nearest(x)  # [G2]
        if self.law == "laplace":
            return self.snap(_SPHERE.unrounded_noise(self.graph.nodes[at], eps, u))  # [G3]
        each = zip(at.tolist(), np.broadcast_to(eps, len(at)).tolist(), u.tolist(), strict=True)
        return self.graph.nodes[[self._draw(*lane) for lane in each]]

    def snap(self, points: Floats) -> Floats:
        nearest = self.graph.nearest(points)
        return np.where((nearest >= 0)[:, None], self.graph.nodes[nearest], np.nan)

    def c_noise(self, delta: float) -> float:
        """The largest eps * quantile of the noise over all sizes of noise, for an average node.

        A network has no scale of its own, so noise of one eps is not that of another, stretched:
        whatever eps is, the share `delta` of it lies within c_noise / eps or less.
        """
        probability("delta", delta)
        probes = np.unique(np.linspace(0, len(self.graph) - 1, _PROBES).astype(np.int64))
        far_m = 0.01 * dijkstra(self.graph.matrix, indices=probes)
        street_m = 0.01 * float(np.median(self.graph.lengths_cm))
        sizes: list[float] = np.geomspace(0.25 / far_m.max(), 25.0 / street_m, _SIZES).tolist()
        if self.law == "laplace":
            return max(eps * self._laplace_quantile(far_m, probes, eps, delta) for eps in sizes)
        order = np.argsort(far_m, axis=None)
        ways = far_m.ravel()[order]
        found = []
        for eps in sizes:
            chance = np.exp(-np.minimum(0.5 * eps * far_m, self._cap))
            chance /= chance.sum(axis=1, keepdims=True)
            total = np.cumsum(chance.ravel()[order])
            found.append(eps * float(ways[np.searchsorted(total, delta * total[-1])]))
        return max(found)

    def _laplace_quantile(self, far_m: Floats, probes: Ints, eps: float, delta: float) -> float:
        # Uniforms that fill the cube evenly: multiples of powers of a generalised golden ratio.
        u = (0.5 + np.arange(_DRAWS)[:, None] * np.array([0.8191725, 0.6710436, 0.5497004])) % 1.0
        x = np.repeat(self.graph.nodes[probes], _DRAWS, axis=0)
        drawn = _SPHERE.unrounded_noise(x, eps, np.tile(u, (len(probes), 1)))
        went = far_m[np.repeat(np.arange(len(probes)), _DRAWS), self.graph.nearest(drawn)]
        return float(np.quantile(went, delta))

    # The exponential mechanism. All distances of a large network take many milliseconds, so nodes
    # are proposed by a lower bound of the distance and accepted by the distance itself.

    @cached_property
    def _cap(self) -> float:
        """Weights fall no further than exp(-this), so that no node is impossible."""
        return math.log(len(self.graph) / _FAR_SHARE)

    @cached_property
    def _axes(self) -> Floats:
        """(3, n) The nodes in metres from the middle of the globe, times the directness."""
        scale = _RADIUS_M * min(self.graph.directness, 1.0)
        return np.ascontiguousarray(self.graph.vectors.T) * scale

    def _draw(self, at: int, eps: float, u: list[float]) -> int:
        """A node z with a chance proportional to exp(-min(eps/2 * distance(at, z), cap))."""
        half, cap = 0.5 * eps, self._cap
        bound = self._lower_bound(at)
        bound *= half
        np.minimum(bound, cap, out=bound)
        weights = _whole_weights(bound)
        table = _sums(weights)
        for first in range(0, 3 * _TRIES, 3):
            node = _pick(weights, table, u[first], u[first + 1])  # [G4]
            apart = 0.01 * self.index.between_one_cm(at, node)
            if u[first + 2] < math.exp(float(bound[node]) - min(half * apart, cap)):  # [G5]
                return node
        far_m = 0.01 * dijkstra(self.graph.matrix, indices=at, limit=100.0 * (1.0 + cap / half))
        weights = _whole_weights(np.minimum(half * far_m, cap))
        return _pick(weights, _sums(weights), u[-2], u[-1])  # [G6]

    def _lower_bound(self, at: int) -> Floats:
        """Metres from a node to each other, through the globe: no way along roads is shorter."""
        squares = np.zeros(len(self.graph))
        for axis in self._axes:
            off = axis - axis[at]
            off *= off
            squares += off
        bound = np.sqrt(squares, out=squares)
        bound -= _MARGIN_M
        return np.maximum(bound, 0.0, out=bound)  # [G7]

    def __reduce__(self) -> Any:  # the tables are made again where they are needed
        return RoadNetwork, tuple(getattr(self, f.name) for f in fields(self))


def _whole_weights(loss: Floats) -> Ints:
    """exp(-loss) as whole numbers, of which sums are exact."""
    return np.asarray(np.exp(-loss) * _ONE).astype(np.int64)  # [G8]


def _sums(weights: Ints) -> list[int]:
    """The sums of all weights up to the end of each block of them."""
    blocks = np.add.reduceat(weights, np.arange(0, len(weights), _BLOCK))
    return list(accumulate(blocks.tolist()))


def _pick(weights: Ints, sums: list[int], coarse: float, fine: float) -> int:
    """The node in whose share of the weights the number lies that both uniforms make together."""
    number = (math.floor(coarse * 2.0**52) << 52) + math.floor(fine * 2.0**52)
    target = number * sums[-1] >> 104  # [G9]
    block = bisect_right(sums, target)
    rest = target - (sums[block - 1] if block else 0)
    inside = np.cumsum(weights[block * _BLOCK : (block + 1) * _BLOCK])
    return block * _BLOCK + int(np.searchsorted(inside, rest, side="right"))  # [G10]
