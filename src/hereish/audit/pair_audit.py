"""What the releases of a mechanism tell of two traces, against what it claims.

A mechanism is any function from traces to what is released of them. Two traces are run through it
many times. On one half of the runs an event is chosen that is likely from the one trace and
unlikely from the other; on the other half, which nobody has looked at, it is counted. Exact bounds
of Clopper and Pearson on both chances make a lower bound on the privacy loss ln(P(E|x) / P(E|x')),
which is too high with probability alpha at most, however the event was found. So an audit
can convict a mechanism and never acquit one: what it can see is measured on mechanisms with known
faults.

Two claims are tried. The whole budget bounds every event. What a run books bounds it more sharply
(Lemma 1): among the runs that claim a loss of at most C, no event loses more than C.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from hereish.audit.bounds import ALPHA, loss_at_least
from hereish.core.types import Floats, Ints

# Of the runs of each trace, the shares that a score is learnt from and that its event is chosen
# on. The rest is counted.
_LEARNT, _CHOSEN = 0.25, 0.25
# Shares of the runs that may make an event, and that may lie below a cap.
_TRIED = np.concatenate([np.geomspace(1e-4, 0.03, 24), np.linspace(0.04, 1.0, 49)])
_CAPS = np.array([0.01, 0.1, 0.3, 0.6, 1.0])


@dataclass(frozen=True)
class ReleasedRuns:
    """The whole public output of many runs of one trace; the first axis is the run."""

    value: Floats  # (runs, steps, coordinates); NaN where nothing was released
    kind: Ints  # (runs, steps) small numbers from 0 that tell kinds of releases apart
    cost: Floats  # (runs, steps) what was booked for the step, per unit of distance; NaN: unknown

    def take(self: R, runs: slice) -> R:
        """Some of the runs."""
        kept: dict[str, Any] = {f.name: getattr(self, f.name)[runs] for f in fields(self)}
        return replace(self, **kept)


R = TypeVar("R", bound=ReleasedRuns)
Mechanism = Callable[[Floats], R]  # (runs, steps, coordinates) of true places
Score = Callable[[R], Floats]  # for each run; high where it speaks for the first trace


class Geometry(Protocol):
    """How an observer measures: written apart from the mechanism's own formulas."""

    def positions(self, points: Floats) -> Floats:
        """Points as the other two take them, so that no point is converted twice."""
        ...

    def distance(self, place: Floats, positions: Floats) -> Floats:
        """From one place to each of many."""
        ...

    def flat(self, place: Floats, positions: Floats) -> Floats:
        """A row of two numbers for each: a map around the place, true to distance from it."""
        ...


@dataclass(frozen=True)
class Pair:
    """Two traces that differ: `apart` is their distance at each step, as the claim measures it."""

    x: Floats  # (steps, coordinates)
    other: Floats
    apart: Floats  # (steps,)
    geometry: Geometry
    name: str = ""

    @property
    def apart_m(self) -> float:
        """How far apart they are where they are farthest apart."""
        return float(self.apart.max())

    def claimed(self, released: ReleasedRuns) -> Floats:
        """The loss between the two that each run books: its costs times the distances."""
        booked = released.cost @ self.apart
        return np.where(np.isnan(booked), np.inf, booked)


# Makes a score of runs of the first trace and runs of the other.
Learner = Callable[[Pair, R, R], Score[R]]


class Finding(NamedTuple):
    """One event, counted: it is at least exp(loss) times as likely from one trace as the other."""

    score: str
    towards: str  # the trace that the event is likely from: "x" or "other"
    claim: float
    loss: float  # lower bound; -inf if the event says nothing
    hits: int
    other_hits: int

    @property
    def excess(self) -> float:
        """Above 0 the claim is refuted."""
        return self.loss - self.claim


