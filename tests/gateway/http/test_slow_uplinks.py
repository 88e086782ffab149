"""Bodies that come slowly or are large: honest ones get through, and nobody else waits for them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest

from hereish.gateway.http.app import create_app
from hereish.gateway.http.protocols import overland
from hereish.gateway.http.protocols.payload import ParsedPoints
from hereish.gateway.http.server import make_server
from hereish.gateway.ledger.ledger import Ledger
from tests.support import client_payloads as payloads
from tests.support.hostile_stage import PATIENCE_S, head, send_all, statuses, until_closed
from tests.support.stage import free_port, member, paths_in

BODY_S = 1.5  # in earnest it is ten
STEP_S = 0.1
MUCH = 100_000  # bytes


class Gateway(NamedTuple):
    """A server in this process, with less patience than usual."""

    port: int
    token: str

    def connect(self, length: int) -> socket.socket:
        """A connection on which a batch of so many bytes was announced."""
        wire = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        lines = (f"Authorization: Bearer {self.token}", f"Content-Length: {length}")
        wire.sendall(head("POST", "/overland", *lines, "Connection: close"))
        return wire


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    ledger = Ledger.open(paths_in(tmp_path_factory.mktemp("slow")))
    gateway = Gateway(free_port(), member(ledger))
    server = make_server(create_app(ledger, body_s=BODY_S), "127.0.0.1", gateway.port)
    thread = threading.Thread(target=server.run)
    thread.start()
    until_s = time.monotonic() + PATIENCE_S
    while not server.started:
        assert time.monotonic() < until_s
        time.sleep(0.01)
    yield gateway
    server.should_exit = True
    thread.join()


def batch(size: int) -> bytes:
    """A batch of one point, and blanks."""
    feature = payloads.overland_feature(timestamp=payloads.iso(time.time() - 60))
    return payloads.sent(payloads.overland(feature)).ljust(size)


def sent_in_steps(wire: socket.socket, body: bytes, step: int) -> float:
    """Send so much at a time until the other side has heard enough; how long it listened."""
    began_s = time.monotonic()
    for at in range(0, len(body), step):
        if not send_all(wire, body[at : at + step]):
            break
        time.sleep(STEP_S)
    return time.monotonic() - began_s


def test_a_slow_but_steady_uplink_gets_its_batch_through(gateway: Gateway) -> None:
    body = batch(MUCH)
    with gateway.connect(len(body)) as wire:
        took_s = sent_in_steps(wire, body, MUCH // 40)
        told = until_closed(wire)
    assert statuses(told) == [200]
    assert told.endswith(overland.RESPONSE)
    assert took_s > 2 * BODY_S


@pytest.mark.parametrize("before", [0, MUCH])
def test_what_drips_is_given_up_whatever_came_before(before: int, gateway: Gateway) -> None:
    """Who sends much at once and then hardly anything would else hold on for half a minute."""
    body = batch(before + 1000)
    with gateway.connect(len(body)) as wire:
        wire.sendall(body[:before])
        listened_s = sent_in_steps(wire, body[before:], 1)
        told = until_closed(wire)
    # A reset may overtake the answer while we still send.
    assert statuses(told) in ([408], [])
    assert BODY_S / 2 < listened_s < 4 * BODY_S


@pytest.mark.parametrize("before", [0, 1, MUCH])
def test_what_stops_is_given_up_whatever_came_before(before: int, gateway: Gateway) -> None:
    body = batch(before + 1000)
    with gateway.connect(len(body)) as wire:
        began_s = time.monotonic()
        wire.sendall(body[:before])
        told = until_closed(wire)
        took_s = time.monotonic() - began_s
    assert statuses(told) == [408]
    assert BODY_S / 2 < took_s < 4 * BODY_S


def test_nobody_waits_while_a_large_body_is_read(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, goes_on = threading.Event(), threading.Event()
    truly_read = overland.read

    def slow_read(body: bytes) -> ParsedPoints:
        reads.set()
        assert goes_on.wait(PATIENCE_S)
        return truly_read(body)

    monkeypatch.setattr(overland, "read", slow_read)
    body = batch(MUCH)
    try:
        with gateway.connect(len(body)) as wire:
            wire.sendall(body)
            assert reads.wait(PATIENCE_S)
            answer = httpx.get(f"http://127.0.0.1:{gateway.port}/healthz", timeout=5.0)
            assert answer.status_code == 200
            goes_on.set()
            assert statuses(until_closed(wire)) == [200]
    finally:
        goes_on.set()
