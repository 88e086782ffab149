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
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hereish.evaluation.figures.curves import (
    ERRORS,
    GENERAL,
    MECHANISMS,
    RATE,
    Curves,
    Series,
)
from hereish.evaluation.figures.labels import (
    LEFT,
    RIGHT,
    add_headline,
    annotate,
    label_ends,
    printable,
)
from hereish.evaluation.figures.style import BLUE, DARK, GREY, RED, clear_frame, new_figure
from hereish.evaluation.study import Row
from hereish.evaluation.study_settings import MANAGERS, Manager

SIZE_IN = (12.0, 5.0)
_MANAGERS = {"fixed_rate": ("fixed rate", RED), "fixed_utility": ("fixed utility", BLUE)}
_SAMPLINGS = {
    "authors": "sampled as by the authors: where the logger is silent, somebody is still",
    "gaps": "sampled with gaps: where the logger is silent, a trace ends",
    "given": "query traces as given",
}
_LABELS = ("predictive", "independent noise", "tested without noise (not private)")
_SHORT_LABELS = ("predictive", "independent", "no noise\nin the test")
_P = "p: chance of an hour between two queries"
_STYLES: dict[str, dict[str, Any]] = {
    "predictive": {"linewidth": 2.0, "marker": "o", "markersize": 4.5, "zorder": 3},
    "independent": {"linewidth": 1.6, "linestyle": (0, (5, 2.5)), "zorder": 2.5},
    "repeat": {"linewidth": 1.3, "linestyle": (0, (1, 1.8)), "zorder": 2, "color": GREY},
}
_SHADES = {"predictive": 0.22, "independent": 0.1}
_BAND: dict[str, Any] = {"facecolor": "black", "alpha": 0.09, "linewidth": 0.0, "zorder": 0.5}
_RING: dict[str, Any] = {"marker": "o", "markersize": 10, "markerfacecolor": "none", "zorder": 4}


def configuration_figure(rows: Sequence[Row], manager: Manager, skip: bool) -> Figure | None:
    """One configuration on one data set and sampling; None if nothing of it was measured."""
    curves = Curves.of(rows, manager, skip)
    panels: tuple[tuple[Callable[[Axes, Curves], None], Sequence[Series]], ...] = (
        (_draw_general, GENERAL),
        (_draw_errors, ERRORS),
        (_draw_rate, (RATE,)),
    )
    wanted = [panel for panel, lines in panels if curves.known(lines)]
    if not wanted:
        return None
    figure = new_figure(SIZE_IN)
    for axes, panel in zip(figure.subplots(1, len(wanted), squeeze=False)[0], wanted, strict=True):
        panel(axes, curves)
    setting = f", {curves.paper.setting}" if curves.paper else ""
    title = f"{_MANAGERS[manager][0].capitalize()}{setting}, {'with' if skip else 'without'} skip"
    own = curves.rows["predictive"]
    add_headline(figure, title, f"{_dataset(own[0])}, {_sampling(own[0])}; {describe_counts(own)}")
    if not curves.single:
        _add_legend(figure)
    return figure


def _dataset(row: Row) -> str:
    rules = ", by the authors' rules" if row["as_published"] else ""
    return f"{printable(row['dataset'], 50)}{rules}"


def _sampling(row: Row) -> str:
    return _SAMPLINGS.get(row["sampling"], f"sampling: {row['sampling']}")


def describe_counts(rows: Sequence[Row]) -> str:
    """How many query traces the metrics are of."""
    counts = {row["p"]: row["traces"] for row in rows}
    known_ps = sorted(p for p in counts if p is not None)
    samples = max(row["samples"] for row in rows)
    samples_label = "1 sample" if samples == 1 else f"{samples} samples"
    if not known_ps:
        return f"{max(counts.values()):,} traces in {samples_label}"
    ends = " to ".join(
        f"{counts[p]:,} (p = {p:g})" for p in dict.fromkeys((known_ps[0], known_ps[-1]))
    )
    return f"{ends} traces in {samples_label}"


def _draw_general(axes: Axes, curves: Curves) -> None:
    axes.set_title("Predictions and tests", loc="left")
    _set_up_p_axis(axes, curves, MECHANISMS[:1])
    lines = [series for series in GENERAL if curves.skip or series.name != "skipped_share"]
    for series in lines:
        _plot_series(axes, curves, "predictive", series)
    axes.set_ylim(0.0, 1.0)
    _use_percent(axes)
    _label_series(axes, curves, lines)
    if curves.break_even is not None:
        annotate(axes, f"prediction pays off above {curves.break_even:.1%}", curves.break_even)
        axes.axhline(curves.break_even, color=GREY, linewidth=1.0, zorder=1, label="break-even")


