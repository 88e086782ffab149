"""The paper's tuning phase: which numbers suit people like these.

Each trial tries an eta, a gamma and a pause, and finds for them how coarse the noise may be so that
the errors stay below what is asked (or how fine, at a stated rate). Trials see one part of the
users; what is reported is measured on the others.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from hereish.core.mechanism import (
    DoesNotPayOffWarning,
    PredictiveMechanism,
    fixed_rate,
    independent,
)
from hereish.core.privacy import Privacy
from hereish.core.skip import SkipBySpeed
from hereish.core.spaces import Sphere
from hereish.core.types import Bools, Ints
from hereish.errors import ParameterError
from hereish.evaluation.configurations import outcome
from hereish.evaluation.dataset import Trajectories, cut_at_silence, of_somebody_on_foot
from hereish.evaluation.metrics import Numbers, Sums
from hereish.evaluation.sampling import Queries, sample
from hereish.evaluation.settings import Settings

Clock = Literal["off", "hard", "tested", "any"]
SKIP_KMH = 30.0  # only limit / speed matters, which is a time: the pause
_AT_ONCE = 4  # trials; part of what a seed means, so that the number of threads is not
_MOST_TRACES = 4000  # to train on
_MOST_OF_ONE = 0.1  # of them of one user, who would otherwise decide for everybody
_HALVINGS, _FINE = 6, 11  # of the range of noise: for each trial, and for the best
# How far errors stay below their limits: so many standard errors over the training users, and at
# least this share, because the others vary as well.
_CAREFUL, _LEAST_CAREFUL = 1.0, 0.02


@dataclass(frozen=True)
class Goal:
    """The least rate with errors below these limits; or the least error at this rate."""

    privacy: Privacy
    mean_m: float
    p90_m: float
    rate: float | None = None

    @classmethod
    def of_accuracy(cls, privacy: Privacy, accuracy_m: float) -> Goal:
        """Errors not above those of independent noise that is accurate to this."""
        return cls(privacy, 2.0 * accuracy_m / Sphere().c_noise(0.9), accuracy_m)


@dataclass(frozen=True)
class Trial:
    """Settings that were tried on the training users, and what came of them."""

    settings: Settings
    numbers: Numbers
    score: float
    tried: tuple[tuple[float, float], ...] = ()  # rate and average error of all noises tried


@dataclass(frozen=True)
class Tuned:
    """The best settings, and how they and others do for users that were not seen."""

    settings: Settings
    trials: tuple[Trial, ...]
    held_out: dict[str, tuple[Numbers, Numbers, Numbers]]  # by name: numbers, low and high ends
    training_users: int
    held_out_users: int
    held_out_traces: int
    goal: Goal

    @property
    def within_limits(self) -> bool:
        """Whether what was asked for holds for users that were not seen."""
        found = self.held_out["tuned"][0]
        if self.goal.rate is not None:
            return found.rate <= self.goal.rate
        return found.error_mean_m <= self.goal.mean_m and found.error_p90_m <= self.goal.p90_m


def paper(privacy: Privacy, accuracy_m: float, clock: Clock) -> Settings:
    """What the paper uses: eta 0.5, gamma 0.8, and 30 km/h where it skips."""
    plain = Settings(privacy.level, privacy.radius_m, accuracy_m, 0.5, 0.8, 0.70)
    return plain if clock == "off" else replace(plain, speed_kmh=SKIP_KMH, limit_m=accuracy_m)


def tune(
    given: Trajectories,
    goal: Goal,
    *,
    p: float = 0.2,
    gaps: bool = True,
    clock: Clock = "any",
    trials: int = 200,
    train_share: float = 0.5,
    samples: int | None = None,
    seed: int = 1,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Tuned:
    """Tune on some of the users of these trajectories, and measure on the others.

    Each trajectory gives `samples` query traces; the rarer queries are, the more, if not given.
    """
    if not 0.0 < train_share < 1.0:
        raise ParameterError(f"train_share must lie between 0 and 1, found {train_share!r}")
    kept, slow = of_somebody_on_foot(cut_at_silence(given) if gaps else given)
    rng = np.random.default_rng(seed)
    users = rng.permutation(np.unique(kept.user))
    first = round(train_share * len(users))
    if not 0 < first < len(users):
        raise ParameterError("at least two users are needed: some to tune on, and some to test on")
    seen = np.isin(kept.user, users[:first])
    times = samples or max(3, round(30 * p))
    points = np.diff(kept.offsets)
    parts = [
        [sample(kept.take(who), slow[np.repeat(who, points)], p, rng) for _ in range(times)]
        for who in (_some(kept.user, seen, rng), ~seen)
    ]
    training, held_out = ([queries for queries in part if len(queries)] for part in parts)
    if not (training and held_out):
        raise ParameterError(f"at p = {p:g} nobody asks often enough; try a smaller p")
    found, best = _search(training, goal, clock, trials, seed, jobs, progress)
    # What to expect of guesses; it only decides whether hereish warns that they do not pay.
    expected = min(round(best.numbers.prediction_rate, 2), 0.99)
    chosen = replace(best.settings, prediction_rate=expected)
    compared = {"tuned": chosen.mechanism()} | _others(goal, clock)
    measured = {name: _measured(m, held_out, seed, rng) for name, m in compared.items()}
    return Tuned(
        settings=chosen,
        trials=tuple(found),
        held_out=measured,
        training_users=first,
        held_out_users=len(users) - first,
        held_out_traces=sum(len(queries) for queries in held_out),
        goal=goal,
    )


def _others(goal: Goal, clock: Clock) -> dict[str, PredictiveMechanism]:
    """What the tuned settings are compared with: others with the same goal."""
    if goal.rate is None:
        return {
            "paper": paper(goal.privacy, goal.p90_m, clock).mechanism(),
            "independent": independent(goal.privacy, accuracy_m=goal.p90_m),
        }
    reports = round(1.0 / goal.rate)
    skip = None if clock == "off" else SkipBySpeed(SKIP_KMH)
    return {
        "paper": fixed_rate(goal.privacy, reports, skip=skip),
        "independent": independent(goal.privacy, reports=reports),
    }


def _some(user: Ints, seen: Bools, rng: np.random.Generator) -> Bools:
    """Not more than are needed to learn from, and not too many of one user."""
    mixed = rng.permutation(np.flatnonzero(seen))
    whose, counts = np.unique(user[mixed], return_inverse=True, return_counts=True)[1:]
    most = counts.max()
    for _ in range(20):  # what is cut from one makes the share of the others larger
        share = _MOST_OF_ONE * np.minimum(counts, most).sum()
        most = max(math.ceil(share), math.ceil(np.median(counts)))
    by_user = np.argsort(whose, kind="stable")
    place = np.empty(len(mixed), dtype=np.int64)
    place[by_user] = np.arange(len(mixed)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = np.zeros(len(seen), dtype=np.bool_)
    chosen[mixed[place < most][:_MOST_TRACES]] = True
    return chosen


def _measured(
    m: PredictiveMechanism, held_out: Sequence[Queries], seed: int, rng: np.random.Generator
) -> tuple[Numbers, Numbers, Numbers]:
    sums = _sums(m, held_out, seed + 1_000_000)
    return sums.numbers(), *sums.interval(rng)


def _sums(m: PredictiveMechanism, queries: Sequence[Queries], seed: int) -> Sums:
    sums = Sums.none(queries[0].users)
    for i, one in enumerate(queries):
        sums.add(one, outcome(m, one, seed + i), m.privacy.eps_per_m)
    return sums


def _search(
    training: Sequence[Queries],
    goal: Goal,
    clock: Clock,
    trials: int,
    seed: int,
    jobs: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[list[Trial], Trial]:
    """All trials, and the best of them with the noise found more exactly."""
    try:
        import optuna
    except ImportError as missing:
        raise ParameterError("tuning needs more: pip install 'hereish[tune]'") from missing
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=24)
    search = optuna.create_study(sampler=sampler)
    search.enqueue_trial({"eta": 0.3, "gamma": 1.5, "pause_s": 1200.0, "restart": True})
    found: list[Trial] = []
    with warnings.catch_warnings(), ThreadPoolExecutor(jobs) as pool:
        warnings.simplefilter(
            "ignore", DoesNotPayOffWarning
        )  # here, because threads share their filters
        while len(found) < trials:
            asked = [search.ask() for _ in range(min(_AT_ONCE, trials - len(found)))]
            tried = [_candidate(goal.privacy, clock, one) for one in asked]
            for one, trial in zip(
                asked, pool.map(lambda c: _tried(training, goal, c, seed), tried), strict=True
            ):
                search.tell(one, trial.score)
                found.append(trial)
            if progress is not None:
                progress(len(found), trials)
        best = min(found, key=lambda trial: trial.score)
        fine = _tried(training, goal, best.settings, seed, _FINE)
    return found, min(best, fine, key=lambda trial: trial.score)


def _candidate(privacy: Privacy, clock: Clock, trial: Any) -> Settings:
    eta = trial.suggest_float("eta", 0.02, 1.5, log=True)
    gamma = trial.suggest_float("gamma", 0.1, 10.0, log=True)
    settings = Settings(privacy.level, privacy.radius_m, 1.0, eta, gamma, 0.70)
    if clock == "off":
        return settings
    pause_s = trial.suggest_float("pause_s", 30.0, 3 * 3600.0, log=True)
    limit_m = pause_s * SKIP_KMH / 3.6
    restart = clock == "tested"
    if clock == "any":
        restart = trial.suggest_categorical("restart", [True, False])
    return replace(settings, speed_kmh=SKIP_KMH, limit_m=limit_m, restart=restart)


def _tried(
    training: Sequence[Queries],
    goal: Goal,
    candidate: Settings,
    seed: int,
    halvings: int = _HALVINGS,
) -> Trial:
    """The candidate with the noise that just meets the goal; bad if none does."""
    # One report must fit the budget with its test, and noise beyond the limit cannot be within it.
    least = Sphere().c_noise(0.9) / goal.privacy.eps_per_m * 2.5
    low, high = math.log(least), math.log(max(2.0 * goal.p90_m, 4.0 * least))
    best = None
    tried = []
    for _ in range(halvings):
        middle = (low + high) / 2.0
        settings = replace(candidate, noise_accuracy_m=math.exp(middle))
        trial, fits = _judged(training, goal, settings, seed)
        if fits == (goal.rate is None):  # errors: coarser noise is cheaper; rate: finer is better
            low = middle
        else:
            high = middle
        if fits and (best is None or trial.score < best.score):
            best = trial
        tried.append((trial.numbers.rate, trial.numbers.error_mean_m))
    return replace(best or replace(trial, score=1e6 + trial.score), tried=tuple(tried))


def _judged(
    training: Sequence[Queries], goal: Goal, settings: Settings, seed: int
) -> tuple[Trial, bool]:
    sums = _sums(settings.mechanism(), training, seed)
    numbers = sums.numbers()
    if goal.rate is not None:
        return Trial(settings, numbers, numbers.error_mean_m), numbers.rate <= goal.rate
    drawn = sums.resampled(np.random.default_rng(seed))
    spread = dict(zip(Numbers._fields, (float(np.std(column)) for column in drawn), strict=True))
    fits = all(
        getattr(numbers, name) + max(_CAREFUL * spread[name], _LEAST_CAREFUL * limit_m) <= limit_m
        for name, limit_m in (("error_mean_m", goal.mean_m), ("error_p90_m", goal.p90_m))
    )
    return Trial(settings, numbers, numbers.rate), fits
