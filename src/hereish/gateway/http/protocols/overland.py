"""Overland, for iOS and its kin on Android: a batch of GeoJSON features a request.

Beside the batch there may be `current` and `trip`. They have true positions in them, and nothing
reads them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from hereish.gateway.http.protocols.parsing import coordinates, json_object, seconds_of
from hereish.gateway.ledger.models import Fix, InvalidRequestError, LedgerRelease, Points, Reason

ANSWER = b'{"result":"ok"}'  # anything else, and the app keeps its batch and sends it again
MOST = 1000  # the largest batch that can be set in the app


def read(body: bytes) -> Points:
    """The fixes of a batch, in its order.

    Features without a usable position and time are left out: the app would send a batch that was
    refused for one of them forever.
    """
    features = json_object(body).get("locations")
    if not isinstance(features, list):
        raise InvalidRequestError("the body has no list of locations, so it is not one of Overland")
    if len(features) > MOST:
        raise InvalidRequestError(
            "there are more than a thousand locations; set a smaller batch in the app", "size"
        )
    points = Points([], [])
    for feature in features:
        found = _fix(feature)
        if isinstance(found, Fix):
            points.fixes.append(found)
        elif found is not None:
            points.unusable.append(found)
    return points


def _fix(feature: object) -> Fix | Reason | None:
    """The fix of a feature, or why it has none; None if it is about something else."""
    if not isinstance(feature, dict):
        return "body"
    geometry, properties = feature.get("geometry"), feature.get("properties")
    if not isinstance(properties, dict):
        return "body"
    if not _is_where_it_was(properties):
        return None
    if not isinstance(geometry, dict) or geometry.get("type") != "Point":
        return "place"
    point = geometry.get("coordinates")
    if not isinstance(point, list) or len(point) < 2:
        return "place"
    place, at_s = coordinates(point[1], point[0]), seconds_of(properties.get("timestamp"))
    if place is None:
        return "place"
    return "time" if at_s is None else Fix(*place, at_s)


def _is_where_it_was(properties: dict[str, Any]) -> bool:
    """False for a log line of the app or the summary of a trip.

    They repeat an older position under a newer time, so they would pay for what was paid already.
    A visit is a log line too, but its position is its own.
    """
    return properties.get("type") != "trip" and properties.get("action") in (None, "visit")


def batch(
    releases: Sequence[LedgerRelease], device: str | None, *, accuracy: bool = True
) -> dict[str, Any]:
    """Releases in this format: these properties and no others, whatever the phone sent.

    Receivers want a device; they get what the operator named, the initials, or our name, but not
    what it is called here.
    """
    return {"locations": [_feature(release, device or "hereish", accuracy) for release in releases]}


def _feature(release: LedgerRelease, device: str, accuracy: bool) -> dict[str, Any]:
    moment = datetime.fromtimestamp(release.at_s, UTC)
    properties: dict[str, Any] = {"timestamp": moment.isoformat().replace("+00:00", "Z")}
    if accuracy:
        properties["horizontal_accuracy"] = max(1, math.ceil(release.accuracy_m))
    return {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [release.lon, release.lat]},
        "properties": {**properties, "device_id": device},
    }
