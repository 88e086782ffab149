"""A real HTTP server in the gateway's place that fails as it is told, and remembers what it got."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit


class Script:
    """What the server does, one act a request, and what it was sent. The last act is repeated."""

    def __init__(self, *acts: Act) -> None:
        self.acts = list(acts)
        self.seen: list[Request] = []
        self.paid: set[str] = set()


class Request:
    """One request, as the server got it."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length", 0))
        self.method = handler.command
        self.path = urlsplit(handler.path).path
        self.params = {k: v[0] for k, v in parse_qs(urlsplit(handler.path).query).items()}
        self.token = handler.headers.get("Authorization")
        self.position = handler.headers.get("Hereish-Ledger-Position")
        self.body: dict[str, Any] = json.loads(handler.rfile.read(length) or b"{}")


Act: TypeAlias = Callable[[BaseHTTPRequestHandler, Request], None]


def answer(status: int, body: object, **headers: str) -> Act:
    """Answers; bytes as they are, all else as JSON."""

    def act(handler: BaseHTTPRequestHandler, request: Request) -> None:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(sent)))
        handler.end_headers()
        handler.wfile.write(sent)

    return act


def drop(handler: BaseHTTPRequestHandler, request: Request) -> None:
    """Acts on the request, and the connection breaks before the answer."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True
    handler.connection.close()


def stop_halfway(handler: BaseHTTPRequestHandler, request: Request) -> None:
    """Promises a long answer, and breaks off."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"lat": 60')
    handler.wfile.flush()
    handler.close_connection = True


def echo(handler: BaseHTTPRequestHandler, request: Request) -> None:
    """Repeats all that it was sent, as no gateway should."""
    words = f"cannot read {request.body.get('lat')}, {request.body.get('lon')} of {request.token}"
    answer(422, {"error": words})(handler, request)


def hang(handler: BaseHTTPRequestHandler, request: Request) -> None:
    """Waits until the client has gone."""
    handler.connection.settimeout(10)
    handler.connection.recv(1)
    handler.close_connection = True


@contextmanager
def serving(script: Script) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _act(self) -> None:
            request = Request(self)
            script.seen.append(request)
            if "id" in request.body:
                script.paid.add(request.body["id"])
            act = script.acts.pop(0) if len(script.acts) > 1 else script.acts[0]
            act(self, request)

        do_GET = do_POST = _act  # noqa: N815  # as http.server calls them

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as there
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a connection that we broke

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
