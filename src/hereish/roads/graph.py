"""A road network as a graph: nodes on the map, and the lengths of the roads between them."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from hereish.core.spaces import Sphere
from hereish.core.types import Floats, Ints, read_only_copy
from hereish.errors import ParameterError

# Nodes are written with seven decimals, as OpenStreetMap has them.
PER_DEGREE = 10_000_000
# A sum of two distances along roads is a 32-bit number of centimetres.
LONGEST_CM = 2**30 - 1
_SPHERE = Sphere()
_HALF_TURN = 180 * PER_DEGREE


@dataclass(frozen=True, eq=False, repr=False)
class RoadGraph:
    """Nodes and edges of a connected road network; roads lead both ways. `read_roads` makes one.

    Nodes are sorted by latitude and longitude and each place is one node; edges are sorted pairs of
    node numbers, the lower one first. Lengths are whole centimetres, so that distances are exact.

    Guarantee: none of its own; whoever makes it answers for it being public.
    """

    name: str
    nodes_e7: Ints  # (n, 2) latitude and longitude in units of 1e-7 degrees
    edges: Ints  # (m, 2)
    lengths_cm: Ints  # (m,)
    licence: str = ""

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name.strip() and self.name.isprintable()):
            raise ParameterError(f"a road network needs a name of one line, found {self.name!r}")
        arrays = {
            name: read_only_copy(np.ascontiguousarray(getattr(self, name), dtype=np.int64))
            for name in ("nodes_e7", "edges", "lengths_cm")
        }
        for name, array in arrays.items():
            object.__setattr__(self, name, array)
        self._check_nodes()
        self._check_edges()

    def _check_nodes(self) -> None:
        nodes = self.nodes_e7
        if nodes.ndim != 2 or nodes.shape[1] != 2 or len(nodes) < 2:
            raise ParameterError(
                f"a road network needs two nodes or more, (n, 2), found shape {nodes.shape}"
            )
        lat, lon = nodes.T
        if abs(lat).max() > _HALF_TURN // 2 or lon.min() < -_HALF_TURN or lon.max() >= _HALF_TURN:
            raise ParameterError("nodes must be latitudes and longitudes in units of 1e-7 degrees")
        if np.any(np.diff(node_keys(nodes)) <= 0):
            raise ParameterError("nodes must be sorted by latitude and longitude, each place once")

    def _check_edges(self) -> None:
        n, edges, lengths = len(self.nodes_e7), self.edges, self.lengths_cm
        if edges.ndim != 2 or edges.shape[1] != 2 or lengths.shape != (len(edges),):
            raise ParameterError(
                "edges must be (m, 2) node numbers with (m,) lengths, found shapes "
                f"{edges.shape} and {lengths.shape}"
            )
        low, high = edges.T
        inside = len(edges) and low.min() >= 0 and high.max() < n
        if not inside or np.any(low >= high) or np.any(np.diff(low * n + high) <= 0):
            raise ParameterError("edges must be sorted pairs of nodes, the lower first, each once")
        if lengths.min() < 1 or lengths.max() > LONGEST_CM:
            raise ParameterError(f"lengths must be whole numbers from 1 to {LONGEST_CM} cm")
        if connected_components(self.matrix, directed=False, return_labels=False) != 1:
            raise ParameterError("every node must be reachable from every other, found parts")

    def __len__(self) -> int:
        return len(self.nodes_e7)

    def __repr__(self) -> str:
        return f"<RoadGraph {self.name!r}: {len(self)} nodes, {len(self.edges)} edges>"

    @cached_property
    def nodes(self) -> Floats:
        """(n, 2) Latitude and longitude in degrees."""
        return read_only_copy(self.nodes_e7 / PER_DEGREE)  # type: ignore[no-any-return]  # an array

    @cached_property
    def matrix(self) -> Any:
        """The lengths in cm as a symmetric sparse matrix, for scipy.sparse.csgraph."""
        (low, high), n = self.edges.T, len(self.nodes_e7)
        rows, columns = np.concatenate([low, high]), np.concatenate([high, low])
        lengths = np.concatenate([self.lengths_cm, self.lengths_cm]).astype(np.float64)
        return csr_array((lengths, (rows, columns)), shape=(n, n))

    @cached_property
    def directness(self) -> float:
        """The least ratio of an edge's length to that of the great circle between its nodes.

        Times the great circle it never exceeds the way along roads.
        """
        low, high = self.edges.T
        apart_m = _SPHERE.distance(self.nodes[low], self.nodes[high])
        return float(np.min(0.01 * self.lengths_cm / np.maximum(apart_m, 1e-3)))

    @cached_property
    def digest(self) -> str:
        """Of nodes, edges and lengths: the same for the same network, on any machine."""
        digest = hashlib.sha256()
        for array in (self.nodes_e7, self.edges, self.lengths_cm):
            digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        return digest.hexdigest()

    @cached_property
    def vectors(self) -> Floats:
        """(n, 3) The nodes as unit vectors."""
        return read_only_copy(unit_vectors(self.nodes))  # type: ignore[no-any-return]  # an array

    @cached_property
    def _tree(self) -> Any:
        return cKDTree(self.vectors)

    def nearest(self, points: Floats) -> Ints:
        """The number of the node next to each point, -1 where it is NaN."""
        known = np.asarray(np.isfinite(points).all(axis=1))
        if np.count_nonzero(known) < len(known):
            found = np.full(len(points), -1, dtype=np.int64)
            found[known] = self.nearest(points[known])
            return found
        return np.asarray(self._tree.query(unit_vectors(points))[1], dtype=np.int64)

    def stretched(self, factors: Floats) -> RoadGraph:
        """The same roads with lengths times a public factor for each edge (elastic radii).

        A factor below 1 shortens an edge: people along it are protected within a longer way.
        """
        factor = np.broadcast_to(np.asarray(factors, dtype=np.float64), self.lengths_cm.shape)
        if not (np.all(np.isfinite(factor)) and np.all(factor > 0.0)):
            raise ParameterError("factors must be finite numbers above 0, one per edge")
        lengths = np.maximum(np.ceil(self.lengths_cm * factor), 1.0)
        if lengths.max() > LONGEST_CM:
            raise ParameterError(f"a stretched edge must be at most {LONGEST_CM} cm long")
        return RoadGraph(
            self.name, self.nodes_e7, self.edges, lengths.astype(np.int64), self.licence
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RoadGraph):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)
        )

    def __hash__(self) -> int:
        return hash((self.name, self.digest))

    def __reduce__(self) -> Any:  # what is loaded is checked, and read-only, again
        return RoadGraph, tuple(getattr(self, f.name) for f in fields(self))


def node_keys(nodes_e7: Ints) -> Ints:
    """One number for each place, in the order of latitude and longitude."""
    return np.asarray((nodes_e7[:, 0] << 32) + (nodes_e7[:, 1] + _HALF_TURN))


def unit_vectors(points: Floats) -> Floats:
    """(n, 3) Latitudes and longitudes as points of a sphere of radius 1."""
    lat, lon = np.ascontiguousarray(points.T) * (math.pi / 180.0)
    out = np.cos(lat)
    return np.column_stack([out * np.cos(lon), out * np.sin(lon), np.sin(lat)])
