"""Secrets as cells of a lattice: where an observer thinks somebody, or a reading, may be.

`Lattice` is what smoothing needs of one, in any space. On the globe it is a `Grid`: cells are
squares of a map on which metres are those of a middle latitude, which is all that a movement model
needs. Distances to releases are great-circle ones, exact at every cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hereish.core.types import Bools, Floats

Mass: TypeAlias = NDArray[np.float32] | NDArray[np.float64]  # of cells

RADIUS_M = 6371008.771415059
M_PER_DEG = math.radians(RADIUS_M)
FINEST_M = 2.0  # releases are rounded to a metre
_ALIGNED = 4
_ENOUGH_CELLS = 12.0  # a posterior of a width of so many cells needs no finer ones
_OUTSIDE = 1e-5  # the mass of a posterior that finer grids leave out
_NORTHERNMOST_DEG = 89.0  # the map of a frame ends before its metres mean nothing


class Lattice(Protocol):
    """Cells along one axis or several; equal lattices have the same cells.

    Axes are those of a movement, along which all cells are of one size. Other lengths are in the
    unit of the space, metres or another. Arrays over a lattice have its shape.
    """

    @property
    def step_m(self) -> float:
        """The side of a cell along an axis."""
        ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def edges_m(self) -> tuple[Floats, ...]:
        """The edges of the cells along each axis of an array."""
        ...

    @property
    def half_diagonal_m(self) -> float | Floats:
        """How far a point of a cell may be from its middle; one number if cells are alike."""
        ...

    def points(self) -> Floats:
        """(*shape, coordinates) The middles of all cells as points of the space."""
        ...

    def cell_at(self, point: Floats) -> tuple[int, ...] | None:
        """The cell of a point of the space; None outside."""
        ...

    def distances_m(self, point: Floats) -> Floats:
        """Of the middles of all cells from a point, in the distance that is promised for."""
        ...

    def offsets_m(self, point: Floats) -> tuple[Floats, ...]:
        """How far a point is from the middles of all cells, along each coordinate."""
        ...

    def mean_of(self, mass: Mass) -> Floats:
        """The point of the space in the middle of mass that sums to 1."""
        ...

    def spread_of(self, mass: Mass) -> float:
        """The root of the mean squared distance from the mean, for mass that sums to 1."""
        ...

    def radius_of(self, inside: Bools) -> float:
        """The radius of a ball as large as these cells."""
        ...

    def finer(self, mass: Mass, cells: int) -> Lattice:
        """A finer one over this mass, or itself if it is fine enough."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class Frame:
    """A map in metres: east and north of a point in the middle of what is looked at."""

    lat: float
    lon: float

    @classmethod
    def around(cls, points: Floats) -> Frame:
        """With the median of these points in its middle, also across the antimeridian."""
        lon = points[:, 1]
        turned = np.median((lon - lon[0] + 180.0) % 360.0 - 180.0) + lon[0]
        lat = float(np.clip(np.median(points[:, 0]), -_NORTHERNMOST_DEG, _NORTHERNMOST_DEG))
        return cls(lat, float((turned + 180.0) % 360.0 - 180.0))

    @property
    def east_m_per_deg(self) -> float:
        return M_PER_DEG * math.cos(math.radians(self.lat))

    def to_metres(self, points: Floats) -> Floats:
        """(…, 2) latitude and longitude as metres east and north."""
        east = (points[..., 1] - self.lon + 180.0) % 360.0 - 180.0
        north = points[..., 0] - self.lat
        return np.stack([east * self.east_m_per_deg, north * M_PER_DEG], axis=-1)

    def to_degrees(self, metres: Floats) -> Floats:
        """The inverse of `to_metres`."""
        lat = np.clip(self.lat + metres[..., 1] / M_PER_DEG, -90.0, 90.0)
        lon = self.lon + metres[..., 0] / self.east_m_per_deg
        return np.stack([lat, (lon + 180.0) % 360.0 - 180.0], axis=-1)


