"""Other ways to publish a stream of numbers within a budget, for comparison. NOT for releases.

`budget_distribution` and `budget_absorption` are BD and BA of Kellaris, Papadopoulos, Xiao and
Papadias, *Differentially Private Event Sequences over Infinite Streams* (PVLDB 7(12), 2014), which
promise w-event privacy: half of the budget goes into private dissimilarities between the database
and what was published last, and the other half into publications where these are large. There any
w publications in a row share a budget; here each window of w begins with a fresh one, as hereish's
do, which is no worse for them. The last publication is kept from one window to the next.

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


BASELINES: dict[str, Baseline] = {
    "BD (w-event)": budget_distribution,
    "BA (w-event)": budget_absorption,
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
