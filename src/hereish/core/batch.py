"""Many traces at once: the same step, one lane per trace, in blocks that stay in cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hereish.core.batch_draws import BatchDraws, checked_draws
from hereish.core.batch_results import WRITTEN, Results, Sanitized
from hereish.core.chunks import Chunk, Empty, Reports, Scratch, lanes_left
from hereish.core.decision import TestThenNoise
from hereish.core.forks import can_fork
from hereish.core.fresh_memory import fresh_array
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import Draws, KeyedDraws, LateUniforms, late_from_stream
from hereish.core.run import Run
from hereish.core.session import NOT_PRIVATE
from hereish.core.step import decide, prepare
from hereish.core.stretches import (
    STEPS,
    Foresight,
    can_be_foreseen,
    is_lane_by_lane,
    step_ahead,
)
from hereish.core.types import Floats, Ints
from hereish.core.validation import check_points, checked_run, trace_arrays
from hereish.core.windows import NoReset
from hereish.core.worker_processes import (
    BatchLayout,
    FinishBlock,
    guided_blocks,
    step_with_forks,
)
from hereish.core.workers import LEAST_LANES, Workers, checked_workers, shares
from hereish.errors import HereishError

# Lanes of a block, and points of a chunk: enough to hide Python, few enough for the cache. No
# power of two: rows of a rectangle that far apart would fall on the same cache lines. The numbers
# of a seed go to the lanes of one block after the other, so its results depend on this.
LANES = 12_000
POINTS = 30 * LANES
# Of other draws, blocks have so many times as many lanes for each worker, and chunks so many
# points: whole traces of some tens of points then lie side by side where results are written.
_WIDER = 2
_MOST_POINTS = 1 << 20
_TRIAL_STEPS = 32  # after so many, lanes whose budget has ended are left


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
    workers: int = 1,
) -> Sanitized:
    """Sanitise traces laid end to end: trace i is `points[offsets[i]:offsets[i + 1]]`.

    `at_s` are Unix seconds that never fall within a trace. Randomness is secure unless a `seed`
    (NOT PRIVATE), `draws`, or a row of `uniforms` for each point (NOT PRIVATE) is given; `users`
    names the traces for KeyedDraws. Each trace has a budget of its own.

    Traces that come in pieces go on from a `run` with a lane for each: `mechanism.run(k)` to begin
    with, and then the `run` of the last result.

    `workers` share the traces: processes where the caller has no other thread (Linux), else
    threads. What is released is the same for any number of them. Parts and draws of your own are
    called by one.

    Guarantee: as the mechanism's, for each trace.
    """
    m = mechanism
    x, times, ends = trace_arrays(m, points, at_s, offsets)
    starts, lengths = ends[:-1], np.diff(ends)
    source = checked_draws(m, seed, draws, uniforms, users, len(x), len(lengths))
    began = source.drawn
    workers = checked_workers(workers)
    if not (source.is_ours and is_lane_by_lane(m)):
        workers = 1  # parts and draws of a user's own might count their calls
    # With less than a third of a chunk, another process gains nothing. Numbers of a seed follow one
    # another from block to block, whoever steps them.
    processes = min(workers, int(np.count_nonzero(lengths)) // LEAST_LANES)
    if len(x) < POINTS // 3 or source.seeded or not can_fork():
        processes = 1
    check = partial(check_points, m, x, times, ends)
    check_later = processes > 1 and run is None  # while the others get ready
    if not check_later:
        check()
    started = None if run is None else checked_run(m, run, times, starts, lengths)
    empty: Empty = np.empty if workers == 1 else fresh_array
    out = Sanitized(
        value=empty(x.shape),
        released=empty(len(x), np.bool_),
        hard=empty(len(x), np.bool_),
        eps_test=empty(len(x)),
        eps_noise=empty(len(x)),
        threshold=empty(len(x)),
        spent=np.zeros(len(lengths)),
        run=started,
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
    failure: HereishError | None = None
    lanes = _Lanes(order, starts[order], lengths[order])
    try:
        if processes > 1:
            _step_in_processes(
                m, x, times, source, out, lanes, processes, check if check_later else None
            )
        else:
            _step_all(m, x, times, source, out, lanes, workers)
    except HereishError as error:
        failure = error
    if failure is not None:
        if workers > 1:
            # It speaks of some lanes of a step. What one worker says speaks of all, and is raised
            # if it fails too; a call that has failed once returns nothing, whatever this one does.
            again = source.from_number(began)
            sanitize(m, points, at_s, offsets, draws=again, uniforms=uniforms, users=users, run=run)
        raise failure
    if out.run is not None:
        out.run.frozen()
    return replace(out, value=out.value[:, 0]) if np.ndim(points) == 1 else out


def _step_in_processes(
    m: PredictiveMechanism,
    x: Floats,
    times: Floats,
    source: BatchDraws,
    out: Sanitized,
    lanes: _Lanes,
    processes: int,
    check: Callable[[], None] | None,
) -> None:
    """Step all traces to their ends, in blocks that processes share, once they are checked."""
    widest = _WIDER * LANES
    # A block costs some milliseconds whatever its width, so none is small where there are many.
    narrowest = min(max(LANES // 3, len(lanes.traces) // (4 * processes)), LANES)
    blocks = guided_blocks(lanes.lengths, processes, widest, narrowest)

    def begin(results: Results) -> FinishBlock:
        with Workers(1) as alone:
            own = _Blocks(m, x, times, source, results, alone, POINTS, fresh_array)
        return lambda number: own.finish(lanes.take(blocks[number]))

    starts, lengths = np.empty((2, len(out.spent)), dtype=np.int64)
    starts[lanes.traces], lengths[lanes.traces] = lanes.starts, lanes.lengths
    layout = BatchLayout(starts, lengths, max(POINTS, widest))
    step_with_forks(begin, len(blocks), processes, out, layout, check)


def _step_all(
    m: PredictiveMechanism,
    x: Floats,
    times: Floats,
    source: BatchDraws,
    out: Sanitized,
    lanes: _Lanes,
    workers: int,
) -> None:
    """Step all traces to their ends, in blocks whose lanes threads share."""
    count = len(lanes.traces)
    width = LANES
    if not source.seeded:
        # Of one size, so that no small block is left.
        width = max(1, -(-count // max(1, round(count / (_WIDER * LANES * workers)))))
    points = POINTS if source.seeded else _MOST_POINTS * workers
    with Workers(workers) as threads:
        own = _Blocks(m, x, times, source, Results(out), threads, points)
        for first in range(0, count, width):
            own.finish(lanes.take(slice(first, first + width)))


class _Lanes(NamedTuple):
    """Traces of a block, from the longest to the shortest."""

    traces: Ints
    starts: Ints
    lengths: Ints

    def take(self, lanes: Any) -> _Lanes:
        return _Lanes(self.traces[lanes], self.starts[lanes], self.lengths[lanes])


class _Next(NamedTuple):
    """The next steps of a block: a chunk of it, or of some of its lanes."""

    done: int
    steps: int
    foreseeable: bool
    ahead: bool  # several reports of a lane are stepped together
    drawn: Floats | None  # the uniforms, if they are drawn for all lanes at once


class _Stepped(NamedTuple):
    """What came of a chunk of some lanes."""

    run: Run  # of the lanes that have reports left
    hard: int
    ended: int  # of the lanes that had a report in its last step


class _Blocks:
    """A batch that is stepped block by block, each chunk of a block by one worker or several."""

    def __init__(
        self,
        m: PredictiveMechanism,
        x: Floats,
        times: Floats,
        source: BatchDraws,
        results: Results,
        workers: Workers,
        points: int,
        empty: Empty = np.empty,
    ) -> None:
        self._m, self._x, self._times, self._source = m, x, times, source
        self._results, self._workers, self._points = results, workers, points
        # With one budget for ever, a lane that stopped never releases again and can be left.
        self._final = m.on_exhausted == "stop" and type(m.window) is NoReset and m.limiter is None
        self._drawn, self._scratch = Scratch(), [Scratch(empty) for _ in range(workers.count)]

    def finish(self, lanes: _Lanes) -> None:
        """Step some traces to their ends."""
        m, source, begun = self._m, self._source, self._results.out.run
        starts, lengths = lanes.starts, lanes.lengths
        run = _owned(m.run(len(starts)) if begun is None else begun.take(lanes.traces))
        dense = lengths[0] > 60 and self._times[starts[0] + 60] - self._times[starts[0]] <= 3600.0
        foresight = Foresight(source.is_ours and can_be_foreseen(m), dense)
        done, leave_at = 0, 0
        while len(lanes.traces):
            count, lengths = len(lanes.traces), lanes.lengths
            left, most_steps = int(lengths[0]) - done, max(1, self._points // count)
            most_steps = min(left, most_steps)
            if not source.seeded:  # of one size, so that no small chunk is left
                most_steps = -(-left // -(-left // most_steps))
            steps = min(most_steps, foresight.steps(lengths - done))
            if self._final and source.seeded:
                # Its numbers are drawn for lanes that have ended, too, until they are left.
                leave_at = leave_at if done < leave_at else done + min(most_steps, STEPS)
                steps = min(steps, leave_at - done)
            else:
                if self._final:
                    steps = min(steps, _TRIAL_STEPS)
                leave_at = done + steps
            counts = np.minimum(lengths - done, steps)
            ahead, possible = foresight.pays(count), foresight.is_possible(count)
            parts = shares(counts, min(self._workers.count, count // LEAST_LANES))
            drawn = None
            if source.seeded and len(parts) > 1:
                drawn = source.of_chunk(m, self._drawn, lanes_left(counts, steps))
            step = partial(self._step, lanes, run, _Next(done, steps, possible, ahead, drawn))
            stepped = self._workers.each(step, parts)
            run = _joined([one.run for one in stepped])
            foresight.learn(int(counts.sum()), sum(one.hard for one in stepped), count)
            done += steps
            had_one, ended = np.count_nonzero(counts == steps), sum(one.ended for one in stepped)
            lanes = lanes.take(slice(len(run.spent)))
            if self._final and done == leave_at and 2 * ended > had_one:
                lanes, run = self._leave(lanes, run, done)

    def _leave(self, lanes: _Lanes, run: Run, done: int) -> tuple[_Lanes, Run]:
        """Only the lanes that may still release something; the others have ended."""
        over, others = np.flatnonzero(run.ended), np.flatnonzero(~run.ended)
        ended = lanes.take(over)
        self._results.refuse(ended.starts + done, ended.lengths - done)
        self._results.store(ended.traces, run.take(over))
        return lanes.take(others), run.take(others).frozen()

    def _step(self, block: _Lanes, run: Run, ahead: _Next, number: int, part: slice) -> _Stepped:
        """Step the next reports of some lanes of a block."""
        m, source, results, final = self._m, self._source, self._results, self._final
        scratch, lanes = self._scratch[number], block.take(part)
        if len(lanes.traces) < len(block.traces):
            run = _owned(run.take(part))
        traces, starts, lengths = lanes
        steps = min(ahead.steps, int(lengths[0]) - ahead.done)
        chunk = Chunk(scratch, starts, lengths, ahead.done, steps)
        counts = np.minimum(lengths - ahead.done, steps)
        reports = Reports(chunk.read("secrets", self._x), chunk.read("times", self._times), counts)
        given = None if ahead.drawn is None else ahead.drawn[:steps, :, part]
        if source.given is not None:
            given = chunk.read("uniforms", source.given)
        elif given is None and ahead.foreseeable:
            given = source.of_chunk(m, scratch, reports.lanes_left)
        targets = results.targets(chunk)
        if ahead.ahead:
            for name, target in targets.items() if final else ():
                target[...] = WRITTEN.get(name, 0.0)
            u = source.picked(m, traces, given)
            run, most, hard = step_ahead(m, run, reports, u, targets, final)
        else:
            run, most, hard = self._step_each(run, reports, given, scratch, traces, targets)
        # The run still points into the scratch space that the next chunk will use.
        own = {name: getattr(run, name).copy() for name in ("times_s", "tested_at_s")}
        run = run._replace(**own).frozen()
        results.write(chunk, traces, targets, most)
        ended = np.count_nonzero(run.ended[: np.count_nonzero(counts == ahead.steps)])
        left = np.count_nonzero(lengths > ahead.done + ahead.steps)
        if left < len(run.spent):
            results.store(traces[left : len(run.spent)], run.take(slice(left, None)))
            run = _owned(run.take(slice(left)))
        return _Stepped(run, hard, int(ended))

    def _step_each(
        self,
        run: Run,
        reports: Reports,
        given: Floats | None,
        scratch: Scratch,
        traces: Ints,
        targets: dict[str, NDArray[Any]],
    ) -> tuple[Run, Floats, int]:
        """Step the reports of a chunk one after the other, each for all lanes that have one."""
        m, most, hard = self._m, np.zeros(len(traces)), 0
        stream = self._source.stream(m)
        for i, n in enumerate(reports.lanes_left.tolist()):
            if n < len(run.spent):
                self._results.store(traces[n : len(run.spent)], run.take(slice(n, None)))
                run = _owned(run.take(slice(n)))
            now, here = reports.at_s[i, :n], reports.secrets[i, :, :n].T
            prepared = prepare(m, run, now)
            u: Floats | LateUniforms
            if given is not None:
                u = given[i, :, :n].T
            elif stream is not None:
                u = late_from_stream((n, m.uniforms), stream, scratch.numbers)
            else:
                u = self._source.uniforms(m, scratch, traces[:n], prepared, here)
            release, run = decide(m, prepared, here, u, in_place=True)
            for name, target in targets.items():
                target[i, ..., :n] = np.transpose(getattr(release, name))
            np.maximum(most[:n], run.spent, out=most[:n])
            hard += int(np.count_nonzero(release.hard))
        return run, most, hard


def _joined(runs: Sequence[Run]) -> Run:
    """The runs of some lanes, and then those of others, as one."""
    if len(runs) == 1:
        return runs[0]
    return Run(*(np.concatenate(fields) for fields in zip(*runs, strict=True))).frozen()


def _owned(run: Run) -> Run:
    """The run with a copy of what was learnt, for the block to overwrite step by step."""
    return run._replace(learnt=run.learnt.copy()).frozen()
