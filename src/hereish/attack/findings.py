"""What an observer finds out about one person, and how right it is.

Without the truth there is what the observer thinks, and how sure of it. With the truth each
finding is scored: that is for the owner's eyes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import numpy as np

from hereish.attack.home import (
    NIGHT,
    WITHIN_M,
    WORK,
    HabitualPlace,
    Hours,
    find_place,
    true_place,
)
from hereish.attack.identity import Pasts
from hereish.attack.lattice import distance_m
from hereish.attack.movement import Movement
from hereish.attack.observations import Observations, joined, promised_log_odds
from hereish.attack.replay import Releases, replay
from hereish.attack.routes import match_to_roads
from hereish.attack.smoothing import smooth
from hereish.attack.stays import StayRules, find_stays, places_found
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.types import Bools, Floats
from hereish.errors import ParameterError
from hereish.roads.graph import RoadGraph

ODDS_APART_M = 500.0
_LONGEST_S = 3600.0  # a fix says where somebody is for no longer


@dataclass(frozen=True)
class AttackOptions:
    """How the observer goes about it."""

    time_zone: str = "UTC"
    movement: Movement | None = None  # None: whichever fits
    night: Hours = NIGHT
    work: Hours = WORK
    stays: StayRules = field(default_factory=StayRules)
    roads: RoadGraph | None = None
    pasts: Pasts | None = None  # of people who may have made the releases


@dataclass(frozen=True, eq=False)
class UsualPlace:
    """Where the observer thinks somebody usually is in some hours."""

    lat: float
    lon: float
    sure: dict[float, float]  # by metres: how sure the observer is to be as near as that
    region_90_m: float  # the radius of a disc as large as the region that holds 90 %
    days: int
    hard: int
    error_m: float | None = None  # with the truth
    median_error_m: float | None = None  # of the plain geometric median of the fresh noise

    def as_dict(self) -> dict[str, Any]:
        found = None
        if self.error_m is not None:
            found = {f"{metres:g}": self.error_m <= metres for metres in WITHIN_M}
        return {
            "lat": round(self.lat, 5),
            "lon": round(self.lon, 5),
            "sure_within_m": {f"{metres:g}": round(p, 4) for metres, p in self.sure.items()},
            "region_90_m": round(self.region_90_m, 1),
            "days": self.days,
            "hard": self.hard,
            "error_m": _rounded(self.error_m),
            "found_within_m": found,
            "median_error_m": _rounded(self.median_error_m),
        }


@dataclass(frozen=True, eq=False)
class Findings:
    """All about one person. `track` and what else holds places is not in `as_dict`."""

    user: str
    releases: int
    hard: int
    tested: int
    days: float
    at_s: Floats
    value: Floats  # what was released
    track: Floats  # (n, 2) the posterior's mean
    region_50_m: Floats
    region_90_m: Floats
    home: UsualPlace | None
    work: UsualPlace | None
    places: Floats  # (m, 2) of stays, those with most hours first
    place_hours: Floats
    log_odds: float  # of home against a place 500 m from it, and what is promised at most
    promised_log_odds: float
    rank: int | None = None  # of the true person among those whose past is known
    truth: Floats | None = None  # (n, 2) NaN where it is not known
    error_m: Floats | None = None  # of the observer
    service_error_m: Floats | None = None
    held_90: float | None = None  # the share of times at which the region of 90 % holds the truth
    places_found: float | None = None  # the share of true places within 200 m of one
    road_track: Floats | None = None  # (n, 2) of the observer who knows the roads
    road_error_m: Floats | None = None

    def as_dict(self) -> dict[str, Any]:
        """For programs: no true place is in it."""
        return {
            "user": self.user,
            "releases": self.releases,
            "hard": self.hard,
            "tested": self.tested,
            "days": round(self.days, 2),
            "region_50_m": _rounded(_mean(self.region_50_m)),
            "region_90_m": _rounded(_mean(self.region_90_m)),
            "home": None if self.home is None else self.home.as_dict(),
            "work": None if self.work is None else self.work.as_dict(),
            "places": len(self.places),
            "odds": {
                "apart_m": ODDS_APART_M,
                "log_odds": round(self.log_odds, 4),
                "promised_log_odds": round(self.promised_log_odds, 4),
            },
            "rank": self.rank,
            "observer_error_m": _rounded(_mean(self.error_m)),
            "service_error_m": _rounded(_mean(self.service_error_m)),
            "road_error_m": _rounded(_mean(self.road_error_m)),
            "region_90_holds": None if self.held_90 is None else round(self.held_90, 4),
            "places_found": None if self.places_found is None else round(self.places_found, 4),
        }


def attack(
    seen: Observations,
    options: AttackOptions | None = None,
    *,
    user: str = "",
    truth: Floats | None = None,
) -> Findings:
    """Everything that the observer tries on one person's releases.

    `truth` is (n, 2), where the person was at the time of each release, NaN where that is not
    known.
    """
    options = options or AttackOptions()
    seen.require_places()
    if truth is not None and truth.shape != seen.value.shape:
        raise ParameterError(f"truth must be {seen.value.shape}, found {truth.shape}")
    smoothed = smooth(seen, options.movement)
    track = smoothed.mean()
    known: Bools | None = None
    if truth is not None:
        known = np.asarray(np.isfinite(truth).all(axis=1))
    home = find_place(seen, options.time_zone, options.night)
    work = find_place(seen, options.time_zone, options.work)
    # A stay of somebody who is seen roughly is rough.
    rough_m = max(options.stays.within_m, 0.5 * float(np.median(smoothed.radius_m(0.5))))
    rules = StayRules(
        rough_m,
        options.stays.at_least_s,
        options.stays.longest_gap_s,
        max(options.stays.one_place_m, rough_m if rough_m > options.stays.within_m else 0.0),
    )
    places, hours = find_stays(seen.at_s, track, rules).places()
    told, promised = _odds(seen, home)
    findings: dict[str, Any] = {}
    if options.pasts is not None and user in options.pasts.names:
        findings["rank"] = options.pasts.rank_of(user, seen)
    if options.roads is not None:
        findings["road_track"] = match_to_roads(smoothed, options.roads)
    if truth is not None and known is not None and known.any():
        if options.roads is not None:
            findings["road_error_m"] = _error_m(findings["road_track"], truth, known)
        findings |= {
            "truth": truth,
            "error_m": _error_m(track, truth, known),
            "service_error_m": _error_m(seen.value, truth, known),
            "held_90": float(
                np.mean(
                    [smoothed.level_of(i, truth[i]) < 0.9 for i in np.flatnonzero(known).tolist()]
                )
            ),
            "places_found": places_found(
                places, find_stays(seen.at_s[known], truth[known], options.stays).places()[0]
            ),
        }
    return Findings(
        user=user,
        releases=len(seen),
        hard=int(seen.hard.sum()),
        tested=int((seen.test != 0).sum()),
        days=float(seen.at_s[-1] - seen.at_s[0]) / 86400.0,
        at_s=seen.at_s,
        value=seen.value,
        track=track,
        region_50_m=smoothed.radius_m(0.5),
        region_90_m=smoothed.radius_m(0.9),
        home=_usual(home, seen, truth, known, options.time_zone, options.night),
        work=_usual(work, seen, truth, known, options.time_zone, options.work),
        places=places,
        place_hours=hours,
        log_odds=told,
        promised_log_odds=promised,
        **findings,
    )


def _usual(
    estimate: HabitualPlace | None,
    seen: Observations,
    truth: Floats | None,
    known: Bools | None,
    time_zone: str,
    hours: Hours,
) -> UsualPlace | None:
    if estimate is None:
        return None
    real = None
    if truth is not None and known is not None and known.any():
        real = true_place(seen.at_s[known], truth[known], time_zone, hours)
    median = estimate.median
    return UsualPlace(
        lat=float(estimate.best[0]),
        lon=float(estimate.best[1]),
        sure={metres: estimate.within(metres) for metres in WITHIN_M},
        region_90_m=estimate.radius_m(0.9),
        days=estimate.days,
        hard=estimate.hard,
        error_m=None if real is None else float(distance_m(estimate.best, real)),
        median_error_m=(
            None if real is None or median is None else float(distance_m(median, real))
        ),
    )


def _odds(seen: Observations, home: HabitualPlace | None) -> tuple[float, float]:
    """What the releases say of home against a place 500 m to the north, and the promise."""
    if home is None:
        return 0.0, 0.0
    other = home.best + np.array([ODDS_APART_M / 111_195.0797, 0.0])
    return promised_log_odds(seen, home.best, other)


def _error_m(points: Floats, truth: Floats, known: Bools) -> Floats:
    return distance_m(points[known], truth[known])


def _mean(values: Floats | None) -> float | None:
    return None if values is None or not len(values) else float(values.mean())


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 1)


@dataclass(frozen=True, eq=False)
class Task:
    """One person to attack: releases of one mechanism, in several runs if it began anew."""

    mechanism: PredictiveMechanism
    releases: Sequence[Releases]
    options: AttackOptions
    user: str = ""
    trace: tuple[Floats, Floats] | None = None  # times and true places
    windows_apart: bool = True


def _one(task: Task) -> Findings:
    replayed = replay(task.mechanism, task.releases, windows_apart=task.windows_apart)
    seen = joined(replayed)
    truth = None if task.trace is None else truth_at(task.trace, seen.at_s)
    return attack(seen, task.options, user=task.user, truth=truth)


def truth_at(trace: tuple[Floats, Floats], at_s: Floats) -> Floats:
    """(n, 2) Where somebody was at these times: the last fix, NaN if that was too long ago."""
    fix_s, places = trace
    last = np.searchsorted(fix_s, at_s + 1e-3, side="right") - 1
    ago_s = at_s - fix_s[np.maximum(last, 0)]
    known = (last >= 0) & (ago_s <= _LONGEST_S)
    return np.where(known[:, None], places[np.maximum(last, 0)], np.nan)


def attack_many(
    tasks: Sequence[Task], jobs: int = 1, progress: Callable[[int, int], None] | None = None
) -> list[Findings]:
    """The same for many people, in so many processes; the findings do not depend on them."""
    done: list[Findings] = []

    def collect(found: Iterator[Findings]) -> list[Findings]:
        for one in found:
            done.append(one)
            if progress is not None:
                progress(len(done), len(tasks))
        return done

    if jobs <= 1 or len(tasks) <= 1:
        return collect(map(_one, tasks))
    # Spawned: a fork would copy this process with its threads in the middle of something.
    with ProcessPoolExecutor(min(jobs, len(tasks)), get_context("spawn")) as pool:
        return collect(pool.map(_one, tasks, chunksize=1))
