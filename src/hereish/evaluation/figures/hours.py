"""What a receiver believes over the hours of the day: one line per mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from hereish.evaluation.day_study import describe_mechanism
from hereish.evaluation.figures.labels import add_headline, printable
from hereish.evaluation.figures.style import (
    BLUE,
    DARK,
    GREEN,
    GREY,
    ORANGE,
    RED,
    SKY,
    clear_frame,
    new_figure,
)
from hereish.evaluation.study import Row

_SIZE_IN = (12.0, 5.0)
_PANELS = (("belief_mean_m", "average error, km"), ("belief_p90_m", "90 % are within, km"))
# Of presets. The paper's have broken lines, and dotted ones with skipping: there are not more
# colours that everybody can tell apart.
_COLORS = (BLUE, SKY, GREEN, ORANGE)
_PAPERS = {"fixed_rate": RED, "fixed_utility": DARK}


def hours_figure(hours: Sequence[Row]) -> Figure:
    """The rows of one data set and one time between queries."""
    figure = new_figure(_SIZE_IN)
    panels = figure.subplots(1, len(_PANELS), sharex=True)
    for axes, (column, title) in zip(panels, _PANELS, strict=True):
        _draw(axes, hours, column)
        axes.set_title(title, loc="left")
    lines, names = panels[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=5, frameon=False)
    minutes = hours[0]["every_s"] / 60
    below = f"{printable(hours[0]['dataset'], 60)}, a query every {minutes:g} min"
    add_headline(figure, "How far off a receiver is, hour by hour", below)
    return figure


def _draw(axes: Axes, hours: Sequence[Row], column: str) -> None:
    colors = cycle(_COLORS)
    for name, group in groupby(hours, describe_mechanism):
        rows = list(group)
        mechanism = str(rows[0]["mechanism"])
        manager = mechanism.removesuffix("_skip")
        color, broken, width = _PAPERS.get(manager, GREY), "-", 1.4
        if mechanism != manager:
            broken = ":"
        elif manager in _PAPERS:
            broken = "--"
        elif rows[0]["preset"] is not None:
            color, width = next(colors), 2.2
        known = [(row["hour"] + 0.5, row[column] / 1000.0) for row in rows]
        axes.plot(*zip(*known, strict=True), color=color, ls=broken, lw=width, label=name)
    axes.set_yscale("log")  # a frozen belief may be very far off
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0, 24)
    axes.set_xticks(range(0, 25, 3))
    axes.set_xlabel("local hour")
    clear_frame(axes)
