"""The lines of a text, one at a time; or blocks of them, for whoever reads many at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from hereish.traces.faults import UnreadableFileError
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._encodings import LineDecoder, utf8_chunks

LONGEST_LINE_BYTES = 1 << 20
BLOCK_BYTES = 1 << 21  # of a block: enough to hide Python, few enough for the cache
_NEWLINE = ord("\n")
HEAD_LINES = 16  # are blocks of their own: most headers are among them


class Lines:
    r"""Iterates over the lines of a text with their ends, which are \n, \r\n or \r.

    Between two blocks `next_block` gives all bytes of the next one, which can be taken in place of
    its lines.
    """

    def __init__(self, file: SourceBytes) -> None:
        self._pieces = _whole_lines(file)
        self._head: deque[bytes] | None = None
        self._decoder = LineDecoder()
        self._left = 0  # lines of this block that were not read
        self._lines: Iterator[str] = iter(())
        self._next: bytes | None = None  # block, if it is known
        self._error: Exception | None = None  # what comes after the pieces that were read
        self.next_count = 0  # the lines of the next block
        self.before = 0  # lines before the next block
        self.taken = 0  # of them, those of blocks that were taken

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if not self._left:
            block = self.next_block()
            if not block:
                raise StopIteration
            self._next = None
            self._left = self.next_count
            self._lines = self._decoder.lines(block, self.before)
            self.before += self._left
        self._left -= 1
        return next(self._lines)

    @property
    def between_blocks(self) -> bool:
        return not self._left

    def next_block(self) -> bytes:
        """The lines that come next, as often as it is asked for; nothing at the end."""
        if self._next is None:
            self._next = self._gather()
            self.next_count = count_lines(self._next)
        return self._next

    def is_utf8(self, block: bytes) -> bool:
        """Whether the next block is text in UTF-8, as all before it is."""
        return self._decoder.is_utf8(block)

    def take_block(self) -> None:
        """Pass over the lines of the next block."""
        self.before += self.next_count
        self.taken += self.next_count
        self._next = None

    def _gather(self) -> bytes:
        if self._head is None:
            lines = self._piece().splitlines(keepends=True)
            self._head = deque(lines[:HEAD_LINES])
            if rest := b"".join(lines[HEAD_LINES:]):
                self._head.append(rest)
        if self._head:
            return self._head.popleft()
        if self._error is not None:
            raise self._error
        pieces = [self._piece()]
        size = len(pieces[0])
        while pieces[-1] and size < BLOCK_BYTES:
            try:
                pieces.append(self._piece())
            except Exception as error:  # noqa: BLE001  # comes after the lines before it
                self._error = error.with_traceback(None)
                break
            size += len(pieces[-1])
        return b"".join(pieces)

    def _piece(self) -> bytes:
        return next(self._pieces, b"")


def count_lines(data: bytes) -> int:
    """How many lines some bytes are, the last of which may have no end."""
    ends = int(np.count_nonzero(np.frombuffer(data, np.uint8) == _NEWLINE))
    if b"\r" in data:
        ends += data.count(b"\r") - data.count(b"\r\n")
    return ends + (bool(data) and not data.endswith((b"\n", b"\r")))


def _whole_lines(file: SourceBytes) -> Iterator[bytes]:
    """All bytes of a text, cut after ends of lines."""
    before, rest = 0, b""
    for chunk in utf8_chunks(file):
        data = rest + chunk
        # The last line may go on; and \n may follow a \r that is the last byte.
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
        complete, rest = data[:end], data[end:]
        if complete:
            yield complete
            before += count_lines(complete)
        if len(rest) > LONGEST_LINE_BYTES:
            raise UnreadableFileError(
                "it is too long for a row of a table",
                before + 1,
                expected="lines of at most a megabyte",
                remedy="save it with an end of line after each row",
            )
    if rest:
        yield rest
