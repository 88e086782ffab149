"""Quiet hours, tests by the clock, the pace of a budget, and the presets that set them."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Any, get_args
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish import (
    Day,
    Every,
    NoiseFirst,
    NoReset,
    Paced,
    ParameterError,
    PartError,
    PlaceMemory,
    Quiet,
    Run,
    Steady,
    Tolerance,
    sanitize,
    whole_day,
)
from hereish.core.presets import WHOLE_DAY
from hereish.core.settings import NUMBERS, PRESETS, MechanismSettings, Preset, parse_quiet
from hereish.core.types import Floats
from tests.support.whole_days import PRIVACY, TOTAL

steadily = settings(derandomize=True, deadline=None, max_examples=200)
DAY_S = 86400.0
ZONES = ["UTC", "Europe/Helsinki", "America/St_Johns", "Australia/Lord_Howe"]
clocks = st.times().map(lambda clock: clock.replace(microsecond=0, second=0))


def local(at_s: float, zone: str) -> datetime:
    return datetime.fromtimestamp(at_s, ZoneInfo(zone))


def in_hours(clock: time, begins: time, ends: time) -> bool:
    """By the clock on the wall."""
    return begins <= clock < ends if begins < ends else clock >= begins or clock < ends


@steadily
@given(
    st.floats(1.6e9, 1.8e9, allow_nan=False).map(round),
    clocks,
    clocks,
    st.sampled_from(ZONES),
)
def test_quiet_hours_are_those_of_the_wall_clock(
    at_s: int, begins: time, ends: time, zone: str
) -> None:
    if begins == ends:
        return
    quiet, now = Quiet(begins, ends, zone), local(at_s, zone)
    covered = bool(quiet.covers(np.array([float(at_s)]))[0])
    midnight = now.replace(hour=0, minute=0, second=0)
    length_s = (midnight + timedelta(days=1)).timestamp() - midnight.timestamp()
    if length_s == DAY_S:  # test_quiet_hours.py has the days on which it is set
        assert covered == in_hours(now.time(), begins, ends)


@steadily
@given(
    st.floats(1.6e9, 1.8e9, allow_nan=False),
    st.floats(0.0, 3 * DAY_S, allow_nan=False),
    clocks,
    clocks,
)
def test_awake_time_is_what_is_left_of_the_quiet_hours(
    at_s: float, ahead_s: float, begins: time, ends: time
) -> None:
    if begins == ends:
        return
    quiet = Quiet(begins, ends, "UTC")
    awake_s = float(quiet.awake_s(np.array([at_s]), np.array([at_s + ahead_s]))[0])
    steps = at_s + ahead_s * (np.arange(4000) + 0.5) / 4000
    counted_s = ahead_s * np.count_nonzero(~quiet.covers(steps)) / 4000
    assert awake_s == pytest.approx(counted_s, abs=8 * ahead_s / 4000 + 1e-3)
    assert awake_s >= -1e-6


def test_nothing_is_tested_or_paid_in_quiet_hours() -> None:
    m = whole_day(PRIVACY, window=Day("Europe/Helsinki"), quiet=(time(23), time(6, 30)))
    session, clock = m.session(seed=1), ZoneInfo("Europe/Helsinki")
    noon = datetime(2026, 1, 10, 12, tzinfo=clock)
    session.report((60.17, 24.94), noon)
    for half_hour in range(1, 48):
        at = noon + timedelta(minutes=30 * half_hour)
        report = session.report((60.17 - half_hour, 24.94), at)
        night = in_hours(at.time(), time(23), time(6, 30))
        assert (report.kind == "untested") == night
        assert (report.cost == 0.0) >= night


def seen(lanes: int = 1, **fields: Any) -> Run:
    """A run whose last release was an hour ago."""
    run, then = Run.empty(lanes, 2), np.full(lanes, -3600.0)
    past = {"times_s": then[:, None], "hard_at_s": then, "tested_at_s": then}
    return run._replace(**{**past, "reports": np.ones(lanes, dtype=np.int64), **fields})


def test_tests_cost_the_same_per_hour_however_often_somebody_reports() -> None:
    near = Tolerance(100.0, 2.0, 0.125, 7200.0)

    def asked(since_s: float) -> float:
        return float(
            np.asarray(near.ask(seen(tested_at_s=np.array([-since_s])), np.zeros(1), 0.01)[0])
        )

    per_hour = [asked(since_s) * 3600.0 / since_s for since_s in (10.0, 300.0, 1800.0, 7200.0)]
    assert per_hour == pytest.approx([0.01 * 0.25] * 4)
    assert asked(1e6) == asked(7200.0)
    assert asked(0.0) == 0.0
    assert asked(math.nan) == asked(7200.0), "before the first test"
    assert replace(near, strictness=50.0).ask(seen(), np.zeros(1), 0.01)[0] == 0.01, "the most"


def eps_noise(budget: Paced, run: Run, at_s: float = 0.0) -> float:
    return float(np.asarray(budget(run, np.array([at_s])).eps_noise).reshape(-1)[0])


PACED = Paced(
    TOTAL,
    Day("UTC"),
    WHOLE_DAY.tolerance(PRIVACY),
    share=1.1,
    per_half_hour=0.35,
    usual_hard=0.15,
    learn_after=6.0,
    adapt=0.15,
    settle=0.04,
    per_report=0.3,
)


def test_the_pace_follows_the_time_the_stay_and_the_failures() -> None:
    budget: Paced = replace(PACED, adapt=0.5, settle=0.1, share=0.5)
    morning, evening = 3600.0, DAY_S - 3600.0
    assert eps_noise(budget, seen(), morning) < eps_noise(budget, seen(), evening)
    half = seen(spent=np.array([0.5 * TOTAL]))
    assert eps_noise(budget, half, morning) == pytest.approx(
        0.5 * eps_noise(budget, seen(), morning)
    )
    short = seen(hard_at_s=np.array([morning - 60.0]))
    assert eps_noise(budget, short, morning) < eps_noise(budget, seen(), morning)
    often, easy = np.array([20]), np.array([19])
    failing = seen(reports=often, easy=np.array([2]))
    assert eps_noise(budget, failing, morning) < eps_noise(
        budget, seen(reports=often, easy=easy), morning
    )
    quiet = replace(budget, quiet=Quiet(time(12), time(23), "UTC"))
    assert eps_noise(quiet, seen(), morning) > eps_noise(budget, seen(), morning)


def test_the_last_planned_report_takes_all_and_others_leave_something() -> None:
    budget: Paced = replace(PACED, reports=5, share=1e9, window=NoReset())
    for reports in range(4):
        assert eps_noise(budget, seen(reports=np.array([reports]))) < TOTAL
    assert eps_noise(budget, seen(reports=np.array([4]))) == TOTAL
    lasting = replace(budget, window=Day("UTC"))
    assert eps_noise(lasting, seen(reports=np.array([4]))) < TOTAL, "for more than were expected"


def test_free_reports_of_quiet_hours_are_not_among_the_expected_ones() -> None:
    quiet = (time(22), time(8))
    m = whole_day(PRIVACY, reports=10, quiet=quiet, window=Day("UTC"))
    days, each = 4, 48
    at_s = 19880 * DAY_S + 1800.0 * np.arange(float(days * each))
    rng = np.random.default_rng(1)
    x = np.array([60.0, 25.0]) + rng.normal(0.0, 0.05, (len(at_s), 2))
    out = sanitize(m, x, at_s, [0, len(at_s)], seed=1)
    assert out.released.all()
    hour = (at_s % DAY_S) / 3600.0
    fresh = out.hard.reshape(days, each) & ((hour >= 8.0) & (hour < 22.0)).reshape(days, each)
    assert fresh.any(axis=1).all(), "every day has fresh reports while people are awake"
    spent = out.cost.reshape(days, each).sum(axis=1)
    assert (spent[1:] > 0.5 * PRIVACY.eps_per_m).all()


def test_many_more_reports_than_expected_do_not_get_noise_that_is_worth_nothing() -> None:
    at_s = 19880 * DAY_S + 300.0 * np.arange(288.0)
    rng = np.random.default_rng(1)
    x = np.array([60.0, 25.0]) + rng.normal(0.0, 0.05, (len(at_s), 2))
    for window in (Day("UTC"), Every(timedelta(days=1))):
        for quiet in (None, (time(1), time(5))) if isinstance(window, Day) else (None,):
            m = whole_day(PRIVACY, reports=10, window=window, quiet=quiet)
            out = sanitize(m, x, at_s, [0, len(at_s)], seed=1)
            assert out.released.all()
            least = 0.999 * PRIVACY.eps_per_m / 80
            assert out.eps_noise[out.hard].min() >= least, "an eighth of an equal part"
            assert (out.kind == "untested").any(), "the control: so little was left"


def test_one_lane_is_planned_with_the_bits_of_many() -> None:
    rng = np.random.default_rng(1)
    at_s = 1.7e9 + rng.uniform(0.0, 3 * DAY_S, 200)

    def some(low: float, high: float) -> Floats:
        drawn = at_s - rng.uniform(low, high, 200)
        drawn[rng.random(200) < 0.1] = np.nan
        return np.asarray(drawn)

    reports = rng.integers(0, 60, 200)
    run = seen(
        200,
        hard_at_s=some(0.0, 2 * DAY_S),
        tested_at_s=some(0.0, 7200.0),
        reports=reports,
        easy=rng.integers(0, reports + 1),
        spent=TOTAL * (1.0 - 10.0 ** rng.uniform(-9.0, 0.0, 200)),
    )
    for budget in (
        PACED,
        replace(PACED, adapt=9.0),
        replace(PACED, reports=40, per_report=0.3),
        replace(PACED, least_eps_noise=TOTAL / 30),
        replace(PACED, quiet=Quiet(time(22), time(7), "Europe/Helsinki")),
        Steady(TOTAL / 9, PACED.tolerance),
    ):
        many = budget(run, at_s)
        for lane in range(200):
            one = budget(run.take([lane]), at_s[lane : lane + 1])
            for alone, together in zip(one[:3], many[:3], strict=True):
                number = np.broadcast_to(np.asarray(together, dtype=np.float64), 200)[lane]
                assert float(np.asarray(alone).reshape(-1)[0]).hex() == float(number).hex()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"window": "none"}, "window that ends"),
        ({"every": 1800}, "timedelta"),
        ({"every": timedelta(0)}, "every"),
        ({"quiet": (time(5), time(5))}, "quiet"),
        ({"quiet": (time(5),)}, "quiet"),
        ({"quiet": time(5)}, "quiet"),
        ({"quiet": ("23:00", "06:00")}, "quiet"),
        ({"quiet": (time(5, tzinfo=UTC), time(6))}, "quiet"),
        ({"accuracy_m": 1.0}, "accuracy"),
        ({"accuracy_m": math.nan}, "accuracy_m"),
        ({"space": "sphere"}, "str"),
    ],
    ids=repr,
)
def test_what_makes_no_whole_day_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises((ParameterError, PartError), match=message):
        whole_day(PRIVACY, **wrong)


def test_whole_day_is_made_of_what_its_name_says() -> None:
    m = whole_day(PRIVACY, window=Day("Europe/Helsinki"))
    assert isinstance(m.decision, NoiseFirst)
    assert isinstance(m.prediction, PlaceMemory)
    assert m.prediction.time_zone == "Europe/Helsinki"
    assert isinstance(m.budget, Paced)
    assert m.budget.total == PRIVACY.eps_per_m
    assert m.private
    assert "each day" in m.guarantee
    assert whole_day(PRIVACY, window=Every(timedelta(hours=6))).window == Every(timedelta(hours=6))


# The presets by name.


def described(**given: Any) -> MechanismSettings:
    return MechanismSettings(level=math.log(10), radius_m=100.0, **given)


def test_every_preset_is_described_and_built() -> None:
    assert set(PRESETS) == set(get_args(Preset))
    for preset in PRESETS:
        m = described(preset=preset).build(window=Day("UTC"))
        assert m.private
        assert m.privacy == PRIVACY
        assert isinstance(m.decision, NoiseFirst) == (preset in NUMBERS)


@pytest.mark.parametrize("window", [None, "none", Day("Asia/Tokyo"), timedelta(hours=9)])
def test_places_get_ever_more_exact_only_where_no_budget_is_renewed(window: Any) -> None:
    by_settings = MechanismSettings(math.log(10.0), 100.0, preset="whole-day", reports=30)
    for m in (by_settings.build(window), whole_day(PRIVACY, reports=30, window=window)):
        assert isinstance(m.prediction, PlaceMemory)
        assert (m.prediction.finest_m == 0.0) == (window == "none")


def test_with_neither_accuracy_nor_reports_the_budget_lasts_the_day() -> None:
    m = described().build(window=Day("UTC"))
    assert m.fingerprint == whole_day(PRIVACY, window=Day("UTC")).fingerprint
    assert described(accuracy_m=3000.0).chosen_preset is None
    assert described(reports=30).chosen_preset is None
    assert described(mechanism="independent", reports=3).chosen_preset is None


def test_numbers_and_quiet_hours_reach_the_mechanism() -> None:
    given = described(quiet="23:00-06:30", every_s=900.0, numbers={"share": 0.25, "reach": 3.0})
    m = given.build(window=Day("Europe/Helsinki"))
    assert isinstance(m.budget, Paced)
    assert isinstance(m.prediction, PlaceMemory)
    assert m.budget.quiet == Quiet(time(23), time(6, 30), "Europe/Helsinki")
    assert m.budget.share == 0.25
    assert m.prediction.reach == m.moves_noise == 3.0
    assert m.budget.per_half_hour > WHOLE_DAY.per_half_hour, "for reports twice as often"


@pytest.mark.parametrize(
    "wrong",
    [
        {"preset": "best"},
        {"preset": "whole-day", "eta": 0.5},
        {"preset": "whole-day", "mechanism": "independent"},
        {"preset": "walker", "reports": 30},
        {"preset": "taxi", "quiet": "23:00-06:00"},
        {"preset": "paper-rate", "accuracy_m": 3000.0},
        {"preset": "paper-utility", "numbers": {"share": 1.0}},
        {"numbers": {"shares": 1.0}},
        {"numbers": {"share": math.nan}},
        {"quiet": "23:00"},
        {"quiet": "23:00-06:00-07:00"},
        {"quiet": "late-early"},
        {"every_s": -1.0},
        {"preset": "whole-day", "reports": -3},
    ],
    ids=repr,
)
def test_settings_that_make_no_preset_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        described(**wrong).build(window=Day("UTC"))


@pytest.mark.parametrize("preset", get_args(Preset))
@pytest.mark.parametrize("every_s", [0.0, -1.0, math.nan, math.inf, 1e-320, 1e300, 10**400, "1h"])
def test_how_often_reports_come_is_checked_for_every_preset(preset: Preset, every_s: Any) -> None:
    with pytest.raises(ParameterError, match="every_s must"):
        described(preset=preset, every_s=every_s).build(window=Day("UTC"))


@pytest.mark.parametrize("preset", ["whole-day", "frequent", "walker", "taxi", "paper-utility"])
def test_an_accuracy_of_0_is_not_taken_for_none(preset: Preset) -> None:
    with pytest.raises(ParameterError, match="accuracy_m must be a finite number above 0"):
        described(preset=preset, accuracy_m=0.0).build(window=Day("UTC"))


@pytest.mark.parametrize("preset", sorted(NUMBERS))
@pytest.mark.parametrize("name", ["share", "more_often", "habit"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e7, -1e7, 10**400, "1", None, True])
def test_numbers_of_a_preset_are_finite_numbers(preset: Preset, name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=f"the number {name} of a preset must lie between"):
        described(preset=preset, numbers={name: value}).build(window=Day("UTC"))


def test_powers_are_kept_from_overflowing() -> None:
    """`more_often` is an exponent: 6 to the power of 100,000 is no number."""
    with pytest.raises(ParameterError, match="more_often of a preset must lie between -10 and 10"):
        described(every_s=300.0, numbers={"more_often": 1e5}).build(window=Day("UTC"))


def test_quiet_hours_are_read_as_they_are_written() -> None:
    assert parse_quiet("23:00-06:30") == (time(23), time(6, 30))
    assert parse_quiet(" 9:00 - 10:00 ".replace(" 9", "09")) == (time(9), time(10))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Helsinki", "Asia/Kathmandu"])
def test_by_night_who_has_settled_is_asked_less_strictly(zone: str) -> None:
    with_night = whole_day(PRIVACY, window=Day(zone), numbers=replace(WHOLE_DAY, night=4.0)).budget
    without = whole_day(PRIVACY, window=Day(zone), numbers=replace(WHOLE_DAY, night=0.0)).budget
    clock = datetime(2024, 5, 7, tzinfo=ZoneInfo(zone))
    hours = np.arange(24.0)
    at_s = np.array([(clock + timedelta(hours=hour)).timestamp() for hour in hours])
    for stay_s, ratio in ((1e9, 1.0 + 4.0 / (1.0 + WHOLE_DAY.calm)), (1e-6, 1.0)):
        run = Run.empty(24, 2)._replace(hard_at_s=at_s - stay_s, tested_at_s=at_s - 1800.0)
        asked, usual = with_night(run, at_s), without(run, at_s)
        expected = np.where(hours < 6, ratio, 1.0)
        np.testing.assert_allclose(usual.eps_test / asked.eps_test, expected, rtol=1e-4)
        np.testing.assert_array_equal(usual.threshold, asked.threshold)
    # Live, of one lane, it is the same number.
    alone = with_night(
        Run.empty(1, 2)._replace(hard_at_s=at_s[3:4] - 1e9, tested_at_s=at_s[2:3]), at_s[3:4]
    )
    many = with_night(
        Run.empty(2, 2)._replace(hard_at_s=at_s[3:5] - 1e9, tested_at_s=at_s[2:4]), at_s[3:5]
    )
    assert alone.eps_test == np.asarray(many.eps_test)[0]
