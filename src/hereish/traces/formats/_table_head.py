"""Where the header of a text table is: in its first line, or below what a logger writes above it.

Titles, settings and comments may stand before the header. Below its first line a header is known by
naming latitude and longitude, or points, and by a row after it that has as many fields.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hereish.traces.column_names import USUAL_NAMES, known_names, normal_name
from hereish.traces.columns import Columns
from hereish.traces.faults import UnreadableFileError, empty_file

DELIMITERS = ",;\t|"  # the first is taken where the header has none of them
NAMES = "a first line with the names of the columns, such as user,time,lat,lon"
COMMENT = "#"
_MOST_LINES = 30  # up to a header
_MOST_BEFORE = 100_000  # blank lines and comments above the first of these
_MOST_BETWEEN = 2  # rows between a header and its first row of data: one of units
_DECLARED = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # the first line of what Excel saves


class TableHead(NamedTuple):
    """The lines up to the header, those before it as blank ones, and those that were read ahead."""

    lines: list[str]
    ahead: list[str]
    delimiter: str


def read_head(lines: Iterator[str], columns: Columns) -> TableHead:
    """Read up to the header, and on where the first line may be none."""
    before = 0
    declared: str | None = None
    for line in lines:
        text = line.strip()
        said = _DECLARED.fullmatch(text)
        if said is not None and declared is None:
            declared = said[1]
        elif text and not (text.startswith(COMMENT) and not _names_places(text)):
            break
        before += 1
        if before > _MOST_BEFORE:
            raise UnreadableFileError(
                f"it begins with more than {_MOST_BEFORE:,} blank lines and comments",
                before,
                expected=NAMES,
                remedy="remove the lines before that one",
            )
    else:
        raise empty_file(f"{NAMES}, and a row for each point")
    head, at = [line], 0
    if not _is_header(line, columns, declared):
        head += itertools.islice(lines, _MOST_LINES - 1)
        at = _find_below(head, columns, declared) or 0
    header = head[at]
    blank = ["\n"] * (before + at)
    return TableHead([*blank, header], head[at + 1 :], declared or _guess_delimiter(header))


def has_header(texts: Sequence[str], columns: Columns) -> bool:
    """Whether the first lines of a text are those of a table of places."""
    some = [text for text in texts if text.strip()][:_MOST_LINES]
    if not some:
        return False
    return _is_header(some[0], columns, None) or _find_below(some, columns, None) is not None


def _find_below(lines: Sequence[str], columns: Columns, declared: str | None) -> int | None:
    """Which of these lines, but for the first, is the header."""
    for at, line in enumerate(lines[1:], start=1):
        if _is_header(line, columns, declared):
            delimiter = declared or _guess_delimiter(line)
            width = len(_fields(line.rstrip(), delimiter))
            rows = (row for row in lines[at + 1 :] if row.strip() and not row.startswith(COMMENT))
            following = itertools.islice(rows, _MOST_BETWEEN)
            if any(_fits(_fields(row.strip("\r\n"), delimiter), width) for row in following):
                return at
    return None


def _fits(row: Sequence[str], width: int) -> bool:
    """Whether a row has so many fields, but for empty ones beyond them."""
    return len(row) >= width and not any(field.strip() for field in row[width:])


def _is_header(line: str, columns: Columns, declared: str | None) -> bool:
    fields = _fields(line.strip().removeprefix(COMMENT), declared or _guess_delimiter(line))
    given = [name.strip() for name in fields]
    names = {normal_name(name) for name in given}
    wanted = {"lat": columns.lat, "lon": columns.lon, "point": columns.point}

    def has(role: str) -> bool:
        own = wanted[role]
        return own in given if own is not None else not names.isdisjoint(known_names(role))

    return len(given) > 1 and ((has("lat") and has("lon")) or has("point"))


def _names_places(text: str) -> bool:
    """Whether a line that begins like a comment is a header."""
    names = re.split(f"[{DELIMITERS}]", text.removeprefix(COMMENT))
    known = known_names("lat") | {*USUAL_NAMES["point"]}
    return any(normal_name(name) in known for name in names)


def _guess_delimiter(header: str) -> str:
    return max(DELIMITERS, key=lambda delimiter: len(_fields(header, delimiter)))


def _fields(line: str, delimiter: str) -> list[str]:
    """The fields of one line; none if its quotes do not fit."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
