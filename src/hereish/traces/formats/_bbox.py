"""The bounding box of released points, for formats whose metadata have one."""

from __future__ import annotations

from hereish.core.types import Floats


class BoundingBox:
    """The bounding box of the points that were added."""

    def __init__(self) -> None:
        self.sides: tuple[float, float, float, float] | None = None  # west, south, east, north

    def add(self, lat: Floats, lon: Floats) -> None:
        if not len(lat):
            return
        new = (float(lon.min()), float(lat.min()), float(lon.max()), float(lat.max()))
        west, south, east, north = self.sides or new
        self.sides = (min(west, new[0]), min(south, new[1]), max(east, new[2]), max(north, new[3]))
