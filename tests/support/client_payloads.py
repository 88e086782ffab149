"""What the apps send, field by field, at a place that was made up.

The extra fields are the point: they tell a place too, and none of them may leave.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from nacl.bindings import crypto_secretbox
from nacl.utils import random

from hereish.gateway.ledger.models import Fix

LAT, LON, AT_S = 48.7315926, 19.1462837, 1_777_982_400
# What the messages below say of somebody beside the place.
TELLTALES = ("Castle Keep", "a4:2b:b0:d1:7e:55", "Winter Garden", "owntracks/ines/phone", "E5F1A2")
PASSPHRASE = "zwölf Löwen"  # noqa: S105  # of nobody
# And what no app sends.
FUZZ = settings(derandomize=True, deadline=None, max_examples=200, database=None)
_TEXT = st.text(max_size=8)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)


def sent(message: object) -> bytes:
    """The body of a request."""
    return json.dumps(message).encode()


def tells_nothing(error: BaseException) -> bool:
    """Its words have no number and nothing else of what was sent, and no other error hangs on it.

    The errors of parsers hold what they could not parse, and would be logged together with ours.
    """
    alone = error.__context__ is None and error.__cause__ is None
    words = str(error)
    silent = not any(sign.isdigit() for sign in words) and words.isascii()
    return alone and silent and not any(telltale in words for telltale in TELLTALES)


def usable(fix: Fix) -> bool:
    """On Earth, and between 1970 and 2500."""
    return abs(fix.lat) <= 90 and abs(fix.lon) <= 180 and 0 < fix.at_s < 16_725_225_600


def quickest_s(work: Callable[[], object], times: int = 5) -> float:
    """How long it keeps this thread busy: other programs do not count."""
    took_s = []
    for _ in range(times):
        began_s = time.thread_time()
        work()
        took_s.append(time.thread_time() - began_s)
    return min(took_s)


def iso(at_s: float, ending: str = "Z") -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S") + ending


# OwnTracks


def owntracks_ios(lat: float = LAT, lon: float = LON, at_s: float = AT_S) -> dict[str, Any]:
    return {
        "_type": "location",
        "BSSID": "a4:2b:b0:d1:7e:55",
        "SSID": "Castle Keep",
        "acc": 12,
        "alt": 361,
        "batt": 64,
        "bs": 1,
        "cog": 212,
        "conn": "w",
        "created_at": int(at_s) + 3,
        "inregions": ["Winter Garden"],
        "inrids": ["E5F1A2"],
        "lat": lat,
        "lon": lon,
        "m": 1,
        "p": 97.338,
        "t": "t",
        "tid": "in",
        "topic": "owntracks/ines/phone",
        "tst": at_s,
        "vac": 7,
        "vel": 4,
    }


def owntracks_android(lat: float = LAT, lon: float = LON, at_s: float = AT_S) -> dict[str, Any]:
    return {
        "_type": "location",
        "_id": "E5F1A2",
        "BSSID": "a4:2b:b0:d1:7e:55",
        "SSID": "Castle Keep",
        "acc": 14,
        "alt": 402,
        "batt": 81,
        "bs": 2,
        "conn": "m",
        "created_at": int(at_s) + 1,
        "inregions": ["Winter Garden"],
        "lat": lat,
        "lon": lon,
        "m": 2,
        "t": "p",
        "tid": "7b",
        "topic": "owntracks/ines/phone",
        "tst": at_s,
        "vac": 3,
        "vel": 0,
    }


def owntracks_gpslogger(lat: float = LAT, lon: float = LON, at_s: float = AT_S) -> dict[str, Any]:
    """GPSLogger's template for OwnTracks: every number is a text."""
    return {
        "_type": "location",
        "t": "u",
        "acc": "10",
        "lat": str(lat),
        "lon": str(lon),
        "tst": str(int(at_s)),
        "vel": "0",
    }


def owntracks_other() -> list[dict[str, Any]]:
    """Messages about something else. Some have a place in them."""
    place = {"lat": LAT, "lon": LON}
    region = {"_type": "waypoint", **place, "desc": "Winter Garden", "rad": 80, "tst": AT_S}
    return [
        region,
        {"_type": "waypoints", "_creator": "test", "waypoints": [region]},
        {
            "_type": "transition",
            **place,
            "acc": 20,
            "desc": "Winter Garden",
            "event": "enter",
            "t": "c",
            "tid": "in",
            "topic": "owntracks/ines/phone/event",
            "tst": AT_S,
            "wtst": AT_S - 9000,
        },
        {"_type": "lwt", "tst": AT_S},
        {"_type": "status", "android": {"hib": 0, "bo": 1, "loc": 0}, "_id": "E5F1A2"},
        {"_type": "card", "name": "Ines", "face": "aGVyZWlzaA==", "tid": "in"},
        {"_type": "cmd", "action": "reportLocation"},
        {"_type": "steps", "steps": 1200, "from": AT_S - 600, "to": AT_S, "tst": AT_S},
        {"_type": "beacon", "desc": "Winter Garden", "major": 1, "minor": 2, "tst": AT_S},
        {"_type": "configuration", "deviceId": "phone", "mode": 3, "waypoints": [region]},
    ]


def owntracks_encrypted(message: object, passphrase: str = PASSPHRASE) -> dict[str, str]:
    """As the apps do it: a nonce, and what libsodium made with it and the padded key."""
    nonce, key = random(24), passphrase.encode() + bytes(32 - len(passphrase.encode()))
    sealed = nonce + crypto_secretbox(sent(message), nonce, key)
    return {"_type": "encrypted", "data": base64.b64encode(sealed).decode()}


# Overland


