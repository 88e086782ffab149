"""Numbers for the users and traces of many files, and the sort key of each of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from hereish.core.types import Ints
from hereish.traces.formats._times import format_utc
from hereish.traces.formats.base import Source
from hereish.traces.merging import Key
from hereish.traces.names import canonical_name, name_key
from hereish.traces.table import Ids, RowBatch
from hereish.traces.validate import group_starts
from hereish.traces.writing import Output

NO_ID = -1  # the code of rows without an id


class NumberedRows(NamedTuple):
    """Rows of a batch, with numbers that are the same in all batches."""

    source: Source
    batch: RowBatch
    place: Ints  # of each row in its file, from 0
    file: Ints  # the number of the file
    user: Ints
    trace: Ints
    span: Ints  # the number of a trace in a file
    user_id: Ints  # ids as given, NO_ID where there is none
    trace_id: Ints

    def take(self, rows: Ints) -> NumberedRows:
        columns = [column[rows] for column in self[2:]]
        return NumberedRows(self.source, self.batch.take(rows), *columns)


class Interner:
    """Numbers values, from 0: the same number for the same value, in however many files it is."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self.values: list[Any] = []

    def number(self, value: Any) -> int:
        key = (type(value), value)  # 1 and True are not the same
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        return self._numbers[key]

    def get(self, number: int) -> Any:
        """The value of a number; None for NO_ID."""
        return None if number == NO_ID else self.values[number]

    def __len__(self) -> int:
        return len(self.values)


class Numbering:
    """Numbers the rows of all files, batch by batch."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self.users, self.traces = Interner(), Interner()  # by their canonical names
        self.user_ids, self.trace_ids = Interner(), Interner()  # as given
        self.keys: list[Key] = []  # by which each trace is ordered
        self.out_files: list[int] = []  # the output file of each span
        self._spans = Interner()
        # Of each user and label: the files and traces that have it.
        self._labelled: dict[tuple[int, str], list[tuple[int, int]]] = {}
        self._files: dict[Source, tuple[int, int]] = {}  # the number of each, and its rows so far

    def restart(self) -> None:
        """The same files are read once more."""
        self._files = {source: (number, 0) for source, (number, _) in self._files.items()}

    def number_users(self, batch: RowBatch) -> Ints:
        """The number of each row's user; those without any are all the same person's."""
        ids = batch.users()
        return _map_codes(
            ids.codes, lambda code: self.users.number(canonical_name(ids.names[code]))
        )

    def number_rows(self, source: Source, batch: RowBatch) -> NumberedRows:
        file, before = self._files.setdefault(source, (len(self._files), 0))
        self._files[source] = (file, before + len(batch))
        self._out.check(source, batch)
        user = self.number_users(batch)
        trace = self._number_traces(source, file, batch, user)
        count = len(batch)
        user_id = trace_id = np.full(count, NO_ID, dtype=np.int64)
        if batch.user is not None:
            names = batch.user.names
            user_id = _map_codes(batch.user.codes, lambda code: self.user_ids.number(names[code]))
        if batch.trace is not None:
            labels = self._labels(source, file, batch, user)
            trace_id = _map_codes(
                batch.trace.codes, lambda code: self.trace_ids.number(labels(code))
            )
        return NumberedRows(
            source,
            batch,
            before + np.arange(count),
            np.full(count, file, dtype=np.int64),
            user,
            trace,
            self._number_spans(source, file, batch, trace, user_id, trace_id),
            user_id,
            trace_id,
        )

    def _number_traces(self, source: Source, file: int, batch: RowBatch, user: Ints) -> Ints:
        """The number of each row's trace, which is that of its user and its id or file."""
        ids = batch.trace or Ids.constant(0, len(batch))
        numbered = batch.trace is None or batch.layout.numbered
        labels = self._labels(source, file, batch, user)
        count = len(ids.names)

        def number(pair: int) -> int:
            user_name, code = self.users.values[pair // count], pair % count
            given = ids.names[code]
            scope = f"{file}" if numbered and isinstance(given, int) else ""
            # The length in front: no two different pairs are written the same.
            name = f"{len(user_name)} {user_name}:{scope}:{canonical_name(given)}"
            trace = self.traces.number(name)
            if trace == len(self.keys):
                key = () if batch.trace is None else self._label_key(source, given, labels(code))
                self.keys.append((name_key(user_name), *key))
            return trace

        return _map_codes(user * count + ids.codes, number)

    def _number_spans(
        self,
        source: Source,
        file: int,
        batch: RowBatch,
        trace: Ints,
        user_id: Ints,
        trace_id: Ints,
    ) -> Ints:
        first: dict[int, int] = {}  # a row of each trace
        for row in group_starts(trace).tolist():
            first.setdefault(int(trace[row]), row)

        def number(trace_number: int) -> int:
            span = self._spans.number((file, trace_number))
            if span == len(self.out_files):
                row = first[trace_number]
                given_user = self.user_ids.get(int(user_id[row]))
                given_trace = self.trace_ids.get(int(trace_id[row]))
                self.out_files.append(
                    self._out.file_number(source, file, batch.layout, given_user, given_trace)
                )
            return span

        return _map_codes(trace, number)

    def _labels(
        self, source: Source, file: int, batch: RowBatch, user: Ints
    ) -> Callable[[int], Any]:
        """The id of a trace as it is written: as given, unless it is a number in its file."""
        codes, names = batch.trace or Ids(np.zeros(0, dtype=np.int64), [0])

        def label(code: int) -> Any:
            name = names[code]
            if not (batch.layout.numbered and isinstance(name, int)):
                return name
            if (
                self._out.per_user
            ):  # a file's number would tell how the input was divided into files
                own = np.flatnonzero(codes == code)
                begins = format_utc(batch.at_us[own].min(keepdims=True))[0]
                text = begins.replace("-", "").replace(":", "")
                # Two that begin at one time are two, although they are equal in all public data.
                owners = self._labelled.setdefault((int(user[own[0]]), text), [])
                if (file, code) not in owners:
                    owners.append((file, code))
                number = owners.index((file, code)) + 1
                return text if number == 1 else f"{text}-{number}"
            if source.number is None or self._out.per_input:
                return name
            return f"{source.number}-{name}"

        return label

    def _label_key(self, source: Source, name: Any, label: Any) -> tuple[Any, ...]:
        """The sort key of a trace: numbers within files by the file, then by themselves."""
        numbered = isinstance(name, int) and label != name and isinstance(label, str)
        if numbered and source.number and not self._out.per_user:
            return (name_key(str(source.number)), name_key(str(name)))
        return (name_key(canonical_name(label)),)


def _map_codes(codes: Ints, number: Callable[[int], int]) -> Ints:
    """Another number for each code; quick where equal codes are mostly neighbours."""
    begins = group_starts(codes)
    different, inverse = np.unique(codes[begins], return_inverse=True)
    numbers = np.array([number(code) for code in different.tolist()], dtype=np.int64)
    return np.repeat(numbers[inverse.reshape(-1)], np.diff(begins, append=len(codes)))
