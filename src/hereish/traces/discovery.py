"""Which files to read: names, folders, archives and globs to sources, each with its format."""

from __future__ import annotations

import contextlib
import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TypeAlias

from hereish.errors import ParameterError
from hereish.traces.columns import Columns
from hereish.traces.exports import choose_files, split_marked_places
from hereish.traces.faults import UnreadableFileError, closed_file
from hereish.traces.formats import delimited
from hereish.traces.formats._archive import Member, list_members
from hereish.traces.formats._bytes import SourceBytes
from hereish.traces.formats._encodings import utf8_head
from hereish.traces.formats._json_kinds import HEAD_BYTES
from hereish.traces.formats._sidecar import is_sidecar
from hereish.traces.formats.base import Format, Source
from hereish.traces.formats.registry import (
    FORMAT_NAMES,
    STANDARD_STREAM_FORMAT,
    all_extensions,
    get_format,
    recognize,
    recognize_content,
)

# A file or an archive of which nothing can be read, and why.
UnreadableSource: TypeAlias = tuple[Source, UnreadableFileError]
STANDARD_STREAM = "-"  # in place of a file name: standard input or output
_TABLES = ("csv", "tsv")
# What turns a file that is not read into one that is.
_CONVERTERS = {
    (".xlsx", ".xls", ".ods", ".numbers"): "Save it as CSV with the program that made it",
    (
        ".shp",
        ".fgb",
        ".gml",
        ".gdb",
        ".mif",
        ".dxf",
    ): "To convert it: ogr2ogr out.gpkg {name}",
    (".feather", ".arrow", ".orc", ".pkl", ".h5", ".nc"): "Save it as Parquet or CSV",
    (".tar", ".tgz", ".tar.gz", ".7z", ".rar", ".tar.xz", ".tar.bz2"): "Unpack it, and name the "
    "folder",
    (".igc",): "To convert it: gpsbabel -t -i igc -f {name} -o gpx -F out.gpx",
    (".wpt",): "Waypoints are places that were marked, and not where somebody was when",
}
_ANY_CONVERTER = (
    "GPSBabel (gpsbabel.org) turns most formats of receivers into GPX, and ogr2ogr (gdal.org) most "
    "formats of maps into GeoPackage"
)


@dataclass
class Inputs:
    """The files that are meant, and those in folders and archives that are of no use."""

    sources: list[Source] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)  # by the endings of their names
    unreadable: list[UnreadableSource] = field(default_factory=list)


def find_sources(names: Sequence[str], form: str | None = None) -> list[Source]:
    """The files that are meant, each once, folders and globs in the order of their names."""
    found = find_inputs(names, form)
    if found.unreadable:
        raise _unreadable(found.unreadable)
    return found.sources


def find_inputs(
    names: Sequence[str], form: str | None = None, columns: Columns | None = None
) -> Inputs:
    """The same, with a count of the files in folders and archives that are not read.

    By the names of `columns` tables in archives are known to be of places. Raises if nothing that
    is meant can be read.
    """
    search = _Search(None if form is None else get_format(form), columns or Columns())
    sources: dict[tuple[Path | None, tuple[str, ...]], Source] = {}
    for name in names:
        for source in search.expand(name):
            key = (source.path and source.path.resolve(), source.members)
            if key in sources:
                raise ParameterError(f"{source.name} is named twice; each file is read once")
            sources[key] = source
    found = list(sources.values())
    if not found:
        raise _unreadable(search.unreadable)
    if len(found) > 1:
        found = [replace(source, number=i) for i, source in enumerate(found, start=1)]
    return Inputs(found, search.ignored, search.unreadable)


def _unreadable(problems: Sequence[UnreadableSource]) -> ParameterError:
    source, error = problems[0]
    return ParameterError(f"{source.name}: {error.explain('nothing was released')}")


