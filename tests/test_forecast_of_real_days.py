"""Forecasts held against real people: GeoLife's whole days."""

from __future__ import annotations

import dataclasses
import math
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import hereish
from hereish import Day, Every, SkipBySpeed, fixed_rate, fixed_utility, independent
from hereish.core.mechanism import PredictiveMechanism
from hereish.forecast import forecast, lasts_share
from tests.support.paths import GEOLIFE

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
HELSINKI = Day("Europe/Helsinki")
DAY_S = 86400.0


class WholeDay(NamedTuple):
    midnight_s: float
    at_s: NDArray[np.float64]
    points: NDArray[np.float64]


@pytest.fixture(scope="module")
def whole_days() -> list[WholeDay]:
    """At least 8 hours from the first to the last fix of a local day, at most 30 days per user."""
    if not GEOLIFE.exists():
        pytest.skip("the real traces (../shared/data) are not on this machine")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(GEOLIFE, columns=["user", "at", "lat", "lon"])
    user = table["user"].to_numpy().astype(np.int64)
    at_s = table["at"].cast("int64").to_numpy() / 1000.0
    lat, lon = (table[name].cast("float64").to_numpy() for name in ("lat", "lon"))
    known = (np.abs(lat) <= 90) & (np.abs(lon) <= 180)
    user, at_s, lat, lon = (column[known] for column in (user, at_s, lat, lon))
    order = np.lexsort((at_s, user))
    user, at_s, lat, lon = (column[order] for column in (user, at_s, lat, lon))
    starts = np.flatnonzero(np.diff(user, prepend=-1))
    typical = [np.median(part) for part in np.split(lon, starts[1:])]
    ahead_s = 3600.0 * np.round(np.array(typical) / 15.0)  # where they live, roughly
    local_s = at_s + np.repeat(ahead_s, np.diff(starts, append=len(user)))
    day = np.floor(local_s / DAY_S)
    bounds = np.flatnonzero(np.diff(user, prepend=-1) | (np.diff(day, prepend=-1) != 0))
    found: dict[int, list[WholeDay]] = {}
    for begin, end in zip(bounds, [*bounds[1:], len(user)], strict=True):
        theirs = found.setdefault(int(user[begin]), [])
        if at_s[end - 1] - at_s[begin] >= 8 * 3600 and len(theirs) < 30:
            points = np.column_stack([lat[begin:end], lon[begin:end]])
            midnight_s = float(at_s[begin] - local_s[begin] + DAY_S * day[begin])
            theirs.append(WholeDay(midnight_s, at_s[begin:end], points))
    return [one for theirs in found.values() for one in theirs]


def real_ends_s(
    m: PredictiveMechanism, days: list[WholeDay], interval_s: float, *, night: bool
) -> NDArray[np.float64]:
    """How long after the first report the budget of each day was gone; inf if it was not.

    With `night` a phone reports from midnight on, from where the first fix is. Each day is had
    twice, and the second counts: there is a release of the day before to guess from.
    """
    points, times, counts = [], [], []
    for number, (midnight_s, at_s, places) in enumerate(days):
        start_s = midnight_s if night else at_s[0]
        asked_s = np.arange(start_s, midnight_s + DAY_S, interval_s)
        last = np.maximum(np.searchsorted(at_s, asked_s, side="right") - 1, 0)
        points += [places[last]] * 2
        of_day_s = asked_s - midnight_s + 2 * number * DAY_S
        times += [of_day_s, of_day_s + DAY_S]
        counts.append(len(asked_s))
    ends = np.concatenate([[0], np.cumsum(2 * np.array(counts))])
    m = dataclasses.replace(m, window=Every(timedelta(days=1)))
    out = hereish.sanitize(m, np.concatenate(points), np.concatenate(times), ends, seed=5)
    halves = zip(ends[:-1], counts, strict=True)
    made = [int(out.released[begin + count : begin + 2 * count].sum()) for begin, count in halves]
    return np.where(np.array(made) < counts, interval_s * np.array(made), np.inf)


POLICIES = {
    "the README's": (fixed_utility(PRIVACY, 3000), 1800.0),
    "10 minutes": (fixed_utility(PRIVACY, 3000), 600.0),
    "1 km": (fixed_utility(PRIVACY, 1000), 1800.0),
    "5 km": (fixed_utility(PRIVACY, 5000), 1800.0),
    "30 reports": (fixed_rate(PRIVACY, 30), 1800.0),
    "skip": (fixed_utility(PRIVACY, 3000, skip=SkipBySpeed(3)), 1800.0),
    "independent": (independent(PRIVACY, reports=30), 1800.0),
}


@pytest.mark.parametrize("night", [True, False], ids=["from-midnight", "from-first-fix"])
@pytest.mark.parametrize("name", POLICIES)
def test_the_range_holds_the_median_of_real_days_or_is_early(
    whole_days: list[WholeDay], name: str, night: bool
) -> None:
    m, interval_s = POLICIES[name]
    assert len(whole_days) > 1000
    first_s = 0.0
    if not night:  # days that begin when most people's do, so that one forecast is for all of them
        begins_s = np.array([one.at_s[0] - one.midnight_s for one in whole_days])
        morning = np.abs(begins_s - 8 * 3600) < 2 * 3600
        whole_days = [one for one, taken in zip(whole_days, morning, strict=True) if taken]
        first_s = float(np.median(begins_s[morning]))
    real_s = real_ends_s(m, whole_days, interval_s, night=night)
    m = dataclasses.replace(m, window=Day("Asia/Shanghai"))
    found = forecast(m, interval_s, first_report_s=first_s)
    end = found.ends_early
    early_s = math.inf if end is None or end.after_s is None else end.after_s
    median_s = float(np.quantile(real_s, 0.5, method="lower"))
    assert early_s <= median_s, "the budget of a real day is gone before the forecast says"
    assert np.mean(real_s < early_s) < 0.25, "one in ten of the made-up days ends sooner"


@pytest.mark.parametrize(
    ("m", "interval_s"),
    [
        (fixed_utility(PRIVACY, 7000), 1800.0),
        (fixed_utility(PRIVACY, 3000), 5400.0),
        (fixed_rate(PRIVACY, 54), 1800.0),
    ],
    ids=["accuracy", "interval", "reports"],
)
def test_what_is_said_to_last_the_day_lasts_most_real_days(
    whole_days: list[WholeDay], m: PredictiveMechanism, interval_s: float
) -> None:
    said = lasts_share(dataclasses.replace(m, window=Day("Asia/Shanghai")), interval_s)
    assert said is not None
    assert said >= 0.95
    assert np.mean(np.isinf(real_ends_s(m, whole_days, interval_s, night=True))) >= 0.9


def test_a_forecast_of_another_policy_would_not_hold(whole_days: list[WholeDay]) -> None:
    """The control: half the interval, or half the budget, and real days fall out of the range."""
    m, interval_s = POLICIES["the README's"]
    real_s = real_ends_s(m, whole_days, interval_s, night=True)
    median_s = np.quantile(real_s, 0.5, method="lower")
    weaker = hereish.Privacy(level=2 * math.log(10), radius_m=100)
    for wrong, every_s in (
        (dataclasses.replace(m, window=HELSINKI), 2 * interval_s),
        (fixed_utility(weaker, 3000, window=HELSINKI), interval_s),
    ):
        end = forecast(wrong, every_s).ends_early
        assert end is None or end.after_s is None or end.after_s > median_s
