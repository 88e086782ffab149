"""Few long traces: many reports of a lane in one step, from runs that are foreseen.

A report needs the run that the one before it left, so a lane goes report by report, and where few
lanes share a step nearly all of the time is Python's. But most reports of a dense log repeat the
last release, and which run such a report leaves follows from public data. So the next reports of a
lane are stepped together, each from the run that it has if all before it repeat the release. Those
whose run is, bit for bit, the one that the report before has left are the lane's next reports. The
others are forgotten, and stepped again when it is their turn.

What is released and what it costs is the step's to say, here as everywhere. A run that is foreseen
wrongly takes time and nothing else. Proof: step.proof.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hereish.core.chunks import Reports
from hereish.core.decision import LaplaceTest
from hereish.core.ensemble import Ensemble
from hereish.core.limits import LimitBuckets
from hereish.core.noise_first import NoiseFirst
from hereish.core.pacing import Paced
from hereish.core.part_calls import OUR_SPACES, OURS
from hereish.core.prediction import Lifted
from hereish.core.run import Run
from hereish.core.step import Prepared, Release, decide, prepare
from hereish.core.types import Bools, Floats, Ints, take_rows
from hereish.errors import HereishError

if TYPE_CHECKING:
    from hereish.core.mechanism import PredictiveMechanism

# Lanes up to which it can pay: more of them hide Python by themselves. With 0 it is never done.
FEW_LANES = 128
# Reports that are stepped together, of all lanes: enough to hide Python, few enough for the cache.
REPORTS = 4096
# Of each lane: at the first try, and no fewer than.
_FIRST_REACH, _LEAST_REACH = 256.0, 8.0
# Steps of a chunk at most: of the first, of others, and of those in which reports are foreseen.
_FIRST_STEPS, STEPS, _STEPS_AHEAD = 64, 512, 1 << 15
# How often the way is reckoned again at most. It comes out the same after three times, mostly.
_PASSES = 8

# The uniforms of some reports, named by step and lane, for what was prepared and the secrets.
Uniforms: TypeAlias = Callable[[Ints, Ints, Prepared, Floats], Floats]


def is_lane_by_lane(m: PredictiveMechanism) -> bool:
    """Whether the mechanism has parts of ours alone.

    They are functions of what they are given, lane by lane. Others might count their calls.
    """
    parts = [m.budget, m.window, *(limit.window for limit in m.limits)]
    parts += [part for part in (m.skip, m.remap) if part is not None]
    members = m.prediction.members if type(m.prediction) is Ensemble else (m.prediction,)
    return (
        all(type(part) in OURS and type(part) is not Lifted for part in (*parts, *members))
        and type(m.space) in OUR_SPACES
        and type(m.decider) in (LaplaceTest, NoiseFirst)
    )


def can_be_foreseen(m: PredictiveMechanism) -> bool:
    """Whether public data tells which run is left by a report that repeats the last release."""
    return (
        is_lane_by_lane(m)
        and type(m.prediction) is not Ensemble
        and m.memory == 1
        and m.renyi is None
        and not m.learns_from_easy  # each guess that is accepted would change the run
    )


class Foresight:
    """Whether to look ahead in the next chunk of a block, and how many steps it may have.

    It pays where reports are seldom hard, which is so in dense logs and else is learnt from the
    chunk before. All of this is public.
    """

    def __init__(self, possible: bool, dense: bool) -> None:
        self._possible = possible
        self._per_hard = math.inf if dense else 0.0
        self._steps = _FIRST_STEPS

    def is_possible(self, lanes: int) -> bool:
        return self._possible and lanes <= FEW_LANES

    def pays(self, lanes: int) -> bool:
        return self.is_possible(lanes) and self._per_hard >= 12.0 + lanes / 4.0

    def steps(self, left: Ints) -> int:
        """For lanes with so many steps left, the longest first."""
        if self.is_possible(len(left)):
            return self._steps
        # Up to where few lanes go on.
        return min(STEPS, int(left[FEW_LANES])) if self._possible else STEPS

    def learn(self, reports: int, hard: int, lanes: int) -> None:
        """How many reports of the last chunk were hard."""
        if not self.is_possible(lanes):
            return
        before = self.pays(lanes)
        self._per_hard = reports / hard if hard else math.inf
        longest = _STEPS_AHEAD if self.pays(lanes) else STEPS
        changed = self.pays(lanes) != before
        self._steps = _FIRST_STEPS if changed else min(8 * self._steps, longest)


def step_ahead(
    m: PredictiveMechanism,
    run: Run,
    reports: Reports,
    uniforms: Uniforms,
    released: dict[str, NDArray[Any]],
    final: bool,
) -> tuple[Run, Floats, int]:
    """Step all reports, and put what they release where they stand in `released`.

    Returns the run that each lane is left with, the most that it had spent at any time, and how
    many were hard. If it is `final` that a lane has ended, its other reports are left as they are.
    """
    lanes = np.arange(len(reports.counts))
    run = run.take(lanes)  # a copy, to be written to
    # What has ended for good is not stepped again, and stays as it is.
    done, most, hard = np.zeros_like(lanes), np.where(final & run.ended, run.spent, 0.0), 0
    reach = np.full(len(lanes), _FIRST_REACH)  # how many of each lane to step at once
    while True:
        going_on = done[lanes] < reports.counts[lanes]
        lanes = lanes[going_on & ~run.ended[lanes] if final else going_on]
        if not len(lanes):
            return run, most, hard
        count = np.minimum(reports.counts[lanes] - done[lanes], max(1, REPORTS // len(lanes)))
        count = np.minimum(count, reach[lanes].astype(np.int64))
        taken = _take(m, run.take(lanes), _Rows.of(lanes, done[lanes], count), reports, uniforms)
        rows, kept, after = taken.rows, taken.kept, taken.after
        _write(released, taken)
        is_kept = rows.place < kept[rows.owner]
        hard += int(np.count_nonzero(taken.release.hard & is_kept))
        spent = np.where(is_kept, after.spent, 0.0)
        most[lanes] = np.maximum(most[lanes], np.maximum.reduceat(spent, rows.begins))
        for field, left in zip(run, after.take(rows.begins + kept - 1), strict=True):
            field[lanes] = left
        done[lanes] += kept
        reach[lanes] = np.fmax(np.fmax(2.0 * kept, reach[lanes] / 2.0), _LEAST_REACH)


class _Rows(NamedTuple):
    """Reports that are stepped together: some of each lane, lane by lane."""

    begins: Ints  # (lanes,) where those of each lane begin
    owner: Ints  # whose each is, among these lanes
    place: Ints  # 0 for the first of its lane
    step: Ints
    lane: Ints

    @classmethod
    def of(cls, lanes: Ints, first: Ints, count: Ints) -> _Rows:
        begins = np.cumsum(count) - count
        owner = np.repeat(np.arange(len(lanes)), count)
        place = np.arange(len(owner)) - begins[owner]
        return cls(begins, owner, place, first[owner] + place, lanes[owner])

    def heads(self) -> _Rows:
        """Only the first of each lane."""
        step, lane = self.step[self.begins], self.lane[self.begins]
        return _Rows.of(lane, step, np.ones_like(lane))

    def before(self, numbers: Floats) -> Floats:
        """For each report the sum of the numbers of those before it in its lane."""
        sums = np.cumsum(numbers) - numbers
        return np.asarray(sums - sums[self.begins][self.owner])


class _Taken(NamedTuple):
    """What came of reports that were stepped together."""

    rows: _Rows
    release: Release
    after: Run
    kept: Ints  # (lanes,) how many of each lane are its next reports


def _write(released: dict[str, NDArray[Any]], taken: _Taken) -> None:
    """Put what is kept where it stands."""
    first = taken.rows.begins
    places = (first, taken.rows.step[first], taken.rows.lane[first], taken.kept)
    for begin, step, lane, count in zip(*(column.tolist() for column in places), strict=True):
        for name, column in released.items():
            values = getattr(taken.release, name)
            some = values[begin : begin + count] if np.ndim(values) else values
            column[step : step + count, ..., lane] = some


def _take(
    m: PredictiveMechanism, here: Run, rows: _Rows, reports: Reports, uniforms: Uniforms
) -> _Taken:
    """Step these reports of lanes that stand `here`."""
    if m.limiter is not None:
        rows = _until_next_bucket(m.limiter, rows, reports)
    at_s, x = reports.at(rows.step, rows.lane)
    head = prepare(m, here, at_s[rows.begins])
    if len(rows.place) > len(rows.begins):
        try:
            foreseen, prepared = _foresee(m, here, head, rows, at_s)
            release, after = decide(m, prepared, x, uniforms(rows.step, rows.lane, prepared, x))
        except HereishError:  # perhaps of a report that will not come to pass like this
            pass
        else:
            return _Taken(rows, release, after, _count_kept(rows, foreseen, after))
        rows, x = rows.heads(), take_rows(x, rows.begins)
    release, after = decide(m, head, x, uniforms(rows.step, rows.lane, head, x))
    return _Taken(rows, release, after, np.ones_like(rows.begins))


def _until_next_bucket(limiter: LimitBuckets, rows: _Rows, reports: Reports) -> _Rows:
    """Those of each lane before a bucket of a limit begins, which is not foreseen."""
    bucket = limiter.buckets(reports.at(rows.step, rows.lane)[0])
    same = (bucket == bucket[rows.begins[rows.owner]]).all(axis=1)
    if np.count_nonzero(same) == len(same):
        return rows
    count = np.add.reduceat(same.astype(np.int64), rows.begins)  # times do not fall
    return _Rows.of(rows.lane[rows.begins], rows.step[rows.begins], count)


def _count_kept(rows: _Rows, foreseen: Run, after: Run) -> Ints:
    """How many of each lane were stepped from the run that the one before has left.

    The first was, and then each as long as what was foreseen is what the one before it has left.
    """
    wrong = np.zeros(len(rows.place), dtype=np.bool_)
    for name, left, given in zip(Run._fields, after, foreseen, strict=True):
        if name == "limit_older" and left is given:  # only the first of a lane is no copy there
            first = rows.begins[np.diff(rows.begins, append=len(wrong)) > 1]
            wrong[first] |= _differ(left[first], given[first + 1])
            continue
        wrong[:-1] |= _differ(left[:-1], given[1:])  # [S11]
    wrong[np.append(rows.begins[1:], len(wrong)) - 1] = True  # the last of each lane has no next
    last = np.flatnonzero(wrong)
    return np.asarray(last[last.searchsorted(rows.begins)] - rows.begins + 1)


def _differ(one: Any, other: Any) -> Bools:
    """The rows that are not the same, bit for bit."""
    if one.dtype == np.float64:
        one, other = (np.ascontiguousarray(field).view(np.int64) for field in (one, other))
    different = one != other
    if different.ndim == 1:
        return np.asarray(different)
    rows = np.zeros(len(different), dtype=np.bool_)
    rows[np.flatnonzero(different) // max(1, different[0].size)] = True  # far quicker than any()
    return rows


def _foresee(
    m: PredictiveMechanism, here: Run, head: Prepared, rows: _Rows, at_s: Floats
) -> tuple[Run, Prepared]:
    """The run of each report if all before it repeat what the first releases, and the plan for it.

    What a report costs depends on what those before it left, and so on what they cost: this is
    reckoned again until it comes out the same.
    """
    foreseen = _repeat_release(m, here, head, rows, at_s)
    cost, tested = _if_easy(head)
    cost, tested = cost[rows.owner], tested[rows.owner]
    spent = head.run.spent[rows.owner] + rows.before(cost)
    for turn in range(_PASSES):
        tested_at_s = foreseen.tested_at_s
        if m.needs_history:
            tested_at_s = _last_tested(here, rows, tested, at_s)
        spent[rows.begins] = here.spent
        if turn and not (
            _differ(spent, foreseen.spent).any() or _differ(tested_at_s, foreseen.tested_at_s).any()
        ):
            break
        foreseen = foreseen._replace(
            spent=spent,
            tested_at_s=tested_at_s,
            limit_spent=_spent_of_limits(here, head, rows, spent),
        ).frozen()
        prepared = prepare(m, foreseen, at_s)
        cost, tested = _if_easy(prepared)
        if turn == 0 and type(m.budget) is Paced:
            spent = _spent_by_share(m, head, rows, cost, spent)
        else:
            spent = head.run.spent[rows.owner] + rows.before(cost)
    return foreseen, prepared


def _repeat_release(
    m: PredictiveMechanism, here: Run, head: Prepared, rows: _Rows, at_s: Floats
) -> Run:
    """The run of each report if all before it are easy as the first one is, or refused like it."""
    again = head.fits | head.known if m.on_exhausted == "predict" else head.fits
    # Without a budget a guess that has changed is not released (step.decide).
    guessed = again if m.tracker is None else head.fits
    value = np.where(guessed[:, None], head.guess, here.value)
    owner, repeats = rows.owner, again[rows.owner]
    before_s = np.append(np.nan, at_s[:-1])
    run = head.run.take(owner)
    run = run._replace(
        values=take_rows(value, owner)[:, None],
        times_s=np.where(repeats, before_s, run.at_s)[:, None],
        hards=run.hards & ~repeats[:, None],
        reports=run.reports + rows.place * repeats,
        easy=run.easy + rows.place * repeats,
        ended=~head.fits[owner],
    )
    for field, first in zip(run, here, strict=True):
        field[rows.begins] = first
    return run.frozen()


def _spent_of_limits(here: Run, head: Prepared, rows: _Rows, spent: Floats) -> Floats:
    """What is spent of each limit if no bucket of it begins: what costs, costs in all of them."""
    run = head.run
    if not run.limit_spent.shape[1]:
        return run.limit_spent[rows.owner]
    # Exact: whole quanta.
    limit_spent = run.limit_spent[rows.owner] + (spent - run.spent[rows.owner])[:, None]
    limit_spent[rows.begins] = here.limit_spent
    return np.asarray(limit_spent)


def _if_easy(prepared: Prepared) -> tuple[Floats, Bools]:
    """What a guess that is released costs, and whether the secret has a say in it."""
    fits = prepared.fits
    return np.where(fits, prepared.cost_easy, 0.0), fits & np.less(prepared.threshold, np.inf)


def _last_tested(here: Run, rows: _Rows, tested: Bools, at_s: Floats) -> Floats:
    """When the secret last had a say before each report."""
    last = np.maximum.accumulate(np.where(tested, np.arange(len(tested)), -1))
    last = np.append(-1, last[:-1])
    own = last >= rows.begins[rows.owner]
    return np.where(own, at_s[last], here.tested_at_s[rows.owner])


def _spent_by_share(
    m: PredictiveMechanism, head: Prepared, rows: _Rows, cost: Floats, spent: Floats
) -> Floats:
    """What is spent before each report if each takes the same share of what is left as now."""
    total = m.bound.total
    share = np.minimum(cost / np.maximum(total - spent, m.bound.quantum), 0.5)
    left = (total - head.run.spent[rows.owner]) * np.exp(rows.before(np.log1p(-share)))
    return np.asarray(m.bound.quantised(total - left))
