"""A picture of what tuning found: error against rate, and which trials nobody beats in both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hereish.evaluation.tuning import Tuned

_BLUE, _ORANGE, _GREEN, _GREY = "#0072b2", "#d55e00", "#008060", "#8c8c8c"


Point = tuple[float, float]  # rate, and average error in metres


def front(points: Iterable[Point]) -> list[Point]:
    """The points that no other beats in rate and error, from the lowest rate on."""
    best: list[Point] = []
    for rate, error_m in sorted(points):
        if not best or error_m < best[-1][1]:
            best.append((rate, error_m))
    return best


def draw(tuned: Tuned, path: Path) -> None:
    """Write the picture, whole or not at all."""
    figure = Figure(figsize=(9, 6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    every = [point for trial in tuned.trials for point in trial.tried]
    axes.scatter(*_places(every), s=9, color="#c4c4c4", label="tried", linewidths=0)
    good = [(t.numbers.rate, t.numbers.error_mean_m) for t in tuned.trials if t.score < 1e6]
    axes.scatter(*_places(good), s=18, color=_BLUE, alpha=0.6, label="just within the limits")
    axes.plot(*_places(front(every)), color=_BLUE, lw=1.2, label="not beaten in both")
    marks = (("paper", "s", _GREY), ("independent", "^", _GREY), ("tuned", "*", _ORANGE))
    for name, marker, colour in marks:
        numbers, low, high = tuned.held_out[name]
        rate, error = 100 * numbers.rate, numbers.error_mean_m / 1000
        axes.errorbar(
            rate,
            error,
            xerr=_arms(rate, 100 * low.rate, 100 * high.rate),
            yerr=_arms(error, low.error_mean_m / 1000, high.error_mean_m / 1000),
            fmt=marker,
            color=colour,
            ms=14 if name == "tuned" else 9,
            capsize=3,
            label=f"{_CALLED[name]}, users not seen: {rate:.2f} %, {1 / numbers.rate:.0f} reports",
        )
    axes.axhline(
        tuned.goal.mean_m / 1000, color=_GREEN, ls="--", lw=1, label="limit of the average"
    )
    # Where something can be seen: noise far beyond the limits was tried too.
    axes.set_xlim(0, 110 * tuned.held_out["independent"][0].rate)
    axes.set_ylim(0, 1.6 * tuned.goal.mean_m / 1000)
    axes.set_xlabel("rate: budget for a report, %")
    axes.set_ylabel("average error, km")
    axes.set_title("Tuned on some users, measured on others (with 95 % intervals)", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    part = path.with_name(f".{path.name}.part")
    figure.savefig(part, format="png", metadata={"Software": None})
    part.replace(path)


_CALLED = {"tuned": "tuned", "paper": "the paper's settings", "independent": "independent noise"}


def _arms(value: float, low: float, high: float) -> list[list[float]]:
    """How far an interval reaches down and up; never less than nothing, by rounding."""
    return [[max(0.0, value - low)], [max(0.0, high - value)]]


def _places(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [100 * rate for rate, _ in points], [error_m / 1000 for _, error_m in points]
