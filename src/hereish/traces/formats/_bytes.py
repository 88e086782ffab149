"""The bytes of a source in blocks, with the share that has been read."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

from hereish.traces.faults import UnreadableFileError
from hereish.traces.formats._archive import (
    DAMAGE,
    MOST_NESTED_BYTES,
    MOST_RATIO,
    damaged_member,
    is_damage,
)
from hereish.traces.formats.base import Source

_RATIO_FROM_BYTES = 64 << 20  # read before the first bytes are counted as packed


class SourceBytes:
    """A source that is being read. Damaged compression is an `UnreadableFileError`."""

    def __init__(self, source: Source) -> None:
        self._size = source.size
        self._file = source.open()
        # Of a gzip file, the size is that of its compressed bytes, so those are counted.
        packed = isinstance(self._file, gzip.GzipFile)
        self._counted: Any = getattr(self._file, "fileobj", None) if packed else self._file
        self._compressed = self._counted is not self._file
        self._unpacked = 0
        self._ours = source.path is not None  # standard input is not ours to close

    def __enter__(self) -> SourceBytes:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours:
            self._file.close()

    def read(self, size: int) -> bytes:
        """At most so many bytes; none at the end."""
        data = self._read(size)
        self._unpacked += len(data)
        most = max(_RATIO_FROM_BYTES, MOST_RATIO * self._counted.tell()) if self._compressed else 0
        if self._compressed and self._unpacked > most:
            raise UnreadableFileError(
                f"it unpacks to more than {MOST_RATIO} times its size, which is refused",
                expected="the text of positions, which packs to about a tenth",
                remedy="unpack it first, if you trust it",
            )
        return data

    def _read(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except (*DAMAGE, OSError) as error:
            if not is_damage(error):
                raise
        # Not raised above, where the error would carry one that may quote the data.
        raise damaged_gzip() if self._compressed else damaged_member()

    def blocks(self, size: int) -> Iterator[bytes]:
        while block := self.read(size):
            yield block

    def done(self) -> float:
        """The share of the bytes that has been read; 0 while their number is unknown."""
        return min(1.0, self._counted.tell() / self._size) if self._size else 0.0


def damaged_gzip() -> UnreadableFileError:
    """Of a file whose compression breaks off or is none."""
    return UnreadableFileError(
        "it is not a gzip file, or a damaged one",
        expected="gzip, as its name ends in .gz",
        remedy="copy it again, or remove .gz from its name if it is not compressed",
    )


def read_whole(source: Source) -> bytes:
    """All bytes of a source that can be read only as a whole."""
    with SourceBytes(source) as file:
        data = bytearray()
        for block in file.blocks(1 << 20):
            data += block
            if len(data) > MOST_NESTED_BYTES:
                raise UnreadableFileError(
                    f"it is larger than {MOST_NESTED_BYTES >> 30} GiB, and this format is read as "
                    "a whole",
                    expected="a file that fits into memory",
                    remedy="divide it into several files",
                )
    return bytes(data)
