"""Plain points of GPX, read many at once; the XML parser gets an empty element in their place.

A point is plain if it has a latitude, a longitude and children of plain text, in letters of ASCII:
no attributes, entities or prefixes, and no > within a text, so that no comment begins or ends
inside of it. Taken out, it leaves a file that is well formed exactly if it was before.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hereish.traces.formats._encodings import utf16_encoding

_SPACE = r"[ \t\r\n]*"
_TEXT = r"[\t\r\n !-%'-;=?-\\^-~]*"
_CHILD = r"<(?P<NAME>[A-Za-z][A-Za-z0-9]*)>" + _TEXT + r"</(?P=NAME)>"
_PLAIN = re.compile(
    r'<trkpt lat="([-+.0-9eE]*)" lon="([-+.0-9eE]*)">'
    + (r"(?:" + _SPACE + r"(?!<time>)" + _CHILD.replace("NAME", "before") + r")*")
    + (r"(?:" + _SPACE + r"<time>(" + _TEXT + r")</time>)?")
    + (r"(?:" + _SPACE + _CHILD.replace("NAME", "after") + r")*")
    + (_SPACE + r"</trkpt>" + _SPACE)
)
MARK = "hereish-points"  # the attribute of an element that stands for plain points: which run
_ENCODING = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']([^\"']*)")


class PlainPoint(NamedTuple):
    """Its line, and its texts; None: it has no time."""

    line: int
    lat: str
    lon: str
    time: str | None


class PlainPoints:
    """Takes plain points out of the blocks of a file."""

    def __init__(self) -> None:
        self._line = 1
        self._possible: bool | None = None  # None before the first block
        self._runs = 0
        self._found: dict[str, list[PlainPoint]] = {}  # by run, until they are taken

    def without_points(self, block: bytes) -> bytes:
        """A block with one element for each run of points, and as many lines."""
        if self._possible is None:
            self._possible = _is_ascii_like(block)
        if not self._possible or MARK.encode() in block:
            self._line += block.count(b"\n")
            return block
        text = block.decode("latin-1")  # a letter for each byte
        pieces: list[str] = []
        run: list[PlainPoint] = []
        end = 0
        for match in _PLAIN.finditer(text):
            begin = match.start()
            if begin != end or not run:
                pieces += (self._element(run), text[end:begin])
                self._line += pieces[-1].count("\n")
                run = []
            lat, lon, _, time, _ = match.groups()
            run.append(PlainPoint(self._line, lat, lon, time))
            end = match.end()
            self._line += text.count("\n", begin, end)
        pieces += (self._element(run), text[end:])
        self._line += pieces[-1].count("\n")
        return "".join(pieces).encode("latin-1")

    def _element(self, run: list[PlainPoint]) -> str:
        """In place of some points, up to this line; nothing if there are none."""
        if not run:
            return ""
        name = f"{self._runs}"
        self._runs += 1
        self._found[name] = run
        lines = "\n" * (self._line - run[0].line)
        return f'<trkpt {MARK}="{name}"{lines}/>'

    def take(self, name: str) -> list[PlainPoint]:
        """The points of a run, once."""
        return self._found.pop(name, [])


def _is_ascii_like(head: bytes) -> bool:
    """Whether bytes below 128 are what they are in ASCII."""
    declared = _ENCODING.search(head[:512])
    known = declared is None or declared[1].lower() in (b"utf-8", b"us-ascii", b"iso-8859-1")
    return known and utf16_encoding(head) is None
