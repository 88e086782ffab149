"""Which files are meant, and what is in them: names, folders and globs to sources."""

from __future__ import annotations

import glob
import gzip
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, cast

from hereish.errors import ParameterError

# The formats, and the endings of their names. Each has a module of its own in this folder.
ENDINGS = {
    "gpx": (".gpx",),
    "geojson": (".geojson", ".json"),
    "csv": (".csv",),
    "parquet": (".parquet", ".pq"),
    "geoparquet": (".geoparquet",),
    "geolife": (".plt",),
    "tdrive": (".txt",),
}
FORMATS = tuple(ENDINGS)
_MODULES = {"csv": "delimited", "geoparquet": "parquet"}
METADATA = "-metadata.json"  # how a file ends that says what was promised for its neighbour
STANDARD = "-"  # standard input or output


@dataclass(frozen=True)
class Source:
    """A file to read, or standard input."""

    path: Path | None
    format: str
    below: Path  # its name below the folder it was found in
    number: int | None = None  # among the sources, from 1; None if it is the only one

    @property
    def name(self) -> str:
        return "standard input" if self.path is None else str(self.path)

    @property
    def size(self) -> int:
        """In bytes, for progress; 0 if nobody knows."""
        return 0 if self.path is None else self.path.stat().st_size

    def open(self) -> BinaryIO:
        """The bytes of the file; a name that ends in .gz is unpacked on the way."""
        if self.path is None:
            return sys.stdin.buffer
        if self.path.suffix == ".gz":
            return cast("BinaryIO", gzip.open(self.path, "rb"))
        return self.path.open("rb")


def module(name: str) -> ModuleType:
    """The module that reads and writes a format; imported when it is needed."""
    return import_module(f"hereish.traces.formats.{_MODULES.get(name, name)}")


def format_of(name: str) -> str | None:
    """The format that a file's name tells."""
    name = name.lower().removesuffix(".gz")
    for form, endings in ENDINGS.items():
        if name.endswith(endings):
            return form
    return None


def find(names: Sequence[str], form: str | None = None) -> list[Source]:
    """The files that are meant, each once, folders and globs in the order of their names."""
    found: dict[Path | None, Source] = {}
    for name in names:
        for source in _expanded(name, form):
            key = source.path and source.path.resolve()
            if key in found:
                raise ParameterError(f"{source.name} is named twice; each file is read once")
            found[key] = source
    if len(found) == 1:
        return list(found.values())
    return [replace(source, number=i) for i, source in enumerate(found.values(), start=1)]


def _expanded(name: str, form: str | None) -> Iterator[Source]:
    if name == STANDARD:
        yield Source(None, form or "csv", Path("stdin.csv"))
        return
    path = Path(name)
    if path.is_dir():
        yield from _folder(path, form)
    elif path.exists():
        yield Source(path, form or _known(name), Path(path.name))
    else:
        matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207  # Path.glob refuses absolute ones
        if not matches:
            raise ParameterError(f"there is no file or folder {name}")
        for match in matches:
            yield from _expanded(match, form)


def _folder(folder: Path, form: str | None) -> Iterator[Source]:
    some = False
    for path in sorted(_walked(folder)):
        if _belongs(path, form):
            some = True
            if not path.is_file():
                raise ParameterError(f"{path} cannot be read: it leads nowhere, or is no file")
            yield Source(path, form or _known(path.name), path.relative_to(folder))
    if not some:
        endings = ", ".join(end for ends in ENDINGS.values() for end in ends)
        raise ParameterError(f"the folder {folder} has no file of a kind that is read: {endings}")


def _walked(folder: Path) -> Iterator[Path]:
    """All files that are not hidden; nothing is passed over in silence."""

    def cannot(wrong: OSError) -> None:
        raise wrong

    for place, folders, files in os.walk(folder, onerror=cannot):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in folders:
            if Path(place, name).is_symlink():
                raise ParameterError(f"{Path(place, name)} is a link to a folder; name it itself")
        yield from (Path(place, name) for name in files if not name.startswith("."))


def _belongs(path: Path, form: str | None) -> bool:
    if path.name.endswith(METADATA):  # beside a file that we wrote
        return False
    known = format_of(path.name)
    if known == "tdrive":  # its files are called by the number of a taxi; other texts are not data
        return form == "tdrive" or (form is None and path.stem.isdigit())
    return known is not None and form in (None, known)


def _known(name: str) -> str:
    form = format_of(name)
    if form is None:
        raise ParameterError(
            f"the name {name} does not tell its format; give --format, one of {', '.join(FORMATS)}"
        )
    return form
