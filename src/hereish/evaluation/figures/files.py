"""The figures of the study as files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from hereish.core.types import Bools
from hereish.evaluation.dataset import Trajectories
from hereish.evaluation.situations import Limits
from hereish.evaluation.study import Row
from hereish.evaluation.study_settings import MANAGERS, StudySettings

try:
    from matplotlib.figure import Figure
except ImportError as missing:
    raise ImportError("figures need matplotlib: pip install 'hereish[plot]'") from missing

from hereish.evaluation.figures.frontier import frontier_figure
from hereish.evaluation.figures.hours import hours_figure
from hereish.evaluation.figures.panels import configuration_figure, overview_figure
from hereish.evaluation.figures.style import figure_style, save_png
from hereish.evaluation.figures.trace_figure import trace_figure


def draw_study(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw the rows of the study; returns the files that were written.

    There is one per configuration, data set and sampling, and an overview where a data set was
    sampled in several ways. What was not measured is not drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with figure_style():
        for name, figure in _figures(rows):
            path = folder / _unused_name(name, [other.name for other in written])
            save_png(figure, path)
            written.append(path)
    return written


def draw_days(hours: Sequence[Row], folder: Path) -> list[Path]:
    """Draw the beliefs over the hours of the day; returns the files that were written.

    There is one per data set and time between queries.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with figure_style():
        for dataset, every_s in dict.fromkeys((r["dataset"], r["every_s"]) for r in hours):
            own = [r for r in hours if (r["dataset"], r["every_s"]) == (dataset, every_s)]
            name = f"{_name_of(dataset)}-days-{every_s / 60:g}min"
            path = folder / _unused_name(name, [other.name for other in written])
            save_png(hours_figure(own), path)
            written.append(path)
    return written


def draw_frontiers(rows: Sequence[Row], limits: Limits, folder: Path) -> list[Path]:
    """Draw the frontier of each sampling of the leaderboard; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with figure_style():
        for sampling in dict.fromkeys(row["sampling"] for row in rows if row["sampling"] != "days"):
            own = [row for row in rows if row["sampling"] == sampling]
            path = folder / f"leaderboard-{sampling}.png"
            save_png(frontier_figure(own, limits), path)
            written.append(path)
    return written


def draw_trace(
    trajectories: Trajectories, slow: Bools, path: Path, seed: int, settings: StudySettings
) -> bool:
    """Draw an instructive trace: true, sampled and released. The figure shows true positions.

    False, and no file, if there is no such trace.
    """
    with figure_style():
        figure = trace_figure(trajectories, slow, seed, settings)
        if figure is None:
            return False
        save_png(figure, path)
    return True


def _name_of(dataset: str) -> str:
    """A data set's name as part of a file name."""
    return re.sub(r"[^\w.=-]+", "-", dataset).strip("-.") or "data"


def _unused_name(name: str, taken: Sequence[str]) -> str:
    """A file name that is not taken, even where upper and lower case are the same."""
    used = {other.casefold() for other in taken}
    ends = ("", *(f"-{number}" for number in range(2, len(used) + 2)))
    return next(unused for end in ends if (unused := f"{name}{end}.png").casefold() not in used)


def _figures(rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    """The figures with the names of their files."""
    for dataset, published in dict.fromkeys((r["dataset"], r["as_published"]) for r in rows):
        own = [r for r in rows if (r["dataset"], r["as_published"]) == (dataset, published)]
        name = _name_of(dataset) + ("-as-published" if published else "")
        samplings = list(dict.fromkeys(r["sampling"] for r in own))
        for sampling in samplings:
            group = [r for r in own if r["sampling"] == sampling]
            for manager in MANAGERS:
                for skip in (False, True):
                    figure = configuration_figure(group, manager, skip)
                    if figure is not None:
                        end = f"{manager}{'_skip' if skip else ''}".replace("_", "-")
                        yield f"{name}-{sampling}-{end}", figure
        overview = overview_figure(own) if len(samplings) > 1 else None
        if overview is not None:
            yield f"{name}-overview", overview
