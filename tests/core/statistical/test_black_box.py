"""The black-box audit is audited: its bounds are exact, and it convicts nobody who is innocent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom

import hereish
from hereish.audit.bounds import ALPHA, loss_at_least, share_at_least, share_at_most
from hereish.audit.geometry import Flat, Globe
from hereish.audit.learnt_score import learn
from hereish.audit.pair_audit import Pair, ReleasedRuns, Score, audit_pair
from hereish.core.types import Floats
from tests.support.compass import CLAIM, RADIUS_M, seen_from, walk
from tests.support.laws import uniforms
from tests.support.published_law import in_batch, law, on_globe, on_plane, times

LOOSE = 0.05


@pytest.mark.parametrize("runs", [1, 40])
@pytest.mark.parametrize("alpha", [LOOSE, ALPHA])
def test_bounds_on_a_share_fail_as_rarely_as_stated_and_not_much_more_rarely(
    runs: int, alpha: float
) -> None:
    """Exact, for all counts and 2,001 chances."""
    chances, hits = np.linspace(0.0, 1.0, 2001), np.arange(runs + 1.0)
    mass = binom.pmf(hits, runs, chances[:, None])
    too_high = (mass * (share_at_least(hits, runs, alpha) > chances[:, None])).sum(axis=1)
    too_low = (mass * (share_at_most(hits, runs, alpha) < chances[:, None])).sum(axis=1)
    for failed in (too_high, too_low):
        assert failed.max() <= alpha * (1.0 + 1e-9)
        assert failed.max() > 0.8 * alpha or runs == 1


def test_what_never_happens_and_what_always_does_are_no_evidence() -> None:
    assert loss_at_least(0, 0, 1000, ALPHA) == -math.inf
    assert loss_at_least(1000, 1000, 1000, ALPHA) < 0.0
    assert loss_at_least(0, 1000, 1000, ALPHA) == -math.inf
    assert loss_at_least(1000, 0, 1000, ALPHA) > 4.0


def _answers(truth: float, seed: int) -> Callable[[Floats], ReleasedRuns]:
    """Randomised response, no part of hereish: two answers that are true with this chance.

    Places are 0 and 1, and an answer costs its exact loss, so the claim is attained.
    """
    seeds = iter(range(seed, seed + 10**9))

    def mechanism(traces: Floats) -> ReleasedRuns:
        true = uniforms(next(seeds), len(traces), 2) < truth
        value = np.where(true[:, :, None], traces, 1.0 - traces)
        cost = np.full(true.shape, math.log(truth / (1.0 - truth)))
        return ReleasedRuns(value, np.zeros(true.shape, dtype=np.int64), cost)

    return mechanism


ZERO, ONE = np.zeros((2, 1)), np.ones((2, 1))
APART = Pair(ZERO, ONE, np.ones(2), Flat())


def _zeros(pair: Pair, of_x: ReleasedRuns, of_other: ReleasedRuns, /) -> Score[ReleasedRuns]:
    return lambda released: -released.value.sum(axis=(1, 2))


def test_a_true_claim_is_refuted_as_rarely_as_stated() -> None:
    """300 audits of 2,000 runs at a level of 5 %; the claim is attained: the worst case.

    Fewer fail than may: a bound on a ratio fails only if both shares come out badly.
    """
    mechanism, loss = _answers(0.75, 10_000), 2 * math.log(3)
    refuted = sum(
        audit_pair(mechanism, APART, {"law": _zeros}, claim=loss, runs=2000, alpha=LOOSE).refuted
        for _ in range(300)
    )
    assert refuted <= 300 * LOOSE


def _coins(seed: int) -> Callable[[Floats], ReleasedRuns]:
    """Releases numbers that have nothing to do with the trace, for free."""
    seeds = iter(range(seed, seed + 10**9))

    def mechanism(traces: Floats) -> ReleasedRuns:
        value = uniforms(next(seeds), len(traces), 2)
        free = np.zeros_like(value)
        return ReleasedRuns(value[:, :, None], free.astype(np.int64), free)

    return mechanism


def test_learning_from_noise_convicts_nobody() -> None:
    """Where nothing differs the claim is 0: 60 audits of 2,000 runs at a level of 5 %.

    Counted on the runs that it was learnt from, the same score would convict at a level of 1e-6.
    """
    coins = _coins(20_000)
    refuted = sum(
        audit_pair(coins, APART, {"learnt": learn}, claim=0.0, runs=2000, alpha=LOOSE).refuted
        for _ in range(60)
    )
    assert refuted <= 60 * LOOSE
    of_x, of_other = coins(np.zeros((500, 2, 1))), coins(np.zeros((500, 2, 1)))
    score = learn(APART, of_x, of_other)
    hits, other_hits = (int((score(part) > 0.5).sum()) for part in (of_x, of_other))
    assert loss_at_least(hits, other_hits, 500, ALPHA) > 0.0


def test_a_claim_that_is_false_by_a_twentieth_is_refuted() -> None:
    """100,000 runs, alpha = 1e-6: the loss is 2 ln 3, and the bound reaches 0.95 of it."""
    found = audit_pair(_answers(0.75, 30_000), APART, {"learnt": learn}, claim=2.09, runs=100_000)
    assert 0.95 * 2 * math.log(3) < found.loss < 2 * math.log(3)
    assert found.refuted


@pytest.mark.parametrize("place", [(0.0, 0.0), (60.0, 179.99), (90.0, 0.0), (-89.9999, 30.0)])
def test_the_audits_globe_measures_what_the_compass_walks(place: tuple[float, float]) -> None:
    metres, bearing = np.geomspace(1.0, 1.9e7, 60), np.linspace(-3.0, 3.0, 60)
    here = np.tile(place, (60, 1))
    globe, there = Globe(), walk(here, metres / RADIUS_M, bearing)
    x, points = globe.positions(here)[0], globe.positions(there)
    assert np.allclose(globe.distance(x, points), metres, rtol=1e-9, atol=1e-6)
    flat = globe.flat(x, points)
    assert np.allclose(np.hypot(*flat.T), metres, rtol=1e-9, atol=1e-6)
    if abs(place[0]) < 90:
        assert np.allclose(flat[:, 1], seen_from(here, there).north_m, rtol=1e-6, atol=1e-2)


def test_distances_on_the_globe_are_geodesic_ones_in_the_claim() -> None:
    pair = on_globe(np.array([[0.0, 0.0]]), np.array([[0.001, 0.0]]))
    globe = pair.geometry
    great_circle = globe.distance(globe.positions(pair.x)[0], globe.positions(pair.other))
    assert pair.apart == pytest.approx(CLAIM * great_circle, rel=1e-6)


@pytest.mark.parametrize(("error", "believed"), [(1.0, True), (1.05, False)])
def test_the_published_law_is_the_law(error: float, believed: bool) -> None:
    """The mean of exp(-score) over runs of x is 1 if the score is ln P(r|x) - ln P(r|x').

    n = 200,000 runs of four steps, alpha = 1e-6, normal. Seen: an eps that is wrong by 5 %.
    """
    privacy = hereish.Privacy(level=math.log(10), radius_m=100)
    m = hereish.fixed_utility(privacy, 1000, space=hereish.Plane())
    x = np.array([[0.0, 0.0], [1500.0, 0.0], [1500.0, 0.0], [1500.0, 0.0]])
    pair = on_plane(x, x + np.array([[0.0, 0.0], [400.0, 0.0], [400.0, 0.0], [400.0, 0.0]]))
    out = in_batch(m, times(4), hereish.SeededDraws(3001))(np.tile(x, (200_000, 1, 1)))
    out = replace(out, eps_test=out.eps_test * error, eps_noise=out.eps_noise * error)
    weight = np.exp(-law()(pair, out, out)(out))
    z = (weight.mean() - 1.0) / (weight.std() / math.sqrt(len(weight)))
    assert (abs(z) < -ndtri(ALPHA / 2)) == believed, z
