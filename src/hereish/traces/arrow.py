"""Sorted Arrow batches in, sanitised Arrow batches out: what Spark, DuckDB and others call.

Rows come by user and time, so that many users go through the step at once and none is held longer
than needed: memory does not grow with the rows. The last user's run is carried from one chunk of
rows to the next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from hereish.core.batch import LANES, POINTS
from hereish.core.batch_results import Sanitized
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import KeyedDraws
from hereish.core.types import Bools, Ints, Kind
from hereish.errors import ParameterError, PartError, PointError
from hereish.traces.budgets import EachTrace, check_budgets, tie_breaker
from hereish.traces.displacement import Displacements
from hereish.traces.faults import FAULT_REASONS, Fault
from hereish.traces.foreign_errors import replace_foreign_errors
from hereish.traces.job_budget import check_shared_budget
from hereish.traces.lane_rounds import LaneRounds, put_runs, writable_copy
from hereish.traces.order import public_order
from hereish.traces.standing import NEVER, LastUser, Standing, Standings
from hereish.traces.table import RELEASED_KINDS
from hereish.traces.thinning import Thinner

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as missing:
    raise ImportError("Arrow batches need more: pip install 'hereish[parquet]'") from missing

from hereish.traces.arrow_columns import take_arrow_rows
from hereish.traces.arrow_rows import (
    ArrowColumns,
    OrderedRows,
    canonical_users,
    check_keyed,
    check_types,
    find_faults,
    is_canonical,
    lane_grants,
    lane_keys,
    lane_names,
    lane_starts,
    read_rows,
    rises,
    sort_key,
)

__all__ = [
    "ArrowColumns",
    "ArrowCounts",
    "BatchSanitizer",
    "canonical_users",
    "check_keyed",
    "sanitize_batches",
]

# A chunk: what the step takes at a time anyway.
CHUNK_ROWS = POINTS
# What is kept of a lane takes more than a row: of users with a report each, fewer at a time.
MOST_LANES = 2 * LANES
# Rows of one user at one time must be held together to be put into a public order.
_MOST_AT_ONE_TIME = 4 * CHUNK_ROWS
_UNREADABLE = "a batch cannot be read, or a new one cannot be made; nothing of it was released"
_NOT_SORTED = (
    "rows must be sorted by user (texts by their bytes, numbers by size) and then by time, with a "
    "budget per trace by trace in between; found one that is not, and nothing of its batch was "
    "released"
)
_SPELLING = (
    "a name could be another spelling of somebody else's, who would then have two budgets: apply "
    "canonical_users before the rows are sorted; nothing of its batch was released"
)


@dataclasses.dataclass
class ArrowCounts:
    """What became of the rows. Their sum does not depend on the places, but `refused` may."""

    points: int = 0
    bad: dict[str, int] = dataclasses.field(default_factory=dict)  # dropped, by reason
    late: int = 0  # at or before the user's last report of an earlier call
    thinned: int = 0
    released: int = 0
    refused: int = 0
    displacements: Displacements | None = None  # how far off releases are, if it is asked for


def sanitize_batches(
    batches: Iterable[pa.RecordBatch],
    mechanism: PredictiveMechanism,
    draws: KeyedDraws,
    columns: ArrowColumns,
    *,
    every_s: float | None = None,
    drop_bad: bool = False,
    counts: ArrowCounts | None = None,
    standings: Standings | None = None,
) -> Iterator[pa.RecordBatch]:
    """Sanitise batches whose rows are sorted by user and time; with a budget per trace, by user,
    trace and time. All rows of a user must come in one call, unless `standings` keeps where each
    user stands from one call to the next: then points at or before the user's last are left out.

    Users are texts or whole numbers, in one spelling each (`canonical_users`). Times say their
    zone. Rows that the budget refuses do not come out. With `every_s`, points of a user are taken
    at least so far apart. Bad points (without user, time or place, or of none there is) are left
    out and counted with `drop_bad`, and raise PointError otherwise.

    Guarantee: as the mechanism's, for each user. The same rows give the same bits in batches of
    any size, so that a computation that is repeated is not a second release.
    """
    sanitizer = BatchSanitizer(
        mechanism,
        draws,
        columns,
        every_s=every_s,
        drop_bad=drop_bad,
        counts=counts,
        standings=standings,
    )
    return _pushed(sanitizer, batches)


def _pushed(
    sanitizer: BatchSanitizer, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from sanitizer.push(batch)
    yield from sanitizer.finish()


class BatchSanitizer:
    """Goes through sorted rows, a chunk at a time: for engines that push batches.

    `sanitize_batches` says what the arguments are. Once it has failed it takes nothing more.
    """

    def __init__(
        self,
        mechanism: PredictiveMechanism,
        draws: KeyedDraws,
        columns: ArrowColumns,
        *,
        every_s: float | None = None,
        drop_bad: bool = False,
        counts: ArrowCounts | None = None,
        standings: Standings | None = None,
    ) -> None:
        if not isinstance(draws, KeyedDraws):
            raise ParameterError(
                "engines compute rows again, after a failure or for a second query, and fresh "
                "noise would then be a second release: draws must be KeyedDraws, found "
                f"{type(draws).__name__}"
            )
        check_keyed(mechanism, columns)
        check_budgets(mechanism)
        if isinstance(mechanism.window, EachTrace) and (every_s is not None or standings):
            raise ParameterError(
                "with a budget per trace rows come trace by trace, so a user's points cannot be "
                "thinned by time or come in several calls: choose a window of time"
            )
        if columns.granted is not None:
            check_shared_budget(mechanism)
        self._mechanism = mechanism
        self._lane_mechanism = mechanism.without_windows
        self._draws, self._columns, self._drop_bad = draws, columns, drop_bad
        self._thinner = None if every_s is None else Thinner.by_seconds(every_s)
        self._counts = ArrowCounts() if counts is None else counts
        self._held: list[pa.RecordBatch] = []
        self._rows = 0  # of those held
        self._sound = True  # no batch has failed
        self._last_owner: list[str | int] | None = None
        self._whole = standings is None  # all rows of a user come in this call
        self._standings = standings or LastUser(self._lane_mechanism)

    def push(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The next rows; what can be released by now."""
        self._begin()
        out: list[pa.RecordBatch] = []
        for first in range(0, batch.num_rows, CHUNK_ROWS):
            piece = batch.slice(first, CHUNK_ROWS)
            valid = replace_foreign_errors(partial(self._valid, piece), PointError(_UNREADABLE))
            self._held.append(valid)
            self._rows += self._held[-1].num_rows
            while self._rows >= CHUNK_ROWS:
                before = self._rows
                out += self._flush(last=False)
                if self._rows == before:  # all of one time
                    break
        self._sound = True
        return out

    def finish(self) -> list[pa.RecordBatch]:
        """No more rows come; the rest of what is released."""
        self._begin()
        out: list[pa.RecordBatch] = []
        while self._rows:
            out += self._flush(last=True)
        self._sound = True
        return out

    def _begin(self) -> None:
        """Refuse to go on after a failure: rows that were paid for would be paid for again."""
        if not self._sound:
            raise ParameterError("an earlier batch failed: begin anew, with all rows")
        self._sound = False

    def _flush(self, *, last: bool) -> list[pa.RecordBatch]:
        out, rest = replace_foreign_errors(
            lambda: self._process(self._held, last), PointError(_UNREADABLE)
        )
        self._held, self._rows = rest, sum(part.num_rows for part in rest)
        return out

    def _valid(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that can be used."""
        check_types(batch.schema, self._columns)
        self._counts.points += batch.num_rows
        fault = find_faults(batch, self._columns)
        if fault is None:
            return batch.select(list(self._columns.read))
        if not self._drop_bad:
            first = int(np.flatnonzero(fault)[0])
            raise PointError(
                f"a point cannot be used: {FAULT_REASONS[Fault(int(fault[first]))]}; nothing of "
                "its batch was released (drop_bad leaves such points out)"
            )
        for code, count in enumerate(np.bincount(fault).tolist()):
            if code and count:
                reason = FAULT_REASONS[Fault(code)]
                self._counts.bad[reason] = self._counts.bad.get(reason, 0) + count
        return batch.filter(pa.array(fault == Fault.NONE)).select(list(self._columns.read))

    def _process(
        self, held: list[pa.RecordBatch], last: bool
    ) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        """What is released of these rows, and those that wait for others of the same time."""
        table = pa.Table.from_batches(held).combine_chunks()
        rows = read_rows(table, self._columns, self._mechanism)
        end = table.num_rows if last else int(np.flatnonzero(rows.new_moment)[-1])
        lanes = lane_starts(rows)
        if len(lanes) > MOST_LANES:
            end = min(end, lanes.item(MOST_LANES))
        rest = table.slice(end).to_batches()
        if end == 0:
            if table.num_rows > _MOST_AT_ONE_TIME:
                raise PointError("too many rows of one user have the same time; check the time")
            return [], rest
        if end < table.num_rows:
            table, rows = table.slice(0, end), rows.first(end)
        self._check_sorted(rows)
        names = rows.names()
        order = self._order(table, rows, names)
        if order is not None:
            table, rows = table.take(pa.array(order)), rows.take(order)
        standing = self._standings.load(names)
        kept = self._chosen(rows, names, standing)
        if kept is not None:
            table, rows = table.take(pa.array(kept)), rows.take(kept)
        return self._released(table, rows, names, standing), rest

    def _check_sorted(self, rows: OrderedRows) -> None:
        """Raises where a budget comes a second time, has two spellings, or goes back in time."""
        owners = rows.owners()
        if not all(map(is_canonical, owners)):
            raise PointError(_SPELLING)
        first, last = ([names[i].as_py() for names in owners] for i in (0, -1))
        before = self._last_owner
        # The first one may be that with which the last chunk ended.
        again = before is None or before == first or sort_key(before) < sort_key(first)
        if rows.falls or not (again and rises(owners)):
            raise PointError(_NOT_SORTED)
        self._last_owner = last

    def _order(self, table: pa.Table, rows: OrderedRows, names: Sequence[str]) -> Ints | None:
        """Rows of one user at one time in a public order; None if there are none."""
        if rows.new_moment.all():
            return None
        keys = [rows.user, rows.trace, rows.ticks]
        if self._columns.order is not None:
            ranked = pc.rank(table[self._columns.order], tiebreaker="dense")
            keys.append(ranked.to_numpy().astype(np.int64))

        public = [n for n in (self._columns.trace, *self._columns.keep) if n is not None]

        def kept(tied: Ints) -> list[list[Any]]:
            chosen = table.select(public).take(pa.array(tied))
            return [column.to_pylist() for column in chosen.columns]

        at_random = tie_breaker(None, self._draws, names, rows.user, rows.at_s, rows.points)
        return public_order(keys, kept, at_random)

    def _chosen(self, rows: OrderedRows, names: Sequence[str], standing: Standing) -> Ints | None:
        """The rows that are reported: not late, not too close together, of no lane that ended."""
        if not self._whole:
            return self._in_time(rows, names, standing)
        chosen = None
        if self._thinner is not None:
            keep = self._thinner.keep(rows.user, names, rows.micros)
            self._counts.thinned += int(np.count_nonzero(~keep))
            self._thinner.forget_all_but(names[-1])
            chosen = np.flatnonzero(keep)
        m = self._lane_mechanism
        if m.on_exhausted != "stop" or m.limiter is not None or not standing.run.ended[0]:
            return chosen
        lanes = lane_starts(rows)
        if lane_keys(rows, lanes[:1])[0] != standing.lane[0]:
            return chosen
        over = lanes.item(1) if len(lanes) > 1 else len(rows.user)
        if chosen is None:
            chosen = np.arange(len(rows.user))
        left = chosen[chosen >= over]
        self._counts.refused += len(chosen) - len(left)
        return left

    def _in_time(self, rows: OrderedRows, names: Sequence[str], standing: Standing) -> Ints | None:
        """The rows after their user's last report, and not too close to it or to each other."""
        in_time = rows.micros > standing.last_us[rows.user]
        self._counts.late += int(np.count_nonzero(~in_time))
        if self._thinner is None:
            # What is refused anyway needs no step, and leaves its user's run as it is. The time of
            # the last report may stay behind, since whatever comes before it is refused as well;
            # but points of the next window are thinned by it.
            over = self._over(rows, standing) & in_time
            self._counts.refused += int(np.count_nonzero(over))
            taken = in_time & ~over
            return None if taken.all() else np.flatnonzero(taken)
        chosen = np.flatnonzero(in_time)
        for name, at_us in zip(names, standing.last_us.tolist(), strict=True):
            if at_us != NEVER:
                self._thinner.remember(name, at_us)
        keep = self._thinner.keep(rows.user[chosen], names, rows.micros[chosen])
        self._thinner.forget_all_but(None)
        self._counts.thinned += int(np.count_nonzero(~keep))
        return np.asarray(chosen[keep])

    def _over(self, rows: OrderedRows, standing: Standing) -> Bools:
        """The rows in a window whose budget had come to its end in an earlier call."""
        m = self._lane_mechanism
        ended = standing.run.ended
        if m.on_exhausted != "stop" or m.limiter is not None or not ended.any():
            return np.zeros(len(rows.user), dtype=np.bool_)
        window = np.zeros(len(ended), dtype=np.int64)
        window[ended] = standing.lane[ended].astype(np.int64)
        return np.asarray(ended[rows.user] & (rows.window == window[rows.user]))

    def _released(
        self, table: pa.Table, rows: OrderedRows, names: Sequence[str], standing: Standing
    ) -> list[pa.RecordBatch]:
        if not len(rows.user):
            return []
        lanes = lane_starts(rows)
        out = self._sanitized(rows, names, lanes, standing)
        released = np.flatnonzero(out.released)
        self._counts.released += len(released)
        self._counts.refused += len(rows.user) - len(released)
        if self._counts.displacements is not None:
            true, public = rows.points[released], out.value[released]
            self._counts.displacements.add(self._mechanism.space.distance(true, public))
        places = {
            self._columns.lat: pa.array(out.value[released, 0]),
            self._columns.lon: pa.array(out.value[released, 1]),
            "kind": _kinds(out, released),
            "cost": pa.array(out.cost[released]),
        }
        schema = self._columns.schema(table.schema)
        arrays = [
            places[name] if name in places else take_arrow_rows(table[name], released)
            for name in schema.names
        ]
        return list(pa.Table.from_arrays(arrays, schema=schema).combine_chunks().to_batches())

    def _sanitized(
        self, rows: OrderedRows, names: Sequence[str], lanes: Ints, standing: Standing
    ) -> Sanitized:
        """The rows through the step: a lane for each user and window."""
        m, keys = self._lane_mechanism, lane_keys(rows, lanes)
        users = rows.user[lanes]
        first = np.flatnonzero(np.diff(users, prepend=-1))  # lane of each user
        before = standing.take(users[first])
        run = writable_copy(m.run(len(lanes)))
        granted = lane_grants(rows, lanes)
        if granted is not None:
            run.spent[:] = m.bound.spent_leaving(granted)
        same = keys[first] == before.lane
        put_runs(run, first[same], before.run.take(same))
        offsets = np.append(lanes, len(rows.user))
        keyed = lane_names(rows, lanes)
        rounds = LaneRounds(m, rows.points, rows.at_s, offsets, self._draws, keyed)
        if not m.carries_over:
            out = rounds.all_at_once(run.frozen())
        else:
            out = rounds.one_after_the_other(users, run.frozen(), before.run)
        if out.run is None:
            raise PartError("a batch must say where its runs stand; nothing was released")
        last = np.append(first[1:], len(lanes)) - 1
        self._standings.save(
            [names[i] for i in users[last].tolist()],
            Standing(keys[last], rows.micros[offsets[last + 1] - 1], out.run.take(last)),
        )
        return out


_KIND_NAMES = pa.array([str(kind.value) for kind in RELEASED_KINDS], pa.string())


def _kinds(out: Sanitized, released: Ints) -> pa.Array:
    tested = np.isfinite(out.threshold[released])
    easy, untested, hard = (
        RELEASED_KINDS.index(kind) for kind in (Kind.EASY, Kind.UNTESTED, Kind.HARD)
    )
    code = np.where(out.hard[released], hard, np.where(tested, easy, untested))
    return _KIND_NAMES.take(pa.array(code))
