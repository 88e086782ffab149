"""Archives whose directory or whose packed bytes are wrong, by accident or on purpose."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import pytest

from hereish.errors import HereishError, ParameterError
from hereish.traces.discovery import find_sources
from hereish.traces.faults import UnreadableFileError
from hereish.traces.formats._lookalikes import hint_at_content
from tests.support.history_samples import SAMPLES, zipped
from tests.support.markup_samples import GPX, batches, read_until_broken

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
PACKED, UNPACKED = 20, 24  # where the directory has these sizes


def saved(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def with_size(field: int, size: int) -> bytes:
    """With another size in the directory."""
    data = zipped({"a.gpx": GPX.encode()})
    at = data.index(b"PK\1\2") + field
    return data[:at] + struct.pack("<I", size) + data[at + 4 :]


def test_a_packed_size_that_is_made_up_is_refused(tmp_path: Path) -> None:
    """With it any ratio would be fine."""
    name = saved(tmp_path / "all.zip", with_size(PACKED, 1 << 30))
    with pytest.raises(ParameterError, match="a damaged one"):
        find_sources([name])


def test_a_file_without_a_name_is_refused(tmp_path: Path) -> None:
    data = zipped({"harmless.gpx": GPX.encode()})
    name = saved(tmp_path / "all.zip", data.replace(b"harmless.gpx", b"\0" * 12))
    with pytest.raises(ParameterError, match="cannot be printed"):
        find_sources([name])


@pytest.mark.parametrize("name", ["a.gpx", "Records.json"])
@pytest.mark.parametrize("method", METHODS[1:])
def test_a_member_whose_packed_bytes_are_damaged_is_unreadable(
    tmp_path: Path, name: str, method: int
) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(name, GPX if name == "a.gpx" else SAMPLES[name][0])
    data = bytearray(out.getvalue())
    data[60:68] = b"\xff" * 8
    path = saved(tmp_path / "all.zip", bytes(data))
    with pytest.raises(HereishError, match="damaged inside its archive"):
        batches(find_sources([path])[0])


def test_a_member_that_is_longer_than_the_archive_says_is_unreadable(tmp_path: Path) -> None:
    (source,) = find_sources([saved(tmp_path / "all.zip", with_size(UNPACKED, 10))])
    with pytest.raises(UnreadableFileError, match="damaged inside its archive"):
        batches(source)
    assert hint_at_content(source) == ""


@pytest.mark.parametrize("method", METHODS)
def test_an_archive_with_one_wrong_byte_is_read_or_refused(tmp_path: Path, method: int) -> None:
    """Each byte of it, also of its directory."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name in ("lines.jsonl", "Records.json"):
            archive.writestr(name, SAMPLES[name][0])
    content = out.getvalue()
    ends = {"read": 0, "refused": 0}
    for at in range(len(content)):
        for change in (0x01, 0xFF) if at % 5 == 0 else (content[at],):  # which makes it zero
            path = tmp_path / f"{at}-{change}.zip"  # the last one that was opened is remembered
            path.write_bytes(content[:at] + bytes([content[at] ^ change]) + content[at + 1 :])
            problems: list[HereishError | None]
            try:
                problems = [read_until_broken(source)[1] for source in find_sources([str(path)])]
            except ParameterError as error:
                problems = [error]
            ends["refused" if any(problems) else "read"] += 1
    assert min(ends.values()) >= 2, ends
