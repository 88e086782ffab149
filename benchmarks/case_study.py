"""What the case study costs: sampling against the step, and a tenth of the grid against reading."""

from __future__ import annotations

import math
import time

import numpy as np
import pyarrow.parquet as pq

import hereish
from benchmarks.results import Result, shortest_times
from hereish import synthetic
from hereish.evaluation import dataset, study
from hereish.evaluation.sampling import sample as sample_queries
from tests.support.paths import GEOLIFE


def case_study() -> list[Result]:
    """One sample of every p and configuration: a tenth of the grid."""
    real = GEOLIFE.exists()
    fixes = dataset.load([str(GEOLIFE)]) if real else dataset.synthetic(users=2000)
    kept, slow = dataset.select_on_foot(fixes)
    queries, sampling_s = 0, 0.0
    for p in study.PS:
        begun = time.perf_counter()
        queries += len(sample_queries(kept, slow, p, np.random.default_rng(1)).at_s)
        sampling_s += time.perf_counter() - begun
    ratio = sampling_s / queries / _step_s()
    settings = study.Study(samples=1)
    begun = time.perf_counter()
    for cell in study.cells(settings, fixes, "", ("authors",)):
        study.compute(settings, cell)
    grid_s = time.perf_counter() - begun
    what = "GeoLife" if real else "made-up fixes"
    rows = [
        Result(
            f"sampling a query, all p, {what} / one step of hereish.sanitize",
            f"{ratio:.1f}",
            "at most 20",
            ratio <= 20,
        ),
        Result(
            f"sampling / a tenth of the grid (11 p, 10 configurations, 1 sample), {what}",
            f"{sampling_s / grid_s:.2f}",
            "for comparison",
            True,
        ),
    ]
    if real:
        (reading,) = shortest_times(3, lambda: pq.read_table(GEOLIFE))
        rows.append(
            Result(
                f"a tenth of the grid, {what} / reading the file with pyarrow",
                f"{grid_s / reading:.0f}",
                "for comparison",
                True,
            )
        )
    return rows


def _step_s() -> float:
    """The time of one step of one trace, among many."""
    day = synthetic.day(users=200_000, points_each=30, seed=1)
    m = hereish.fixed_utility(hereish.Privacy(math.log(10), 100), 3000)
    (took,) = shortest_times(3, lambda: hereish.sanitize(m, day.points, day.at_s, day.offsets))
    return took / len(day.points)
