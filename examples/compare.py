"""hereish beside what else is done: one made-up day, and what an observer makes of each output.

`python examples/compare.py` prints the table of the README. The attack is the simplest there is:
the observer knows when somebody is at work, since times are public, and averages what was released
then. It is repeated with noise of its own many times; the median distance to the true workplace is
printed. Nothing here is private: the noise comes from a seed.
"""

# ruff: noqa: T201  # it prints

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import hereish
from hereish import synthetic

Floats = NDArray[np.float64]

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
ACCURACY_M = 3000.0
CELL_M = 5600.0  # nine of ten places of such a square lie within 3 km of its centre
ZONE_M = 500.0
REPETITIONS = 300
SPACE = hereish.Sphere()


class Row(NamedTuple):
    """One way to release a day, as the table has it."""

    name: str
    reports: float  # released per person and day
    error_mean_km: float
    error_p90_km: float
    factor: float  # what is released is at most so many times as likely 100 m away; inf: no bound
    work_within_km: float  # the observer's estimate of the workplace, median


class Day:
    """The made-up day, many times over, so that noise can be averaged."""

    def __init__(self) -> None:
        sample = synthetic.day()
        lengths = np.tile(np.diff(sample.offsets), REPETITIONS)
        self.points = np.tile(sample.points, (REPETITIONS, 1))
        self.at_s = np.tile(sample.at_s, REPETITIONS)
        self.offsets = np.concatenate([[0], np.cumsum(lengths)])
        stops = np.tile(sample.routes[:, :: synthetic.ROUTE_STRIDE], (REPETITIONS, 1, 1))
        self.trace = np.repeat(np.arange(len(lengths)), lengths)
        self.home = stops[:, synthetic.STOPS.index("home")]
        self.work = stops[:, synthetic.STOPS.index("work")]
        self.at_work = SPACE.distance(self.points, self.work[self.trace]) < 150.0

    def row(self, name: str, released: Floats, factor: float) -> Row:
        """Measure an output: a place for each query, NaN where nothing was released."""
        made = ~np.isnan(released[:, 0])
        error_km = SPACE.distance(self.points[made], released[made]) / 1000.0
        traces = len(self.work)
        seen = made & self.at_work
        count = np.bincount(self.trace[seen], minlength=traces)
        total = np.zeros((traces, 2))
        np.add.at(total, self.trace[seen], released[seen])
        guess = total[count > 0] / count[count > 0, None]
        return Row(
            name,
            np.count_nonzero(made) / traces,
            float(error_km.mean()),
            float(np.quantile(error_km, 0.9)),
            factor,
            float(np.median(SPACE.distance(guess, self.work[count > 0])) / 1000.0),
        )


def hereish_rows(day: Day) -> list[Row]:
    """The default of hereish, and planar Laplace noise with the same budget."""
    mechanisms = {
        "hereish": hereish.whole_day(PRIVACY, window=hereish.Day(synthetic.TIME_ZONE)),
        "planar Laplace, within the budget": hereish.independent(PRIVACY, accuracy_m=ACCURACY_M),
    }
    return [
        day.row(
            name,
            hereish.sanitize(m, day.points, day.at_s, day.offsets, seed=1).value,
            math.exp(PRIVACY.level),
        )
        for name, m in mechanisms.items()
    ]


def unbounded_laplace(day: Day) -> Row:
    """The same noise for every query and no budget: by composition the loss is their sum."""
    eps_per_m = SPACE.c_noise(0.9) / ACCURACY_M
    each = len(day.points) / len(day.work)
    privacy = hereish.Privacy(level=100 * 2 * each * eps_per_m, radius_m=100)
    m = hereish.independent(privacy, accuracy_m=ACCURACY_M)
    out = hereish.sanitize(m, day.points, day.at_s, day.offsets, seed=1)
    factor = math.exp(float(out.spent.mean()) * PRIVACY.radius_m)
    return day.row("planar Laplace, no budget", out.value, factor)


def rounding(day: Day) -> Row:
    """The centre of a square of a grid, which lies elsewhere each time."""
    rng = np.random.default_rng(1)
    corner = rng.uniform(0.0, CELL_M, (len(day.work), 2))[day.trace]
    metres = synthetic.to_metres(day.points)
    centres = (np.floor((metres - corner) / CELL_M) + 0.5) * CELL_M + corner
    return day.row("rounding to a grid", synthetic.to_degrees(centres), math.inf)


def zones(day: Day) -> Row:
    """The exact place, and nothing near home."""
    hidden = SPACE.distance(day.points, day.home[day.trace]) < ZONE_M
    return day.row("privacy zone at home", np.where(hidden[:, None], np.nan, day.points), math.inf)


def rows() -> list[Row]:
    """The table, row by row."""
    day = Day()
    return [*hereish_rows(day), unbounded_laplace(day), rounding(day), zones(day)]


def main() -> None:
    """Print the table as Markdown."""
    print("| | reports | average error | 90 % within | factor, whole day | work found within |")
    print("|---|---|---|---|---|---|")
    for row in rows():
        factor = "no bound" if math.isinf(row.factor) else f"{row.factor:.0f}"
        print(
            f"| {row.name} | {row.reports:.0f} | {row.error_mean_km:.1f} km "
            f"| {row.error_p90_km:.1f} km | {factor} | {row.work_within_km:.2f} km |"
        )


if __name__ == "__main__":
    main()
