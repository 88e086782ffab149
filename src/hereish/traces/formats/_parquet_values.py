"""Columns of Parquet as places, times and ids: the same as in a CSV file of the same table."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import date, datetime, time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError
from hereish.traces.columns import Columns
from hereish.traces.faults import Fault, Faults, damaged_file
from hereish.traces.formats import _wkb
from hereish.traces.formats._arrow_values import present, values_of
from hereish.traces.formats._degrees import Axis, in_degrees, parse_all_degrees, with_sides
from hereish.traces.formats._text import parse_times
from hereish.traces.formats._time_texts import NO_DAYS, with_date
from hereish.traces.formats._times import TimeParser, clock_instants_us, tells_time_of_day
from hereish.traces.formats._wkt import parse_points
from hereish.traces.table import Ids

_LONGEST_BYTES = 1 << 12  # of a name, a number or a time
_DAY = {unit: 86_400 * 1000**power for power, unit in enumerate(("s", "ms", "us", "ns"))}
_US_IN = {"s": 1_000_000, "ms": 1_000}  # how many microseconds
_EXACT = 2.0**53  # from here on a float is not one whole number but several
_UUID_BYTES = 16


def read_places(records: Any, roles: Mapping[str, str], columns: Columns) -> tuple[Floats, Floats]:
    """Latitudes and longitudes in degrees, NaN where there is none."""
    if "point" in roles:
        return _read_points(records.column(roles["point"]), roles["point"])
    lat, lon = (
        _read_degrees(records, roles[axis], axis, columns, roles.get(f"{axis}_side"))
        for axis in ("lat", "lon")
    )
    return lat, lon


def _read_points(column: Any, name: str) -> tuple[Floats, Floats]:
    kind = _type_of_values(column)
    if pa.types.is_struct(kind) and {"x", "y"} <= {field.name for field in kind}:  # GeoArrow's
        known = present(column)
        x, y = (
            np.where(known, _numbers(column.field(axis), f"{name}.{axis}"), np.nan)
            for axis in ("x", "y")
        )
        return y, x
    if not is_text(kind):
        raise ParameterError(f"the column {name!r} must hold points, as WKB or WKT, found {kind}")
    if is_text(kind, binary=False):
        return parse_points([text or "" for text in shared_values(column)])
    return _wkb.decode_points(shared_values(column))


def _read_degrees(
    records: Any, name: str, axis: Axis, columns: Columns, side: str | None
) -> Floats:
    column = records.column(name)
    if is_text(_type_of_values(column)):
        column = _encoded(column)
        different = parse_all_degrees([text or "" for text in _different(column)], axis)
        values = np.append(different, np.nan)[_codes(column)]
    else:
        values = _numbers(column, name)
    if side is not None:
        values = with_sides(values, read_texts(records.column(side)), axis)
    return in_degrees(values, columns.unit(name))


def _numbers(column: Any, name: str) -> Floats:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        raise ParameterError(f"the column {name!r} must hold numbers, found {kind}")
    numbers = column.cast(pa.float64(), safe=False)
    values = values_of(numbers, np.float64)
    return np.where(present(numbers), values, np.nan) if numbers.null_count else values


def read_times(
    records: Any, roles: Mapping[str, str], columns: Columns, parser: TimeParser, fault: Faults
) -> Ints:
    """Microseconds; marks the rows that have no time, or in a column of dates none of the day."""
    at_us = _read_times(records, roles, columns, parser, fault)
    if columns.must_tell_time_of_day(roles["time"]):
        column = records.column(roles["time"])
        if pa.types.is_timestamp(column.type):
            # Midnights without a zone are dates as pandas has them.
            known = values_of(column, np.int64) % _DAY[column.type.unit] != 0
            known |= column.type.tz is not None
        else:
            known = np.array([tells_time_of_day(text) for text in read_texts(column)])
        fault[(fault == Fault.NONE) & ~known] = Fault.NO_CLOCK
    return at_us


def _read_times(
    records: Any, roles: Mapping[str, str], columns: Columns, parser: TimeParser, fault: Faults
) -> Ints:
    column = records.column(roles["time"])
    kind = _type_of_values(column)
    undated = "date" in roles and _are_undated(column)
    if pa.types.is_timestamp(column.type) and columns.date is None and not undated:
        fault[~present(column)] = Fault.TIME
        at_us = _instants(column, columns, fault)
        parser.count(fault == Fault.NONE, local=column.type.tz is None)
        parser.mark_missing_offsets(fault)
        return at_us
    clocks = is_text(kind) or pa.types.is_time(kind)
    if columns.date is not None or ("date" in roles and clocks) or undated:
        at_us, faults = _dates_and_clocks(records, roles, columns, parser)
    elif clocks or pa.types.is_date(kind):
        at_us, faults = parse_times(read_texts(column), parser)
    else:
        at_us, faults = _counted(column, parser)
    fault[:] = faults
    parser.mark_missing_offsets(fault)
    return at_us


def _are_undated(column: Any) -> bool:
    """Whether timestamps have no dates of their own, but those that pandas gives to clocks."""
    if not pa.types.is_timestamp(column.type):
        return False
    days = values_of(column, np.int64)[present(column)] // _DAY[column.type.unit]
    return bool(np.isin(days, NO_DAYS).all())


def _dates_and_clocks(
    records: Any, roles: Mapping[str, str], columns: Columns, parser: TimeParser
) -> tuple[Ints, Faults]:
    texts = read_texts(records.column(roles["time"]))
    days = records.column(roles["date"])
    if pa.types.is_timestamp(days.type):  # as pandas has dates
        days = days.cast(pa.date32(), safe=False)
    joined = [
        with_date(day, text, always=columns.date is not None)
        for day, text in zip(read_texts(days), texts, strict=True)
    ]
    return parse_times(joined, parser)


def _counted(column: Any, parser: TimeParser) -> tuple[Ints, Faults]:
    """Times that are numbers."""
    kind = column.type
    if not column.null_count and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        at_us = parser.parse_numbers(values_of(column.cast(pa.float64(), safe=False), np.float64))
        if at_us is not None:
            return at_us, np.zeros(len(column), dtype=np.uint8)
    times = [parser.parse(value) for value in column.to_pylist()]
    fault = [at if isinstance(at, Fault) else Fault.NONE for at in times]
    return np.array(times, dtype=np.int64), np.array(fault, dtype=np.uint8)


def _instants(column: Any, columns: Columns, fault: Faults) -> Ints:
    kind = column.type
    zone = columns.zone if kind.tz is None else None
    if zone is not None:
        with suppress(pa.ArrowInvalid):  # of a time that clocks skip
            column = pc.assume_timezone(column, zone.key, ambiguous="earliest")
            zone = None
    count = values_of(column, np.int64)
    if column.null_count:
        count = np.where(present(column), count, 0)
    if kind.unit == "ns":
        at_us = np.asarray(count // 1000)
    else:
        factor = _US_IN.get(kind.unit, 1)
        fault[np.abs(count) > np.iinfo(np.int64).max // (2 * factor)] = Fault.TIME
        at_us = np.asarray(count * factor)
    return at_us if zone is None else clock_instants_us(at_us, zone)


def type_of_ids(kind: Any) -> Any:
    """The type of a column of ids in an output, by that in the input."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_floating(kind):
        return pa.int64()
    return kind if pa.types.is_integer(kind) else pa.string()


