"""Rows in any order, with a user each, through the batch and back into their order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from hereish.arrays import Floats, Ints
from hereish.batch import Sanitized, sanitize
from hereish.errors import PointError
from hereish.mechanism import PredictiveMechanism
from hereish.randomness import Draws, KeyedDraws
from hereish.spaces import fault
from hereish.windows import NoReset


def sanitize_rows(
    mechanism: PredictiveMechanism,
    user: Ints,
    names: Sequence[str],
    points: Floats,
    at_s: Floats,
    *,
    seed: int | None = None,
    draws: Draws | KeyedDraws | None = None,
) -> Sanitized:
    """Sanitise rows of several users; `user` has the number of each row's user among `names`.

    Each user has one budget a window, however the rows lie. They are taken in the order of their
    times, which are public, and the result is in the order of the input. Every window is a trace
    of its own, so that many can run at once: its first report is noise, not yesterday's guess.
    """
    _check(mechanism, points, at_s)
    window = mechanism.window.index(at_s)
    if window is None:
        window = np.zeros(len(at_s), dtype=np.int64)
    order = np.lexsort((at_s, window, user))
    sorted_user, sorted_window = user[order], window[order]
    changes = (np.diff(sorted_user) != 0) | (np.diff(sorted_window) != 0)
    begins = np.flatnonzero(np.r_[np.ones(min(len(order), 1), dtype=np.bool_), changes])
    keyed = None
    if isinstance(draws, KeyedDraws):
        keyed = [f"{sorted_window[i]} {names[sorted_user[i]]}" for i in begins]
    out = sanitize(
        dataclasses.replace(mechanism, window=NoReset()),
        points[order],
        at_s[order],
        np.append(begins, len(order)),
        seed=seed,
        draws=draws,
        users=keyed,
    )
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    fields = ("value", "released", "hard", "eps_test", "eps_noise", "threshold")
    rows = {name: getattr(out, name)[back] for name in fields}
    guarantee = mechanism.guarantee if out.private else out.guarantee
    return dataclasses.replace(out, **rows, guarantee=guarantee)


def _check(mechanism: PredictiveMechanism, points: Floats, at_s: Floats) -> None:
    """Before the rows are sorted, so that an error names the row as the caller has it."""
    wrong = fault(mechanism.space, points)
    if wrong is not None:
        raise PointError(f"row {wrong[0]}: {wrong[1]}; nothing was released")
    missing = np.flatnonzero(~np.isfinite(at_s))
    if len(missing):
        raise PointError(f"row {missing[0]}: it has no time; nothing was released")
