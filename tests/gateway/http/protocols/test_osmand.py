"""None"""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest

from hereish.gateway.http.protocols import osmand
from hereish.gateway.http.protocols._parsing import to_coordinates, to_seconds
from hereish.gateway.http.protocols.payload import InvalidRequestError
from hereish.gateway.ledger.models import Fix
from tests.support.client_payloads import (
    AT_S,
    LAT,
    LON,
    gpslogger_query,
    iso,
    osmand_query,
    quickest_s,
    sent,
    tells_nothing,
    traccar_client_json,
    traccar_client_query,
)

HERE = Fix(LAT, LON, AT_S)
NOW_S = AT_S + 86_400.0
FORM, JSON_TYPE = "application/x-www-form-urlencoded", "application/json"
POINT = f"lat={LAT}&lon={LON}"


def read(
    query: list[tuple[str, str]], content_type: str | None, body: bytes, now_s: float
) -> list[Fix]:
    """The fixes of a request in which there is nothing that cannot be used."""
    points = osmand.read(query, content_type, body, now_s)
    assert points.unusable == []
    return points.fixes


def read_query(query: str) -> list[Fix]:
    return read(parse_qsl(query, keep_blank_values=True), None, b"", NOW_S)


def read_json(message: object) -> list[Fix]:
    return read([], JSON_TYPE, sent(message), NOW_S)


def check_refused(
    query: str = "", content_type: str | None = None, body: bytes = b"", words: str | None = None
) -> None:
    with pytest.raises(InvalidRequestError, match=words) as refused:
        read(parse_qsl(query, keep_blank_values=True), content_type, body, NOW_S)
    assert tells_nothing(refused.value)


@pytest.mark.parametrize("app", [osmand_query, traccar_client_query, gpslogger_query])
def test_an_app_may_send_its_position_as_a_query_or_a_form(app: Any) -> None:
    pairs = app()
    form = urlencode(pairs).encode()
    assert read(pairs, None, b"", NOW_S) == [HERE]
    assert read(pairs, FORM, b"", NOW_S) == [HERE]  # a POST that has all in its URL
    assert read([], FORM, form, NOW_S) == [HERE]
    assert read([], "Application/X-WWW-Form-URLencoded; charset=UTF-8", form, NOW_S) == [HERE]
    assert read([], None, form, NOW_S) == [HERE]
    assert read([("token", "abc")], FORM, form, NOW_S) == [HERE]


def test_the_newer_traccar_client_sends_json() -> None:
    body = sent(traccar_client_json())
    assert read([], JSON_TYPE, body, NOW_S) == [HERE]
    assert read([], "application/json; charset=utf-8", body, NOW_S) == [HERE]


def test_nothing_beside_the_coords_of_json_is_overlooked() -> None:
    coords = {"latitude": HERE.lat, "longitude": HERE.lon}
    at_s = int(HERE.at_s)
    whole: list[tuple[list[tuple[str, str]], dict[str, Any]]] = [
        ([], {"timestamp": at_s, "location": {"coords": coords}}),
        ([("timestamp", str(at_s))], {"location": {"coords": coords}}),
        ([], {"location": {**coords, "timestamp": at_s}}),
        ([("lat", str(HERE.lat)), ("lon", str(HERE.lon))], {"location": {"timestamp": at_s}}),
    ]
    for query, message in whole:
        assert read(query, JSON_TYPE, sent(message), NOW_S) == [HERE]
    differs = [("lat", "9"), ("lon", "9")]
    with pytest.raises(InvalidRequestError, match="twice, and differs"):
        read(differs, JSON_TYPE, sent({"location": {"coords": coords}}), NOW_S)


def test_an_id_is_not_read() -> None:
    for pairs in ([("id", "1")], [("deviceid", "2")], []):
        assert read([*parse_qsl(POINT), *pairs], None, b"", AT_S) == [HERE]
    (fix,) = read_json(traccar_client_json())
    assert fix.id is None


