"""The demonstration: a synthetic day, sanitised with and without prediction.

`python -m hereish.demo` prints a table and draws a picture. Errors compare releases with the true
trace, which only its owner may do; here the trace is made up.
"""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hereish import synthetic
from hereish.core.batch import Sanitized, sanitize
from hereish.core.mechanism import PredictiveMechanism, fixed_rate, fixed_utility, independent
from hereish.core.privacy import Privacy
from hereish.core.session import NOT_PRIVATE
from hereish.core.skip import SkipBySpeed
from hereish.core.spaces import Sphere
from hereish.core.types import Floats
from hereish.core.windows import Day

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PRIVACY = Privacy(level=math.log(10.0), radius_m=100.0)
WINDOW = Day(synthetic.TIME_ZONE)
REPETITIONS = 200
# Whose day is drawn, and sanitised by which rows of the table.
PERSON = 2
INDEPENDENT, PREDICTIVE = "independent, 3 km", "predictive with skip (30 km/h), 3 km"


def mechanisms() -> dict[str, PredictiveMechanism]:
    """The rows of the table: the same privacy for all."""
    skip = SkipBySpeed(30.0)
    restarted = SkipBySpeed(30.0, since="tested")
    return {
        INDEPENDENT: independent(PRIVACY, accuracy_m=3000.0, window=WINDOW),
        "predictive, 3 km": fixed_utility(PRIVACY, 3000.0, window=WINDOW),
        PREDICTIVE: fixed_utility(PRIVACY, 3000.0, skip=skip, window=WINDOW),
        "predictive, skip restarted, 3 km": fixed_utility(
            PRIVACY, 3000.0, skip=restarted, window=WINDOW
        ),
        "independent, 30 reports": independent(PRIVACY, reports=30, window=WINDOW),
        "predictive, 30 reports": fixed_rate(PRIVACY, 30, window=WINDOW),
    }


@dataclass(frozen=True)
class Trial:
    """Many sanitisations of the same day by one mechanism, and how far off they were."""

    out: Sanitized
    error_m: Floats  # of each query, NaN where nothing was reported

    @classmethod
    def of(cls, mechanism: PredictiveMechanism, day: synthetic.Sample, seed: int | None) -> Trial:
        """Sanitise `REPETITIONS` copies of the day, each with noise and a budget of its own."""
        points = np.tile(day.points, (REPETITIONS, 1))
        lengths = np.tile(np.diff(day.offsets), REPETITIONS)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        out = sanitize(mechanism, points, np.tile(day.at_s, REPETITIONS), offsets, seed)
        return cls(out, Sphere().distance(points, out.value))

    def cells(self) -> tuple[str, ...]:
        """One line of the table, for one person and day on average."""
        out, days = self.out, len(self.out.spent)
        made, wanted = np.count_nonzero(out.released), len(out.released)
        error_m = self.error_m[out.released]
        return (
            f"{made / days:.1f} of {wanted / days:.1f}",
            f"{made / wanted:.0%}",
            f"{error_m.mean():.0f} m",
            f"{np.quantile(error_m, 0.9):.0f} m",
            f"{out.spent.mean() / PRIVACY.eps_per_m:.0%}",
            f"{np.count_nonzero(out.hard) / days:.1f}",
        )


HEADS = (
    ("", "reports", "", "average", "90%", "budget", "fresh"),
    ("", "made", "", "error", "within", "used", "noise"),
)