def overland_feature(
    lat: float = LAT, lon: float = LON, timestamp: object = iso(AT_S)
) -> dict[str, Any]:
    """A location of Overland for iOS with its tracking statistics switched on."""
    return {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [lon, lat]},
        "properties": {
            "timestamp": timestamp,
            "altitude": 361,
            "speed": 4,
            "course": 212,
            "horizontal_accuracy": 12,
            "vertical_accuracy": 7,
            "speed_accuracy": 1,
            "course_accuracy": 9,
            "motion": ["driving", "stationary"],
            "pauses": False,
            "activity": "other_navigation",
            "desired_accuracy": 100,
            "deferred": 1000,
            "significant_change": "disabled",
            "locations_in_payload": 1,
            "battery_state": "charging",
            "battery_level": 0.89,
            "device_id": "E5F1A2",
            "unique_id": "E5F1A2",
            "wifi": "Castle Keep",
        },
    }


def overland_android_feature(
    lat: float = LAT, lon: float = LON, at_s: float = AT_S
) -> dict[str, Any]:
    """The Android app fills a template: milliseconds, and texts where iOS has other types."""
    feature = overland_feature(lat, lon, iso(at_s, ".250Z"))
    feature["properties"] |= {"battery_state": False, "activity": "still", "pauses": True}
    return feature


def overland_log_line(action: str) -> dict[str, Any]:
    """What the iOS app notes of itself, at the last position it knew; a visit is noted too."""
    feature = overland_feature()
    feature["properties"] = {"timestamp": iso(AT_S + 60), "action": action, "battery_level": 0.8}
    return feature


def overland_finished_trip() -> dict[str, Any]:
    feature = overland_feature()
    feature["properties"] = {
        "timestamp": iso(AT_S + 60),
        "type": "trip",
        "mode": "walk",
        "start": iso(AT_S - 600),
        "end": iso(AT_S + 60),
        "start_location": overland_feature(LAT + 0.01),
        "end_location": overland_feature(),
        "duration": 660,
        "distance": 1113.2,
        "stopped_automatically": False,
    }
    return feature


def overland(*features: object) -> dict[str, Any]:
    """A batch while more waits in the phone and a trip is on, so with everything there can be."""
    return {
        "locations": list(features or [overland_feature()]),
        "current": overland_feature(LAT + 0.02),
        "trip": {
            "distance": 1113.2,
            "mode": "walk",
            "current_location": overland_feature(LAT + 0.02),
            "start_location": overland_feature(LAT + 0.01),
            "start": iso(AT_S - 600),
        },
    }


# OsmAnd and Traccar


def osmand_query(lat: float = LAT, lon: float = LON, at_s: float = AT_S) -> list[tuple[str, str]]:
    """`lat={0}&lon={1}&timestamp={2}&hdop={3}&altitude={4}&speed={5}`, in milliseconds."""
    return [
        ("id", "E5F1A2"),
        ("lat", str(lat)),
        ("lon", str(lon)),
        ("timestamp", str(round(at_s * 1000))),
        ("hdop", "6.0"),
        ("altitude", "361.0"),
        ("speed", "1.25"),
    ]


def traccar_client_query(
    lat: float = LAT, lon: float = LON, at_s: float = AT_S
) -> list[tuple[str, str]]:
    return [
        ("id", "E5F1A2"),
        ("timestamp", str(int(at_s))),
        ("lat", str(lat)),
        ("lon", str(lon)),
        ("speed", "2.4298"),
        ("bearing", "212.0"),
        ("altitude", "361.0"),
        ("accuracy", "12.0"),
        ("batt", "64.0"),
        ("charge", "true"),
        ("cell", "231,2,16,2224"),
        ("cell", "231,2,16,2223,-90"),
        ("wifi", "a4-2b-b0-d1-7e-55,-80"),
        ("alarm", "sos"),
    ]


def traccar_client_json(lat: float = LAT, lon: float = LON, at_s: float = AT_S) -> dict[str, Any]:
    return {
        "location": {
            "event": "motionchange",
            "is_moving": False,
            "uuid": "0e9a2473-a9a7-4c00-997b-fb97d2154e75",
            "timestamp": iso(at_s, ".000Z"),
            "age": 188,
            "odometer": 1113.2,
            "mock": False,
            "coords": {
                "latitude": lat,
                "longitude": lon,
                "accuracy": 3.8,
                "speed": 1.25,
                "speed_accuracy": 0.26,
                "heading": 212,
                "heading_accuracy": -1,
                "altitude": 361,
                "altitude_accuracy": 3.8,
                "ellipsoidal_altitude": 404.1,
                "floor": None,
            },
            "activity": {"type": "still", "confidence": 100},
            "battery": {"is_charging": False, "level": 0.79},
            "extras": {},
            "_": f"&id=E5F1A2&lat={lat}&lon={lon}&timestamp={iso(at_s, '.000Z')}&",
        },
        "device_id": "E5F1A2",
    }


def gpslogger_query(
    lat: float = LAT, lon: float = LON, at_s: float = AT_S
) -> list[tuple[str, str]]:
    """All that GPSLogger puts in a custom URL, under the names that it suggests."""
    return [
        ("lat", str(lat)),
        ("longitude", str(lon)),
        ("time", iso(at_s, ".000Z")),
        ("s", "1.25"),
        ("sat", "9"),
        ("desc", "Winter Garden"),
        ("alt", "361.0"),
        ("acc", "12.0"),
        ("dir", "212.0"),
        ("prov", "gps"),
        ("timeoffset", iso(at_s + 7200, ".000+02:00")),
        ("starttimestamp", str(int(at_s) - 600)),
        ("date", iso(at_s)[:10]),
        ("batt", "64.0"),
        ("aid", "E5F1A2"),
        ("ser", "E5F1A2"),
        ("act", "STILL"),
        ("dist", "1113"),
    ]
