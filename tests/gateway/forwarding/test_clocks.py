"""Clocks that are set back or forward, and deliveries that outlast their lease."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
from sqlalchemy import select, update

from hereish.gateway.admin import destinations
from hereish.gateway.forwarding import forwarder as forwarder_module
from hereish.gateway.forwarding import outbox
from hereish.gateway.forwarding.forwarder import Forwarder
from hereish.gateway.forwarding.outbox import LEASE_S, Outbox
from hereish.gateway.ledger import tables
from hereish.gateway.ledger.ledger import Ledger
from tests.support.forwarding_stage import Phone, on_both, seen, the_only
from tests.support.receivers import free_port, wait_until, web_receiver

DAY_S = 86_400.0


@dataclass
class Clock:
    """What the forwarder takes for the time."""

    ahead_s: float = 0.0
    asked: int = 0

    def time(self) -> float:
        self.asked += 1
        return time.time() + self.ahead_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(forwarder_module, "time", clock)
    monkeypatch.setattr(forwarder_module, "POLL_S", 0.02)
    return clock


@on_both
def test_a_clock_that_is_set_back_after_a_success_delays_nothing(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver:
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        now_s = time.time()
        for then_s in (now_s + DAY_S, now_s + DAY_S - 100, now_s):
            released = phone.report()
            assert Forwarder(ledger).run_once(then_s) == 1
            assert seen(receiver.bodies)[-1:] == released
            assert the_only(ledger).next_try_s == 0.0


@on_both
def test_a_clock_that_is_set_back_after_a_failure_delays_no_longer_than_the_longest_pause(
    ledger: Ledger, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "_pause_s", lambda _: 3600.0)
    with web_receiver() as receiver:
        receiver.status = 503
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        phone.report()
        now_s = time.time()
        assert Forwarder(ledger).run_once(now_s) == 0
        assert len(receiver.requests) == 1
        for then_s in (now_s, now_s - 30, now_s + 3599):  # within what a pause can be
            assert Forwarder(ledger).run_once(then_s) == 0
            assert len(receiver.requests) == 1
        receiver.status = 200
        assert Forwarder(ledger).run_once(now_s - DAY_S) == 1


@on_both
def test_a_lease_from_a_clock_that_was_a_day_ahead_does_not_last_a_day(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver:
        number = destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        released = phone.report(2)
        now_s = time.time()
        assert Outbox(ledger).claim(number, now_s) is not None  # and then its process dies
        for then_s in (now_s, now_s - 30, now_s + LEASE_S - 1):
            assert Forwarder(ledger).run_once(then_s) == 0
        assert Forwarder(ledger).run_once(now_s - DAY_S) == 2
        assert seen(receiver.bodies) == released


@on_both
@pytest.mark.parametrize("ahead_s", [200.0, -DAY_S])
def test_a_clock_that_jumps_during_a_delivery_starts_no_second_one(
    ledger: Ledger, phone: Phone, clock: Clock, ahead_s: float
) -> None:
    with web_receiver() as receiver:
        receiver.script = [200, "hang"]
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        released = phone.report(4)
        forwarder = Forwarder(ledger)
        forwarder.start()
        wait_until(lambda: len(receiver.requests) == 2)
        clock.ahead_s, clock.asked = ahead_s, 0
        released += phone.report(2)
        forwarder.wake()
        wait_until(lambda: clock.asked > 20)  # it has looked again and again
        assert len(receiver.requests) == 2
        receiver.over.set()  # this hangs up: the second one was not taken
        wait_until(lambda: the_only(ledger).tries == 1)
        clock.ahead_s += 10.0
        wait_until(lambda: Outbox(ledger).count() == 0)
        forwarder.stop(5)
        assert seen(receiver.bodies) == [*released[:2], *released[1:]]


@on_both
def test_a_delivery_that_outlasts_its_lease_is_not_overtaken(
    ledger: Ledger, phone: Phone, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "LEASE_S", -2.0)  # over before anything is sent
    with web_receiver() as receiver:
        receiver.script = [200, "hang"]
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        released = phone.report(4)
        forwarder = Forwarder(ledger)
        forwarder.start()
        wait_until(lambda: len(receiver.requests) == 2)
        clock.asked = 0
        wait_until(lambda: clock.asked > 20)
        with ledger.database.reading() as tx:
            until_s = tx.execute(select(tables.destinations.c.leased_until_s)).scalar_one()
        assert 0 < until_s < time.time()  # anybody else could take it
        assert len(receiver.requests) == 2
        receiver.over.set()
        wait_until(lambda: Outbox(ledger).count() == 0)
        forwarder.stop(5)
        assert seen(receiver.bodies) == [*released[:2], *released[1:]]


def test_what_is_reported_at_the_end_of_a_delivery_is_not_left_for_the_next_look(
    ledger: Ledger, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = Outbox.settle

    def slow(*about: object) -> object:
        after = settle(*about)  # type: ignore[arg-type]  # as it was called
        if after is None and phone.minutes < 2:
            released.extend(phone.report())
            forwarder.wake()
            time.sleep(0.3)  # it is looked for meanwhile, and found to be served here
        return after

    monkeypatch.setattr(forwarder_module, "POLL_S", 3600.0)
    monkeypatch.setattr(Outbox, "settle", slow)
    with web_receiver() as receiver:
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        released = phone.report()
        forwarder = Forwarder(ledger)
        forwarder.start()
        wait_until(lambda: Outbox(ledger).count() == 0 and len(receiver.requests) == 2)
        forwarder.stop(5)
        assert seen(receiver.bodies) == released


def test_who_waits_longest_is_first(
    ledger: Ledger, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    first, second, third = (
        destinations.add_destination(ledger, "alice", f"http://127.0.0.1:{port}/{i}", "overland")
        for i in range(3)
    )
    phone.report()
    queue, now_s = Outbox(ledger), time.time()
    with ledger.database.writing() as tx:
        tx.execute(tables.outbox.delete().where(tables.outbox.c.destination_id == first))
    phone.report()
    assert queue.find_due(now_s, failing=False) == [second, third, first]
    with ledger.database.writing() as tx:
        failed = update(tables.destinations).where(tables.destinations.c.id != third)
        tx.execute(failed.values(tries=1, next_try_s=now_s))
    assert queue.find_due(now_s, failing=False) == [third]
    assert queue.find_due(now_s, failing=True) == [second, first]
