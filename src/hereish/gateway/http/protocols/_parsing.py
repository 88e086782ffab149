"""What the protocols share: JSON, numbers, coordinates and times.

A value that cannot be used is None, and the protocol decides whether the request fails because of
it. Errors of the standard library hold the text they failed on. Ours are raised after those are
gone, so that no traceback can show a place.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import Any

from hereish.gateway.http.protocols.payload import InvalidRequestError

_END_S = datetime(2500, 1, 1, tzinfo=UTC).timestamp()
_MAX_LENGTH = 64  # characters; no number and no time needs more, and texts may be of megabytes
_MILLIS_ABOVE = 1e11  # no seconds are that many; milliseconds have been since 1973
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?", re.ASCII)


class _DuplicateKey:
    """In place of an object with a duplicate key."""


def parse_json(body: bytes) -> Any:
    """The value of a JSON text. NaN and Infinity become None."""
    value, is_json = None, True
    try:
        value = json.loads(
            body.decode(), parse_constant=_reject_constant, object_pairs_hook=_reject_duplicates
        )
    except (ValueError, RecursionError):  # also of numbers with thousands of digits
        is_json = False
    if not is_json:
        raise InvalidRequestError(
            "the body is not JSON; check which app and format was set up here"
        )
    if isinstance(value, _DuplicateKey):
        raise InvalidRequestError("the body has a duplicate key", "ambiguous")
    return value


def parse_json_object(body: bytes) -> dict[str, Any]:
    """The object of a JSON text."""
    value = parse_json(body)
    if not isinstance(value, dict):
        raise InvalidRequestError(
            "the body is not a JSON object; check which app and format was set up here"
        )
    return value


def _reject_constant(_: str) -> None:
    return None


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _DuplicateKey:
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else _DuplicateKey()


def to_number(value: object) -> float | None:
    """A finite JSON number; neither a bool nor a text is one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def parse_number(text: str) -> float | None:
    """The number in a field of a query; plain ASCII, no NaN, no underscores."""
    if len(text) > _MAX_LENGTH:
        return None
    text = text.strip()
    return to_number(float(text)) if _NUMBER.fullmatch(text) else None


def to_number_or_parse(value: object) -> float | None:
    """A JSON number, or a text that holds one: some apps quote all of their numbers."""
    return parse_number(value) if isinstance(value, str) else to_number(value)


def to_coordinates(lat: object, lon: object) -> tuple[float, float] | None:
    """Degrees, if both are numbers and in range."""
    north, east = to_number(lat), to_number(lon)
    if north is None or east is None or abs(north) > 90 or abs(east) > 180:
        return None
    return north, east


def to_unix_s(value: object) -> float | None:
    """A Unix time in seconds or milliseconds, after 1970 began and before 2500.

    Zero is a clock that was never set.
    """
    at = to_number(value)
    return None if at is None else _in_range(at / 1000 if at > _MILLIS_ABOVE else at)


def parse_iso_s(text: str) -> float | None:
    """An ISO 8601 date and time in the same range; UTC if it has no time zone."""
    if len(text) > _MAX_LENGTH:
        return None
    text = text.strip()
    if not _ISO.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _in_range((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _in_range(at_s: float) -> float | None:
    return at_s if 0 < at_s < _END_S else None


def to_seconds(value: object) -> float | None:
    """The time in a JSON value, whether number or text."""
    return parse_iso_s(value) if isinstance(value, str) else to_unix_s(value)
