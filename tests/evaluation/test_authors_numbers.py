"""The same query traces through our mechanism and the authors' program.

With fixed utility and skipping their rules are ours but for the strict bound, so the numbers must
agree. The traces lie beside this repository where they may be had; their licence keeps them out.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import hereish
from tests.support.paths import SHARED

TRACES = SHARED / "reference"
PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
REPEATS = 30


class StudyMetrics(NamedTuple):
    predicted: float  # share of a trace's reports, averaged over traces, like rate and skipped
    mean_m: float
    p90_m: float
    reports: float
    rate: float
    skipped: float
    tests: float  # share of all that was spent


# What the authors' program gave for these traces: fixed utility, 3 km, skip at 30 km/h.
AUTHORS = {
    "0.2": StudyMetrics(0.7879, 1510, 2903, 15.9, 0.0219, 0.5340, 0.5145),
    "0.5": StudyMetrics(0.6697, 1527, 2923, 10.5, 0.0329, 0.3429, 0.4642),
    "1.0": StudyMetrics(0.4981, 1542, 2984, 8.4, 0.0510, 0.0, 0.4630),
}


# Three times what noise moves theirs by (0.5 % at p = 0.2, 2 % at p = 1), and the 0.56 % by which
# our noise is larger for the sake of WGS84 metres.
WITHIN = {"0.2": 0.021, "0.5": 0.036, "1.0": 0.066}


def measured(path: Path, m: hereish.PredictiveMechanism) -> StudyMetrics:
    rows = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8")
    begins = np.flatnonzero(np.r_[True, rows["trace_id"][1:] != rows["trace_id"][:-1]])
    lengths = np.tile(np.diff(np.r_[begins, len(rows)]), REPEATS)
    points = np.tile(np.column_stack([rows["lat"], rows["lon"]]).astype(float), (REPEATS, 1))
    offsets = np.r_[0, np.cumsum(lengths)]
    out = hereish.sanitize(m, points, np.tile(rows["t"].astype(float), REPEATS), offsets, seed=1)
    trace = np.repeat(np.arange(len(lengths)), lengths)

    def per_trace(of: np.ndarray) -> np.ndarray:
        return np.bincount(trace[of], minlength=len(lengths))

    reports = per_trace(out.released)
    error_m = m.space.distance(points[out.released], out.value[out.released])
    return StudyMetrics(
        predicted=float(np.mean(1 - per_trace(out.hard) / reports)),
        mean_m=float(error_m.mean()),
        p90_m=float(np.quantile(error_m, 0.9)),
        reports=float(reports.mean()),
        rate=float(np.mean(out.spent / reports) / PRIVACY.eps_per_m),
        skipped=float(np.mean(per_trace(out.kind == "untested") / reports)),
        tests=float(out.eps_test.sum() / out.cost.sum()),
    )


@pytest.mark.parametrize("p", AUTHORS)
def test_fixed_utility_with_skip_gives_the_authors_numbers(p: str) -> None:
    path = TRACES / f"sampled-p{p}.csv"
    if not path.is_file():
        pytest.skip(f"needs {path.name}, sampled GeoLife traces that are not ours to ship")
    ours = measured(path, hereish.fixed_utility(PRIVACY, 3000, skip=hereish.SkipBySpeed(kmh=30)))
    for name, theirs in AUTHORS[p]._asdict().items():
        assert getattr(ours, name) == pytest.approx(theirs, rel=WITHIN[p], abs=1e-9), name


def test_a_walker_s_half_kilometre_an_hour_does_not_give_them() -> None:
    # What the paper's text says, 0.5 km/h, is not what its program did: the check can tell.
    path = TRACES / "sampled-p0.2.csv"
    if not path.is_file():
        pytest.skip(f"needs {path.name}, sampled GeoLife traces that are not ours to ship")
    ours = measured(path, hereish.fixed_utility(PRIVACY, 3000, skip=hereish.SkipBySpeed(kmh=0.5)))
    assert ours.mean_m > 2 * AUTHORS["0.2"].mean_m
