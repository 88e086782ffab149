"""Rows that cannot be used: found, and dropped or reported, here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import numpy as np

from hereish.core.types import Bools, Floats, Ints
from hereish.errors import ParameterError, PointError
from hereish.traces.faults import (
    FAULT_REASONS,
    FAULT_TEXTS,
    Fault,
    Faults,
    RefusedFileError,
    UnreadableFileError,
    counted,
)
from hereish.traces.file_problems import describe_problems, file_problems, place_in
from hereish.traces.formats.base import Source
from hereish.traces.names import canonical_name
from hereish.traces.table import RowBatch

YEAR_US = 365 * 86_400_000_000
FIRST_US, LAST_US = (
    round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000 for year in (1900, 2400)
)


DropBad: TypeAlias = bool | Literal["all"]
_MOST_LOST = 0.1  # the share of points, or of files, that is left out without another question
_REPEATED = FAULT_REASONS[Fault.TWICE]


class Validator:
    """Drops rows that cannot be used and counts them; unless `drop_bad`, raises for the first.

    Rows that repeat a time of their trace are dropped in any case: nobody is at two places. With
    `drop_bad` others are, up to a tenth; with "all" however many they are.
    """

    def __init__(self, drop_bad: DropBad) -> None:
        if drop_bad not in (True, False, "all"):
            raise ParameterError(f"drop_bad must be True, False or 'all', found {drop_bad!r}")
        self._drop_bad = drop_bad
        self.points = 0  # rows that were read
        self.dropped: dict[str, int] = {}  # of those, by reason
        self.unreadable: list[str] = []  # files that were read in part or not at all
        self.without_points: list[str] = []  # files, or parts of them, that are whole and have none
        self.possible_users: list[str] = []  # columns that may tell them, where none were read
        self.files = 1  # that there are, with those without points
        self._problems: list[tuple[Source, UnreadableFileError]] = []
        self._files: set[Source] = set()

    @property
    def usable_points(self) -> int:
        return self.points - sum(self.dropped.values())

    def valid_rows(self, source: Source, batch: RowBatch) -> RowBatch:
        """The rows of a batch that has just been read whose own values can be used."""
        self.points += len(batch)
        self._files.add(source)
        if batch.passed_over:
            self.without_points.append(f"{source.name}: {batch.passed_over}")
        return self.without_faults(source, batch, row_faults(batch))

    def include(self, points: int, dropped: Mapping[str, int], source: Source) -> None:
        """Add the rows of a part of a file, and those of them that were left out."""
        self.points += points
        self._files.add(source)
        for reason, count in dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count

    def without_faults(self, source: Source, batch: RowBatch, fault: Faults) -> RowBatch:
        """The rows of a batch that have no fault."""
        if not fault.any():
            return batch
        return batch.take(self.check(fault, lambda row: (source, int(batch.line[row]))))

    def check(self, fault: Faults, locate: Callable[[int], tuple[Source, int]]) -> Bools:
        """Which rows have no fault; `locate` gives the source and line of a row, for the error."""
        bad = np.flatnonzero((fault != Fault.NONE) & (fault != Fault.TWICE))
        if len(bad) and not self._drop_bad:
            source, line = locate(int(bad[0]))
            text = FAULT_TEXTS[Fault(int(fault[bad[0]]))]
            raise PointError(
                f"{source.name}, {source.format.line_word} {line}: {text.reason}; expected "
                f"{text.expected}; nothing was released. To lose nothing, "
                f"{text.remedy_in(columns=source.format.columns)}; "
                "--drop-bad leaves such points out, unless they are more than a tenth"
            )
        for code, count in enumerate(np.bincount(fault).tolist()):
            if code and count:
                reason = FAULT_REASONS[Fault(code)]
                self.dropped[reason] = self.dropped.get(reason, 0) + count
        return np.asarray(fault == Fault.NONE)

    def file_error(self, source: Source, error: UnreadableFileError) -> None:
        """Note a file the rest of which cannot be read; raises if it is the only one there is."""
        self._problems.append((source, error))
        self.unreadable.append(f"{place_in(source, error)}: {error.reason}")
        self._files.add(source)
        alone = self.files == 1
        if alone and (not self._drop_bad or isinstance(error, RefusedFileError)):
            raise file_problems(self._problems, self.files)

    @property
    def has_failed(self) -> bool:
        """Whether a file is an error, which `check_files` raises."""
        return bool(self._problems) and not self._drop_bad

    def check_files(self) -> None:
        """At the end of the files: raises if some cannot be read, and are not to be left out."""
        if self.has_failed:
            raise file_problems(self._problems, self.files)

    def check_losses(self, owners: Iterable[str] = ()) -> None:
        """At the end: raises if more would be left out than was agreed to, or nothing is left.

        `owners` are columns that may tell users, where no users were read.
        """
        lost = {reason: count for reason, count in self.dropped.items() if reason != _REPEATED}
        repeated = self.dropped.get(_REPEATED, 0)
        names = self.possible_users = list(owners)
        if names and repeated > _MOST_LOST * self.points and self._drop_bad != "all":
            raise PointError(
                f"{repeated:,} of {self.points:,} points have the time of another: are there "
                "several users in one file? Expected a column that tells them, found none by name, "
                f"and {' or '.join(map(repr, names))} that may be one; nothing was released. To "
                f"lose nothing, give --user {names[0]} if that is one value per person or vehicle; "
                "--drop-bad=all takes all points as one person's, and one point per time"
            )
        if not self.points and self.without_points and not self.unreadable:
            raise PointError(
                f"there are no points in any of {len(self.without_points)} files, such as "
                f"{self.without_points[0]}; nothing was released"
            )
        if not self.usable_points:
            found = self._describe_losses(self.dropped)
            remedy = self._remedies(self.dropped).removesuffix("; ")
            raise PointError(
                "there are no points that can be used"
                f"{f': {found}' if found else ''}; nothing was released. {remedy}".rstrip(". ")
            )
        most = _MOST_LOST * self.points
        if self._drop_bad is True and (sum(lost.values()) > most or self._loses_files()):
            raise PointError(
                f"--drop-bad would leave out more than a tenth: {self._describe_losses(lost)}; "
                f"nothing was released. {self._remedies(lost)}--drop-bad=all leaves them out"
            )

    def _describe_losses(self, lost: Mapping[str, int]) -> str:
        parts = [f"{count:,} of {self.points:,} points ({why})" for why, count in lost.items()]
        if self._problems:
            which = f"{len(self._problems):,} of {counted(self.files, 'file', 'files')}"
            parts.append(f"the rest of {which}: {describe_problems(self._problems)}")
        return ", ".join(parts)

    def _loses_files(self) -> bool:
        """Whether more than a tenth of the files, or of their bytes, may hold more."""
        rest = {source for source, error in self._problems if error.rest_lost}
        if not rest:
            return False
        sizes = {source: source.size for source in self._files}
        lost = sum(sizes[source] for source in rest)
        most = _MOST_LOST * len(self._files), _MOST_LOST * sum(sizes.values())
        return len(rest) > most[0] or lost > most[1]

    def _remedies(self, lost: Mapping[str, int]) -> str:
        """What to do instead about the most frequent fault."""
        if not lost and self._problems:
            remedy = self._problems[0][1].remedy
            return f"To lose nothing, {remedy}; " if remedy else ""
        if not lost:
            return ""
        most = max(lost, key=lost.__getitem__)
        fault = next(fault for fault, reason in FAULT_REASONS.items() if reason == most)
        columns = any(source.format.columns for source in self._files)
        return f"To lose nothing, {FAULT_TEXTS[fault].remedy_in(columns=columns)}; "


def row_faults(batch: RowBatch) -> Faults:
    """The fault of each row by itself: the reader's, or one of place or time."""
    own = place_and_time_faults(batch.lat, batch.lon, batch.at_us)
    return np.where(batch.fault == Fault.NONE, own, batch.fault)


