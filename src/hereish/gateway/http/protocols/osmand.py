"""The protocol of OsmAnd and Traccar: a position in a query, a form or JSON, or an array of them.

OsmAnd, GPSLogger with a custom URL and the older Traccar Client send queries or forms, the newer
Traccar Client sends JSON, and an array of such messages, or of their locations, after it was
offline. Others send the fields of a form as JSON, or JSON about something else beside a position in
the query: whoever sent a position must not hear that all is well while it is lost. The `id` they
carry names a device and proves nothing: nobody reads it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, urlencode

from hereish.gateway.http.protocols.parsing import (
    coordinates,
    iso_s,
    json_value,
    number,
    number_in,
    unix_s,
)
from hereish.gateway.ledger.models import Fix, InvalidRequestError, LedgerRelease, Points

_FORM = "application/x-www-form-urlencoded"
_JSON = "application/json"
_PLAIN = "text/plain"  # of a body that was typed in
_MOST_FIELDS = 1000
MOST = 1000  # positions in an array
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
) -> Points:
    """The positions of a request; one without a time of its own is of `now_s`.

    Raises Nonsense about a single position. Those of an array are looked at one by one.
    """
    pairs = list(dict.fromkeys(pair for pair in query if pair[0] in _FIELDS))
    if not body.strip():
        return Points(_of_fields(pairs, now_s), [])
    media = (content_type or _FORM).partition(";")[0].strip().lower()
    try:
        points = _of_body(media, body, pairs, now_s)
    except InvalidRequestError as nonsense:
        if nonsense.reason != "body":
            raise
        points = Points([], [nonsense.reason])
        if not _has_position(pairs):
            raise
    # A position in the query is not lost because of a body that has none.
    if not points.fixes and _has_position(pairs):
        points = Points(_of_fields(pairs, now_s), points.unusable)
    return points


def _of_body(media: str, body: bytes, pairs: list[tuple[str, str]], now_s: float) -> Points:
    # Who sends a body that was typed in often does not say what it is. No form begins like that.
    if media == _JSON or body.lstrip()[:1] in (b"{", b"["):
        return _of_json(json_value(body), pairs, now_s)
    if media in (_FORM, _PLAIN):
        return Points(_of_fields([*pairs, *_form(body)], now_s), [])
    raise InvalidRequestError("the body must be a form or JSON")


def _has_position(pairs: list[tuple[str, str]]) -> bool:
    meanings = {_FIELDS[name] for name, _ in pairs}
    return "location" in meanings or {"lat", "lon"} <= meanings


def _form(body: bytes) -> list[tuple[str, str]]:
    text = body.decode(errors="replace")
    if text.count("&") >= _MOST_FIELDS:
        raise InvalidRequestError("the form has too many fields")
    return parse_qsl(text, keep_blank_values=True)


def _of_fields(pairs: list[tuple[str, str]], now_s: float) -> list[Fix]:
    found: dict[str, str] = {}
    for name, text in pairs:
        meaning = _FIELDS.get(name)
        if meaning is None:
            continue
        if not _same(meaning, found.setdefault(meaning, text), text):
            raise InvalidRequestError(
                "the position or its time is in the request twice, and differs", "ambiguous"
            )
    if "location" in found:
        if "lat" in found or "lon" in found:
            raise InvalidRequestError(
                "the position is in the request twice; send location, or lat and lon", "ambiguous"
            )
        lat, _, lon = found["location"].partition(",")
    elif "lat" in found or "lon" in found:
        lat, lon = found.get("lat", ""), found.get("lon", "")
    else:
        return []
    when = found.get("timestamp", found.get("time"))
    return [_fix(number_in(lat), number_in(lon), _time(when, now_s))]


def _same(meaning: str, one: str, other: str) -> bool:
    """Whether two texts say the same: 52.5 and 52.50 do."""
    if one == other:
        return True
    if meaning in ("timestamp", "time"):
        return _seconds(one) is not None and _seconds(one) == _seconds(other)
    return number_in(one) is not None and number_in(one) == number_in(other)


def _time(text: str | None, now_s: float) -> float:
    if text is None:
        return now_s
    at_s = _seconds(text)
    if at_s is None:
        raise InvalidRequestError(
            "the time must be Unix seconds or milliseconds, or an ISO date and time", "time"
        )
    return at_s


def _seconds(text: str) -> float | None:
    at_s = unix_s(number_in(text))
    if at_s is None:
        # A plus that was not escaped is a space by now.
        moment, _, zone = text.strip().rpartition(" ")
        at_s = iso_s(f"{moment}+{zone}" if "T" in moment else text)
    return at_s


def _of_json(value: object, query: list[tuple[str, str]], now_s: float) -> Points:
    if not isinstance(value, list) and not _has_many(value):
        return Points(_of_message(value, query, now_s), [])
    points = Points([], [])
    for message in _messages(value if isinstance(value, list) else [value]):
        try:
            points.fixes.extend(_of_message(message, query, now_s))
        except InvalidRequestError as nonsense:
            points.unusable.append(nonsense.reason)
    return points


def _has_many(message: object) -> bool:
    """Whether the array is in a message, and not around it."""
    return isinstance(message, dict) and isinstance(message.get("location"), list)


def _messages(messages: list[Any]) -> list[object]:
    number = sum(len(one["location"]) if _has_many(one) else 1 for one in messages)
    if number > MOST:
        raise InvalidRequestError(
            "there are more than a thousand positions; send fewer at once", "size"
        )
    found: list[object] = []
    for message in messages:
        if _has_many(message):
            common = {name: message[name] for name in _FIELDS if name in message}
            found += [{**common, "location": where} for where in message["location"]]
        else:
            found.append(message)
    return found


def _of_message(message: object, query: list[tuple[str, str]], now_s: float) -> list[Fix]:
    if not isinstance(message, dict):
        raise InvalidRequestError(
            "the body is not a JSON object; check which app and format was set up here"
        )
    location = message.get("location")
    if isinstance(location, str):  # the fields of a form, as JSON
        return _of_fields([*query, *_flat(message), ("location", location)], now_s)
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
        raise InvalidRequestError("location and its coords must be objects")
    return part


def _fix(lat: object, lon: object, at_s: float) -> Fix:
    place = coordinates(lat, lon)
    if place is None:
        raise InvalidRequestError("a position needs a latitude and a longitude in degrees", "place")
    return Fix(*place, at_s)


def query(release: LedgerRelease, device: str | None, *, accuracy: bool = True) -> str:
    """A release as the query of a request: these fields and no others, whatever the phone sent.

    Whole seconds, since Traccar takes no fraction of them. It reads the accuracy from `accuracy`
    and PhoneTrack from `acc`. Without a device the address names it.
    """
    fields: dict[str, object] = {} if device is None else {"id": device}
    fields |= {"lat": release.lat, "lon": release.lon, "timestamp": int(release.at_s)}
    if accuracy:
        radius_m = max(1, math.ceil(release.accuracy_m))
        fields |= {"accuracy": radius_m, "acc": radius_m}
    return urlencode(fields)
