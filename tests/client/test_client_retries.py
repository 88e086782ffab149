"""Reports that are sent again: when, how often, with which pauses, and paid for once."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta

import pytest

from hereish import client
from hereish.client.client import _Failure, _Request, _Wait  # the steps of the exchange
from hereish.client.responses import GatewayResponse
from tests.support.client_driver import (
    HERE,
    NOON,
    OK,
    TOKEN,
    Driver,
)
from tests.support.scripted_gateway import (
    Act,
    Script,
    answer,
    drop,
    hang,
    serving,
    stop_halfway,
)


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


def pauses(*outcomes: GatewayResponse | _Failure) -> list[float]:
    """How long the flow pauses if it gets these, without anybody waiting."""
    with client.Client("https://gateway.example", TOKEN, retries=len(outcomes) - 1) as gateway:
        flow = gateway._budget()
        assert isinstance(next(flow), _Request)
        paused = []
        for each in outcomes[:-1]:
            wanted = flow.send(each)
            assert isinstance(wanted, _Wait)
            paused.append(wanted.seconds)
            assert isinstance(next(flow), _Request)
        with pytest.raises(client.UnavailableError):
            flow.send(outcomes[-1])
    return paused


def test_pauses_grow_and_differ_and_end_at_eight_seconds() -> None:
    lost = [_Failure("ReadTimeout", retryable=True)] * 9
    waited = pauses(*lost)
    most = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert all(0.5 * top <= pause <= top for pause, top in zip(waited, most, strict=True))
    assert waited != pauses(*lost)


def test_a_gateway_that_says_when_is_heeded() -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=30)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    past = "Tue, 05 May 2020 12:00:00 GMT"
    heads = ["7", soon, past, "nonsense", None, "0"]
    waited = pauses(*(GatewayResponse(503, head, b"") for head in heads))
    for pause, (low, high) in zip(
        waited, [(7, 7.25), (28, 30.25), (0, 0.25), (1, 2), (2, 4)], strict=True
    ):
        assert low <= pause <= high
