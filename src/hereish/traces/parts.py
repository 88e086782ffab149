"""A large file that several processes sanitise, a part each: read, validated, numbered, released.

Nobody's rows are in two parts, so each is a file of its own, with budgets of its own, and true
places stay in the process that has read them. What comes back is released, in the public order, and
is joined here. Where a file cannot be divided in this way, or anything is wrong with a part, all of
it is discarded and the file is read from its beginning to its end: none of it was seen by anybody,
and what decides it (users, times, the form of the file) is public, or an error in any case.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hereish.core.forks import can_fork
from hereish.core.part_calls import OURS
from hereish.core.randomness import SECURE
from hereish.core.stretches import is_lane_by_lane
from hereish.core.types import Ints
from hereish.errors import HereishError
from hereish.traces.budgets import Budgets, EachTrace
from hereish.traces.columns import Columns, Layout
from hereish.traces.formats._part_file import FilePart
from hereish.traces.formats.base import Source
from hereish.traces.merging import Key, SortedRows
from hereish.traces.numbering import NO_ID, Interner
from hereish.traces.part_processes import LostPartError, results_of_parts
from hereish.traces.pipeline import Pipeline
from hereish.traces.reading import Progress, read_valid_rows
from hereish.traces.summary import ReleaseCounts
from hereish.traces.table import BATCH_ROWS, Ids, ReleasedRows
from hereish.traces.trace_numbers import UnsortedInputError
from hereish.traces.validate import DropBad, Validator
from hereish.traces.writing import (
    Output,
    OutputOptions,
    SingleFileOutput,
    SortBounds,
    UnsortedOutputError,
)

_LEAST_UNIT = 1 << 18  # rows; smaller units take longer, and find more rows out of order


class IndivisibleError(HereishError):
    """The parts of a file cannot be sanitised by themselves."""


@dataclass(frozen=True)
class PartSettings:
    """What all parts are sanitised with."""

    source: Source
    columns: Columns
    budgets: Budgets
    drop_bad: DropBad
    every_s: float | None
    keep_trace_names: bool
    options: OutputOptions
    jobs: int


@dataclass
class PartResult:
    """What was released of a part, and what the numbers in it stand for."""

    layout: Layout | None
    units: list[tuple[SortBounds, SortedRows | None]]
    users: list[str]  # by their canonical names
    user_ids: list[Any]
    trace_ids: list[Any]
    keys: list[Key]
    counts: ReleaseCounts
    points: int
    dropped: dict[str, int]
    offsets: tuple[bool, bool]


def find_parts(
    sources: Sequence[Source], columns: Columns, budgets: Budgets, jobs: int
) -> Sequence[FilePart]:
    """The parts of a file, if there is one, it is large, and processes can share it.

    They are forks of this one, which have its modules and the mechanism.
    """
    if jobs < 2 or len(sources) != 1 or not can_fork():
        return ()
    source, window = sources[0], type(budgets.mechanism.window)
    ours = window in (*OURS, EachTrace) and is_lane_by_lane(budgets.lane_mechanism)
    if source.format.divide is None or source.path is None or not ours:
        return ()
    return source.format.divide(source, columns, jobs)


class JoinedParts:
    """Takes the results of parts in their order, and writes them as one file."""

    def __init__(self, out: Output, source: Source, validator: Validator) -> None:
        self._out, self._source, self._validator = out, source, validator
        self._users: set[str] = set()
        self._user_ids, self._trace_ids = Interner(), Interner()
        self._keys: list[Key] = []
        self._offsets = (False, False)
        self.counts = ReleaseCounts()

    @property
    def users(self) -> int:
        return len(self._users)

    @property
    def traces(self) -> int:
        return len(self._keys)

    @property
    def without_offset(self) -> bool:
        return self._offsets[0]

    def feed(
        self, settings: PartSettings, parts: Sequence[FilePart], progress: Progress | None
    ) -> None:
        """Sanitise the parts, and write what is released. Raises IndivisibleError."""
        total = parts[-1].end

        def work(number: int) -> PartResult | None:
            return _sanitize(settings, parts[number])

        sizes = [part.size for part in parts]
        with closing(results_of_parts(work, sizes, settings.jobs)) as results:
            for part in parts:
                try:
                    result = next(results)
                except LostPartError:
                    result = None
                if result is None:
                    raise IndivisibleError
                self._add(result)
                if progress is not None:
                    size = self._source.size
                    progress(round(part.end / total * size), size, self._validator.points)

    def _add(self, result: PartResult) -> None:
        (without, with_one), (more, also) = self._offsets, result.offsets
        offsets = (without or more, with_one or also)
        if not self._users.isdisjoint(result.users) or all(offsets):
            raise IndivisibleError
        self._users.update(result.users)
        self._offsets = offsets
        self._validator.include(result.points, result.dropped, self._source)
        self.counts.include(result.counts)
        before = len(self._keys)
        self._keys += result.keys
        if result.layout is not None:
            self._out.file_number(self._source, 0, result.layout, None, None)
        user_ids = _numbers(self._user_ids, result.user_ids)
        trace_ids = _numbers(self._trace_ids, result.trace_ids)
        for bounds, sorted_rows in result.units:
            self._out.expect(bounds._replace(first=bounds.first + before), self._keys)
            if sorted_rows is not None:
                rows = replace(
                    sorted_rows.rows,
                    user=_renumbered(sorted_rows.rows.user, user_ids, self._user_ids),
                    trace=_renumbered(sorted_rows.rows.trace, trace_ids, self._trace_ids),
                )
                self._out.write(sorted_rows._replace(first=sorted_rows.first + before, rows=rows))

    def finish(self) -> None:
        self._validator.check_losses()
        self._out.finish(self._user_ids.values, self._trace_ids.values, self._keys, SECURE)


def _numbers(known: Interner, values: Sequence[Any]) -> Ints:
    """The numbers of some values here; that of NO_ID, which is the last one's, stays."""
    return np.array([*(known.number(value) for value in values), NO_ID], dtype=np.int64)


