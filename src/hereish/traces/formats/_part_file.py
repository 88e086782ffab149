"""A part of a file, as whoever reads files sees it: as if there were nothing else in it."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import NamedTuple

from hereish.traces.faults import UnreadableFileError


class FilePart(NamedTuple):
    """From a byte to another, of a text; or from a row to another. Nobody's rows are in two."""

    begin: int
    end: int
    head: int = 0  # bytes at the beginning of the file that belong to each part: the header

    @property
    def size(self) -> int:
        """In bytes, or rows."""
        return self.end - self.begin


def guided_size(left: int, jobs: int, least: int, most: int) -> int:
    """How much of what is left the next part takes: less and less, so that all end together."""
    return min(max(left // (2 * jobs), least), most)


class PartFile:
    """The bytes of a part of a text in UTF-8, after those of the header.

    Anything but UTF-8 is refused: what bytes mean then depends on those before them.
    """

    def __init__(self, path: Path, part: FilePart) -> None:
        self._file = path.open("rb")
        self._stretches = [(0, part.head), (part.begin, part.end)]
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def __enter__(self) -> PartFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, size: int) -> bytes:
        """At most so many bytes; none at the end."""
        while self._stretches:
            at, end = self._stretches.pop(0)
            if at < end:
                self._file.seek(at)
                data = self._file.read(min(size, end - at))
                self._stretches.insert(0, (at + len(data), end if data else 0))
                self._check(data)
                if data:
                    return data
        return b""

    def _check(self, data: bytes) -> None:
        if data.isascii() and not self._decoder.getstate()[0]:
            return
        try:
            self._decoder.decode(data)
            return
        except UnicodeDecodeError:
            pass
        raise UnreadableFileError(
            "it is not text in UTF-8", expected="text in UTF-8", remedy="save it as UTF-8"
        )

    def tell(self) -> int:
        """Where it stands in the whole file."""
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