class _Search:
    """Goes through names, folders and archives."""

    def __init__(self, form: Format | None, columns: Columns) -> None:
        self._form = form
        self._columns = columns
        self.ignored: Counter[str] = Counter()
        self.unreadable: list[UnreadableSource] = []

    def expand(self, name: str) -> Iterator[Source]:
        if name == STANDARD_STREAM:
            yield Source(None, self._form or STANDARD_STREAM_FORMAT, Path("stdin.csv"))
            return
        path = Path(name)
        if path.is_dir():
            yield from self._narrow(self._search_folder(path))
        elif path.exists() and _is_archive(path):
            yield from self._narrow(self._search_archive(path, Path(path.stem), must_have=True))
        elif path.exists():
            yield Source(path, self._form or _recognize(path), Path(path.name))
        else:
            matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207  # Path.glob refuses absolute ones
            if not matches:
                raise ParameterError(f"there is no file or folder {name}")
            for match in matches:
                yield from self.expand(match)

    def _narrow(self, found: Iterator[Source]) -> list[Source]:
        kept, others = split_marked_places(list(found))
        for source in others:
            self._ignore(source.below)
        return kept

    def _search_folder(self, folder: Path) -> Iterator[Source]:
        empty = True
        paths = sorted(_walk(folder))
        chosen = choose_files([path.relative_to(folder) for path in paths])
        before = len(self.unreadable)
        for path in paths:
            below = path.relative_to(folder)
            if chosen(below) and _is_archive(path):
                for source in self._search_archive(path, below.with_suffix("")):
                    empty = False
                    yield source
                continue
            found = self._with_format(Source(path, STANDARD_STREAM_FORMAT, below), chosen(below))
            if found is not None:
                empty = False
                yield found
        if empty and len(self.unreadable) == before:
            raise ParameterError(
                f"the folder {folder} has no file of a format that is read: {all_extensions()}"
            )

    def _search_archive(
        self, path: Path, below: Path, inside: tuple[str, ...] = (), *, must_have: bool = False
    ) -> Iterator[Source]:
        try:
            listed = _list_archive(path, inside)
        except UnreadableFileError as error:
            self.unreadable.append(
                (Source(path, STANDARD_STREAM_FORMAT, below, None, inside), error)
            )
            return
        members = [member for member in listed if not _is_hidden(PurePath(member.name))]
        chosen = choose_files([PurePath(member.name) for member in members])
        empty = True
        before = len(self.unreadable)
        for name, size in members:
            source = Source(path, STANDARD_STREAM_FORMAT, below / name, None, (*inside, name), size)
            if not inside and chosen(PurePath(name)) and _is_archive(PurePath(name)):
                nested = (below / name).with_suffix("")
                for source in self._search_archive(path, nested, (name,)):
                    empty = False
                    yield source
                continue
            found = self._with_format(source, chosen(PurePath(name)))
            if found is not None:
                empty = False
                yield found
        if empty and must_have and len(self.unreadable) == before:
            hint = ""
            if any((form := recognize(name)) and form.name in _TABLES for name, _ in members):
                hint = "; its tables name no latitude and longitude: say with --lat and --lon"
            raise ParameterError(
                f"the archive {path} has no file of a format that is read: {all_extensions()}{hint}"
            )

    def _with_format(self, source: Source, chosen: bool) -> Source | None:
        """A file that was found, with its format; None if it is none to read."""
        try:
            form = self._data_format(source) if chosen else None
        except UnreadableFileError as error:
            self.unreadable.append((source, error))
            return None
        if form is None:
            self._ignore(source.below)
            return None
        return replace(source, format=form)

    def _data_format(self, source: Source) -> Format | None:
        """The format of a file that was found; None if it is not data."""
        name = source.below.name
        if is_sidecar(source.below) or recognize(name) is None:
            return None
        broken = source.path is not None and not _is_file(source.path)
        form = recognize(name) if broken else recognize_content(name, lambda: _read_head(source))
        if form is None or (self._form is not None and form != self._form):
            return None
        if self._form is None and not form.is_data_file(source.below):
            return None
        if broken:
            raise _broken_link()
        # A table in an archive may be of anything.
        in_doubt = source.members and form.name in _TABLES
        return None if in_doubt and not self._names_places(source) else form

    def _names_places(self, source: Source) -> bool:
        return delimited.sniff(_read_head(source), self._columns)

    def _ignore(self, path: PurePath) -> None:
        if not is_sidecar(Path(path)):
            self.ignored[path.suffix.lower()] += 1


def _is_archive(path: PurePath) -> bool:
    return path.suffix.lower() == ".zip"


def _is_hidden(path: PurePath) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in path.parts)


def _walk(folder: Path) -> Iterator[Path]:
    """All files that are not hidden; nothing else is skipped silently."""

    def raise_error(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=raise_error):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in folders:
            if Path(place, name).is_symlink():
                raise ParameterError(
                    f"{Path(place, name)} is a link to a folder, which is not followed: remove it, "
                    "and name the folder that it leads to"
                )
        yield from (Path(place, name) for name in files if not name.startswith("."))


def _is_file(path: Path) -> bool:
    """Whether there is a file; in a folder that may only be listed, nobody is told."""
    try:
        return path.is_file()
    except OSError as error:
        problem = closed_file(error)
    raise problem


def _list_archive(path: Path, inside: tuple[str, ...]) -> list[Member]:
    try:
        with path.open("rb"):  # or it would be said to be damaged
            return list_members(path, inside)
    except OSError as error:
        problem = closed_file(error)
    raise problem


def _read_head(source: Source) -> bytes:
    """The first bytes of a file."""
    try:
        with SourceBytes(source) as file:
            return utf8_head(file.read(HEAD_BYTES))
    except OSError as error:
        problem = closed_file(error)
    raise problem


def _broken_link() -> UnreadableFileError:
    return UnreadableFileError(
        "it is a broken link, or not a file",
        expected="a file",
        remedy="copy there what it should lead to, or remove it",
    )


def _recognize(path: Path) -> Format:
    source = Source(path, STANDARD_STREAM_FORMAT, Path(path.name))

    def read_head() -> bytes:
        # Whatever is wrong with the content, its reader says it.
        with contextlib.suppress(UnreadableFileError):
            return _read_head(source)
        return b""

    # A name that tells too little.
    form = recognize_content(path.name, read_head) or recognize(path.name)
    if form is None:
        raise ParameterError(
            f"the name {path} does not tell its format: {all_extensions()} are read. "
            f"{describe_converter(path)}. If it is one of these under another name, give "
            f"--format, one of {', '.join(FORMAT_NAMES)}"
        )
    return form


def describe_converter(path: PurePath) -> str:
    """What turns a file of a format that is not read into one that is."""
    name = path.name.lower()
    for endings, remedy in _CONVERTERS.items():
        if name.endswith(endings):
            return remedy.format(name=path.name)
    return _ANY_CONVERTER
