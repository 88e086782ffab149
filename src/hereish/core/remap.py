"""Moving a hard release to where people are: post-processing with a public prior.

A hard release z is the true place plus noise of a public epsilon. Somebody who knows how people are
spread (a prior) can say better than z where the true place is: the mean of the posterior, which is
proportional to `prior * exp(-eps * distance to z)`. Nothing here sees the secret, so it costs
nothing; the releases are as private as before, and on average closer.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from hereish.core.prior import Prior, sum_by_key
from hereish.core.privacy import positive
from hereish.core.types import Bools, Floats, Ints, PerLane
from hereish.errors import ParameterError

METRES_PER_DEGREE = 6371008.771415059 * math.pi / 180.0  # of latitude, on the mean sphere
# Where posteriors are looked at: nested squares around z of 4 x 4 points each, whose spacings are
# these times 1 / eps. They reach 8 / eps, and noise goes further once in 330 times. More points
# have not made releases any closer.
_SPACINGS = (0.5, 1.0, 2.0, 4.0)
_SIDE = 4
_HALF = _SIDE // 2
_REACH = _HALF * _SPACINGS[-1]
# The map around z is flat, with degrees of longitude as long as at z: too wrong beyond these.
_WIDEST_DEG, _NORTHERNMOST_DEG = 10.0, 88.0
_TILE_BITS = 4
_TILE = 1 << _TILE_BITS
# So many lanes at a time stay in cache.
_LANES = 2048


class Remap(Protocol):
    """What is done to hard releases before they leave: a function of public data alone."""

    def __call__(self, z: Floats, eps: PerLane) -> Floats:
        """A better guess of the true place than each noisy point `z`, one lane per row."""
        ...

    @property
    def name(self) -> str:
        """What the prior is, for metadata and the text of the guarantee."""
        ...

    @property
    def max_shift(self) -> float:
        """How far it moves a point at most, in multiples of 1 / eps."""
        ...


@dataclass(frozen=True)
class PriorRemap:
    """Hard releases moved to the mean of the posterior, given how people are spread.

    `background` is a uniform density that is added to the prior, as a multiple of the prior's mean
    density within 8 / eps of the noisy point: the larger, the less is believed of the prior. No
    point moves further than `max_shift` / eps; noise moves it 2 / eps on average. Points outside of
    the prior's region stay where they are, as do those within 8 / eps of 88 degrees of latitude,
    and all where 8 / eps is more than 10 degrees.

    Latitude and longitude only. The bits of a lane do not depend on the other lanes.

    Guarantee: a function of the noisy point, its epsilon and the settings, so it costs no budget.
    However wrong the prior, no error grows by more than `max_shift` / eps.
    """

    prior: Prior
    background: float = 1.0
    max_shift: float = 1.0
    _pyramid: _Pyramid = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.prior, Prior):
            raise ParameterError(f"prior must be a hereish.Prior, found {self.prior!r}")
        positive("background", self.background)
        if positive("max_shift", self.max_shift) > _SIDE:
            raise ParameterError(f"max_shift must be at most {_SIDE}, found {self.max_shift!r}")
        object.__setattr__(self, "_pyramid", _build_pyramid(self.prior))

    @property
    def name(self) -> str:
        return self.prior.name

    def __reduce__(self) -> Any:  # the pyramid is made again
        return PriorRemap, (self.prior, self.background, self.max_shift)

    def __call__(self, z: Floats, eps: PerLane) -> Floats:
        moved = np.array(z, np.float64)
        scale_deg = np.broadcast_to(
            np.asarray(1.0 / (eps * METRES_PER_DEGREE), np.float64), (len(moved),)
        )
        lanes = np.flatnonzero(_is_covered(self.prior, moved, scale_deg))
        buffers = _Buffers(min(len(lanes), _LANES))
        for begin in range(0, len(lanes), _LANES):
            some = lanes[begin : begin + _LANES]
            moved[some] = self._move(moved[some, 0], moved[some, 1], scale_deg[some], buffers)
        return moved

    def _move(self, lat: Floats, lon: Floats, scale_deg: Floats, buffers: _Buffers) -> Floats:
        """The mean of the posterior around each point; lengths are in units of 1 / eps."""
        lon_scale_deg = scale_deg / np.cos(lat * (math.pi / 180.0))
        density = _density(self._pyramid, lat, lon, scale_deg, lon_scale_deg, buffers)
        kernel, offsets = _stencil()
        # The widest square covers all that is looked at, the inner ones included.
        mean = _add_up(_add_up(density[-1], 1), 0) * (1.0 / _SIDE**2)
        density *= kernel[..., None]
        rows, columns = _add_up(density, 2), _add_up(density, 1)
        # Opposite sides are subtracted first: what is symmetric stays exactly where it is.
        north = (rows[:, _HALF:] - rows[:, _HALF - 1 :: -1]) * offsets
        east = (columns[:, _HALF:] - columns[:, _HALF - 1 :: -1]) * offsets
        north, east, mass = (_add_up(_add_up(sums, 1), 0) for sums in (north, east, rows))
        total = mass + mean * (self.background * float(kernel.sum()))
        total[total == 0.0] = 1.0  # nobody lives here: all the sums are 0
        north /= total
        east /= total
        length = np.sqrt(north * north + east * east)
        shorter = self.max_shift / np.maximum(length, self.max_shift)
        moved = np.empty((len(lat), 2))
        moved[:, 0] = lat + north * shorter * scale_deg
        moved[:, 1] = lon + east * shorter * lon_scale_deg
        beyond = np.abs(moved[:, 1]) > 180.0
        moved[beyond, 1] -= np.copysign(360.0, moved[beyond, 1])
        return moved


class _Buffers:
    """Arrays that are used again for the next lanes: new ones would cost more than the work."""

    def __init__(self, lanes: int) -> None:
        size = len(_SPACINGS) * _SIDE * _SIDE * lanes
        self._tiles, self._cells = np.empty(size, np.int64), np.empty(size, np.int64)
        self._density = np.empty(size)

    def of(self, lanes: int) -> tuple[Ints, Ints, Floats]:
        """For tiles, cells and densities at the points of the stencil."""
        shape = (len(_SPACINGS), _SIDE, _SIDE, lanes)
        size = math.prod(shape)
        tiles, cells = self._tiles[:size].reshape(shape), self._cells[:size].reshape(shape)
        return tiles, cells, self._density[:size].reshape(shape)


class _Pyramid(NamedTuple):
    """Densities at ever coarser levels, in square tiles; all that are empty are the first one.

    Each level has a table of tiles, one row and one column larger than needed: what lies outside
    of the region is looked up there, and found empty.
    """

    south: float
    west: float
    cell_deg: tuple[float, float]
    down: Ints  # (levels,): rows of tiles
    across: Ints  # (levels,): columns of tiles
    begins: Ints  # (levels,): where the table of each level begins in `tables`
    tables: Ints  # where each tile begins in `tiles`
    tiles: Floats


def _is_covered(prior: Prior, z: Floats, scale_deg: Floats) -> Bools:
    """The lanes in the region whose surroundings can be drawn on a flat map."""
    south, west, north, _ = prior.region
    lat, reach_deg = z[:, 0], _REACH * scale_deg
    width = prior.shape[1] * prior.cell_deg[1]
    covered = (lat >= south) & (lat <= north) & (reach_deg <= _WIDEST_DEG)
    covered &= np.abs(lat) + reach_deg <= _NORTHERNMOST_DEG
    covered &= _east_of(west, z[:, 1]) <= width
    return np.asarray(covered)


def _east_of(west: float, lon: Floats) -> Floats:
    """Degrees east of a meridian, from 0 to 360."""
    east = lon - west
    return np.asarray(east - 360.0 * np.floor(east * (1.0 / 360.0)))


def _build_pyramid(prior: Prior) -> _Pyramid:
    rows, columns = prior.shape
    row, column = np.divmod(prior.cells, columns)
    middle = prior.south + (row + 0.5) * prior.cell_deg[0]
    # Cells grow narrow towards the poles. Only ratios of densities matter.
    density = prior.weights / np.maximum(np.cos(np.radians(middle)), 1e-3)
    density /= density.max()
    shapes, begins, tables, tiles = [], [0], [], [np.zeros(_TILE * _TILE)]
    filled = 1
    for level in range(64):
        down, across = -((-rows) >> level), -((-columns) >> level)
        shape = (-(-down // _TILE), -(-across // _TILE))
        keys, place = np.unique(
            (row >> _TILE_BITS) * (shape[1] + 1) + (column >> _TILE_BITS), return_inverse=True
        )
        table = np.zeros((shape[0] + 1) * (shape[1] + 1), np.int64)
        table[keys] = (filled + np.arange(len(keys))) * _TILE * _TILE
        tile = np.zeros(len(keys) * _TILE * _TILE)
        inside = (row % _TILE) * _TILE + column % _TILE
        # Blocks at the edges have fewer cells: the mean is over those that there are.
        high = np.minimum((row + 1) << level, rows) - (row << level)
        wide = np.minimum((column + 1) << level, columns) - (column << level)
        tile[place * _TILE * _TILE + inside] = density / (high * wide)
        shapes.append(shape)
        begins.append(begins[-1] + len(table))
        tables.append(table)
        tiles.append(tile)
        filled += len(keys)
        if down == across == 1:
            break
        parents, density = sum_by_key((row >> 1) * across + (column >> 1), density)
        row, column = np.divmod(parents, across)
    return _Pyramid(
        prior.south,
        prior.west,
        prior.cell_deg,
        np.array([shape[0] for shape in shapes]),
        np.array([shape[1] for shape in shapes]),
        np.array(begins[:-1]),
        np.concatenate(tables),
        np.concatenate(tiles),
    )


@functools.cache
def _stencil() -> tuple[Floats, Floats]:
    """The mass of exp(-distance) in the cell of each point, (squares, 4, 4), and the distances of
    the points of the upper halves from the middle, (squares, 2, 1).

    The inner half of a square belongs to the one within it, and counts only there.
    """
    steps = np.arange(_SIDE) - (_SIDE - 1) / 2.0
    parts = (np.arange(16) + 0.5) / 16.0 - 0.5
    axis = (steps[:, None] + parts).ravel()
    kernel = np.empty((len(_SPACINGS), _SIDE, _SIDE))
    for i, spacing in enumerate(_SPACINGS):
        mass = np.exp(-spacing * np.hypot(axis[:, None], axis)) * (spacing / len(parts)) ** 2
        kernel[i] = mass.reshape(_SIDE, len(parts), _SIDE, len(parts)).sum(axis=(1, 3))
    middle = slice(_HALF // 2, _SIDE - _HALF // 2)
    kernel[1:, middle, middle] = 0.0
    # Mirrored, so that it is symmetric to the last bit.
    kernel = kernel + kernel[:, ::-1]
    kernel = kernel + kernel[:, :, ::-1]
    offsets = np.array(_SPACINGS)[:, None] * steps[_HALF:]
    return kernel, offsets[:, :, None]


def _density(
    pyramid: _Pyramid,
    lat: Floats,
    lon: Floats,
    lat_scale: Floats,
    lon_scale: Floats,
    buffers: _Buffers,
) -> Floats:
    """The prior's density at the points of the stencil: (squares, 4 rows, 4 columns, lanes)."""
    height, width = pyramid.cell_deg
    spacings = np.array(_SPACINGS)[:, None]
    # Cells of the level that is looked at are at most as high as the points are apart.
    level = np.frexp(spacings * lat_scale / height)[1] - 1
    level = np.clip(level, 0, len(pyramid.begins) - 1)
    steps = np.arange(_SIDE) - (_SIDE - 1) / 2.0
    spread = (spacings * steps)[:, :, None]  # (squares, 4, 1)
    coarser = np.ldexp(1.0, -level)[:, None, :]
    row = np.floor((lat - pyramid.south + spread * lat_scale) * (coarser / height))
    column = np.floor(_east_of(pyramid.west, lon + spread * lon_scale) * (coarser / width))
    down, across = pyramid.down[level][:, None, :], pyramid.across[level][:, None, :]
    row, column = row.astype(np.int64), column.astype(np.int64)
    tile_row = np.where(row < 0, down, np.minimum(row >> _TILE_BITS, down))
    tile_column = np.minimum(column >> _TILE_BITS, across)
    tile_row = pyramid.begins[level][:, None, :] + tile_row * (across + 1)
    inner_row, inner_column = (row & (_TILE - 1)) << _TILE_BITS, column & (_TILE - 1)
    tiles, cells, density = buffers.of(len(lat))
    np.add(tile_row[:, :, None], tile_column[:, None], out=tiles)
    # All indices are in range; "clip" only spares a copy.
    pyramid.tables.take(tiles, out=cells, mode="clip")
    cells += inner_row[:, :, None]
    cells += inner_column[:, None]
    return pyramid.tiles.take(cells, out=density, mode="clip")


def _add_up(values: Floats, axis: int) -> Floats:
    """The sum over an axis of 2 or 4, in an order that does not depend on the number of lanes."""
    before = [slice(None)] * axis
    while (count := values.shape[axis]) > 1:
        low, high = slice(count // 2), slice(count // 2, None)
        values = values[(*before, low)] + values[(*before, high)]
    return np.asarray(values.squeeze(axis))
