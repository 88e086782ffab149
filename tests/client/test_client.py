"""The client against a real HTTP server that fails in every way we know, with both drivers."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import socket
import traceback
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import hereish
from hereish import client, lbs
from hereish.client.client import _Ask, _Lost, _Pause  # what the flow says, to look at its pauses
from hereish.client.responses import Answer
from tests.support.scripted_gateway import (
    Act,
    Script,
    answer,
    drop,
    echo,
    hang,
    serving,
    stop_halfway,
)

TOKEN = "a-token-that-nobody-may-see"  # noqa: S105  # of no gateway
HERE = (60.1699123, 24.9384567)
SECRETS = (TOKEN, "60.16", "24.93", "1699123", "9384567")
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
RELEASE: dict[str, Any] = {
    "lat": 60.18,
    "lon": 24.95,
    "at": "2026-05-05T12:00:00Z",
    "kind": "easy",
    "cost": 0.001,
    "spent": 0.004,
    "remaining": 0.019,
    "window": "the reports of 2026-05-05 (UTC)",
    "eps_test": 0.001,
    "eps_noise": 0.002,
    "threshold_m": 900.0,
}
BUDGET: dict[str, Any] = {
    "user": "ann",
    "device": "phone",
    "spent": 0.004,
    "remaining": 0.019,
    "total": 0.023,
    "window": "the reports of 2026-05-05 (UTC)",
    "guarantee": "For each day: …",
    "exhausted": False,
    "something": "newer",
}


OK = answer(200, RELEASE)


class Driver:
    """Calls one of the two clients, as a program would."""

    def __init__(self, waits: bool) -> None:
        self.waits = waits

    def __call__(self, url: str, method: str, *args: Any, **kwargs: Any) -> Any:
        settings = {name: kwargs.pop(name) for name in ("retries", "timeout_s") if name in kwargs}
        if self.waits:
            with client.Client(url, TOKEN, **settings) as gateway:
                result = getattr(gateway, method)(*args, **kwargs)
                return list(result) if method == "history" else result

        async def run() -> Any:
            async with client.AsyncClient(url, TOKEN, **settings) as gateway:
                result = getattr(gateway, method)(*args, **kwargs)
                if method == "history":
                    return [release async for release in result]
                return await result

        return asyncio.run(run())


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Driver:
    return Driver(waits=request.param == "sync")


def texts(error: BaseException) -> str:
    """All that a traceback prints of an error and of those it carries, and its own state."""
    chain = [error, error.__cause__, error.__context__]
    shown = "".join(traceback.format_exception(error)) + repr(chain)
    return shown + "".join(str(vars(link)) for link in chain if link is not None)


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


@pytest.mark.parametrize(
    "acts",
    [
        [drop],
        [drop, drop],
        [stop_halfway],
        [answer(503, {"error": "the ledger cannot be reached"})],
        [answer(502, b"<html>"), answer(504, b"")],
        [answer(429, {"error": "slowly"}, Retry_After="0")],
        [answer(408, {"error": "the body did not arrive in time"})],
    ],
    ids=["dropped", "dropped twice", "broken off", "503", "502 and 504", "429", "408"],
)
def test_a_report_that_is_sent_again_keeps_its_id_and_is_paid_once(
    call: Driver, acts: list[Act]
) -> None:
    with serving(script := Script(*acts, OK)) as url:
        report = call(url, "report", HERE, at=NOON)
    assert report.kind == "easy"
    assert len(script.seen) == len(acts) + 1
    assert len(script.paid) == 1
    assert all(request.body == script.seen[0].body for request in script.seen)


def test_two_reports_have_two_ids_and_a_chosen_one_is_kept(call: Driver) -> None:
    with serving(script := Script(OK)) as url:
        call(url, "report", HERE, at=NOON)
        call(url, "report", HERE, at=NOON)
        call(url, "report", HERE, at=NOON, report_id="mine")
    assert len(script.paid) == 3
    assert "mine" in script.paid


def test_a_timeout_is_tried_again(call: Driver) -> None:
    with serving(script := Script(hang, OK)) as url:
        report = call(url, "report", HERE, at=NOON, timeout_s=0.3)
    assert report.released
    assert len(script.paid) == 1 < len(script.seen)


def test_tries_run_out_and_the_error_names_the_report(call: Driver) -> None:
    with serving(script := Script(drop)) as url, pytest.raises(client.UnavailableError) as lost:
        call(url, "report", HERE, at=NOON, retries=1)
    assert len(script.seen) == 2
    assert script.paid == {lost.value.report_id}
    assert lost.value.status is None
    assert "after 2 tries" in str(lost.value)
    assert lost.value.__cause__ is lost.value.__context__ is None


def test_nobody_there_is_unavailable(call: Driver) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"  # bound, but nobody listens
        with pytest.raises(client.UnavailableError, match=r"after 1 try; .* ConnectError"):
            call(url, "report", HERE, retries=0)


def test_a_wait_that_is_too_long_is_not_waited_for_but_told(call: Driver) -> None:
    act = answer(429, {"error": "come back later"}, Retry_After="3600")
    with serving(script := Script(act)) as url, pytest.raises(client.UnavailableError) as busy:
        call(url, "report", HERE)
    assert len(script.seen) == 1
    assert busy.value.retry_after_s == 3600.0
    assert busy.value.status == 429
    assert "come back later" in str(busy.value)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, client.RefusedError),
        (401, client.TokenError),
        (404, client.RefusedError),
        (413, client.RefusedError),
        (422, client.RefusedError),
        (500, client.UnavailableError),
        (302, client.AnswerError),
        (204, client.AnswerError),
    ],
)
def test_what_cannot_be_helped_is_raised_at_once(
    call: Driver, status: int, expected: type[client.GatewayError]
) -> None:
    elsewhere = answer(status, b"" if status == 204 else {"error": "no"}, Location="/elsewhere")
    with serving(script := Script(elsewhere)) as url, pytest.raises(expected) as refused:
        call(url, "report", HERE)
    assert len(script.seen) == 1
    assert refused.value.status == status
    assert isinstance(refused.value, hereish.HereishError)
    again = pickle.loads(pickle.dumps(refused.value))  # noqa: S301  # our own
    assert (str(again), again.status) == (str(refused.value), status)


GARBAGE: dict[str, object] = {
    "no JSON": b"<html>welcome to our wireless network</html>",
    "not UTF-8": b"\xff\xfe{",
    "empty": b"",
    "a list": [],
    "deep": b"[" * 100_000,
    "no kind": {**RELEASE, "kind": None},
    "another kind": {**RELEASE, "kind": "60.1699123"},
    "half a place": {**RELEASE, "lon": None},
    "no place": {**RELEASE, "lat": None, "lon": None},
    "a place of nothing": {**RELEASE, "kind": "none"},
    "text for a number": {**RELEASE, "cost": "0.1"},
    "NaN": json.dumps({**RELEASE, "spent": float("nan")}).encode(),
    "a huge number": json.dumps({**RELEASE, "spent": 10**400}).encode(),
    "no time zone": {**RELEASE, "at": "2026-05-05T12:00:00"},
    "no time": {**RELEASE, "at": "noon"},
    "broken gzip": b"{}",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_an_answer_error_that_repeats_none_of_it(call: Driver, name: str) -> None:
    headers = {"Content_Encoding": "gzip"} if name == "broken gzip" else {}
    script = Script(answer(200, GARBAGE[name], **headers))
    wrong = client.UnavailableError if headers else client.AnswerError
    with serving(script) as url, pytest.raises(wrong) as broken:
        call(url, "report", HERE)
    assert len(script.seen) == 1
    assert broken.value.report_id in script.paid
    assert not any(secret in texts(broken.value) for secret in SECRETS)


@pytest.mark.parametrize("act", [echo, drop, answer(401, {"error": f"{TOKEN} is unknown"}), hang])
def test_no_error_shows_the_token_or_the_place(call: Driver, act: Act) -> None:
    with serving(Script(act)) as url, pytest.raises(client.GatewayError) as failed:
        call(url, "report", HERE, retries=0, timeout_s=0.3)
    error = failed.value
    assert error.__cause__ is error.__context__ is None
    found = texts(error)
    assert not any(secret in found for secret in SECRETS), found


def test_nothing_is_logged_of_the_token_or_the_place(
    call: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), serving(Script(drop, OK)) as url:
        call(url, "report", HERE)
    assert caplog.text, "httpx does log"
    assert not any(secret in caplog.text for secret in SECRETS)


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


@pytest.mark.parametrize(
    "place", [(91.25, 24.9384567), (60.1699123, float("nan")), (60.1699123,), "60.1699123", None]
)
def test_a_bad_place_is_not_sent_and_not_repeated(call: Driver, place: object) -> None:
    script = Script(OK)
    with serving(script) as url, pytest.raises(hereish.PointError, match="not") as refused:
        call(url, "report", place)
    assert "nothing was sent" in str(refused.value)
    assert not script.seen
    assert refused.value.__context__ is None
    assert not any(digits in str(refused.value) for digits in ("91.25", "60.16", "24.93"))


NAIVE = datetime(2026, 5, 5, 12)  # noqa: DTZ001  # that is the point
LAST = datetime.max.replace(tzinfo=timezone(-timedelta(hours=9)))


@pytest.mark.parametrize("at", [NAIVE, "2026-05-05", 1.7e9, 0, LAST])
def test_a_time_that_is_none_or_has_no_zone_is_not_sent(call: Driver, at: object) -> None:
    with serving(script := Script(OK)) as url, pytest.raises(hereish.PointError, match="at must"):
        call(url, "report", HERE, at=at)
    assert not script.seen


@pytest.mark.parametrize("name", ["", "x" * 201, "caf\udce9.jpg", 0, 5, b"mine"])
def test_an_id_that_cannot_be_one_is_not_sent(call: Driver, name: object) -> None:
    script = Script(OK)
    with serving(script) as url, pytest.raises(hereish.ParameterError, match="1 to 200") as refused:
        call(url, "report", HERE, report_id=name)
    assert not script.seen
    assert refused.value.__context__ is None  # of a text that is not UTF-8 it would hold the body
    assert not any(secret in texts(refused.value) for secret in SECRETS)


@pytest.mark.parametrize("location", ["about:blank", "http://xn--/", "http://[/"])
def test_a_broken_redirection_is_an_error_of_ours(call: Driver, location: str) -> None:
    act = answer(302, b"", Location=location)
    with serving(script := Script(act)) as url, pytest.raises(client.GatewayError) as failed:
        call(url, "report", HERE)
    assert {failed.value.report_id} == script.paid
    assert not any(secret in texts(failed.value) for secret in SECRETS)


def test_a_prefix_of_the_address_is_kept(call: Driver) -> None:
    with serving(script := Script(OK)) as url:
        call(f"{url}/private/hereish", "report", HERE)
    assert script.seen[0].path == "/private/hereish/v1/report"


def pauses(*got: Answer | _Lost) -> list[float]:
    """How long the flow pauses if it gets these, without anybody waiting."""
    with client.Client("https://gateway.example", TOKEN, retries=len(got) - 1) as gateway:
        flow = gateway._budget()
        assert isinstance(next(flow), _Ask)
        paused = []
        for each in got[:-1]:
            wanted = flow.send(each)
            assert isinstance(wanted, _Pause)
            paused.append(wanted.seconds)
            assert isinstance(next(flow), _Ask)
        with pytest.raises(client.UnavailableError):
            flow.send(got[-1])
    return paused


def test_pauses_grow_and_differ_and_end_at_eight_seconds() -> None:
    lost = [_Lost("ReadTimeout", again=True)] * 9
    waited = pauses(*lost)
    most = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert all(0.5 * top <= pause <= top for pause, top in zip(waited, most, strict=True))
    assert waited != pauses(*lost)


def test_a_gateway_that_says_when_is_heeded() -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=30)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    past = "Tue, 05 May 2020 12:00:00 GMT"
    heads = ["7", soon, past, "nonsense", None, "0"]
    waited = pauses(*(Answer(503, head, b"") for head in heads))
    for pause, (low, high) in zip(
        waited, [(7, 7.25), (28, 30.25), (0, 0.25), (1, 2), (2, 4)], strict=True
    ):
        assert low <= pause <= high


def test_what_the_flow_asks_for_shows_no_place() -> None:
    with client.Client("https://gateway.example", TOKEN) as gateway:
        asked = next(gateway._report(HERE, NOON, None))
    assert "60.16" not in repr(asked)
