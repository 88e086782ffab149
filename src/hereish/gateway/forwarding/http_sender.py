"""Delivers messages over HTTP, one request each."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import httpx

from hereish.gateway.forwarding import delivery
from hereish.gateway.forwarding.delivery import (
    DeliveryAttempt,
    DeliveryError,
    Message,
    describe_connection_error,
)
from hereish.gateway.forwarding.targets import DestinationTarget

_MOST_RESPONSE_BYTES = 65_536
_RESPONSE_S = 2.0


async def post_messages(
    target: DestinationTarget,
    messages: Iterator[Message],
    attempt: DeliveryAttempt,
    tls: ssl.SSLContext,
) -> None:
    """Send messages in their order until one fails or the attempt is finished."""
    # The transport without a client around it: nothing is redirected, remembered or logged, and
    # no setting of the environment sends a release another way.
    async with httpx.AsyncHTTPTransport(verify=tls, trust_env=False) as transport:
        for message in messages:
            if attempt.finished:
                return
            await _send(transport, _make_request(target, message.body))
            attempt.delivered += message.releases


def _make_request(target: DestinationTarget, message: bytes) -> httpx.Request:
    headers = {**(target.headers or {}), "User-Agent": "hereish"}
    method, address, body = "POST", target.address, message
    if target.format == "osmand":  # PhoneTrack takes nothing else, and Traccar takes it too
        joint = "&" if urlsplit(address).query else "?"
        method, address, body = "GET", f"{address}{joint}{message.decode()}", b""
    else:
        headers["Content-Type"] = "application/json"
    if target.bearer is not None:
        headers["Authorization"] = f"Bearer {target.bearer}"
    elif target.username is not None:
        pair = f"{target.username}:{target.password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    limits = httpx.Timeout(delivery.SEND_S, connect=delivery.CONNECT_S).as_dict()
    content = body or None
    return httpx.Request(
        method, address, headers=headers, content=content, extensions={"timeout": limits}
    )


async def _send(transport: httpx.AsyncHTTPTransport, request: httpx.Request) -> None:
    error = None
    try:
        # All of it together: a receiver that sends a byte now and then would never time out.
        async with asyncio.timeout(delivery.SEND_S):
            response = await transport.handle_async_request(request)
    except (TimeoutError, httpx.TimeoutException):
        error = "timeout"
    except (httpx.TransportError, OSError) as failure:
        error = describe_connection_error(failure)
    if error is not None:  # not raised above, where the error would carry one with the address
        raise DeliveryError(error)
    await _finish_response(response)
    if not response.is_success:
        redirect = ", and redirects are not followed" if response.has_redirect_location else ""
        raise DeliveryError(f"answered {response.status_code}{redirect}")


async def _finish_response(response: httpx.Response) -> None:
    """Read a short response to its end, so that the connection can be reused; close others."""
    # The status is known. What becomes of the rest makes no difference.
    with suppress(TimeoutError, httpx.TransportError, OSError):
        read = 0
        async with asyncio.timeout(_RESPONSE_S):
            async for chunk in response.stream:  # type: ignore[union-attr]  # an async transport's
                read += len(chunk)
                if read > _MOST_RESPONSE_BYTES:
                    break
    with suppress(httpx.TransportError, OSError):
        await response.aclose()
