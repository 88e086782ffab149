"""Where releases are delivered: a target, its checks, and how it is sealed for the ledger."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal, get_args
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit, urlunsplit

import httpx

from hereish.errors import ParameterError
from hereish.gateway.ledger.keys import Keys

DestinationFormat = Literal["owntracks", "overland", "mqtt", "osmand"]
_EXAMPLES = {
    "owntracks": "https://host/pub",
    "overland": "https://host/path",
    "mqtt": "mqtts://user:password@host/owntracks/user/device",
    "osmand": "https://host:5055",
}
DEFAULT_DEVICE = "hereish"  # the name at receivers of a device without one
_PORTS = {"http": 80, "https": 443, "mqtt": 1883, "mqtts": 8883}
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# They are made from the message, or have a parameter of their own.
_OWN_HEADERS = {"host", "content-length", "content-type", "transfer-encoding", "authorization"}
_LONGEST_TOPIC = 65_535
_DEVICE = re.compile(r"[A-Za-z0-9._@:-]{1,100}")  # nothing with a meaning in an address
_OSMAND_IDS, _OSMAND_FIELDS = {"id", "deviceid"}, {"lat", "lon", "location", "timestamp"}


@dataclass(frozen=True, repr=False)
class DestinationTarget:
    """A destination with its credentials. Secret: the address itself may hold a key."""

    format: DestinationFormat
    address: str  # without user and password
    username: str | None = None
    password: str | None = None
    bearer: str | None = None
    headers: Mapping[str, str] | None = None
    device: str | None = None  # its name at the receiver
    accuracy: bool = True  # whether the noise radius is sent
    message_topic: str | None = None  # of OwnTracks over HTTP; older rows have none

    def __repr__(self) -> str:
        return f"DestinationTarget({self.format}, …)"

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
        """The MQTT topic."""
        return unquote(urlsplit(self.address).path[1:])

    @property
    def initials(self) -> str:
        """For a device that sends none: the last two characters of its name, as in OwnTracks."""
        return (self.device or DEFAULT_DEVICE)[-2:]

    @property
    def osmand_id(self) -> str | None:
        """The device's id in OsmAnd's format; None if the address holds it."""
        named = _OSMAND_IDS & parse_qs(urlsplit(self.address).query).keys()
        return None if named else self.device or DEFAULT_DEVICE

    @property
    def display_address(self) -> str:
        """The address for a listing, without path and query: either may be a key."""
        parts = urlsplit(self.address)
        more = parts.path.strip("/") or parts.query
        return urlunsplit((parts.scheme, parts.netloc, "/…" if more else "/", "", ""))

    @property
    def note(self) -> str | None:
        """A warning for the operator about a target that is allowed."""
        notes = []
        if not self.encrypted and not _is_loopback(self.host):
            notes.append("not encrypted on its way")
        if self.format == "owntracks" and not self._names_user():
            notes.append("no header X-Limit-U: the Recorder and Home Assistant want one")
        if self.format in ("owntracks", "mqtt") and not self.accuracy:
            notes.append("Home Assistant ignores messages without an accuracy")
        if self.osmand_id == DEFAULT_DEVICE and self.format == "osmand":
            notes.append(f"Traccar has to know the device as {DEFAULT_DEVICE}, or as --device says")
        return "; ".join(notes) or None

    def _names_user(self) -> bool:
        return _find_limit(self.address, self.headers, "u") is not None

    def seal(self, keys: Keys, user_id: int) -> bytes:
        return keys.seal(json.dumps(asdict(self)), context=f"destination {user_id}")

    @classmethod
    def unseal(cls, keys: Keys, sealed: bytes, user_id: int) -> DestinationTarget:
        return cls(**json.loads(keys.open(sealed, context=f"destination {user_id}")))


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
    """A checked target. Raises ParameterError, whose message never repeats the address."""
    kind = next((known for known in get_args(DestinationFormat) if known == format), None)
    if kind is None:
        raise ParameterError(f"format must be one of {', '.join(_EXAMPLES)}, found {format!r}")
    parts = _split_address(address, kind)
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
        _make_topic(bare, headers, device) if kind == "owntracks" else None,
    )


def _make_topic(address: str, headers: Mapping[str, str] | None, device: str | None) -> str:
    """The topic that OwnTracks would use: as its headers say, since receivers read either."""
    user = _find_limit(address, headers, "u") or DEFAULT_DEVICE
    return f"owntracks/{user}/{_find_limit(address, headers, 'd') or device or DEFAULT_DEVICE}"


def _find_limit(address: str, headers: Mapping[str, str] | None, name: str) -> str | None:
    """The user ("u") or device ("d") of OwnTracks' X-Limit headers or of the query."""
    for header, value in (headers or {}).items():
        if header.lower() == f"x-limit-{name}":
            return value
    return next(iter(parse_qs(urlsplit(address).query).get(name, ())), None)


def _split_address(address: str, kind: DestinationFormat) -> SplitResult:
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
    if not host or port == 0 or any(not char.isprintable() or char == " " for char in address):
        raise ParameterError(f"{expected}; found no host, port 0, or spaces")
    if kind == "osmand" and _OSMAND_FIELDS & parse_qs(parts.query, keep_blank_values=True).keys():
        raise ParameterError(f"{expected}, without lat, lon and timestamp; found some of them")
    if kind == "mqtt":
        topic = unquote(parts.path[1:])
        if not topic or set(topic) & set("+#\0") or len(topic.encode()) > _LONGEST_TOPIC:
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
    if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
        raise ParameterError(
            "a header is a name such as X-Limit-U, other than "
            f"{', '.join(sorted(_OWN_HEADERS))}; a user, password or bearer token is given apart"
        )
    if not re.fullmatch(r"[!-~]([ -~]*[!-~])?", value):
        raise ParameterError(f"the value of the header {name} must be one line of ASCII")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
