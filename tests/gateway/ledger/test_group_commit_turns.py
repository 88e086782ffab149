"""Users are served in turn: nobody waits for the whole of somebody else's batch.

The order of service is looked at, never the time: which points shared which transaction.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from hereish.gateway.admin import accounts
from hereish.gateway.ledger.database import LedgerUnavailableError
from hereish.gateway.ledger.group_commit import GroupCommit
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix, ReportRequest
from hereish.gateway.ledger.queries import TokenRefusedError
from hereish.gateway.ledger.tokens import PresentedToken
from hereish.gateway.ledger.transaction import ReportResponse
from tests.support.group_commits import (
    MOST,
    batch,
    make_users,
    serve_all,
    serve_waiting,
    use_one_thread,
    watch_transactions,
)
from tests.support.ledgers import NOON_S, count_entries
from tests.support.stage import HELSINKI, shown


def test_a_report_behind_four_batches_is_in_the_next_transaction(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_one_thread(monkeypatch)
    *heavy, light = make_users(ledger, 5)
    commits = GroupCommit(ledger)
    loop = asyncio.new_event_loop()
    arrived: list[int] = []  # during which transaction each report came

    def meanwhile(number: int) -> None:
        if number in (1, 3, 4, 9, 10):
            arrived.append(number)
            fixes = [Fix(*HELSINKI, NOON_S + 60 * number)]
            asyncio.run_coroutine_threadsafe(commits.report(ReportRequest(light, fixes)), loop)
            in_line = threading.Event()  # set after the report has taken its place
            loop.call_soon_threadsafe(lambda: loop.call_soon(in_line.set))
            assert in_line.wait(20)

    seen = watch_transactions(monkeypatch, meanwhile)

    async def everybody() -> list[ReportResponse]:
        coming = asyncio.gather(*(commits.report(batch(token, 200)) for token in heavy))
        await asyncio.sleep(0)
        commits.start()
        return await coming

    try:
        reported = loop.run_until_complete(everybody())
    finally:
        commits.stop()
        loop.close()
    assert max(sum(points for _, points in one) for one in seen) <= MOST
    served = [number for number, one in enumerate(seen, start=1) if (light, 1) in one]
    assert served == [number + 1 for number in arrived]
    assert len(served) == 5
    assert [len(one.answers) for one in reported] == [200] * 4
    assert count_entries(ledger) == 805


def test_users_have_equal_shares_however_many_tokens_and_requests_they_have(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with eight devices and two batches of each, and one with a single batch."""
    use_one_thread(monkeypatch)
    greedy, modest = make_users(ledger, 2)
    devices = [greedy, *(shown(accounts.new_token(ledger, "user0", f"d{i}")) for i in range(7))]
    accounts.set_primary(ledger, "user0", "d0", silence_s=0.0)  # all of them count
    known = [batch(token, 1) for token in (*devices, modest)]
    requests = [batch(token, 50, NOON_S + 100 * i) for i, token in enumerate(devices * 2, start=1)]
    requests.append(batch(modest, 200, NOON_S + 100))
    seen, _ = serve_waiting(monkeypatch, GroupCommit(ledger), known, requests)
    points = {"greedy": 0, "modest": 0}
    for one in seen:
        for token, number in one:
            points["modest" if token == modest else "greedy"] += number
        if points["modest"] == 200:
            break
    # While both wait they have the same; the first transaction was the greedy one's alone.
    assert abs(points["greedy"] - 200) <= MOST, points
    assert count_entries(ledger) == 1 + 1 + 800 + 200


