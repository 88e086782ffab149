"""Trying to get more out of a paced budget than it holds, or two answers for one time."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import select

from hereish.core.types import Kind
from hereish.gateway.admin import accounts
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix, LedgerRelease
from hereish.gateway.ledger.tables import entries
from hereish.gateway.ledger.tokens import PresentedToken
from hereish.gateway.ledger.transaction import FixAnswer
from tests.support.ledgers import DAY_S, NOON_S, empty_ledger
from tests.support.stage import HELSINKI, member, policy, shown

FAR = (-60.17, -155.06)  # about as far away as one can be
TOTAL = math.log(10) / 100.0
HALF_HOUR_S = 1800.0
LASTING: dict[str, Any] = {"preset": "whole-day", "interval_s": HALF_HOUR_S}
QUIET: dict[str, Any] = LASTING | {"quiet": "23:00-06:00", "time_zone": "Europe/Helsinki"}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with empty_ledger(tmp_path) as opened:
        yield opened


def asked(ledger: Ledger, token: PresentedToken, fixes: Sequence[Fix]) -> list[FixAnswer]:
    return ledger.report(token, fixes, now_s=max(fix.at_s for fix in fixes)).answers


def places(ledger: Ledger, token: PresentedToken, fixes: Sequence[Fix]) -> list[Any]:
    """What is released for these times; kinds and costs are those of each answer."""
    found: list[LedgerRelease | None] = [one.release for one in asked(ledger, token, fixes)]
    return [None if one is None else (one.lat, one.lon) for one in found]


def costs_by_window(ledger: Ledger) -> dict[int, float]:
    costs: dict[int, list[float]] = defaultdict(list)
    with ledger.database.reading() as tx:
        for window, cost in tx.execute(select(entries.c.window, entries.c.cost)):
            costs[window].append(cost)
    return {window: math.fsum(each) for window, each in costs.items()}


def kinds(ledger: Ledger) -> list[str]:
    with ledger.database.reading() as tx:
        return [Kind(kind) for kind in tx.execute(select(entries.c.kind)).scalars()]


@pytest.mark.parametrize("preset", ["whole-day", "frequent"])
def test_who_jumps_across_the_world_every_ten_seconds_neither_ends_it_nor_passes_it(
    ledger: Ledger, preset: str
) -> None:
    token = shown(member(ledger, preset=preset, interval_s=0.0))
    first_s = NOON_S + 0.5 * DAY_S  # a midnight
    steps = int(DAY_S / 10.0)
    for begin in range(0, steps, 1000):
        times = [first_s + 10.0 * i for i in range(begin, min(begin + 1000, steps))]
        asked(ledger, token, [Fix(*(HELSINKI, FAR)[i % 2], t) for i, t in enumerate(times)])
    [cost] = costs_by_window(ledger).values()
    assert 0.5 * TOTAL < cost <= TOTAL
    assert len(kinds(ledger)) == steps
    assert Kind.NONE not in kinds(ledger)


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("Europe/Helsinki", (2025, 3, 29)),  # 23 hours
        ("Europe/Helsinki", (2025, 10, 25)),  # 25 hours
        ("Asia/Beirut", (2025, 3, 29)),  # a midnight that is skipped
        ("Asia/Beirut", (2025, 10, 25)),  # a clock that is set back over midnight
        ("America/Havana", (2025, 11, 1)),  # a midnight that comes twice
    ],
)
def test_days_on_which_clocks_are_set_have_one_budget_each(
    ledger: Ledger, zone: str, day: tuple[int, int, int]
) -> None:
    settings = LASTING | {"interval_s": 600.0, "time_zone": zone, "quiet": "23:30-00:45"}
    token = shown(member(ledger, **settings))
    first_s = datetime(*day, tzinfo=ZoneInfo(zone)).timestamp()
    rng = random.Random(1)  # noqa: S311  # places, not secrets
    fixes = [
        Fix(HELSINKI[0] + rng.gauss(0.0, 1.0), HELSINKI[1], first_s + 600.0 * i)
        for i in range(3 * 144)
    ]
    before = [asked(ledger, token, [fix])[0].release for fix in fixes]
    costs = costs_by_window(ledger)
    assert len(costs) in (3, 4)
    assert max(costs.values()) <= TOTAL
    assert Kind.NONE not in kinds(ledger)
    # And every time has one answer for ever, wherever somebody says that they were then.
    again = list(range(len(fixes)))
    rng.shuffle(again)
    for i in again[:60]:
        [answer] = asked(ledger, token, [fixes[i]._replace(lat=0.0, lon=0.0)])
        assert answer.release == before[i]
    assert costs_by_window(ledger) == costs


def test_a_clock_that_is_set_back_over_midnight_gets_no_second_budget(ledger: Ledger) -> None:
    token = shown(member(ledger, **LASTING))
    midnight_s = NOON_S + 0.5 * DAY_S
    evening = [Fix(*HELSINKI, midnight_s - 6 * 3600 + HALF_HOUR_S * i) for i in range(12)]
    night = [Fix(*FAR, midnight_s + HALF_HOUR_S * i) for i in range(4)]
    first = places(ledger, token, evening) + places(ledger, token, night)
    costs = costs_by_window(ledger)
    late = [Fix(*FAR, fix.at_s + 60.0) for fix in evening]
    answers = asked(ledger, token, late)
    assert {answer.outcome for answer in answers} == {"late"}
    assert [(a.release.lat, a.release.lon) for a in answers if a.release] == first[:12]
    assert {(a.release.kind, a.release.cost) for a in answers if a.release} == {
        (Kind.UNTESTED, 0.0)
    }
    assert costs_by_window(ledger) == costs


def test_a_batch_in_any_order_is_what_it_is_in_the_order_of_time(ledger: Ledger) -> None:
    """Of two users with the same batch, one shuffled: the same times have releases of their own."""
    rng = random.Random(2)  # noqa: S311  # an order, not a secret
    fixes = [Fix(*(HELSINKI, FAR)[i // 50 % 2], NOON_S + 300.0 * i) for i in range(100)]
    shuffled = rng.sample(fixes, len(fixes))
    owned = []
    for name, batch in (("alice", fixes), ("bob", shuffled)):
        token = shown(member(ledger, name, **LASTING))
        answers = asked(ledger, token, batch)
        pairs = zip(batch, answers, strict=True)
        owned.append(sorted(fix.at_s for fix, answer in pairs if answer.own))
        assert places(ledger, token, batch) == [
            answer.release and (answer.release.lat, answer.release.lon) for answer in answers
        ]
    assert owned[0] == owned[1] == [NOON_S + HALF_HOUR_S * i for i in range(17)]


def test_quiet_hours_repeat_the_guess_for_free(ledger: Ledger) -> None:
    token = shown(member(ledger, **QUIET))
    evening_s = datetime(2025, 11, 3, 22, 0, tzinfo=ZoneInfo("Europe/Helsinki")).timestamp()
    known = asked(ledger, token, [Fix(*HELSINKI, evening_s)])[0].release
    assert known is not None
    spent = costs_by_window(ledger)
    for hour in range(1, 8):  # 23:00 to 05:00 of the next day
        for place in (HELSINKI, FAR):  # far away, too: nobody looks
            fix = Fix(*place, evening_s + hour * 3600.0 + (1800.0 if place is FAR else 0.0))
            answer = asked(ledger, token, [fix])[0]
            assert answer.own
            release = answer.release
            assert release is not None
            assert (release.lat, release.lon) == (known.lat, known.lon)
            assert (release.kind, release.cost) == (Kind.UNTESTED, 0.0)
            assert release.accuracy_m == known.accuracy_m
            assert release.threshold_m is None
    nightly = costs_by_window(ledger)
    assert nightly == spent | dict.fromkeys(nightly.keys() - spent.keys(), 0.0)
    # At six o'clock somebody is looked for again; far away the guess does not do.
    morning = asked(ledger, token, [Fix(*FAR, evening_s + 8 * 3600.0)])[0].release
    assert morning is not None
    assert morning.kind is Kind.HARD
    assert morning.cost > 0.0


def test_in_quiet_hours_the_first_report_ever_is_noise(ledger: Ledger) -> None:
    """There is no guess to repeat, and a new user should not be silent until the morning."""
    token = shown(member(ledger, **QUIET))
    night_s = datetime(2025, 11, 3, 23, 30, tzinfo=ZoneInfo("Europe/Helsinki")).timestamp()
    first, second = asked(
        ledger, token, [Fix(*HELSINKI, night_s), Fix(*FAR, night_s + HALF_HOUR_S)]
    )
    assert first.release is not None
    assert second.release is not None
    assert (first.release.kind, second.release.kind) == (Kind.HARD, Kind.UNTESTED)
    assert 0.0 < first.release.cost <= TOTAL
    assert (second.release.lat, second.release.lon) == (first.release.lat, first.release.lon)


def test_a_change_of_quiet_hours_waits_for_midnight(ledger: Ledger) -> None:
    token = shown(member(ledger, **QUIET | {"time_zone": "UTC"}))
    day_s = datetime(2025, 11, 3, tzinfo=UTC).timestamp()
    asked(ledger, token, [Fix(*HELSINKI, day_s + 12 * 3600.0)])
    accounts.set_policy(ledger, "alice", policy(**LASTING))
    quiet = asked(ledger, token, [Fix(*FAR, day_s + 23.5 * 3600.0)])[0].release
    asked_for = asked(ledger, token, [Fix(*FAR, day_s + 24.5 * 3600.0)])[0].release
    assert quiet is not None
    assert asked_for is not None
    assert (quiet.kind, asked_for.kind) == (Kind.UNTESTED, Kind.HARD)
    assert max(costs_by_window(ledger).values()) <= TOTAL
