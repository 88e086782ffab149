"""Rows that a file has and nobody can use: impossible places, times that are out of order."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from hereish.core.types import Ints
from hereish.errors import PointError
from hereish.traces.discovery import Source
from hereish.traces.summary import Tally
from hereish.traces.table import FAULTS, Fault, Ids, Piece, Unreadable

_FIRST_US, _LAST_US = (
    round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000 for year in (1900, 2400)
)
YEAR_US = 365 * 86_400_000_000
_PLACES = {"geojson": "feature", "parquet": "row", "geoparquet": "row"}  # others have lines
_Faults = NDArray[np.uint8]


def usable(source: Source, piece: Piece, fault: _Faults, drop_bad: bool, tally: Tally) -> Piece:
    """The rows without a fault. Raises for the first that has one, unless they shall be dropped."""
    bad = np.flatnonzero(fault)
    if not len(bad):
        return piece
    if not drop_bad:
        raise bad_row(source, int(piece.line[bad[0]]), Fault(int(fault[bad[0]])))
    for code, count in enumerate(np.bincount(fault).tolist()):
        if code and count:
            tally.left_out(FAULTS[Fault(code)], count)
    return piece.take(fault == Fault.NONE)


def bad_row(source: Source, line: int, fault: Fault) -> PointError:
    """What is said of a row that cannot be used."""
    return PointError(
        f"{source.name}, {_PLACES.get(source.format, 'line')} {line}: {FAULTS[fault]}; "
        "nothing was released (--drop-bad leaves such points out)"
    )


def unreadable(source: Source, why: Unreadable, drop_bad: bool, tally: Tally) -> None:
    """Count a file whose rest cannot be read. Raises, unless such shall be dropped."""
    place = source.name if why.line is None else f"{source.name}, line {why.line}"
    if not drop_bad:
        raise PointError(
            f"{place}: {why.why}; nothing was released (--drop-bad goes on with what can be read)"
        )
    tally.unreadable.append(f"{place}: {why.why}")


def row_faults(piece: Piece) -> _Faults:
    """The fault of each row, whatever the others are: the reader's, or one of place or time."""
    fault = piece.fault.copy()
    _places(piece, fault)
    early, late = piece.at_us < _FIRST_US, piece.at_us > _LAST_US
    fault[(early | late) & (fault == Fault.NONE)] = Fault.YEAR
    return fault


def time_faults(trace: Ints, at_us: Ints, order: Ints) -> _Faults:
    """Faults of time: of several at one time in a trace all but the first, and jumps of its clock.

    `order` has the rows by trace and time; of those at one time, the first in it is the one that
    stays. It is public, so what stays does not depend on the order of the input.
    """
    fault = np.zeros(len(trace), dtype=np.uint8)
    own = trace[order]
    begins = _begins(own)
    if len(np.unique(own[begins])) < len(begins):  # traces of several files are mixed
        order = order[np.argsort(own, kind="stable")]
        own = trace[order]
        begins = _begins(own)
    times = at_us[order]
    same = own[1:] == own[:-1]
    fault[order[1:][same & (times[1:] == times[:-1])]] = Fault.TWICE
    far = same & (times[1:] - times[:-1] > YEAR_US)
    ends = np.append(begins[1:], len(own))
    for i in np.unique(np.searchsorted(begins, np.flatnonzero(far), side="right") - 1).tolist():
        span = order[begins[i] : ends[i]]
        low, high = _era(at_us[span], None)
        fault[span[(at_us[span] < low) | (at_us[span] > high)]] = Fault.JUMP
    return fault


class Checker:
    """Checks the pieces of one file in their order; remembers where each of its traces stands."""

    def __init__(self) -> None:
        self._last_us: dict[tuple[object, object], int] = {}

    def faults(self, piece: Piece, in_order: bool = True) -> _Faults:
        """The fault of each row: the reader's, or one of place, of time or, if asked, of order."""
        fault = row_faults(piece)
        if in_order:
            self._order(piece, fault)
        return fault

    def _order(self, piece: Piece, fault: _Faults) -> None:
        """In each trace times rise: marks the fewest rows without which they do."""
        rows = np.flatnonzero(fault == Fault.NONE)
        rows, begins, keys = _by_trace(piece, rows)
        if not len(rows):
            return
        at_us = piece.at_us[rows]
        last = [self._last_us.get(key) for key in keys]
        step = np.diff(at_us, prepend=at_us[0])
        step[begins] = [
            1 if us is None else at_us[i] - us for i, us in zip(begins, last, strict=True)
        ]
        wild = (step < 0) | (step > YEAR_US)
        fault[rows[step == 0]] = Fault.TWICE
        ends = np.append(begins[1:], len(rows))
        for i in np.unique(np.searchsorted(begins, np.flatnonzero(wild), side="right") - 1):
            span = slice(begins[i], ends[i])
            fault[rows[span]] = _trace_faults(at_us[span], last[i])
        good = fault[rows] == Fault.NONE
        standing = np.where(good, at_us, np.iinfo(np.int64).min)
        for key, latest in zip(keys, np.maximum.reduceat(standing, begins).tolist(), strict=True):
            self._last_us[key] = max(latest, self._last_us.get(key, latest))


