"""Points in GeoParquet: well-known binary (WKB), and the metadata of the geometry column."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hereish.core.types import Floats
from hereish.errors import ParameterError
from hereish.traces.formats._bbox import BoundingBox

GEOMETRY = "geometry"
_SRID, _Z, _M = 0x20000000, 0x80000000, 0x40000000  # flags of the extended form
_WGS84 = 4326
_WKT_IDENTITY = r'(?:ID|AUTHORITY)\["EPSG","?4326"?\]\]\s*$'
_POINT = np.dtype([("order", "u1"), ("type", "<u4"), ("x", "<f8"), ("y", "<f8")])


def geometry_column(metadata: Mapping[bytes, bytes], names: Sequence[str]) -> str | None:
    """The column of points of a GeoParquet file; None if the file is a plain one."""
    text = metadata.get(b"geo")
    if text is None:
        return None
    try:
        geo = json.loads(text)
        name = geo["primary_column"]
        described = geo["columns"][name]
        encoding, crs = described["encoding"], described.get("crs", "OGC:CRS84")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ParameterError("its GeoParquet metadata cannot be read") from None
    if name not in names:
        raise ParameterError(f"its metadata name a column {name!r} that is not there")
    if encoding not in ("WKB", "point"):
        raise ParameterError(
            f"its geometry is encoded as {encoding!r}; points are read, as WKB or 'point'"
        )
    if crs is None:
        raise ParameterError(
            "its geometry does not say its coordinate system; if it is WGS84, say so with "
            "GeoPandas: frame.set_crs('EPSG:4326')"
        )
    if not _is_wgs84(crs):
        raise ParameterError(
            "its geometry is not in WGS84 longitude and latitude; convert it first, with "
            "GeoPandas: frame.to_crs('EPSG:4326')"
        )
    return str(name)


def _is_wgs84(crs: Any) -> bool:
    if isinstance(crs, dict):
        identity = crs.get("id") or {}
        return (identity.get("authority"), str(identity.get("code"))) in (
            ("OGC", "CRS84"),
            ("EPSG", "4326"),
        )
    if not isinstance(crs, str):
        return False
    # Files of before version 1.0 have it as WKT, which ends with the identity of the whole.
    return crs == "OGC:CRS84" or re.search(_WKT_IDENTITY, crs) is not None


def decode_points(values: Sequence[bytes | None]) -> tuple[Floats, Floats]:
    """Latitudes and longitudes; NaN where there is no point."""
    size = _POINT.itemsize
    if all(value is not None and len(value) == size for value in values):
        table = np.frombuffer(b"".join(values), dtype=_POINT)  # type: ignore[arg-type]  # no None
        if ((table["order"] == 1) & (table["type"] == 1)).all():
            return table["y"].copy(), table["x"].copy()
    pairs = np.array([decode_point(value) for value in values], dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def decode_point(value: bytes | None) -> tuple[float, float]:
    """The latitude and longitude of a point; NaN if it is none of WGS 84."""
    try:
        order = "<" if value and value[0] else ">"
        (kind,) = struct.unpack_from(order + "I", value or b"", 1)
        skip, srid = 5, _WGS84
        if kind & _SRID:
            (srid,) = struct.unpack_from(order + "I", value or b"", 5)
            skip = 9
        if (kind & ~(_SRID | _Z | _M)) % 1000 != 1 or srid != _WGS84:
            return math.nan, math.nan
        x, y = struct.unpack_from(order + "dd", value or b"", skip)
    except struct.error:
        return math.nan, math.nan
    return y, x


def encode_points(lat: Floats, lon: Floats) -> Any:
    """Points as an Arrow column."""
    import pyarrow as pa

    table = np.empty(len(lat), dtype=_POINT)
    table["order"], table["type"], table["x"], table["y"] = 1, 1, lon, lat
    offsets = np.arange(len(lat) + 1, dtype=np.int32) * _POINT.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(table.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(lat), buffers)


def describe(name: str, bbox: BoundingBox) -> dict[str, Any]:
    """The metadata of a GeoParquet file: coordinates are in the default, OGC:CRS84."""
    about: dict[str, Any] = {"encoding": "WKB", "geometry_types": ["Point"]}
    if bbox.sides is not None:
        about["bbox"] = list(bbox.sides)
    return {"version": "1.1.0", "primary_column": name, "columns": {name: about}}
