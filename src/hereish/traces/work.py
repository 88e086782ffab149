"""Checked rows through the mechanism and out again, in units that fit into memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hereish.arrays import Bools, Floats, Ints
from hereish.batch import Sanitized
from hereish.errors import ParameterError, PointError
from hereish.mechanism import PredictiveMechanism
from hereish.randomness import Draws
from hereish.traces.clean import usable
from hereish.traces.output import Output
from hereish.traces.piece import PIECE_ROWS, Fault, Ids, Piece, Released
from hereish.traces.rows import Budgets, EachTrace, same_name, sanitize_rows
from hereish.traces.sources import Source
from hereish.traces.tally import Tally
from hereish.traces.thin import Thinner

_HARD, _EASY, _UNTESTED = range(3)  # as in KINDS
_CENTURY_S = 100 * 365.25 * 86400.0


class _Part(NamedTuple):
    """A piece in a unit, with the numbers of its rows' users and budgets in the whole work."""

    source: Source
    piece: Piece
    user: Ints
    budget: Ints


class _Book:
    """Numbers for names: the same one for the same name, however many files it is in."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.names: list[str] = []

    def number(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]

    def __len__(self) -> int:
        return len(self.names)


def _whole_us(every_s: float) -> int:
    if not 1e-3 <= every_s <= _CENTURY_S:
        raise ParameterError(
            f"points are taken from a millisecond to a century apart, found {every_s:g} seconds"
        )
    return round(every_s * 1e6)


class Work:
    """Takes pieces in the order of their files; writes what is released."""

    def __init__(
        self,
        mechanism: PredictiveMechanism,
        draws: Draws,
        every_s: float | None,
        drop_bad: bool,
        out: Output,
        tally: Tally,
    ) -> None:
        self._mechanism = mechanism
        self._draws = draws
        self._drop_bad = drop_bad
        self._out = out
        self._tally = tally
        self._budgets = Budgets(mechanism)
        self._thinner = None if every_s is None else Thinner(_whole_us(every_s))
        self._users, self._traces = _Book(), _Book()
        self._unit: list[_Part] = []
        self._rows = 0  # in the unit
        self._ended: list[Source] = []

    def add(self, source: Source, piece: Piece, fault: np.typing.NDArray[np.uint8]) -> None:
        """Rows to come, and what is wrong with each."""
        self._tally.points += len(piece)
        piece = usable(source, piece, fault, self._drop_bad, self._tally)
        if self._rows + len(piece) > PIECE_ROWS:
            self._flush()
        if len(piece):
            self._rows += len(piece)
            user = self._numbered_users(piece)
            trace = self._numbered_traces(source, piece, user)
            by_trace = isinstance(self._mechanism.window, EachTrace)
            self._unit.append(_Part(source, piece, user, trace if by_trace else user))

    def _numbered_users(self, piece: Piece) -> Ints:
        """The number of each row's user; those without any are all the same person's."""
        ids = piece.user or Ids(np.zeros(len(piece), dtype=np.int64), [""])
        return _mapped(ids.codes, lambda code: self._users.number(same_name(ids.names[code])))

    def _numbered_traces(self, source: Source, piece: Piece, user: Ints) -> Ints:
        """The number of each row's trace, which is that of its user and its id or file."""
        ids = piece.trace or Ids(np.zeros(len(piece), dtype=np.int64), [0])
        numbered = piece.trace is None or piece.layout.numbered
        many = len(ids.names)

        def number(pair: int) -> int:
            who, which = self._users.names[pair // many], ids.names[pair % many]
            here = f"{source.name}\0" if numbered and isinstance(which, int) else ""
            return self._traces.number(f"{who}\0{here}{same_name(which)}")

        return _mapped(user * many + ids.codes, number)

    def ended(self, source: Source) -> None:
        """No more rows of this file will come."""
        self._ended.append(source)

    def finish(self) -> None:
        self._flush()
        tally = self._tally
        tally.users, tally.traces = len(self._users), len(self._traces)
        if not tally.points - sum(tally.bad.values()):
            raise PointError("there are no points that can be used; nothing was released")

    def _flush(self) -> None:
        unit, self._unit, self._rows = self._unit, [], 0
        if unit:
            self._sanitize(unit)
        for source in self._ended:  # those that had nothing in the unit
            self._out.source_ended(source)
        self._ended = []

    def _sanitize(self, unit: list[_Part]) -> None:
        unit = self._in_order(unit)
        user = np.concatenate([part.user for part in unit])
        budget = np.concatenate([part.budget for part in unit])
        at_us = np.concatenate([part.piece.at_us for part in unit])
        points = np.column_stack(
            [
                np.concatenate([getattr(part.piece, name) for part in unit])
                for name in ("lat", "lon")
            ]
        )
        rows = np.arange(len(at_us))
        if self._thinner is not None:
            rows = np.flatnonzero(self._thinner.keep(user, self._users.names, at_us))
            self._tally.thinned += len(at_us) - len(rows)
        out = sanitize_rows(
            self._mechanism,
            budget[rows],
            self._names(),
            points[rows],
            at_us[rows] / 1e6,
            draws=self._draws,
            budgets=self._budgets,
        )
        self._tally.refused += int(np.count_nonzero(~out.released))
        self._write(unit, rows[out.released], out, points)

    def _names(self) -> list[str]:
        by_trace = isinstance(self._mechanism.window, EachTrace)
        return self._traces.names if by_trace else self._users.names

    def _in_order(self, unit: list[_Part]) -> list[_Part]:
        """Without the rows before the last report of their user in an earlier unit."""
        if not len(self._budgets):
            return unit
        kept = []
        for part in unit:
            at_s = part.piece.at_us / 1e6
            early = self._budgets.early(part.budget, self._names(), at_s)
            if early.any():
                fault = np.where(early, np.uint8(Fault.ORDER), np.uint8(Fault.NONE))
                piece = usable(part.source, part.piece, fault, self._drop_bad, self._tally)
                part = _Part(part.source, piece, part.user[~early], part.budget[~early])
            kept.append(part)
        return kept

    def _write(self, unit: list[_Part], rows: Ints, out: Sanitized, points: Floats) -> None:
        """Released rows of the unit, each to where its file's go."""
        value, cost, kind = out.value[out.released], out.cost[out.released], _kinds(out)
        distance_m = self._mechanism.space.distance(points[rows], value)
        first = 0
        for i, (source, piece, _, _) in enumerate(unit):
            span = slice(*np.searchsorted(rows, [first, first + len(piece)]))
            chosen = piece.take(rows[span] - first)
            first += len(piece)
            released = Released(
                at_us=chosen.at_us,
                lat=value[span, 0],
                lon=value[span, 1],
                kind=kind[span],
                cost=cost[span],
                user=chosen.user,
                trace=self._trace_ids(source, chosen),
                kept=chosen.kept,
            )
            self._tally.count(released, distance_m[span])
            self._out.write(source, piece.layout, released)
            if source in self._ended and (i + 1 == len(unit) or unit[i + 1].source != source):
                self._out.source_ended(source)  # now, so that few files are open at a time
                self._ended.remove(source)

    def _trace_ids(self, source: Source, piece: Piece) -> Ids | None:
        """As given; those that are numbers in their file take that of the file in front."""
        unique = source.number is None or self._out.apart or not piece.layout.numbered
        if piece.trace is None or unique:
            return piece.trace
        names = [
            f"{source.number}-{name}" if isinstance(name, int) else name
            for name in piece.trace.names
        ]
        return Ids(piece.trace.codes, names)


def _mapped(codes: Ints, number: Callable[[int], int]) -> Ints:
    """Another number for each code; rows that belong together mostly lie together."""
    begins = np.flatnonzero(np.diff(codes, prepend=codes[:1] - 1))
    different, which = np.unique(codes[begins], return_inverse=True)
    numbers = np.array([number(code) for code in different.tolist()], dtype=np.int64)
    return np.repeat(numbers[which], np.diff(begins, append=len(codes)))


def _kinds(out: Sanitized) -> np.typing.NDArray[np.uint8]:
    released: Bools = out.released
    tested = np.isfinite(out.threshold[released])
    guessed = np.where(tested, np.uint8(_EASY), np.uint8(_UNTESTED))
    return np.where(out.hard[released], np.uint8(_HARD), guessed)
