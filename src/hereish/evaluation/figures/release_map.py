"""True places against what was released for them: a map, the errors, and a key.

These show true positions. They are for whoever may see the data, and for nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch, Wedge
from numpy.typing import NDArray

from hereish.core.types import Bools, Floats, Kind
from hereish.evaluation.figures.style import (
    BLUE,
    DARK,
    GREY,
    LIGHT_GREY,
    ORANGE,
    RED,
    SKY,
    clear_frame,
)

_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    Kind.HARD: ("fresh noise", {"facecolor": RED, "edgecolor": RED}),
    Kind.EASY: (
        "the last release again: prediction accepted",
        {"facecolor": ORANGE, "edgecolor": ORANGE},
    ),
    Kind.UNTESTED: (
        "the last release again: test skipped",
        {"facecolor": "#FDEFD2", "edgecolor": ORANGE},
    ),
}
_TRUE_PLACE: dict[str, Any] = {"color": SKY, "edgecolors": BLUE, "s": 26, "zorder": 4}
_REFUSED: dict[str, Any] = {"marker": "x", "color": GREY, "s": 26, "linewidths": 1.2, "zorder": 3}
_TIE: dict[str, Any] = {"color": DARK, "linewidth": 0.7, "alpha": 0.3, "zorder": 2}
_RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 11,
    "markerfacecolor": "white",
    "markeredgecolor": RED,
    "markeredgewidth": 4,
    "linestyle": "none",
}
_NUMBER: dict[str, Any] = {
    "ha": "center",
    "va": "center_baseline",
    "zorder": 6,
    "fontsize": 9,
    "fontweight": "bold",
    "color": DARK,
}
_SCALES_KM = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


@dataclass(frozen=True, eq=False)
class ReleasedTrace:
    """Kilometres east and north of somewhere. The true places are secret."""

    true_km: Floats  # (n, 2) where somebody was when a report was due
    released_km: Floats  # (n, 2) NaN where nothing was released
    kind: NDArray[np.str_]  # as `hereish.sanitize` has it

    @property
    def released(self) -> Bools:
        return np.isin(self.kind, list(_KINDS))

    @property
    def error_km(self) -> Floats:
        return np.asarray(np.hypot(*(self.released_km - self.true_km).T))

    def __repr__(self) -> str:
        return f"<ReleasedTrace of {len(self.kind)} queries>"


def frame_map(axes: Axes, points_km: Floats, margin: float = 1.18) -> float:
    """A square around all points, with a scale bar in its corner; returns the side in km."""
    low, high = np.nanmin(points_km, axis=0), np.nanmax(points_km, axis=0)
    left, bottom = (low + high) / 2.0 - (side := margin * float((high - low).max())) / 2.0
    axes.set(xlim=(left, left + side), ylim=(bottom, bottom + side), xticks=[], yticks=[])
    axes.set_aspect("equal")
    axes.spines[:].set_color(LIGHT_GREY)
    km = max((n for n in _SCALES_KM if n <= side / 4.0), default=0.1)
    x, y = left + 0.04 * side, bottom + 0.04 * side
    axes.plot(
        [x, x + km], [y, y], color="black", linewidth=3.0, solid_capstyle="butt", label="scale"
    )
    axes.text(x, y + 0.012 * side, f"{km:g} km", va="bottom")
    return side


def draw_true_places(axes: Axes, true_km: Floats) -> None:
    """The places alone."""
    axes.scatter(*true_km.T, label="query", **_TRUE_PLACE)


def draw_releases(axes: Axes, trace: ReleasedTrace, unit_km: float) -> None:
    """Each true place with a line to what was released; each released place as a ring.

    The ring has one slice per query that it answered, and grows with their number from `unit_km`.
    """
    released = trace.released
    for ends in np.stack([trace.true_km[released], trace.released_km[released]], axis=1):
        axes.plot(*ends.T, label="tie", **_TIE)
    draw_true_places(axes, trace.true_km[released])
    if not released.all():
        axes.scatter(*trace.true_km[~released].T, label="refused", **_REFUSED)
    rows = np.flatnonzero(released)
    answered = np.split(rows, np.flatnonzero(trace.kind[rows] == Kind.HARD)[1:])
    for group in sorted(filter(len, answered), key=len, reverse=True):  # the smaller above
        _draw_ring(axes, trace.released_km[group[0]], trace.kind[group].tolist(), unit_km)


def _draw_ring(axes: Axes, place_km: Floats, kinds: Sequence[str], unit_km: float) -> None:
    """Slices run clockwise, in the order of the queries."""
    x, y = place_km.tolist()
    radius_km = unit_km * (1.0 + 0.45 * np.sqrt(len(kinds)))
    axes.add_patch(Circle((x, y), 1.12 * radius_km, color="white", zorder=5))
    step = 360.0 / len(kinds)
    for i, kind in enumerate(kinds):
        look: dict[str, Any] = {"linewidth": 1.0, "zorder": 5, "label": kind} | _KINDS[kind][1]
        axes.add_patch(Wedge((x, y), radius_km, 90.0 - (i + 1) * step, 90.0 - i * step, **look))
    axes.add_patch(Circle((x, y), 0.55 * radius_km, color="white", zorder=5))
    axes.text(x, y, str(len(kinds)), **_NUMBER)


def draw_errors(axes: Axes, x: Floats, trace: ReleasedTrace) -> None:
    """How far each release lies from the truth."""
    error_km = trace.error_km
    for kind, (_, look) in _KINDS.items():
        rows = trace.kind == kind
        axes.scatter(
            x[rows], error_km[rows], s=40, clip_on=False, zorder=3, label=str(kind), **look
        )
    refused = ~trace.released
    if refused.any():
        axes.scatter(
            x[refused], np.zeros(refused.sum()), clip_on=False, label="refused", **_REFUSED
        )
    clear_frame(axes)


def draw_key(
    axes: Axes,
    lines: Sequence[tuple[dict[str, Any], str]] = (),
    *,
    refused: bool = False,
    spacing: float = 1.0,
) -> None:
    """What the marks mean, below `lines` of the caller's own; `refused` if there are any."""
    axes.set_axis_off()
    marks: list[tuple[Any, str]] = [(Line2D([], [], **look), label) for look, label in lines]
    marks += [
        (axes.scatter([], [], **_TRUE_PLACE), "a query, and a line to what was released"),
        (Line2D([], [], **_RING), "a released place: how many queries it answered,\nand how each"),
    ]
    marks += [(Patch(linewidth=1.0, **look), label) for label, look in _KINDS.values()]
    if refused:
        marks.append((axes.scatter([], [], **_REFUSED), "nothing released: budget exhausted"))
    handles, labels = zip(*marks, strict=True)
    axes.legend(
        handles, labels, loc="upper left", frameon=False, borderaxespad=0.0, labelspacing=spacing
    )
