"""FIT files of watches and bicycle computers: the positions of their records.

A file is a trace. Needs `pip install 'hereish[formats]'`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from hereish.traces.columns import Columns
from hereish.traces.faults import UnreadableFileError, damaged_file, empty_file
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._fixes import FileFix, stream_fixes
from hereish.traces.formats._times import EPOCH
from hereish.traces.formats.base import Format, Source, optional_dependency
from hereish.traces.table import RowBatch

_EPOCH = EPOCH + timedelta(seconds=631_065_600)  # its seconds are counted from the end of 1989
_FIRST_DATE = 0x10000000  # smaller numbers are seconds since the device was switched on
_SEMICIRCLE = 180.0 / (1 << 31)
_RECORD = 20
_END = object()


def read(source: Source, columns: Columns) -> Iterator[RowBatch]:
    """The records with a position; the `line` of a row is the number of its record."""
    reader = _RecordReader()
    with SourceBytes(source) as file:
        fixes, if_empty = reader.fixes(file), reader.describe_emptiness
        yield from stream_fixes(fixes, columns, file.done, if_empty, numbered=True)


class _RecordReader:
    def __init__(self) -> None:
        self._records = 0

    def describe_emptiness(self) -> str:
        if self._records:
            return "its records have no positions, as those of a workout indoors"
        return "it has no records of an activity"

    def fixes(self, file: SourceBytes) -> Iterator[FileFix]:
        for frame in _frames(file):
            if getattr(frame, "global_mesg_num", None) != _RECORD or not hasattr(frame, "fields"):
                continue
            self._records += 1
            values = {field.name: field.value for field in frame.fields}
            lat, lon = values.get("position_lat"), values.get("position_long")
            if lat is None and lon is None:
                continue
            at = _time(values.get("timestamp"))
            yield FileFix(self._records, at, _degrees(lat), _degrees(lon), values, trace=1)


def _frames(file: SourceBytes) -> Iterator[Any]:
    """What the decoder yields, until something is wrong."""
    with optional_dependency("FIT", "formats"):
        import fitdecode
    checks = {
        "check_crc": fitdecode.CrcCheck.RAISE,
        "error_handling": fitdecode.ErrorHandling.IGNORE,
    }
    any_frame = False
    with fitdecode.FitReader(_Readable(file), processor=None, **checks) as reader:
        frames = iter(reader)
        while True:
            problem: str | None = None
            try:
                frame = next(frames, _END)
            except UnreadableFileError:
                raise
            except fitdecode.FitHeaderError:
                problem = "it is damaged: a header is wrong" if any_frame else "it is not FIT"
            except fitdecode.FitCRCError:
                problem = "it is damaged: its checksum is wrong"
            except fitdecode.FitEOFError:
                problem = "it ends too early"
            except Exception:  # noqa: BLE001  # of damaged files; it may quote the data
                problem = "it is damaged"
            if problem is not None:  # not raised above, where the error would carry the other
                raise damaged_file(problem, "a FIT file that is whole")
            if frame is _END:
                break
            any_frame = True
            yield frame
    if not any_frame:
        raise empty_file("a FIT file")


class _Readable:
    """A file as the decoder reads it, which is a few bytes at a time."""

    def __init__(self, file: SourceBytes) -> None:
        self._file = file
        self._data, self._at = b"", 0

    def read(self, size: int) -> bytes:
        if len(self._data) - self._at < size:
            self._data = self._data[self._at :] + self._file.read(1 << 16)
            self._at = 0
        part = self._data[self._at : self._at + size]
        self._at += len(part)
        return part


def _time(value: Any) -> Any:
    if not isinstance(value, int) or value < _FIRST_DATE:
        return None
    return _EPOCH + timedelta(seconds=value)


def _degrees(value: Any) -> float | None:
    return value * _SEMICIRCLE if isinstance(value, int) else None


FORMAT = Format(name="fit", extensions=(".fit",), read=read, line_word="record")
