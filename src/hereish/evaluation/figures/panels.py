"""The figures of the study's numbers: what configurations cost and how far off they are, over p.

Solid is the predictive mechanism, dashed the independent one, and dotted one that tests without
noise, which is not private. Shades are the intervals of 95 % confidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hereish.evaluation.configurations import MANAGERS
from hereish.evaluation.figures.curves import (
    BLUE,
    DARK,
    ERRORS,
    GENERAL,
    GREY,
    MECHANISMS,
    RATE,
    RED,
    Curves,
    Line,
)
from hereish.evaluation.figures.labels import LEFT, RIGHT, at_the_end, headline, note, plain
from hereish.evaluation.study import Row

SIZE_IN, DPI = (12.0, 5.0), 150
_MANAGERS = {"fixed_rate": ("fixed rate", RED), "fixed_utility": ("fixed utility", BLUE)}
_SAMPLINGS = {
    "authors": "sampled as by the authors: where the logger is silent, somebody is still",
    "gaps": "sampled with gaps: where the logger is silent, a trace ends",
    "given": "query traces as given",
}
_WORDS = ("predictive", "independent noise", "tested without noise (not private)")
_SHORT = ("predictive", "independent", "no noise\nin the test")
_P = "p: chance of an hour between two queries"
_STYLES: dict[str, dict[str, Any]] = {
    "predictive": {"linewidth": 2.0, "marker": "o", "markersize": 4.5, "zorder": 3},
    "independent": {"linewidth": 1.6, "linestyle": (0, (5, 2.5)), "zorder": 2.5},
    "repeat": {"linewidth": 1.3, "linestyle": (0, (1, 1.8)), "zorder": 2, "color": GREY},
}
_SHADES = {"predictive": 0.22, "independent": 0.1}
_BAND: dict[str, Any] = {"facecolor": "black", "alpha": 0.09, "linewidth": 0.0, "zorder": 0.5}
_RING: dict[str, Any] = {"marker": "o", "markersize": 10, "markerfacecolor": "none", "zorder": 4}


def configuration_figure(rows: Sequence[Row], manager: str, skip: bool) -> Figure | None:
    """One configuration on one data set and sampling; None if nothing of it was measured."""
    curves = Curves.of(rows, manager, skip)
    panels: tuple[tuple[Callable[[Axes, Curves], None], Sequence[Line]], ...] = (
        (_general, GENERAL),
        (_errors, ERRORS),
        (_rate, (RATE,)),
    )
    wanted = [panel for panel, lines in panels if curves.known(lines)]
    if not wanted:
        return None
    figure = _figure()
    for axes, panel in zip(figure.subplots(1, len(wanted), squeeze=False)[0], wanted, strict=True):
        panel(axes, curves)
    setting = f", {curves.paper.setting}" if curves.paper else ""
    title = f"{_MANAGERS[manager][0].capitalize()}{setting}, {'with' if skip else 'without'} skip"
    own = curves.rows["predictive"]
    headline(figure, title, f"{_dataset(own[0])}, {_sampling(own[0])}; {counted(own)}")
    if not curves.single:
        _legend(figure)
    return figure


def _figure() -> Figure:
    room = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.09)
    return Figure(figsize=SIZE_IN, dpi=DPI, layout=room)


def _dataset(row: Row) -> str:
    rules = ", by the authors' rules" if row["as_published"] else ""
    return f"{plain(row['dataset'], 50)}{rules}"


def _sampling(row: Row) -> str:
    return _SAMPLINGS.get(row["sampling"], f"sampling: {row['sampling']}")


def counted(rows: Sequence[Row]) -> str:
    """Of how many query traces the numbers are."""
    counts = {row["p"]: row["traces"] for row in rows}
    told = sorted(p for p in counts if p is not None)
    samples = max(row["samples"] for row in rows)
    words = "1 sample" if samples == 1 else f"{samples} samples"
    if not told:
        return f"{max(counts.values()):,} traces in {words}"
    ends = " to ".join(f"{counts[p]:,} (p = {p:g})" for p in dict.fromkeys((told[0], told[-1])))
    return f"{ends} traces in {words}"


def _general(axes: Axes, curves: Curves) -> None:
    axes.set_title("Predictions and tests", loc="left")
    _over_p(axes, curves, MECHANISMS[:1])
    lines = [line for line in GENERAL if curves.skip or line.name != "skipped_share"]
    for line in lines:
        _plot(axes, curves, "predictive", line)
    axes.set_ylim(0.0, 1.0)
    _percent(axes)
    _name(axes, curves, lines)
    if curves.break_even is not None:
        note(axes, f"testing pays above {curves.break_even:.1%}", curves.break_even)
        axes.axhline(curves.break_even, color=GREY, linewidth=1.0, zorder=1, label="break-even")


def _errors(axes: Axes, curves: Curves) -> None:
    axes.set_title("Error of the reports, km", loc="left")
    _over_p(axes, curves)
    for line in ERRORS:
        for mechanism in MECHANISMS:
            _plot(axes, curves, mechanism, line)
    _from_zero(axes, [curves], ERRORS)
    _name(axes, curves, ERRORS)
    if curves.paper and not curves.skip:
        for line in ERRORS:
            if line.name in curves.paper.better_m:
                _better(axes, curves, line, curves.paper.better_m[line.name])


def _better(axes: Axes, curves: Curves, line: Line, better_m: tuple[float, float]) -> None:
    """Where the paper's errors lie, below those of independent noise."""
    than = float(np.nanmedian(curves.values("independent", line)))
    least, most = (value / line.unit for value in better_m)
    axes.axhspan(than - most, than - least, **_BAND)
    note(axes, f"{curves.paper_words}: {least:g} to {most:g} km better", than - least, than - most)