@pytest.mark.parametrize(
    "time",
    [
        f"timestamp={AT_S}",
        f"timestamp={AT_S}.0",
        f"timestamp={AT_S}000",
        f"timestamp={iso(AT_S)}",
        f"timestamp={iso(AT_S, '.000Z')}",
        f"timestamp={iso(AT_S + 7200, '%2B02:00')}",
        f"timestamp={iso(AT_S + 7200, '+02:00')}",  # its plus is read as a space
        f"timestamp={iso(AT_S + 7200, '.000+0200')}",
        "timestamp=2026-05-05+12:00:00",  # a space, and no zone: UTC
        "timestamp=2026-05-05+12:00",
        f"time={iso(AT_S)}",
        f"time={AT_S}",
        f"timestamp={AT_S}&time=12:00",
    ],
)
def test_times_are_seconds_milliseconds_or_iso_times(time: str) -> None:
    assert read_query(f"{POINT}&{time}") == [HERE]


def test_a_hundred_billion_parts_seconds_from_milliseconds() -> None:
    (fix,) = read_query(f"{POINT}&timestamp=100000000001")
    assert fix.at_s == 100_000_000.001
    check_refused(f"{POINT}&timestamp=100000000000")  # seconds, in the year 5138


def test_without_a_time_it_is_now() -> None:
    now = [Fix(LAT, LON, NOW_S)]
    assert read_query(POINT) == now
    message = traccar_client_json()
    del message["location"]["timestamp"]
    assert read_json(message) == now
    message["location"]["timestamp"] = None
    assert read_json(message) == now
    message["location"]["timestamp"] = AT_S * 1000
    assert read_json(message) == [HERE]


@pytest.mark.parametrize(
    "time", ["", "noon", "0", "-5", "1e300", "nan", "2026-05-05", "1_777_982_400"]
)
def test_a_time_that_means_nothing_is_nonsense_and_not_now(time: str) -> None:
    check_refused(f"{POINT}&timestamp={time}", words="time must be")
    check_refused(f"{POINT}&time={time}", words="time must be")
    message = traccar_client_json()
    message["location"]["timestamp"] = time
    check_refused("", JSON_TYPE, sent(message), words="time must be")


def test_location_is_latitude_and_longitude() -> None:
    assert read_query(f"location={LAT},{LON}&timestamp={AT_S}") == [HERE]
    assert read_query(f"location={LAT},%20{LON}&timestamp={AT_S}") == [HERE]
    assert read_query(f"latitude={LAT}&longitude={LON}&timestamp={AT_S}") == [HERE]


@pytest.mark.parametrize(
    "query", ["", "id=1&alarm=sos", f"id=1&timestamp={AT_S}&batt=80", "cell=1,2"]
)
def test_a_request_without_a_position_has_no_fix(query: str) -> None:
    assert read_query(query) == []
    assert read([], FORM, query.encode(), NOW_S) == []


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"device_id": "1"},
        {"location": None},
        {"location": {"event": "heartbeat", "timestamp": iso(AT_S)}},
        {"location": {"coords": None}},
        {"location": {"coords": {}}},
        {"location": {"coords": {"latitude": None, "longitude": None, "accuracy": 5}}},
    ],
)
def test_json_without_a_position_has_no_fix(message: dict[str, Any]) -> None:
    assert read_json(message) == []


@pytest.mark.parametrize(
    "query",
    [
        "lat=48.7315926",
        "lon=19.1462837",
        "lat=48.7315926&lon=",
        "lat=&lon=",
        "lat=90.5&lon=19.1462837",
        "lat=48.7315926&lon=-180.5",
        "lat=nan&lon=19.1462837",
        "lat=48.7315926&lon=inf",
        "lat=48.7315926&lon=1e999",
        "lat=4_8&lon=19.1462837",
        "lat=48,7315926&lon=19,1462837",
        "lat=٤٨&lon=19.1462837",
        "lat={0}&lon={1}",  # a template that was pasted where nothing fills it
        "location=48.7315926",
        "location=48.7315926,",
        "location=48.7315926,19.1462837,361",
        "location=",
        "location=48.7315926,19.1462837&lat=48.7315926&lon=19.1462837",
        "lat=48.7315926&lat=48.8&lon=19.1462837",
        "lat=48.7315926&latitude=48.8&lon=19.1462837",
        "lat=48.7315926&lon=19.1462837&timestamp=1777982400&timestamp=1777982401",
    ],
)
def test_half_a_position_or_two_or_one_off_the_earth_is_nonsense(query: str) -> None:
    check_refused(query)
    check_refused("", FORM, query.encode())


