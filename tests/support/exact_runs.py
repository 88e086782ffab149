"""Every run of the real step over short traces on a handful of places, each with its exact chance.

On a handful of places in a row the outcomes of a step are finitely many, and each is made of
rectangles of uniforms. Bisecting the real step over all the uniforms there are finds the
rectangles, so the probability of every run is a count, not an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from hereish import Coordinate, PredictiveMechanism, Run
from hereish.core.decision import TestThenNoise
from hereish.core.step import Release, step
from hereish.core.types import Bools, Floats, Ints, PerLane

STEPS = 4
# A uniform is an odd multiple of 2**-53, so there are this many of them (randomness.py).
UNIFORMS = 2**52
# All that is inexact is that a probability becomes a whole number of uniforms: off by 2**-52 at
# most. No outcome below is rarer than RAREST (it is asserted), so each of the two factors of each
# of the 4 steps is off by less than 2**-52 / RAREST = 2**-38 of itself, and the ratio of two runs
# by less than 16 * 2**-38 < 1e-10. The clamp of the test has a test of its own.
RAREST = 2.0**-14
TOLERANCE = 1e-9


@dataclass
class Places:
    """Places in a row; a clamped geometric law: `eps * distance`-private, and nowhere less.

    `stretch` makes `distance` overstate the true one, as great circles overstate geodesics.
    """

    count: int = 4
    spacing: float = 1.0
    stretch: float = 1.0
    claim_factor: float = 1.0
    grid: int = 1  # every so many places there is one that can be released
    eps_error: float = 1.0  # a seeded bug if it is not 1
    drawn: Floats = field(default_factory=lambda: np.empty((0, 1)), compare=False)  # the last noise
    uniforms = 1
    unit = "m"
    smallest_eps = 0.0
    private = True

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        return (Coordinate("place", 0.0, self.spacing * (self.count - 1)),)

    def distance(self, a: Floats, b: Floats) -> Floats:
        return np.asarray(np.abs(a[:, 0] - b[:, 0]) * self.stretch)

    def unrounded_noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        here = np.rint(x / self.spacing)
        below = np.arange(self.count - 1.0)
        per_place = eps * self.eps_error * self.stretch * self.spacing
        decay = np.exp(-np.broadcast_to(per_place, len(x)))[:, None]
        tail = decay ** np.where(below < here, here - below, below - here + 1) / (1.0 + decay)
        up_to = np.where(below < here, tail, 1.0 - tail)  # P(release <= place)
        self.drawn = np.asarray((u >= up_to).sum(axis=1, keepdims=True) * self.spacing)
        return self.drawn

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return self.snap(self.unrounded_noise(x, eps, u))

    def snap(self, points: Floats) -> Floats:
        grid = self.grid * self.spacing
        return np.asarray(np.rint(points / grid) * grid + 0.0)

    def c_noise(self, delta: float) -> float:
        return -math.log1p(-delta)


@dataclass
class Runs:
    """All runs of a mechanism: a row a run, and in `chance` a column a trace."""

    chance: Floats
    releases: Floats  # (runs, steps, fields of a release)
    rarest: float

    def field(self, name: str) -> Floats:
        """(runs, steps) of one field of the releases."""
        return np.asarray(self.releases[:, :, Release._fields.index(name)])


def how_many(holds: Callable[[Ints], Bools], lanes: int) -> Ints:
    """How many uniforms, counted from the lowest, have a property that low ones have."""
    low, high = np.zeros(lanes, dtype=np.int64), np.full(lanes, UNIFORMS)
    while (low < high).any():
        middle = np.minimum((low + high) // 2, UNIFORMS - 1)
        yes, searching = holds(middle), low < high
        low = np.where(searching & yes, middle + 1, low)
        high = np.where(searching & ~yes, middle, high)
    return low


@dataclass
class Step:
    """One real step from each of some public runs, with each secret: a lane for every pair."""

    m: PredictiveMechanism
    run: Run
    now: float
    places: Floats
    peek: Callable[[Floats], None] | None

    def __post_init__(self) -> None:
        self.parent = np.repeat(np.arange(len(self.run.spent)), len(self.places))
        self.secret = np.tile(np.arange(len(self.places)), len(self.run.spent))
        self.lanes = np.arange(len(self.parent))

    def take(self, lanes: Ints, k_test: Ints, k_noise: Ints) -> tuple[Release, Run]:
        """The step with the uniforms of these numbers."""
        x, at_s = self.places[self.secret[lanes], None], np.full(len(lanes), self.now)
        if self.peek is not None:
            self.peek(x)
        odd = 2 * np.column_stack([k_test, k_noise]) + 1
        return step(self.m, self.run.take(self.parent[lanes]), x, at_s, np.ldexp(odd, -53))

    def drawn(self, lanes: Ints, k_noise: Ints) -> Floats:
        """What noise is drawn before it is rounded; NaN where none is."""
        assert isinstance(self.m.space, Places)
        top = np.full(len(lanes), UNIFORMS - 1)  # no test passes with the highest uniform
        hard = self.take(lanes, top, k_noise)[0].hard
        drawn = np.full(len(lanes), np.nan)
        if hard.any():
            drawn[hard] = self.m.space.drawn[:, 0]
        return drawn

    def rectangles(self) -> tuple[Ints, Ints]:
        """Of each lane, by the place that is drawn: how many uniforms of the test do not make it

        hard; and the edges between these places in the uniforms of the noise.
        """
        lanes, levels = self.lanes, len(self.places)

        def up_to(place: float) -> Ints:
            return how_many(lambda k: self.drawn(lanes, k) <= place, len(lanes))

        edges = [up_to(place) for place in self.places[:-1]]
        ends = np.zeros(len(lanes), dtype=np.int64), np.full(len(lanes), UNIFORMS)
        edge = np.column_stack([ends[0], *edges, ends[1]])
        if isinstance(self.m.decider, TestThenNoise):  # which does not look at the noise
            middle = np.full(len(lanes), UNIFORMS // 2)
            easy = how_many(lambda k: ~self.take(lanes, k, middle)[0].hard, len(lanes))
            easy = np.tile(easy[:, None], levels)
        else:
            each = np.repeat(lanes, levels)
            middle = ((edge[:, 1:] + edge[:, :-1]) // 2).ravel().clip(max=UNIFORMS - 1)
            easy = how_many(lambda k: ~self.take(each, k, middle)[0].hard, len(each))
            easy = easy.reshape(-1, levels)
        # Random uniforms land where the rectangles say: bisecting has not missed anything.
        lanes = np.repeat(lanes, 16)
        k_test, k_noise = np.random.default_rng(7).integers(0, UNIFORMS, (2, len(lanes)))
        found = self.take(lanes, k_test, k_noise)[0]
        level = (k_noise[:, None] >= edge[lanes, 1:-1]).sum(axis=1)
        np.testing.assert_array_equal(found.hard, k_test >= easy[lanes, level])
        if self.m.tracker is None:  # which may move them
            place = self.m.space.snap(self.places[level, None])[:, 0]
            np.testing.assert_array_equal(found.value[found.hard, 0], place[found.hard])
        return easy, edge


def flat(release: Release) -> Floats:
    """A row a lane: all that was released, so that two outcomes differ if anything does."""
    lanes = len(release.hard)
    parts = [np.broadcast_to(np.reshape(part, (-1,)), lanes) for part in release]
    return np.column_stack(parts).astype(np.float64)


def all_runs(
    m: PredictiveMechanism, at_s: list[float], peek: Callable[[Floats], None] | None = None
) -> Runs:
    """Enumerate the runs of the real step over all traces of secrets."""
    assert isinstance(m.space, Places)
    places = np.asarray(np.arange(m.space.count) * m.space.spacing, dtype=np.float64)
    run, chance, rarest = m.empty_run(1), np.ones((1, 1)), 1.0
    releases = np.empty((1, 0, len(Release._fields)))
    for now in at_s:
        a_step = Step(m, run, now, places, peek)
        easy, edge = a_step.rectangles()
        not_hard, at_place = easy / UNIFORMS, np.diff(edge) / UNIFORMS
        weight = np.column_stack([not_hard * at_place, (1.0 - not_hard) * at_place])
        # Take each outcome that can happen once, in the middle of its rectangle.
        lane, rectangle = np.nonzero(weight > 0.0)
        place = rectangle % len(places)
        passes, first_hard = rectangle < len(places), easy[lane, place]
        k_test = np.where(passes, first_hard // 2, (first_hard + UNIFORMS) // 2)
        k_noise = (edge[lane, place] + edge[lane, place + 1]) // 2
        release, after = a_step.take(lane, k_test, k_noise)
        # Two secrets share an outcome if they share all that is released, and all that is learnt:
        # that may tell more of the noise than what is released in its place.
        told = np.column_stack([a_step.parent[lane], flat(release), after.learnt])
        _, first, outcome = np.unique(
            told.view(np.int64), axis=0, return_index=True, return_inverse=True
        )
        outcome = outcome.reshape(-1)
        for kept in after:  # nothing but what is released may find its way into the public run
            np.testing.assert_array_equal(kept, kept[first][outcome])
        branch = np.zeros((len(first), len(places)))
        np.add.at(branch, (outcome, a_step.secret[lane]), weight[lane, rectangle])
        before = a_step.parent[lane[first]]
        chance = (chance[before][:, :, None] * branch[:, None, :]).reshape(len(first), -1)
        releases = np.concatenate([releases[before], flat(release)[first][:, None]], axis=1)
        outcomes = np.column_stack([weight[:, : len(places)].sum(axis=1), weight[:, len(places) :]])
        run, rarest = after.take(first), min(rarest, float(outcomes[outcomes > 0.0].min()))
    np.testing.assert_allclose(chance.sum(axis=0), 1.0, rtol=1e-12)
    return Runs(chance, releases, rarest)


def losses(m: PredictiveMechanism, runs: Runs) -> tuple[float, float]:
    """The largest `log P(r|x) - log P(r|x') - eps(r) d`, and the largest share of eps(r) d used."""
    assert isinstance(m.space, Places)
    traces = np.array(list(product(range(m.space.count), repeat=STEPS)))
    eps = runs.field("cost").sum(axis=1)[:, None]
    excess, share = -math.inf, 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        log_chance = np.log(runs.chance)
        for i, trace in enumerate(traces):
            apart = np.abs(traces - trace).max(axis=1) * m.space.spacing  # the true distance
            allowed = eps * apart
            # NaN is 0 against 0: a run that neither trace can give. +inf is a run that only one
            # of them can give: the worst violation there is.
            lost = log_chance[:, i, None] - log_chance
            excess = max(excess, float(np.nanmax(lost - allowed)))
            share = max(share, float(np.nanmax(np.where(allowed > 0, lost / allowed, 0.0))))
    return excess, share


class Cell:
    """How a seeded bug learns the secret: round the back, before each step."""

    secret: Floats = np.empty((0, 1))

    def __call__(self, x: Floats) -> None:
        self.secret = x


def excess_of(m: PredictiveMechanism, at_s: list[float], peek: Cell | None = None) -> float:
    return losses(m, all_runs(m, at_s, peek))[0]
