"""Times as files write them, as microseconds since 1970; and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from hereish.core.types import Ints
from hereish.errors import ParameterError
from hereish.traces.table import Fault

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Numbers are Unix times; whoever counts milliseconds has larger ones than seconds can be.
_SECONDS_BELOW, _MILLIS_BELOW = 1e11, 1e14
_COMPACT = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])", re.ASCII)


class Clock:
    """Reads the times of one file, row by row.

    A number, and a text that says its offset from UTC, is an instant whatever the others are. A
    text that says none is of the time zone that was given. If none was given it is UTC; but where
    most others say their offset it is at fault: it may be of any zone.
    """

    def __init__(self, zone: ZoneInfo | None = None) -> None:
        self._zone = zone
        self._rows = 0  # since the last piece
        self._silent: list[range] = []  # those of them that do not say their offset
        self._counts = [0, 0]  # rows of the file that do not, and that do
        self._at_fault: bool | None = None  # whether those of earlier pieces were

    def read(self, value: Any) -> int | Fault:
        """The time of the next row as text or a number, or what is wrong with it."""
        self._rows += 1
        if isinstance(value, str) and _COMPACT.fullmatch(value.strip()):
            return self._text(value)  # a date, although it could be a number
        try:
            number = float(value)
        except (TypeError, ValueError):
            return self._text(value)
        except OverflowError:
            return Fault.TIME
        size = abs(number)
        if not size < _MILLIS_BELOW:  # NaN is not
            return Fault.TIME
        return round(number * (1e6 if size < _SECONDS_BELOW else 1e3))

    def read_all(self, moments: Sequence[datetime]) -> Ints | None:
        """The times of the next rows, if all or none of them say their offset; otherwise None."""
        silent = {moment.tzinfo is None for moment in moments}
        if self._zone is not None or len(silent) > 1:
            return None
        if silent == {True}:
            self._silent.append(range(self._rows, self._rows + len(moments)))
        self._counts[silent != {True}] += len(moments)
        self._rows += len(moments)
        epoch = EPOCH.replace(tzinfo=None) if True in silent else EPOCH
        return np.array([(moment - epoch) // _MICROSECOND for moment in moments], dtype=np.int64)

    def settle(self, fault: NDArray[np.uint8]) -> None:
        """At the end of a piece: mark times that do not say what most others of the file say."""
        silent, self._silent, self._rows = self._silent, [], 0
        if self._zone is not None or not silent:
            return
        at_fault = self._counts[False] <= self._counts[True]
        if self._at_fault is not None and self._at_fault != at_fault:
            raise ParameterError(
                "some of its times say their offset from UTC and others do not; say with "
                "--time-zone which zone those have"
            )
        self._at_fault = at_fault
        if at_fault:
            rows = np.concatenate([np.arange(part.start, part.stop) for part in silent])
            fault[rows[fault[rows] == Fault.NONE]] = Fault.ZONE

    def _text(self, value: Any) -> int | Fault:
        try:
            moment = datetime.fromisoformat(value.strip())
            if moment.utcoffset() is None:
                self._silent.append(range(self._rows - 1, self._rows))
                self._counts[False] += 1
                moment = moment.replace(tzinfo=self._zone or UTC)
            else:
                self._counts[True] += 1
            return (moment - EPOCH) // _MICROSECOND
        except (AttributeError, TypeError, OverflowError, ValueError):
            return Fault.TIME  # or beyond the years that can be counted


def iso(at_us: Ints) -> list[str]:
    """Instants in UTC as text: seconds, and as many decimals of them as there are."""
    whole = bool((at_us % 1_000_000 == 0).all())
    texts = np.datetime_as_string(at_us.astype("datetime64[us]"), unit="s" if whole else "us")
    if whole:
        return [f"{text}Z" for text in texts.tolist()]
    return [f"{text.rstrip('0').rstrip('.')}Z" for text in texts.tolist()]