def read_ids(records: Any, name: str | None, fault: Faults, missing: Fault) -> Ids | None:
    """The ids of a column, which are texts or whole numbers."""
    if name is None:
        return None
    column = records.column(name)
    kind = _type_of_values(column)
    if pa.types.is_floating(kind):
        column = _whole_numbers(column, name)
    elif not (pa.types.is_integer(kind) or is_text(kind)):
        raise ParameterError(f"the column {name!r} must hold texts or whole numbers, found {kind}")
    column = _encoded(column)
    # The dictionary may have values of other batches, or one of them twice.
    given, codes = [*_different(column), None], _codes(column)
    first = np.full(len(given), len(codes))
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    used = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(codes))].tolist()
    numbers = {value: i for i, value in enumerate(_unique(given[i] for i in used))}
    by_use = np.zeros(len(given), dtype=np.int64)
    by_use[used] = [numbers[given[i]] for i in used]
    codes = by_use[codes]
    if missing:
        for value, number in numbers.items():
            if value is None or (isinstance(value, str) and not value.strip()):
                fault[codes == number] = missing
    return Ids(codes, list(numbers))


def _whole_numbers(column: Any, name: str) -> Any:
    """Ids that were whole numbers until a missing one made them fractions."""
    values = _numbers(column, name)
    known = np.isfinite(values)
    if not ((np.abs(values) < _EXACT) & (values == np.round(values)))[known].all():
        raise ParameterError(
            f"the column {name!r} must hold texts or whole numbers, found fractions; "
            "as such, those of 2**53 and more have lost digits: save it as integers or texts"
        )
    return pa.array(np.where(known, values, 0).astype(np.int64), mask=~known)


