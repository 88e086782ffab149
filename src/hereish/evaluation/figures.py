"""The figures of the study: what each configuration costs and how far off it is, over p.

Solid is the predictive mechanism, dashed the independent one, dotted what no private test can beat.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hereish.arrays import Bools, Floats
from hereish.evaluation.configurations import MANAGERS, Setting
from hereish.evaluation.data import Trajectories
from hereish.mechanism import fixed_rate, fixed_utility

try:
    from matplotlib import style
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import PercentFormatter
except ImportError as missing:
    raise ImportError("figures need more: pip install 'hereish[plot]'") from missing

from hereish.evaluation.trace_figure import trace_figure

Row = dict[str, Any]
DPI = 150
WIDE_IN, HIGH_IN = 12.0, 4.9
# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
BLUE, RED, GREEN, GREY, FAINT = "#0072B2", "#D55E00", "#00805E", "#666666", "#E4E4E4"
_WORDS = {"fixed_rate": "Fixed rate", "fixed_utility": "Fixed utility"}
_MECHANISMS = {
    "predictive": "predictive",
    "independent": "independent",
    "repeat": "exact test (not private)",
}
_STYLES: dict[str, dict[str, Any]] = {
    "predictive": {"linewidth": 2.0, "marker": "o", "markersize": 4.5},
    "independent": {"linewidth": 1.5, "linestyle": (0, (5, 2.5))},
    "repeat": {"linewidth": 1.3, "linestyle": (0, (1, 1.8))},
}
_LABEL = {"fontsize": 10, "va": "center", "fontweight": "bold"}
_NOTE = {"fontsize": 9, "color": "#333333", "fontstyle": "italic"}


@dataclass(frozen=True)
class Line:
    """A measured number that is drawn over p."""

    name: str  # in the rows
    words: str
    color: str


GENERAL = (
    Line("prediction_rate", "predicted", BLUE),
    Line("test_share", "budget\nfor tests", RED),
    Line("skipped_share", "test\nskipped", GREEN),
)
ERRORS = (Line("error_p90_m", "90th\npercentile", RED), Line("error_mean_m", "average", BLUE))
RATE = Line("rate", "", BLUE)


@dataclass(frozen=True)
class Claim:
    """What the paper says, for GeoLife: how much better than independent noise, or down to what."""

    better_m: dict[str, tuple[float, float]]
    rate: float | None = None


CLAIMS = {
    ("fixed_rate", False): Claim({"error_mean_m": (500, 700), "error_p90_m": (1300, 1900)}),
    ("fixed_utility", False): Claim({}, 0.041),
    ("fixed_utility", True): Claim({}, 0.02),
}
# By these of the independent mechanism the paper's settings are known: its rate, its average error.
_PAPER = {"fixed_rate": (1 / 30, 2606.0, "30 reports"), "fixed_utility": (0.0563, 1543.0, "3 km")}


def draw(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw the rows of the study, and say which files that gave: one for each configuration of each
    data set and sampling, and an overview where a data set was sampled in several ways.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with _drawing():
        for name, figure in _figures(rows):
            taken = {path.name.casefold() for path in written}
            written.append(folder / _free(name, taken))
            _save(figure, written[-1])
    return written


def draw_trace(
    given: Trajectories, slow: Bools, path: Path, seed: int, setting: Setting
) -> bool:
    """Draw a telling trace: true, sampled and reported. The picture shows true positions.

    False, and no picture, if there is no such trace.
    """
    with _drawing():
        figure = trace_figure(given, slow, seed, setting)
        if figure is not None:
            _save(figure, path)
    return figure is not None


@contextmanager
def _drawing() -> Iterator[None]:
    """The same look for everybody, whatever their own settings are, which stay as they are."""
    with style.context(["default", {"font.size": 10, "axes.titlesize": 11}]):
        yield


def _save(figure: Figure, path: Path) -> None:
    part = path.with_name(f".{path.name}.part")
    FigureCanvasAgg(figure)
    figure.savefig(part, format="png", metadata={"Software": None})
    part.replace(path)


def _free(name: str, taken: set[str]) -> str:
    """A file's name that is not taken, in folders that do not tell a from A either."""
    names = (f"{name}{end}.png" for end in ("", *(f"-{i}" for i in range(2, len(taken) + 3))))
    return next(free for free in names if free.casefold() not in taken)


def _figures(rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    """Figures, and what their files are called."""
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
        if len(samplings) > 1:
            yield f"{name}-overview", overview_figure(own, samplings)


def configuration_figure(rows: Sequence[Row], manager: str, skip: bool) -> Figure | None:
    """The panels of one configuration, of one data set and sampling; None if nothing is known."""
    chosen = {
        mechanism: _of(rows, mechanism, manager, skip and mechanism == "predictive")
        for mechanism in _MECHANISMS
    }
    measured = chosen["predictive"]
    general = [line for line in GENERAL if skip or line.name != "skipped_share"]
    wanted = [
        (lines, panel)
        for lines, panel in ((general, _general), (ERRORS, _errors), ((RATE,), _rate))
        if any(np.isfinite(_column(measured, line.name)).any() for line in lines)
    ]
    if not wanted:
        return None
    figure = Figure(figsize=(WIDE_IN, HIGH_IN), dpi=DPI, layout="constrained")
    claim = CLAIMS.get((manager, skip)) if _as_in_paper(chosen["independent"], manager) else None
    panels = figure.subplots(1, len(wanted), squeeze=False)[0]
    for axes, (lines, panel) in zip(panels, wanted, strict=True):
        panel(axes, lines, chosen, claim)
        _over_p(axes, measured)
    if not skip and wanted[0][1] is _general:
        _break_even(panels[0], manager)
    figure.suptitle(_title(chosen, manager, skip), x=0.01, ha="left", fontsize=11, parse_math=False)
    _legend(figure, chosen)
    return figure
