"""What a mechanism did with query traces, and the metrics that the paper gives of it.

The definitions are the authors': errors are pooled over all reports of all traces, and so is their
percentile; prediction rate, skipped share and rate are computed for each trace and averaged over
traces; the share of tests is of all that was spent. Reports after the end of a trace's budget, or
of its planned reports, are no reports. Beyond theirs, the rate is also pooled over all reports:
averages over traces flatter whatever spends late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hereish.core.batch_results import Sanitized
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.types import Bools, Floats, Ints
from hereish.evaluation.sampling import Queries

# Errors are counted in bins one per cent wide, which a bootstrap can add up.
EDGES_M = np.geomspace(1.0, 2.1e7, 1701)
RESAMPLES = 300


class Outcome(NamedTuple):
    """What became of each query."""

    reported: Bools
    hard: Bools
    untested: Bools
    error_m: Floats  # only where it was reported does it mean something
    eps_test: Floats  # what was paid for the test
    cost: Floats  # what was paid in all

    @classmethod
    def of_releases(
        cls, m: PredictiveMechanism, queries: Queries, out: Sanitized, reported: Bools
    ) -> Outcome:
        """Of what was released; `reported` leaves out what does not count."""
        error_m = np.full(len(reported), np.nan)
        error_m[reported] = m.space.distance(queries.points[reported], out.value[reported])
        untested = reported & ~out.hard & ~np.isfinite(out.threshold)
        return cls(reported, out.hard & reported, untested, error_m, out.eps_test, out.cost)


class StudyMetrics(NamedTuple):
    """The metrics of the study, or one end of their confidence intervals."""

    prediction_rate: float
    test_share: float
    skipped_share: float
    error_mean_m: float
    error_p90_m: float
    rate: float
    rate_pooled: float


class Estimate(NamedTuple):
    """Metrics with the ends of their confidence intervals."""

    value: StudyMetrics
    low: StudyMetrics
    high: StudyMetrics


@dataclass
class Sums:
    """Sums over the traces of each user: what samples add to, and what a bootstrap draws from."""

    traces: Floats  # of each user
    reports: Floats
    predicted: Floats  # summed shares of traces
    skipped: Floats
    rate: Floats
    eps_test: Floats  # in budgets of a trace, as the cost
    cost: Floats
    error_m: Floats
    bins: Floats  # (users, bins) reports by their error

    @classmethod
    def zero(cls, users: int) -> Sums:
        columns: Any = [*np.zeros((8, users)), np.zeros((users, len(EDGES_M) + 1))]
        return cls(*columns)

    def add(self, queries: Queries, out: Outcome, eps_per_m: float) -> None:
        """The traces of one more sample."""
        lengths = np.diff(queries.offsets)
        trace = np.repeat(np.arange(len(queries)), lengths)

        def per_trace(values: Floats | Bools) -> Floats:
            return np.bincount(trace, values, len(queries)).astype(np.float64)

        reports = per_trace(out.reported)
        some = reports > 0
        share = np.where(some, 1.0 / np.maximum(reports, 1.0), 0.0)
        cost = per_trace(out.cost) / eps_per_m
        per = {
            "traces": some.astype(np.float64),
            "reports": reports,
            "predicted": np.where(some, 1.0 - per_trace(out.hard) * share, 0.0),
            "skipped": per_trace(out.untested) * share,
            "rate": cost * share,
            "eps_test": per_trace(out.eps_test) / eps_per_m,
            "cost": cost,
            "error_m": per_trace(np.where(out.reported, out.error_m, 0.0)),
        }
        users = len(self.traces)
        for name, values in per.items():
            getattr(self, name)[:] += np.bincount(queries.user, values, minlength=users)
        whose = queries.user[trace[out.reported]]
        self.bins += count_errors(whose, out.error_m[out.reported], users)

    def metrics(self) -> StudyMetrics:
        """The metrics over all users."""
        values = self._metrics(np.ones((1, len(self.traces))))
        return StudyMetrics(*(float(column[0]) for column in values))

    def interval(
        self, rng: np.random.Generator, level: float = 0.95
    ) -> tuple[StudyMetrics, StudyMetrics]:
        """The confidence interval: a bootstrap that draws users with replacement."""
        low, high = interval_ends(self.resample(rng), level)
        return StudyMetrics(*low), StudyMetrics(*high)

    def estimate(self, rng: np.random.Generator) -> Estimate:
        """The metrics with their confidence intervals."""
        return Estimate(self.metrics(), *self.interval(rng))

    def resample(self, rng: np.random.Generator) -> tuple[Floats, ...]:
        """Each metric in each of the resamples."""
        return self._metrics(draw_resamples(self.traces > 0, rng))

    def _metrics(self, times: Floats) -> tuple[Floats, ...]:
        """For rows that say how many times each user counts."""
        with np.errstate(invalid="ignore", divide="ignore"):
            traces, reports = times @ self.traces, times @ self.reports
            return (
                (times @ self.predicted) / traces,
                (times @ self.eps_test) / np.maximum(times @ self.cost, 1e-300),
                (times @ self.skipped) / traces,
                (times @ self.error_m) / reports,
                binned_quantile(times @ self.bins, 0.9),
                (times @ self.rate) / traces,
                (times @ self.cost) / reports,
            )


def count_errors(group: Ints, error_m: Floats, groups: int) -> Floats:
    """(groups, bins) How many errors of each group fall between the edges."""
    width = len(EDGES_M) + 1
    place = group * width + np.searchsorted(EDGES_M, error_m)
    counts = np.bincount(place, minlength=groups * width)
    return counts.reshape(groups, width).astype(np.float64)


def draw_resamples(present: Bools, rng: np.random.Generator) -> Floats:
    """(resamples, users) How many times each user counts, drawn from those who are present."""
    users = np.flatnonzero(present)
    times = np.zeros((RESAMPLES, len(present)))
    times[:, users] = rng.multinomial(len(users), np.full(len(users), 1 / len(users)), RESAMPLES)
    return times


def interval_ends(
    drawn: Sequence[Floats], level: float = 0.95
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The low and the high ends of the intervals of metrics in resamples."""
    tail = (1.0 - level) / 2.0
    known = [column[~np.isnan(column)] for column in drawn]
    ends = [np.quantile(k, [tail, 1.0 - tail]) if len(k) else (np.nan, np.nan) for k in known]
    return tuple(float(e[0]) for e in ends), tuple(float(e[1]) for e in ends)


def binned_quantile(bins: Floats, share: float) -> Floats:
    """The error below which this share of the reports lies, interpolated in its bin."""
    below = np.cumsum(bins, axis=1)
    wanted = share * below[:, -1]
    at = np.minimum((below < wanted[:, None]).sum(axis=1), len(EDGES_M) - 1)
    rows = np.arange(len(bins))
    inside = np.clip(
        (wanted - below[rows, at] + bins[rows, at]) / np.maximum(bins[rows, at], 1), 0, 1
    )
    low = EDGES_M[np.maximum(at - 1, 0)]
    return np.asarray(low * (EDGES_M[at] / low) ** inside)
