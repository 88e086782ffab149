"""How long a budget lasts: a forecast from settings alone, held against what really happens."""

from __future__ import annotations

import dataclasses
import math
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pytest

import hereish
from hereish import (
    Day,
    Every,
    NoReset,
    SkipBySpeed,
    fixed_rate,
    fixed_utility,
    independent,
    whole_day,
)
from hereish._made_up_days import ReportSchedule
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.presets import FEW_DAYS, WHOLE_DAY
from hereish.forecast import ORDINARY_DAY, Forecast, forecast, lasts_share, outlook
from hereish.synthetic import whereabouts

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
HELSINKI = Day("Europe/Helsinki")
A_DAY = Every(timedelta(days=1))
HALF_HOUR_S = 1800.0
DAY_S = 86400.0
# Noise of one size, and a decision that draws it first: a hard report costs the noise alone.
TAXI = hereish.MechanismSettings(math.log(10), 100, preset="taxi").build(HELSINKI)


def at(found: Forecast) -> tuple[str | None, ...]:
    """The local times of the ends, from the earliest to the latest."""
    ends = (found.ends_if_every_guess_fails, found.ends_early, found.ends_typical, found.ends_late)
    return tuple(None if end is None else end.at for end in ends)


def test_the_policy_of_the_readme_ends_about_noon() -> None:
    found = forecast(fixed_utility(PRIVACY, 3000, window=HELSINKI), HALF_HOUR_S)
    worst, early, typical, late = at(found)
    assert worst == "06:00"
    assert early is not None
    assert typical is not None
    assert late is not None
    # 18 of 18 ordinary days were seen to end between 10:00 and 13:00.
    assert "09:30" <= early <= "11:00"
    assert "11:30" <= typical <= "13:00"
    assert "13:00" <= late <= "15:00"
    assert found.lasts_share == 0.0
    assert found.time_zone == "Europe/Helsinki"


