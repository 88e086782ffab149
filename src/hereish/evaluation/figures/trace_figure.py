"""The figure of one trace: where somebody was, where they made queries, and what was released.

It shows true positions. That is for whoever may see the data, and for nobody else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hereish.core.batch import sanitize
from hereish.core.batch_results import Sanitized
from hereish.core.types import Bools, Floats, Ints, Kind
from hereish.evaluation.dataset import SILENT_S, Trajectories
from hereish.evaluation.figures.labels import add_headline, printable
from hereish.evaluation.figures.release_map import (
    ReleasedTrace,
    draw_errors,
    draw_key,
    draw_releases,
    frame_map,
)
from hereish.evaluation.figures.style import BLUE, DARK, RED, new_figure
from hereish.evaluation.sampling import Queries, sample
from hereish.evaluation.study import Study
from hereish.evaluation.study_settings import StudySettings

SIZE_IN = (12.0, 7.4)
P = 0.5
FEWEST, MOST = 8, 40  # queries of a trace that can be looked at
WARNING = "contains true positions"
_KM_PER_DEGREE = 6371.0088 * np.pi / 180.0
_PATH: dict[str, Any] = {"color": BLUE, "linewidth": 1.4, "alpha": 0.65, "zorder": 1}
_SILENT: dict[str, Any] = {
    "color": BLUE,
    "linewidth": 1.0,
    "linestyle": (0, (1, 2.5)),
    "zorder": 1,
}


@dataclass(frozen=True, eq=False)
class TraceView:
    """One trace in kilometres east and north of its start, and hours since then. It is secret."""

    name: str  # of the data set
    path_km: Floats
    silent: Bools  # whether the logger recorded nothing for a while after each fix
    releases: ReleasedTrace
    query_h: Floats
    accuracy_km: float

    def __repr__(self) -> str:
        return f"<TraceView of {len(self.query_h)} queries>"


def trace_figure(
    trajectories: Trajectories, slow: Bools, seed: int, settings: StudySettings
) -> Figure | None:
    """A trace that shows what the mechanism does; None if there is none."""
    view = choose_trace(trajectories, slow, seed, settings)
    return None if view is None else draw_view(view)


def choose_trace(
    trajectories: Trajectories, slow: Bools, seed: int, settings: StudySettings
) -> TraceView | None:
    """Sample and sanitise all trajectories, and choose one to look at.

    It is chosen by its queries and the kinds of their releases, never by how good these are.
    """
    if not len(trajectories):
        return None
    rng = Study(settings, seed=seed).rng("trace picture")
    # Each trajectory is a user of its own, so that query traces tell whose they are.
    numbered = replace(trajectories, user=np.arange(len(trajectories)), users=len(trajectories))
    queries = sample(numbered, slow, P, rng)
    if not len(queries):
        return None
    mechanism = settings.describe("fixed_utility", skip=True).build()
    noise = int(rng.integers(2**62))
    out = sanitize(mechanism, queries.points, queries.at_s, queries.offsets, seed=noise)
    best = _best_query_trace(trajectories, queries, out, settings.accuracy_m / 1000.0)
    return None if best is None else _view(trajectories, queries, out, best, settings)


def _best_query_trace(
    trajectories: Trajectories, queries: Queries, out: Sanitized, near_km: float
) -> int | None:
    """The number of the query trace that shows most: all answered, in each way, and on the move."""
    starts, counts = queries.offsets[:-1], np.diff(queries.offsets)
    hard, easy, untested = (
        np.add.reduceat(out.kind == name.value, starts, dtype=np.int64)
        for name in (Kind.HARD, Kind.EASY, Kind.UNTESTED)
    )
    query_km = _flat_km(queries.points, np.repeat(queries.points[starts], counts, axis=0))
    sides_km = np.maximum.reduceat(query_km, starts) - np.minimum.reduceat(query_km, starts)
    wide_km = sides_km.max(axis=1)
    fits = (counts >= FEWEST) & (counts <= MOST) & (hard + easy + untested == counts)
    fits &= (hard >= 2) & (easy + untested >= 2) & (wide_km >= near_km)
    if not fits.any():
        return None
    criteria = [
        easy >= 3,
        untested >= 2,
        (hard >= 3) & (hard <= 6),
        counts >= 12,
        counts <= 25,
        wide_km >= 2.0 * near_km,
        wide_km <= 4.0 * near_km,
        _stops(queries, query_km, near_km / 3.0) >= 5,
    ]
    score = np.where(fits, 2 * np.sum(criteria, axis=0), -1)
    for trace in np.flatnonzero(fits):  # rather one that did not go elsewhere without asking
        path_km = _path_km(trajectories, int(queries.user[trace]))
        score[trace] += np.ptp(path_km, axis=0).max() <= 1.3 * wide_km[trace]
    return int(np.argmax(score))


def _stops(queries: Queries, query_km: Floats, side_km: float) -> Ints:
    """In how many squares of a grid each trace has queries."""
    trace = np.repeat(np.arange(len(queries)), np.diff(queries.offsets))
    found = np.unique(np.column_stack([trace, np.floor(query_km / side_km)]), axis=0)
    return np.bincount(found[:, 0].astype(np.int64), minlength=len(queries))


def _flat_km(points: Floats, origin: Floats) -> Floats:
    """Kilometres east and north of an origin, by the scale of its latitude."""
    north, east = (points - origin).T
    east = (east + 180.0) % 360.0 - 180.0  # the short way round the earth
    shrink = np.cos(np.radians(origin[..., 0]))
    return np.asarray(np.column_stack([east * shrink, north]) * _KM_PER_DEGREE)


def _path_km(trajectories: Trajectories, number: int) -> Floats:
    points = trajectories.points[slice(*trajectories.offsets[number : number + 2])]
    return _flat_km(points, points[0])


def _view(
    trajectories: Trajectories,
    queries: Queries,
    out: Sanitized,
    best: int,
    settings: StudySettings,
) -> TraceView:
    owner = int(queries.user[best])
    fixes = slice(*trajectories.offsets[owner : owner + 2])
    rows = slice(*queries.offsets[best : best + 2])
    origin, at_s = trajectories.points[fixes][0], queries.at_s[rows]
    return TraceView(
        trajectories.name,
        _path_km(trajectories, owner),
        np.diff(trajectories.at_s[fixes]) > SILENT_S,
        ReleasedTrace(
            _flat_km(queries.points[rows], origin),
            _flat_km(out.value[rows], origin),
            out.kind[rows],
        ),
        (at_s - at_s[0]) / 3600.0,
        settings.accuracy_m / 1000.0,
    )


def draw_view(view: TraceView) -> Figure:
    """The map, what its marks mean, and the error of each release."""
    figure = new_figure(SIZE_IN)
    layout: Any = [["map", "key"], ["map", "errors"]]
    axes = figure.subplot_mosaic(layout, width_ratios=(1.55, 1.0), height_ratios=(0.75, 1.0))
    _draw_map(axes["map"], view)
    draw_key(
        axes["key"],
        [(_PATH, "where somebody was"), (_SILENT, "where the logger was silent")],
    )
    _draw_errors(axes["errors"], view)
    kind = view.releases.kind
    below = (
        f"Fixed utility {view.accuracy_km:g} km with skip, p = {P:g}: {len(kind)} queries in "
        f"{view.query_h[-1]:.1f} hours, answered with {np.count_nonzero(kind == Kind.HARD)} places"
    )
    add_headline(figure, f"A trace of {printable(view.name, 60)}", below)
    figure.text(0.99, 0.985, WARNING, ha="right", va="top", color=RED, fontweight="bold")
    return figure


def _draw_map(axes: Axes, view: TraceView) -> None:
    releases = view.releases
    side_km = frame_map(
        axes, np.concatenate([view.path_km, releases.true_km, releases.released_km])
    )
    for part in np.split(view.path_km, np.flatnonzero(view.silent) + 1):
        axes.plot(*part.T, label="path", **_PATH)
    for row in np.flatnonzero(view.silent):
        axes.plot(*view.path_km[row : row + 2].T, label="silent", **_SILENT)
    draw_releases(axes, releases, 0.014 * side_km)


def _draw_errors(axes: Axes, view: TraceView) -> None:
    axes.set_title("Error of each report, km", loc="left")
    draw_errors(axes, view.query_h, view.releases)
    axes.axhline(view.accuracy_km, color=DARK, linewidth=1.0, linestyle=(0, (5, 2.5)), zorder=1)
    axes.set_ylim(0.0, 1.15 * max(float(view.releases.error_km.max()), view.accuracy_km))
    axes.annotate(
        f"fresh noise is within {view.accuracy_km:g} km nine times out of ten",
        (0.0, view.accuracy_km),
        xycoords=axes.get_yaxis_transform(),
        xytext=(4.0, 3.0),
        textcoords="offset points",
        color=DARK,
        fontsize=9.0,
    )
    axes.set_xlabel("hours since the first query")