def _rate(axes: Axes, curves: Curves) -> None:
    axes.set_title("Budget for a report", loc="left")
    _over_p(axes, curves)
    for mechanism in MECHANISMS:
        _plot(axes, curves, mechanism, RATE)
    _from_zero(axes, [curves], (RATE,))
    _percent(axes)
    _lasts(axes, curves.values("independent", RATE).tolist())
    rates = curves.values("predictive", RATE)
    best = int(np.nanargmin(rates))
    x, y = float(curves.x("predictive")[best]), float(rates[best])
    axes.plot(x, y, markeredgecolor=BLUE, label="best", **_RING)
    near, far = (LEFT, RIGHT) if x < sum(axes.get_xlim()) / 2.0 else (RIGHT, LEFT)
    note(axes, f"{y:.2%}, {_fitting(y)} reports", y, sides=(near,), apart=0.03, color=BLUE)
    down_to = curves.paper and curves.paper.down_to.get(curves.skip)
    if down_to:
        note(axes, f"{curves.paper_words}: down to {100 * down_to:g}%", down_to, sides=(far,))
        axes.axhline(down_to, color=DARK, linewidth=1.0, zorder=1, label="paper")


def _fitting(rate: float) -> int:
    """How many reports fit into a budget."""
    return int(1.0 / rate + 1e-9)


def _lasts(axes: Axes, independent: Sequence[float]) -> None:
    """How many reports a budget lasts for, beside what one of them costs."""
    low, high = axes.get_ylim()
    ticks = {rate: _fitting(rate) for rate in independent[:1] if rate > 0.0}
    for n in (1, 2, 3, 5, 7, 10, 12, 15, 20, 30, 50, 100, 200, 500, 1000):
        if all(abs(1.0 / n - other) > 0.06 * (high - low) for other in (*ticks, low, high)):
            ticks[1.0 / n] = n
    shown = {rate: n for rate, n in ticks.items() if rate < high}
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(list(shown), [f"{n} reports" for n in shown.values()], color=GREY)
    beside.tick_params(length=3, color=GREY, labelsize=9)
    beside.spines["right"].set_visible(False)


def overview_figure(rows: Sequence[Row]) -> Figure | None:
    """What reports cost in all configurations, a panel for each sampling of a data set."""
    asked = [(manager, skip) for manager in MANAGERS for skip in (False, True)]
    panels = []
    for sampling in dict.fromkeys(row["sampling"] for row in rows):
        own = [row for row in rows if row["sampling"] == sampling]
        every = [Curves.of(own, manager, skip) for manager, skip in asked]
        known = [curves for curves in every if curves.known((RATE,))]
        panels += [known] if known else []
    if not panels:
        return None
    figure = _figure()
    drawn = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, every in zip(drawn, panels, strict=True):
        own = every[0].rows["predictive"]
        words = _sampling(own[0]).split(":")[0].capitalize()
        axes.set_title(f"{words}: {counted(own)}", loc="left", fontsize=10)
        _over_p(axes, every[0], MECHANISMS[:2])
        for curves in every:
            color = _MANAGERS[curves.manager][1]
            hollow = {"markerfacecolor": "white"} if curves.skip else {}
            _plot(axes, curves, "predictive", RATE._replace(color=color), **hollow)
            if not curves.skip:
                _plot(axes, curves, "independent", RATE._replace(color=color))
        _from_zero(axes, [one for some in panels for one in some], (RATE,))
        _percent(axes)
        _name_all(axes, every)
    words = "filled: without skip, hollow: with skip, dashed: independent; shades: 95% confidence"
    headline(
        figure,
        "Budget for a report, in all private configurations",
        f"{_dataset(rows[0])}; {words}",
    )
    return figure


