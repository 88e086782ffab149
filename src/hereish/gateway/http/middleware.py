"""The outermost layer: limits, errors, headers, and one log line and metrics per request.

Nothing of a request's content passes through here into a log or a response: not its address,
which may hold a token or a place, not its body, and no message of an exception.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hereish.gateway.http.errors import (
    ERROR_STATUS,
    BodyTimeoutError,
    BodyTooLargeError,
    ErrorStatus,
)
from hereish.gateway.observability.logs import describe_exception, log_event
from hereish.gateway.observability.metrics import Metrics

DEFAULT_BODY_BYTES = 2 * 1024 * 1024  # a thousand features of Overland are well below one MiB
DEFAULT_BODY_S = 10.0  # without a byte, or with hardly any
_MIN_BYTES_PER_S = 4 * 1024  # a batch may take minutes on a bad line, as long as it moves
_CLIENT_GONE = 499  # for logs and metrics: the client went away before the response
_DEFAULT_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class _ClientGoneError(Exception):
    """The connection was reset while the response was sent."""


class GatewayMiddleware:
    """ASGI middleware around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        body_bytes: int = DEFAULT_BODY_BYTES,
        body_s: float = DEFAULT_BODY_S,
    ) -> None:
        self._app, self._metrics = app, metrics
        self._body_bytes, self._body_s = body_bytes, body_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = time.perf_counter()
        status = 0
        defect_fields: dict[str, Any] = {}

        async def send_response(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message.setdefault("headers", [])
                known = {name.lower() for name, _ in headers}
                defaults = (header for header in _DEFAULT_HEADERS if header[0] not in known)
                message["headers"] = [*headers, *defaults]
            try:
                await send(message)
            except (OSError, RuntimeError):  # the latter is uvloop's for a reset connection
                raise _ClientGoneError from None

        try:
            if _content_length(scope) > self._body_bytes:
                raise BodyTooLargeError
            await self._app(scope, self._limit_body(receive), send_response)
        except (ClientDisconnect, _ClientGoneError):  # nobody waits for the response
            status = status or _CLIENT_GONE
        except Exception as error:  # noqa: BLE001  # its message may hold a place, so it ends here
            of_body = isinstance(error, BodyTooLargeError | BodyTimeoutError)
            found = ERROR_STATUS[type(error) if of_body else Exception]
            if not of_body:
                defect_fields = describe_exception(error)
            if not status:  # else half a response is out, and the server closes the connection
                await _send_error(send_response, found)
        route = _route_template(scope)
        took_s = time.perf_counter() - began_s
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(took_s)
        level = logging.ERROR if defect_fields or status >= 500 else logging.INFO
        ms = round(took_s * 1e3, 1)
        log_event("request", level, route=route, status=status, ms=ms, **defect_fields)

    def _limit_body(self, receive: Receive) -> Receive:
        size = 0
        until_s = time.monotonic() + self._body_s
        complete = False

        async def receive_limited() -> Message:
            nonlocal size, until_s, complete
            if complete:  # only waiting for the client to go away
                return await receive()
            try:
                left_s = max(0.0, until_s - time.monotonic())
                message = await asyncio.wait_for(receive(), left_s)
            except TimeoutError:
                raise BodyTimeoutError from None
            if message["type"] == "http.request":
                received = len(message.get("body", b""))
                size += received
                # Each byte buys time, and none can be saved up: a body that stops is given up as
                # soon as one that never began. A whole body buys at most `body_bytes` worth.
                until_s = min(
                    until_s + received / _MIN_BYTES_PER_S, time.monotonic() + self._body_s
                )
                complete = not message.get("more_body", False)
                if size > self._body_bytes:
                    raise BodyTooLargeError
            return message

        return receive_limited


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0


def _route_template(scope: Scope) -> str:
    """The template of the route, never the address itself."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "other"


async def _send_error(send: Send, found: ErrorStatus) -> None:
    body = json.dumps({"error": found.message}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": found.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
