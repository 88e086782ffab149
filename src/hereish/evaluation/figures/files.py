"""The figures of the study as files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hereish.core.types import Bools
from hereish.evaluation.configurations import MANAGERS, Setting
from hereish.evaluation.dataset import Trajectories
from hereish.evaluation.study import Row

try:
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError as missing:
    raise ImportError("figures need more: pip install 'hereish[plot]'") from missing

from hereish.evaluation.figures.panels import configuration_figure, overview_figure
from hereish.evaluation.figures.trace_figure import trace_figure


def draw(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw the rows of the study, and say which files that gave.

    There is one for each configuration of each data set and sampling, and an overview where a data
    set was sampled in several ways. What was not measured is not drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with _looks():
        for name, figure in _figures(rows):
            path = folder / _free(name, [other.name for other in written])
            _save(figure, path)
            written.append(path)
    return written


def draw_trace(given: Trajectories, slow: Bools, path: Path, seed: int, setting: Setting) -> bool:
    """Draw a telling trace: true, sampled and reported. The picture shows true positions.

    False, and no picture, if there is no such trace.
    """
    with _looks():
        figure = trace_figure(given, slow, seed, setting)
        if figure is None:
            return False
        _save(figure, path)
    return True


@contextmanager
def _looks() -> Iterator[None]:
    """The same look for everybody; the caller's own settings are back afterwards."""
    with style.context(["default", {"font.size": 10.0, "axes.titlesize": 11.0}]):
        yield


def _save(figure: Figure, path: Path) -> None:
    part = path.with_name(f".{path.name}.part")
    FigureCanvasAgg(figure)
    figure.savefig(part, format="png", metadata={"Software": None})
    part.replace(path)


def _free(name: str, taken: Sequence[str]) -> str:
    """A name that is not taken yet, not even where a and A are the same."""
    used = {other.casefold() for other in taken}
    ends = ("", *(f"-{number}" for number in range(2, len(used) + 2)))
    return next(free for end in ends if (free := f"{name}{end}.png").casefold() not in used)


def _figures(rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    """Figures, and what their files are to be called."""
    for dataset, published in dict.fromkeys((r["dataset"], r["as_published"]) for r in rows):
        own = [r for r in rows if (r["dataset"], r["as_published"]) == (dataset, published)]
        name = re.sub(r"[^\w.=-]+", "-", dataset).strip("-.") or "data"
        name += "-as-published" if published else ""
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
