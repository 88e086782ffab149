"""The client against a real HTTP server: reports, the budget and history, with both drivers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from hereish import client, lbs
from tests.support.client_driver import (
    BUDGET,
    HERE,
    NOON,
    OK,
    RELEASE,
    TOKEN,
    Driver,
)
from tests.support.scripted_gateway import (
    Act,
    Script,
    answer,
    drop,
    serving,
)


def test_a_report_is_sent_once_and_read_whole(call: Driver) -> None:
    with serving(script := Script(OK)) as url:
        report = call(url, "report", HERE, at=NOON.astimezone(timezone(timedelta(hours=3))))
    (request,) = script.seen
    assert (request.method, request.path) == ("POST", "/v1/report")
    assert request.token == f"Bearer {TOKEN}"
    assert request.body == {
        "lat": HERE[0],
        "lon": HERE[1],
        "at": "2026-05-05T12:00:00Z",
        "id": request.body["id"],
    }
    assert report.released
    assert (report.lat, report.lon) == report.value == (60.18, 24.95)
    assert (report.kind, report.cost, report.at) == ("easy", 0.001, NOON)
    assert (report.spent, report.remaining) == (0.004, 0.019)
    assert (report.eps_test, report.eps_noise, report.threshold) == (0.001, 0.002, 900.0)
    asked = lbs.query(report, r_m=500)
    assert asked is not None
    assert (asked.lat, asked.lon) == report.value


def test_without_a_time_it_is_now(call: Driver) -> None:
    before = datetime.now(UTC)
    with serving(script := Script(OK)) as url:
        call(url, "report", HERE)
    assert before <= datetime.fromisoformat(script.seen[0].body["at"]) <= datetime.now(UTC)


def test_nothing_released_is_a_report_without_a_place(call: Driver) -> None:
    none = {**RELEASE, "kind": "none", "lat": None, "lon": None, "threshold_m": None}
    with serving(Script(answer(200, none))) as url:
        report = call(url, "report", HERE)
    assert not report.released
    assert report.value is report.lat is report.lon is None
    assert lbs.query(report, r_m=500) is None


def test_a_hard_report_without_a_test_needs_less_than_one_with(call: Driver) -> None:
    tested = {**RELEASE, "kind": "hard"}
    with serving(Script(answer(200, tested), answer(200, {**tested, "threshold_m": None}))) as url:
        with_test, without = (call(url, "report", HERE) for _ in range(2))
    assert without.threshold == float("-inf")
    assert (lbs.reach(without, r_m=1) or 0.0) < (lbs.reach(with_test, r_m=1) or 0.0)


def test_the_budget_is_read_and_newer_fields_do_not_hurt(call: Driver) -> None:
    with serving(script := Script(answer(503, b""), answer(200, BUDGET))) as url:
        budget = call(url, "budget")
    assert (budget.user, budget.device, budget.exhausted) == ("ann", "phone", False)
    assert (budget.spent, budget.remaining, budget.total) == (0.004, 0.019, 0.023)
    assert [request.path for request in script.seen] == ["/v1/budget"] * 2


def page(hours: list[int], following: int | None) -> Act:
    def at(hour: int) -> str:
        return (NOON - timedelta(hours=hour)).isoformat()

    past = {"lat": 60.2, "lon": 24.9, "kind": "hard", "cost": 0.1, "window": "w", "device": "d"}
    rows = [{**past, "at": at(hour)} for hour in hours]
    return answer(200, {"releases": rows, "next": None if following is None else at(following)})


def test_history_goes_through_all_pages(call: Driver) -> None:
    with serving(script := Script(page([0, 1], 1), drop, page([2], 2), page([], None))) as url:
        past = call(url, "history", page_size=2)
    assert [release.at for release in past] == [NOON - timedelta(hours=h) for h in range(3)]
    assert past[0].value == (60.2, 24.9)
    asked = [request.params.get("before") for request in script.seen]
    assert asked == [None, "2026-05-05T11:00:00Z", "2026-05-05T11:00:00Z", "2026-05-05T10:00:00Z"]
    assert all(request.params["limit"] == "2" for request in script.seen)


def test_history_that_does_not_go_back_ends_in_an_error(call: Driver) -> None:
    script = Script(page([0], 1))
    with serving(script) as url, pytest.raises(client.AnswerError, match="back in time"):
        call(url, "history", before=NOON)
    assert len(script.seen) == 2


def test_a_prefix_of_the_address_is_kept(call: Driver) -> None:
    with serving(script := Script(OK)) as url:
        call(f"{url}/private/hereish", "report", HERE)
    assert script.seen[0].path == "/private/hereish/v1/report"
