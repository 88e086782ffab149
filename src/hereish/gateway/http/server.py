"""The HTTP server around the application."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httptools
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_END_S = 10  # for requests that are under way when it is told to end
# Threads take turns ten times as often as usual: a request whose database has answered should not
# wait for others that compute. The slowest requests are twice as quick by it.
_TURN_S = 0.0005
_HEAD_BYTES = 64 * 1024
_HEAD_S = 10.0
_MOST_WAITING = 32  # requests of one connection; no phone sends one before the last is answered


class _Parser:
    """A parser that stays with HTTP/1.1, whatever else a request offers to speak.

    httptools takes all that follows the head of such a request for the other protocol, and its body
    would be lost. `curl --http2` offers that with every request. A server may ignore it (RFC 9110,
    7.8): the head is read once more, without the offer, and then what followed it.
    """

    def __init__(self, protocol: Protocol) -> None:
        self._protocol, self._parser = protocol, protocol.parser  # as uvicorn has set it up

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> None:
        left = memoryview(data)  # many such requests may be in it; none copies those after it
        while True:
            try:
                self._parser.feed_data(left)
                return
            except httptools.HttpParserUpgrade as stopped:
                left = left[stopped.args[0] :]
            head = self._protocol.head_without_offer()
            if head is None:
                return
            # The old one may have come to its end: it has read of a request that closes.
            self._parser = httptools.HttpRequestParser(self._protocol)
            with suppress(AttributeError):  # before httptools 0.6.3; as uvicorn does it
                self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
            try:
                self._parser.feed_data(head)
            except httptools.HttpParserUpgrade:
                raise httptools.HttpParserError("an offer in disguise") from None


class Protocol(HttpToolsProtocol):
    """Heads of requests are short and come at once; uvicorn would take and wait for any."""

    _head_bytes = 0  # of heads, and of what follows a body in chunks; not of bodies
    _head_timer: asyncio.TimerHandle | None = None
    _offers = False  # to speak another protocol after this head

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as there
        super().connection_made(transport)
        self.parser = _Parser(self)  # type: ignore[assignment]  # it has what that one has
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._head_bytes > _HEAD_BYTES:
            self.send_400_response("The head of the request is too large.")
        elif len(self.pipeline) > _MOST_WAITING:
            self.transport.close()  # it asks and asks, and does not wait for an answer
        elif self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            # Something between two requests, or the rest of one that was answered already. It has
            # ended uvicorn's patience with a silent connection, which would last for ever now.
            self._expect_head()

    def on_message_begin(self) -> None:
        self._forget_timer()
        self._expect_head()
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        self._forget_timer()
        # CONNECT is an offer by itself, without a body; the application refuses it.
        self._offers = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._offers:  # else this head comes once more
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        if not self._offers:
            super().on_message_complete()

    def head_without_offer(self) -> bytes | None:
        """The head that was just read, of a request that stays with HTTP/1.1."""
        if not self._offers:
            return None
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(_HEAD_S, self.transport.close)

    def _forget_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class Server(uvicorn.Server):
    """Ends in order when it is told to, and that is a good end: others raise the signal again."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        told = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in told}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def server_of(app: FastAPI, host: str, port: int) -> Server:
    """As the gateway is served, in tests and benchmarks too."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,  # hereish.gateway.logs has set it up
        access_log=False,  # addresses may hold tokens and places; the guard logs requests
        server_header=False,
        ws="none",
        http=Protocol,
        timeout_graceful_shutdown=_END_S,
    )
    return Server(config)


def serve(app: FastAPI, host: str, port: int) -> bool:
    """Serve until told to end; what is under way is finished. False if it could not start."""
    sys.setswitchinterval(_TURN_S)
    # What is loaded by now stays. To look through it for garbage takes a tenth of a second, in
    # which nobody is answered, and a batch is large enough to cause it.
    gc.collect()
    gc.freeze()
    server = server_of(app, host, port)
    server.run()
    return server.started
