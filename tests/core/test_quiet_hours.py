"""Quiet hours are those of the local clock, also on days on which it is set."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hereish import Quiet
from hereish.errors import ParameterError, PointError

ZONES = ("Europe/Helsinki", "America/St_Johns", "Asia/Kolkata", "UTC")
DAYS = ((2025, 3, 30), (2025, 10, 26), (2025, 3, 9), (2025, 11, 2), (2025, 6, 3))


def _moment_s(day: tuple[int, int, int], clock: time, zone: str) -> float:
    return datetime.combine(datetime(*day), clock, tzinfo=ZoneInfo(zone)).timestamp()  # noqa: DTZ001  # the date alone


def _shown(at_s: float, zone: str) -> time:
    return datetime.fromtimestamp(at_s, ZoneInfo(zone)).time()


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "hours", [(time(23), time(6, 30)), (time(12), time(14)), (time(0), time(5))]
)
def test_they_are_those_that_the_clock_shows(zone: str, hours: tuple[time, time]) -> None:
    begins, ends = hours
    quiet = Quiet(begins, ends, zone)
    for day in DAYS:
        noon_s = _moment_s(day, time(12), zone)
        at_s = noon_s + np.arange(-86400.0, 86400.0, 60.0)
        shown = [_shown(each, zone) for each in at_s.tolist()]
        if begins < ends:
            expected = [begins <= clock < ends for clock in shown]
        else:
            expected = [clock >= begins or clock < ends for clock in shown]
        assert quiet.covers(at_s).tolist() == expected


@given(
    st.integers(0, 10 * 86400),
    st.integers(0, 20 * 86400),
    st.sampled_from(ZONES),
    st.sampled_from([(time(23), time(6, 30)), (time(12), time(14)), (time(6), time(5, 59))]),
)
def test_the_rest_of_the_time_is_awake(
    start: int, ahead: int, zone: str, hours: tuple[time, time]
) -> None:
    quiet = Quiet(*hours, zone)
    from_s = _moment_s((2025, 3, 25), time(0), zone) + start
    at_s = np.array([from_s])
    until_s = at_s + ahead
    step_s = 60.0
    middles_s = from_s + step_s * (np.arange(ahead // step_s) + 0.5)
    counted_s = step_s * np.count_nonzero(~quiet.covers(middles_s)) if len(middles_s) else 0.0
    # A minute in which quiet hours begin or end, and the last one, count in part.
    assert abs(quiet.awake_s(at_s, until_s)[0] - counted_s) <= step_s * (2 + 2 * ahead / 86400)


def test_hours_that_begin_and_end_together_and_times_of_no_year_are_refused() -> None:
    with pytest.raises(ParameterError, match="must not begin and end"):
        Quiet(time(7), time(7), "UTC")
    with pytest.raises(ParameterError, match=r"two datetime\.time"):
        Quiet("23:00", time(7), "UTC")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(PointError, match="years 1800 to 2500"):
        Quiet(time(23), time(7), "UTC").covers(np.array([1e12]))
    assert Quiet(time(23), time(7), "UTC").covers(np.empty(0)).shape == (0,)
    week = Quiet(time(23), time(7), "UTC")
    day_s = timedelta(days=1).total_seconds()
    assert week.awake_s(np.zeros(1), np.full(1, 7 * day_s)).tolist() == [7 * 16 * 3600.0]
