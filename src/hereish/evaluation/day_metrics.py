"""What a receiver believes on whole days, and the metrics of it.

The belief at a query is the newest release of the day at or before it, whatever its kind: when a
budget has ended, that is a frozen place. Where a day has no release yet, it is the newest one of
the days before: leaving such queries out would flatter a mechanism that keeps silent when it is
hard. Only before the first release of a user there is no belief and no error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hereish.core.batch_results import Sanitized
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.types import Bools, Floats
from hereish.evaluation.days import DayQueries
from hereish.evaluation.metrics import (
    EDGES_M,
    binned_quantile,
    count_errors,
    draw_resamples,
    interval_ends,
)

LATE_H = 22.0  # a budget that ends before this hour has not lasted the day
HOURS = 24


class DayMetrics(NamedTuple):
    """The metrics of whole days, or one end of their confidence intervals."""

    belief_mean_m: float
    belief_median_m: float
    belief_p90_m: float
    belief_p99_m: float
    answered_share: float  # of queries with a release at that very time
    spent_share: float  # of a day's budget, averaged over days
    ended_share: float  # of days whose budget ended before midnight
    ended_before_22_share: float  # of days
    carried_share: float  # of queries whose belief is of an earlier day
    unknown_share: float  # of queries before the first release of a user


class Beliefs(NamedTuple):
    """What is believed at each query, and what was spent on it."""

    error_m: Floats  # NaN where there is no belief
    answered: Bools
    carried: Bools
    spent_share: Floats  # (days,)
    ended_hour: Floats  # (days,) of the first query after the last release; NaN if none was refused


def find_beliefs(m: PredictiveMechanism, queries: DayQueries, out: Sanitized) -> Beliefs:
    """The beliefs of a receiver of these releases."""
    number = np.arange(len(queries.at_s))
    newest = np.maximum.accumulate(np.where(out.released, number, -1))
    known = newest >= np.repeat(queries.offsets[:-1], np.diff(queries.offsets))
    error_m = np.full(len(number), np.nan)
    error_m[known] = m.space.distance(queries.points[known], out.value[newest[known]])
    first = np.searchsorted(queries.day, np.arange(queries.days))
    last = np.r_[first[1:], len(number)] - 1
    refused_from = np.maximum(newest[last] + 1, first)
    hours = queries.local_hour
    return Beliefs(
        error_m,
        out.released,
        known & (queries.day[newest] != queries.day),
        np.bincount(queries.day, out.cost, queries.days) / m.bound.total,
        np.where(refused_from <= last, hours[np.minimum(refused_from, last)], np.nan),
    )


@dataclass
class BeliefSums:
    """Sums over each user: what samples add to, and what a bootstrap draws from."""

    users: int
    columns: dict[str, Floats] = field(init=False)  # by name, a number per user
    bins: Floats = field(init=False)  # (users, bins) queries by the error of the belief
    hour_error_m: Floats = field(init=False)  # (24,) summed
    hour_bins: Floats = field(init=False)  # (24, bins)
    ended_hours: list[Floats] = field(default_factory=list)

    def __post_init__(self) -> None:
        width = len(EDGES_M) + 1
        self.columns = {name: np.zeros(self.users) for name in _COLUMNS}
        self.bins = np.zeros((self.users, width))
        self.hour_error_m = np.zeros(HOURS)
        self.hour_bins = np.zeros((HOURS, width))

    def add(self, queries: DayQueries, beliefs: Beliefs) -> None:
        """The days of some more samples."""
        whose = np.repeat(queries.user, np.diff(queries.offsets))
        known = np.isfinite(beliefs.error_m)
        ended = np.isfinite(beliefs.ended_hour)
        of_queries = {
            "queries": np.ones(len(whose)),
            "known": known,
            "answered": beliefs.answered,
            "carried": beliefs.carried,
            "error_m": np.where(known, beliefs.error_m, 0.0),
        }
        of_days = {
            "days": np.ones(queries.days),
            "spent": beliefs.spent_share,
            "ended": ended,
            "ended_early": ended & (beliefs.ended_hour < LATE_H),
        }
        whose_day = whose[np.searchsorted(queries.day, np.arange(queries.days))]
        for group, columns in ((whose, of_queries), (whose_day, of_days)):
            for name, values in columns.items():
                self.columns[name] += np.bincount(group, values, self.users)
        error_m = beliefs.error_m[known]
        hour = queries.local_hour[known].astype(np.int64)
        self.bins += count_errors(whose[known], error_m, self.users)
        self.hour_bins += count_errors(hour, error_m, HOURS)
        self.hour_error_m += np.bincount(hour, error_m, HOURS)
        self.ended_hours.append(beliefs.ended_hour[ended])

    def metrics(self) -> DayMetrics:
        """The metrics over all users."""
        values = self._metrics(np.ones((1, self.users)))
        return DayMetrics(*(float(column[0]) for column in values))

    def interval(self, rng: np.random.Generator) -> tuple[DayMetrics, DayMetrics]:
        """95 % confidence intervals: a bootstrap that draws users with replacement."""
        drawn = self._metrics(draw_resamples(self.columns["days"] > 0, rng))
        low, high = interval_ends(drawn)
        return DayMetrics(*low), DayMetrics(*high)

    def ratios(
        self, other: BeliefSums, rng: np.random.Generator
    ) -> tuple[DayMetrics, DayMetrics, DayMetrics]:
        """The metrics as shares of another's of the same users, and their 95 % intervals.

        Both are of the same users in each draw, so what users differ in is left out.
        """
        drawn = draw_resamples(self.columns["days"] > 0, rng)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = tuple(
                a / b for a, b in zip(self._metrics(drawn), other._metrics(drawn), strict=True)
            )
            value = [
                a / b if b else np.nan for a, b in zip(self.metrics(), other.metrics(), strict=True)
            ]
        low, high = interval_ends(ratios)
        return DayMetrics(*value), DayMetrics(*low), DayMetrics(*high)

    def ended_first_and_median(self) -> tuple[float | None, float | None]:
        """The local hour of the earliest end of a budget, and the median of those that ended."""
        hours = np.concatenate(self.ended_hours)
        return (float(hours.min()), float(np.median(hours))) if len(hours) else (None, None)

    def by_hour(self) -> list[tuple[int, float, float]]:
        """Hour, average and 90 % of the error of the belief, for the hours with queries."""
        counts = self.hour_bins.sum(axis=1)
        hours = np.flatnonzero(counts)
        means = self.hour_error_m[hours] / counts[hours]
        p90s = binned_quantile(self.hour_bins[hours], 0.9)
        return list(zip(hours.tolist(), means.tolist(), p90s.tolist(), strict=True))

    def _metrics(self, times: Floats) -> tuple[Floats, ...]:
        """For rows that say how many times each user counts."""
        of = {name: times @ column for name, column in self.columns.items()}
        bins = times @ self.bins
        quantiles = (binned_quantile(bins, share) for share in (0.5, 0.9, 0.99))
        with np.errstate(invalid="ignore", divide="ignore"):
            return (
                of["error_m"] / of["known"],
                *(np.where(of["known"] > 0, quantile, np.nan) for quantile in quantiles),
                of["answered"] / of["queries"],
                *(of[name] / of["days"] for name in ("spent", "ended", "ended_early")),
                of["carried"] / of["queries"],
                1.0 - of["known"] / of["queries"],
            )


_COLUMNS = (
    *("queries", "known", "answered", "carried", "error_m"),
    *("days", "spent", "ended", "ended_early"),
)