def _unique(values: Iterable[Any]) -> list[Any]:
    """Each value once, as they first come; None last."""
    different = dict.fromkeys(values)
    none = [None] if None in different else []
    return [value for value in different if value is not None] + none


def read_objects(column: Any) -> NDArray[Any]:
    """The values of a column that is kept."""
    values = np.empty(len(column), dtype=object)
    values[:] = shared_values(column)
    return values


def _type_of_values(column: Any) -> Any:
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def is_text(kind: Any, *, binary: bool = True) -> bool:
    """Whether values of a type are texts, or bytes: of any length."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return True
    return binary and (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def shared_values(column: Any) -> list[Any]:
    """The values of a column; equal texts are one object."""
    if not (pa.types.is_dictionary(column.type) and is_text(column.type.value_type)):
        return list(column.to_pylist())
    different = [*column.dictionary.to_pylist(), None]
    return [different[code] for code in _codes(column).tolist()]


def read_texts(column: Any) -> list[str]:
    """The values of a column as CSV has them; nothing where there is none."""
    if is_text(_type_of_values(column)):
        column = _encoded(column)
        different = [*(text or "" for text in _different(column)), ""]
        return [different[code] for code in _codes(column).tolist()]
    return [_as_text(value) for value in column.to_pylist()]


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value.isoformat() if isinstance(value, (date, datetime, time)) else str(value)


def _encoded(column: Any) -> Any:
    """A column as numbers of its different values, none of which is far too long."""
    kind = column.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        column = column.cast(pa.string() if pa.types.is_string_view(kind) else pa.binary())
    column = column.dictionary_encode()
    if is_text(column.type.value_type):
        longest = pc.max(pc.binary_length(column.dictionary)).as_py() or 0
        if longest > _LONGEST_BYTES:
            raise damaged_file("a name, a number or a time in it is far too long", "shorter ones")
    return column


def _different(column: Any) -> list[Any]:
    """The different values of an encoded column; bytes as the text that they are, or its digits."""
    values = column.dictionary.to_pylist()
    fixed = pa.types.is_fixed_size_binary(column.type.value_type)
    return [_decoded(value, fixed=fixed) if isinstance(value, bytes) else value for value in values]


def _decoded(value: bytes, *, fixed: bool) -> str:
    if not fixed:
        return value.decode()  # what cannot be decoded is said to be damaged
    return str(uuid.UUID(bytes=value)) if len(value) == _UUID_BYTES else value.hex()


def _codes(column: Any) -> Ints:
    """The number of each row's value in the dictionary, and one more where there is none."""
    indices = column.indices.cast(pa.int64())
    codes: Ints = values_of(indices, np.int64)
    if indices.null_count:
        codes = np.where(present(indices), codes, len(column.dictionary))
    return codes
