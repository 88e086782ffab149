"""XML as a stream of elements with their texts, for formats that are read that way.

Document types are refused, so no entity is ever expanded and nothing outside the file is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from xml.parsers import expat

from hereish.traces.faults import UnreadableFileError, damaged_file, empty_file

EARLY = {
    expat.errors.codes[error]
    for error in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
        expat.errors.XML_ERROR_PARTIAL_CHAR,
    )
}
_DEEPEST = 200
_LONGEST_BYTES = 1 << 20  # of a tag or a comment
_BLANK = b" \t\r\n"
Start = Callable[[str, dict[str, str]], None]
End = Callable[[str, str], None]


class TokenGuard:
    """Refuses a tag or a comment that goes on and on.

    Some versions of expat look at one from its beginning for each block that it is given, so that
    the time grows with the square of its length.
    """

    def __init__(self, parser: expat.XMLParserType, kind: str) -> None:
        self._parser, self._kind = parser, kind
        self._fed = 0

    def check(self, block: bytes, *, blank: bool = False) -> None:
        """After a block was parsed; `blank`: there was nothing but spaces so far."""
        self._fed += len(block)
        if not blank and self._fed - self._parser.CurrentByteIndex > _LONGEST_BYTES + len(block):
            line = self._parser.CurrentLineNumber
            raise damaged_file("a tag or a comment in it is far too long", self._kind, line)


class XmlParser:
    """Calls `start` with the local name and the attributes, `end` with the name and the text.

    The text of an element is its own, without that of elements inside it, and only of those that
    are in `texts`: others may be long. `path` has the local names of the open elements.
    """

    def __init__(self, root: str, kind: str, texts: frozenset[str], start: Start, end: End) -> None:
        self.path: list[str] = []
        self._root, self._kind, self._texts = root, kind, texts
        self._on_start, self._on_end = start, end
        self._parts: list[list[str]] = []
        self._blank = True
        # Prefixes are passed over, as many files use one that they do not declare.
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._guard = TokenGuard(self._parser, kind)

    @property
    def line(self) -> int:
        return self._parser.CurrentLineNumber

    def parse(self, blocks: Iterator[bytes]) -> Iterator[None]:
        """Yields after each block, so that what has come can be taken."""
        for block in blocks:
            if self._blank:
                block = begin_with_declaration(block)
                self._blank = not block.strip()
            self._feed(block, last=False)
            yield
        if self._blank:
            raise empty_file(self._kind)
        self._feed(b"", last=True)
        yield

    def _feed(self, block: bytes, *, last: bool) -> None:
        problem = self._problem(block, last=last)
        if problem is not None:
            raise problem

    def _problem(self, block: bytes, *, last: bool) -> UnreadableFileError | None:
        try:
            self._parser.Parse(block, last)
            self._guard.check(block)
        except UnreadableFileError as problem:
            return problem
        except expat.ExpatError as error:
            if error.code in EARLY:
                return ends_early(f"a file that ends with </{self._root}>", error.lineno)
            return broken_xml(error)
        except (LookupError, ValueError):
            return unknown_encoding()
        return None

    def _doctype(self, *_: object) -> None:
        raise declares_type(self._kind, self.line)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(":")[2]
        if not self.path and local != self._root:
            raise other_root(self._root, self._kind, self.line)
        if len(self.path) >= _DEEPEST:
            raise damaged_file("it is nested too deeply", self._kind, self.line)
        self.path.append(local)
        self._parts.append([])
        self._on_start(local, attributes)

    def _characters(self, text: str) -> None:
        if self.path and self.path[-1] in self._texts:
            self._parts[-1].append(text)

    def _end(self, _: str) -> None:
        self._on_end(self.path[-1], "".join(self._parts.pop()))
        self.path.pop()


def begin_with_declaration(block: bytes) -> bytes:
    """The first bytes of a file; space before the declaration, such as Strava's, comes after it.

    XML does not allow it there. Lines keep their numbers.
    """
    rest = block.lstrip(_BLANK)
    declaration, end, others = rest.partition(b"?>")
    if len(rest) == len(block) or not end or not declaration.startswith(b"<?xml"):
        return block if rest else b""
    return declaration + end + block[: len(block) - len(rest)] + others


def ends_early(expected: str, line: int) -> UnreadableFileError:
    """Of a file that breaks off: what is there of it has been read."""
    return UnreadableFileError(
        "it ends too early",
        line,
        expected=expected,
        remedy="copy it again, or export it once more",
        rest_lost=False,
    )


def broken_xml(error: expat.ExpatError) -> UnreadableFileError:
    """Of a file that is not well-formed."""
    return UnreadableFileError(
        f"its XML is broken: {expat.ErrorString(error.code)}",
        error.lineno,
        expected="well-formed XML",
        remedy="mend that line, or export the track again",
    )


def unknown_encoding() -> UnreadableFileError:
    """Of a file whose letters cannot be read."""
    return UnreadableFileError(
        "it is in an encoding that is not read",
        expected="UTF-8, UTF-16 or an encoding of one byte per letter",
        remedy="save it as UTF-8",
    )


def declares_type(kind: str, line: int) -> UnreadableFileError:
    """Of a file that could declare entities, which may grow without bounds."""
    return UnreadableFileError(
        "it declares a document type, which is refused",
        line,
        expected=f"{kind}, which has none",
        remedy="remove the <!DOCTYPE …> declaration",
    )


def other_root(root: str, kind: str, line: int) -> UnreadableFileError:
    """Of XML of another format."""
    return UnreadableFileError(
        f"it is not {kind}",
        line,
        expected=f"an element <{root}> around everything",
        remedy="name its format with --format",
    )
