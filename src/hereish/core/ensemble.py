"""Several predictions side by side, of which the one that has done best is asked.

Everything here is post-processing of what was released: who guessed best is told by releases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hereish.core.budget import Plan
from hereish.core.filter import Filter
from hereish.core.linear import Linear
from hereish.core.motion import Axes, axes_of, sum_rows
from hereish.core.parts import check_declared, declared
from hereish.core.prediction import FunctionPrediction, Parrot, Prediction, Tracker
from hereish.core.privacy import positive
from hereish.core.run import Run
from hereish.core.spaces import Space, Sphere
from hereish.core.types import Floats, Ints, PerLane
from hereish.errors import ParameterError

_SPHERE = Sphere()
_MOST_MEMBERS = 20
_LEAST = -700.0  # the logarithm of a weight; what is less is no number any more


@dataclass(frozen=True)
class Ensemble(Tracker):
    """Asks the prediction that has done best so far, by multiplicative weights.

    Fresh noise tells how far off the guess of each of the `members` was, whichever was asked: that
    distance, in units of the noise and at most `most`, is taken from the logarithm of its weight,
    times `rate`. Then a `share` of all weight is dealt out anew (fixed share), so that one that has
    lost for long is soon back when somebody boards a train. The first member is asked until
    another's weight is `lead` times as large. While guesses are accepted nothing changes. With
    `rule="asked"` it is as in the paper: only the one that was asked wins or loses, by 1, by
    whether its guess was accepted.

    Without `members` they are Parrot, Linear and Filter. What is released in place of fresh noise
    is what the one that was asked says.

    Guarantee: sees released points and public times, so it costs nothing.
    """

    space: Space = _SPHERE
    members: tuple[Prediction, ...] = ()
    rate: float = 1.0
    most: float = 10.0
    share: float = 0.02
    lead: float = 2.0
    rule: Literal["all", "asked"] = "all"
    axes: Axes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", axes_of(self.space, "Ensemble"))
        if not self.members:
            own = (Parrot(), Linear(self.space), Filter(self.space))
            object.__setattr__(self, "members", own)
        if not (isinstance(self.members, tuple) and 2 <= len(self.members) <= _MOST_MEMBERS):
            raise ParameterError(
                f"members must be a tuple of 2 to {_MOST_MEMBERS} predictions, "
                f"found {self.members!r}"
            )
        usual = tuple(
            declared(one, "prediction", FunctionPrediction, "memory", "needs_history")
            for one in self.members
        )
        object.__setattr__(self, "members", usual)
        for one in self.members:
            if isinstance(one, Tracker):
                check_declared(one, "prediction", "width", "reach")
        for name in ("rate", "most", "lead"):
            positive(name, getattr(self, name))
        if not 0.0 < self.share < 1.0 or self.lead < 1.0:
            raise ParameterError(
                "share must lie strictly between 0 and 1 and lead be at least 1, found "
                f"{self.share!r} and {self.lead!r}"
            )
        if self.rule not in ("all", "asked"):
            raise ParameterError(f"rule must be 'all' or 'asked', found {self.rule!r}")

    @property
    def memory(self) -> int:
        """As many past releases as the member that looks at most of them."""
        return max(one.memory for one in self.members)

    @property
    def needs_history(self) -> bool:
        """Whether a member does."""
        return any(one.needs_history for one in self.members)

    @property
    def width(self) -> int:
        """The logarithms of the weights, and what each member has learnt."""
        return len(self.members) + sum(map(_width, self.members))

    @property
    def reach(self) -> float:
        """The furthest of the members'."""
        return max(one.reach if isinstance(one, Tracker) else 0.0 for one in self.members)

    @property
    def learns_from_easy(self) -> bool:
        """Whether a member does, or the weights follow from it."""
        learning = [one for one in self.members if isinstance(one, Tracker)]
        return self.rule == "asked" or any(one.learns_from_easy for one in learning)

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        guesses = self._guesses(run, at_s)
        return _picked(guesses, self._asked(run.learnt, guesses))

    def asked(self, run: Run, at_s: Floats) -> Ints:
        """(lanes,) The number of the member whose guess is given at a time."""
        return self._asked(run.learnt, self._guesses(run, at_s))

    def weights(self, run: Run) -> Floats:
        """(lanes, members) The weights, whose sum is 1."""
        weights = np.exp(run.learnt[:, : len(self.members)])
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def update(
        self, run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps_noise: PerLane, /
    ) -> tuple[Floats, Floats]:
        here, learnt = self._copied(run, lanes)
        guesses = self._guesses(here, at_s)
        asked = self._asked(learnt, guesses)
        released, every = [], np.arange(len(lanes))
        for one, own, view in self._views(here):
            points = fresh
            if isinstance(one, Tracker):
                points, learnt[:, own] = one.update(view, every, at_s, fresh, eps_noise)
            released.append(points)
        if self.rule == "asked":
            losses = self._of_asked(asked, 1.0)
        else:
            # The logarithm of the density of this noise, had the guess been true; without a guess
            # the most that there is.
            apart = [self.axes.roughly_apart(fresh, guess) for guess in guesses]
            losses = [np.fmin(eps_noise * one, self.most) for one in apart]
        self._reweigh(learnt, losses)
        return _picked(released, asked), learnt

    def accepted(self, run: Run, lanes: Ints, at_s: Floats, guess: Floats, plan: Plan, /) -> Floats:
        here, learnt = self._copied(run, lanes)
        if self.rule == "asked":
            asked = self._asked(learnt, self._guesses(here, at_s))
            self._reweigh(learnt, self._of_asked(asked, -1.0))
        every = np.arange(len(lanes))
        for one, own, view in self._views(here):
            if isinstance(one, Tracker) and one.learns_from_easy:
                learnt[:, own] = one.accepted(view, every, at_s, guess, plan)
        return learnt

    def find_fault(self, learnt: Floats, /) -> str | None:
        logs = learnt[:, : len(self.members)]
        if not np.all((logs >= _LEAST) & (logs <= 0.0)):
            return "the weight of a prediction is none"
        first = len(self.members)
        for one in self.members:
            own = slice(first, first + _width(one))
            first = own.stop
            fault = one.find_fault(learnt[:, own]) if isinstance(one, Tracker) else None
            if fault is not None:
                return fault
        return None

    def _copied(self, run: Run, lanes: Ints) -> tuple[Run, Floats]:
        """These lanes of the run, and what they have learnt once more, to be written over."""
        here = run.take(lanes)
        learnt = here.learnt  # a copy already
        return here._replace(learnt=_read_only(learnt)), learnt

    def _views(self, run: Run) -> Iterator[tuple[Prediction, slice, Run]]:
        """Each member, where its numbers are, and the run as if it were there alone."""
        first = len(self.members)
        for one in self.members:
            own = slice(first, first + _width(one))
            first = own.stop
            past: slice = slice(one.memory)
            view = run._replace(
                values=run.values[:, past],
                times_s=run.times_s[:, past],
                hards=run.hards[:, past],
                learnt=run.learnt[:, own],
            )
            yield one, own, view

    def _guesses(self, run: Run, at_s: Floats) -> list[Floats]:
        return [np.asarray(one(view, at_s)) for one, _, view in self._views(run)]

    def _asked(self, learnt: Floats, guesses: list[Floats]) -> Ints:
        """Who is asked in each lane: one with a guess, the first unless another leads by enough."""
        weights = np.ascontiguousarray(learnt[:, : len(guesses)].T)
        best = weights[0] + math.log(self.lead)
        best = np.where(guesses[0][:, 0] == guesses[0][:, 0], best, -np.inf)
        asked = np.zeros(len(learnt), dtype=np.int64)
        for number, guess in enumerate(guesses[1:], start=1):
            weight = np.where(guess[:, 0] == guess[:, 0], weights[number], -np.inf)
            ahead = weight > best
            asked = np.where(ahead, number, asked)
            best = np.where(ahead, weight, best)
        return asked

    def _of_asked(self, asked: Ints, loss: float) -> list[Floats]:
        """What each member loses where only those that were asked do."""
        return [np.where(asked == number, loss, 0.0) for number in range(len(self.members))]

    def _reweigh(self, learnt: Floats, losses: list[Floats]) -> None:
        """Write the logarithms of the weights after an outcome, the largest 0."""
        count = len(losses)
        logs = np.empty((count, len(learnt)))
        for number, loss in enumerate(losses):
            np.subtract(learnt[:, number], self.rate * loss, out=logs[number])
        weights = np.exp(np.maximum(logs - _largest(logs), _LEAST))
        anew = sum_rows(weights) * (self.share / count)
        logs = np.log(weights * (1.0 - self.share) + anew)
        learnt[:, :count] = (logs - _largest(logs)).T


def _width(one: Prediction) -> int:
    return one.width if isinstance(one, Tracker) else 0


def _largest(rows: Floats) -> Floats:
    largest: Floats = rows[0]
    for row in rows[1:]:
        largest = np.maximum(largest, row)
    return largest


def _read_only(array: Floats) -> Floats:
    view = array.view()
    view.setflags(write=False)
    return view


def _picked(each: list[Floats], asked: Ints) -> Floats:
    """Of several points of each lane the one of this number."""
    points = each[0]
    for number, others in enumerate(each[1:], start=1):
        lanes = (asked == number).nonzero()[0]
        if len(lanes):
            if points is each[0]:
                points = points.copy()
            points[lanes] = others[lanes]
    return points
