"""Home after so many nights: `python -m hereish.attack.night_study`.

People report every half hour, day and night, for four weeks. After 1, 7 and 28 nights the observer
says where home is. The people are made up, or real ones (`--geolife FILE`), who are at home before
the first fix of each day and after the last one; home is the geometric median of the first fixes.
The real ones are those that no preset was tuned on.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hereish import synthetic
from hereish.attack.home import Hours, find_place, geometric_median
from hereish.attack.lattice import distance_m
from hereish.attack.replay import Releases, replay
from hereish.core.batch import sanitize
from hereish.core.mechanism import (
    DoesNotPayOffWarning,
    PredictiveMechanism,
    fixed_utility,
    independent,
)
from hereish.core.prediction import Parrot
from hereish.core.presets import FEW_DAYS, whole_day
from hereish.core.privacy import Privacy
from hereish.core.types import Floats, Kind
from hereish.core.windows import Day, Month

NIGHTS = (1, 7, 28)
WITHIN_M = 200.0
EVERY_S = 1800.0
PER_DAY = 48
_DAY_S = 86400.0
_LEAST_DAYS = 7  # of a real person


class Observer(NamedTuple):
    """Hours that an observer looks at, how they are told apart, and which share is spent away."""

    hours: Hours
    block_h: float
    away: float


# By night people are at home, and in the evening and the morning most of them are.
OBSERVERS = {
    "night": Observer(Hours(0.0, 6.0), 24.0, 0.1),
    "evening, night and morning": Observer(Hours(20.0, 8.0), 2.0, 0.25),
}


@dataclass(frozen=True, eq=False)
class People:
    """Where people are every half hour, on days in a row."""

    name: str
    time_zone: str
    at_s: list[Floats]
    points: list[Floats]
    home: list[Floats]


def made_up(people: int, seed: int = 1, days: int = max(NIGHTS)) -> People:
    """People of `hereish.synthetic`."""
    clock_s: Floats = np.arange(float(PER_DAY)) * EVERY_S
    places = synthetic.whereabouts_on_days(people, seed, days, clock_s)
    at_s = (synthetic.MIDNIGHT_S + _DAY_S * np.arange(days)[:, None] + clock_s).ravel()
    points = [own.reshape(-1, 2) for own in places]
    # At midnight everybody is at home.
    home = [geometric_median(own[:, 0]) for own in places]
    return People("made-up people", synthetic.TIME_ZONE, [at_s] * people, points, home)


def of_geolife(path: str, most: int, time_zone: str = "Asia/Shanghai") -> People:
    """Real whole days, one after the other as if there had been none between them."""
    from hereish.evaluation.dataset import TRAIN_SHARE, load, split_users
    from hereish.evaluation.days import select_days

    trajectories = load([path])
    queries = select_days(trajectories, time_zone, EVERY_S, most_days=max(NIGHTS))
    tuned_on = split_users(trajectories.users, TRAIN_SHARE, 1)  # as hereish tune has them
    queries = queries.take(np.flatnonzero(~tuned_on[queries.user]))
    window = Day(time_zone)
    people = People("GeoLife", time_zone, [], [], [])
    for number in range(len(queries)):
        rows = slice(int(queries.offsets[number]), int(queries.offsets[number + 1]))
        at_s, points, day = queries.at_s[rows], queries.points[rows], queries.day[rows]
        first = np.flatnonzero(np.diff(day, prepend=-1))
        if len(first) < _LEAST_DAYS or len(people.at_s) == most:
            continue
        home = geometric_median(points[first])
        ends = np.append(first[1:], len(day))
        times, places = [], []
        for turn, (begin, end) in enumerate(zip(first.tolist(), ends.tolist(), strict=True)):
            midnight_s = float(window.start_s(at_s[begin : begin + 1])[0])
            before = np.arange(math.floor((at_s[begin] - midnight_s) / EVERY_S)) * EVERY_S
            own = points[begin:end].copy()
            # After the last fix the logger is silent: they went home.
            still = np.flatnonzero((own != own[-1]).any(axis=1))
            own[(int(still[-1]) + 2 if len(still) else len(own)) :] = home
            times.append(np.append(before, at_s[begin:end] - midnight_s) + turn * _DAY_S)
            places.append(np.concatenate([np.broadcast_to(home, (len(before), 2)), own]))
        begin_s = float(window.start_s(at_s[:1])[0])
        people.at_s.append(begin_s + np.concatenate(times))
        people.points.append(np.concatenate(places))
        people.home.append(home)
    return people


def mechanisms(time_zone: str) -> dict[str, PredictiveMechanism]:
    """What is compared, with ln 10 within 100 m per day."""
    privacy, window = Privacy(math.log(10.0), 100.0), Day(time_zone)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoesNotPayOffWarning)
        return {
            "independent noise": independent(privacy, reports=PER_DAY, window=window),
            "the paper, 3 km": fixed_utility(
                privacy, 3000.0, window=window, on_exhausted="predict"
            ),
            "whole-day without memory": whole_day(privacy, window=window, prediction=Parrot()),
            "few-days": whole_day(privacy, window=window, numbers=FEW_DAYS),
            "whole-day": whole_day(privacy, window=window),
            "whole-day, quiet 23:00-06:30": whole_day(
                privacy, window=window, quiet=(time(23), time(6, 30))
            ),
            "whole-day, ln 1000 per month": whole_day(
                privacy, window=window & Month(time_zone).within(math.log(1000.0))
            ),
        }


@dataclass(frozen=True, eq=False)
class _Task:
    mechanism: PredictiveMechanism
    at_s: Floats
    points: Floats
    home: Floats
    time_zone: str
    seed: int
    nights: tuple[int, ...]


def _attack_one(task: _Task) -> tuple[dict[str, Any], Floats]:
    """How far off each observer is after each number of nights, and the errors of the service."""
    m, at_s, points = task.mechanism, task.at_s, task.points
    out = sanitize(m, points, at_s, np.array([0, len(at_s)]), seed=task.seed)
    there = np.asarray(out.released)
    kinds = [Kind(kind) for kind in out.kind[there].tolist()]
    released = Releases(at_s[there], out.value[there], kinds, out.cost[there])
    seen = replay(m, [released], windows_apart=False)[0]
    found: dict[str, Any] = {}
    for nights in task.nights:
        some = seen.take(seen.at_s < at_s[0] + nights * _DAY_S)
        for name, observer in OBSERVERS.items():
            place = find_place(
                some,
                task.time_zone,
                observer.hours,
                away=observer.away,
                block_h=observer.block_h,
            )
            errors = [np.inf, np.inf, 0.0]
            if place is not None:
                errors[0] = float(distance_m(place.best, task.home))
                errors[2] = float(place.hard)
                if place.median is not None:
                    errors[1] = float(distance_m(place.median, task.home))
            found[f"{nights} {name}"] = errors
    # What a receiver believes at each time: the newest release.
    newest = np.maximum.accumulate(np.where(there, np.arange(len(at_s)), -1))
    known = newest >= 0
    return found, distance_m(out.value[newest[known]], points[known])


def study(
    people: People,
    compared: dict[str, PredictiveMechanism],
    *,
    nights: tuple[int, ...] = NIGHTS,
    samples: int = 1,
    jobs: int = 1,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """A row per mechanism, number of nights and observer; `samples` of the noise of each person."""
    rows: list[dict[str, Any]] = []
    tasks = [
        _Task(m, at_s, points, home, people.time_zone, seed + 1000 * sample + number, nights)
        for m in compared.values()
        for sample in range(samples)
        for number, (at_s, points, home) in enumerate(
            zip(people.at_s, people.points, people.home, strict=True)
        )
    ]
    done = []
    for result in _run(tasks, jobs):
        done.append(result)
        if progress is not None:
            progress(len(done), len(tasks))
    count = samples * len(people.home)
    for number, name in enumerate(compared):
        own = done[number * count : (number + 1) * count]
        error_m = np.concatenate([errors for _, errors in own])
        for count_of_nights in nights:
            for observer in OBSERVERS:
                key = f"{count_of_nights} {observer}"
                best, median, hard = np.array([found[key] for found, _ in own]).T
                rows.append(
                    {
                        "people": people.name,
                        "count": count,
                        "mechanism": name,
                        "nights": count_of_nights,
                        "observer": observer,
                        "best_within_200_m": float((best <= WITHIN_M).mean()),
                        "median_within_200_m": float((median <= WITHIN_M).mean()),
                        "best_error_m": float(np.median(best)),
                        "fresh_noise": float(hard.mean()),
                        "service_mean_m": float(error_m.mean()),
                        "service_p90_m": float(np.quantile(error_m, 0.9)),
                    }
                )
    return rows


def _run(tasks: list[_Task], jobs: int) -> Iterator[tuple[dict[str, Any], Floats]]:
    if jobs <= 1:
        yield from map(_attack_one, tasks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(_attack_one, tasks, chunksize=4)


def best_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each mechanism and number of nights the observer that finds most homes."""
    best: dict[tuple[str, str, int], dict[str, Any]] = {}
    for row in rows:
        key = (row["people"], row["mechanism"], row["nights"])
        if key not in best or row["best_within_200_m"] > best[key]["best_within_200_m"]:
            best[key] = row
    return list(best.values())


