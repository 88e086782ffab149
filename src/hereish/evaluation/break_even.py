"""Where predicting stops to pay: above which p independent noise would have spent less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hereish.core.mechanism import fixed_utility
from hereish.evaluation.configurations import Setting

Row = dict[str, Any]


class Payoff(NamedTuple):
    """The p at which two curves cross; None where they do not."""

    rate_crosses: float | None  # the predictive mechanism's rate and the independent one's
    prediction_crosses: float | None  # the prediction rate and the break-even of section 3
    break_even: float


def payoff(rows: Sequence[Row], setting: Setting) -> Payoff:
    """For fixed utility without skipping, in rows of one data set and sampling."""
    own = [row for row in rows if row["manager"] == "fixed_utility" and not row["skip"]]
    ours, theirs = (
        {row["p"]: row for row in own if row["mechanism"] == name and row["rate"] is not None}
        for name in ("predictive", "independent")
    )
    ps = sorted(p for p in ours if p is not None and p in theirs)
    m = fixed_utility(setting.privacy, setting.accuracy_m)
    even = m.break_even or 0.0
    dearer = [ours[p]["rate"] - theirs[p]["rate"] for p in ps]
    rarer = [even - ours[p]["prediction_rate"] for p in ps]
    return Payoff(_crosses(ps, dearer), _crosses(ps, rarer), even)


def _crosses(ps: Sequence[float], values: Sequence[float]) -> float | None:
    """Where values that begin below 0 first rise above it, between the p that were tried."""
    above = np.flatnonzero(np.array(values) > 0.0)
    if not len(above) or above[0] == 0:
        return None
    i = int(above[0])
    share = -values[i - 1] / (values[i] - values[i - 1])
    return float(ps[i - 1] + share * (ps[i] - ps[i - 1]))
