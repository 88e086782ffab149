"""Rows of many users in any order: one lane per user and window, and back to the given order."""

from __future__ import annotations

import bisect
import contextlib
import copy
import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hereish.core.batch_results import Sanitized
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import SECURE, Draws, KeyedDraws, SeededDraws
from hereish.core.renyi import refuse_delta
from hereish.core.run import Run
from hereish.core.spaces import find_point_outside
from hereish.core.types import Bools, Floats, Ints
from hereish.core.windows import NoReset
from hereish.errors import ParameterError, PartError, PointError
from hereish.traces.lane_rounds import LaneRounds, not_begun, put_runs, writable_copy
from hereish.traces.names import canonical_name, name_key
from hereish.traces.order import TieBreaker, inverse, public_order


@dataclasses.dataclass(frozen=True)
class EachTrace(NoReset):
    """One budget per trace, where rows name their trace."""

    def covers(self, index: int | None = None) -> str:
        return "the reports of each trace"


def check_budgets(mechanism: PredictiveMechanism) -> None:
    """Refuse a delta, and limits beside one budget per trace: traces may overlap in time."""
    refuse_delta(mechanism.privacy, "files, tables and streams are")
    if isinstance(mechanism.window, EachTrace) and mechanism.limiter is not None:
        raise ParameterError(
            "several budgets at once are of windows of time, and one per trace is none: choose a "
            "window of time, such as hereish.Day, or leave out the limits"
        )


# What may be spent of each of these users' windows, which have points at these times.
Granted = Callable[[Sequence[tuple[str, int]], Floats], Floats]


class Budgets:
    """The public run of every user and window, from one call to the next.

    For tables that come in batches: each (user, window) keeps one budget across them. Holds public
    data only, and no more of it however many rows there were. Calls that share it are serialised.
    With `granted`, a window has no more than that says of these users, windows and times in them.
    """

    def __init__(self, mechanism: PredictiveMechanism, granted: Granted | None = None) -> None:
        check_budgets(mechanism)
        self.mechanism = mechanism
        self._granted = granted
        # Each lane is one window of one user.
        self.lane_mechanism = mechanism.without_windows
        self._clear()

    def _clear(self) -> None:
        self.lock = threading.Lock()
        self._lanes: dict[tuple[str, int], int] = {}
        self._windows_of: dict[str, list[int]] = {}  # of each user, in their order
        self._windows = _NO_WINDOWS
        self.run = self.lane_mechanism.run(0)
        self._begun_with = np.empty(0)  # what counts as spent of each lane that begins

    def cleared(self) -> Budgets:
        """Budgets of the same mechanism from which nothing has been spent.

        The mechanism is not built and checked again.
        """
        fresh = copy.copy(self)
        fresh._clear()
        return fresh

    def __len__(self) -> int:
        return len(self._lanes)

    def resume(
        self, keys: Sequence[tuple[str, int]], times: _WindowTimes, first_rows: Ints
    ) -> _Resumed:
        """Where these users' windows stand; new ones begin with an empty run.

        Nothing is kept before `store`: a call that fails is as if it had never been made. Raises
        if the number of a window falls as time goes on, also between calls, and if a user has a
        later report; `first_rows` are then told.
        """
        windows = self._windows.merged(times)
        new = np.array([i for i, key in enumerate(keys) if key not in self._lanes], dtype=np.int64)
        fresh = {keys[i]: len(self) + n for n, i in enumerate(new.tolist())}
        lanes = np.array([self._lanes.get(key, fresh.get(key)) for key in keys], dtype=np.int64)
        known = lanes < len(self)
        run = writable_copy(self.lane_mechanism.run(len(keys)))
        put_runs(run, np.flatnonzero(known), self.run.take(lanes[known]))
        late = times.first_s < run.at_s
        if self.mechanism.limiter is not None:  # what was spent since counts in the same limits
            late |= np.array([not self.is_last(*key) for key in keys], dtype=np.bool_)
        if late.any():
            raise PointError(
                f"row {first_rows[late][0]}: its user has a later report; nothing was released"
            )
        if self._granted is not None and len(new):
            granted = self._granted([*fresh], times.first_s[new])
            run.spent[new] = self.lane_mechanism.bound.spent_leaving(granted)
        return _Resumed(keys, lanes, known, run.frozen(), windows)

    def store(self, resumed: _Resumed, run: Run) -> None:
        """Keep what `resume` began, and how far it went: all of it, or nothing if that fails."""
        known, new = resumed.lanes[resumed.known], np.flatnonzero(~resumed.known)
        keys = [resumed.keys[i] for i in new.tolist()]
        begun_with = np.append(self._begun_with, resumed.run.spent[new])
        before = self.run, self._begun_with, self._windows, self.run.take(known)
        try:
            if len(new):
                pairs = zip(self.run, run.take(new), strict=True)
                fields: list[Any] = [np.concatenate(pair) for pair in pairs]
                self.run = Run(*fields)
            if len(known):
                put_runs(self.run, known, run.take(resumed.known))
            self._begun_with, self._windows = begun_with, resumed.windows
            for lane, key in zip(resumed.lanes[new].tolist(), keys, strict=True):
                self._lanes[key] = lane
                bisect.insort(self._windows_of.setdefault(key[0], []), key[1])
        except BaseException:
            self._restore(keys, known, *before)
            raise

    def _restore(
        self,
        keys: Sequence[tuple[str, int]],
        known: Ints,
        run: Run,
        begun_with: Floats,
        windows: _WindowTimes,
        of_known: Run,
    ) -> None:
        """Undo what was kept of a call: lanes that are new, and runs of those that were known."""
        self.run, self._begun_with, self._windows = run, begun_with, windows
        if len(known):
            put_runs(self.run, known, of_known)
        for user, window in keys:
            self._lanes.pop((user, window), None)
            of_user = self._windows_of.pop(user, [])
            kept = [one for one in of_user if (user, one) in self._lanes]
            if kept:
                self._windows_of[user] = kept

    def costs(self) -> list[tuple[str, int, float]]:
        """What was spent of each user's windows."""
        spent = (self.run.spent - self._begun_with).tolist()
        return [(*key, spent[lane]) for key, lane in self._lanes.items()]

    def before(self, user: str, window: int) -> int | None:
        """The lane of the user's last window before this one that has begun."""
        windows = self._windows_of.get(user, [])
        for earlier in reversed(windows[: bisect.bisect_left(windows, window)]):
            lane = self._lanes[user, earlier]
            if self._has_begun(lane):
                return lane
        return None

    def is_last(self, user: str, window: int) -> bool:
        """Whether the user has no later window that has begun."""
        windows = self._windows_of.get(user, [])
        later = windows[bisect.bisect_right(windows, window) :]
        return not any(self._has_begun(self._lanes[user, one]) for one in later)

    def _has_begun(self, lane: int) -> bool:
        """Whether something goes on from it: a lane without a report has nothing to hand on."""
        return not not_begun(self.run.take(slice(lane, lane + 1)))[0]


