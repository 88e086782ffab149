"""What a mechanism is tuned for: some users to tune on, others to measure on, and a score.

All situations of a data set have the same users to tune on, so that numbers for several of them,
such as several p, are never measured on somebody who had a say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.privacy import Privacy
from hereish.core.spaces import Sphere
from hereish.core.types import Bools, Floats, Ints
from hereish.errors import ParameterError
from hereish.evaluation.configurations import run_mechanism
from hereish.evaluation.dataset import Trajectories, cut_at_silence, select_on_foot
from hereish.evaluation.day_study import sum_up as sum_up_days
from hereish.evaluation.days import DayQueries, select_days
from hereish.evaluation.metrics import StudyMetrics, Sums
from hereish.evaluation.sampling import Queries, sample
from hereish.evaluation.user_traces import join, run_in_order

Build = Callable[[float | None], PredictiveMechanism]  # of the accuracy of the noise, if it has one
Measured = dict[str, float]  # by the names of the metrics
_MOST_QUERIES = 60_000  # to train on, of each situation
_MOST_OF_ONE = 0.1  # of them of one user, who would otherwise decide for everybody
_MOST_SAMPLES = 30
_TRIES = 4  # noises that are tried to find the one that just meets the limits
# How far errors stay below their limits: so many standard errors over the training users, and at
# least this share, because the others vary as well.
_CAREFUL, _LEAST_CAREFUL = 1.0, 0.02
# A day's score: what weighs how much of the error of what is believed, each as the average of the
# independent noise that has it. Without the tails, a search would buy a small average with a few
# beliefs that are very far off.
_SPHERE = Sphere()
_WEIGHTS = {
    "belief_mean_m": 0.65,
    "belief_p90_m": 0.25 * 2.0 / _SPHERE.c_noise(0.9),
    "belief_p99_m": 0.10 * 2.0 / _SPHERE.c_noise(0.99),
}
_ENDED_WEIGHS = 10.0  # the share of days whose budget ends before midnight
_DAY_SAMPLES = 2
_DELIVERED = 0.995  # of the planned reports


class Limits(NamedTuple):
    """Errors that are not to be exceeded."""

    mean_m: float
    p90_m: float

    @classmethod
    def of_accuracy(cls, accuracy_m: float) -> Limits:
        """Errors not above those of independent noise that is accurate to this."""
        return cls(2.0 * accuracy_m / _SPHERE.c_noise(0.9), accuracy_m)


class Fitted(NamedTuple):
    """What came of a mechanism for the training users."""

    score: float  # the less, the better; inf if the goal cannot be reached
    accuracy_m: float | None  # of the noise that just meets the limits, where there are limits
    metrics: Measured


class Situation(Protocol):
    """Somebody's days or traces, and what is wanted there."""

    @property
    def name(self) -> str: ...

    def fit(self, build: Build, seed: int, *, fine: bool = False) -> Fitted:
        """How well a mechanism does for the training users."""
        ...

    def measure(self, m: PredictiveMechanism, seed: int) -> Measured:
        """What the mechanism does for the held-out users, with the ends of intervals."""
        ...


@dataclass(frozen=True, eq=False)
class WholeDays:
    """Days with a query every so often: what is believed shall be near."""

    training: DayQueries
    held_out: DayQueries
    samples: int = 10  # of the noise, to measure
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", f"every {self.training.every_s / 60:g} min")

    @classmethod
    def of(
        cls, trajectories: Trajectories, training: Bools, time_zone: str, every_s: float
    ) -> WholeDays:
        queries = select_days(trajectories, time_zone, every_s)
        seen = training[queries.user]
        if seen.all() or not seen.any():
            raise ParameterError(
                "there are too few users with whole days to tune on and to test on"
            )
        return cls(queries.take(np.flatnonzero(seen)), queries.take(np.flatnonzero(~seen)))

    def fit(self, build: Build, seed: int, *, fine: bool = False) -> Fitted:
        sums = sum_up_days(
            build(None), self.training, _DAY_SAMPLES, np.random.default_rng([seed, 1])
        )
        metrics = sums.metrics()._asdict()
        score = sum(weight * metrics[name] for name, weight in _WEIGHTS.items())
        return Fitted(score * (1.0 + _ENDED_WEIGHS * metrics["ended_share"]), None, metrics)

    def measure(self, m: PredictiveMechanism, seed: int) -> Measured:
        rng = np.random.default_rng([seed, 2])
        sums = sum_up_days(m, self.held_out, self.samples, rng)
        low, high = sums.interval(rng)
        return _with_ends(sums.metrics()._asdict(), low._asdict(), high._asdict())


