"""The figure of tuning: error against rate of all trials, and their Pareto front."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from hereish.evaluation.figures.style import BLUE, DPI, GREEN, GREY, LIGHT_GREY, RED, save_png
from hereish.evaluation.tuning import Tuned

Point = tuple[float, float]  # rate, and average error in metres


def pareto_front(points: Iterable[Point]) -> list[Point]:
    """The points that no other beats in rate and error, from the lowest rate on."""
    best: list[Point] = []
    for rate, error_m in sorted(points):
        if not best or error_m < best[-1][1]:
            best.append((rate, error_m))
    return best


def draw(tuned: Tuned, path: Path) -> None:
    """Write the figure to a PNG file."""
    figure = Figure(figsize=(9, 6), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    tried = [point for trial in tuned.trials for point in trial.tried]
    axes.scatter(*_scaled(tried), s=9, color=LIGHT_GREY, label="tried", linewidths=0)
    good = [(t.metrics.rate, t.metrics.error_mean_m) for t in tuned.trials if t.score < 1e6]
    axes.scatter(*_scaled(good), s=18, color=BLUE, alpha=0.6, label="just within the limits")
    axes.plot(*_scaled(pareto_front(tried)), color=BLUE, lw=1.2, label="Pareto front")
    marks = (("paper", "s", GREY), ("independent", "^", GREY), ("tuned", "*", RED))
    for name, marker, color in marks:
        metrics, low, high = tuned.held_out[name]
        rate, error = 100 * metrics.rate, metrics.error_mean_m / 1000
        axes.errorbar(
            rate,
            error,
            xerr=_error_bar(rate, 100 * low.rate, 100 * high.rate),
            yerr=_error_bar(error, low.error_mean_m / 1000, high.error_mean_m / 1000),
            fmt=marker,
            color=color,
            ms=14 if name == "tuned" else 9,
            capsize=3,
            label=f"{_LABELS[name]}, held-out users: {rate:.2f} %, {1 / metrics.rate:.0f} reports",
        )
    axes.axhline(tuned.goal.mean_m / 1000, color=GREEN, ls="--", lw=1, label="limit of the average")
    # Where something can be seen: noise far beyond the limits was tried too.
    axes.set_xlim(0, 110 * tuned.held_out["independent"].value.rate)
    axes.set_ylim(0, 1.6 * tuned.goal.mean_m / 1000)
    axes.set_xlabel("rate: budget per report, %")
    axes.set_ylabel("average error, km")
    axes.set_title("Tuned on some users, measured on others (with 95 % intervals)", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    save_png(figure, path)


_LABELS = {"tuned": "tuned", "paper": "the paper's settings", "independent": "independent noise"}


def _error_bar(value: float, low: float, high: float) -> list[list[float]]:
    """How far an interval reaches down and up; never below 0, by rounding."""
    return [[max(0.0, value - low)], [max(0.0, high - value)]]


def _scaled(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [100 * rate for rate, _ in points], [error_m / 1000 for _, error_m in points]
