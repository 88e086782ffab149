"""Rows of a mechanism that remembers: a user's days follow each other, each with its own budget."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import time
from typing import NamedTuple

import numpy as np
import pytest

import hereish
from hereish import synthetic
from hereish.core.types import Floats, Ints
from hereish.traces.budgets import Budgets, sanitize_rows

PRIVACY = hereish.Privacy(math.log(10), 100)
DAY = hereish.Day(synthetic.TIME_ZONE)
WHOLE_DAY = hereish.whole_day(PRIVACY, window=DAY)
USERS, DAYS, PER_DAY = 20, 8, 48


class Rows(NamedTuple):
    user: Ints
    names: list[str]
    points: Floats
    at_s: Floats

    def take(self, which: Ints) -> Rows:
        return Rows(self.user[which], self.names, self.points[which], self.at_s[which])


@pytest.fixture(scope="module")
def rows() -> Rows:
    clock_s = np.arange(0.0, 86400.0, 86400.0 / PER_DAY)
    points = synthetic.whereabouts_on_days(USERS, 3, DAYS, clock_s).reshape(-1, 2)
    day_s = synthetic.MIDNIGHT_S + 86400.0 * np.arange(DAYS)[:, None]
    at_s = np.tile((day_s + clock_s).reshape(-1), USERS)
    user = np.repeat(np.arange(USERS), DAYS * PER_DAY)
    return Rows(user, [f"user {i}" for i in range(USERS)], points, at_s)


def keyed() -> hereish.KeyedDraws:
    return hereish.KeyedDraws(b"k" * 32)


def spent_per_day(rows: Rows, cost: Floats) -> Floats:
    index = DAY.index(rows.at_s)
    assert index is not None
    _, lane = np.unique(np.stack([rows.user, index]), axis=1, return_inverse=True)
    return np.asarray(np.bincount(lane.reshape(-1), cost), dtype=np.float64)


def test_a_day_goes_on_from_the_day_before(rows: Rows) -> None:
    out = sanitize_rows(WHOLE_DAY, *rows, seed=1)
    hard = out.hard.reshape(USERS, DAYS, PER_DAY)
    # The guess of the night before is tested: people sleep at home.
    assert hard[:, 0, 0].all()
    assert hard[:, 1:, 0].mean() < 0.5
    # As good as one lane per user, whose memory nobody interrupts.
    alone = hereish.sanitize(
        WHOLE_DAY, rows.points, rows.at_s, np.arange(USERS + 1) * DAYS * PER_DAY, seed=2
    )
    assert out.hard.mean() < 1.15 * alone.hard.mean()
    assert spent_per_day(rows, out.cost).max() <= PRIVACY.eps_per_m
    assert out.run is None


def test_a_mechanism_without_memory_begins_each_day_anew(rows: Rows) -> None:
    m = replace(WHOLE_DAY, prediction=hereish.Parrot())
    out = sanitize_rows(m, *rows, seed=1)
    assert out.hard.reshape(USERS, DAYS, PER_DAY)[:, :, 0].all()


def test_quiet_hours_over_midnight_cost_nothing(rows: Rows) -> None:
    m = hereish.whole_day(PRIVACY, window=DAY, quiet=(time(23), time(6, 30)))
    out = sanitize_rows(m, *rows, seed=1)
    kinds = out.kind.reshape(USERS, DAYS, PER_DAY)
    cost = out.cost.reshape(USERS, DAYS, PER_DAY)
    assert (kinds[:, 0, 0] == "hard").all()  # the first report ever
    assert (kinds[:, 1:, :13] == "untested").all()
    assert not cost[:, 1:, :13].any()


@pytest.mark.parametrize("pieces", [2, 7, 31])
def test_pieces_are_the_same_as_the_whole(rows: Rows, pieces: int) -> None:
    whole = sanitize_rows(WHOLE_DAY, *rows, draws=keyed())
    budgets, value = Budgets(WHOLE_DAY), np.empty_like(rows.points)
    cost = np.empty(len(rows.at_s))
    for part in np.array_split(np.argsort(rows.at_s, kind="stable"), pieces):
        out = sanitize_rows(WHOLE_DAY, *rows.take(part), draws=keyed(), budgets=budgets)
        value[part], cost[part] = out.value, out.cost
    np.testing.assert_array_equal(value, whole.value)
    np.testing.assert_array_equal(cost, whole.cost)
    assert budgets.run.spent.max() <= PRIVACY.eps_per_m


def test_the_order_of_rows_does_not_matter(rows: Rows) -> None:
    whole = sanitize_rows(WHOLE_DAY, *rows, draws=keyed())
    mixed = np.random.default_rng(5).permutation(len(rows.at_s))
    out = sanitize_rows(WHOLE_DAY, *rows.take(mixed), draws=keyed())
    np.testing.assert_array_equal(out.value, whole.value[mixed])


def test_a_day_that_comes_late_has_its_own_budget_and_no_later_memory(rows: Rows) -> None:
    day = (rows.at_s - synthetic.MIDNIGHT_S) // 86400.0
    budgets = Budgets(WHOLE_DAY)
    cost = np.zeros(len(rows.at_s))
    value = np.empty_like(rows.points)
    for number in (0, 3, 1):
        part = np.flatnonzero(day == number)
        out = sanitize_rows(WHOLE_DAY, *rows.take(part), draws=keyed(), budgets=budgets)
        cost[part], value[part] = out.cost, out.value
    assert spent_per_day(rows, cost).max() <= PRIVACY.eps_per_m
    # The second day goes on from the first, as if the fourth had not been read yet.
    first_two = np.flatnonzero(day <= 1)
    alone = sanitize_rows(WHOLE_DAY, *rows.take(first_two), draws=keyed())
    np.testing.assert_array_equal(value[first_two], alone.value)
