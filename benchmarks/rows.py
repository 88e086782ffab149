"""What the parts of the benchmarks share: a row of the table, and how times are taken."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple


class Row(NamedTuple):
    what: str
    measured: str
    wanted: str
    met: bool


def best(rounds: int, *jobs: Callable[[], object]) -> list[float]:
    """The shortest time of each job over the rounds; the jobs take turns."""
    times = [math.inf] * len(jobs)
    for _ in range(rounds):
        for i, job in enumerate(jobs):
            start = time.perf_counter()
            job()
            times[i] = min(times[i], time.perf_counter() - start)
    return times
