"""Why a row, or the rest of a file, cannot be used. No message repeats what is in the file."""

from __future__ import annotations

import enum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hereish.errors import HereishError

Faults: TypeAlias = NDArray[np.uint8]  # the Fault of each row


class Fault(enum.IntEnum):
    """Why a row cannot be used; FAULT_REASONS says it in English."""

    NONE = 0
    LINE = 1
    USER = 2
    TIME = 3
    ZONE = 4
    LAT = 5
    LON = 6
    LAT_RANGE = 7
    LON_RANGE = 8
    SWAPPED = 9
    JUMP = 10
    ORDER = 11
    TWICE = 12
    YEAR = 13


FAULT_REASONS = {
    Fault.LINE: "it cannot be read",
    Fault.USER: "it has no user",
    Fault.TIME: "it has no time, or none that can be read",
    Fault.ZONE: "its time does not say its offset from UTC, and most others in its file do",
    Fault.LAT: "its latitude is missing or not a number",
    Fault.LON: "its longitude is missing or not a number",
    Fault.LAT_RANGE: "its latitude is outside -90 to 90",
    Fault.LON_RANGE: "its longitude is outside -180 to 180",
    Fault.SWAPPED: "its latitude is outside -90 to 90: are latitude and longitude swapped?",
    Fault.YEAR: "its time is outside the years 1900 to 2400",
    Fault.JUMP: "its clock jumps: it is years away from the other points of its trace",
    Fault.ORDER: "its time is out of order among the points of its trace",
    Fault.TWICE: "its time is the same as that of the point before it in its trace",
}


class UnreadableFileError(HereishError, ValueError):
    """From here on a file cannot be parsed. Names the line, if known, never its content."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason, line)
        self.reason = reason
        self.line = line

    def __str__(self) -> str:
        return self.reason if self.line is None else f"line {self.line}: {self.reason}"
