"""The bytes of a source in blocks, with the share that has been read."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import zlib
from collections.abc import Iterator
from typing import Any

from hereish.traces.faults import UnreadableFileError
from hereish.traces.formats.base import Source


class SourceBytes:
    """A source that is being read. Damaged compression is an `UnreadableFileError`."""

    def __init__(self, source: Source) -> None:
        self._size = source.size
        self._file = source.open()
        # Of a gzip file, the size is that of its compressed bytes, so those are counted.
        self._counted: Any = getattr(self._file, "fileobj", self._file)
        self._ours = source.path is not None  # standard input is not ours to close

    def __enter__(self) -> SourceBytes:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            self._file.close()

    def read(self, size: int) -> bytes:
        """At most so many bytes; none at the end."""
        with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):
            return self._file.read(size)
        # Not raised above, where the error would carry one that may quote the data.
        raise UnreadableFileError("it is not a gzip file, or a damaged one")

    def blocks(self, size: int) -> Iterator[bytes]:
        while block := self.read(size):
            yield block

    def done(self) -> float:
        """The share of the bytes that has been read; 0 while their number is unknown."""
        return min(1.0, self._counted.tell() / self._size) if self._size else 0.0


def check_not_utf16(data: bytes) -> None:
    """Raises for the beginning of a file that says it is UTF-16."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UnreadableFileError("it is UTF-16; save it as UTF-8")
