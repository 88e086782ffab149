"""What a format of trace files is: one `Format` per module of this folder, in the registry.

A reader yields a `RowBatch` at a time, small enough for memory however large the file is. It marks
rows that cannot be used with a `Fault` and goes on; it raises `UnreadableFileError` where the rest
of the file cannot be parsed. No message of it repeats a place.
"""

from __future__ import annotations

import contextlib
import gzip
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

from hereish.errors import ParameterError
from hereish.traces.columns import Columns, Layout
from hereish.traces.formats._archive import open_member
from hereish.traces.formats._part_file import FilePart, PartFile
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import ReleasedRows, RowBatch


@dataclass(frozen=True)
class Source:
    """A file to read, or standard input."""

    path: Path | None
    format: Format
    below: Path  # its name below the folder it was found in
    number: int | None = None  # among the sources, from 1; None if it is the only one
    # Inside an archive: its name there, after those of the archives in between.
    members: tuple[str, ...] = ()
    member_bytes: int = 0  # its size in the archive
    part: FilePart | None = None  # read of it; None: all

    @property
    def name(self) -> str:
        if self.path is None:
            return "standard input"
        return ": ".join([str(self.path), *self.members])

    @property
    def location(self) -> Path | None:
        """The path, as if archives were folders; None for standard input."""
        return self.path and self.path.joinpath(*self.members)

    @property
    def size(self) -> int:
        """In bytes; 0 if unknown."""
        if self.members:
            return self.member_bytes
        with contextlib.suppress(
            OSError
        ):  # it has gone since it was found, which is said when it is opened
            return 0 if self.path is None else self.path.stat().st_size
        return 0

    def open(self) -> BinaryIO:
        """The bytes of the file, decompressed if its name ends in .gz."""
        if self.path is None:
            return sys.stdin.buffer
        if self.part is not None:
            return cast("BinaryIO", PartFile(self.path, self.part))
        file = open_member(self.path, self.members) if self.members else self.path.open("rb")
        if not self.below.name.lower().endswith(".gz"):
            return file
        # Of its own file object, unlike gzip.open with one, so that closing closes both.
        return cast("BinaryIO", _GzipFile(file))


class _GzipFile(gzip.GzipFile):
    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._packed = file

    def close(self) -> None:
        super().close()
        self._packed.close()


class Writer(ABC):
    """Takes released rows in any number of calls; the file is complete after `finish`."""

    @abstractmethod
    def write(self, rows: ReleasedRows) -> None: ...

    @abstractmethod
    def finish(self) -> None: ...

    def abandon(self) -> None:  # noqa: B027  # most writers hold nothing that must be let go of
        """Instead of `finish`, where the file will be removed: write nothing more to it."""


Reader: TypeAlias = Callable[[Source, Columns], Iterator[RowBatch]]
# The parts of a large file for so many processes, none of which probably has a user of another;
# nothing if it cannot be divided.
Divider: TypeAlias = Callable[[Source, Columns, int], Sequence[FilePart]]
OpenWriter: TypeAlias = Callable[[BinaryIO, Layout, GuaranteeMetadata], Writer]


def _any_file(path: Path) -> bool:
    return True


@dataclass(frozen=True)
class Format:
    """All facts about a format. Its functions must be picklable: files are read by processes."""

    name: str  # as --format and --to have it
    extensions: tuple[str, ...]  # the first is given to the files that are written
    read: Reader
    open_writer: OpenWriter | None = None  # None: it is read and not written
    # Of the files with its extensions that are found in a folder: which of them are data.
    is_data_file: Callable[[Path], bool] = _any_file
    # Whether the first bytes of a file are of this format, where others have its extensions too.
    sniff: Callable[[bytes], bool] | None = None
    # Extensions of others, under which a file is of this format if `sniff` says so.
    sniffed_extensions: tuple[str, ...] = ()
    # For formats that are a folder with a file per user or trace: the file's path below it.
    path_in_folder: Callable[[object | None, object | None], str] | None = None
    # The guarantee that a file contains. None: it cannot be read back from the file.
    read_guarantee: Callable[[Source], GuaranteeMetadata | None] | None = None
    sidecar: bool = False  # the guarantee is written to a file beside it: it has no place for it
    compressed: bool = False  # it compresses what is in it, so .gz is refused
    reads_ahead: bool = False  # reading it leaves the interpreter free, so a thread pays off
    divide: Divider | None = None  # None: it is read from its beginning to its end
    columns: bool = False  # places and times are in columns, which options name
    line_word: str = "line"  # what the `line` of a row counts, for error messages


@contextlib.contextmanager
def optional_dependency(subject: str, extra: str) -> Iterator[None]:
    """Around the import of what only some formats need."""
    try:
        yield
    except ImportError:
        raise ParameterError(f"{subject} needs more: pip install 'hereish[{extra}]'") from None
