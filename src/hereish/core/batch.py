"""Many traces at once: the same step, one lane per trace, in blocks that stay in cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hereish.core.chunks import Chunk, Reports, Scratch
from hereish.core.decision import TestThenNoise
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import SECURE, Draws, KeyedDraws, SecureDraws, SeededDraws, Words
from hereish.core.run import Run
from hereish.core.session import NOT_PRIVATE
from hereish.core.step import Prepared, decide, prepare
from hereish.core.stretches import STEPS, Foresight, Uniforms, can_be_foreseen, step_ahead
from hereish.core.types import Bools, Floats, Ints, Kind
from hereish.core.validation import checked_run, checked_traces
from hereish.core.windows import NoReset
from hereish.errors import ParameterError, PartError

# Lanes of a block, and points of a chunk: enough to hide Python, few enough for the cache. No
# power of two: rows of a rectangle that far apart would fall on the same cache lines.
LANES = 12_000
POINTS = 30 * LANES


@dataclass(frozen=True)
class Sanitized:
    """What `sanitize` released, point by point in the order of its input. All of it is public."""

    value: Floats  # (n, 2), or (n,) on a Line; NaN where nothing was released
    released: Bools  # (n,)
    hard: Bools  # (n,) fresh noise
    eps_test: Floats  # (n,) 0 where there was no test
    eps_noise: Floats  # (n,) 0 where no noise could be drawn
    threshold: Floats  # (n,) ±inf where there was no test
    spent: Floats  # (k,) the most that any one budget window of the trace cost
    run: Run | None  # (k lanes) where each trace stands now, if a run was given to go on from
    guarantee: str
    private: bool
    # How the cost follows from the epsilons or, where it does not, (n,) what was charged.
    priced_by: type[Any] = field(default=TestThenNoise, repr=False)
    charged: Floats | None = field(default=None, repr=False)

    @cached_property
    def cost(self) -> Floats:
        """(n,) What each point cost, by its outcome."""
        if self.charged is not None:
            return self.charged
        cost_easy, cost_hard = self.priced_by.costs(self.eps_test, self.eps_noise)
        return np.asarray(np.where(self.hard, cost_hard, cost_easy))

    @property
    def kind(self) -> NDArray[np.str_]:
        """'hard', 'easy', 'untested', or '' where nothing was released."""
        easy = np.where(np.isfinite(self.threshold), Kind.EASY.value, Kind.UNTESTED.value)
        return np.where(self.released, np.where(self.hard, Kind.HARD.value, easy), "")

    def __repr__(self) -> str:
        warning = "" if self.private else ", NOT PRIVATE"
        return (
            f"<Sanitized: {np.count_nonzero(self.released)} of {len(self.released)} points of "
            f"{len(self.spent)} traces released, {np.count_nonzero(self.hard)} hard{warning}>"
        )


def sanitize(
    mechanism: PredictiveMechanism,
    points: ArrayLike,
    at_s: ArrayLike,
    offsets: ArrayLike,
    seed: int | None = None,
    *,
    draws: Draws | KeyedDraws | None = None,
    uniforms: Floats | None = None,
    users: Sequence[str] | None = None,
    run: Run | None = None,
) -> Sanitized:
    """Sanitise traces laid end to end: trace i is `points[offsets[i]:offsets[i + 1]]`.

    `at_s` are Unix seconds that never fall within a trace. Randomness is secure unless a `seed`
    (NOT PRIVATE), `draws`, or a row of `uniforms` for each point (NOT PRIVATE) is given; `users`
    names the traces for KeyedDraws. Each trace has a budget of its own.

    Traces that come in pieces go on from a `run` with a lane for each: `mechanism.run(k)` to begin
    with, and then the `run` of the last result.

    Guarantee: as the mechanism's, for each trace.
    """
    m = mechanism
    x, times, ends = checked_traces(m, points, at_s, offsets)
    starts, lengths = ends[:-1], np.diff(ends)
    source = _source(m, seed, draws, uniforms, users, len(x), len(lengths))
    if run is not None:
        run = checked_run(m, run, times, starts, lengths)
    out = Sanitized(
        value=np.empty(x.shape),
        released=np.empty(len(x), dtype=np.bool_),
        hard=np.empty(len(x), dtype=np.bool_),
        eps_test=np.empty(len(x)),
        eps_noise=np.empty(len(x)),
        threshold=np.empty(len(x)),
        spent=np.zeros(len(lengths)),
        run=run,
        guarantee=m.guarantee_for_each("trace") if source.private else NOT_PRIVATE,
        private=source.private and m.private,
        priced_by=m.own_decision or TestThenNoise,
        charged=None if m.own_decision is not None else np.zeros(len(x)),
    )
    # Longest first: the lanes that still have points are always the first ones of a block.
    order = np.arange(len(lengths))
    if np.any(lengths[1:] > lengths[:-1]):
        order = np.argsort(-lengths, kind="stable")
    order = order[: np.count_nonzero(lengths)]
    scratch = Scratch()
    for first in range(0, len(order), LANES):
        traces = order[first : first + LANES]
        _block(m, x, times, source, out, scratch, traces, starts[traces], lengths[traces])
    if out.run is not None:
        out.run.frozen()
    return replace(out, value=out.value[:, 0]) if np.ndim(points) == 1 else out


def _block(
    m: PredictiveMechanism,
    x: Floats,
    times: Floats,
    source: _Source,
    out: Sanitized,
    scratch: Scratch,
    traces: Ints,
    starts: Ints,
    lengths: Ints,
) -> None:
    """Run some traces, sorted from the longest to the shortest, to their ends."""
    columns = {name: getattr(out, name) for name in _WRITTEN}
    if out.charged is not None:
        columns["cost"] = out.charged
    run = _owned(m.run(len(traces)) if out.run is None else out.run.take(traces))
    # With one budget for ever, a lane that stopped never releases again and can be left.
    final = m.on_exhausted == "stop" and type(m.window) is NoReset
    dense = lengths[0] > 60 and times[starts[0] + 60] - times[starts[0]] <= 3600.0
    foresight = Foresight(source.is_ours and can_be_foreseen(m), dense)
    done, leave_at = 0, 0
    while len(traces):
        most_steps = int(min(lengths[0] - done, max(1, POINTS // len(traces))))
        steps = min(most_steps, foresight.steps(lengths - done))
        if final and source.seeded:
            # Its numbers are drawn for lanes that have ended, too, until they are left.
            leave_at = leave_at if done < leave_at else done + min(most_steps, STEPS)
            steps = min(steps, leave_at - done)
        else:
            leave_at = done + steps
        chunk = Chunk(scratch, starts, lengths, done, steps)
        counts = np.minimum(lengths - done, steps)
        reports = Reports(chunk.read("secrets", x), chunk.read("times", times), counts)
        given = None if source.given is None else chunk.read("uniforms", source.given)
        if given is None and foresight.is_possible(len(traces)):
            given = source.of_chunk(m, scratch, reports)
        targets = {name: chunk.blank(name, column) for name, column in columns.items()}
        if foresight.pays(len(traces)):
            for name, target in targets.items() if final else ():
                target[...] = _WRITTEN.get(name, 0.0)
            u = source.picked(m, traces, given)
            run, most, hard = step_ahead(m, run, reports, u, targets, final)
        else:
            run, most, hard = _step_each(
                m, run, reports, given, source, out, scratch, traces, targets
            )
        foresight.learn(int(counts.sum()), hard, len(traces))
        # The run still points into the scratch space that the next chunk will use.
        own = {name: getattr(run, name).copy() for name in ("times_s", "tested_at_s")}
        run = run._replace(**own).frozen()
        for name, column in columns.items():
            chunk.write(column, targets[name])
        out.spent[traces] = np.maximum(out.spent[traces], most)
        done += steps
        going_on = lengths[: len(run.spent)] > done
        n = int(reports.lanes_left[-1])
        if final and done == leave_at and 2 * np.count_nonzero(run.ended[:n]) > n:
            over = np.flatnonzero(going_on & run.ended)
            _write_refusals(columns, starts[over] + done, lengths[over] - done)
            going_on[over] = False
        if np.count_nonzero(going_on) < len(traces):
            gone, keep = np.flatnonzero(~going_on), np.flatnonzero(going_on)
            _store_runs(out, traces[gone], run.take(gone))
            traces, starts, lengths, run = traces[keep], starts[keep], lengths[keep], run.take(keep)


def _step_each(
    m: PredictiveMechanism,
    run: Run,
    reports: Reports,
    given: Floats | None,
    source: _Source,
    out: Sanitized,
    scratch: Scratch,
    traces: Ints,
    targets: dict[str, NDArray[Any]],
) -> tuple[Run, Floats, int]:
    """Step the reports of a chunk one after the other, each for all lanes that still have one."""
    most, hard = np.zeros(len(traces)), 0
    for i, n in enumerate(reports.lanes_left.tolist()):
        if n < len(run.spent):
            _store_runs(out, traces[n : len(run.spent)], run.take(slice(n, None)))
            run = _owned(run.take(slice(n)))
        now, here = reports.at_s[i, :n], reports.secrets[i, :, :n].T
        prepared = prepare(m, run, now)
        if given is None:
            u = source.uniforms(m, scratch, traces[:n], prepared, here)
        else:
            u = given[i, :, :n].T
        release, run = decide(m, prepared, here, u, in_place=True)
        for name, target in targets.items():
            target[i, ..., :n] = np.transpose(getattr(release, name))
        np.maximum(most[:n], run.spent, out=most[:n])
        hard += int(np.count_nonzero(release.hard))
    return run, most, hard


def _owned(run: Run) -> Run:
    """The run with a copy of what was learnt, for the block to overwrite step by step."""
    return run._replace(learnt=run.learnt.copy()).frozen()


def _store_runs(out: Sanitized, traces: Ints, run: Run) -> None:
    """Remember where traces stand that have no more points."""
    for kept, left in zip(out.run or (), run, strict=False):
        kept[traces] = left


# What is written for each point, and what stands there if nothing is released.
_WRITTEN = {
    "value": np.nan,
    "released": False,
    "hard": False,
    "eps_test": 0.0,
    "eps_noise": 0.0,
    "threshold": np.inf,
}


def _write_refusals(columns: dict[str, NDArray[Any]], starts: Ints, counts: Ints) -> None:
    """Write that nothing was released in `counts` rows from each of `starts`."""
    before = np.cumsum(counts) - counts
    rows = np.arange(counts.sum()) + np.repeat(starts - before, counts)
    for name, column in columns.items():
        column[rows] = _WRITTEN.get(name, 0.0)


@dataclass(frozen=True)
class _Source:
    """Where the uniforms of a batch come from."""

    draws: Draws | KeyedDraws
    given: Floats | None  # a row for each point; then nothing is drawn
    begun: Words  # for KeyedDraws: what they need of the user of each trace

    @property
    def private(self) -> bool:
        return self.given is None and self.draws.private

    @property
    def seeded(self) -> bool:
        return self.given is None and type(self.draws) is SeededDraws

    @property
    def is_ours(self) -> bool:
        """Whether it is known not to mind how many numbers are drawn at a time."""
        return type(self.draws) in (SecureDraws, SeededDraws, KeyedDraws)

    def uniforms(
        self,
        m: PredictiveMechanism,
        scratch: Scratch,
        traces: Ints,
        prepared: Prepared,
        x: Floats,
    ) -> Floats:
        """A row of uniforms for each lane, drawn, or derived from the identity of its report."""
        if isinstance(self.draws, KeyedDraws):
            return self.draws.for_reports(m, self.begun[traces], prepared, x)
        drawn = scratch.get("drawn", (m.uniforms, len(traces)), np.float64)
        if type(self.draws) in (SecureDraws, SeededDraws):
            self.draws.uniforms(drawn.size, out=drawn.reshape(-1))
        else:  # others might leave what was there before as it is
            given = np.asarray(self.draws.uniforms(drawn.size))
            if given.shape != (drawn.size,) or given.dtype != np.float64:
                raise PartError(
                    f"draws must give {drawn.size} uniforms, found {given.shape} {given.dtype}; "
                    "nothing was released"
                )
            drawn.reshape(-1)[:] = given
        return drawn.T

    def of_chunk(self, m: PredictiveMechanism, scratch: Scratch, reports: Reports) -> Floats | None:
        """The numbers of `uniforms` for all reports of a chunk; None if they follow from these."""
        if isinstance(self.draws, KeyedDraws):
            return None
        left = reports.lanes_left
        drawn = scratch.get("drawn", (m.uniforms * int(left.sum()),), np.float64)
        self.draws.uniforms(len(drawn), out=drawn)
        numbers = scratch.get("uniforms", (len(left), m.uniforms, int(left[0])), np.float64)
        used = 0
        for first, end in pairwise(np.flatnonzero(np.diff(left, prepend=-1, append=-1))):
            some = numbers[first:end, :, : left[first]]
            some[...] = drawn[used : used + some.size].reshape(some.shape)
            used += some.size
        return numbers

    def picked(self, m: PredictiveMechanism, traces: Ints, given: Floats | None) -> Uniforms:
        """Those of any reports of a chunk: of the given ones, or derived."""
        if isinstance(self.draws, KeyedDraws):
            keyed, begun = self.draws, self.begun[traces]
            return lambda step, lane, prepared, x: keyed.for_reports(m, begun[lane], prepared, x)
        by_number = np.asarray(given).transpose(1, 0, 2)
        return lambda step, lane, prepared, x: by_number[:, step, lane].T


def _source(
    m: PredictiveMechanism,
    seed: int | None,
    draws: Draws | KeyedDraws | None,
    uniforms: Floats | None,
    users: Sequence[str] | None,
    points: int,
    traces: int,
) -> _Source:
    if sum(given is not None for given in (seed, draws, uniforms)) > 1:
        raise ParameterError("give at most one of seed, draws and uniforms")
    if isinstance(draws, KeyedDraws) != (users is not None):
        raise ParameterError("users are needed with KeyedDraws, and only with them")
    if draws is not None and not hasattr(draws, "private"):
        raise ParameterError(f"draws must be such as hereish.KeyedDraws, found {type(draws)}")
    if users is not None and (not hasattr(users, "__len__") or len(users) != traces):
        raise ParameterError(f"users must be a list that names each of the {traces} traces")
    begun = np.empty((0, 2), dtype=np.uint64)
    if isinstance(draws, KeyedDraws) and users is not None:
        begun = draws.begin(m, users)
    if uniforms is not None:
        try:
            uniforms = np.asarray(uniforms, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise ParameterError("uniforms must be an array of numbers") from None
        if uniforms.shape != (points, m.uniforms):
            raise ParameterError(
                f"uniforms must have shape {(points, m.uniforms)}, found {uniforms.shape}"
            )
        if uniforms.size and not (uniforms.min() > 0.0 and uniforms.max() < 1.0):
            raise ParameterError("uniforms must lie strictly between 0 and 1")
        return _Source(SECURE, uniforms, begun)
    if seed is not None:
        draws = SeededDraws(seed)
    return _Source(draws or SECURE, None, begun)
