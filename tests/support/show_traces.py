"""Made-up traces and their reports, as readers hand them on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

import hereish
from hereish import synthetic
from hereish.traces.budgets import sanitize_rows
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import Ids, RowBatch

HELSINKI = synthetic.TIME_ZONE
DAY_S = 86_400


def batch(
    at_s: ArrayLike,
    points: ArrayLike,
    user: Sequence[object] | None = None,
    **kept: Sequence[object],
) -> RowBatch:
    at_us = np.round(np.asarray(at_s, dtype=np.float64) * 1e6).astype(np.int64)
    places = np.asarray(points, dtype=np.float64)
    return RowBatch(
        line=np.arange(len(at_us)) + 2,
        at_us=at_us,
        lat=places[:, 0],
        lon=places[:, 1],
        fault=np.zeros(len(at_us), dtype=np.uint8),
        user=None if user is None else Ids.of(user),
        kept={name: np.asarray(values) for name, values in kept.items()},
    )


def people(
    users: int = 2, days: int = 2, names: Sequence[str] | None = None
) -> tuple[RowBatch, RowBatch, GuaranteeMetadata]:
    """A true batch, its reports, and what was promised."""
    day = synthetic.day(users=users)
    code = np.repeat(np.arange(users), np.diff(day.offsets))
    at_s = np.concatenate([day.at_s + DAY_S * i for i in range(days)])
    codes, points = np.tile(code, days), np.tile(day.points, (days, 1))
    called = list(names or day.users)
    m = hereish.fixed_utility(
        hereish.Privacy(math.log(10), 100),
        3000.0,
        skip=hereish.SkipBySpeed(30.0),
        window=hereish.Day(HELSINKI),
    )
    out = sanitize_rows(m, codes, called, points, at_s, seed=11)
    user = [called[i] for i in codes]
    there = np.flatnonzero(out.released)
    reported = batch(
        at_s[there],
        out.value[there],
        [user[i] for i in there],
        kind=out.kind[there].tolist(),
        cost=out.cost[there].tolist(),
    )
    guarantee = GuaranteeMetadata(m.guarantee, True, m.privacy.eps_per_m, "day", HELSINKI)
    return batch(at_s, points, user), reported, guarantee
