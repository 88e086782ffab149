"""Rows in any order, with a user each, through the batch and back into their order."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from hereish.arrays import Bools, Floats, Ints
from hereish.batch import Sanitized, sanitize
from hereish.errors import ParameterError, PointError
from hereish.mechanism import PredictiveMechanism
from hereish.randomness import Draws, KeyedDraws
from hereish.run import Run
from hereish.spaces import fault
from hereish.windows import NoReset


@dataclasses.dataclass(frozen=True)
class EachTrace(NoReset):
    """One budget for each trace, where rows say which trace is theirs."""

    def covers(self, index: int | None = None) -> str:
        return "the reports of each trace"


def same_name(identity: object) -> str:
    """A name for whom a budget is, the same for spellings that mean the same user or trace.

    Two names for one user would be two budgets: 1, 1.0 and " 1" are one, and so are the two ways
    in which Unicode writes an accent.
    """
    if isinstance(identity, (float, np.floating)) and float(identity).is_integer():
        identity = int(identity)
    return unicodedata.normalize("NFC", str(identity)).strip()


class Budgets:
    """Where every user and window stands, from one call to the next.

    For tables that come in pieces: each (user, window) keeps one budget across them. Holds public
    data only, and as much of it however many rows there were. Calls that share it take turns.
    """

    def __init__(self, mechanism: PredictiveMechanism) -> None:
        self.mechanism = mechanism
        # Each lane is one window of one user.
        self.lane_mechanism = dataclasses.replace(mechanism, window=NoReset())
        self.turn = threading.Lock()
        self._lanes: dict[tuple[str, int], int] = {}
        self.run = self.lane_mechanism.run(0)

    def __len__(self) -> int:
        return len(self._lanes)

    def lanes(self, keys: Sequence[tuple[str, int]]) -> Ints:
        new = [key for key in keys if key not in self._lanes]
        if new:
            self._lanes.update({key: len(self) + i for i, key in enumerate(new)})
            fields: list[Any] = [
                np.concatenate(pair)
                for pair in zip(self.run, self.lane_mechanism.run(len(new)), strict=True)
            ]
            self.run = Run(*fields)
        return np.array([self._lanes[key] for key in keys], dtype=np.int64)

    def early(self, user: Ints, names: Sequence[str], at_s: Floats) -> Bools:
        """Which rows lie before the last report of their user and window, and can make none."""
        window = _windows(self.mechanism, at_s)
        begins = _begins(user, window)
        last = np.full(len(begins), np.nan)
        for i, row in enumerate(begins.tolist()):
            lane = self._lanes.get((names[user[row]], int(window[row])))
            if lane is not None:
                last[i] = self.run.at_s[lane]
        return np.asarray(at_s < np.repeat(last, np.diff(begins, append=len(at_s))))

    def remember(self, lanes: Ints, run: Run) -> None:
        for kept, field in zip(self.run, run, strict=True):
            kept[lanes] = field


def sanitize_rows(
    mechanism: PredictiveMechanism,
    user: Ints,
    names: Sequence[str],
    points: Floats,
    at_s: Floats,
    *,
    seed: int | None = None,
    draws: Draws | KeyedDraws | None = None,
    budgets: Budgets | None = None,
) -> Sanitized:
    """Sanitise rows of several users; `user` has the number of each row's user among `names`.

    Each user has one budget a window, however the rows lie. They are taken in the order of their
    times, which are public, and the result is in the order of the input. Every window is a trace
    of its own, so that many can run at once: its first report is noise, not yesterday's guess.
    """
    _check(mechanism, points, at_s)
    window = _windows(mechanism, at_s)
    order = _order(user, window, at_s)
    sorted_user, sorted_window = user[order], window[order]
    begins = _begins(sorted_user, sorted_window)
    keys = [(names[sorted_user[i]], int(sorted_window[i])) for i in begins]
    keyed = [f"{day} {name}" for name, day in keys] if isinstance(draws, KeyedDraws) else None
    with contextlib.nullcontext() if budgets is None else budgets.turn:
        lanes, run = _resumed(mechanism, budgets, keys, at_s, order[begins])
        out = sanitize(
            dataclasses.replace(mechanism, window=NoReset())
            if budgets is None
            else budgets.lane_mechanism,
            points[order],
            at_s[order],
            np.append(begins, len(order)),
            seed=seed,
            draws=draws,
            users=keyed,
            run=run,
        )
        if budgets is not None and out.run is not None:
            budgets.remember(lanes, out.run)  # before anything is handed out
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    fields = ("value", "released", "hard", "eps_test", "eps_noise", "threshold")
    rows = {name: getattr(out, name)[back] for name in fields}
    guarantee = mechanism.guarantee if out.private else out.guarantee
    return dataclasses.replace(out, **rows, guarantee=guarantee)


def _windows(mechanism: PredictiveMechanism, at_s: Floats) -> Ints:
    window = mechanism.window.index(at_s)
    return np.zeros(len(at_s), dtype=np.int64) if window is None else window


def _begins(user: Ints, window: Ints) -> Ints:
    """Where rows begin that differ from those before them in user or window."""
    changes = (np.diff(user) != 0) | (np.diff(window) != 0)
    return np.flatnonzero(np.r_[np.ones(min(len(user), 1), dtype=np.bool_), changes])


def _order(user: Ints, window: Ints, at_s: Floats) -> Ints:
    """The rows by user, window and time; most files have them so already."""
    falls = np.diff(user) < 0
    same = np.diff(user) == 0
    falls |= same & (np.diff(at_s) < 0)  # windows never fall as time goes on
    if falls.any():
        return np.lexsort((at_s, window, user))
    return np.arange(len(user))


def _resumed(
    mechanism: PredictiveMechanism,
    budgets: Budgets | None,
    keys: Sequence[tuple[str, int]],
    at_s: Floats,
    first_rows: Ints,
) -> tuple[Ints, Run | None]:
    """Where the users and windows of these keys stand."""
    if budgets is None:
        return np.empty(0, dtype=np.int64), None
    if budgets.mechanism != mechanism:
        raise ParameterError("these budgets were begun with another mechanism")
    lanes = budgets.lanes(keys)
    run = budgets.run.take(lanes)
    early = np.flatnonzero(at_s[first_rows] < run.at_s)
    if len(early):
        raise PointError(
            f"row {first_rows[early[0]]}: its user has a later report; nothing was released"
        )
    return lanes, run


def _check(mechanism: PredictiveMechanism, points: Floats, at_s: Floats) -> None:
    """Before the rows are sorted, so that an error names the row as the caller has it."""
    wrong = fault(mechanism.space, points)
    if wrong is not None:
        raise PointError(f"row {wrong[0]}: {wrong[1]}; nothing was released")
    missing = np.flatnonzero(~np.isfinite(at_s))
    if len(missing):
        raise PointError(f"row {missing[0]}: it has no time; nothing was released")
