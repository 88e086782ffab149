"""Rows of traces as columns: what readers return, and what writers are given."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hereish.core.types import Bools, Floats, Ints, Kind
from hereish.traces.columns import Layout
from hereish.traces.faults import Faults

BATCH_ROWS = 1 << 20  # the most rows of a batch
# The kinds that a released row can have. Rows hold numbers into this: the order must not change.
RELEASED_KINDS = (Kind.HARD, Kind.EASY, Kind.UNTESTED)
RowSelection: TypeAlias = Ints | Bools | slice


class Ids(NamedTuple):
    """A column with few different values, dictionary-encoded."""

    codes: Ints  # for each row, a number into `names`
    names: Sequence[Any]  # str or int, as given, all different

    @classmethod
    def of(cls, values: Sequence[Any]) -> Ids:
        """Encode the value of each row."""
        numbers: dict[Any, int] = {}
        codes = [numbers.setdefault(value, len(numbers)) for value in values]
        return cls(np.array(codes, dtype=np.int64), list(numbers))

    @classmethod
    def constant(cls, value: Any, rows: int) -> Ids:
        """The same value for every row."""
        return cls(np.zeros(rows, dtype=np.int64), [value])

    def take(self, rows: RowSelection) -> Ids:
        return Ids(self.codes[rows], self.names)

    def values(self) -> list[Any]:
        """The value of each row."""
        return [self.names[code] for code in self.codes.tolist()]


@dataclass(frozen=True, eq=False)
class RowBatch:
    """Rows of one file in its order. They are secret, and its repr does not show them."""

    line: Ints  # where each row is in its file, from 1; errors name it
    at_us: Ints  # microseconds since 1970 in UTC
    lat: Floats  # degrees
    lon: Floats
    fault: Faults  # where it is not NONE, the other columns mean nothing
    user: Ids | None = None  # None: the file names no users, and all rows are one person's
    trace: Ids | None = None
    kept: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    done: float = 1.0  # the share of the file that has been read, for progress
    passed_over: str = ""  # what else is in the file and no row, for the summary
    # Whether times so far were without an offset from UTC, and with one: others count on it.
    offsets: tuple[bool, bool] = (False, False)

    def __len__(self) -> int:
        return len(self.at_us)

    def __repr__(self) -> str:
        return f"<RowBatch of {len(self)} rows>"

    def take(self, rows: RowSelection) -> RowBatch:
        """These rows only."""
        return dataclasses.replace(
            self,
            line=self.line[rows],
            at_us=self.at_us[rows],
            lat=self.lat[rows],
            lon=self.lon[rows],
            fault=self.fault[rows],
            user=self.user and self.user.take(rows),
            trace=self.trace and self.trace.take(rows),
            kept={name: column[rows] for name, column in self.kept.items()},
        )

    def users(self) -> Ids:
        """The users; the same one for all rows if the file names none."""
        return self.user or Ids.constant("", len(self))

    def trace_codes(self) -> Ints:
        """A number for each row, the same for rows of the same user and trace."""
        traces = self.trace or Ids.constant(None, len(self))
        return self.users().codes * len(traces.names) + traces.codes


@dataclass(frozen=True, eq=False)
class ReleasedRows:
    """Rows that may be public, and nothing else."""

    at_us: Ints
    lat: Floats
    lon: Floats
    kind: NDArray[np.uint8]  # numbers into RELEASED_KINDS
    cost: Floats
    user: Ids | None = None
    trace: Ids | None = None
    kept: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.at_us)

    def take(self, rows: RowSelection) -> ReleasedRows:
        """These rows only."""
        return ReleasedRows(
            self.at_us[rows],
            self.lat[rows],
            self.lon[rows],
            self.kind[rows],
            self.cost[rows],
            self.user and self.user.take(rows),
            self.trace and self.trace.take(rows),
            {name: column[rows] for name, column in self.kept.items()},
        )

    def kind_names(self) -> list[str]:
        """'hard', 'easy' or 'untested' for each row."""
        names = [kind.value for kind in RELEASED_KINDS]
        return [names[kind] for kind in self.kind.tolist()]

    def user_values(self) -> list[Any]:
        """The user of each row, None where there are none."""
        return [None] * len(self) if self.user is None else self.user.values()

    def trace_values(self) -> list[Any]:
        """The trace of each row, None where there are none."""
        return [None] * len(self) if self.trace is None else self.trace.values()


def no_rows(layout: Layout) -> ReleasedRows:
    """Rows of which there are none, with the columns of a file: its output has them, too."""
    nothing = np.empty(0)
    none = nothing.astype(np.int64)
    return ReleasedRows(
        *(none, nothing, nothing, nothing.astype(np.uint8), nothing),
        user=Ids(none, []) if layout.has_users else None,
        trace=Ids(none, []) if layout.has_traces else None,
        kept={name: nothing.astype(object) for name in layout.kept},
    )


def concat_released(parts: Sequence[ReleasedRows]) -> ReleasedRows:
    """Rows one after the other, without their ids: each part numbers its own."""
    kept = {name: np.empty(sum(map(len, parts)), dtype=object) for name in _kept_names(parts)}
    for name, column in kept.items():
        column[:] = [
            value
            for part in parts
            for value in (part.kept[name].tolist() if name in part.kept else [None] * len(part))
        ]
    columns = _concat_columns(parts, ("at_us", "lat", "lon", "kind", "cost"))
    return ReleasedRows(**columns, kept=kept)


def concat_batches(batches: Sequence[RowBatch]) -> RowBatch:
    """Batches as one, with the layout of the first."""
    lengths = list(map(len, batches))
    return RowBatch(
        **_concat_columns(batches, ("line", "at_us", "lat", "lon", "fault")),
        user=_concat_ids([batch.user for batch in batches], lengths),
        trace=_concat_ids([batch.trace for batch in batches], lengths),
        kept={
            name: np.concatenate([batch.kept[name] for batch in batches])
            for name in _kept_names(batches)
        },
        layout=batches[0].layout,
    )


def _kept_names(parts: Sequence[RowBatch] | Sequence[ReleasedRows]) -> list[str]:
    return list(dict.fromkeys(name for part in parts for name in part.kept))


def _concat_columns(
    parts: Sequence[RowBatch] | Sequence[ReleasedRows], names: Sequence[str]
) -> dict[str, Any]:
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}


def _concat_ids(columns: Sequence[Ids | None], lengths: Sequence[int]) -> Ids | None:
    if all(ids is None for ids in columns):
        return None
    values: list[object] = []
    for ids, length in zip(columns, lengths, strict=True):
        values += [None] * length if ids is None else ids.values()
    return Ids.of(values)
