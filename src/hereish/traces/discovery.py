"""Which files to read: names, folders and globs to sources, each with its format."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hereish.errors import ParameterError
from hereish.traces.formats._sidecar import is_sidecar
from hereish.traces.formats.base import Format, Source
from hereish.traces.formats.registry import (
    FORMAT_NAMES,
    STANDARD_STREAM_FORMAT,
    all_extensions,
    get_format,
    recognize,
)

STANDARD_STREAM = "-"  # in place of a file name: standard input or output


def find_sources(names: Sequence[str], form: str | None = None) -> list[Source]:
    """The files that are meant, each once, folders and globs in the order of their names."""
    chosen = None if form is None else get_format(form)
    sources: dict[Path | None, Source] = {}
    for name in names:
        for source in _expand(name, chosen):
            key = source.path and source.path.resolve()
            if key in sources:
                raise ParameterError(f"{source.name} is named twice; each file is read once")
            sources[key] = source
    if len(sources) == 1:
        return list(sources.values())
    return [replace(source, number=i) for i, source in enumerate(sources.values(), start=1)]


def _expand(name: str, form: Format | None) -> Iterator[Source]:
    if name == STANDARD_STREAM:
        yield Source(None, form or STANDARD_STREAM_FORMAT, Path("stdin.csv"))
        return
    path = Path(name)
    if path.is_dir():
        yield from _search_folder(path, form)
    elif path.exists():
        yield Source(path, form or _recognize(name), Path(path.name))
    else:
        matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207  # Path.glob refuses absolute ones
        if not matches:
            raise ParameterError(f"there is no file or folder {name}")
        for match in matches:
            yield from _expand(match, form)


def _search_folder(folder: Path, form: Format | None) -> Iterator[Source]:
    empty = True
    for path in sorted(_walk(folder)):
        if _is_data(path, form):
            empty = False
            if not path.is_file():
                raise ParameterError(f"{path} cannot be read: it is a broken link, or not a file")
            yield Source(path, form or _recognize(path.name), path.relative_to(folder))
    if empty:
        raise ParameterError(
            f"the folder {folder} has no file of a format that is read: {all_extensions()}"
        )


def _walk(folder: Path) -> Iterator[Path]:
    """All files that are not hidden; nothing else is skipped silently."""

    def raise_error(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=raise_error):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in folders:
            if Path(place, name).is_symlink():
                raise ParameterError(
                    f"{Path(place, name)} is a link to a folder; name that folder itself"
                )
        yield from (Path(place, name) for name in files if not name.startswith("."))


def _is_data(path: Path, form: Format | None) -> bool:
    recognized = recognize(path.name)
    if recognized is None or is_sidecar(path):
        return False
    return recognized.is_data_file(path) if form is None else form == recognized


def _recognize(name: str) -> Format:
    form = recognize(name)
    if form is None:
        raise ParameterError(
            f"the name {name} does not tell its format; give --format, one of "
            f"{', '.join(FORMAT_NAMES)}"
        )
    return form
