"""Requests that share a transaction: each gets what it would have got alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from sqlalchemy import func, select

from hereish.gateway.admin import accounts, destinations
from hereish.gateway.ledger.group_commit import GroupCommit
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import EntryRef, Fix, ReportRequest
from hereish.gateway.ledger.queries import TokenRefusedError
from hereish.gateway.ledger.tables import entries, outbox
from hereish.gateway.ledger.tokens import PresentedToken
from hereish.gateway.ledger.transaction import ReportResponse, ReportTransaction
from tests.support.ledgers import NOON_S, count_entries
from tests.support.stage import HELSINKI, member, shown


def request(token: PresentedToken, *seconds: float, name: str | None = None) -> ReportRequest:
    return ReportRequest(token, [Fix(*HELSINKI, NOON_S + at, name) for at in seconds])


def released(outcome: ReportResponse | Exception) -> list[tuple[float, float, str, float] | None]:
    assert isinstance(outcome, ReportResponse)
    releases = [answer.release for answer in outcome.answers]
    return [None if r is None else (r.lat, r.lon, r.kind, r.cost) for r in releases]


def test_several_users_are_answered_and_written_at_once(ledger: Ledger) -> None:
    keys = [shown(member(ledger, f"user{i}")) for i in range(5)]
    outcomes = ledger.report_all([request(key, 0, 60) for key in reversed(keys)])
    assert count_entries(ledger) == 10
    for key, outcome in zip(reversed(keys), outcomes, strict=True):
        assert isinstance(outcome, ReportResponse)
        again = ledger.report(key, request(key, 0, 60).fixes)
        assert released(outcome) == released(again)
        assert outcome.budget == again.budget
    assert count_entries(ledger) == 10


def test_one_user_three_times_is_one_run(ledger: Ledger) -> None:
    key = shown(member(ledger))
    tablet = shown(accounts.new_token(ledger, "alice", "tablet"))
    accounts.set_primary(ledger, "alice", "phone")
    outcomes = ledger.report_all(
        [
            request(key, 0),
            request(key, 0),
            request(tablet, 0),
            request(key, 60),
            request(tablet, 30),
        ]
    )
    assert released(outcomes[0]) == released(outcomes[1])
    first = released(outcomes[0])[0]
    assert first is not None
    assert released(outcomes[2]) == [(*first[:2], "untested", 0.0)]
    assert released(outcomes[4]) == [(*first[:2], "untested", 0.0)]
    assert count_entries(ledger) == 2
    spent = ledger.report(key, request(key, 60).fixes).budget.spent
    with ledger.database.reading() as tx:
        assert tx.execute(select(func.sum(entries.c.cost))).scalar_one() == spent


def test_one_id_three_times_is_paid_once(ledger: Ledger) -> None:
    key = shown(member(ledger))
    outcomes = ledger.report_all([request(key, at, name="a") for at in (0.0, 60.0, 120.0)])
    assert released(outcomes[0]) == released(outcomes[1]) == released(outcomes[2])
    assert count_entries(ledger) == 1


def test_who_is_refused_does_not_disturb_the_others(ledger: Ledger) -> None:
    good = shown(member(ledger))
    bad = shown("hereish_" + "0" * 16 + "_" + "a" * 52)
    wrong = PresentedToken(good.id, bytes(32))
    outcomes = ledger.report_all([request(bad, 0), request(good, 0), request(wrong, 60)])
    assert isinstance(outcomes[0], TokenRefusedError)
    assert isinstance(outcomes[2], TokenRefusedError)
    assert released(outcomes[1])[0] is not None
    assert count_entries(ledger) == 1


def test_trouble_with_one_is_trouble_of_that_one_alone(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [shown(member(ledger, f"user{i}")) for i in range(3)]
    write = ReportTransaction.write

    def broken(self: ReportTransaction) -> EntryRef:
        """Fails after it has written, as a full disk may."""
        newest = write(self)
        if 2 in self._users:
            raise ValueError
        return newest

    monkeypatch.setattr(ReportTransaction, "write", broken)
    outcomes = ledger.report_all([request(key, 0) for key in keys])
    assert isinstance(outcomes[1], ValueError)
    assert released(outcomes[0])[0] is not None
    assert released(outcomes[2])[0] is not None
    assert count_entries(ledger) == 2


def test_what_is_forwarded_goes_into_the_outbox_with_it(ledger: Ledger) -> None:
    keys = [shown(member(ledger, f"user{i}")) for i in range(3)]
    destinations.add_destination(ledger, "user1", "http://127.0.0.1:9/", "overland")
    ledger.report_all([request(key, 0, 60) for key in keys])
    with ledger.database.reading() as tx:
        rows = tx.execute(select(outbox.c.at_s).order_by(outbox.c.id)).scalars().all()
    assert rows == [NOON_S, NOON_S + 60]


def test_the_clerk_lets_those_who_wait_go_together(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [shown(member(ledger, f"user{i}")) for i in range(40)]
    sizes: list[int] = []
    whole = Ledger.report_all

    def counted(
        self: Ledger, requests: Sequence[ReportRequest]
    ) -> list[ReportResponse | Exception]:
        sizes.append(len(requests))
        return whole(self, requests)

    monkeypatch.setattr(Ledger, "report_all", counted)
    commits = GroupCommit(ledger)

    async def everybody() -> list[ReportResponse | BaseException]:
        wrong = request(shown("hereish_" + "0" * 16 + "_" + "a" * 52), 0)
        coming = [commits.report(one) for one in (wrong, *(request(key, 0) for key in keys))]
        started = asyncio.gather(*coming, return_exceptions=True)
        await asyncio.sleep(0)  # all of them stand in line
        commits.start()
        return await started

    outcomes = asyncio.run(everybody())
    commits.stop()
    assert isinstance(outcomes[0], TokenRefusedError)
    assert all(isinstance(outcome, ReportResponse) for outcome in outcomes[1:])
    assert sum(sizes) == 41
    assert max(sizes) > 1
    assert max(sizes) <= 32
    assert count_entries(ledger) == 40
