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

_SHUTDOWN_S = 10  # for requests that are under way at shutdown
# Threads switch ten times as often as usual: a request whose database has answered should not
# wait for others that compute. This halves the latency of the slowest requests.
_SWITCH_INTERVAL_S = 0.0005
_HEAD_BYTES = 64 * 1024
_HEAD_S = 10.0
_MAX_PIPELINED = 32  # requests per connection; phones wait for each response


class _Http11Parser:
    """A parser that ignores the Upgrade header and stays with HTTP/1.1.

    httptools takes all that follows the head of such a request for the other protocol, and its body
    would be lost. `curl --http2` sends one with every request. A server may ignore it (RFC 9110,
    7.8): the head is parsed once more, without the header, and then what followed it.
    """

    def __init__(self, protocol: GatewayProtocol) -> None:
        self._protocol, self._parser = protocol, protocol.parser  # as uvicorn has set it up

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> None:
        left = memoryview(data)  # it may hold many such requests; none copies those after it
        while True:
            try:
                self._parser.feed_data(left)
                return
            except httptools.HttpParserUpgrade as stopped:
                left = left[stopped.args[0] :]
            head = self._protocol.head_without_upgrade()
            if head is None:
                return
            # The old parser may be at its end: a request that closes the connection.
            self._parser = httptools.HttpRequestParser(self._protocol)
            with suppress(AttributeError):  # before httptools 0.6.3; as uvicorn does it
                self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
            try:
                self._parser.feed_data(head)
            except httptools.HttpParserUpgrade:
                raise httptools.HttpParserError("an Upgrade header in disguise") from None


class GatewayProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on the size and the time of a request's head."""

    _head_bytes = 0  # of heads, and of what follows a body in chunks; not of bodies
    _head_timer: asyncio.TimerHandle | None = None
    _upgrade = False  # the head asks for another protocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as there
        super().connection_made(transport)
        self.parser = _Http11Parser(self)  # type: ignore[assignment]  # it has what that one has
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._head_bytes > _HEAD_BYTES:
            self.send_400_response("The head of the request is too large.")
        elif len(self.pipeline) > _MAX_PIPELINED:
            self.transport.close()  # it sends and sends, and does not wait for responses
        elif self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            # Data between two requests, or the rest of one that was answered already. It has
            # cancelled uvicorn's keep-alive timer, so the connection would stay open for ever.
            self._start_head_timer()

    def on_message_begin(self) -> None:
        self._cancel_head_timer()
        self._start_head_timer()
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        self._cancel_head_timer()
        # CONNECT is an upgrade by itself, without a body; the application refuses it.
        self._upgrade = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._upgrade:  # else this head is parsed once more
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        if not self._upgrade:
            super().on_message_complete()

    def head_without_upgrade(self) -> bytes | None:
        """The head that was just parsed, without its Upgrade header."""
        if not self._upgrade:
            return None
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(_HEAD_S, self.transport.close)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class GatewayServer(uvicorn.Server):
    """Exits with 0 after SIGINT and SIGTERM; uvicorn's own server raises the signal again."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def make_server(app: FastAPI, host: str, port: int) -> GatewayServer:
    """The server with the gateway's settings, for tests and benchmarks too."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,  # hereish.gateway.observability.logs sets it up
        access_log=False,  # addresses may hold tokens and places; the middleware logs requests
        server_header=False,
        ws="none",
        http=GatewayProtocol,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    return GatewayServer(config)


def serve(app: FastAPI, host: str, port: int) -> bool:
    """Serve until a signal; requests under way are finished. False if it could not start."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # What is loaded by now stays. Scanning it for garbage takes a tenth of a second, in which
    # nobody is answered, and a batch is large enough to cause it.
    gc.collect()
    gc.freeze()
    server = make_server(app, host, port)
    server.run()
    return server.started
