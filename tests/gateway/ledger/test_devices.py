"""Several devices of one user: which of them counts is settled by settings and times alone."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select

from hereish.errors import ParameterError
from hereish.gateway.admin import accounts
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.tables import entries
from hereish.gateway.ledger.tokens import PresentedToken
from hereish.gateway.ledger.transaction import FixAnswer, ReportResponse
from tests.support.stage import member, paths_in, shown

MIDNIGHT_S = 1_762_128_000.0  # 3 November 2025, UTC
HOUR_S, DAY_S = 3600.0, 86_400.0
LONGEST_S = 1.125 * HOUR_S  # of silence, before others count
POCKET, HOME = (60.17, 24.94), (60.45, 22.27)


def both(ledger: Ledger, **settings: Any) -> tuple[PresentedToken, PresentedToken]:
    """A phone, which is the primary device, and a tablet."""
    phone = shown(member(ledger, interval_s=1800.0, **settings))
    tablet = shown(accounts.new_token(ledger, "alice", "tablet"))
    accounts.set_primary(ledger, "alice", "phone")
    return phone, tablet


def sent(
    ledger: Ledger,
    token: PresentedToken,
    now_s: float,
    ahead_s: float = 0.0,
    place: tuple[float, float] = HOME,
) -> FixAnswer:
    reported: ReportResponse = ledger.report(token, [Fix(*place, now_s + ahead_s)], now_s=now_s)
    return reported.answers[0]


def releases(ledger: Ledger) -> Counter[str]:
    with ledger.database.reading() as tx:
        return Counter(
            tx.execute(select(entries.c.device).where(entries.c.kind != "none")).scalars()
        )


@pytest.mark.parametrize("ahead_s", [0.0, 240.0, 299.0])
def test_a_tablet_at_home_does_not_starve_the_phone_in_a_pocket(
    ledger: Ledger, ahead_s: float
) -> None:
    """Whether or not its clock is ahead: it used to win every release of the day."""
    phone, tablet = both(ledger)
    for second in range(0, int(DAY_S), 600):
        now_s = MIDNIGHT_S + second
        sent(ledger, phone, now_s, place=POCKET)
        sent(ledger, tablet, now_s + 1, ahead_s)
    won = releases(ledger)
    assert won["phone"] >= 12
    assert won["tablet"] == 0


def test_the_next_day_begins_with_the_phone_although_nothing_was_left_for_hours(
    ledger: Ledger,
) -> None:
    """That it is there is noted while it is told nothing."""
    phone, tablet = both(ledger, accuracy_m=1000.0)
    for second in range(0, int(1.5 * DAY_S), 600):
        now_s = MIDNIGHT_S + second
        sent(ledger, tablet, now_s, 240.0) if second else None
        sent(ledger, phone, now_s, place=POCKET)
    assert ledger.report(phone, [], now_s=MIDNIGHT_S + DAY_S - 1).budget.reports > 0
    assert releases(ledger)["tablet"] == 0


def test_others_count_when_the_primary_device_is_silent_and_no_longer_when_it_is_back(
    ledger: Ledger,
) -> None:
    phone, tablet = both(ledger)
    assert sent(ledger, phone, MIDNIGHT_S).own
    early = [sent(ledger, tablet, MIDNIGHT_S + minute * 60) for minute in (10, 31, 45, 59)]
    assert [answer.own for answer in early] == [False] * 4
    assert [answer.outcome for answer in early] == ["again", *["other device"] * 3]
    assert sent(ledger, tablet, MIDNIGHT_S + LONGEST_S).own
    assert sent(ledger, tablet, MIDNIGHT_S + 1.65 * HOUR_S).own
    # The phone is back. It waits for the interval like everybody, and then it is its turn.
    assert not sent(ledger, phone, MIDNIGHT_S + 1.7 * HOUR_S).own
    assert not sent(ledger, tablet, MIDNIGHT_S + 2.2 * HOUR_S).own
    assert sent(ledger, phone, MIDNIGHT_S + 2.2 * HOUR_S + 1).own


def test_who_does_not_count_is_told_the_last_release_for_its_own_time_and_for_free(
    ledger: Ledger,
) -> None:
    phone, tablet = both(ledger)
    first = sent(ledger, phone, MIDNIGHT_S, place=POCKET).release
    told = sent(ledger, tablet, MIDNIGHT_S + 2000.0).release
    assert first is not None
    assert told is not None
    assert (told.lat, told.lon, told.at_s) == (first.lat, first.lon, first.at_s)
    assert (told.kind, told.cost) == ("untested", 0.0)
    # Another release may still come for a time before that; both answers are true for ever.
    second = sent(ledger, phone, MIDNIGHT_S + 1900.0, place=POCKET).release
    again = ledger.report(tablet, [Fix(*HOME, MIDNIGHT_S + 2000.0)]).answers[0].release
    assert second is not None
    assert again is not None
    assert (again.lat, again.lon, again.at_s) == (second.lat, second.lon, MIDNIGHT_S + 2000.0)
    assert sent(ledger, phone, MIDNIGHT_S).release == first


def test_who_does_not_count_does_not_later_either(ledger: Ledger) -> None:
    """However often it is sent again: the places of a device that does not count tell nothing."""
    phone, tablet = both(ledger)
    sent(ledger, phone, MIDNIGHT_S)
    fix = Fix(*HOME, MIDNIGHT_S + 3000.0, "a")
    for later_s in (0.0, 60.0, 5 * HOUR_S):
        [answer] = ledger.report(tablet, [fix], now_s=fix.at_s + later_s).answers
        assert not answer.own
    assert releases(ledger) == {"phone": 1}


def test_the_places_decide_nothing(ledger: Ledger) -> None:
    """The same times with other places: the same devices count."""
    rng = random.Random(5)  # noqa: S311  # times and places of a test
    times = [(rng.random() < 0.4, rng.uniform(0, 900), rng.uniform(-600, 290)) for _ in range(150)]

    def counted(name: str) -> list[bool]:
        phone = shown(member(ledger, name, interval_s=600.0, window="3600"))
        tablet = shown(accounts.new_token(ledger, name, "tablet"))
        accounts.set_primary(ledger, name, "phone", silence_s=1200.0)
        now_s, own = MIDNIGHT_S, []
        for is_phone, pause_s, ahead_s in times:
            now_s += pause_s
            place = (rng.uniform(-80, 80), rng.uniform(-170, 170))
            answer = sent(ledger, phone if is_phone else tablet, now_s, ahead_s, place)
            own.append(answer.own or answer.outcome == "none")
        return own

    one, other = counted("ann"), counted("bea")
    assert one == other
    assert 5 < sum(one) < 145


def test_a_batch_of_the_primary_device_that_comes_late_is_answered_from_what_was_released(
    ledger: Ledger,
) -> None:
    phone, tablet = both(ledger)
    sent(ledger, phone, MIDNIGHT_S)
    taken = [sent(ledger, tablet, MIDNIGHT_S + minute * 60) for minute in (68, 98, 128)]
    assert all(answer.own for answer in taken)
    batch = [Fix(*POCKET, MIDNIGHT_S + minute * 60) for minute in range(5, 130, 10)]
    now_s = MIDNIGHT_S + 129 * 60
    late = ledger.report(phone, batch, now_s=now_s).answers
    assert [answer.own for answer in late] == [False] * len(batch)
    assert {answer.release.cost for answer in late if answer.release} == {0.0}
    assert not sent(ledger, tablet, now_s + 1800).own  # the phone is there again
    assert sent(ledger, phone, now_s + 1801).own


def test_a_batch_of_the_primary_device_goes_before_what_others_claimed_meanwhile(
    ledger: Ledger,
) -> None:
    """What a tablet says while it does not count settles no time."""
    phone, tablet = both(ledger)
    sent(ledger, phone, MIDNIGHT_S)
    for minute in range(1, 59):
        sent(ledger, tablet, MIDNIGHT_S + minute * 60, 240.0)
    batch = [Fix(*POCKET, MIDNIGHT_S + minute * 60) for minute in (30, 58)]
    [half, _] = ledger.report(phone, batch, now_s=MIDNIGHT_S + 59 * 60).answers
    assert half.own


def test_a_primary_device_whose_clock_is_behind_or_ahead_does_not_shut_others_out(
    ledger: Ledger,
) -> None:
    phone, tablet = both(ledger)
    sent(ledger, phone, MIDNIGHT_S, -DAY_S)
    assert sent(ledger, tablet, MIDNIGHT_S + 1).own
    for minute in range(5):  # as far ahead as is believed; it counts as heard by our clock
        sent(ledger, phone, MIDNIGHT_S + 7200 + minute * 60, 290.0)
    last_s = MIDNIGHT_S + 7200 + 4 * 60
    assert not sent(ledger, tablet, last_s + HOUR_S - 1).own
    assert sent(ledger, tablet, last_s + LONGEST_S).own


def test_among_others_a_clock_that_is_ahead_does_not_win_either(ledger: Ledger) -> None:
    phone, tablet = both(ledger)
    watch = shown(accounts.new_token(ledger, "alice", "watch"))
    assert accounts.primary_device(ledger, "alice").device == "phone"
    sent(ledger, phone, MIDNIGHT_S)
    rng = random.Random(3)  # noqa: S311  # who is first in a test
    for second in range(7200, int(DAY_S), 120):
        now_s = MIDNIGHT_S + second
        for token in rng.sample((watch, tablet), 2):
            sent(ledger, token, now_s, 240.0 if token is tablet else 0.0)
    won = releases(ledger)
    assert min(won["watch"], won["tablet"]) >= 3, won


def test_the_newest_token_is_primary_unless_a_device_was_chosen(ledger: Ledger) -> None:
    def first() -> str | None:
        return accounts.primary_device(ledger, "alice").device

    phone = member(ledger)
    assert first() == "phone"
    tablet = accounts.new_token(ledger, "alice", "tablet")
    assert first() == "tablet"
    accounts.set_primary(ledger, "alice", "phone")
    watch = accounts.new_token(ledger, "alice", "watch")
    assert first() == "phone"
    renewed = accounts.new_token(ledger, "alice", "phone")
    accounts.revoke_token(ledger, phone)
    assert first() == "phone"  # by its other token
    accounts.revoke_token(ledger, renewed)
    assert first() == "watch"
    accounts.new_token(ledger, "alice", "phone")
    assert first() == "phone"  # it was chosen, and can report again
    accounts.new_token(ledger, "alice", "ring", primary=True)
    assert first() == "ring"
    with pytest.raises(accounts.NotFoundError, match="no device 'shoe'"):
        accounts.set_primary(ledger, "alice", "shoe")
    with pytest.raises(ParameterError, match="between 0 and 30 days"):
        accounts.set_primary(ledger, "alice", "ring", silence_s=-1.0)
    for token in (tablet, watch):
        accounts.revoke_token(ledger, token)
    assert first() == "ring"


def test_a_primary_device_that_was_revoked_holds_nobody_up(ledger: Ledger) -> None:
    text = member(ledger, interval_s=1800.0)
    tablet = shown(accounts.new_token(ledger, "alice", "tablet"))
    accounts.set_primary(ledger, "alice", "phone")
    sent(ledger, shown(text), MIDNIGHT_S)
    assert not sent(ledger, tablet, MIDNIGHT_S + 1900).own
    accounts.revoke_token(ledger, text)
    assert sent(ledger, tablet, MIDNIGHT_S + 1901).own


def test_a_new_primary_device_holds_nobody_up_before_it_reports(ledger: Ledger) -> None:
    phone, _ = both(ledger)
    sent(ledger, phone, MIDNIGHT_S)
    watch = shown(accounts.new_token(ledger, "alice", "watch", primary=True))
    assert sent(ledger, phone, MIDNIGHT_S + 1800).own
    assert not sent(ledger, watch, MIDNIGHT_S + 1801).own
    assert not sent(ledger, phone, MIDNIGHT_S + 3600).own
    assert sent(ledger, watch, MIDNIGHT_S + 3601).own


def test_the_silence_is_a_setting_and_none_lets_all_count_alike(ledger: Ledger) -> None:
    phone, tablet = both(ledger)
    assert accounts.primary_device(ledger, "alice").silence_s == HOUR_S
    accounts.set_primary(ledger, "alice", "phone", silence_s=3 * HOUR_S)
    sent(ledger, phone, MIDNIGHT_S)
    assert not sent(ledger, tablet, MIDNIGHT_S + 3 * HOUR_S - 1).own
    accounts.set_primary(ledger, "alice", "phone", silence_s=0.0)
    assert sent(ledger, tablet, MIDNIGHT_S + 3 * HOUR_S).own
    assert sent(ledger, phone, MIDNIGHT_S + 4 * HOUR_S).own
    member(ledger, "bob", interval_s=7200.0)
    assert accounts.primary_device(ledger, "bob").silence_s == 4 * HOUR_S


def test_that_the_primary_device_is_there_is_seldom_written(ledger: Ledger) -> None:
    """Reports that are free stay so for the disk: at most eight writes in an hour of silence."""
    phone, _ = both(ledger)
    sent(ledger, phone, MIDNIGHT_S)
    writes: list[str] = []

    def noted(*call: object) -> None:
        words = str(call[2])
        if not words.lstrip().upper().startswith(("SELECT", "BEGIN")):
            writes.append(words)

    event.listen(ledger.database.engine, "before_cursor_execute", noted)
    for second in range(1, 1800, 10):
        sent(ledger, phone, MIDNIGHT_S + second)
    assert len(writes) <= 4, writes


def test_devices_that_report_at_once_to_two_processes_do_not_change_whose_turn_it_is(
    ledger: Ledger, tmp_path: Path
) -> None:
    phone, tablet = both(ledger, window="600")
    accounts.set_primary(ledger, "alice", "phone", silence_s=3600.0)
    url = ledger.database.engine.url.render_as_string(hide_password=False)
    other = Ledger.open(paths_in(tmp_path, url))
    sent(ledger, phone, MIDNIGHT_S)
    start = threading.Barrier(4)

    def report(opened: Ledger, token: PresentedToken) -> None:
        start.wait()
        for minute in range(0, 600, 12):
            sent(opened, token, MIDNIGHT_S + 60.0 * minute, 240.0 if token is tablet else 0.0)
            start.wait()  # none of them is ahead by more than a step, so the phone is never silent

    threads = [
        threading.Thread(target=report, args=(opened, token))
        for opened in (ledger, other)
        for token in (phone, tablet)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    won = releases(ledger)
    assert won["tablet"] == 0
    assert won["phone"] > 10
