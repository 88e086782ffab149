"""A user's query traces in the order of time: fresh budgets, but one memory.

The traces of the case study are independent of one another. Here each still has a budget of its
own, but what was released and learnt before is carried over, as it would be for a user who comes
back. The lanes of the step are users, and each goes on with its next trace when one is over.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hereish.core.batch_results import Sanitized
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import SeededDraws
from hereish.core.run import Run
from hereish.core.session import NOT_PRIVATE
from hereish.core.step import step
from hereish.core.types import Bools, Floats, Ints
from hereish.core.windows import NoReset
from hereish.errors import ParameterError
from hereish.evaluation.metrics import Outcome
from hereish.evaluation.sampling import Queries


def run_in_order(m: PredictiveMechanism, samples: Sequence[Queries], seed: int) -> list[Outcome]:
    """What a mechanism does with all traces of each user, one after the other, in each sample.

    The samples share the steps, and nothing else.
    """
    if not isinstance(m.window, NoReset) or m.limits or m.on_exhausted != "stop":
        raise ParameterError(
            "a trace with a budget of its own needs a mechanism without a window, which stops "
            "when its budget has ended"
        )
    joined = join(samples)
    out = _sanitize_in_order(m, joined, *_lanes(samples), seed)
    whole = Outcome.of_releases(m, joined, out, out.released)
    ends = np.cumsum([len(queries.at_s) for queries in samples])[:-1]
    columns = [np.split(column, ends) for column in whole]
    return [Outcome(*parts) for parts in zip(*columns, strict=True)]


def join(samples: Sequence[Queries]) -> Queries:
    """The traces of several samples as those of one."""
    lengths = np.concatenate([np.diff(queries.offsets) for queries in samples])
    return Queries(
        np.concatenate([queries.at_s for queries in samples]),
        np.concatenate([queries.points for queries in samples]),
        np.r_[0, np.cumsum(lengths)],
        np.concatenate([queries.user for queries in samples]),
        max(queries.users for queries in samples),
    )


def _lanes(samples: Sequence[Queries]) -> tuple[Ints, Ints]:
    """The traces of all samples, lane by lane; and where the lanes begin and end among them.

    A lane is a user of a sample. A trace that begins before an earlier one of the same user has
    ended, as of a second device, is a lane of its own.
    """
    order: list[Ints] = []
    begins: list[Bools] = []
    before = 0
    for queries in samples:
        first_s, last_s = queries.at_s[queries.offsets[:-1]], queries.at_s[queries.offsets[1:] - 1]
        own = np.lexsort((first_s, queries.user))
        beyond = float(last_s.max(initial=0.0) - first_s.min(initial=0.0)) + 1.0
        shift_s = queries.user[own] * beyond  # a later user is later than all of the former
        ended_s = np.maximum.accumulate(last_s[own] + shift_s)
        alone = np.zeros(len(own), dtype=np.bool_)
        alone[1:] = (first_s[own] + shift_s)[1:] < ended_s[:-1]
        lane = np.where(alone, len(own) + np.arange(len(own)), queries.user[own])
        by_lane = np.argsort(lane, kind="stable")
        order.append(before + own[by_lane])
        begins.append(np.diff(lane[by_lane], prepend=-1) != 0)
        before += len(own)
    starts = np.flatnonzero(np.concatenate(begins))
    return np.concatenate(order), np.r_[starts, before]


def _sanitize_in_order(
    m: PredictiveMechanism, queries: Queries, order: Ints, bounds: Ints, seed: int
) -> Sanitized:
    n = len(queries.at_s)
    value = np.full((n, queries.points.shape[1]), np.nan)
    released, hard = np.zeros((2, n), dtype=np.bool_)
    eps_test, eps_noise, cost = np.zeros((3, n))
    threshold = np.full(n, np.inf)
    draws = SeededDraws(seed)
    trace, end = bounds[:-1].copy(), bounds[1:]
    row, row_end = queries.offsets[order[trace]], queries.offsets[order[trace] + 1]
    run = m.run(len(trace))
    while len(trace):
        u = draws.uniforms(len(trace) * m.uniforms).reshape(m.uniforms, -1).T
        release, run = step(m, run, queries.points[row], queries.at_s[row], u)
        value[row], released[row], hard[row] = release.value, release.released, release.hard
        eps_test[row], eps_noise[row] = release.eps_test, release.eps_noise
        threshold[row], cost[row] = release.threshold, release.cost
        row += 1
        over = (row == row_end) | run.ended
        if not np.count_nonzero(over):
            continue
        trace += over
        if np.count_nonzero(trace == end):
            on = trace < end
            trace, end, over, run = trace[on], end[on], over[on], run.take(on)
            row, row_end = row[on], row_end[on]
        next_one = order[trace[over]]
        row[over], row_end[over] = queries.offsets[next_one], queries.offsets[next_one + 1]
        run = with_fresh_budget(run, over)
    spent = _per_trace(queries, cost)
    columns = (value, released, hard, eps_test, eps_noise, threshold, spent)
    return Sanitized(*columns, None, NOT_PRIVATE, private=False, charged=cost)


def with_fresh_budget(run: Run, lanes: Bools) -> Run:
    """What these lanes released and learnt so far, in a window that has just begun."""
    return run.in_window(run.window + lanes)


def _per_trace(queries: Queries, values: Floats) -> Floats:
    trace = np.repeat(np.arange(len(queries)), np.diff(queries.offsets))
    return np.bincount(trace, values, len(queries)).astype(np.float64)
