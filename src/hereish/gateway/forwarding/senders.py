"""Delivers queued releases to any target. What leaves is made of releases alone, in the formats of
`hereish.gateway.http.protocols`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, TypeVar

import httpx

from hereish.gateway.forwarding.delivery import (
    BATCH,
    DeliveryAttempt,
    Message,
    QueuedRelease,
    resolve_host,
)
from hereish.gateway.forwarding.http_sender import post_messages
from hereish.gateway.forwarding.mqtt_sender import ClosingSocket, publish_messages
from hereish.gateway.forwarding.targets import DestinationTarget
from hereish.gateway.http.protocols import osmand, overland, owntracks

_T = TypeVar("_T")


class Sender:
    """Delivers to any target. Keeps no connection and no cookie beyond a delivery.

    Made within the loop that it works in. A delivery needs one thread at a time, so with
    `max_deliveries` threads no delivery waits for another, however long that one hangs.
    """

    def __init__(self, max_deliveries: int) -> None:
        # The certificates that this machine trusts; SSL_CERT_FILE names others.
        self._tls = ssl.create_default_context()
        self._tls.sslsocket_class = ClosingSocket
        self._threads = ThreadPoolExecutor(max_deliveries, "hereish-send")
        # Of the HTTP transport, which leaves a thread behind when a name takes too long.
        resolvers = ThreadPoolExecutor(2 * max_deliveries, "hereish-names")
        asyncio.get_running_loop().set_default_executor(resolvers)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def deliver(
        self, target: DestinationTarget, queued: Sequence[QueuedRelease], attempt: DeliveryAttempt
    ) -> None:
        """Send releases in their order; `attempt.delivered` counts those that were acknowledged.

        Raises DeliveryError at the first one that was not. Ends early if the attempt is finished.
        """
        messages = encode_messages(target, queued)
        if target.format == "mqtt":
            try:
                await self._in_thread(publish_messages, target, messages, attempt, self._tls)
            except asyncio.CancelledError:
                attempt.stopping = attempt.abandoned = True  # cancelling does not stop a thread
                raise
        else:
            host = httpx.URL(target.address).raw_host  # as the transport will resolve it
            if await self._in_thread(resolve_host, host, target.port, attempt):
                await post_messages(target, messages, attempt, self._tls)

    async def _in_thread(self, function: Callable[..., _T], *arguments: Any) -> _T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)


def encode_messages(
    target: DestinationTarget, queued: Sequence[QueuedRelease]
) -> Iterator[Message]:
    """Releases in the format of the target."""
    accuracy = target.accuracy
    if target.format == "overland":
        for tid, group in groupby(queued, key=lambda item: item.tid):
            releases = [item.release for item in group]
            for start in range(0, len(releases), BATCH):
                batch = releases[start : start + BATCH]
                body = overland.batch(batch, target.device or tid, accuracy=accuracy)
                yield Message(len(batch), _to_json(body))
        return
    for item in queued:
        if target.format == "osmand":
            query = osmand.query(item.release, target.osmand_id, accuracy=accuracy)
            yield Message(1, query.encode())
        else:
            tid, topic = item.tid or target.initials, target.message_topic
            location = owntracks.location(item.release, tid, topic=topic, accuracy=accuracy)
            yield Message(1, _to_json(location))


def _to_json(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