def _renumbered(ids: Ids | None, numbers: Ints, known: Interner) -> Ids | None:
    return None if ids is None else Ids(numbers[ids.codes], known.values)


def _sanitize(settings: PartSettings, part: FilePart) -> PartResult | None:
    """What is released of a part; None if that is not told from the part alone."""
    # As much at a time as all processes together would take without the others. Only if rows are
    # not in order, all of the part.
    smaller = max(BATCH_ROWS // settings.jobs, _LEAST_UNIT)
    try:
        try:
            return _sanitize_units(settings, part, smaller)
        except (UnsortedInputError, UnsortedOutputError):
            return _sanitize_units(settings, part, sys.maxsize)
    except HereishError:
        return None


def _sanitize_units(settings: PartSettings, part: FilePart, unit_rows: int) -> PartResult:
    source = replace(settings.source, part=part)
    validator = Validator(settings.drop_bad)
    out = _PartOutput(source, settings.options)
    pipeline = Pipeline(
        settings.budgets.cleared(),
        SECURE,
        validator,
        out,
        every_s=settings.every_s,
        keep_trace_names=settings.keep_trace_names,
        unit_rows=unit_rows,
    )
    offsets = (False, False)
    for _, batch in read_valid_rows([source], settings.columns, validator):
        pipeline.add(source, batch)
        offsets = batch.offsets
    ids = pipeline.finish_part()
    if validator.unreadable:
        raise IndivisibleError
    return PartResult(
        out.layout,
        out.units,
        ids.users.values,
        ids.user_ids.values,
        ids.trace_ids.values,
        ids.keys,
        pipeline.counts,
        validator.points,
        validator.dropped,
        offsets,
    )


class _PartOutput(SingleFileOutput):
    """Keeps what is released, for another process to write."""

    def __init__(self, source: Source, options: OutputOptions) -> None:
        super().__init__(None, source.format, replace(options, merge=False))
        self.units: list[tuple[SortBounds, SortedRows | None]] = []

    @property
    def layout(self) -> Layout | None:
        return self._files[0].layout if self._files else None

    def expect(self, bounds: SortBounds, trace_keys: Sequence[Key]) -> None:
        super().expect(bounds, trace_keys)
        self.units.append((bounds, None))

    def write(self, rows: SortedRows) -> None:
        if rows:
            self.units[-1] = (self.units[-1][0], rows._replace(rows=_without_names(rows.rows)))


def _without_names(rows: ReleasedRows) -> ReleasedRows:
    """The names of all ids go to the other process once."""
    user, trace = (ids and ids._replace(names=()) for ids in (rows.user, rows.trace))
    return replace(rows, user=user, trace=trace)
