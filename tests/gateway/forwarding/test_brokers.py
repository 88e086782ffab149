"""Brokers that say no, or do not know the newer MQTT."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hereish.gateway.admin import destinations
from hereish.gateway.forwarding import mqtt_sender
from hereish.gateway.forwarding.forwarder import Forwarder
from hereish.gateway.forwarding.outbox import Outbox
from hereish.gateway.ledger.ledger import Ledger
from tests.support.forwarding_stage import Phone, logged, seen, the_only
from tests.support.receivers import broker_receiver, mosquitto, old_broker, wait_until

TOPIC = "owntracks/alice/phone"


def test_what_an_access_list_forbids_waits_until_it_is_allowed(
    ledger: Ledger, phone: Phone, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mosquitto(tmp_path, "topic write owntracks/somebody/else") as broker:
        address = f"mqtt://alice:{broker.password}@127.0.0.1:{broker.port}/{TOPIC}"
        destinations.add_destination(ledger, "alice", address, "mqtt")
        released = phone.report(3)
        now_s = time.time()
        assert Forwarder(ledger).run_once(now_s) == 0
        state = the_only(ledger)
        assert (state.waiting, state.tries) == (3, 1)
        assert state.trouble == "message refused by the broker"
        assert state.next_try_s > now_s
        assert broker.messages == []
        broker.allow("topic read #", f"topic write {TOPIC}")
        taken, tries = 0, 0
        while taken == 0:  # until the broker has read its list again
            tries += 1
            assert tries < 100
            time.sleep(0.05)
            taken = Forwarder(ledger).run_once(now_s + tries * 3600)
        assert taken == 3
        wait_until(lambda: len(broker.messages) == 3)
        assert seen([body for _, body in broker.messages]) == released
        state = the_only(ledger)
        assert (state.waiting, state.tries, state.trouble) == (0, 0, None)
    for secret in (TOPIC, broker.password):
        assert secret not in logged(caplog)


def test_what_was_taken_before_a_refusal_is_not_sent_again(
    ledger: Ledger, phone: Phone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = iter([TOPIC, TOPIC, "owntracks/forbidden"])
    with mosquitto(tmp_path, f"topic write {TOPIC}") as broker:
        destinations.add_destination(
            ledger, "alice", f"mqtt://alice@127.0.0.1:{broker.port}/{TOPIC}", "mqtt"
        )
        released = phone.report(4)
        with monkeypatch.context() as meanwhile:
            wrap = mqtt_sender._BrokerConnection._publish_one
            meanwhile.setattr(
                mqtt_sender._BrokerConnection,
                "_publish_one",
                lambda self, topic, body: wrap(self, next(topics), body),
            )
            assert Forwarder(ledger).run_once(time.time()) == 2
        assert the_only(ledger).trouble == "message refused by the broker"
        assert Forwarder(ledger).run_once(time.time() + 10) == 2
        wait_until(lambda: len(broker.messages) == 4)
        assert seen([body for _, body in broker.messages]) == released


@pytest.mark.parametrize(
    "says",
    [
        b"\x20\x02\x00\x01",  # as MQTT 3.1.1 refuses a version
        b"\x20\x03\x00\x84\x00",  # as MQTT 5 does
        b"\x20\x02\x00\x00",  # welcome, as MQTT 3.1.1 says it: it did not look at the version
    ],
)
def test_a_broker_that_refuses_the_version_is_asked_in_the_older_one(
    ledger: Ledger, phone: Phone, says: bytes
) -> None:
    with old_broker(says) as (port, versions):
        destinations.add_destination(ledger, "alice", f"mqtt://127.0.0.1:{port}/{TOPIC}", "mqtt")
        phone.report(3)
        assert Forwarder(ledger).run_once(time.time()) == 3
        assert versions == [5, 4]


@pytest.mark.parametrize("credentials", ["", "alice:x@"])
def test_a_broker_may_take_its_time_to_refuse_the_version(
    ledger: Ledger, phone: Phone, monkeypatch: pytest.MonkeyPatch, credentials: str
) -> None:
    monkeypatch.setattr(mqtt_sender, "_CONNACK_S", 0.05)
    with old_broker(b"\x20\x02\x00\x01", after_s=0.5) as (port, versions):
        destinations.add_destination(
            ledger, "alice", f"mqtt://{credentials}127.0.0.1:{port}/{TOPIC}", "mqtt"
        )
        phone.report(3)
        assert Forwarder(ledger).run_once(time.time()) == 3
        assert versions[-1] == 4


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (b"\x20\x03\x00\x87\x00", "refused by the broker"),  # not authorized
        (b"\x20\x03\x00\x88\x00", "refused by the broker"),  # not now
        (b"", "timeout"),
        (None, "connection lost before an answer"),
    ],
)
@pytest.mark.usefixtures("quick")
def test_no_other_trouble_makes_us_speak_the_version_that_hides_refusals(
    ledger: Ledger, phone: Phone, says: bytes | None, words: str
) -> None:
    with old_broker(says) as (port, versions):
        destinations.add_destination(
            ledger, "alice", f"mqtt://alice:x@127.0.0.1:{port}/{TOPIC}", "mqtt"
        )
        phone.report()
        assert Forwarder(ledger).run_once(time.time()) == 0
        assert set(versions) == {5}
        assert the_only(ledger).trouble == words
        assert Outbox(ledger).count() == 1


def test_a_broker_that_misreads_the_newer_greeting_is_served(
    ledger: Ledger, phone: Phone, tmp_path: Path
) -> None:
    # This one takes a part of the name for the length of the password, and waits for the rest.
    with broker_receiver(tmp_path) as broker:
        address = f"mqtt://{broker.user}:{broker.password}@127.0.0.1:{broker.port}/{TOPIC}"
        destinations.add_destination(ledger, "alice", address, "mqtt")
        released = phone.report(2)
        assert Forwarder(ledger).run_once(time.time()) == 2
        wait_until(lambda: len(broker.messages) == 2)
        assert seen([body for _, body in broker.messages]) == released
