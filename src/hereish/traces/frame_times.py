"""Times in a frame: instants, or what files may have in a column of times.

Texts, numbers, and clocks beside a column of dates are read as in a file of the same table, but
where none tells its offset from UTC a zone must be given: a frame says nothing of where it is from.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time
from typing import Any
from zoneinfo import ZoneInfo

import narwhals as nw
import numpy as np

from hereish.core.types import Floats, Ints
from hereish.core.windows import Day
from hereish.errors import ParameterError, PointError
from hereish.traces.column_names import find_known
from hereish.traces.faults import FAULT_TEXTS, Fault, Faults
from hereish.traces.foreign_errors import replace_foreign_errors
from hereish.traces.formats._text import parse_times
from hereish.traces.formats._time_texts import NO_DAYS, with_date
from hereish.traces.formats._times import TimeParser, clock_instants_us
from hereish.traces.validate import FIRST_US, LAST_US

_WRITTEN = (nw.String, nw.Categorical, nw.Enum, nw.Object, nw.Date, nw.Time)
_DAY_US = 86_400_000_000
_REMEDY = (
    "To lose nothing, turn the column into times first: pandas.to_datetime takes the format= of "
    "texts and the unit= of numbers; otherwise leave such rows out first"
)


def date_column(names: Sequence[str], used: str) -> str | None:
    """The column of dates that belongs to one of clocks."""
    found = [name for name in find_known("date", names) if name != used]
    return found[0] if len(found) == 1 else None


def with_instants(table: Any, name: str, zone: str | None) -> Any:
    """The table with instants in its column of times, in place of what stands for them."""
    column, dates = table[name], date_column(table.columns, name)
    if isinstance(column.dtype, nw.Datetime):
        if dates is None or not _are_undated(column):
            return table
    elif not (column.dtype in _WRITTEN or column.dtype.is_numeric()):
        return table
    at_us = _parse(column, None if dates is None else table[dates], name, zone)
    native = table.to_native()
    if hasattr(native, "reset_index"):  # pandas matches columns by labels
        table = nw.from_native(native.reset_index(drop=True), eager_only=True)
    counts = nw.new_series(name, at_us, nw.Int64, backend=table.implementation)
    instants = counts.cast(nw.Datetime("us")).dt.replace_time_zone("UTC")
    return table.with_columns(instants.alias(name))


def _parse(column: Any, dates: Any, name: str, zone: str | None) -> Ints:
    if zone is not None:
        Day(zone)  # raises with a message if there is no such time zone
    missing = column.is_null().to_list()
    values = [None if no else value for value, no in zip(column.to_list(), missing, strict=True)]
    parser = TimeParser(None if zone is None else ZoneInfo(zone))
    if column.dtype.is_numeric():
        at_us, fault = _parse_numbers(values, parser)
    else:
        texts = [_as_text(value) for value in values]
        if dates is not None:
            days = [_day(day) for day in dates.to_list()]
            texts = [with_date(d, text, always=False) for d, text in zip(days, texts, strict=True)]
        at_us, fault = parse_times(texts, parser)
    wrong = np.flatnonzero(fault)
    if len(wrong):
        text = FAULT_TEXTS[Fault(int(fault[wrong[0]]))]
        raise PointError(
            f"row {wrong[0]}: {text.reason}; expected {text.expected}; nothing was released. "
            f"{_REMEDY}"
        )
    if zone is None and parser.offsets[0]:
        raise _no_zone(name, "some without an offset from UTC")
    return at_us


def _parse_numbers(values: list[Any], parser: TimeParser) -> tuple[Ints, Faults]:
    if None not in values:
        at_us = parser.parse_numbers(np.array(values, dtype=np.float64))
        if at_us is not None:
            return at_us, np.zeros(len(values), dtype=np.uint8)
    times = [parser.parse(value) for value in values]
    fault = [at if isinstance(at, Fault) else Fault.NONE for at in times]
    return np.array(times, dtype=np.int64), np.array(fault, dtype=np.uint8)


def _as_text(value: Any) -> str:
    """A value as a file has it."""
    if value is None:
        return ""
    return value.isoformat() if isinstance(value, (date, datetime, time)) else str(value)


def _day(value: Any) -> str:
    text = _as_text(value)
    return text[:10] if isinstance(value, datetime) else text


def _are_undated(column: Any) -> bool:
    """Whether times have no dates of their own, but those that pandas gives to clocks."""
    days = column.drop_nulls().dt.timestamp("us").to_numpy().astype(np.int64) // _DAY_US
    return len(days) > 0 and bool(np.isin(days, NO_DAYS).all())


def read_times(table: Any, name: str, given_zone: str | None = None) -> tuple[Ints, Floats]:
    """Each time as a whole number of the column's own unit, to order by, and in seconds."""
    column = table[name]
    if not isinstance(column.dtype, nw.Datetime):
        raise ParameterError(
            f"column {name!r} must hold times, or texts or numbers that are times, found "
            f"{column.dtype}; turn them into times first"
        )
    zone = column.dtype.time_zone or given_zone
    if zone is None:
        raise _no_zone(name, str(column.dtype))
    if column.is_null().any():
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise PointError(
            f"row {row}: it has no time; nothing was released. To lose nothing, fill it in, or "
            "name another column with time=; otherwise leave such rows out first"
        )
    error = PointError(f"column {name!r} holds times that cannot be counted; nothing was released")
    ticks, at_us = replace_foreign_errors(lambda: _count_ticks(column), error)
    if column.dtype.time_zone is None:
        Day(zone)  # as above
        later_us = clock_instants_us(at_us, ZoneInfo(zone)) - at_us
        ticks, at_us = ticks + later_us * _per_us(column), at_us + later_us
    wrong = np.flatnonzero((at_us < FIRST_US) | (at_us > LAST_US))
    if len(wrong):
        text = FAULT_TEXTS[Fault.YEAR]
        raise PointError(
            f"row {wrong[0]}: {text.reason}; expected {text.expected}; nothing was released. To "
            "lose nothing, mend that time; otherwise leave such rows out first"
        )
    return ticks, np.asarray(at_us * 1e-6, dtype=np.float64)


def _no_zone(name: str, found: str) -> ParameterError:
    return ParameterError(
        f"column {name!r} must hold times that say their zone, found {found}; give them one first "
        "with time_zone= (or tz_localize in pandas, dt.replace_time_zone in polars)"
    )


def _per_us(column: Any) -> int:
    """How many ticks a microsecond has."""
    return 1000 if column.dtype.time_unit == "ns" else 1


def _count_ticks(column: Any) -> tuple[Ints, Ints]:
    finest = "ns" if _per_us(column) > 1 else "us"
    ticks, micros = (
        column.dt.timestamp(unit).to_numpy().astype(np.int64) for unit in (finest, "us")
    )
    return ticks, micros
