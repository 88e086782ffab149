"""The second promise on drawn noise: alpha = 1e-6, fixed seeds, with controls."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri

from hereish.core.accounting import FixedPlan, LossOf, line_loss, planar_loss
from hereish.core.types import Floats

ALPHA = 1e-6
EACH = math.log(10) / 30
THIRTY = (EACH,) * 30


def _planar_losses(cost: float, n: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    radius, angle = rng.gamma(2.0, 1.0, n), rng.uniform(0.0, 2 * math.pi, n)
    other = np.hypot(radius * np.cos(angle) - cost, radius * np.sin(angle))
    return np.asarray(other - radius)


@pytest.mark.parametrize("cost", [0.05, 1.0, 4.0])
def test_losses_of_drawn_noise_have_the_law(cost: float) -> None:
    """n = 400,000, alpha = 1e-6 (Dvoretzky, Kiefer, Wolfowitz): shares off by 0.0043 are seen."""
    n, step = 400_000, cost / 200
    seen = math.sqrt(math.log(2 / ALPHA) / (2 * n))
    drawn = np.sort(_planar_losses(cost, n, 1))

    def off(law: LossOf, level: float) -> Floats:
        made = law(level, step)
        shares = np.searchsorted(drawn, made.losses, side="right") / n
        return np.asarray(np.cumsum(made.mass) - shares)

    difference = off(planar_loss, cost)
    assert np.abs(difference).max() < seen + 1e-3
    assert difference.max() < seen, "a lower bound: losses are never rounded down"
    assert np.abs(off(planar_loss, 1.05 * cost)).max() > seen + 1e-3, "control: 5 % more"
    assert np.abs(off(line_loss, cost)).max() > seen + 1e-3, "control: another noise"


def test_composed_noise_is_as_it_is_drawn() -> None:
    """Thirty reports, 200,000 times; alpha = 1e-6, normal: a delta that is 6 % off is seen."""
    n, level = 200_000, 0.5
    total = _planar_losses(EACH, 30 * n, 2).reshape(n, 30).sum(axis=1)
    beyond = np.maximum(0.0, -np.expm1(level - total))
    seen = -ndtri(ALPHA / 2) * beyond.std() / math.sqrt(n)
    exact = FixedPlan(THIRTY, planar_loss).delta(level)
    assert seen < 0.06 * exact
    assert beyond.mean() - seen <= exact <= beyond.mean() + seen + 0.02 * exact
    fewer = FixedPlan(THIRTY[:28], planar_loss).delta(level)
    assert not beyond.mean() - seen <= fewer, "control: 28 reports"