def test_a_query_and_a_form_may_agree_and_not_differ() -> None:
    form = f"{POINT}&timestamp={AT_S}".encode()
    assert read(parse_qsl(POINT), FORM, form, NOW_S) == [HERE]
    check_refused("lat=48.8&lon=19.1", FORM, form, words="twice")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("latitude", None),
        ("longitude", None),
        ("latitude", ""),
        ("latitude", "north"),
        ("latitude", "-90.5"),
        ("latitude", "4_8"),
        ("latitude", "nan"),
        ("longitude", "1" * 65),
        ("longitude", [str(LON)]),
        ("latitude", True),
        ("latitude", -90.5),
        ("longitude", 1e300),
        ("longitude", 10**400),
        ("longitude", []),
    ],
)
def test_json_with_half_a_position_or_one_off_the_earth_is_nonsense(
    field: str, value: object
) -> None:
    message = traccar_client_json()
    message["location"]["coords"][field] = value
    check_refused("", JSON_TYPE, sent(message), words="latitude and a longitude")


@pytest.mark.parametrize(
    "body",
    [
        b"48.7315926",
        b'{"location":48.7315926}',
        b'{"location":{"coords":[48.7315926,19.1462837]}}',
        b'{"location":{"coords":{"latitude":48.7315926,"longitude":NaN}}}',
        b'{"location":' * 100_000,
        POINT.encode(),
    ],
)
def test_json_of_another_shape_is_nonsense(body: bytes) -> None:
    check_refused("", JSON_TYPE, body)


@pytest.mark.parametrize("content_type", ["multipart/form-data; boundary=x", "image/png", "json"])
def test_a_body_of_another_type_is_nonsense_unless_it_is_empty_or_json(content_type: str) -> None:
    check_refused("", content_type, POINT.encode(), words="must be a form or JSON")
    assert read(parse_qsl(POINT), content_type, b"", AT_S) == [HERE]
    assert read([], content_type, sent(traccar_client_json()), AT_S) == [HERE]


@pytest.mark.parametrize("content_type", ["text/plain", "text/plain; charset=utf-8", "", None])
def test_a_body_that_was_typed_in_is_read_as_what_it_is(content_type: str | None) -> None:
    assert read([], content_type, POINT.encode(), AT_S) == [HERE]
    assert read([], content_type, sent(traccar_client_json()), AT_S) == [HERE]


LATER = Fix(LAT + 0.5, LON, AT_S + 60)


def test_traccar_client_sends_an_array_of_what_it_kept() -> None:
    messages = [traccar_client_json(), traccar_client_json(*LATER[:3])]
    assert read_json(messages) == [HERE, LATER]
    assert read_json([]) == []
    # Its library puts the array inside, if it is set so.
    inside = {"device_id": "1", "location": [message["location"] for message in messages]}
    assert read_json(inside) == [HERE, LATER]
    assert read_json([inside]) == [HERE, LATER]
    assert read([], None, sent(messages), NOW_S) == [HERE, LATER]


def test_a_bad_message_of_an_array_spoils_no_other() -> None:
    bad: list[Any] = [traccar_client_json() for _ in range(3)]
    bad[0]["location"]["timestamp"] = 0
    bad[1]["location"]["coords"]["latitude"] = 91
    bad[2]["latitude"] = LAT + 1
    heartbeat = {"location": {"event": "heartbeat"}}
    messages = [*bad, None, 7, [], "here", heartbeat, traccar_client_json()]
    points = osmand.read([], JSON_TYPE, sent(messages), NOW_S)
    assert points.fixes == [HERE]
    assert points.unusable == ["time", "place", "ambiguous", *["body"] * 4]
    doubled = sent(messages).replace(b'"coords"', b'"coords":1,"coords"', 1)
    points = osmand.read([], JSON_TYPE, doubled, NOW_S)
    assert points.fixes == [HERE]
    nan = sent([traccar_client_json()] * 2).replace(str(LAT).encode(), b"NaN", 1)
    points = osmand.read([], JSON_TYPE, nan, NOW_S)
    assert points == ([HERE], ["place"])


