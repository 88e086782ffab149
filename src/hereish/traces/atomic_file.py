"""One file that appears completely or not at all.

It is written beside its place under another name, and moved there in the end. The unfinished file
holds released data only; if anything fails it is removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

from hereish.errors import HereishError, ParameterError
from hereish.traces.columns import Layout
from hereish.traces.formats.base import Format, Writer
from hereish.traces.guarantee import GuaranteeMetadata

_MANY_FILES = 16


class OutputClosedError(HereishError):
    """Standard output was closed by its reader, who has part of the output."""


class AtomicFile:
    """One file while it is written; standard output if there is no path.

    In a new folder, which appears as a whole, it has its own name from the beginning, and whoever
    lets the folder appear writes all files to the disk (`sync_files`), which is quicker.
    """

    def __init__(
        self,
        path: Path | None,
        form: Format,
        layout: Layout,
        guarantee: GuaranteeMetadata,
        *,
        in_new_folder: bool = False,
    ) -> None:
        self._path = path
        self._in_new_folder = in_new_folder
        if path is None:
            self._file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115  # closed in publish
        elif in_new_folder:
            self._temporary, self._file = path, path.open("xb")
        else:
            self._temporary, self._file = create_temporary(path)
        self._sink = self._file
        if path is not None and path.suffix == ".gz":
            self._sink = cast("BinaryIO", gzip.GzipFile("", "wb", fileobj=self._file, mtime=0))
        try:
            if form.open_writer is None:
                raise ParameterError(f"{form.name} is read and not written")
            self.writer: Writer = form.open_writer(self._sink, layout, guarantee)
        except BaseException:
            self._remove()
            raise

    def complete(self) -> None:
        """Write the end, and everything to the disk; only `publish` is left to do."""
        self.writer.finish()
        if self._sink is not self._file:
            self._sink.close()
        self._file.flush()
        if self._path is None:
            return
        if not self._in_new_folder:
            os.fsync(self._file.fileno())
            self._temporary.chmod(file_mode())
        self._file.close()

    def publish(self) -> None:
        """Move it to its place: from here on it is released."""
        if self._path is not None:
            if not self._in_new_folder:
                self._temporary.replace(self._path)
            return
        self._file.seek(0)
        try:
            shutil.copyfileobj(self._file, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        except OSError:
            closed = True
        else:
            closed = False
        self._file.close()
        if closed:
            raise OutputClosedError(
                "standard output was closed before its end; what has been read of it is released"
            )

    def commit(self) -> None:
        self.complete()
        self.publish()

    def abandon(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        with contextlib.suppress(Exception):
            self.writer.abandon()
        self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        if self._path is not None:
            self._temporary.unlink(missing_ok=True)


def sync_files(folder: Path, names: Sequence[Path]) -> None:
    """Wait until some files below a folder are on the disk."""
    if len(names) >= _MANY_FILES and _sync_file_system(folder):
        return
    for name in names:
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())


def _sync_file_system(folder: Path) -> bool:
    """Write all that is to be written to the disk of a folder at once, if the system can.

    One by one, each file waits for the disk. False: it cannot, or has failed for some file.
    """
    if sys.platform != "linux" or not _reports_sync_errors(os.uname().release):
        return False
    with contextlib.suppress(OSError, AttributeError):  # a C library without it
        place = os.open(folder, os.O_RDONLY)
        try:
            return bool(ctypes.CDLL(None).syncfs(place) == 0)
        finally:
            os.close(place)
    return False


def _reports_sync_errors(release: str) -> bool:
    """Whether syncfs of this Linux tells that a file could not be written: from 5.8 on."""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= (5, 8)


def create_temporary(path: Path) -> tuple[Path, BinaryIO]:
    """A file with a name of its own, in the folder of another."""
    handle, name = tempfile.mkstemp(".part", ".hereish-", path.parent)
    return Path(name), os.fdopen(handle, "wb")


def file_mode() -> int:
    """The permissions of a new file, which a temporary one does not have."""
    return 0o666 & ~_umask()


def folder_mode() -> int:
    """The permissions of a new folder, which a temporary one does not have."""
    return 0o777 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
