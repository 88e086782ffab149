"""The HTTP server around the application."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

_END_S = 10  # for requests that are under way when it is told to end
# Threads take turns ten times as often as usual: a request whose database has answered should not
# wait for others that compute. The slowest requests are twice as quick by it.
_TURN_S = 0.0005


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
        timeout_graceful_shutdown=_END_S,
    )
    return Server(config)


def serve(app: FastAPI, host: str, port: int) -> bool:
    """Serve until told to end; what is under way is finished. False if it could not start."""
    sys.setswitchinterval(_TURN_S)
    server = server_of(app, host, port)
    server.run()
    return server.started
