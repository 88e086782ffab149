"""The protocol of OsmAnd and Traccar: one position in a query, a form or a JSON object.

OsmAnd, GPSLogger with a custom URL and the older Traccar Client send queries or forms, the newer
Traccar Client sends JSON. The `id` they carry names a device and proves nothing: nobody reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl

from hereish.gateway.fixes import Fix, Nonsense
from hereish.gateway.protocols.parsing import (
    coordinates,
    iso_s,
    json_object,
    number_in,
    seconds_of,
    unix_s,
)

_FORM = "application/x-www-form-urlencoded"
_JSON = "application/json"
_MOST_FIELDS = 1000
# By what they mean. `longitude` and `time` are in the URL that GPSLogger suggests.
_FIELDS = {
    "lat": "lat",
    "latitude": "lat",
    "lon": "lon",
    "longitude": "lon",
    "location": "location",
    "timestamp": "timestamp",
    "time": "time",
}
_LOST_PLUS = re.compile(r"(T\S+) (?=\d\d:?\d\d$)", re.ASCII)


def read(
    query: Iterable[tuple[str, str]], content_type: str | None, body: bytes, now_s: float
) -> list[Fix]:
    """The position of a request, if it has one; without a time of its own it is of `now_s`."""
    pairs = list(query)
    if not body.strip():
        return _of_fields(pairs, now_s)
    media = (content_type or _FORM).partition(";")[0].strip().lower()
    if media == _JSON:
        return _of_json(json_object(body), now_s)
    if media == _FORM:
        return _of_fields([*pairs, *_form(body)], now_s)
    raise Nonsense("the body must be a form or JSON, and its content type must say which")


def _form(body: bytes) -> list[tuple[str, str]]:
    text = body.decode(errors="replace")
    if text.count("&") >= _MOST_FIELDS:
        raise Nonsense("the form has too many fields")
    return parse_qsl(text, keep_blank_values=True)


def _of_fields(pairs: list[tuple[str, str]], now_s: float) -> list[Fix]:
    found: dict[str, str] = {}
    for name, text in pairs:
        meaning = _FIELDS.get(name)
        if meaning is None:
            continue
        if found.setdefault(meaning, text) != text:
            raise Nonsense("the position or its time is in the request twice, and differs")
    if "location" in found:
        if "lat" in found or "lon" in found:
            raise Nonsense("the position is in the request twice; send location, or lat and lon")
        lat, _, lon = found["location"].partition(",")
    elif "lat" in found or "lon" in found:
        lat, lon = found.get("lat", ""), found.get("lon", "")
    else:
        return []
    when = found.get("timestamp", found.get("time"))
    at_s = now_s if when is None else _usable(_time(when))
    return [_fix(number_in(lat), number_in(lon), at_s)]


def _time(text: str) -> float | None:
    at = number_in(text)
    # A plus that was not escaped is a space by now.
    return iso_s(_LOST_PLUS.sub(r"\1+", text.strip())) if at is None else unix_s(at)


def _of_json(message: dict[str, Any], now_s: float) -> list[Fix]:
    where = _part(message, "location")
    coords = _part(where, "coords")
    lat, lon, at = coords.get("latitude"), coords.get("longitude"), where.get("timestamp")
    if lat is None and lon is None:
        return []
    return [_fix(lat, lon, now_s if at is None else _usable(seconds_of(at)))]


def _part(message: dict[str, Any], name: str) -> dict[str, Any]:
    part = message.get(name)
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise Nonsense("location and its coords must be objects")
    return part


def _fix(lat: object, lon: object, at_s: float) -> Fix:
    place = coordinates(lat, lon)
    if place is None:
        raise Nonsense("a position needs a latitude and a longitude in degrees")
    return Fix(*place, at_s)


def _usable(at_s: float | None) -> float:
    if at_s is None:
        raise Nonsense("the time must be Unix seconds or milliseconds, or an ISO date and time")
    return at_s
