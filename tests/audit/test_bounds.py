from __future__ import annotations

import math

import numpy as np
import pytest

from hereish.audit.bounds import loss_at_least, smallest_loss

ALPHA = 1e-6


@pytest.mark.parametrize("chance", [0.5, 0.05])
@pytest.mark.parametrize("claim", [0.0, 1.0])
def test_the_smallest_loss_is_seen_as_often_as_stated(chance: float, claim: float) -> None:
    """4,000 samples of 20,000 runs, alpha = 1e-6: at least 90 %, and far less a tenth below."""
    rng, runs = np.random.default_rng(1), 20_000
    smallest = smallest_loss(claim, chance, runs, ALPHA)

    def refuted(loss: float) -> float:
        hits = rng.binomial(runs, chance, 4000).astype(np.float64)
        others = rng.binomial(runs, chance * math.exp(-loss), 4000).astype(np.float64)
        return float(np.mean(loss_at_least(hits, others, runs, ALPHA) > claim))

    # Five standard deviations of a share of 90 % in 4,000.
    assert refuted(smallest) >= 0.9 - 5 * math.sqrt(0.9 * 0.1 / 4000)
    assert refuted(claim + 0.8 * (smallest - claim)) < 0.9


def test_it_falls_with_the_runs_and_is_infinite_with_too_few() -> None:
    losses = [smallest_loss(1.0, 0.1, runs, ALPHA) for runs in (2_000, 20_000, 200_000)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 1.15
    assert smallest_loss(5.0, 0.01, 2_000, ALPHA) == math.inf
