"""Receivers that fail, hang or talk for ever."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hereish.gateway.admin import destinations
from hereish.gateway.forwarding import http_sender, outbox
from hereish.gateway.forwarding.forwarder import Forwarder
from hereish.gateway.forwarding.outbox import Outbox
from hereish.gateway.ledger.ledger import Ledger
from tests.support.forwarding_stage import (
    PASSWORD,
    Phone,
    on_both,
    seen,
    the_only,
)
from tests.support.receivers import (
    broker_receiver,
    free_port,
    wait_until,
    wall,
    web_receiver,
)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (503, "answered 503"),
        (400, "answered 400"),
        (304, "answered 304"),
        ("redirect", "answered 302, and redirects are not followed"),
        ("drop", "connection lost before an answer"),
        ("hang", "timeout"),
        ("trickle", "timeout"),
    ],
)
@pytest.mark.usefixtures("quick")
def test_a_failure_is_named_waited_for_and_made_up(
    ledger: Ledger, phone: Phone, what: int | str, words: str
) -> None:
    with web_receiver() as receiver:
        receiver.script = [200, what, what]
        destinations.add_destination(ledger, "alice", f"{receiver.url}/pub", "owntracks")
        released = phone.report(4)
        now_s = time.time()
        forwarder = Forwarder(ledger)
        assert forwarder.run_once(now_s) == 1
        state = the_only(ledger)
        assert (state.waiting, state.tries, state.trouble) == (3, 1, words)
        assert now_s + 1.0 <= state.next_try_s <= now_s + 2.0
        assert forwarder.run_once(now_s + 0.9) == 0  # it is not its time yet
        assert forwarder.run_once(now_s + 2.1) == 0
        assert the_only(ledger).tries == 2
        assert forwarder.run_once(now_s + 10) == 3
        state = the_only(ledger)
        assert (state.waiting, state.tries, state.trouble) == (0, 0, None)
        # The one that was not taken came three times, and nothing overtook it.
        first, second, third, fourth = released
        assert seen(receiver.bodies) == [first, second, second, second, third, fourth]
        assert {request.path for request in receiver.requests} == {"/pub"}


def test_an_answer_that_never_ends_is_not_read_to_its_end(
    ledger: Ledger, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sender, "_RESPONSE_S", 15.0)  # time is not what ends it
    begin_s = time.monotonic()
    with web_receiver() as receiver:
        receiver.script = ["endless", "endless"]
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        released = phone.report(3)
        assert Forwarder(ledger).run_once(time.time()) == 3
        assert seen(receiver.bodies) == released
    assert time.monotonic() - begin_s < 15.0


def test_nobody_at_the_port_is_no_connection(ledger: Ledger, phone: Phone) -> None:
    port = free_port()
    destinations.add_destination(ledger, "alice", f"http://127.0.0.1:{port}/", "overland")
    destinations.add_destination(ledger, "alice", f"mqtt://127.0.0.1:{port}/t", "mqtt")
    phone.report()
    assert Forwarder(ledger).run_once(time.time()) == 0
    troubles = [found.trouble for found in destinations.list_destinations(ledger, "alice")]
    assert troubles == ["no connection", "no connection"]


@pytest.mark.usefixtures("quick")
def test_a_broker_that_says_nothing_or_refuses_is_trouble(
    ledger: Ledger, phone: Phone, tmp_path: Path
) -> None:
    with wall() as port, broker_receiver(tmp_path) as broker:
        destinations.add_destination(
            ledger, "alice", f"mqtt://127.0.0.1:{port}/owntracks/a", "mqtt"
        )
        wrong = f"mqtt://alice:{PASSWORD}@127.0.0.1:{broker.port}/owntracks/a"
        destinations.add_destination(ledger, "alice", wrong, "mqtt")
        phone.report()
        assert Forwarder(ledger).run_once(time.time()) == 0
        assert broker.messages == []
    silent, refusing = destinations.list_destinations(ledger, "alice")
    assert silent.trouble == "timeout"
    assert refusing.trouble == "refused by the broker"
    assert Outbox(ledger).count() == 2


def test_the_pause_grows_from_a_second_to_an_hour_and_varies() -> None:
    pauses = [outbox._pause_s(tries) for tries in range(1, 2000)]
    assert 1.0 <= pauses[0] <= 2.0
    assert 4.0 <= pauses[2] <= 8.0
    assert all(1800.0 <= pause <= 3600.0 for pause in pauses[12:])
    assert len(set(pauses)) == len(pauses)


@on_both
@pytest.mark.usefixtures("quick", "impatient")
def test_nothing_is_lost_and_nothing_overtakes_over_many_failures(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver:
        receiver.script = [200, "drop", 500, 200, "drop", "hang", 200, 502, 200, "drop", 429]
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        forwarder = Forwarder(ledger)
        forwarder.start()
        released = []
        for _ in range(12):
            released += phone.report()
            forwarder.wake()
        wait_until(lambda: Outbox(ledger).count() == 0)
        forwarder.stop(5)
    came = seen(receiver.bodies)
    assert list(dict.fromkeys(came)) == released  # without what came again
    assert came == sorted(came)
    assert len(came) == 12 + 7
