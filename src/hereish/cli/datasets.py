"""Data sets for commands that study them: what a name means, with a bar while it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from hereish.cli.progress import Progress
from hereish.evaluation import cabs, data
from hereish.traces.piece import Columns
from hereish.traces.sources import find


def trajectories(
    names: tuple[str, ...], columns: Columns, form: str | None, jobs: int, quiet: bool
) -> Iterator[tuple[data.Trajectories, str]]:
    if not names:
        yield data.synthetic(), "made up"
    for name in names:
        published = cabs.files(name) if form is None else []
        if published:
            yield cabs.load(published), identity(published)
            continue
        paths = [source.path for source in find([name], form) if source.path is not None]
        with Progress("reading", quiet) as progress:
            found = data.load([name], columns, form, jobs=jobs, progress=progress)
        yield found, identity(paths) + repr(columns)


def identity(paths: list[Path]) -> str:
    """Names, sizes and times of files: enough to notice that data have changed."""
    told = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.sha256(repr(told).encode()).hexdigest()