class PairAudit(NamedTuple):
    """All events of an audit. With probability 1 - alpha at least all of the bounds hold."""

    findings: tuple[Finding, ...]
    runs: int  # that were counted, of each trace
    alpha: float

    @property
    def alpha_each(self) -> float:
        """The share of alpha that each of its events gets."""
        return self.alpha / len(self.findings)

    @property
    def worst(self) -> Finding:
        """The event that comes nearest to refuting its claim, or refutes it most clearly."""
        return max(self.findings, key=lambda finding: finding.excess)

    @property
    def refuted(self) -> bool:
        """Whether a claim is false, at level alpha."""
        return self.worst.excess > 0.0

    @property
    def loss(self) -> float:
        """The largest lower bound on the privacy loss."""
        return max(finding.loss for finding in self.findings)


def audit_pair(
    mechanism: Mechanism[R],
    pair: Pair,
    learners: Mapping[str, Learner[R]],
    *,
    claim: float,
    runs: int,
    alpha: float = ALPHA,
) -> PairAudit:
    """Look for an event that refutes `claim`, or what the runs themselves book.

    Guarantee: if both are true, the audit is `refuted` with probability alpha at most.
    """
    samples = [mechanism(np.tile(trace, (runs, 1, 1))) for trace in (pair.x, pair.other)]
    learnt, chosen = int(_LEARNT * runs), int((_LEARNT + _CHOSEN) * runs)
    cuts = (slice(learnt), slice(learnt, chosen), slice(chosen, runs))
    learning, choosing, counting = ([sample.take(cut) for sample in samples] for cut in cuts)
    caps = _caps(np.concatenate([pair.claimed(sample) for sample in choosing]))
    scores = {name: learner(pair, *learning) for name, learner in learners.items()}
    counted, scale = runs - chosen, (runs - chosen) / (chosen - learnt)
    each = alpha / (2 * len(scores) * len(caps))
    findings = []
    for name, score in scores.items():
        seen = [[_Scored(score(s), pair.claimed(s)) for s in part] for part in (choosing, counting)]
        for towards in ("x", "other"):
            for cap in caps:
                of_x, of_other = (scored.within(cap) for scored in seen[0])
                threshold = _threshold(of_x, of_other, scale, counted, each)
                hits = [int((scored.within(cap) >= threshold).sum()) for scored in seen[1]]
                loss = float(loss_at_least(hits[0], hits[1], counted, each))
                findings.append(Finding(name, towards, min(cap, claim), loss, *hits))
            seen = [[scored.opposite() for scored in reversed(part)] for part in seen]
    return PairAudit(tuple(findings), counted, alpha)


class _Scored(NamedTuple):
    """Runs of one trace by all that an event is made of."""

    score: Floats
    claimed: Floats

    def within(self, cap: float) -> Floats:
        """The scores of the runs that claim no more than this."""
        return self.score[self.claimed <= cap]

    def opposite(self) -> _Scored:
        """The same runs, scored for the other trace."""
        return self._replace(score=-self.score)


def _caps(claimed: Floats) -> list[float]:
    """Where to cut the runs by what they claim: at each level if they are few; and not at all."""
    booked = claimed[np.isfinite(claimed)]
    levels = np.unique(booked.round(9))
    if len(levels) > len(_CAPS):
        levels = np.unique(np.quantile(booked, _CAPS, method="inverted_cdf").round(9))
    return [*(levels + 1e-9).tolist(), math.inf]


def _threshold(of_x: Floats, of_other: Floats, scale: float, counted: int, alpha: float) -> float:
    """The score from which on runs promise the largest bound, if they come up as often again."""
    if not len(of_x):
        return math.inf
    # A score that many runs share comes out with different last bits: cut just below it.
    thresholds = np.unique(np.quantile(of_x, 1.0 - _TRIED, method="inverted_cdf") - 1e-9)
    hits, other_hits = (
        np.minimum(scale * (len(of) - np.searchsorted(np.sort(of), thresholds)), counted)
        for of in (of_x, of_other)
    )
    return float(thresholds[np.argmax(loss_at_least(hits, other_hits, counted, alpha))])
