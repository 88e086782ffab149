"""What the page draws for a user and a day: few enough points to draw, numbers over all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hereish.core.types import Bools, Floats, Ints
from hereish.viewer.pairs import UNKNOWN, Pairs
from hereish.viewer.spending import DAY_MS, Budget

MOST_DRAWN = 5_000  # points of a view
MOST_VIEWS = 400  # of a page, and together they draw no more than so many points:
_MOST_TOGETHER, _LEAST_DRAWN = 500_000, 200
TIMES_TOLD = 12  # of those that one reported place served
_MOST_BINS = 40


def views(pairs: Pairs) -> tuple[list[dict[str, Any]], int]:
    """The views of a page, ready for JSON, and how many days were left out because of MOST_VIEWS.

    Each user has a view a day, and then one of all days if there are several.
    """
    spans = list(_spans(pairs))
    kept = spans[:MOST_VIEWS]
    most = min(MOST_DRAWN, max(_LEAST_DRAWN, _MOST_TOGETHER // max(len(kept), 1)))
    made = [_view(pairs, slice(begin, end), day, most) for begin, end, day in kept]
    left_out = sum(day is not None for _, _, day in spans[MOST_VIEWS:])
    return made, left_out


def _spans(pairs: Pairs) -> Iterator[tuple[int, int, int | None]]:
    """Begin and end of the rows of each view, and its day."""
    day = pairs.at_ms // DAY_MS
    edges = np.flatnonzero((np.diff(pairs.user) != 0) | (np.diff(day) != 0)) + 1
    bounds = np.concatenate([[0], edges, [len(day)]]).tolist()
    for _, group in itertools.groupby(itertools.pairwise(bounds), lambda b: pairs.user[b[0]]):
        days = list(group)
        for begin, end in days:
            yield begin, end, int(day[begin])
        if len(days) > 1:
            yield days[0][0], days[-1][1], None


def _view(pairs: Pairs, rows: slice, day: int | None, most: int) -> dict[str, Any]:
    row, at_ms = pairs.row[rows], pairs.at_ms[rows]
    mine = row[row >= 0]  # reports
    about_lon = float(pairs.lon[rows][0])
    error_m, kind = pairs.error_m[mine], pairs.kind[mine]
    spots = pairs.reported_lat[mine] + 1j * _beside(pairs.reported_lon[mine], about_lon)
    drawn = _drawn(row >= 0, most)
    served = row[drawn] >= 0
    shown = row[drawn][served] - mine[0] if len(mine) else mine  # reports of a view are neighbours
    places, place = _places(spots, kind, at_ms[row >= 0], shown)
    return {
        "user": int(pairs.user[rows][0]),
        "day": None if day is None else _named(day),
        "points": len(row),
        "reports": len(mine),
        "kinds": np.bincount(kind, minlength=UNKNOWN + 1).tolist(),
        "mean_m": float(error_m.mean()) if len(mine) else None,
        "within_90_m": float(np.quantile(error_m, 0.9)) if len(mine) else None,
        "bins": _bins(error_m),
        "true": {
            "at": at_ms[drawn].tolist(),
            "lat": _rounded(pairs.lat[rows][drawn], 6),
            "lon": _rounded(_beside(pairs.lon[rows][drawn], about_lon), 6),
            # Of the report: the number of its place, its kind, how far off it was. None: none.
            "place": _or_none(served, place.tolist()),
            "kind": _or_none(served, kind[shown].tolist()),
            "error_m": _or_none(served, _rounded(error_m[shown], 1)),
        },
        "places": places,
        "budget": pairs.budget
        and _steps(pairs.budget.take(mine), at_ms[row >= 0], int(at_ms[-1]), most),
    }


def _drawn(has_report: Bools, most: int) -> Ints:
    """Which points to draw: half of them for reports, which may be few among many points."""
    reported = np.flatnonzero(has_report)
    everything = np.arange(len(has_report))
    if len(everything) <= most:
        return everything
    return np.union1d(_thinned(reported, most // 2), _thinned(everything, most // 2))


def _thinned(rows: Ints, most: int) -> Ints:
    """At most so many of them, evenly, the first and the last included."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def _places(
    spots: NDArray[np.complex128], kind: Ints, at_ms: Ints, shown: Ints
) -> tuple[dict[str, Any], Ints]:
    """The reported places of these reports, whom each served when; and the number of each's."""
    found, which, count = np.unique(spots, return_inverse=True, return_counts=True)
    grouped, end = np.argsort(which, kind="stable"), np.cumsum(count)
    kinds = np.bincount(which * (UNKNOWN + 1) + kind, minlength=len(found) * (UNKNOWN + 1))
    kept, number = np.unique(which[shown], return_inverse=True)
    told = [at_ms[grouped[end[k] - count[k] :][: min(count[k], TIMES_TOLD)]].tolist() for k in kept]
    columns = {
        "lat": _rounded(found.real[kept], 6),
        "lon": _rounded(found.imag[kept], 6),
        "count": count[kept].tolist(),
        "kinds": kinds.reshape(-1, UNKNOWN + 1)[kept].tolist(),
        "times": told,  # the first few
    }
    return columns, number


