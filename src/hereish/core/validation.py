"""What comes from outside, checked before it is used: points, times, and runs to go on from.

An error about points names the row and never the point. What a run says was spent decides what may
still be released, so every field of it is looked at.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from hereish.core.part_calls import call_part
from hereish.core.run import NO_WINDOW, Run
from hereish.core.spaces import find_point_outside
from hereish.core.types import Bools, Floats, Ints, all_finite
from hereish.core.windows import check_years
from hereish.errors import ParameterError, PointError

if TYPE_CHECKING:
    from hereish.core.mechanism import PredictiveMechanism

# The year 5138: beyond it, milliseconds were given for seconds.
LATEST_S = 1e11
_CACHED = 1 << 14  # points that are checked at a time, so that they stay in cache


def checked_point(m: PredictiveMechanism, x: Any) -> Floats:
    """The secret as one row, or an error that does not contain it."""
    try:
        masked = np.ma.is_masked(x)
        point = np.array(x, dtype=np.float64).reshape(1, -1)
    except Exception:  # noqa: BLE001  # whatever it was, its text may hold the point
        point = None
    if point is None:  # not raised above, where the error would carry one that holds the point
        raise PointError(f"a point must be {m.dim} number(s); nothing was spent")
    if masked:
        raise PointError("the point is masked; nothing was spent")
    if point.shape[1] != m.dim:
        raise PointError(
            f"a point must be {m.dim} number(s), found {point.shape[1]}; nothing was spent"
        )
    for (_, low, high), value in zip(m.space.coordinates, point[0].tolist(), strict=True):
        if not low <= value <= high:
            _, reason = find_point_outside(m.space, point) or (0, "it is not in the space")
            raise PointError(f"bad point: {reason}; nothing was spent")
    return point


def checked_time(at: datetime) -> Floats:
    """A public time as Unix seconds."""
    if not isinstance(at, datetime):
        raise PointError(f"at must be a datetime, found {type(at).__name__}; nothing was spent")
    try:
        naive = at.tzinfo is None or at.utcoffset() is None
        seconds = float(at.timestamp())
    except Exception:  # noqa: BLE001  # years that no clock has; and things that pass for datetimes
        naive, seconds = False, math.nan
    if naive:
        raise PointError(
            "at must say its time zone (datetime(…, tzinfo=UTC)), found a naive datetime; "
            "nothing was spent"
        )
    if not abs(seconds) <= LATEST_S:  # NaN is not
        raise PointError("at must be a time of a clock, found none; nothing was spent")
    return np.array([seconds])


def trace_arrays(
    m: PredictiveMechanism, points: ArrayLike, at_s: ArrayLike, offsets: ArrayLike
) -> tuple[Floats, Floats, Ints]:
    """The input as arrays that fit each other: points, times, and where traces begin and end."""
    masked = None
    try:
        for given in (points, at_s):
            if masked is None and np.ma.is_masked(given):
                hidden = np.atleast_1d(np.ma.getmaskarray(given))  # type: ignore[arg-type]  # any array
                masked = int(np.flatnonzero(hidden.reshape(len(hidden), -1).any(axis=1))[0])
        x = np.ascontiguousarray(points, dtype=np.float64)
        times = np.ascontiguousarray(at_s, dtype=np.float64)
    except Exception:  # noqa: BLE001  # whatever it was, its text may hold a point
        x = None
    if x is None:  # not raised above, where the error would carry one that holds a point
        raise PointError("points and at_s must be arrays of numbers")
    if masked is not None:
        raise PointError(f"row {masked}: part of it is masked; nothing was released")
    if x.ndim == 1 and m.dim == 1:
        x = x[:, None]
    if x.ndim != 2 or x.shape[1] != m.dim:
        raise ParameterError(f"points must have shape (n, {m.dim}), found {x.shape}")
    if times.shape != (len(x),):
        raise ParameterError(f"at_s must have shape ({len(x)},), found {times.shape}")
    try:
        ends = np.asarray(offsets)
    except ValueError:
        ends = np.empty(0)
    if ends.ndim != 1 or ends.dtype.kind not in "iu" or len(ends) == 0:
        raise ParameterError("offsets must be whole numbers: 0, then where each trace ends")
    ends = ends.astype(np.int64)
    if ends[0] != 0 or ends[-1] != len(x) or (np.diff(ends) < 0).any():
        raise ParameterError(f"offsets must start at 0, never fall, and end at {len(x)}")
    return x, times, ends


def check_points(m: PredictiveMechanism, x: Floats, times: Floats, ends: Ints) -> None:
    """Refuse numbers that are no points or times of these traces, without saying what they are."""
    wrong = _time_fault(times, ends)
    low, high = np.array([(low, high) for _, low, high in m.space.coordinates]).T
    lows, highs = (np.tile(end, (min(len(x), _CACHED), 1)) for end in (low, high))
    for first in range(0, len(x), _CACHED):  # in pieces that stay in cache
        if wrong is not None:
            break
        some = x[first : first + _CACHED]
        # All numbers of a piece side by side; which one is wrong is looked for where one is.
        inside = (lows[: len(some)] <= some) & (some <= highs[: len(some)])  # NaN is not
        if np.count_nonzero(inside) < inside.size:
            found = find_point_outside(m.space, np.asfortranarray(some))
            wrong = found and (first + found[0], found[1])
    if wrong is not None:
        row, reason = wrong
        trace = int(np.searchsorted(ends, row, side="right")) - 1
        raise PointError(
            f"row {row} (point {row - ends[trace]} of trace {trace}): {reason}; "
            "nothing was released"
        )


def checked_run(
    m: PredictiveMechanism, run: Run, times: Floats, starts: Ints, lengths: Ints
) -> Run:
    """A copy of a run that fits the mechanism and the traces."""
    wrong = run_fault(m, run)
    if wrong is None and len(run.spent) != len(lengths):
        wrong = f"it has {len(run.spent)} lanes, and there are {len(lengths)} traces"
    if wrong is not None:
        raise ParameterError(f"run does not fit: {wrong}; nothing was released")
    some = np.flatnonzero(lengths)
    early = some[times[starts[some]] < run.at_s[some]]
    if len(early):
        raise PointError(
            f"row {starts[early[0]]} (point 0 of trace {early[0]}): its time is before the last "
            "report of its run; nothing was released"
        )
    return run.take(np.arange(len(lengths)))


def _time_fault(times: Floats, ends: Ints) -> tuple[int, str] | None:
    if _are_times(times, ends):
        return None
    if len(times) and not (times.min() >= -LATEST_S and times.max() <= LATEST_S):  # NaN neither
        wrong = np.flatnonzero(~(np.abs(times) <= LATEST_S))[0]
        return int(wrong), "its time is not a number of Unix seconds (milliseconds, perhaps?)"
    falls = np.zeros(len(times) + 1, dtype=np.bool_)
    np.less(times[1:], times[:-1], out=falls[1:-1])
    falls[ends] = False  # a new trace may begin earlier
    if falls.any():
        return int(np.flatnonzero(falls)[0]), "its time is before that of the point before it"
    return None


def _are_times(times: Floats, ends: Ints) -> bool:
    """Whether all are Unix seconds that fall only where a trace begins. In pieces, as above.

    Where no time of a trace falls, the others lie between its first and its last.
    """
    filled = np.flatnonzero(np.diff(ends))
    firsts, lasts = times[ends[filled]], times[ends[filled + 1] - 1]
    if not (np.all(firsts >= -LATEST_S) and np.all(lasts <= LATEST_S)):  # NaN neither
        return False
    in_order = -int(np.count_nonzero(firsts[1:] >= lasts[:-1]))
    for first in range(0, len(times), _CACHED):
        some = times[first : first + _CACHED + 1]  # the next piece begins with its last
        in_order += int(np.count_nonzero(some[1:] >= some[:-1]))  # NaN is not
    return in_order == len(times) - len(filled)


def run_fault(m: PredictiveMechanism, run: Run) -> str | None:
    """What is wrong with a run, if anything. All of it is public, so it may be told."""
    wrong = _shape_fault(m, run)
    if wrong is not None:
        return wrong
    if _any(run.mechanism != m.number):
        return "it was made by another mechanism, or by one with other settings"
    try:
        found = _history_fault(m, run) or _budget_fault(m, run) or _window_fault(m, run)
        return found or _limits_fault(m, run)
    except PointError as error:  # a window knows no such time, which the run says and no caller
        return str(error)


def _shape_fault(m: PredictiveMechanism, run: Run) -> str | None:
    if not isinstance(run, Run) or type(run.spent) is not np.ndarray:
        return "it must be a hereish.Run of arrays"
    lanes = run.spent.shape[:1]
    shapes = {"values": (*lanes, m.memory, m.dim), "times_s": (*lanes, m.memory)}
    shapes["hards"] = shapes["times_s"]
    shapes["learnt"] = (*lanes, m.width)
    limits, older = (0, 0) if m.limiter is None else (len(m.limiter), m.limiter.older)
    shapes["limit_bucket"] = shapes["limit_spent"] = (*lanes, limits)
    shapes["limit_older"] = (*lanes, older)
    shapes["renyi_spent"] = (*lanes, int(m.renyi is not None))
    for name, value in zip(Run._fields, run, strict=True):
        kind, shape = _KINDS.get(name, _FLOAT), shapes.get(name, lanes)
        if type(value) is not np.ndarray or value.dtype != kind:  # masks are not looked at
            return f"{name} must be an array of {kind}"
        if value.shape != shape or not lanes:
            return f"{name} must have shape {shape}, found {value.shape}"
    return None


_FLOAT: np.dtype[Any] = np.dtype(np.float64)
_KINDS: dict[str, np.dtype[Any]] = {
    **dict.fromkeys(("reports", "easy", "window", "mechanism", "limit_bucket"), np.dtype(np.int64)),
    **dict.fromkeys(("hards", "ended"), np.dtype(np.bool_)),
}


def _history_fault(m: PredictiveMechanism, run: Run) -> str | None:
    times, missing = run.times_s, run.times_s != run.times_s
    if _any((run.values != run.values) != missing[..., None]) or _any(np.abs(times) > LATEST_S):
        return "every release must have a place and a time"
    if _any(missing & run.hards):
        return "what is not there cannot be hard"
    # Whatever is missing is older than all that is there.
    if m.memory > 1 and _any(~((times[:, 1:] <= times[:, :-1]) | missing[:, 1:])):
        return "releases must come newest first"
    released = run.values[~missing]
    if find_point_outside(m.space, released) is not None or _any(
        m.space.snap(released) != released
    ):
        return "every release must be a point of the space's grid"
    # NaN is not later than anything, and nothing is later than NaN.
    if _any(run.hard_at_s > run.at_s) or _any(run.tested_at_s > run.at_s):
        return "nothing can be later than the last release"
    if _any(run.hard_threshold != run.hard_threshold):
        return "hard_threshold must be a number"
    if not all_finite(run.learnt):
        return "what the prediction has learnt must be finite numbers"
    if m.tracker is None:
        return None
    # `update` may need the local clock of each, and it comes after noise was drawn.
    for told_s in (times, run.hard_at_s, run.tested_at_s):
        known_s = told_s[told_s == told_s]
        if known_s.size:
            check_years(known_s.min(), known_s.max())
    wrong: str | None = call_part("prediction", m.tracker, m.tracker.find_fault, run.learnt)
    return wrong


def _budget_fault(m: PredictiveMechanism, run: Run) -> str | None:
    if _any((run.easy < 0) | (run.easy > run.reports)):
        return "easy reports must be some of all reports"
    most = m.bound.total if m.renyi is None else math.inf  # the filter says below
    if _any(~((run.spent >= 0.0) & (run.spent <= most))):
        return "it has spent less than nothing or more than the budget"
    if _any(np.not_equal(m.bound.quantised(run.spent), run.spent)):
        return "what it has spent is no sum of costs"
    if _any((run.reports > 0) & (run.at_s != run.at_s)):
        return "it has made reports, and released nothing"
    if m.renyi is not None:
        return m.renyi.fault(m.bound, run.spent, run.renyi_spent[:, 0])
    return None


def _window_fault(m: PredictiveMechanism, run: Run) -> str | None:
    used: Bools = (run.reports > 0) | run.ended
    some = used & (run.at_s == run.at_s)
    window = m.window.index(run.at_s[some])
    numbered = run.window != NO_WINDOW
    if window is None:
        return "it has windows, and the mechanism has none" if _any(numbered) else None
    if _any(used & ~numbered):
        return "it has no windows, and the mechanism has"
    if _any(window > run.window[some]):
        return "its last release lies in a later window than it says"
    return None


def _limits_fault(m: PredictiveMechanism, run: Run) -> str | None:
    if m.limiter is None:
        return None
    for name in ("limit_spent", "limit_older"):
        numbers = getattr(run, name)
        if not all_finite(numbers) or _any(np.not_equal(m.bound.quantised(numbers), numbers)):
            return f"{name} is no sum of costs"
    if _any((run.at_s != run.at_s)[:, None] & (run.limit_spent > 0.0)):
        return "it has spent of a limit, and released nothing"
    used: Bools = (run.reports > 0) | run.ended | (run.at_s == run.at_s)
    # Of a history that was carried over from elsewhere no report is counted. A decision of a user's
    # own may take nothing for noise.
    paid = (run.reports > 0) & run.hards[:, 0] & (m.own_decision is not None)
    return m.limiter.fault(run, m.bound.limits, run.at_s, used, paid)


def _any(mask: Bools) -> bool:
    return bool(np.count_nonzero(mask))  # far quicker than any() for a live session's one lane
