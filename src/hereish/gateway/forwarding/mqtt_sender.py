"""Delivers messages to an MQTT broker: in MQTT 5, or in 3.1.1 where it speaks nothing newer."""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from hereish.gateway.forwarding import delivery
from hereish.gateway.forwarding.delivery import (
    DeliveryAttempt,
    DeliveryError,
    Message,
    describe_connection_error,
    resolve_host,
)
from hereish.gateway.forwarding.targets import DestinationTarget

_LOOP_S = 0.25
_KEEPALIVE_S = 60  # longer than we ever wait: our own limits come first
_CONNACK_S = 2.0  # without an acknowledgement by then a broker may be too old for MQTT 5
_V5, _V311 = MQTTProtocolVersion.MQTTv5, MQTTProtocolVersion.MQTTv311
_UNSUPPORTED_VERSION = 0x84  # the reason code of MQTT


def publish_messages(
    target: DestinationTarget,
    messages: Iterator[Message],
    attempt: DeliveryAttempt,
    tls: ssl.SSLContext,
) -> None:
    """In a thread of its own, since Paho's client blocks. Ends early if the attempt is finished."""
    if not resolve_host(target.host, target.port, attempt):
        return
    # Only in MQTT 5 can an acknowledgement be a refusal. Nothing is remembered about a broker: it
    # may be another one the next time.
    with closing(_BrokerConnection(target, attempt, tls, _V5)) as broker:
        if not _lacks_mqtt5(broker, target, attempt, tls) and broker.publish(
            target.topic, messages
        ):
            return
    with closing(_BrokerConnection(target, attempt, tls, _V311)) as broker:
        if not broker.publish(target.topic, messages):
            raise DeliveryError("refused by the broker")


def _lacks_mqtt5(
    broker: _BrokerConnection,
    target: DestinationTarget,
    attempt: DeliveryAttempt,
    tls: ssl.SSLContext,
) -> bool:
    """Whether a broker says that it does not speak MQTT 5."""
    with suppress(DeliveryError):  # publishing will meet it again
        if broker.acknowledges(_CONNACK_S):
            return broker.lacks_version
    if target.username is not None and not attempt.abandoned:
        # Some misread user and password, and wait for the rest of them or hang up, before they
        # look at the version. Without these they come to it.
        anonymous = replace(target, username=None, password=None)
        with (
            suppress(DeliveryError),
            closing(_BrokerConnection(anonymous, attempt, tls, _V5)) as again,
        ):
            return again.acknowledges(_CONNACK_S) and again.lacks_version
    return False


class ClosingSocket(ssl.SSLSocket):
    """A socket that does not stay open after a failed handshake, as it would with Paho."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise


class _BrokerConnection:
    """A connection to a broker. Its callbacks run in `loop`, so there is one thread only."""

    def __init__(
        self,
        target: DestinationTarget,
        attempt: DeliveryAttempt,
        tls: ssl.SSLContext,
        version: MQTTProtocolVersion,
    ) -> None:
        self._attempt = attempt
        self._accepted: bool | None = None
        self.lacks_version = False
        self._acknowledged: dict[int, bool] = {}  # message number: whether it was accepted
        self._client = client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"hereish{secrets.token_hex(8)}",
            protocol=version,
            reconnect_on_failure=False,
        )
        client.on_connect = self._on_connect
        client.on_publish = self._on_publish
        client.connect_timeout = delivery.CONNECT_S
        if target.username is not None:
            client.username_pw_set(target.username, target.password)
        if target.encrypted:
            client.tls_set_context(tls)
        error = None
        try:
            client.connect(target.host, target.port, keepalive=_KEEPALIVE_S)
        except OSError as failure:
            error = describe_connection_error(failure)
        if error is not None:
            raise DeliveryError(error)

    def _on_connect(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        self._accepted = not reason.is_failure
        self.lacks_version = reason.value == _UNSUPPORTED_VERSION

    def _on_publish(self, _: Any, __: Any, number: int, reason: Any, ____: Any) -> None:
        self._acknowledged[number] = not reason.is_failure

    def acknowledges(self, within_s: float) -> bool:
        """Whether it accepts or refuses the connection in time."""
        return self._wait_for(self._has_connack, within_s)

    def publish(self, topic: str, messages: Iterator[Message]) -> bool:
        """Each after the broker has acknowledged the one before. Retained, as OwnTracks does.

        False if it does not speak our version after all.
        """
        self._require(self._has_connack)
        if self.lacks_version:
            return False
        if not self._accepted:
            raise DeliveryError("refused by the broker")
        for message in messages:
            if self._attempt.finished:
                break
            self._publish_one(topic, message.body)
            self._attempt.delivered += message.releases
        return True

    def _publish_one(self, topic: str, body: bytes) -> None:
        sent = self._client.publish(topic, body, qos=1, retain=True).mid
        self._require(lambda: sent in self._acknowledged)
        if not self._acknowledged[sent]:
            raise DeliveryError("message refused by the broker")

    def _has_connack(self) -> bool:
        return self._accepted is not None or self.lacks_version

    def _require(self, done: Callable[[], bool]) -> None:
        if not self._wait_for(done, delivery.SEND_S):
            raise DeliveryError("timeout")

    def _wait_for(self, done: Callable[[], bool], within_s: float) -> bool:
        end_s = time.monotonic() + within_s
        while not done():
            if self._attempt.abandoned or time.monotonic() > end_s:
                return False
            try:
                state = self._client.loop(_LOOP_S)
            except OSError:
                state = mqtt.MQTT_ERR_CONN_LOST
            if state == mqtt.MQTT_ERR_PROTOCOL and self._accepted is None:
                self.lacks_version = True  # its acknowledgement is one of an older version
            if state != mqtt.MQTT_ERR_SUCCESS and not done():
                raise DeliveryError("connection lost before an answer")
        return True

    def close(self) -> None:
        # A reference cycle would keep its sockets open until the garbage collector runs.
        self._client.on_connect = self._client.on_publish = None
        with suppress(OSError):
            self._client.disconnect()
