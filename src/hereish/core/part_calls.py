"""Calls of parts: copies for those of a user's own, and checks of what they answer.

A part that is known not to write to what it is given needs no copies. Every answer is checked,
and nothing that a part declares changes that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hereish.core.budget import AlwaysNoise, FixedRate, FixedUtility, Plan
from hereish.core.ensemble import Ensemble
from hereish.core.filter import Filter
from hereish.core.linear import Linear
from hereish.core.manhattan import Manhattan
from hereish.core.mobility import Mobility
from hereish.core.pacing import Paced, Steady
from hereish.core.places import PlaceMemory
from hereish.core.prediction import Lifted, Parrot
from hereish.core.remap import PriorRemap
from hereish.core.rolling import Rolling
from hereish.core.run import Run
from hereish.core.skip import SkipBySpeed
from hereish.core.spaces import Line, Plane, Sphere, find_point_outside
from hereish.core.types import (
    Bools,
    Floats,
    Ints,
    PerLane,
    all_finite,
    read_only_copy,
    take_numbers,
)
from hereish.core.windows import Day, Every, Month, NoReset, Window
from hereish.errors import HereishError, PartError

if TYPE_CHECKING:
    from hereish.core.mechanism import PredictiveMechanism
    from hereish.core.step import Prepared

# They are known not to write to what they are given, so that they need no copies.
OURS = {
    *(Parrot, Lifted, PlaceMemory, Mobility, Linear, Filter),
    *(FixedUtility, FixedRate, AlwaysNoise, Paced, Steady),
    *(SkipBySpeed, PriorRemap, NoReset, Every, Day, Month, Rolling),
}
MOVING = (Linear, Filter, Ensemble)  # that go on along a course, whatever lies ahead
OUR_SPACES = {Sphere, Plane, Manhattan, Line}


def is_ours(part: Any) -> bool:
    """Whether a part is known not to write to what it is given; an ensemble if all members are."""
    if type(part) is Ensemble:
        return all(map(is_ours, part.members))
    return type(part) in OURS


def call_part(name: str, part: Any, ask: Any, *public: Any) -> Any:
    """What a part says. One of a user's own gets read-only copies that nobody else holds."""
    if is_ours(part):
        return ask(*public)
    try:
        return ask(*map(read_only_copy, public))
    except HereishError:
        raise
    except Exception as broken:
        raise PartError(
            f"the {name} failed with {type(broken).__name__}; nothing was released"
        ) from broken


def window_numbers(window: Window, at_s: Floats) -> Ints | None:
    """The number of the window of each time; None if there is only one for ever."""
    numbers = call_part("window", window, window.index, at_s)
    if numbers is None:
        return None
    numbers = np.asarray(numbers)
    if numbers.dtype.kind not in "iu" or numbers.shape != at_s.shape:
        raise PartError(
            f"the window must return {at_s.shape} whole numbers, "
            f"found {numbers.shape} {numbers.dtype}"
        )
    return numbers.astype(np.int64, copy=False)


def guess_of(m: PredictiveMechanism, run: Run, at_s: Floats) -> Floats:
    """The guess of each lane, on the grid of the space; NaN where there is none."""
    if type(m.prediction) is Parrot:
        return run.value  # released before, so on the grid, and nobody else's
    answer = call_part("prediction", m.prediction, m.prediction, run, at_s)
    # Ours answer with the last release itself where they repeat it in every lane.
    if is_ours(m.prediction) and np.may_share_memory(answer, run.values):
        return run.value
    try:
        guess = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise PartError("the prediction must return numbers; nothing was released") from None
    if guess.shape != run.value.shape:
        raise PartError(
            f"the prediction must return an array of shape {run.value.shape} "
            f"(lanes, coordinates), found {guess.shape}"
        )
    # Half a guess is none; a guess off the map would be a bug of the prediction, and is public.
    guess = np.where(np.isnan(guess).any(axis=1, keepdims=True), np.nan, guess)
    if isinstance(m.prediction, MOVING):
        guess = _inside(m, guess)
    wrong = find_point_outside(m.space, guess[guess[:, 0] == guess[:, 0]])
    if wrong is not None:
        raise PartError(f"the prediction returned a point that is not in the space: {wrong[1]}")
    guess = m.space.snap(guess)
    guess.setflags(write=False)
    return guess


def learn(
    m: PredictiveMechanism,
    prepared: Prepared,
    hard: Bools,
    fresh: Floats,
    in_place: bool,
) -> tuple[Floats, Floats]:
    """What is released in place of fresh noise, and what the prediction has learnt by then.

    Post-processing: noise that may be released, which lanes are hard, and what was decided before
    the secret was looked at are all that is used.
    `in_place`: nobody will look at the run again, so what it has learnt is overwritten.
    """
    run, tracker = prepared.run, m.tracker
    rows: list[tuple[Ints, Floats]] = []
    if len(fresh):
        lanes = hard.nonzero()[0]
        at_s, eps = prepared.at_s[lanes], take_numbers(prepared.eps_noise, lanes)
        if m.remap is not None:
            remapped = call_part("remapping", m.remap, m.remap, fresh, eps)
            fresh = _checked_points(m, "remapping", remapped, fresh.shape)
        if tracker is not None:
            answer = call_part("prediction", tracker, tracker.update, run, lanes, at_s, fresh, eps)
            if not isinstance(answer, tuple) or len(answer) != 2:
                raise PartError(
                    "update must return points and what was learnt; nothing was released"
                )
            fresh = _checked_points(m, "prediction", answer[0], fresh.shape)
            rows.append((lanes, _checked_rows(m, answer[1], len(lanes))))
    if tracker is not None and m.learns_from_easy:
        tested = prepared.fits & ~hard
        if not prepared.all_tested:
            tested &= np.isfinite(prepared.threshold)
        lanes = tested.nonzero()[0]
        if len(lanes):
            asked = (prepared.eps_test, prepared.eps_noise, prepared.threshold)
            plan = Plan(*(take_numbers(number, lanes) for number in asked))
            given = (run, lanes, prepared.at_s[lanes], prepared.guess[lanes], plan)
            answer = call_part("prediction", tracker, tracker.accepted, *given)
            rows.append((lanes, _checked_rows(m, answer, len(lanes))))
    return fresh, _with_rows(run.learnt, rows, in_place)