def _draw_errors(axes: Axes, curves: Curves) -> None:
    axes.set_title("Error of the reports, km", loc="left")
    _set_up_p_axis(axes, curves)
    for series in ERRORS:
        for mechanism in MECHANISMS:
            _plot_series(axes, curves, mechanism, series)
    _set_up_value_axis(axes, [curves], ERRORS)
    _label_series(axes, curves, ERRORS)
    if curves.paper and not curves.skip:
        for series in ERRORS:
            if series.name in curves.paper.better_m:
                _draw_claimed_gain(axes, curves, series, curves.paper.better_m[series.name])


def _draw_claimed_gain(
    axes: Axes, curves: Curves, series: Series, better_m: tuple[float, float]
) -> None:
    """Where the paper's errors lie, below those of independent noise."""
    than = float(np.nanmedian(curves.values("independent", series)))
    least, most = (value / series.unit for value in better_m)
    axes.axhspan(than - most, than - least, **_BAND)
    annotate(
        axes, f"{curves.paper_label}: {least:g} to {most:g} km better", than - least, than - most
    )


def _draw_rate(axes: Axes, curves: Curves) -> None:
    axes.set_title("Budget per report", loc="left")
    _set_up_p_axis(axes, curves)
    for mechanism in MECHANISMS:
        _plot_series(axes, curves, mechanism, RATE)
    _set_up_value_axis(axes, [curves], (RATE,))
    _use_percent(axes)
    _add_report_axis(axes, curves.values("independent", RATE).tolist())
    rates = curves.values("predictive", RATE)
    best = int(np.nanargmin(rates))
    x, y = float(curves.x("predictive")[best]), float(rates[best])
    axes.plot(x, y, markeredgecolor=BLUE, label="best", **_RING)
    near, far = (LEFT, RIGHT) if x < sum(axes.get_xlim()) / 2.0 else (RIGHT, LEFT)
    annotate(
        axes, f"{y:.2%}, {_reports_per_budget(y)} reports", y, sides=(near,), apart=0.03, color=BLUE
    )
    down_to = curves.paper and curves.paper.down_to.get(curves.skip)
    if down_to:
        annotate(axes, f"{curves.paper_label}: down to {100 * down_to:g}%", down_to, sides=(far,))
        axes.axhline(down_to, color=DARK, linewidth=1.0, zorder=1, label="paper")


def _reports_per_budget(rate: float) -> int:
    """How many reports fit into a budget."""
    return int(1.0 / rate + 1e-9)


def _add_report_axis(axes: Axes, independent: Sequence[float]) -> None:
    """How many reports a budget lasts for, beside what one of them costs."""
    low, high = axes.get_ylim()
    ticks = {rate: _reports_per_budget(rate) for rate in independent[:1] if rate > 0.0}
    for n in (1, 2, 3, 5, 7, 10, 12, 15, 20, 30, 50, 100, 200, 500, 1000):
        if all(abs(1.0 / n - other) > 0.06 * (high - low) for other in (*ticks, low, high)):
            ticks[1.0 / n] = n
    visible = {rate: n for rate, n in ticks.items() if rate < high}
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(list(visible), [f"{n} reports" for n in visible.values()], color=GREY)
    beside.tick_params(length=3, color=GREY, labelsize=9)
    beside.spines["right"].set_visible(False)


def overview_figure(rows: Sequence[Row]) -> Figure | None:
    """What reports cost in all configurations, a panel for each sampling of a data set."""
    configured = [(manager, skip) for manager in MANAGERS for skip in (False, True)]
    panels = []
    for sampling in dict.fromkeys(row["sampling"] for row in rows):
        own = [row for row in rows if row["sampling"] == sampling]
        every = [Curves.of(own, manager, skip) for manager, skip in configured]
        known = [curves for curves in every if curves.known((RATE,))]
        panels += [known] if known else []
    if not panels:
        return None
    figure = new_figure(SIZE_IN)
    drawn = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, every in zip(drawn, panels, strict=True):
        own = every[0].rows["predictive"]
        label = _sampling(own[0]).split(":")[0].capitalize()
        axes.set_title(f"{label}: {describe_counts(own)}", loc="left", fontsize=10)
        _set_up_p_axis(axes, every[0], MECHANISMS[:2])
        for curves in every:
            color = _MANAGERS[curves.manager][1]
            hollow = {"markerfacecolor": "white"} if curves.skip else {}
            _plot_series(axes, curves, "predictive", RATE._replace(color=color), **hollow)
            if not curves.skip:
                _plot_series(axes, curves, "independent", RATE._replace(color=color))
        _set_up_value_axis(axes, [one for some in panels for one in some], (RATE,))
        _use_percent(axes)
        _label_configurations(axes, every)
    label = "filled: without skip, hollow: with skip, dashed: independent; shades: 95% confidence"
    add_headline(
        figure,
        "Budget per report, in all private configurations",
        f"{_dataset(rows[0])}; {label}",
    )
    return figure


