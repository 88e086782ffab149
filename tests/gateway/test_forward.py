"""Forwarding, on real parts: a ledger in a file, web servers, and a broker of MQTT."""

from __future__ import annotations

import base64
import logging
import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from postgres import Postgres, postgres
from receivers import (
    broker_receiver,
    certificate,
    free_port,
    wait_until,
    wall,
    web_receiver,
)
from sqlalchemy import select, update
from stage import places_in

from hereish.errors import ParameterError
from hereish.gateway import accounts, deliver, destinations, forward, tokens
from hereish.gateway.fixes import Fix
from hereish.gateway.forward import LEASE_S, Forwarder, waiting
from hereish.gateway.ledger import Ledger
from hereish.gateway.places import Places
from hereish.gateway.policy import Policy
from hereish.gateway.tables import destinations as rows
from hereish.gateway.tables import users

START_S = 1_780_000_020.0  # a whole minute
PASSWORD = "s3cret-of-alice"  # noqa: S105  # it opens nothing
# Each minute has a budget of its own, so there is something to forward each minute.
POLICY = Policy(level=math.log(10), radius_m=100, accuracy_m=3000, window="60", interval_s=0.0)


@dataclass
class Phone:
    """Reports once a minute from a true place, and keeps what it was told."""

    ledger: Ledger
    token: tokens.Presented
    tid: str | None = "al"
    minutes: int = 0

    def report(self, number: int = 1) -> list[tuple[int, float, float]]:
        """Time, latitude and longitude of the new releases."""
        fixes = [
            Fix(39.98123456, 116.31654321, START_S + 60.0 * (self.minutes + i))
            for i in range(number)
        ]
        self.minutes += number
        told = self.ledger.report(self.token, fixes, tid=self.tid, now_s=fixes[-1].at_s)
        releases = [answer.release for answer in told.answers]
        assert all(releases)
        return [(int(r.at_s), r.lat, r.lon) for r in releases if r is not None]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@pytest.fixture
