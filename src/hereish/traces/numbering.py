"""Numbers for the users and traces of many files, and the sort key of each of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hereish.core.types import Ints
from hereish.traces.columns import Layout
from hereish.traces.formats._times import format_utc
from hereish.traces.formats.base import Source
from hereish.traces.merging import Key
from hereish.traces.names import canonical_name, name_key
from hereish.traces.table import Ids, RowBatch
from hereish.traces.trace_numbers import PublicRows, TraceNumbers
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


class _Unnumbered(NamedTuple):
    """In place of the id of a trace, until it has a number."""

    trace: int


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


class _PendingSpan(NamedTuple):
    """A trace in a file that has no output file yet, since its trace has no number."""

    source: Source
    file: int
    layout: Layout
    user_id: int
    trace_id: int


class Numbering:
    """Numbers the rows of all files, batch by batch.

    Ids of traces may say what nobody is to know, such as where somebody went. Unless they are
    kept, a trace is published as its number among those of its user, in the order of time.
    """

    def __init__(self, out: Output, *, keep_trace_names: bool = True) -> None:
        self._out = out
        self._keep_trace_names = keep_trace_names
        self._unnumbered: dict[int, int] = {}  # by trace, its place among the ids as given
        self._pending: dict[int, _PendingSpan] = {}  # by span
        self._numbered = TraceNumbers()
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
            trace_id = self._number_trace_ids(source, file, batch, user, trace)
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

    def number_traces(self, user: Ints, trace: Ints, public: PublicRows, *, complete: bool) -> None:
        """Numbers for the traces of a unit that have none; before its rows are put in order.

        `complete`: all rows of these users are in it. Raises UnsortedInputError where they must be,
        since a trace began before others that have a number.

        Guarantee: numbers depend on users and times, then on kept columns, and then on chance.
        """
        is_new = np.zeros(len(self.keys), dtype=np.bool_)
        is_new[list(self._unnumbered)] = True
        rows = np.flatnonzero(is_new[trace])
        if not len(rows):
            return
        numbers = self._numbered.number(user[rows], trace[rows], rows, public, complete=complete)
        for number, label in numbers.items():
            self.trace_ids.values[self._unnumbered.pop(number)] = label
            self.keys[number] = (*self.keys[number], name_key(str(label)))
        for span in [span for span, own in self._pending.items() if self._has_label(own)]:
            own = self._pending.pop(span)
            self.out_files[span] = self._out_file(own)

    def _has_label(self, span: _PendingSpan) -> bool:
        return not isinstance(self.trace_ids.values[span.trace_id], _Unnumbered)

    def _out_file(self, span: _PendingSpan) -> int:
        user, trace = self.user_ids.get(span.user_id), self.trace_ids.get(span.trace_id)
        return self._out.file_number(span.source, span.file, span.layout, user, trace)

    def _is_secret(self, batch: RowBatch, name: Any) -> bool:
        """Whether a trace's id is not published."""
        if self._keep_trace_names or batch.layout.public_traces:
            return False
        if name is None or name == "":
            return False
        return not (batch.layout.numbered and isinstance(name, int))

    def _number_trace_ids(
        self, source: Source, file: int, batch: RowBatch, user: Ints, trace: Ints
    ) -> Ints:
        """The number of each row's id of a trace: as it is written, or where that will be."""
        codes, names = batch.trace or Ids(np.zeros(0, dtype=np.int64), [])
        labels = self._labels(source, file, batch, user)
        secret = [self._is_secret(batch, name) for name in names]
        if not any(secret):
            return _map_codes(codes, lambda code: self.trace_ids.number(labels(code)))
        count = len(names)

        def number(pair: int) -> int:
            own, code = divmod(pair, count)
            if not secret[code]:
                return self.trace_ids.number(labels(code))
            place = self.trace_ids.number(_Unnumbered(own))
            if len(self.keys[own]) == 1:
                self._unnumbered[own] = place
            return place

        return _map_codes(trace * count + codes, number)

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
                key: tuple[Any, ...] = ()  # also of those that get their numbers later
                if batch.trace is not None and not self._is_secret(batch, given):
                    key = self._label_key(source, given, labels(code))
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
        layout = replace(
            batch.layout,
            has_users=batch.user is not None,
            has_traces=batch.trace is not None,
            kept=tuple(batch.kept),
        )
        first: dict[int, int] = {}  # a row of each trace
        for row in group_starts(trace).tolist():
            first.setdefault(int(trace[row]), row)

        def number(trace_number: int) -> int:
            span = self._spans.number((file, trace_number))
            if span == len(self.out_files):
                row = first[trace_number]
                ids = (int(user_id[row]), int(trace_id[row]))
                own = _PendingSpan(source, file, layout, *ids)
                waits = trace_number in self._unnumbered
                if waits:
                    self._pending[span] = own
                self.out_files.append(-1 if waits else self._out_file(own))
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
    if len(begins) == 1:  # as in most small files
        return np.full(len(codes), number(int(codes[0])), dtype=np.int64)
    different, inverse = np.unique(codes[begins], return_inverse=True)
    numbers = np.array([number(code) for code in different.tolist()], dtype=np.int64)
    return np.repeat(numbers[inverse.reshape(-1)], np.diff(begins, append=len(codes)))
