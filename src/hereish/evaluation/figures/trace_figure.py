"""The picture of one trace: where somebody was, where they asked, and what was reported.

It shows true positions. That is for whoever may see the data, and for nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch, Wedge
from numpy.typing import NDArray

from hereish.core.batch import Sanitized, sanitize
from hereish.core.mechanism import fixed_utility
from hereish.core.skip import SkipBySpeed
from hereish.core.types import Bools, Floats, Ints
from hereish.evaluation.configurations import Setting
from hereish.evaluation.dataset import SILENT_S, Trajectories
from hereish.evaluation.figures.labels import headline, plain
from hereish.evaluation.sampling import Queries, sample
from hereish.evaluation.study import Study

SIZE_IN, DPI = (12.0, 7.4), 150
P = 0.5
FEWEST, MOST = 8, 40  # queries of a trace that can be looked at
WARNING = "contains true positions"
_KM_PER_DEGREE = 6371.0088 * np.pi / 180.0
_TRUE, _ASKED, _NOISE, _AGAIN, _DARK = "#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#404040"
_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "hard": ("fresh noise", {"facecolor": _NOISE, "edgecolor": _NOISE}),
    "easy": ("the last one again, it passed the test", {"facecolor": _AGAIN, "edgecolor": _AGAIN}),
    "untested": ("the last one again, test skipped", {"facecolor": "#FDEFD2", "edgecolor": _AGAIN}),
}
_PATH: dict[str, Any] = {"color": _TRUE, "linewidth": 1.4, "alpha": 0.65, "zorder": 1}
_SILENT: dict[str, Any] = {
    "color": _TRUE,
    "linewidth": 1.0,
    "linestyle": (0, (1, 2.5)),
    "zorder": 1,
}
_QUERY: dict[str, Any] = {"color": _ASKED, "edgecolors": _TRUE, "s": 26, "zorder": 4}
_RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 11,
    "markerfacecolor": "white",
    "markeredgecolor": _NOISE,
    "markeredgewidth": 4,
    "linestyle": "none",
}
_NUMBER: dict[str, Any] = {
    "ha": "center",
    "va": "center_baseline",
    "zorder": 6,
    "fontsize": 9,
    "fontweight": "bold",
    "color": _DARK,
}
_TIE: dict[str, Any] = {"color": _DARK, "linewidth": 0.7, "alpha": 0.3, "zorder": 2}


@dataclass(frozen=True, eq=False)
class Trace:
    """One trace in kilometres east and north of its start, and hours since then. It is secret."""

    name: str
    path_km: Floats
    silent: Bools  # whether the logger said nothing after each fix
    asked_km: Floats
    asked_h: Floats
    reported_km: Floats
    kind: NDArray[np.str_]
    accuracy_km: float

    def __repr__(self) -> str:
        return f"<Trace of {len(self.asked_h)} queries>"


def trace_figure(given: Trajectories, slow: Bools, seed: int, setting: Setting) -> Figure | None:
    """A trace that shows what the mechanism does; None if there is none."""
    trace = telling(given, slow, seed, setting)
    return None if trace is None else picture(trace)


def telling(given: Trajectories, slow: Bools, seed: int, setting: Setting) -> Trace | None:
    """Sample and sanitise all trajectories, and choose one to look at.

    It is chosen by what was asked and how it was answered, never by how good the answers are.
    """
    if not len(given):
        return None
    rng = Study(setting, seed=seed).rng("trace picture")
    # Each trajectory is a user of its own, so that query traces tell whose they are.
    numbered = replace(given, user=np.arange(len(given)), users=len(given))
    queries = sample(numbered, slow, P, rng)
    if not len(queries):
        return None
    skip = SkipBySpeed(kmh=setting.skip_kmh)
    mechanism = fixed_utility(setting.privacy, setting.accuracy_m, skip=skip)
    noise = int(rng.integers(2**62))
    out = sanitize(mechanism, queries.points, queries.at_s, queries.offsets, seed=noise)
    best = _choice(given, queries, out, setting.accuracy_m / 1000.0)
    return None if best is None else _trace(given, queries, out, best, setting)


def _choice(given: Trajectories, queries: Queries, out: Sanitized, near_km: float) -> int | None:
    """The number of the query trace that tells most: all answered, in each way, and on the move."""
    starts, counts = queries.offsets[:-1], np.diff(queries.offsets)
    hard, easy, untested = (
        np.add.reduceat(out.kind == name, starts, dtype=np.int64) for name in _KINDS
    )
    asked_km = _flat_km(queries.points, np.repeat(queries.points[starts], counts, axis=0))
    sides_km = np.maximum.reduceat(asked_km, starts) - np.minimum.reduceat(asked_km, starts)
    wide_km = sides_km.max(axis=1)
    fits = (counts >= FEWEST) & (counts <= MOST) & (hard + easy + untested == counts)
    fits &= (hard >= 2) & (easy + untested >= 2) & (wide_km >= near_km)
    if not fits.any():
        return None
    liked = [
        easy >= 3,
        untested >= 2,
        (hard >= 3) & (hard <= 6),
        counts >= 12,
        counts <= 25,
        wide_km >= 2.0 * near_km,
        wide_km <= 4.0 * near_km,
        _stops(queries, asked_km, near_km / 3.0) >= 5,
    ]
    score = np.where(fits, 2 * np.sum(liked, axis=0), -1)
    for trace in np.flatnonzero(fits):  # rather one that did not go elsewhere without asking
        path_km = _path_km(given, int(queries.user[trace]))
        score[trace] += np.ptp(path_km, axis=0).max() <= 1.3 * wide_km[trace]
    return int(np.argmax(score))


def _stops(queries: Queries, asked_km: Floats, side_km: float) -> Ints:
    """In how many squares of a grid each trace has queries."""
    trace = np.repeat(np.arange(len(queries)), np.diff(queries.offsets))
    found = np.unique(np.column_stack([trace, np.floor(asked_km / side_km)]), axis=0)
    return np.bincount(found[:, 0].astype(np.int64), minlength=len(queries))


def _flat_km(points: Floats, origin: Floats) -> Floats:
    """Kilometres east and north of an origin, by the scale of its latitude."""
    north, east = (points - origin).T
    east = (east + 180.0) % 360.0 - 180.0  # the short way round the earth
    shrink = np.cos(np.radians(origin[..., 0]))
    return np.asarray(np.column_stack([east * shrink, north]) * _KM_PER_DEGREE)


def _path_km(given: Trajectories, number: int) -> Floats:
    points = given.points[slice(*given.offsets[number : number + 2])]
    return _flat_km(points, points[0])


def _trace(
    given: Trajectories, queries: Queries, out: Sanitized, best: int, setting: Setting
) -> Trace:
    whose = int(queries.user[best])
    fixes = slice(*given.offsets[whose : whose + 2])
    rows = slice(*queries.offsets[best : best + 2])
    origin, at_s = given.points[fixes][0], queries.at_s[rows]
    return Trace(
        given.name,
        _path_km(given, whose),
        np.diff(given.at_s[fixes]) > SILENT_S,
        _flat_km(queries.points[rows], origin),
        (at_s - at_s[0]) / 3600.0,
        _flat_km(out.value[rows], origin),
        out.kind[rows],
        setting.accuracy_m / 1000.0,
    )


def picture(trace: Trace) -> Figure:
    """The map, what its marks mean, and how far off each report was."""
    room = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.09)
    figure = Figure(figsize=SIZE_IN, dpi=DPI, layout=room)
    places: Any = [["map", "key"], ["map", "errors"]]
    axes = figure.subplot_mosaic(places, width_ratios=(1.55, 1.0), height_ratios=(0.75, 1.0))
    _map(axes["map"], trace)
    _key(axes["key"])
    _errors(axes["errors"], trace)
    noises = np.count_nonzero(trace.kind == "hard")
    words = (
        f"Fixed utility {trace.accuracy_km:g} km with skip, p = {P:g}: {len(trace.kind)} queries "
        f"in {trace.asked_h[-1]:.1f} hours, answered with {noises} places"
    )
    headline(figure, f"A trace of {plain(trace.name, 60)}", words)
    figure.text(0.99, 0.985, WARNING, ha="right", va="top", color=_NOISE, fontweight="bold")
    return figure


def _map(axes: Axes, trace: Trace) -> None:
    every = np.concatenate([trace.path_km, trace.asked_km, trace.reported_km])
    low, high = every.min(axis=0), every.max(axis=0)
    left, bottom = (low + high) / 2.0 - (side := 1.18 * float((high - low).max())) / 2.0
    axes.set(xlim=(left, left + side), ylim=(bottom, bottom + side), xticks=[], yticks=[])
    axes.set_aspect("equal")
    axes.spines[:].set_color("#C4C4C4")
    for part in np.split(trace.path_km, np.flatnonzero(trace.silent) + 1):
        axes.plot(*part.T, label="path", **_PATH)
    for row in np.flatnonzero(trace.silent):
        axes.plot(*trace.path_km[row : row + 2].T, label="silent", **_SILENT)
    for ends in np.stack([trace.asked_km, trace.reported_km], axis=1):
        axes.plot(*ends.T, label="tie", **_TIE)
    axes.scatter(*trace.asked_km.T, label="asked", **_QUERY)
    served = np.split(np.arange(len(trace.kind)), np.flatnonzero(trace.kind == "hard")[1:])
    for rows in sorted(served, key=len, reverse=True):  # the smaller above the larger
        _report(axes, trace.reported_km[rows[0]], trace.kind[rows].tolist(), 0.014 * side)
    _scale(axes, left + 0.04 * side, bottom + 0.04 * side, side)


def _report(axes: Axes, place_km: Floats, kinds: Sequence[str], small_km: float) -> None:
    """A place that was reported: a slice for each query that it answered, clockwise."""
    x, y = place_km.tolist()
    reach_km = small_km * (1.0 + 0.45 * np.sqrt(len(kinds)))
    axes.add_patch(Circle((x, y), 1.12 * reach_km, color="white", zorder=5))
    step = 360.0 / len(kinds)
    for i, kind in enumerate(kinds):
        look: dict[str, Any] = {"linewidth": 1.0, "zorder": 5, "label": kind} | _KINDS[kind][1]
        axes.add_patch(Wedge((x, y), reach_km, 90.0 - (i + 1) * step, 90.0 - i * step, **look))
    axes.add_patch(Circle((x, y), 0.55 * reach_km, color="white", zorder=5))
    axes.text(x, y, str(len(kinds)), **_NUMBER)


def _scale(axes: Axes, x: float, y: float, side_km: float) -> None:
    km = max(
        (n for n in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if n <= side_km / 4.0), default=0.1
    )
    axes.plot(
        [x, x + km], [y, y], color="black", linewidth=3.0, solid_capstyle="butt", label="scale"
    )
    axes.text(x, y + 0.012 * side_km, f"{km:g} km", va="bottom")


def _key(axes: Axes) -> None:
    axes.set_axis_off()
    marks: list[tuple[Any, str]] = [
        (Line2D([], [], **_PATH), "where somebody was"),
        (Line2D([], [], **_SILENT), "where the logger was silent"),
        (axes.scatter([], [], **_QUERY), "a query, and a line to what was reported"),
        (Line2D([], [], **_RING), "a reported place: how many queries it answered,\nand how each"),
    ]
    marks += [(Patch(linewidth=1.0, **look), words) for words, look in _KINDS.values()]
    handles, words = zip(*marks, strict=True)
    axes.legend(
        handles, words, loc="upper left", frameon=False, borderaxespad=0.0, labelspacing=1.0
    )


def _errors(axes: Axes, trace: Trace) -> None:
    axes.set_title("Error of each report, km", loc="left")
    error_km = np.hypot(*(trace.reported_km - trace.asked_km).T)
    for name, (_, look) in _KINDS.items():
        rows = trace.kind == name
        axes.scatter(
            trace.asked_h[rows], error_km[rows], s=40, clip_on=False, zorder=3, label=name, **look
        )
    axes.axhline(trace.accuracy_km, color=_DARK, linewidth=1.0, linestyle=(0, (5, 2.5)), zorder=1)
    axes.set_ylim(0.0, 1.15 * max(float(error_km.max()), trace.accuracy_km))
    words = f"fresh noise is within {trace.accuracy_km:g} km nine times out of ten"
    axes.annotate(
        words,
        (0.0, trace.accuracy_km),
        xycoords=axes.get_yaxis_transform(),
        xytext=(4.0, 3.0),
        textcoords="offset points",
        color=_DARK,
        fontsize=9.0,
    )
    axes.set_xlabel("hours since the first query")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E8E8E8", linewidth=0.8)
    axes.set_axisbelow(True)