def _places(piece: Piece, fault: _Faults) -> None:
    fine = fault == Fault.NONE
    lat_out = fine & ~(np.abs(piece.lat) <= 90.0)
    lon_out = fine & ~(np.abs(piece.lon) <= 180.0)
    fault[lon_out] = Fault.LON_RANGE
    fault[lat_out] = Fault.LAT_RANGE
    fault[lat_out & (np.abs(piece.lat) <= 180.0) & (np.abs(piece.lon) <= 90.0)] = Fault.SWAPPED


def _by_trace(piece: Piece, rows: Ints) -> tuple[Ints, Ints, list[tuple[object, object]]]:
    """The rows with those of a trace together, where each trace begins, and whose it is."""
    users, traces = (piece.user or _one(piece)), (piece.trace or _one(piece))
    key = (users.codes * len(traces.names) + traces.codes)[rows]
    begins = _begins(key)
    if len(np.unique(key[begins])) < len(begins):
        order = np.argsort(key, kind="stable")
        rows, key = rows[order], key[order]
        begins = _begins(key)
    first = rows[begins]
    return (
        rows,
        begins,
        [
            (users.names[u], traces.names[t])
            for u, t in zip(users.codes[first].tolist(), traces.codes[first].tolist(), strict=True)
        ],
    )


def _one(piece: Piece) -> Ids:
    return Ids(np.zeros(len(piece), dtype=np.int64), [None])


def _begins(key: Ints) -> Ints:
    return np.flatnonzero(np.diff(key, prepend=key[:1] - 1))


def _trace_faults(at_us: Ints, last_us: int | None) -> _Faults:
    """Faults of a trace whose clock went back or jumped, so that as many points as can be stay."""
    fault = np.zeros(len(at_us), dtype=np.uint8)
    low, high = _era(at_us, last_us)
    fault[(at_us < low) | (at_us > high)] = Fault.JUMP
    inside = np.flatnonzero(fault == Fault.NONE)
    if last_us is not None:
        fault[inside[at_us[inside] < last_us]] = Fault.ORDER
        fault[inside[at_us[inside] == last_us]] = Fault.TWICE
        inside = inside[at_us[inside] > last_us]
    rising = _longest_rise(at_us[inside].tolist())
    out = np.ones(len(inside), dtype=np.bool_)
    out[rising] = False
    fault[inside[out]] = Fault.ORDER
    same = out[1:] & (np.diff(at_us[inside]) == 0)
    fault[inside[1:][same]] = Fault.TWICE
    return fault


def _era(at_us: Ints, last_us: int | None) -> tuple[int, int]:
    """The stretch of times without a gap of a year that holds most points, or goes on from last."""
    times = np.sort(at_us if last_us is None else np.append(at_us, last_us))
    cuts = np.flatnonzero(np.diff(times) > YEAR_US) + 1
    stretches = np.split(times, cuts)
    if last_us is None:
        chosen = max(stretches, key=len)
    else:
        chosen = next(s for s in stretches if s[0] <= last_us <= s[-1])
    return int(chosen[0]), int(chosen[-1])


def _longest_rise(times: list[int]) -> list[int]:
    """Which elements make the longest strictly rising selection; of several, with earlier rows.

    From the back, so that of two that exclude each other the one that comes later is out.
    """
    heads: list[int] = []  # minus the largest first value of a rise of each length
    where: list[int] = []
    after = [-1] * len(times)
    for i in range(len(times) - 1, -1, -1):
        length = bisect_left(heads, -times[i])
        after[i] = where[length - 1] if length else -1
        if length == len(heads):
            heads.append(-times[i])
            where.append(i)
        else:
            heads[length], where[length] = -times[i], i
    chosen = []
    i = where[-1] if where else -1
    while i >= 0:
        chosen.append(i)
        i = after[i]
    return chosen
