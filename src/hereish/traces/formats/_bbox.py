"""The smallest box around released points, for the metadata of the formats that have one."""

from __future__ import annotations

from hereish.core.types import Floats


class Box:
    """Grows around the points that it is given."""

    def __init__(self) -> None:
        self.sides: tuple[float, float, float, float] | None = None  # west, south, east, north

    def add(self, lat: Floats, lon: Floats) -> None:
        if not len(lat):
            return
        new = (float(lon.min()), float(lat.min()), float(lon.max()), float(lat.max()))
        west, south, east, north = self.sides or new
        self.sides = (min(west, new[0]), min(south, new[1]), max(east, new[2]), max(north, new[3]))
