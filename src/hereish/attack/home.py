"""Where somebody lives and works: what weeks of releases add up to.

The observer assumes one home, at which the person is in the hours of most nights, and weighs each
night by how probable its releases were from each place. Nights elsewhere are allowed for. The plain
attack beside it is the geometric median of the fresh noise of those hours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from hereish.attack.lattice import Frame, Grid, distance_m, region
from hereish.attack.observations import Observations
from hereish.core.types import Bools, Floats, Ints
from hereish.errors import ParameterError

_DAY_S, _QUARTER_S = 86400.0, 900.0
_NONE = timedelta(0)
_CELLS = 64
_FINEST_M = 8.0
_ZOOMS = 6
_OUTSIDE = 1e-4
_MARGIN = 6.0  # scales of the noise around the releases
_LEAST_MARGIN_M, _MOST_MARGIN_M = 1000.0, 100_000.0
_AWAY = 0.1  # the share of nights that are spent elsewhere
WITHIN_M = (50.0, 200.0, 500.0)

Days = Literal["all", "weekdays"]


class Hours(NamedTuple):
    """Hours of the local clock, on all days or on weekdays; over midnight where `until` is less."""

    begin: float
    until: float
    days: Days = "all"

    def groups(self, at_s: Floats, time_zone: str) -> tuple[Bools, Ints, Floats]:
        """Which times lie in these hours, the day on which those began, and hours since then."""
        local_s = local_seconds(at_s, time_zone)
        since_h = (local_s / 3600.0 - self.begin) % 24.0
        inside = since_h < (self.until - self.begin) % 24.0
        day = np.floor((local_s - since_h * 3600.0) / _DAY_S + 1e-9).astype(np.int64)
        if self.days == "weekdays":
            inside &= (day + 3) % 7 < 5  # 1970 began on a Thursday
        return np.asarray(inside), day, since_h


NIGHT = Hours(0.0, 6.0)
WORK = Hours(10.0, 16.0, "weekdays")


def local_seconds(at_s: Floats, time_zone: str) -> Floats:
    """Seconds since 1970 of the local clock."""
    zone = ZoneInfo(time_zone)
    quarters, which = np.unique(at_s // _QUARTER_S, return_inverse=True)
    clocks = [datetime.fromtimestamp(quarter * _QUARTER_S, zone) for quarter in quarters.tolist()]
    ahead_s = np.array([(clock.utcoffset() or _NONE).total_seconds() for clock in clocks])
    return np.asarray(at_s + ahead_s[which.reshape(-1)])


@dataclass(frozen=True, eq=False)
class HabitualPlace:
    """What an observer thinks of where somebody usually is in some hours."""

    best: Floats  # latitude and longitude
    median: Floats | None  # the geometric median of the fresh noise; None if there was none
    grid: Grid
    mass: Floats  # of the grid's cells: the posterior
    days: int  # on which there was a release in these hours
    hard: int  # releases of fresh noise among them

    def within(self, metres: float) -> float:
        """How sure the observer is that the place is within so many metres of `best`."""
        inside = self.grid.distances_m(self.best) <= metres
        held = float(self.mass[inside].sum())
        if self.grid.step_m <= metres:
            return held
        # Of a cell wider than that, as much as lies within.
        area_m2 = max(int(inside.sum()), 1) * self.grid.cell_m2
        return held * min(1.0, math.pi * metres**2 / area_m2)

    def radius_m(self, share: float) -> float:
        """The radius of a disc as large as the region that holds this share."""
        return float(np.sqrt(region(self.mass, share).sum() * self.grid.cell_m2 / np.pi))


def find_place(
    seen: Observations,
    time_zone: str,
    hours: Hours = NIGHT,
    *,
    away: float = _AWAY,
    block_h: float = 24.0,
    target_m: float = 200.0,
) -> HabitualPlace | None:
    """Where somebody usually is in these hours; None if nothing was released in them.

    `away` is the share of days that are spent elsewhere; with `block_h` hours of a day are told
    apart in blocks of so many, of which this share is. The best guess is the one that has most of
    the posterior within `target_m`.
    """
    seen.require_places()
    if not 0.0 < away < 1.0:
        raise ParameterError(f"away must be a share between 0 and 1, found {away!r}")
    inside, day, since_h = hours.groups(seen.at_s, time_zone)
    if not inside.any():
        return None
    some, day = seen.take(inside), day[inside]
    grid = _whole(some)
    block = day * 1000 + np.floor(since_h[inside] / block_h).astype(np.int64)
    telling = some.informative()
    nights = [np.flatnonzero((block == one) & telling) for one in np.unique(block)]
    told, elsewhere = _log_nights(some, nights, grid, None)
    for _ in range(_ZOOMS):
        mass = _posterior(told, elsewhere, away)
        box = grid.box_of(mass, _OUTSIDE, _CELLS)
        if box.step_m >= grid.step_m or grid.step_m <= _FINEST_M:
            break
        grid = box
        told, _ = _log_nights(some, nights, grid, elsewhere)
    mass = _posterior(told, elsewhere, away)
    hard = some.noisy[some.hard]
    return HabitualPlace(
        best=_best(grid, mass, target_m),
        median=geometric_median(some.value[some.hard]) if len(hard) else None,
        grid=grid,
        mass=mass,
        days=len(np.unique(day)),
        hard=len(hard),
    )


def _whole(seen: Observations) -> Grid:
    points, margin_m = seen.value, _LEAST_MARGIN_M
    if seen.hard.any():
        points = np.concatenate([points, seen.noisy[seen.hard]])
        if seen.law is None:
            scale_m = float(np.median(1.0 / seen.eps_noise[seen.hard]))
            margin_m = min(max(margin_m, _MARGIN * scale_m), _MOST_MARGIN_M)
        else:
            margin_m = 10_000.0
    elif seen.informative().any():
        margin_m = 10_000.0
    frame = Frame.around(seen.value)
    return Grid.covering(frame, frame.to_metres(points), margin_m, _CELLS, _FINEST_M)


def _log_nights(
    seen: Observations, nights: list[Ints], grid: Grid, elsewhere: Floats | None
) -> tuple[Floats, Floats]:
    """(nights, high, wide) The logarithm of how probable a night's releases were from each cell,
    and of their mean over the whole area, which is that of the first grid.
    """
    told = np.zeros((len(nights), *grid.shape))
    for number, rows in enumerate(nights):
        for i in rows.tolist():
            log_chance = seen.log_likelihood(i, grid)
            if log_chance is not None:
                told[number] += log_chance
    if elsewhere is None:
        most = told.max(axis=(1, 2))
        mean = np.exp(told - most[:, None, None]).mean(axis=(1, 2))
        elsewhere = most + np.log(mean)
    return told, elsewhere


def _posterior(told: Floats, elsewhere: Floats, away: float) -> Floats:
    at_home = np.log1p(-away) + told
    log_mass = np.logaddexp(at_home, np.log(away) + elsewhere[:, None, None]).sum(axis=0)
    mass = np.exp(log_mass - log_mass.max())
    return np.asarray(mass / mass.sum())


def _best(grid: Grid, mass: Floats, target_m: float) -> Floats:
    """The middle of the disc of this radius that holds most, by a convolution."""
    from scipy.signal import fftconvolve

    reach = int(np.ceil(target_m / grid.step_m))
    if reach < 1 or 2 * reach + 1 > 4 * max(grid.shape):
        held = mass
    else:
        offset = np.arange(-reach, reach + 1) * grid.step_m
        disc = (np.hypot(offset[:, None], offset) <= target_m).astype(np.float64)
        held = fftconvolve(mass, disc, mode="same") if disc.sum() > 1 else mass
    # Of a plateau, such as all discs that hold everything, the middle by mass.
    top = held >= held.max() * (1.0 - 1e-6)
    weight = np.where(top, mass + 1e-12, 0.0)
    middles = grid.middles_m()
    middle = (weight[..., None] * middles).sum(axis=(0, 1)) / weight.sum()
    return grid.frame.to_degrees(middle)


def geometric_median(points: Floats) -> Floats:
    """The point with the least sum of distances to these, by Weiszfeld's iteration."""
    frame = Frame.around(points)
    metres = frame.to_metres(points)
    middle = np.median(metres, axis=0)
    for _ in range(200):
        weight = 1.0 / np.maximum(np.hypot(*(metres - middle).T), 1e-3)
        moved = (weight[:, None] * metres).sum(axis=0) / weight.sum()
        if float(np.hypot(*(moved - middle))) < 1e-3:
            break
        middle = moved
    return frame.to_degrees(middle)


def true_place(at_s: Floats, truth: Floats, time_zone: str, hours: Hours = NIGHT) -> Floats | None:
    """Where somebody really was most of these hours: the geometric median of the true places."""
    inside, _, _ = hours.groups(at_s, time_zone)
    return geometric_median(truth[inside]) if inside.any() else None


def found_within(estimate: Floats | None, truth: Floats) -> dict[float, bool]:
    """Whether an estimate is within 50, 200 and 500 m of the truth; no estimate never is."""
    apart_m = np.inf if estimate is None else float(distance_m(estimate, truth))
    return {metres: apart_m <= metres for metres in WITHIN_M}
