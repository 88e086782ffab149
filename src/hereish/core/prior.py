"""A public prior: how people are spread, on a grid of latitude and longitude."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from hereish.core.types import Floats, Ints, read_only_copy
from hereish.errors import ParameterError


@dataclass(frozen=True, eq=False, repr=False)
class Prior:
    """How many people, or how much of anything, each cell of a latitude/longitude grid holds.

    Row 0 begins at `south` and column 0 at `west`; a region may pass the antimeridian (`west=177`,
    six degrees wide). Only cells that hold something are kept: `cells` are their positions
    `row * columns + column` and `weights` what they hold.

    Guarantee: none of its own; whoever makes it answers for it being public.
    """

    name: str
    south: float
    west: float
    cell_deg: tuple[float, float]  # height and width
    shape: tuple[int, int]  # rows and columns
    cells: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    weights: Floats = field(default_factory=lambda: np.empty(0))
    licence: str = ""

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name.strip() and self.name.isprintable()):
            raise ParameterError(f"a prior needs a name of one line, found {self.name!r}")
        _check_region(self.south, self.west, self.cell_deg, self.shape)
        plain = {
            "south": float(self.south),
            "west": float(self.west),
            "cell_deg": (float(self.cell_deg[0]), float(self.cell_deg[1])),
            "shape": (int(self.shape[0]), int(self.shape[1])),
        }
        cells, weights = np.asarray(self.cells, np.int64), np.asarray(self.weights, np.float64)
        if cells.ndim != 1 or cells.shape != weights.shape:
            raise ParameterError(
                "cells and weights must be columns of the same length, found shapes "
                f"{cells.shape} and {weights.shape}"
            )
        if not (np.all(np.isfinite(weights)) and np.all(weights >= 0.0)):
            raise ParameterError("the weights of a prior must be finite numbers from 0")
        if len(cells) and not 0 <= cells.min() <= cells.max() < math.prod(self.shape):
            raise ParameterError(f"the cells of a prior must lie in its {self.shape} grid")
        cells, weights = sum_by_key(cells, weights)
        if not 0.0 < weights.sum() < math.inf:
            raise ParameterError("a prior must have a cell with a weight above 0, found none")
        arrays = {"cells": read_only_copy(cells), "weights": read_only_copy(weights)}
        for name, value in (plain | arrays).items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_grid(
        cls,
        name: str,
        weights: Floats,
        *,
        south: float,
        west: float,
        cell_deg: tuple[float, float],
        licence: str = "",
    ) -> Prior:
        """A prior of a rectangle of weights, whose first row is the southernmost."""
        table = np.asarray(weights, np.float64)
        if table.ndim != 2:
            raise ParameterError(f"a grid has rows and columns, found the shape {table.shape}")
        cells = np.flatnonzero(table)
        shape = (table.shape[0], table.shape[1])
        return cls(name, south, west, cell_deg, shape, cells, table.ravel()[cells], licence)

    @property
    def region(self) -> tuple[float, float, float, float]:
        """South, west, north, east; east is above 180 if the region passes the antimeridian."""
        (rows, columns), (height, width) = self.shape, self.cell_deg
        return self.south, self.west, self.south + rows * height, self.west + columns * width

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"<Prior {self.name!r}: {len(self.cells)} of {rows} x {columns} cells>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Prior):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)
        )

    def __hash__(self) -> int:
        return hash((self.name, self.south, self.west, self.shape, self.weights.tobytes()))

    def __reduce__(self) -> Any:  # what is loaded is checked, and read-only, again
        return Prior, tuple(getattr(self, f.name) for f in fields(self))


def _check_region(
    south: float, west: float, cell_deg: tuple[float, float], shape: tuple[int, int]
) -> None:
    if not all(isinstance(n, (int, np.integer)) and n >= 1 for n in (*shape,)) or len(shape) != 2:
        raise ParameterError(f"the shape of a prior must be (rows, columns), found {shape!r}")
    if len(cell_deg) != 2 or not all(math.isfinite(c) and c > 0 for c in cell_deg):
        raise ParameterError(f"cell_deg must be (height, width) above 0, found {cell_deg!r}")
    north, width = south + shape[0] * cell_deg[0], shape[1] * cell_deg[1]
    if not (south >= -90.000001 and north <= 90.000001 and width <= 360.000001):
        raise ParameterError(
            "the region of a prior must lie between -90 and 90 degrees of latitude and be at most "
            f"360 wide, found {south:g} to {north:g}, {width:g} wide; latitude comes first"
        )
    if not -360.0 <= west <= 360.0:
        raise ParameterError(f"west must be a longitude in degrees, found {west!r}")


def sum_by_key(keys: Ints, values: Floats) -> tuple[Ints, Floats]:
    """The sorted different keys, with the sum of the values of each; without zeros."""
    unique, inverse = np.unique(keys, return_inverse=True)
    sums: Floats = np.bincount(inverse, weights=values, minlength=len(unique)).astype(np.float64)
    return unique[sums > 0.0], sums[sums > 0.0]