def test_a_lone_batch_fills_its_transactions(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    [token] = make_users(ledger, 1)
    seen = watch_transactions(monkeypatch)
    [reported] = serve_all(GroupCommit(ledger), [batch(token, 100)])
    assert isinstance(reported, ReportResponse)
    assert [[points for _, points in one] for one in seen] == [[16]] * 6 + [[4]]


def test_points_that_can_release_nothing_new_are_cheap(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A phone sends a point a second and may release one in half an hour: few transactions."""
    [token] = make_users(ledger, 1, interval_s=1800.0)
    seen = watch_transactions(monkeypatch)
    [reported] = serve_all(GroupCommit(ledger), [batch(token, 1000)])
    assert isinstance(reported, ReportResponse)
    assert [len(one.answers) for one in [reported]] == [1000]
    assert len(seen) <= 6
    assert count_entries(ledger) == 1


def test_a_batch_gets_what_it_would_have_got_in_one_piece(ledger: Ledger) -> None:
    """Out of order, some of it twice, some of it too far ahead: the answers are in its order."""
    whole, pieces = make_users(ledger, 2)
    now_s = time.time()
    seconds = [(i * 37) % 100 for i in range(150)]  # each time and then half of them again
    fixes = [Fix(*HELSINKI, now_s - 200 + s) for s in seconds]
    fixes.insert(70, Fix(*HELSINKI, now_s + 3600))
    expected = ledger.report(whole, fixes)
    [found] = serve_all(GroupCommit(ledger), [ReportRequest(pieces, fixes)])
    assert isinstance(found, ReportResponse)
    kinds = [answer.outcome for answer in expected.answers]
    # What is hard and what is easy is a matter of chance; what is new and what is not is none.
    new = {"hard", "easy", "untested"}
    assert [a.outcome in new for a in found.answers] == [kind in new for kind in kinds]
    assert found.answers[70].outcome == "ahead" == kinds[70]
    for fix, answer in zip(fixes, found.answers, strict=True):
        assert answer.outcome == "ahead" or answer.release is not None
        assert answer.release is None or abs(answer.release.at_s - fix.at_s) < 1e-3
    assert found.budget.reports == expected.budget.reports == 100
    assert found.device.user == "user1"


def test_a_batch_that_breaks_off_loses_and_repeats_nothing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    [token] = make_users(ledger, 1)
    request = batch(token, 100)

    def meanwhile(number: int) -> None:
        if number == 3:
            raise LedgerUnavailableError("gone")

    with monkeypatch.context() as breaking:
        watch_transactions(breaking, meanwhile)
        [refused] = serve_all(GroupCommit(ledger), [request])
    assert isinstance(refused, LedgerUnavailableError)
    assert count_entries(ledger) == 32
    spent = ledger.report(token, request.fixes[31:32]).budget.spent
    [reported] = serve_all(GroupCommit(ledger), [request])
    assert isinstance(reported, ReportResponse)
    assert [answer.outcome for answer in reported.answers[:32]] == ["late"] * 31 + ["again"]
    assert count_entries(ledger) == 100
    assert reported.budget.spent > spent


def test_guesses_at_a_secret_do_not_stand_in_the_line_of_its_user(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_one_thread(monkeypatch)
    [token] = make_users(ledger, 1)
    guesses = [batch(PresentedToken(token.id, i.to_bytes(32)), 1) for i in range(300)]
    requests = [*guesses, batch(token, 1, NOON_S + 60)]
    seen, (*refused, reported) = serve_waiting(
        monkeypatch, GroupCommit(ledger), [batch(token, 1)], requests
    )
    assert all(isinstance(one, TokenRefusedError) for one in refused)
    assert isinstance(reported, ReportResponse)
    assert any(token in [who for who, _ in one] for one in seen[:2])


def test_one_user_is_served_by_one_thread_at_a_time(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all threads of PostgreSQL wait for the lock of that user, and nobody else is served."""
    [token] = make_users(ledger, 1)
    under_way: list[int] = []
    most: list[int] = []
    whole = Ledger.report_all

    def report_all(
        self: Ledger, requests: Sequence[ReportRequest]
    ) -> list[ReportResponse | Exception]:
        under_way.append(1)
        most.append(len(under_way))
        time.sleep(0.002)
        try:
            return whole(self, requests)
        finally:
            under_way.pop()

    commits = GroupCommit(ledger)

    async def everybody() -> None:
        commits.start()
        await commits.report(batch(token, 1))
        monkeypatch.setattr(Ledger, "report_all", report_all)
        await asyncio.gather(
            *(commits.report(batch(token, 40, NOON_S + 100 * i)) for i in range(1, 9))
        )

    try:
        asyncio.run(everybody())
    finally:
        commits.stop()
    assert max(most) == 1
    assert count_entries(ledger) == 321


def test_those_who_wait_at_the_end_are_answered(ledger: Ledger) -> None:
    tokens = make_users(ledger, 3)
    commits = GroupCommit(ledger)

    async def everybody() -> list[ReportResponse]:
        coming = asyncio.gather(*(commits.report(batch(token, 100)) for token in tokens))
        await asyncio.sleep(0)
        commits.start()
        await asyncio.to_thread(commits.stop)
        return await coming

    assert [len(one.answers) for one in asyncio.run(everybody())] == [100] * 3
    assert count_entries(ledger) == 300


def test_reports_of_one_user_share_a_transaction_too(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_one_thread(monkeypatch)
    [token] = make_users(ledger, 1)
    requests = [batch(token, 1, NOON_S + i) for i in range(1, 41)]
    seen, told = serve_waiting(monkeypatch, GroupCommit(ledger), [batch(token, 1)], requests)
    assert len(seen) <= 4
    assert [one.answers[0].outcome in {"hard", "easy"} for one in told] == [True] * 40
    assert count_entries(ledger) == 41


def test_what_a_client_sends_stays_in_its_order(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later request of a user does not overtake an earlier batch, or its points would be late."""
    use_one_thread(monkeypatch)
    token, other = make_users(ledger, 2)
    requests = [batch(token, 300, NOON_S + 1), batch(other, 300), batch(token, 1, NOON_S + 900)]
    seen, told = serve_waiting(monkeypatch, GroupCommit(ledger), [batch(token, 1)], requests)
    assert all(isinstance(one, ReportResponse) for one in told)
    mine = [points for one in seen for who, points in one if who == token]
    assert mine[-1] == 1
    assert count_entries(ledger) == 602


def test_a_stranger_stays_in_order_too(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that this process has not seen: its next request comes after its batch."""
    use_one_thread(monkeypatch)
    token, other = make_users(ledger, 2)
    requests = [batch(token, 100), batch(token, 1, NOON_S + 900), batch(other, 100)]
    told = serve_all(GroupCommit(ledger), requests)
    assert all(isinstance(one, ReportResponse) for one in told)
    assert count_entries(ledger) == 201


def test_a_client_that_goes_away_is_not_in_the_way_of_its_next_request(ledger: Ledger) -> None:
    [token] = make_users(ledger, 1)
    commits = GroupCommit(ledger)

    async def everybody() -> list[ReportResponse]:
        async def gone(request: ReportRequest) -> None:
            waits = asyncio.create_task(commits.report(request))
            await asyncio.sleep(0)
            waits.cancel()

        await gone(batch(token, 40))  # before anybody is served
        commits.start()
        first = await commits.report(batch(token, 1, NOON_S + 100))
        for i in range(20):  # at any moment
            await gone(batch(token, 40, NOON_S + 200 + 50 * i))
            await asyncio.sleep(0.001 * i)
        return [first, await commits.report(batch(token, 1, NOON_S + 9000))]

    try:
        told = asyncio.run(asyncio.wait_for(everybody(), 60))
    finally:
        commits.stop()
    assert [one.answers[0].outcome in {"hard", "easy"} for one in told] == [True, True]


def test_refused_tokens_leave_nothing_behind(ledger: Ledger) -> None:
    [token] = make_users(ledger, 1)
    commits = GroupCommit(ledger)
    guesses = [batch(PresentedToken(token.id, i.to_bytes(32)), 3) for i in range(100)]
    told = serve_all(commits, [*guesses, batch(token, 3)])
    assert sum(isinstance(one, TokenRefusedError) for one in told) == 100
    assert list(commits._queues) == [1]
    assert list(commits._users) == [token.digest]


def test_many_users_with_nothing_new_fill_no_transaction_for_long(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_one_thread(monkeypatch)
    tokens = make_users(ledger, 8, interval_s=1800.0)
    known = [batch(token, 1) for token in tokens]
    requests = [batch(token, 1000, NOON_S + 1) for token in tokens]
    seen, _ = serve_waiting(monkeypatch, GroupCommit(ledger), known, requests)
    assert max(sum(points for _, points in one) for one in seen) <= MOST * 32
    assert count_entries(ledger) == 8
