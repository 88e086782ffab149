"""Other ways to publish a stream of numbers within a budget, for comparison. NOT for releases.

`budget_distribution` and `budget_absorption` are BD and BA of Kellaris, Papadopoulos, Xiao and
Papadias, *Differentially Private Event Sequences over Infinite Streams* (PVLDB 7(12), 2014), which
promise w-event privacy: half of the budget goes into private dissimilarities between the database
and what was published last, and the other half into publications where these are large. There any
w publications in a row share a budget; here each window of w begins with a fresh one, as hereish's
do, which is no worse for them. The last publication is kept from one window to the next.

`filtered_sampling` is FAST of Fan and Xiong, *An Adaptive Approach to Real-Time Aggregate
Monitoring with Differential Privacy* (IEEE TKDE 26(9), 2014): few samples with small noise, a
Kalman filter that smooths them, and a PID controller that takes the next one the sooner the more
the last one was news. Their promise is for a whole series, as ours is for a window.

Arrays are (lanes, publications, numbers). A budget `eps` is per unit of the l1 norm over
`sensitivity`. Randomness is NumPy's: what comes out of here is not private.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from hereish.core.types import Floats

Baseline: TypeAlias = Callable[..., Floats]


def budget_distribution(
    x: Floats, eps: float, w: int, rng: np.random.Generator, *, sensitivity: float, first: float
) -> Floats:
    """BD: each publication takes half of what the window has left for publications."""
    lanes, steps, _ = x.shape
    last, released = np.full(x[:, 0].shape, first), np.empty_like(x)
    left = np.empty(lanes)
    for step in range(steps):
        if step % w == 0:
            left = np.full(lanes, 0.5 * eps)
        apart = _noisy_dissimilarity(last, x[:, step], 0.5 * eps / w, sensitivity, rng)
        planned = 0.5 * left
        new = apart > sensitivity / planned
        last = np.where(new[:, None], _laplace(x[:, step], planned, sensitivity, rng), last)
        left = left - np.where(new, planned, 0.0)
        released[:, step] = last
    return released


def budget_absorption(
    x: Floats, eps: float, w: int, rng: np.random.Generator, *, sensitivity: float, first: float
) -> Floats:
    """BA: a publication takes the shares of those that were skipped, and of some to come."""
    lanes, steps, _ = x.shape
    share = 0.5 * eps / w
    last, released = np.full(x[:, 0].shape, first), np.empty_like(x)
    absorbed, owed = np.zeros(lanes), np.zeros(lanes)
    for step in range(steps):
        if step % w == 0:
            absorbed, owed = np.zeros(lanes), np.zeros(lanes)
        apart = _noisy_dissimilarity(last, x[:, step], share, sensitivity, rng)
        # Who owes shares to a publication pays with this one, and cannot publish.
        absorbed = np.where(owed > 0, 0.0, absorbed + 1.0)
        planned = share * np.minimum(np.maximum(absorbed, 1.0), w)
        new = (apart > sensitivity / planned) & (owed <= 0)
        last = np.where(new[:, None], _laplace(x[:, step], planned, sensitivity, rng), last)
        owed = np.where(new, absorbed - 1.0, np.maximum(owed - 1.0, 0.0))
        absorbed = np.where(new, 0.0, absorbed)
        released[:, step] = last
    return released


# Of FAST: the samples of a window and the variance of a step over that of the noise, the best of
# 25 pairs on databases like those of `count_study` with another seed. Then the gains of the
# controller (none for the derivative), over how many samples it sums up, how fast intervals change,
# and the news that leaves them as they are: of the paper's form, and usual values of ours, which
# were neither tuned nor compared with the authors' program.
_SAMPLES, _PROCESS = 0.1, 0.03
_UNKNOWN = 1e9  # before the first sample, which is believed
_GAINS, _SUMMED, _INTERVAL, _EXPECTED_NEWS = (0.9, 0.1), 5, 10.0, 0.1


def filtered_sampling(
    x: Floats, eps: float, w: int, rng: np.random.Generator, *, sensitivity: float, first: float
) -> Floats:
    """FAST: a Kalman filter over samples, which a PID controller takes at intervals of its own.

    All numbers of a lane are sampled at once, each filtered by itself; what is news is averaged.
    """
    lanes, steps, _ = x.shape
    samples = max(1, round(_SAMPLES * w))
    share = np.full(lanes, eps / samples)
    noise = 2.0 * (sensitivity * samples / eps) ** 2
    known, variance = np.full(x[:, 0].shape, first), np.full(lanes, _UNKNOWN * noise)
    left = np.zeros(lanes)
    wait, interval = np.zeros(lanes), np.ones(lanes)
    news = np.zeros((_SUMMED, lanes))  # the newest first
    released = np.empty_like(x)
    for step in range(steps):
        if step % w == 0:
            left = np.full(lanes, float(samples))
        variance = variance + _PROCESS * noise
        due = (wait <= 0.0) & (left > 0.0)
        drawn = _laplace(x[:, step], share, sensitivity, rng)
        gain = variance / (variance + noise)
        after = known + gain[:, None] * (drawn - known)
        surprise = (np.abs(after - known) / np.maximum(np.abs(after), sensitivity)).mean(axis=1)
        newest = np.concatenate([surprise[None], news[:-1]])
        control = _GAINS[0] * surprise + _GAINS[1] * newest.mean(axis=0)
        # Sooner after more news than expected, later after less.
        grown = interval + _INTERVAL * (1.0 - np.exp(np.minimum(control / _EXPECTED_NEWS - 1.0, 9)))
        known = np.where(due[:, None], after, known)
        variance = np.where(due, gain * noise, variance)
        news = np.where(due, newest, news)
        interval = np.where(due, np.maximum(grown, 1.0), interval)
        left = left - due
        wait = np.where(due, np.floor(interval), wait) - 1.0
        released[:, step] = known
    return released


BASELINES: dict[str, Baseline] = {
    "BD (w-event)": budget_distribution,
    "BA (w-event)": budget_absorption,
    "FAST (Kalman, PID)": filtered_sampling,
}


def _noisy_dissimilarity(
    last: Floats, now: Floats, eps: float, sensitivity: float, rng: np.random.Generator
) -> Floats:
    """The mean absolute difference of the numbers, which is private for its own eps."""
    numbers = now.shape[1]
    scale = sensitivity / (eps * numbers)
    return np.asarray(np.abs(last - now).mean(axis=1) + rng.laplace(0.0, scale, len(now)))


def _laplace(now: Floats, eps: Floats, sensitivity: float, rng: np.random.Generator) -> Floats:
    return np.asarray(now + rng.laplace(0.0, 1.0, now.shape) * (sensitivity / eps)[:, None])
