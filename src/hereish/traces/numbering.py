"""Numbers for the users and traces of many files, and what each of them is ordered by."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from hereish.core.types import Ints
from hereish.traces.discovery import Source
from hereish.traces.formats._times import iso
from hereish.traces.merging import Key
from hereish.traces.names import name_key, same_name
from hereish.traces.table import Ids, Piece
from hereish.traces.writing import Output

NONE = -1  # the code of an id that is not told


class Part(NamedTuple):
    """A piece in a unit, with the numbers of its rows in the whole work."""

    source: Source
    piece: Piece
    place: Ints  # in its file, from 0
    file: Ints  # the number of the file
    user: Ints
    trace: Ints
    span: Ints  # a trace in a file
    user_id: Ints  # ids as given, NONE where there is none
    trace_id: Ints

    def take(self, rows: Ints) -> Part:
        columns = [column[rows] for column in self[2:]]
        return Part(self.source, self.piece.take(rows), *columns)


class Book:
    """Numbers for values: the same one for the same value, however many files it is in."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self.values: list[Any] = []

    def number(self, value: Any) -> int:
        key = (type(value), value)  # 1 and True are not the same
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        return self._numbers[key]

    def __len__(self) -> int:
        return len(self.values)


class Numbering:
    """Numbers the rows of all files of a work, piece by piece."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self.users, self.traces = Book(), Book()  # by the names that mean the same one
        self.user_ids, self.trace_ids = Book(), Book()  # as given
        self.keys: list[Key] = []  # what each trace is ordered by
        self.targets: list[int] = []  # where each span goes
        self._spans = Book()
        self._begun: dict[tuple[int, str], list[tuple[int, int]]] = {}  # whose the label is
        self._files: dict[Source, tuple[int, int]] = {}  # the number of each, and its rows so far

    def begin_again(self) -> None:
        """The same files are read another time."""
        self._files = {source: (number, 0) for source, (number, _) in self._files.items()}

    def users_of(self, piece: Piece) -> Ints:
        """The number of each row's user; those without any are all the same person's."""
        ids = piece.user or Ids(np.zeros(len(piece), dtype=np.int64), [""])
        return _mapped(ids.codes, lambda code: self.users.number(same_name(ids.names[code])))

    def numbered(self, source: Source, piece: Piece) -> Part:
        file, before = self._files.setdefault(source, (len(self._files), 0))
        self._files[source] = (file, before + len(piece))
        self._out.check(source, piece)
        user = self.users_of(piece)
        trace = self._numbered_traces(source, file, piece, user)
        count = len(piece)
        nobody = np.full(count, NONE, dtype=np.int64)
        user_id = trace_id = nobody
        if piece.user is not None:
            names = piece.user.names
            user_id = _mapped(piece.user.codes, lambda code: self.user_ids.number(names[code]))
        if piece.trace is not None:
            labels = self._labels(source, file, piece, user)
            trace_id = _mapped(piece.trace.codes, lambda code: self.trace_ids.number(labels(code)))
        return Part(
            source,
            piece,
            before + np.arange(count),
            np.full(count, file, dtype=np.int64),
            user,
            trace,
            self._numbered_spans(source, file, piece, trace, user_id, trace_id),
            user_id,
            trace_id,
        )

    def _numbered_traces(self, source: Source, file: int, piece: Piece, user: Ints) -> Ints:
        """The number of each row's trace, which is that of its user and its id or file."""
        ids = piece.trace or Ids(np.zeros(len(piece), dtype=np.int64), [0])
        numbered = piece.trace is None or piece.layout.numbered
        labels = self._labels(source, file, piece, user)
        many = len(ids.names)

        def number(pair: int) -> int:
            who, code = self.users.values[pair // many], pair % many
            which = ids.names[code]
            here = f"{file}" if numbered and isinstance(which, int) else ""
            # The length in front: no name can end where another begins.
            name = f"{len(who)} {who}:{here}:{same_name(which)}"
            trace = self.traces.number(name)
            if trace == len(self.keys):
                told = () if piece.trace is None else self._label_key(source, which, labels(code))
                self.keys.append((name_key(who), *told))
            return trace

        return _mapped(user * many + ids.codes, number)

    def _numbered_spans(
        self,
        source: Source,
        file: int,
        piece: Piece,
        trace: Ints,
        user_id: Ints,
        trace_id: Ints,
    ) -> Ints:
        first: dict[int, int] = {}  # a row of each trace
        begins = np.flatnonzero(np.diff(trace, prepend=trace[:1] - 1))
        for row in begins.tolist():
            first.setdefault(int(trace[row]), row)

        def number(which: int) -> int:
            span = self._spans.number((file, which))
            if span == len(self.targets):
                row = first[which]
                user = None if user_id[row] == NONE else self.user_ids.values[user_id[row]]
                told = None if trace_id[row] == NONE else self.trace_ids.values[trace_id[row]]
                target = self._out.target(source, file, piece.layout, user, told)
                self.targets.append(target)
            return span

        return _mapped(trace, number)

    def _labels(self, source: Source, file: int, piece: Piece, user: Ints) -> Callable[[int], Any]:
        """The id of a trace as it is written: as given, unless it is a number in its file."""
        codes, names = piece.trace or Ids(np.zeros(0, dtype=np.int64), [0])

        def label(code: int) -> Any:
            name = names[code]
            if not (piece.layout.numbered and isinstance(name, int)):
                return name
            if self._out.by_user:  # the number of a file says how the input lay in files
                own = np.flatnonzero(codes == code)
                begins = iso(piece.at_us[own].min(keepdims=True))[0]
                text = begins.replace("-", "").replace(":", "")
                # Two that begin at one time are two, and nothing public tells them apart.
                owners = self._begun.setdefault((int(user[own[0]]), text), [])
                if (file, code) not in owners:
                    owners.append((file, code))
                number = owners.index((file, code)) + 1
                return text if number == 1 else f"{text}-{number}"
            if source.number is None or self._out.apart:
                return name
            return f"{source.number}-{name}"

        return label

    def _label_key(self, source: Source, name: Any, label: Any) -> tuple[Any, ...]:
        """What a trace is ordered by: numbers in files by the file, then by themselves."""
        numbered = isinstance(name, int) and label != name and isinstance(label, str)
        if numbered and source.number and not self._out.by_user:
            return (name_key(str(source.number)), name_key(str(name)))
        return (name_key(same_name(label)),)


def _mapped(codes: Ints, number: Callable[[int], int]) -> Ints:
    """Another number for each code; rows that belong together mostly lie together."""
    begins = np.flatnonzero(np.diff(codes, prepend=codes[:1] - 1))
    different, which = np.unique(codes[begins], return_inverse=True)
    numbers = np.array([number(code) for code in different.tolist()], dtype=np.int64)
    return np.repeat(numbers[which.reshape(-1)], np.diff(begins, append=len(codes)))