@dataclass(frozen=True)
class Grid:
    """Square cells of `step_m`: `wide` to the east and `high` to the north of a corner.

    Corners are whole numbers of steps from the middle of the frame, so that grids of one step
    share their cells. Arrays over a grid are (high, wide).
    """

    frame: Frame
    step_m: float
    west: int  # of the corner, in steps
    south: int
    wide: int
    high: int

    @classmethod
    def covering(
        cls, frame: Frame, metres: Floats, margin_m: float, cells: int, finest_m: float = 0.0
    ) -> Grid:
        """At most `cells` to a side over these points and a margin.

        Steps are powers of two of a metre.
        """
        low, high = metres.min(axis=0) - margin_m, metres.max(axis=0) + margin_m
        extent_m = float((high - low).max())
        step_m = 2.0 ** math.ceil(math.log2(max(extent_m / (cells - 1), finest_m, 2.0**-10)))
        west, south = (math.floor(edge / step_m) for edge in low.tolist())
        sides = [math.ceil(edge / step_m) for edge in high.tolist()]
        return cls(frame, step_m, west, south, max(sides[0] - west, 1), max(sides[1] - south, 1))

    @property
    def shape(self) -> tuple[int, int]:
        return self.high, self.wide

    @property
    def cell_m2(self) -> float:
        return self.step_m * self.step_m

    @property
    def half_diagonal_m(self) -> float:
        return self.step_m / math.sqrt(2.0)

    @property
    def edges_m(self) -> tuple[Floats, Floats]:
        """Of the rows, then of the columns."""
        return self.north_edges_m, self.east_edges_m

    @cached_property
    def east_edges_m(self) -> Floats:
        return np.asarray((self.west + np.arange(self.wide + 1.0)) * self.step_m)

    @cached_property
    def north_edges_m(self) -> Floats:
        return np.asarray((self.south + np.arange(self.high + 1.0)) * self.step_m)

    @cached_property
    def _radians(self) -> tuple[Floats, Floats]:
        """Latitudes of the rows and longitudes of the columns."""
        east = self.east_edges_m[:-1] + 0.5 * self.step_m
        north = self.north_edges_m[:-1] + 0.5 * self.step_m
        lat = np.clip(self.frame.lat + north / M_PER_DEG, -90.0, 90.0)
        return np.radians(lat), np.radians(self.frame.lon + east / self.frame.east_m_per_deg)

    @cached_property
    def _cosines(self) -> Floats:
        return np.cos(self._radians[0])

    def distances_m(self, point: Floats) -> Floats:
        """(high, wide) Great-circle distances of the middles of all cells from a point."""
        lat, lon = self._radians
        own_lat, own_lon = math.radians(point[0]), math.radians(point[1])
        # The haversine is a sum of a row's number and a row's times a column's.
        rows = np.sin(0.5 * (lat - own_lat)) ** 2
        columns = np.sin(0.5 * (lon - own_lon)) ** 2
        half = np.outer(self._cosines * math.cos(own_lat), columns)
        half += rows[:, None]
        np.sqrt(half, out=half)
        np.minimum(half, 1.0, out=half)
        np.arcsin(half, out=half)
        half *= 2.0 * RADIUS_M
        return half

    def middles_m(self) -> Floats:
        """(high, wide, 2) metres east and north."""
        east = self.east_edges_m[:-1] + 0.5 * self.step_m
        north = self.north_edges_m[:-1] + 0.5 * self.step_m
        return np.stack(np.broadcast_arrays(east[None, :], north[:, None]), axis=-1)

    def points(self) -> Floats:
        """(high, wide, 2) latitude and longitude of the middles."""
        return self.frame.to_degrees(self.middles_m())

    def cell_at(self, point: Floats) -> tuple[int, int] | None:
        """Row and column of the cell with this latitude and longitude; None outside."""
        return self.cell_of(self.frame.to_metres(point))

    def offsets_m(self, point: Floats) -> tuple[Floats, Floats]:
        """How far east and north of the middles of all cells a point is."""
        offset = self.frame.to_metres(point) - self.middles_m()
        return offset[..., 0], offset[..., 1]

    def mean_of(self, mass: Mass) -> Floats:
        north, east = (along @ middle for along, middle in self._by_axis(mass))
        return self.frame.to_degrees(np.array([east, north]))

    def spread_of(self, mass: Mass) -> float:
        total = 0.0
        for along, middle in self._by_axis(mass):
            mean = float(along @ middle)
            total += float(along @ (middle - mean) ** 2)
        return math.sqrt(total)

    def _by_axis(self, mass: Mass) -> list[tuple[Floats, Floats]]:
        """Of rows, then of columns: the mass of each, and where its middle is."""
        return [
            (mass.sum(axis=1 - axis, dtype=np.float64), edges[:-1] + 0.5 * self.step_m)
            for axis, edges in enumerate(self.edges_m)
        ]

    def radius_of(self, inside: Bools) -> float:
        """The radius of a disc as large as these cells."""
        return math.sqrt(int(inside.sum()) * self.cell_m2 / math.pi)

    def middle_of(self, row: int, column: int) -> Floats:
        """Latitude and longitude of a cell."""
        east = (self.west + column + 0.5) * self.step_m
        north = (self.south + row + 0.5) * self.step_m
        return self.frame.to_degrees(np.array([east, north]))

    def cell_of(self, metres: Floats) -> tuple[int, int] | None:
        """Row and column of the cell with this point; None outside."""
        column = math.floor(metres[0] / self.step_m) - self.west
        row = math.floor(metres[1] / self.step_m) - self.south
        return (row, column) if 0 <= row < self.high and 0 <= column < self.wide else None

    def finer(self, mass: Mass, cells: int) -> Grid:
        """A finer grid over the posterior, if its cells are not fine enough already."""
        if self.step_m <= FINEST_M or self.spread_of(mass) > _ENOUGH_CELLS * self.step_m:
            return self
        box = self.box_of(mass, _OUTSIDE, cells)
        return self if box.step_m >= self.step_m else box

    def box_of(self, mass: Mass, outside: float, cells: int) -> Grid:
        """A finer grid over the box that holds all of this mass but so little outside of it.

        The cells around the box belong to it; it has `cells` to a side at most. Its corners are
        few, so that boxes of neighbouring times are often the same.
        """
        south, north = _widened(_span(mass.sum(axis=1), outside), self.south)
        west, east = _widened(_span(mass.sum(axis=0), outside), self.west)
        finer = 1
        while max(east - west, north - south) * finer * 2 <= cells:
            finer *= 2
        step_m = self.step_m / finer
        return Grid(
            self.frame,
            step_m,
            (self.west + west) * finer,
            (self.south + south) * finer,
            (east - west) * finer,
            (north - south) * finer,
        )