def places(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Places:
    monkeypatch.delenv("HEREISH_KEY", raising=False)
    database = None
    if getattr(request, "param", "sqlite") == "postgresql":
        running: Postgres = request.getfixturevalue("cluster")
        database = running.fresh(f"t{time.time_ns()}")
    return places_in(tmp_path, database)


on_both = pytest.mark.parametrize("places", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def ledger(places: Places) -> Iterator[Ledger]:
    opened = Ledger.open(places)
    accounts.add_user(opened, "alice", POLICY)
    yield opened
    opened.close()


@pytest.fixture
def phone(ledger: Ledger) -> Phone:
    return phone_of(ledger, "alice")


def phone_of(ledger: Ledger, user: str) -> Phone:
    token = tokens.presented(accounts.new_token(ledger, user, "phone"))
    assert token is not None
    return Phone(ledger, token)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receivers have less time than they would in earnest."""
    monkeypatch.setattr(deliver, "SEND_S", 1.0)
    monkeypatch.setattr(deliver, "_ANSWER_S", 0.1)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures are tried again at once."""
    monkeypatch.setattr(forward, "_pause_s", lambda _: 0.0)
    monkeypatch.setattr(forward, "POLL_S", 0.02)


def seen(bodies: list[dict[str, Any]]) -> list[tuple[int, float, float]]:
    """Messages of OwnTracks as the phone has its releases."""
    return [(body["tst"], body["lat"], body["lon"]) for body in bodies]


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """All of all records, not only what a format would show."""
    return caplog.text + repr([record.__dict__ for record in caplog.records])


def the_only(ledger: Ledger) -> destinations.Destination:
    (found,) = destinations.listed(ledger, "alice")
    return found


# What arrives


@on_both
def test_owntracks_gets_each_release_in_order_and_only_its_fields(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver:
        headers = {"X-Limit-U": "alice", "X-Limit-D": "phone"}
        address = f"{receiver.url}/pub?key=k1"
        destinations.add(ledger, "alice", address, "owntracks", headers=headers)
        released = phone.report(3) + phone.report(2)
        assert waiting(ledger) == 5
        assert Forwarder(ledger).run_once(time.time()) == 5
        assert waiting(ledger) == 0
        assert seen(receiver.bodies) == released
        for request in receiver.requests:
            assert set(request.body) == {"_type", "lat", "lon", "tst", "acc", "tid"}
            assert request.body["_type"] == "location"
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
        destinations.add(ledger, "alice", f"{receiver.url}/o", "overland", bearer="b34rer")
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


def test_a_batch_of_overland_is_of_one_device_and_order_is_kept(
    ledger: Ledger, phone: Phone
) -> None:
    token = tokens.presented(accounts.new_token(ledger, "alice", "tablet"))
    assert token is not None
    with web_receiver() as receiver:
        destinations.add(ledger, "alice", receiver.url, "overland")
        phone.report(2)
        phone.token, mine = token, phone.token
        phone.report(1)
        phone.token = mine
        phone.report(1)
        Forwarder(ledger).run_once(time.time())
    devices = [
        [feature["properties"]["device_id"] for feature in body["locations"]]
        for body in receiver.bodies
    ]
    assert devices == [["phone", "phone"], ["tablet"], ["phone"]]


def test_a_broker_gets_each_release_in_order_and_keeps_the_last(
    ledger: Ledger, phone: Phone, tmp_path: Path
) -> None:
    with broker_receiver(tmp_path) as broker:
        address = f"mqtt://alice:{broker.password}@127.0.0.1:{broker.port}/owntracks/alice/phone"
        destinations.add(ledger, "alice", address, "mqtt")
        released = phone.report(4)
        assert Forwarder(ledger).run_once(time.time()) == 4
        assert waiting(ledger) == 0
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
        destinations.add(ledger, "alice", address, "mqtt")
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
        destinations.add(ledger, "alice", receiver.url, "owntracks")
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
        destinations.add(ledger, "alice", address, "owntracks")
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
        destinations.add(ledger, "alice", receiver.url, "owntracks")
        released = phone.report()
        Forwarder(ledger).run_once(time.time())
        assert seen(receiver.bodies) == released


# What goes wrong


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
        destinations.add(ledger, "alice", f"{receiver.url}/pub", "owntracks")
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
    monkeypatch.setattr(deliver, "_ANSWER_S", 15.0)  # time is not what ends it
    begin_s = time.monotonic()
    with web_receiver() as receiver:
        receiver.script = ["endless", "endless"]
        destinations.add(ledger, "alice", receiver.url, "owntracks")
        released = phone.report(3)
        assert Forwarder(ledger).run_once(time.time()) == 3
        assert seen(receiver.bodies) == released
    assert time.monotonic() - begin_s < 15.0


def test_nobody_at_the_port_is_no_connection(ledger: Ledger, phone: Phone) -> None:
    port = free_port()
    destinations.add(ledger, "alice", f"http://127.0.0.1:{port}/", "overland")
    destinations.add(ledger, "alice", f"mqtt://127.0.0.1:{port}/t", "mqtt")
    phone.report()
    assert Forwarder(ledger).run_once(time.time()) == 0
    troubles = [found.trouble for found in destinations.listed(ledger, "alice")]
    assert troubles == ["no connection", "no connection"]


@pytest.mark.usefixtures("quick")
def test_a_broker_that_says_nothing_or_refuses_is_trouble(
    ledger: Ledger, phone: Phone, tmp_path: Path
) -> None:
    with wall() as port, broker_receiver(tmp_path) as broker:
        destinations.add(ledger, "alice", f"mqtt://127.0.0.1:{port}/owntracks/a", "mqtt")
        wrong = f"mqtt://alice:{PASSWORD}@127.0.0.1:{broker.port}/owntracks/a"
        destinations.add(ledger, "alice", wrong, "mqtt")
        phone.report()
        assert Forwarder(ledger).run_once(time.time()) == 0
        assert broker.messages == []
    silent, refusing = destinations.listed(ledger, "alice")
    assert silent.trouble == "timeout"
    assert refusing.trouble == "refused by the broker"
    assert waiting(ledger) == 2


def test_the_pause_grows_from_a_second_to_an_hour_and_varies() -> None:
    pauses = [forward._pause_s(tries) for tries in range(1, 2000)]
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
        destinations.add(ledger, "alice", receiver.url, "owntracks")
        forwarder = Forwarder(ledger)
        forwarder.start()
        released = []
        for _ in range(12):
            released += phone.report()
            forwarder.poke()
        wait_until(lambda: waiting(ledger) == 0)
        forwarder.stop(5)
    came = seen(receiver.bodies)
    assert list(dict.fromkeys(came)) == released  # without what came again
    assert came == sorted(came)
    assert len(came) == 12 + 7


# Who delivers


@on_both
def test_a_lease_that_was_left_behind_runs_out_and_nothing_is_lost(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver:
        number = destinations.add(ledger, "alice", receiver.url, "owntracks")
        released = phone.report(3)
        now_s = time.time()
        dead = Forwarder(ledger)
        assert dead._claimed(number, now_s) is not None  # and then its process dies
        alive = Forwarder(ledger)
        assert alive.run_once(now_s + LEASE_S - 1) == 0
        assert receiver.requests == []
        assert alive.run_once(now_s + LEASE_S + 2) == 3
        assert seen(receiver.bodies) == released


@on_both
def test_a_process_that_is_killed_while_it_delivers_loses_nothing(
    ledger: Ledger, places: Places, phone: Phone
) -> None:
    program = (
        "import sys, time; from pathlib import Path;"
        "from hereish.gateway.forward import Forwarder; from hereish.gateway.ledger import Ledger;"
        "from hereish.gateway.places import Places;"
        "where = Places(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]));"
        "Forwarder(Ledger.open(where)).start(); time.sleep(60)"
    )
    with web_receiver() as receiver:
        receiver.script = [200, 200, "hang"]
        destinations.add(ledger, "alice", receiver.url, "owntracks")
        released = phone.report(5)
        told = [places.database, str(places.key_file), str(places.mark)]
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
    number = destinations.add(ledger, "alice", "http://127.0.0.1/", "overland")
    phone.report(150)
    now_s = time.time()
    slow, quick = Forwarder(ledger), Forwarder(ledger)
    lost = slow._claimed(number, now_s)
    held = quick._claimed(number, now_s + LEASE_S + 2)
    assert lost is not None
    assert held is not None
    go = deliver.Go()
    go.taken = 100
    assert slow._settled(lost, go, None, now_s + LEASE_S + 3) is None
    assert waiting(ledger) == 50  # what was taken was taken
    on = quick._settled(held, go, None, now_s + LEASE_S + 4)
    assert on is not None
    assert len(on.parcels) == 50


@on_both
@pytest.mark.usefixtures("impatient")
def test_two_forwarders_on_one_ledger_deliver_each_release_once_and_in_order(
    ledger: Ledger, places: Places
) -> None:
    names = ["bob", "carol", "dora"]
    with web_receiver() as receiver:
        phones = {}
        for name in names:
            accounts.add_user(ledger, name, POLICY)
            destinations.add(ledger, name, f"{receiver.url}/{name}", "owntracks")
            phones[name] = phone_of(ledger, name)
        other = Ledger.open(places)
        forwarders = [Forwarder(ledger), Forwarder(other)]
        for forwarder in forwarders:
            forwarder.start()
        released: dict[str, list[tuple[int, float, float]]] = {name: [] for name in names}
        for i in range(20):
            for name in names:
                released[name] += phones[name].report()
                forwarders[i % 2].poke()
        wait_until(lambda: waiting(ledger) == 0)
        for forwarder in forwarders:
            forwarder.stop(5)
        other.close()
        for name in names:
            bodies = [r.body for r in receiver.requests if r.path == f"/{name}"]
            assert seen(bodies) == released[name]


def test_a_poke_delivers_long_before_the_next_look(
    ledger: Ledger, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "POLL_S", 3600.0)
    with web_receiver() as receiver:
        destinations.add(ledger, "alice", receiver.url, "owntracks")
        forwarder = Forwarder(ledger)
        forwarder.poke()  # nobody is there yet, and nothing happens
        forwarder.start()
        wait_until(lambda: forwarder._wake is not None)
        for number in range(1, 4):
            phone.report()
            forwarder.poke()
            wait_until(lambda: waiting(ledger) == 0)
            assert len(receiver.requests) == number
        forwarder.stop(5)
        forwarder.poke()


@on_both
def test_a_hanging_receiver_delays_neither_a_report_nor_another_destination(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver, web_receiver() as hanging, wall() as port:
        hanging.script = ["hang"]
        destinations.add(ledger, "alice", hanging.url, "owntracks")
        destinations.add(ledger, "alice", f"mqtt://127.0.0.1:{port}/t", "mqtt")
        destinations.add(ledger, "alice", receiver.url, "owntracks")
        forwarder = Forwarder(ledger)
        forwarder.start()
        released = phone.report()
        forwarder.poke()
        wait_until(lambda: len(hanging.requests) == 1)
        begin_s = time.monotonic()
        for _ in range(5):
            released += phone.report()
            forwarder.poke()
        wait_until(lambda: len(receiver.requests) == 6)
        assert time.monotonic() - begin_s < deliver.SEND_S / 2
        assert seen(receiver.bodies) == released
        assert len(hanging.requests) == 1  # it still has the first one, and no other overtook it
        wait_until(lambda: waiting(ledger) == 12)
        forwarder.stop(0)  # nor does it delay the end
        assert time.monotonic() - begin_s < deliver.SEND_S / 2
        hung, broker, good = destinations.listed(ledger, "alice")
        assert (hung.waiting, broker.waiting, good.waiting) == (6, 6, 0)
        # The lease was given back: somebody else may go on at once.
        destinations.remove(ledger, "alice", broker.id)
        hanging.requests.clear()
        assert Forwarder(ledger).run_once(time.time()) == 6
        assert seen(hanging.bodies) == released


@on_both
def test_stop_waits_for_what_was_begun_and_begins_nothing_more(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver:
        receiver.script = ["hang"]
        destinations.add(ledger, "alice", receiver.url, "owntracks")
        phone.report(3)
        forwarder = Forwarder(ledger)
        forwarder.start()
        wait_until(lambda: len(receiver.requests) == 1)
        ending = threading.Thread(target=forwarder.stop, args=(10,))
        ending.start()
        wait_until(lambda: all(go.ending for go in list(forwarder._goes)))
        receiver.over.set()
        ending.join()
        assert len(receiver.requests) == 1
        assert waiting(ledger) == 3


# Meanwhile


@on_both
def test_a_disabled_user_waits_and_goes_on_when_enabled(ledger: Ledger, phone: Phone) -> None:
    with web_receiver() as receiver:
        destinations.add(ledger, "alice", receiver.url, "owntracks")
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
        number = destinations.add(ledger, "alice", receiver.url, "owntracks")
        phone.report(2)
        forwarder = Forwarder(ledger)
        forwarder.start()
        wait_until(lambda: len(receiver.requests) == 1)
        if how == "user":
            accounts.delete_user(ledger, "alice")
        else:
            destinations.remove(ledger, "alice", number)
        receiver.over.set()
        wait_until(lambda: not forwarder._goes)
        assert waiting(ledger) == 0
        forwarder.stop(5)
        assert len(receiver.requests) == 1
    assert caplog.records == []


@on_both
def test_forwards_counts_the_destinations(ledger: Ledger, phone: Phone) -> None:
    def forwards() -> int:
        with ledger.database.reading() as tx:
            return int(tx.execute(select(users.c.forwards)).scalar_one())

    first = destinations.add(ledger, "alice", "https://a.example/", "overland")
    second = destinations.add(ledger, "alice", "https://b.example/", "overland")
    assert forwards() == 2
    phone.report()
    assert waiting(ledger) == 2
    destinations.remove(ledger, "alice", first)
    assert (forwards(), waiting(ledger)) == (1, 1)
    destinations.remove(ledger, "alice", second)
    assert (forwards(), waiting(ledger)) == (0, 0)
    phone.report()
    assert waiting(ledger) == 0
    with pytest.raises(accounts.Unknown, match="no destination"):
        destinations.remove(ledger, "alice", first)


def test_nobody_removes_a_destination_of_somebody_else(ledger: Ledger) -> None:
    accounts.add_user(ledger, "bob", POLICY)
    number = destinations.add(ledger, "alice", "https://a.example/", "overland")
    with pytest.raises(accounts.Unknown):
        destinations.remove(ledger, "bob", number)
    assert len(destinations.listed(ledger, "alice")) == 1
    for act in (
        lambda: destinations.add(ledger, "eve", "https://a.example/", "overland"),
        lambda: destinations.listed(ledger, "eve"),
        lambda: destinations.remove(ledger, "eve", number),
    ):
        with pytest.raises(accounts.Unknown, match="no user"):
            act()


@on_both
def test_the_mark_is_raised_before_a_release_leaves(
    ledger: Ledger, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[int] = []
    with web_receiver() as receiver:
        destinations.add(ledger, "alice", receiver.url, "owntracks")
        with monkeypatch.context() as dying:  # the reporting process ends right after its commit
            dying.setattr(ledger.mark, "reach", marks.append)
            phone.report(2)
        before = ledger.mark.value()
        assert Forwarder(ledger).run_once(time.time()) == 2
        assert ledger.mark.value() == max(marks) > before


# Secrets


@pytest.mark.usefixtures("quick")
def test_secrets_are_sealed_and_shown_and_logged_nowhere(
    ledger: Ledger, phone: Phone, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token, hook = "bearer-0815", "hook-4711"
    with web_receiver() as receiver:
        receiver.script = [500, "drop", 200, "redirect"]
        there = receiver.url.removeprefix("http://")
        closed = f"127.0.0.1:{free_port()}"
        for host in (there, closed):
            for scheme, kind in (("http", "owntracks"), ("https", "overland"), ("mqtt", "mqtt")):
                address = f"{scheme}://alice:{PASSWORD}@{host}/{hook}"
                destinations.add(ledger, "alice", address, kind)
        destinations.add(ledger, "alice", f"http://{there}/{hook}", "overland", bearer=token)
        phone.report(2)
        forwarder = Forwarder(ledger)
        for later_s in (0, 10):
            forwarder.run_once(time.time() + later_s)
        listing = repr(destinations.listed(ledger, "alice"))
    with ledger.database.reading() as tx:
        troubles = repr(tx.execute(select(rows.c.trouble)).scalars().all())
    assert "answered" in troubles
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"owntracks" in files  # the search finds what is there
    for secret in (PASSWORD, token, hook):
        assert secret.encode() not in files
        assert secret not in listing + troubles + logged(caplog)
    assert f"http://{there}/…" in listing
    target = destinations.target_of(f"https://a:{PASSWORD}@h/{hook}", "overland")
    assert PASSWORD not in repr(target)
    assert hook not in repr(target)


def test_no_place_is_logged_or_kept_as_trouble(
    ledger: Ledger, phone: Phone, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with web_receiver() as receiver:
        receiver.script = [500]
        destinations.add(ledger, "alice", receiver.url, "owntracks")
        released = phone.report()
        Forwarder(ledger).run_once(time.time())
    assert "answered 500" in logged(caplog)
    words = logged(caplog) + repr(the_only(ledger))
    for number in (*released[0][1:], 39.98123456, 116.31654321):
        assert f"{number:.3f}" not in words


def test_a_sealed_address_that_was_moved_to_another_user_does_not_open(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver:
        destinations.add(ledger, "alice", receiver.url, "owntracks")
        accounts.add_user(ledger, "bob", POLICY)
        stolen = destinations.add(ledger, "bob", receiver.url, "owntracks")
        with ledger.database.writing() as tx:
            sealed = tx.execute(select(rows.c.sealed).where(rows.c.id == stolen)).scalar_one()
            tx.execute(update(rows).where(rows.c.id != stolen).values(sealed=sealed))
        phone.report()
        assert Forwarder(ledger).run_once(time.time()) == 0
        assert receiver.requests == []
        state = the_only(ledger)
        assert (state.tries, state.address) == (1, "…")
        assert "cannot be opened" in (state.trouble or "")


# What an operator may say


@pytest.mark.parametrize(
    ("address", "kind", "words"),
    [
        ("https://host/pub", "gpx", "format must be one of owntracks, overland, mqtt"),
        ("ftp://host/pub", "owntracks", "found the scheme 'ftp'"),
        ("host/pub", "overland", "found no scheme"),
        (f"alice:{PASSWORD}@host/pub", "owntracks", "found no scheme"),
        ("mqtt://host/topic", "owntracks", "http or https; found the scheme 'mqtt'"),
        ("https://host/topic", "mqtt", "mqtt or mqtts; found the scheme 'https'"),
        (f"https://alice:{PASSWORD}@/pub", "owntracks", "found no host"),
        (f"https://alice:{PASSWORD}@host:p/", "owntracks", "cannot be read"),
        (f"https://alice:{PASSWORD}@host:0/", "owntracks", "port 0"),
        ("https://[::1/", "overland", "cannot be read"),
        ("https://ho st/", "overland", "cannot be read|found no host"),
        ("mqtt://host", "mqtt", "found no topic"),
        ("mqtt://host/owntracks/%23", "mqtt", "found no topic after the host, or"),
        ("mqtt://host/owntracks/+/a", "mqtt", "found no topic after the host, or"),
        ("mqtt://host/owntracks#a", "mqtt", "found . or # in it"),
    ],
)
def test_a_bad_address_is_refused_in_words_that_do_not_repeat_it(
    ledger: Ledger, address: str, kind: str, words: str
) -> None:
    with pytest.raises(ParameterError, match=words) as refused:
        destinations.add(ledger, "alice", address, kind)
    assert PASSWORD not in str(refused.value)
    assert destinations.listed(ledger, "alice") == []


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("owntracks", {"username": "a", "bearer": "b"}, "not both"),
        ("owntracks", {"password": PASSWORD}, "needs a user"),
        ("owntracks", {"username": "a:b", "password": PASSWORD}, "colon"),
        ("owntracks", {"username": "a", "password": f"{PASSWORD}\n"}, "can be printed"),
        ("owntracks", {"bearer": f"{PASSWORD} x"}, "no spaces"),
        ("owntracks", {"headers": {"Host": "x"}}, "a header is a name"),
        ("owntracks", {"headers": {"Authorization": PASSWORD}}, "given apart"),
        ("owntracks", {"headers": {"X Y": "x"}}, "a header is a name"),
        ("owntracks", {"headers": {"X-Y": f"{PASSWORD}\r\nX-Z: 1"}}, "one line"),
        ("mqtt", {"headers": {"X-Y": "x"}}, "MQTT has no"),
        ("mqtt", {"bearer": PASSWORD}, "MQTT has no"),
    ],
)
def test_bad_credentials_are_refused_in_words_that_do_not_repeat_them(
    kind: str, more: dict[str, Any], words: str
) -> None:
    address = "mqtt://host/t" if kind == "mqtt" else "https://host/"
    with pytest.raises(ParameterError, match=words) as refused:
        destinations.target_of(address, kind, **more)
    assert PASSWORD not in str(refused.value)


def test_two_users_at_once_are_refused() -> None:
    with pytest.raises(ParameterError, match="not both"):
        destinations.target_of("https://a:b@host/", "overland", username="c")


@pytest.mark.parametrize(
    ("address", "kind", "shown", "note"),
    [
        ("http://192.168.1.7:8083/pub?u=a", "owntracks", "http://192.168.1.7:8083/…", "encrypted"),
        ("http://localhost/", "overland", "http://localhost/", None),
        ("http://[::1]:80/x", "overland", "http://[::1]:80/…", None),
        ("https://a:b@host/pub", "owntracks", "https://host/…", "X-Limit-U"),
        ("https://a:b@host/", "overland", "https://host/", None),
        ("mqtt://broker/t", "mqtt", "mqtt://broker/…", "encrypted"),
        ("mqtts://a:b@broker/t", "mqtt", "mqtts://broker/…", None),
    ],
)
def test_a_listing_shows_where_to_and_what_to_mind(
    ledger: Ledger, address: str, kind: str, shown: str, note: str | None
) -> None:
    destinations.add(ledger, "alice", address, kind)
    found = the_only(ledger)
    assert (found.format, found.address) == (kind, shown)
    assert (found.note is None) if note is None else (note in str(found.note))
