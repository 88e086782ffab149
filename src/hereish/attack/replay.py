"""The mechanism replayed from what it released: what an observer knows who knows its settings.

Guess, plan and costs of every step follow from earlier releases and public times alone, so an
observer computes them as the mechanism did, with the same code. Predictions that remember move
fresh noise towards places that were released before; what they do is public and can be undone, so
the observer gets the noisy point itself back. Where it cannot be undone the released point is taken
for it, give or take as far as it may have been moved.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hereish.attack.geometry import ManyNoises, ObservedSpace, Postprocessed, Undone
from hereish.attack.globe import GLOBE
from hereish.attack.lattice import distance_m
from hereish.attack.line import OnLine
from hereish.attack.observations import Observations, Test
from hereish.core.decision import LaplaceTest, Question
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.noise_first import NoiseFirst
from hereish.core.renyi import refuse_delta
from hereish.core.run import Run
from hereish.core.spaces import Line, Space, Sphere
from hereish.core.step import Prepared, decide, in_window, prepare
from hereish.core.types import Bools, Floats, Ints, Kind, PerLane
from hereish.core.vector import Vector
from hereish.errors import HereishError, ParameterError


class SettingsMismatchError(HereishError):
    """The releases were not made by the mechanism with which they are looked at."""


class Releases(NamedTuple):
    """Releases of one person in the order of their times, as a file has them."""

    at_s: Floats
    value: Floats  # (n, coordinates) such as latitude and longitude
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
    geometry_of(m.space)
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
            return np.zeros(len(asked.open), dtype=np.bool_), self.fresh[:0]
        return self.hard, self.fresh


class _Lanes:
    """The runs of several people, step by step."""

    def __init__(
        self, m: PredictiveMechanism, people: Sequence[Releases], windows_apart: bool
    ) -> None:
        self.m, self.people, self.windows_apart = m, people, windows_apart
        self.geometry = geometry_of(m.space)
        nothing, nowhere = np.zeros(0, dtype=np.bool_), np.empty((0, self.geometry.coordinates))
        self.decision = _Replayed(m.decider, nothing, nowhere)  # type: ignore[arg-type]  # checked
        self.replaying = dataclasses.replace(m, decision=self.decision)
        self.noise_first = isinstance(m.decider, NoiseFirst)
        self.run = m.run(len(people))
        self.lengths = np.array([len(one.at_s) for one in people])
        self.contradictions = np.zeros(len(people), dtype=np.int64)
        self.columns = [_Columns(one.value.shape) for one in people]

    def take_step(self, number: int) -> None:
        """The release of this number of each person who has one."""
        lanes = np.flatnonzero(self.lengths > number)
        at_s = np.array([self.people[lane].at_s[number] for lane in lanes.tolist()])
        value = np.array([self.people[lane].value[number] for lane in lanes.tolist()])
        run = self._begun(self.run.take(lanes), at_s)
        prepared = prepare(self.m, run, at_s)
        prepared = self._as_released(prepared, lanes, number)
        hard = self._find_hard(prepared, lanes, number, value)
        undone = self._undo(prepared, hard, value)
        noisy = np.full(value.shape, np.nan)
        for row, one in undone.items():
            noisy[row] = one.noisy
        scale = self.m.space.claim_factor
        self.decision.hard, self.decision.fresh = hard, noisy[hard]
        no_secret = np.full(value.shape, np.nan)
        no_draws = np.full((len(lanes), self.replaying.uniforms), 0.5)
        release, after = decide(self.replaying, prepared, no_secret, no_draws)
        # As it was released, to the last bit, and for what it cost.
        values, spent = after.values.copy(), after.spent.copy()
        values[:, 0] = value
        for row, lane in enumerate(lanes.tolist()):
            costs = self.people[lane].cost
            if costs is not None and self.geometry.tolerance.contradictions:
                spent[row] += costs[number] - release.cost[row]
        self._store(lanes, after._replace(values=values, spent=spent))
        missed = {row for row, one in undone.items() if not one.exact}
        for row, lane in enumerate(lanes.tolist()):
            self._check_cost(lane, number, float(release.cost[row]))
            self.columns[lane].put(
                number,
                noisy=noisy[row],
                guess=prepared.guess[row] if hard[row] else value[row],  # which an easy one is
                eps_noise=_of(prepared.eps_noise, row) * scale,
                eps_test=_of(prepared.eps_test, row) * scale,
                threshold_m=_of(prepared.threshold, row),
                cost=float(release.cost[row]) * scale,
                slack_m=self._slack_m(prepared, row) if row in missed else 0.0,
                test=self._test(prepared, row, bool(hard[row])),
                cell=undone[row].cell if row in undone else None,
            )

    def _undo(self, prepared: Prepared, hard: Bools, value: Floats) -> dict[int, Undone]:
        """The noise of the rows that are hard."""
        rows = np.flatnonzero(hard).tolist()
        if self.m.tracker is None and self.m.remap is None:
            return {row: Undone(value[row], exact=True) for row in rows}
        return {
            row: self.geometry.undo(_postprocessed(self.m, prepared, row, value[row]))
            for row in rows
        }

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

    def _as_released(self, prepared: Prepared, lanes: Ints, number: int) -> Prepared:
        """What was planned as the releases say: with a test where there was one, for their cost."""
        if not self.geometry.tolerance.contradictions:
            return prepared
        asked, factor = np.zeros(len(lanes), dtype=np.bool_), np.ones(len(lanes))
        for row, lane in enumerate(lanes.tolist()):
            kinds, costs = self.people[lane].kind, self.people[lane].cost
            if kinds is None or not prepared.fits[row]:
                continue
            hard, planned_m = kinds[number] is Kind.HARD, _of(prepared.threshold, row)
            asked[row] = not hard and planned_m == -np.inf and prepared.known[row]
            planned = _of(prepared.cost_hard if hard else prepared.cost_easy, row)
            if costs is not None and planned > 0.0 and costs[number] > 0.0:
                factor[row] = float(costs[number]) / planned
        for lane in lanes[asked].tolist():
            self._contradicted(lane)
        off = np.abs(np.log(factor)) > math.log1p(self.geometry.tolerance.cost)
        factor[off] = 1.0  # it will be noticed
        # Nobody knows how near was near enough where no test was planned, so it tells nothing.
        threshold = np.where(asked, np.inf, prepared.threshold / factor)
        scaled = {
            name: getattr(prepared, name) * factor
            for name in ("eps_test", "eps_noise", "cost_easy", "cost_hard")
        }
        return prepared._replace(threshold=threshold, **scaled)

    def _contradicted(self, lane: int) -> None:
        """Note that a release is not what was replayed; too many are of another mechanism."""
        self.contradictions[lane] += 1
        if self.contradictions[lane] > self.geometry.tolerance.contradictions * self.lengths[lane]:
            raise SettingsMismatchError(_MISMATCH)

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

    def _check_cost(self, lane: int, number: int, cost: float) -> None:
        costs = self.people[lane].cost
        if costs is None:
            return
        found = float(costs[number])
        least = 1e-6 * self.m.privacy.eps_per_m
        if abs(found - cost) > self.geometry.tolerance.cost * max(found, cost, least):
            self._contradicted(lane)

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
            Observations(
                at_s=one.at_s, value=one.value, geometry=self.geometry, **columns.as_arrays()
            )
            for one, columns in zip(self.people, self.columns, strict=True)
        ]


_MISMATCH = (
    "the kinds and costs of the releases are not those of these settings: give the options "
    "with which they were made (--preset, --reports, --accuracy, --every, --budget, --prediction, "
    "…, as for hereish sanitize)"
)


class _Columns:
    """What is known of each release of one person."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        count = shape[0]
        self.noisy, self.guess = np.full(shape, np.nan), np.full(shape, np.nan)
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
        cell: ManyNoises | None,
        **numbers: float,
    ) -> None:
        self.noisy[number], self.guess[number], self.test[number] = noisy, guess, test
        self.cell[number] = cell
        for name, value in numbers.items():
            self.numbers[name][number] = value

    def as_arrays(self) -> dict[str, Any]:
        columns = {"noisy": self.noisy, "guess": self.guess, "test": self.test, "cell": self.cell}
        return columns | self.numbers


