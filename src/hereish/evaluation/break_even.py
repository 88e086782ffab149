"""Where prediction stops paying off: above which p independent noise would have spent less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hereish.evaluation.study import Row
from hereish.evaluation.study_settings import StudySettings


class Payoff(NamedTuple):
    """The p at which two curves cross; None where they do not."""

    rate_crosses: float | None  # the predictive mechanism's rate and the independent one's
    prediction_crosses: float | None  # the prediction rate and the break-even of section 3
    break_even: float


def find_payoff(rows: Sequence[Row], settings: StudySettings) -> Payoff:
    """For fixed utility without skipping, in rows of one data set and sampling."""
    own = [row for row in rows if row["manager"] == "fixed_utility" and not row["skip"]]
    ours, theirs = (
        {row["p"]: row for row in own if row["mechanism"] == name and row["rate"] is not None}
        for name in ("predictive", "independent")
    )
    ps = sorted(p for p in ours if p is not None and p in theirs)
    break_even = settings.describe("fixed_utility").build().break_even or 0.0
    extra_cost = [ours[p]["rate"] - theirs[p]["rate"] for p in ps]
    shortfall = [break_even - ours[p]["prediction_rate"] for p in ps]
    return Payoff(_crossing(ps, extra_cost), _crossing(ps, shortfall), break_even)


def _crossing(ps: Sequence[float], values: Sequence[float]) -> float | None:
    """Where values that begin below 0 first rise above it, between the p that were tried."""
    above = np.flatnonzero(np.array(values) > 0.0)
    if not len(above) or above[0] == 0:
        return None
    i = int(above[0])
    share = -values[i - 1] / (values[i] - values[i - 1])
    return float(ps[i - 1] + share * (ps[i] - ps[i - 1]))
