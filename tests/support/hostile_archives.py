"""Zip archives that are damaged, or made to harm."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable

import pytest

from tests.support.history_samples import zipped
from tests.support.markup_samples import GPX

_TRACK = GPX.encode()


def rewritten(change: Callable[[bytes], bytes]) -> bytes:
    return change(zipped({"harmless.gpx": _TRACK}))


def with_name(name: str) -> bytes:
    return rewritten(lambda data: data.replace(b"harmless.gpx", name.encode().ljust(12, b"_")))


def doubled() -> bytes:
    """Two entries of the directory that share one file's bytes."""
    data = zipped({"aaaaaaaa.gpx": _TRACK, "bbbbbbbb.gpx": _TRACK})
    directory = data.index(b"PK\1\2")
    second = data.index(b"PK\1\2", directory + 1)
    offset = second + 42
    return data[:offset] + struct.pack("<I", 0) + data[offset + 4 :]


def repeated() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.gpx", _TRACK)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.gpx", _TRACK)
    return out.getvalue()


def encrypted() -> bytes:
    data = zipped({"a.gpx": _TRACK})
    flags = data.index(b"PK\1\2") + 8
    return data[:flags] + b"\1" + data[flags + 1 :]


def bomb() -> bytes:
    return zipped({"a.gpx": b"<gpx>" + b" " * (8 << 20)})


def damaged() -> bytes:
    """A file whose checksum is wrong."""
    data = zipped({"a.gpx": _TRACK})
    checksum = data.index(b"PK\1\2") + 16
    return data[:checksum] + b"\0\0\0\0" + data[checksum + 4 :]


def oddly_packed() -> bytes:
    data = zipped({"a.gpx": _TRACK})
    method = data.index(b"PK\1\2") + 10
    return data[:method] + b"\x63\0" + data[method + 2 :]
