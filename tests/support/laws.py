"""Checks of random laws at one fixed level, each with the smallest error that it detects.

A check turns a sample into a p-value. A test holds if that is at least ALPHA, and its negative
controls hold if it is below. `smallest_…` says what a check can see: an error of that size is
rejected with probability 1 - ALPHA, so a control of that size fails as rarely as a true law does.
Samples are fixed by their seeds, and nothing is ever tried twice.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import (
    betainc,
    chdtrc,
    chdtri,
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
    ndtr,
    ndtri,
)
from scipy.stats import binom, kstest, kstwo, ncx2

from hereish import SeededDraws
from hereish.core.types import Floats, Ints

ALPHA = 1e-6
SECTORS = 36
HARMONICS = 4


class Factors(NamedTuple):
    """Noise times `low` or less, or times `high` or more, is rejected."""

    low: float
    high: float


def uniforms(seed: int, rows: int, columns: int) -> Floats:
    """A table of uniforms, the same for the same seed."""
    return SeededDraws(seed).uniforms(rows * columns).reshape(rows, columns)


def two_sided(below: float, above: float) -> float:
    """The p-value from the chances of so little and of so much."""
    return min(1.0, 2.0 * min(float(below), float(above)))


def gamma_sum_p(total: float, shape: float) -> float:
    """Is `total` a draw from Gamma(shape)?

    The sum of n lengths is exactly that: n exponential ones have shape n, n planar radii 2n.
    """
    return two_sided(gammainc(shape, total), gammaincc(shape, total))


def smallest_scale_error(shape: float, alpha: float = ALPHA) -> Factors:
    """What `gamma_sum_p` sees: lengths that are all too short, or too long, by a factor."""
    least, most = gammaincinv(shape, alpha / 2), gammainccinv(shape, alpha / 2)
    low = least / gammainccinv(shape, alpha)
    high = most / gammaincinv(shape, alpha)
    return Factors(float(low), float(high))


def survival_p(survival: Floats) -> float:
    """Are these uniform? -ln of a uniform is exponential, so the sum is exactly Gamma(n).

    For survival functions of lengths: almost as sharp as `gamma_sum_p`, for any law.
    """
    return gamma_sum_p(float(-np.log(survival).sum()), len(survival))


def uniform_p(values: Floats) -> float:
    """Are these uniform on (0, 1)? Kolmogorov-Smirnov: sees any shape, none very sharply."""
    return float(kstest(values, "uniform").pvalue)


def smallest_distance(n: int, alpha: float = ALPHA) -> float:
    """What `uniform_p` sees: a distribution function that is off by this anywhere."""
    return 2.0 * float(kstwo.isf(alpha, n))


def harmonics_p(angle: Floats) -> float:
    """Is the direction uniform? Rayleigh's test, on the first four harmonics together."""
    turns = np.outer(np.arange(1, HARMONICS + 1), angle)
    power = (np.cos(turns).sum(axis=1) ** 2 + np.sin(turns).sum(axis=1) ** 2).sum()
    return float(chdtrc(2 * HARMONICS, 2.0 * power / len(angle)))


def smallest_tilt(n: int, alpha: float = ALPHA) -> float:
    """What `harmonics_p` sees: the `a` of a density 1 + a cos(h (angle - any)), h up to 4."""
    return math.sqrt(2.0 * _noncentrality(2 * HARMONICS, alpha) / n)


def sectors_p(angle: Floats) -> float:
    """Is the direction uniform? Chi-squared over 36 sectors: sees narrow beams."""
    # Half a sector off the axes: there a grid would put whole rows of points on a boundary.
    turns = (angle / (2.0 * math.pi) + 0.5 / SECTORS) % 1.0
    counts = np.bincount((turns * SECTORS).astype(np.int64) % SECTORS, minlength=SECTORS)
    return equal_cells_p(counts)


def smallest_beam(n: int, alpha: float = ALPHA) -> float:
    """What `sectors_p` sees: the excess of one sector over its share, relative to that share."""
    return math.sqrt(_noncentrality(SECTORS - 1, alpha) * (SECTORS - 1) / n)


