"""The study of whole days: what a receiver believes, mechanism by mechanism.

Each mechanism draws from a seed of its own, so the table is the same whatever the threads.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from hereish.core.batch import sanitize
from hereish.core.mechanism import DoesNotPayOffWarning, PredictiveMechanism
from hereish.core.settings import PRESETS, MechanismSettings, Preset
from hereish.core.windows import Day, Window
from hereish.errors import ParameterError
from hereish.evaluation.dataset import TRAIN_SHARE, Trajectories, split_users
from hereish.evaluation.day_metrics import BeliefSums, DayMetrics, find_beliefs
from hereish.evaluation.days import DayQueries, select_days
from hereish.evaluation.study import Row, run_tasks, seeded_rng
from hereish.evaluation.study_settings import MANAGERS, Manager, StudySettings

EVERY_S = 1800.0
QUICK_USERS = 50
_DAY_S = 86400.0
# What the mechanisms of the paper's presets are called in the other study.
_MANAGERS: dict[Preset, Manager] = {"paper-rate": "fixed_rate", "paper-utility": "fixed_utility"}
_POINTS_AT_ONCE = 500_000  # samples share a batch up to so many; part of what a seed means


class ComparedMechanism(NamedTuple):
    """A mechanism of the study under its name."""

    name: str
    preset: Preset | None  # whose mechanism it is, if it is that of one
    mechanism: PredictiveMechanism


def mechanisms(
    settings: StudySettings, every_s: float, window: Window | None
) -> list[ComparedMechanism]:
    """The mechanisms that are compared when queries come `every_s`, each with this window.

    They are independent noise, every preset as it comes, and the paper's managers with skipping.
    Plans for a number of reports are for as many as fit 24 hours.
    """
    planned = replace(settings, reports=max(2, math.ceil(_DAY_S / every_s)))
    level, radius_m = settings.privacy.level, settings.privacy.radius_m
    described: list[tuple[str, Preset | None, MechanismSettings]] = [
        ("independent", None, planned.describe("fixed_rate", "independent"))
    ]
    for preset in PRESETS:
        one = MechanismSettings(level, radius_m, preset=preset, every_s=every_s)
        if preset == "paper-utility":
            one = replace(one, accuracy_m=settings.accuracy_m)
        described.append((_MANAGERS.get(preset, preset.replace("-", "_")), preset, one))
    described += [
        (f"{manager}_skip", None, planned.describe(manager, skip=True)) for manager in MANAGERS
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoesNotPayOffWarning)
        return [
            ComparedMechanism(name, preset, one.build(window, "stop"))
            for name, preset, one in described
        ]


def describe_mechanism(row: Row) -> str:
    """The mechanism of a row in words: the name of the preset, if it is one."""
    if row["preset"] is not None:
        return str(row["preset"])
    return str(row["mechanism"]).replace("_skip", ", skip").replace("_", " ")


@dataclass(frozen=True)
class DayStudy:
    """What is computed of each data set."""

    settings: StudySettings = field(default_factory=StudySettings)
    every_s: tuple[float, ...] = (EVERY_S,)
    samples: int = 10  # of the noise
    seed: int = 1
    most_users: int | None = None  # of each data set, drawn by the seed; None for all
    held_out: bool = False  # only users that `hereish tune` with this seed has not tuned on

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ParameterError(f"samples must be at least 1, found {self.samples}")


class DayResults(NamedTuple):
    """A row per data set, interval and mechanism; and one per local hour of each."""

    rows: list[Row]
    hours: list[Row]


def run(
    study: DayStudy,
    data: Sequence[tuple[Trajectories, str]],
    *,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> DayResults:
    """The results for data sets with the time zones of their days."""
    tasks = []
    for trajectories, time_zone in data:
        for every_s in study.every_s:
            queries = _choose_users(
                study, trajectories, select_days(trajectories, time_zone, every_s)
            )
            tasks += [
                partial(_compute, study, trajectories.name, queries, compared)
                for compared in mechanisms(study.settings, every_s, Day(time_zone))
            ]
    done = run_tasks(tasks, jobs, progress)
    return DayResults([row for row, _ in done], [hour for _, hours in done for hour in hours])


def _choose_users(study: DayStudy, trajectories: Trajectories, queries: DayQueries) -> DayQueries:
    if study.held_out:
        training = split_users(trajectories.users, TRAIN_SHARE, study.seed)
        kept = np.flatnonzero(~training[queries.user])
        if not len(kept):
            raise ParameterError(f"no held-out user of {trajectories.name} has a whole day")
        queries = queries.take(kept)
    if study.most_users is None or len(queries) <= study.most_users:
        return queries
    rng = seeded_rng(study.seed, "users", trajectories.name)
    return queries.take(np.sort(rng.choice(len(queries), study.most_users, replace=False)))


def sum_up(
    m: PredictiveMechanism, queries: DayQueries, samples: int, rng: np.random.Generator
) -> BeliefSums:
    """What is believed of a mechanism, over so many samples of its noise."""
    sums = BeliefSums(queries.users)
    together = max(1, _POINTS_AT_ONCE // len(queries.at_s))
    for done in range(0, samples, together):
        some = queries.take(np.tile(np.arange(len(queries)), min(together, samples - done)))
        seed = int(rng.integers(2**62))
        out = sanitize(m, some.points, some.at_s, some.offsets, seed=seed)
        sums.add(some, find_beliefs(m, some, out))
    return sums


def _compute(
    study: DayStudy, dataset: str, queries: DayQueries, compared: ComparedMechanism
) -> tuple[Row, list[Row]]:
    where = (dataset, queries.every_s, compared.name)
    noise = seeded_rng(study.seed, "noise", *where)
    sums = sum_up(compared.mechanism, queries, study.samples, noise)
    names: Row = {
        "dataset": dataset,
        "mechanism": compared.name,
        "preset": compared.preset,
        "every_s": queries.every_s,
    }
    row = names | {
        "time_zone": queries.time_zone,
        "days": queries.days,
        "users": len(queries),
        "queries": len(queries.at_s),
        "samples": study.samples,
    }
    low, high = sums.interval(seeded_rng(study.seed, "bootstrap", *where))
    for name, value, lo, hi in zip(DayMetrics._fields, sums.metrics(), low, high, strict=True):
        row |= {name: _known(value), f"{name}_lo": _known(lo), f"{name}_hi": _known(hi)}
    row["ended_first_hour"], row["ended_median_hour"] = sums.ended_first_and_median()
    hours = [
        names | {"hour": hour, "belief_mean_m": mean_m, "belief_p90_m": p90_m}
        for hour, mean_m, p90_m in sums.by_hour()
    ]
    return row, hours


def _known(value: float) -> float | None:
    """None for what is not known: where nothing was released, there is nothing to believe."""
    return value if math.isfinite(value) else None
