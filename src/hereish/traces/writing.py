"""Where released rows are written: one file, or a folder; they appear completely or not at all.

Everything is written beside its place under another name, and moved there in the end. What is in
unfinished files is released data only; if anything fails they are removed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, cast, get_args

import numpy as np

from hereish.core.randomness import Draws
from hereish.core.types import Ints
from hereish.errors import HereishError, ParameterError
from hereish.traces.atomic_file import (
    AtomicFile,
    create_temporary,
    file_mode,
    folder_mode,
    sync_files,
)
from hereish.traces.columns import Layout
from hereish.traces.discovery import STANDARD_STREAM
from hereish.traces.formats._sidecar import sidecar_path, sidecar_text
from hereish.traces.formats.base import Format, Source
from hereish.traces.formats.registry import (
    STANDARD_STREAM_FORMAT,
    WRITTEN_NAMES,
    get_format,
    recognize,
)
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.merging import ExternalMerge, Key, Ranks, SortedRows
from hereish.traces.names import canonical_name, name_key, safe_file_name
from hereish.traces.order import Order, ranks
from hereish.traces.table import Ids, ReleasedRows, RowBatch, no_rows

SplitBy = Literal["input", "user"]


class UnsortedOutputError(HereishError):
    """Rows came that belong before others which are written already: they must be merged."""


class SortBounds(NamedTuple):
    """The sort keys of the first and the last of some rows, as `SortedRows` has them."""

    out_file: Ints
    first: Ints
    second: Ints


class OutputFile(NamedTuple):
    """A file of the output: its name below a folder, and how it names its columns."""

    name: Path | None
    layout: Layout


@dataclass(frozen=True)
class OutputOptions:
    """How an output is written; what its rows are does not depend on it."""

    guarantee: GuaranteeMetadata
    split_by: SplitBy = "input"
    order: Order = "public"
    merge: bool = False  # rows come in any order, and are written once all of them are there


def open_output(
    name: str, sources: list[Source], form: str | None, options: OutputOptions
) -> Output:
    """The output that a name stands for: a file, a folder, or `-` for standard output."""
    recognized = recognize(name)
    chosen = None if form is None else get_format(form)
    written = chosen or recognized
    if name.endswith(".gz") and written is not None and written.compressed:
        raise ParameterError(f"{written.name} is compressed inside; leave .gz out of {name}")
    if written is not None and written.open_writer is None:
        raise ParameterError(
            f"{written.name} is read and not written; write one of {', '.join(WRITTEN_NAMES)}"
        )
    if options.split_by not in get_args(SplitBy):
        raise ParameterError(f"split_by must be 'input' or 'user', found {options.split_by!r}")
    path = Path(name)
    is_folder = path.is_dir() or name.endswith(("/", os.sep)) or not path.suffix
    if chosen is not None and chosen.path_in_folder is not None and recognized != chosen:
        is_folder = True
    if name != STANDARD_STREAM and is_folder:
        return FolderOutput(path, chosen or _common_format(sources), options)
    if options.split_by == "user":
        raise ParameterError(f"a file for each user needs a folder, and {name} is a file")
    if name == STANDARD_STREAM:
        return SingleFileOutput(None, chosen or STANDARD_STREAM_FORMAT, options)
    if written is None:
        raise ParameterError(
            f"the name {name} does not tell its format; give --to, one of "
            f"{', '.join(WRITTEN_NAMES)}"
        )
    return SingleFileOutput(path, written, options)


def _common_format(sources: list[Source]) -> Format:
    formats = {source.format.name for source in sources}
    if len(formats) > 1:
        raise ParameterError(
            f"the inputs are {', '.join(sorted(formats))}; choose a format for the folder with "
            f"--to, one of {', '.join(WRITTEN_NAMES)}"
        )
    if sources[0].format.open_writer is None:
        raise ParameterError(
            f"{sources[0].format.name} is read and not written; choose a format for the folder "
            f"with --to, one of {', '.join(WRITTEN_NAMES)}"
        )
    return sources[0].format


class Output(ABC):
    """Takes released rows. They are there once it was left without an exception."""

    per_input = False  # rows of different input files go to different files
    per_user = False  # there is one file per user, whatever files the rows came from
    before_publishing: Callable[[], None] | None = None  # all is written, and nothing appears yet

    def __init__(self, options: OutputOptions, folder: Path | None) -> None:
        self.keys: list[Key] = []  # by which the files are ordered
        self._files: list[OutputFile] = []
        self._guarantee, self._order = options.guarantee, options.order
        self._merge = ExternalMerge(folder) if options.merge else None
        self._last: Key | None = None
        self._first_source: tuple[Source, bool, bool] | None = None

    def check(self, source: Source, batch: RowBatch) -> None:
        """Raises for rows with users or traces in a file with rows without, or the reverse."""
        here = (batch.user is not None, batch.trace is not None)
        if self._first_source is None:
            self._first_source = (source, *here)
        first, *there = self._first_source
        for has, had, what in zip(here, there, ("users", "traces"), strict=True):
            if has != had:
                some, none = (source, first) if has else (first, source)
                raise ParameterError(
                    f"{some.name} tells {what} and {none.name} none, so they cannot be one file: "
                    "give a folder as OUT, and --to FORMAT. (Two calls would spend the budget of "
                    "one person twice.)"
                )

    @abstractmethod
    def file_number(self, source: Source, file: int, layout: Layout, user: Any, trace: Any) -> int:
        """The number of the output file that a trace of an input file goes to."""

    def write(self, rows: SortedRows) -> None:
        """Rows that are in order."""
        if self._merge is not None:
            self._merge.add(rows)
        elif rows:
            self._write_sorted(rows)

    def expect(self, bounds: SortBounds, trace_keys: Sequence[Key]) -> None:
        """Announce the first and the last row of those that may be written next.

        Raises UnsortedOutputError unless they come after all before. Called before anything is
        drawn, with rows that may still be refused.

        Guarantee: which rows are refused depends on the secret, and whether all is drawn again
        does not.
        """
        if self._merge is None:
            first, last = (self._sort_key(bounds, row, trace_keys) for row in (0, 1))
            if self._last is not None and not self._last < first:
                raise UnsortedOutputError
            self._last = last

    def _sort_key(self, bounds: SortBounds, row: int, trace_keys: Sequence[Key]) -> Key:
        first = int(bounds.first[row])
        own = first if self._order == "input" else trace_keys[first]
        return (self.keys[int(bounds.out_file[row])], own, int(bounds.second[row]))

    def finish(
        self, users: Sequence[Any], traces: Sequence[Any], trace_keys: Sequence[Key], draws: Draws
    ) -> None:
        """No more rows will come. The ids as given, and the sort key of each trace."""
        if self._merge is not None:
            firsts = None if self._order == "input" else ranks(trace_keys)
            for rows in self._merge.merged(Ranks(ranks(self.keys), firsts, users, traces), draws):
                self._write_sorted(rows)

    def _write_sorted(self, rows: SortedRows) -> None:
        begins = np.flatnonzero(np.diff(rows.out_file, prepend=-1))
        ends = np.append(begins[1:], len(rows.out_file))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            part = rows.rows.take(slice(begin, end))
            part = replace(part, user=_given_ids(part.user), trace=_given_ids(part.trace))
            self._append(int(rows.out_file[begin]), part)

    @abstractmethod
    def _append(self, number: int, rows: ReleasedRows) -> None:
        """Rows to the end of a file; those of one file come after each other."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.complete()
                if self.before_publishing is not None:
                    self.before_publishing()
                self.publish()
        except BaseException:
            self.abandon()
            raise
        finally:
            if self._merge is not None:
                self._merge.close()
        if kind is not None:
            self.abandon()

    @abstractmethod
    def complete(self) -> None:
        """Write all that is to appear, under temporary names."""

    @abstractmethod
    def publish(self) -> None:
        """Let what was written appear."""

    @abstractmethod
    def abandon(self) -> None:
        """Remove what was written."""


