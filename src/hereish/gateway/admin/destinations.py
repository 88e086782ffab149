"""Destinations: where releases are forwarded to, as an operator adds, lists and removes them."""

from __future__ import annotations

import ipaddress
import json
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit, urlunsplit

import httpx
from sqlalchemy import Connection, Row, delete, func, insert, select, update

from hereish.errors import ParameterError
from hereish.gateway.admin.accounts import NotFoundError, require_user
from hereish.gateway.ledger.keys import Keys, LedgerKeyError
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.tables import destinations, outbox, users

DestinationFormat = Literal["owntracks", "overland", "mqtt", "osmand"]
_EXAMPLES = {
    "owntracks": "https://host/pub",
    "overland": "https://host/path",
    "mqtt": "mqtts://user:password@host/owntracks/user/device",
    "osmand": "https://host:5055",
}
NAME = "hereish"  # what receivers call a device that nobody has named
_PORTS = {"http": 80, "https": 443, "mqtt": 1883, "mqtts": 8883}
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# They are made from the message, or have a parameter of their own.
_OUR_HEADERS = {"host", "content-length", "content-type", "transfer-encoding", "authorization"}
_MAX_TOPIC_BYTES = 65_535
_DEVICE = re.compile(r"[A-Za-z0-9._@:-]{1,100}")  # no sign that means something in an address
_OSMAND_IDS, _OSMAND_FIELDS = {"id", "deviceid"}, {"lat", "lon", "location", "timestamp"}


@dataclass(frozen=True, repr=False)
class DestinationTarget:
    """A destination as the sender needs it. Secret: even the address may hold a key."""

    format: DestinationFormat
    address: str  # without user and password
    username: str | None = None
    password: str | None = None
    bearer: str | None = None
    headers: Mapping[str, str] | None = None
    device: str | None = None  # as the receiver shall know it
    accuracy: bool = True  # whether the noise radius is sent
    message_topic: str | None = None  # of OwnTracks over HTTP; none before there were any

    def __repr__(self) -> str:
        return f"Target({self.format}, …)"

    @property
    def host(self) -> str:
        return urlsplit(self.address).hostname or ""

    @property
    def port(self) -> int:
        parts = urlsplit(self.address)
        return parts.port or _PORTS[parts.scheme]

    @property
    def encrypted(self) -> bool:
        return urlsplit(self.address).scheme in ("https", "mqtts")

    @property
    def topic(self) -> str:
        """Of MQTT."""
        return unquote(urlsplit(self.address).path[1:])

    @property
    def initials(self) -> str:
        """For a device that sends none: the last of its name, as OwnTracks has it."""
        return (self.device or NAME)[-2:]

    @property
    def osmand_id(self) -> str | None:
        """None if the address has it."""
        named = _OSMAND_IDS & parse_qs(urlsplit(self.address).query).keys()
        return None if named else self.device or NAME

    @property
    def display_address(self) -> str:
        """The address for a listing. A path or a query may be a key, so they stay out of it."""
        parts = urlsplit(self.address)
        hidden = parts.path.strip("/") or parts.query
        return urlunsplit((parts.scheme, parts.netloc, "/…" if hidden else "/", "", ""))

    @property
    def note(self) -> str | None:
        """What an operator may want to know about it, though it is allowed."""
        notes = []
        if not self.encrypted and not _is_loopback(self.host):
            notes.append("not encrypted on its way")
        if self.format == "owntracks" and not self._names_user():
            notes.append("no header X-Limit-U: the Recorder and Home Assistant want one")
        if self.format in ("owntracks", "mqtt") and not self.accuracy:
            notes.append("Home Assistant ignores messages without an accuracy")
        if self.osmand_id == NAME and self.format == "osmand":
            notes.append(f"Traccar has to know the device as {NAME}, or as --device says")
        return "; ".join(notes) or None

    def _names_user(self) -> bool:
        return _limit_header(self.address, self.headers, "u") is not None

    def seal(self, keys: Keys, user_id: int) -> bytes:
        return keys.seal(json.dumps(asdict(self)), context=f"destination {user_id}")

    @classmethod
    def unseal(cls, keys: Keys, sealed: bytes, user_id: int) -> DestinationTarget:
        return cls(**json.loads(keys.open(sealed, context=f"destination {user_id}")))


