"""The senders. What leaves is made of releases alone, by the formats' own functions.

What goes wrong is told in words of ours: those of others may hold an address, and that a key.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import httpx
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from hereish.errors import HereishError
from hereish.gateway.admin.destinations import DestinationTarget
from hereish.gateway.http.protocols import osmand, overland, owntracks
from hereish.gateway.ledger.models import LedgerRelease

BATCH = 100
"""As many releases are handed over at most in one go, and in one request of Overland."""
SEND_S = 20.0
"""One request, or one message of MQTT, has taken this long at most: then it has failed."""
GO_S = 10.0
"""After this long a go begins no further request."""
_CONNECT_S = 10.0
_MOST_OF_AN_ANSWER = 65_536  # bytes
_ANSWER_S = 2.0
_LOOK_S = 0.25
_KEEPALIVE_S = 60  # longer than we ever wait: our own limits come first
_GREETING_S = 2.0  # after this long it may be that a broker is too old for our greeting
_NEW, _OLD = MQTTProtocolVersion.MQTTv5, MQTTProtocolVersion.MQTTv311
_TOO_NEW = 0x84  # what a broker says to a version that it does not speak
_T = TypeVar("_T")


class NotTaken(HereishError):  # noqa: N818  # it says what it is
    """The receiver did not say that it took it."""


class Parcel(NamedTuple):
    """A release that waits."""

    id: int
    release: LedgerRelease
    device: str
    tid: str | None


class Go:
    """How far a delivery has come, and whether somebody wants it to end."""

    def __init__(self) -> None:
        self.taken = 0  # so many of the parcels, from the first one on
        self.ending = False  # begin nothing more
        self.given_up = False  # nor wait for what was begun
        self._until_s = time.monotonic() + GO_S

    @property
    def late(self) -> bool:
        return time.monotonic() > self._until_s

    @property
    def over(self) -> bool:
        """Whether to begin nothing more; but a go that came to nothing must have met trouble."""
        return self.ending or (self.taken > 0 and self.late)


class Sender:
    """Delivers to any target. Keeps no connection and no cookie beyond a delivery.

    Made within the loop that it works in. A delivery needs one thread at a time, so with `at_once`
    of them no delivery waits for another, however long that hangs.
    """

    def __init__(self, at_once: int) -> None:
        # The certificates that this machine trusts; SSL_CERT_FILE names others.
        self._trust = ssl.create_default_context()
        self._trust.sslsocket_class = _Closing
        self._threads = ThreadPoolExecutor(at_once, "hereish-send")
        # Of the HTTP transport, which leaves a thread behind when a name takes too long.
        spare = ThreadPoolExecutor(2 * at_once, "hereish-names")
        asyncio.get_running_loop().set_default_executor(spare)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def deliver(self, target: DestinationTarget, parcels: Sequence[Parcel], go: Go) -> None:
        """Send parcels in their order; `go.taken` counts those that the receiver took.

        Raises NotTaken at the first one that it did not take. Ends early if `go` is over.
        """
        letters = _letters(target, parcels)
        if target.format == "mqtt":
            try:
                await self._in_thread(_publish, target, letters, go, self._trust)
            except asyncio.CancelledError:
                go.ending = go.given_up = True  # a thread has to be told
                raise
        else:
            host = httpx.URL(target.address).raw_host  # as the transport will ask for it
            if await self._in_thread(_looked_up, host, target.port, go):
                await _post(target, letters, go, self._trust)

    async def _in_thread(self, work: Callable[..., _T], *about: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *about)


def _looked_up(host: str | bytes, port: int, go: Go) -> bool:
    """In a thread: see that a name can be looked up. False if it is too late to begin.

    Who connects afterwards looks it up again, and has the answer soon. Looking up cannot be
    broken off; so a delivery waits here as long as its thread does, and dead name servers tie up
    no more threads than there are deliveries.
    """
    if go.ending or go.late:  # no thread was free for so long; the lease has to be renewed first
        return False
    begin_s = time.monotonic()
    words = None
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        words = "name not found"
    if time.monotonic() - begin_s > SEND_S:
        words = "timeout"
    if words is not None:
        raise NotTaken(words)
    return not go.ending


def _letters(target: DestinationTarget, parcels: Sequence[Parcel]) -> Iterator[tuple[int, bytes]]:
    """What is sent at a time, and how many parcels are in it."""
    accuracy = target.accuracy
    if target.format == "overland":
        for tid, group in groupby(parcels, key=lambda parcel: parcel.tid):
            releases = [parcel.release for parcel in group]
            for start in range(0, len(releases), BATCH):
                some = releases[start : start + BATCH]
                message = overland.batch(some, target.device or tid, accuracy=accuracy)
                yield len(some), _dumped(message)
        return
    for parcel in parcels:
        if target.format == "osmand":
            yield 1, osmand.query(parcel.release, target.osmand_id, accuracy=accuracy).encode()
        else:
            tid, topic = parcel.tid or target.initials, target.message_topic
            message = owntracks.location(parcel.release, tid, topic=topic, accuracy=accuracy)
            yield 1, _dumped(message)


def _dumped(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode()


async def _post(
    target: DestinationTarget, letters: Iterator[tuple[int, bytes]], go: Go, trust: ssl.SSLContext
) -> None:
    # The transport without a client around it: nothing is redirected, remembered or logged, and
    # no setting of the environment sends a release another way.
    async with httpx.AsyncHTTPTransport(verify=trust, trust_env=False) as transport:
        for number, body in letters:
            if go.over:
                return
            await _post_one(transport, _request(target, body))
            go.taken += number


def _request(target: DestinationTarget, letter: bytes) -> httpx.Request:
    headers = {**(target.headers or {}), "User-Agent": "hereish"}
    method, address, body = "POST", target.address, letter
    if target.format == "osmand":  # PhoneTrack takes nothing else, and Traccar takes it too
        joint = "&" if urlsplit(address).query else "?"
        method, address, body = "GET", f"{address}{joint}{letter.decode()}", b""
    else:
        headers["Content-Type"] = "application/json"
    if target.bearer is not None:
        headers["Authorization"] = f"Bearer {target.bearer}"
    elif target.username is not None:
        pair = f"{target.username}:{target.password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    limits = httpx.Timeout(SEND_S, connect=_CONNECT_S).as_dict()
    content = body or None
    return httpx.Request(
        method, address, headers=headers, content=content, extensions={"timeout": limits}
    )


async def _post_one(transport: httpx.AsyncHTTPTransport, request: httpx.Request) -> None:
    words = None
    try:
        # All of it together: a receiver that sends a byte now and then would never time out.
        async with asyncio.timeout(SEND_S):
            response = await transport.handle_async_request(request)
    except (TimeoutError, httpx.TimeoutException):
        words = "timeout"
    except (httpx.TransportError, OSError) as trouble:
        words = _words(trouble)
    if words is not None:  # not raised above, where the error would carry one with the address
        raise NotTaken(words)
    await _finish(response)
    if not response.is_success:
        further = ", and redirects are not followed" if response.has_redirect_location else ""
        raise NotTaken(f"answered {response.status_code}{further}")


async def _finish(response: httpx.Response) -> None:
    """Read a short answer to its end, so that the connection can be used again; close others."""
    # The status has been said. What becomes of the rest makes no difference.
    with suppress(TimeoutError, httpx.TransportError, OSError):
        read = 0
        async with asyncio.timeout(_ANSWER_S):
            async for chunk in response.stream:  # type: ignore[union-attr]  # an async transport's
                read += len(chunk)
                if read > _MOST_OF_AN_ANSWER:
                    break
    with suppress(httpx.TransportError, OSError):
        await response.aclose()


def _words(trouble: BaseException) -> str:
    """What went wrong with a connection."""
    cause: BaseException | None = trouble
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "certificate not trusted"
        if isinstance(cause, ssl.SSLError):
            return "no TLS"
        cause = cause.__cause__ or cause.__context__
    if isinstance(trouble, TimeoutError):
        return "timeout"
    if isinstance(trouble, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError):
        return "connection lost before an answer"
    return "no connection"


def _publish(
    target: DestinationTarget, letters: Iterator[tuple[int, bytes]], go: Go, trust: ssl.SSLContext
) -> None:
    """In a thread of its own: the client of MQTT waits for the network where it stands."""
    if not _looked_up(target.host, target.port, go):
        return
    # An acknowledgement can be a refusal in MQTT 5 only. Nothing is remembered about a broker: it
    # may be another one the next time.
    with closing(_Broker(target, go, trust, _NEW)) as broker:
        if not _is_older(broker, target, go, trust) and broker.publish(target.topic, letters):
            return
    with closing(_Broker(target, go, trust, _OLD)) as broker:
        if not broker.publish(target.topic, letters):
            raise NotTaken("refused by the broker")


def _is_older(broker: _Broker, target: DestinationTarget, go: Go, trust: ssl.SSLContext) -> bool:
    """Whether a broker says that it does not speak MQTT 5."""
    with suppress(NotTaken):  # who publishes will meet it again
        if broker.answers(_GREETING_S):
            return broker.is_older
    if target.username is not None and not go.given_up:
        # Some misread user and password, and wait for the rest of them or hang up, before they
        # look at the version. Without these they come to it.
        nobody = replace(target, username=None, password=None)
        with suppress(NotTaken), closing(_Broker(nobody, go, trust, _NEW)) as again:
            return again.answers(_GREETING_S) and again.is_older
    return False


class _Closing(ssl.SSLSocket):
    """A socket that does not stay open after a failed handshake, as it would with Paho."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise


