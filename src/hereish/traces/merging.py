"""Released rows of many units merged into one order, in files where they do not fit into memory.

There are no true places in it: rows come here after they were released.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from hereish.core.randomness import Draws
from hereish.core.types import Ints
from hereish.traces.order import public_order
from hereish.traces.table import Ids, Released, Rows, joined

Key = tuple[Any, ...]
BLOCK_ROWS = 1 << 14  # rows of a run that are in memory at a time, while runs are merged
_IN_MEMORY = 1 << 26  # bytes; more of them go to a file


class Chunk(NamedTuple):
    """Released rows in order: by where they go, and then by two numbers each."""

    target: Ints
    first: Ints  # of a trace, or of a file
    second: Ints  # the time, or the place in the file
    rows: Released

    def take(self, rows: Rows) -> Chunk:
        return Chunk(self.target[rows], self.first[rows], self.second[rows], self.rows.take(rows))

    def __bool__(self) -> bool:
        return len(self.target) > 0


def ranked(keys: Sequence[Key]) -> Ints:
    """The place of each key among all of them."""
    place = {key: i for i, key in enumerate(sorted(set(keys)))}
    return np.array([place[key] for key in keys], dtype=np.int64)


class Spool:
    """Keeps chunks, each of them in order, until all of them are there."""

    def __init__(self, folder: Path | None) -> None:
        # Without a name, so that nothing is left of it whatever happens.
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115  # closed in close
            _IN_MEMORY, dir=None if folder is None else str(folder)
        )
        self._runs: list[list[int]] = []  # where the blocks of each begin

    def add(self, chunk: Chunk) -> None:
        blocks = []
        for begin in range(0, len(chunk.target), BLOCK_ROWS):
            blocks.append(self._file.tell())
            block = chunk.take(slice(begin, begin + BLOCK_ROWS))
            rows = block.rows
            columns = (rows.at_us, rows.lat, rows.lon, rows.kind, rows.cost)
            ids = [cast("Ids", ids).codes for ids in (rows.user, rows.trace)]
            pickle.dump((*block[:3], columns, ids, dict(rows.kept)), self._file)
        self._runs.append(blocks)

    def close(self) -> None:
        self._file.close()

    def merged(
        self,
        targets: Ints,
        firsts: Ints | None,
        users: Sequence[Any],
        traces: Sequence[Any],
        draws: Draws,
    ) -> Iterator[Chunk]:
        """All rows in order, by the rank of each target and first number; ties are public_order's.

        Only a block of each run is in memory.
        """
        runs = [_Run(self, blocks, users, traces) for blocks in self._runs if blocks]
        while runs:
            for run in runs:
                run.fill()
            bound = min(
                (_last(run.held, targets, firsts) for run in runs if run.left), default=None
            )
            below = [run.below(bound, targets, firsts) for run in runs]
            if not any(below):  # all that is held is alike: more of it before it is ordered
                for run in runs:
                    run.fill(more=True)
                continue
            yield _ordered([part for part in below if part], targets, firsts, users, traces, draws)
            runs = [run for run in runs if run.held or run.left]

    def block(self, place: int, users: Sequence[Any], traces: Sequence[Any]) -> Chunk:
        self._file.seek(place)
        target, first, second, columns, ids, kept = pickle.load(self._file)  # noqa: S301  # ours
        at_us, lat, lon, kind, cost = columns
        user, trace = Ids(ids[0], users), Ids(ids[1], traces)
        released = Released(at_us, lat, lon, kind, cost, user, trace, kept)
        return Chunk(target, first, second, released)


class _Run:
    def __init__(
        self, spool: Spool, blocks: Sequence[int], users: Sequence[Any], traces: Sequence[Any]
    ) -> None:
        self._spool, self._users, self._traces = spool, users, traces
        self.left = list(blocks)
        self.held: Chunk = self._next()

    def _next(self) -> Chunk:
        return self._spool.block(self.left.pop(0), self._users, self._traces)

    def fill(self, more: bool = False) -> None:
        if self.left and (more or not self.held):
            held = [self.held, self._next()]
            self.held = together([chunk for chunk in held if chunk], self._users, self._traces)

    def below(self, bound: tuple[int, ...] | None, targets: Ints, firsts: Ints | None) -> Chunk:
        """Take away what is held before a bound, of which no other row can come any more."""
        count = len(self.held.target)
        if bound is not None:
            same = np.ones(count, dtype=np.bool_)
            before = np.zeros(count, dtype=np.bool_)
            for key, limit in zip(_keys(self.held, targets, firsts), bound, strict=True):
                before |= same & (key < limit)
                same &= key == limit
            count = int(np.count_nonzero(before))
        below, self.held = self.held.take(slice(count)), self.held.take(slice(count, None))
        return below


def _keys(chunk: Chunk, targets: Ints, firsts: Ints | None) -> tuple[Ints, Ints, Ints]:
    first = chunk.first if firsts is None else firsts[chunk.first]
    return targets[chunk.target], first, chunk.second


def _last(chunk: Chunk, targets: Ints, firsts: Ints | None) -> tuple[int, ...]:
    keys = _keys(chunk.take(slice(-1, None)), targets, firsts)
    return tuple(int(key[0]) for key in keys)


def _ordered(
    parts: Sequence[Chunk],
    targets: Ints,
    firsts: Ints | None,
    users: Sequence[Any],
    traces: Sequence[Any],
    draws: Draws,
) -> Chunk:
    chunk = together(parts, users, traces)
    order = public_order(
        _keys(chunk, targets, firsts),
        lambda rows: [column[rows].tolist() for column in chunk.rows.kept.values()],
        lambda rows: draws.uniforms(len(rows)),
    )
    return chunk.take(order)


def together(parts: Sequence[Chunk], users: Sequence[Any], traces: Sequence[Any]) -> Chunk:
    """Chunks of one book of ids after each other."""
    if len(parts) == 1:
        return parts[0]
    target, first, second = (np.concatenate([part[i] for part in parts]) for i in range(3))
    rows = joined([part.rows for part in parts])
    user, trace = (
        Ids(np.concatenate([getattr(part.rows, role).codes for part in parts]), names)
        for role, names in (("user", users), ("trace", traces))
    )
    return Chunk(target, first, second, replace(rows, user=user, trace=trace))
