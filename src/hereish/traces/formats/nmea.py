"""NMEA 0183: what receivers say in sentences of text, such as $GPRMC and $GPGGA.

RMC has date, time and place; GGA, GNS and GLL have no date, and take that of the sentences around
them. Several sentences of one second are one fix. Sentences without a fix are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from hereish.traces.columns import Columns
from hereish.traces.faults import UnreadableFileError, damaged_file
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._degrees import parse_number
from hereish.traces.formats._encodings import utf8_chunks
from hereish.traces.formats._fixes import FileFix, stream_fixes
from hereish.traces.formats.base import Format, Source
from hereish.traces.table import RowBatch

_BLOCK_BYTES = 1 << 16
_LONGEST_LINE = 1 << 16
_HALF_DAY = timedelta(hours=12)
_LINE_END = re.compile(rb"\r*\n|\r")
# Several may stand on a line, where one of the ends of lines was lost.
_SENTENCE = re.compile(r"[$!]([A-Z][A-Z0-9]{3,7}),([^*$!]*)(?:\*([0-9A-Fa-f]{2}))?", re.ASCII)
_HEAD = re.compile(rb"(?:^|[\r\n])[^\r\n$]{0,40}\$[A-Z]{2}(RMC|GGA|GNS|GLL|GSA|GSV|VTG|ZDA),")
_MOST_UNDATED = 1 << 20  # fixes that wait for a date
_CENTURY = 70  # two digits of a year below are of this century


class _Sentence(NamedTuple):
    line: int
    kind: str
    fields: Sequence[str]


class _Undated(NamedTuple):
    """A fix of which the time of day is known."""

    line: int
    at: time
    lat: float | None
    lon: float | None


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The fixes of one file, which is a trace; the `line` of a row is that of its sentence."""
    reader = _SentenceReader()
    with SourceBytes(source) as file:
        fixes = (fix._replace(trace=1) for fix in reader.fixes(_read_lines(file)))
        if_empty = reader.describe_emptiness
        yield from stream_fixes(fixes, columns, file.done, if_empty, numbered=True)


def _read_lines(file: SourceBytes) -> Iterator[str]:
    """Lines of text; receivers and cables add bytes that are none."""
    rest = b""
    for block in utf8_chunks(file):
        data = rest + block
        whole = data.rstrip(b"\r")  # after those a line feed may follow
        *lines, rest = _LINE_END.split(whole)
        rest += data[len(whole) :]
        for line in lines:
            yield line.decode("latin-1")
        if len(rest) > _LONGEST_LINE:
            raise damaged_file("its lines are too long", "sentences of NMEA")
    if rest:
        yield rest.rstrip(b"\r").decode("latin-1")


