"""OwnTracks in HTTP mode: one message per request, an array of messages as the response.

Messages may be encrypted with libsodium's secret box. Its key is the passphrase in UTF-8, padded
with zeros, as the apps do it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

from hereish.errors import ParameterError
from hereish.gateway.http.protocols._parsing import (
    parse_json_object,
    to_coordinates,
    to_number_or_parse,
    to_unix_s,
)
from hereish.gateway.http.protocols.formatting import radius_m, to_json
from hereish.gateway.http.protocols.payload import InvalidRequestError
from hereish.gateway.ledger.models import Fix, LedgerRelease

_TID_LENGTH = 2
FRIEND = "hereish"  # the name of the release on the owner's map


@dataclass(frozen=True, slots=True)
class OwnTracksMessage:
    """A message of the app. `fix` is None if it is not a location."""

    fix: Fix | None
    tid: str | None
    encrypted: bool


def read(body: bytes, passphrase: str | None) -> OwnTracksMessage:
    """Read one message of the app. Of everything but a location, only `tid` is read."""
    if not body.strip():
        return OwnTracksMessage(None, None, False)
    message = parse_json_object(body)
    is_encrypted = _type_of(message) == "encrypted"
    if is_encrypted:
        message = parse_json_object(_decrypt(message.get("data"), passphrase))
    kind = _type_of(message)
    if kind == "encrypted":
        raise InvalidRequestError("the message is encrypted twice; the apps do that once")
    fix = _read_fix(message) if kind == "location" else None
    return OwnTracksMessage(fix, tracker_id(message.get("tid")), is_encrypted)


def _type_of(message: dict[str, Any]) -> str:
    kind = message.get("_type")
    if not isinstance(kind, str):
        raise InvalidRequestError("the message has no _type, so it is not one of OwnTracks")
    return kind


def _read_fix(message: dict[str, Any]) -> Fix:
    # GPSLogger speaks this too, and quotes its numbers.
    lat, lon, tst = (to_number_or_parse(message.get(name)) for name in ("lat", "lon", "tst"))
    place, at_s = to_coordinates(lat, lon), to_unix_s(tst)
    if place is None or at_s is None:
        raise InvalidRequestError(
            "a location needs lat and lon in degrees and tst in seconds, all as numbers",
            "place" if place is None else "time",
        )
    return Fix(*place, at_s)


def tracker_id(value: object) -> str | None:
    """The initials that an app shows for a user: at most two characters, as in the apps.

    They are a setting of the app and are passed on to receivers. They are not derived from the
    place, and two printable characters are too few to carry one by accident.
    """
    if not isinstance(value, str) or not value.isprintable():
        return None
    return value.strip()[:_TID_LENGTH] or None


def location(
    release: LedgerRelease, tid: str | None, *, topic: str | None = None, accuracy: bool = True
) -> dict[str, Any]:
    """A release as a message: these fields and no others, whatever the phone sent.

    Receivers know a device by the topic, if there is one, or by the initials.
    """
    message: dict[str, Any] = {
        "_type": "location",
        "lat": release.lat,
        "lon": release.lon,
        "tst": int(release.at_s),
    }
    if accuracy:
        message["acc"] = radius_m(release)
    initials = tracker_id(tid)
    if initials is not None:
        message["tid"] = initials
    return message if topic is None else {**message, "topic": topic}


def encode_response(
    release: LedgerRelease | None, tid: str | None, passphrase: str | None
) -> bytes:
    """The response to the app: empty, or a friend at the released place."""
    if release is None:
        return b"[]"
    friend = location(release, tid)
    card = [{"_type": "card", "tid": friend["tid"], "name": FRIEND}] if "tid" in friend else []
    friends = to_json([friend, *card])
    if passphrase is None:
        return friends
    # The array is encrypted as a whole, as OwnTracks' own server does it: the app on iOS decrypts
    # an object, and not the parts of an array.
    return to_json(encrypt(friends, passphrase))


def encrypt(message: bytes, passphrase: str) -> dict[str, str]:
    """The message in a secret box, with a nonce of its own."""
    sealed = bytes(SecretBox(_to_key(passphrase)).encrypt(message))
    return {"_type": "encrypted", "data": base64.b64encode(sealed).decode()}


def _decrypt(data: object, passphrase: str | None) -> bytes:
    if passphrase is None:
        raise InvalidRequestError(
            "the message is encrypted and no passphrase is known for this device; set the app's "
            "encryption key as its passphrase here, or empty it in the app",
            "key",
        )
    box = SecretBox(_to_key(passphrase))
    sealed = _decode_base64(data) if isinstance(data, str) else None
    if sealed is None or len(sealed) < SecretBox.NONCE_SIZE + SecretBox.MACBYTES:
        raise InvalidRequestError(
            "the data of the encrypted message is damaged: no app encodes it like that"
        )
    try:
        message = box.decrypt(sealed)
    except CryptoError:
        message = None
    if message is None:
        raise InvalidRequestError(
            "the message cannot be decrypted; make the encryption key in the app and the "
            "passphrase of this device the same",
            "key",
        )
    return message


def _decode_base64(text: str) -> bytes | None:
    try:
        return base64.b64decode("".join(text.split()), validate=True)  # some encoders break lines
    except ValueError:
        return None


def check_passphrase(text: str) -> None:
    """Refuse a passphrase that the apps could not use as it is."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        size = -1
    if not 0 < size <= SecretBox.KEY_SIZE:
        found = "characters that UTF-8 does not have" if size < 0 else f"{size} bytes"
        raise ParameterError(
            f"an OwnTracks passphrase must have 1 to {SecretBox.KEY_SIZE} bytes in UTF-8, "
            f"found {found}; choose another one and set it in the app too"
        )


def _to_key(passphrase: str) -> bytes:
    check_passphrase(passphrase)
    return passphrase.encode().ljust(SecretBox.KEY_SIZE, b"\0")
