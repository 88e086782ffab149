"""Files that appear whole or not at all.

Everything is written beside its place under another name, and put there in the end. What is in the
unfinished file is released data only; if anything fails it is removed.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import sys
import tempfile
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol, Self, cast

import numpy as np

from hereish.errors import HereishError, ParameterError
from hereish.traces.piece import Ids, Layout, Promise, Released, Writer, joined
from hereish.traces.sources import ENDINGS, METADATA, STANDARD, Source, format_of, module

_TREES = ("geolife", "tdrive")  # formats with a file for each user or trace
_WITHOUT_METADATA = ("csv", "tdrive")


class Output(Protocol):
    """Where released rows go. They are there once it was left without an exception."""

    apart: bool  # what came in different files goes to different files

    def write(self, source: Source, layout: Layout, rows: Released) -> None: ...

    def source_ended(self, source: Source) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def output(name: str, sources: list[Source], form: str | None, promise: Promise) -> Output:
    """The output that a name means: a file, a folder, or `-` for standard output."""
    known = format_of(name)
    if name.endswith(".gz") and (form or known) in ("parquet", "geoparquet"):
        raise ParameterError(f"Parquet is packed inside; leave .gz out of {name}")
    if name == STANDARD:
        return OneFile(None, form or "csv", promise)
    path = Path(name)
    folder = path.is_dir() or name.endswith(("/", os.sep)) or not path.suffix
    if folder or (form in _TREES and known != form):
        return Folder(path, form or _common_format(sources), promise)
    if form is None and known is None:
        raise ParameterError(
            f"the name {name} does not tell its format; give --to, one of {', '.join(ENDINGS)}"
        )
    return OneFile(path, form or cast("str", known), promise)


def _common_format(sources: list[Source]) -> str:
    formats = {source.format for source in sources}
    if len(formats) > 1:
        raise ParameterError(
            f"the inputs are {', '.join(sorted(formats))}; say which the folder shall have: --to"
        )
    return formats.pop()


class _File:
    """One file in the making."""

    def __init__(self, path: Path | None, form: str, layout: Layout, promise: Promise) -> None:
        self._path = path
        create = module(form).writer  # before there is a file that would have to go again
        if path is None:
            self._file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115  # closed in put
        else:
            self._part, self._file = _part(path)
        self._sink = self._file
        if path is not None and path.suffix == ".gz":
            self._sink = cast("BinaryIO", gzip.GzipFile("", "wb", fileobj=self._file, mtime=0))
        self.writer: Writer = create(self._sink, _fitting(layout, form), promise)

    def complete(self) -> None:
        """All is written, and safe on the disk; it has only to be put in its place."""
        self.writer.finish()
        if self._sink is not self._file:
            self._sink.close()
        self._file.flush()
        if self._path is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._part.chmod(0o666 & ~_umask())

    def put(self) -> None:
        """Put it in its place: from here on it is released."""
        if self._path is not None:
            self._part.replace(self._path)
            return
        self._file.seek(0)
        try:
            shutil.copyfileobj(self._file, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        except OSError:
            cut = True
        else:
            cut = False
        self._file.close()
        if cut:
            raise CutOff(
                "standard output was closed before its end; what has been read of it is released"
            )

    def commit(self) -> None:
        self.complete()
        self.put()

    def abandon(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        with contextlib.suppress(Exception):
            if hasattr(self.writer, "abandon"):
                self.writer.abandon()
        with contextlib.suppress(OSError):
            self._file.close()
        if self._path is not None:
            self._part.unlink(missing_ok=True)


class CutOff(HereishError):  # noqa: N818  # it describes what happened, as the others do
    """Part of an output has gone to somebody who did not want the rest."""


def _part(path: Path) -> tuple[Path, BinaryIO]:
    """A file beside the place of another, that nobody else uses."""
    handle, name = tempfile.mkstemp(".part", ".hereish-", path.parent)
    return Path(name), os.fdopen(handle, "wb")


def _fitting(layout: Layout, form: str) -> Layout:
    if form == "geoparquet":
        return replace(layout, geometry=layout.geometry or "geometry")
    return layout


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class _Leaving(ABC):
    """Commits if all went well, abandons otherwise."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            try:
                self.commit()
            except BaseException:
                self.abandon()
                raise
        else:
            self.abandon()

    @abstractmethod
    def commit(self) -> None:
        """Let what was written appear."""

    @abstractmethod
    def abandon(self) -> None:
        """Remove what was written."""


