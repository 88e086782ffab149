"""What an observer makes of released meter readings: a posterior of each, and what follows from it.

The observer knows the mechanism and its settings, the readings of some other homes, and nothing
secret. The mechanism is replayed, or the rules of a baseline are, and `smooth` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hereish.attack.lattice import Lattice
from hereish.attack.line import READINGS, OnLine
from hereish.attack.movement import Movement
from hereish.attack.observations import Observations, Test
from hereish.attack.replay import Releases, replay
from hereish.attack.smoothing import Prior, smooth
from hereish.core.batch import sanitize
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.types import Bools, Floats, Kind
from hereish.core.vector import Vector
from hereish.evaluation.burglar import BUSY, idle_wh

_SPREAD = 0.1  # by which the readings of other homes are smoothed, along the axis of a lattice
_SELDOM = 0.01  # how likely a reading is like none of them


@dataclass(frozen=True)
class Believed:
    """Readings as an observer believes them to be."""

    wh: Floats  # (homes, readings) the mean
    busy: Floats  # (homes, readings) the probability of well more than the home takes when idle
    hard: Bools  # (homes, readings) what was released was fresh noise


def prior_of(readings: Floats) -> Prior:
    """How likely readings are in homes like these, for `smooth`."""

    @lru_cache(maxsize=16)
    def prior(lattice: Lattice) -> Floats:
        middles = lattice.points()[:, 0]
        cell = np.searchsorted(0.5 * (middles[1:] + middles[:-1]), np.ravel(readings))
        count = np.bincount(cell, minlength=len(middles))
        reach = np.arange(1 - len(middles), len(middles)) * lattice.step_m
        near = np.exp(-0.5 * np.square(reach / _SPREAD))
        density = np.convolve(count / len(cell), near / near.sum(), mode="valid")
        return np.asarray((1.0 - _SELDOM) * density + _SELDOM / len(middles))

    return prior


def believe(
    seen: list[Observations], prior: Prior | None, movement: Movement = READINGS[0]
) -> Believed:
    """The posterior of every reading of some homes, all of as many."""
    means, busy = [], []
    for one in seen:
        smoothed = smooth(one, movement, prior=prior)
        mean = smoothed.mean()[:, 0]
        # All times share a lattice on a line.
        high = smoothed.grids[0].points()[:, 0] > BUSY * float(idle_wh(mean[None])[0])
        means.append(mean)
        busy.append([float(mass[high].sum()) for mass in smoothed.mass])
    return Believed(np.array(means), np.array(busy), np.array([one.hard for one in seen]))


def observe(m: PredictiveMechanism, truth: Floats, at_s: Floats, seed: int) -> list[Observations]:
    """What a mechanism releases of these homes, (homes, readings), and an observer sees of it."""
    homes, readings = truth.shape
    offsets = np.arange(homes + 1) * readings
    out = sanitize(m, truth.reshape(-1, 1), np.tile(at_s, homes), offsets, seed=seed)
    kinds = [Kind(kind) for kind in out.kind.tolist()]
    people = [
        Releases(
            at_s, out.value[a : a + readings], kinds[a : a + readings], out.cost[a : a + readings]
        )
        for a in offsets[:-1].tolist()
    ]
    return replay(m, people, windows_apart=False)


class _Distribution:
    """What BD plans: half of what is left for publications in a window."""

    def __init__(self, eps: float, w: int) -> None:
        self.eps, self.w, self.left = eps, w, 0.0

    def plan(self, step: int) -> float:
        if step % self.w == 0:
            self.left = 0.5 * self.eps
        return 0.5 * self.left

    def note(self, *, published: bool) -> None:
        self.left -= 0.5 * self.left if published else 0.0


class _Absorption:
    """What BA plans: the shares of publications that were skipped; 0 while shares are owed."""

    def __init__(self, eps: float, w: int) -> None:
        self.share, self.w, self.absorbed, self.owed = 0.5 * eps / w, w, 0.0, 0.0

    def plan(self, step: int) -> float:
        if step % self.w == 0:
            self.absorbed = self.owed = 0.0
        self.absorbed = 0.0 if self.owed > 0.0 else self.absorbed + 1.0
        return 0.0 if self.owed > 0.0 else self.share * min(max(self.absorbed, 1.0), self.w)

    def note(self, *, published: bool) -> None:
        self.owed = self.absorbed - 1.0 if published else max(self.owed - 1.0, 0.0)
        self.absorbed = 0.0 if published else self.absorbed


_RULES: dict[str, Callable[[float, int], _Distribution | _Absorption]] = {
    "BD (w-event)": _Distribution,
    "BA (w-event)": _Absorption,
}


def observe_w_event(
    name: str, raw: Floats, at_s: Floats, eps: float, w: int, first: float, space: Vector
) -> Observations | None:
    """What an observer sees of one home's publications, (readings,), by BD or BA; None by others.

    Whether to publish is a Laplace test of what was published last: all of it has a likelihood.
    """
    if name not in _RULES:
        return None
    rule, count = _RULES[name](eps, w), len(raw)
    last = np.append(first, raw[:-1])
    published = raw != last
    planned = np.zeros(count)
    for step in range(count):
        planned[step] = rule.plan(step)
        rule.note(published=bool(published[step]))
    asked = planned > 0.0
    test = np.where(published, Test.FAILED, Test.PASSED)
    return Observations(
        at_s=at_s,
        value=np.clip(raw, space.low, space.high)[:, None],
        noisy=np.where(published, raw, np.nan)[:, None],
        eps_noise=np.where(asked, planned, eps),
        slack_m=np.zeros(count),
        test=np.where(asked, test, Test.NONE).astype(np.uint8),
        guess=last[:, None],
        eps_test=np.full(count, 0.5 * eps / w),
        threshold_m=1.0 / np.where(asked, planned, eps),
        cost=np.where(published, planned, 0.0) + 0.5 * eps / w,
        cell=np.full(count, None),
        geometry=OnLine.of(space),
    )
