"""Many destinations that hang, and one that does not."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import update

from hereish.core.types import Kind
from hereish.gateway.admin import destinations
from hereish.gateway.forwarding import delivery, senders
from hereish.gateway.forwarding import forwarder as forwarder_module
from hereish.gateway.forwarding.forwarder import Forwarder
from hereish.gateway.forwarding.targets import parse_target
from hereish.gateway.ledger import tables
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import LedgerRelease
from tests.support.forwarding_stage import Phone, seen
from tests.support.receivers import free_port, old_broker, wait_until, wall, web_receiver

DEAD = 40  # more than asyncio has threads by itself, on any machine


@dataclass
class Names:
    """Name servers. Those of `dead` names say nothing until the end, those of others do at once.

    About a name that is `half` dead they say something once, and then no more.
    """

    asked: list[str] = field(default_factory=list)
    half: set[str] = field(default_factory=set)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def hanging(self) -> int:
        return len(self.asked)

    def look_up(self, host: Any, *more: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host or ""
        if name.startswith("half") and name not in self.half:
            self.half.add(name)
            return _look_up("127.0.0.1", *more, **named)
        if name.startswith(("dead", "half")):
            self.asked.append(name)
            self.over.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, f"no answer about {name}")
        return _look_up(host, *more, **named)


_look_up = socket.getaddrinfo


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names.look_up)
    yield names
    names.over.set()


def mark_failing(ledger: Ledger) -> None:
    """All destinations so far have failed before."""
    with ledger.database.writing() as tx:
        tx.execute(update(tables.destinations).values(tries=1, trouble="timeout"))


@pytest.mark.parametrize("scheme", ["http", "mqtt"])
def test_dead_name_servers_of_others_do_not_delay_a_destination(
    ledger: Ledger, phone: Phone, names: Names, scheme: str
) -> None:
    kind = "mqtt" if scheme == "mqtt" else "overland"
    with web_receiver() as receiver:
        for i in range(DEAD):
            destinations.add_destination(ledger, "alice", f"{scheme}://dead{i}.example/t", kind)
        phone.report()
        forwarder = Forwarder(ledger)
        forwarder.start()
        wait_until(lambda: names.hanging == DEAD)  # all at once, each with a thread
        named = receiver.url.replace("127.0.0.1", "localhost")
        destinations.add_destination(ledger, "alice", named, "owntracks")
        released = phone.report(3)
        forwarder.wake()
        wait_until(lambda: len(receiver.requests) == 3)
        assert names.hanging == DEAD  # not one of them was asked about again
        assert seen(receiver.bodies) == released
        *dead, good = destinations.list_destinations(ledger, "alice")
        assert good.tries == 0
        assert [one.tries for one in dead] == [0] * DEAD  # none has come to its end
        names.over.set()
        wait_until(
            lambda: all(one.tries for one in destinations.list_destinations(ledger, "alice")[:-1])
        )
        forwarder.stop(5)
    assert {one.trouble for one in destinations.list_destinations(ledger, "alice")[:-1]} == {
        "name not found"
    }


def test_name_servers_that_die_meanwhile_do_not_delay_a_destination_either(
    ledger: Ledger, phone: Phone, names: Names
) -> None:
    with web_receiver() as receiver:
        for i in range(DEAD):
            destinations.add_destination(ledger, "alice", f"http://half{i}.example/t", "overland")
        phone.report()
        forwarder = Forwarder(ledger)
        forwarder.start()
        wait_until(lambda: names.hanging == DEAD)
        named = receiver.url.replace("127.0.0.1", "localhost")
        destinations.add_destination(ledger, "alice", named, "owntracks")
        released = phone.report()
        forwarder.wake()
        wait_until(lambda: len(receiver.requests) == 1)
        assert seen(receiver.bodies) == released
        names.over.set()
        forwarder.stop(5)
        assert destinations.list_destinations(ledger, "alice")[-1].tries == 0


def test_brokers_that_say_nothing_do_not_delay_another(ledger: Ledger, phone: Phone) -> None:
    silent = 32
    with ExitStack() as stack:
        for _ in range(silent):
            port = stack.enter_context(wall())
            destinations.add_destination(ledger, "alice", f"mqtt://127.0.0.1:{port}/t", "mqtt")
        phone.report()
        forwarder = Forwarder(ledger)
        forwarder.start()
        wait_until(lambda: len(forwarder._attempts) == silent)
        port, greeted = stack.enter_context(old_broker(b"\x20\x02\x00\x01"))
        destinations.add_destination(ledger, "alice", f"mqtt://127.0.0.1:{port}/t", "mqtt")
        phone.report()
        forwarder.wake()
        wait_until(lambda: greeted)
        wait_until(lambda: destinations.list_destinations(ledger, "alice")[-1].waiting == 0)
        *hung, _ = destinations.list_destinations(ledger, "alice")
        assert [one.tries for one in hung] == [0] * silent  # they still hang
        forwarder.stop(0)


def test_those_that_failed_before_leave_places_for_others(
    ledger: Ledger, phone: Phone, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder_module, "_MAX_DELIVERIES", 2)
    monkeypatch.setattr(forwarder_module, "_MAX_FAILING", 3)
    with web_receiver() as receiver:
        for i in range(DEAD):
            destinations.add_destination(ledger, "alice", f"http://dead{i}.example/", "overland")
        mark_failing(ledger)
        phone.report()
        forwarder = Forwarder(ledger)
        forwarder.start()
        wait_until(lambda: names.hanging == 3)
        for i in range(4):
            destinations.add_destination(ledger, "alice", f"{receiver.url}/{i}", "overland")
        phone.report()
        forwarder.wake()
        wait_until(lambda: len(receiver.requests) == 4)
        assert names.hanging == 3
        names.over.set()  # now the others that failed come to their turn
        wait_until(lambda: set(names.asked) == {f"dead{i}.example" for i in range(DEAD)})
        forwarder.stop(5)


@pytest.mark.usefixtures("quick")
def test_waiting_for_a_thread_is_no_failure(
    ledger: Ledger, phone: Phone, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder_module, "_MAX_DELIVERIES", 1)  # the dead one takes it
    monkeypatch.setattr(delivery, "ATTEMPT_S", 0.1)
    with web_receiver() as receiver:
        destinations.add_destination(ledger, "alice", "http://dead.example/", "overland")
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        destinations.add_destination(ledger, "alice", f"mqtt://127.0.0.1:{free_port()}/t", "mqtt")
        phone.report()
        outcome: list[int] = []
        forwarder = Forwarder(ledger)
        work = threading.Thread(target=lambda: outcome.append(forwarder.run_once(time.time())))
        work.start()
        wait_until(lambda: len(forwarder._attempts) == 3)
        wait_until(lambda: all(attempt.overdue for attempt in list(forwarder._attempts)))
        assert not names.over.wait(2 * delivery.SEND_S)
        names.over.set()
        work.join()
        assert outcome == [1]
        dead, good, nobody = destinations.list_destinations(ledger, "alice")
        assert (dead.trouble, good.trouble, nobody.trouble) == ("timeout", None, "no connection")
        assert len(receiver.requests) == 1


@pytest.mark.parametrize("kind", ["owntracks", "mqtt"])
def test_who_came_late_to_a_thread_begins_nothing_and_it_is_no_failure(kind: str) -> None:
    # The lease may have run out meanwhile. A new attempt gets a new one.
    release = LedgerRelease(60.0, 24.0, 0.0, Kind.HARD, 0.0, 100.0, 0.0, 0.0, None, "")
    queued = delivery.QueuedRelease(1, release, "phone", None)
    attempt = delivery.DeliveryAttempt()
    attempt._until_s = 0.0

    async def send(address: str) -> None:
        sender = senders.Sender(1)
        await sender.deliver(parse_target(address, kind), [queued], attempt)
        sender.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        scheme = "mqtt" if kind == "mqtt" else "http"
        asyncio.run(send(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/t"))
        listener.settimeout(0.1)
        with pytest.raises(TimeoutError):
            listener.accept()
    assert attempt.delivered == 0
