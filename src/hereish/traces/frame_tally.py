"""What became of the rows of a frame, with a small picture for notebooks.

It holds public data alone: counts of rows, and places that were released. A notebook is shared with
its outputs, so nothing of the truth is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

import numpy as np

from hereish.core.batch_results import Sanitized
from hereish.core.types import Floats, Kind

_WIDTH, _HEIGHT, _MARGIN = 320, 200, 8
_MOST_DOTS = 1000
_COLOURS = {Kind.HARD: "#d95f02", Kind.EASY: "#1b9e77", Kind.UNTESTED: "#7570b3"}


@dataclass
class FrameTally:
    """Counts rows while frames are sanitised; each is thinned, refused, hard, easy or untested."""

    rows: int = 0
    thinned: int = 0  # left out by `every`
    refused: int = 0  # by the budget
    hard: int = 0
    easy: int = 0
    untested: int = 0
    guarantee: str = ""
    _dots: list[tuple[float, float, str]] = field(default_factory=list, repr=False)

    @property
    def released(self) -> int:
        return self.hard + self.easy + self.untested

    def add(self, rows: int, out: Sanitized, guarantee: str) -> None:
        """Count some rows, `out` being those of them that were not thinned."""
        kinds = out.kind[out.released]
        self.rows += rows
        self.thinned += rows - len(out.released)
        self.refused += int(np.count_nonzero(~out.released))
        self.guarantee = guarantee
        for kind in _COLOURS:
            count = int(np.count_nonzero(kinds == kind.value))
            setattr(self, kind.value, getattr(self, kind.value) + count)
        self._add_dots(out.value[out.released], kinds.tolist())

    def _add_dots(self, places: Floats, kinds: list[str]) -> None:
        step = max(1, len(places) // _MOST_DOTS)
        chosen = range(0, len(places), step)
        self._dots += [(float(places[i, 1]), float(places[i, 0]), kinds[i]) for i in chosen]
        del self._dots[: max(0, len(self._dots) - 2 * _MOST_DOTS)]

    def _repr_html_(self) -> str:
        """A table of the counts and a picture of released places, without scripts or links."""
        counts = {
            "rows": self.rows,
            **({"thinned": self.thinned} if self.thinned else {}),
            "fresh noise (hard)": self.hard,
            "prediction accepted (easy)": self.easy,
            "free guess (untested)": self.untested,
            "refused by the budget": self.refused,
        }
        lines = "".join(
            f"<tr><td>{escape(name)}</td><td style='text-align:right'>{count:,}</td></tr>"
            for name, count in counts.items()
        )
        return f"<div><table>{lines}</table>{self._picture()}<p>{escape(self.guarantee)}</p></div>"

    def _picture(self) -> str:
        if not self._dots:
            return ""
        lon, lat = np.array([dot[:2] for dot in self._dots]).T
        lon = (lon - lon[0] + 180.0) % 360.0  # those on both sides of the date line are neighbours
        # Degrees of longitude are shorter than those of latitude by this.
        x = (lon - lon.mean()) * np.cos(np.radians(lat.mean()))
        y = lat - lat.mean()
        size = max(np.ptp(x) / (_WIDTH - 2 * _MARGIN), np.ptp(y) / (_HEIGHT - 2 * _MARGIN), 1e-9)
        left = _WIDTH / 2 + (x - (x.min() + x.max()) / 2) / size
        top = _HEIGHT / 2 - (y - (y.min() + y.max()) / 2) / size
        dots = "".join(
            f"<circle cx='{a:.1f}' cy='{b:.1f}' r='2.5' fill='{_COLOURS[Kind(dot[2])]}' "
            "fill-opacity='0.6'/>"
            for a, b, dot in zip(left.tolist(), top.tolist(), self._dots, strict=True)
        )
        return (
            f"<svg width='{_WIDTH}' height='{_HEIGHT}' role='img' aria-label='released places' "
            f"style='border:1px solid #8888'>{dots}</svg>"
        )
