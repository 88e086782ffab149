"""What arrives at receivers, on real parts: web servers, and a broker of MQTT."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import pytest

from hereish.gateway.admin import destinations
from hereish.gateway.forwarding.forwarder import Forwarder
from hereish.gateway.forwarding.outbox import Outbox
from hereish.gateway.ledger.ledger import Ledger
from tests.support.forwarding_stage import (
    Phone,
    on_both,
    seen,
    the_only,
)
from tests.support.receivers import (
    broker_receiver,
    certificate,
    wait_until,
    web_receiver,
)


@on_both
def test_owntracks_gets_each_release_in_order_and_only_its_fields(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver:
        headers = {"X-Limit-U": "alice", "X-Limit-D": "phone"}
        address = f"{receiver.url}/pub?key=k1"
        destinations.add_destination(ledger, "alice", address, "owntracks", headers=headers)
        released = phone.report(3) + phone.report(2)
        assert Outbox(ledger).count() == 5
        assert Forwarder(ledger).run_once(time.time()) == 5
        assert Outbox(ledger).count() == 0
        assert seen(receiver.bodies) == released
        for request in receiver.requests:
            assert set(request.body) == {"_type", "lat", "lon", "tst", "acc", "tid", "topic"}
            assert request.body["_type"] == "location"
            assert request.body["topic"] == "owntracks/alice/phone"
            assert request.body["tid"] == "al"
            assert request.body["acc"] > 0
            assert request.path == "/pub?key=k1"
            assert request.headers["content-type"] == "application/json"
            assert request.headers["x-limit-u"] == "alice"
            assert request.headers["x-limit-d"] == "phone"
            assert "authorization" not in request.headers


@on_both
def test_overland_gets_up_to_a_hundred_at_once_and_only_their_fields(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver:
        destinations.add_destination(
            ledger, "alice", f"{receiver.url}/o", "overland", bearer="b34rer"
        )
        released = phone.report(230)
        assert Forwarder(ledger).run_once(time.time()) == 230
    sizes = [len(body["locations"]) for body in receiver.bodies]
    assert sizes == [100, 100, 30]
    features = [feature for body in receiver.bodies for feature in body["locations"]]
    assert [(f["geometry"]["coordinates"]) for f in features] == [
        [lon, lat] for _, lat, lon in released
    ]
    for body in receiver.bodies:
        assert set(body) == {"locations"}
    for feature in features:
        assert set(feature) == {"type", "geometry", "properties"}
        assert set(feature["geometry"]) == {"type", "coordinates"}
        assert set(feature["properties"]) == {"timestamp", "horizontal_accuracy", "device_id"}
    assert {r.headers["authorization"] for r in receiver.requests} == {"Bearer b34rer"}


def test_a_batch_of_overland_names_no_device_but_the_initials_and_order_is_kept(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver:
        destinations.add_destination(ledger, "alice", receiver.url, "overland")
        for tid, number in (("al", 2), (None, 1), ("al", 1)):
            phone.tid = tid
            phone.report(number)
        Forwarder(ledger).run_once(time.time())
    devices = [
        [feature["properties"]["device_id"] for feature in body["locations"]]
        for body in receiver.bodies
    ]
    assert devices == [["al", "al"], ["hereish"], ["al"]]


def test_a_broker_gets_each_release_in_order_and_keeps_the_last(
    ledger: Ledger, phone: Phone, tmp_path: Path
) -> None:
    with broker_receiver(tmp_path) as broker:
        address = f"mqtt://alice:{broker.password}@127.0.0.1:{broker.port}/owntracks/alice/phone"
        destinations.add_destination(ledger, "alice", address, "mqtt")
        released = phone.report(4)
        assert Forwarder(ledger).run_once(time.time()) == 4
        assert Outbox(ledger).count() == 0
        wait_until(lambda: len(broker.messages) == 4)
        assert {topic for topic, _ in broker.messages} == {"owntracks/alice/phone"}
        assert seen([body for _, body in broker.messages]) == released
        for _, body in broker.messages:
            assert set(body) == {"_type", "lat", "lon", "tst", "acc", "tid"}
        assert seen([broker.look()["owntracks/alice/phone"]]) == released[-1:]


def test_a_broker_with_a_certificate_must_be_trusted(
    ledger: Ledger, phone: Phone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = certificate(tmp_path)
    with broker_receiver(tmp_path, pem) as broker:
        address = f"mqtts://alice:{broker.password}@127.0.0.1:{broker.port}/owntracks/a"
        destinations.add_destination(ledger, "alice", address, "mqtt")
        phone.report()
        assert Forwarder(ledger).run_once(time.time()) == 0
        assert the_only(ledger).trouble == "certificate not trusted"
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        assert Forwarder(ledger).run_once(time.time() + 10) == 1
        wait_until(lambda: len(broker.messages) == 1)


def test_a_web_server_with_a_certificate_must_be_trusted(
    ledger: Ledger, phone: Phone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = certificate(tmp_path)
    with web_receiver(pem) as receiver:
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        phone.report()
        assert Forwarder(ledger).run_once(time.time()) == 0
        assert the_only(ledger).trouble == "certificate not trusted"
        assert receiver.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        assert Forwarder(ledger).run_once(time.time() + 10) == 1
        assert len(receiver.requests) == 1


def test_user_and_password_are_sent_apart_from_the_address(ledger: Ledger, phone: Phone) -> None:
    with web_receiver() as receiver:
        address = receiver.url.replace("://", "://al%40home:p%3Aw@") + "/pub"
        destinations.add_destination(ledger, "alice", address, "owntracks")
        phone.report()
        Forwarder(ledger).run_once(time.time())
    (request,) = receiver.requests
    told = base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
    assert told == "al@home:p:w"
    assert "@" not in request.headers["host"]


def test_only_what_is_released_after_it_was_added_goes_to_a_destination(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver:
        phone.report(2)
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        released = phone.report()
        Forwarder(ledger).run_once(time.time())
        assert seen(receiver.bodies) == released
