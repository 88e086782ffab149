"""Lemma 1 for the domains, on every run: per watt-hour, and per person of a small database.

Databases are told by nothing but their counts, so what two of them have in common is decided by
the counts, and what separates them by how many persons differ: both are enumerated here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from hereish import Every, NoiseFirst, Plan, PredictiveMechanism, Privacy, Run
from hereish.core.types import Floats
from hereish.domains import DailyProfile, Follow, SharedOut, StreamNumbers
from hereish.domains.counts import count_space
from tests.support.exact_lattice import Lattice
from tests.support.exact_runs import STEPS, Places, Runs, all_runs, losses

HOURS = [3600.0 * i for i in range(STEPS)]
TOTAL = 3.0
TOLERANCE = STEPS * 2.0**-27  # as for noise first without these parts
# As soon as there are guesses they are tested, and noise is averaged.
EAGER = StreamNumbers(first_surprise=1.0, first_failing=0.3, patience=2.0)


@dataclass
class Row(Places):
    """Places in a row as a vector of one number: as `Follow` sees a count or a reading."""

    mean_noise = 1.0
    low, high = 0.0, math.inf


class OnPlaces:
    """Leaves out that a space must be a Vector: these parts see released numbers alone."""

    def __post_init__(self) -> None:
        pass


@dataclass(frozen=True)
class FollowPlaces(OnPlaces, Follow):
    pass


@dataclass(frozen=True)
class ProfileOfPlaces(OnPlaces, DailyProfile):
    pass


def build(follow: Any, publications: int = STEPS, **rest: Any) -> PredictiveMechanism:
    budget = SharedOut(TOTAL, publications, follow)
    given = {"decision": NoiseFirst(), **rest}
    return PredictiveMechanism(Privacy(TOTAL, 1.0), budget, follow.space, follow, **given)


def profile(space: Places) -> ProfileOfPlaces:
    return ProfileOfPlaces(space, EAGER, "UTC", 2 * 3600.0 * 6, usual=1.0, carry=0.5)  # type: ignore[arg-type]  # a place


MECHANISMS = {
    "last release": build(FollowPlaces(Row(3), EAGER)),  # type: ignore[arg-type]  # a place
    "usual numbers": build(FollowPlaces(Row(3))),  # type: ignore[arg-type]  # a place
    "more than planned": build(FollowPlaces(Row(3), EAGER), publications=2),  # type: ignore[arg-type]  # a place
    "windows": build(FollowPlaces(Row(3), EAGER), window=Every(timedelta(hours=2))),  # type: ignore[arg-type]  # a place
    "daily profile": build(profile(Row(3))),
    "coarse grid": build(FollowPlaces(Row(4, grid=3), EAGER)),  # type: ignore[arg-type]  # a place
}


@cache
def runs_of(name: str) -> Runs:
    return all_runs(MECHANISMS[name], HOURS)


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_run_is_as_private_as_its_released_costs_say(name: str) -> None:
    """Whatever is learnt counts as released: it is public, and a function of what is."""
    m, runs = MECHANISMS[name], runs_of(name)
    excess, share = losses(m, runs)
    assert excess <= TOLERANCE
    assert share > 0.8, "the bound is nearly met, not only kept"
    if name != "windows":
        for costs in runs.field("cost"):
            assert sum(map(Fraction, costs)) <= Fraction(TOTAL)


def test_the_cases_reach_what_they_are_meant_to_reach() -> None:
    for found in map(runs_of, ("last release", "daily profile")):
        hard = found.field("hard") == 1.0
        assert hard.any()
        assert (~hard).any()
        assert len(np.unique(found.field("eps_noise"))) > 5, "the budget follows the outcomes"


# A database of three persons, each with a yes or a no: their count is published each hour.

PERSONS = 3
SNAPSHOTS = [np.array(votes) for votes in product((0, 1), repeat=PERSONS)]


def histories(snapshots: int) -> Iterator[tuple[Floats, ...]]:
    """Every way in which the database can be at each publication."""
    return product(SNAPSHOTS, repeat=snapshots)


def person_losses(runs: Runs, steps: int) -> tuple[float, float]:
    """Of all pairs of histories in which one person differs, at one time or at several: the largest

    loss of any run, and the largest beyond what the run's costs allow.
    """
    counts = PERSONS + 1
    eps = runs.field("cost").sum(axis=1)
    log_chance = np.log(runs.chance)
    worst, beyond = -math.inf, -math.inf
    seen = set()
    for history in histories(steps):
        table = np.array(history)  # (snapshots, persons)
        for person, others in product(range(PERSONS), product((0, 1), repeat=steps)):
            changed = table.copy()
            changed[:, person] = others
            pair = tuple(
                int(np.ravel_multi_index(tuple(each.sum(axis=1)), (counts,) * steps))
                for each in (table, changed)
            )
            if pair in seen or pair[0] == pair[1]:
                continue
            seen.add(pair)
            lost = log_chance[:, pair[0]] - log_chance[:, pair[1]]
            worst = max(worst, float(lost.max()))
            beyond = max(beyond, float((lost - eps).max()))
    return worst, beyond


def test_one_person_changes_what_is_published_by_exp_eps_at_most_in_all_snapshots_together() -> (
    None
):
    steps = 3
    m = build(FollowPlaces(Row(PERSONS + 1), EAGER), publications=steps)  # type: ignore[arg-type]  # a place
    assert m.space.distance(np.array([[0.0]]), np.array([[1.0]])) == 1.0, "a person, a count"
    worst, beyond = person_losses(all_runs(m, HOURS[:steps]), steps)
    assert beyond <= TOLERANCE
    assert 0.8 * TOTAL < worst <= TOTAL + TOLERANCE, "the whole of eps, and no more"


def test_noise_for_half_a_person_is_caught() -> None:
    m = build(FollowPlaces(Row(PERSONS + 1, eps_error=2.0), EAGER), publications=3)  # type: ignore[arg-type]  # a place
    worst, beyond = person_losses(all_runs(m, HOURS[:3]), 3)
    assert beyond > 0.5
    assert worst > TOTAL + 0.5


# Two persons, each absent, in group A or in group B: the histogram of both groups.

GROUPS = 3
RECORDS = list(product(range(GROUPS), repeat=2))  # of both persons; 0 is absent


def bars(records: tuple[int, ...]) -> int:
    """The histogram of a database as a point of a lattice of side 3."""
    return 3 * records.count(1) + records.count(2)


def record_losses(runs: Runs, steps: int) -> float:
    eps = runs.field("cost").sum(axis=1)
    log_chance = np.log(runs.chance)
    beyond = -math.inf
    for history in product(RECORDS, repeat=steps):
        for others in product(range(GROUPS), repeat=steps):
            changed = [(other, second) for other, (_, second) in zip(others, history, strict=True)]
            one, two = (
                np.ravel_multi_index([bars(each) for each in table], (9,) * steps)
                for table in (history, changed)
            )
            lost = log_chance[:, one] - log_chance[:, two]
            beyond = max(beyond, float((lost - eps).max()))
    return beyond


def plan(run: Run, at_s: Floats, /) -> Plan:
    return Plan(0.3, 1.0, 0.6)


def histogram(sensitivity: float) -> PredictiveMechanism:
    space = Lattice(side=3, sensitivity=sensitivity)
    return PredictiveMechanism(Privacy(TOTAL, 1.0), plan, space, decision=NoiseFirst())


def test_who_moves_from_one_bar_to_another_counts_as_one_person() -> None:
    sensitivity = count_space(2, neighbours="changed").sensitivity
    assert record_losses(all_runs(histogram(sensitivity), HOURS[:2]), 2) <= TOLERANCE


def test_a_histogram_with_the_noise_of_a_single_count_is_caught() -> None:
    """Enough where persons are added or removed, and half of what moving from bar to bar takes."""
    sensitivity = count_space(2, neighbours="added").sensitivity
    assert record_losses(all_runs(histogram(sensitivity), HOURS[:2]), 2) > 0.5
