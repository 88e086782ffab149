"""Real fixes, as a logger wrote them; they lie beside this repository where they may be had."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import hereish
from hereish.traces import sanitize_frame
from tests.support.paths import GEOLIFE

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)


def days(table: Any) -> list[str]:
    """Each row's user and local date."""
    local = pc.local_timestamp(table["at"].cast(pa.timestamp("us", tz="Asia/Shanghai")))
    rows = zip(table["user"].to_pylist(), pc.strftime(local, "%F").to_pylist(), strict=True)
    return [f"{user} {date}" for user, date in rows]


def test_a_slice_of_geolife_is_accounted_for_and_paid_for_by_user_and_day() -> None:
    if not GEOLIFE.is_file():
        pytest.skip(f"needs {GEOLIFE.name}, which is not ours to ship")
    table = pq.ParquetFile(GEOLIFE).read_row_group(0).slice(0, 300_000)
    m = hereish.fixed_utility(PRIVACY, 3000, window=hereish.Day("Asia/Shanghai"))
    out = sanitize_frame(table, m, user="user", time="at")
    assert out["at"].type == table["at"].type
    who = days(out)
    costs = out["cost"].to_numpy()
    names, codes = np.unique(who, return_inverse=True)
    for i in range(len(names)):
        assert math.fsum(costs[codes == i]) <= PRIVACY.eps_per_m
    # Everybody reports something on every day with a fix, and nothing at other times.
    assert set(names) == set(days(table))
    asked = set(zip(table["user"].to_pylist(), table["at"].to_pylist(), strict=True))
    assert set(zip(out["user"].to_pylist(), out["at"].to_pylist(), strict=True)) <= asked
