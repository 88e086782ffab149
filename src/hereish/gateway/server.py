"""The HTTP server around the application."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_END_S = 10  # for requests that are under way when it is told to end
# Threads take turns ten times as often as usual: a request whose database has answered should not
# wait for others that compute. The slowest requests are twice as quick by it.
_TURN_S = 0.0005
_HEAD_BYTES = 64 * 1024
_HEAD_S = 10.0


class Protocol(HttpToolsProtocol):
    """Heads of requests are short and come at once; uvicorn would take and wait for any."""

    _in_head, _head_bytes = False, 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as there
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > _HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        self._in_head = True
        if self._head_timer is None:
            self._expect_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        self._forget_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        super().on_message_complete()

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
    server = server_of(app, host, port)
    server.run()
    return server.started
