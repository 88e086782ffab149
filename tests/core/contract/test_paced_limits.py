"""Pacing within several budgets: a month's lasts the month, on made-up days."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

import numpy as np
import pytest

import hereish
from hereish import Day, Days, Forever, Hours, Month, Paced, PredictiveMechanism, Privacy, synthetic
from hereish.core.types import Floats
from hereish.core.windows import Window

PRIVACY = Privacy(math.log(10), 100)
MONTH_LEVEL = math.log(1000)  # three days' budgets
DAYS, PER_DAY, PEOPLE = 31, 48, 4
FIRST_S = datetime(2026, 3, 1, tzinfo=UTC).timestamp()


@cache
def march() -> tuple[Floats, Floats]:
    """Where people are, and when: a report every half hour of a month."""
    clock_s = 1800.0 * np.arange(float(PER_DAY))
    places = synthetic.whereabouts_on_days(PEOPLE, 1, DAYS, clock_s)
    at_s = FIRST_S + 1800.0 * np.arange(DAYS * PER_DAY)
    return places.reshape(-1, 2), np.tile(at_s, PEOPLE)


def released_and_paid(m: PredictiveMechanism) -> tuple[Floats, Floats]:
    """By day: the share of reports that are released, and what they cost in days' budgets."""
    places, at_s = march()
    offsets = DAYS * PER_DAY * np.arange(PEOPLE + 1)
    out = hereish.sanitize(m, places, at_s, offsets, seed=1)
    shape = (PEOPLE, DAYS, PER_DAY)
    released = out.released.reshape(shape).mean(axis=(0, 2))
    return released, out.cost.reshape(shape).sum(axis=2).mean(axis=0) / PRIVACY.eps_per_m


@pytest.mark.parametrize(
    "limit",
    [Month("UTC").within(MONTH_LEVEL), Days(30).within(MONTH_LEVEL)],
    ids=["calendar", "rolling"],
)
def test_a_month_of_three_days_budgets_lasts_the_month(limit: hereish.Limit) -> None:
    released, paid = released_and_paid(hereish.whole_day(PRIVACY, window=Day("UTC") & limit))
    assert (released == 1.0).all()
    assert paid.sum() <= 3.0 * (31 / 30)
    assert paid.sum() > 2.4, "and most of it is used"
    assert paid.max() < 4.0 * paid.min(), "evenly"


def test_without_planning_for_the_month_it_is_gone_in_days() -> None:
    m = hereish.whole_day(PRIVACY, window=Day("UTC") & Month("UTC").within(MONTH_LEVEL))
    assert isinstance(m.budget, Paced)
    released, paid = released_and_paid(replace(m, budget=replace(m.budget, limits=())))
    assert (released[:3] == 1.0).all()
    assert (paid[7:] == 0.0).all()
    assert (released[7:] == 0.0).all()


def test_the_tightest_of_three_windows_is_planned_with() -> None:
    loose = Day("UTC") & Days(30).within(99.0) & Forever.within(9999.0)
    _, paid = released_and_paid(hereish.whole_day(PRIVACY, window=loose))
    _, alone = released_and_paid(hereish.whole_day(PRIVACY, window=Day("UTC")))
    assert paid.tolist() == pytest.approx(alone.tolist(), rel=1e-9)
    tight = Day("UTC") & Days(30).within(99.0) & Forever.within(math.log(1e6))
    _, paid = released_and_paid(hereish.whole_day(PRIVACY, window=tight))
    year = math.log(1e6) / PRIVACY.level / 365.0
    assert 0.5 * year < paid.min() <= paid.max() <= year


@pytest.mark.parametrize(
    "window", [Hours(24), Days(30), Day("UTC") & Hours(6).within(1.0)], ids=str
)
def test_budgets_of_rolling_windows_never_end(window: Window) -> None:
    released, paid = released_and_paid(hereish.whole_day(PRIVACY, window=window))
    assert (released == 1.0).all()
    assert (paid > 0.0).all()


def test_a_number_of_reports_is_shared_out_within_the_limits() -> None:
    window = Day("UTC") & Month("UTC").within(MONTH_LEVEL)
    released, paid = released_and_paid(hereish.whole_day(PRIVACY, window=window, reports=PER_DAY))
    assert (released == 1.0).all()
    assert paid.sum() <= 3.0
    assert paid.min() > 0.02


def test_a_mechanism_without_the_limits_of_its_manager_is_refused() -> None:
    m = hereish.whole_day(PRIVACY, window=Day("UTC") & Month("UTC").within(MONTH_LEVEL))
    with pytest.raises(hereish.ParameterError, match="must have the limits that its budget plans"):
        replace(m, limits=())


def test_an_accuracy_that_a_limit_never_pays_for_is_refused() -> None:
    with pytest.raises(hereish.ParameterError, match="one report of accuracy 200 m costs"):
        hereish.whole_day(PRIVACY, window=Day("UTC") & Days(30).within(0.5), accuracy_m=200.0)
