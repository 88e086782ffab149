"""The ledger on real databases: what is paid, what is free, and what stays the same for ever."""

from __future__ import annotations

import math
import threading

import pytest
from sqlalchemy import func, select

from hereish.gateway.admin import accounts
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.queries import TokenRefusedError
from hereish.gateway.ledger.tables import entries, outbox, receipts
from hereish.gateway.ledger.transaction import AHEAD_S, ReportResponse
from tests.support.ledgers import DAY_S, NOON_S, count_entries
from tests.support.stage import HELSINKI, member, shown


def at(seconds: float, place: tuple[float, float] = HELSINKI, name: str | None = None) -> Fix:
    return Fix(*place, NOON_S + seconds, name)


def only(reported: ReportResponse) -> tuple[float, float, str, float] | None:
    [answer] = reported.answers
    if answer.release is None:
        return None
    release = answer.release
    return release.lat, release.lon, release.kind, release.cost


def test_a_report_is_paid_and_written_before_it_is_answered(ledger: Ledger) -> None:
    token = shown(member(ledger))
    reported = ledger.report(token, [at(0)])
    [answer] = reported.answers
    assert answer.own
    assert answer.release is not None
    assert answer.release.kind == "hard"
    with ledger.database.reading() as tx:
        row = tx.execute(select(entries)).one()
    assert (row.lat, row.lon, row.cost) == (
        answer.release.lat,
        answer.release.lon,
        answer.release.cost,
    )
    assert reported.budget.spent == row.cost > 0
    assert ledger.mark.value() == row.id


def test_the_same_report_sent_again_gets_the_same_release_and_costs_nothing(ledger: Ledger) -> None:
    token = shown(member(ledger))
    first = ledger.report(token, [at(0)])
    for later in (at(0), at(600), at(0), at(300)):
        ledger.report(token, [later])
    again = ledger.report(token, [at(0)])
    assert again.answers[0].release == first.answers[0].release
    assert again.answers[0].own
    assert count_entries(ledger) == 2


def test_whether_a_place_is_the_one_of_a_release_is_told_nobody(ledger: Ledger) -> None:
    token = shown(member(ledger))
    true = ledger.report(token, [at(0)])
    guessed = ledger.report(token, [at(0, (61.0, 25.0))])
    assert guessed == true._replace(answers=guessed.answers)
    for one, other in zip(guessed.answers, ledger.report(token, [at(0)]).answers, strict=True):
        assert one == other  # in every field: else a guess could be tried out
    assert count_entries(ledger) == 1


def test_another_device_at_the_same_time_is_not_the_same_report(ledger: Ledger) -> None:
    token = shown(member(ledger))
    tablet = shown(accounts.new_token(ledger, "alice", "tablet"))
    ledger.report(token, [at(0)])
    [answer] = ledger.report(tablet, [at(0)]).answers
    assert not answer.own
    assert answer.release is not None
    assert (answer.release.kind, answer.release.cost) == ("untested", 0.0)


def test_the_same_id_is_the_same_report_whatever_else_it_says(ledger: Ledger) -> None:
    token = shown(member(ledger))
    first = ledger.report(token, [at(0, name="a")])
    ledger.report(token, [at(60, name="b")])
    again = ledger.report(token, [at(120, (10.0, 10.0), "a")])
    assert again.answers[0].release == first.answers[0].release
    assert count_entries(ledger) == 2


def test_a_free_answer_is_known_again_by_its_time_and_its_id_is_still_paid_once(
    ledger: Ledger,
) -> None:
    token = shown(member(ledger, interval_s=60.0))
    ledger.report(token, [at(0)])
    free = ledger.report(token, [at(10, name="a")])
    ledger.report(token, [at(600)])
    again = ledger.report(token, [at(10, name="a")])
    assert again.answers[0].release == free.answers[0].release
    assert free.answers[0].release is not None
    assert free.answers[0].release.kind == "untested"
    paid = [ledger.report(token, [at(seconds, name="a")]).answers[0] for seconds in (900, 1800)]
    assert [answer.own for answer in paid] == [True, True]
    assert paid[0].release == paid[1].release
    assert count_entries(ledger) == 3


def test_ids_of_two_devices_and_two_users_do_not_meet(ledger: Ledger) -> None:
    phone = shown(member(ledger))
    tablet = shown(accounts.new_token(ledger, "alice", "tablet"))
    bob = shown(member(ledger, "bob"))
    for i, token in enumerate((phone, tablet, bob)):
        assert ledger.report(token, [at(60.0 * i, name="1")]).answers[0].own
    with ledger.database.reading() as tx:
        assert tx.execute(select(func.count()).select_from(receipts)).scalar_one() == 3


def test_what_comes_sooner_than_the_interval_gets_the_last_release_free(ledger: Ledger) -> None:
    token = shown(member(ledger, interval_s=60.0))
    first = only(ledger.report(token, [at(0)]))
    assert first is not None
    for seconds in (1, 30, 59.999):
        assert only(ledger.report(token, [at(seconds, (60.5, 25.5))])) == (
            *first[:2],
            "untested",
            0.0,
        )
    assert count_entries(ledger) == 1
    ledger.report(token, [at(60)])
    assert count_entries(ledger) == 2


def test_a_late_point_gets_the_release_in_force_at_its_time(ledger: Ledger) -> None:
    token = shown(member(ledger))
    places = [(60.0 + i / 10, 25.0) for i in range(3)]
    told = [only(ledger.report(token, [at(600.0 * i, places[i])])) for i in range(3)]
    for i, release in enumerate(told):
        assert release is not None
        late = only(ledger.report(token, [at(600.0 * i + 100, (50.0, 10.0))]))
        if i < 2:
            assert late == (*release[:2], "untested", 0.0)
    assert ledger.report(token, [at(-1)]).answers[0].release is None


