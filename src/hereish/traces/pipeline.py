"""Valid rows through the mechanism to the output, in units that fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hereish.core.batch_results import Sanitized
from hereish.core.randomness import Draws
from hereish.core.types import Bools, Floats, Ints, Kind
from hereish.traces.behind import Behind
from hereish.traces.budgets import Budgets, EachTrace, sanitize_rows
from hereish.traces.faults import Fault, Faults
from hereish.traces.formats.base import Source
from hereish.traces.merging import Key, SortedRows
from hereish.traces.names import name_key
from hereish.traces.numbering import NumberedRows, Numbering
from hereish.traces.order import Order, public_order, ranks
from hereish.traces.summary import ReleaseCounts
from hereish.traces.table import BATCH_ROWS, RELEASED_KINDS, Ids, ReleasedRows, RowBatch
from hereish.traces.thinning import Thinner
from hereish.traces.trace_numbers import PublicRows, UnsortedInputError
from hereish.traces.validate import YEAR_US, Validator, rows_of_given_traces, time_faults
from hereish.traces.writing import Output, SortBounds

_HARD, _EASY, _UNTESTED = map(RELEASED_KINDS.index, (Kind.HARD, Kind.EASY, Kind.UNTESTED))
_NEVER = np.iinfo(np.int64).min


class Pipeline:
    """Takes batches in the order of their files, and writes what is released in a public order.

    With `behind`, a unit is released and written while the next one is read and put in order. What
    comes out is the same: numbers are drawn in the same order. Leave it as a context, which waits.
    """

    def __init__(
        self,
        budgets: Budgets,
        draws: Draws,
        validator: Validator,
        out: Output,
        *,
        every_s: float | None = None,
        order: Order = "public",
        keep_trace_names: bool = True,
        behind: bool = False,
        unit_rows: int | None = None,
    ) -> None:
        self._behind = Behind() if behind else None
        self.unit_rows = unit_rows  # the most of a unit; None: BATCH_ROWS, and no batch is divided
        self._budgets = budgets
        self._mechanism = budgets.mechanism
        self._draws = draws
        self._validator = validator
        self._out = out
        self._thinner = None if every_s is None else Thinner.by_seconds(every_s)
        self._order = order
        self._budget_per_trace = isinstance(budgets.mechanism.window, EachTrace)
        self._ids = Numbering(out, keep_trace_names=keep_trace_names)
        self._owners: dict[str, None] = {}  # columns that may tell users, of files without
        self._units = 0  # that have been released
        self._last_times = _LastTimes()
        self._chosen: Bools | None = None  # by user: those whose rows are taken in this pass
        self._unit: list[NumberedRows] = []
        self._rows = 0  # in the unit
        self.counts = ReleaseCounts()
        self.without_offset = False  # some times did not say their offset from UTC

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._behind is not None:
            self._behind.close()

    @property
    def users(self) -> int:
        return len(self._ids.users)

    @property
    def traces(self) -> int:
        return len(self._ids.traces)

    def add(self, source: Source, batch: RowBatch) -> None:
        """Valid rows, which are released with the rest of their unit."""
        most = self.unit_rows or max(len(batch), 1)
        if self._chosen is not None or len(batch) <= most:
            self._add(source, batch)
            return
        for begin in range(0, len(batch), most):
            self._add(source, batch.take(slice(begin, begin + most)))

    def _add(self, source: Source, batch: RowBatch) -> None:
        most = self.unit_rows or BATCH_ROWS
        if not len(batch):
            return
        if self._rows + len(batch) > most and self._chosen is None:
            held = self._take_last_moment(source, batch)
            self.flush()
            if held is not None:
                self._unit.append(held)
                self._rows += len(held.user)
        rows = self._ids.number_rows(source, batch)
        self.without_offset |= batch.offsets[0]
        if batch.user is None:
            self._owners.update(dict.fromkeys(batch.layout.owners))
        if self._chosen is not None:
            rows = rows.take(np.flatnonzero(self._chosen[rows.user]))
        if len(rows.user):
            self._rows += len(rows.user)
            self._unit.append(rows)

    def _take_last_moment(self, source: Source, following: RowBatch) -> NumberedRows | None:
        """Take the last rows out of the unit if those that follow go on at their time.

        Rows of one moment belong together: one of a trace is kept, and time may not stand still
        from unit to unit.
        """
        last = self._unit[-1] if self._unit else None
        if last is None or last.source != source:
            return None
        other = np.flatnonzero(last.batch.at_us != following.at_us[0])
        begin = int(other[-1]) + 1 if len(other) else 0
        if begin == len(last.user) or (not begin and len(self._unit) == 1):
            return None
        self._unit.pop()
        if begin:
            self._unit.append(last.take(np.arange(begin)))
        self._rows -= len(last.user) - begin
        return last.take(np.arange(begin, len(last.user)))

    def number_users(self, batch: RowBatch) -> Ints:
        """The number of each row's user."""
        return self._ids.number_users(batch)

    def divide_users(self, counts: Ints) -> list[Bools]:
        """The users in the order of their names, in groups whose rows fit into memory."""
        keys = [name_key(name) for name in self._ids.users.values]
        groups: list[Bools] = []
        room = 0
        for user in sorted(range(len(keys)), key=keys.__getitem__):
            if not groups or counts[user] > room:
                groups.append(np.zeros(len(keys), dtype=np.bool_))
                room = BATCH_ROWS
            groups[-1][user] = True
            room -= int(counts[user])
        return groups

    def begin_pass(self, users: Bools) -> None:
        """All files are read again, and the rows of these users are taken."""
        self._chosen = users
        self._ids.restart()

    def finish(self) -> None:
        self.flush(last=True)
        self._wait()
        self._validator.check_losses(self._owners)
        self._out.finish(
            self._ids.user_ids.values, self._ids.trace_ids.values, self._ids.keys, self._draws
        )

    def finish_part(self) -> Numbering:
        """In place of `finish`, where these were all rows of some users: what numbers stand for."""
        self.flush(last=True)
        self._wait()
        return self._ids

    def flush(self, *, last: bool = False) -> None:
        """Release and write the rows that have been added so far."""
        unit, self._unit, self._rows = self._unit, [], 0
        if unit:
            # Nobody's rows are in another unit.
            complete = self._chosen is not None or (last and not self._units)
            self._units += 1
            self._process(_Unit(unit), complete)

    def _process(self, unit: _Unit, complete: bool) -> None:
        public = PublicRows(
            unit.at_us,
            lambda rows: [column[rows].tolist() for column in unit.kept.values()],
            self._break_ties,
        )
        self._ids.number_traces(unit.user, unit.trace, public, complete=complete)
        order = self._drop_time_faults(unit, self._public_order(unit))
        budget = unit.trace if self._budget_per_trace else unit.user
        if self._chosen is None:
            # Thinning goes by user, whatever has a budget.
            rising = budget if self._thinner is None else unit.user
            self._last_times.check_budgets(rising[order], unit.at_us[order])
        rows = self._thin(unit, order)
        if len(rows):
            self._announce(unit, rows)
        release = partial(self._release, unit, rows, budget[rows])
        release() if self._behind is None else self._behind.run(release)

    def _release(self, unit: _Unit, rows: Ints, budget: Ints) -> None:
        out = sanitize_rows(
            self._mechanism,
            budget,
            self._ids.traces.values if self._budget_per_trace else self._ids.users.values,
            unit.points[rows],
            unit.at_us[rows] / 1e6,
            draws=self._draws,
            budgets=self._budgets,
            place=np.arange(len(rows)),
        )
        self.counts.refused += int(np.count_nonzero(~out.released))
        self._write(unit, rows[out.released], out)

    def _public_order(self, unit: _Unit) -> Ints:
        """The rows by user, trace and time; then by kept columns; then at random."""
        return public_order(
            (_ranks_of_used(unit.trace, self._ids.keys), unit.at_us),
            lambda rows: [column[rows].tolist() for column in unit.kept.values()],
            self._break_ties,
        )

    def _break_ties(self, rows: Ints) -> Floats:
        self._wait()  # numbers for the unit before are drawn first
        return self._draws.uniforms(len(rows))

    def _wait(self) -> None:
        if self._behind is not None:
            self._behind.wait()

    def _drop_time_faults(self, unit: _Unit, order: Ints) -> Ints:
        fault = time_faults(unit.span, unit.at_us, order, unit.given)
        if self._chosen is None:
            self._last_times.check_traces(unit.span, unit.at_us, unit.given, fault)
        if not fault.any():
            return order
        return order[self._validator.check(fault, unit.locate)[order]]

    def _thin(self, unit: _Unit, order: Ints) -> Ints:
        if self._thinner is None:
            return order
        # In this order, so that rows at the same time are chosen at random, not by the input.
        kept = self._thinner.keep(unit.user[order], self._ids.users.values, unit.at_us[order])
        self.counts.thinned += int(np.count_nonzero(~kept))
        return order[kept]

    def _announce(self, unit: _Unit, rows: Ints) -> None:
        """Before anything is drawn: the first and the last row that may be written."""
        rows = rows[self._output_order(unit, rows)]
        ends = rows[[0, -1]]
        first, second = self._sort_columns(unit)
        bounds = SortBounds(self._out_files(unit, ends), first[ends], second[ends])
        self._out.expect(bounds, self._ids.keys)

    def _write(self, unit: _Unit, rows: Ints, out: Sanitized) -> None:
        """Write the released rows, and count them. Their order is public."""
        value, cost, kind = out.value[out.released], out.cost[out.released], _kind_numbers(out)
        distance_m = self._mechanism.space.distance(unit.points[rows], value)
        order = self._output_order(unit, rows)
        rows = rows[order]
        released = ReleasedRows(
            at_us=unit.at_us[rows],
            lat=value[order, 0],
            lon=value[order, 1],
            kind=kind[order],
            cost=cost[order],
            user=Ids(unit.user_id[rows], self._ids.user_ids.values),
            trace=Ids(unit.trace_id[rows], self._ids.trace_ids.values),
            kept={name: column[rows] for name, column in unit.kept.items()},
        )
        self.counts.add(released, distance_m)
        first, second = self._sort_columns(unit)
        self._out.write(
            SortedRows(self._out_files(unit, rows), first[rows], second[rows], released)
        )

    def _output_order(self, unit: _Unit, rows: Ints) -> Ints:
        """The order in which rows are written, by the file that they go to."""
        file_ranks = _ranks_of_used(self._out_files(unit, rows), self._out.keys)
        if self._order == "input":
            return np.lexsort((rows, file_ranks))
        return np.argsort(file_ranks, kind="stable")

    def _out_files(self, unit: _Unit, rows: Ints) -> Ints:
        return np.array(self._ids.out_files, dtype=np.int64)[unit.span[rows]]

    def _sort_columns(self, unit: _Unit) -> tuple[Ints, Ints]:
        """The two numbers by which the rows of an output file are ordered."""
        return (unit.file, unit.place) if self._order == "input" else (unit.trace, unit.at_us)


