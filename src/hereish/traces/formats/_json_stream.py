"""The items of large JSON files, one after the other. Needs `pip install 'hereish[formats]'`."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from hereish.traces.faults import UnreadableFileError, damaged_file, empty_file
from hereish.traces.formats._bytes import SourceBytes, read_whole
from hereish.traces.formats._encodings import Readable, utf8_chunks
from hereish.traces.formats._json_kinds import HEAD_BYTES
from hereish.traces.formats.base import Source, optional_dependency


class JsonFile:
    """A JSON file that is read from its begin, any number of times."""

    def __init__(self, source: Source) -> None:
        self._source = source
        # Standard input cannot be read again.
        self._data = read_whole(source) if source.path is None else None
        self._done = 0.0
        self._file: SourceBytes | None = None
        with self._opened() as file:
            self.head = _read_head(file)
        if not self.head.strip():
            raise empty_file("JSON")

    def done(self) -> float:
        """The share of the present reading that is done."""
        return self._done if self._file is None else self._file.done()

    def items(self, prefix: str) -> Iterator[Any]:
        """The values below a prefix, such as `locations.item`, each as Python has it."""
        with self._opened() as file:
            self._file = file if isinstance(file, SourceBytes) else None
            try:
                yield from _parse_items(_Chunks(file), prefix)
            finally:
                self._file, self._done = None, 1.0

    def _opened(self) -> Any:
        return SourceBytes(self._source) if self._data is None else io.BytesIO(self._data)


class _Chunks:
    """The bytes of a file in UTF-8, as the parser reads them."""

    def __init__(self, file: Readable) -> None:
        self._chunks = utf8_chunks(file)
        self._rest = b""
        self._guard = _Guard()

    def read(self, size: int = -1) -> bytes:
        while size and not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._guard.add(chunk)
            self._rest = chunk
        end = len(self._rest) if size < 0 else size
        part, self._rest = self._rest[:end], self._rest[end:]
        return part


class _Guard:
    """How deep a text is nested, and how long its texts and numbers are.

    The parser keeps a path of each level, so memory is the square of their number; and it looks at
    a text or a number from its beginning for each chunk, so time is the square of its length.
    """

    def __init__(self) -> None:
        self._before = 0
        self._in_text = False
        self._rest = b""  # a backslash at the end of a chunk belongs to what follows
        self._length = 0  # of the text or number that goes on, in whole chunks

    def add(self, chunk: bytes) -> None:
        """Raises if the brackets that are open at any place are too many, or a text is too long."""
        data = self._rest + chunk
        whole = data.rstrip(b"\\")
        self._rest = data[len(whole) :][: (len(data) - len(whole)) % 2]
        bare = whole.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_NESTING)
        texts = bare.split(b'"')
        goes_on = len(texts) == 1 and (self._in_text or not chunk.strip(_OF_NUMBERS))
        self._length = self._length + len(chunk) if goes_on else 0
        if self._length > _LONGEST_BYTES:
            raise damaged_file("a text or a number in it is far too long", "JSON")
        outside = b"".join(texts[self._in_text :: 2])
        self._in_text ^= len(texts) % 2 == 0
        if not outside:
            return
        steps = np.where(np.isin(np.frombuffer(outside, np.uint8), _OPENING), 1, -1)
        depths = self._before + np.cumsum(steps)
        self._before = int(depths[-1])
        if depths.max() > _DEEPEST:
            raise damaged_file("it is nested too deeply", "JSON")


_DEEPEST = 200
_LONGEST_BYTES = 1 << 22
_OF_NUMBERS = b"0123456789.eE+-"
_OPENING = np.frombuffer(b"[{", np.uint8)
_NOT_NESTING = bytes({*range(256)} - {*b'"[]{}'})


def _read_head(file: Readable) -> bytes:
    chunks, head = _Chunks(file), b""
    while len(head) < HEAD_BYTES and (more := chunks.read(HEAD_BYTES - len(head))):
        head += more
    return head


def _parse_items(file: _Chunks, prefix: str) -> Iterator[Any]:
    with optional_dependency("reading this kind of JSON", "formats"):
        import ijson
    items = iter(ijson.items(file, prefix, use_float=True))
    while True:
        problem = None
        try:
            item = next(items, _END)
        except UnreadableFileError:
            raise
        except ijson.IncompleteJSONError as error:
            # The same class for what is broken, whose message quotes the text around it.
            early = "premature EOF" in str(error) or str(error).startswith("Incomplete")
            problem = "it ends too early" if early else "its JSON is broken"
        except Exception:  # noqa: BLE001  # whatever it is, it may quote the text
            problem = "its JSON is broken"
        if problem is not None:  # not raised above, where the error would carry the other
            raise damaged_file(problem, "JSON")
        if item is _END:
            return
        yield item


_END = object()


def parse_line(text: str) -> Any:
    """The JSON of one line; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
