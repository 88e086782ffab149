"""Connections that misbehave: too large, too slow, cut off, garbled, or simply too many."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from hereish.gateway.http.middleware import DEFAULT_BODY_BYTES, DEFAULT_BODY_S
from tests.support.hostile_stage import (
    PATIENCE_S,
    Hostile,
    head,
    hostile,
    payloads,
    send_all,
    statuses,
    until_closed,
)

NOW_S = int(time.time())  # the same in all, so that their length is
POSTS = ("v1", "OwnTracks", "Overland", "Traccar form", "Traccar JSON")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    with hostile(tmp_path_factory.mktemp("connections")) as stage:
        yield stage
        assert stage.lives()


def request(stage: Hostile, client: str = "v1", *lines: str, length: int | None = None) -> bytes:
    """The head of what a client sends, with more lines; and its length if there is none in them."""
    token = stage.tokens["alice"]
    method, path, kind, _ = payloads(token, NOW_S)[client]
    measured = [] if length is None else [f"Content-Length: {length}"]
    told = [f"Authorization: Bearer {token}", f"Content-Type: {kind}", *measured, *lines]
    return head(method, path, *told)


def body(stage: Hostile, client: str = "v1") -> bytes:
    return payloads(stage.tokens["alice"], NOW_S)[client][3]


def chunk(piece: bytes) -> bytes:
    return f"{len(piece):x}\r\n".encode() + piece + b"\r\n"


@pytest.mark.parametrize("client", POSTS)
def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(
    client: str, stage: Hostile
) -> None:
    for length in (DEFAULT_BODY_BYTES + 1, 10**12, 10**18):
        told = stage.raw(request(stage, client, length=length))  # and not a byte of it
        assert statuses(told) == [413], length


@pytest.mark.parametrize("client", POSTS)
def test_a_body_that_grows_too_large_is_refused_while_it_comes(client: str, stage: Hostile) -> None:
    method, path, kind, whole = payloads(stage.tokens["alice"], NOW_S)[client]
    for total in (DEFAULT_BODY_BYTES + 1, 8 * DEFAULT_BODY_BYTES):
        with stage.connect() as wire:
            wire.sendall(request(stage, client, "Transfer-Encoding: chunked"))
            sent = 0
            while sent < total:
                piece = (whole * 100)[: min(65536, total - sent)]
                if not send_all(wire, chunk(piece)):
                    break  # it had heard enough
                sent += len(piece)
            told = stage.keep(until_closed(wire))
        # A reset may overtake the answer while we still send.
        assert statuses(told) == [413] or (not told and sent < total), (method, path, kind)


def test_a_body_of_the_largest_size_is_read(stage: Hostile) -> None:
    padded = body(stage).ljust(DEFAULT_BODY_BYTES)
    answer = stage.ask("POST", "/v1/report", content=padded)
    assert answer.status_code == 200
    assert stage.ask("POST", "/v1/report", content=padded + b" ").status_code == 413


def test_a_body_that_trickles_is_given_up_and_nobody_waits_for_it(stage: Hostile) -> None:
    """Twenty at once, each a byte now and then. Meanwhile, others are served as before."""
    ends = threading.Event()
    whole = body(stage)

    def trickle(wire: socket.socket) -> None:
        for at in range(len(whole) - 1):  # never all of it
            if ends.wait(0.5) or not send_all(wire, whole[at : at + 1]):
                return

    def asked_s() -> float:
        began_s = time.monotonic()
        assert stage.report().status_code == 200
        return time.monotonic() - began_s

    before_s = sorted(asked_s() for _ in range(20))
    with ExitStack() as open_wires:
        wires = [open_wires.enter_context(stage.connect()) for _ in range(20)]
        began_s = time.monotonic()
        for at, wire in enumerate(wires):
            lines = ["Transfer-Encoding: chunked"] if at % 2 else [f"Content-Length: {len(whole)}"]
            wire.sendall(request(stage, "v1", *lines))
        threads = [threading.Thread(target=trickle, args=(wire,)) for wire in wires[::2]]
        for thread in threads:
            thread.start()
        during_s = sorted(asked_s() for _ in range(20))
        told = [stage.keep(until_closed(wire)) for wire in wires]
        took_s = time.monotonic() - began_s
        ends.set()
        for thread in threads:
            thread.join()
    # A reset may overtake the answer to those that still sent.
    assert all(statuses(one) == [408] for one in told[1::2])
    assert all(statuses(one) in ([408], []) for one in told[::2])
    assert DEFAULT_BODY_S <= took_s < PATIENCE_S
    # No worse than each other but for noise; one that had waited would have waited for seconds.
    assert during_s[10] < 20 * before_s[10] + 0.1
    assert during_s[-1] < DEFAULT_BODY_S / 2


def test_many_connections_that_say_nothing_are_in_nobodys_way(stage: Hostile) -> None:
    with ExitStack() as open_wires:
        for at in range(300):
            wire = open_wires.enter_context(stage.connect())
            wire.sendall([b"", b"P", b"POST /v1/report HTT", head("GET", "/healthz")[:-2]][at % 4])
        for _ in range(5):
            assert stage.report().status_code == 200
    assert stage.lives()


@pytest.mark.parametrize("client", POSTS)
def test_a_request_that_is_cut_off_is_nobodys_fault(client: str, stage: Hostile) -> None:
    whole = request(stage, client, length=len(body(stage, client))) + body(stage, client)
    lines_before = len(stage.running.lines())
    for part in range(1, 12):
        with stage.connect() as wire:
            wire.sendall(whole[: len(whole) * part // 12])
            if part % 2:  # a reset, not a farewell
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert stage.lives()
    new = stage.running.lines()[lines_before:]
    assert [line for line in new if "defect" in line or line["level"] == "error"] == []
    counted = stage.ask("GET", "/metrics", None).text
    assert 'status="500"' not in counted


def test_who_does_not_wait_for_the_answer_harms_nobody(stage: Hostile) -> None:
    whole = request(stage, "v1", length=len(body(stage))) + body(stage)
    for _ in range(20):
        with stage.connect() as wire:
            wire.sendall(whole)
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert stage.lives()


GARBAGE = {
    "random bytes": bytes(range(255, 0, -1)) * 4 + b"\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n",
    "no version": b"GET /healthz\r\n\r\n",
    "HTTP/0.9": b"GET /healthz HTTP/0.9\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/9.9": b"GET /healthz HTTP/9.9\r\nHost: here\r\n\r\n",
    "another method": b"STEAL /v1/history HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n",
    "CONNECT": b"CONNECT here:443 HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n",
    "a NUL in a header": b"GET /healthz HTTP/1.1\r\nHost: he\x00re\r\n\r\n",
    "a header without a colon": b"GET /healthz HTTP/1.1\r\nHost here\r\n\r\n",
    "a space before the colon": b"GET /healthz HTTP/1.1\r\nHost : here\r\n\r\n",
    "a folded header": head("GET", "/healthz", "A: b", " c", "Connection: close"),
    "a path in UTF-8": "GET /osmänd HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".encode(),
    "a path in Latin-1": b"GET /osm\xe4nd HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n",
    "another host": head("GET", "http://there/v1/budget", "Connection: close"),
    "a strange address": head("GET", "//[::", "Connection: close"),
    "a star": head("OPTIONS", "*", "Connection: close"),
    "a websocket": (
        b"GET /v1/budget HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ),
    "h2c": (
        b"GET /v1/budget HTTP/1.1\r\nHost: here\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"
    ),
    "a chunk of no size": (
        b"POST /v1/report HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n"
    ),
    "a negative length": b"POST /v1/report HTTP/1.1\r\nHost: here\r\nContent-Length: -1\r\n\r\n",
    "a length in words": b"POST /v1/report HTTP/1.1\r\nHost: here\r\nContent-Length: two\r\n\r\n",
    "a length beyond all": (
        b"POST /v1/report HTTP/1.1\r\nHost: here\r\nContent-Length: " + b"9" * 40 + b"\r\n\r\n"
    ),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_refused_or_hung_up_on(what: str, stage: Hostile) -> None:
    told = stage.raw(GARBAGE[what], ends=True)
    assert all(400 <= status < 500 for status in statuses(told) if status != 200), told
    assert b"releases" not in told


def test_garbage_after_a_good_request_does_not_reach_anybody_else(stage: Hostile) -> None:
    good = request(stage, "v1", length=len(body(stage))) + body(stage)
    for garbage in GARBAGE.values():
        told = stage.raw(good + garbage, ends=True)
        assert 500 not in statuses(told)
        assert statuses(told)[:1] in ([200], [400], [])
    three = stage.raw(good * 2 + head("GET", "/healthz", "Connection: close"))
    assert statuses(three) == [200, 200, 200]  # in a row, each in its turn


def test_http_1_0_is_served(stage: Hostile) -> None:
    old = request(stage, "v1", length=len(body(stage))).replace(b"HTTP/1.1", b"HTTP/1.0")
    told = stage.raw(old + body(stage))
    assert statuses(told) == [200]
    assert b'"kind"' in told


SMUGGLED = b"GET /v1/history HTTP/1.1\r\nHost: here\r\n\r\n"
TWO_LENGTHS = {
    "a length and chunks": ["Content-Length: {whole}", "Transfer-Encoding: chunked"],
    "chunks and a length": ["Transfer-Encoding: chunked", "Content-Length: {whole}"],
    "two lengths": ["Content-Length: {part}", "Content-Length: {whole}"],
    "two lengths in one": ["Content-Length: {part}, {whole}"],
    "chunks twice": ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
    "chunks misspelled": ["Transfer-Encoding: xchunked"],
    "chunks with a tab": ["Transfer-Encoding:\tchunked", "Content-Length: {whole}"],
    "chunks in other letters": ["Transfer-Encoding: cHuNkEd", "Content-Length: {whole}"],
    "chunks before gzip": ["Transfer-Encoding: chunked, gzip", "Content-Length: {whole}"],
    "a signed length": ["Content-Length: +{whole}"],
    "a length in hexadecimal": ["Content-Length: 0x{whole}"],
}


@pytest.mark.parametrize("what", TWO_LENGTHS)
def test_a_request_with_two_ends_is_not_taken(what: str, stage: Hostile) -> None:
    """A proxy in front might see the other end, and what lies between as another's request."""
    inner = chunk(body(stage)) + b"0\r\n\r\n"
    numbers = {"whole": len(inner + SMUGGLED), "part": len(inner)}
    lines = [line.format(**numbers) for line in TWO_LENGTHS[what]]
    told = stage.raw(request(stage, "v1", *lines) + inner + SMUGGLED, ends=True)
    assert set(statuses(told)) <= {400}, told
    assert b'"kind"' not in told


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(stage: Hostile) -> None:
    with stage.connect() as wire:
        lines = ["Expect: 100-continue", "Connection: close"]
        wire.sendall(request(stage, "v1", *lines, length=len(body(stage))))
        first = wire.recv(4096)
        assert statuses(first) == [100]
        wire.sendall(body(stage))
        assert statuses(stage.keep(until_closed(wire))) == [200]
    with stage.connect() as wire:  # but not if it is too much
        wire.sendall(request(stage, "v1", *lines, length=DEFAULT_BODY_BYTES + 1))
        assert statuses(stage.keep(until_closed(wire))) == [413]


@pytest.mark.parametrize("size", [20_000, 200_000])
def test_very_long_heads_are_answered_or_hung_up_on(size: int, stage: Hostile) -> None:
    long = "1" * size
    for sent in (
        head("GET", f"/osmand/{long}?lat={long}", "Connection: close"),
        head("GET", "/v1/budget", f"Authorization: Bearer {long}", "Connection: close"),
        head("GET", "/v1/budget", *(f"X-{n}: 1" for n in range(size // 10)), "Connection: close"),
    ):
        told = stage.raw(sent, ends=True)
        assert all(status in (400, 401, 404, 414, 431) for status in statuses(told)), told[:200]


def test_methods_that_are_not_there_are_refused(stage: Hostile) -> None:
    osmand = f"/osmand/{stage.tokens['alice']}"
    for method in ("PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"):
        for path in ("/v1/report", "/owntracks", "/overland", "/v1/budget", osmand):
            if (method, path) != ("PUT", osmand):  # GPSLogger can be set to that
                assert stage.ask(method, path).status_code == 405
    allowed = stage.ask("DELETE", osmand).headers["allow"]
    assert set(allowed.split(", ")) == {"GET", "POST", "PUT"}
    assert stage.ask("GET", "/no/such/thing").status_code == 404
