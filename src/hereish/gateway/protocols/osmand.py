"""The protocol of OsmAnd and Traccar: one position in a query, a form or a JSON object.

OsmAnd, GPSLogger with a custom URL and the older Traccar Client send queries or forms, the newer
Traccar Client sends JSON. Others send the fields of a form as JSON, or JSON about something else
beside a position in the query: whoever sent a position must not hear that all is well while it is
lost. The `id` they carry names a device and proves nothing: nobody reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl

from hereish.gateway.fixes import Fix, Nonsense
from hereish.gateway.protocols.parsing import (
    coordinates,
    iso_s,
    json_object,
    number,
    number_in,
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


def read(
    query: Iterable[tuple[str, str]], content_type: str | None, body: bytes, now_s: float
) -> list[Fix]:
    """The position of a request, if it has one; without a time of its own it is of `now_s`."""
    pairs = list(query)
    if not body.strip():
        return _of_fields(pairs, now_s)
    media = (content_type or _FORM).partition(";")[0].strip().lower()
    # Who sends a body that was typed in often does not say what it is. No form begins like that.
    if media == _JSON or (media == _FORM and body.lstrip().startswith(b"{")):
        return _of_json(json_object(body), pairs, now_s)
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
    return [_fix(number_in(lat), number_in(lon), _time(when, now_s))]


def _time(text: str | None, now_s: float) -> float:
    if text is None:
        return now_s
    at_s = unix_s(number_in(text))
    if at_s is None:
        # A plus that was not escaped is a space by now.
        moment, _, zone = text.strip().rpartition(" ")
        at_s = iso_s(f"{moment}+{zone}" if "T" in moment else text)
    if at_s is None:
        raise Nonsense("the time must be Unix seconds or milliseconds, or an ISO date and time")
    return at_s


def _of_json(message: dict[str, Any], query: list[tuple[str, str]], now_s: float) -> list[Fix]:
    where = _part(message, "location")
    parts = (message, where, _part(where, "coords"))
    return _of_fields([*query, *(field for part in parts for field in _flat(part))], now_s)


def _flat(message: dict[str, Any]) -> list[tuple[str, str]]:
    """The fields of an object, as a form would have them."""
    known = ((name, message.get(name)) for name in _FIELDS if name != "location")
    return [(name, _text(value)) for name, value in known if value is not None]


def _text(value: object) -> str:
    """As a query would have it; what is no number is none there either."""
    return value if isinstance(value, str) else repr(number(value)).removesuffix(".0")


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