def _steps(budget: Budget, at_ms: Ints, last_ms: int, most: int) -> dict[str, Any]:
    """What was spent as a line of steps. It falls to nothing when a new window begins."""
    at: list[int | None] = []
    spent: list[float | None] = []
    few = _thinned(np.arange(len(at_ms)), most)
    few = few[np.argsort(budget.window[few], kind="stable")]
    windows = np.split(few, np.flatnonzero(np.diff(budget.window[few])) + 1)
    for rows in windows if len(few) else []:
        before = float(budget.before[rows[0]])
        begin = int(at_ms[rows[0]])
        if budget.midnight_ms is not None and before == 0.0:
            begin = int(budget.midnight_ms[rows[0]])
        at += [begin, *at_ms[rows].tolist()]
        spent += [before, *_rounded(budget.after[rows], 6)]
        if budget.midnight_ms is None:
            at.append(None)  # a gap: nobody knows when the next one begins
            spent.append(None)
        else:
            at.append(int(budget.midnight_ms[rows[0]]) + DAY_MS)
            spent.append(0.0)
    if at:
        at[-1], spent[-1] = last_ms, spent[-2]  # what is left stays until the end
    most_spent = float(budget.after.max()) if len(at_ms) else 0.0
    return {"at": at, "spent": spent, "most_spent": most_spent, "shares": budget.shares}


def _bins(error_m: Floats) -> dict[str, Any]:
    """A histogram in bins of a round width."""
    largest_m = max(float(error_m.max()) if len(error_m) else 0.0, 1.0)
    power_m = 10.0 ** math.floor(math.log10(largest_m / _MOST_BINS))
    width_m = next(n * power_m for n in (1, 2, 5, 10) if n * power_m * _MOST_BINS > largest_m)
    counts = np.bincount((error_m / width_m).astype(np.int64))
    return {"width_m": width_m, "counts": counts.tolist()}


def _beside(lon: Floats, about: float) -> Floats:
    """The same meridians, written so that none is half a turn away: a map has no seam at 180."""
    return np.asarray(about + (lon - about + 180.0) % 360.0 - 180.0)


def _rounded(values: Floats, decimals: int) -> list[float]:
    rounded: list[float] = (np.round(values, decimals) + 0.0).tolist()
    return rounded


def _or_none(given: Bools, values: list[Any]) -> list[Any]:
    """The values in turn where there is one."""
    following = iter(values)
    return [next(following) if here else None for here in given.tolist()]


def _named(day: int) -> str:
    date = datetime.fromtimestamp(day * DAY_MS / 1000, UTC)
    return f"{date:%A} {date.day} {date:%B} {date.year}"