def place_and_time_faults(lat: Floats, lon: Floats, at_us: Ints) -> Faults:
    """Whether each place and time can be: on the globe, and of the years of clocks."""
    fault = np.zeros(len(lat), dtype=np.uint8)
    early, late = at_us < FIRST_US, at_us > LAST_US
    fault[early | late] = Fault.YEAR
    lat_out, lon_out = ~(np.abs(lat) <= 90.0), ~(np.abs(lon) <= 180.0)
    fault[lon_out] = Fault.LON_RANGE
    fault[lat_out] = Fault.LAT_RANGE
    fault[lat_out & (np.abs(lat) <= 180.0) & (np.abs(lon) <= 90.0)] = Fault.SWAPPED
    return fault


def rows_of_given_traces(batch: RowBatch) -> Bools:
    """Which rows are of a trace that the file tells, and not all that somebody has recorded.

    A history may have years without a row; in a trace they are a clock that was wrong.
    """
    if batch.trace is None:
        return np.zeros(len(batch), dtype=np.bool_)
    nothing = ("", canonical_name(None))
    given = [
        # 0 is that of the points that stand beside the lines of a file.
        canonical_name(name) not in nothing and not (batch.layout.numbered and name == 0)
        for name in batch.trace.names
    ]
    return np.array(given, dtype=np.bool_)[batch.trace.codes]


