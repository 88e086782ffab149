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

from hereish import sample
from hereish.arrays import Floats
from hereish.batch import Sanitized, sanitize
from hereish.mechanism import PredictiveMechanism, fixed_rate, fixed_utility, independent
from hereish.privacy import Privacy
from hereish.session import NOT_PRIVATE
from hereish.skip import SkipBySpeed
from hereish.spaces import Sphere
from hereish.windows import Day

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PRIVACY = Privacy(level=math.log(10.0), radius_m=100.0)
WINDOW = Day(sample.TIME_ZONE)
REPETITIONS = 200
PERSON = 2  # whose day is drawn
INDEPENDENT, PREDICTIVE = "independent, 3 km", "predictive with skip (30 km/h), 3 km"  # and how


def mechanisms() -> dict[str, PredictiveMechanism]:
    """The rows of the table: the same privacy for all."""
    skip = SkipBySpeed(30.0)
    again = SkipBySpeed(30.0, since="tested")
    return {
        INDEPENDENT: independent(PRIVACY, accuracy_m=3000.0, window=WINDOW),
        "predictive, 3 km": fixed_utility(PRIVACY, 3000.0, window=WINDOW),
        PREDICTIVE: fixed_utility(PRIVACY, 3000.0, skip=skip, window=WINDOW),
        "… skip again after each test": fixed_utility(PRIVACY, 3000.0, skip=again, window=WINDOW),
        "independent, 30 reports": independent(PRIVACY, reports=30, window=WINDOW),
        "predictive, 30 reports": fixed_rate(PRIVACY, 30, window=WINDOW),
    }


@dataclass(frozen=True)
class Trial:
    """Many sanitisations of the same day by one mechanism, and how far off they were."""

    out: Sanitized
    error_m: Floats  # of each query, NaN where nothing was reported

    @classmethod
    def of(cls, mechanism: PredictiveMechanism, day: sample.Sample, seed: int | None) -> Trial:
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


def table(trials: dict[str, Trial]) -> str:
    """The trials as text, one a line."""
    heads = ("", "reports made", "", "average error", "90 % within", "budget used", "fresh noise")
    rows = [heads, *((name, *trial.cells()) for name, trial in trials.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def told(day: sample.Sample) -> str:
    """What was promised, and how to read the table."""
    paragraphs = (
        f"{len(day.users)} made-up people asked {len(day.points)} times in one synthetic day to "
        "report where they are.",
        f"The promise, the same in every row. For {WINDOW.covers()} of one person: {PRIVACY}. "
        "When the next report might not fit what is left of that budget, reporting stops.",
        "“3 km”: fresh noise is within 3 km nine times in ten, and there are as many reports as "
        "the budget pays for. “30 reports”: that many are planned, as accurate as it allows.",
    )
    return "\n".join(textwrap.fill(words, 96) for words in paragraphs)


READING = """\
Prediction repeats the last report while a private test finds it near enough, and draws fresh noise
only when it is not: the same promise gives more reports at 3 km, or better ones at 30 reports. With
skip, the test is spared too while nobody at 30 km/h could be 3 km from where the noise was drawn.

Numbers are for one person and day, averaged over {repetitions} sanitisations of the same day; with
a real trace each of them would cost a budget of its own. Errors are of the reports made, against
the true trace: with a real one they would be for its owner's eyes only."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, draw the picture."""
    parser = argparse.ArgumentParser(prog="python -m hereish.demo", description=__doc__)
    parser.add_argument(
        "--picture", type=Path, default=Path("demo-trace.png"), help="where to draw (%(default)s)"
    )
    parser.add_argument("--seed", type=int, help="the same numbers each time: NOT PRIVATE")
    options = parser.parse_args(arguments)
    day = sample.day()
    print(told(day), end="\n\n")
    trials = {name: Trial.of(m, day, options.seed) for name, m in mechanisms().items()}
    print(table(trials), end="\n\n")
    print(READING.format(repetitions=REPETITIONS))
    if options.seed is not None:
        print(f"\n{NOT_PRIVATE} That is what --seed is for.")
    try:
        draw(day, trials[PREDICTIVE], trials[INDEPENDENT], options.picture)
    except ImportError:
        print("\nNo picture: it needs matplotlib. Get it with: pip install 'hereish[plot]'")
    except (OSError, ValueError) as refused:  # no such folder, or not the name of a picture
        print(f"\nThe picture could not be written: {refused}", file=sys.stderr)
        return 1
    else:
        print(f"\nOne person's day, before and after, is drawn in {options.picture.resolve()}")
    return 0


# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
_TRUE, _FRESH, _REPEATED, _MISSING = "#0072B2", "#D55E00", "#E69F00", "#777777"
_STREET = "#BBBBBB"
_MARKS: dict[str, dict[str, Any]] = {
    "true": {"marker": "o", "s": 22, "color": _TRUE, "linewidths": 0},
    "hard": {"marker": "D", "s": 42, "color": _FRESH, "edgecolors": "white", "linewidths": 0.8},
    "easy": {"marker": "o", "s": 26, "color": _REPEATED, "linewidths": 0},
    "untested": {"marker": "o", "s": 20, "facecolors": "white", "edgecolors": _REPEATED},
    "": {"marker": "x", "s": 26, "color": _MISSING, "linewidths": 1.2},
}
_MEANINGS = {
    "true": "where the person truly was when asked",
    "hard": "released: fresh noise",
    "easy": "the last release again, after a private test",
    "untested": "the last release again, test spared",
    "": "no report: the budget is used up",
}


def draw(day: sample.Sample, predictive: Trial, alone: Trial, path: Path) -> None:
    """One person's day: the truth, and what two mechanisms released of it."""
    import matplotlib as mpl  # not needed for the table, and slow to import

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = slice(day.offsets[PERSON], day.offsets[PERSON + 1])
    true_m = sample.to_metres(day.points[rows])
    route_m = sample.to_metres(day.routes[PERSON])
    hours = (day.at_s[rows] - sample.MIDNIGHT_S) / 3600.0
    panels = {
        "Prediction, with skip": (predictive, rows),
        "Independent noise": (alone, rows),
    }
    released_m = [sample.to_metres(trial.out.value[rows]) for trial, rows in panels.values()]
    with plt.rc_context({"font.size": 10, "axes.titlesize": 12, "figure.dpi": 130}):
        figure, (maps, strips) = plt.subplots(
            2, 3, figsize=(15, 7.4), height_ratios=(4, 1.25), layout="constrained"
        )
        for axes in maps:
            axes.plot(*route_m.T, color=_STREET, linewidth=1.2, zorder=1)
            axes.scatter(*true_m.T, zorder=3, **_MARKS["true"])
            _frame(axes, np.concatenate([true_m, route_m, *released_m]))
        maps[0].set_title(f"The true day: {len(true_m)} queries\nsecret, and made up")
        _name_places(maps[0], route_m)
        _legend(strips[0])
        for i, (name, (trial, _)) in enumerate(panels.items(), start=1):
            kind = trial.out.kind[rows]
            _releases(maps[i], true_m, released_m[i - 1], kind)
            maps[i].set_title(f"{name}: {_summary(kind)}")
            _strip(strips[i], hours, trial.error_m[rows] / 1000.0, kind)
        figure.savefig(path)
        plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
