"""The paper's tuning phase: which numbers suit people like these.

Each trial tries an eta, a gamma and a pause, and finds for them how coarse the noise may be so that
the errors stay below the limits (or how fine, at a stated rate). Trials see one part of the
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

from hereish.core.mechanism import DoesNotPayOffWarning, PredictiveMechanism
from hereish.core.privacy import Privacy
from hereish.core.settings import MechanismSettings, PredictionName
from hereish.core.spaces import Sphere
from hereish.core.types import Bools, Ints
from hereish.errors import ParameterError
from hereish.evaluation.configurations import run_mechanism
from hereish.evaluation.dataset import Trajectories, cut_at_silence, select_on_foot
from hereish.evaluation.metrics import Estimate, StudyMetrics, Sums
from hereish.evaluation.sampling import Queries, sample
from hereish.evaluation.search import new_study
from hereish.evaluation.study_settings import StudySettings

# Whether and from when on tests are skipped (SkipBySpeed.since); any: whichever is best.
SkipChoice = Literal["off", "hard", "tested", "any"]
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

    settings: MechanismSettings
    metrics: StudyMetrics
    score: float
    tried: tuple[tuple[float, float], ...] = ()  # rate and average error of all noises tried


@dataclass(frozen=True)
class Tuned:
    """The best settings, and how they and others do for held-out users."""

    settings: MechanismSettings
    trials: tuple[Trial, ...]
    held_out: dict[str, Estimate]  # by the name of the settings
    training_users: int
    held_out_users: int
    held_out_traces: int
    goal: Goal

    @property
    def within_limits(self) -> bool:
        """Whether the goal is reached for the held-out users."""
        metrics = self.held_out["tuned"].value
        if self.goal.rate is not None:
            return metrics.rate <= self.goal.rate
        return metrics.error_mean_m <= self.goal.mean_m and metrics.error_p90_m <= self.goal.p90_m


def paper_settings(privacy: Privacy, accuracy_m: float, skip: SkipChoice) -> MechanismSettings:
    """What the paper uses: eta 0.5, gamma 0.8, and 30 km/h where it skips."""
    plain = _utility_settings(privacy, accuracy_m, 0.5, 0.8)
    return plain if skip == "off" else replace(plain, skip_kmh=SKIP_KMH, skip_limit_m=accuracy_m)


def _utility_settings(
    privacy: Privacy, accuracy_m: float, eta: float, gamma: float
) -> MechanismSettings:
    return MechanismSettings(
        privacy.level,
        privacy.radius_m,
        accuracy_m=accuracy_m,
        eta=eta,
        gamma=gamma,
        prediction_rate=0.70,
    )


def tune(
    trajectories: Trajectories,
    goal: Goal,
    *,
    p: float = 0.2,
    gaps: bool = True,
    skip: SkipChoice = "any",
    prediction: PredictionName | None = None,
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
    kept, slow = select_on_foot(cut_at_silence(trajectories) if gaps else trajectories)
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
        for who in (_choose_training(kept.user, seen, rng), ~seen)
    ]
    training, held_out = ([queries for queries in part if len(queries)] for part in parts)
    if not (training and held_out):
        raise ParameterError(f"no query trace is long enough at p = {p:g}; try a smaller p")
    tried, best = _search(training, goal, skip, prediction, trials, seed, jobs, progress)
    # What to expect of guesses; it only decides whether hereish warns that they do not pay off.
    expected = min(round(best.metrics.prediction_rate, 2), 0.99)
    chosen = replace(best.settings, prediction_rate=expected)
    compared = {"tuned": chosen} | _baselines(goal, skip)
    measured = {
        name: _measure(settings.build(), held_out, seed, rng) for name, settings in compared.items()
    }
    return Tuned(
        settings=chosen,
        trials=tuple(tried),
        held_out=measured,
        training_users=first,
        held_out_users=len(users) - first,
        held_out_traces=sum(len(queries) for queries in held_out),
        goal=goal,
    )


def _baselines(goal: Goal, skip: SkipChoice) -> dict[str, MechanismSettings]:
    """What the tuned settings are compared with: others with the same goal."""
    if goal.rate is None:
        settings = StudySettings(goal.privacy, accuracy_m=goal.p90_m)
        return {
            "paper": paper_settings(goal.privacy, goal.p90_m, skip),
            "independent": settings.describe("fixed_utility", "independent"),
        }
    settings = StudySettings(goal.privacy, reports=round(1.0 / goal.rate), skip_kmh=SKIP_KMH)
    return {
        "paper": settings.describe("fixed_rate", skip=skip != "off"),
        "independent": settings.describe("fixed_rate", "independent"),
    }


def _choose_training(user: Ints, seen: Bools, rng: np.random.Generator) -> Bools:
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


def _measure(
    m: PredictiveMechanism, held_out: Sequence[Queries], seed: int, rng: np.random.Generator
) -> Estimate:
    return _sum_up(m, held_out, seed + 1_000_000).estimate(rng)


def _sum_up(m: PredictiveMechanism, queries: Sequence[Queries], seed: int) -> Sums:
    sums = Sums.zero(queries[0].users)
    for i, one in enumerate(queries):
        sums.add(one, run_mechanism(m, one, seed + i), m.privacy.eps_per_m)
    return sums


def _search(
    training: Sequence[Queries],
    goal: Goal,
    skip: SkipChoice,
    prediction: PredictionName | None,
    trials: int,
    seed: int,
    jobs: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[list[Trial], Trial]:
    """All trials, and the best of them with the noise found more exactly."""
    search = new_study(seed, n_startup_trials=24)
    search.enqueue_trial({"eta": 0.3, "gamma": 1.5, "pause_s": 1200.0, "restart": True})
    done: list[Trial] = []
    with warnings.catch_warnings(), ThreadPoolExecutor(jobs) as pool:
        # Here, because threads share their filters.
        warnings.simplefilter("ignore", DoesNotPayOffWarning)
        while len(done) < trials:
            proposals = [search.ask() for _ in range(min(_AT_ONCE, trials - len(done)))]
            candidates = [
                replace(_candidate(goal.privacy, skip, proposal), prediction=prediction)
                for proposal in proposals
            ]
            results = pool.map(lambda c: _fit_noise(training, goal, c, seed), candidates)
            for proposal, trial in zip(proposals, results, strict=True):
                search.tell(proposal, trial.score)
                done.append(trial)
            if progress is not None:
                progress(len(done), trials)
        best = min(done, key=lambda trial: trial.score)
        fine = _fit_noise(training, goal, best.settings, seed, _FINE)
    return done, min(best, fine, key=lambda trial: trial.score)


def _candidate(privacy: Privacy, skip: SkipChoice, trial: Any) -> MechanismSettings:
    eta = trial.suggest_float("eta", 0.02, 1.5, log=True)
    gamma = trial.suggest_float("gamma", 0.1, 10.0, log=True)
    settings = _utility_settings(privacy, 1.0, eta, gamma)
    if skip == "off":
        return settings
    pause_s = trial.suggest_float("pause_s", 30.0, 3 * 3600.0, log=True)
    limit_m = pause_s * SKIP_KMH / 3.6
    restart = skip == "tested"
    if skip == "any":
        restart = trial.suggest_categorical("restart", [True, False])
    since: Literal["hard", "tested"] = "tested" if restart else "hard"
    return replace(settings, skip_kmh=SKIP_KMH, skip_limit_m=limit_m, skip_since=since)


def _fit_noise(
    training: Sequence[Queries],
    goal: Goal,
    candidate: MechanismSettings,
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
        settings = replace(candidate, accuracy_m=math.exp(middle))
        trial, fits = _evaluate(training, goal, settings, seed)
        if fits == (goal.rate is None):  # errors: coarser noise is cheaper; rate: finer is better
            low = middle
        else:
            high = middle
        if fits and (best is None or trial.score < best.score):
            best = trial
        tried.append((trial.metrics.rate, trial.metrics.error_mean_m))
    return replace(best or replace(trial, score=1e6 + trial.score), tried=tuple(tried))


def _evaluate(
    training: Sequence[Queries], goal: Goal, settings: MechanismSettings, seed: int
) -> tuple[Trial, bool]:
    sums = _sum_up(settings.build(), training, seed)
    metrics = sums.metrics()
    if goal.rate is not None:
        return Trial(settings, metrics, metrics.error_mean_m), metrics.rate <= goal.rate
    drawn = sums.resample(np.random.default_rng(seed))
    spread = dict(
        zip(StudyMetrics._fields, (float(np.std(column)) for column in drawn), strict=True)
    )
    fits = all(
        getattr(metrics, name) + max(_CAREFUL * spread[name], _LEAST_CAREFUL * limit_m) <= limit_m
        for name, limit_m in (("error_mean_m", goal.mean_m), ("error_p90_m", goal.p90_m))
    )
    return Trial(settings, metrics, metrics.rate), fits