def _given_ids(ids: Ids | None) -> Ids | None:
    """Ids with None in place of the negative code, which stands for no id."""
    if ids is None or not len(ids.codes) or ids.codes.min() >= 0:
        return ids
    if ids.codes.max() < 0:
        return None
    return Ids.of([None if code < 0 else ids.names[code] for code in ids.codes.tolist()])


class SingleFileOutput(Output):
    """All rows in one file, or on standard output."""

    def __init__(self, path: Path | None, form: Format, options: OutputOptions) -> None:
        self._path, self._form = path, form
        self._file: AtomicFile | None = None
        self._sidecar: Path | None = None  # while it has a temporary name
        if path is not None and not path.parent.is_dir():
            raise ParameterError(f"there is no folder {path.parent} to write {path.name} into")
        super().__init__(options, None if path is None else path.parent)

    def file_number(self, source: Source, file: int, layout: Layout, user: Any, trace: Any) -> int:
        if not self._files:
            self._files.append(OutputFile(None, layout))
            self.keys.append(())
        return 0

    def _append(self, number: int, rows: ReleasedRows) -> None:
        self._opened().writer.write(rows)

    def _opened(self) -> AtomicFile:
        if self._file is None:
            layout = self._files[0].layout if self._files else Layout()
            self._file = AtomicFile(self._path, self._form, layout, self._guarantee)
        return self._file

    def complete(self) -> None:
        if self._file is None and self._files:
            self._opened().writer.write(no_rows(self._files[0].layout))
        self._opened().complete()
        if self._path is not None and self._form.sidecar:
            self._sidecar, temporary = create_temporary(sidecar_path(self._path))
            with temporary:
                temporary.write(sidecar_text(self._path.name, self._guarantee).encode())
            self._sidecar.chmod(file_mode())

    def publish(self) -> None:
        if self._path is None:
            self._opened().publish()
            return
        sidecar = sidecar_path(self._path)
        # The guarantee of an older file is never beside a newer one, not even for a moment.
        sidecar.unlink(missing_ok=True)
        self._opened().publish()
        if self._sidecar is not None:
            self._sidecar.replace(sidecar)

    def abandon(self) -> None:
        if self._file is not None:
            self._file.abandon()
        if self._sidecar is not None:
            self._sidecar.unlink(missing_ok=True)


