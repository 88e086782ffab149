"""Checked rows through the mechanism and out again, in units that fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hereish.core.batch import Sanitized
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import Draws
from hereish.core.types import Bools, Floats, Ints
from hereish.errors import HereishError, ParameterError, PointError
from hereish.traces.budgets import Budgets, EachTrace, sanitize_rows
from hereish.traces.discovery import Source
from hereish.traces.merging import Chunk, Key
from hereish.traces.names import name_key
from hereish.traces.numbering import Numbering, Part
from hereish.traces.order import Order, public_order
from hereish.traces.summary import Tally
from hereish.traces.table import FAULTS, PIECE_ROWS, Fault, Ids, Piece, Released
from hereish.traces.thinning import Thinner
from hereish.traces.validate import YEAR_US, bad_row, time_faults
from hereish.traces.writing import Ends, Output

_HARD, _EASY, _UNTESTED = range(3)  # as in KINDS
_CENTURY_S = 100 * 365.25 * 86400.0
_NEVER = np.iinfo(np.int64).min


class NotInOrder(HereishError):  # noqa: N818  # it tells its catcher what to do, and goes no further
    """Rows came after later ones that have been through already: they must be taken by user."""


def _whole_us(every_s: float) -> int:
    if not 1e-3 <= every_s <= _CENTURY_S:
        raise ParameterError(
            f"points are taken from a millisecond to a century apart, found {every_s:g} seconds"
        )
    return round(every_s * 1e6)


class Work:
    """Takes pieces in the order of their files; hands on what is released, in a public order."""

    def __init__(
        self,
        mechanism: PredictiveMechanism,
        draws: Draws,
        every_s: float | None,
        drop_bad: bool,
        order: Order,
        out: Output,
        tally: Tally,
    ) -> None:
        self._mechanism = mechanism
        self._draws = draws
        self._drop_bad = drop_bad
        self._order = order
        self._out = out
        self._tally = tally
        self._budgets = Budgets(mechanism)
        self._thinner = None if every_s is None else Thinner(_whole_us(every_s))
        self._by_trace = isinstance(mechanism.window, EachTrace)
        self._ids = Numbering(out)
        self._standing = _Standing()
        self._chosen: Bools | None = None  # by user: those whose rows are taken in this pass
        self._unit: list[Part] = []
        self._rows = 0  # in the unit

    def add(self, source: Source, piece: Piece) -> None:
        """Rows to come, without those that nobody can use."""
        if self._rows + len(piece) > PIECE_ROWS and self._chosen is None:
            self.flush()
        if not len(piece):
            return
        part = self._ids.numbered(source, piece)
        if self._chosen is not None:
            part = part.take(np.flatnonzero(self._chosen[part.user]))
        if len(part.user):
            self._rows += len(part.user)
            self._unit.append(part)

    def users_of(self, piece: Piece) -> Ints:
        """The number of each row's user."""
        return self._ids.users_of(piece)

    def in_parts(self, counts: Ints) -> list[Bools]:
        """The users in the order of their names, in parts that fit into memory."""
        keys = [name_key(name) for name in self._ids.users.values]
        parts: list[Bools] = []
        room = 0
        for user in sorted(range(len(keys)), key=keys.__getitem__):
            if not parts or counts[user] > room:
                parts.append(np.zeros(len(keys), dtype=np.bool_))
                room = PIECE_ROWS
            parts[-1][user] = True
            room -= int(counts[user])
        return parts

    def begin_part(self, users: Bools) -> None:
        """A pass over all files, in which the rows of some users are taken."""
        self._chosen = users
        self._ids.begin_again()

    def finish(self) -> None:
        self.flush()
        self._out.finish(
            self._ids.user_ids.values, self._ids.trace_ids.values, self._ids.keys, self._draws
        )
        tally = self._tally
        tally.users, tally.traces = len(self._ids.users), len(self._ids.traces)
        if not tally.points - sum(tally.bad.values()):
            raise PointError("there are no points that can be used; nothing was released")

    def flush(self) -> None:
        """What has come so far goes through the mechanism and out."""
        unit, self._unit, self._rows = self._unit, [], 0
        if unit:
            self._sanitize(_Unit(unit))

    def _sanitize(self, unit: _Unit) -> None:
        order = self._ordered(unit)
        fault = time_faults(unit.span, unit.at_us, order)
        if self._chosen is None:
            self._standing.check_traces(unit.span, unit.at_us, fault)
        if fault.any():
            self._leave_out(unit, fault)
            order = order[fault[order] == Fault.NONE]
        budget = unit.trace if self._by_trace else unit.user
        if self._chosen is None:
            # Thinning goes by user, whatever has a budget.
            goes_on = unit.user if self._thinner is not None else budget
            self._standing.check_budgets(goes_on[order], unit.at_us[order])
        rows = order
        if self._thinner is not None:
            # In this order, so that of the same time chance decides and not the input.
            kept = self._thinner.keep(unit.user[order], self._ids.users.values, unit.at_us[order])
            rows = order[kept]
            self._tally.thinned += len(order) - len(rows)
        if len(rows):
            targets, sorted_rows = self._destined(unit, rows)
            first, second = self._sort_keys(unit)
            ends = sorted_rows[[0, -1]]
            self._out.expect(Ends(targets[[0, -1]], first[ends], second[ends]), self._ids.keys)
        out = sanitize_rows(
            self._mechanism,
            budget[rows],
            self._ids.traces.values if self._by_trace else self._ids.users.values,
            unit.points[rows],
            unit.at_us[rows] / 1e6,
            draws=self._draws,
            budgets=self._budgets,
            place=np.arange(len(rows)),
        )
        self._tally.refused += int(np.count_nonzero(~out.released))
        self._write(unit, rows[out.released], out)

    def _ordered(self, unit: _Unit) -> Ints:
        """The rows by user, trace and time; then by kept columns; then by chance."""
        return public_order(
            (_ranked(unit.trace, self._ids.keys), unit.at_us),
            lambda rows: [column[rows].tolist() for column in unit.kept.values()],
            lambda rows: self._draws.uniforms(len(rows)),
        )

    def _leave_out(self, unit: _Unit, fault: NDArray[np.uint8]) -> None:
        bad = int(np.flatnonzero(fault)[0])
        if not self._drop_bad:
            part, row = unit.found(bad)
            raise bad_row(part.source, int(part.piece.line[row]), Fault(int(fault[bad])))
        for code, count in enumerate(np.bincount(fault).tolist()):
            if code and count:
                self._tally.left_out(FAULTS[Fault(code)], count)

    def _write(self, unit: _Unit, rows: Ints, out: Sanitized) -> None:
        """Hand on the released rows, which are in a public order, and count them."""
        value, cost, kind = out.value[out.released], out.cost[out.released], _kinds(out)
        distance_m = self._mechanism.space.distance(unit.points[rows], value)
        order = self._order_of(unit, rows)
        targets, rows = self._destined(unit, rows)
        released = Released(
            at_us=unit.at_us[rows],
            lat=value[order, 0],
            lon=value[order, 1],
            kind=kind[order],
            cost=cost[order],
            user=Ids(unit.user_id[rows], self._ids.user_ids.values),
            trace=Ids(unit.trace_id[rows], self._ids.trace_ids.values),
            kept={name: column[rows] for name, column in unit.kept.items()},
        )
        self._tally.count(released, distance_m)
        first, second = self._sort_keys(unit)
        self._out.write(Chunk(targets, first[rows], second[rows], released), self._ids.keys)

    def _order_of(self, unit: _Unit, rows: Ints) -> Ints:
        """The order in which rows are written, each to its target."""
        ranks = _ranked(self._targets(unit, rows), self._out.keys)
        if self._order == "input":
            return np.lexsort((rows, ranks))
        return np.argsort(ranks, kind="stable")

    def _destined(self, unit: _Unit, rows: Ints) -> tuple[Ints, Ints]:
        """Where rows go, and the rows, in that order."""
        order = self._order_of(unit, rows)
        return self._targets(unit, rows)[order], rows[order]

    def _targets(self, unit: _Unit, rows: Ints) -> Ints:
        return np.array(self._ids.targets, dtype=np.int64)[unit.span[rows]]

    def _sort_keys(self, unit: _Unit) -> tuple[Ints, Ints]:
        """What rows of a target are ordered by."""
        given = self._order == "input"
        return (unit.file, unit.place) if given else (unit.trace, unit.at_us)


