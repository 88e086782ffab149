"""The audit of a mechanism: many pairs of traces, one verdict, and what it could have seen."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from hereish.audit.bounds import ALPHA, POWER, smallest_loss
from hereish.audit.learnt_score import learn
from hereish.audit.mechanisms import BlackBox, run_batch, run_black_box
from hereish.audit.pair_audit import (
    Finding,
    Learner,
    Pair,
    PairAudit,
    ReleasedRuns,
    audit_pair,
)
from hereish.audit.pairs import STEPS, default_pairs
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.privacy import Privacy
from hereish.core.randomness import SeededDraws
from hereish.core.renyi import refuse_delta
from hereish.core.rolling import Rolling
from hereish.core.spaces import Sphere
from hereish.core.types import Floats
from hereish.core.windows import Window
from hereish.errors import ParameterError
from hereish.forecast import ORDINARY_DAY, outlook

WITHIN_S = 40.0
_FEWEST_RUNS, _MOST_RUNS = 2_000, 200_000
_EVERY_S = 1800.0
_NOON_H = 12
_FARTHEST_M = 40_000.0
_LEAST_CLAIM = 0.01  # in nats: of less, no share is told
_LEARNERS: Mapping[str, Learner[ReleasedRuns]] = {"learnt": learn}
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PairResult:
    """What was found out about one pair of traces. Losses and claims are in nats."""

    name: str
    apart_m: float
    claim: float
    """Of the whole budget: no event may lose more."""
    result: PairAudit

    @property
    def sharpest(self) -> Finding:
        """The event that refutes its claim most clearly or else attains the largest share of it."""
        if self.result.refuted:
            return self.result.worst
        telling = [f for f in self.result.findings if f.claim > _LEAST_CLAIM]
        return max(telling, key=lambda f: f.loss / f.claim, default=self.result.worst)

    @property
    def seen_from(self) -> float:
        """The loss from which on an event as common as the sharpest would have refuted its claim.

        With a probability of 90 % at least; infinite where nothing would have.
        """
        found = self.sharpest
        chance = max(found.hits, 1) / self.result.runs
        return smallest_loss(found.claim, chance, self.result.runs, self.result.alpha_each)

    @property
    def seen_from_share(self) -> float:
        """The same as a multiple of the claim.

        Infinite where next to nothing is claimed, and where the event tells nothing: what comes up
        in all runs of both traces is common, and no sign that a violation would have been found.
        """
        found = self.sharpest
        telling = found.claim > _LEAST_CLAIM and found.loss > 0.0
        return self.seen_from / found.claim if telling else math.inf

    def as_dict(self) -> dict[str, Any]:
        """For programs; None stands for what is not finite."""
        found = self.sharpest
        numbers = {
            "apart_m": self.apart_m,
            "claim_of_budget": self.claim,
            "claim": found.claim,
            "loss_at_least": found.loss,
            "loss_seen_from": self.seen_from,
        }
        plain = {key: value if math.isfinite(value) else None for key, value in numbers.items()}
        return {
            "pair": self.name,
            **plain,
            "hits": found.hits,
            "other_hits": found.other_hits,
            "likely_from": found.towards,
            "refuted": self.result.refuted,
        }


@dataclass(frozen=True)
class Audit:
    """All pairs of an audit. With probability 1 - alpha at least, all of its bounds hold."""

    pairs: tuple[PairResult, ...]
    runs: int  # of each trace; half of them were counted
    alpha: float
    seconds: float

    @property
    def refuted(self) -> bool:
        """Whether the claim is false, at level alpha."""
        return any(pair.result.refuted for pair in self.pairs)

    @property
    def reach(self) -> float:
        """The largest share of a claim that a lower bound attains; above 1 the claim is false.

        It does not say what would have been noticed: for that see `keenest`.
        """
        return max(
            (
                pair.sharpest.loss / pair.sharpest.claim
                for pair in self.pairs
                if pair.sharpest.claim > _LEAST_CLAIM
            ),
            default=0.0,
        )

    @property
    def sharpest(self) -> PairResult:
        """The pair whose event refutes its claim most clearly, or comes nearest to it."""
        refuted = [pair for pair in self.pairs if pair.result.refuted]
        if refuted:
            return max(refuted, key=lambda pair: pair.result.worst.excess)
        telling = [pair for pair in self.pairs if pair.sharpest.claim > _LEAST_CLAIM]
        return max(
            telling or self.pairs,
            key=lambda pair: pair.sharpest.loss / max(pair.sharpest.claim, _LEAST_CLAIM),
        )

    @property
    def keenest(self) -> PairResult | None:
        """The pair that would have shown the smallest violation, as a multiple of its claim.

        An event as common as its sharpest, with a loss of `seen_from`, would have refuted the claim
        with a probability of 90 % at least. None if no loss would have: there were too few runs.
        """
        keenest = min(self.pairs, key=lambda pair: pair.seen_from_share)
        return keenest if math.isfinite(keenest.seen_from_share) else None

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        keenest = self.keenest
        return {
            "refuted": self.refuted,
            "alpha": self.alpha,
            "power": POWER,
            "runs": self.runs,
            "reach": self.reach if math.isfinite(self.reach) else None,
            "seen_from_share": None if keenest is None else keenest.seen_from_share,
            "seconds": round(self.seconds, 1),
            "pairs": [pair.as_dict() for pair in self.pairs],
        }


def audit(
    mechanism: PredictiveMechanism | BlackBox,
    privacy: Privacy | None = None,
    pairs: Sequence[Pair] | None = None,
    *,
    every_s: float = _EVERY_S,
    runs: int | None = None,
    within_s: float = WITHIN_S,
    alpha: float = ALPHA,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Look for an event that refutes what a mechanism claims, in all that it releases.

    `privacy` is what a black box (see `hereish.audit.mechanisms`) claims for all reports of a trace
    together; one of ours says so itself, and is also held to what each of its runs books. Without
    `runs`, as many of each trace are made as fit into about `within_s` seconds. A `seed` makes
    the numbers of our own mechanisms reproducible.

    Guarantee: if what is claimed is true, the audit is `refuted` with probability alpha at most.
    """
    began = time.monotonic()
    ours = mechanism if isinstance(mechanism, PredictiveMechanism) else None
    claimed = privacy if ours is None else ours.privacy
    if claimed is None or privacy not in (None, claimed):
        raise ParameterError(
            "privacy must be what a black box claims, and of our own mechanisms what they promise, "
            f"found {privacy}"
        )
    refuse_delta(claimed, "an audit is")
    if runs is not None and runs < _FEWEST_RUNS:
        raise ParameterError(f"runs must be at least {_FEWEST_RUNS}, found {runs}")
    if not 0.0 < alpha < 1.0:
        raise ParameterError(f"alpha must lie strictly between 0 and 1, found {alpha!r}")
    if pairs is None:
        pairs = default_pairs(claimed) if ours is None else pairs_for(ours)
    run = _runner(mechanism, every_s, seed)

    def audited(pair: Pair, count: int) -> PairResult:
        claim = _budget(mechanism, claimed, report_times(len(pair.x), every_s)) * pair.apart_m
        each = alpha / len(pairs)
        found = audit_pair(run, pair, _LEARNERS, claim=claim, runs=count, alpha=each)
        return PairResult(pair.name, pair.apart_m, claim, found)

    if runs is None:
        runs = _affordable(lambda count: audited(pairs[0], count), within_s, began, len(pairs))
    results = []
    for number, pair in enumerate(pairs):
        results.append(audited(pair, runs))
        if progress is not None:
            progress(number + 1, len(pairs))
    return Audit(tuple(results), runs, alpha, time.monotonic() - began)


