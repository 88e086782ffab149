"""What the client refuses or fails at: its errors hold neither the token nor a place."""

from __future__ import annotations

import json
import logging
import pickle
from datetime import datetime, timedelta, timezone

import pytest

import hereish
from hereish import client
from tests.support.client_driver import (
    HERE,
    NOON,
    OK,
    RELEASE,
    SECRETS,
    TOKEN,
    Driver,
    texts,
)
from tests.support.scripted_gateway import (
    Act,
    Script,
    answer,
    drop,
    echo,
    hang,
    serving,
)


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


def test_what_the_flow_asks_for_shows_no_place() -> None:
    with client.Client("https://gateway.example", TOKEN) as gateway:
        asked = next(gateway._report(HERE, NOON, None))
    assert "60.16" not in repr(asked)
