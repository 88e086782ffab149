"""Arbitrary requests in OsmAnd's protocol: they are read or refused, and errors repeat nothing."""

from __future__ import annotations

from urllib.parse import urlencode

from hypothesis import given
from hypothesis import strategies as st

from hereish.gateway.http.protocols import osmand
from hereish.gateway.http.protocols.payload import InvalidRequestError, ParsedPoints
from tests.support.client_payloads import (
    ANY_JSON,
    AT_S,
    FUZZ,
    LON,
    sent,
    tells_nothing,
    usable,
)

NOW_S = AT_S + 86_400.0
FORM, JSON_TYPE = "application/x-www-form-urlencoded", "application/json"


def check_read(pairs: list[tuple[str, str]], content_type: str | None, body: bytes) -> None:
    """Whatever it is: usable fixes, or an error that tells nothing."""
    points, refused = ParsedPoints([], []), None
    try:
        points = osmand.read(pairs, content_type, body, NOW_S)
    except InvalidRequestError as error:
        refused = error
    assert refused is None or tells_nothing(refused)
    assert all(map(usable, points.fixes))
    assert set(points.unusable) <= {"body", "place", "time", "ambiguous"}


@FUZZ
@given(st.binary(max_size=200), st.sampled_from([None, FORM, JSON_TYPE]) | st.text(max_size=8))
def test_arbitrary_bytes_are_read_or_refused(body: bytes, content_type: str | None) -> None:
    check_read([], content_type, body)


NAMES = st.sampled_from(
    ["lat", "lon", "latitude", "longitude", "location", "timestamp", "time", "id"]
)


VALUES = (
    st.text(max_size=8) | st.floats().map(str) | st.integers().map(str) | st.datetimes().map(str)
)


@FUZZ
@given(st.lists(st.tuples(NAMES, VALUES), max_size=6))
def test_arbitrary_fields_are_read_or_refused(pairs: list[tuple[str, str]]) -> None:
    check_read(pairs, None, b"")
    check_read([], FORM, urlencode(pairs, errors="replace").encode())


@FUZZ
@given(VALUES, VALUES, VALUES)
def test_a_position_of_anything_is_read_or_refused(lat: str, lon: str, at: str) -> None:
    check_read([("lat", lat), ("lon", lon), ("timestamp", at)], None, b"")
    check_read([("location", f"{lat},{lon}"), ("time", at)], None, b"")


@FUZZ
@given(ANY_JSON, ANY_JSON, ANY_JSON)
def test_arbitrary_json_is_read_or_refused(first: object, second: object, third: object) -> None:
    coords = {"latitude": first, "longitude": second}
    for message in (
        first,
        {"location": first},
        {"location": {"coords": first, "timestamp": second}},
        {"location": {"coords": coords, "timestamp": third}},
        {"lat": first, "lon": second, "timestamp": third},
        {"lat": first, "latitude": second, "lon": LON, "time": third},
    ):
        check_read([], JSON_TYPE, sent(message))