def reports_if(m: PredictiveMechanism, every_guess: float, interval_s: float) -> int:
    """What a day and its eve make, in a batch whose tests all get this uniform."""
    m = dataclasses.replace(m, window=Every(timedelta(days=1)))
    at_s = interval_s * np.arange(2 * DAY_S / interval_s)
    uniforms = np.full((len(at_s), m.uniforms), 0.5)
    uniforms[:, 0] = every_guess
    points = np.tile([60.17, 24.94], (len(at_s), 1))
    out = hereish.sanitize(m, points, at_s, [0, len(at_s)], uniforms=uniforms)
    return int(out.released[len(at_s) // 2 :].sum())


@pytest.mark.parametrize("interval_s", [600.0, HALF_HOUR_S])
@pytest.mark.parametrize(
    "m",
    [
        fixed_utility(PRIVACY, 3000, window=HELSINKI),
        fixed_utility(PRIVACY, 3000, window=HELSINKI, skip=SkipBySpeed(3)),
        fixed_utility(PRIVACY, 3000, window=HELSINKI, skip=SkipBySpeed(3, 900, "tested")),
        fixed_rate(PRIVACY, 30, window=HELSINKI),
        independent(PRIVACY, reports=20, window=HELSINKI),
        TAXI,
        whole_day(PRIVACY, window=A_DAY, accuracy_m=1500),
        whole_day(PRIVACY, window=A_DAY, reports=30),
        whole_day(PRIVACY, window=A_DAY),
    ],
    ids=[
        *("utility", "skip", "skip-tested", "rate", "independent"),
        *("steady", "paced-accuracy", "paced-reports", "paced"),
    ],
)
def test_the_exact_ends_are_what_is_made(m: PredictiveMechanism, interval_s: float) -> None:
    found = forecast(m, interval_s)
    for end, every_guess in (
        (found.ends_if_every_guess_fails, 1 - 2**-53),
        (found.ends_if_every_guess_passes, 2**-53),
    ):
        made = reports_if(m, every_guess, interval_s)
        expected = None if made == DAY_S / interval_s else made
        assert (end and end.reports) == expected
        if end is not None:
            assert end.after_s == end.reports * interval_s


def test_noise_that_is_drawn_first_is_paid_once() -> None:
    """With a test on top of each noise there would be fewer reports: 15."""
    alone = independent(PRIVACY, accuracy_m=3000, window=HELSINKI)
    even = hereish.steady(PRIVACY, 3000, numbers=hereish.PresetNumbers(settle=0.0), window=HELSINKI)
    end, one = (forecast(m, HALF_HOUR_S).ends_if_every_guess_fails for m in (even, alone))
    assert end is not None
    assert one is not None
    assert end.reports == one.reports == 17
    assert outlook(TAXI).reports_if_all_are_hard is None, "its noise is finer after a long stay"
    expected = outlook(even)
    assert expected.reports_if_all_are_hard == 17
    assert expected.reports_if_all_are_easy is None, "it depends on how often somebody reports"
    assert expected.cost_of_worst == expected.cost_of_noise > expected.cost_of_test > 0.0
    papers = outlook(fixed_utility(PRIVACY, 3000))
    assert papers.cost_of_worst == papers.cost_of_noise + papers.cost_of_test


# More often than once per minute is forecast as that. At one per second the exact end, which is not
# looked at here, would take most of a minute.
@pytest.mark.parametrize("interval_s", [0.0, 20.0, 300.0, HALF_HOUR_S, 6 * 3600.0])
def test_a_paced_budget_lasts_the_day(interval_s: float) -> None:
    found = forecast(whole_day(PRIVACY, window=HELSINKI), interval_s)
    assert found.ends_early is None
    assert found.ends_late is None
    assert found.lasts_share == 1.0
    assert found.looked_ahead == math.ceil(DAY_S / (interval_s or 10.0))
    assert found.ends_if_every_guess_passes is None
    if interval_s >= HALF_HOUR_S:  # more often than it was told, fresh noise uses up the rest
        assert found.ends_if_every_guess_fails is None


def test_a_paced_budget_lasts_a_day_of_seconds() -> None:
    assert lasts_share(whole_day(PRIVACY, window=HELSINKI), 1.0) == 1.0


def test_a_plan_that_changes_has_no_number_of_reports() -> None:
    expected = outlook(whole_day(PRIVACY, window=HELSINKI))
    assert expected.reports_if_all_are_hard is None
    assert expected.reports_if_all_are_easy is None
    assert 0.0 < expected.cost_of_test < expected.cost_of_noise < 0.2


def test_quiet_hours_are_forecast_too() -> None:
    """Nothing is spent in them, so the others are more exact, and the night is repeated.

    By default they hardly are: noise by day is as fine as it may be already.
    """
    hours = (time(23), time(6, 30))
    for numbers, share in ((FEW_DAYS, 0.9), (WHOLE_DAY, 1.0)):
        quiet = whole_day(PRIVACY, window=HELSINKI, quiet=hours, numbers=numbers)
        plain = whole_day(PRIVACY, window=HELSINKI, numbers=numbers)
        assert outlook(quiet).noise_90_m < 0.9 * outlook(plain).noise_90_m
        by_day = [forecast(m, HALF_HOUR_S).error_by_part[2].mean_m for m in (quiet, plain)]
        assert by_day[0] is not None
        assert by_day[1] is not None
        assert by_day[0] < share * by_day[1]
    all_day = whole_day(PRIVACY, window=HELSINKI, quiet=(time(0), time(23, 59)))
    assert 0.0 < outlook(all_day).noise_90_m < math.inf


def test_an_accuracy_that_cannot_be_kept_is_said_to_end() -> None:
    found = forecast(whole_day(PRIVACY, window=HELSINKI, accuracy_m=500), HALF_HOUR_S)
    assert found.lasts_share == 0.0
    assert found.ends_late is not None
    assert found.error.within_90_m is not None
    assert found.error.within_90_m < 700.0, "what it does report is that accurate"
    *_, evening = found.error_by_part
    assert (evening.at, evening.mean_m, evening.within_90_m) == ("18:00", None, None)


def test_errors_are_those_of_the_releases() -> None:
    """Independent noise has a known size, in every part of the day."""
    m = independent(PRIVACY, reports=48, window=HELSINKI)
    found = forecast(m, HALF_HOUR_S)
    expected = outlook(m)
    for part in (found.error, *found.error_by_part):
        assert part.mean_m == pytest.approx(expected.noise_mean_m, rel=0.06)
        assert part.within_90_m == pytest.approx(expected.noise_90_m, rel=0.06)
    assert [part.at for part in found.error_by_part] == ["00:00", "06:00", "12:00", "18:00"]
    assert [part.until_s for part in found.error_by_part] == [21600, 43200, 64800, 86400]
    assert forecast(m, DAY_S).error_by_part == (forecast(m, DAY_S).error,)


def test_remembered_places_are_those_of_days_that_differ() -> None:
    """Whoever goes out to the same places every day would be known too well."""
    schedules = [
        ReportSchedule(m, HALF_HOUR_S, ZoneInfo("Europe/Helsinki"), ORDINARY_DAY, 0.0)
        for m in (whole_day(PRIVACY, window=HELSINKI), fixed_utility(PRIVACY, 3000))
    ]
    noon_s = datetime.combine(ORDINARY_DAY, time(20), ZoneInfo("Europe/Helsinki")).timestamp()
    moments = np.array([noon_s, noon_s + DAY_S])
    moved_m = []
    for schedule in schedules:
        places = schedule._places(100, moments)
        moved_m.append(np.median(hereish.Sphere().distance(places[:, 0], places[:, 1])))
    assert moved_m[0] > 1000.0
    assert moved_m[1] == 0.0


def test_independent_noise_has_one_end() -> None:
    found = forecast(independent(PRIVACY, reports=17, window=HELSINKI), HALF_HOUR_S)
    assert at(found) == ("08:30",) * 4
    assert found.ends_if_every_guess_passes == found.ends_typical
    whole = forecast(independent(PRIVACY, reports=48, window=HELSINKI), HALF_HOUR_S)
    assert at(whole) == (None,) * 4
    assert whole.lasts_share == 1.0


def test_what_lasts_the_day_is_known() -> None:
    for m, interval_s in (
        (fixed_utility(PRIVACY, 7000, window=HELSINKI), HALF_HOUR_S),
        (fixed_utility(PRIVACY, 3000, window=HELSINKI), 5400.0),
        (fixed_rate(PRIVACY, 60, window=HELSINKI), HALF_HOUR_S),
    ):
        found = forecast(m, interval_s)
        assert found.lasts_share is not None
        assert found.lasts_share > 0.95
        assert found.ends_early is None
        assert lasts_share(m, interval_s) == found.lasts_share


def test_what_follows_the_end_does_not_move_it() -> None:
    stops, predicts = (
        forecast(fixed_utility(PRIVACY, 3000, window=HELSINKI, on_exhausted=after), HALF_HOUR_S)
        for after in ("stop", "predict")
    )
    assert stops == predicts


def test_days_on_which_clocks_are_set_have_their_own_length() -> None:
    m = fixed_utility(PRIVACY, 3000, window=HELSINKI)
    long = forecast(m, HALF_HOUR_S, day=date(2025, 10, 26))
    short = forecast(m, HALF_HOUR_S, day=date(2025, 3, 30))
    assert (long.looked_ahead, short.looked_ahead) == (50, 46)
    # Six hours after midnight, when the clock was set back at 4, and on at 3.
    assert (at(long)[0], at(short)[0]) == ("05:00", "07:00")


def test_the_ordinary_day_and_its_eve_have_24_hours_everywhere() -> None:
    for name in available_timezones():
        zone = ZoneInfo(name)
        starts = [
            datetime.combine(ORDINARY_DAY + timedelta(days=n), time(), tzinfo=zone).timestamp()
            for n in (-1, 0, 1)
        ]
        assert np.diff(starts).tolist() == [DAY_S, DAY_S], name


def test_windows_shorter_than_the_interval_last() -> None:
    m = fixed_utility(PRIVACY, 3000, window=Every(timedelta(minutes=10)))
    found = forecast(m, HALF_HOUR_S)
    assert (found.lasts_share, found.looked_ahead) == (1.0, 1)
    assert found.ends_if_every_guess_fails is None


def test_windows_of_hours_are_forecast_in_hours() -> None:
    found = forecast(
        fixed_utility(PRIVACY, 3000, window=Every(timedelta(hours=12))),
        HALF_HOUR_S,
        time_zone="Asia/Tokyo",
    )
    assert found.ends_if_every_guess_fails is not None
    assert found.ends_if_every_guess_fails.after_s == 6 * 3600
    assert found.ends_if_every_guess_fails.at is None, "each window has its own"
    assert found.lasts_share is not None
    assert 0.2 < found.lasts_share < 0.9, "half a day, often"
    tiny = forecast(fixed_utility(PRIVACY, 3000, window=Every(timedelta(minutes=1))), 1.0)
    assert tiny.lasts_share == 0.0


def test_one_budget_for_ever_ends_after_a_number_of_reports() -> None:
    found = forecast(fixed_utility(PRIVACY, 3000, window=NoReset()), HALF_HOUR_S)
    assert found.ends_if_every_guess_fails is not None
    assert found.ends_if_every_guess_fails.reports == 12
    assert found.ends_typical is not None
    assert found.ends_typical.after_s == HALF_HOUR_S * found.ends_typical.reports
    assert 20 <= found.ends_typical.reports <= 28
    more = forecast(fixed_rate(PRIVACY, 5_000, window=NoReset()), HALF_HOUR_S)
    assert more.ends_early is None
    assert more.lasts_share is None, "it was not looked at to its end"
    long = forecast(fixed_rate(PRIVACY, 5_000, window=Every(timedelta(days=900))), HALF_HOUR_S)
    assert long.lasts_share is None


def test_without_an_interval_reports_are_counted() -> None:
    found = forecast(fixed_utility(PRIVACY, 3000, window=HELSINKI), 0.0)
    assert found.lasts_share is None
    assert found.ends_typical is not None
    assert 20 <= found.ends_typical.reports <= 34
    assert (found.ends_typical.at, found.ends_typical.after_s) == (None, None)


def test_an_interval_of_days_and_a_first_report_in_the_morning() -> None:
    m = fixed_utility(PRIVACY, 3000, window=HELSINKI)
    assert forecast(m, 3 * DAY_S).lasts_share == 1.0
    late = forecast(m, HALF_HOUR_S, first_report_s=7.5 * 3600)
    assert late.ends_if_every_guess_fails is not None
    assert late.ends_if_every_guess_fails.at == "13:30"


def test_it_depends_on_settings_alone() -> None:
    m = fixed_utility(PRIVACY, 3000, window=HELSINKI)
    assert forecast(m, HALF_HOUR_S) == forecast(m, HALF_HOUR_S)


def test_what_has_no_days_is_refused() -> None:
    with pytest.raises(hereish.ParameterError, match="latitude and longitude; found Plane"):
        forecast(fixed_utility(PRIVACY, 3000, space=hereish.Plane()), HALF_HOUR_S)
    with pytest.raises(hereish.ParameterError, match="number from 0, found -1"):
        forecast(fixed_utility(PRIVACY, 3000), -1.0)
    with pytest.raises(hereish.ParameterError, match="IANA name"):
        forecast(fixed_utility(PRIVACY, 3000), 60.0, time_zone="Nix")


def test_made_up_people_sleep_at_home_and_go_out() -> None:
    hours = 3600.0 * np.array([0.0, 3.0, 12.0, 23.9])
    places = whereabouts(50, 1, hours)
    assert np.array_equal(places, whereabouts(50, 1, hours))
    assert np.array_equal(places[:, 2:], whereabouts(50, 1, hours[2:])), "at any time"
    sphere = hereish.Sphere()
    assert sphere.distance(places[:, 0], places[:, 1]).max() < 200
    assert sphere.distance(places[:, 0], places[:, 3]).max() < 200
    assert np.median(sphere.distance(places[:, 0], places[:, 2])) > 2000