def joint_p(survival: Floats, angle: Floats) -> float:
    """Are length and direction uniform together, so independent? 10 by 12 cells of equal mass."""
    tenth = np.minimum((survival * 10).astype(np.int64), 9)
    twelfth = ((angle / (2.0 * math.pi) + 0.5 / 12) % 1.0 * 12).astype(np.int64) % 12
    return equal_cells_p(np.bincount(tenth * 12 + twelfth, minlength=120))


def equal_cells_p(counts: Ints) -> float:
    """Have all cells the same chance? Chi-squared; they should expect dozens."""
    mean = counts.sum() / len(counts)
    return float(chdtrc(len(counts) - 1, ((counts - mean) ** 2).sum() / mean))


def cells_p(counts: Ints, shares: Floats) -> float:
    """Have the cells these chances, which sum to 1? Chi-squared; they should expect dozens."""
    expected = shares * counts.sum()
    return float(chdtrc(len(counts) - 1, ((counts - expected) ** 2 / expected).sum()))


def spread_p(north: Floats, east: Floats) -> float:
    """Is noise as wide from north to south as from east to west?

    If it is, |north| - |east| is as likely as its opposite, and its normalised sum is normal.
    """
    difference = np.abs(north) - np.abs(east)
    z = difference.sum() / math.sqrt((difference * difference).sum())
    return 2.0 * float(ndtr(-abs(z)))


def smallest_stretch(n: int, alpha: float = ALPHA) -> float:
    """What `spread_p` sees in planar Laplace noise: one axis stretched by this share.

    For eps = 1 the mean of |north| is 4/pi, and the variance of the difference 6 (1 - 2/pi).
    """
    reach = float(ndtri(1.0 - alpha / 2) + ndtri(1.0 - alpha))
    return reach * math.sqrt(6.0 * (1.0 - 2.0 / math.pi)) / (4.0 / math.pi) / math.sqrt(n)


def binomial_p(count: int, trials: int, chance: float) -> float:
    """Did a coin of this chance come up `count` times? Exact, and conservative as coins are."""
    return two_sided(1.0 - at_least(count + 1, trials, chance), at_least(count, trials, chance))


def at_least(count: int, trials: int, chance: float) -> float:
    """The chance of `count` heads or more."""
    if count <= 0:
        return 1.0
    return float(betainc(count, trials - count + 1, chance)) if count <= trials else 0.0


def smallest_share_error(trials: int, chance: float, alpha: float = ALPHA) -> Factors:
    """What `binomial_p` sees: this chance instead, or one that is further off."""
    least, most = binom.ppf(alpha / 2, trials, chance), binom.isf(alpha / 2, trials, chance)
    low = brentq(lambda p: binom.sf(least - 1, trials, p) - alpha, 1e-12, chance)
    high = brentq(lambda p: binom.cdf(most, trials, p) - alpha, chance, 1.0 - 1e-12)
    return Factors(float(low), float(high))


def ratio_p(a: Ints, b: Ints, bound: float) -> float:
    """Has each cell a chance under `a` of at most `bound` times that under `b`, and vice versa?

    Given how often both of equally many draws hit a cell, the share of `a` is binomial. One
    exact one-sided test for each cell and direction; the smallest p-value times their number.
    """
    hits, both = np.concatenate([a, b]), np.concatenate([a + b, a + b])
    chance = bound / (1.0 + bound)
    so_many = np.where(hits > 0, betainc(np.maximum(hits, 1), both - hits + 1, chance), 1.0)
    return min(1.0, len(hits) * float(so_many.min()))


def smallest_ratio(hits: int, cells: int, bound: float, alpha: float = ALPHA) -> float:
    """What `ratio_p` sees in a cell that both draws hit `hits` times together: a true ratio."""
    most = binom.isf(alpha / (2 * cells), hits, bound / (1.0 + bound))
    chance = brentq(lambda p: binom.cdf(most, hits, p) - alpha, 0.5, 1.0 - 1e-12)
    return float(chance / (1.0 - chance))


def _noncentrality(freedom: int, alpha: float) -> float:
    """How far off a chi-squared statistic must be to be rejected with probability 1 - alpha."""
    critical = float(chdtri(freedom, alpha))
    missed = brentq(lambda shift: ncx2.cdf(critical, freedom, shift) - alpha, 1e-3, 1e4)
    return float(missed)