def _checked_rows(m: PredictiveMechanism, answer: Any, lanes: int) -> Floats:
    """What a prediction has learnt in so many lanes."""
    if is_ours(m.tracker):
        return np.asarray(answer)
    rows = own_array("prediction", answer, (lanes, m.width))
    if not all_finite(rows):
        raise PartError("what a prediction learns must be finite; nothing was released")
    return np.broadcast_to(rows, (lanes, m.width))


def _with_rows(learnt: Floats, rows: list[tuple[Ints, Floats]], in_place: bool) -> Floats:
    """What was learnt, with new rows in some lanes."""
    if not rows:
        return learnt
    if in_place:
        learnt.setflags(write=True)
    else:
        learnt = learnt.copy()
    for lanes, new in rows:
        learnt[lanes] = new
    return learnt


def _inside(m: PredictiveMechanism, points: Floats) -> Floats:
    """Points that went beyond the edge brought back: a space may end before one it is like."""
    low, high = ([getattr(one, end) for one in m.space.coordinates] for end in ("low", "high"))
    return np.clip(points, low, high)


def _checked_points(
    m: PredictiveMechanism, role: str, answer: object, shape: tuple[int, ...]
) -> Floats:
    """Points of the grid that a part answered, as a copy that it does not hold."""
    points = own_array(role, answer, shape)
    if not isinstance(points, np.ndarray):
        raise PartError(f"the {role} must return an array of points; nothing was released")
    if role == "prediction" and isinstance(m.tracker, MOVING):
        points = _inside(m, points)
    wrong = find_point_outside(m.space, points)
    if wrong is not None:
        raise PartError(
            f"the {role} returned a point that is not in the space: {wrong[1]}; nothing was "
            "released"
        )
    return m.space.snap(points)


def checked_plan(plan: Plan, lanes: int, ours: bool) -> tuple[PerLane, PerLane, PerLane]:
    """Costs and threshold, as copies that nobody else can write to.

    Refuses a plan that would pay the user back, or ask for noise without a budget.
    """
    eps_test, eps_noise, threshold, _ = plan
    if type(eps_test) is type(eps_noise) is type(threshold) is float:
        if eps_test >= 0.0 < eps_noise and threshold == threshold:
            return eps_test, eps_noise, threshold  # numbers cannot be changed
    elif not ours:  # ours are made for this step
        eps_test, eps_noise, threshold = (
            own_array("budget manager", number, (lanes,)) for number in plan[:3]
        )
    paid = np.greater_equal(eps_test, 0.0) & np.greater(eps_noise, 0.0)
    wrong = np.not_equal(threshold, threshold)
    if np.count_nonzero(paid) < np.size(paid):
        # With +inf it costs nothing, whatever the plan says.
        wrong = wrong | ~(paid | np.equal(threshold, np.inf))
    if np.count_nonzero(wrong):
        raise PartError(
            "the budget manager must plan eps_test >= 0 and eps_noise > 0 (unless the threshold "
            "is +inf) and a threshold that is a number"
        )
    return eps_test, eps_noise, threshold


def own_array(role: str, number: Any, shape: tuple[int, ...] | None) -> PerLane:
    """What a part returned, as a number or an array of this shape that it does not hold."""
    if type(number) is float:
        return number
    try:
        owned = np.array(number, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise PartError(f"the {role} must return numbers; nothing was released") from None
    if owned.ndim == 0:
        return float(owned)
    if shape is not None and owned.shape != shape:
        raise PartError(
            f"the {role} must return numbers, or arrays of shape {shape}, found shape "
            f"{owned.shape}; nothing was released"
        )
    owned.setflags(write=False)
    return owned


def checked_skips(answer: Bools, at_s: Floats) -> Bools:
    """One boolean for each lane, as a skip rule must answer."""
    skips = np.asarray(answer)
    if skips.dtype != np.bool_ or skips.shape != at_s.shape:
        raise PartError(
            f"the skip rule must return {at_s.shape} booleans, found {skips.shape} {skips.dtype}"
        )
    return skips


def without_text(role: str, failure: BaseException) -> BaseException:
    """The error to raise instead of a part's own, whose text and class may hold the secret."""
    if isinstance(failure, KeyboardInterrupt):
        return KeyboardInterrupt()
    kind = type(failure)
    name = kind.__name__ if kind.__module__ in ("builtins", "hereish.errors") else "an error"
    return PartError(f"the {role} failed with {name}; nothing was released")