@dataclass(frozen=True, eq=False)
class QueryTraces:
    """Query traces of the case study; `in_order`: of each user one after the other, remembered."""

    name: str
    privacy: Privacy
    training: list[Queries]
    held_out: list[Queries]
    in_order: bool = False

    @staticmethod
    def sampled(
        trajectories: Trajectories,
        training: Bools,
        p: float,
        *,
        gaps: bool,
        in_order: bool,
        seed: int,
        held_out_samples: int | None = None,
    ) -> tuple[list[Queries], list[Queries]]:
        """Samples of the training users and of the others; the rarer queries are, the more."""
        kept, slow = select_on_foot(cut_at_silence(trajectories) if gaps else trajectories)
        points = np.diff(kept.offsets)
        parts: list[list[Queries]] = []
        for number, who in enumerate((training[kept.user], ~training[kept.user])):
            rng = np.random.default_rng([seed, number, round(1000 * p)])
            own, own_slow = kept.take(who), slow[np.repeat(who, points)]
            samples: list[Queries] = []
            enough = _MOST_QUERIES if number == 0 else 2 * _MOST_QUERIES
            while len(samples) < _MOST_SAMPLES:
                one = sample(own, own_slow, p, rng) if len(own) else None
                if one is None or not len(one):
                    break
                samples.append(_choose(one, in_order, rng) if number == 0 else one)
                if sum(len(queries.at_s) for queries in samples) >= enough or (
                    number == 1 and len(samples) == held_out_samples
                ):
                    break
            parts.append(samples)
        if not all(parts):
            raise ParameterError(f"no query trace is long enough at p = {p:g}; try a smaller p")
        return parts[0], parts[1]

    def sum_up(self, m: PredictiveMechanism, samples: Sequence[Queries], seed: int) -> Sums:
        """What the mechanism does with these samples."""
        sums = Sums.zero(samples[0].users)
        if self.in_order:
            outcomes = run_in_order(m, samples, seed)
        else:
            joined = join(samples)
            samples, outcomes = [joined], [run_mechanism(m, joined, seed)]
        for queries, outcome in zip(samples, outcomes, strict=True):
            sums.add(queries, outcome, self.privacy.eps_per_m)
        return sums

    def measure(self, m: PredictiveMechanism, seed: int) -> Measured:
        sums = self.sum_up(m, self.held_out, seed + 1_000_000)
        low, high = sums.interval(np.random.default_rng([seed, 3]))
        return _with_ends(sums.metrics()._asdict(), low._asdict(), high._asdict())


@dataclass(frozen=True, eq=False)
class LeastRate(QueryTraces):
    """The least rate with errors within limits."""

    limits: Limits = Limits.of_accuracy(3000.0)  # noqa: RUF009  # a tuple, safe to share

    def fit(self, build: Build, seed: int, *, fine: bool = False) -> Fitted:
        """With errors of the training users below the limits, and some room for the others'."""
        return self._fit(build, self.training, seed, 2 * _TRIES if fine else _TRIES, _LEAST_CAREFUL)

    def rate_at_limits(self, build: Build, seed: int) -> float:
        """The rate of held-out users, with noise of which their own errors reach the limits."""
        return self._fit(build, self.held_out, seed + 2_000_000, _TRIES, 0.0).score

    def _fit(
        self, build: Build, samples: Sequence[Queries], seed: int, tries: int, careful: float
    ) -> Fitted:
        """The rate at the noise whose errors just reach the limits, between those tried."""
        c_noise = _SPHERE.c_noise(0.9)
        low = math.log(1.05 * c_noise / self.privacy.eps_per_m)  # one report fits its budget
        high = math.log(max(3.0 * self.limits.p90_m, 4.0 * math.exp(low)))
        at = math.log(0.8 * self.limits.p90_m)
        tried: list[tuple[float, float, Sums]] = []  # log of the noise, of the excess, and the sums
        for _ in range(tries):
            at = min(max(at, low), high)
            if any(abs(at - other) < 1e-6 for other, _, _ in tried):
                break
            sums = self.sum_up(build(math.exp(at)), samples, seed)
            tried.append((at, self._excess(sums, seed, careful), sums))
            at = _where_nought(tried)
        at = min(max(at, low), high)
        near = sorted(tried, key=lambda one: abs(one[1]))[:2]
        metrics = near[0][2].metrics()
        if min(excess for _, excess, _ in tried) > 0.0 and at <= low:
            return Fitted(math.inf, None, metrics._asdict())
        if len(near) == 1 or near[0][0] == near[1][0]:
            return Fitted(metrics.rate, math.exp(at), metrics._asdict())
        (a, _, sums_a), (b, _, sums_b) = near
        rate_a, rate_b = (math.log(sums.metrics().rate) for sums in (sums_a, sums_b))
        slope = min(max((rate_b - rate_a) / (b - a), -3.0), 0.0)  # noise is not cheaper if finer
        return Fitted(math.exp(rate_a + slope * (at - a)), math.exp(at), metrics._asdict())

    def _excess(self, sums: Sums, seed: int, careful: float) -> float:
        """How far the errors are above the limits, as a logarithm."""
        metrics = sums.metrics()
        if not careful:
            return math.log(
                max(
                    metrics.error_mean_m / self.limits.mean_m,
                    metrics.error_p90_m / self.limits.p90_m,
                )
            )
        drawn = sums.resample(np.random.default_rng(seed))
        spread = StudyMetrics(*(float(np.nanstd(column)) for column in drawn))
        return max(
            math.log((value + max(_CAREFUL * error, careful * limit)) / limit)
            for value, error, limit in (
                (metrics.error_mean_m, spread.error_mean_m, self.limits.mean_m),
                (metrics.error_p90_m, spread.error_p90_m, self.limits.p90_m),
            )
        )


