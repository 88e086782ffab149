"""Data sets for commands that study them: what a name means, with a bar while it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from hereish.cli._progress import Progress
from hereish.evaluation import cabspotting, dataset
from hereish.traces.columns import Columns
from hereish.traces.discovery import find_sources


def trajectories(
    names: tuple[str, ...], columns: Columns, form: str | None, jobs: int, quiet: bool
) -> Iterator[tuple[dataset.Trajectories, str]]:
    if not names:
        yield dataset.synthetic(), "made up"
    for name in names:
        published = cabspotting.files(name) if form is None else []
        if published:
            yield cabspotting.load(published), identity(published)
            continue
        paths = [source.path for source in find_sources([name], form) if source.path is not None]
        with Progress("reading", quiet) as progress:
            found = dataset.load([name], columns, form, jobs=jobs, progress=progress)
        yield found, identity(paths) + repr(columns)


def identity(paths: list[Path]) -> str:
    """Names, sizes and times of files: enough to notice that data have changed."""
    told = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.sha256(repr(told).encode()).hexdigest()
