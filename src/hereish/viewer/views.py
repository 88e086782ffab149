"""What the page draws for a user and a day: few enough points to draw, numbers over all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hereish.core.types import Bools, Floats, Ints, Kind
from hereish.traces.displacement import round_up_m
from hereish.traces.table import RELEASED_KINDS
from hereish.viewer.pairs import UNKNOWN_KIND, Pairs
from hereish.viewer.spending import DAY_MS, WindowSpending

MOST_DRAWN = 5_000  # points of a view
MOST_VIEWS = 400  # of a page, and together they draw no more than so many points:
_MOST_TOGETHER, _LEAST_DRAWN = 500_000, 200
MOST_TIMES = 12  # that are listed of those that one reported place was reported at
_MOST_BINS = 40
_HARD = RELEASED_KINDS.index(Kind.HARD)


def build_views(pairs: Pairs) -> tuple[list[dict[str, Any]], int]:
    """The views of a page, ready for JSON, and how many days were left out because of MOST_VIEWS.

    Each user has one view per day, and then one of all days if there are several.
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
    reports = row[row >= 0]
    about_lon = float(pairs.lon[rows][0])
    error_m, kind = pairs.error_m[reports], pairs.kind[reports]
    positions = pairs.reported_lat[reports] + 1j * _unwrap(pairs.reported_lon[reports], about_lon)
    thinned = pairs.thinned[rows]
    fresh = np.flatnonzero(row >= 0)[kind == _HARD]
    drawn = _choose_drawn(row >= 0, (fresh, np.flatnonzero((row < 0) & ~thinned)), most)
    has_report = row[drawn] >= 0
    # Reports of a view are neighbours.
    drawn_reports = row[drawn][has_report] - reports[0] if len(reports) else reports
    places, place = _places(positions, kind, at_ms[row >= 0], drawn_reports)
    return {
        "user": int(pairs.user[rows][0]),
        "day": None if day is None else _day_name(day),
        "points": len(row),
        "reports": len(reports),
        "thinned": int(np.count_nonzero(thinned)),
        "kinds": np.bincount(kind, minlength=UNKNOWN_KIND + 1).tolist(),
        "mean_m": float(error_m.mean()) if len(reports) else None,
        # As the summary of the command counts: nine out of ten, and none in between.
        "within_90_m": round_up_m(np.quantile(error_m, 0.9, method="inverted_cdf"))
        if len(reports)
        else None,
        "bins": _bins(error_m),
        "true": {
            "at": at_ms[drawn].tolist(),
            "lat": _rounded(pairs.lat[rows][drawn], 6),
            "lon": _rounded(_unwrap(pairs.lon[rows][drawn], about_lon), 6),
            # Of the report: the number of its place, its kind, how far off it was. None: none.
            "place": _or_none(has_report, place.tolist()),
            "kind": _or_none(has_report, kind[drawn_reports].tolist()),
            "error_m": _or_none(has_report, _rounded(error_m[drawn_reports], 1)),
            "thinned": thinned[drawn].astype(np.int64).tolist(),
        },
        "places": places,
        "budget": pairs.spending
        and _steps(pairs.spending.take(reports), at_ms[row >= 0], int(at_ms[-1]), most),
    }


def _choose_drawn(has_report: Bools, few: Sequence[Ints], most: int) -> Ints:
    """Which points to draw: also of those that are `few` among many, such as fresh noise.

    Of many points evenly spread ones alone would miss them, or show gaps where there are none.
    """
    everything = np.arange(len(has_report))
    if len(everything) <= most:
        return everything
    chosen = np.unique(np.concatenate([_thinned(rows, most // 8) for rows in few]))
    chosen = np.union1d(chosen, _thinned(np.flatnonzero(has_report), most // 2 - len(chosen)))
    return np.union1d(chosen, _thinned(everything, most - len(chosen)))


def _thinned(rows: Ints, most: int) -> Ints:
    """At most so many of them, evenly, the first and the last included."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def _places(
    positions: NDArray[np.complex128], kind: Ints, at_ms: Ints, drawn: Ints
) -> tuple[dict[str, Any], Ints]:
    """The different reported places with their times, and the number of each drawn report's."""
    places, which, count = np.unique(positions, return_inverse=True, return_counts=True)
    grouped, end = np.argsort(which, kind="stable"), np.cumsum(count)
    kinds = np.bincount(
        which * (UNKNOWN_KIND + 1) + kind, minlength=len(places) * (UNKNOWN_KIND + 1)
    )
    kept, number = np.unique(which[drawn], return_inverse=True)
    times = [
        at_ms[grouped[end[k] - count[k] :][: min(count[k], MOST_TIMES)]].tolist() for k in kept
    ]
    columns = {
        "lat": _rounded(places.real[kept], 6),
        "lon": _rounded(places.imag[kept], 6),
        "count": count[kept].tolist(),
        "kinds": kinds.reshape(-1, UNKNOWN_KIND + 1)[kept].tolist(),
        "times": times,  # the first few
    }
    return columns, number


def _steps(spending: WindowSpending, at_ms: Ints, last_ms: int, most: int) -> dict[str, Any]:
    """What was spent as a step function. It falls to zero when a new window begins."""
    at: list[int | None] = []
    spent: list[float | None] = []
    few = _thinned(np.arange(len(at_ms)), most)
    few = few[np.argsort(spending.window[few], kind="stable")]
    windows = np.split(few, np.flatnonzero(np.diff(spending.window[few])) + 1)
    for rows in windows if len(few) else []:
        before = float(spending.before[rows[0]])
        begin = int(at_ms[rows[0]])
        if spending.midnight_ms is not None and before == 0.0:
            begin = int(spending.midnight_ms[rows[0]])
        at += [begin, *at_ms[rows].tolist()]
        spent += [before, *_rounded(spending.after[rows], 6)]
        if spending.midnight_ms is None:
            at.append(None)  # a gap: it is unknown when the next one begins
            spent.append(None)
        else:
            at.append(int(spending.midnight_ms[rows[0]]) + DAY_MS)
            spent.append(0.0)
    if at:
        at[-1], spent[-1] = last_ms, spent[-2]  # the last value holds until the end
    most_spent = float(spending.after.max()) if len(at_ms) else 0.0
    return {"at": at, "spent": spent, "most_spent": most_spent, "shares": spending.shares}


def _bins(error_m: Floats) -> dict[str, Any]:
    """A histogram in bins of a round width."""
    largest_m = max(float(error_m.max()) if len(error_m) else 0.0, 1.0)
    power_m = 10.0 ** math.floor(math.log10(largest_m / _MOST_BINS))
    width_m = next(n * power_m for n in (1, 2, 5, 10) if n * power_m * _MOST_BINS > largest_m)
    counts = np.bincount((error_m / width_m).astype(np.int64))
    return {"width_m": width_m, "counts": counts.tolist()}


def _unwrap(lon: Floats, about: float) -> Floats:
    """The same meridians, none more than 180 degrees from `about`, so that a map has no seam."""
    return np.asarray(about + (lon - about + 180.0) % 360.0 - 180.0)


def _rounded(values: Floats, decimals: int) -> list[float]:
    rounded: list[float] = (np.round(values, decimals) + 0.0).tolist()
    return rounded


def _or_none(given: Bools, values: list[Any]) -> list[Any]:
    """The values one after the other where one is given, None elsewhere."""
    following = iter(values)
    return [next(following) if here else None for here in given.tolist()]


def _day_name(day: int) -> str:
    date = datetime.fromtimestamp(day * DAY_MS / 1000, UTC)
    return f"{date:%A} {date.day} {date:%B} {date.year}"
