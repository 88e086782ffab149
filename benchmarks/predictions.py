"""What predictions cost: a batch of people on trains, against repeating the last release."""

from __future__ import annotations

from functools import partial

import numpy as np

import hereish
from benchmarks.results import Result, shortest_times

TRACES, REPORTS = 20_000, 30


def predictions() -> list[Result]:
    """Time per report of linear, filter and ensemble over that of parrot."""
    rng = np.random.default_rng(3)
    heading = rng.uniform(0.0, 2.0 * np.pi, (TRACES, 1))
    along_m = 300.0 * np.minimum(np.arange(REPORTS), rng.integers(5, REPORTS, (TRACES, 1)))
    start = rng.uniform([40.0, -10.0], [60.0, 30.0], (TRACES, 1, 2))
    step = np.stack([np.cos(heading), np.sin(heading)], axis=-1) / 111_195.0
    points = (start + step * along_m[:, :, None]).reshape(-1, 2)
    data = points, np.tile(10.0 * np.arange(REPORTS), TRACES), REPORTS * np.arange(TRACES + 1)
    ample = hereish.Privacy(level=1e6, radius_m=1.0)
    chosen: dict[str, hereish.Prediction] = {
        "Parrot": hereish.Parrot(),
        "Linear": hereish.Linear(),
        "Filter": hereish.Filter(),
        "Ensemble": hereish.Ensemble(),
    }
    jobs = [
        partial(hereish.sanitize, hereish.fixed_utility(ample, 200.0, prediction=one), *data)
        for one in chosen.values()
    ]
    parrot, *others = shortest_times(5, *jobs)
    rows = []
    for name, time_s in zip(list(chosen)[1:], others, strict=True):
        ratio = time_s / parrot
        what = f"time per report, fixed utility, 200 m, {TRACES:,} traces of 30: {name} / Parrot"
        rows.append(Result(what, f"{ratio:.1f}", "at most 10", ratio <= 10))
    return rows
