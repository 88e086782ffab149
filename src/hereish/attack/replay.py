"""The mechanism replayed from what it released: what an observer knows who knows its settings.

Guess, plan and costs of every step follow from earlier releases and public times alone, so an
observer computes them as the mechanism did, with the same code. Predictions that remember move
fresh noise towards places that were released before; what they do is public and can be undone, so
the observer gets the noisy point itself back. Where it cannot be undone the released point is taken
for it, give or take as far as it may have been moved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hereish.attack.cells import NoiseCell, make_cell
from hereish.attack.lattice import M_PER_DEG, distance_m
from hereish.attack.observations import Observations, Test
from hereish.core.decision import LaplaceTest, Question
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.noise_first import NoiseFirst
from hereish.core.renyi import refuse_delta
from hereish.core.run import Run
from hereish.core.spaces import Space, Sphere
from hereish.core.step import Prepared, decide, in_window, prepare
from hereish.core.types import Bools, Floats, Ints, Kind, PerLane
from hereish.errors import HereishError, ParameterError

# Costs in files are decimal, and plans follow from places that are known to a metre.
_SAME_COST = 2e-3
# Where noise that was moved is searched for: starts on rings around the release.
_ANGLES, _RADII, _BEST, _ITERATIONS = 24, 16, 8, 30
_CONVERGED_M, _ROUNDED_M = 0.05, 0.8  # releases are rounded to about a metre


class SettingsMismatchError(HereishError):
    """The releases were not made by the mechanism with which they are looked at."""


class Releases(NamedTuple):
    """Releases of one person in the order of their times, as a file has them."""

    at_s: Floats
    value: Floats  # (n, 2) latitude and longitude
    kind: Sequence[Kind] | None = None  # None: the file does not say
    cost: Floats | None = None


def replay(
    m: PredictiveMechanism, people: Sequence[Releases], *, windows_apart: bool = True
) -> list[Observations]:
    """What an observer who knows the mechanism has seen of each of these people.

    Files begin each window of a mechanism without memory anew (`windows_apart`); sessions, batches
    and the gateway go on from the last release. Raises SettingsMismatchError where costs or kinds
    are not those of this mechanism.
    """
    _check_mechanism(m)
    if not people:
        return []
    lanes = _Lanes(m, people, windows_apart and m.tracker is None)
    for number in range(max(len(one.at_s) for one in people)):
        lanes.take_step(number)
    return lanes.observations()


def _check_mechanism(m: PredictiveMechanism) -> None:
    refuse_delta(m.privacy, "attacks are")
    if not isinstance(m.space, Sphere):
        raise ParameterError(
            "attacks work on latitude and longitude, a hereish.Sphere, "
            f"found {type(m.space).__name__}"
        )
    if type(m.decider) not in (LaplaceTest, NoiseFirst):
        raise ParameterError(
            "attacks know the decisions LaplaceTest and NoiseFirst, found "
            f"{type(m.decider).__name__}"
        )


@dataclass
class _Replayed:
    """A decision whose outcomes are known already: what was released."""

    original: LaplaceTest | NoiseFirst
    hard: Bools
    fresh: Floats

    uniforms = 1
    private = False

    def costs(self, eps_test: PerLane, eps_noise: PerLane) -> tuple[PerLane, PerLane]:
        return self.original.costs(eps_test, eps_noise)

    def decide(self, space: Space, asked: Question, u: Floats) -> tuple[Bools, Floats]:
        if len(self.hard) != len(asked.open):  # before anything is replayed: whether it fits
            return np.zeros(len(asked.open), dtype=np.bool_), np.empty((0, 2))
        return self.hard, self.fresh


class _Lanes:
    """The runs of several people, step by step."""

    def __init__(
        self, m: PredictiveMechanism, people: Sequence[Releases], windows_apart: bool
    ) -> None:
        self.m, self.people, self.windows_apart = m, people, windows_apart
        nothing = np.zeros(0, dtype=np.bool_)
        self.decision = _Replayed(m.decider, nothing, np.empty((0, 2)))  # type: ignore[arg-type]  # checked
        self.replaying = dataclasses.replace(m, decision=self.decision)
        self.noise_first = isinstance(m.decider, NoiseFirst)
        self.run = m.run(len(people))
        self.lengths = np.array([len(one.at_s) for one in people])
        self.columns = [_Columns(len(one.at_s)) for one in people]

    def take_step(self, number: int) -> None:
        """The release of this number of each person who has one."""
        lanes = np.flatnonzero(self.lengths > number)
        at_s = np.array([self.people[lane].at_s[number] for lane in lanes.tolist()])
        value = np.array([self.people[lane].value[number] for lane in lanes.tolist()])
        run = self._begun(self.run.take(lanes), at_s)
        prepared = prepare(self.m, run, at_s)
        hard = self._find_hard(prepared, lanes, number, value)
        noisy, exact = undo(self.m, prepared, hard, value)
        scale = self.m.space.claim_factor
        cells = find_cells(self.m, prepared, hard, value)
        self.decision.hard, self.decision.fresh = hard, noisy[hard]
        no_secret = np.full((len(lanes), 2), np.nan)
        no_draws = np.full((len(lanes), self.replaying.uniforms), 0.5)
        release, after = decide(self.replaying, prepared, no_secret, no_draws)
        # As it was released, to the last bit.
        values = after.values.copy()
        values[:, 0] = value
        self._store(lanes, after._replace(values=values))
        for row, lane in enumerate(lanes.tolist()):
            self._check_cost(self.people[lane], number, float(release.cost[row]))
            self.columns[lane].put(
                number,
                noisy=noisy[row],
                guess=prepared.guess[row],
                eps_noise=_of(prepared.eps_noise, row) * scale,
                eps_test=_of(prepared.eps_test, row) * scale,
                threshold_m=_of(prepared.threshold, row),
                cost=float(release.cost[row]) * scale,
                slack_m=0.0 if exact[row] else self._slack_m(prepared, row),
                test=self._test(prepared, row, bool(hard[row])),
                cell=cells.get(row),
            )

    def _begun(self, run: Run, at_s: Floats) -> Run:
        """The runs, or empty ones where a window begins and they stand for themselves."""
        if not self.windows_apart:
            return run
        moved = in_window(self.m, run, at_s)
        new = (moved.window != run.window) & (run.at_s == run.at_s)
        if not new.any():
            return run
        empty = self.m.run(len(at_s))
        fields = [
            np.where(new.reshape((-1,) + (1,) * (kept.ndim - 1)), fresh, kept)
            for kept, fresh in zip(moved, empty, strict=True)
        ]
        return Run(*fields)._replace(window=moved.window).frozen()

    def _find_hard(self, prepared: Prepared, lanes: Ints, number: int, value: Floats) -> Bools:
        """Which releases are fresh noise: as their kinds say or, without those, all new places."""
        same = (value == prepared.guess).all(axis=1)
        hard = ~same
        for row, lane in enumerate(lanes.tolist()):
            kind = self.people[lane].kind
            if kind is not None:
                hard[row] = kind[number] is Kind.HARD
        hard &= prepared.fits & ~np.equal(prepared.threshold, np.inf)
        for row, lane in enumerate(lanes.tolist()):
            kind = self.people[lane].kind
            if kind is not None and hard[row] != (kind[number] is Kind.HARD):
                raise SettingsMismatchError(_MISMATCH)
        if (prepared.fits & np.equal(prepared.threshold, -np.inf) & ~hard).any():
            raise SettingsMismatchError(_MISMATCH)  # without a guess there is noise
        return np.asarray(hard)

    def _slack_m(self, prepared: Prepared, row: int) -> float:
        return self.m.moves_noise / max(_of(prepared.eps_noise, row), 1e-300)

    def _test(self, prepared: Prepared, row: int, hard: bool) -> Test:
        tested = np.isfinite(_of(prepared.threshold, row)) and prepared.fits[row]
        if not tested or not _of(prepared.eps_test, row):
            return Test.NONE
        if self.noise_first:
            return Test.NONE if hard else Test.ACCEPTED
        return Test.FAILED if hard else Test.PASSED

    def _check_cost(self, releases: Releases, number: int, cost: float) -> None:
        if releases.cost is None:
            return
        found = float(releases.cost[number])
        if abs(found - cost) > _SAME_COST * max(found, cost, 1e-6 * self.m.privacy.eps_per_m):
            raise SettingsMismatchError(_MISMATCH)

    def _store(self, lanes: Ints, run: Run) -> None:
        if len(lanes) == len(self.run.reports):
            self.run = run
            return
        kept: list[Any] = [field.copy() for field in self.run]
        for field, new in zip(kept, run, strict=True):
            field[lanes] = new
        self.run = Run(*kept).frozen()

    def observations(self) -> list[Observations]:
        return [
            Observations(at_s=one.at_s, value=one.value, **columns.as_arrays())
            for one, columns in zip(self.people, self.columns, strict=True)
        ]


_MISMATCH = (
    "the kinds and costs of the releases are not those of these settings: give the options "
    "with which they were made (--preset, --reports, --accuracy, --every, --budget, --prediction, "
    "…, as for hereish sanitize)"
)


class _Columns:
    """What is known of each release of one person."""

    def __init__(self, count: int) -> None:
        self.noisy, self.guess = np.full((count, 2), np.nan), np.full((count, 2), np.nan)
        self.numbers = {
            name: np.zeros(count)
            for name in ("eps_noise", "eps_test", "threshold_m", "cost", "slack_m")
        }
        self.test = np.zeros(count, dtype=np.uint8)
        self.cell = np.full(count, None)

    def put(
        self,
        number: int,
        *,
        noisy: Floats,
        guess: Floats,
        test: Test,
        cell: NoiseCell | None,
        **numbers: float,
    ) -> None:
        self.noisy[number], self.guess[number], self.test[number] = noisy, guess, test
        self.cell[number] = cell
        for name, value in numbers.items():
            self.numbers[name][number] = value

    def as_arrays(self) -> dict[str, Any]:
        columns = {"noisy": self.noisy, "guess": self.guess, "test": self.test, "cell": self.cell}
        return columns | self.numbers


def undo(
    m: PredictiveMechanism, prepared: Prepared, hard: Bools, value: Floats
) -> tuple[Floats, Bools]:
    """The noisy points that became these releases, NaN where there is no fresh noise.

    And whether each was found: of several that would have become the same release, the one around
    which most noise does.
    """
    noisy = np.where(hard[:, None], value, np.nan)
    exact = np.ones(len(value), dtype=np.bool_)
    if m.tracker is None and m.remap is None:
        return noisy, exact
    for lane in np.flatnonzero(hard).tolist():
        noisy[lane], exact[lane] = _undo_one(m, prepared, lane, value[lane])
    return noisy, exact


def _undo_one(
    m: PredictiveMechanism, prepared: Prepared, lane: int, value: Floats
) -> tuple[Floats, bool]:
    """Newton's method from several starts, all of them in one call of the part."""
    metres = np.array([M_PER_DEG, M_PER_DEG * max(np.cos(np.radians(value[0])), 1e-6)])
    scale_m = 1.0 / _of(prepared.eps_noise, lane)

    def released(offsets_m: Floats) -> Floats:
        """Where noise so far north and east of the release would have been moved to."""
        moved = _moved(m, prepared, lane, value + offsets_m / metres)
        apart = moved - value
        apart[:, 1] = (apart[:, 1] + 180.0) % 360.0 - 180.0
        return np.asarray(apart * metres)

    residual = released(np.zeros((1, 2)))
    if float(np.hypot(*residual[0])) < _ROUNDED_M:  # nothing was near
        return value, True
    angle = np.arange(_ANGLES) * (2.0 * np.pi / _ANGLES)
    radius = scale_m * m.moves_noise * (np.arange(1, _RADII + 1) / _RADII) ** 2
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    starts = np.concatenate([np.zeros((1, 2)), (radius[:, None, None] * ring).reshape(-1, 2)])
    residual = released(starts)
    best = np.argsort(np.hypot(residual[:, 0], residual[:, 1]))[:_BEST]
    at, residual = starts[best], residual[best]
    step_m, damped = 1e-4 * scale_m, np.ones(len(at))
    slopes, determinant = np.zeros((len(at), 2, 2)), np.ones(len(at))
    for _ in range(_ITERATIONS):
        aside = np.concatenate([at + step_m * axis for axis in np.eye(2)])
        changed = (released(aside).reshape(2, -1, 2) - residual) / step_m
        slopes = changed.transpose(1, 2, 0)
        determinant = np.linalg.det(slopes)
        slopes = np.where((np.abs(determinant) > 1e-9)[:, None, None], slopes, np.eye(2))
        move = -np.linalg.solve(slopes, residual[:, :, None])[:, :, 0]
        length = np.hypot(move[:, 0], move[:, 1])
        move *= (damped * np.minimum(1.0, scale_m / np.maximum(length, 1e-9)))[:, None]
        tried = released(at + move)
        better = (tried**2).sum(axis=1) < (residual**2).sum(axis=1)
        at = np.where(better[:, None], at + move, at)
        residual = np.where(better[:, None], tried, residual)
        damped = np.where(better, np.minimum(2.0 * damped, 1.0), 0.3 * damped)
        if (((residual**2).sum(axis=1) < _CONVERGED_M**2) | (damped < 0.01)).all():
            break
    found = np.hypot(residual[:, 0], residual[:, 1]) < _ROUNDED_M
    if not found.any():
        return value, False
    spread = np.where(found, 1.0 / np.maximum(np.abs(determinant), 1e-9), 0.0)
    point = value + at[int(spread.argmax())] / metres
    point[1] = (point[1] + 180.0) % 360.0 - 180.0
    return np.asarray(point), True


