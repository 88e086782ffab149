"""Heads of requests that have no end, or do not come. Nobody has shown a token by then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.hostile_stage import Hostile, head, hostile, send_all, statuses, until_closed

PIECE = 64 * 1024
FAR_TOO_MUCH = 32 * 1024 * 1024


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    with hostile(tmp_path_factory.mktemp("heads")) as stage:
        yield stage
        assert stage.lives()


CHUNKS = head("POST", "/overland", "Transfer-Encoding: chunked", "Authorization: Bearer x")
ENDLESS = {
    "fields after a body": (CHUNKS + b"1\r\n{\r\n0\r\n", b"X: 1\r\n" * (PIECE // 6)),
    "a field after a body": (CHUNKS + b"1\r\n{\r\n0\r\nX: ", b"a" * PIECE),
    "requests": (b"", head("GET", "/healthz") * 500),
    "an address": (b"GET /", b"a" * PIECE),
    "a header": (b"GET /healthz HTTP/1.1\r\nHost: here\r\nX: ", b"a" * PIECE),
    "headers": (b"GET /healthz HTTP/1.1\r\nHost: here\r\n", b"X: 1\r\n" * (PIECE // 6)),
    "headers after a request": (
        head("GET", "/healthz") + head("GET", "/")[:-2],
        b"X: 1\r\n" * 9999,
    ),
}


# What is asked and answered at once, and a little that comes after that.
ANSWERED = (
    (head("GET", "/healthz"), b"\r\n"),
    (head("POST", "/overland", "Content-Length: 100"), b"a"),
    (head("POST", "/overland", "Transfer-Encoding: chunked"), b"1\r\na"),
)


@pytest.mark.parametrize("what", ENDLESS)
def test_a_head_without_end_is_not_kept_in_memory(what: str, stage: Hostile) -> None:
    begin, more = ENDLESS[what]
    with stage.connect() as wire:
        wire.sendall(begin)
        sent = 0
        while sent < FAR_TOO_MUCH and send_all(wire, more):
            sent += len(more)
        assert sent < FAR_TOO_MUCH, "it took all of it"
        told = stage.keep(until_closed(wire))
    assert set(statuses(told)) <= {200, 400, 401, 414, 431}


def test_a_head_that_does_not_come_is_given_up(stage: Hostile) -> None:
    """Whether it stops somewhere, trickles, or never begins; at first or after an answer."""
    whole = head("POST", "/v1/report", "Authorization: Bearer x")
    beginnings = [whole[: at * 20] for at in range(4)]
    ends = threading.Event()
    with ExitStack() as open_wires:
        wires = [open_wires.enter_context(stage.connect()) for _ in range(5 + len(ANSWERED))]
        *still, slow = wires
        for wire, begin in zip(still, beginnings, strict=False):
            wire.sendall(begin)
        for wire, (asked, _) in zip(still[4:], ANSWERED, strict=False):
            wire.sendall(asked)
            assert wire.recv(65536).startswith(b"HTTP/1.1 ")
        for wire, (_, more) in zip(still[4:], ANSWERED, strict=False):
            wire.sendall(more)

        def trickle() -> None:
            for at in range(len(whole) - 1):
                if ends.wait(0.5) or not send_all(slow, whole[at : at + 1]):
                    return

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert stage.lives()
            told = [until_closed(wire) for wire in (*still, slow)]  # TimeoutError if it waits on
        finally:
            ends.set()
            thread.join()
    assert all(set(statuses(one)) <= {400, 408} for one in told)
    assert len(told) == 5 + len(ANSWERED)
