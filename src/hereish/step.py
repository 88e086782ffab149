"""THE step: live sessions, batches, the gateway and Spark all go through it. Proof: step.proof.md.

`prepare` is everything that public data decides; the secret is not among its arguments. `step`
then uses the secret twice: in the test, and in the noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hereish.arrays import Bools, Floats, Ints, PerLane, all_finite
from hereish.budget import Plan
from hereish.errors import PartError
from hereish.run import Run
from hereish.spaces import fault

if TYPE_CHECKING:
    from hereish.mechanism import PredictiveMechanism


class Release(NamedTuple):
    """What one step released in each lane, and what it cost. Public.

    Budgets and thresholds are one number where all lanes share it.
    """

    value: Floats  # NaN where nothing was released
    released: Bools
    hard: Bools
    cost: Floats
    eps_test: PerLane  # paid for the test, 0 where there was none
    eps_noise: PerLane  # what noise cost if it was hard, 0 where none could be drawn
    threshold: PerLane  # ±inf where there was no test


class Prepared(NamedTuple):
    """A step before the secret is looked at. Public."""

    run: Run
    guess: Floats
    eps_test: PerLane
    eps_noise: PerLane
    threshold: PerLane
    known: Bools  # there is a guess
    fits: Bools  # the worst case can be paid
    all_tested: bool  # no lane has a threshold of ±inf


def in_window(m: PredictiveMechanism, run: Run, at_s: Floats) -> Run:
    """The run as it stands at this time: with a fresh budget where a new window has begun."""
    window = m.window.index(at_s)
    return run if window is None else run.in_window(window)


def prepare(m: PredictiveMechanism, run: Run, at_s: Floats) -> Prepared:
    """Guess, plan, skip and bound, from the public run and the public time alone."""
    run = in_window(m, run, at_s)
    guess = _guess(m, run, at_s)  # [S1]
    plan = m.budget(run, at_s)  # [S2]
    if not getattr(m.budget, "sound", False):
        _check_plan(plan)
    threshold = plan.threshold
    if m.skip is not None:
        skips = _skips(m.skip(run, at_s, plan), at_s)
        threshold = np.where(skips, np.inf, threshold)
    known = guess[:, 0] == guess[:, 0]
    if np.count_nonzero(known) < len(known):
        threshold = np.where(known, threshold, -np.inf)
    eps_test = m.bound.quantised(plan.eps_test)
    # Never nothing: noise of no budget would be infinite.
    eps_noise: PerLane = np.maximum(m.bound.quantised(plan.eps_noise), m.bound.quantum)
    all_tested = all_finite(threshold)
    if not all_tested:
        # A test that is not made costs nothing, and neither does noise that cannot be drawn.
        eps_test = np.where(np.isfinite(threshold), eps_test, 0.0)  # [S3]
        eps_noise = np.where(np.equal(threshold, np.inf), 0.0, eps_noise)
    fits = m.bound.fits(run.spent, eps_test + eps_noise) & ~run.ended  # [S4]
    return Prepared(run, guess, eps_test, eps_noise, threshold, known, fits, all_tested)


def step(
    m: PredictiveMechanism, run: Run, x: Floats, at_s: Floats, u: Floats
) -> tuple[Release, Run]:
    """One report of each lane: secrets `x`, public times `at_s`, `m.uniforms` columns of `u`.

    Guarantee: what is released, given the run, is `cost * distance`-private in `x` (Lemma 1), and
    `spent` in the new run never exceeds the budget of the window.
    """
    run, guess, eps_test, eps_noise, threshold, known, fits, all_tested = prepare(m, run, at_s)
    scale, tests = m.space.claim_factor, m.test_uniforms
    failure = ""
    try:
        # A floating-point warning could depend on the secret, so none may come out of here.
        with np.errstate(all="ignore"):
            close = m.test(m.space, x, guess, eps_test * scale, threshold, u[:, :tests])  # [S5]
            hard = fits & ~close
            lanes = hard.nonzero()[0]
            if len(lanes) == len(hard):
                value = m.space.noise(x, eps_noise * scale, u[:, tests:])  # [S6]
            else:
                value = guess.copy("K")
                if len(lanes):
                    eps = _of(eps_noise, lanes) * scale
                    fresh = m.space.noise(_rows(x, lanes), eps, _rows(u[:, tests:], lanes))  # [S7]
                    value.T[:, lanes] = fresh.T
    except Exception as broken:  # noqa: BLE001  # whatever it was, nothing may be released
        failure = type(broken).__name__
    if failure:
        # Its words may hold the secret: they are not repeated, and not carried as a cause.
        raise PartError(f"the test or the noise failed with {failure}; nothing was released")
    released, all_fit = fits, np.count_nonzero(fits) == len(fits)
    if not all_fit:
        eps_test, eps_noise = np.where(fits, eps_test, 0.0), np.where(fits, eps_noise, 0.0)
        threshold = np.where(fits, threshold, np.inf)
        if m.on_exhausted == "predict":
            released = fits | known
        value[~released] = np.nan
    cost = np.asarray(eps_test + eps_noise * hard)  # [S8]
    release = Release(value, released, hard, cost, eps_test, eps_noise, threshold)
    ended = run.ended if all_fit else ~fits
    asked = None if all_tested and all_fit else np.less(threshold, np.inf)
    return release, _record(run, release, at_s, ended, asked, m.tracks)


def _rows(table: Floats, lanes: Ints) -> Floats:
    """These lanes, each column in one piece."""
    return table.T.take(lanes, axis=1).T


def _of(values: PerLane, lanes: Ints) -> PerLane:
    return values[lanes] if isinstance(values, np.ndarray) and values.ndim else values


def _record(
    run: Run, release: Release, at_s: Floats, ended: Bools, asked: Bools | None, tracks: bool
) -> Run:
    """The run with this release in front; lanes that released nothing only learn that they ended.

    `asked` are the lanes in which the secret had a say; None means all.
    """
    value, released, hard, cost, _, _, threshold = release
    # Lanes that released nothing keep what they had.
    kept = None if ended is run.ended else (~released).nonzero()[0]
    hard_at_s, hard_threshold, tested_at_s = run.hard_at_s, run.hard_threshold, run.tested_at_s
    if tracks:
        hard_at_s = np.where(hard, at_s, hard_at_s)
        hard_threshold = np.where(hard, threshold, hard_threshold)
        tested_at_s = at_s if asked is None else np.where(asked, at_s, tested_at_s)
    return Run(
        values=_pushed(run.values, value, kept),
        times_s=_pushed(run.times_s, at_s, kept),
        hards=_pushed(run.hards, hard, kept),
        reports=run.reports + (1 if ended is run.ended else released),
        easy=run.easy + (released > hard),
        spent=run.spent + cost,
        ended=ended,
        window=run.window,
        hard_at_s=hard_at_s,
        hard_threshold=hard_threshold,
        tested_at_s=tested_at_s,
    )


def _pushed(history: Any, newest: Any, kept: Ints | None) -> Any:
    """`newest` in front of the history and the oldest dropped, but not in the lanes `kept`."""
    if history.shape[1] == 1:
        if kept is None:
            return newest[:, None]
        pushed = newest.copy("K")[:, None]
    else:
        pushed = np.concatenate([newest[:, None], history[:, :-1]], axis=1)
    if kept is not None:
        pushed.T[..., kept] = history.T[..., kept]
    return pushed


def _guess(m: PredictiveMechanism, run: Run, at_s: Floats) -> Floats:
    guess = m.prediction(run, at_s)
    if getattr(m.prediction, "on_grid", False):
        return guess
    guess = np.asarray(guess, dtype=np.float64)
    if guess.shape != run.value.shape:
        raise PartError(
            f"the prediction must return an array of shape {run.value.shape} "
            f"(lanes, coordinates), found {guess.shape}"
        )
    # Half a guess is none; a guess off the map would be a bug of the prediction, and is public.
    guess = np.where(np.isnan(guess).any(axis=1, keepdims=True), np.nan, guess)
    wrong = fault(m.space, guess[guess[:, 0] == guess[:, 0]])
    if wrong is not None:
        raise PartError(f"the prediction returned a point that is not in the space: {wrong[1]}")
    return m.space.snap(guess)


def _check_plan(plan: Plan) -> None:
    """Refuse a plan that would pay the user back, or ask for noise without a budget."""
    paid = np.greater_equal(plan.eps_test, 0.0) & np.greater(plan.eps_noise, 0.0)
    free = np.equal(plan.threshold, np.inf)
    if not (np.all(paid | free) and np.all(np.equal(plan.threshold, plan.threshold))):
        raise PartError(
            "the budget manager must plan eps_test >= 0 and eps_noise > 0 (unless the threshold "
            "is +inf) and a threshold that is a number"
        )


def _skips(answer: Bools, at_s: Floats) -> Bools:
    skips = np.asarray(answer)
    if skips.dtype != np.bool_ or skips.shape != at_s.shape:
        raise PartError(
            f"the skip rule must return {at_s.shape} booleans, found {skips.shape} {skips.dtype}"
        )
    return skips
