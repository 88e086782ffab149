"""Numbers for traces whose ids are not published: those of a user, in the order of their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from hereish.core.types import Ints
from hereish.errors import HereishError
from hereish.traces.order import KeptValues, TieBreaker
from hereish.traces.table import Ids


class UnsortedInputError(HereishError):
    """Rows came after later ones that have been released already: they must be taken by user."""


@dataclass(frozen=True)
class PublicRows:
    """What is public of the rows of a unit."""

    at_us: Ints
    kept: KeptValues
    tie_breaker: TieBreaker


class TraceNumbers:
    """Numbers the traces of each user from 1, as they begin."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}  # by user, the last number
        self._begins_us: dict[int, int] = {}  # by user, when the last one begins

    def number(
        self, user: Ints, trace: Ints, rows: Ints, public: PublicRows, *, complete: bool
    ) -> dict[int, int]:
        """The number of each of some new traces; `rows` has the place of each row in its unit.

        Unless the rows are `complete`, raises UnsortedInputError where others could change them.
        """
        at_us = public.at_us[rows]
        order = np.argsort(trace, kind="stable")  # quick where rows of a trace are together
        begins = np.flatnonzero(np.diff(trace[order], prepend=-1))
        firsts = order[begins]
        first_us = np.minimum.reduceat(at_us[order], begins).tolist()
        traces = sorted(zip(user[firsts].tolist(), first_us, trace[firsts].tolist(), strict=True))
        numbers: dict[int, int] = {}
        for owner, own in groupby(traces, lambda one: one[0]):
            for begins_us, tied in groupby(own, lambda one: one[1]):
                names = [one[2] for one in tied]
                after = begins_us > self._begins_us.get(owner, begins_us - 1)
                if not complete and (len(names) > 1 or not after):
                    raise UnsortedInputError
                if len(names) > 1:
                    names = _break_ties(names, trace, rows, public)
                for name in names:
                    self._counts[owner] = numbers[name] = self._counts.get(owner, 0) + 1
                self._begins_us[owner] = begins_us
        return numbers


def number_by_time(user: Ints, trace: Ints, at_us: Ints) -> Ids:
    """The number of each row's trace, as it is published; of those that begin at once, any."""
    public = PublicRows(at_us, lambda rows: [], lambda rows: np.zeros(len(rows)))
    pair = user * (int(trace.max(initial=0)) + 1) + trace
    rows = np.arange(len(pair))
    numbers = TraceNumbers().number(user, pair, rows, public, complete=True)
    return Ids.of([numbers[one] for one in pair.tolist()])


def _break_ties(names: Sequence[int], trace: Ints, rows: Ints, public: PublicRows) -> list[int]:
    """Traces that begin at one time: by all their times and kept columns, and then at random."""
    chance = public.tie_breaker(np.arange(len(names))).tolist()
    keys: dict[int, tuple[list[tuple[Any, ...]], float]] = {}
    for name, number in zip(names, chance, strict=True):
        own = rows[trace == name]
        kept = [[repr(value) for value in column] for column in public.kept(own)]
        keys[name] = (sorted(zip(public.at_us[own].tolist(), *kept, strict=True)), number)
    return sorted(names, key=keys.__getitem__)
