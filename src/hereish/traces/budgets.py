"""Rows in any order, with a user each, through the batch and back into their order."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hereish.core.batch import Sanitized, sanitize
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import SECURE, Draws, KeyedDraws, SeededDraws
from hereish.core.run import Run
from hereish.core.spaces import find_point_outside
from hereish.core.types import Floats, Ints
from hereish.core.windows import NoReset
from hereish.errors import ParameterError, PartError, PointError
from hereish.traces.names import name_key
from hereish.traces.names import same_name as same_name  # for those who know it from here
from hereish.traces.order import Chance, inverse, public_order


@dataclasses.dataclass(frozen=True)
class EachTrace(NoReset):
    """One budget for each trace, where rows say which trace is theirs."""

    def covers(self, index: int | None = None) -> str:
        return "the reports of each trace"


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
        self._seen = _NOTHING_SEEN
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

    def check_windows(self, spans: _Spans) -> None:
        """Windows may not fall as time goes on, from one call to the next either."""
        self._seen = self._seen.joined(spans)

    def remember(self, lanes: Ints, run: Run) -> None:
        for kept, field in zip(self.run if len(lanes) else (), run, strict=False):
            kept[lanes] = field


class _Spans(NamedTuple):
    """Windows, and the first and last time seen in each."""

    window: Ints
    first_s: Floats
    last_s: Floats

    def joined(self, other: _Spans) -> _Spans:
        """Of both together. Raises if a window with a higher number was not later throughout."""
        window = np.concatenate([self.window, other.window])
        first_s = np.concatenate([self.first_s, other.first_s])
        last_s = np.concatenate([self.last_s, other.last_s])
        order = np.argsort(window, kind="stable")
        window = window[order]
        if not len(window):
            return self
        begins = np.flatnonzero(np.append(True, window[1:] != window[:-1]))
        first = np.minimum.reduceat(first_s[order], begins)
        last = np.maximum.reduceat(last_s[order], begins)
        if not (last[:-1] < first[1:]).all():
            raise PartError(
                "the numbers of the mechanism's windows fall as time goes on, which would give a "
                "budget twice: each window must have a higher number than those before it; "
                "nothing was released"
            )
        return _Spans(window[begins], first, last)


_NOTHING_SEEN = _Spans(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))


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
    place: Ints | None = None,
) -> Sanitized:
    """Sanitise rows of several users; `user` has the number of each row's user among `names`.

    Each user has one budget a window, however the rows lie and whatever way the user's name is
    written (see `same_name`). They are taken in the order of their times, which are public. Of the
    same time, the one with the lower `place` comes first: a place in a public order. Without it,
    chance decides. The result is in the order of the input, row for row: whoever publishes it puts
    it into a public order. Every window is a trace of its own, so that many can run at once: its
    first report is noise, not yesterday's guess.

    Guarantee: as the mechanism's, for each user, whatever the order of the rows depends on.
    """
    points, at_s = _plain("points", points), _plain("at_s", at_s)
    _check(mechanism, user, names, points, at_s)
    user, names = _people(user, names)
    window = _windows(mechanism, at_s)
    if place is None:
        place = inverse(
            public_order((user, at_s), lambda _: (), chance(seed, draws, names, user, at_s, points))
        )
    order = _order(user, at_s, place)
    rows = slice(None) if order is None else order  # most files have them in order: no copies
    sorted_user, sorted_window, sorted_at_s = user[rows], window[rows], at_s[rows]
    begins = _begins(sorted_user, sorted_window)
    last = np.append(begins[1:], len(user))[: len(begins)] - 1
    spans = _Spans(sorted_window[begins], sorted_at_s[begins], sorted_at_s[last])
    if budgets is None:
        _NOTHING_SEEN.joined(spans)
    keys = [(names[sorted_user[i]], int(sorted_window[i])) for i in begins]
    keyed = [f"{day} {name}" for name, day in keys] if isinstance(draws, KeyedDraws) else None
    with contextlib.nullcontext() if budgets is None else budgets.turn:
        first = begins if order is None else order[begins]
        lanes, run = _resumed(mechanism, budgets, spans, keys, at_s, first)
        out = sanitize(
            dataclasses.replace(mechanism, window=NoReset())
            if budgets is None
            else budgets.lane_mechanism,
            points[rows],
            sorted_at_s,
            np.append(begins, len(user)),
            seed=seed,
            draws=draws,
            users=keyed,
            run=run,
        )
        if budgets is not None and out.run is not None:
            budgets.remember(lanes, out.run)  # before anything is handed out
    guarantee = mechanism.guarantee_for_each("user") if out.private else out.guarantee
    if order is None:
        return dataclasses.replace(out, guarantee=guarantee)
    back = inverse(order)
    fields = ("value", "released", "hard", "eps_test", "eps_noise", "threshold")
    columns = {name: getattr(out, name)[back] for name in fields}
    return dataclasses.replace(out, **columns, guarantee=guarantee)


def chance(
    seed: int | None,
    draws: Draws | KeyedDraws | None,
    names: Sequence[str],
    user: Ints,
    at_s: Floats,
    points: Floats,
) -> Chance:
    """Random numbers for rows that public data cannot tell apart.

    With a key they are a function of the key and of the row, so that a retry has the same order.
    """
    if isinstance(draws, KeyedDraws):
        keyed = draws

        def derived(rows: Ints) -> Floats:
            nought = np.zeros(len(rows), dtype=np.int64)
            users = [names[i] for i in user[rows]]
            drawn = keyed.derive(
                users, nought, nought, at_s[rows], points[rows], 1, mechanism=b"order"
            )
            return drawn[:, 0]

        return derived
    source = draws or (SECURE if seed is None else SeededDraws(seed))
    return lambda rows: source.uniforms(len(rows))


def _people(user: Ints, names: Sequence[str]) -> tuple[Ints, Sequence[str]]:
    """The rows' users numbered in the order of their names, with one number for one name."""
    used = np.flatnonzero(np.bincount(user)) if len(user) else np.empty(0, dtype=np.int64)
    same = [same_name(names[i]) for i in used.tolist()]
    people = sorted(set(same), key=name_key)
    number = {name: i for i, name in enumerate(people)}
    numbers = np.zeros(int(used[-1]) + 1 if len(used) else 0, dtype=np.int64)
    numbers[used] = [number[name] for name in same]
    return numbers[user], people


