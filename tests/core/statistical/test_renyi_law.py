"""A budget with a delta on runs of the real batch: fixed seeds, alpha = 1e-6, with a control."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from hereish import (
    FixedUtility,
    LaplaceTest,
    Plane,
    PredictiveMechanism,
    Privacy,
    Run,
    fixed_utility,
    prediction,
    sanitize,
)
from hereish.core.types import Floats
from tests.core.exact.test_delta import counting

ALPHA = 1e-6
PRIVACY = Privacy(level=1.0, radius_m=100.0, delta=0.02)
HERE, THERE = np.zeros(2), np.array([100.0, 0.0])
RUNS, STEPS = 40_000, 150


def _mechanism() -> PredictiveMechanism:
    """The paper's, with a guess at the threshold: each test tells the two places apart."""
    plan = fixed_utility(PRIVACY, 2000.0, space=Plane()).budget
    assert isinstance(plan, FixedUtility)
    threshold = plan.plan.threshold

    def at_the_threshold(run: Run, at_s: Floats, /) -> Floats:
        return np.tile([-threshold - 50.0, 0.0], (len(at_s), 1))

    return PredictiveMechanism(PRIVACY, plan, Plane(), prediction(at_the_threshold))


def _excess(m: PredictiveMechanism, seed: int) -> tuple[float, float, float]:
    """What is beyond the level on average, how far off that may be, and the mean cost.

    The loss of a run follows from what is public: which guesses passed, and where the noise lies.
    """
    points = np.tile(HERE, (RUNS * STEPS, 1))
    at_s = np.tile(np.arange(STEPS) * 60.0, RUNS)
    out = sanitize(m, points, at_s, np.arange(RUNS + 1) * STEPS, seed=seed)
    tested = out.released & np.isfinite(out.threshold)
    chances = []
    guess = m.prediction(m.run(1), np.zeros(1))
    for place in (HERE, THERE):
        apart = np.full(len(points), float(np.hypot(*(guess[0] - place))))
        passes = LaplaceTest.acceptance(apart, out.eps_test, np.where(tested, out.threshold, 0.0))
        chances.append(np.log(np.where(out.hard, 1.0 - passes, passes)))
    loss = np.where(tested, chances[0] - chances[1], 0.0)
    noise = np.nan_to_num(out.value)
    far, near = (np.hypot(*(noise - place).T) for place in (THERE, HERE))
    loss += np.where(out.hard, out.eps_noise * (far - near), 0.0)
    assert not out.released.reshape(RUNS, STEPS)[:, -1].any(), "all runs have come to their end"
    beyond = np.maximum(0.0, -np.expm1(PRIVACY.level - loss.reshape(RUNS, STEPS).sum(axis=1)))
    off = -ndtri(ALPHA) * beyond.std() / math.sqrt(RUNS)
    return float(beyond.mean()), float(off), float(out.spent.mean())


def test_runs_that_adapt_keep_delta() -> None:
    """n = 40,000 runs, alpha = 1e-6, normal: a delta that is larger by a quarter is seen.

    Costs depend on outcomes: a test that passes spares the noise. The control counts half of what
    it should, and so makes about twice as many reports.
    """
    m = _mechanism()
    found, off, spent = _excess(m, 1)
    assert PRIVACY.delta is not None
    assert off < 0.25 * PRIVACY.delta
    assert found - off <= PRIVACY.delta
    assert spent > 1.2 * PRIVACY.eps_per_m, "they cost more than the level"
    assert m.renyi is not None
    object.__setattr__(m, "renyi", counting(m.renyi, 0.5))
    found, off, _ = _excess(m, 2)
    assert found - off > PRIVACY.delta, "control: half of each step counted"