def find_cells(
    m: PredictiveMechanism, prepared: Prepared, hard: Bools, value: Floats
) -> dict[int, NoiseCell]:
    """Of the lanes whose release stands for much noise."""
    if m.tracker is None:
        return {}
    cells = {}
    for lane in np.flatnonzero(hard).tolist():
        if _stands_for_much(m, prepared, lane, value[lane]):
            cells[lane] = _cell(m, prepared, lane, value[lane])
    return cells


def _stands_for_much(m: PredictiveMechanism, prepared: Prepared, lane: int, value: Floats) -> bool:
    """Whether noise beside the release would have become the same one."""
    aside = value + np.array([[0.0, 0.0], [2e-4, 0.0], [-2e-4, 0.0]])  # 20 m
    return bool((distance_m(_moved(m, prepared, lane, aside), value) < _ROUNDED_M).all())


def _cell(m: PredictiveMechanism, prepared: Prepared, lane: int, value: Floats) -> NoiseCell:
    eps_noise = _of(prepared.eps_noise, lane)
    eps_test, threshold_m = _of(prepared.eps_test, lane), _of(prepared.threshold, lane)
    tested = isinstance(m.decider, NoiseFirst) and np.isfinite(threshold_m)

    def released_as(noisy: Floats) -> Floats:
        same = distance_m(_moved(m, prepared, lane, noisy), value) < _ROUNDED_M
        if not tested:
            return same.astype(np.float64)
        apart_m = distance_m(noisy, prepared.guess[lane])
        return np.where(same, 1.0 - NoiseFirst.acceptance(apart_m, eps_test, threshold_m), 0.0)

    eps = eps_noise * m.space.claim_factor
    return make_cell(value, eps, m.moves_noise / eps_noise, released_as)


def _moved(m: PredictiveMechanism, prepared: Prepared, lane: int, noisy: Floats) -> Floats:
    """Where post-processing would move each of these noisy points of one lane, not rounded."""
    lanes = np.full(len(noisy), lane)
    eps_noise = np.full(len(noisy), _of(prepared.eps_noise, lane))
    moved = np.clip(noisy, [-90.0, -np.inf], [90.0, np.inf])
    moved[:, 1] = (moved[:, 1] + 180.0) % 360.0 - 180.0
    if m.remap is not None:
        moved = m.remap(moved, eps_noise)
    if m.tracker is not None:
        moved, _ = m.tracker.update(prepared.run, lanes, prepared.at_s[lanes], moved, eps_noise)
    return np.array(moved)


def _of(number: PerLane, row: int) -> float:
    return float(number[row]) if isinstance(number, np.ndarray) and number.ndim else float(number)


def service_error_m(seen: Observations, truth: Floats) -> Floats:
    """How far off each release was: the error of whoever is served."""
    return distance_m(seen.value, truth)
