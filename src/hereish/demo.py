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
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hereish import synthetic
from hereish.core.batch import sanitize
from hereish.core.batch_results import Sanitized
from hereish.core.mechanism import PredictiveMechanism, fixed_rate, fixed_utility, independent
from hereish.core.presets import whole_day
from hereish.core.privacy import Privacy
from hereish.core.session import NOT_PRIVATE
from hereish.core.skip import SkipBySpeed
from hereish.core.spaces import Sphere
from hereish.core.types import Floats, Kind
from hereish.core.windows import Day

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PRIVACY = Privacy(level=math.log(10.0), radius_m=100.0)
WINDOW = Day(synthetic.TIME_ZONE)
REPETITIONS = 200
PERSON = 2  # whose day is drawn
_NAMED_STOPS = {"home": 18, "work": -18, "shop": 18, "visit": -18}  # points above the stop
# The rows of the table that are drawn.
INDEPENDENT, WHOLE_DAY = "independent, 3 km", "whole day (the default)"


def mechanisms() -> dict[str, PredictiveMechanism]:
    """The rows of the table: the same privacy for all."""
    skip = SkipBySpeed(30.0)
    restarted = SkipBySpeed(30.0, since="tested")
    return {
        WHOLE_DAY: whole_day(PRIVACY, window=WINDOW),
        INDEPENDENT: independent(PRIVACY, accuracy_m=3000.0, window=WINDOW),
        "predictive, 3 km": fixed_utility(PRIVACY, 3000.0, window=WINDOW),
        "predictive with skip (30 km/h), 3 km": fixed_utility(
            PRIVACY, 3000.0, skip=skip, window=WINDOW
        ),
        "predictive, skip restarted, 3 km": fixed_utility(
            PRIVACY, 3000.0, skip=restarted, window=WINDOW
        ),
        "independent, 30 reports": independent(PRIVACY, reports=30, window=WINDOW),
        "predictive, 30 reports": fixed_rate(PRIVACY, 30, window=WINDOW),
    }


@dataclass(frozen=True)
class DemoResult:
    """Many sanitisations of the same day by one mechanism, and how far off they were."""

    out: Sanitized
    error_m: Floats  # of each query, NaN where nothing was reported

    @classmethod
    def of(
        cls, mechanism: PredictiveMechanism, day: synthetic.Sample, seed: int | None
    ) -> DemoResult:
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


