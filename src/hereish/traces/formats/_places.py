"""Places as JSON writes them: in members, E7 integers, `geo:` addresses, pairs, WKT points."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from hereish.traces.formats._degrees import parse_degrees, parse_number
from hereish.traces.formats._wkt import parse_point

Place = tuple[float | None, float | None]  # latitude and longitude in degrees
NO_PLACE: Place = (None, None)
_GEO = re.compile(r"geo:([^,;]+),([^,;]+)(?:[,;].*)?", re.ASCII)
_E7 = (("latitudeE7", "longitudeE7"), ("latE7", "lngE7"))
_PLAIN = (
    ("lat", "lon"),
    ("latitude", "longitude"),
    ("lat", "lng"),
    ("lat", "long"),
    ("Latitude", "Longitude"),
)
_WRAP_E7, _LARGEST_E7 = 1 << 32, 180 * 10**7


def parse_position(position: Any) -> Place:
    """The place of a list of longitude, latitude and perhaps more."""
    if not isinstance(position, list) or len(position) < 2:
        return NO_PLACE
    return parse_degrees(position[1], "lat"), parse_degrees(position[0], "lon")


def parse_text(value: Any) -> Place:
    """`geo:48.8,2.3`, `48.8°, 2.3°` or `POINT(2.3 48.8)`."""
    if not isinstance(value, str):
        return NO_PLACE
    text = value.strip()
    match = _GEO.fullmatch(text)
    if match is not None:
        return parse_number(match[1]), parse_number(match[2])
    pair = text.split(",")
    if len(pair) == 2:
        return parse_degrees(pair[0], "lat"), parse_degrees(pair[1], "lon")
    lat, lon = parse_point(text)
    return NO_PLACE if math.isnan(lat) or math.isnan(lon) else (lat, lon)


def parse_members(record: Any) -> Place:
    """The place in the members of an object, whatever they are called."""
    if isinstance(record, str):
        return parse_text(record)
    if not isinstance(record, Mapping):
        return NO_PLACE
    for lat, lon in _E7:
        if lat in record or lon in record:
            return _from_e7(record.get(lat)), _from_e7(record.get(lon))
    for lat, lon in _PLAIN:
        # Beside a point, Dawarich writes null for both.
        if lat in record and lon in record and not (record[lat] is None and record[lon] is None):
            return parse_degrees(record[lat], "lat"), parse_degrees(record[lon], "lon")
    for name in ("latLng", "LatLng", "point", "lonlat"):
        if isinstance(record.get(name), str):
            return parse_text(record[name])
    return NO_PLACE


def _from_e7(value: Any) -> float | None:
    number = parse_number(value)
    if number is None:
        return None
    # Some exports have negative ones as if they had no sign.
    return (number - _WRAP_E7 if number > _LARGEST_E7 else number) / 1e7
