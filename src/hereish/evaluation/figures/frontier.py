"""The frontier of the leaderboard: error against rate, a curve per mechanism over its noise."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from hereish.evaluation.figures.labels import add_headline, printable
from hereish.evaluation.figures.style import (
    BLUE,
    DARK,
    GREEN,
    GREY,
    LIGHT_GREY,
    ORANGE,
    RED,
    SKY,
    clear_frame,
    new_figure,
)
from hereish.evaluation.leaderboard_page import label_of
from hereish.evaluation.situations import Limits
from hereish.evaluation.study import Row

_PANEL_IN, _HIGH_IN = 4.2, 5.6
_COLORS = (GREY, RED, RED, ORANGE, SKY, BLUE, BLUE, GREEN, GREEN, DARK, DARK)


def frontier_figure(rows: Sequence[Row], limits: Limits) -> Figure:
    """The rows of one sampling, a panel per p."""
    ps = list(dict.fromkeys(row["p"] for row in rows))
    figure = new_figure((max(3, len(ps)) * _PANEL_IN, _HIGH_IN))
    panels = figure.subplots(1, len(ps), squeeze=False)[0]
    for axes, p in zip(panels, ps, strict=True):
        _draw(axes, [row for row in rows if row["p"] == p], limits)
        axes.set_title(f"p = {p:g}", loc="left")
        axes.set_xlabel("rate: budget per report, %")
    panels[0].set_ylabel("average error, km")
    lines, names = panels[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=3, frameon=False)
    below = f"{printable(rows[0]['dataset'], 60)}, {rows[0]['sampling']}, users not tuned on"
    add_headline(figure, "What accuracy costs", below)
    return figure


def _draw(axes: Axes, rows: Sequence[Row], limits: Limits) -> None:
    axes.axhline(limits.mean_m / 1000.0, color=LIGHT_GREY, lw=1.2, zorder=0)
    seen: dict[str, int] = {}
    for number, row in enumerate(rows):
        color = _COLORS[number % len(_COLORS)]
        broken = ("-", "--")[min(seen.get(color, 0), 1)]
        seen[color] = seen.get(color, 0) + 1
        points = sorted((100.0 * r["rate"], r["error_mean_m"] / 1000.0) for r in row["curve"])
        if not row["private"]:
            broken = (":", "-.")[min(seen[color] - 1, 1)]
        x, y = [rate for rate, _ in points], [error for _, error in points]
        axes.plot(x, y, color=color, ls=broken, lw=1.8, label=label_of(row))
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, 2.0 * limits.mean_m / 1000.0)
    clear_frame(axes)