def table(results: dict[str, DemoResult]) -> str:
    """The results as text, one per line."""
    rows = [*HEADS, *((name, *result.cells()) for name, result in results.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "   ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    return "\n".join([*lines[:2], "-" * len(lines[0]), *lines[2:]])


def introduction(day: synthetic.Sample) -> str:
    """The queries and the promise."""
    return _paragraphs(
        f"{len(day.users)} made-up people, one synthetic day, {len(day.points)} requests to report "
        "where they are.",
        f"The promise is the same in every row. For {WINDOW.covers()} of one person: {PRIVACY}. "
        "Reporting stops when the next report might not fit the budget.",
        "Whole day: the budget is spent by the clock, so that it lasts until midnight. 3 km: fresh "
        "noise is within 3 km nine times in ten, and reports go on while the budget lasts. "
        "30 reports: the budget is planned for that many, as accurate as it allows.",
    )


def explanation() -> str:
    """How to read the table, and what not to do with a real trace."""
    return _paragraphs(
        "The predictive mechanism repeats its last report while a private test finds that near "
        "enough, and draws fresh noise only when it is not. For the same promise that gives more "
        "reports at 3 km, and smaller errors at 30 reports. The default also draws the noise "
        "first, so that a failed test costs nothing extra, and remembers places. With skip the "
        "test is spared too, while nobody at 30 km/h could have gone 3 km since the noise was "
        "drawn; restarted: since the last passed test.",
        f"Numbers are for one person and day, averaged over {REPETITIONS} sanitisations with "
        "noise of their own, so that they are no accident of one draw. (With a real trace each "
        "would cost a budget of its own.) Errors are those of the reports made, and compare them "
        "with the true trace: they are for its owner's eyes only. This one is synthetic.",
    )


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(textwrap.fill(paragraph, 88) for paragraph in texts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, draw the picture."""
    parser = argparse.ArgumentParser(prog="python -m hereish.demo", description=__doc__)
    parser.add_argument(
        "--picture", type=Path, default=Path("demo-trace.png"), help="where to draw (%(default)s)"
    )
    parser.add_argument("--seed", type=int, help="the same numbers each time: NOT PRIVATE")
    options = parser.parse_args(arguments)
    day = synthetic.day()
    print(introduction(day), end="\n\n")
    results = {name: DemoResult.of(m, day, options.seed) for name, m in mechanisms().items()}
    print(table(results), end="\n\n")
    print(explanation())
    if options.seed is not None:
        print(f"\n{NOT_PRIVATE} That is what --seed is for.")
    try:
        figure = draw(day, results[WHOLE_DAY], results[INDEPENDENT])
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


def draw(day: synthetic.Sample, predictive: DemoResult, independent_noise: DemoResult) -> Figure:
    """One person's day: the truth, and what two mechanisms released for it."""
    from matplotlib.figure import Figure  # here because the table does without it

    from hereish.evaluation.figures import release_map as maps
    from hereish.evaluation.figures.style import LIGHT_GREY

    rows = slice(*day.offsets[PERSON : PERSON + 2])
    route_km = synthetic.to_metres(day.routes[PERSON]) / 1000.0
    true_km = synthetic.to_metres(day.points[rows]) / 1000.0
    results = {"Prediction, for the whole day": predictive, "Independent noise": independent_noise}
    traces = {
        name: maps.ReleasedTrace(
            true_km, synthetic.to_metres(result.out.value[rows]) / 1000.0, result.out.kind[rows]
        )
        for name, result in results.items()
    }
    everything_km = np.concatenate([route_km, *(trace.released_km for trace in traces.values())])
    most_km = max(float(np.nanmax(trace.error_km)) for trace in traces.values())

    figure = Figure(figsize=(13.6, 6.8), dpi=132, layout="compressed")
    panels, strips = figure.subplots(2, 3, height_ratios=(3.0, 1))
    for axes in panels:
        axes.plot(*route_km.T, color=LIGHT_GREY, linewidth=1.2, zorder=1)
        side_km = maps.frame_map(axes, everything_km, margin=1.25)
    panels[0].set_title(f"The true day\n{len(true_km)} times asked to report", loc="left")
    maps.draw_true_places(panels[0], true_km)
    _name_stops(panels[0], route_km)
    maps.draw_key(strips[0], refused=True, spacing=0.4)
    for axes, strip, (name, trace) in zip(panels[1:], strips[1:], traces.items(), strict=True):
        maps.draw_releases(axes, trace, 0.019 * side_km)
        axes.set_title(f"{name}\n{_summarise(trace.kind)}", loc="left")
        maps.draw_errors(strip, np.arange(1.0, len(true_km) + 1.0), trace)
        _label_strip(strip, day.at_s[rows])
        strip.set_ylim(0.0, 1.1 * most_km)
    promise = f"The same privacy for both. For {WINDOW.covers()}: {PRIVACY}."
    figure.suptitle(textwrap.fill(promise, 120) + "\n", fontweight="bold")
    return figure


def _name_stops(axes: Axes, route_km: Floats) -> None:
    stops_km = dict(zip(synthetic.STOPS, route_km[:: synthetic.ROUTE_STRIDE], strict=True))
    for name, above_pt in _NAMED_STOPS.items():
        axes.annotate(
            name,
            stops_km[name],
            xytext=(0.0, above_pt),
            textcoords="offset points",
            ha="center",
            va="center",
            fontweight="bold",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8},
        )


def _summarise(kind: NDArray[np.str_]) -> str:
    made, fresh = np.count_nonzero(kind != ""), np.count_nonzero(kind == Kind.HARD)
    return f"{made} of {len(kind)} reports made, from {fresh} noisy points"


def _label_strip(axes: Axes, at_s: Floats) -> None:
    """Queries in their order, with the time of some of them."""
    minutes = ((at_s - synthetic.MIDNIGHT_S) // 60).astype(int)
    ticks = np.linspace(0, len(at_s) - 1, 6).astype(int)
    clock = [f"{minute // 60}:{minute % 60:02}" for minute in minutes[ticks].tolist()]
    axes.set_xticks(ticks + 1, clock)
    axes.set_xlim(0, len(at_s) + 1)
    axes.set_ylabel("error, km")
    axes.set_xlabel("time of the query, in order")


if __name__ == "__main__":
    sys.exit(main())
