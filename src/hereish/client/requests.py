"""What may be said to a gateway: checked before anything is sent, by errors without a place.

And what is said besides: how far its ledger had come, as its answers say. A gateway that was set
back as a whole, its ledger, key and high-water mark together, cannot tell. Its clients can: it
knows the positions that it gave, and stops when one is shown that it does not have any more. A
position is `era.number.sealed`; the highest is the one that matters.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import tempfile
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from hereish.core.spaces import Sphere
from hereish.errors import ParameterError, PointError

POSITION = "Hereish-Ledger-Position"  # the header that says how far the gateway's ledger has come
_LONGEST_NAME = 200
_SHAPE = re.compile(r"([0-9]{1,12})\.([0-9]{1,18})\.[A-Za-z0-9_-]{1,200}", re.ASCII)
_LARGEST = 1_000_000  # bytes of a file that may be one of positions


def base(url: str, insecure: bool) -> httpx.URL:
    """The address, if it is one that a token and a true place may be sent to."""
    try:
        base = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        base = httpx.URL("")
    if base.scheme not in ("http", "https") or not base.host:
        raise ParameterError("url must be like https://gateway.example, found no such address")
    if base.userinfo or base.query or base.fragment:
        raise ParameterError("url must not hold a user, a password, a query or a fragment")
    if base.scheme == "http" and not insecure and not _is_here(base.host):
        raise ParameterError(
            f"url must begin with https:// unless it is this machine, found http://{base.host}: "
            "the token and the true place could be read on the way; insecure=True allows it"
        )
    return base


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def whole(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ParameterError(f"{name} must be a whole number from {least}, found {value!r}")
    return value


def name(report_id: Any) -> str:
    """An id that can be sent: one that could not would fail later, with the body in the error."""
    if isinstance(report_id, str) and 1 <= len(report_id) <= _LONGEST_NAME:
        try:
            report_id.encode()
            return report_id
        except UnicodeEncodeError:
            pass
    raise ParameterError(
        f"report_id must be a text of 1 to {_LONGEST_NAME} characters that UTF-8 has, found "
        f"another {type(report_id).__name__}; nothing was sent"
    )


def degrees(place: Any) -> list[float]:
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


def utc(name: str, at: datetime) -> str:
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise PointError(
            f"{name} must be a datetime that says its time zone (datetime(…, tzinfo=UTC)), found "
            f"a {type(at).__name__} without; nothing was sent"
        )
    try:
        return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        raise PointError(f"{name} must lie in the years 1 to 9999 of UTC") from None


class Positions:
    """The highest position of one gateway and token. Safe to share between threads."""

    def __init__(self, whose: str, file: str | os.PathLike[str] | None) -> None:
        """`whose` is kept as a digest only."""
        self._whose = hashlib.sha256(whose.encode()).hexdigest()[:16]
        self._file = None if file is None else Path(file)
        self._lock = threading.Lock()
        self._highest: str | None = None
        if self._file is not None:
            self._highest = self._read(self._file).get(self._whose)
            if not os.access(self._file.parent, os.W_OK):
                raise ParameterError("position_file must be in a folder that can be written")

    def header(self) -> dict[str, str]:
        """What to send."""
        return {} if self._highest is None else {POSITION: self._highest}

    def keep(self, position: str | None) -> None:
        """Keep the position of an answer, if it has one and it is the highest."""
        if position is None or _order(position) is None:
            return  # of an earlier gateway, or of none: that is for others to find out
        with self._lock:
            if _before(self._highest, position):
                self._highest = position
                if self._file is not None:
                    self._write(self._file, position)

    def _write(self, path: Path, position: str) -> None:
        """As a whole or not at all. If it cannot be written it is still kept here."""
        with suppress(OSError, ParameterError):
            kept = self._read(path)
            if not _before(kept.get(self._whose), position):
                return  # another client was further
            handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(kept | {self._whose: position}, file)
                Path(draft).replace(path)
            except BaseException:
                Path(draft).unlink(missing_ok=True)
                raise

    @staticmethod
    def _read(path: Path) -> dict[str, str]:
        kept: Any = None
        try:
            with path.open("rb") as file:
                kept = json.loads(file.read(_LARGEST) or b"{}")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError):
            pass
        if isinstance(kept, dict):
            texts = {who: told for who, told in kept.items() if isinstance(told, str)}
            if len(texts) == len(kept) and all(map(_order, texts.values())):
                return texts
        raise ParameterError(
            "position_file must be a file that an earlier client wrote, or none yet; found "
            "another, which was left as it is"
        )


def _order(position: str) -> tuple[int, int] | None:
    found = _SHAPE.fullmatch(position)
    return None if found is None else (int(found[1]), int(found[2]))


def _before(held: str | None, position: str) -> bool:
    """Whether to keep this one instead. Of two with the same numbers the later one knows more."""
    return (_order(held or "") or (-1, -1)) <= (_order(position) or (-1, -1))
