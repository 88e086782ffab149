"""Windows beside each other: none is lost on the way into a mechanism, whatever is written."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import hereish
from hereish import Day, Days, Every, Forever, Hours, Limit, Month, Nested, ParameterError, Privacy
from hereish.core.settings import MechanismSettings
from hereish.forecast import adds_up

PRIVACY = Privacy(math.log(10), 100)
NOON_S = 1.75e9


def spent(m: hereish.PredictiveMechanism, reports: int = 40) -> Fraction:
    """What reports of a single day cost together, exactly."""
    places, at_s = np.tile([60.0, 25.0], (reports, 1)), NOON_S + 60.0 * np.arange(reports)
    out = hereish.sanitize(m, places, at_s, [0, reports], seed=1)
    return sum(map(Fraction, out.cost.tolist()), Fraction(0))


@pytest.mark.parametrize(
    "window",
    [
        Nested(Day("UTC") & Forever.within(0.5)),
        Nested(Nested(Day("UTC"), (Forever.within(0.5),)), (Month("UTC").within(50.0),)),
        Nested(Day("UTC") & Month("UTC").within(50.0), (Forever.within(0.5),)),
    ],
)
def test_windows_within_windows_are_all_kept(window: Nested) -> None:
    m = hereish.independent(PRIVACY, reports=40, window=window)
    assert Fraction(0) < spent(m) <= Fraction(0.5 / 100)
    assert "all reports together" in m.guarantee


def test_settings_add_their_limits_to_those_that_are_there() -> None:
    settings = MechanismSettings(PRIVACY.level, 100.0, limits=(("month", 50.0),))
    m = settings.build(Day("UTC") & Forever.within(0.5))
    assert len(m.limits) == 2
    assert Fraction(0) < spent(m) <= Fraction(0.5 / 100)


@pytest.mark.parametrize("several", [Day("UTC") & Forever.within(0.5), Forever.within(0.5)])
def test_a_limit_is_one_window(several: Any) -> None:
    with pytest.raises(ParameterError, match="one window with one budget"):
        Limit(several, 50.0)
    if isinstance(several, Nested):
        with pytest.raises(ParameterError, match="one by one"):
            Month("UTC") & several


@pytest.mark.parametrize("level", [np.float16(1.0), np.float32(1.0), Fraction(1)])
def test_levels_are_doubles_whatever_they_came_as(level: Any) -> None:
    limit = Limit(Forever, level)
    assert type(limit.level) is float
    assert type(Privacy(level, 100).level) is float

    def swinging(run: hereish.Run, at_s: Any) -> hereish.Plan:
        return hereish.Plan(
            np.zeros(len(at_s)), np.full(len(at_s), 1e-5 / 3), np.full(len(at_s), -np.inf)
        )

    m = hereish.PredictiveMechanism(
        PRIVACY, hereish.budget_manager(swinging), window=Nested(Day("UTC"), (limit,))
    )
    session, total = m.session(seed=3), Fraction(0)
    with pytest.raises(hereish.BudgetExhaustedError):
        for minute in range(4000):
            at = datetime.fromtimestamp(NOON_S + 0.01 * minute, UTC)
            total += Fraction(session.report((60.0, 25.0), at).cost)
    assert total <= Fraction(float(level) / 100)


@pytest.mark.parametrize("level", [True, "1.0", math.nan, 0.0, -1.0, math.inf])
def test_what_is_no_level_is_refused(level: Any) -> None:
    with pytest.raises(ParameterError, match="level must be"):
        Limit(Forever, level)


@pytest.mark.parametrize(
    "limits", [{"month": 5.0}, "month", 5, (("month",),), (("month", 5.0, 6.0),), ((5, 5.0),)]
)
def test_settings_say_what_limits_are(limits: Any) -> None:
    settings = MechanismSettings(PRIVACY.level, 100.0, limits=limits)
    with pytest.raises(ParameterError, match="a period and a level"):
        settings.build(Day("UTC"))


@pytest.mark.parametrize("level", [True, "5"])
def test_settings_take_numbers_as_levels(level: Any) -> None:
    settings = MechanismSettings(PRIVACY.level, 100.0, limits=(("month", level),))
    with pytest.raises(ParameterError, match="a period and a level"):
        settings.build(Day("UTC"))


def test_periods_shorter_than_a_minute_are_refused() -> None:
    settings = MechanismSettings(PRIVACY.level, 100.0, limits=(("0.5min", 5.0),))
    with pytest.raises(ParameterError, match="of a minute or more"):
        settings.build(Day("UTC"))


def test_what_no_double_holds_is_said_as_a_power() -> None:
    m = hereish.independent(PRIVACY, reports=9, window=Day("UTC") & Forever.within(5000.0))
    assert "at most e^5000 times" in m.guarantee
    assert "at most e^800 times" in str(Privacy(800.0, 100))


@pytest.mark.parametrize(
    ("window", "budgets"),
    [
        (Day("UTC"), (1, 31, 366)),
        (Hours(24), (1, 32, 367)),
        (Day("UTC") & Day("Asia/Tokyo").within(PRIVACY.level), (1, 31, 366)),
        (Every(timedelta(days=1)), (2, 33, 368)),
        (Day("UTC") & Days(30).within(3 * PRIVACY.level), (1, 6, 39)),
        (Day("UTC") & Month("Asia/Tokyo").within(3 * PRIVACY.level), (1, 6, 39)),
    ],
)
def test_days_months_and_years_add_up_to_no_less_than_is_allowed(
    window: hereish.Window, budgets: tuple[int, ...]
) -> None:
    m = hereish.independent(PRIVACY, reports=9, window=window)
    found = [round(period.level / PRIVACY.level, 9) for period in adds_up(m)]
    assert found == list(budgets)