class FolderOutput(Output):
    """One file per input file, per user, or as the format has it per user or trace."""

    def __init__(self, path: Path, form: Format, options: OutputOptions) -> None:
        self.per_user = options.split_by == "user"
        self.per_input = form.path_in_folder is None and not self.per_user
        self._path, self._form = path, form
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ParameterError(f"{path} is there already; name a new or an empty folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._temporary = Path(tempfile.mkdtemp(".part", ".hereish-", path.parent))
        # The number of each output file, and of the input file that it belongs to, if any.
        self._numbers: dict[Path, tuple[int, int | None]] = {}
        self._open: tuple[int, AtomicFile] | None = None
        self._begun: set[int] = set()
        self._folders = {self._temporary}
        super().__init__(options, self._temporary)

    def check(self, source: Source, batch: RowBatch) -> None:
        if self.per_user and self._form.path_in_folder is None:
            super().check(source, batch)

    def file_number(self, source: Source, file: int, layout: Layout, user: Any, trace: Any) -> int:
        name = canonical_name("" if user is None else user)
        path_in_folder = self._form.path_in_folder
        owner: int | None = None
        key: Key = (name_key(name),)
        if path_in_folder is not None and (self.per_user or source.format != self._form):
            # There a file is named by ids, whatever input file they came from.
            below = Path(path_in_folder(user, trace))
        elif self.per_user:
            below = Path(safe_file_name(name or "user") + self._form.extensions[0])
        else:
            below, key, owner = self._name_like(source), (file,), file
        number, known_owner = self._numbers.setdefault(below, (len(self._files), owner))
        if known_owner != owner:
            raise ParameterError(f"two inputs would both be written to {self._path / below}")
        if number == len(self._files):
            own_layout = owner is not None or self.per_user
            self._files.append(OutputFile(below, layout if own_layout else Layout()))
            self.keys.append((*key, str(below)))
        return number

    def _name_like(self, source: Source) -> Path:
        if source.format == self._form:
            return source.below
        uncompressed = source.below.with_name(source.below.name.removesuffix(".gz"))
        return uncompressed.with_suffix(self._form.extensions[0])

    def _append(self, number: int, rows: ReleasedRows) -> None:
        if self._open is None or self._open[0] != number:
            self._close()
            self._open = (number, self._create(number))
        self._open[1].writer.write(rows)

    def _create(self, number: int) -> AtomicFile:
        self._begun.add(number)
        name, layout = self._files[number]
        path = self._temporary / cast("Path", name)
        if path.parent not in self._folders:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._folders.add(path.parent)
        return AtomicFile(path, self._form, layout, self._guarantee, in_new_folder=True)

    def _close(self) -> None:
        if self._open is not None:
            self._open[1].commit()
            self._open = None

    def complete(self) -> None:
        # A file whose points were all refused comes out empty; there is none for a user or trace.
        owned = {number for number, owner in self._numbers.values() if owner is not None}
        for number in sorted(owned - self._begun):
            self._append(number, no_rows(self._files[number].layout))
        self._close()
        names = [cast("Path", self._files[number].name) for number in sorted(self._begun)]
        sync_files(self._temporary, names)
        if self._form.sidecar:
            text = sidecar_text(None, self._guarantee)
            sidecar_path(self._temporary).write_text(text, encoding="utf-8")
        self._temporary.chmod(folder_mode())

    def publish(self) -> None:
        if self._path.is_dir():
            self._path.rmdir()  # it is empty
        self._temporary.replace(self._path)

    def abandon(self) -> None:
        if self._open is not None:
            self._open[1].abandon()
        shutil.rmtree(self._temporary, ignore_errors=True)