class _WindowTimes(NamedTuple):
    """Numbers of windows, and the first and last time in each."""

    window: Ints
    first_s: Floats
    last_s: Floats

    def merged(self, other: _WindowTimes) -> _WindowTimes:
        """Both together. Raises if a window with a higher number is not later throughout."""
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
        return _WindowTimes(window[begins], first, last)


class _Resumed(NamedTuple):
    """The lanes of a call and where they stand, which budgets do not know of before it succeeds."""

    keys: Sequence[tuple[str, int]]
    lanes: Ints
    known: Bools  # not new
    run: Run
    windows: _WindowTimes  # all that there were, with those of the call


_NO_WINDOWS = _WindowTimes(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))


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

    Each user has one budget per window, in whatever order the rows are and however the user's name
    is spelt (see `canonical_name`). Rows are taken in the order of their times, which are public;
    at the same time, in the order of `place`, their places in a public order, or at random without
    it. The result is in the order of the input, row for row: whoever publishes it puts it into a
    public order. Every window is a lane of its own, so that many can run at once: its first report
    is noise, not yesterday's guess. A mechanism that remembers, or that has limits beside its
    window, goes through the windows of a user one after the other, and each goes on from the one
    before.

    Guarantee: as the mechanism's, for each user, whatever the order of the rows depends on.
    """
    points, at_s = _unmasked("points", points), _unmasked("at_s", at_s)
    check_budgets(mechanism)
    check_rows(mechanism, user, names, points, at_s)
    user, names = _number_users(user, names)
    window = _windows(mechanism, at_s)
    if place is None:
        place = inverse(
            public_order(
                (user, at_s), lambda _: (), tie_breaker(seed, draws, names, user, at_s, points)
            )
        )
    order = _lane_order(user, at_s, place)
    rows = slice(None) if order is None else order  # most files are in order: no copies
    sorted_user, sorted_window, sorted_at_s = user[rows], window[rows], at_s[rows]
    begins = _group_starts(sorted_user, sorted_window)
    last = np.append(begins[1:], len(user))[: len(begins)] - 1
    times = _WindowTimes(sorted_window[begins], sorted_at_s[begins], sorted_at_s[last])
    if budgets is None:
        _NO_WINDOWS.merged(times)
    keys = [(names[sorted_user[i]], int(sorted_window[i])) for i in begins]
    keyed = [f"{day} {name}" for name, day in keys] if isinstance(draws, KeyedDraws) else None
    with contextlib.nullcontext() if budgets is None else budgets.lock:
        first = begins if order is None else order[begins]
        resumed = None
        if budgets is not None:
            if budgets.mechanism != mechanism:
                raise ParameterError("these budgets were begun with another mechanism")
            resumed = budgets.resume(keys, times, first)
        run = None if resumed is None else resumed.run
        rounds = LaneRounds(
            mechanism.without_windows if budgets is None else budgets.lane_mechanism,
            points[rows],
            sorted_at_s,
            np.append(begins, len(user)),
            SeededDraws(seed) if seed is not None else draws,
            keyed,
        )
        if not mechanism.carries_over:
            out = rounds.all_at_once(run)
        else:
            out = rounds.one_after_the_other(sorted_user[begins], run, _carried(budgets, keys))
        guarantee = mechanism.guarantee_for_each("user") if out.private else out.guarantee
        result = _in_order_of_input(dataclasses.replace(out, guarantee=guarantee), order)
        if budgets is not None and resumed is not None and out.run is not None:
            budgets.store(resumed, out.run)  # last of all, before anything is returned
    return result


def _in_order_of_input(out: Sanitized, order: Ints | None) -> Sanitized:
    """The rows where they were before they were put into this order."""
    if order is None:
        return out
    back = inverse(order)
    fields = ("value", "released", "hard", "eps_test", "eps_noise", "threshold")
    columns = {name: getattr(out, name)[back] for name in fields}
    if out.charged is not None:
        columns["charged"] = out.charged[back]
    return dataclasses.replace(out, **columns)


def _carried(budgets: Budgets | None, keys: Sequence[tuple[str, int]]) -> Run | None:
    """For the first lane of each user: the run of the window before, empty where there is none."""
    if budgets is None:
        return None
    users = [i for i, key in enumerate(keys) if not i or keys[i - 1][0] != key[0]]
    before = [budgets.before(*keys[i]) for i in users]
    carried = writable_copy(budgets.lane_mechanism.run(len(users)))
    known = np.array([i for i, lane in enumerate(before) if lane is not None], dtype=np.int64)
    lanes = np.array([lane for lane in before if lane is not None], dtype=np.int64)
    put_runs(carried, known, budgets.run.take(lanes))
    return carried


def tie_breaker(
    seed: int | None,
    draws: Draws | KeyedDraws | None,
    names: Sequence[str],
    user: Ints,
    at_s: Floats,
    points: Floats,
) -> TieBreaker:
    """Random numbers for rows that are equal in all public data.

    With a key they are a function of the key and of the row, so that a retry has the same order.
    """
    if isinstance(draws, KeyedDraws):
        keyed = draws

        def derived(rows: Ints) -> Floats:
            zeros = np.zeros(len(rows), dtype=np.int64)
            users = [names[i] for i in user[rows]]
            drawn = keyed.derive(
                users, zeros, zeros, at_s[rows], points[rows], 1, mechanism=b"order"
            )
            return drawn[:, 0]

        return derived
    source = draws or (SECURE if seed is None else SeededDraws(seed))
    return lambda rows: source.uniforms(len(rows))


def _number_users(user: Ints, names: Sequence[str]) -> tuple[Ints, Sequence[str]]:
    """The rows' users numbered in the order of their names, with one number for one name."""
    used = np.flatnonzero(np.bincount(user)) if len(user) else np.empty(0, dtype=np.int64)
    same = [canonical_name(names[i]) for i in used.tolist()]
    different = sorted(set(same), key=name_key)
    number = {name: i for i, name in enumerate(different)}
    numbers = np.zeros(int(used[-1]) + 1 if len(used) else 0, dtype=np.int64)
    numbers[used] = [number[name] for name in same]
    return numbers[user], different


def _unmasked(what: str, values: Floats) -> Floats:
    """An array without its mask. Raises if a value is masked."""
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


def _group_starts(user: Ints, window: Ints) -> Ints:
    """The rows that differ from the row before in user or window."""
    changes = np.ones(len(user), dtype=np.bool_)
    np.not_equal(user[1:], user[:-1], out=changes[1:])
    changes[1:] |= window[1:] != window[:-1]
    return np.flatnonzero(changes)


def _lane_order(user: Ints, at_s: Floats, place: Ints) -> Ints | None:
    """The rows by user, time and place; None if they are so already.

    Windows never fall as time goes on, which is checked, so they need not be sorted by.
    """
    rises, same = user[1:] > user[:-1], user[1:] == user[:-1]
    for key in (at_s, place):
        rises |= same & (key[1:] > key[:-1])
        same &= key[1:] == key[:-1]
    return None if rises.all() else np.lexsort((place, at_s, user))


def check_rows(
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