class Destination(NamedTuple):
    """A destination as an operator may see it: no credentials."""

    id: int
    format: str
    address: str
    note: str | None
    created_s: float
    waiting: int  # releases that were not delivered yet
    tries: int  # failed ones since the last success
    next_try_s: float
    trouble: str | None


def add_destination(
    ledger: Ledger,
    user: str,
    address: str,
    format: str,  # noqa: A002  # its name everywhere
    *,
    username: str | None = None,
    password: str | None = None,
    bearer: str | None = None,
    headers: Mapping[str, str] | None = None,
    device: str | None = None,
    accuracy: bool = True,
) -> int:
    """Send this user's releases from now on to an address, too. Returns the destination's number.

    OwnTracks' Recorder and Home Assistant need a user and a device with each request:
    headers={"X-Limit-U": …, "X-Limit-D": …}. `device` is what other receivers know it by.
    Without `accuracy` the noise radius is not sent: some hide what is not accurate enough for them.
    """
    target = parse_target(
        address,
        format,
        username=username,
        password=password,
        bearer=bearer,
        headers=headers,
        device=device,
        accuracy=accuracy,
    )
    with ledger.database.writing() as tx:
        user_id = require_user(tx, user, lock=True).id
        row = {
            "user_id": user_id,
            "format": target.format,
            "sealed": target.seal(ledger.keys, user_id),
            "created_s": time.time(),
            "leased_until_s": 0.0,
            "tries": 0,
            "next_try_s": 0.0,
        }
        added = tx.execute(insert(destinations).returning(destinations.c.id), row).scalar_one()
        _update_count(tx, user_id)
        return int(added)


def list_destinations(ledger: Ledger, user: str) -> list[Destination]:
    """The destinations of a user, the oldest first."""
    number = select(func.count()).where(outbox.c.destination_id == destinations.c.id)
    with ledger.database.reading() as tx:
        user_id = require_user(tx, user).id
        found = (
            select(destinations, number.scalar_subquery().label("waiting"))
            .where(destinations.c.user_id == user_id)
            .order_by(destinations.c.id)
        )
        return [_describe(ledger.keys, row) for row in tx.execute(found)]


def remove_destination(ledger: Ledger, user: str, destination_id: int) -> None:
    """Send nothing there any more, not even what waits."""
    with ledger.database.writing() as tx:
        user_id = require_user(tx, user, lock=True).id
        gone = tx.execute(
            delete(destinations).where(
                destinations.c.id == destination_id, destinations.c.user_id == user_id
            )
        )
        if gone.rowcount == 0:
            raise NotFoundError(f"{user!r} has no destination {destination_id}")
        _update_count(tx, user_id)


def parse_target(
    address: str,
    format: str,  # noqa: A002  # its name everywhere
    *,
    username: str | None = None,
    password: str | None = None,
    bearer: str | None = None,
    headers: Mapping[str, str] | None = None,
    device: str | None = None,
    accuracy: bool = True,
) -> DestinationTarget:
    """A target, or what is wrong with it; errors never repeat the address: it may be a key."""
    kind = next((known for known in get_args(DestinationFormat) if known == format), None)
    if kind is None:
        raise ParameterError(f"format must be one of {', '.join(_EXAMPLES)}, found {format!r}")
    parts = _split(address, kind)
    if parts.username is not None or parts.password is not None:
        if username is not None or password is not None:
            raise ParameterError("give user and password in the address or apart from it, not both")
        username, password = unquote(parts.username or ""), unquote(parts.password or "")
    if bearer is not None and username is not None:
        raise ParameterError("give a user and password or a bearer token, not both")
    if password is not None and username is None:
        raise ParameterError("a password needs a user")
    if kind == "mqtt" and (bearer is not None or headers):
        raise ParameterError("MQTT has no bearer tokens and no headers; give a user and password")
    _check_credentials(kind, username, password, bearer)
    for name, value in (headers or {}).items():
        _check_header(name, value)
    netloc = parts.netloc.rpartition("@")[2]
    bare = urlunsplit((parts.scheme, netloc, parts.path, parts.query, ""))
    if device is not None and not _DEVICE.fullmatch(device):
        raise ParameterError("a device is 1 to 100 letters, digits or signs of . _ @ : -")
    if device is not None and kind == "mqtt":
        raise ParameterError("over MQTT the device is in the topic; give it in the address")
    return DestinationTarget(
        kind,
        bare,
        username,
        password,
        bearer,
        dict(headers) if headers else None,
        device,
        accuracy,
        _message_topic(bare, headers, device) if kind == "owntracks" else None,
    )


