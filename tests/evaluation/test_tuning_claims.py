"""What `hereish tune` found on real data, for users that it was not found on."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hereish.core.settings import MechanismSettings
from hereish.core.types import Bools
from hereish.evaluation import dataset, tuning
from hereish.evaluation.sampling import sample
from tests.support.paths import GEOLIFE

# Found by `hereish tune geolife.parquet --p P --sampling S --skip tested`, 60 to 120 trials; the
# rates are the most that were asked for, on users that were not tuned on.
WANTED = {
    ("authors", 0.0): (0.0070, 2217.99, 0.38355, 1.45212, 8881.11),
    ("authors", 0.2): (0.0150, 2618.14, 0.38541, 1.48991, 7149.95),
    ("authors", 0.5): (0.0275, 2511.80, 0.30909, 1.21999, 7028.05),
    ("gaps", 0.0): (0.0085, 2223.75, 0.30361, 4.98902, 6691.22),
    ("gaps", 0.2): (0.0110, 2511.80, 0.28127, 1.27720, 11420.51),
    ("gaps", 0.5): (0.0185, 2409.77, 0.22264, 1.05174, 6878.26),
}


@pytest.fixture(scope="module")
def held_out() -> dict[str, tuple[dataset.Trajectories, Bools]]:
    """By sampling: traces of users that were not tuned on, and where they were on foot."""
    if not GEOLIFE.is_file():
        pytest.skip("needs geolife.parquet, which is not ours to ship")
    geolife = dataset.load([str(GEOLIFE)], jobs=2)
    found = {}
    for sampling, cut in (("authors", geolife), ("gaps", dataset.cut_at_silence(geolife))):
        kept, slow = dataset.select_on_foot(cut)
        users = np.random.default_rng(1).permutation(np.unique(kept.user))
        others = ~np.isin(kept.user, users[: round(0.5 * len(users))])
        found[sampling] = kept.take(others), slow[np.repeat(others, np.diff(kept.offsets))]
    return found


@pytest.mark.parametrize(("sampling", "p"), WANTED)
def test_settings_do_for_geolife_users_that_were_not_tuned_on(
    held_out: dict[str, tuple[dataset.Trajectories, Bools]], sampling: str, p: float
) -> None:
    wanted, accuracy_m, eta, gamma, limit_m = WANTED[sampling, p]
    settings = MechanismSettings(
        math.log(10),
        100,
        accuracy_m,
        eta=eta,
        gamma=gamma,
        prediction_rate=0.7,
        skip_kmh=30.0,
        skip_limit_m=limit_m,
        skip_since="tested",
    )
    rng = np.random.default_rng(99)  # queries and noise that the tuning did not see either
    queries = [sample(*held_out[sampling], p, rng) for _ in range(1 if p == 0 else 3)]
    metrics = tuning._sum_up(settings.build(), queries, 77).metrics()
    assert metrics.rate <= wanted
    assert metrics.error_mean_m <= 1543
    assert metrics.error_p90_m <= 3000
