"""The data sets that `evaluate` and `tune` read, with a progress bar."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

from hereish import synthetic
from hereish.cli._input_options import InputOptions
from hereish.cli._messages import note
from hereish.cli._options import RunOptions
from hereish.cli._progress import Progress
from hereish.evaluation import cabspotting, dataset
from hereish.evaluation.days import time_zone_of
from hereish.traces.discovery import find_inputs


def load_datasets(
    names: tuple[str, ...],
    source: InputOptions,
    run: RunOptions,
    make_up: Callable[[], dataset.Trajectories] = dataset.synthetic,
) -> Iterator[tuple[dataset.Trajectories, str]]:
    """The trajectories of each name with their identity; of the made-up city without names."""
    columns = source.columns_of_trajectories()
    if not names:
        yield make_up(), "made up"
    for name in names:
        published = cabspotting.find_files(name) if source.form is None else []
        if published:
            yield cabspotting.load(published), identify(published)
            continue
        paths = [
            file.path for file in find_inputs([name], source.form).sources if file.path is not None
        ]
        with Progress("reading", run.quiet) as progress:
            trajectories = dataset.load(
                [name], columns, source.form, jobs=run.threads, progress=progress
            )
        yield trajectories, identify(paths) + repr(columns)


def choose_time_zone(
    names: tuple[str, ...],
    trajectories: dataset.Trajectories,
    source: InputOptions,
    run: RunOptions,
) -> str:
    """The zone of the option; else that of the city, or one by longitude."""
    if source.time_zone is not None:
        return source.time_zone
    if not names:
        return synthetic.TIME_ZONE
    zone = time_zone_of(trajectories.points)
    if not run.quiet:
        note(f"days of {trajectories.name} are those of {zone}, by longitude; or give --time-zone")
    return zone


def identify(paths: list[Path]) -> str:
    """Names, sizes and times of files: enough to notice that data have changed."""
    files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.sha256(repr(files).encode()).hexdigest()
