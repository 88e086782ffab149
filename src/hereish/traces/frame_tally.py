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
    _dots: dict[tuple[float, float], Kind] = field(default_factory=dict, repr=False)

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
            self._add_dots(out.value[out.released][kinds == kind.value], kind)

    def _add_dots(self, places: Floats, kind: Kind) -> None:
        """Each place once, since most reports of some mechanisms repeat an earlier one."""
        different = np.unique(places[:, 0] + 1j * places[:, 1])
        step = max(1, -(-len(different) // _MOST_DOTS))
        for place in different[::step].tolist():
            self._dots.setdefault((place.imag, place.real), kind)
        for oldest in list(self._dots)[: max(0, len(self._dots) - 2 * _MOST_DOTS)]:
            del self._dots[oldest]

    def _repr_html_(self) -> str:
        """A table of the counts and a picture of released places, without scripts or links."""
        counts = {
            "rows": self.rows,
            **({"thinned": self.thinned} if self.thinned else {}),
            f"{_mark(Kind.HARD)}fresh noise (hard)": self.hard,
            f"{_mark(Kind.EASY)}prediction accepted (easy)": self.easy,
            f"{_mark(Kind.UNTESTED)}free guess (untested)": self.untested,
            "refused by the budget": self.refused,
        }
        lines = "".join(
            f"<tr><td>{name}</td><td style='text-align:right'>{count:,}</td></tr>"
            for name, count in counts.items()
        )
        return f"<div><table>{lines}</table>{self._picture()}<p>{escape(self.guarantee)}</p></div>"

    def _picture(self) -> str:
        if not self._dots:
            return ""
        lon, lat = np.array(list(self._dots)).T
        lon = (lon - lon[0] + 180.0) % 360.0  # those on both sides of the date line are neighbours
        # Degrees of longitude are shorter than those of latitude by this.
        x = (lon - lon.mean()) * np.cos(np.radians(lat.mean()))
        y = lat - lat.mean()
        size = max(np.ptp(x) / (_WIDTH - 2 * _MARGIN), np.ptp(y) / (_HEIGHT - 2 * _MARGIN), 1e-9)
        left = _WIDTH / 2 + (x - (x.min() + x.max()) / 2) / size
        top = _HEIGHT / 2 - (y - (y.min() + y.max()) / 2) / size
        dots = "".join(
            f"<circle cx='{a:.1f}' cy='{b:.1f}' r='2.5' fill='{_COLOURS[kind]}' "
            "fill-opacity='0.6'/>"
            for a, b, kind in zip(left.tolist(), top.tolist(), self._dots.values(), strict=True)
        )
        return (
            f"<svg width='{_WIDTH}' height='{_HEIGHT}' role='img' aria-label='released places' "
            f"style='border:1px solid #8888'>{dots}</svg>"
        )


def _mark(kind: Kind) -> str:
    """The colour of the places that were released so first."""
    return f"<span style='color:{_COLOURS[kind]}'>●</span> "
