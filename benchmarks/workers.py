"""Two workers of `hereish.sanitize` against one, by the clock: nothing else may run beside them."""

from __future__ import annotations

from functools import partial

import hereish
from benchmarks import whole_days
from benchmarks.mechanism import mechanisms, traces
from benchmarks.processes import ALL_CORES, all_cores
from benchmarks.results import Result, shortest_times

TRACES, PEOPLE = 400_000, 200_000


def workers() -> list[Result]:
    """The paper's mechanisms, and the default one."""
    if len(ALL_CORES) < 2:
        return []
    data = traces(TRACES)
    measured = {f"{name}, {TRACES:,} traces of 30": (m, data) for name, m in mechanisms().items()}
    day = whole_days.days_of(PEOPLE, 1)
    name = f"whole_day, {PEOPLE:,} people, {whole_days.REPORTS} reports"
    measured[name] = (whole_days.mechanism(), day)
    rows = []
    with all_cores():
        for name, (m, given) in measured.items():
            one, two = shortest_times(
                15,
                partial(hereish.sanitize, m, *given),
                partial(hereish.sanitize, m, *given, workers=2),
            )
            ratio = one / two
            rows.append(
                Result(
                    f"time, {name}, one worker / two, on two cores",
                    f"{ratio:.2f}",
                    "at least 1.7",
                    ratio >= 1.7,
                )
            )
    return rows