def _widened(span: tuple[int, int], corner: int) -> tuple[int, int]:
    """With a cell more on either side, from one fourth cell of the lattice to another."""
    low = (corner + span[0] - 1) // _ALIGNED * _ALIGNED
    high = -(-(corner + span[1] + 2) // _ALIGNED) * _ALIGNED
    return low - corner, high - corner


def _span(mass: Mass, outside: float) -> tuple[int, int]:
    """The first and the last place between which all mass lies but half of `outside` either way."""
    total = mass.sum()
    before = np.cumsum(mass)
    first = int(np.searchsorted(before, 0.5 * outside * total, side="right"))
    last = int(np.searchsorted(before, (1.0 - 0.5 * outside) * total, side="left"))
    return min(first, len(mass) - 1), min(max(last, first), len(mass) - 1)


def region(mass: Mass, share: float) -> Bools:
    """The fewest cells that hold this share of the mass."""
    flat = mass.ravel()
    order = np.argsort(-flat, kind="stable")
    held = np.cumsum(flat[order])
    count = int(np.searchsorted(held, share * held[-1], side="left")) + 1
    inside = np.zeros(len(flat), dtype=np.bool_)
    inside[order[:count]] = True
    return inside.reshape(mass.shape)


def distance_m(a: Floats, b: Floats) -> Floats:
    """Great-circle metres between points of latitude and longitude."""
    a, b = np.radians(a), np.radians(b)
    half = np.sin(0.5 * (a[..., 0] - b[..., 0])) ** 2
    half = half + np.cos(a[..., 0]) * np.cos(b[..., 0]) * np.sin(0.5 * (a[..., 1] - b[..., 1])) ** 2
    return np.asarray(2.0 * RADIUS_M * np.arcsin(np.sqrt(np.minimum(half, 1.0))))