@dataclass(frozen=True, eq=False)
class PlannedReports(QueryTraces):
    """The least average error of so many reports, all of which are delivered."""

    reports: int = 30

    def __post_init__(self) -> None:
        for samples in (self.training, self.held_out):
            samples[:] = [queries.first(self.reports) for queries in samples]

    def fit(self, build: Build, seed: int, *, fine: bool = False) -> Fitted:
        sums = self.sum_up(build(None), self.training, seed)
        metrics = self._metrics(sums, self.training)
        missing = max(0.0, _DELIVERED - metrics["delivered"])
        return Fitted(metrics["error_mean_m"] * (1.0 + 100.0 * missing), None, metrics)

    def measure(self, m: PredictiveMechanism, seed: int) -> Measured:
        sums = self.sum_up(m, self.held_out, seed + 1_000_000)
        return super().measure(m, seed) | self._metrics(sums, self.held_out)

    @staticmethod
    def _metrics(sums: Sums, samples: Sequence[Queries]) -> Measured:
        asked = sum(len(queries.at_s) for queries in samples)
        return sums.metrics()._asdict() | {"delivered": float(sums.reports.sum()) / asked}


def _where_nought(tried: Sequence[tuple[float, float, Sums]]) -> float:
    """Where errors that grow about as fast as the noise would just reach their limits."""
    near = sorted(tried, key=lambda one: abs(one[1]))[:2]
    at, excess, _ = near[0]
    slope = 1.0
    if len(near) == 2 and near[1][0] != at:
        slope = min(max((near[1][1] - excess) / (near[1][0] - at), 0.4), 2.5)
    return at - excess / slope


def _choose(queries: Queries, in_order: bool, rng: np.random.Generator) -> Queries:
    """Not more than are needed to learn from, and not too many of one user.

    Of each user the first ones, where order matters, and else any.
    """
    when = queries.at_s[queries.offsets[:-1]] if in_order else rng.random(len(queries))
    by_user = np.lexsort((when, queries.user))
    lengths = np.diff(queries.offsets)
    before = _sums_within(queries.user[by_user], lengths[by_user])
    most = float(_MOST_QUERIES)
    counts = np.bincount(queries.user, lengths)
    for _ in range(60):  # what is cut from one makes the share of the others larger
        if np.minimum(counts, most).sum() <= _MOST_QUERIES and most <= max(
            _MOST_OF_ONE * np.minimum(counts, most).sum(), np.median(counts[counts > 0])
        ):
            break
        most *= 0.9
    return queries.take(np.sort(by_user[before < most]))


def _sums_within(group: Ints, values: Ints) -> Floats:
    """The sum of the values before each one in its group; groups lie together."""
    total = np.cumsum(values) - values
    first = np.flatnonzero(np.diff(group, prepend=-1))
    return np.asarray(
        total - np.repeat(total[first], np.diff(np.r_[first, len(group)])), dtype=float
    )


def _with_ends(value: Measured, low: Measured, high: Measured) -> Measured:
    ends = {f"{name}_lo": low[name] for name in value} | {
        f"{name}_hi": high[name] for name in value
    }
    return value | ends
