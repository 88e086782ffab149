"""The protocol of OsmAnd and Traccar: a position in a query, a form or JSON, or an array of them.

OsmAnd, GPSLogger with a custom URL and the older Traccar Client send queries or forms, the newer
Traccar Client sends JSON, and an array of such messages, or of their locations, after it was
offline. Others send the fields of a form as JSON, or JSON about something else beside a position in
the query: an app whose position is lost must not be answered as if all were well. The `id` they
carry names a device and proves nothing: it is not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

from hereish.gateway.http.protocols._parsing import (
    parse_iso_s,
    parse_json,
    parse_number,
    to_coordinates,
    to_number,
    to_unix_s,
)
from hereish.gateway.http.protocols.formatting import radius_m
from hereish.gateway.http.protocols.payload import (
    MAX_POINTS,
    InvalidRequestError,
    ParsedPoints,
    TooManyPointsError,
    read_each,
)
from hereish.gateway.ledger.models import Fix, LedgerRelease

_FORM = "application/x-www-form-urlencoded"
_JSON = "application/json"
_PLAIN = "text/plain"  # of a body that was typed in
_MAX_FIELDS = 1000
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
_Pairs = list[tuple[str, str]]


def read(
    query: Iterable[tuple[str, str]], content_type: str | None, body: bytes, now_s: float
) -> ParsedPoints:
    """The positions of a request; one without a time of its own is of `now_s`.

    Raises InvalidRequestError about a single position. Those of an array are read one by one.
    """
    pairs = list(dict.fromkeys(pair for pair in query if pair[0] in _FIELDS))
    if not body.strip():
        return _to_points(_read_fields(pairs, now_s))
    media = (content_type or _FORM).partition(";")[0].strip().lower()
    try:
        points = _read_body(media, body, pairs, now_s)
    except InvalidRequestError as error:
        if error.reason != "body" or not _has_position(pairs):
            raise
        points = ParsedPoints([], [error.reason])
    # A position in the query is not lost because of a body that has none.
    if not points.fixes and _has_position(pairs):
        points = _to_points(_read_fields(pairs, now_s))._replace(unusable=points.unusable)
    return points


def _to_points(fix: Fix | None) -> ParsedPoints:
    return ParsedPoints([] if fix is None else [fix], [])


def _read_body(media: str, body: bytes, pairs: _Pairs, now_s: float) -> ParsedPoints:
    # A body that was typed in often comes without its content type. No form begins like that.
    if media == _JSON or body.lstrip()[:1] in (b"{", b"["):
        return _read_json(parse_json(body), pairs, now_s)
    if media in (_FORM, _PLAIN):
        return _to_points(_read_fields([*pairs, *_parse_form(body)], now_s))
    raise InvalidRequestError("the body must be a form or JSON")


def _has_position(pairs: _Pairs) -> bool:
    fields = {_FIELDS[name] for name, _ in pairs}
    return "location" in fields or {"lat", "lon"} <= fields


def _parse_form(body: bytes) -> _Pairs:
    text = body.decode(errors="replace")
    if text.count("&") >= _MAX_FIELDS:
        raise InvalidRequestError("the form has too many fields")
    return parse_qsl(text, keep_blank_values=True)


def _read_fields(pairs: _Pairs, now_s: float) -> Fix | None:
    """The position of a query or a form; None if it has none."""
    values: dict[str, str] = {}
    for name, text in pairs:
        field = _FIELDS.get(name)
        if field is None:
            continue
        if not _is_same(field, values.setdefault(field, text), text):
            raise InvalidRequestError(
                "the position or its time is in the request twice, and differs", "ambiguous"
            )
    if "location" in values:
        if "lat" in values or "lon" in values:
            raise InvalidRequestError(
                "the position is in the request twice; send location, or lat and lon", "ambiguous"
            )
        lat, _, lon = values["location"].partition(",")
    elif "lat" in values or "lon" in values:
        lat, lon = values.get("lat", ""), values.get("lon", "")
    else:
        return None
    at_s = _read_time(values.get("timestamp", values.get("time")), now_s)
    place = to_coordinates(parse_number(lat), parse_number(lon))
    if place is None:
        raise InvalidRequestError("a position needs a latitude and a longitude in degrees", "place")
    return Fix(*place, at_s)


def _is_same(field: str, one: str, other: str) -> bool:
    """Whether two texts have the same value, as 52.5 and 52.50 do."""
    if one == other:
        return True
    parse = _parse_seconds if field in ("timestamp", "time") else parse_number
    return parse(one) is not None and parse(one) == parse(other)


def _read_time(text: str | None, now_s: float) -> float:
    if text is None:
        return now_s
    at_s = _parse_seconds(text)
    if at_s is None:
        raise InvalidRequestError(
            "the time must be Unix seconds or milliseconds, or an ISO date and time", "time"
        )
    return at_s


def _parse_seconds(text: str) -> float | None:
    at_s = to_unix_s(parse_number(text))
    if at_s is None:
        # A plus that was not escaped is a space by now.
        moment, _, zone = text.strip().rpartition(" ")
        at_s = parse_iso_s(f"{moment}+{zone}" if "T" in moment else text)
    return at_s


def _read_json(value: object, query: _Pairs, now_s: float) -> ParsedPoints:
    if not isinstance(value, list) and not _has_array(value):
        return _to_points(_read_message(value, query, now_s))
    messages = _expand_arrays(value if isinstance(value, list) else [value])
    return read_each(messages, partial(_read_message, query=query, now_s=now_s))


def _has_array(message: object) -> bool:
    """Whether the array is in a message, and not around it."""
    return isinstance(message, dict) and isinstance(message.get("location"), list)


def _expand_arrays(messages: list[Any]) -> list[object]:
    """One message per position."""
    count = sum(len(one["location"]) if _has_array(one) else 1 for one in messages)
    if count > MAX_POINTS:
        raise TooManyPointsError("there are more than a thousand positions; send fewer at once")
    expanded: list[object] = []
    for message in messages:
        if _has_array(message):
            common = {name: message[name] for name in _FIELDS if name in message}
            expanded += [{**common, "location": location} for location in message["location"]]
        else:
            expanded.append(message)
    return expanded


def _read_message(message: object, query: _Pairs, now_s: float) -> Fix | None:
    if not isinstance(message, dict):
        raise InvalidRequestError(
            "the body is not a JSON object; check which app and format was set up here"
        )
    location = message.get("location")
    if isinstance(location, str):  # the fields of a form, as JSON
        return _read_fields([*query, *_to_pairs(message), ("location", location)], now_s)
    nested = _get_object(message, "location")
    parts = (message, nested, _get_object(nested, "coords"))
    return _read_fields([*query, *(pair for part in parts for pair in _to_pairs(part))], now_s)


def _to_pairs(message: dict[str, Any]) -> _Pairs:
    """The fields of an object, as a form would have them."""
    known = ((name, message.get(name)) for name in _FIELDS if name != "location")
    return [(name, _to_text(value)) for name, value in known if value is not None]


def _to_text(value: object) -> str:
    """As a query would have it; what is no number is none there either."""
    return value if isinstance(value, str) else repr(to_number(value)).removesuffix(".0")


def _get_object(message: dict[str, Any], name: str) -> dict[str, Any]:
    part = message.get(name)
    if part is None:
        return {}
    if not isinstance(part, dict):
        raise InvalidRequestError("location and its coords must be objects")
    return part


def query(release: LedgerRelease, device: str | None, *, accuracy: bool = True) -> str:
    """A release as the query of a request: these fields and no others, whatever the phone sent.

    Whole seconds, since Traccar takes no fraction of them. It reads the accuracy from `accuracy`
    and PhoneTrack from `acc`. Without a device the address names it.
    """
    fields: dict[str, object] = {} if device is None else {"id": device}
    fields |= {"lat": release.lat, "lon": release.lon, "timestamp": int(release.at_s)}
    if accuracy:
        fields |= {"accuracy": radius_m(release), "acc": radius_m(release)}
    return urlencode(fields)