class _Unit:
    """The rows of some parts as columns, in the order of the input. Holds secrets."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        for name in ("place", "file", "user", "trace", "span", "user_id", "trace_id"):
            setattr(self, name, _joined([getattr(part, name) for part in parts]))
        pieces = [part.piece for part in parts]
        self.at_us: Ints = _joined([piece.at_us for piece in pieces])
        self.points: Floats = np.column_stack(
            [_joined([getattr(piece, name) for piece in pieces]) for name in ("lat", "lon")]
        )
        names = dict.fromkeys(name for piece in pieces for name in piece.kept)
        self.kept: dict[str, NDArray[Any]] = {
            name: _joined([_column(piece, name) for piece in pieces]) for name in names
        }

    place: Ints
    file: Ints
    user: Ints
    trace: Ints
    span: Ints
    user_id: Ints
    trace_id: Ints

    def found(self, row: int) -> tuple[Part, int]:
        """The part that a row is of, and its number there."""
        for part in self._parts:
            if row < len(part.user):
                return part, row
            row -= len(part.user)
        raise IndexError(row)


class _Standing:
    """How far time has gone in earlier units; public. Raises if it would have to go back."""

    def __init__(self) -> None:
        self._traces = np.empty(0, dtype=np.int64)
        self._budgets = np.empty(0, dtype=np.int64)
        self._jumped = np.empty(0, dtype=np.bool_)

    def check_traces(self, span: Ints, at_us: Ints, fault: NDArray[np.uint8]) -> None:
        """No trace goes on before, at, or years after where it stood, nor after a jump."""
        count = int(span.max()) + 1
        self._traces = _grown(self._traces, count, _NEVER)
        self._jumped = _grown(self._jumped, count, False)
        known = self._traces[span] != _NEVER
        if known.any():
            last = self._traces[span[known]]
            if ((at_us[known] <= last) | (at_us[known] - last > YEAR_US)).any():
                raise NotInOrder
            if self._jumped[span].any():
                raise NotInOrder
        np.maximum.at(self._traces, span, at_us)
        self._jumped[span[fault == Fault.JUMP]] = True

    def check_budgets(self, budget: Ints, at_us: Ints) -> None:
        """Each budget is spent in the order of time."""
        if not len(budget):
            return
        self._budgets = _grown(self._budgets, int(budget.max()) + 1, _NEVER)
        if (at_us <= self._budgets[budget]).any():
            raise NotInOrder
        np.maximum.at(self._budgets, budget, at_us)


def _grown(column: NDArray[Any], count: int, fill: Any) -> NDArray[Any]:
    more = max(count - len(column), 0)
    return np.append(column, np.full(more, fill, dtype=column.dtype))


def _joined(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _column(piece: Piece, name: str) -> NDArray[Any]:
    return piece.kept[name] if name in piece.kept else np.full(len(piece), None, dtype=object)


def _ranked(numbers: Ints, keys: Sequence[Key]) -> Ints:
    """The place of each number's key among those that are there."""
    used = np.flatnonzero(np.bincount(numbers)) if len(numbers) else numbers
    own = [keys[number] for number in used.tolist()]
    place = {key: i for i, key in enumerate(sorted(set(own)))}
    ranks = np.zeros(int(used[-1]) + 1 if len(used) else 0, dtype=np.int64)
    ranks[used] = [place[key] for key in own]
    return np.asarray(ranks[numbers])


def _kinds(out: Sanitized) -> NDArray[np.uint8]:
    released: Bools = out.released
    tested = np.isfinite(out.threshold[released])
    guessed = np.where(tested, np.uint8(_EASY), np.uint8(_UNTESTED))
    return np.where(out.hard[released], np.uint8(_HARD), guessed)