def time_faults(trace: Ints, at_us: Ints, order: Ints, given: Bools) -> Faults:
    """Faults of time: of several rows at one time in a trace all but the first, and clock jumps.

    `order` has the rows by trace and time; of those at one time, the first in it stays. Clocks jump
    in traces that are `given`.

    Guarantee: `order` is public, so which rows stay does not depend on the order of the input.
    """
    fault = np.zeros(len(trace), dtype=np.uint8)
    own = trace[order]
    begins = group_starts(own)
    if len(np.unique(own[begins])) < len(begins):  # traces of several files are interleaved
        order = order[np.argsort(own, kind="stable")]
        own = trace[order]
        begins = group_starts(own)
    times = at_us[order]
    same = own[1:] == own[:-1]
    fault[order[1:][same & (times[1:] == times[:-1])]] = Fault.TWICE
    far = same & (times[1:] - times[:-1] > YEAR_US) & given[order[1:]]
    ends = np.append(begins[1:], len(own))
    for i in np.unique(np.searchsorted(begins, np.flatnonzero(far), side="right") - 1).tolist():
        span = order[begins[i] : ends[i]]
        low, high = main_era(at_us[span], None)
        fault[span[(at_us[span] < low) | (at_us[span] > high)]] = Fault.JUMP
    return fault


def time_faults_of_batch(batch: RowBatch) -> Faults:
    """The same for the rows of one file, which may be in any order."""
    trace = batch.trace_codes()
    order = np.lexsort((batch.at_us, trace))
    return time_faults(trace, batch.at_us, order, rows_of_given_traces(batch))


def group_starts(key: Ints) -> Ints:
    """The rows whose key differs from that of the row before."""
    changes = np.ones(len(key), dtype=np.bool_)
    np.not_equal(key[1:], key[:-1], out=changes[1:])
    return np.flatnonzero(changes)


def main_era(at_us: Ints, last_us: int | None) -> tuple[int, int]:
    """The stretch of times without a gap of a year that has most points, or contains `last_us`."""
    times = np.sort(at_us if last_us is None else np.append(at_us, last_us))
    cuts = np.flatnonzero(np.diff(times) > YEAR_US) + 1
    stretches = np.split(times, cuts)
    if last_us is None:
        chosen = max(stretches, key=len)
    else:
        chosen = next(s for s in stretches if s[0] <= last_us <= s[-1])
    return int(chosen[0]), int(chosen[-1])