def _plain(what: str, values: Floats) -> Floats:
    """An array without its mask, unless something is masked: then nobody knows what it is."""
    if np.ma.is_masked(values):
        masked = np.ma.getmaskarray(values)
        row = int(np.flatnonzero(masked.reshape(len(masked), -1).any(axis=1))[0])
        raise PointError(f"row {row}: its {what} are masked; nothing was released")
    return np.asarray(values)


def _windows(mechanism: PredictiveMechanism, at_s: Floats) -> Ints:
    window = mechanism.window.index(at_s)
    if window is None:
        return np.zeros(len(at_s), dtype=np.int64)
    numbers = np.asarray(window)
    if numbers.shape != at_s.shape or (numbers.dtype.kind not in "iu" and len(at_s)):
        raise PartError(
            f"a window must give a whole number for each time, found {numbers.dtype} of shape "
            f"{numbers.shape}"
        )
    return numbers.astype(np.int64)


def _begins(user: Ints, window: Ints) -> Ints:
    """Where rows begin that differ from those before them in user or window."""
    changes = (np.diff(user) != 0) | (np.diff(window) != 0)
    return np.flatnonzero(np.r_[np.ones(min(len(user), 1), dtype=np.bool_), changes])


def _order(user: Ints, at_s: Floats, place: Ints) -> Ints | None:
    """The rows by user, time and place; None if they are so already.

    Windows never fall as time goes on, which is checked, so they need not be sorted by.
    """
    rises = np.diff(user) > 0
    same = np.diff(user) == 0
    rises |= same & (np.diff(at_s) > 0)
    same &= np.diff(at_s) == 0
    rises |= same & (np.diff(place) > 0)
    return None if rises.all() else np.lexsort((place, at_s, user))


def _resumed(
    mechanism: PredictiveMechanism,
    budgets: Budgets | None,
    spans: _Spans,
    keys: Sequence[tuple[str, int]],
    at_s: Floats,
    first_rows: Ints,
) -> tuple[Ints, Run | None]:
    """Where the users and windows of these keys stand."""
    if budgets is None:
        return np.empty(0, dtype=np.int64), None
    if budgets.mechanism != mechanism:
        raise ParameterError("these budgets were begun with another mechanism")
    budgets.check_windows(spans)
    lanes = budgets.lanes(keys)
    run = budgets.run.take(lanes)
    early = np.flatnonzero(at_s[first_rows] < run.at_s)
    if len(early):
        raise PointError(
            f"row {first_rows[early[0]]}: its user has a later report; nothing was released"
        )
    return lanes, run


def _check(
    mechanism: PredictiveMechanism, user: Ints, names: Sequence[str], points: Floats, at_s: Floats
) -> None:
    """Before the rows are sorted, so that an error names the row as the caller has it."""
    if not len(user) == len(points) == len(at_s) or at_s.ndim != 1:
        raise ParameterError(
            f"user, points and at_s must be of one length, found {len(user)}, {len(points)} and "
            f"{len(at_s)}"
        )
    if len(user) and not (user.min() >= 0 and user.max() < len(names)):
        raise ParameterError(f"user must hold numbers of the {len(names)} names, from 0 on")
    wrong = find_point_outside(mechanism.space, points)
    if wrong is not None:
        raise PointError(f"row {wrong[0]}: {wrong[1]}; nothing was released")
    missing = np.flatnonzero(~np.isfinite(at_s))
    if len(missing):
        raise PointError(f"row {missing[0]}: it has no time; nothing was released")
