"""External merge sort of released rows: sorted segments of many units, in a file if they are large.

There are no true places in it: rows come here after they were released.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from hereish.core.randomness import Draws
from hereish.core.types import Ints
from hereish.traces.order import public_order
from hereish.traces.table import Ids, ReleasedRows, RowSelection, concat_released

Key = tuple[Any, ...]
BLOCK_ROWS = 1 << 14  # rows of a segment that are in memory at a time, while segments are merged
_IN_MEMORY = 1 << 26  # bytes; more of them go to a file


class SortedRows(NamedTuple):
    """Released rows in order: by the file that they go to, and then by two numbers each."""

    out_file: Ints
    first: Ints  # the number of the trace, or of the input file
    second: Ints  # the time, or the place in the input file
    rows: ReleasedRows

    def take(self, rows: RowSelection) -> SortedRows:
        return SortedRows(
            self.out_file[rows], self.first[rows], self.second[rows], self.rows.take(rows)
        )

    def __bool__(self) -> bool:
        return len(self.out_file) > 0


@dataclass(frozen=True)
class Ranks:
    """What decides the order of merged rows, and the ids that their codes stand for."""

    out_files: Ints  # the rank of each output file
    firsts: Ints | None  # the rank of each first number; None: by the numbers themselves
    users: Sequence[Any]
    traces: Sequence[Any]

    def keys(self, rows: SortedRows) -> tuple[Ints, Ints, Ints]:
        first = rows.first if self.firsts is None else self.firsts[rows.first]
        return self.out_files[rows.out_file], first, rows.second

    def last_key(self, rows: SortedRows) -> tuple[int, ...]:
        return tuple(int(key[0]) for key in self.keys(rows.take(slice(-1, None))))


class ExternalMerge:
    """Stores sorted segments until all of them are there, and then merges them."""

    def __init__(self, folder: Path | None) -> None:
        # Without a name, so that nothing is left of it whatever happens.
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115  # closed in close
            _IN_MEMORY, dir=None if folder is None else str(folder)
        )
        self._segments: list[list[int]] = []  # where the blocks of each begin

    def add(self, segment: SortedRows) -> None:
        blocks = []
        for begin in range(0, len(segment.out_file), BLOCK_ROWS):
            blocks.append(self._file.tell())
            block = segment.take(slice(begin, begin + BLOCK_ROWS))
            rows = block.rows
            columns = (rows.at_us, rows.lat, rows.lon, rows.kind, rows.cost)
            ids = [cast("Ids", ids).codes for ids in (rows.user, rows.trace)]
            pickle.dump((*block[:3], columns, ids, dict(rows.kept)), self._file)
        self._segments.append(blocks)

    def close(self) -> None:
        self._file.close()

    def merged(self, ranks: Ranks, draws: Draws) -> Iterator[SortedRows]:
        """All rows in the order of their ranks; ties are broken as in `public_order`.

        Only a block of each segment is in memory.
        """
        segments = [_SegmentReader(self, blocks, ranks) for blocks in self._segments if blocks]
        while segments:
            for segment in segments:
                segment.load()
            bound = min(
                (ranks.last_key(segment.loaded) for segment in segments if segment.left),
                default=None,
            )
            below = [segment.take_below(bound) for segment in segments]
            if not any(below):  # all that is loaded has the same key: more is needed to order it
                for segment in segments:
                    segment.load(more=True)
                continue
            yield _sort([part for part in below if part], ranks, draws)
            segments = [segment for segment in segments if segment.loaded or segment.left]

    def block(self, position: int, ranks: Ranks) -> SortedRows:
        self._file.seek(position)
        out_file, first, second, columns, ids, kept = pickle.load(self._file)  # noqa: S301  # ours
        user, trace = Ids(ids[0], ranks.users), Ids(ids[1], ranks.traces)
        at_us, lat, lon, kind, cost = columns
        rows = ReleasedRows(at_us, lat, lon, kind, cost, user, trace, kept)
        return SortedRows(out_file, first, second, rows)


class _SegmentReader:
    def __init__(self, merge: ExternalMerge, blocks: Sequence[int], ranks: Ranks) -> None:
        self._merge, self._ranks = merge, ranks
        self.left = list(blocks)
        self.loaded: SortedRows = self._next_block()

    def _next_block(self) -> SortedRows:
        return self._merge.block(self.left.pop(0), self._ranks)

    def load(self, more: bool = False) -> None:
        """Another block, if none or `more` is needed."""
        if self.left and (more or not self.loaded):
            parts = [self.loaded, self._next_block()]
            self.loaded = _concat([part for part in parts if part], self._ranks)

    def take_below(self, bound: tuple[int, ...] | None) -> SortedRows:
        """Remove the loaded rows before a bound, below which no other segment has any left."""
        count = len(self.loaded.out_file)
        if bound is not None:
            same = np.ones(count, dtype=np.bool_)
            before = np.zeros(count, dtype=np.bool_)
            for key, limit in zip(self._ranks.keys(self.loaded), bound, strict=True):
                before |= same & (key < limit)
                same &= key == limit
            count = int(np.count_nonzero(before))
        below, self.loaded = self.loaded.take(slice(count)), self.loaded.take(slice(count, None))
        return below


def _sort(parts: Sequence[SortedRows], ranks: Ranks, draws: Draws) -> SortedRows:
    together = _concat(parts, ranks)
    order = public_order(
        ranks.keys(together),
        lambda rows: [column[rows].tolist() for column in together.rows.kept.values()],
        lambda rows: draws.uniforms(len(rows)),
    )
    return together.take(order)


def _concat(parts: Sequence[SortedRows], ranks: Ranks) -> SortedRows:
    if len(parts) == 1:
        return parts[0]
    out_file, first, second = (np.concatenate([part[i] for part in parts]) for i in range(3))
    rows = concat_released([part.rows for part in parts])
    user, trace = (
        Ids(np.concatenate([getattr(part.rows, role).codes for part in parts]), names)
        for role, names in (("user", ranks.users), ("trace", ranks.traces))
    )
    return SortedRows(out_file, first, second, replace(rows, user=user, trace=trace))
