"""Files that appear whole or not at all.

Everything is written beside its place under another name, and put there in the end. What is in the
unfinished file is released data only; if anything fails it is removed.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol, Self, cast

import numpy as np

from hereish.errors import ParameterError
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
        if path is None:
            self._file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115  # closed in commit
        else:
            handle, part = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
            self._part = Path(part)
            self._file = os.fdopen(handle, "wb")
        self._sink = self._file
        if path is not None and path.suffix == ".gz":
            self._sink = cast("BinaryIO", gzip.GzipFile("", "wb", fileobj=self._file, mtime=0))
        self.writer: Writer = module(form).writer(self._sink, _fitting(layout, form), promise)

    def commit(self) -> None:
        self.writer.finish()
        if self._sink is not self._file:
            self._sink.close()
        self._file.flush()
        if self._path is None:
            self._file.seek(0)
            shutil.copyfileobj(self._file, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            self._file.close()
            return
        os.fsync(self._file.fileno())
        self._file.close()
        self._part.chmod(0o666 & ~_umask())
        self._part.replace(self._path)

    def abandon(self) -> None:
        if hasattr(self.writer, "abandon"):
            self.writer.abandon()
        self._file.close()
        if self._path is not None:
            self._part.unlink(missing_ok=True)


def _fitting(layout: Layout, form: str) -> Layout:
    if form == "geoparquet":
        return replace(layout, geometry=layout.geometry or "geometry")
    return layout


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class _Leaving:
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

    def commit(self) -> None:
        raise NotImplementedError

    def abandon(self) -> None:
        raise NotImplementedError


class OneFile(_Leaving):
    """All rows in one file, or on standard output."""

    apart = False

    def __init__(self, path: Path | None, form: str, promise: Promise) -> None:
        self._path, self._form, self._promise = path, form, promise
        self._file: _File | None = None
        self._first: tuple[Source, bool, bool] | None = None
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
        if self._path is not None and self._form in _WITHOUT_METADATA:
            described = _described(self._path.name, self._promise)
            beside = self._path.with_name(self._path.name + METADATA)
            part = beside.with_name(f".{beside.name}.part")
            part.write_text(described, encoding="utf-8")
            part.replace(beside)
        self._file.commit()

    def abandon(self) -> None:
        if self._file is not None:
            self._file.abandon()


class Folder(_Leaving):
    """A file for each file that was read, or for GeoLife and T-Drive for each trace or user."""

    def __init__(self, path: Path, form: str, promise: Promise) -> None:
        self.apart = form not in _TREES  # there a file is made of ids, whatever file they came from
        self._path, self._form, self._promise = path, form, promise
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ParameterError(f"{path} is there already; name a new or an empty folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._part = Path(tempfile.mkdtemp(".part", f".{path.name}.", path.parent))
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
        for one in np.unique(key).tolist():
            user, trace = (
                users.names[one // len(traces.names)],
                traces.names[one % len(traces.names)],
            )
            name = module(self._form).file_name(user, trace)
            self._trees.setdefault(name, []).append(rows.take(np.flatnonzero(key == one)))

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
