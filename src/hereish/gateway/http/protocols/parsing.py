"""What the protocols share: JSON, numbers, coordinates and times.

What cannot be used is None, and the protocol decides whether the request is Nonsense because of it.
One bad value in a batch must not spoil the rest of it.
Errors of the standard library hold the text they failed on. Ours are raised after those are gone,
so that no traceback can show a place.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import Any

from hereish.gateway.ledger.models import InvalidRequestError

_END_S = datetime(2500, 1, 1, tzinfo=UTC).timestamp()
_LONGEST = 64  # characters; no number and no time needs more, and texts may be of megabytes
_MILLIS_ABOVE = 1e11  # nobody's seconds are that many; milliseconds have been since 1973
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?", re.ASCII)


class _Ambiguous:
    """In the place of an object that has a key twice: which of the two was meant nobody can say."""


def json_value(body: bytes) -> Any:
    """What this JSON says. NaN and Infinity are no numbers, so they are None."""
    found, is_json = None, True
    try:
        found = json.loads(body.decode(), parse_constant=_no_number, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError):  # also of numbers with thousands of digits
        is_json = False
    if not is_json:
        raise InvalidRequestError(
            "the body is not JSON; check which app and format was set up here"
        )
    if isinstance(found, _Ambiguous):
        raise InvalidRequestError("the body has a key twice", "ambiguous")
    return found


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object that this is."""
    found = json_value(body)
    if not isinstance(found, dict):
        raise InvalidRequestError(
            "the body is not a JSON object; check which app and format was set up here"
        )
    return found


def _no_number(_: str) -> None:
    return None


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Ambiguous:
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else _Ambiguous()


def number(value: object) -> float | None:
    """A finite number of JSON. A bool is none, and neither is a text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def number_in(text: str) -> float | None:
    """The number that a field of a query is; plain ASCII, no NaN, no underscores."""
    if len(text) > _LONGEST:
        return None
    text = text.strip()
    return number(float(text)) if _NUMBER.fullmatch(text) else None


def number_or_text(value: object) -> float | None:
    """A number of JSON, or a text that is one: some apps quote all of their numbers."""
    return number_in(value) if isinstance(value, str) else number(value)


def coordinates(lat: object, lon: object) -> tuple[float, float] | None:
    """Degrees, if both are numbers and in range."""
    north, east = number(lat), number(lon)
    if north is None or east is None or abs(north) > 90 or abs(east) > 180:
        return None
    return north, east


def unix_s(value: object) -> float | None:
    """A Unix time in seconds or milliseconds, after 1970 began and before 2500.

    Zero is a clock that was never set.
    """
    at = number(value)
    return None if at is None else _in_range(at / 1000 if at > _MILLIS_ABOVE else at)


def iso_s(text: str) -> float | None:
    """An ISO 8601 date and time of the same range; one that names no zone is UTC."""
    if len(text) > _LONGEST:
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


def seconds_of(value: object) -> float | None:
    """The time in a JSON value, whether number or text."""
    return iso_s(value) if isinstance(value, str) else unix_s(value)
