from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hereish.core.types import Kind
from hereish.gateway.http.protocols import overland as protocol
from hereish.gateway.http.protocols.payload import InvalidRequestError
from hereish.gateway.ledger.models import Fix, LedgerRelease
from tests.support.client_payloads import (
    ANY_JSON,
    AT_S,
    FUZZ,
    LAT,
    LON,
    TELLTALES,
    iso,
    overland,
    overland_android_feature,
    overland_feature,
    overland_finished_trip,
    overland_log_line,
    quickest_s,
    sent,
    tells_nothing,
    usable,
)

HERE = Fix(LAT, LON, AT_S)


def release(at_s: float = AT_S) -> LedgerRelease:
    return LedgerRelease(
        lat=48.9,
        lon=19.3,
        at_s=at_s,
        kind=Kind.EASY,
        cost=0.01,
        accuracy_m=2310.2,
        eps_test=0.01,
        eps_noise=0.0,
        threshold_m=900.0,
        window="today",
    )


def read(*features: object) -> list[Fix]:
    return protocol.read(sent(overland(*features))).fixes


def check_refused(body: bytes) -> str:
    with pytest.raises(InvalidRequestError) as refused:
        protocol.read(body)
    assert tells_nothing(refused.value)
    return str(refused.value)


def test_a_batch_is_the_places_and_times_of_its_locations_alone() -> None:
    fixes = read(overland_feature(), overland_android_feature(LAT + 0.5, LON, AT_S + 30))
    assert fixes == [HERE, Fix(LAT + 0.5, LON, AT_S + 30.25)]  # not those of current and trip
    assert protocol.read(b'{"locations":[]}') == ([], [])


def test_the_order_of_a_batch_is_kept() -> None:
    times = [AT_S + offset_s for offset_s in (60, 0, 120, 0)]
    assert [fix.at_s for fix in read(*(overland_feature(timestamp=iso(t)) for t in times))] == times


@pytest.mark.parametrize(
    "timestamp",
    [
        iso(AT_S),
        iso(AT_S, "+0000"),
        iso(AT_S - 7 * 3600, "-0700"),  # as older versions of the iOS app write it
        iso(AT_S + 5.5 * 3600, "+05:30"),
        iso(AT_S + 3600, "+01"),
        iso(AT_S, ".000Z"),
        iso(AT_S, ".000000000Z"),
        iso(AT_S).replace("T", " "),
        iso(AT_S, ""),
    ],
)
def test_times_are_iso_times_with_any_offset(timestamp: str) -> None:
    assert read(overland_feature(timestamp=timestamp)) == [HERE]


def test_a_time_without_an_offset_is_utc_wherever_the_gateway_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "America/New_York")
        time.tzset()
        fixes = read(overland_feature(timestamp=iso(AT_S, "")))
    time.tzset()
    assert fixes == [HERE]


@pytest.mark.parametrize(
    "timestamp",
    [
        None,
        "",
        "yesterday",
        "2026-05-05",
        "2026-W19-2T12:00:00Z",
        "2026-13-05T12:00:00Z",
        "2026-05-05T12:00:61Z",
        "2026-05-05T12:00:00+99:00",
        "٢٠٢٦-05-05T12:00:00Z",
        "1969-12-31T23:59:59Z",
        "2500-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        iso(AT_S, f".{'0' * 60}Z"),
        str(AT_S),
        True,
        [iso(AT_S)],
    ],
)
def test_a_location_without_a_usable_time_is_left_out_and_not_its_batch(timestamp: object) -> None:
    assert read(overland_feature(timestamp=timestamp), overland_feature()) == [HERE]


