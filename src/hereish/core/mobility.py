"""A prediction that knows when somebody is at which place, and where they go from there.

Everything here is post-processing of what was released, and of a model that was public before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hereish.core.mobility_model import BINS, MOST, PARTS, MobilityModel
from hereish.core.places import PlaceMemory, is_weekend, sum_in_order
from hereish.core.privacy import positive
from hereish.core.run import Run
from hereish.core.types import Bools, Floats, Ints, PerLane
from hereish.core.windows import check_years
from hereish.errors import ParameterError

_DAY_S, _HOUR_S = 86400.0, 3600.0
_MOST_M = 1e150  # further than anything; its square is finite
_PART_S = _DAY_S / PARTS
_LONGEST_STAY_S = _DAY_S
# Hours of the same part of other days, and of all other hours, count so much.
_OTHER_DAYS, _OTHER_HOURS = 0.15, 0.02
_FEW_HOURS = 0.5  # of which nothing follows yet
# The chance that a place is given before anything is known of it.
_RARE, _RAREST = 0.035, 1e-6
# A release is one of a place if it is so near to it, in units of how exactly that is known.
_AT_PLACE = 2.0
# Noise further away than this, in its scales, tells less of where the place is (Huber's weights):
# planar Laplace noise has a median that is more exact than its mean.
_FURTHER = 2.5
# Noise that belongs to none of the places with this chance is of a new one.
_BELONGS = 0.45
# A chance that is less counts as so much when a guess is weighed against it.
_LEAST_CHANCE = 0.1
# How likely somebody is at one of the model's places rather than at one that nobody knows.
_MODEL_SHARE = 0.3
# What a place of the model stands for: so many noises, of the size of the one that led there, and
# so many hours and moves.
_MODEL_NOISES, _MODEL_HOURS, _MODEL_MOVES = 4.0, 4.0, 1.0


@dataclass(frozen=True)
class Mobility(PlaceMemory):
    """Remembers places as `PlaceMemory` does, and learns when, and whence, they are gone to.

    For each lane it keeps hours by part of the day, on weekdays and at weekends, and moves from
    place to place, as if of the last `days`. From the last release, the time since then (a stay
    lasts `stay_s` or so), the hours and the moves (each as much as `moves` of them) follows how
    likely each place is now. By that a noisy point is told which place it belongs to. After a
    silence of `silence_s` the likeliest place is guessed, if it is `sure` times as likely as the
    last release; a guess that differs from the last release is always tested.

    With a `model`, learnt from public traces of a group, its places count as well as one's own
    from the first report on, and what is known of them is where one's own hours and moves begin.

    Guarantee: sees released points, public times and a public model, so it costs nothing.
    """

    places: int = 12
    reach: float = 6.0
    blur: float = 0.94
    habit: float = 0.9
    silence_s: float = 4 * _HOUR_S
    stay_s: float = 5.3 * _HOUR_S
    moves: float = 5.0
    sure: float = 7.0
    days: float = 90.0
    model: MobilityModel | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("stay_s", "moves", "sure", "days"):
            positive(name, getattr(self, name))
        if self.finest_m != 0.0:
            raise ParameterError("Mobility has no finest_m: it learns from all noise")
        if self.model is None:
            return
        if not isinstance(self.model, MobilityModel):
            raise ParameterError(
                "model must be a hereish.MobilityModel, such as hereish.mobility.load_model gives, "
                f"found {type(self.model).__name__}"
            )
        if self.model.places.shape[1] != self._dim or self._find_place_outside(self.model.places):
            raise ParameterError("the places of the model are not in the space")

    @property
    def width(self) -> int:
        """For each place: where it is, how exactly, hours, moves to others, and whose it was."""
        return self.places * (self._whose + (self.model is not None))

    @property
    def _to(self) -> int:
        """The column of moves to the first place."""
        return self._dim + 1 + BINS

    @property
    def _whose(self) -> int:
        """The column that says which place of the model it is, from 1; 0 for none."""
        return self._to + self.places

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        # Before anything is drawn: `update` needs the local clock, and must not fail for some.
        check_years(*(at_s.item(0), at_s.item(0)) if len(at_s) == 1 else (at_s.min(), at_s.max()))
        silent = at_s - run.at_s > self.silence_s
        if not np.count_nonzero(silent):
            return run.value
        lanes = silent.nonzero()[0]
        columns, table = np.arange(len(lanes)), self._table(run.learnt[lanes])
        last = self._last(table, run.value[lanes])
        chance = self._chances(table, last, at_s[lanes] - run.at_s[lanes], at_s[lanes])
        best = chance.argmax(axis=0)
        stays = np.where(last.near, chance[last.place, columns], 0.0)
        likely = chance[best, columns] > self.sure * np.maximum(stays, _LEAST_CHANCE)
        moves = likely & ~(last.near & (best == last.place))
        if not np.count_nonzero(moves):
            return run.value
        guess = run.value.copy()
        guess[lanes[moves]] = table[best, : self._dim, columns][moves]
        return guess

    def chances(self, run: Run, at_s: Floats) -> Floats:
        """(places, lanes) How likely somebody is at each place at a time, by what is learnt."""
        table = self._table(run.learnt)
        last = self._last(table, _known_or(run.value, 0.0))
        return self._chances(table, last, at_s - run.at_s, at_s)

    def towards(self, run: Run, at_s: Floats) -> Floats:
        """Where somebody who has left goes next, NaN where nothing is known: for RoadPrediction.

        By what is learnt in the run, if it is one of this prediction, and else by the model.
        """
        columns = np.arange(len(at_s))
        goal = np.full(run.value.shape, np.nan)
        value = _known_or(run.value, 0.0)
        if run.learnt.shape[1] == self.width:
            table = self._table(run.learnt)
            last = self._last(table, value)
            chance = self._next(table, last, at_s)
            places = table[:, : self._dim]
        elif self.model is not None:
            last = self._last_of_model(value)
            chance = self._next_of_model(np.where(last.near, last.place + 1, 0), at_s)
            places = np.broadcast_to(
                self.model.places[:, :, None], (*self.model.places.shape, len(at_s))
            )
        else:
            return goal
        chance[last.place[last.near], columns[last.near]] = 0.0
        best = chance.argmax(axis=0)
        known = (chance[best, columns] > 0.0) & (run.value[:, 0] == run.value[:, 0])
        goal[known] = places[best, :, columns][known]
        return goal

    def model_of(self, run: Run, name: str, *, lane: int = 0, licence: str = "") -> MobilityModel:
        """What a lane has learnt of its own releases, as a model that can be saved."""
        table = run.learnt[lane].reshape(self.places, -1)
        known = table[:, self._dim].nonzero()[0]
        return MobilityModel(
            name,
            table[known, : self._dim],
            table[known, self._dim],
            np.maximum(table[known, self._dim + 1 : self._to], 0.0),
            table[known][:, self._to + known],
            licence,
        )

    def update(
        self, run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps_noise: PerLane, /
    ) -> tuple[Floats, Floats]:
        hard_at_s = run.hard_at_s[lanes]
        known = hard_at_s == hard_at_s
        if self.model is None and not np.count_nonzero(known):
            return fresh, self._first(fresh, eps_noise)
        table = self._table(run.learnt[lanes])
        self._fade(table, np.where(known, at_s - hard_at_s, 0.0))
        self._add_stay(table, run, lanes, at_s, hard_at_s)
        last = self._last(table, _known_or(run.value[lanes], fresh))
        last = last._replace(near=last.near & known)
        since_s = np.where(known, at_s - run.at_s[lanes], 0.0)
        candidates = self._candidates(table, last, since_s, at_s, fresh, eps_noise)
        own = eps_noise * eps_noise
        weight = candidates.belongs * candidates.exactness
        pull = weight / (sum_in_order(weight) + own)
        steps = [sum_in_order(pull * offset) for offset in candidates.offsets]
        # Never further than its reach, which receivers can count on.
        cosine = self._cosine(fresh)
        most = self._at_most(fresh, steps, cosine) * eps_noise
        allowed = self.reach / np.maximum(most, self.reach)
        released = self._moved(fresh, [allowed * step for step in steps], cosine)
        place = self._learn_place(table, fresh, eps_noise, weight, candidates, cosine)
        moved = (last.near & (place != last.place)).nonzero()[0]
        table[last.place[moved], self._to + place[moved], moved] += 1.0
        return released, table.reshape(-1, len(lanes)).T

    def find_fault(self, learnt: Floats, /) -> str | None:
        table = self._table(learnt)
        fault = self._find_place_fault(table[:, : self._to])
        if fault is not None:
            return fault
        moves = table[:, self._to : self._whose]
        if np.count_nonzero(~((moves >= 0.0) & (moves <= MOST))):
            return "there were fewer moves than none between two places, or too many"
        if self.model is not None:
            whose = table[:, self._whose]
            known = (whose >= 0.0) & (whose <= len(self.model)) & (whose == np.floor(whose))
            if np.count_nonzero(~known):
                return "the model has no such place"
        return None

    def _first(self, fresh: Floats, eps_noise: PerLane) -> Floats:
        learnt = np.zeros((len(fresh), self.width))
        learnt[:, : self._dim] = fresh
        learnt[:, self._dim] = eps_noise * eps_noise
        return learnt

    def _fade(self, table: Floats, since_s: Floats) -> None:
        """Let hours and moves count the less the longer ago they were."""
        faded = np.exp(np.maximum(since_s, 0.0) * (-1.0 / (self.days * _DAY_S)))
        table[:, self._dim + 1 : self._whose] *= faded

    def _add_stay(
        self, table: Floats, run: Run, lanes: Ints, at_s: Floats, hard_at_s: Floats
    ) -> None:
        """Count the hours since the last fresh noise for the place that was released then."""
        last_s = run.at_s[lanes]
        stayed_s = np.minimum(last_s - hard_at_s, _LONGEST_STAY_S)
        stayed = (stayed_s > 0.0).nonzero()[0]  # not where there was no release
        if not len(stayed):
            return
        place = self._nearest(table[:, :, stayed], run.value[lanes[stayed]])[0]
        until_s = self.local_s(last_s[stayed])
        since_s = until_s - stayed_s[stayed]
        hours = hours_within_parts(until_s) - hours_within_parts(since_s)
        column = self._dim + 1 + PARTS * is_weekend(since_s)
        for part in range(PARTS):
            table[place, column + part, stayed] += hours[part]

    def _nearest(self, table: Floats, value: Floats) -> tuple[Ints, Floats]:
        """The place nearest to each point, and how far away it is."""
        apart = self._length(self._offsets(table, value, self._cosine(value)))
        apart = np.where(table[:, self._dim] > 0.0, apart, _MOST_M)
        place = apart.argmin(axis=0)
        return place, apart[place, np.arange(len(place))]

    def _last(self, table: Floats, value: Floats) -> _Last:
        """The place that was released last, if it was one."""
        place, apart = self._nearest(table, value)
        exactness = table[place, self._dim, np.arange(len(place))]
        return _Last(place, (exactness > 0.0) & (apart * apart * exactness < _AT_PLACE**2))

    def _clock(self, at_s: Floats) -> tuple[Ints, Ints]:
        """The columns of hours like these, and of those of other days."""
        local_s = self.local_s(at_s)
        part = np.floor(local_s % _DAY_S * (1.0 / _PART_S)).astype(np.int64)
        part = np.minimum(part, PARTS - 1)
        weekend = PARTS * is_weekend(local_s)
        return part + weekend, part + PARTS - weekend

    def _next(self, table: Floats, last: _Last, at_s: Floats) -> Floats:
        """(places, lanes) How likely each place is for somebody who has left the last one."""
        columns = np.arange(len(at_s))
        hours = table[:, self._dim + 1 : self._to]
        same, other = self._clock(at_s)
        now = hours[:, same, columns] + _OTHER_DAYS * hours[:, other, columns]
        now += _OTHER_HOURS * sum_in_order(hours.swapaxes(0, 1))
        moves = table[last.place, self._to : self._whose, columns].T
        return self._mixed(now, np.where(last.near, moves, 0.0))

    def _mixed(self, hours: Floats, moves: Floats) -> Floats:
        """Chances by hours at such times and moves from the last place."""
        np.maximum(hours, 0.0, out=hours)  # a little below nought they may be by rounding
        usual = hours / (sum_in_order(hours) + _FEW_HOURS)
        return np.asarray((moves + self.moves * usual) / (sum_in_order(moves) + self.moves))

    def _chances(self, table: Floats, last: _Last, since_s: Floats, at_s: Floats) -> Floats:
        """(places, lanes) How likely each place is so long after the last release."""
        stays = np.exp(np.maximum(since_s, 0.0) * (-1.0 / self.stay_s))
        stays = np.where(last.near, stays, 0.0)
        chance = (1.0 - stays) * self._next(table, last, at_s)
        chance[last.place, np.arange(len(at_s))] += stays
        return np.asarray(chance)

    def _candidates(
        self,
        table: Floats,
        last: _Last,
        since_s: Floats,
        at_s: Floats,
        fresh: Floats,
        eps_noise: PerLane,
    ) -> _Candidates:
        """The places that noisy points may belong to: one's own, and then those of the model."""
        cosine = self._cosine(fresh)
        chance = self._chances(table, last, since_s, at_s)
        exactness = table[:, self._dim]
        offsets = self._offsets(table, fresh, cosine)
        if self.model is None:
            chance += _RARE
        else:
            strange = _MODEL_SHARE * self._strange(table, last, at_s)
            # One's own are never as unlikely as most of a group's.
            chance = np.concatenate([chance + _RARE, strange + _RAREST])
            there = self._exactness(np.arange(len(self.model))[:, None], eps_noise)
            exactness = np.concatenate([exactness, np.where(strange > 0.0, there, 0.0)])
            places = self.model.places[:, :, None]
            theirs = self._offsets(places, fresh, cosine)
            offsets = [np.concatenate(pair) for pair in zip(offsets, theirs, strict=True)]
        apart = self._length(offsets) * eps_noise
        near = self.reach + self.habit * np.log(chance) - apart
        odds = np.exp(np.minimum(near * (1.0 / self.blur), 300.0))
        odds = np.where(exactness > 0.0, odds, 0.0)
        return _Candidates(odds / (1.0 + sum_in_order(odds)), exactness, offsets, apart)

    def _learn_place(
        self,
        table: Floats,
        fresh: Floats,
        eps_noise: PerLane,
        weight: Floats,
        candidates: _Candidates,
        cosine: Floats | None,
    ) -> Ints:
        """Add the noisy point to the place it belongs to; that place, or where a new one is put."""
        columns = np.arange(len(fresh))
        best: Ints = weight.argmax(axis=0)
        place = best.copy()
        belongs = sum_in_order(np.where(weight > 0.0, candidates.belongs, 0.0))
        known = (belongs > _BELONGS) & (weight[best, columns] > 0.0)
        new = (~known | (best >= self.places)).nonzero()[0]
        if len(new):
            # Where least is lost.
            hours = sum_in_order(table[:, self._dim + 1 : self._to, new].swapaxes(0, 1))
            taken = table[:, self._dim, new] > 0.0
            place[new] = np.where(taken, hours, -1.0).argmin(axis=0)
            table[place[new], :, new] = 0.0
            table[:, self._to + place[new], new] = 0.0
            adopted = new[known[new]]
            if len(adopted):
                self._adopt(table, place, best - self.places, adopted)
        before = np.where(known, candidates.exactness[best, columns], 0.0)
        apart = np.maximum(candidates.apart[best, columns], _FURTHER)
        own = eps_noise * eps_noise * np.where(known, _FURTHER / apart, 1.0)
        pull = np.where(known, before / (before + own), 0.0)
        steps = [pull * offset[best, columns] for offset in candidates.offsets]
        moved = self._moved(fresh, steps, cosine)
        for i in range(self._dim):
            table[place, i, columns] = moved[:, i]
        table[place, self._dim, columns] = before + own
        return place

    # What a model knows.

    def _exactness(self, places: Ints, eps_noise: PerLane) -> Floats:
        """How exactly these are known: not so well that one's own noise would not count."""
        noises = _MODEL_NOISES * (eps_noise * eps_noise)
        return np.asarray(np.minimum(self._model.exactness[places], noises))

    def _last_of_model(self, value: Floats) -> _Last:
        model = self._model
        offsets = self._offsets(model.places[:, :, None], value, self._cosine(value))
        apart = self._length(offsets)
        place = apart.argmin(axis=0)
        nearest = apart[place, np.arange(len(place))]
        return _Last(place, nearest * np.sqrt(model.exactness[place]) < _AT_PLACE)

    def _next_of_model(self, last: Ints, at_s: Floats) -> Floats:
        """(model's places, lanes) How likely each is, coming from that of this number, from 1."""
        model = self._model
        same, other = self._clock(at_s)
        hours = model.hours
        now = hours[:, same] + _OTHER_DAYS * hours[:, other]
        now += _OTHER_HOURS * sum_in_order(hours.T)[:, None]
        moves = np.where(last > 0, model.moves[last - 1].T, 0.0)
        return self._mixed(now, moves)

    def _strange(self, table: Floats, last: _Last, at_s: Floats) -> Floats:
        """The same, nought for places that are one's own already."""
        columns = np.arange(len(at_s))
        whose = table[:, self._whose].astype(np.int64)
        chance = self._next_of_model(np.where(last.near, whose[last.place, columns], 0), at_s)
        for own in whose:
            lanes = own.nonzero()[0]
            chance[own[lanes] - 1, lanes] = 0.0
        return chance

    def _adopt(self, table: Floats, place: Ints, which: Ints, lanes: Ints) -> None:
        """Begin places with what the model knows of them, and of moves between them and others."""
        model, here, theirs = self._model, place[lanes], which[lanes]
        total = np.maximum(sum_in_order(model.hours.T), 1e-300)
        share = model.hours * (_MODEL_HOURS / total)[:, None]
        table[here, self._dim + 1 : self._to, lanes] = share[theirs]
        left = np.maximum(sum_in_order(model.moves.T), 1.0)
        chance = model.moves * (_MODEL_MOVES / left)[:, None]
        for number in range(self.places):
            other = table[number, self._whose, lanes].astype(np.int64)
            both = other > 0
            table[here, self._to + number, lanes] = np.where(both, chance[theirs, other - 1], 0.0)
            table[number, self._to + here, lanes] += np.where(both, chance[other - 1, theirs], 0.0)
        table[here, self._whose, lanes] = theirs + 1.0

    @property
    def _model(self) -> MobilityModel:
        if self.model is None:  # nobody asks then
            raise ParameterError("there is no model")
        return self.model


class _Last(NamedTuple):
    """Of the last release of each lane: the nearest place, and whether it was that."""

    place: Ints
    near: Bools


class _Candidates(NamedTuple):
    """Places that a noisy point may belong to, (candidates, lanes) each."""

    belongs: Floats  # how likely it does
    exactness: Floats  # 0 where there is no place
    offsets: list[Floats]  # from the point to the place, along each axis
    apart: Floats  # in scales of the noise


def _known_or(value: Floats, other: Floats | float) -> Floats:
    return np.where(value == value, value, other)


def hours_within_parts(local_s: Floats) -> Floats:
    """(parts, lanes) How many hours of all time until then lie in each part of the day."""
    days = np.floor(local_s * (1.0 / _DAY_S))
    into_s = (local_s - days * _DAY_S) - _PART_S * np.arange(PARTS)[:, None]
    into_s = np.minimum(np.maximum(into_s, 0.0), _PART_S)
    return np.asarray((into_s + days * _PART_S) * (1.0 / _HOUR_S))
