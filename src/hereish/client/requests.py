"""The checks of requests, before anything is sent. Their errors never hold a place."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime
from typing import Any

import httpx

from hereish.core.spaces import Sphere
from hereish.errors import ParameterError, PointError

_MAX_ID_LENGTH = 200


def check_url(url: str, insecure: bool) -> httpx.URL:
    """The address, if it is one that a token and a true place may be sent to."""
    try:
        base = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        base = httpx.URL("")
    if base.scheme not in ("http", "https") or not base.host:
        raise ParameterError("url must be like https://gateway.example, found no such address")
    if base.userinfo or base.query or base.fragment:
        raise ParameterError("url must not hold a user, a password, a query or a fragment")
    if base.scheme == "http" and not insecure and not _is_loopback(base.host):
        raise ParameterError(
            f"url must begin with https:// unless it is this machine, found http://{base.host}: "
            "the token and the true place could be read on the way; insecure=True allows it"
        )
    return base


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_whole_number(name: str, value: int, least: int) -> int:
    """`value` if it is a whole number from `least` on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ParameterError(f"{name} must be a whole number from {least}, found {value!r}")
    return value


def check_report_id(report_id: Any) -> str:
    """An id that can be sent: another one would fail later, with the body in the error."""
    if isinstance(report_id, str) and 1 <= len(report_id) <= _MAX_ID_LENGTH:
        try:
            report_id.encode()
            return report_id
        except UnicodeEncodeError:
            pass
    raise ParameterError(
        f"report_id must be a text of 1 to {_MAX_ID_LENGTH} characters that UTF-8 has, found "
        f"another {type(report_id).__name__}; nothing was sent"
    )


def check_place(place: Any) -> list[float]:
    """Latitude and longitude, or an error without them."""
    try:
        numbers = [float(number) for number in place]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != 2:  # not raised above, where the error would carry one that holds the place
        raise PointError("a place must be two numbers, latitude and longitude; nothing was sent")
    for (name, low, high), number in zip(Sphere.coordinates, numbers, strict=True):
        if not low <= number <= high:  # NaN is not
            raise PointError(f"bad place: {name} is not within {low:g}..{high:g}; nothing was sent")
    return numbers


def to_utc_text(name: str, at: datetime) -> str:
    """A time as ISO 8601 in UTC, or an error if its time zone is unknown."""
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise PointError(
            f"{name} must be a datetime that says its time zone (datetime(…, tzinfo=UTC)), found "
            f"a {type(at).__name__} without; nothing was sent"
        )
    try:
        return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        raise PointError(f"{name} must lie in the years 1 to 9999 of UTC") from None
