"""What the mobility model does for users of GeoLife that nobody tuned it on, as it comes."""

from __future__ import annotations

import numpy as np
import pytest

from hereish.evaluation import dataset, mobility_study
from hereish.evaluation.day_study import EVERY_S
from hereish.evaluation.days import select_days
from tests.support.paths import DATA


def test_it_beats_memory_alone_for_held_out_users_of_geolife_with_ten_days() -> None:
    path = DATA / "geolife.parquet"
    if not path.is_file():
        pytest.skip("needs geolife.parquet, which is not ours to ship")
    data = dataset.load([str(path)], jobs=2)
    training = dataset.split_users(data.users, dataset.TRAIN_SHARE, 1)
    queries = select_days(data, "Asia/Shanghai", EVERY_S)
    chosen = ~training[queries.user] & (mobility_study.days_of(queries) >= 10)
    own = queries.take(np.flatnonzero(chosen))
    found = {one.name: one.sums for one in mobility_study.compare(own, None, 8, seed=77)}
    share, _, high = found["mobility model"].ratios(
        found[mobility_study.MEMORY], np.random.default_rng(1)
    )
    assert share.belief_mean_m < 0.99
    assert share.belief_median_m < 1.0
    assert share.belief_p90_m < 0.98
    assert high.belief_mean_m < 1.0, "it is no chance of who took part"
