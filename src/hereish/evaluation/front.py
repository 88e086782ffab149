"""A picture of what tuning found: error against rate, and which trials nobody beats in both."""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hereish.evaluation.tuning import Trial, Tuned

_BLUE, _ORANGE, _GREEN, _GREY = "#0072b2", "#d55e00", "#008060", "#8c8c8c"


def front(trials: tuple[Trial, ...]) -> list[Trial]:
    """The trials that no other beats in rate and error, from the lowest rate on."""
    best: list[Trial] = []
    for trial in sorted(trials, key=lambda t: (t.numbers.rate, t.numbers.error_mean_m)):
        if not best or trial.numbers.error_mean_m < best[-1].numbers.error_mean_m:
            best.append(trial)
    return best


def draw(tuned: Tuned, path: Path) -> None:
    """Write the picture, whole or not at all."""
    figure = Figure(figsize=(9, 6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    good = [t for t in tuned.trials if t.score < 1e6]
    bad = [t for t in tuned.trials if t.score >= 1e6]
    for some, colour, words in (
        (bad, "#cccccc", "tried, errors too large"),
        (good, _BLUE, "tried, within the limits"),
    ):
        if some:
            axes.scatter(*_places(some), s=18, color=colour, alpha=0.6, label=words, linewidths=0)
    best = front(tuple(good))
    if best:
        axes.plot(*_places(best), color=_BLUE, lw=1.2, label="not beaten in both")
    marks = (("paper", "s", _GREY), ("independent", "^", _GREY), ("tuned", "*", _ORANGE))
    for name, marker, colour in marks:
        numbers, low, high = tuned.held_out[name]
        rate, error = 100 * numbers.rate, numbers.error_mean_m / 1000
        axes.errorbar(
            rate,
            error,
            xerr=[[rate - 100 * low.rate], [100 * high.rate - rate]],
            yerr=[[error - low.error_mean_m / 1000], [high.error_mean_m / 1000 - error]],
            fmt=marker,
            color=colour,
            ms=14 if name == "tuned" else 9,
            capsize=3,
            label=f"{_CALLED[name]}, users not seen: {rate:.2f} %, {1 / numbers.rate:.0f} reports",
        )
    axes.axhline(
        tuned.goal.mean_m / 1000, color=_GREEN, ls="--", lw=1, label="limit of the average"
    )
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("rate: budget for a report, %")
    axes.set_ylabel("average error, km")
    axes.set_title("Tuned on some users, measured on others (with 95 % intervals)", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    part = path.with_name(f".{path.name}.part")
    figure.savefig(part, format="png", metadata={"Software": None})
    part.replace(path)


_CALLED = {"tuned": "tuned", "paper": "the paper's settings", "independent": "independent noise"}


def _places(trials: list[Trial]) -> tuple[list[float], list[float]]:
    rates = [100 * trial.numbers.rate for trial in trials]
    return rates, [trial.numbers.error_mean_m / 1000 for trial in trials]