def _label_configurations(axes: Axes, every: Sequence[Curves]) -> None:
    labels = []
    for curves in every:
        label, color = _MANAGERS[curves.manager]
        if (at := curves.last("predictive", RATE)) is not None:
            labels.append((at, f"{label}{', skip' if curves.skip else ''}", color))
        if not curves.skip and (at := curves.last("independent", RATE)) is not None:
            setting = f", {curves.paper.setting}" if curves.paper else ""
            labels.append((at, f"independent{setting}", color))
    label_ends(axes, labels)


def _plot_series(axes: Axes, curves: Curves, mechanism: str, series: Series, **other: Any) -> None:
    """A line, or a point if there is one p, and its interval."""
    look = (
        {"color": series.color, "label": f"{mechanism} {series.name}"} | _STYLES[mechanism] | other
    )
    x, y, low, high = (
        curves.x(mechanism),
        *(curves.values(mechanism, series, end) for end in ("", "_lo", "_hi")),
    )
    for part in curves.stretches(mechanism):
        if part.stop - part.start == 1:
            look |= {"linestyle": "none", "marker": "o", "markersize": 7}
            axes.vlines(x[part], low[part], high[part], color=look["color"], alpha=0.4, linewidth=3)
        elif mechanism != "repeat":
            shade = {"color": look["color"], "alpha": _SHADES[mechanism], "linewidth": 0.0}
            axes.fill_between(x[part], low[part], high[part], zorder=1.5, **shade)
        axes.plot(x[part], y[part], **look)


def _use_percent(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}%"))


def _set_up_value_axis(axes: Axes, every: Sequence[Curves], lines: Sequence[Series]) -> None:
    """Room for all series; values out of all proportion are given as text instead."""
    values, ends, usual = (
        np.concatenate([c.values(m, series, end) for c in every for m in among for series in lines])
        for among, end in ((MECHANISMS, ""), (MECHANISMS, "_hi"), (("independent",), ""))
    )
    most = float(np.nanmax(values))
    high = float(np.nanmax(np.append(ends, most)))
    top = min(most, 1.5 * float(np.nanmax(usual))) if np.isfinite(usual).any() else most
    axes.set_ylim(0.0, 1.08 * min(max(top, high), 1.3 * top))
    axes.yaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]))
    if most > axes.get_ylim()[1]:
        label = f"↑ up to {most:.3g}"
        axes.text(0.98, 0.98, label, transform=axes.transAxes, ha="right", va="top", color=DARK)


def _set_up_p_axis(axes: Axes, curves: Curves, mechanisms: Sequence[str] = MECHANISMS) -> None:
    """Before anything is drawn: where labels find room depends on the axes."""
    ps = [row["p"] for row in curves.rows["predictive"]]
    if curves.single:
        axes.set_xticks(range(len(mechanisms)), _SHORT_LABELS[: len(mechanisms)])
        axes.set_xlim(-0.5, len(mechanisms) - 0.5)
        axes.set_xlabel("p is unknown" if ps[0] is None else f"p = {ps[0]:g}")
    else:
        places = dict(zip(curves.x("predictive").tolist(), ps, strict=True))
        few = list(places)[:: 2 if len(places) > 7 else 1]
        axes.set_xticks(few, ["?" if places[x] is None else f"{places[x]:g}" for x in few])
        axes.set_xlim(min(places) - 0.03, max(places) + 0.03)
        axes.set_xlabel(_P)
    clear_frame(axes)


def _label_series(axes: Axes, curves: Curves, lines: Sequence[Series]) -> None:
    """The label of each series at its end."""
    ends = [(curves.last("predictive", series), series) for series in lines]
    label_ends(axes, [(at, series.label, series.color) for at, series in ends if at is not None])


def _add_legend(figure: Figure) -> None:
    handles: list[Any] = [
        Line2D([], [], label=label, **({"color": DARK} | _STYLES[mechanism]))
        for mechanism, label in zip(MECHANISMS, _LABELS, strict=True)
    ]
    handles.append(Patch(color=DARK, alpha=0.2, label="95% confidence"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
