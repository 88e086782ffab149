"""Text in UTF-8, UTF-16 or Latin-1 (Windows-1252), as spreadsheets save it."""

from __future__ import annotations

import codecs
import contextlib
import io
import re
from collections.abc import Iterator
from typing import Protocol

from hereish.traces.faults import UnreadableFileError

CHUNK_BYTES = 1 << 18
_SNIFFED = 64  # bytes, by which UTF-16 without a mark is known
# Some loggers fill each field to its width with zeros. At the end of a file they are of a crash.
_PADDING = re.compile(rb"\0+(?=[,;\t|])|(?<=[,;\t|])\0+(?=\r?\n)")
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r\f")


def utf16_encoding(data: bytes) -> str | None:
    """The encoding of a file in UTF-16, by its first bytes; None if it is not."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    head = data[:_SNIFFED]
    if len(head) < 4 or b"\0" not in head:
        return None
    # Letters of most languages' headers: every second byte is zero, and the others are not.
    even, odd = head[::2], head[1::2]
    if not any(odd) and all(even):
        return "utf-16-le"
    return "utf-16-be" if not any(even) and all(odd) else None


def mixed_encodings() -> UnreadableFileError:
    """Of a file that is UTF-16 in part."""
    return UnreadableFileError(
        "it begins as UTF-16 and goes on as something else",
        expected="text in one encoding",
        remedy="save it as UTF-8",
    )


def utf8_head(data: bytes) -> bytes:
    """The first bytes of a file without a mark, and in UTF-8, as far as they can be read."""
    encoding = utf16_encoding(data)
    if encoding is None:
        return data.removeprefix(codecs.BOM_UTF8)
    return data.decode(encoding, errors="ignore").encode(errors="ignore")


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes: ...


def utf8_chunks(file: Readable) -> Iterator[bytes]:
    """The bytes of a file without a mark at its beginning; UTF-16 as UTF-8."""
    chunk = file.read(CHUNK_BYTES)
    encoding = utf16_encoding(chunk)
    if encoding is not None:
        yield from _transcoded(chunk, file, encoding)
        return
    chunk = chunk.removeprefix(codecs.BOM_UTF8) or file.read(CHUNK_BYTES)
    while chunk:
        yield chunk
        chunk = file.read(CHUNK_BYTES)


def _transcoded(chunk: bytes, file: Readable, encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    while True:
        text = None
        # The error of a failed decoding holds the text, so nothing is raised while it is handled.
        with contextlib.suppress(UnicodeError):
            text = decoder.decode(chunk, final=not chunk).encode()
        if text is None:
            raise mixed_encodings()
        yield text
        if not chunk:
            return
        chunk = file.read(CHUNK_BYTES)


class LineDecoder:
    """Decodes lines of UTF-8, or from the first byte on that is none, of Windows-1252.

    A file that has had letters in UTF-8 before such a byte is damaged, and in neither.
    """

    def __init__(self) -> None:
        self._ascii = True  # no letter so far tells the encoding
        self._latin = False

    def lines(self, data: bytes, before: int) -> Iterator[str]:
        """The lines of some bytes, which follow `before` others."""
        text = None if self._latin else self._utf8(data)
        if text is not None:
            yield from io.StringIO(text, newline="")
            return
        for line, part in enumerate(data.splitlines(keepends=True), before + 1):
            yield self._decode(part, line)

    def is_utf8(self, data: bytes) -> bool:
        """Whether the next bytes are lines of UTF-8, as all before them are."""
        if self._latin:
            return False
        return (data.isascii() and b"\0" not in data) or self._utf8(data) is not None

    def _decode(self, part: bytes, line: int) -> str:
        if b"\0" in part:
            part = _PADDING.sub(b"", part)
        text = None if self._latin else self._utf8(part)
        if text is not None:
            return text
        if _CONTROLS.isdisjoint(part) and (self._ascii or self._latin):
            self._latin = True
            with contextlib.suppress(UnicodeDecodeError):
                return part.decode("cp1252")
            return part.decode("latin-1")
        raise UnreadableFileError(
            "it is not text in UTF-8",
            line,
            expected="text in UTF-8, UTF-16 or Latin-1",
            remedy="save it as UTF-8",
        )

    def _utf8(self, data: bytes) -> str | None:
        with contextlib.suppress(UnicodeDecodeError):
            text = None if b"\0" in data else data.decode()
            self._ascii = self._ascii and (text is None or text.isascii())
            return text
        return None