def report_times(steps: int, every_s: float = _EVERY_S) -> Floats:
    """Public times of the reports of a trace: from noon of an ordinary day on."""
    noon = datetime(ORDINARY_DAY.year, ORDINARY_DAY.month, ORDINARY_DAY.day, _NOON_H, tzinfo=UTC)
    return noon.timestamp() + every_s * np.arange(steps, dtype=np.float64)


def pairs_for(
    mechanism: PredictiveMechanism,
    steps: int = STEPS,
    latitudes: Sequence[float] | None = None,
    distances_m: Sequence[float] | None = None,
) -> tuple[Pair, ...]:
    """`default_pairs`, with trips to where the tests of a mechanism of ours begin to doubt."""
    if not isinstance(mechanism.space, Sphere):
        raise ParameterError(
            f"pairs are on the globe, and the mechanism's space is {mechanism.space!r}: give pairs "
            "of your own"
        )
    expected = outlook(mechanism)
    total = mechanism.privacy.eps_per_m
    nat_m = 1.0 / (expected.cost_of_noise * total)  # so far apart, fresh noise loses up to 1 nat
    if distances_m is None:
        distances_m = sorted({mechanism.privacy.radius_m, min(nat_m, _FARTHEST_M)})
    trips_m = None
    if expected.threshold_m is not None and expected.cost_of_test > 0.0:
        further_m = min(1.0 / (expected.cost_of_test * total), _FARTHEST_M)
        gone_m = (expected.threshold_m, expected.threshold_m + 2.0 * nat_m)
        trips_m = [(min(metres, _FARTHEST_M), further_m) for metres in gone_m]
    return default_pairs(mechanism.privacy, steps, latitudes, distances_m, trips_m)


def _runner(
    mechanism: PredictiveMechanism | BlackBox, every_s: float, seed: int | None
) -> Callable[[Floats], ReleasedRuns]:
    if isinstance(mechanism, PredictiveMechanism):
        m, draws = mechanism, None if seed is None else SeededDraws(seed)
        return lambda traces: run_batch(m, traces, report_times(traces.shape[1], every_s), draws)
    rng = np.random.default_rng(seed)
    box = mechanism
    return lambda traces: run_black_box(box, traces, report_times(traces.shape[1], every_s), rng)


def _budget(mechanism: PredictiveMechanism | BlackBox, privacy: Privacy, at_s: Floats) -> float:
    """What all reports at these times may cost together, per metre: as the tightest budget says."""
    if not isinstance(mechanism, PredictiveMechanism):
        return privacy.eps_per_m
    limits = [(one.window, one.level / privacy.radius_m) for one in mechanism.limits if one.level]
    budgets = [(mechanism.window, privacy.eps_per_m), *limits]
    return min(_window_count(window, at_s) * eps for window, eps in budgets)


def _window_count(window: Window, at_s: Floats) -> int:
    """How many windows, each with a budget of its own, cover these times."""
    if isinstance(window, Rolling):
        return 1 + int((at_s[-1] - at_s[0]) // window.duration.total_seconds())
    index = window.index(at_s)
    return 1 if index is None else len(np.unique(index))


def _affordable(trial: Callable[[int], object], within_s: float, began: float, pairs: int) -> int:
    """How many runs of each trace fit into the time, by a trial whose runs are not counted."""
    trial(_FEWEST_RUNS)  # the first one also loads what is needed
    many, started = 5 * _FEWEST_RUNS, time.monotonic()
    if 5.0 * (started - began) * pairs < within_s:
        trial(many)
        each = (time.monotonic() - started) / many
    else:
        each = (started - began) / _FEWEST_RUNS
    left = max(within_s - (time.monotonic() - began), 0.0)
    return int(min(max(left / (each * pairs), _FEWEST_RUNS), _MOST_RUNS))
