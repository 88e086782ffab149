"""Times as files write them, as microseconds since 1970; and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from hereish.core.types import Ints
from hereish.errors import ParameterError
from hereish.traces.faults import Fault, Faults

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Numbers are Unix times; whoever counts milliseconds has larger ones than seconds can be.
_SECONDS_BELOW, _MILLIS_BELOW = 1e11, 1e14
_COMPACT = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])", re.ASCII)


class TimeParser:
    """Parses the times of one file, row by row.

    A number, or a text with an offset from UTC, is an instant whatever the others are. A text
    without an offset is in the time zone that was given, or else in UTC; but if no zone was given
    and most others of the file have an offset, it is a fault: it may be in any zone.
    """

    def __init__(self, zone: ZoneInfo | None = None) -> None:
        self._zone = zone
        self._rows = 0  # since the last batch
        self._local: list[range] = []  # those of them without an offset
        self._counts = [0, 0]  # rows of the file without an offset, and with one
        self._at_fault: bool | None = None  # whether those without, in earlier batches, were

    def parse(self, value: Any) -> int | Fault:
        """The time of the next row as text or a number, or what is wrong with it."""
        self._rows += 1
        if isinstance(value, str) and _COMPACT.fullmatch(value.strip()):
            return self._parse_text(value)  # a date, although it could be a number
        try:
            number = float(value)
        except (TypeError, ValueError):
            return self._parse_text(value)
        except OverflowError:
            return Fault.TIME
        size = abs(number)
        if not size < _MILLIS_BELOW:  # NaN is not
            return Fault.TIME
        return round(number * (1e6 if size < _SECONDS_BELOW else 1e3))

    def parse_all(self, moments: Sequence[datetime]) -> Ints | None:
        """The times of the next rows, if all or none of them have an offset; otherwise None."""
        local = {moment.tzinfo is None for moment in moments}
        if self._zone is not None or len(local) > 1:
            return None
        if local == {True}:
            self._local.append(range(self._rows, self._rows + len(moments)))
        self._counts[local != {True}] += len(moments)
        self._rows += len(moments)
        epoch = EPOCH.replace(tzinfo=None) if True in local else EPOCH
        return np.array([(moment - epoch) // _MICROSECOND for moment in moments], dtype=np.int64)

    def mark_missing_offsets(self, fault: Faults) -> None:
        """At the end of a batch: mark times without an offset, if most of the file have one."""
        local, self._local, self._rows = self._local, [], 0
        if self._zone is not None or not local:
            return
        at_fault = self._counts[False] <= self._counts[True]
        if self._at_fault is not None and self._at_fault != at_fault:
            raise ParameterError(
                "some of its times have an offset from UTC and others do not; give the time zone "
                "of the others with --time-zone"
            )
        self._at_fault = at_fault
        if at_fault:
            rows = np.concatenate([np.arange(part.start, part.stop) for part in local])
            fault[rows[fault[rows] == Fault.NONE]] = Fault.ZONE

    def _parse_text(self, value: Any) -> int | Fault:
        try:
            moment = datetime.fromisoformat(value.strip())
            if moment.utcoffset() is None:
                self._local.append(range(self._rows - 1, self._rows))
                self._counts[False] += 1
                moment = moment.replace(tzinfo=self._zone or UTC)
            else:
                self._counts[True] += 1
            return (moment - EPOCH) // _MICROSECOND
        except (AttributeError, TypeError, OverflowError, ValueError):
            return Fault.TIME  # or beyond the years that can be counted


def format_utc(at_us: Ints) -> list[str]:
    """Instants in UTC as text: seconds, and as many decimals of them as there are."""
    whole = bool((at_us % 1_000_000 == 0).all())
    texts = np.datetime_as_string(at_us.astype("datetime64[us]"), unit="s" if whole else "us")
    if whole:
        return [f"{text}Z" for text in texts.tolist()]
    return [f"{text.rstrip('0').rstrip('.')}Z" for text in texts.tolist()]