class _SentenceReader:
    def __init__(self) -> None:
        self._date: date | None = None
        self._at: time | None = None  # of the last fix
        self._undated: list[_Undated] = []
        self._sentences = 0
        self._any_undated = False

    def describe_emptiness(self) -> str:
        if not self._sentences:
            return "it has no sentences of NMEA"
        if self._any_undated:
            return "its sentences have times of day and no date: there is no RMC or ZDA among them"
        return "its sentences have no positions"

    def fixes(self, lines: Iterator[str]) -> Iterator[FileFix]:
        for sentence in self._parse(lines):
            if isinstance(sentence, FileFix):
                yield sentence
            elif sentence.kind == "ZDA":
                yield from self._set_date(_parse_date(sentence.fields[1:4]), sentence.fields[0])
            else:
                yield from self._fix(sentence)
        self._any_undated = bool(self._undated)

    def _parse(self, lines: Iterator[str]) -> Iterator[_Sentence | FileFix]:
        for number, line in enumerate(lines, 1):
            for match in _SENTENCE.finditer(line):
                self._sentences += 1
                name, body, checksum = match.groups()
                kind = name[-3:]
                if kind not in ("RMC", "GGA", "GNS", "GLL", "ZDA"):
                    continue
                fields = body.strip().split(",")
                if checksum is not None and int(checksum, 16) != _checksum(f"{name},{body}"):
                    yield FileFix(number, None, None, None, broken=True)
                elif len(fields) >= 4:
                    yield _Sentence(number, kind, fields)

    def _fix(self, sentence: _Sentence) -> Iterator[FileFix]:
        fields, day = sentence.fields, None
        if sentence.kind == "RMC":
            valid, at, place = _item(fields, 1) == "A", fields[0], fields[2:6]
            day = _parse_ddmmyy(_item(fields, 8))
        elif sentence.kind == "GGA":
            valid, at, place = _item(fields, 5) not in ("", "0"), fields[0], fields[1:5]
        elif sentence.kind == "GNS":  # a letter for each system of satellites
            valid, at, place = bool(_item(fields, 5).strip("N")), fields[0], fields[1:5]
        else:
            valid, at, place = _item(fields, 5) in ("A", ""), _item(fields, 4), fields[0:4]
        if day is not None:
            yield from self._set_date(day, at)
        moment = _parse_time(at)
        if not valid or moment is None:
            return
        lat, lon = _degrees(place[:2], "NS"), _degrees(place[2:], "EW")
        if self._date is None:
            if not self._undated or self._undated[-1].at != moment:
                self._undated.append(_Undated(sentence.line, moment, lat, lon))
            if len(self._undated) > _MOST_UNDATED:
                raise UnreadableFileError(
                    "its sentences have times of day and no date for too long",
                    sentence.line,
                    expected="a date in a sentence RMC or ZDA",
                    remedy="let the receiver write these too, or convert it to GPX",
                )
            return
        if day is None and self._at is not None and _gap(self._at, moment) < -_HALF_DAY:
            self._date += timedelta(days=1)  # midnight has passed
        if moment != self._at or day is not None:
            yield from self._once(FileFix(sentence.line, self._moment(moment), lat, lon))
        self._at = moment

    _last: datetime | None = None

    def _once(self, fix: FileFix) -> Iterator[FileFix]:
        if fix.time != self._last:
            yield fix
        self._last = fix.time

    def _moment(self, at: time) -> datetime:
        return datetime.combine(self._date or date.min, at, UTC)

    def _set_date(self, day: date | None, at: str) -> Iterator[FileFix]:
        """A date; of the first, those that waited for it."""
        if day is None:
            return
        waiting, self._undated = self._undated, []
        first = self._date is None
        self._date = day
        if not first or not waiting:
            return
        moments = [fix.at for fix in waiting] + [_parse_time(at) or waiting[-1].at]
        days = [day]
        for before, after in zip(moments[-2::-1], moments[:0:-1], strict=True):
            crossed = _gap(before, after) < -_HALF_DAY
            days.append(days[-1] - timedelta(days=1) if crossed else days[-1])
        for fix, own in zip(waiting, days[:0:-1], strict=True):
            when = datetime.combine(own, fix.at, UTC)
            yield from self._once(FileFix(fix.line, when, fix.lat, fix.lon))
        self._at = waiting[-1].at


def _gap(before: time, after: time) -> timedelta:
    return _since_midnight(after) - _since_midnight(before)


def _since_midnight(at: time) -> timedelta:
    return timedelta(
        hours=at.hour, minutes=at.minute, seconds=at.second, microseconds=at.microsecond
    )


def _checksum(text: str) -> int:
    value = 0
    for byte in text.encode("latin-1"):
        value ^= byte
    return value


def _item(fields: Sequence[str], i: int) -> str:
    return fields[i].strip() if i < len(fields) else ""


def _parse_time(text: str) -> time | None:
    """hhmmss, and perhaps decimals of the second."""
    match = re.fullmatch(r"(\d\d)(\d\d)(\d\d)(?:\.(\d*))?", text.strip(), re.ASCII)
    if match is None:
        return None
    hour, minute, second = map(int, match.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        return None
    return time(hour, minute, second, int((match.group(4) or "").ljust(6, "0")[:6]))


def _parse_ddmmyy(text: str) -> date | None:
    if not re.fullmatch(r"\d{6}", text, re.ASCII):
        return None
    year = int(text[4:])
    return _parse_date((text[:2], text[2:4], str(year + (1900 if year >= _CENTURY else 2000))))


def _parse_date(fields: Sequence[str]) -> date | None:
    """Day, month and year."""
    try:
        day, month, year = map(int, fields)
        return date(year, month, day) if year > 1900 else None
    except ValueError:
        return None


def _degrees(fields: Sequence[str], signs: str) -> float | None:
    """Degrees and minutes as one number, such as 4916.45, and N, S, E or W."""
    if len(fields) < 2:
        return None
    number, sign = parse_number(fields[0].strip()), fields[1].strip()
    if number is None or number < 0 or len(sign) != 1 or sign not in signs:
        return None
    degrees, minutes = divmod(number, 100.0)
    if minutes >= 60.0:
        return None
    value = degrees + minutes / 60.0
    return value if sign == signs[0] else -value


def sniff(head: bytes) -> bool:
    """Whether a text begins with sentences of NMEA."""
    return _HEAD.search(head) is not None


FORMAT = Format(name="nmea", extensions=(".nmea", ".nma", ".txt", ".log"), read=read, sniff=sniff)
