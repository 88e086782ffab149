"""Who delivers, and what may happen meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
from sqlalchemy import select

from hereish.gateway.admin import accounts, destinations
from hereish.gateway.forwarding import delivery
from hereish.gateway.forwarding import forwarder as forwarder_module
from hereish.gateway.forwarding.forwarder import Forwarder
from hereish.gateway.forwarding.outbox import LEASE_S, Outbox
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.tables import users
from hereish.gateway.paths import GatewayPaths
from tests.support.forwarding_stage import (
    POLICY,
    Phone,
    on_both,
    phone_of,
    seen,
    the_only,
)
from tests.support.receivers import (
    wait_until,
    wall,
    web_receiver,
)


@on_both
def test_a_lease_that_was_left_behind_runs_out_and_nothing_is_lost(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver:
        number = destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        released = phone.report(3)
        now_s = time.time()
        dead = Outbox(ledger)
        assert dead.claim(number, now_s) is not None  # and then its process dies
        alive = Forwarder(ledger)
        assert alive.run_once(now_s + LEASE_S - 1) == 0
        assert receiver.requests == []
        assert alive.run_once(now_s + LEASE_S + 2) == 3
        assert seen(receiver.bodies) == released


@on_both
def test_a_process_that_is_killed_while_it_delivers_loses_nothing(
    ledger: Ledger, paths: GatewayPaths, phone: Phone
) -> None:
    program = (
        "import sys, time; from pathlib import Path;"
        "from hereish.gateway.forwarding.forwarder import Forwarder;"
        "from hereish.gateway.ledger.ledger import Ledger;"
        "from hereish.gateway.paths import GatewayPaths;"
        "where = GatewayPaths(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]));"
        "Forwarder(Ledger.open(where)).start(); time.sleep(60)"
    )
    with web_receiver() as receiver:
        receiver.script = [200, 200, "hang"]
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        released = phone.report(5)
        told = [paths.database, str(paths.key_file), str(paths.mark_file)]
        process = subprocess.Popen(  # noqa: S603  # our own interpreter
            [sys.executable, "-c", program, *told]
        )
        wait_until(lambda: len(receiver.requests) == 3)
        process.kill()
        process.wait()
        forwarder = Forwarder(ledger)
        assert forwarder.run_once(time.time()) == 0  # the dead one still has its lease
        assert forwarder.run_once(time.time() + LEASE_S + 2) == 5
        # It had not noted what was taken, so that comes again; nothing is missing.
        assert seen(receiver.bodies) == released[:3] + released


@on_both
def test_who_lost_a_lease_sends_no_further_batch(ledger: Ledger, phone: Phone) -> None:
    number = destinations.add_destination(ledger, "alice", "http://127.0.0.1/", "overland")
    phone.report(150)
    now_s = time.time()
    slow, quick = Outbox(ledger), Outbox(ledger)
    lost = slow.claim(number, now_s)
    held = quick.claim(number, now_s + LEASE_S + 2)
    assert lost is not None
    assert held is not None
    attempt = delivery.DeliveryAttempt()
    attempt.delivered = 100
    assert slow.settle(lost, attempt, None, now_s + LEASE_S + 3) is None
    assert Outbox(ledger).count() == 50  # what was taken was taken
    on = quick.settle(held, attempt, None, now_s + LEASE_S + 4)
    assert on is not None
    assert len(on.queued) == 50


@on_both
@pytest.mark.usefixtures("impatient")
def test_two_forwarders_on_one_ledger_deliver_each_release_once_and_in_order(
    ledger: Ledger, paths: GatewayPaths
) -> None:
    names = ["bob", "carol", "dora"]
    with web_receiver() as receiver:
        phones = {}
        for name in names:
            accounts.add_user(ledger, name, POLICY)
            destinations.add_destination(ledger, name, f"{receiver.url}/{name}", "owntracks")
            phones[name] = phone_of(ledger, name)
        other = Ledger.open(paths)
        forwarders = [Forwarder(ledger), Forwarder(other)]
        for forwarder in forwarders:
            forwarder.start()
        released: dict[str, list[tuple[int, float, float]]] = {name: [] for name in names}
        for i in range(20):
            for name in names:
                released[name] += phones[name].report()
                forwarders[i % 2].wake()
        wait_until(lambda: Outbox(ledger).count() == 0)
        for forwarder in forwarders:
            forwarder.stop(5)
        other.close()
        for name in names:
            bodies = [r.body for r in receiver.requests if r.path == f"/{name}"]
            assert seen(bodies) == released[name]


def test_a_wake_up_delivers_long_before_the_next_look(
    ledger: Ledger, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder_module, "POLL_S", 3600.0)
    with web_receiver() as receiver:
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        forwarder = Forwarder(ledger)
        forwarder.wake()  # nobody is there yet, and nothing happens
        forwarder.start()
        wait_until(lambda: forwarder._woken is not None)
        for number in range(1, 4):
            phone.report()
            forwarder.wake()
            wait_until(lambda: Outbox(ledger).count() == 0)
            assert len(receiver.requests) == number
        forwarder.stop(5)
        forwarder.wake()


@on_both
def test_a_hanging_receiver_delays_neither_a_report_nor_another_destination(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver, web_receiver() as hanging, wall() as port:
        hanging.script = ["hang"]
        destinations.add_destination(ledger, "alice", hanging.url, "owntracks")
        destinations.add_destination(ledger, "alice", f"mqtt://127.0.0.1:{port}/t", "mqtt")
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        forwarder = Forwarder(ledger)
        forwarder.start()
        released = phone.report()
        forwarder.wake()
        wait_until(lambda: len(hanging.requests) == 1)
        begin_s = time.monotonic()
        for _ in range(5):
            released += phone.report()
            forwarder.wake()
        wait_until(lambda: len(receiver.requests) == 6)
        assert time.monotonic() - begin_s < delivery.SEND_S / 2
        assert seen(receiver.bodies) == released
        assert len(hanging.requests) == 1  # it still has the first one, and no other overtook it
        wait_until(lambda: Outbox(ledger).count() == 12)
        forwarder.stop(0)  # nor does it delay the end
        assert time.monotonic() - begin_s < delivery.SEND_S / 2
        hung, broker, good = destinations.list_destinations(ledger, "alice")
        assert (hung.waiting, broker.waiting, good.waiting) == (6, 6, 0)
        # The lease was given back: somebody else may go on at once.
        destinations.remove_destination(ledger, "alice", broker.id)
        hanging.requests.clear()
        assert Forwarder(ledger).run_once(time.time()) == 6
        assert seen(hanging.bodies) == released


@on_both
def test_stop_waits_for_what_was_begun_and_begins_nothing_more(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver:
        receiver.script = ["hang"]
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        phone.report(3)
        forwarder = Forwarder(ledger)
        forwarder.start()
        wait_until(lambda: len(receiver.requests) == 1)
        ending = threading.Thread(target=forwarder.stop, args=(10,))
        ending.start()
        wait_until(lambda: all(attempt.stopping for attempt in list(forwarder._attempts)))
        receiver.over.set()
        ending.join()
        assert len(receiver.requests) == 1
        assert Outbox(ledger).count() == 3


# Meanwhile


@on_both
def test_a_disabled_user_waits_and_goes_on_when_enabled(ledger: Ledger, phone: Phone) -> None:
    with web_receiver() as receiver:
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        released = phone.report(2)
        accounts.set_disabled(ledger, "alice", True)
        assert Forwarder(ledger).run_once(time.time()) == 0
        assert receiver.requests == []
        assert the_only(ledger).trouble is None
        accounts.set_disabled(ledger, "alice", False)
        assert Forwarder(ledger).run_once(time.time()) == 2
        assert seen(receiver.bodies) == released


@on_both
@pytest.mark.parametrize("how", ["destination", "user"])
def test_a_destination_that_goes_away_during_a_delivery_is_no_error(
    ledger: Ledger, phone: Phone, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with web_receiver() as receiver:
        receiver.script = ["hang"]
        number = destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        phone.report(2)
        forwarder = Forwarder(ledger)
        forwarder.start()
        wait_until(lambda: len(receiver.requests) == 1)
        if how == "user":
            accounts.delete_user(ledger, "alice")
        else:
            destinations.remove_destination(ledger, "alice", number)
        receiver.over.set()
        wait_until(lambda: not forwarder._attempts)
        assert Outbox(ledger).count() == 0
        forwarder.stop(5)
        assert len(receiver.requests) == 1
    assert caplog.records == []


@on_both
def test_forwards_counts_the_destinations(ledger: Ledger, phone: Phone) -> None:
    def forwards() -> int:
        with ledger.database.reading() as tx:
            return int(tx.execute(select(users.c.forwards)).scalar_one())

    first = destinations.add_destination(ledger, "alice", "https://a.example/", "overland")
    second = destinations.add_destination(ledger, "alice", "https://b.example/", "overland")
    assert forwards() == 2
    phone.report()
    assert Outbox(ledger).count() == 2
    destinations.remove_destination(ledger, "alice", first)
    assert (forwards(), Outbox(ledger).count()) == (1, 1)
    destinations.remove_destination(ledger, "alice", second)
    assert (forwards(), Outbox(ledger).count()) == (0, 0)
    phone.report()
    assert Outbox(ledger).count() == 0
    with pytest.raises(accounts.NotFoundError, match="no destination"):
        destinations.remove_destination(ledger, "alice", first)


def test_nobody_removes_a_destination_of_somebody_else(ledger: Ledger) -> None:
    accounts.add_user(ledger, "bob", POLICY)
    number = destinations.add_destination(ledger, "alice", "https://a.example/", "overland")
    with pytest.raises(accounts.NotFoundError):
        destinations.remove_destination(ledger, "bob", number)
    assert len(destinations.list_destinations(ledger, "alice")) == 1
    for act in (
        lambda: destinations.add_destination(ledger, "eve", "https://a.example/", "overland"),
        lambda: destinations.list_destinations(ledger, "eve"),
        lambda: destinations.remove_destination(ledger, "eve", number),
    ):
        with pytest.raises(accounts.NotFoundError, match="no user"):
            act()


@on_both
def test_the_mark_is_raised_before_a_release_leaves(
    ledger: Ledger, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[int] = []
    with web_receiver() as receiver:
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        with monkeypatch.context() as dying:  # the reporting process ends right after its commit
            dying.setattr(ledger.mark, "raise_to", marks.append)
            phone.report(2)
        before = ledger.mark.value()
        assert Forwarder(ledger).run_once(time.time()) == 2
        assert ledger.mark.value() == max(marks) > before
