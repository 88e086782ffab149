"""hereish as a black box, and the law that it publishes, for the black-box audit.

Only what users are given is called. Distances and laws are written out again, so that the library
cannot be its own witness.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
from pyproj import Geod
from scipy.special import gammaincinv

import hereish
from hereish.audit.geometry import Flat, Globe
from hereish.audit.mechanisms import EASY, HARD, NOTHING, UNTESTED, PlannedRuns, run_batch
from hereish.audit.pair_audit import Learner, Mechanism, Pair, Score
from hereish.core.randomness import Draws
from hereish.core.types import Floats
from tests.support.compass import CLAIM

_CLAMP = 2.0**-24  # known-limits.md: how far the chance to pass stays from 0 and 1
_GEOD = Geod(ellps="WGS84")


def in_batch(m: hereish.PredictiveMechanism, at_s: Floats, draws: Draws) -> Mechanism[PlannedRuns]:
    """`hereish.sanitize`: one lane per run. Calls go on drawing where the last one ended."""
    return lambda traces: run_batch(m, traces, at_s, draws)


def live(m: hereish.PredictiveMechanism, at_s: Floats, draws: Draws) -> Mechanism[PlannedRuns]:
    """`hereish.Session`: one session per run, which is slow."""
    times = [datetime.fromtimestamp(float(at), UTC) for at in at_s]
    kinds = {"untested": UNTESTED, "easy": EASY, "hard": HARD}

    def mechanism(traces: Floats) -> PlannedRuns:
        value = np.full(traces.shape, np.nan)
        kind = np.full(traces.shape[:2], NOTHING)
        cost, eps_test, eps_noise = np.zeros((3, *traces.shape[:2]))
        threshold = np.full(traces.shape[:2], np.inf)
        for run, trace in enumerate(traces):
            session = m.session(draws=draws)
            for step, (x, at) in enumerate(zip(trace, times, strict=True)):
                try:
                    report = session.report(x, at)
                except hereish.BudgetExhaustedError:
                    continue
                cell = run, step
                value[cell], kind[cell], cost[cell] = report.value, kinds[report.kind], report.cost
                eps_test[cell], eps_noise[cell] = report.eps_test, report.eps_noise
                threshold[cell] = report.threshold
        return PlannedRuns(value, kind, cost, eps_test, eps_noise, threshold)

    return mechanism


def on_globe(x: Floats, other: Floats) -> Pair:
    """Traces of latitudes and longitudes; the claim speaks of WGS84 geodesic metres."""
    apart = _GEOD.inv(x[:, 1], x[:, 0], other[:, 1], other[:, 0])[2]
    return Pair(x, other, np.asarray(apart), Globe())


def on_plane(x: Floats, other: Floats) -> Pair:
    """Traces on a plane or a line."""
    return Pair(x, other, np.sqrt(((x - other) ** 2).sum(axis=1)), Flat())


Guesses = Callable[[Floats], Floats]  # of each step, from all that was released; NaN if none


def last_release(value: Floats) -> Floats:
    """The guesses of `hereish.Parrot`."""
    guess = np.full_like(value, np.nan)
    for step in range(1, value.shape[1]):
        newest = value[:, step - 1]
        guess[:, step] = np.where(np.isnan(newest), guess[:, step - 1], newest)
    return guess


def always(place: tuple[float, ...]) -> Guesses:
    """The guesses of a prediction that knows one place."""
    return lambda value: np.broadcast_to(np.array(place), value.shape)


def law(guesses: Guesses = last_release) -> Learner[PlannedRuns]:
    """The likelihood ratio of a run by the law that hereish publishes: nothing to learn."""

    def learner(pair: Pair, _of_x: PlannedRuns, _of_other: PlannedRuns, /) -> Score[PlannedRuns]:
        factor = CLAIM if isinstance(pair.geometry, Globe) else 1.0

        def score(released: PlannedRuns) -> Floats:
            guess, total = guesses(released.value), np.zeros(len(released.cost))
            for step in range(len(pair.x)):
                total += _log_ratio(pair, step, released, guess[:, step], factor)
            return total

        return score

    return learner


def _log_ratio(
    pair: Pair, step: int, released: PlannedRuns, guess: Floats, factor: float
) -> Floats:
    """What one step says for the first trace against the other."""
    hard, threshold = released.kind[:, step] == HARD, released.threshold[:, step]
    tested = np.isfinite(threshold)
    geometry = pair.geometry
    fresh, guessed = (geometry.positions(at) for at in (released.value[:, step], guess))
    total = np.zeros(len(hard))
    for sign, trace in ((1.0, pair.x), (-1.0, pair.other)):
        (place,) = geometry.positions(trace[step : step + 1])
        off = factor * geometry.distance(place, fresh)
        total -= sign * np.where(hard, released.eps_noise[:, step] * off, 0.0)
        beyond = geometry.distance(place, guessed) - np.where(tested, threshold, 0.0)
        tail = 0.5 * np.exp(-factor * released.eps_test[:, step] * np.abs(beyond))
        passes = np.where(
            beyond > 0.0, np.maximum(tail, _CLAMP), np.minimum(1.0 - tail, 1.0 - _CLAMP)
        )
        total += sign * np.where(tested, np.log(np.where(hard, 1.0 - passes, passes)), 0.0)
    return total


def noise_first_law(guesses: Guesses = last_release) -> Learner[PlannedRuns]:
    """The same for `hereish.NoiseFirst`."""

    def learner(pair: Pair, _of_x: PlannedRuns, _of_other: PlannedRuns, /) -> Score[PlannedRuns]:
        factor = CLAIM if isinstance(pair.geometry, Globe) else 1.0
        on_line = pair.x.shape[1] == 1

        def score(released: PlannedRuns) -> Floats:
            guess, total = guesses(released.value), np.zeros(len(released.cost))
            for step in range(len(pair.x)):
                total += _noise_first_log_ratio(
                    pair, step, released, guess[:, step], factor, on_line
                )
            return total

        return score

    return learner


def _noise_first_log_ratio(
    pair: Pair, step: int, released: PlannedRuns, guess: Floats, factor: float, on_line: bool
) -> Floats:
    """Hard: the ratio of the noise, whatever the coin. Easy: that of the mean acceptances.

    For plans that are the same in all runs.
    """
    hard, tested = released.kind[:, step] == HARD, released.kind[:, step] == EASY
    geometry = pair.geometry
    fresh, guessed = (geometry.positions(at) for at in (released.value[:, step], guess))
    total = np.zeros(len(hard))
    for sign, trace in ((1.0, pair.x), (-1.0, pair.other)):
        (place,) = geometry.positions(trace[step : step + 1])
        off = factor * geometry.distance(place, fresh)
        total -= sign * np.where(hard, released.eps_noise[:, step] * off, 0.0)
        if tested.any():
            row = int(np.flatnonzero(tested)[0])
            eps_noise, eps_test = (
                factor * float(eps[row, step]) for eps in (released.eps_noise, released.eps_test)
            )
            away = geometry.distance(place, guessed)
            table = np.linspace(0.0, float(away[tested].max()) + 1.0, 200)
            chance = _mean_acceptance(
                table, eps_noise, eps_test, float(released.threshold[row, step]), on_line
            )
            total += sign * np.where(tested, np.interp(away, table, np.log(chance)), 0.0)
    return total


def _mean_acceptance(
    away: Floats, eps_noise: float, eps_test: float, threshold: float, on_line: bool
) -> Floats:
    """P(easy) for secrets so far from the guess: over 400 radii and, on a plane, 100 angles."""
    share = (np.arange(400) + 0.5) / 400
    if on_line:
        moved = np.log(np.minimum(share, 1.0 - share) * 2.0) * np.sign(0.5 - share) / eps_noise
        distance = np.abs(away[:, None] + moved)
    else:
        radius = gammaincinv(2.0, share)[:, None] / eps_noise
        angle = (np.arange(100) + 0.5) * (np.pi / 100)
        east, north = (radius * np.cos(angle)).ravel(), (radius * np.sin(angle)).ravel()
        distance = np.hypot(away[:, None] + east, north)
    beyond = np.maximum(distance - threshold, 0.0)
    return np.asarray(np.clip(np.exp(-eps_test * beyond), _CLAMP, 1.0 - _CLAMP).mean(axis=1))


def times(steps: int, apart: timedelta = timedelta(minutes=10)) -> Floats:
    """Public times of a trace, in Unix seconds."""
    return np.arange(steps, dtype=np.float64) * apart.total_seconds()


def budget_claim(m: hereish.PredictiveMechanism, pair: Pair, windows: int = 1) -> float:
    """What the budgets of so many windows allow to be lost between the two traces."""
    return windows * m.privacy.eps_per_m * float(pair.apart.max())
