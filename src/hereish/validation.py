"""Whether a run that comes from outside is one that its mechanism could have made.

What a run says was spent decides what may still be released, so every field is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hereish.arrays import Bools
from hereish.run import NO_WINDOW, Run
from hereish.spaces import fault

if TYPE_CHECKING:
    from hereish.mechanism import PredictiveMechanism


def run_fault(m: PredictiveMechanism, run: Run) -> str | None:
    """What is wrong with a run, if anything. All of it is public, so it may be told."""
    for check in (_form, _owner, _history, _budget, _windows):
        wrong = check(m, run)
        if wrong is not None:
            return wrong
    return None


def _form(m: PredictiveMechanism, run: Run) -> str | None:
    lanes = len(run.spent) if np.ndim(run.spent) == 1 else 0
    for name, value, like in zip(Run._fields, run, m.run(lanes), strict=True):
        if not isinstance(value, np.ndarray) or value.dtype != like.dtype:
            return f"{name} must be an array of {like.dtype}"
        if value.shape != like.shape:
            return f"{name} must have shape {like.shape}, found {value.shape}"
    return None


def _owner(m: PredictiveMechanism, run: Run) -> str | None:
    if (run.mechanism != m.number).any():
        return "it was made by another mechanism, or by one with other settings"
    return None


def _history(m: PredictiveMechanism, run: Run) -> str | None:
    missing = np.isnan(run.times_s)
    if not np.array_equal(np.isnan(run.values), np.repeat(missing[..., None], m.dim, axis=2)):
        return "every release must have a place and a time"
    if (missing[:, :-1] & ~missing[:, 1:]).any() or (np.diff(run.times_s) > 0.0).any():
        return "releases must come newest first"
    if np.isinf(run.times_s).any() or (missing & run.hards).any():
        return "every release must have a time, and its kind be that of a release"
    released = run.values[~missing]
    if fault(m.space, released) is not None or not np.array_equal(m.space.snap(released), released):
        return "every release must be a point of the space's grid"
    for name, at_s in (("hard_at_s", run.hard_at_s), ("tested_at_s", run.tested_at_s)):
        if not (np.isnan(at_s) | (at_s <= run.at_s)).all():
            return f"{name} must not be after the last release"
    if np.isnan(run.hard_threshold).any():
        return "hard_threshold must be a number"
    return None


def _budget(m: PredictiveMechanism, run: Run) -> str | None:
    if (run.easy < 0).any() or (run.easy > run.reports).any():
        return "easy reports must be some of all reports"
    if not ((run.spent >= 0.0) & (run.spent <= m.bound.total)).all():
        return "it has spent less than nothing or more than the budget"
    if not np.array_equal(m.bound.quantised(run.spent), run.spent):
        return "what it has spent is no sum of costs"
    if ((run.reports > 0) & np.isnan(run.at_s)).any():
        return "it has made reports, and released nothing"
    if ((run.spent > 0.0) & (run.reports == 0)).any():
        return "it has spent, and made no report"
    return None


def _windows(m: PredictiveMechanism, run: Run) -> str | None:
    used: Bools = (run.reports > 0) | run.ended
    numbered = run.window != NO_WINDOW
    some = used & ~np.isnan(run.at_s)
    window = m.window.index(run.at_s[some])
    if window is None:
        return "it has windows, and the mechanism has none" if numbered.any() else None
    if (used & ~numbered).any():
        return "it has no windows, and the mechanism has"
    if (window > run.window[some]).any():
        return "its last release lies in a later window than it says"
    return None