def _message_topic(address: str, headers: Mapping[str, str] | None, device: str | None) -> str:
    """What OwnTracks would call itself: as its headers say, since receivers look at either."""
    user = _limit_header(address, headers, "u") or NAME
    return f"owntracks/{user}/{_limit_header(address, headers, 'd') or device or NAME}"


def _limit_header(address: str, headers: Mapping[str, str] | None, name: str) -> str | None:
    """The user or the device that OwnTracks' headers or the query name."""
    for header, value in (headers or {}).items():
        if header.lower() == f"x-limit-{name}":
            return value
    return next(iter(parse_qs(urlsplit(address).query).get(name, ())), None)


def _split(address: str, kind: DestinationFormat) -> SplitResult:
    schemes = ("mqtt", "mqtts") if kind == "mqtt" else ("http", "https")
    expected = f"the address for {kind} must be like {_EXAMPLES[kind]}"
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
        if kind != "mqtt":
            httpx.URL(address)
    except (ValueError, httpx.InvalidURL):
        raise ParameterError(f"{expected}; found one that cannot be read") from None
    if parts.scheme not in schemes:
        found = f"the scheme {parts.scheme!r}" if "://" in address else "no scheme"
        raise ParameterError(f"{expected}, with {' or '.join(schemes)}; found {found}")
    if not host or port == 0 or any(not sign.isprintable() or sign == " " for sign in address):
        raise ParameterError(f"{expected}; found no host, port 0, or spaces")
    if kind == "osmand" and _OSMAND_FIELDS & parse_qs(parts.query, keep_blank_values=True).keys():
        raise ParameterError(f"{expected}, without lat, lon and timestamp; found some of them")
    if kind == "mqtt":
        topic = unquote(parts.path[1:])
        if not topic or set(topic) & set("+#\0") or len(topic.encode()) > _MAX_TOPIC_BYTES:
            raise ParameterError(f"{expected}; found no topic after the host, or + or # in it")
        if parts.query or parts.fragment:
            raise ParameterError(f"{expected}; found ? or # in it")
    return parts


def _check_credentials(
    kind: DestinationFormat, username: str | None, password: str | None, bearer: str | None
) -> None:
    if bearer is not None and not re.fullmatch(r"[!-~]+", bearer):
        raise ParameterError("a bearer token has letters, digits and signs, and no spaces")
    if kind != "mqtt" and ":" in (username or ""):
        raise ParameterError("a user for HTTP has no colon in it")
    for text in (username, password):
        if text is not None and not text.isprintable():
            raise ParameterError("a user or password has only signs that can be printed")


def _check_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name) or name.lower() in _OUR_HEADERS:
        raise ParameterError(
            "a header is a name such as X-Limit-U, other than "
            f"{', '.join(sorted(_OUR_HEADERS))}; a user, password or bearer token is given apart"
        )
    if not re.fullmatch(r"[!-~]([ -~]*[!-~])?", value):
        raise ParameterError(f"the value of the header {name} must be one line of ASCII")


def _describe(keys: Keys, row: Row[Any]) -> Destination:
    try:
        target = DestinationTarget.unseal(keys, row.sealed, row.user_id)
        address, note = target.display_address, target.note
    except LedgerKeyError as error:
        address, note = "…", str(error)
    return Destination(
        id=row.id,
        format=row.format,
        address=address,
        note=note,
        created_s=row.created_s,
        waiting=row.waiting,
        tries=row.tries,
        next_try_s=row.next_try_s,
        trouble=row.trouble,
    )


def _update_count(tx: Connection, user_id: int) -> None:
    number = select(func.count()).where(destinations.c.user_id == user_id).scalar_subquery()
    tx.execute(update(users).where(users.c.id == user_id).values(forwards=number))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
