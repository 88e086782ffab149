from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import hereish
from hereish.core.types import Floats

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)


def day_of(zone: str, *times: datetime) -> list[date]:
    index = hereish.Day(zone).index(np.array([at.timestamp() for at in times]))
    assert index is not None
    return [date.fromordinal(int(i)) for i in index]


def test_a_day_begins_at_local_midnight_and_not_in_utc() -> None:
    before = datetime(2026, 3, 1, 21, 59, 59, tzinfo=UTC)
    assert day_of("Europe/Helsinki", before, before + timedelta(seconds=1)) == [
        date(2026, 3, 1),
        date(2026, 3, 2),
    ]


@pytest.mark.parametrize(
    ("zone", "first"),
    [
        ("Europe/Helsinki", date(2026, 3, 25)),  # a day of 23 hours
        ("Europe/Helsinki", date(2026, 10, 20)),  # a day of 25 hours
        ("America/Sao_Paulo", date(2018, 11, 1)),  # midnight itself is skipped on the 4th
        ("Pacific/Apia", date(2011, 12, 25)),  # the 30th never happened
        ("Africa/Monrovia", date(1972, 1, 3)),  # a change of 44 minutes and 30 seconds
        ("Asia/Kathmandu", date(2026, 1, 1)),
        ("UTC", date(2026, 1, 1)),
    ],
)
def test_each_instant_has_the_date_that_the_clock_on_the_wall_shows(zone: str, first: date) -> None:
    start = datetime(first.year, first.month, first.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    times = [start + timedelta(minutes=10 * i) for i in range(14 * 144)]
    assert day_of(zone, *times) == [at.astimezone(ZoneInfo(zone)).date() for at in times]


def test_a_date_that_comes_twice_does_not_begin_twice() -> None:
    # In St. John's the clock went from 00:01 back to 23:01: the date fell and rose again.
    start = datetime(2010, 11, 6, 12, tzinfo=UTC)
    index = hereish.Day("America/St_Johns").index(
        np.array([start.timestamp() + 60 * i for i in range(2 * 1440)])
    )
    assert index is not None
    assert (np.diff(index) >= 0).all()
    assert set(np.diff(index)) == {0, 1}
    wall = [
        (start + timedelta(minutes=i)).astimezone(ZoneInfo("America/St_Johns")).date()
        for i in range(2 * 1440)
    ]
    assert any(b < a for a, b in pairwise(wall)), "the case is a real one"


def test_the_table_of_midnights_grows_in_both_directions() -> None:
    times = [datetime(y, 6, 15, 12, tzinfo=UTC) for y in (2026, 1955, 2100, 1990)]
    for at in times:
        assert day_of("Europe/Paris", at) == [at.date()]
    assert day_of("Europe/Paris", *times) == [at.date() for at in times]


def test_times_no_clock_shows_are_refused() -> None:
    with pytest.raises(hereish.PointError, match="1800 to 2500"):
        hereish.Day("UTC").index(np.array([1.8e12]))


def test_every_counts_from_1970_in_utc() -> None:
    index = hereish.Every(timedelta(hours=6)).index(np.array([-1.0, 0.0, 21599.9, 21600.0]))
    assert index is not None
    assert index.tolist() == [-1, 0, 0, 1]


def test_a_new_window_has_a_new_budget_and_keeps_the_public_history() -> None:
    m = hereish.fixed_utility(PRIVACY, accuracy_m=3000, window=hereish.Day("Europe/Helsinki"))
    session = m.session(seed=1)
    at = datetime(2026, 5, 5, 8, tzinfo=ZoneInfo("Europe/Helsinki"))
    with pytest.raises(hereish.BudgetExhaustedError, match="2026-05-05") as refused:
        for i in range(100):
            session.report((60.17, 24.94), at + timedelta(minutes=i))
    assert refused.value.requested > refused.value.remaining
    last = tuple(session.run.value[0])
    assert session.spent > 0.9 * PRIVACY.eps_per_m
    report = session.report((60.17, 24.94), at + timedelta(days=1))
    assert report.covers == "the reports of 2026-05-06 (Europe/Helsinki)"
    assert session.spent == report.cost < PRIVACY.eps_per_m
    assert report.kind == "hard" or report.value == last, "the old release is a guess already"


def test_results_say_what_their_guarantee_covers() -> None:
    assert "all reports" in hereish.fixed_rate(PRIVACY, 30).guarantee
    weekly = hereish.fixed_rate(PRIVACY, 30, window=timedelta(days=7))
    assert "each window of 7 days" in weekly.guarantee
    out = hereish.sanitize(weekly, [(60.0, 25.0)], [0.0], [0, 1])
    assert out.guarantee == weekly.guarantee_for_each("trace")
    assert out.guarantee.startswith("For each trace, the reports of each window of 7 days")
    once = hereish.sanitize(hereish.fixed_rate(PRIVACY, 30), [(60.0, 25.0)] * 2, [0, 0], [0, 1, 2])
    assert once.guarantee.startswith("For each trace, all reports together")
    report = weekly.session().report((60.0, 25.0), datetime(1970, 1, 9, tzinfo=UTC))
    assert report.covers == "the reports of the 7 days, 0:00:00 from 1970-01-08T00:00:00+00:00"


@pytest.mark.parametrize("window", ["day", "weekly", 3])
def test_a_window_that_is_none_is_refused(window: object) -> None:
    with pytest.raises(hereish.HereishError):
        hereish.fixed_rate(PRIVACY, 30, window=window)  # type: ignore[arg-type]


def test_a_zone_that_does_not_exist_is_refused() -> None:
    with pytest.raises(hereish.ParameterError, match="IANA"):
        hereish.Day("Europe/Atlantis")


def test_windows_of_no_length_are_refused() -> None:
    with pytest.raises(hereish.ParameterError):
        hereish.Every(timedelta(0))
    with pytest.raises(hereish.ParameterError, match="timedelta"):
        hereish.Every(60)  # type: ignore[arg-type]


def test_a_refusal_in_a_new_window_does_not_hand_back_the_budget_of_the_old_one() -> None:
    def only_in_the_first_hour(run: hereish.Run, at_s: Floats) -> hereish.Plan:
        return hereish.Plan(0.0, np.where(at_s < 3600.0, 0.5, 5.0), -math.inf)

    m = hereish.PredictiveMechanism(
        hereish.Privacy(1.0, 1.0),
        only_in_the_first_hour,
        hereish.Plane(),
        window=hereish.Every(timedelta(hours=1)),
    )
    session, start = m.session(seed=1), datetime(1970, 1, 1, tzinfo=UTC)
    costs = []
    for hour in (0, 0, 0, 1, 0, 1, 0):
        try:
            costs.append(session.report((0.0, 0.0), start + timedelta(hours=hour)).cost)
        except hereish.BudgetExhaustedError:
            costs.append(0.0)
    assert costs == [0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Helsinki", "America/St_Johns", "Pacific/Apia"])
def test_a_month_is_that_of_the_clock_on_the_wall(zone: str) -> None:
    month = hereish.Month(zone)
    start_s = datetime(2011, 1, 1, tzinfo=UTC).timestamp()
    at_s: Floats = np.asarray(start_s + 3600.0 * np.arange(24 * 400), dtype=np.float64)
    index = month.index(at_s)
    local = [datetime.fromtimestamp(each, tz=ZoneInfo(zone)) for each in at_s.tolist()]
    assert index.tolist() == [12 * each.year + each.month - 1 for each in local]
    starts_s, ends_s = month.start_s(at_s), month.end_s(at_s)
    assert (starts_s <= at_s).all()
    assert (at_s < ends_s).all()
    assert np.array_equal(month.index(starts_s), index)
    assert np.array_equal(month.index(ends_s), index + 1)
    for i in range(0, len(at_s), 97):
        assert month.index(at_s[i : i + 1]) == index[i]


def test_a_month_says_what_it_covers_and_refuses_what_no_clock_shows() -> None:
    month = hereish.Month("Europe/Helsinki")
    assert month.covers() == "the reports of each month (Europe/Helsinki)"
    assert month.covers(12 * 2026 + 1) == "the reports of 2026-02 (Europe/Helsinki)"
    assert month.index(np.empty(0)).tolist() == []
    with pytest.raises(hereish.PointError, match="outside the years 1800 to 2500"):
        month.index(np.array([1e11]))
    with pytest.raises(hereish.ParameterError, match="time zone must be an IANA name"):
        hereish.Month("Nowhere")