def test_long_texts_are_left_out_as_quickly_as_they_are_long() -> None:
    def took_s(text: str, size: int) -> float:
        feature = overland_feature(timestamp=text * size)
        return quickest_s(lambda: read(feature))

    for text in ("T", "1", " ", iso(AT_S, " ")):
        size = 64_000 // len(text)
        assert took_s(text, size) < 100 * took_s(text, size // 32), text


@pytest.mark.parametrize(
    "geometry",
    [
        None,
        [],
        "Point",
        {},
        {"type": "Point"},
        {"type": "Point", "coordinates": None},
        {"type": "Point", "coordinates": []},
        {"type": "Point", "coordinates": [LON]},
        {"type": "Point", "coordinates": {"latitude": LAT, "longitude": LON}},
        {"type": "Point", "coordinates": [str(LON), str(LAT)]},
        {"type": "Point", "coordinates": [LON, None]},
        {"type": "Point", "coordinates": [True, LAT]},
        {"type": "Point", "coordinates": [LON, 90.001]},
        {"type": "Point", "coordinates": [180.001, LAT]},
        {"type": "Point", "coordinates": [10**400, LAT]},
        {"type": "MultiPoint", "coordinates": [LON, LAT]},
        {"type": "LineString", "coordinates": [[LON, LAT], [LON, LAT]]},
    ],
)
def test_a_location_without_a_usable_point_is_left_out_and_not_its_batch(geometry: object) -> None:
    assert read({**overland_feature(), "geometry": geometry}, overland_feature()) == [HERE]


@pytest.mark.parametrize("missing", ["geometry", "properties"])
def test_a_location_that_lacks_a_part_is_left_out(missing: str) -> None:
    feature = {key: value for key, value in overland_feature().items() if key != missing}
    assert read(feature, None, 7, [feature], overland_feature()) == [HERE]


def test_an_altitude_in_the_point_is_not_looked_at() -> None:
    feature = overland_feature()
    feature["geometry"]["coordinates"].append("high")
    assert read(feature) == [HERE]


def test_old_positions_under_new_times_are_left_out() -> None:
    lines = [overland_log_line("did_enter_background"), overland_finished_trip()]
    assert read(*lines, overland_feature()) == [HERE]


def test_a_visit_is_a_position_of_its_own() -> None:
    assert read(overland_log_line("visit")) == [Fix(LAT, LON, AT_S + 60)]


def test_what_is_left_out_is_counted_by_why_and_log_lines_are_not() -> None:
    features = [
        overland_feature(lat=90.5),
        overland_feature(timestamp=0),
        {**overland_feature(), "geometry": None},
        {**overland_feature(), "properties": None},
        overland_log_line("did_enter_background"),
        overland_finished_trip(),
        None,
        overland_feature(),
    ]
    points = protocol.read(sent(overland(*features)))
    assert points == ([HERE], ["place", "time", "place", "body", "body"])


def test_one_number_that_is_none_or_a_key_that_comes_twice_spoils_no_batch() -> None:
    body = sent(overland(overland_feature(LAT + 1), overland_feature()))
    place = f"[{LON},{LAT + 1}]".encode()
    assert place in body.replace(b", ", b",")
    body = body.replace(b", ", b",")
    nan = body.replace(place, f"[{LON},NaN]".encode(), 1)
    assert protocol.read(nan) == ([HERE], ["place"])
    twice = body.replace(b'"coordinates"', b'"coordinates":0,"coordinates"', 1)
    assert protocol.read(twice) == ([HERE], ["place"])
    # Where nobody looks, it does no harm.
    speed = body.replace(b'"speed":', b'"speed":NaN,"pace":', 1)
    assert len(protocol.read(speed).fixes) == 2


def test_a_thousand_locations_are_read_and_one_more_is_nonsense() -> None:
    assert len(read(*[overland_feature()] * 1000)) == 1000
    words = check_refused(sent(overland(*[overland_feature()] * 1001)))
    assert "set a smaller batch" in words


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{}",
        b"48.7315926",
        b'{"locations":null}',
        b'{"locations":{"type":"Feature"}}',
        b'{"locations":[],"locations":[48.7315926]}',
        b'{"locations":' + b"[" * 100_000,
        sent([overland_feature()]),
    ],
)
def test_what_is_no_batch_is_nonsense_and_the_error_does_not_repeat_it(body: bytes) -> None:
    check_refused(body)


def test_the_app_deletes_its_batch_at_these_words() -> None:
    assert protocol.RESPONSE == b'{"result":"ok"}'


def test_what_is_forwarded_is_the_release_and_the_name_of_the_device() -> None:
    forwarded = protocol.batch([release(), release(AT_S + 60.5)], "al")
    first, second = forwarded["locations"]
    assert forwarded.keys() == {"locations"}
    assert first == {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [19.3, 48.9]},
        "properties": {
            "timestamp": "2026-05-05T12:00:00Z",
            "horizontal_accuracy": 2311,
            "device_id": "al",
        },
    }
    assert datetime.fromisoformat(second["properties"]["timestamp"]).timestamp() == AT_S + 60.5
    text = json.dumps(forwarded)
    assert not any(telltale in text for telltale in TELLTALES)


def test_a_forwarded_batch_can_be_read_again() -> None:
    body = sent(protocol.batch([release(), release(AT_S + 60.5)], "al"))
    assert protocol.read(body).fixes == [Fix(48.9, 19.3, AT_S), Fix(48.9, 19.3, AT_S + 60.5)]


def check_read(body: bytes) -> list[Fix]:
    """Whatever it is: usable fixes, or an error that tells nothing."""
    fixes, refused = [], None
    try:
        fixes = protocol.read(body).fixes
    except InvalidRequestError as error:
        refused = error
    assert refused is None or tells_nothing(refused)
    assert all(map(usable, fixes))
    return fixes


@FUZZ
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(body: bytes) -> None:
    check_read(body)


@FUZZ
@given(ANY_JSON)
def test_arbitrary_json_is_read_or_refused(message: object) -> None:
    check_read(sent(message))
    check_read(sent({"locations": message}))
    check_read(sent({"locations": [message]}))


FIELDS = st.dictionaries(st.sampled_from(["type", "geometry", "properties"]), ANY_JSON)
GEOMETRY = st.fixed_dictionaries({"type": st.just("Point") | ANY_JSON, "coordinates": ANY_JSON})


@FUZZ
@given(FIELDS, GEOMETRY, ANY_JSON)
def test_a_feature_with_anything_in_its_fields_spoils_no_batch(
    fields: dict[str, Any], geometry: dict[str, Any], timestamp: object
) -> None:
    odd = [
        overland_feature() | fields,
        overland_feature() | {"geometry": geometry},
        overland_feature(timestamp=timestamp),
    ]
    body = sent(overland(*odd, overland_feature()))
    fixes = check_read(body)
    assert HERE in fixes
