"""Times as files write them, as microseconds since 1970; and back."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from hereish.arrays import Ints
from hereish.traces.piece import Fault

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Numbers are Unix times; whoever counts milliseconds has larger ones than seconds can be.
_SECONDS_BELOW, _MILLIS_BELOW = 1e11, 1e14
_COMPACT = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])", re.ASCII)


class Clock:
    """Reads the times of one file, and notices when they change their zone.

    Times must all say the same offset from UTC, or all say none. With a time zone given, the
    offsets that it has in its summer and winter are the same zone.
    """

    def __init__(self, zone: ZoneInfo | None = None) -> None:
        self._zone = zone
        self._first: timedelta | str | None = None  # the offset, "none" or "unix"

    def read(self, value: Any) -> int | Fault:
        """A time as text or a number, or what is wrong with it."""
        if isinstance(value, str) and _COMPACT.fullmatch(value.strip()):
            return self._text(value)  # a date, although it could be a number
        try:
            number = float(value)
        except (TypeError, ValueError):
            return self._text(value)
        except OverflowError:
            return Fault.TIME
        return self._number(number)

    def _number(self, number: float) -> int | Fault:
        size = abs(number)
        if not size < _MILLIS_BELOW:  # NaN is not
            return Fault.TIME
        if not self._same("unix"):
            return Fault.ZONE
        return round(number * (1e6 if size < _SECONDS_BELOW else 1e3))

    def _text(self, value: Any) -> int | Fault:
        try:
            moment = datetime.fromisoformat(value.strip())
        except (ValueError, AttributeError):
            return Fault.TIME
        return self.moment(moment)

    def moment(self, moment: datetime) -> int | Fault:
        """A datetime, with or without a zone."""
        try:
            offset = moment.utcoffset()
            if offset is None:
                if not self._same("none"):
                    return Fault.ZONE
                moment = moment.replace(tzinfo=self._zone or UTC)
            elif not self._same(offset) and not self._of_zone(moment, offset):
                return Fault.ZONE
            return (moment - EPOCH) // _MICROSECOND
        except (OverflowError, ValueError):  # beyond the years that can be counted
            return Fault.TIME

    def _same(self, style: timedelta | str) -> bool:
        if self._first is None:
            self._first = style
        return self._first == style

    def _of_zone(self, moment: datetime, offset: timedelta) -> bool:
        if self._zone is None or isinstance(self._first, str):
            return False
        return moment.astimezone(self._zone).utcoffset() == offset


def iso(at_us: Ints) -> list[str]:
    """Instants in UTC as text: seconds, and as many decimals of them as there are."""
    whole = bool((at_us % 1_000_000 == 0).all())
    texts = np.datetime_as_string(at_us.astype("datetime64[us]"), unit="s" if whole else "us")
    if whole:
        return [f"{text}Z" for text in texts.tolist()]
    return [f"{text.rstrip('0').rstrip('.')}Z" for text in texts.tolist()]
