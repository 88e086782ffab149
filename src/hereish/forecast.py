"""What a mechanism will mean for its user, before anything is reported. Public numbers only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hereish.mechanism import PredictiveMechanism
from hereish.run import Run
from hereish.step import prepare

APART_M = (50.0, 100.0, 1000.0)


@dataclass(frozen=True)
class Telling:
    """How much the whole budget lets an observer tell two places apart."""

    apart_m: float
    factor: float
    """Whatever is released is at most this many times as likely from one of them."""
    even_odds_become: float
    """The most sure an observer can be who had thought both equally likely (0.5 to 1)."""


@dataclass(frozen=True)
class Outlook:
    """The first plan of a mechanism, in the words of its user. Distances are of fresh noise."""

    eps_per_m: float
    noise_mean_m: float
    noise_90_m: float
    cost_of_noise: float  # as a share of the whole budget, like the next one
    cost_of_test: float
    threshold_m: float | None
    reports_if_all_are_hard: int
    reports_if_all_are_easy: int | None  # None where easy reports are not tested, or there are none
    reports_of_independent_noise: int
    break_even: float | None
    tells: tuple[Telling, ...]
    covers: str


def outlook(mechanism: PredictiveMechanism, apart_m: Sequence[float] = APART_M) -> Outlook:
    """What to expect of a mechanism, from its first plan; a plan may change with the run."""
    m = mechanism
    total, dim = m.bound.total, m.dim
    seen = Run.empty(1, dim, m.memory)
    # The plan for a second report: there is a guess, so there is a test.
    guess = m.space.snap(np.zeros((1, dim)))
    seen = seen._replace(values=np.broadcast_to(guess[:, None], seen.values.shape))
    plan = prepare(m, seen, np.zeros(1))
    eps_noise, eps_test = _number(plan.eps_noise), _number(plan.eps_test)
    threshold = _number(plan.threshold)
    drawn = eps_noise * m.space.claim_factor
    return Outlook(
        eps_per_m=m.privacy.eps_per_m,
        noise_mean_m=(2.0 if dim > 1 else 1.0) / drawn,  # of Gamma(2), or of one exponential
        noise_90_m=m.space.c_noise(0.9) / drawn,
        cost_of_noise=eps_noise / total,
        cost_of_test=eps_test / total,
        threshold_m=threshold if math.isfinite(threshold) else None,
        reports_if_all_are_hard=_times(total - eps_noise, eps_noise + eps_test) + 1,
        reports_if_all_are_easy=(
            _times(total - 2 * eps_noise, eps_test) + 1 if eps_test > 0.0 else None
        ),
        reports_of_independent_noise=_times(total, eps_noise),
        break_even=m.break_even,
        tells=tuple(_telling(m.privacy.eps_per_m, apart) for apart in apart_m),
        covers=m.window.covers(),
    )


def _number(value: object) -> float:
    return float(np.asarray(value).reshape(-1)[0])


def _times(total: float, each: float) -> int:
    return max(0, math.floor(total / each * (1.0 + 1e-9)))


def _telling(eps_per_m: float, apart_m: float) -> Telling:
    loss = eps_per_m * apart_m
    factor = math.exp(loss) if loss < 700.0 else math.inf
    return Telling(apart_m, factor, 1.0 / (1.0 + math.exp(-loss)))
