"""Files that appear whole or not at all.

Everything is written beside its place under another name, and put there in the end. What is in the
unfinished file is released data only; if anything fails it is removed.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, cast, get_args

import numpy as np

from hereish.core.randomness import Draws
from hereish.core.types import Ints
from hereish.errors import HereishError, ParameterError
from hereish.traces.atomic_file import File, part, umask
from hereish.traces.discovery import ENDINGS, METADATA, STANDARD, Source, format_of, module
from hereish.traces.formats._text import file_part
from hereish.traces.merging import Chunk, Key, Spool, ranked
from hereish.traces.names import name_key, same_name
from hereish.traces.order import Order
from hereish.traces.table import Ids, Layout, Piece, Promise, Released

SplitBy = Literal["input", "user"]
_TREES = ("geolife", "tdrive")  # formats with a file for each user or trace
_WITHOUT_METADATA = ("csv", "tdrive")


class Unsorted(HereishError):  # noqa: N818  # it tells its catcher what to do, and goes no further
    """Rows came that belong before others which are written already: they must be merged."""


class Ends(NamedTuple):
    """The first and the last of some rows, as a chunk has them."""

    target: Ints
    first: Ints
    second: Ints


class Target(NamedTuple):
    """A file of the output: its name below a folder, and how it calls its columns."""

    name: Path | None
    layout: Layout


def output(
    name: str,
    sources: list[Source],
    form: str | None,
    promise: Promise,
    *,
    split_by: SplitBy = "input",
    order: Order = "public",
    merge: bool = False,
) -> Output:
    """The output that a name means: a file, a folder, or `-` for standard output.

    `merge`: rows come in any order, and are written once all of them are there.
    """
    known = format_of(name)
    if name.endswith(".gz") and (form or known) in ("parquet", "geoparquet"):
        raise ParameterError(f"Parquet is packed inside; leave .gz out of {name}")
    if split_by not in get_args(SplitBy):
        raise ParameterError(f"split_by must be 'input' or 'user', found {split_by!r}")
    path = Path(name)
    folder = path.is_dir() or name.endswith(("/", os.sep)) or not path.suffix
    if name != STANDARD and (folder or (form in _TREES and known != form)):
        chosen = form or _common_format(sources)
        return Folder(path, chosen, promise, split_by, order, merge)
    if split_by == "user":
        raise ParameterError(f"a file for each user needs a folder, and {name} is a file")
    if name == STANDARD:
        return OneFile(None, form or "csv", promise, order, merge)
    if form is None and known is None:
        raise ParameterError(
            f"the name {name} does not tell its format; give --to, one of {', '.join(ENDINGS)}"
        )
    return OneFile(path, form or cast("str", known), promise, order, merge)


def _common_format(sources: list[Source]) -> str:
    formats = {source.format for source in sources}
    if len(formats) > 1:
        raise ParameterError(
            f"the inputs are {', '.join(sorted(formats))}; say which the folder shall have: --to"
        )
    return formats.pop()


class Output(ABC):
    """Where released rows go. They are there once it was left without an exception."""

    apart = False  # what came in different files goes to different files
    by_user = False  # there is a file for each user, whatever files they came from

    def __init__(self, order: Order, merge: bool, folder: Path | None) -> None:
        self.keys: list[Key] = []  # what targets are ordered by
        self._targets: list[Target] = []
        self._order = order
        self._spool = Spool(folder) if merge else None
        self._last: Key | None = None
        self._first: tuple[Source, bool, bool] | None = None

    def check(self, source: Source, piece: Piece) -> None:
        """A table has a column or it has not: files that differ in it are not put into one."""
        here = (piece.user is not None, piece.trace is not None)
        if self._first is None:
            self._first = (source, *here)
        for told, first, what in zip(here, self._first[1:], ("users", "traces"), strict=True):
            if told != first:
                some, none = (source, self._first[0]) if told else (self._first[0], source)
                raise ParameterError(
                    f"{some.name} tells {what} and {none.name} none; sanitise them apart, or into "
                    "a folder"
                )

    @abstractmethod
    def target(self, source: Source, file: int, layout: Layout, user: Any, trace: Any) -> int:
        """The number of the target that a trace of a file goes to."""

    def write(self, chunk: Chunk, traces: Sequence[Key]) -> None:
        """Rows that are in order; `traces` has what each trace is ordered by."""
        if self._spool is not None:
            self._spool.add(chunk)
        elif chunk:
            self._emit(chunk)

    def expect(self, ends: Ends, traces: Sequence[Key]) -> None:
        """The first and the last row of those that may be written next. Raises Unsorted unless
        they come after all before.

        Called before anything is drawn, with rows that may still be refused: which of them are
        depends on the secret, and whether all is drawn again must not.
        """
        if self._spool is None:
            first, last = (self._key(ends, row, traces) for row in (0, 1))
            if self._last is not None and not self._last < first:
                raise Unsorted
            self._last = last

    def _key(self, ends: Ends, row: int, traces: Sequence[Key]) -> Key:
        first = int(ends.first[row])
        own = first if self._order == "input" else traces[first]
        return (self.keys[int(ends.target[row])], own, int(ends.second[row]))

    def finish(
        self, users: Sequence[Any], traces: Sequence[Any], keys: Sequence[Key], draws: Draws
    ) -> None:
        """No more rows will come. The ids as given, and what each trace is ordered by."""
        if self._spool is not None:
            firsts = None if self._order == "input" else ranked(keys)
            for chunk in self._spool.merged(ranked(self.keys), firsts, users, traces, draws):
                self._emit(chunk)

    def _emit(self, chunk: Chunk) -> None:
        begins = np.flatnonzero(np.diff(chunk.target, prepend=-1))
        ends = np.append(begins[1:], len(chunk.target))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            rows = chunk.rows.take(slice(begin, end))
            told = replace(rows, user=_told(rows.user), trace=_told(rows.trace))
            self._put(int(chunk.target[begin]), told)

    @abstractmethod
    def _put(self, target: int, rows: Released) -> None:
        """Rows to the end of a target; those of one target come after each other."""

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
                self.commit()
        except BaseException:
            self.abandon()
            raise
        finally:
            if self._spool is not None:
                self._spool.close()
        if kind is not None:
            self.abandon()

    @abstractmethod
    def commit(self) -> None:
        """Let what was written appear."""

    @abstractmethod
    def abandon(self) -> None:
        """Remove what was written."""


def _told(ids: Ids | None) -> Ids | None:
    """Ids without the code that stands for none."""
    if ids is None or not len(ids.codes) or ids.codes.min() >= 0:
        return ids
    if ids.codes.max() < 0:
        return None
    return Ids.of([None if code < 0 else ids.names[code] for code in ids.codes.tolist()])


class OneFile(Output):
    """All rows in one file, or on standard output."""

    def __init__(
        self, path: Path | None, form: str, promise: Promise, order: Order, merge: bool
    ) -> None:
        self._path, self._form, self._promise = path, form, promise
        self._file: File | None = None
        self._beside: Path | None = None  # the metadata in the making
        if path is not None and not path.parent.is_dir():
            raise ParameterError(f"there is no folder {path.parent} to write {path.name} into")
        super().__init__(order, merge, None if path is None else path.parent)

    def target(self, source: Source, file: int, layout: Layout, user: Any, trace: Any) -> int:
        if not self._targets:
            self._targets.append(Target(None, layout))
            self.keys.append(())
        return 0

    def _put(self, target: int, rows: Released) -> None:
        if self._file is None:
            layout = self._targets[target].layout
            self._file = File(self._path, self._form, layout, self._promise)
        self._file.writer.write(rows)

    def commit(self) -> None:
        if self._file is None:
            layout = self._targets[0].layout if self._targets else Layout()
            self._file = File(self._path, self._form, layout, self._promise)
        self._file.complete()
        if self._path is None:
            self._file.put()
            return
        beside = self._path.with_name(self._path.name + METADATA)
        if self._form in _WITHOUT_METADATA:
            self._beside, file = part(beside)
            with file:
                file.write(_described(self._path.name, self._promise).encode())
            self._beside.chmod(0o666 & ~umask())
        # What was promised for an older file is never beside a newer one, not even for a moment.
        beside.unlink(missing_ok=True)
        self._file.put()
        if self._beside is not None:
            self._beside.replace(beside)

    def abandon(self) -> None:
        if self._file is not None:
            self._file.abandon()
        if self._beside is not None:
            self._beside.unlink(missing_ok=True)


class Folder(Output):
    """A file for each file that was read, for each user, or in a tree for each user or trace."""

    def __init__(
        self,
        path: Path,
        form: str,
        promise: Promise,
        split_by: SplitBy,
        order: Order,
        merge: bool,
    ) -> None:
        self.by_user = split_by == "user"
        self.apart = form not in _TREES and not self.by_user
        self._path, self._form, self._promise = path, form, promise
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ParameterError(f"{path} is there already; name a new or an empty folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._part = Path(tempfile.mkdtemp(".part", ".hereish-", path.parent))
        self._numbers: dict[Path, tuple[int, int | None]] = {}  # of targets, and of their file
        self._open: tuple[int, File] | None = None
        self._begun: set[int] = set()
        super().__init__(order, merge, self._part)

    def check(self, source: Source, piece: Piece) -> None:
        if self.by_user and self._form not in _TREES:
            super().check(source, piece)

    def target(self, source: Source, file: int, layout: Layout, user: Any, trace: Any) -> int:
        name = same_name("" if user is None else user)
        key: Key
        if self._form in _TREES and (self.by_user or source.format != self._form):
            # There a file is made of ids, whatever file they came from.
            below, key = Path(module(self._form).file_name(user, trace)), (name_key(name),)
            owner = None
        elif self.by_user:
            below, key = Path(file_part(name or "user") + ENDINGS[self._form][0]), (name_key(name),)
            owner = None
        else:
            below, key, owner = self._name(source), (file,), file
        number, known = self._numbers.setdefault(below, (len(self._targets), owner))
        if known != owner:
            raise ParameterError(f"two inputs would both be written to {self._path / below}")
        if number == len(self._targets):
            self._targets.append(
                Target(below, layout if owner is not None or self.by_user else Layout())
            )
            self.keys.append((*key, str(below)))
        return number

    def _name(self, source: Source) -> Path:
        if source.format == self._form:
            return source.below
        plain = source.below.with_name(source.below.name.removesuffix(".gz"))
        return plain.with_suffix(ENDINGS[self._form][0])

    def _put(self, target: int, rows: Released) -> None:
        if self._open is None or self._open[0] != target:
            self._close()
            self._open = (target, self._file(target))
        self._open[1].writer.write(rows)

    def _file(self, target: int) -> File:
        self._begun.add(target)
        name, layout = self._targets[target]
        place = self._part / cast("Path", name)
        place.parent.mkdir(parents=True, exist_ok=True)
        return File(place, self._form, layout, self._promise)

    def _close(self) -> None:
        if self._open is not None:
            self._open[1].commit()
            self._open = None

    def commit(self) -> None:
        self._close()
        # A file whose points were all refused comes out empty; there is none for a user or trace.
        owned = {number for number, owner in self._numbers.values() if owner is not None}
        for target in sorted(owned - self._begun):
            self._file(target).commit()
        if self._form in _WITHOUT_METADATA:
            described = _described(None, self._promise)
            (self._part / f"csv{METADATA}").write_text(described, encoding="utf-8")
        self._part.chmod(0o777 & ~umask())
        if self._path.is_dir():
            self._path.rmdir()  # it is empty
        self._part.replace(self._path)

    def abandon(self) -> None:
        if self._open is not None:
            self._open[1].abandon()
        shutil.rmtree(self._part, ignore_errors=True)


def _described(name: str | None, promise: Promise) -> str:
    """Metadata for a format that has no place for any, as "CSV on the Web" has them."""
    about: dict[str, Any] = {"@context": "http://www.w3.org/ns/csvw"}
    if name is not None:
        about["url"] = name
    about |= {"dc:description": promise.guarantee, "hereish": promise.as_dict()}
    return json.dumps(about, indent=2) + "\n"
