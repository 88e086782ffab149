"""Exact bounds on chances and on privacy losses, and the smallest loss that a sample can show."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainccinv, betaincinv
from scipy.stats import binom

from hereish.core.types import Floats, PerLane

ALPHA = 1e-6
POWER = 0.9


def share_at_least(hits: PerLane, runs: int, alpha: float) -> Floats:
    """Clopper and Pearson's lower bound on a chance: too high with probability alpha at most."""
    return np.where(hits > 0, betaincinv(np.maximum(hits, 1), runs - hits + 1.0, alpha), 0.0)


def share_at_most(hits: PerLane, runs: int, alpha: float) -> Floats:
    """Clopper and Pearson's upper bound on a chance: too low with probability alpha at most."""
    return np.where(hits < runs, betainccinv(hits + 1.0, np.maximum(runs - hits, 1), alpha), 1.0)


def loss_at_least(hits: PerLane, other_hits: PerLane, runs: int, alpha: float) -> Floats:
    """A lower bound on ln(P(E|x) / P(E|x')) from how often E came up in so many runs of each."""
    with np.errstate(divide="ignore"):
        low = np.log(share_at_least(hits, runs, alpha / 2))
    return np.asarray(low - np.log(share_at_most(other_hits, runs, alpha / 2)))


def smallest_loss(
    claim: float, chance: float, runs: int, alpha: float, power: float = POWER
) -> float:
    """The smallest privacy loss that refutes a claim, in an event of this chance from one trace.

    With a probability of at least `power` the event comes up so often from the one trace, and so
    rarely from the other, that the lower bound on the loss passes the claim. Infinite if
    there are too few runs for any.
    """
    tail = (1.0 - power) / 2.0
    hits = int(binom.ppf(tail, runs, chance))

    def excess(loss: float) -> float:
        most = int(binom.ppf(1.0 - tail, runs, chance * math.exp(-loss)))
        return float(loss_at_least(hits, most, runs, alpha)) - claim

    highest = claim + 40.0
    if not excess(highest) > 0.0:
        return math.inf
    # It rises in steps, since hits are whole numbers: take the end of the bracket that passes.
    return float(brentq(excess, 0.0, highest, xtol=1e-4)) + 1e-4