class OneFile(_Leaving):
    """All rows in one file, or on standard output."""

    apart = False

    def __init__(self, path: Path | None, form: str, promise: Promise) -> None:
        self._path, self._form, self._promise = path, form, promise
        self._file: _File | None = None
        self._first: tuple[Source, bool, bool] | None = None
        self._beside: Path | None = None  # the metadata in the making
        if path is not None and not path.parent.is_dir():
            raise ParameterError(f"there is no folder {path.parent} to write {path.name} into")

    def write(self, source: Source, layout: Layout, rows: Released) -> None:
        self._check_ids(source, rows)
        if self._file is None:
            self._file = _File(self._path, self._form, layout, self._promise)
        self._file.writer.write(rows)

    def _check_ids(self, source: Source, rows: Released) -> None:
        """A table has a column or it has not: files that differ in it are not put into one."""
        here = (rows.user is not None, rows.trace is not None)
        if self._first is None:
            self._first = (source, *here)
        for told, first, what in zip(here, self._first[1:], ("users", "traces"), strict=True):
            if told != first:
                some, none = (source, self._first[0]) if told else (self._first[0], source)
                raise ParameterError(
                    f"{some.name} tells {what} and {none.name} none; sanitise them apart, or into "
                    "a folder"
                )

    def source_ended(self, source: Source) -> None:
        pass

    def commit(self) -> None:
        if self._file is None:
            self._file = _File(self._path, self._form, Layout(), self._promise)
        self._file.complete()
        if self._path is None:
            self._file.put()
            return
        beside = self._path.with_name(self._path.name + METADATA)
        if self._form in _WITHOUT_METADATA:
            self._beside, file = _part(beside)
            with file:
                file.write(_described(self._path.name, self._promise).encode())
            self._beside.chmod(0o666 & ~_umask())
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


class Folder(_Leaving):
    """A file for each file that was read, or for GeoLife and T-Drive for each trace or user."""

    def __init__(self, path: Path, form: str, promise: Promise) -> None:
        self.apart = form not in _TREES  # there a file is made of ids, whatever file they came from
        self._path, self._form, self._promise = path, form, promise
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ParameterError(f"{path} is there already; name a new or an empty folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._part = Path(tempfile.mkdtemp(".part", ".hereish-", path.parent))
        self._open: dict[Source, _File] = {}
        self._names: set[Path] = set()
        self._trees: dict[str, list[Released]] = {}

    def write(self, source: Source, layout: Layout, rows: Released) -> None:
        if self._form in _TREES and source.format != self._form:
            self._remember(rows)
            return
        if source not in self._open:
            self._open[source] = self._begun(self._name(source), layout)
        self._open[source].writer.write(rows)

    def _name(self, source: Source) -> Path:
        if source.format == self._form:
            return source.below
        plain = source.below.with_name(source.below.name.removesuffix(".gz"))
        return plain.with_suffix(ENDINGS[self._form][0])

    def _begun(self, below: Path, layout: Layout) -> _File:
        if below in self._names:
            raise ParameterError(f"two inputs would both be written to {self._path / below}")
        self._names.add(below)
        place = self._part / below
        place.parent.mkdir(parents=True, exist_ok=True)
        return _File(place, self._form, layout, self._promise)

    def _remember(self, rows: Released) -> None:
        users = rows.user or Ids(np.zeros(len(rows), dtype=np.int64), [None])
        traces = rows.trace or Ids(np.zeros(len(rows), dtype=np.int64), [None])
        key = users.codes * len(traces.names) + traces.codes
        order = np.argsort(key, kind="stable")
        begins = np.flatnonzero(np.diff(key[order], prepend=-1))
        for own in np.split(order, begins[1:]) if len(order) else ():
            user, trace = divmod(int(key[own[0]]), len(traces.names))
            name = module(self._form).file_name(users.names[user], traces.names[trace])
            self._trees.setdefault(name, []).append(rows.take(own))

    def source_ended(self, source: Source) -> None:
        if source in self._open:
            self._open.pop(source).commit()

    def commit(self) -> None:
        for source in list(self._open):
            self.source_ended(source)
        for name, parts in self._trees.items():
            file = self._begun(Path(name), Layout())
            rows = joined(parts)
            file.writer.write(rows.take(np.argsort(rows.at_us, kind="stable")))
            file.commit()
        if self._form in _WITHOUT_METADATA:
            described = _described(None, self._promise)
            (self._part / f"csv{METADATA}").write_text(described, encoding="utf-8")
        self._part.chmod(0o777 & ~_umask())
        if self._path.is_dir():
            self._path.rmdir()  # it is empty
        self._part.replace(self._path)

    def abandon(self) -> None:
        for file in self._open.values():
            file.abandon()
        shutil.rmtree(self._part, ignore_errors=True)


def _described(name: str | None, promise: Promise) -> str:
    """Metadata for a format that has no place for any, as "CSV on the Web" has them."""
    about: dict[str, Any] = {"@context": "http://www.w3.org/ns/csvw"}
    if name is not None:
        about["url"] = name
    about |= {"dc:description": promise.guarantee, "hereish": promise.as_dict()}
    return json.dumps(about, indent=2) + "\n"
