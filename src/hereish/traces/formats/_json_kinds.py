"""Which kind of JSON a file is, by its first bytes: names do not tell, all end in .json."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

JsonKind = Literal["geojson", "mfjson", "google", "records", "other", "none"]
HEAD_BYTES = 1 << 14
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"|([{}\[\]:,])|[^\s{}\[\]:,"]+', re.DOTALL)
_LONGEST = 40  # a longer text is no name that is looked for
_GEOMETRIES = ("Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon")
_GEOJSON = {f"type={kind}" for kind in ("FeatureCollection", "Feature", "GeometryCollection")} | {
    f"type={kind}" for kind in _GEOMETRIES
}
_MFJSON = {
    "temporalGeometry",
    "features[].temporalGeometry",
    "type=MovingPoint",
    "type=MovingGeomPoint",
    "type=MovingGeogPoint",
    "type=MovingGeometryCollection",
    "temporalGeometry.type=MovingPoint",
    "properties.datetimes",
    "features[].properties.datetimes",
}
_GOOGLE = {
    "semanticSegments",
    "rawSignals",
    "userLocationProfile",
    "timelineObjects",
    "timelineEdits",
    "locations[].latitudeE7",
    "locations[].timestampMs",
    "locations[].deviceTag",
    "locations[].activeWifiScan",
    "[].timelinePath",
    "[].visit",
    "[].activity",
    "[].timelineMemory",
}
_LATS, _LONS = ("lat", "latitude"), ("lon", "lng", "long", "longitude")
# Where lists of records are: at the top, or under these names.
LISTS = (
    *("", "locations", "points", "data", "results", "records", "positions", "fixes", "path"),
    *("steps", "all_steps", "samples", "items"),  # of Polarsteps, Arc and Foursquare
)


def json_kind(head: bytes) -> JsonKind:
    """What the first bytes, in UTF-8, are of; "none": no JSON, "other": nothing here reads it."""
    seen = set(_outline(head))
    if not seen:
        return "none"
    if seen & _MFJSON:
        return "mfjson"
    if seen & _GOOGLE:
        return "google"
    if "features" in seen or seen & _GEOJSON:
        return "records" if "_type=location" in seen else "geojson"
    if "locations" in seen and not any(path.startswith("locations[].") for path in seen):
        return "google"  # a history without anything in it
    return "records" if record_list(head) is not None else "other"


def record_list(head: bytes) -> str | None:
    """The member that is a list of records with places; "" if the whole file is; None if none."""
    seen = set(_outline(head))
    if _has_place(seen, "") or "_type=location" in seen:
        return ""  # one object, or one per line
    for name in LISTS:
        if _has_place(seen, f"{name}[]."):
            return name
    return None


def _has_place(seen: set[str], prefix: str) -> bool:
    if f"{prefix}geometry.type=Point" in seen or f"{prefix}lonlat" in seen:
        return True
    return any(
        any(f"{prefix}{nested}{lat}" in seen for lat in _LATS)
        and any(f"{prefix}{nested}{lon}" in seen for lon in _LONS)
        for nested in ("", "coords.", "location.")
    )


def _outline(head: bytes) -> Iterator[str]:
    """The paths of names, such as `features[].type`, and those of types with their values."""
    path: list[str] = []  # of the open brackets: "[]", or the name of a member with its dot
    objects: list[bool] = []  # which of them are objects
    name = pending = ""  # the member that is being read, and the last text
    begun = False
    for match in _TOKEN.finditer(head):
        text, mark = match.group(1), match.group(2)
        if not begun and mark not in (b"{", b"["):
            return
        if not begun:
            begun = True
            yield "{}" if mark == b"{" else "[]"
        if text is not None:
            pending = text.decode(errors="replace") if len(text) <= _LONGEST else ""
            if name in ("type", "_type"):
                yield f"{''.join(path)}{name}={pending}"
        elif mark == b":":
            name = pending
            yield "".join(path) + name
        elif mark in (b"{", b"["):
            if mark == b"[":
                path.append(f"{name}[].")
            else:
                path.append(f"{name}." if name else "")
            objects.append(mark == b"{")
            name = ""
        elif mark in (b"}", b"]"):
            if not objects or objects.pop() != (mark == b"}"):
                return
            path.pop()
            name = ""
        elif mark == b",":
            name = ""
