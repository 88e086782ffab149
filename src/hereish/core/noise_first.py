"""One noise serves the test and the release: it is drawn first. Proof: noise_first.proof.md."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hereish.core.decision import CLAMP, Question
from hereish.core.spaces import Space, Sphere
from hereish.core.types import Bools, Floats, Ints, PerLane, take_numbers, take_rows
from hereish.errors import ParameterError, PartError


@dataclass(frozen=True)
class NoiseFirst:
    """Draws the noise first, then releases the guess if the noisy place is near enough to it.

    Within the threshold the guess is accepted, and beyond it ever more rarely, by a coin. An
    accepted guess costs `eps_test`, and fresh noise `eps_noise`: the test adds nothing to it, so a
    prediction that never works costs what independent noise does. Needs a space with
    `unrounded_noise`, and plans with `eps_test <= eps_noise`.

    Guarantee: easy is eps_test * distance-private and each hard value eps_noise * distance-private
    for each threshold and guess; at thresholds of ±inf the secret does not choose between them.
    """

    uniforms = 1
    private = True

    @staticmethod
    def costs(eps_test: PerLane, eps_noise: PerLane) -> tuple[PerLane, PerLane]:
        """Easy costs the test, and hard the noise alone."""
        if np.count_nonzero(np.greater(eps_test, eps_noise)):
            raise PartError(
                "NoiseFirst needs a plan with eps_test <= eps_noise, found an eps_test that is "
                "larger; plan a smaller eps_test: more than eps_noise gains nothing"
            )
        return eps_test, eps_noise  # [F1]

    def decide(self, space: Space, asked: Question, u: Floats) -> tuple[Bools, Floats]:
        """Draw where noise might be released, and toss the coin of the noisy place."""
        x, guess, eps_test, eps_noise, threshold, all_tested, fits = asked
        # Where the guess is released whatever the noise says, none is drawn.
        asking = fits if all_tested else fits & np.less(threshold, np.inf)  # [F2]
        count = np.count_nonzero(asking)
        if not count:
            return np.zeros(len(fits), dtype=np.bool_), x[:0]
        lanes = None
        if count < len(fits):
            lanes = asking.nonzero()[0]
            x, guess, u = take_rows(x, lanes), take_rows(guess, lanes), take_rows(u, lanes)
            eps_test, eps_noise = take_numbers(eps_test, lanes), take_numbers(eps_noise, lanes)
            threshold = take_numbers(threshold, lanes)
        drawn = _draw(space, x, eps_noise, u[:, 1:])  # [F3]
        hard = ~self._accepted(space, x, drawn, guess, eps_test, threshold, all_tested, u[:, 0])
        fresh = np.count_nonzero(hard)
        if not fresh:
            return np.zeros(len(fits), dtype=np.bool_), x[:0]
        picked = None if fresh == count else hard.nonzero()[0]
        rows = _place(space, x, drawn, picked)
        if lanes is not None:
            everywhere = np.zeros(len(fits), dtype=np.bool_)
            everywhere[lanes] = hard
            hard = everywhere
        return hard, space.snap(rows)  # [F4]

    def _accepted(
        self,
        space: Space,
        x: Floats,
        drawn: Floats,
        guess: Floats,
        eps_test: PerLane,
        threshold: PerLane,
        all_tested: bool,
        u: Floats,
    ) -> Bools:
        """Which guesses are released in place of what was drawn."""
        tested = True if all_tested else np.isfinite(threshold)
        if not np.count_nonzero(tested):
            return np.zeros(len(x), dtype=np.bool_)
        # Of the noisy place as it was drawn: rounded, it would tell more than eps_test (the proof
        # has why).
        apart = _distance(space, x, drawn, guess)
        accepted = u < self.acceptance(apart, eps_test, threshold)  # [F5]
        if accepted.shape != (len(x),):
            raise TypeError  # its text would not be repeated
        return np.asarray(accepted if all_tested else accepted & tested)  # [F6]

    @staticmethod
    def acceptance(distance: Floats, eps: PerLane, threshold: PerLane) -> Floats:
        """exp(-eps * max(0, distance - threshold)), clamped; means nothing at ±inf."""
        beyond = np.maximum(distance - threshold, 0.0)
        beyond *= -eps
        chance = np.exp(beyond, out=beyond)  # [F7]
        np.maximum(chance, CLAMP, out=chance)
        return np.minimum(chance, 1.0 - CLAMP, out=chance)  # [F8]

    @staticmethod
    def c_test(delta: float, share: float) -> float:
        """For eps_test = 1, how far beyond the threshold a guess passes with less than 1 - delta.

        `share` is eps_test / eps_noise. Noise of radius r brings a guess nearer by at most r, and
        the mean of exp(eps_test * r) is (1 - share)**-2 on a plane and in city blocks, and less on
        sphere and line.
        """
        if not 0.0 < delta < 1.0:
            raise ParameterError(f"delta must lie strictly between 0 and 1, found {delta!r}")
        return math.inf if share >= 1.0 else -math.log1p(-delta) - 2.0 * math.log1p(-share)


# On a sphere noisy places are vectors until they are released: most of them never are, and
# latitude and longitude are what takes the time.


def _draw(space: Space, x: Floats, eps_noise: PerLane, u: Floats) -> Floats:
    """Noise as it is drawn, before it is rounded."""
    if type(space) is Sphere:
        return space.draw(x, eps_noise, u)
    unrounded: Floats = space.unrounded_noise(x, eps_noise, u)  # type: ignore[attr-defined]  # compatibility.py has looked
    return unrounded


def _distance(space: Space, x: Floats, drawn: Floats, guess: Floats) -> Floats:
    """From the guesses to what was drawn for the secrets."""
    if type(space) is Sphere:
        return space.distance_to(guess, drawn, x)
    return space.distance(drawn, guess)


def _place(space: Space, x: Floats, drawn: Floats, lanes: Ints | None) -> Floats:
    """What was drawn in these lanes as points of the space; None means all."""
    if type(space) is not Sphere:
        return drawn if lanes is None else take_rows(drawn, lanes)
    if lanes is None:
        return space.place(drawn, x)
    return space.place(drawn.take(lanes, axis=1), take_rows(x, lanes))
