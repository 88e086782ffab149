"""The outermost layer: sizes, times, errors, headers, a log line and a number for each request.

Nothing of a request's content passes through here into a log or an answer: not its address, which
may hold a token or a place, not its body, and no text of an exception.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hereish.gateway.observability.logs import describe_exception, log_event
from hereish.gateway.observability.metrics import Metrics

DEFAULT_BODY_BYTES = 2 * 1024 * 1024  # a thousand features of Overland are well below one MiB
DEFAULT_BODY_S = 10.0  # without a byte, or with hardly any
_LEAST_PER_S = 4 * 1024  # bytes; a batch may take minutes on a bad line, as long as it moves
_GONE = 499  # for logs and metrics: the client went away before there was an answer
_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class _TooLarge(Exception):  # noqa: N818  # it never leaves this module
    pass


class _Gone(Exception):  # noqa: N818  # it never leaves this module
    pass


class _TooSlow(Exception):  # noqa: N818  # it never leaves this module
    pass


class Guard:
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
        told: dict[str, Any] = {}
        limited = self._limited(receive)

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message.setdefault("headers", [])
                known = {name.lower() for name, _ in headers}
                message["headers"] = [*headers, *(h for h in _ALWAYS if h[0] not in known)]
            try:
                await send(message)
            except (OSError, RuntimeError):  # uvloop's word for a connection that was reset
                raise _Gone from None

        try:
            if _length(scope) > self._body_bytes:
                raise _TooLarge
            await self._app(scope, limited, sent)
        except _TooLarge:
            await _answer(sent, status, 413, "the body is too large")
        except _TooSlow:
            await _answer(sent, status, 408, "the body did not arrive in time")
        except (ClientDisconnect, _Gone):  # nobody waits for the answer, and nothing is wrong here
            status = status or _GONE
        except Exception as wrong:  # noqa: BLE001  # its words may hold a place, so it ends here
            told = describe_exception(wrong)
            await _answer(sent, status, 500, "a defect of the gateway; it may be sent again")
        route = _route(scope)
        took_s = time.perf_counter() - began_s
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.seconds.labels(route).observe(took_s)
        level = logging.ERROR if told or status >= 500 else logging.INFO
        log_event("request", level, route=route, status=status, ms=round(took_s * 1e3, 1), **told)

    def _limited(self, receive: Receive) -> Receive:
        size = 0
        until_s = time.monotonic() + self._body_s
        whole = False

        async def limited() -> Message:
            nonlocal size, until_s, whole
            if whole:  # only waiting for the client to go away
                return await receive()
            try:
                left_s = max(0.0, until_s - time.monotonic())
                message = await asyncio.wait_for(receive(), left_s)
            except TimeoutError:
                raise _TooSlow from None
            if message["type"] == "http.request":
                came = len(message.get("body", b""))
                size += came
                # Each byte buys time, and none can be saved up: who stops is given up as soon as
                # who never began. All of a body has at most `body_bytes` worth of it.
                until_s = min(until_s + came / _LEAST_PER_S, time.monotonic() + self._body_s)
                whole = not message.get("more_body", False)
                if size > self._body_bytes:
                    raise _TooLarge
            return message

        return limited


def _length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0


def _route(scope: Scope) -> str:
    """The template of the route, never the address itself."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "other"


async def _answer(send: Send, begun: int, status: int, words: str) -> None:
    if begun:
        return  # half an answer is out; the server closes the connection
    body = json.dumps({"error": words}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
