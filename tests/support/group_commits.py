"""Users with endless budgets, and which of their requests share which transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hereish.gateway.ledger.group_commit import GroupCommit
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix, ReportRequest
from hereish.gateway.ledger.tokens import PresentedToken
from hereish.gateway.ledger.transaction import ReportResponse
from tests.support.ledgers import NOON_S
from tests.support.stage import HELSINKI, member, shown

MOST = 32  # points of one transaction, where each may make a release
ENDLESS: dict[str, Any] = {"level": 1e7, "window": "none"}
Transaction = list[tuple[PresentedToken, int]]  # whose, and how many points


def batch(token: PresentedToken, points: int, start_s: float = NOON_S) -> ReportRequest:
    return ReportRequest(token, [Fix(*HELSINKI, start_s + i) for i in range(points)], answers=False)


def make_users(ledger: Ledger, number: int, **settings: Any) -> list[PresentedToken]:
    return [shown(member(ledger, f"user{i}", **(ENDLESS | settings))) for i in range(number)]


def watch_transactions(
    monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[int], None] | None = None
) -> list[Transaction]:
    """The transactions as they come. `meanwhile` is called within each, with its number."""
    seen: list[Transaction] = []
    whole = Ledger.report_all

    def report_all(
        self: Ledger, requests: Sequence[ReportRequest]
    ) -> list[ReportResponse | Exception]:
        seen.append([(request.token, len(request.fixes)) for request in requests])
        if meanwhile is not None:
            meanwhile(len(seen))
        return whole(self, requests)

    monkeypatch.setattr(Ledger, "report_all", report_all)
    return seen


def serve_waiting(
    monkeypatch: pytest.MonkeyPatch,
    commits: GroupCommit,
    known: Sequence[ReportRequest],
    requests: Sequence[ReportRequest],
) -> tuple[list[Transaction], list[Any]]:
    """How requests are served, and their outcomes, if all wait when the first transaction ends.

    Those in `known` are served one by one before, so that it is known whose the tokens are.
    """
    gate = threading.Event()
    seen = watch_transactions(monkeypatch, lambda _: _assert(gate.wait(20)))

    async def everybody() -> list[ReportResponse | BaseException]:
        gate.set()
        commits.start()
        for one in known:
            await commits.report(one)
        gate.clear()
        seen.clear()
        coming = asyncio.gather(*map(commits.report, requests), return_exceptions=True)
        await asyncio.sleep(0)
        gate.set()
        return await coming

    try:
        return seen, asyncio.run(everybody())
    finally:
        commits.stop()


def _assert(true: bool) -> None:
    assert true


def use_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """On PostgreSQL several transactions run at once; their order is looked at with one."""
    monkeypatch.setattr(
        "hereish.gateway.ledger.group_commit._THREADS", {"sqlite": 1, "postgresql": 1}
    )


def serve_all(
    commits: GroupCommit, requests: Sequence[ReportRequest]
) -> list[ReportResponse | BaseException]:
    """The outcomes of requests that all wait before the first is served."""

    async def everybody() -> list[ReportResponse | BaseException]:
        coming = asyncio.gather(*map(commits.report, requests), return_exceptions=True)
        await asyncio.sleep(0)
        commits.start()
        return await coming

    try:
        return asyncio.run(everybody())
    finally:
        commits.stop()
