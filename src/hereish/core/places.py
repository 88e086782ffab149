"""A prediction that remembers the places it has released, and goes back to them.

Everything here is post-processing of what was released: places are means of noisy points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from hereish.core.manhattan import Manhattan
from hereish.core.parts import check_declared
from hereish.core.prediction import Tracker
from hereish.core.privacy import positive
from hereish.core.run import Run
from hereish.core.spaces import Line, Plane, Space, Sphere
from hereish.core.types import Bools, Floats, Ints, PerLane
from hereish.core.windows import Day, check_years
from hereish.errors import ParameterError

_RADIANS = math.pi / 180.0
_METRES_PER_DEGREE = _RADIANS * 6_371_008.8
_DAY_S = 86400.0
# Parts of the day in which a place was stayed at, for weekdays and for weekends.
_PARTS = 3
_PART_S = _DAY_S / _PARTS
_BINS = 2 * _PARTS
_LONGEST_STAY_S = _DAY_S
_HOUR_S = 3600.0
_SPHERE = Sphere()


@dataclass(frozen=True)
class PlaceMemory(Tracker):
    """Repeats the last release, and remembers `places` that were released before.

    A noisy point near a known place becomes the mean of both, weighted by how exactly each is
    known: a second noise at home makes home more exact, and a tenth visit is as good as ten.
    Near means within `reach` scales of the noise, give or take `blur`, and the more so the more
    time was spent there (`habit`). After a silence of `silence_s` it guesses the place that most
    of the time in this part of the day, and on such days of the week, was spent at.

    With `finest_m` a place is averaged until it is as exact as that, and then stays as it is.
    Noise within its reach, or that most likely belongs to it by the hours spent there at such
    times, is released as just that place and forgotten: whoever watches for weeks learns that
    somebody came back, and not ever more exactly to where.

    Guarantee: sees released points and public times, so it costs nothing.
    """

    space: Space = _SPHERE
    time_zone: str = "UTC"
    places: int = 6
    reach: float = 6.0
    blur: float = 0.7
    habit: float = 0.5
    silence_s: float = 24 * _HOUR_S
    finest_m: float = field(default=0.0, metadata={"added_later": True})  # 0: ever more exact
    memory = 1
    needs_history = True

    def __post_init__(self) -> None:
        if type(self.space) not in (Sphere, Plane, Manhattan, Line):
            raise ParameterError(
                f"{type(self).__name__} works on a hereish.Sphere, Plane, Manhattan or Line, "
                f"found {type(self.space).__name__}"
            )
        check_declared(self.space, "space", "coordinates")
        Day(self.time_zone)
        if not (isinstance(self.places, int) and 1 <= self.places <= 1000):
            raise ParameterError(f"places must be a whole number from 1, found {self.places!r}")
        for name in ("reach", "blur", "silence_s"):
            positive(name, getattr(self, name))
        for name in ("habit", "finest_m"):
            if getattr(self, name) != 0.0:
                positive(name, getattr(self, name))

    @property
    def width(self) -> int:
        """For each place: where it is, how exactly that is known, and when it was stayed at."""
        return self.places * (self._dim + 1 + _BINS)

    @property
    def _dim(self) -> int:
        return len(self.space.coordinates)

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        # Before anything is drawn: `update` needs the local clock, and must not fail for some.
        check_years(*(at_s.item(0), at_s.item(0)) if len(at_s) == 1 else (at_s.min(), at_s.max()))
        silent = at_s - run.at_s > self.silence_s
        if not np.count_nonzero(silent):
            return run.value
        lanes = silent.nonzero()[0]
        table = self._table(run.learnt[lanes])
        columns = np.arange(len(lanes))
        hours = table[:, self._dim + 1 + self._bin(at_s[lanes]), columns]
        best = hours.argmax(axis=0)
        usual = 2.0 * hours[best, columns] > sum_in_order(hours)
        guess = run.value.copy()
        guess[lanes[usual]] = table[best, : self._dim, columns][usual]
        return guess

    def update(
        self, run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps_noise: PerLane, /
    ) -> tuple[Floats, Floats]:
        hard_at_s = run.hard_at_s[lanes]
        if not np.count_nonzero(hard_at_s == hard_at_s):
            return fresh, self._first(fresh, eps_noise)
        table = self._table(run.learnt[lanes])
        self._add_stay(table, run, lanes, at_s, hard_at_s)
        exactness = table[:, self._dim]
        hours = sum_in_order(table[:, self._dim + 1 :].swapaxes(0, 1))
        cosine = self._cosine(fresh)
        offsets = self._offsets(table, fresh, cosine)
        share = hours / (sum_in_order(hours) + 1.0)
        apart = self._length(offsets) * eps_noise
        near = self.reach + self.habit * np.log(share + _RARE) - apart
        # Far beyond reach the exponential need not overflow to tell.
        belongs = 1.0 / (1.0 + np.exp(np.minimum(near * (-1.0 / self.blur), 700.0)))
        own = eps_noise * eps_noise
        weight = belongs * exactness  # nought where there is no place
        pull = weight / (sum_in_order(weight) + own)
        steps = [sum_in_order(pull * offset) for offset in offsets]
        # Never further than its reach, which receivers can count on.
        most = self._at_most(fresh, steps, cosine) * eps_noise
        allowed = self.reach / np.maximum(most, self.reach)
        released = self._moved(fresh, [allowed * step for step in steps], cosine)
        place: Ints = weight.argmax(axis=0)
        known = None
        if self.finest_m:
            place, likely = self._likeliest(table, hours, at_s, apart)
            near_enough = (likely > -self.reach) | (belongs[place, np.arange(len(place))] > 0.5)
            known = self._known(table, place, near_enough, fresh, offsets, eps_noise, cosine)
            released[known] = table[place[known], : self._dim, known]
        self._remember(table, place, known, fresh, own, belongs, weight, hours, offsets, cosine)
        return released, table.reshape(-1, len(lanes)).T

    def _likeliest(
        self, table: Floats, hours: Floats, at_s: Floats, apart: Floats
    ) -> tuple[Ints, Floats]:
        """The place that noise so far from each most likely belongs to, at this time of day.

        And how likely, as a logarithm that is 0 for noise at a place that is always stayed at.
        """
        columns = np.arange(len(at_s))
        now = table[:, self._dim + 1 + self._bin(at_s), columns]
        there = table[:, self._dim] > 0.0
        usual = np.maximum(now, 0.0) + _OTHER_HOURS * (np.maximum(hours, 0.0) + 1.0)
        usual = np.where(there, usual, 0.0)
        usual /= sum_in_order(usual) + _OTHER_HOURS
        likely = np.where(there, _USUAL * np.log(usual + _UNUSUAL) - apart, -np.inf)
        # One that is known well enough comes first: noise that strayed from it, and began a place
        # of its own, shall not draw other noise to that.
        exact = table[:, self._dim] * (self.finest_m * self.finest_m) >= 1.0
        first = exact & (likely > -self.reach)
        place = np.where(first, likely + _FIRST, likely).argmax(axis=0)
        return place, likely[place, columns]

    def _known(
        self,
        table: Floats,
        place: Ints,
        near_enough: Bools,
        fresh: Floats,
        offsets: list[Floats],
        eps_noise: PerLane,
        cosine: Floats | None,
    ) -> Ints:
        """The lanes whose noise is within reach of a place that is known exactly enough."""
        columns = np.arange(len(place))
        steps = [offset[place, columns] for offset in offsets]
        enough = table[place, self._dim, columns] * (self.finest_m * self.finest_m) >= 1.0
        enough &= near_enough
        enough &= self._at_most(fresh, steps, cosine) * eps_noise <= self.reach
        return np.flatnonzero(enough)

    def find_fault(self, learnt: Floats, /) -> str | None:
        return self._find_place_fault(self._table(learnt))

    def _find_place_fault(self, table: Floats) -> str | None:
        """What is wrong with where places are, how exactly that is known, and their hours."""
        exactness, hours = table[:, self._dim], table[:, self._dim + 1 :]
        outside = self._find_place_outside(table[:, : self._dim])
        if outside is not None:
            return f"the {outside} of a place is not in the space"
        if np.count_nonzero(~((exactness >= 0.0) & (exactness <= _MOST))):
            return "a place is less exact than not at all, or too exact"
        # A little below nought they may be by rounding.
        if np.count_nonzero(~((hours > -1e-3) & (hours <= _MOST))):
            return "less than no time was spent at a place, or too much"
        return None

    def _find_place_outside(self, places: Floats) -> str | None:
        """The coordinate, in the second axis, that is not in the space for some place."""
        for i, (name, low, high) in enumerate(self.space.coordinates):
            if np.count_nonzero(~((places[:, i] >= low) & (places[:, i] <= high))):
                return str(name)
        return None

    def _first(self, fresh: Floats, eps_noise: PerLane) -> Floats:
        """What is known after the first noise of each lane: one place."""
        learnt = np.zeros((len(fresh), self.width))
        learnt[:, : self._dim] = fresh
        learnt[:, self._dim] = eps_noise * eps_noise
        return learnt

    def _remember(
        self,
        table: Floats,
        place: Ints,
        known_well: Ints | None,
        fresh: Floats,
        own: PerLane,
        belongs: Floats,
        weight: Floats,
        hours: Floats,
        offsets: list[Floats],
        cosine: Floats | None,
    ) -> None:
        """Add the noisy point to the place it belongs to, or put it where least is lost.

        Not in the lanes where that is known well enough.
        """
        lanes, flat = len(fresh), table.reshape(-1)
        columns = np.arange(lanes)
        at = place * lanes + columns
        known = (belongs.take(at) > 0.5) & (weight.take(at) > 0.0)
        if known_well is not None:
            known &= table[place, self._dim, columns] * (self.finest_m * self.finest_m) < 1.0
            known[known_well] = True
        if np.count_nonzero(known) < lanes:
            new = (~known).nonzero()[0]
            exactness = table[:, self._dim, new]
            least = np.where(exactness > 0.0, hours[:, new], -1.0).argmin(axis=0)
            place[new] = least
            table[least, :, new] = 0.0
            at = place * lanes + columns
        # Numbers of a place lie `lanes` apart.
        first = place * (table.shape[1] * lanes) + columns
        before = flat.take(first + self._dim * lanes)
        pull = before / (before + own)
        steps = [pull * offset.take(at) for offset in offsets]
        after = [*self._moved(fresh, steps, cosine).T, before + own]
        for i, numbers in enumerate(after):
            if known_well is not None:
                numbers[known_well] = flat[first[known_well] + i * lanes]
            flat[first + i * lanes] = numbers

    def _table(self, learnt: Floats) -> Floats:
        """A copy, (places, what is known of each, lanes): each number of all lanes together."""
        numbers = self.width // self.places
        return np.ascontiguousarray(learnt.T).reshape(self.places, numbers, len(learnt))

    def _add_stay(
        self, table: Floats, run: Run, lanes: Ints, at_s: Floats, hard_at_s: Floats
    ) -> None:
        """Count the hours since the last fresh noise for the place that was released then."""
        last_s = run.at_s[lanes]
        stayed_s = np.minimum(last_s - hard_at_s, _LONGEST_STAY_S)
        stayed = stayed_s > 0.0  # not where there was no release
        if not np.count_nonzero(stayed):
            return
        stayed_s = np.where(stayed, stayed_s, 0.0)
        value = run.value[lanes]
        apart = self._length(self._offsets(table, value, self._cosine(value)))
        place = np.where(table[:, self._dim] > 0.0, apart, np.inf).argmin(axis=0)
        until_s = self.local_s(np.where(stayed, last_s, at_s))
        since_s = until_s - stayed_s
        first = self._dim + 1 + _PARTS * is_weekend(since_s)
        count, flat = len(lanes), table.reshape(-1)
        within = _within_parts(np.concatenate([until_s, since_s]))
        hours = within[:, :count] - within[:, count:]
        at = (place * table.shape[1] + first) * count + np.arange(count)
        for part in hours:
            flat[at] += part
            at += count  # the next part of the day

    def _bin(self, at_s: Floats) -> Ints:
        local_s = self.local_s(at_s)
        part = np.floor(local_s % _DAY_S / _PART_S).astype(np.int64)
        return np.minimum(part, _PARTS - 1) + _PARTS * is_weekend(local_s)

    def local_s(self, at_s: Floats) -> Floats:
        """Seconds since 1970 of the local clock, which is not set within a day."""
        start_s = Day(self.time_zone).start_s(at_s)
        return at_s + (np.round(start_s / _DAY_S) * _DAY_S - start_s)

    def _cosine(self, points: Floats) -> Floats | None:
        """Of the latitude; None on a flat map."""
        return np.cos(points[:, 0] * _RADIANS) if type(self.space) is Sphere else None

    def _offsets(self, table: Floats, points: Floats, cosine: Floats | None) -> list[Floats]:
        """(places, lanes) From each lane's point to its places, along each axis, in metres."""
        if cosine is None:
            return [table[:, i] - points[:, i] for i in range(self._dim)]
        north = (table[:, 0] - points[:, 0]) * _METRES_PER_DEGREE
        east = table[:, 1] - points[:, 1]
        east -= 360.0 * np.round(east * (1.0 / 360.0))
        east *= cosine * _METRES_PER_DEGREE
        return [north, east]

    def _length(self, offsets: list[Floats]) -> Floats:
        if len(offsets) == 1:
            return np.abs(offsets[0])
        east, north = offsets
        if type(self.space) is Manhattan:
            return np.asarray(np.abs(east) + np.abs(north))
        return np.asarray(np.sqrt(east * east + north * north))

    def _at_most(self, points: Floats, steps: list[Floats], cosine: Floats | None) -> Floats:
        """No less than the metres that `_moved` moves them, or would move them part of the way.

        Degrees of longitude are the longer the nearer the way comes to the equator.
        """
        if cosine is None:
            return self._length(steps)
        north, east = steps
        lat = np.abs(points[:, 0])
        nearest = np.maximum(lat - np.abs(north) * (1.0 / _METRES_PER_DEGREE), 0.0)
        wider = np.cos(nearest * _RADIANS) / np.maximum(cosine, 1e-9)
        return self._length([north, east * wider])

    def _moved(self, points: Floats, steps: list[Floats], cosine: Floats | None) -> Floats:
        """The points moved by these steps along each axis."""
        moved = np.empty(points.shape)
        if cosine is None:
            for i, step in enumerate(steps):
                moved[:, i] = points[:, i] + step
            return moved
        north, east = steps
        per_degree = np.maximum(cosine, 1e-9) * _METRES_PER_DEGREE
        moved[:, 0] = np.clip(points[:, 0] + north * (1.0 / _METRES_PER_DEGREE), -90.0, 90.0)
        lon = points[:, 1] + east / per_degree
        lon -= 360.0 * np.floor((lon + 180.0) * (1.0 / 360.0))
        moved[:, 1] = np.maximum(lon, -180.0)  # the last double below 180 goes once too far round
        return moved