class _Unit:
    """Rows that are released together, as columns, in the order of the input. They are secret."""

    def __init__(self, parts: Sequence[NumberedRows]) -> None:
        self._parts = parts
        self.place: Ints = _concat([part.place for part in parts])
        self.file: Ints = _concat([part.file for part in parts])
        self.user: Ints = _concat([part.user for part in parts])
        self.trace: Ints = _concat([part.trace for part in parts])
        self.span: Ints = _concat([part.span for part in parts])
        self.user_id: Ints = _concat([part.user_id for part in parts])
        self.trace_id: Ints = _concat([part.trace_id for part in parts])
        batches = [part.batch for part in parts]
        self.at_us: Ints = _concat([batch.at_us for batch in batches])
        self.given: Bools = _concat([rows_of_given_traces(batch) for batch in batches])
        self.points: Floats = np.column_stack(
            [_concat([batch.lat for batch in batches]), _concat([batch.lon for batch in batches])]
        )
        names = dict.fromkeys(name for batch in batches for name in batch.kept)
        self.kept: dict[str, NDArray[Any]] = {
            name: _concat([_kept_column(batch, name) for batch in batches]) for name in names
        }

    def locate(self, row: int) -> tuple[Source, int]:
        """The source of a row, and its line there."""
        for part in self._parts:
            if row < len(part.user):
                return part.source, int(part.batch.line[row])
            row -= len(part.user)
        raise IndexError(row)