def test_an_array_of_a_thousand_is_read_and_of_one_more_is_too_large() -> None:
    location = traccar_client_json()["location"]
    for messages in ([traccar_client_json()], {"location": [location]}):
        thousand: Any = messages * 1000 if isinstance(messages, list) else messages
        more: Any = messages * 1001 if isinstance(messages, list) else messages
        if isinstance(messages, dict):
            thousand, more = ({"location": [location] * n} for n in (1000, 1001))
        assert len(read_json(thousand)) == 1000
        with pytest.raises(InvalidRequestError, match="fewer at once") as refused:
            read_json(more)
        assert refused.value.reason == "size"


def test_a_form_of_very_many_fields_is_nonsense() -> None:
    check_refused("", FORM, b"a=1&" * 100_000 + POINT.encode(), words="too many")


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_no_coordinates_and_no_times(odd: float) -> None:
    assert to_coordinates(odd, LON) is None
    assert to_coordinates(LAT, odd) is None
    assert to_seconds(odd) is None


QUERY = [("lat", "52.50"), ("lon", "13.40"), ("timestamp", "1700000000")]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b'{"lat":52.5,"lon":13.4,"timestamp":1700000000}'),
        ("application/json", b'{"battery":5,"timestamp":"2023-11-14T22:13:20Z"}'),
        ("application/json", b"[]"),
        ("application/json", b"null"),
        ("application/json", b'"hello"'),
        ("application/json", b"{broken"),
        ("multipart/form-data; boundary=x", b"--x"),
        ("text/html", b"x"),
    ],
)
def test_a_position_in_the_query_is_not_lost_because_of_the_body(kind: str, body: bytes) -> None:
    points = osmand.read(QUERY, kind, body, 0.0)
    assert [(fix.lat, fix.lon, fix.at_s) for fix in points.fixes] == [(52.5, 13.4, 1.7e9)]


def test_fields_of_a_form_may_come_as_json() -> None:
    body = b'{"location":"52.5,13.4","timestamp":1700000000}'
    [fix] = osmand.read([], "application/json", body, 0.0).fixes
    assert (fix.lat, fix.lon, fix.at_s) == (52.5, 13.4, 1.7e9)


@pytest.mark.parametrize("field", ["timestamp", "time", "lat", "lon", "location"])
@pytest.mark.parametrize("text", ["T", "T ", " ", "1", "1.", "T12:00 02", "%", "+"])
def test_long_texts_are_refused_as_quickly_as_they_are_long(field: str, text: str) -> None:
    """Nobody has shown that they may report when these are read."""

    def took_s(size: int) -> float:
        fields = {"lat": str(LAT), "lon": str(LON), field: text * (size // len(text)) + "!"}
        form = "&".join(f"{name}={value}" for name, value in fields.items())
        where = {
            "timestamp": fields[field],
            "coords": {"latitude": LAT, "longitude": fields[field]},
        }

        def refused() -> None:
            check_refused(form)
            check_refused("", FORM, form.encode())
            check_refused("", JSON_TYPE, sent(fields))
            check_refused("", JSON_TYPE, sent({"location": where}))

        return quickest_s(refused)

    assert took_s(64_000) < 100 * took_s(2_000)


def test_arrays_are_read_as_quickly_as_they_are_long() -> None:
    """Whatever is beside them: nobody copies it for each of their messages."""
    location = traccar_client_json()["location"]

    def took_s(size: int) -> float:
        beside = {f"k{i}": i for i in range(size)}
        body = sent({**beside, "location": [location] * 1000})
        query = [("id", str(i)) for i in range(size)]
        return quickest_s(lambda: read(query, JSON_TYPE, body, NOW_S))

    assert took_s(20_000) < 10 * took_s(200)
