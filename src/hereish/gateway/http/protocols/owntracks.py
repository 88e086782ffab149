"""OwnTracks in HTTP mode: one message a request, an array of messages as the answer.

Messages may be encrypted with libsodium's secret box. Its key is the passphrase in UTF-8, filled
up with zeros, on the app's side as on ours.
"""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from typing import Any

from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

from hereish.errors import ParameterError
from hereish.gateway.http.protocols.parsing import coordinates, json_object, number_or_text, unix_s
from hereish.gateway.ledger.models import Fix, InvalidRequestError, LedgerRelease

_TID_LENGTH = 2
FRIEND = "hereish"  # the name on the owner's map of what was released


@dataclass(frozen=True, slots=True)
class Message:
    """What a request said. `fix` is None if it was about something else than where the phone is."""

    fix: Fix | None
    tid: str | None
    encrypted: bool


def read(body: bytes, passphrase: str | None) -> Message:
    """Read one message of the app. Of everything but a location, only `tid` is looked at."""
    if not body.strip():
        return Message(None, None, False)
    message = json_object(body)
    sealed = _type(message) == "encrypted"
    if sealed:
        message = json_object(_decrypted(message.get("data"), passphrase))
    kind = _type(message)
    if kind == "encrypted":
        raise InvalidRequestError("the message is encrypted twice; the apps do that once")
    fix = _fix(message) if kind == "location" else None
    return Message(fix, tracker_id(message.get("tid")), sealed)


def _type(message: dict[str, Any]) -> str:
    kind = message.get("_type")
    if not isinstance(kind, str):
        raise InvalidRequestError("the message has no _type, so it is not one of OwnTracks")
    return kind


def _fix(message: dict[str, Any]) -> Fix:
    # GPSLogger speaks this too, and quotes its numbers.
    lat, lon, tst = (number_or_text(message.get(name)) for name in ("lat", "lon", "tst"))
    place, at_s = coordinates(lat, lon), unix_s(tst)
    if place is None or at_s is None:
        raise InvalidRequestError(
            "a location needs lat and lon in degrees and tst in seconds, all as numbers",
            "place" if place is None else "time",
        )
    return Fix(*place, at_s)


def tracker_id(value: object) -> str | None:
    """The initials that an app shows for somebody: at most two characters, as in the apps.

    They are a setting of the app and pass through to what leaves. They are not derived from the
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
        message["acc"] = max(1, math.ceil(release.accuracy_m))
    initials = tracker_id(tid)
    if initials is not None:
        message["tid"] = initials
    return message if topic is None else {**message, "topic": topic}


def answer(release: LedgerRelease | None, tid: str | None, passphrase: str | None) -> bytes:
    """What the app is told: nothing, or a friend who is where the release says."""
    if release is None:
        return b"[]"
    friend = location(release, tid)
    card = [{"_type": "card", "tid": friend["tid"], "name": FRIEND}] if "tid" in friend else []
    friends = _dumped([friend, *card])
    if passphrase is None:
        return friends
    # The array is encrypted as a whole, as OwnTracks' own server does it: the app on iOS decrypts
    # an object, and not the parts of an array.
    return _dumped(encrypted(friends, passphrase))


def encrypted(message: bytes, passphrase: str) -> dict[str, str]:
    """The message in its box, with a nonce of its own."""
    sealed = bytes(SecretBox(_key(passphrase)).encrypt(message))
    return {"_type": "encrypted", "data": base64.b64encode(sealed).decode()}


def _decrypted(data: object, passphrase: str | None) -> bytes:
    if passphrase is None:
        raise InvalidRequestError(
            "the message is encrypted and no passphrase is known for this device; set the app's "
            "encryption key as its passphrase here, or empty it in the app",
            "key",
        )
    box = SecretBox(_key(passphrase))
    sealed = _base64(data) if isinstance(data, str) else None
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


def _base64(text: str) -> bytes | None:
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


def _key(passphrase: str) -> bytes:
    check_passphrase(passphrase)
    return passphrase.encode().ljust(SecretBox.KEY_SIZE, b"\0")


def _dumped(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