def homes_found(
    m: PredictiveMechanism,
    people: int,
    *,
    nights: tuple[int, ...] = NIGHTS,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[int, float]:
    """The share of made-up people whose home is found, by nights, by the better observer."""
    group = made_up(people, seed, days=max(nights))
    rows = study(group, {"": m}, nights=nights, seed=seed, progress=progress)
    return {row["nights"]: row["best_within_200_m"] for row in best_rows(rows)}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: home within 200 m by the best observer, and by the median of the nights' noise."""
    lines = [
        "| people | mechanism | best observer: 1 / 7 / 28 nights | geometric median | "
        "error of the service: average, 90 % |",
        "|---|---|---|---|---|",
    ]
    best = {(r["people"], r["mechanism"], r["nights"]): r for r in best_rows(rows)}
    plain = {
        (r["people"], r["mechanism"], r["nights"]): r for r in rows if r["observer"] == "night"
    }
    for people, name in dict.fromkeys((r["people"], r["mechanism"]) for r in rows):
        found = [f"{best[people, name, n]['best_within_200_m']:.0%}" for n in NIGHTS]
        median = [f"{plain[people, name, n]['median_within_200_m']:.0%}" for n in NIGHTS]
        row = plain[people, name, NIGHTS[0]]
        lines.append(
            f"| {people} ({row['count']}) | {name} | {' / '.join(found)} | {' / '.join(median)} | "
            f"{row['service_mean_m']:.0f} m, {row['service_p90_m']:.0f} m |"
        )
    return "\n".join(lines)


def figure(rows: list[dict[str, Any]], path: Path) -> None:
    """Home found within 200 m over nights, a line per mechanism."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    best = best_rows(rows)
    groups = list(dict.fromkeys(row["people"] for row in best))
    drawing, axes = plt.subplots(
        1, len(groups), figsize=(5.2 * len(groups), 4.2), sharey=True, squeeze=False
    )
    for axis, people in zip(axes[0], groups, strict=True):
        for name in dict.fromkeys(row["mechanism"] for row in best):
            own = [r for r in best if r["people"] == people and r["mechanism"] == name]
            shares = [100.0 * row["best_within_200_m"] for row in own]
            axis.plot([row["nights"] for row in own], shares, marker="o", label=name)
        axis.axhline(15.0, color="0.6", linestyle="--", linewidth=1)
        axis.set(title=people, xlabel="nights", xscale="log", xticks=NIGHTS, ylim=(0, 100))
        axis.set_xticklabels([str(nights) for nights in NIGHTS])
        axis.minorticks_off()
    axes[0, 0].set_ylabel("home found within 200 m, %")
    axes[0, 0].legend(frameon=False, fontsize=8)
    drawing.tight_layout()
    drawing.savefig(path, dpi=110)
    plt.close(drawing)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m hereish.attack.night_study"
    )
    parser.add_argument("--people", type=int, default=100, help="made-up ones, or at most so many")
    parser.add_argument("--geolife", metavar="FILE", help="real ones too, such as geolife.parquet")
    parser.add_argument("--only", metavar="MECHANISM", help="one of them, such as whole-day")
    parser.add_argument("--samples", type=int, default=1, help="of the noise of each person")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--figure", type=Path, help="such as home-over-nights.png")
    parser.add_argument("--json", type=Path, help="all rows")
    given = parser.parse_args(arguments)
    groups: list[Callable[[], People]] = [lambda: made_up(given.people, given.seed)]
    if given.geolife is not None:
        groups.append(lambda: of_geolife(given.geolife, given.people))
    rows: list[dict[str, Any]] = []
    for group in groups:
        people = group()

        def progress(done: int, total: int, name: str = people.name) -> None:
            if done % max(total // 20, 1) == 0:
                sys.stderr.write(f"{name}: {done} of {total}\n")

        compared = mechanisms(people.time_zone)
        if given.only is not None:
            compared = {given.only: compared[given.only]}
        rows += study(
            people,
            compared,
            samples=given.samples,
            jobs=given.jobs,
            seed=given.seed,
            progress=progress,
        )
        if given.json is not None:
            given.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    if given.figure is not None:
        figure(rows, given.figure)
    sys.stdout.write(table(rows) + "\n")


if __name__ == "__main__":
    main()