class _LastTimes:
    """The latest times of earlier units; public. Raises where time would go back."""

    def __init__(self) -> None:
        self._spans = np.empty(0, dtype=np.int64)
        self._budgets = np.empty(0, dtype=np.int64)
        self._jumped = np.empty(0, dtype=np.bool_)

    def check_traces(self, span: Ints, at_us: Ints, given: Bools, fault: Faults) -> None:
        """No trace goes on before or at its last time, nor, if it is given, years after it."""
        count = int(span.max()) + 1
        self._spans = _grown(self._spans, count, _NEVER)
        self._jumped = _grown(self._jumped, count, False)
        known = self._spans[span] != _NEVER
        if known.any():
            last = self._spans[span[known]]
            jumps = given[known] & (at_us[known] - last > YEAR_US)
            if ((at_us[known] <= last) | jumps).any():
                raise UnsortedInputError
            if self._jumped[span].any():
                raise UnsortedInputError
        np.maximum.at(self._spans, span, at_us)
        self._jumped[span[fault == Fault.JUMP]] = True

    def check_budgets(self, budget: Ints, at_us: Ints) -> None:
        """Each budget is spent in the order of time."""
        if not len(budget):
            return
        self._budgets = _grown(self._budgets, int(budget.max()) + 1, _NEVER)
        if (at_us <= self._budgets[budget]).any():
            raise UnsortedInputError
        np.maximum.at(self._budgets, budget, at_us)


def _grown(column: NDArray[Any], count: int, fill: Any) -> NDArray[Any]:
    more = max(count - len(column), 0)
    return np.append(column, np.full(more, fill, dtype=column.dtype))


def _concat(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _kept_column(batch: RowBatch, name: str) -> NDArray[Any]:
    return batch.kept[name] if name in batch.kept else np.full(len(batch), None, dtype=object)


def _ranks_of_used(numbers: Ints, keys: Sequence[Key]) -> Ints:
    """The rank of each number's key, among the keys of the numbers that occur."""
    used = np.flatnonzero(np.bincount(numbers)) if len(numbers) else numbers
    rank = np.zeros(int(used[-1]) + 1 if len(used) else 0, dtype=np.int64)
    rank[used] = ranks([keys[number] for number in used.tolist()])
    return np.asarray(rank[numbers])


def _kind_numbers(out: Sanitized) -> NDArray[np.uint8]:
    released: Bools = out.released
    tested = np.isfinite(out.threshold[released])
    guessed = np.where(tested, np.uint8(_EASY), np.uint8(_UNTESTED))
    return np.where(out.hard[released], np.uint8(_HARD), guessed)