class _Broker:
    """A connection to a broker. Its callbacks run in `loop`, so there is one thread only."""

    def __init__(
        self, target: DestinationTarget, go: Go, trust: ssl.SSLContext, version: MQTTProtocolVersion
    ) -> None:
        self._go = go
        self._welcome: bool | None = None
        self.is_older = False
        self._acknowledged: dict[int, bool] = {}  # whether it was taken
        self._client = client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"hereish{secrets.token_hex(8)}",
            protocol=version,
            reconnect_on_failure=False,
        )
        client.on_connect = self._on_connect
        client.on_publish = self._on_publish
        client.connect_timeout = _CONNECT_S
        if target.username is not None:
            client.username_pw_set(target.username, target.password)
        if target.encrypted:
            client.tls_set_context(trust)
        words = None
        try:
            client.connect(target.host, target.port, keepalive=_KEEPALIVE_S)
        except OSError as trouble:
            words = _words(trouble)
        if words is not None:
            raise NotTaken(words)

    def _on_connect(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        self._welcome = not reason.is_failure
        self.is_older = reason.value == _TOO_NEW

    def _on_publish(self, _: Any, __: Any, number: int, reason: Any, ____: Any) -> None:
        self._acknowledged[number] = not reason.is_failure

    def answers(self, within_s: float) -> bool:
        """Whether it says by then if we are welcome, or that it is older."""
        return self._comes(lambda: self._welcome is not None or self.is_older, within_s)

    def publish(self, topic: str, letters: Iterator[tuple[int, bytes]]) -> bool:
        """Each when the broker has taken the one before. Retained, as OwnTracks does.

        False if it does not speak our version after all.
        """
        self._await(lambda: self._welcome is not None or self.is_older)
        if self.is_older:
            return False
        if not self._welcome:
            raise NotTaken("refused by the broker")
        for number, body in letters:
            if self._go.over:
                break
            self._publish_one(topic, body)
            self._go.taken += number
        return True

    def _publish_one(self, topic: str, body: bytes) -> None:
        sent = self._client.publish(topic, body, qos=1, retain=True).mid
        self._await(lambda: sent in self._acknowledged)
        if not self._acknowledged[sent]:
            raise NotTaken("message refused by the broker")

    def _await(self, done: Callable[[], bool]) -> None:
        if not self._comes(done, SEND_S):
            raise NotTaken("timeout")

    def _comes(self, done: Callable[[], bool], within_s: float) -> bool:
        end_s = time.monotonic() + within_s
        while not done():
            if self._go.given_up or time.monotonic() > end_s:
                return False
            try:
                state = self._client.loop(_LOOK_S)
            except OSError:
                state = mqtt.MQTT_ERR_CONN_LOST
            if state == mqtt.MQTT_ERR_PROTOCOL and self._welcome is None:
                self.is_older = True  # it greets as one does in an older version
            if state != mqtt.MQTT_ERR_SUCCESS and not done():
                raise NotTaken("connection lost before an answer")
        return True

    def close(self) -> None:
        # What knows itself would keep its sockets until somebody collects it.
        self._client.on_connect = self._client.on_publish = None
        with suppress(OSError):
            self._client.disconnect()
