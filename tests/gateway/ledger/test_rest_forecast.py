"""What is said of the rest of a budget: from public data, and borne out by days as they come."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from hereish import synthetic
from hereish.core.types import Floats
from hereish.gateway.admin import accounts
from hereish.gateway.ledger import rest_forecast
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.policy import Policy
from hereish.gateway.ledger.rest_forecast import RestForecast
from hereish.gateway.ledger.tokens import PresentedToken
from tests.support.ledgers import DAY_S, empty_ledger
from tests.support.stage import HELSINKI, shown

ZONE = ZoneInfo(synthetic.TIME_ZONE)
MIDNIGHT_S = synthetic.MIDNIGHT_S
HOUR_S = 3600.0
CLOCK_S = np.arange(0.0, DAY_S, 1800.0)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with empty_ledger(tmp_path) as opened:
        yield opened


def of(**settings: Any) -> Policy:
    return Policy(math.log(10), 100.0, time_zone=synthetic.TIME_ZONE, **settings)


def joined(ledger: Ledger, name: str, policy: Policy) -> PresentedToken:
    accounts.add_user(ledger, name, policy)
    return shown(accounts.new_token(ledger, name, "phone"))


def forecast(ledger: Ledger, hour: float, name: str = "alice") -> RestForecast | None:
    return accounts.describe_user(ledger, name, MIDNIGHT_S + hour * HOUR_S).forecast


def clock(at_s: float | None) -> str | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, ZONE).strftime("%H:%M")


def report_until(ledger: Ledger, token: PresentedToken, hour: float, places: Floats) -> None:
    for (lat, lon), after_s in zip(places.tolist(), CLOCK_S.tolist(), strict=True):
        if after_s < hour * HOUR_S:
            at_s = MIDNIGHT_S + after_s
            ledger.report(token, [Fix(lat, lon, at_s)], now_s=at_s)


@pytest.mark.parametrize("hour", [0.0, 9.0, 23.9])
def test_a_paced_budget_lasts_and_nothing_is_simulated(
    ledger: Ledger, hour: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_forecast, "_simulate", None)  # calling it would fail
    token = joined(ledger, "alice", of())
    places = synthetic.whereabouts_on_days(1, 1, 1, CLOCK_S)[0, 0]
    report_until(ledger, token, hour, places)
    ends_s = MIDNIGHT_S + DAY_S
    assert forecast(ledger, hour) == RestForecast(ends_s, ends_s, 1.0, None, None, None)


def test_the_papers_policy_ends_about_noon_and_says_when(ledger: Ledger) -> None:
    token = joined(ledger, "alice", of(accuracy_m=3000.0))
    early = forecast(ledger, 0.0)
    assert early is not None
    assert early.lasts_share == 0.0
    first, typical, last = map(clock, (early.ends_early_s, early.ends_typical_s, early.ends_late_s))
    assert first is not None
    assert last is not None
    assert typical is not None
    assert "09:30" <= first <= typical <= last <= "15:00"
    places = synthetic.whereabouts_on_days(1, 1, 1, CLOCK_S)[0, 0]
    report_until(ledger, token, 24.0, places)
    assert forecast(ledger, 23.9) is None, "nothing is left"
    assert forecast(ledger, 24.5) is not None, "a fresh one"


def test_days_end_when_it_said_they_would(ledger: Ledger) -> None:
    """Of 40 made-up people, seen at eight o'clock, eight in ten are expected to end within the
    span: then fewer than 18 do with a chance of 2e-7. Negative control: the span that is said for
    a policy with twice the noise does not hold as many.
    """
    people = 40
    places = synthetic.whereabouts_on_days(people, 99, 1, CLOCK_S)[:, 0]
    within = wrong = 0
    for person in range(people):
        name = f"person {person}"
        token = joined(ledger, name, of(accuracy_m=3000.0))
        report_until(ledger, token, 8.0, places[person])
        said = forecast(ledger, 8.0, name)
        assert said is not None
        assert said.ends_early_s is not None
        assert said.ends_late_s is not None
        other = joined(ledger, f"other {person}", of(accuracy_m=6000.0))
        report_until(ledger, other, 8.0, places[person])
        else_said = forecast(ledger, 8.0, f"other {person}")
        assert else_said is not None
        for (lat, lon), after_s in zip(places[person].tolist(), CLOCK_S.tolist(), strict=True):
            at_s = MIDNIGHT_S + after_s
            answer = ledger.report(token, [Fix(lat, lon, at_s)], now_s=at_s)
            if answer.answers[0].release is None:
                break
        within += said.ends_early_s <= at_s <= said.ends_late_s
        if else_said.ends_early_s is not None:
            wrong += else_said.ends_early_s <= at_s <= (else_said.ends_late_s or math.inf)
    assert within >= 18
    assert wrong < 18


def test_a_restored_window_that_is_closed_has_no_forecast(ledger: Ledger) -> None:
    joined(ledger, "alice", of(accuracy_m=3000.0))
    with ledger.database.writing() as tx:
        tx.exec_driver_sql("UPDATE users SET closed_s = ?", (MIDNIGHT_S + HOUR_S,))
    assert forecast(ledger, 2.0) is None
    assert forecast(ledger, 25.0) is not None


@pytest.mark.parametrize(
    "settings",
    [
        {"reports": 48},
        {"reports": 30, "mechanism": "independent", "interval_s": 0.0},
        {"preset": "walker", "interval_s": 60.0},
        {"preset": "taxi", "window": "43200"},
        {"preset": "whole-day", "reports": 24, "window": "none"},
        {"preset": "whole-day", "accuracy_m": 1000.0, "quiet": "22:00-06:00"},
        {"preset": "paper-rate"},
        {"accuracy_m": 3000.0, "window": "none", "interval_s": 1.0, "skip_kmh": 30.0},
    ],
)
@pytest.mark.parametrize("reported", [False, True])
def test_every_policy_has_one_whether_or_not_somebody_has_reported(
    ledger: Ledger, settings: dict[str, Any], reported: bool
) -> None:
    token = joined(ledger, "alice", of(**settings))
    if reported:
        at_s = MIDNIGHT_S + 8 * HOUR_S
        ledger.report(token, [Fix(*HELSINKI, at_s)], now_s=at_s)
    said = forecast(ledger, 8.1)
    assert said is not None
    ends = [said.ends_early_s, said.ends_typical_s, said.ends_late_s]
    known = [end for end in ends if end is not None]
    assert known == sorted(known)
    assert ends == known + [None] * (3 - len(known)), "what does not end comes last"
    assert all(MIDNIGHT_S + 8 * HOUR_S <= end <= (said.window_ends_s or math.inf) for end in known)
    assert (said.lasts_share is None) <= (said.looked_until_s != said.window_ends_s)
    if said.lasts_share is not None:
        assert (said.lasts_share > 0.5) == (said.ends_typical_s is None)


def test_many_reports_by_the_clock_are_as_many_as_few(ledger: Ledger) -> None:
    """A preset whose tests are priced by the clock is looked at to the end of its day; a policy of
    the paper's with a report per second is not, and says until when.
    """
    joined(ledger, "alice", of(preset="walker", interval_s=1.0))
    walker = forecast(ledger, 0.0)
    assert walker is not None
    assert walker.looked_until_s == walker.window_ends_s
    assert walker.lasts_share is not None
    joined(ledger, "bob", of(reports=5000, interval_s=1.0))
    paper = forecast(ledger, 0.0, "bob")
    assert paper is not None
    assert paper.lasts_share is None
    assert paper.looked_until_s == MIDNIGHT_S + 480.0


def test_a_clock_that_was_set_back_over_midnight_breaks_nothing(ledger: Ledger) -> None:
    token = joined(ledger, "alice", of(accuracy_m=3000.0))
    at_s = MIDNIGHT_S + DAY_S + HOUR_S
    ledger.report(token, [Fix(*HELSINKI, at_s)], now_s=at_s)
    said = forecast(ledger, 22.0)
    assert said is not None
    assert said.ends_typical_s is None, "no report comes before that of tomorrow"


def test_it_does_not_look_at_places(ledger: Ledger) -> None:
    """Two users who differ in where they are, and in nothing else that is public."""
    rest = []
    for name, place in (("alice", HELSINKI), ("bob", (-33.9, 151.2))):
        token = joined(ledger, name, of(accuracy_m=3000.0))
        at_s = MIDNIGHT_S + 8 * HOUR_S
        ledger.report(token, [Fix(*place, at_s)], now_s=at_s)
        rest.append(forecast(ledger, 8.1, name))
    assert rest[0] == rest[1]


def test_whoever_asks_often_is_answered_from_memory(ledger: Ledger) -> None:
    token = joined(ledger, "alice", of(accuracy_m=3000.0))
    at_s = MIDNIGHT_S + 8 * HOUR_S
    ledger.report(token, [Fix(*HELSINKI, at_s)], now_s=at_s)
    before = rest_forecast._simulate.cache_info()
    for i in range(20):
        forecast(ledger, 8.0 + i / 3600.0)
    after = rest_forecast._simulate.cache_info()
    assert after.misses - before.misses <= 1
