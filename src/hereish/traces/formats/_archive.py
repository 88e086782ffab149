"""Zip archives: their members, listed and opened; what is made to harm is refused.

Nothing is unpacked to the disk: members are read as streams. An archive inside an archive is read
into memory. The limits are far beyond those of real exports.
"""

from __future__ import annotations

import gzip
import io
import lzma
import stat
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple, cast

from hereish.traces.faults import UnreadableFileError, damaged_file
from hereish.traces.foreign_errors import replace_foreign_errors

MOST_MEMBERS = 200_000
MOST_NAME = 1000  # characters: systems allow a few thousand, and each folder of a name is looked at
MOST_RATIO = 250  # unpacked bytes per packed byte; text of positions has 5 to 30
RATIO_FROM_BYTES = 1 << 20  # smaller members may have any
MOST_NESTED_BYTES = 1 << 30  # of an archive inside an archive, or of a file that must be in memory
# What reading may raise where packed bytes are damaged; see `is_damage` for OSError.
DAMAGE = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, gzip.BadGzipFile)
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def _damaged_archive() -> UnreadableFileError:
    return damaged_file(
        "it is not a zip archive, or a damaged one", "a zip archive, as it is named"
    )


def _refused(reason: str, expected: str) -> UnreadableFileError:
    return UnreadableFileError(
        reason, expected=expected, remedy="unpack it first, and name the folder"
    )


def damaged_member() -> UnreadableFileError:
    """Of a file that cannot be unpacked to its end."""
    return damaged_file("it is damaged inside its archive", "an archive that is whole")


def is_damage(error: Exception) -> bool:
    """Whether reading failed because of the bytes, and not because of the disk.

    bzip2 raises an OSError for them; those of the system have a number.
    """
    return isinstance(error, DAMAGE) or (isinstance(error, OSError) and error.errno is None)


class Member(NamedTuple):
    """A file in an archive."""

    name: str
    size: int  # unpacked, in bytes


def list_members(path: Path, members: tuple[str, ...] = ()) -> list[Member]:
    """The files of an archive, or of one inside it, in the order of their names.

    Raises UnreadableFileError for archives that are damaged, encrypted, or made to harm.
    """
    return safe_members(_open_archive(path, members))


def safe_members(archive: zipfile.ZipFile) -> list[Member]:
    """The same of an archive that is open."""
    infos = archive.infolist()
    if len(infos) > MOST_MEMBERS:
        raise _refused(
            f"it is an archive of more than {MOST_MEMBERS:,} files",
            "fewer files",
        )
    # Not `is_dir`, which fails for a file without a name.
    files = [info for info in infos if not info.filename.endswith("/")]
    if len({info.filename for info in files}) < len(files):
        raise _refused(
            "it is an archive with several files of one name",
            "one file of each name",
        )
    ends = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset < ends:
            raise _refused(
                "it is an archive whose files overlap, which is refused",
                "files one after the other",
            )
        ends = info.header_offset + info.compress_size
    if ends > archive.start_dir:  # a size that is made up would allow any ratio
        raise _damaged_archive()
    for info in files:
        _check(info)
    return sorted(Member(info.filename, info.file_size) for info in files if not _is_link(info))


def _check(info: zipfile.ZipInfo) -> None:
    path = PurePosixPath(info.filename)
    odd = "\\" in info.filename or not info.filename.isprintable() or not path.parts
    if odd or path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
        raise _refused(
            "it is an archive with a file name that leads out of it or cannot be printed, which is "
            "refused",
            "names of files and folders inside of it",
        )
    if len(info.filename) > MOST_NAME:
        raise _refused(
            f"it is an archive with a file name of more than {MOST_NAME:,} characters, which is "
            "refused",
            "names that a disk could have",
        )
    if info.flag_bits & 1:
        raise _refused("it is an encrypted archive", "an archive without a password")
    if info.compress_type not in _METHODS:
        raise _refused(
            "it is packed by a method that is not read",
            "the method deflate, as most archives have it",
        )
    if info.file_size > max(RATIO_FROM_BYTES, MOST_RATIO * info.compress_size):
        raise _refused(
            f"it is an archive that unpacks to more than {MOST_RATIO} times its size, which is "
            "refused",
            "the text of positions, which packs to about a tenth",
        )


def _is_link(info: zipfile.ZipInfo) -> bool:
    return stat.S_ISLNK(info.external_attr >> 16)


def open_member(path: Path, members: tuple[str, ...]) -> BinaryIO:
    """A file in an archive, as a stream."""
    archive = _open_archive(path, members[:-1])
    return replace_foreign_errors(
        lambda: cast("BinaryIO", archive.open(members[-1])), _damaged_archive()
    )


def open_bytes(data: bytes) -> zipfile.ZipFile:
    """An archive that is in memory."""
    return replace_foreign_errors(lambda: zipfile.ZipFile(io.BytesIO(data)), _damaged_archive())


def _open_archive(path: Path, members: tuple[str, ...]) -> zipfile.ZipFile:
    state = path.stat()
    return _opened(path, members, state.st_size, state.st_mtime_ns)


# The last one is kept, or the list of files would be read once for each of them.
@lru_cache(maxsize=1)
def _opened(path: Path, members: tuple[str, ...], size: int, changed_ns: int) -> zipfile.ZipFile:
    if not members:
        return replace_foreign_errors(lambda: zipfile.ZipFile(path), _damaged_archive())
    outer = replace_foreign_errors(lambda: zipfile.ZipFile(path), _damaged_archive())
    with outer:
        return open_bytes(_read_nested(outer, members[0]))


def _read_nested(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > MOST_NESTED_BYTES:
        raise _refused(
            "it has an archive inside that is too large to be read there",
            f"at most {MOST_NESTED_BYTES >> 30} GiB",
        )
    return replace_foreign_errors(lambda: archive.read(name), _damaged_archive())
