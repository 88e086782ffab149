"""Overland, on iOS and Android: one batch of GeoJSON features per request.

Beside the batch there may be `current` and `trip`. They hold true positions, and nothing reads
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hereish.gateway.http.protocols._parsing import parse_json_object, to_coordinates, to_seconds
from hereish.gateway.http.protocols.formatting import radius_m, to_iso
from hereish.gateway.http.protocols.payload import (
    MAX_POINTS,
    InvalidRequestError,
    ParsedPoints,
    TooManyPointsError,
    read_each,
)
from hereish.gateway.ledger.models import Fix, LedgerRelease

RESPONSE = b'{"result":"ok"}'  # anything else, and the app keeps its batch and sends it again


def read(body: bytes) -> ParsedPoints:
    """The fixes of a batch, in its order."""
    features = parse_json_object(body).get("locations")
    if not isinstance(features, list):
        raise InvalidRequestError("the body has no list of locations, so it is not one of Overland")
    if len(features) > MAX_POINTS:
        raise TooManyPointsError(
            "there are more than a thousand locations; set a smaller batch in the app"
        )
    return read_each(features, _read_feature)


def _read_feature(feature: object) -> Fix | None:
    """The fix of a feature; None if the feature is about something else."""
    properties = feature.get("properties") if isinstance(feature, dict) else None
    if not isinstance(feature, dict) or not isinstance(properties, dict):
        raise InvalidRequestError("a location must be a GeoJSON feature with properties")
    if not _is_fix(properties):
        return None
    place = _read_point(feature.get("geometry"))
    if place is None:
        raise InvalidRequestError("a location must be a point in degrees", "place")
    at_s = to_seconds(properties.get("timestamp"))
    if at_s is None:
        raise InvalidRequestError("a location must have a timestamp", "time")
    return Fix(*place, at_s)


def _read_point(geometry: object) -> tuple[float, float] | None:
    if not isinstance(geometry, dict) or geometry.get("type") != "Point":
        return None
    point = geometry.get("coordinates")
    if not isinstance(point, list) or len(point) < 2:
        return None
    return to_coordinates(point[1], point[0])


def _is_fix(properties: dict[str, Any]) -> bool:
    """False for a log line of the app or the summary of a trip.

    They repeat an older position under a newer time, so they would be paid for twice. A visit is
    a log line too, but its position is its own.
    """
    return properties.get("type") != "trip" and properties.get("action") in (None, "visit")


def batch(
    releases: Sequence[LedgerRelease], device: str | None, *, accuracy: bool = True
) -> dict[str, Any]:
    """Releases in this format: these properties and no others, whatever the phone sent.

    Receivers want a device. They get the operator's choice, the initials or "hereish", but never
    the device's name in the ledger.
    """
    return {
        "locations": [_to_feature(release, device or "hereish", accuracy) for release in releases]
    }


def _to_feature(release: LedgerRelease, device: str, accuracy: bool) -> dict[str, Any]:
    properties: dict[str, Any] = {"timestamp": to_iso(release.at_s)}
    if accuracy:
        properties["horizontal_accuracy"] = radius_m(release)
    return {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [release.lon, release.lat]},
        "properties": {**properties, "device_id": device},
    }
