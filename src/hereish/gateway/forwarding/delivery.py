"""What all senders share: a queued release, an attempt to deliver, its limits and its errors.

Error messages are our own: those of libraries may hold an address, and an address may hold a key.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import NamedTuple

import httpx

from hereish.errors import HereishError
from hereish.gateway.ledger.models import LedgerRelease

BATCH = 100
"""At most this many releases are handed over per attempt, and per request of Overland."""
SEND_S = 20.0
"""One request, or one MQTT message, fails after this long."""
ATTEMPT_S = 10.0
"""After this long an attempt begins no further request."""
CONNECT_S = 10.0


class DeliveryError(HereishError):
    """The receiver did not acknowledge a message."""


class QueuedRelease(NamedTuple):
    """A release in the outbox."""

    id: int
    release: LedgerRelease
    device: str
    tid: str | None


class Message(NamedTuple):
    """What is sent at a time, and how many releases are in it."""

    releases: int
    body: bytes


class DeliveryAttempt:
    """The progress of one delivery, and whether somebody wants it to end."""

    def __init__(self) -> None:
        self.delivered = 0  # so many of the releases, from the first one on
        self.stopping = False  # begin nothing more
        self.abandoned = False  # nor wait for what was begun
        self._until_s = time.monotonic() + ATTEMPT_S

    @property
    def overdue(self) -> bool:
        return time.monotonic() > self._until_s

    @property
    def finished(self) -> bool:
        """Whether to begin nothing more. An attempt that delivered nothing must fail instead."""
        return self.stopping or (self.delivered > 0 and self.overdue)


def resolve_host(host: str | bytes, port: int, attempt: DeliveryAttempt) -> bool:
    """In a thread: see that a name can be resolved. False if it is too late to begin.

    Whoever connects afterwards resolves it again, from a warm cache. Resolving cannot be cancelled;
    so a delivery waits here as long as its thread does, and dead name servers tie up no more
    threads than there are deliveries.
    """
    if attempt.stopping or attempt.overdue:  # no thread was free; the lease must be renewed first
        return False
    begin_s = time.monotonic()
    error = None
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        error = "name not found"
    if time.monotonic() - begin_s > SEND_S:
        error = "timeout"
    if error is not None:
        raise DeliveryError(error)
    return not attempt.stopping


def describe_connection_error(error: BaseException) -> str:
    """What went wrong with a connection, without the address."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "certificate not trusted"
        if isinstance(cause, ssl.SSLError):
            return "no TLS"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError):
        return "connection lost before an answer"
    return "no connection"