# Sums of such numbers are finite.
_MOST = 1e300
_FEW = 16
# The share of somebody's time that a place is given before any was spent there.
_RARE = 0.05
# Of the hours at a place, those of other parts of the day count so much; a share of them is worth
# so many scales of the noise per e-fold, and no share is less than the last.
_OTHER_HOURS, _USUAL, _UNUSUAL = 0.1, 2.0, 0.02
_FIRST = 1e6  # scales of the noise that something comes before all others by


def _within_parts(local_s: Floats) -> Floats:
    """(parts, lanes) How many hours of all time until then lie in each part of the day."""
    days = np.floor(local_s * (1.0 / _DAY_S))
    into_s = (local_s - days * _DAY_S) - _PART_S * np.arange(_PARTS)[:, None]
    np.maximum(into_s, 0.0, out=into_s)
    np.minimum(into_s, _PART_S, out=into_s)
    into_s += days * _PART_S
    into_s *= 1.0 / _HOUR_S
    return into_s


def is_weekend(local_s: Floats) -> Ints:
    """1 on Saturdays and Sundays, else 0."""
    day = np.floor(local_s * (1.0 / _DAY_S)).astype(np.int64)
    return ((day + 3) % 7 >= 5).astype(np.int64)  # 1970 began on a Thursday


def sum_in_order(rows: Floats) -> Floats:
    """The sum of the rows, in their order: the same bits for one lane and for many."""
    if rows[0].size <= _FEW:
        return np.asarray(np.add.accumulate(rows, axis=0)[-1])
    total = rows[0].copy()
    for row in rows[1:]:
        total += row
    return np.asarray(total)