def table(trials: dict[str, Trial]) -> str:
    """The trials as text, one a line."""
    rows = [*HEADS, *((name, *trial.cells()) for name, trial in trials.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "   ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    return "\n".join([*lines[:2], "-" * len(lines[0]), *lines[2:]])


def before(day: synthetic.Sample) -> str:
    """What was asked, and what was promised."""
    return _paragraphs(
        f"{len(day.users)} made-up people, one synthetic day, {len(day.points)} requests to report "
        "where they are.",
        f"The promise is the same in every row. For {WINDOW.covers()} of one person: {PRIVACY}. "
        "Reporting stops when the next report might not fit the budget.",
        "3 km: fresh noise is within 3 km nine times in ten, and reports go on while the budget "
        "lasts. 30 reports: the budget is planned for that many, as accurate as it allows.",
    )


def after() -> str:
    """How to read the table, and what not to do with a real trace."""
    return _paragraphs(
        "The predictive mechanism repeats its last report while a private test finds that near "
        "enough, and draws fresh noise only when it is not. For the same promise that gives more "
        "reports at 3 km, and smaller errors at 30 reports. With skip it spares the test too, "
        "while nobody at 30 km/h could have gone 3 km since the noise was drawn; restarted: since "
        "the last passed test.",
        f"Numbers are for one person and day, averaged over {REPETITIONS} sanitisations with "
        "noise of their own, so that they are no accident of one draw. (With a real trace each "
        "would cost a budget of its own.) Errors are those of the reports made, and compare them "
        "with the true trace: they are for its owner's eyes only. This one is synthetic.",
    )


def _paragraphs(*words: str) -> str:
    return "\n\n".join(textwrap.fill(paragraph, 88) for paragraph in words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, draw the picture."""
    parser = argparse.ArgumentParser(prog="python -m hereish.demo", description=__doc__)
    parser.add_argument(
        "--picture", type=Path, default=Path("demo-trace.png"), help="where to draw (%(default)s)"
    )
    parser.add_argument("--seed", type=int, help="the same numbers each time: NOT PRIVATE")
    options = parser.parse_args(arguments)
    day = synthetic.day()
    print(before(day), end="\n\n")
    trials = {name: Trial.of(m, day, options.seed) for name, m in mechanisms().items()}
    print(table(trials), end="\n\n")
    print(after())
    if options.seed is not None:
        print(f"\n{NOT_PRIVATE} That is what --seed is for.")
    try:
        figure = draw(day, trials[PREDICTIVE], trials[INDEPENDENT])
    except ImportError:
        print("\nNo picture: it needs matplotlib. Get it with: pip install 'hereish[plot]'")
        return 0
    try:
        figure.savefig(options.picture)
    except (OSError, ValueError) as refused:  # no such folder, or not the name of a picture
        print(f"\nThe picture could not be written: {refused}", file=sys.stderr)
        return 1
    print(f"\nOne person's day, before and after, is drawn in {options.picture.resolve()}")
    return 0


# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
_TRUE, _FRESH, _REPEATED, _MISSING, _STREET = "#0072B2", "#D55E00", "#E69F00", "#777777", "#C4C4C4"
_MARKS: dict[str, dict[str, Any]] = {
    "true": {"marker": "o", "s": 24, "color": _TRUE, "linewidths": 0},
    "hard": {"marker": "D", "s": 44, "color": _FRESH, "edgecolors": "white", "linewidths": 0.8},
    "easy": {"marker": "o", "s": 30, "color": _REPEATED, "linewidths": 0},
    "untested": {"marker": "o", "s": 24, "facecolors": "white", "edgecolors": _REPEATED},
    "": {"marker": "x", "s": 26, "color": _MISSING, "linewidths": 1.2},
}
_NAMED = {"home": 18, "work": -18, "shop": 18, "visit": -18}  # names clear of the streets
_NUMBER: dict[str, Any] = {
    "color": "white",
    "ha": "center",
    "va": "center_baseline",
    "fontsize": 9,
    "fontweight": "bold",
}
_MEANINGS = {
    "true": "the person, when asked to report",
    "hard": "released: fresh noise (number: reports it answered)",
    "easy": "released: the last one again, it passed the test",
    "untested": "released: the last one again, test spared",
    "": "nothing released: the budget is used up",
}


def draw(day: synthetic.Sample, predictive: Trial, alone: Trial) -> Figure:
    """One person's day: the truth, and what two mechanisms released of it."""
    from matplotlib.figure import Figure  # here because the table does without it

    rows = slice(*day.offsets[PERSON : PERSON + 2])
    minutes = ((day.at_s[rows] - synthetic.MIDNIGHT_S) // 60).astype(int).tolist()
    clock = [f"{minute // 60}:{minute % 60:02}" for minute in minutes]
    true_m = synthetic.to_metres(day.points[rows])
    route_m = synthetic.to_metres(day.routes[PERSON])
    panels = {"Prediction, with skip": predictive, "Independent noise": alone}
    released_m = [synthetic.to_metres(trial.out.value[rows]) for trial in panels.values()]
    errors_km = [trial.error_m[rows] / 1000.0 for trial in panels.values()]

    # A figure of its own, not pyplot's: no window system is asked for, and no setting is changed.
    figure = Figure(figsize=(13.6, 6.8), dpi=132, layout="compressed")
    maps, strips = figure.subplots(2, 3, height_ratios=(3.6, 1))
    for axes in maps:
        axes.plot(*route_m.T, color=_STREET, linewidth=1.2, zorder=1)
        _frame(axes, np.concatenate([route_m, *released_m]))
    maps[0].set_title(f"The true day\n{len(true_m)} times asked to report", loc="left")
    maps[0].scatter(*true_m.T, zorder=4, **_MARKS["true"])
    _name_places(maps[0], route_m)
    _legend(strips[0])
    for i, (name, trial) in enumerate(panels.items()):
        kind = trial.out.kind[rows]
        _releases(maps[i + 1], true_m, released_m[i], kind)
        maps[i + 1].set_title(f"{name}\n{_summary(kind)}", loc="left")
        _strip(strips[i + 1], clock, errors_km[i], kind)
        strips[i + 1].set_ylim(0.0, 1.1 * float(np.nanmax(errors_km)))
    promise = f"The same privacy for both. For {WINDOW.covers()}: {PRIVACY}."
    figure.suptitle(textwrap.fill(promise, 120) + "\n", fontweight="bold")
    return figure


def _frame(axes: Axes, all_m: Floats) -> None:
    """The same square for each map, with a scale bar below everything that is drawn."""
    low_m, high_m = np.nanmin(all_m, axis=0), np.nanmax(all_m, axis=0)
    middle_m, half_m = (low_m + high_m) / 2.0, float(np.max(high_m - low_m)) * 0.6
    left_m, bottom_m = middle_m - half_m
    axes.set(
        xlim=(left_m, left_m + 2.0 * half_m),
        ylim=(bottom_m, bottom_m + 2.0 * half_m),
        xticks=[],
        yticks=[],
        aspect="equal",
    )
    axes.spines[:].set_color(_STREET)
    _scale_bar(axes, left_m, bottom_m, 2.0 * half_m)


def _scale_bar(axes: Axes, left_m: float, bottom_m: float, width_m: float) -> None:
    km = max(n for n in (1, 2, 5, 10, 20, 50) if n * 1000.0 <= max(width_m / 4.0, 1000.0))
    start_m, at_m = left_m + 0.04 * width_m, bottom_m + 0.035 * width_m
    axes.plot([start_m, start_m + km * 1000.0], [at_m, at_m], color="black", linewidth=3)
    axes.text(start_m, at_m + 0.015 * width_m, f"{km} km", va="bottom")


def _name_places(axes: Axes, route_m: Floats) -> None:
    stops_m = dict(zip(synthetic.STOPS, route_m[:: synthetic.ROUTE_STRIDE], strict=True))
    for name, above_pt in _NAMED.items():
        axes.annotate(
            name,
            stops_m[name],
            xytext=(0.0, above_pt),
            textcoords="offset points",
            ha="center",
            va="center",
            color=_TRUE,
            fontweight="bold",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8},
        )


def _releases(axes: Axes, true_m: Floats, released_m: Floats, kind: NDArray[np.str_]) -> None:
    """Every noisy point with lines to the places that it answered for, and how many times."""
    axes.scatter(*true_m[kind != ""].T, zorder=4, **_MARKS["true"])
    axes.scatter(*true_m[kind == ""].T, zorder=3, **_MARKS[""])
    made = np.flatnonzero(kind != "")
    for row in made:
        ends = np.stack([true_m[row], released_m[row]])
        axes.plot(*ends.T, color=_FRESH, linewidth=0.8, alpha=0.5, zorder=2)
    answered = np.diff(np.append(np.flatnonzero(kind[made] == "hard"), len(made)))
    # The larger below the smaller, and each number with its own mark, so that none is garbled.
    for times, point in sorted(
        zip(answered.tolist(), released_m[kind == "hard"].tolist(), strict=True), reverse=True
    ):
        east_m, north_m = point
        size = 44.0 if times == 1 else 300.0
        axes.scatter(east_m, north_m, zorder=6, **(_MARKS["hard"] | {"s": size}))
        if times > 1:
            axes.text(east_m, north_m, str(times), zorder=6, **_NUMBER)


def _summary(kind: NDArray[np.str_]) -> str:
    made, fresh = np.count_nonzero(kind != ""), np.count_nonzero(kind == "hard")
    return f"{made} of {len(kind)} reports made, from {fresh} noisy points"


def _strip(axes: Axes, clock: list[str], error_km: Floats, kind: NDArray[np.str_]) -> None:
    """How far off each report was, in the order of the day."""
    order = np.arange(1, len(kind) + 1)
    for name in ("", "untested", "easy", "hard"):
        rows = kind == name
        height_km = np.nan_to_num(error_km[rows])
        axes.scatter(order[rows], height_km, clip_on=False, zorder=3, **_MARKS[name])
    ticks = np.linspace(0, len(kind) - 1, 6).astype(int)
    axes.set_xticks(order[ticks], [clock[tick] for tick in ticks])
    axes.set_xlim(0, len(kind) + 1)
    axes.set_ylabel("error, km")
    axes.set_xlabel("when asked, in order")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#EEEEEE")


def _legend(axes: Axes) -> None:
    for name, meaning in _MEANINGS.items():
        axes.scatter([], [], label=meaning, **_MARKS[name])
    axes.set_axis_off()
    axes.legend(loc="center left", frameon=False, borderaxespad=0.0)


if __name__ == "__main__":
    sys.exit(main())
