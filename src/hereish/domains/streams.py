"""Numbers that are published again and again: a guess that follows them, and a budget shared out.

How far fresh noise falls from the guess, in scales of the noise, is its surprise. While surprises
are no larger than noise alone makes them, nothing much is changing: guesses are tested, accepted
ones cost little, and noise is averaged. Where they are larger, no test is asked for, and each
publication gets independent noise of an equal part of the budget. All of this looks at public data
alone, so it costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

import numpy as np

from hereish.core.budget import Plan
from hereish.core.mechanism import OnExhausted, PredictiveMechanism
from hereish.core.noise_first import NoiseFirst
from hereish.core.prediction import Tracker
from hereish.core.privacy import Privacy, positive
from hereish.core.run import Run
from hereish.core.spaces import probability
from hereish.core.step import check_grid
from hereish.core.types import Bools, Floats, Ints, PerLane
from hereish.core.vector import Vector
from hereish.core.windows import Window, as_window
from hereish.errors import ParameterError

# A publication may take so much of what is left; the rest keeps the next one from being refused.
_MOST_OF_THE_REST = 0.95
# Noise of less than this part of an equal share says next to nothing: the guess is repeated.
_LEAST_PART = 1.0 / 8.0
# The first columns of what is learnt: the mean surprise, the share of failed tests, and the
# accepted guesses and the window by then. Others follow: how exactly each number of the last
# release is known, as a sum of squared epsilons.
_SURPRISE, _FAILING, _EASY, _WINDOW = range(4)
_FIRST_WEIGHT = 4
_LARGEST_SURPRISE = 3.0  # what counts of a jump: one is no reason to expect the next
_FAILING_RATE = 0.15
_FIRST_LEARNING = 0.5
_MOST_NOISES = 20.0  # no release is taken to be more exact than the mean of so many
_FADES = 0.03  # and by so much less for each time that it was repeated
_PAUSE = 24.0  # publications that one draw may serve, however many there are
_TESTS = 0.5  # what tests may cost between two draws that are due
_ASKED_FROM = 1.0 / 3.0  # of calmness


@dataclass(frozen=True)
class StreamNumbers:
    """How a stream is followed; tuned on made-up streams (docs/statistics.md).

    `accept`: the share of mere noise that passes a test. `strictness`: eps_test / eps_noise just
    after fresh noise, and half of it after `patience` accepted guesses. `calm` and `wild`: the mean
    surprise up to which all is calm, and from which on noise is independent. `learning`: the weight
    of the newest surprise. `first_surprise` and `first_failing`: what is expected before there is
    any. `evidence`: the surprise from which on a change is likelier than bad luck.
    """

    accept: float = 0.65
    strictness: float = 0.23
    patience: float = 14.0
    calm: float = 1.2
    wild: float = 1.5
    learning: float = 0.08
    first_surprise: float = 1.6
    first_failing: float = 0.55
    evidence: float = 6.0

    def __post_init__(self) -> None:
        for name in ("accept", "strictness", "learning", "first_failing"):
            probability(name, getattr(self, name))
        for name in ("patience", "calm", "first_surprise", "evidence"):
            positive(name, getattr(self, name))
        if not self.calm < positive("wild", self.wild):
            raise ParameterError(f"wild must lie above calm, found {self.wild!r} and {self.calm!r}")


STREAM = StreamNumbers()


class Condition(NamedTuple):
    """How a stream has behaved, per lane. Public."""

    surprise: Floats
    failing: Floats  # the share of tests that fail
    accepted: Floats  # guesses since the last fresh noise

    def calmness(self, numbers: StreamNumbers) -> Floats:
        """From 0, where noise is independent, to 1."""
        return calmness(self.surprise, numbers)

    def asked(self, numbers: StreamNumbers) -> Bools:
        """Whether a guess is worth a test."""
        return np.asarray(self.calmness(numbers) > _ASKED_FROM)


def calmness(surprise: Floats, numbers: StreamNumbers) -> Floats:
    """From 0, where nothing is expected of guesses, to 1."""
    return np.clip((numbers.wild - surprise) / (numbers.wild - numbers.calm), 0.0, 1.0)


@dataclass(frozen=True)
class Follow(Tracker):
    """Guesses the last release, and averages fresh noise with it where nothing seems to change.

    A number of which the fresh noise is far from the guess is taken to have changed and released as
    it is; near it the mean of both is, weighted by how exactly each is known.

    Guarantee: sees released numbers alone, so it costs nothing.
    """

    space: Vector
    numbers: StreamNumbers = STREAM
    memory = 1
    needs_history = False

    def __post_init__(self) -> None:
        if not isinstance(self.space, Vector):
            raise ParameterError(
                f"numbers are followed on a hereish.Vector, found {type(self.space).__name__}"
            )

    @property
    def width(self) -> int:
        return _FIRST_WEIGHT + self._dim

    @property
    def reach(self) -> float:
        """Half a dozen times the mean noise of each number."""
        return 6.0 * self._dim

    @property
    def _dim(self) -> int:
        return len(self.space.coordinates)

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        return run.value

    def condition(self, run: Run) -> Condition:
        """How the stream has behaved until now."""
        numbers, learnt = self.numbers, run.learnt
        begun = learnt[:, _SURPRISE] > 0.0
        # An accepted guess is as surprising as noise alone; fewer in a window that has just begun.
        before = np.where(run.window == learnt[:, _WINDOW], learnt[:, _EASY], 0.0)
        accepted = np.where(begun, np.maximum(run.easy - before, 0.0), 0.0)
        fading = np.exp(accepted * math.log1p(-numbers.learning))
        surprise = 1.0 + (learnt[:, _SURPRISE] - 1.0) * fading
        failing = learnt[:, _FAILING] * np.exp(accepted * math.log1p(-_FAILING_RATE))
        return Condition(
            np.where(begun, surprise, numbers.first_surprise),
            np.where(begun, failing, numbers.first_failing),
            accepted,
        )

    def pause(self, run: Run, eps_equal: float) -> Floats:
        """How many publications one noise should serve, where each could have this epsilon."""
        return np.ones(len(run.spent))

    def weights(self, run: Run, condition: Condition) -> Floats:
        """(lanes, count) How exactly each number of the last release is known by now."""
        fading = np.exp(condition.accepted * math.log1p(-_FADES))
        return np.asarray(run.learnt[:, _FIRST_WEIGHT:][:, : self._dim] * fading[:, None])

    def update(
        self, run: Run, lanes: Ints, at_s: Floats, fresh: Floats, eps_noise: PerLane, /
    ) -> tuple[Floats, Floats]:
        run, eps = run.take(lanes), np.broadcast_to(eps_noise, len(lanes))
        guess, before = self(run, at_s), self.condition(run)
        known = guess[:, 0] == guess[:, 0]
        guess = np.where(known[:, None], guess, fresh)
        own = (eps * eps)[:, None]
        weight = np.minimum(self.weights(run, before), _MOST_NOISES * own)
        scales = np.abs(fresh - guess) * (eps * (1.0 / self.space.mean_noise))[:, None]
        seen = scales / _wider(eps[:, None], weight)
        counted = _mean_in_order(np.minimum(seen, _LARGEST_SURPRISE))
        # The first of all says more than what was expected of it.
        rate = np.where(run.learnt[:, _SURPRISE] > 0.0, self.numbers.learning, _FIRST_LEARNING)
        newest = before.surprise + rate * (counted - before.surprise)
        surprise = np.where(known, newest, self.numbers.first_surprise)
        calm = np.where(known, calmness(surprise, self.numbers), 0.0)[:, None]
        doubt = np.exp(np.minimum(self.numbers.evidence - seen, 50.0))
        doubt = doubt / (1.0 + doubt)
        estimate = self._estimate(run, guess, fresh, eps, doubt * (weight / (own + weight)))
        released = fresh + calm * (estimate - fresh)
        failed = before.failing + _FAILING_RATE * (1.0 - before.failing)
        learnt = run.learnt.copy()
        learnt[:, _SURPRISE] = surprise
        learnt[:, _FAILING] = np.where(known & before.asked(self.numbers), failed, before.failing)
        learnt[:, _EASY] = run.easy
        learnt[:, _WINDOW] = run.window
        learnt[:, _FIRST_WEIGHT:][:, : self._dim] = calm * doubt * weight + own
        return self._within_reach(fresh, released, eps), learnt

    def find_fault(self, learnt: Floats, /) -> str | None:
        if not np.all(np.delete(learnt, _WINDOW, axis=1) >= 0.0):
            return "a surprise, a share, a count or a weight is below nought"
        if not np.all(learnt[:, _FAILING] <= 1.0):
            return "more tests have failed than there were"
        return None

    def _estimate(
        self, run: Run, guess: Floats, fresh: Floats, eps: Floats, pull: Floats
    ) -> Floats:
        """What to release where all is calm: fresh noise, pulled to the guess."""
        return np.asarray(fresh + pull * (guess - fresh))

    def _within_reach(self, fresh: Floats, released: Floats, eps: Floats) -> Floats:
        """Moved no further than receivers can count on."""
        moved = self.space.distance(fresh, released) * eps
        allowed = self.reach / np.maximum(moved, self.reach)
        return np.asarray(fresh + allowed[:, None] * (released - fresh))


def mean_distance(r: Floats) -> Floats:
    """How far two Laplace variables of scales 1 and r are from each other on average."""
    return np.asarray((1.0 + r + r * r) / (1.0 + r))


def _wider(eps: Floats, weight: Floats) -> Floats:
    """How many times as far noise of `eps` falls from a release of this weight as from the truth.

    A release that is worse than the noise counts as one that is as good: it is to be replaced.
    """
    return mean_distance(eps / np.sqrt(np.maximum(weight, eps * eps)))


def _mean_in_order(numbers: Floats) -> Floats:
    """The means of the rows, summed in one order: the same bits for one lane and for many."""
    return np.asarray(np.add.accumulate(numbers, axis=1)[:, -1] / numbers.shape[1])


@dataclass(frozen=True)
class SharedOut:
    """Shares the budget of a window out among its `publications`, a public number.

    While the stream is calm each fresh noise gets as if only tests and the usual share of failures
    were still to come; where it is not, an equal part of what is left, without a test. What is left
    is never all taken: more publications than planned get less and less, and at last the guess.
    """

    total: float
    publications: int
    follow: Follow
    needs_history = False
    near: float = field(init=False, repr=False, compare=False)  # in scales of the noise
    least: float = field(init=False, repr=False, compare=False)  # that noise is drawn with

    def __post_init__(self) -> None:
        positive("total", self.total)
        whole = isinstance(self.publications, (int, np.integer))
        if not whole or isinstance(self.publications, bool) or self.publications < 1:
            raise ParameterError(
                f"publications must be a whole number from 1, found {self.publications!r}"
            )
        if not isinstance(self.follow, Follow):
            raise ParameterError(f"follow must be a Follow, found {type(self.follow).__name__}")
        space, part = self.follow.space, _LEAST_PART * self.total / self.publications
        object.__setattr__(self, "near", space.c_noise(self.follow.numbers.accept))
        object.__setattr__(self, "least", max(space.smallest_eps, part))

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        follow, numbers = self.follow, self.follow.numbers
        if run.learnt.shape[1] != follow.width:
            raise ParameterError("the mechanism must predict by what its budget follows")
        condition = follow.condition(run)
        asked = condition.asked(numbers)
        strictness = numbers.strictness / (1.0 + condition.accepted * (1.0 / numbers.patience))
        each = np.where(asked, strictness + (1.0 - strictness) * condition.failing, 1.0)
        # Where noise is far too wide to tell anything, it is saved up for draws that are due.
        longest = max(self.publications / 8, min(self.publications / 2, _PAUSE))
        pause = np.minimum(follow.pause(run, self.total / self.publications), longest)
        sparse = pause > 1.0
        strictness = np.where(sparse, np.minimum(strictness, _TESTS / pause), strictness)
        each = np.where(sparse, (1.0 + _TESTS) / np.maximum(pause, 1.0 + _TESTS), each)
        # The first is due at once: a public number may be far off.
        waiting = (run.learnt[:, _SURPRISE] > 0.0) & (condition.accepted + 1.0 < pause)
        asked = np.where(sparse, waiting, asked)
        to_come = np.maximum(self.publications - 1 - run.reports, 0)
        share = 1.0 / (1.0 + each * to_come)
        wanted = (self.total - run.spent) * np.minimum(share, _MOST_OF_THE_REST)
        eps_noise = np.maximum(wanted, self.least)
        apart = _mean_in_order(_wider(eps_noise[:, None], follow.weights(run, condition)))
        threshold = np.where(asked, self.near * apart / eps_noise, -np.inf)
        threshold = np.where(wanted < self.least, np.inf, threshold)
        return Plan(strictness * eps_noise, eps_noise, threshold)


def stream(
    privacy: Privacy,
    space: Vector,
    publications: int,
    *,
    window: Window | str | timedelta | None = None,
    follow: Follow | None = None,
    on_exhausted: OnExhausted = "stop",
) -> PredictiveMechanism:
    """A mechanism for numbers that are published `publications` times in each window.

    Where they change slowly beside the noise it is far more exact than independent noise of the
    same budget, and where they do not it is as good.

    Guarantee: as that of every PredictiveMechanism, for each window.
    """
    if not isinstance(privacy, Privacy):
        raise ParameterError(f"privacy must be a hereish.Privacy, found {type(privacy).__name__}")
    follow = follow or Follow(space)
    m = PredictiveMechanism(
        privacy,
        SharedOut(privacy.eps_per_m, publications, follow),
        space,
        follow,
        NoiseFirst(),
        window=as_window(window),
        on_exhausted=on_exhausted,
    )
    check_grid(m, privacy.eps_per_m / publications)
    return m
