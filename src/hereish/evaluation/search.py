"""A search for numbers that suit several situations at once.

The score of a trial is the average, over the situations, of its score as a share of that of the
numbers that the search starts with. Trials see the training users alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hereish.core.mechanism import DoesNotPayOffWarning, PredictiveMechanism
from hereish.errors import ParameterError
from hereish.evaluation.situations import Fitted, Situation

Values = dict[str, float]
_AT_ONCE = 4  # trials; part of what a seed means, so that the number of threads is not
_NEARBY = 2  # of them near the best so far; the others are proposed by TPE
_STEP, _LAST_STEP = 0.15, 0.03  # how near: of the ranges, at first and in the end
_MOVED = 0.5  # the share of the numbers that such a trial changes
_DIGITS = 4  # of the numbers: more would say that they are known more exactly
_HOPELESS = 100.0  # the score of what cannot reach its goal
_FINALISTS = 5  # that are tried again with other noise, so that none wins by its luck
_TRIALS_EACH = 4  # but not more than one for so many trials


class Range(NamedTuple):
    """Where a number is searched; `log`: by its logarithm."""

    low: float
    high: float
    log: bool = True


class Found(NamedTuple):
    """Numbers that were tried, and how they did in each situation."""

    values: Values
    score: float  # 1 for the numbers at the start
    fitted: tuple[Fitted, ...]


class Searched(NamedTuple):
    """The best, the start, both with other noise than the trials had; and all trials."""

    best: Found
    start: Found
    trials: tuple[Found, ...]


@dataclass(frozen=True)
class Search:
    """What is searched: which numbers, from where, and the mechanism that they make."""

    make: Callable[[Values, float | None], PredictiveMechanism]  # of numbers and accuracy
    situations: Sequence[Situation]
    ranges: dict[str, Range]
    start: Values
    seed: int

    def run(
        self, trials: int, jobs: int = 1, progress: Callable[[int, int], None] | None = None
    ) -> Searched:
        """The same for the same seed, whatever the number of threads."""
        with warnings.catch_warnings(), ThreadPoolExecutor(jobs) as pool:
            # Here, because threads share their filters.
            warnings.simplefilter("ignore", DoesNotPayOffWarning)
            done = self._try(trials if self.ranges else 1, pool, progress)
            finalists = sorted(range(len(done)), key=lambda number: done[number].score)
            most = min(_FINALISTS, math.ceil(trials / _TRIALS_EACH))
            finalists = sorted({0, *finalists[:most]})
            again = list(
                pool.map(lambda n: self._fit(done[n].values, self.seed + 1, fine=True), finalists)
            )
        scores = _rank(again, again[0])
        finals = [
            Found(done[number].values, score, tuple(fitted))
            for number, score, fitted in zip(finalists, scores, again, strict=True)
        ]
        return Searched(min(finals, key=lambda one: one.score), finals[0], tuple(done))

    def _fit(self, values: Values, seed: int, *, fine: bool = False) -> list[Fitted]:
        try:
            return [
                one.fit(lambda accuracy_m: self.make(values, accuracy_m), seed, fine=fine)
                for one in self.situations
            ]
        except ParameterError:  # numbers that do not go together
            return [Fitted(math.inf, None, {}) for _ in self.situations]

    def _try(
        self,
        trials: int,
        pool: ThreadPoolExecutor,
        progress: Callable[[int, int], None] | None,
    ) -> list[Found]:
        """All trials; the first is the start."""
        search = new_study(
            self.seed,
            n_startup_trials=min(24, max(4, trials // 5)),
            constant_liar=True,  # of proposals made together, none is near another
        )
        search.enqueue_trial(_inside(self.start, self.ranges))
        rng = np.random.default_rng(self.seed)
        done: list[Found] = []
        reference: list[Fitted] = []
        while len(done) < trials:
            if done:
                best = min(done, key=lambda one: one.score).values
                step = _STEP * (_LAST_STEP / _STEP) ** (len(done) / trials)
                for _ in range(_NEARBY):
                    search.enqueue_trial(_moved(best, self.ranges, step, rng))
            proposals = [search.ask() for _ in range(min(_AT_ONCE, trials - len(done)))]
            values = [self._suggest(proposal) for proposal in proposals]
            if not done:
                values[0] = dict(self.start)  # as it is, even if out of range
            results = list(pool.map(lambda one: self._fit(one, self.seed), values))
            reference = reference or results[0]
            scores = _rank(results, reference)
            for proposal, value, fitted, score in zip(
                proposals, values, results, scores, strict=True
            ):
                search.tell(proposal, score)
                done.append(Found(value, score, tuple(fitted)))
            if progress is not None:
                progress(len(done), trials)
        return done

    def _suggest(self, trial: Any) -> Values:
        return {
            name: float(f"{trial.suggest_float(name, low, high, log=log):.{_DIGITS}g}")
            for name, (low, high, log) in self.ranges.items()
        }


def new_study(seed: int, **options: Any) -> Any:
    """A search by TPE, with these options of its sampler."""
    try:
        import optuna
    except ImportError as missing:
        raise ParameterError("tuning needs more: pip install 'hereish[tune]'") from missing
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, **options)
    return optuna.create_study(sampler=sampler)


def _rank(results: Sequence[Sequence[Fitted]], reference: Sequence[Fitted]) -> list[float]:
    """The scores: averages over the situations, as shares of the reference's."""
    scores = []
    for fitted in results:
        shares = [
            one.score / (other.score if math.isfinite(other.score) else 1.0)
            for one, other in zip(fitted, reference, strict=True)
        ]
        scores.append(min(float(np.mean(shares)), _HOPELESS))
    return scores


def _moved(
    values: Values, ranges: dict[str, Range], step: float, rng: np.random.Generator
) -> Values:
    """Some of the numbers changed a little, as shares of their ranges."""
    moved = _inside(values, ranges)
    for name, one in ranges.items():
        by = step * rng.standard_normal() * (rng.random() < _MOVED)
        if one.log:
            moved[name] *= (one.high / one.low) ** by
        else:
            moved[name] += (one.high - one.low) * by
    return _inside(moved, ranges)


def _inside(values: Values, ranges: dict[str, Range]) -> Values:
    return {name: min(max(values[name], one.low), one.high) for name, one in ranges.items()}