def _name_all(axes: Axes, every: Sequence[Curves]) -> None:
    told = []
    for curves in every:
        words, color = _MANAGERS[curves.manager]
        if (at := curves.last("predictive", RATE)) is not None:
            told.append((at, f"{words}{', skip' if curves.skip else ''}", color))
        if not curves.skip and (at := curves.last("independent", RATE)) is not None:
            setting = f", {curves.paper.setting}" if curves.paper else ""
            told.append((at, f"independent{setting}", color))
    at_the_end(axes, told)


def _plot(axes: Axes, curves: Curves, mechanism: str, line: Line, **other: Any) -> None:
    """A line, or a point if there is one p, and its interval."""
    look = {"color": line.color, "label": f"{mechanism} {line.name}"} | _STYLES[mechanism] | other
    x, y, low, high = (
        curves.x(mechanism),
        *(curves.values(mechanism, line, end) for end in ("", "_lo", "_hi")),
    )
    for part in curves.stretches(mechanism):
        if part.stop - part.start == 1:
            look |= {"linestyle": "none", "marker": "o", "markersize": 7}
            axes.vlines(x[part], low[part], high[part], color=look["color"], alpha=0.4, linewidth=3)
        elif mechanism != "repeat":
            shade = {"color": look["color"], "alpha": _SHADES[mechanism], "linewidth": 0.0}
            axes.fill_between(x[part], low[part], high[part], zorder=1.5, **shade)
        axes.plot(x[part], y[part], **look)


def _percent(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}%"))


def _from_zero(axes: Axes, every: Sequence[Curves], lines: Sequence[Line]) -> None:
    """Room for all lines, but not for values out of all proportion, which are told instead."""
    values, ends, usual = (
        np.concatenate([c.values(m, line, end) for c in every for m in among for line in lines])
        for among, end in ((MECHANISMS, ""), (MECHANISMS, "_hi"), (("independent",), ""))
    )
    most = float(np.nanmax(values))
    high = float(np.nanmax(np.append(ends, most)))
    top = min(most, 1.5 * float(np.nanmax(usual))) if np.isfinite(usual).any() else most
    axes.set_ylim(0.0, 1.08 * min(max(top, high), 1.3 * top))
    axes.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    if most > axes.get_ylim()[1]:
        words = f"↑ up to {most:.3g}"
        axes.text(0.98, 0.98, words, transform=axes.transAxes, ha="right", va="top", color=DARK)


def _over_p(axes: Axes, curves: Curves, shown: Sequence[str] = MECHANISMS) -> None:
    """The axes, before anything is drawn: where words find room depends on them."""
    told = [row["p"] for row in curves.rows["predictive"]]
    if curves.single:
        axes.set_xticks(range(len(shown)), _SHORT[: len(shown)])
        axes.set_xlim(-0.5, len(shown) - 0.5)
        axes.set_xlabel("p is not told" if told[0] is None else f"p = {told[0]:g}")
    else:
        places = dict(zip(curves.x("predictive").tolist(), told, strict=True))
        few = list(places)[:: 2 if len(places) > 7 else 1]
        axes.set_xticks(few, ["?" if places[x] is None else f"{places[x]:g}" for x in few])
        axes.set_xlim(min(places) - 0.03, max(places) + 0.03)
        axes.set_xlabel(_P)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E8E8E8", linewidth=0.8)
    axes.set_axisbelow(True)


def _name(axes: Axes, curves: Curves, lines: Sequence[Line]) -> None:
    """Each line's words at its end."""
    ends = [(curves.last("predictive", line), line) for line in lines]
    at_the_end(axes, [(at, line.words, line.color) for at, line in ends if at is not None])


def _legend(figure: Figure) -> None:
    handles: list[Any] = [
        Line2D([], [], label=words, **({"color": DARK} | _STYLES[mechanism]))
        for mechanism, words in zip(MECHANISMS, _WORDS, strict=True)
    ]
    handles.append(Patch(color=DARK, alpha=0.2, label="95% confidence"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
