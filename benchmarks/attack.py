"""What it takes an observer to attack a month of one person's releases."""

from __future__ import annotations

import time

import hereish
from benchmarks.mechanism import PRIVACY
from benchmarks.results import Result
from benchmarks.whole_days import days_of
from hereish import synthetic
from hereish.attack import Releases, attack, replay
from hereish.attack.findings import AttackOptions
from hereish.core.types import Kind

DAYS, LONGEST_S = 30, 10.0


def attack_on_a_month() -> list[Result]:
    """Replay, smoothing, home, work, stays and odds; processor seconds of all threads together."""
    data = days_of(1, DAYS)
    m = hereish.whole_day(PRIVACY, window=hereish.Day(synthetic.TIME_ZONE))
    out = hereish.sanitize(m, *data, seed=1)
    kinds = [Kind(kind) for kind in out.kind.tolist()]
    releases = Releases(data.at_s, out.value, kinds, out.cost)
    took_s = []
    for _ in range(2):  # the first one also loads what is needed
        began = time.process_time()
        (seen,) = replay(m, [releases], windows_apart=False)
        attack(seen, AttackOptions(synthetic.TIME_ZONE))
        took_s.append(time.process_time() - began)
    return [
        Result(
            f"processor time of an attack on {DAYS} days of one user, {len(data.at_s):,} releases "
            f"/ {LONGEST_S:g} s",
            f"{took_s[0] / LONGEST_S:.2f}",
            "below 1",
            took_s[0] < LONGEST_S,
        )
    ]
