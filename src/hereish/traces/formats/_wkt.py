"""Points in one column of text: WKT, and WKB in hexadecimal digits, as PostGIS and pandas write."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from hereish.core.types import Floats
from hereish.traces.formats._wkb import decode_point

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
_POINT = re.compile(
    rf"(?:SRID\s*=\s*(?P<srid>\d+)\s*;\s*)?POINT\s*(?:Z|M|ZM)?\s*"
    rf"\(\s*(?P<x>{_NUMBER})\s+(?P<y>{_NUMBER})(?:\s+{_NUMBER}){{0,2}}\s*\)",
    re.IGNORECASE | re.ASCII,
)
_HEXADECIMAL = re.compile(r"(?:[0-9a-f]{2}){21,}", re.IGNORECASE | re.ASCII)
_WGS84 = 4326
_LONGEST = 200  # characters of a single point


def parse_points(texts: Sequence[str]) -> tuple[Floats, Floats]:
    """Latitudes and longitudes; NaN where a text is not a single point of WGS 84."""
    pairs = np.array([parse_point(text) for text in texts], dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def parse_point(text: str) -> tuple[float, float]:
    """The latitude and longitude of a point, which has them the other way round."""
    text = text.strip()
    if len(text) > _LONGEST:
        return math.nan, math.nan
    match = _POINT.fullmatch(text)
    if match is not None:
        if int(match["srid"] or _WGS84) != _WGS84:
            return math.nan, math.nan
        return float(match["y"]), float(match["x"])
    if _HEXADECIMAL.fullmatch(text):
        return decode_point(bytes.fromhex(text))
    return math.nan, math.nan