def geometry_of(space: Space) -> ObservedSpace:
    """The space of a mechanism as an observer sees it."""
    if isinstance(space, Sphere):
        return GLOBE
    if isinstance(space, (Line, Vector)):
        return OnLine.of(space)
    raise ParameterError(
        "attacks work on latitude and longitude, a hereish.Sphere, and on one number, a "
        f"hereish.Line or a hereish.Vector, found {type(space).__name__}"
    )


def _postprocessed(
    m: PredictiveMechanism, prepared: Prepared, lane: int, value: Floats
) -> Postprocessed:
    """What is public of the noise that became a release."""
    eps_noise, eps_test = _of(prepared.eps_noise, lane), _of(prepared.eps_test, lane)
    threshold_m = _of(prepared.threshold, lane)
    tested = isinstance(m.decider, NoiseFirst) and np.isfinite(threshold_m)
    scale = m.space.claim_factor

    def moved(noisy: Floats) -> Floats:
        lanes = np.full(len(noisy), lane)
        eps = np.full(len(noisy), eps_noise)
        if m.remap is not None:
            noisy = m.remap(noisy, eps)
        if m.tracker is not None:
            noisy, _ = m.tracker.update(prepared.run, lanes, prepared.at_s[lanes], noisy, eps)
        return noisy

    def let_out(noisy: Floats) -> Floats:
        if not tested:
            return np.ones(len(noisy))
        guess = np.broadcast_to(prepared.guess[lane], noisy.shape)
        apart_m = m.space.distance(noisy, guess)
        return 1.0 - NoiseFirst.acceptance(apart_m, eps_test * scale, threshold_m)

    reach_m = m.moves_noise / eps_noise
    learns = m.tracker is not None
    return Postprocessed(value, eps_noise * scale, reach_m, moved, let_out, learns)


def _of(number: PerLane, row: int) -> float:
    return float(number[row]) if isinstance(number, np.ndarray) and number.ndim else float(number)


def service_error_m(seen: Observations, truth: Floats) -> Floats:
    """How far off each release was: the error of whoever is served."""
    return distance_m(seen.value, truth)
