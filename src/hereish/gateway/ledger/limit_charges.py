"""What counts as spent of a user's limits beside the run of the policy in force.

Limits are the windows of a policy beside its first one (`hereish.core.limits`). What jobs have
taken of them, what earlier policies have spent, and what may have been spent before a restore is
not in the run, and counts all the same. Pure, and all of it is public. Proof: ledger.proof.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hereish.core.fingerprint import fingerprint
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.rolling import Rolling
from hereish.core.run import NO_WINDOW, Run
from hereish.core.types import Floats, Ints
from hereish.core.windows import Day, Every, Month, NoReset, Window

# More than any budget: of a limit that has something in such a bucket nothing is left.
FULL = 1e300
_EPOCH_DAY = 719_163  # of 1970-01-01, as `Day` numbers days
_MOST_WINDOWS = 4096  # that are looked at one by one
_MOST_QUANTA = 2**62
_EVER_S = -5e9, 1.6e10  # the years that windows know, nearly


class Span(NamedTuple):
    """What was taken in a window of time: at which of its moments, nobody knows."""

    first_s: float
    last_s: float
    eps: float


class BucketSum(NamedTuple):
    """What counts as spent in a bucket of a limit."""

    bucket: int
    eps: float


# By the key of a limit's window: what counts as spent beside the run, and beside jobs.
Carried = Mapping[str, Sequence[BucketSum]]


class KnownCosts(NamedTuple):
    """What reports have cost since a time, as far as the ledger knows."""

    costs: Sequence[tuple[float, float]]  # times and costs
    unknown_s: float | None  # what was spent up to then may have been pruned, or lost


def key_of(window: Window) -> str:
    """What tells the window of a limit from others, whatever its level is."""
    return _fingerprint(window)  # type: ignore[arg-type]  # ours are frozen dataclasses


_fingerprint = lru_cache(maxsize=1024)(fingerprint)


def reach(window: Window) -> int:
    """How many buckets count beside that of a report."""
    return window.older if isinstance(window, Rolling) else 0


def buckets_at(m: PredictiveMechanism, times_s: Sequence[float]) -> Ints:
    """(times, limits) The bucket of each time."""
    if m.limiter is None or not times_s:
        return np.zeros((len(times_s), len(m.limits)), dtype=np.int64)
    return m.limiter.buckets(np.array(times_s, dtype=np.float64))


def whole_totals(m: PredictiveMechanism) -> Floats:
    """The whole quanta in the budget of each limit."""
    return np.asarray(m.bound.quantised(np.array(m.bound.limits, dtype=np.float64)))


def spent_beside(
    m: PredictiveMechanism, carried: Carried, spans: Sequence[Span], at_s: float
) -> Floats:
    """What counts as spent of each limit beside the run, for a report at this time.

    All that lies no further from it than the limit reaches, before or after: so it is at least as
    much as any window of the limit holds that the report is in.
    """
    spent = np.zeros(len(m.limits))
    [now] = buckets_at(m, [at_s])
    firsts = buckets_at(m, [span.first_s for span in spans])
    lasts = buckets_at(m, [span.last_s for span in spans])
    taken = np.array([span.eps for span in spans])
    for number, limit in enumerate(m.limits):
        total, far = m.bound.limits[number], reach(limit.window)
        low, high = now[number] - far, now[number] + far
        for bucket, eps in carried.get(key_of(limit.window), ()):
            if low <= bucket <= high:
                spent[number] += m.bound.rounded_up(min(eps, total))
        near = (lasts[:, number] >= low) & (firsts[:, number] <= high)
        spent[number] += np.sum(m.bound.rounded_up(np.minimum(taken[near], total)))  # [L17]
    return spent


def left_for_window(
    m: PredictiveMechanism, number: int, window: Span, others: Iterable[tuple[int, int, float]]
) -> float:
    """What a job may take of a limit in a window, beside others: from which bucket to which, and
    how much. In every place where the limit's window can lie and meet that of the job.
    """
    total, far = m.bound.limits[number], reach(m.limits[number].window)
    quanta = 1.0 / m.bound.quantum
    low, high = buckets_at(m, [window.first_s, window.last_s])[:, number].tolist()
    high += far
    # Whole numbers: these sums fall as well as rise, and may pass what doubles add exactly.
    change = np.zeros(high - low + 2, dtype=np.int64)
    summed = 0
    for first, last, eps in others:
        begin, end = max(first, low), min(last + far, high)
        if begin <= end:
            count = math.ceil(min(eps, total) * quanta)
            summed += count
            change[begin - low] += count
            change[end - low + 1] -= count
    if summed >= _MOST_QUANTA:
        return 0.0
    most = int(np.cumsum(change).max())
    return max(0.0, (math.floor(total * quanta) - most) * m.bound.quantum)  # [L18]


def run_sums(m: PredictiveMechanism, run: Run, number: int) -> list[BucketSum]:
    """What a run has spent in each bucket of a limit that it still keeps."""
    newest = int(run.limit_bucket[0, number])
    if m.limiter is None or newest == NO_WINDOW:
        return []
    begin = sum(reach(limit.window) for limit in m.limits[:number])
    older = run.limit_older[0, begin : begin + reach(m.limits[number].window)].tolist()
    own = float(m.limiter.newest(run)[0, number])
    sums = (BucketSum(newest - ago, eps) for ago, eps in enumerate([own, *older]))
    return [one for one in sums if one.eps > 0.0]


def carry_over(
    old: PredictiveMechanism,
    run: Run,
    carried: Carried,
    new: PredictiveMechanism,
    at_s: float,
    known: Callable[[float], KnownCosts],
) -> Carried:
    """What counts as spent of the limits of a new policy that begins at this time.

    A limit that the old one has as well, whatever its level, goes on. One that is new begins with
    all that the ledger knows of, and as full where it reaches back to what is not known.
    """
    before = {key_of(limit.window): number for number, limit in enumerate(old.limits)}
    [now] = buckets_at(new, [at_s])
    sums: dict[str, list[BucketSum]] = {}
    for number, limit in enumerate(new.limits):
        key = key_of(limit.window)
        if key in before:
            sums[key] = [*carried.get(key, ()), *run_sums(old, run, before[key])]  # [L19]
            continue
        since_s = start_of_reach(limit.window, at_s)
        found = known(since_s)
        buckets = buckets_at(new, [time_s for time_s, _ in found.costs])[:, number].tolist()
        costs = (eps for _, eps in found.costs)
        sums[key] = [BucketSum(*one) for one in zip(buckets, costs, strict=True)]
        if found.unknown_s is not None:
            last = bucket_of(limit.window, min(found.unknown_s, at_s))
            sums[key].append(BucketSum(last, FULL))
    return still_counting(new, sums, now.tolist())


def still_counting(m: PredictiveMechanism, carried: Carried, now: Sequence[int]) -> Carried:
    """The sums that still count when these are the buckets of a report, one per bucket."""
    kept: dict[str, list[BucketSum]] = {}
    for limit, newest in zip(m.limits, now, strict=True):
        key = key_of(limit.window)
        sums: dict[int, float] = {}
        for bucket, eps in carried.get(key, ()):
            if bucket >= newest - reach(limit.window) and eps > 0.0:
                sums[bucket] = min(FULL, sums.get(bucket, 0.0) + eps)
        if sums:
            kept[key] = [BucketSum(*one) for one in sorted(sums.items())]
    return kept


def all_full(m: PredictiveMechanism, at_s: float) -> Carried:
    """Nothing is left of any limit in the windows that hold this time."""
    return {
        key_of(limit.window): [BucketSum(bucket_of(limit.window, at_s), FULL)] for limit in m.limits
    }


def unseen(
    m: PredictiveMechanism,
    limited: PredictiveMechanism,
    known_s: float,
    spent: float,
    until_s: float,
) -> Carried:
    """What reports and jobs under `m` may have cost since a known time, in buckets of `limited`.

    Each window of `m` since then may have had its whole budget; that of the known time, in which so
    much is spent, the rest.
    """
    sums: dict[str, list[BucketSum]] = {key_of(one.window): [] for one in limited.limits}
    most, total = max(limited.bound.limits, default=0.0), m.bound.part(1)
    summed, last_s = 0.0, until_s
    for _ in range(_MOST_WINDOWS):
        first_s = _start_s(m.window, last_s)
        begun = first_s <= known_s
        eps = max(0.0, total - spent) if begun else total
        for limit, bucket in zip(limited.limits, buckets_at(limited, [last_s])[0], strict=True):
            sums[key_of(limit.window)].append(BucketSum(int(bucket), eps))
        summed += eps
        if begun:
            return sums
        if summed > most:
            break
        last_s = math.nextafter(first_s, -math.inf)
    return all_full(limited, until_s)  # [L20]


def costs_no_more(new: PredictiveMechanism, old: PredictiveMechanism) -> bool:
    """Whether `unseen` counts enough under the old one for what is spent under the new one."""
    same = key_of(new.window) == key_of(old.window)
    return same and new.bound.part(1) <= old.bound.part(1)


def joined(*parts: Carried) -> dict[str, list[BucketSum]]:
    """All of these together."""
    sums: dict[str, list[BucketSum]] = {}
    for part in parts:
        for key, buckets in part.items():
            sums.setdefault(key, []).extend(buckets)
    return sums


def bucket_of(window: Window, at_s: float) -> int:
    """The bucket of a time, as `Limits` counts them."""
    times_s = np.array([at_s])
    if isinstance(window, Rolling):
        return int(window.bucket(times_s)[0])
    numbers = window.index(times_s)
    return 0 if numbers is None else int(numbers[0])


def start_of_reach(window: Window, at_s: float) -> float:
    """The first moment that counts beside a report at this time."""
    if isinstance(window, Rolling):
        return float((bucket_of(window, at_s) - window.older) * window.bucket_s)
    return _start_s(window, at_s)


def _start_s(window: Window, at_s: float) -> float:
    """The first moment of the window of a time."""
    if isinstance(window, NoReset):
        return -math.inf
    return float(window.start_s(np.array([at_s]))[0])  # type: ignore[attr-defined]  # a calendar's


def _end_s(window: Window, at_s: float) -> float:
    return float(window.end_s(np.array([at_s]))[0])  # type: ignore[attr-defined]  # a calendar's


def window_bounds(window: Window, number: int) -> tuple[float, float]:
    """The first and the last moment of a window by its number."""
    return _bounds(window, number)  # type: ignore[arg-type]  # ours are frozen dataclasses


@lru_cache(maxsize=65_536)
def _bounds(window: Window, number: int) -> tuple[float, float]:
    for guess_s in _guesses_s(window, number):
        if bucket_of(window, guess_s) == number:
            end_s = _end_s(window, guess_s)
            return _start_s(window, guess_s), math.nextafter(end_s, -math.inf)
    return _EVER_S  # one for ever


def _guesses_s(window: Window, number: int) -> Iterable[float]:
    """Times of which one lies in the window of this number."""
    if isinstance(window, Every):
        return [(number + 0.5) * window.duration.total_seconds()]
    if isinstance(window, Day):
        noon_s = (number - _EPOCH_DAY + 0.5) * 86400.0
        return [noon_s, noon_s - 36000.0, noon_s + 36000.0]
    if isinstance(window, Month):
        months = number - 12 * 1970
        return [(months + 0.5) * 365.2425 / 12 * 86400.0]
    return []
