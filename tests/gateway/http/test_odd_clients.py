"""Clients that are not quite as their protocols say, and still mean a position.

What they send is read, or it can never be taken and is counted. It is never taken for nothing.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

import pytest

from hereish.gateway.http.protocols import osmand
from hereish.gateway.http.protocols.payload import InvalidRequestError
from hereish.gateway.ledger import tokens
from hereish.gateway.ledger.models import Fix
from tests.support.client_payloads import (
    AT_S,
    LAT,
    LON,
    iso,
    owntracks_gpslogger,
    sent,
    tells_nothing,
    traccar_client_json,
)
from tests.support.hostile_stage import (
    MINUTES,
    Hostile,
    head,
    hostile,
    payloads,
    send_all,
    statuses,
    until_closed,
)
from tests.support.leaks import TRUE

HERE = Fix(LAT, LON, AT_S)
NOW_S = AT_S + 86_400.0
FORM, JSON_TYPE = "application/x-www-form-urlencoded", "application/json"
POINT = f"lat={LAT}&lon={LON}"
LARGE = 70_000  # bytes; a body of this size is not read before its token is known
# What `curl --http2` sends to an address without TLS.
H2C = (
    "Connection: Upgrade, HTTP2-Settings",
    "Upgrade: h2c",
    "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA",
)
POSTS = ("v1", "OwnTracks", "Overland", "Traccar form", "Traccar JSON")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    with hostile(tmp_path_factory.mktemp("odd"), window=MINUTES) as stage:
        yield stage
        assert stage.lives()


def read(
    query: list[tuple[str, str]], content_type: str | None, body: bytes, now_s: float
) -> list[Fix]:
    """The fixes of a request in which there is nothing that cannot be used."""
    points = osmand.read(query, content_type, body, now_s)
    assert points.unusable == []
    return points.fixes


def read_json(message: object) -> list[Fix]:
    return read([], JSON_TYPE, sent(message), NOW_S)


def check_refused(query: str, message: object, words: str | None = None) -> None:
    with pytest.raises(InvalidRequestError, match=words) as refused:
        read(parse_qsl(query), JSON_TYPE, sent(message), NOW_S)
    assert tells_nothing(refused.value)


@pytest.mark.parametrize("when", [str(AT_S), f"{AT_S}000", f"{AT_S}.0", iso(AT_S), AT_S * 1000])
def test_json_may_quote_its_numbers(when: object) -> None:
    message = traccar_client_json()
    message["location"]["timestamp"] = when
    message["location"]["coords"] |= {"latitude": str(LAT), "longitude": str(LON)}
    assert read_json(message) == [HERE]


@pytest.mark.parametrize(
    "message",
    [
        {"lat": LAT, "lon": LON, "timestamp": AT_S},
        {"lat": str(LAT), "lon": str(LON), "timestamp": str(AT_S)},
        {"latitude": LAT, "longitude": LON, "time": iso(AT_S)},
        {"lat": LAT, "lon": LON, "timestamp": AT_S * 1000, "location": None, "batt": {"a": 1}},
        {"lat": LAT, "lon": LON, "timestamp": float(AT_S), "id": "E5F1A2", "time": [12]},
    ],
)
def test_json_may_be_flat_as_a_form(message: dict[str, Any]) -> None:
    assert read_json(message) == [HERE]
    assert read(parse_qsl(POINT), JSON_TYPE, sent(message), NOW_S) == [HERE]
    for careless in (FORM, None, ""):  # what is typed into GPSLogger as a body goes out like that
        assert read([], careless, b"\r\n" + sent(message), NOW_S) == [HERE]


def test_flat_json_without_a_time_is_now_and_without_a_place_nothing() -> None:
    assert read_json({"lat": LAT, "lon": LON, "timestamp": None}) == [Fix(LAT, LON, NOW_S)]
    assert read_json({"lat": None, "lon": None, "timestamp": AT_S}) == []


@pytest.mark.parametrize(
    "odd",
    [
        *(
            {"lat": None},
            {"lat": True},
            {"lat": [LAT]},
            {"lat": {"degrees": LAT}},
            {"lat": "north"},
        ),
        *({"lat": 90.5}, {"lat": 10**400}, {"lat": "1" * 65}, {"lon": -180.5}, {"lon": ""}),
        *({"latitude": LAT + 1}, {"timestamp": True}, {"timestamp": [AT_S]}, {"timestamp": "noon"}),
        *({"timestamp": ""}, {"timestamp": 0}, {"timestamp": 1e300}, {"location": "here"}),
    ],
)
def test_flat_json_is_read_as_strictly_as_a_form(odd: dict[str, Any]) -> None:
    check_refused("", {"lat": LAT, "lon": LON, "timestamp": AT_S} | odd)


@pytest.mark.parametrize(
    "message",
    [
        *({}, {"battery": 0.79}, {"location": None}, {"location": {"event": "heartbeat"}}),
        {"timestamp": AT_S},
    ],
)
def test_a_position_in_the_query_counts_if_the_json_has_none(message: dict[str, Any]) -> None:
    query = parse_qsl(f"{POINT}&timestamp={AT_S}")
    assert read(query, JSON_TYPE, sent(message), NOW_S) == [HERE]


def test_a_query_and_flat_json_may_not_differ() -> None:
    check_refused("lat=48.8&lon=19.1", {"lat": LAT, "lon": LON}, words="twice")


def test_quoted_and_flat_messages_are_released(stage: Hostile) -> None:
    """Each was answered as if it had been read, or refused for good."""
    address = f"/osmand/{stage.tokens['alice']}"
    flat = {"lat": TRUE.lat, "lon": TRUE.lon, "timestamp": stage.tick()}
    query = {name: str(value) for name, value in (flat | {"timestamp": stage.tick()}).items()}
    before = stage.released()
    told = [
        stage.ask("POST", address, json=flat),
        stage.ask("POST", address, params=query, json={"battery": 0.79}),
        stage.ask("POST", "/owntracks", json=owntracks_gpslogger(*TRUE, stage.tick())),
    ]
    assert [answer.status_code for answer in told] == [200] * 3
    assert stage.released() == before + 3


@pytest.mark.parametrize("path", ["/overland", "/osmand/{token}"])
def test_a_large_body_is_not_read_for_a_stranger(path: str, stage: Hostile) -> None:
    stranger, kind = tokens.generate_token(), {"Content-Type": JSON_TYPE}

    def status(token: str, body: bytes) -> int:
        headers = {"Authorization": f"Bearer {token}", **kind}
        address = path.format(token=token)
        return stage.ask("POST", address, None, headers=headers, content=body).status_code

    nonsense = b"[" * LARGE
    assert status(stranger, nonsense) == 401
    assert status(stage.tokens["alice"], nonsense) == 200
    assert status(stranger, nonsense[:100]) == 401


def test_a_large_body_of_a_friend_is_read_as_a_small_one(stage: Hostile) -> None:
    for client in ("OwnTracks", "Overland", "Traccar form", "Traccar JSON"):
        method, path, kind, body = payloads(stage.tokens["alice"], stage.tick())[client]
        padding = b"&note=" + b"a" * LARGE if client == "Traccar form" else b" " * LARGE
        before = stage.released()
        headers = {"Content-Type": kind}
        answer = stage.ask(method, path, headers=headers, content=body + padding)
        assert (answer.status_code, stage.released()) == (200, before + 1), client


def offering(stage: Hostile, client: str, *lines: str) -> tuple[bytes, bytes]:
    """Head and body of a request that offers to speak another protocol."""
    token = stage.tokens["alice"]
    method, path, kind, body = payloads(token, stage.tick())[client]
    told = [f"Authorization: Bearer {token}", f"Content-Type: {kind}", *lines]
    if not any(line.startswith("Transfer-Encoding") for line in lines):
        told.append(f"Content-Length: {len(body)}")
    return head(method, path, *told), body


def heard_at_once(wire: socket.socket) -> bytes:
    """What comes within a moment; nothing says that there is no more."""
    heard = b""
    wire.settimeout(1.0)
    try:
        while piece := wire.recv(65536):
            heard += piece
    except TimeoutError:
        pass
    return heard


@pytest.mark.parametrize("apart_s", [0.0, 0.2])
@pytest.mark.parametrize("client", POSTS)
def test_an_offer_to_speak_http_2_loses_no_body(
    client: str, apart_s: float, stage: Hostile
) -> None:
    begin, body = offering(stage, client, *H2C)
    before = stage.released()
    with stage.connect() as wire:
        if apart_s:
            wire.sendall(begin)
            time.sleep(apart_s)
            wire.sendall(body)
        else:
            wire.sendall(begin + body)
        wire.sendall(head("GET", "/healthz", "Connection: close"))  # and the connection goes on
        told = stage.keep(until_closed(wire))
    assert statuses(told) == [200, 200]
    assert stage.released() == before + 1


@pytest.mark.parametrize("other", ["h2c", "websocket", "TLS/1.0, HTTP/9.9"])
def test_an_offer_may_come_with_chunks_a_close_or_many_others(other: str, stage: Hostile) -> None:
    upgrade = f"Upgrade: {other}"
    begin, body = offering(
        stage, "v1", "Connection: upgrade, close", upgrade, "Transfer-Encoding: chunked"
    )
    before = stage.released()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:9], body[9:]))
    told = stage.raw(begin + chunks + b"0\r\n\r\n")
    assert statuses(told) == [200]
    assert stage.released() == before + 1
    ask = head("GET", "/healthz", "Connection: upgrade", upgrade)
    many = stage.raw(ask * 20 + head("GET", "/healthz", "Connection: close"))
    assert statuses(many) == [200] * 21


def test_a_body_after_an_offer_is_never_taken_for_a_request(stage: Hostile) -> None:
    """A proxy that sends the requests of many through one connection trusts in that."""
    inner = head("GET", "/v1/budget", f"Authorization: Bearer {stage.tokens['alice']}")
    lines = [*H2C, f"Content-Length: {len(inner)}", "Authorization: Bearer x"]
    with stage.connect() as wire:
        wire.sendall(head("POST", "/overland", *lines))
        time.sleep(0.2)
        send_all(wire, inner)
        told = stage.keep(heard_at_once(wire))
    assert statuses(told) == [401]
    assert b"guarantee" not in told


def test_an_offer_in_a_slow_or_endless_head_changes_no_limit(stage: Hostile) -> None:
    begin, body = offering(stage, "v1", *H2C)
    before = stage.released()
    with stage.connect() as wire:
        for at in range(0, len(begin), 40):
            wire.sendall(begin[at : at + 40])
            time.sleep(0.01)
        wire.sendall(body)
        assert statuses(stage.keep(heard_at_once(wire))) == [200]
    assert stage.released() == before + 1
    too_much = head("GET", "/healthz", *H2C, "X: " + "a" * 300_000)
    assert set(statuses(stage.raw(too_much, ends=True))) <= {400}


def test_connect_is_refused_and_harms_nobody(stage: Hostile) -> None:
    told = stage.raw(head("CONNECT", "here:443", *H2C) + b"more", ends=True)
    assert all(400 <= status < 500 for status in statuses(told))
