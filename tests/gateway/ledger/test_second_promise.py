"""The ledger's second promise: of what a window has released, and only where that is all of it."""

from __future__ import annotations

import asyncio
import json
import math
import time
from pathlib import Path

import httpx
import pytest

import hereish
from hereish.client.responses import parse_body, parse_budget
from hereish.core.accounting import FixedPlan, planar_loss, second_promise
from hereish.gateway.admin import accounts
from hereish.gateway.http.app import create_app
from hereish.gateway.ledger.budget_status import SecondStatus
from hereish.gateway.ledger.jobs import LedgerJob
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.traces.job_budget import UserWindow
from tests.support.ledgers import DAY_S, NOON_S
from tests.support.stage import HELSINKI, member, paths_in, shown

EACH = math.log(10) / 30


def of(ledger: Ledger, at_s: float, name: str = "alice") -> SecondStatus | None:
    return accounts.describe_user(ledger, name, at_s).second


def test_it_is_of_what_was_released_and_of_all_that_can_be(ledger: Ledger) -> None:
    token = shown(member(ledger, reports=30, mechanism="independent", window="day"))
    levels = []
    for report in range(4):
        found = of(ledger, NOON_S)
        assert found is not None
        assert found.promise.factor == pytest.approx(3.42, abs=0.01)
        assert "chosen before anything was released" in found.promise.statement
        plain = FixedPlan((EACH,) * report, planar_loss).level() if report else 0.0
        assert found.level_so_far == pytest.approx(plain, abs=1e-5)
        assert found.level_so_far <= report * EACH
        levels.append(found.level_so_far)
        at_s = NOON_S - 100.0 + 10.0 * report
        ledger.report(token, [Fix(*HELSINKI, at_s)], now_s=at_s)
    assert levels == sorted(set(levels)), "more reports lose more"
    tomorrow = of(ledger, NOON_S + DAY_S)
    assert tomorrow is not None
    assert tomorrow.level_so_far == 0.0, "a window of its own"


def test_when_the_budget_is_spent_it_is_that_of_the_plan(ledger: Ledger) -> None:
    token = shown(member(ledger, reports=12, mechanism="independent", on_exhausted="predict"))
    for report in range(15):  # the last ones repeat a release, and cost nothing
        at_s = NOON_S - 300.0 + 10.0 * report
        ledger.report(token, [Fix(*HELSINKI, at_s)], now_s=at_s)
    assert accounts.describe_user(ledger, "alice", NOON_S).budget.reports == 15
    found = of(ledger, NOON_S)
    promised = second_promise(hereish.independent(hereish.Privacy(math.log(10), 100), reports=12))
    assert found is not None
    assert promised is not None
    assert found.level_so_far == found.promise.level == promised.level


def test_costs_that_follow_from_outcomes_have_none(ledger: Ledger) -> None:
    for name, settings in (("alice", {"reports": 30}), ("bob", {"preset": "whole-day"})):
        member(ledger, name, **settings)
        assert of(ledger, NOON_S, name) is None


def test_where_jobs_release_from_the_same_budget_there_is_none(ledger: Ledger) -> None:
    token = shown(member(ledger, reports=30, mechanism="independent", window="none"))
    ledger.report(token, [Fix(*HELSINKI, NOON_S)], now_s=NOON_S)
    assert of(ledger, NOON_S) is not None
    for_ever = hereish.fixed_utility(hereish.Privacy(math.log(10), 100), 3000.0)
    job = LedgerJob.begin(ledger, "all", for_ever)
    job.reserve([UserWindow("alice", 0, NOON_S + DAY_S)])
    assert of(ledger, NOON_S) is None
    job.settle([])
    assert of(ledger, NOON_S) is not None, "the job has released nothing"


def test_a_run_that_has_spent_something_else_has_none(ledger: Ledger) -> None:
    member(ledger, reports=30, mechanism="independent")
    with ledger.database.reading() as tx:
        state = ledger.policies.load_state(tx, accounts.require_user(tx, "alice"))
    m, run = state.policy.mechanism, state.session.run
    budget = state.budget_at(NOON_S)
    assert SecondStatus.of(m, run, budget) is not None
    assert SecondStatus.of(m, run, budget._replace(spent=m.bound.quantum)) is None
    assert SecondStatus.of(m, run, budget._replace(closed=True)) is None


async def _ask_for_budget(ledger: Ledger, token: str) -> httpx.Response:
    app = create_app(ledger)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://gateway") as client,
    ):
        return await client.get("/v1/budget", headers={"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize("independent", [True, False])
def test_clients_are_told(tmp_path: Path, independent: bool) -> None:
    ledger = Ledger.open(paths_in(tmp_path))  # closed by the gateway
    kind = "independent" if independent else "predictive"
    token = member(ledger, reports=30, mechanism=kind)
    at_s = time.time() - 5.0
    ledger.report(shown(token), [Fix(*HELSINKI, at_s)], now_s=at_s)
    answer = asyncio.run(_ask_for_budget(ledger, token))
    assert answer.status_code == 200
    budget = parse_body(answer.content, parse_budget)
    assert "at most 10 times" in budget.guarantee, "never in its place"
    second = budget.second_promise
    assert (second is not None) == independent
    if second is not None:
        assert second.level_so_far == pytest.approx(EACH, abs=0.01)
        assert second.level == pytest.approx(math.log(3.42), abs=0.01)
        assert second.delta == 1e-6
        assert "3.42 times" in second.statement
    older = json.loads(answer.content)
    del older["second_promise"]
    assert parse_body(json.dumps(older).encode(), parse_budget).second_promise is None
