"""What GPX and GeoJSON share: rows to batches, released rows to traces, values as JSON."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hereish.core.randomness import SECURE
from hereish.core.types import Floats, Ints
from hereish.errors import ParameterError
from hereish.traces.columns import Layout
from hereish.traces.faults import Fault, Faults, damaged_file
from hereish.traces.formats._times import TimeParser
from hereish.traces.names import canonical_name, name_key
from hereish.traces.table import Ids, ReleasedRows, RowBatch, concat_batches, concat_released

# Rows that are Python objects at one time, give or take a few; then they become columns.
ROWS = 1 << 16
BLOCK_BYTES = 1 << 16
_INT64 = range(-(1 << 63), 1 << 63)


class Row(NamedTuple):
    """One row as its columns will have it. It is secret, and never leaves a reader."""

    line: int
    at_us: int
    lat: float
    lon: float
    fault: Fault
    user: str | int | None
    trace: str | int | None
    kept: Sequence[Any]

    @classmethod
    def parsed(
        cls,
        line: int,
        at: int | Fault,
        lat: float | None,
        lon: float | None,
        user: str | int | None,
        trace: str | int | None,
        kept: Sequence[Any],
    ) -> Row:
        """A row with the first of its faults; None stands for a number that could not be read."""
        if isinstance(at, Fault):
            return cls(line, 0, 0.0, 0.0, at, user, trace, kept)
        if lat is None or lon is None:
            fault = Fault.LAT if lat is None else Fault.LON
            return cls(line, 0, 0.0, 0.0, fault, user, trace, kept)
        return cls(line, at, lat, lon, Fault.NONE, user, trace, kept)


def check_keep(keep: Sequence[str], taken: Sequence[str]) -> None:
    """Raises unless kept columns have names of their own in the output."""
    clashes = {*taken} & set(keep)
    if clashes or len(set(keep)) < len(keep):
        names = ", ".join(map(repr, sorted(clashes) or keep))
        raise ParameterError(f"columns to keep must differ from each other and others: {names}")


class RowColumns(NamedTuple):
    """The columns of rows, before ids are encoded."""

    line: Sequence[int]
    at_us: Sequence[int] | Ints
    lat: Sequence[float] | Floats
    lon: Sequence[float] | Floats
    fault: Sequence[Fault] | Faults
    user: Sequence[str | int | None]
    trace: Sequence[str | int | None]
    kept: Sequence[Sequence[Any]]  # row by row


def batch_from_rows(
    rows: Sequence[Row], keep: Sequence[str], layout: Layout, *, has_users: bool, done: float
) -> RowBatch:
    """Rows as columns. In a file that names users, rows without one are faults."""
    columns = RowColumns(*zip(*rows, strict=True))
    return batch_from_columns(columns, keep, layout, has_users=has_users, done=done)


def batch_from_columns(
    rows: RowColumns, keep: Sequence[str], layout: Layout, *, has_users: bool, done: float
) -> RowBatch:
    """The same for rows that are columns already."""
    fault = np.array(rows.fault, dtype=np.uint8)
    if has_users:
        missing = np.array([name is None for name in rows.user])
        fault[missing & (fault != Fault.LINE)] = Fault.USER
    columns = {name: np.empty(len(fault), dtype=object) for name in keep}
    for name, values in zip(keep, zip(*rows.kept, strict=True), strict=True):
        columns[name][:] = values
    return RowBatch(
        line=np.array(rows.line, dtype=np.int64),
        at_us=np.array(rows.at_us, dtype=np.int64),
        lat=np.array(rows.lat, dtype=np.float64),
        lon=np.array(rows.lon, dtype=np.float64),
        fault=fault,
        user=Ids.of(["" if name is None else name for name in rows.user]) if has_users else None,
        trace=None if rows.trace[0] is None else Ids.of(rows.trace),
        kept=columns,
        layout=layout,
        done=done,
    )


def merge_file(batches: Sequence[RowBatch], parser: TimeParser) -> RowBatch:
    """All batches of a file as one, with its traces numbered by public data.

    Guarantee: the numbers do not depend on the order in the file, which is not public: it may be
    that of places.
    """
    batch = batches[0] if len(batches) == 1 else concat_batches(batches)
    parser.mark_missing_offsets(batch.fault)
    if batch.trace is None or not batch.layout.numbered:
        return batch
    codes, names = batch.trace
    numbered = [code for code, name in enumerate(names) if isinstance(name, int) and name]
    if len(numbered) == 1:
        return replace(
            batch, trace=Ids(codes, [1 if isinstance(n, int) and n else n for n in names])
        )
    rows = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[rows], np.arange(len(names) + 1))
    traces = {code: batch.take(rows[bounds[code] : bounds[code + 1]]) for code in numbered}
    traces = {code: trace.take(trace.fault == Fault.NONE) for code, trace in traces.items()}
    keys = {code: _public_key(trace) for code, trace in traces.items()}
    tie_break = dict(zip(numbered, SECURE.uniforms(len(numbered)).tolist(), strict=True))
    new = list(names)
    number = 0
    for _, tied in groupby(sorted(numbered, key=keys.__getitem__), keys.__getitem__):
        several = list(tied)
        if len(several) > 1:
            several.sort(key=lambda code: (_all_public(traces[code]), tie_break[code]))
        for code in several:
            new[code] = number = number + 1
    return replace(batch, trace=Ids(codes, new))


def _public_key(trace: RowBatch) -> tuple[Any, ...]:
    """Public data that mostly differ between traces: the user, and the first and last time."""
    if not len(trace):
        return (1,)
    user = "" if trace.user is None else canonical_name(trace.user.names[trace.user.codes[0]])
    times = trace.at_us
    return (0, name_key(user), int(times.min()), int(times.max()), len(times))


def _all_public(trace: RowBatch) -> list[tuple[int, ...]]:
    """All public data of a trace."""
    kept = [[repr(value) for value in column.tolist()] for column in trace.kept.values()]
    return sorted(zip(trace.at_us.tolist(), *kept, strict=True))


class TraceGroups:
    """Collects released rows in memory, and then returns them by user and trace."""

    def __init__(self) -> None:
        self._parts: list[ReleasedRows] = []
        self._numbers: dict[tuple[Any, Any], int] = {}
        self._groups: list[Ints] = []

    def add(self, rows: ReleasedRows) -> None:
        numbers = self._numbers
        keys = zip(rows.user_values(), rows.trace_values(), strict=True)
        codes = [numbers.setdefault(key, len(numbers)) for key in keys]
        self._groups.append(np.array(codes, dtype=np.int64))
        self._parts.append(replace(rows, kept={n: _objects(c) for n, c in rows.kept.items()}))

    def groups(self) -> Iterator[tuple[Any, Any, ReleasedRows]]:
        """Each user and trace (None where there is none) as they first came, in order of time."""
        if not self._numbers:
            return
        rows = concat_released(self._parts)
        group = np.concatenate(self._groups)
        order = np.lexsort((rows.at_us, group))
        begins = np.searchsorted(group[order], np.arange(len(self._numbers) + 1))
        for (user, trace), number in self._numbers.items():
            yield user, trace, rows.take(order[begins[number] : begins[number + 1]])


def _objects(column: NDArray[Any]) -> NDArray[Any]:
    values = np.empty(len(column), dtype=object)
    values[:] = json_values(column)
    return values


def json_values(column: NDArray[Any]) -> list[Any]:
    """The values of a kept column, each as `json_scalar` has it."""
    if column.dtype.kind in "mM":
        texts = column.astype(str).tolist()
        return [None if text == "NaT" else text for text in texts]
    return [json_scalar(value) for value in column.tolist()]


def json_scalar(value: Any) -> Any:
    """A scalar of JSON that fits into a table: a text for all that is nested or of another type."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (dict, list)):
        value = compact_json(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and value in _INT64:
        return value
    return str(value).encode(errors="replace").decode()  # halves of characters have no UTF-8


def compact_json(value: Any) -> str:
    """As JSON, in one line."""
    with contextlib.suppress(RecursionError):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    raise damaged_file("it is nested too deeply", "values of a few levels")
