"""Rows that cannot be used: found, and dropped or reported, here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np

from hereish.core.types import Bools, Floats, Ints
from hereish.errors import PointError
from hereish.traces.faults import FAULT_REASONS, Fault, Faults, UnreadableFileError
from hereish.traces.formats.base import Source
from hereish.traces.table import RowBatch

YEAR_US = 365 * 86_400_000_000
_FIRST_US, _LAST_US = (
    round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000 for year in (1900, 2400)
)


class Validator:
    """Drops rows that cannot be used and counts them; unless `drop_bad`, raises for the first."""

    def __init__(self, drop_bad: bool) -> None:
        self._drop_bad = drop_bad
        self.points = 0  # rows that were read
        self.dropped: dict[str, int] = {}  # of those, by reason
        self.unreadable: list[str] = []  # files that were read in part or not at all

    @property
    def usable_points(self) -> int:
        return self.points - sum(self.dropped.values())

    def valid_rows(self, source: Source, batch: RowBatch) -> RowBatch:
        """The rows of a batch that has just been read whose own values can be used."""
        self.points += len(batch)
        return self.without_faults(source, batch, row_faults(batch))

    def without_faults(self, source: Source, batch: RowBatch, fault: Faults) -> RowBatch:
        """The rows of a batch that have no fault."""
        if not fault.any():
            return batch
        return batch.take(self.check(fault, lambda row: (source, int(batch.line[row]))))

    def check(self, fault: Faults, locate: Callable[[int], tuple[Source, int]]) -> Bools:
        """Which rows have no fault; `locate` gives the source and line of a row, for the error."""
        bad = np.flatnonzero(fault)
        if len(bad) and not self._drop_bad:
            source, line = locate(int(bad[0]))
            raise PointError(
                f"{source.name}, {source.format.line_word} {line}: "
                f"{FAULT_REASONS[Fault(int(fault[bad[0]]))]}; "
                "nothing was released (--drop-bad leaves such points out)"
            )
        for code, count in enumerate(np.bincount(fault).tolist()):
            if code and count:
                reason = FAULT_REASONS[Fault(code)]
                self.dropped[reason] = self.dropped.get(reason, 0) + count
        return np.asarray(fault == Fault.NONE)

    def file_error(self, source: Source, error: UnreadableFileError) -> None:
        """Note a file the rest of which cannot be read."""
        place = source.name if error.line is None else f"{source.name}, line {error.line}"
        if not self._drop_bad:
            raise PointError(
                f"{place}: {error.reason}; nothing was released (--drop-bad goes on with what can "
                "be read)"
            )
        self.unreadable.append(f"{place}: {error.reason}")


def row_faults(batch: RowBatch) -> Faults:
    """The fault of each row by itself: the reader's, or one of place or time."""
    own = place_and_time_faults(batch.lat, batch.lon, batch.at_us)
    return np.where(batch.fault == Fault.NONE, own, batch.fault)


def place_and_time_faults(lat: Floats, lon: Floats, at_us: Ints) -> Faults:
    """Whether each place and time can be: on the globe, and of the years of clocks."""
    fault = np.zeros(len(lat), dtype=np.uint8)
    early, late = at_us < _FIRST_US, at_us > _LAST_US
    fault[early | late] = Fault.YEAR
    lat_out, lon_out = ~(np.abs(lat) <= 90.0), ~(np.abs(lon) <= 180.0)
    fault[lon_out] = Fault.LON_RANGE
    fault[lat_out] = Fault.LAT_RANGE
    fault[lat_out & (np.abs(lat) <= 180.0) & (np.abs(lon) <= 90.0)] = Fault.SWAPPED
    return fault


def time_faults(trace: Ints, at_us: Ints, order: Ints) -> Faults:
    """Faults of time: of several rows at one time in a trace all but the first, and clock jumps.

    `order` has the rows by trace and time; of those at one time, the first in it stays.

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
    far = same & (times[1:] - times[:-1] > YEAR_US)
    ends = np.append(begins[1:], len(own))
    for i in np.unique(np.searchsorted(begins, np.flatnonzero(far), side="right") - 1).tolist():
        span = order[begins[i] : ends[i]]
        low, high = main_era(at_us[span], None)
        fault[span[(at_us[span] < low) | (at_us[span] > high)]] = Fault.JUMP
    return fault


def time_faults_of_batch(batch: RowBatch) -> Faults:
    """The same for the rows of one file, which may be in any order."""
    trace = batch.trace_codes()
    return time_faults(trace, batch.at_us, np.lexsort((batch.at_us, trace)))


def group_starts(key: Ints) -> Ints:
    """The rows whose key differs from that of the row before."""
    return np.flatnonzero(np.diff(key, prepend=key[:1] - 1))


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
