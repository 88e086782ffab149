"""One file that appears whole or not at all.

It is written beside its place under another name, and put there in the end. What is in the
unfinished file is released data only; if anything fails it is removed.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

from hereish.errors import HereishError
from hereish.traces.discovery import module
from hereish.traces.table import Layout, Promise, Writer


class File:
    """One file in the making."""

    def __init__(self, path: Path | None, form: str, layout: Layout, promise: Promise) -> None:
        self._path = path
        create = module(form).writer  # before there is a file that would have to go again
        if path is None:
            self._file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115  # closed in put
        else:
            self._part, self._file = part(path)
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
            self._part.chmod(0o666 & ~umask())

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


def part(path: Path) -> tuple[Path, BinaryIO]:
    """A file beside the place of another, that nobody else uses."""
    handle, name = tempfile.mkstemp(".part", ".hereish-", path.parent)
    return Path(name), os.fdopen(handle, "wb")


def _fitting(layout: Layout, form: str) -> Layout:
    if form == "geoparquet":
        return replace(layout, geometry=layout.geometry or "geometry")
    return layout


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
