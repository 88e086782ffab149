"""Smart meters: the profile is learnt from releases; what cannot be meant is refused."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from hereish import Day, Every, Month, NoReset, ParameterError, Privacy, Run, Vector, sanitize
from hereish.core.types import Floats
from hereish.domains import DailyProfile, SharedOut, smart_meter
from hereish.domains.meter import laplace_posterior

WH = Vector(1, "l1", 1.0, 0.0, 5000.0, unit="Wh")
START_S = datetime(2025, 1, 6, tzinfo=UTC).timestamp()
EXACT = 10.0  # epsilon of noise that is next to none


def learn(profile: DailyProfile, readings: Floats, first_s: float = START_S) -> Run:
    """A run in which each of these readings was released as it is, by tiny noise."""
    run = Run.empty(1, 1, 1, width=profile.width)
    for i, wh in enumerate(readings):
        at_s = np.array([first_s + profile.every_s * i])
        fresh = np.array([[float(wh)]])
        released, learnt = profile.update(run, np.array([0]), at_s, fresh, EXACT)
        run = run._replace(values=released[:, None], times_s=at_s[:, None], learnt=learnt)
    return run


HOURS = np.random.default_rng(7).permutation(np.linspace(100.0, 1500.0, 24))
PROFILE = DailyProfile(WH, every_s=3600.0, carry=0.5)


def test_a_public_number_is_the_first_guess() -> None:
    run = Run.empty(2, 1, 1, width=PROFILE.width)
    first = PROFILE(run, np.array([START_S, START_S + 9e4]))
    assert first[:, 0].tolist() == pytest.approx([250.0, 250.0])


def test_the_same_time_of_the_days_before_is_guessed() -> None:
    run = learn(PROFILE, np.tile(HOURS, 12))
    later_s = START_S + 12 * 86400.0 + 3600.0 * np.arange(24)
    guesses = [float(PROFILE(run, np.array([at_s]))[0, 0]) for at_s in later_s]
    assert np.corrcoef(guesses, HOURS)[0, 1] > 0.99
    assert np.std(guesses) > 0.4 * HOURS.std(), "the more days the nearer"


def test_what_the_last_release_was_above_its_slot_is_carried_on_and_fades() -> None:
    run = learn(PROFILE, np.tile(HOURS, 12))
    before = float(PROFILE(run, run.at_s + 3600.0)[0, 0])
    above = run._replace(values=run.values + 400.0)
    raised = [
        float((PROFILE(above, above.at_s + late) - PROFILE(run, run.at_s + late))[0, 0])
        for late in (3600.0, 7200.0)
    ]
    assert raised == pytest.approx([200.0, 100.0], rel=1e-6)
    assert before > 0.0


def test_a_home_that_the_profile_does_not_fit_is_guessed_by_its_last_release() -> None:
    """Plateaus that begin at any hour: the last release is right most of the time."""
    rng = np.random.default_rng(1)
    run = learn(PROFILE, np.repeat(rng.uniform(50.0, 3000.0, 40), 7))
    assert PROFILE(run, run.at_s + 3600.0)[0, 0] == run.value[0, 0]


def test_slots_are_those_of_the_local_clock() -> None:
    zone = ZoneInfo("Europe/Helsinki")
    helsinki = DailyProfile(WH, time_zone="Europe/Helsinki", every_s=3600.0, carry=0.01)
    midnight = datetime(2025, 1, 6, tzinfo=zone)
    run = learn(helsinki, np.tile(HOURS, 12), midnight.timestamp())
    guesses = [
        [
            float(
                helsinki(run, np.array([datetime(2025, month, 15, hour, tzinfo=zone).timestamp()]))[
                    0, 0
                ]
            )
            for hour in range(24)
        ]
        for month in (2, 7)  # before and after the clocks change
    ]
    assert guesses[0] == pytest.approx(guesses[1])
    assert np.corrcoef(guesses[0], HOURS)[0, 1] > 0.99


def test_the_profile_forgets_what_is_long_past() -> None:
    profile = DailyProfile(WH, every_s=3600.0, carry=0.01, days=5.0)
    changed = HOURS[::-1].copy()
    run = learn(profile, np.concatenate([np.tile(HOURS, 10), np.tile(changed, 25)]))
    later_s = START_S + 35 * 86400.0 + 3600.0 * np.arange(24)
    guesses = [float(profile(run, np.array([at_s]))[0, 0]) for at_s in later_s]
    assert np.corrcoef(guesses, changed)[0, 1] > 0.9


@pytest.mark.parametrize(("scale", "noise"), [(100.0, 30.0), (100.0, 100.0), (50.0, 400.0)])
def test_the_posterior_is_that_of_laplace_behind_laplace(scale: float, noise: float) -> None:
    """Against sums over a fine grid."""
    apart = np.array([-700.0, -3.0, 0.0, 40.0, 333.0, 2500.0])
    mean, log_density = laplace_posterior(apart, np.full(6, scale), np.full(6, noise))
    x = np.arange(-20_000.0, 20_000.0, 0.5)
    prior = np.exp(-np.abs(x) / scale) / (2 * scale)
    for i, seen in enumerate(apart):
        likely = prior * np.exp(-np.abs(seen - x) / noise) / (2 * noise)
        assert np.exp(log_density[i]) == pytest.approx(likely.sum() * 0.5, rel=3e-3)
        assert mean[i] == pytest.approx((x * likely).sum() / likely.sum(), rel=5e-3, abs=0.05)


@pytest.mark.parametrize("usual_wh", [250.0, 5.0, 1.0])
def test_no_reading_is_so_far_off_that_it_fails(usual_wh: float) -> None:
    """A failure would tell of the reading: here one at 50,000 times what is usual."""
    m = smart_meter(Privacy(math.log(10), 0.05), usual_wh=usual_wh, highest_wh=50_000.0)
    readings = np.full(48, 1.0)
    readings[[30, 47]] = 49_000.0
    out = sanitize(m, readings, START_S + 1800.0 * np.arange(48), [0, 48], seed=1)
    assert np.abs(out.value - readings).max() < 100.0


def test_wide_noise_is_saved_up_and_fine_noise_is_not() -> None:
    profile = DailyProfile(WH)
    run = Run.empty(1, 1, 1, width=profile.width)
    assert profile.pause(run, eps_equal=0.1).tolist() == [1.0]
    assert profile.pause(run, eps_equal=0.001)[0] > 20.0
    budget = SharedOut(0.05, 48, profile)
    first = budget(run, np.array([START_S]))
    assert np.equal(first.threshold, -np.inf).all(), "a public number may be far off"
    assert np.min(first.eps_noise) > 0.05 / 20, "far more than an equal part"
    waiting = budget(learn(profile, np.array([150.0])), np.array([START_S + 1800.0]))
    assert np.isfinite(waiting.threshold).all()
    assert np.max(waiting.eps_test) < 0.05 * np.min(waiting.eps_noise), "tests cost next to nothing"


def test_windows_of_a_day_and_of_a_month() -> None:
    privacy = Privacy(math.log(10), 20.0)
    day, month = smart_meter(privacy), smart_meter(privacy, window=Month("UTC"))
    assert day.guarantee.startswith("For the reports of each day (UTC): ")
    assert month.guarantee == (
        "For the reports of each month (UTC): whatever is released is at most 10 times as likely "
        "from one trace as from any other that stays within 20 Wh of it."
    )
    assert isinstance(day.budget, SharedOut)
    assert isinstance(month.budget, SharedOut)
    assert (day.budget.publications, month.budget.publications) == (48, 1488)
    quarter = smart_meter(privacy, every=timedelta(minutes=15), window=Every(timedelta(days=7)))
    assert isinstance(quarter.budget, SharedOut)
    assert quarter.budget.publications == 672
    readings = np.full(48 * 3, 150.0)
    at_s = START_S + 1800.0 * np.arange(len(readings))
    out = sanitize(day, readings, at_s, [0, len(readings)], seed=1)
    assert out.released.all()
    costs = out.cost.reshape(3, 48).sum(axis=1)
    assert (costs <= privacy.eps_per_m).all()
    assert (costs > 0).all(), "each day has a budget of its own"


def test_a_day_within_a_month_keeps_both_budgets() -> None:
    privacy = Privacy(math.log(10), 100)
    month = 3 * privacy.level
    m = smart_meter(privacy, window=Day("UTC") & Month("UTC").within(month))
    assert "each month" in m.guarantee
    days = 20
    wild = np.random.default_rng(3).uniform(0.0, 3000.0, 48 * days)  # nothing to predict
    out = sanitize(m, wild, START_S + 1800.0 * np.arange(len(wild)), [0, len(wild)], seed=4)
    per_day = out.cost.reshape(days, 48).sum(axis=1)
    assert per_day.max() <= privacy.eps_per_m
    assert per_day.sum() <= month / privacy.radius_m
    assert per_day.sum() > 0.9 * month / privacy.radius_m, "the month's budget was the tighter one"


def test_every_release_lies_between_nought_and_the_highest_reading() -> None:
    m = smart_meter(Privacy(math.log(10), 50.0), highest_wh=3000.0)
    readings = np.random.default_rng(2).choice([0.0, 20.0, 2990.0, 9000.0], 96)
    out = sanitize(m, readings, START_S + 1800.0 * np.arange(96), [0, 96], seed=1)
    assert out.value.min() >= 0.0
    assert out.value.max() <= 3000.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"every": 30}, "every must be a datetime.timedelta, found int"),
        ({"every": timedelta(0)}, "every in seconds must be a finite number above 0"),
        ({"every": timedelta(days=2)}, "every_s must lie between a minute and a day"),
        ({"window": NoReset()}, "the window of a meter is a hereish.Day"),
        ({"usual_wh": 0.0}, "usual_wh must be a finite number above 0"),
        ({"highest_wh": -1.0}, "low must lie below high"),
        ({"time_zone": "Mars"}, "time zone must be an IANA name"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        smart_meter(Privacy(1.0, 10.0), **wrong)


def test_a_profile_is_of_one_number() -> None:
    with pytest.raises(ParameterError, match="a meter has one number"):
        DailyProfile(Vector(2))
    with pytest.raises(ParameterError, match="carry must lie strictly between 0 and 1"):
        DailyProfile(WH, carry=1.0)
    with pytest.raises(ParameterError, match="privacy must be a "):
        smart_meter(1.0)  # type: ignore[arg-type]
