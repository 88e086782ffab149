"""What is forwarded is what each receiver takes, by the rules of its own parser.

The receivers here are web servers that answer as those parsers do. Their rules are restated from
the sources that are named with each; nothing else of them is here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from hereish.errors import ParameterError
from hereish.gateway.admin import destinations
from hereish.gateway.forwarding.forwarder import Forwarder
from hereish.gateway.forwarding.outbox import Outbox
from hereish.gateway.forwarding.targets import DestinationTarget, parse_target
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.tables import destinations as rows
from tests.support.forwarding_stage import Phone, the_only
from tests.support.receivers import Received, WebReceiver, web_receiver

Point = tuple[int, float, float]
DEVICE = "alice-7"


class Traccar:
    """OsmAndProtocolDecoder.java and OwnTracksProtocolDecoder.java of traccar/traccar.

    A device that was not registered, or no device at all, is a 400. OsmAnd: all is in the query;
    `timestamp` is a whole number of seconds (or milliseconds, from 2^31 on), or has a T in it.
    OwnTracks: the device is the topic, with - for /, or else the tid; tst, lat and lon are numbers.
    """

    def __init__(self, *registered: str) -> None:
        self.registered = registered
        self.points: list[Point] = []
        self.accuracies: list[float | None] = []

    def osmand(self, request: Received) -> int:
        told = request.query
        if not set(told.get("id", [])) & set(self.registered):
            return 400
        [at], [lat], [lon] = told["timestamp"], told["lat"], told["lon"]
        assert re.fullmatch(r"\d+", at)
        assert int(at) < 2**31
        self.points.append((int(at), float(lat), float(lon)))
        self.accuracies.append(float(told["accuracy"][0]) if "accuracy" in told else None)
        return 200

    def owntracks(self, request: Received) -> int:
        body = request.body
        device = body.get("topic", body.get("tid"))
        if device is None or device.replace("/", "-") not in self.registered:
            return 400
        assert all(type(body[name]) in (int, float) for name in ("tst", "lat", "lon"))
        assert type(body.get("acc", 1)) is int
        self.points.append((body["tst"], body["lat"], body["lon"]))
        return 200


class PhoneTrack:
    """LogController.php and routes.php of julien-nc/phonetrack.

    /apps/phonetrack/log/osmand/{token}/{device} is asked with GET; lat and lon are needed,
    timestamp has to be a whole number, the accuracy is `acc`. It says 200 to everything else too.
    """

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.devices: set[str] = set()

    def judge(self, request: Received) -> int:
        route = re.fullmatch(
            r"/apps/phonetrack/log/osmand/(\w+)/([^/]+)", urlsplit(request.path).path
        )
        if request.method != "GET" or route is None:
            return 405
        told = request.query
        [at], [lat], [lon], [acc] = (told[name] for name in ("timestamp", "lat", "lon", "acc"))
        self.points.append((int(at), float(lat), float(lon)))
        assert float(acc) > 0
        self.devices.add(unquote(route[2]))
        return 200


class Dawarich:
    """api_controller.rb, overland/params.rb and points/anomaly_filter.rb of Freika/dawarich.

    The key is api_key in the query, or the last word of the header Authorization. Each location
    needs a geometry and a timestamp. With the filter on, those with an accuracy above 100 m are
    hidden, and those without one are not.
    """

    KEY = "d4warich-key"

    def __init__(self) -> None:
        self.shown: list[Point] = []
        self.hidden = 0

    def judge(self, request: Received) -> int:
        header = request.headers.get("authorization", "").split()
        key = request.query["api_key"][0] if "?" in request.path else (header or [""])[-1]
        if key != self.KEY:
            return 401
        for location in request.body["locations"]:
            properties = location["properties"]
            lon, lat = location["geometry"]["coordinates"]
            at_s = int(datetime.fromisoformat(properties["timestamp"]).timestamp())
            if (properties.get("horizontal_accuracy") or 0) > 100:
                self.hidden += 1
            else:
                self.shown.append((at_s, lat, lon))
        return 201


class HomeAssistant:
    """components/owntracks/__init__.py and messages.py of home-assistant/core.

    The user and the device are the last parts of the topic, or else X-Limit-U and X-Limit-D. A
    location without an accuracy, or with 0, is ignored. Whatever comes is answered with 200.
    """

    def __init__(self) -> None:
        self.seen: dict[str, list[Point]] = {}

    def judge(self, request: Received) -> int:
        body = request.body
        topic = body.get("topic")
        if topic is None and "x-limit-u" in request.headers:
            user = request.headers["x-limit-u"]
            topic = f"owntracks/{user}/{request.headers.get('x-limit-d', user)}"
        if topic is not None and body.get("acc"):
            _, user, device = topic.split("/")
            self.seen.setdefault(f"{user}_{device}", []).append(
                (body["tst"], body["lat"], body["lon"])
            )
        return 200


def forwarded(
    ledger: Ledger,
    phone: Phone,
    judge: Callable[[Received], int],
    path: str,
    kind: str,
    **more: Any,
) -> tuple[list[Point], WebReceiver]:
    """Three releases to a receiver; what was released, and what arrived."""
    with web_receiver() as receiver:
        receiver.judge = judge
        destinations.add_destination(ledger, "alice", receiver.url + path, kind, **more)
        released = phone.report(3)
        Forwarder(ledger).run_once(time.time())
    return released, receiver


def test_traccar_takes_osmand_of_a_device_that_it_knows(ledger: Ledger, phone: Phone) -> None:
    traccar = Traccar(DEVICE)
    released, receiver = forwarded(ledger, phone, traccar.osmand, "", "osmand", device=DEVICE)
    assert traccar.points == released
    assert Outbox(ledger).count() == 0
    for request in receiver.requests:
        assert request.method == "GET"
        assert urlsplit(request.path).path == "/"
        assert set(request.query) == {"id", "lat", "lon", "timestamp", "accuracy", "acc"}
        assert "content-type" not in request.headers
    assert all(accuracy and accuracy >= 1 for accuracy in traccar.accuracies)


def test_what_traccar_does_not_know_waits_and_the_trouble_is_told(
    ledger: Ledger, phone: Phone
) -> None:
    traccar = Traccar(DEVICE)
    _, receiver = forwarded(ledger, phone, traccar.osmand, "", "osmand")
    assert receiver.requests[0].query["id"] == ["hereish"]
    found = the_only(ledger)
    assert (traccar.points, found.waiting, found.trouble) == ([], 3, "answered 400")
    assert "Traccar has to know the device as hereish" in (found.note or "")


def test_an_id_in_the_address_is_the_id(ledger: Ledger, phone: Phone) -> None:
    traccar = Traccar(DEVICE)
    path = f"/?id={DEVICE}&key=a%20b"
    released, receiver = forwarded(ledger, phone, traccar.osmand, path, "osmand", device="other")
    assert traccar.points == released
    assert receiver.requests[0].query["id"] == [DEVICE]
    assert receiver.requests[0].query["key"] == ["a b"]
    assert "Traccar has to know" not in (the_only(ledger).note or "")


@pytest.mark.parametrize("tid", ["al", None])
@pytest.mark.parametrize(
    ("more", "known"),
    [
        ({"headers": {"X-Limit-U": "alice", "X-Limit-D": "phone"}}, "owntracks-alice-phone"),
        ({"device": DEVICE}, f"owntracks-hereish-{DEVICE}"),
        ({}, "owntracks-hereish-hereish"),
    ],
)
def test_traccar_takes_owntracks_by_its_topic_with_initials_or_without(
    ledger: Ledger, phone: Phone, tid: str | None, more: dict[str, Any], known: str
) -> None:
    traccar = Traccar(known)
    phone.tid = tid
    released, receiver = forwarded(ledger, phone, traccar.owntracks, "", "owntracks", **more)
    assert traccar.points == released
    assert all(len(body["tid"]) == 2 for body in receiver.bodies)


def test_destinations_from_before_are_known_by_their_initials_as_before(
    ledger: Ledger, phone: Phone
) -> None:
    """Traccar would not know them by a topic. But initials there are always now."""
    old = asdict(parse_target("http://127.0.0.1/", "owntracks"))
    for name in ("device", "accuracy", "message_topic"):
        del old[name]
    assert DestinationTarget(**old).message_topic is None
    traccar = Traccar("al", "sh")
    with web_receiver() as receiver:
        receiver.judge = traccar.owntracks
        number = destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        sealed = DestinationTarget(**{**old, "address": receiver.url}).seal(ledger.keys, 1)
        with ledger.database.writing() as tx:
            tx.execute(rows.update().where(rows.c.id == number).values(sealed=sealed))
        released = phone.report(2)
        phone.tid = None
        released += phone.report(1)
        Forwarder(ledger).run_once(time.time())
    assert traccar.points == released
    assert [body["tid"] for body in receiver.bodies] == ["al", "al", "sh"]


def test_phonetrack_takes_osmand(ledger: Ledger, phone: Phone) -> None:
    there = PhoneTrack()
    path = "/apps/phonetrack/log/osmand/5f4dcc3b/alice"
    released, _ = forwarded(ledger, phone, there.judge, path, "osmand")
    assert (there.points, there.devices) == (released, {"alice"})


@pytest.mark.parametrize("how", [{"bearer": Dawarich.KEY}, {}])
def test_dawarich_shows_what_has_no_accuracy_and_wants_its_key(
    ledger: Ledger, phone: Phone, how: dict[str, str]
) -> None:
    there = Dawarich()
    query = "" if how else f"?api_key={Dawarich.KEY}"
    path = f"/api/v1/overland/batches{query}"
    released, receiver = forwarded(
        ledger, phone, there.judge, path, "overland", accuracy=False, **how
    )
    assert (there.shown, there.hidden) == (released, 0)
    [batch] = receiver.bodies
    for feature in batch["locations"]:
        assert set(feature["properties"]) == {"timestamp", "device_id"}


def test_dawarich_hides_what_has_one_and_takes_nothing_without_its_key(
    ledger: Ledger, phone: Phone
) -> None:
    """What the option is for: noise of hundreds of metres is the point of this."""
    there = Dawarich()
    path = f"/api/v1/overland/batches?api_key={Dawarich.KEY}"
    released, _ = forwarded(ledger, phone, there.judge, path, "overland")
    assert (there.shown, there.hidden) == ([], len(released))
    destinations.remove_destination(ledger, "alice", the_only(ledger).id)
    forwarded(ledger, phone, there.judge, "/api/v1/overland/batches", "overland")
    assert the_only(ledger).trouble == "answered 401"


def test_home_assistant_wants_an_accuracy_and_knows_user_and_device(
    ledger: Ledger, phone: Phone
) -> None:
    headers = {"X-Limit-U": "alice", "X-Limit-D": "phone"}
    there = HomeAssistant()
    released, _ = forwarded(
        ledger, phone, there.judge, "/api/webhook/4711", "owntracks", headers=headers
    )
    assert there.seen == {"alice_phone": released}
    destinations.remove_destination(ledger, "alice", the_only(ledger).id)
    there = HomeAssistant()
    forwarded(ledger, phone, there.judge, "/api/webhook/4711", "owntracks", accuracy=False)
    assert there.seen == {}
    assert "Home Assistant ignores messages without an accuracy" in (the_only(ledger).note or "")


@pytest.mark.parametrize("kind", ["owntracks", "overland", "osmand"])
def test_no_accuracy_leaves_it_out_of_every_format(ledger: Ledger, phone: Phone, kind: str) -> None:
    def judge(_: Received) -> int:
        return 200

    _, receiver = forwarded(ledger, phone, judge, "", kind, accuracy=False)
    for request in receiver.requests:
        assert "acc" not in f"{request.path} {request.body}"


@pytest.mark.parametrize(
    "device", ["", "a b", "a&id=b", "a?b", "a#b", "a/b", "a%26", "ä", "a\r\nX: y", "a" * 101, "a+"]
)
@pytest.mark.parametrize("kind", ["osmand", "overland", "owntracks"])
def test_a_device_has_no_sign_that_means_something_in_an_address(kind: str, device: str) -> None:
    with pytest.raises(ParameterError, match="a device is 1 to 100"):
        parse_target("https://host/", kind, device=device)


@pytest.mark.parametrize("query", ["lat=LAT&lon=LON", "id=1&timestamp={2}", "lon=", "location=1,2"])
def test_an_address_with_a_template_in_it_is_refused(query: str) -> None:
    """PhoneTrack shows such addresses, for apps that fill them in."""
    with pytest.raises(ParameterError, match="without lat, lon and timestamp"):
        parse_target(f"https://host/log?{query}", "osmand")


def test_over_mqtt_the_device_is_in_the_topic() -> None:
    with pytest.raises(ParameterError, match="in the topic"):
        parse_target("mqtt://host/owntracks/a/b", "mqtt", device="x")