def test_a_batch_out_of_order_is_taken_in_the_order_of_time(ledger: Ledger) -> None:
    token = shown(member(ledger))
    fixes = [at(seconds) for seconds in (300, 0, 600, 150, 0)]
    reported = ledger.report(token, fixes)
    assert count_entries(ledger) == 4
    assert reported.answers[1].release == reported.answers[4].release
    for fix, answer in zip(fixes, reported.answers, strict=True):
        assert answer.release is not None
        assert answer.release.at_s == fix.at_s


def test_a_clock_far_ahead_is_not_believed(ledger: Ledger) -> None:
    token = shown(member(ledger))
    ahead = ledger.report(token, [at(AHEAD_S + 1)], now_s=NOON_S)
    assert ahead.answers[0].outcome == "ahead"
    assert ahead.answers[0].release is None
    assert count_entries(ledger) == 0
    assert ledger.report(token, [at(AHEAD_S - 1)], now_s=NOON_S).answers[0].own


def test_the_budget_ends_and_stays_ended_until_the_next_window(ledger: Ledger) -> None:
    token = shown(member(ledger))
    seconds, reported = 0.0, ledger.report(token, [at(0)])
    while reported.answers[0].release is not None:
        seconds += 60
        far = (60.0 + (seconds / 60) % 2, 25.0)
        reported = ledger.report(token, [at(seconds, far)])
        assert seconds < 60 * 60
    ended = count_entries(ledger)
    assert reported.budget.exhausted
    assert reported.budget.spent <= reported.budget.total
    for more in (60, 600, 1200):
        assert ledger.report(token, [at(seconds + more)]).answers[0].release is None
    assert count_entries(ledger) == ended  # it is written once that nothing is left
    fresh = ledger.report(token, [at(DAY_S)])
    assert fresh.answers[0].own
    assert fresh.budget.spent == fresh.answers[0].release.cost  # type: ignore[union-attr]  # there
    late = ledger.report(token, [at(seconds + 5)])
    assert late.answers[0].release is None  # nothing was released then, and that stays so


def test_with_predict_the_last_release_goes_on(ledger: Ledger) -> None:
    token = shown(member(ledger, on_exhausted="predict"))
    last = None
    for i in range(60):
        last = only(ledger.report(token, [at(60.0 * i, (60.0 + i % 2, 25.0))]))
        assert last is not None
    assert last is not None
    assert last[2:] == ("untested", 0.0)


def test_spent_is_the_sum_of_the_costs_and_within_the_budget(ledger: Ledger) -> None:
    token = shown(member(ledger))
    for day in range(3):
        for i in range(40):
            place = (60.0 + (i % 3) / 10, 25.0)
            reported = ledger.report(token, [at(day * DAY_S + 60.0 * i, place)])
    with ledger.database.reading() as tx:
        windows = tx.execute(
            select(entries.c.window, func.sum(entries.c.cost)).group_by(entries.c.window)
        ).all()
    assert len(windows) == 3
    for window, spent in windows:
        assert spent <= math.log(10) / 100
        if window == max(w for w, _ in windows):
            assert spent == reported.budget.spent  # whole quanta: sums are exact


def test_eight_threads_cannot_overspend_one_user(ledger: Ledger) -> None:
    token = shown(member(ledger))
    start = threading.Barrier(8)

    def hammer(number: int) -> None:
        start.wait()
        for i in range(20):
            ledger.report(token, [at(i * 10.0 + number, (60.0 + number / 10, 25.0))])

    threads = [threading.Thread(target=hammer, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ledger.database.reading() as tx:
        found = tx.execute(select(entries).order_by(entries.c.id)).all()
    times = [row.at_s for row in found]
    assert times == sorted(set(times))
    assert 0 < math.fsum(row.cost for row in found) <= math.log(10) / 100


def test_a_revoked_token_a_disabled_user_and_a_wrong_secret_are_refused(ledger: Ledger) -> None:
    text = member(ledger)
    token = shown(text)
    spare = shown(accounts.new_token(ledger, "alice", "tablet"))
    wrong = shown(text[:-8] + ("aaaaaaaa" if text[-8:] != "aaaaaaaa" else "bbbbbbbb"))
    unknown = shown("hereish_" + "0" * 16 + "_" + "a" * 52)
    for bad in (wrong, unknown):
        with pytest.raises(TokenRefusedError):
            ledger.report(bad, [at(0)])
    accounts.revoke_token(ledger, text)
    with pytest.raises(TokenRefusedError):
        ledger.report(token, [at(0)])
    assert ledger.report(spare, [at(0)]).answers[0].own
    accounts.set_disabled(ledger, "alice", True)
    with pytest.raises(TokenRefusedError):
        ledger.read_state(spare)
    accounts.set_disabled(ledger, "alice", False)
    assert ledger.identify(spare).device == "tablet"


def test_history_has_releases_only_newest_first_in_pages(ledger: Ledger) -> None:
    token = shown(member(ledger))
    ledger.report(token, [at(600.0 * i, (60.0 + i % 2, 25.0)) for i in range(60)])
    seen: list[float] = []
    before = None
    while page := ledger.history(token, before, 7):
        seen += [release.at_s for release, _ in page]
        before = seen[-1]
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == count_entries(ledger) - 1  # the last entry says that nothing is left
    assert {device for _, device in ledger.history(token, None, 100)} == {"phone"}


def test_nothing_is_posted_for_those_who_forward_nothing(ledger: Ledger) -> None:
    ledger.report(shown(member(ledger)), [at(0)])
    with ledger.database.reading() as tx:
        assert tx.execute(select(func.count()).select_from(outbox)).scalar_one() == 0
