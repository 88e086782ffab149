"""Made-up households and what their electricity meters read, all from a seed.

Nothing here is derived from real people. A reading is the sum of several loads. A base load of 40
to 200 W never ends, and a refrigerator cycles. Some homes have a heat pump: slow, following the
weather. Lights and screens are on while somebody is at home and awake; who works is away on
weekdays, in one evening of five everybody is out, and some homes are empty for days. Appliances are
switched on by chance, with the energy and the duration of real ones: breakfast, dinner, a
dishwasher, laundry, and in restless homes an electric shower and a car.

What it shares with measured households: readings are skewed, with a median well below the mean;
they resemble the half hour before more than the same half hour of the day before; and mornings,
evenings and weekends look different. What it lacks: seasons, and habits that change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias, get_args

import numpy as np

from hereish.core.types import Bools, Floats
from hereish.errors import ParameterError

Character: TypeAlias = Literal["usual", "steady", "restless"]
START_S = datetime(2025, 1, 6, tzinfo=UTC).timestamp()  # a Monday; homes live by UTC
EVENING = (18, 23)  # hours of the clock in which a burglar would like to know
_HOURS, _DAY_S, _HOUR_S = 24, 86400.0, 3600.0
_FINE = 12  # parts of an hour in which loads are made up, before they are metered


@dataclass(frozen=True, eq=False)
class Readings:
    """What the meters of some households read."""

    wh: Floats  # (households, readings) the energy of each interval
    at_s: Floats  # (readings,) when each interval ends
    home: Bools  # (households, days) whether somebody was at home in the evening
    present: Bools  # (households, readings) and for most of each interval

    def __repr__(self) -> str:
        homes, readings = self.wh.shape
        return f"<Readings: {readings} of each of {homes} made-up households>"


def households(
    count: int = 10,
    days: int = 28,
    *,
    every: timedelta = timedelta(minutes=30),
    character: Character = "usual",
    seed: int = 1,
) -> Readings:
    """So many households for so many days, metered `every` so often.

    "steady" homes have a heat pump and few appliances, "restless" ones large appliances at odd
    hours. The same arguments give the same readings, and household i does not depend on how many
    there are.
    """
    if not (isinstance(count, int) and isinstance(days, int) and count >= 1 <= days):
        raise ParameterError(f"count and days are whole numbers from 1, found {count!r}, {days!r}")
    if character not in get_args(Character):
        raise ParameterError(
            f"character must be one of {', '.join(get_args(Character))}, found {character!r}"
        )
    every_s = every.total_seconds()
    fine = every_s * _FINE / _HOUR_S
    if fine != int(fine) or fine < 1 or _DAY_S % every_s:
        raise ParameterError(f"every must be 5 minutes or a multiple that a day has, found {every}")
    homes = [_Home(np.random.default_rng([seed, i]), days, character) for i in range(count)]
    loads = np.array([home.watts() for home in homes])
    wh = loads.reshape(count, -1, int(fine)).sum(axis=2) / _FINE
    at_s = START_S + every_s * np.arange(1, wh.shape[1] + 1)
    present = np.array([home.present for home in homes]).reshape(count, -1, int(fine))
    in_the_evening = np.array([home.in_the_evening for home in homes])
    return Readings(wh, at_s, in_the_evening, present.mean(axis=2) > 0.5)


class _Home:
    """One household: its habits, then its days."""

    def __init__(self, rng: np.random.Generator, days: int, character: Character) -> None:
        self.rng, self.days, self.character = rng, days, character
        self.persons = int(rng.integers(1, 5))
        self.works = rng.random() < 0.75
        self.hours = np.arange(days * _HOURS * _FINE) / _FINE  # since the first midnight
        weekend = np.arange(days) % 7 >= 5
        later = np.where(weekend, 1.5, 0.0)
        self.wakes = rng.normal(6.7, 0.5) + later + rng.normal(0, 0.3, days)
        self.sleeps = rng.normal(22.8, 0.5) + 0.5 * later + rng.normal(0, 0.4, days)
        self.present = self._presence(weekend)
        by_day = self.present.reshape(days, _HOURS, _FINE)
        self.in_the_evening = by_day[:, slice(*EVENING)].mean(axis=(1, 2)) > 0.5

    def _presence(self, weekend: Bools) -> Bools:
        rng, days = self.rng, self.days
        present = np.ones((days, _HOURS * _FINE), dtype=np.bool_)
        clock = np.arange(_HOURS * _FINE) / _FINE
        leaves = np.maximum(rng.normal(8.0, 0.3) + rng.normal(0, 0.2, days), self.wakes + 0.5)
        returns = rng.normal(16.8, 0.5) + rng.normal(0, 0.5, days)
        at_work = (~weekend & self.works)[:, None]
        present &= ~(at_work & (clock > leaves[:, None]) & (clock < returns[:, None]))
        out = (rng.random(days) < 0.2)[:, None]
        present &= ~(out & (clock > 17.0) & (clock < 23.5))
        if rng.random() < 0.3:  # a few days away
            first = int(rng.integers(0, days))
            present[first : first + int(rng.integers(2, 7))] = False
        return present.reshape(-1)

    def watts(self) -> Floats:
        """The load of every part of an hour."""
        rng, hours = self.rng, self.hours
        base = np.clip(np.exp(rng.normal(np.log(80.0), 0.4)), 40.0, 200.0)
        cycle = np.sin(2 * np.pi * (hours / rng.uniform(0.9, 1.6) + rng.random()))
        watts = base + 90.0 * (cycle > 0.3)
        clock = hours % _HOURS
        wakes, sleeps = (
            np.repeat(times, _HOURS * _FINE) for times in (self.wakes, np.minimum(self.sleeps, 24))
        )
        active = self.present & (clock > wakes) & (clock < sleeps)
        dark = (clock < 8.0) | (clock > 17.0)
        screens = self.persons * rng.uniform(30.0, 70.0)
        watts = watts + active * (screens + dark * rng.uniform(50.0, 150.0))
        if self.character == "steady" or rng.random() < 0.2:
            watts = watts + self._heating()
        for first, duration, energy in self._appliances():
            watts += _load(hours, first, duration, energy)
        return np.asarray(watts)

    def _heating(self) -> Floats:
        """A heat pump: warmer by day, and weather that changes over days."""
        rng, clock = self.rng, self.hours % _HOURS
        weather = np.repeat(np.cumsum(rng.normal(0, 0.08, self.days)), _HOURS * _FINE)
        swing = 1.0 - 0.2 * np.cos(2 * np.pi * (clock - 3.0) / _HOURS)
        return np.asarray(rng.uniform(400.0, 900.0) * swing * np.exp(weather - weather[0]))

    def _appliances(self) -> list[tuple[float, float, float]]:
        """(when, for how many hours, watt-hours) of everything that is switched on for a while."""
        rng, found = self.rng, []
        often = {"usual": 1.0, "steady": 0.25, "restless": 1.6}[self.character]
        # How likely on a day, when, for how long, and with how much energy.
        kinds: list[tuple[float, Callable[[int], float], float, float]] = [
            (0.9, lambda day: float(self.wakes[day]) + 0.3, 0.3, 180.0),
            (0.35, lambda day: 12.5 + rng.normal(0, 0.6), 0.5, 350.0),
            (0.75, lambda day: 18.5 + rng.normal(0, 0.6), 0.8, 900.0),
            (0.4, lambda day: 19.8 + rng.normal(0, 0.7), 1.4, 950.0),
            (0.3, lambda day: rng.uniform(8.0, 20.0), 1.6, 800.0),
        ]
        if self.character == "restless":
            kinds += [
                (0.9, lambda day: float(self.wakes[day]) + 0.1, 0.2, 1200.0),
                (0.6, lambda day: rng.uniform(6.0, 23.0), 0.2, 1200.0),
                (0.4, lambda day: rng.uniform(17.0, 23.0), 2.5, 8500.0),
                (0.8, lambda day: rng.uniform(8.0, 22.0), 0.4, 700.0),
            ]
        for day in range(self.days):
            for chance, when, duration, energy in kinds:
                first = _HOURS * day + when(day)
                size = float(np.exp(rng.normal(-0.06, 0.35)))
                here = self.present[min(max(int(first * _FINE), 0), len(self.present) - 1)]
                if rng.random() < chance * min(often, 1.0) and here:
                    found.append((first, duration * size, energy * size * max(often, 0.5)))
        return found


def _load(hours: Floats, first: float, duration: float, energy: float) -> Floats:
    """The watts of something that runs from its first hour on."""
    step = 1.0 / _FINE
    overlap = np.minimum(hours + step, first + duration) - np.maximum(hours, first)
    return np.asarray(np.maximum(overlap, 0.0) * (energy / duration / step))
