"""The authors' query traces by the authors' rules give the authors' numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from hereish.evaluation import dataset, query_files, sampling
from hereish.evaluation.configurations import configurations
from hereish.evaluation.metrics import StudyMetrics, Sums
from hereish.evaluation.study_settings import StudySettings
from tests.support.paths import SHARED

TRACES = SHARED / "reference"
PUBLISHED = StudySettings(as_published=True)


class _Theirs(NamedTuple):
    """The metrics that their program has; the others are ours."""

    prediction_rate: float
    test_share: float
    skipped_share: float
    error_mean_m: float
    error_p90_m: float
    rate: float


# What their program produced (prediction rate, test share, skipped, mean, p90, rate), by manager
# and skip and p; ten runs of the noise a trace, pooled.
AUTHORS = {
    ("fixed_rate", False, 0.2): _Theirs(0.6791, 0.6448, 0.0, 1792, 3372, 0.0357),
    ("fixed_rate", False, 0.5): _Theirs(0.5976, 0.5927, 0.0, 1925, 3650, 0.0389),
    ("fixed_rate", False, 1.0): _Theirs(0.4963, 0.5388, 0.0, 2033, 3852, 0.0434),
    ("fixed_rate", True, 0.2): _Theirs(0.7430, 0.5037, 0.3865, 1974, 3797, 0.0236),
    ("fixed_rate", True, 0.5): _Theirs(0.6398, 0.5307, 0.2417, 2068, 3963, 0.0286),
    ("fixed_rate", True, 1.0): _Theirs(0.4914, 0.5159, 0.0, 2087, 3908, 0.0395),
    ("fixed_utility", False, 0.2): _Theirs(0.6953, 0.6229, 0.0, 1337, 2532, 0.0434),
    ("fixed_utility", False, 0.5): _Theirs(0.6053, 0.5559, 0.0, 1435, 2729, 0.0484),
    ("fixed_utility", False, 1.0): _Theirs(0.4995, 0.4960, 0.0, 1563, 2979, 0.0544),
    ("fixed_utility", True, 0.2): _Theirs(0.7879, 0.5145, 0.5340, 1510, 2903, 0.0219),
    ("fixed_utility", True, 0.5): _Theirs(0.6697, 0.4642, 0.3429, 1527, 2923, 0.0329),
    ("fixed_utility", True, 1.0): _Theirs(0.4981, 0.4630, 0.0, 1542, 2984, 0.0510),
}


def measured(
    setting: StudySettings, manager: str, skip: bool, p: float
) -> tuple[StudyMetrics, StudyMetrics]:
    """The numbers, and the standard error of each by a bootstrap."""
    path = TRACES / f"sampled-p{p}.csv"
    if not path.is_file():
        pytest.skip(f"needs {path.name}, sampled GeoLife traces that are not ours to ship")
    queries, told = query_files.read(str(path))
    assert told == p
    configuration = next(
        c
        for c in configurations(setting)
        if (c.mechanism, c.manager, c.skip) == ("predictive", manager, skip)
    )
    sums = Sums.zero(queries.users)
    for seed in range(10):
        sums.add(queries, configuration.run(queries, seed), setting.privacy.eps_per_m)
    errors = [float(np.std(column)) for column in sums.resample(np.random.default_rng(0))]
    return sums.metrics(), StudyMetrics(*errors)


@pytest.mark.parametrize(("manager", "skip", "p"), AUTHORS)
def test_their_rules_give_their_numbers(manager: str, skip: bool, p: float) -> None:
    theirs = AUTHORS[manager, skip, p]
    ours, errors = measured(PUBLISHED, manager, skip, p)
    for name, expected in theirs._asdict().items():
        if name == "error_mean_m" and manager == "fixed_rate" and not skip and p < 0.5:
            continue  # moved by a few last steps of hundreds of kilometres: the p90 is compared
        found, error = getattr(ours, name), getattr(errors, name)
        assert abs(found - expected) <= max(0.02 * expected, 3 * error, 1e-9), name


def test_the_check_can_tell_rules_apart() -> None:
    # Our own rules spend less at the first step and never pass the budget.
    theirs = AUTHORS["fixed_utility", False, 0.2]
    ours, errors = measured(StudySettings(), "fixed_utility", False, 0.2)
    assert abs(ours.rate - theirs.rate) > max(0.02 * theirs.rate, 3 * errors.rate)


def test_their_program_passes_its_budget_and_ours_does_not() -> None:
    kept, slow = dataset.select_on_foot(dataset.synthetic(users=80))
    queries = sampling.sample(kept, slow, 0.0, np.random.default_rng(2))
    trace = np.repeat(np.arange(len(queries)), np.diff(queries.offsets))
    eps = PUBLISHED.privacy.eps_per_m

    def most(setting: StudySettings) -> float:
        every = configurations(setting)
        chosen = next(c for c in every if c.name == "predictive_fixed_utility")
        spent = np.bincount(trace, chosen.run(queries, 1).cost, len(queries))
        return float(spent.max() / eps)

    assert 1.0 < most(PUBLISHED) < 1.1
    assert most(StudySettings()) <= 1.0
